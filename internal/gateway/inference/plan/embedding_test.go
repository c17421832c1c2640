package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// embeddingInput is a call for embeddings of texts with these numbers of tokens.
func embeddingInput(t *testing.T, model string, counts ...int64) *Input {
	t.Helper()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	e := &provider.Embedding{}
	for _, n := range counts {
		e.Inputs = append(e.Inputs, provider.EmbeddingInput{Text: strings.Repeat("x", int(8*n)), Tokens: n})
	}
	r := &Request{BodyModel: model}
	r.Embedding = e
	return &Input{
		Request: r,
		Route:   Route{Path: "openai/embeddings", Chat: true},
		Caller:  &callers.Caller{App: apps.App{DevMargin: money.One / 10}},
		Catalog: book,
		Policy:  &policy.Policy{Fee: money.One / 20},
		Now:     time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}
}

// The hold is 105 % of the charge for the counted input, rounded up. By hand, with a margin of 10 % and a fee of 5 %:
// 1,000 tokens of text-embedding-3-small count as 1,250; at 2 mc a token they cost 2,500 mc, with
// margin 250 and fee 125 are charged 2,875 mc, and held for 3,018.75, so 3,019 mc.
func TestEmbeddingHold(t *testing.T) {
	t.Parallel()
	double := func(_ string, counted int64) int64 { return 2 * counted }
	for name, test := range map[string]struct {
		model     string
		counts    []int64
		ids       bool
		calibrate func(string, int64) int64
		counted   int64
		input     int64
		hold      money.MC
	}{
		"texts": {
			model:   "text-embedding-3-small",
			counts:  []int64{600, 400},
			counted: 1250,
			input:   1250,
			hold:    3019,
		},
		// 4 + 0 + 1
		"one token": {model: "text-embedding-3-small", counts: []int64{1}, counted: 2, input: 2, hold: 6},
		"large":     {model: "text-embedding-3-large", counts: []int64{1000}, counted: 1250, input: 1250, hold: 19623},
		"google":    {model: "gemini-embedding-001", counts: []int64{1000}, counted: 1000, input: 1000, hold: 18113},
		"calibrated": {
			model:     "text-embedding-3-small",
			counts:    []int64{1000},
			calibrate: double,
			counted:   1250,
			input:     2500,
			hold:      6038,
		},
		"token ids": {
			model:     "text-embedding-3-small",
			counts:    []int64{600, 400},
			ids:       true,
			calibrate: double,
			counted:   1000,
			input:     1000,
			hold:      2415,
		},
	} {
		in := embeddingInput(t, test.model, test.counts...)
		in.Calibrate = test.calibrate
		if test.ids {
			for i := range in.Request.Embedding.Inputs {
				one := &in.Request.Embedding.Inputs[i]
				one.Text, one.IDs = "", make([]int64, one.Tokens)
			}
		}
		p, err := New(in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.CountedTokens != test.counted || p.InputTokens != test.input || p.Demand.HoldMC != test.hold ||
			p.Request.MaxTokens != 0 || p.CappedBy != "" {
			t.Errorf("%s: counted %d, input %d, hold %d", name, p.CountedTokens, p.InputTokens, p.Demand.HoldMC)
		}
		if p.InputBound() != p.Model.ContextTokens*int64(len(test.counts)) {
			t.Errorf("%s: the bound of usage is %d", name, p.InputBound())
		}
	}
}

// A call for embeddings must be one that the model can answer, and only an embedding model answers it.
func TestEmbeddingRefused(t *testing.T) {
	t.Parallel()
	tokens := int64(7)
	for name, test := range map[string]struct {
		model string
		set   func(in *Input)
		want  string // "" = it is planned
	}{
		"a full vector": {"text-embedding-3-large", func(*Input) {}, ""},
		"short":         {"text-embedding-3-small", func(in *Input) { in.Request.Embedding.Dimensions = 1 }, ""},
		"too long": {"text-embedding-3-small", func(in *Input) {
			in.Request.Embedding.Dimensions = 1537
		}, "dimensions: text-embedding-3-small makes embeddings of 1 to 1536 numbers"},
		"too short": {"gemini-embedding-001", func(in *Input) {
			in.Request.Embedding.Dimensions = 127
		}, "dimensions: gemini-embedding-001 makes embeddings of 128 to 3072 numbers"},
		"a chat model":  {"gpt-6-luna", func(*Input) {}, `model: "gpt-6-luna" makes no embeddings`},
		"a voice model": {"gpt-realtime-2", func(*Input) {}, `model: "gpt-realtime-2" speaks in voice sessions only`},
		"no such model": {"vectors", func(*Input) {}, `model: "vectors" is not offered`},
		"no model":      {"", func(*Input) {}, "model: required on this route"},
		"chat": {"text-embedding-3-small", func(in *Input) {
			in.Request.Embedding, in.Request.Turns = nil,
				[]conversation.Turn{conversation.Say("user", "Hi")}
		}, `model: "text-embedding-3-small" makes embeddings only`},
		"not allowed": {"text-embedding-3-small", func(in *Input) {
			in.Caller.App.AllowedModels = []string{"text-embedding-3-large"}
		}, "is not among the app's allowed models"},
		"a long input": {"gemini-embedding-001", func(in *Input) {
			in.Request.Embedding.Inputs[0].Tokens = 2049
		}, "input: has 2049 tokens by our count; gemini-embedding-001 reads at most 2048"},
		"a full input": {"gemini-embedding-001", func(in *Input) {
			in.Request.Embedding.Inputs[0].Tokens = 2048
		}, ""},
		"many long ones": {"text-embedding-3-large", func(in *Input) {
			in.Request.Embedding.Inputs = make([]provider.EmbeddingInput, 1954)
		}, "input: at most 1953 inputs of 3072 numbers"},
		"many short ones": {"text-embedding-3-large", func(in *Input) {
			in.Request.Embedding.Inputs = make([]provider.EmbeddingInput, 2048)
			in.Request.Embedding.Dimensions = 1024
		}, ""},
		"a cap of output": {"text-embedding-3-small", func(in *Input) {
			in.Feature, in.Caller.App.DefaultMaxTokens = "f", &tokens
			in.Caller.Features = map[string]*features.Feature{"f": {Slug: "f", MaxTokens: &tokens}}
		}, ""},
	} {
		in := embeddingInput(t, test.model, 3)
		test.set(in)
		before := in.Request.Embedding
		p, err := New(in)
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil ||
			!strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v", name, err)
		case err == nil && (p.Request.Embedding == before || p.Request.Embedding.Dimensions == 0 ||
			p.Request.MaxTokens != 0):
			t.Errorf("%s: %+v", name, p.Request.Embedding)
		}
	}
}

// A refusal for money names no cap of output: the input is all that costs.
func TestEmbeddingRefusalNamesNoCap(t *testing.T) {
	t.Parallel()
	p, err := New(embeddingInput(t, "text-embedding-3-small", 3))
	if err != nil {
		t.Fatal(err)
	}
	refusal := apierr.AllocationExhausted.Errorf("too large")
	refusal.Details = map[string]any{"required_mc": money.MC(5), "remaining_mc": money.MC(1)}
	if e := p.ExplainRefusal(refusal); e.Error() != refusal.Error() || len(refusal.Details) != 2 {
		t.Errorf("%v %v", e, refusal.Details)
	}
}
