package mock

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

func embeddingRequest(dimensions int64, texts ...string) *provider.Request {
	e := &provider.Embedding{Dimensions: dimensions}
	for _, text := range texts {
		e.Inputs = append(e.Inputs, provider.EmbeddingInput{Text: text, Tokens: int64(tokens.Count(text))})
	}
	return &provider.Request{Model: "text-embedding-3-small", Embedding: e}
}

// An answer of too many numbers is refused before any is made, by the check before the hold and by the call itself.
func TestEmbeddingsAreBounded(t *testing.T) {
	t.Parallel()
	p := New(tokens.Count, func(*provider.Request) int64 { return 1 }, time.Now, 10) // 2,560 numbers
	texts := []string{"a", "b", "c", "d", "e"}
	if err := p.Check(embeddingRequest(512, texts...)); err != nil {
		t.Error(err)
	}
	r := embeddingRequest(513, texts...)
	_, err := p.Complete(t.Context(), r)
	for _, err := range []error{p.Check(r), err} {
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != provider.Rejected || !strings.HasPrefix(e.Message, "input: ") {
			t.Error(err)
		}
	}
}

// The vectors are the same for the same text, have the length 1, and cost what was counted.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	p := New(tokens.Count, func(r *provider.Request) int64 { return tokens.CountRequest(r, "gemini-embedding") },
		time.Now, 100)
	answer := func(r *provider.Request) (vectors [][]float32, body []byte, u *provider.Usage) {
		a, err := p.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Data []struct{ Embedding json.RawMessage }
		}
		if err := json.Unmarshal(a.Body, &list); err != nil {
			t.Fatal(err)
		}
		for _, d := range list.Data {
			v, err := provider.ParseVector(d.Embedding)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, n := range v {
				sum += float64(n) * float64(n)
			}
			if int64(len(v)) != r.Embedding.Dimensions || math.Abs(sum-1) > 1e-5 {
				t.Errorf("%d numbers, the sum of squares is %f", len(v), sum)
			}
			vectors = append(vectors, v)
		}
		return vectors, a.Body, a.Usage
	}
	vectors, body, usage := answer(embeddingRequest(1536, "one", "two", "one"))
	_, again, _ := answer(embeddingRequest(1536, "one", "two", "one"))
	if !bytes.Equal(body, again) || !cmp.Equal(vectors[0], vectors[2]) || cmp.Equal(vectors[0], vectors[1]) {
		t.Error("the vectors do not follow from their texts alone")
	}
	if d := cmp.Diff(&provider.Usage{Input: 3}, usage); d != "" {
		t.Error(d)
	}
	short, _, _ := answer(embeddingRequest(8, "one"))
	if ratio := short[0][1] / short[0][0]; math.Abs(float64(ratio-vectors[0][1]/vectors[0][0])) > 1e-5 {
		t.Error("a shorter vector is not the start of the longer one")
	}
	ids := embeddingRequest(8)
	ids.Embedding.Inputs = []provider.EmbeddingInput{{IDs: []int64{1, 2}, Tokens: 2}, {IDs: []int64{2, 1}, Tokens: 2}}
	if v, _, u := answer(ids); cmp.Equal(v[0], v[1]) || u.Input != 4 {
		t.Errorf("token ids: %v, %v", v, u)
	}
	for _, usage := range []string{"none", "wrong", "fraction"} {
		if _, _, u := answer(embeddingRequest(8, "hi", "!mock usage="+usage)); u != nil {
			t.Errorf("usage=%s: %+v", usage, u)
		}
	}
	for words, kind := range map[string]provider.Kind{
		"!mock status=400": provider.Rejected,
		"!mock status=503": provider.Failed,
		"!mock cut=0":      provider.Failed,
	} {
		_, err := p.Complete(t.Context(), embeddingRequest(8, "hi", words))
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%s: %v", words, err)
		}
	}
}
