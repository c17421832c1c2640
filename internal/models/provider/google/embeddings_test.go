package google

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/models/provider"
)

// embeddingRequest asks for vectors of some texts.
func embeddingRequest(dimensions int64, texts ...string) *provider.Request {
	e := &provider.Embedding{Dimensions: dimensions}
	for _, text := range texts {
		e.Inputs = append(e.Inputs, provider.EmbeddingInput{Text: text})
	}
	return &provider.Request{
		ID:        "req_1",
		Model:     "gemini-embedding-001",
		Embedding: e,
		Facts:     provider.ModelFacts{Dimensions: 3072},
	}
}

// embedded are the vectors of a canonical response.
func embedded(t *testing.T, body []byte) (vectors [][]float32) {
	t.Helper()
	var list struct {
		Data []struct {
			Index     int
			Embedding json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	for i, d := range list.Data {
		v, err := provider.ParseVector(d.Embedding)
		if err != nil || d.Index != i {
			t.Fatalf("item %d: %v", i, err)
		}
		vectors = append(vectors, v)
	}
	return vectors
}

// Vectors have the length 1 with all their numbers and with fewer, which Google cuts off and does not scale.
func TestEmbeddingsAgainstTheEmulator(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(emulator.New(emulator.Options{}))
	c := New(srv.URL, "key")
	t.Cleanup(srv.Close)
	for name, test := range map[string]struct {
		request *provider.Request
		usage   *provider.Usage
	}{
		"all numbers":   {embeddingRequest(3072, "Hello", "好 🙂"), nil},
		"fewer numbers": {embeddingRequest(768, "Hello", "你好", "Hello"), nil},
		"with usage":    {embeddingRequest(3072, "!emu usage=7,0,0,0"), &provider.Usage{Input: 7}},
		"absurd usage":  {embeddingRequest(3072, `!emu usage_raw={"promptTokenCount":-7}`), nil},
	} {
		r, err := c.Complete(t.Context(), test.request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(test.usage, r.Usage); d != "" {
			t.Errorf("%s: usage\n%s", name, d)
		}
		vectors := embedded(t, r.Body)
		if len(vectors) != len(test.request.Embedding.Inputs) {
			t.Errorf("%s: %d vectors", name, len(vectors))
		}
		for _, v := range vectors {
			sum := 0.0
			for _, n := range v {
				sum += float64(n) * float64(n)
			}
			if int64(len(v)) != test.request.Embedding.Dimensions || math.Abs(sum-1) > 1e-5 {
				t.Errorf("%s: %d numbers, the sum of squares is %f", name, len(v), sum)
			}
		}
	}
	for words, kind := range map[string]provider.Kind{
		"!emu status=400":      provider.Rejected,
		"!emu status=503":      provider.Failed,
		"!emu cut=1000":        provider.Failed,
		"!emu garbage":         provider.Failed,
		"!emu error=0":         provider.Failed,
		"!emu html status=502": provider.Failed,
	} {
		_, err := c.Complete(t.Context(), embeddingRequest(3072, words))
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func TestEncodeEmbeddings(t *testing.T) {
	t.Parallel()
	body, err := Encode(embeddingRequest(768, "a \"b\"", "c"))
	const want = `{"requests":[` +
		`{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"a \"b\""}]},"outputDimensionality":768},` +
		`{"model":"models/gemini-embedding-001","content":{"parts":[{"text":"c"}]},"outputDimensionality":768}]}`
	if err != nil || string(body) != want {
		t.Errorf("%v\n%s", err, body)
	}
	if body, _ = Encode(embeddingRequest(3072, "a")); strings.Contains(string(body), "outputDimensionality") {
		t.Errorf("%s", body)
	}
	ids := embeddingRequest(3072)
	ids.Embedding.Inputs = []provider.EmbeddingInput{{IDs: []int64{1}}}
	for rule, r := range map[string]*provider.Request{
		"input: gemini-embedding-001 reads text":               ids,
		"input: gemini-embedding-001 takes at most 100 inputs": embeddingRequest(3072, make([]string, 101)...),
	} {
		_, err := Encode(r)
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != provider.Rejected || !strings.HasPrefix(e.Message, rule) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// An answer must be one vector of the right size for each input; otherwise the call has failed.
func TestEmbeddingsAnswers(t *testing.T) {
	t.Parallel()
	for body, ok := range map[string]bool{
		`{"embeddings":[{"values":[3,4]},{"values":[0,0]}]}`:   true,
		`{"embeddings":[{"values":[3,4]}]}`:                    false,
		`{"embeddings":[{"values":[3,4]},{"values":[1,2,3]}]}`: false,
		`{"embeddings":[{"values":[3,4]},{}]}`:                 false,
		`{"embeddings":[{"values":[3,4]},{"values":["1",2]}]}`: false,
		`{"embeddings":[{"values":[3,4]},7]}`:                  false,
		`{"embeddings":[]}`:                                    false,
		`{"embeddings":null}`:                                  false,
		`{}`:                                                   false,
		``:                                                     false,
		`{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}`: false,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(srv.Close)
		r := embeddingRequest(2, "a", "b")
		answer, err := New(srv.URL, "key").Complete(t.Context(), r)
		if !ok {
			var e *provider.Error
			if !errors.As(err, &e) || e.Kind != provider.Failed {
				t.Errorf("%s: %v", body, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if d := cmp.Diff([][]float32{{0.6, 0.8}, {0, 0}}, embedded(t, answer.Body)); d != "" {
			t.Errorf("%s:\n%s", body, d)
		}
	}
}
