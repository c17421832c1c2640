package openai

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

// embeddingRequest asks for vectors of 1,536 numbers of some texts.
func embeddingRequest(texts ...string) *provider.Request {
	e := &provider.Embedding{Dimensions: 1536}
	for _, text := range texts {
		e.Inputs = append(e.Inputs, provider.EmbeddingInput{Text: text})
	}
	return &provider.Request{
		ID:        "req_1",
		Model:     "text-embedding-3-small",
		Embedding: e,
		Facts:     provider.ModelFacts{Dimensions: 1536},
	}
}

// readVectors reads the vectors of a canonical response.
func readVectors(t *testing.T, body []byte) (vectors [][]float32) {
	t.Helper()
	var list struct {
		Object string
		Model  string
		Data   []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &list); err != nil || list.Object != "list" {
		t.Fatalf("%v: %.200s", err, body)
	}
	for i, d := range list.Data {
		v, err := provider.ParseVector(d.Embedding)
		if err != nil || d.Index != i || d.Object != "embedding" || d.Embedding[0] != '"' {
			t.Fatalf("item %d: %v, %.200s", i, err, d.Embedding)
		}
		vectors = append(vectors, v)
	}
	return vectors
}

func lengthOf(v []float32) float64 {
	sum := 0.0
	for _, n := range v {
		sum += float64(n) * float64(n)
	}
	return math.Sqrt(sum)
}

// The emulator shares no code with the adapter and checks what the provider checks.
func TestEmbeddingsAgainstTheEmulator(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(emulator.New(emulator.Options{}))
	c := New(srv.URL+"/v1", sampleKey)
	t.Cleanup(func() {
		c.CloseIdle()
		srv.Close()
	})
	const text = "The harbour keeps its lamps lit."
	ids := embeddingRequest()
	ids.Embedding.Inputs = []provider.EmbeddingInput{{IDs: []int64{791, 61841, 13}}, {IDs: []int64{1}}}
	short := embeddingRequest(text)
	short.Embedding.Dimensions = 256
	named := embeddingRequest(text)
	named.EndUser = "6dee5b87"
	for name, test := range map[string]struct {
		request *provider.Request
		usage   *provider.Usage
	}{
		"one text":         {embeddingRequest(text), &provider.Usage{Input: 7}},
		"texts":            {embeddingRequest(text, "好 🙂", text), &provider.Usage{Input: 16}},
		"token ids":        {ids, &provider.Usage{Input: 4}},
		"fewer numbers":    {short, &provider.Usage{Input: 7}},
		"an end user":      {named, &provider.Usage{Input: 7}},
		"no usage":         {embeddingRequest("!emu no_usage"), nil},
		"usage of another": {embeddingRequest(`!emu usage_raw={"prompt_tokens":-1,"total_tokens":-1}`), nil},
	} {
		r, err := c.Complete(t.Context(), test.request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(test.usage, r.Usage); d != "" {
			t.Errorf("%s: usage\n%s", name, d)
		}
		vectors := readVectors(t, r.Body)
		if len(vectors) != len(test.request.Embedding.Inputs) {
			t.Errorf("%s: %d vectors", name, len(vectors))
		}
		for _, v := range vectors {
			if int64(len(v)) != test.request.Embedding.Dimensions || math.Abs(lengthOf(v)-1) > 1e-6 {
				t.Errorf("%s: %d numbers of length %f", name, len(v), lengthOf(v))
			}
		}
		if name == "texts" && (!cmp.Equal(vectors[0], vectors[2]) || cmp.Equal(vectors[0], vectors[1])) {
			t.Error("the vectors are not those of their texts")
		}
	}
	for words, kind := range map[string]provider.Kind{
		"!emu status=400":     provider.Rejected,
		"!emu status=503":     provider.Failed,
		"!emu cut=0":          provider.Failed,
		"!emu cut=1000":       provider.Failed,
		"!emu garbage":        provider.Failed,
		"!emu html":           provider.Failed,
		"!emu error=0 code=x": provider.Failed,
	} {
		_, err := c.Complete(t.Context(), embeddingRequest(words))
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func TestEmbeddingsBody(t *testing.T) {
	t.Parallel()
	texts := embeddingRequest("a \"b\"\n", "c")
	texts.Embedding.Dimensions, texts.EndUser = 512, "u"
	ids := embeddingRequest()
	ids.Embedding.Inputs = []provider.EmbeddingInput{{IDs: []int64{1, 20}}, {IDs: []int64{3}}}
	for want, r := range map[string]*provider.Request{
		`{"model":"text-embedding-3-small","input":["a \"b\"\n","c"],"encoding_format":"base64","dimensions":512,` +
			`"user":"u"}`: texts,
		`{"model":"text-embedding-3-small","input":[[1,20],[3]],"encoding_format":"base64"}`: ids,
	} {
		if got := string(encodeEmbeddings(r)); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// An answer must be one vector of the right size for each input; otherwise the call has failed.
func TestEmbeddingsAnswers(t *testing.T) {
	t.Parallel()
	const first, second = `{"index":0,"embedding":[0.5,-1]}`, `{"embedding":"AACAPwAAAMA=","index":1}`
	for body, want := range map[string][][]float32{
		`{"data":[` + first + `,` + second + `]}`:                                    {{0.5, -1}, {1, -2}},
		`{"data":[` + second + `,` + first + `],"x":1,"usage":null}`:                 {{0.5, -1}, {1, -2}},
		`{"data":[{"embedding":[1,2]},{"embedding":[3e-7,4]}]}`:                      {{1, 2}, {3e-7, 4}},
		`{"data":[` + first + `]}`:                                                   nil,
		`{"data":[` + first + `,` + first + `]}`:                                     nil,
		`{"data":[` + first + `,` + second + `,` + second + `]}`:                     nil,
		`{"data":[` + first + `,{"index":1,"embedding":[1,2,3]}]}`:                   nil,
		`{"data":[` + first + `,{"index":2,"embedding":[1,2]}]}`:                     nil,
		`{"data":[` + first + `,{"index":-1,"embedding":[1,2]}]}`:                    nil,
		`{"data":[` + first + `,{"index":1,"embedding":["1",2]}]}`:                   nil,
		`{"data":[` + first + `,{"index":1,"embedding":"AAAA"}]}`:                    nil,
		`{"data":[` + first + `,{"index":1,"embedding":"?"}]}`:                       nil,
		`{"data":[` + first + `,{"index":1,"embedding":"AADAfwAAwH8="}]}`:            nil, // not a number
		`{"data":[` + first + `,{"index":1,"embedding":null}]}`:                      nil,
		`{"data":[` + first + `,null]}`:                                              nil,
		`{"data":null}`:                                                              nil,
		`{}`:                                                                         nil,
		`[]`:                                                                         nil,
		``:                                                                           nil,
		`{"error":{"message":"no","type":"server_error"},"data":[` + first + `]}`:    nil,
		`{"error":null,"data":[` + first + `,` + second + `],"usage":{"prompt":-1}}`: {{0.5, -1}, {1, -2}},
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write([]byte(body))
		})
		r := embeddingRequest("a", "b")
		r.Embedding.Dimensions = 2
		answer, err := c.Complete(t.Context(), r)
		if want == nil {
			var e *provider.Error
			if !errors.As(err, &e) || e.Kind != provider.Failed || strings.Contains(e.Message, "embedding") {
				t.Errorf("%s: %v", body, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if d := cmp.Diff(want, readVectors(t, answer.Body)); d != "" || answer.Usage != nil {
			t.Errorf("%s: %v\n%s", body, answer.Usage, d)
		}
	}
}
