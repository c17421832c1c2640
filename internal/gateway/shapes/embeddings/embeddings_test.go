package embeddings

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/provider"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := func(s string, n int64) provider.EmbeddingInput { return provider.EmbeddingInput{Text: s, Tokens: n} }
	ids := func(list ...int64) provider.EmbeddingInput {
		return provider.EmbeddingInput{IDs: list, Tokens: int64(len(list))}
	}
	for body, want := range map[string][]provider.EmbeddingInput{
		`"input":"Hello world"`:              {text("Hello world", 2)},
		`"input":["Hello","\u597d","Hello"]`: {text("Hello", 1), text("好", 1), text("Hello", 1)},
		`"input":[15496,995,0]`:              {ids(15496, 995, 0)},
		`"input":[[1,2],[3]]`:                {ids(1, 2), ids(3)},
	} {
		c, err := Parse([]byte(`{"model":"m",` + body + `,"dimensions":7,"user":"u-1","x":null}`))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		r := c.Request()
		if d := cmp.Diff(&provider.Embedding{Inputs: want, Dimensions: 7}, r.Embedding); d != "" ||
			!slices.Equal(r.Ignored, []string{"user"}) || r.BodyModel != "m" || r.Stream {
			t.Errorf("%s: ignored %v\n%s", body, r.Ignored, d)
		}
	}
	many := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	for body, want := range map[string]string{
		`[]`:                                                  "body: must be a JSON object",
		`{"input":"a"}`:                                       "model: required",
		`{"model":"","input":"a"}`:                            "model: required",
		`{"model":"m"}`:                                       "input: required",
		`{"model":"m","input":null}`:                          "input: required",
		`{"model":"m","input":""}`:                            "input: must be a string that is not empty",
		`{"model":"m","input":[]}`:                            "input: must be a string, or an array",
		`{"model":"m","input":{}}`:                            "input: must be a string, or an array",
		`{"model":"m","input":7}`:                             "input: must be a string, or an array",
		`{"model":"m","input":["a",""]}`:                      "input[1]: must be a string that is not empty",
		`{"model":"m","input":["a",7]}`:                       "input[1]: must be a string that is not empty",
		`{"model":"m","input":[null]}`:                        "input: must be an array of token ids",
		`{"model":"m","input":[1,"a"]}`:                       "input: must be an array of token ids",
		`{"model":"m","input":[1,-1]}`:                        "input: must be an array of token ids",
		`{"model":"m","input":[1,1.5]}`:                       "input: must be an array of token ids",
		`{"model":"m","input":[1,null]}`:                      "input: must be an array of token ids",
		`{"model":"m","input":[[1],[]]}`:                      "input[1]: must be an array of token ids",
		`{"model":"m","input":[[1],2]}`:                       "input[1]: must be an array of token ids",
		`{"model":"m","input":"a","dimensions":0}`:            "dimensions: must be at least 1",
		`{"model":"m","input":"a","dimensions":1.5}`:          "dimensions",
		`{"model":"m","input":"a","encoding_format":"hex"}`:   "encoding_format: must be float or base64",
		`{"model":"m","input":"a","api_base":"https://a.io"}`: "api_base: not offered here",
		`{"model":"m","input":"a","input":"b"}`:               "input",
		`{"model":"m","input":[` + many(`"a"`, 2049) + `]}`:   "input: at most 2048 inputs",
		`{"model":"m","input":[` + many(`[1]`, 2049) + `]}`:   "input: at most 2048 inputs",
		`{"model":"m","input":[` + many("1", 300_001) + `]}`:  "input: at most 300000 tokens in all",
		`{"model":"m","input":[` + many(`"`+strings.Repeat("a b ", 100)+`"`, 2000) +
			`]}`: "input: at most 300000 tokens",
		`{"model":"m","input":"` + strings.Repeat("a", maxBody) + `"}`: "body: at most 8388608 bytes",
	} {
		_, err := Parse([]byte(body))
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%.60s: %v", body, err)
		}
	}
	if _, err := Parse([]byte(`{"model":"m","input":[` + many("1", 300_000) + `]}`)); err != nil {
		t.Error(err) // a model refuses it, by the bound of one input
	}
}

// The canonical list has base64. The client gets the encoding that it asked for, and usage as OpenAI writes it, also
// where the ledger row's has taken its place.
func TestBody(t *testing.T) {
	t.Parallel()
	r := &provider.Request{Model: "m", Embedding: &provider.Embedding{
		Inputs:     make([]provider.EmbeddingInput, 2),
		Dimensions: 3,
	}}
	list, err := provider.EncodeEmbeddings(r, [][]float32{{0.1, -2, 1e-9}, {0, 1, 3}}, &provider.Usage{Input: 5})
	if err != nil {
		t.Fatal(err)
	}
	const svc = `,"svc":{"user_charge_mc":7}}` + "\n"
	settled := string(list[:len(list)-1]) + svc
	var members map[string]json.RawMessage
	if err := json.Unmarshal(list, &members); err != nil {
		t.Fatal(err)
	}
	members["usage"] = json.RawMessage(`{"prompt_tokens":5,"completion_tokens":0,"total_tokens":5,` +
		`"prompt_tokens_details":{"cached_tokens":0}}`)
	sorted, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	const tail = `],"model":"m","usage":{"prompt_tokens":5,"total_tokens":5}` + svc
	for format, want := range map[string]string{
		"base64": `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"zczMPQAAAMBfcIkw"},` +
			`{"object":"embedding","index":1,"embedding":"AAAAAAAAgD8AAEBA"}` + tail,
		"float": `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2,1e-09]},` +
			`{"object":"embedding","index":1,"embedding":[0,1,3]}` + tail,
		"": `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2,1e-09]},` +
			`{"object":"embedding","index":1,"embedding":[0,1,3]}` + tail,
	} {
		body := `{"model":"m","input":"a","encoding_format":"` + format + `"}`
		if format == "" {
			body = `{"model":"m","input":"a"}`
		}
		c, err := Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		for _, canonical := range []string{settled, string(sorted[:len(sorted)-1]) + svc} {
			if got := string(c.Body([]byte(canonical))); got != want {
				t.Errorf("%s: %s\nwant %s", format, got, want)
			}
		}
	}
}
