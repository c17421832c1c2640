package catalog

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	now, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func load(t *testing.T) *Catalog {
	t.Helper()
	c, err := LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Prices on given days, in dollars per 1,000 tokens.
func TestPrices(t *testing.T) {
	t.Parallel()
	c := load(t)
	tests := []struct{ model, now, input, cached, write, output string }{
		{"gpt-6-luna", "2026-11-21T12:00:00Z", "0.000100", "0.000010", "0.000125", "0.000500"},
		{"gpt-6-sol", "2026-11-21T12:00:00Z", "0.002000", "0.000200", "0.002500", "0.010000"},
		{"gpt-6.2-astra", "2026-11-21T12:00:00Z", "0.008000", "0.000400", "0.010000", "0.040000"},
		{"gpt-5.5", "2026-11-21T12:00:00Z", "0.005000", "0.000500", "0.005000", "0.030000"},
		{"gpt-5.4", "2026-11-21T12:00:00Z", "0.002500", "0.000250", "0.002500", "0.015000"},
		{"claude-sonnet-4-6", "2026-11-21T12:00:00Z", "0.003000", "0.000300", "0.003750", "0.015000"},
		{"gpt-4.1-mini", "2026-11-21T12:00:00Z", "0.000400", "0.000100", "0.000400", "0.001600"},
		{"gpt-5.4-mini", "2026-11-21T12:00:00Z", "0.000750", "0.000075", "0.000750", "0.004500"},
		{"claude-haiku-4-5", "2026-11-21T12:00:00Z", "0.001000", "0.000100", "0.001250", "0.005000"},
		{"gemini-2.5-flash", "2026-11-30T23:59:59Z", "0.000300", "0.000030", "0.000300", "0.002500"},
		{"gemini-2.5-flash", "2026-12-01T00:00:00Z", "", "", "", ""},
		// Dated changes happen at midnight UTC.
		{"gemini-4-argon", "2026-11-30T23:59:59.999999Z", "0.002000", "0.000100", "0.002000", "0.010000"},
		{"gemini-4-argon", "2026-12-01T00:00:00Z", "0.004000", "0.000200", "0.004000", "0.020000"},
		{"gemini-4-argon", "2026-12-01T00:59:59+01:00", "0.002000", "0.000100", "0.002000", "0.010000"},
		{"gemini-3.8-flash", "2027-01-01T00:00:00Z", "0.001500", "0.000150", "0.001500", "0.007500"},
		{"gpt-5.6-sol", "2026-09-21T00:00:00Z", "0.005000", "0.000500", "0.006250", "0.030000"},
		{"claude-sonnet-5-5", "2026-10-06T00:00:00Z", "0.002000", "0.000200", "0.002500", "0.010000"},
		// Ended on 2027-01-14.
		{"gpt-4.1-mini", "2027-01-13T23:59:59Z", "0.000400", "0.000100", "0.000400", "0.001600"},
		{"gpt-4.1-mini", "2027-01-14T00:00:00Z", "", "", "", ""},
		{"gpt-3.5-turbo", "2026-11-21T12:00:00Z", "", "", "", ""},
		{"GPT-6-luna", "2026-11-21T12:00:00Z", "", "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.model+" "+test.now, func(t *testing.T) {
			t.Parallel()
			now := at(t, test.now)
			m, r, found := c.Find(test.model, now)
			i := slices.IndexFunc(c.Offered(now), func(l Listing) bool { return l.ID == test.model })
			if found != (test.input != "") || found != (i >= 0) {
				t.Fatalf("found %v, at %d of the list", found, i)
			}
			if !found {
				return
			}
			want := Costs{test.input, test.output, test.cached, test.write}
			if d := cmp.Diff(want, costs(r.At(1))); d != "" || m.ID != test.model || r.PriceList != c.Version() {
				t.Errorf("%s of %s, price list %s:\n%s", m.ID, m.Provider, r.PriceList, d)
			}
			if d := cmp.Diff(want, c.Offered(now)[i].Costs); d != "" {
				t.Errorf("listed differently:\n%s", d)
			}
		})
	}
}

// TestEdge40Steps: a request of exactly the threshold is still short.
func TestEdge40Steps(t *testing.T) {
	t.Parallel()
	_, r, _ := load(t).Find("gpt-6-sol", at(t, "2026-11-21T12:00:00Z"))
	for tokens, want := range map[int64]money.MC{
		0:       2 * money.Dollar,
		271_999: 2 * money.Dollar,
		272_000: 2 * money.Dollar,
		272_001: 4 * money.Dollar,
		900_000: 4 * money.Dollar,
	} {
		if got := r.At(tokens).Input; got != want {
			t.Errorf("%d tokens of input at %s, want %s", tokens, got.Display(), want.Display())
		}
	}
}

// TestWholePriceList shows that every price is listed exactly, and that every offered model has a price.
func TestWholePriceList(t *testing.T) {
	t.Parallel()
	c := load(t)
	for _, e := range c.entries {
		for _, p := range e.periods {
			for _, s := range p.rates.Steps {
				for text, price := range map[string]money.MC{
					perThousand(s.Input):      s.Input,
					perThousand(s.Cached):     s.Cached,
					perThousand(s.CacheWrite): s.CacheWrite,
					perThousand(s.Output):     s.Output,
				} {
					if back, err := money.Parse(text); err != nil || back*1000 != price {
						t.Errorf("%s: %s per million is listed as %s per thousand", e.model.ID, price.Display(), text)
					}
				}
			}
			if back, err := ParseSnapshot(p.rates.Snapshot()); err != nil ||
				cmp.Diff(p.rates, back, cmp.AllowUnexported(Rates{})) != "" {
				t.Errorf("%s: snapshot %s reads as %+v, %v", e.model.ID, p.rates.Snapshot(), back, err)
			}
		}
	}
	now := at(t, "2026-11-21T12:00:00Z")
	if n := len(c.Offered(now)) + len(c.Transcribing(now)); n != len(c.entries) {
		t.Errorf("%d of %d models are offered", n, len(c.entries))
	}
}

// TestAssumedPrices marks each price that does not wholly come from a page of its provider.
func TestAssumedPrices(t *testing.T) {
	t.Parallel()
	var f priceFile
	if err := yaml.Unmarshal(builtin, &f); err != nil {
		t.Fatal(err)
	}
	unsure := regexp.MustCompile(`assumed|reports|not read again`)
	assumed := map[string]bool{}
	for _, m := range f.Models {
		if assumed[m.ID] = m.Confidence == priceAssumed; assumed[m.ID] != unsure.MatchString(m.Source) {
			t.Errorf("%s: confidence is %q, the price is from %q", m.ID, m.Confidence, m.Source)
		}
	}
	for _, l := range load(t).Offered(at(t, "2026-11-21T12:00:00Z")) {
		if l.IsPriceAssumed() != assumed[l.ID] {
			t.Errorf("%s is listed as %s", l.ID, l.PriceConfidence)
		}
	}
	if !assumed["gemini-3.5-flash"] || assumed["gpt-6.2-sol"] {
		t.Errorf("assumed: %v", assumed)
	}
}

// Facts that the adapters and the checks of requests rely on.
func TestFacts(t *testing.T) {
	t.Parallel()
	c := load(t)
	want := map[string]Model{
		"gpt-6-luna": {
			Provider:         "openai",
			Family:           "gpt-6",
			ContextTokens:    1_050_000,
			MaxOutputTokens:  128_000,
			Vision:           true,
			Tools:            true,
			ForcedToolChoice: true,
			Reasoning:        true,
			Efforts:          []string{"none", "low", "medium", "high", "xhigh", "max"},
			ToolsEffort:      "none",
		},
		"gpt-6.2-sol": {
			Provider:         "openai",
			Family:           "gpt-6",
			ContextTokens:    1_050_000,
			MaxOutputTokens:  128_000,
			Vision:           true,
			Tools:            true,
			ForcedToolChoice: true,
			Responses:        true,
			Reasoning:        true,
			Efforts:          []string{"low", "medium", "high", "xhigh", "max"},
		},
		"claude-haiku-4-5": {
			Provider:         "anthropic",
			Family:           "claude-4",
			ContextTokens:    200_000,
			MaxOutputTokens:  64_000,
			Vision:           true,
			Tools:            true,
			ForcedToolChoice: true,
			Temperature:      true,
			Reasoning:        true,
			Efforts:          []string{"none", "low", "medium", "high"},
			Thinking:         "budget",
			Prefill:          true,
		},
		"claude-opus-5-5": {
			Provider:        "anthropic",
			Family:          "claude-5",
			ContextTokens:   1_000_000,
			MaxOutputTokens: 128_000,
			Vision:          true,
			Tools:           true,
			Reasoning:       true,
			Thinking:        "always",
			Efforts:         []string{"low", "medium", "high", "xhigh", "max"},
		},
		"gemini-2.5-flash-lite": {
			Provider:         "google",
			Family:           "gemini-2",
			ContextTokens:    1_048_576,
			MaxOutputTokens:  65_535,
			Vision:           true,
			Tools:            true,
			ForcedToolChoice: true,
			Temperature:      true,
			Reasoning:        true,
			Thinking:         "budget",
			Efforts:          []string{"none", "low", "medium", "high"},
		},
	}
	for id, m := range map[string]Model{
		"text-embedding-3-small": {Provider: "openai", Family: "embedding-3", ContextTokens: 8192, MaxDimensions: 1536},
		"text-embedding-3-large": {Provider: "openai", Family: "embedding-3", ContextTokens: 8192, MaxDimensions: 3072},
		"gemini-embedding-001": {
			Provider:      "google",
			Family:        "gemini-embedding",
			ContextTokens: 2048,
			MinDimensions: 128,
			MaxDimensions: 3072,
		},
	} {
		m.Embedding, m.MinDimensions = true, max(m.MinDimensions, 1)
		want[id] = m
	}
	for id, m := range want {
		got, _, _ := c.Find(id, at(t, "2026-11-21T12:00:00Z"))
		m.ID, m.PriceAssumed = id, got.PriceAssumed // which TestAssumedPrices shows
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("%s:\n%s", id, d)
		}
	}
	if m := want["gpt-6-luna"]; !m.AcceptsEffort("none") || m.AcceptsEffort("minimal") || m.AcceptsEffort("") {
		t.Error("AcceptsEffort is wrong")
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	r, err := newRates(Rates{PriceList: "2026-11-21-0123abcd", Steps: []Step{
		{0, 10_000_000, 1_000_000, 12_500_000, 50_000_000},
		{272_000, 20_000_000, 2_000_000, 25_000_000, 75_000_000},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"book":"2026-11-21-0123abcd","mc_per_million":[[0,10000000,1000000,12500000,50000000],[272000,20000000,2000000,25000000,75000000]]}`
	if r.Snapshot() != want {
		t.Errorf("snapshot %s", r.Snapshot())
	}
	for _, text := range []string{
		"", "{}", "null", `{"book":"b","mc_per_million":[]}`, `{"book":"b","mc_per_million":[[0,1,1,1]]}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,-1]]}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,0]]}`, `{"book":"b","mc_per_million":[[5,1,1,1,1]]}`,
		`{"book":"b","mc_per_million":[[0,2,2,2,2],[9,1,1,1,1]]}`,
		`{"book":"b","mc_per_million":[[0,1,2,1,1]]}`, `{"book":"b","mc_per_million":[[0,1,1,1,1]],"x":1}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,1]],"embedding":true}`,
		`{"book":"b","mc_per_million":[[0,0,0,0,0]],"embedding":true}`,
		`{"book":"b","mc_per_million":[[0,2,1,2,0]],"embedding":true}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,0],[9,2,2,2,0]],"embedding":true}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,0]],"voice_mc_per_million":[1,1,1,1,1],"embedding":true}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,1]],"embedding":false}`,
		`{"book":"b","mc_per_million":[[0,1,1,1,1]]} `, `{"book":"b","mc_per_million":[[0,1,1,1,1]]}{}`,
	} {
		if r, err := ParseSnapshot(text); err == nil {
			t.Errorf("%q reads as %+v", text, r)
		}
	}
}

const goodPriceList = `date: 2026-11-21
models:
  - id: one
    provider: openai
    family: gpt-6
    context_tokens: 1000
    max_output_tokens: 100
    vision: true
    tools: true
    forced_tool_choice: true
    temperature: fixed
    reasoning: true
    efforts: [none, low]
    tools_effort: none
    deprecated_at: 2026-12-01
    retires_at: 2027-01-01
    replacement: two
    source: somewhere, 2026-11-21
    prices:
      - {to: 2026-12-01, input: "1.00", cached: "0.10", output: "2.00"}
      - {from: 2026-12-01, input: "1.00", cached: "0.10", output: "2.00"}
      - {from: 2026-12-01, above: 500, input: "2.00", cached: "0.20", output: "3.00"}
  - id: two
    provider: google
    family: gemini-3
    context_tokens: 1000
    max_output_tokens: 100
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: free
    reasoning: false
    source: somewhere, 2026-11-21
    prices:
      - {from: 2026-11-01, to: 2026-11-22, input: "1.00", cached: "1.00", cache_write: "1.25", output: "2.00"}
      - {from: 2026-11-23, input: "1.00", cached: "1.00", output: "2.00"}
`

// Between two prices a model is not offered.
func TestGap(t *testing.T) {
	t.Parallel()
	c, err := Load([]byte(goodPriceList))
	if err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]bool{
		"2026-10-31T23:59:59Z": false,
		"2026-11-01T00:00:00Z": true,
		"2026-11-21T23:59:59Z": true,
		"2026-11-22T00:00:00Z": false,
		"2026-11-23T00:00:00Z": true,
	} {
		if _, _, found := c.Find("two", at(t, now)); found != want {
			t.Errorf("at %s found %v", now, found)
		}
	}
}

// A wrong price list is refused, and the error names line and member.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ old, new, want string }{
		{"date: 2026-11-21", "date: today", `line 1: date: "today" is not a date`},
		{"id: one", "id: One", "line 3: models[0].id: must be of a-z"},
		{"id: two", "id: one", "line 23: models[1].id: one is listed twice"},
		{"provider: google", "provider: acme", "line 24: models[1].provider: must be"},
		{"family: gemini-3", "family: other", "line 25: models[1].family: is not known"},
		{"max_output_tokens: 100", "max_output_tokens: 0", "line 7: models[0].max_output_tokens: must be above 0"},
		{"context_tokens: 1000", "context_tokens: 100", "line 6: models[0].context_tokens: must be above"},
		{"    vision: true\n", "", "line 3: models[0].vision: must be true or false"},
		{"vision: true", "vision: 7", "[8:13]"},
		{"tools: true", "tools: false", "line 10: models[0].forced_tool_choice: must be false"},
		{"    source: somewhere, 2026-11-21\n    prices:", "    confidence: some\n    source: x\n    prices:",
			"models[0].confidence: must be assumed"},
		{"temperature: fixed", "temperature: hot", "line 11: models[0].temperature: must be"},
		{"reasoning: true", "reasoning: false", "line 13: models[0].efforts: must be empty"},
		{"[none, low]", "[none, none]", "line 13: models[0].efforts[1]: none is not a level, or is listed twice"},
		{"tools_effort: none", "tools_effort: high", "line 14: models[0].tools_effort: must be one of"},
		{"temperature: fixed", "temperature: fixed\n    api: chat", "line 12: models[0].api: must be responses"},
		{"temperature: free", "temperature: free\n    api: responses", "models[1].api: must be responses"},
		{"temperature: fixed", "temperature: fixed\n    thinking: always", "line 12: models[0].thinking: must be"},
		{"temperature: free\n    reasoning: false", "temperature: free\n    reasoning: true",
			"models[1].thinking: must be"},
		{"temperature: free", "temperature: free\n    thinking: level", "models[1].thinking: must be"},
		{"temperature: fixed", "temperature: fixed\n    prefill: true", "line 12: models[0].prefill: is for models of"},
		{"temperature: fixed", "temperature: fixed\n    voices: [alloy]",
			"models[0].voices: are of realtime models only"},
		{"temperature: free", "temperature: free\n    realtime: true\n    voices: [alloy, alloy]",
			"models[1].voices[1]: alloy is not the name of a voice, or is listed twice"},
		{"id: one", "id: one\n    off: true", "models[0].off: one is not in the built-in price list"},
		{"deprecated_at: 2026-12-01", "deprecated_at: 2027-12-01", "line 15: models[0].deprecated_at: must be before"},
		{"retires_at: 2027-01-01", "retires_at: 2027-02-30",
			`line 16: models[0].retires_at: "2027-02-30" is not a date`},
		{"replacement: two", "replacement: three", "line 17: models[0].replacement: three is not another model"},
		{"    source: somewhere, 2026-11-21\n", "", "models[0].source: must name"},
		{`input: "1.00"`, `input: "1.OO"`, `line 20: models[0].prices[0].input: "1.OO" is not a price`},
		{`input: "1.00"`, `input: "-1.00"`, `line 20: models[0].prices[0].input: "-1.00" is not a price`},
		{`input: "1.00"`, `input: "0.00"`, `line 20: models[0].prices[0].input: "0.00" is not a price`},
		{`input: "1.00"`, `input: "1.0001"`, `line 20: models[0].prices[0].input: "1.0001" is not a price`},
		{`input: "1.00"`, `input: "1,000.00"`, `line 20: models[0].prices[0].input: "1,000.00" is not a price`},
		{`, output: "2.00"`, ``, `line 20: models[0].prices[0].output: "" is not a price`},
		{`cached: "0.10"`, `cached: "1.10"`, "line 20: models[0].prices[0]: cached input must not cost more"},
		{`input: "2.00"`, `input: "0.50"`, "line 21: models[0].prices[1]: a longer request must not be cheaper"},
		{"above: 500", "above: 0", "line 21: models[0].prices[1]: steps must rise"},
		{"above: 500", "above: 1000", "line 22: models[0].prices[2].above: must be below context_tokens"},
		{"{from: 2026-12-01, input", "{from: 2026-11-30, input", "line 21: models[0].prices[1]: overlaps a row above"},
		{"from: 2026-11-01, to: 2026-11-22", "from: 2026-11-01, to: 2026-11-01",
			"line 35: models[1].prices[0].to: must be after from"},
		{"    vision: false", "    visoin: false", "visoin"},
		{"    vision: false", "    vision: false\n    vision: true", "vision"},
	}
	for _, test := range tests {
		t.Run(test.new, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(goodPriceList, test.old, test.new, 1)
			if _, err := Load([]byte(text)); text == goodPriceList || err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
	for _, text := range []string{"", "date: 2026-11-21", "date: 2026-11-21\nmodels: []", "[", "7"} {
		if _, err := Load([]byte(text)); err == nil {
			t.Errorf("%q is a price list", text)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	c := load(t)
	other, err := Load(append(slices.Clone(builtin), '\n'))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(c.Version(), "2026-11-28-") || len(c.Version()) != len("2026-11-21-01234567") ||
		c.Version() == other.Version() {
		t.Errorf("versions %s, %s", c.Version(), other.Version())
	}
}

// GET /v1/models (contract §4.2): no credential, a plain array, fresh every day.
func TestModels(t *testing.T) {
	t.Parallel()
	c, err := Load([]byte(goodPriceList))
	if err != nil {
		t.Fatal(err)
	}
	now := at(t, "2026-11-21T23:59:59Z")
	source := new(Source)
	source.current.Store(c)
	h := &Handler{Catalog: source, Now: func() time.Time { return now }}
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	h.Mount(rt)
	get := func() []map[string]any {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/models", nil)
		rt.ServeHTTP(w, r)
		apitest.Check(t, r, w.Result(), w.Body.Bytes())
		var list []map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("%d %v %s: %v", w.Code, w.Header(), w.Body, err)
		}
		return list
	}
	costs := map[string]any{
		"input_cost_per_1k_usd":        "0.001000",
		"output_cost_per_1k_usd":       "0.002000",
		"cached_input_cost_per_1k_usd": "0.000100",
		"cache_write_cost_per_1k_usd":  "0.001000",
	}
	one := map[string]any{
		"id":                "one",
		"provider":          "openai",
		"voice":             nil,
		"long_context":      []any{},
		"context_window":    1000.0,
		"max_output_tokens": 100.0,
		"price_confidence":  "published",
		"capabilities": map[string]any{
			"vision":             true,
			"tools":              true,
			"forced_tool_choice": true,
			"temperature":        false,
			"reasoning":          true,
			"realtime":           false,
			"embeddings":         false,
			"reasoning_efforts":  []any{"none", "low"},
			"response_formats":   []any{"json_object", "json_schema"},
		},
		"dimensions":    nil,
		"deprecated_at": "2026-12-01T00:00:00Z",
		"retires_at":    "2027-01-01T00:00:00Z",
		"replacement":   "two",
	}
	for k, v := range costs {
		one[k] = v
	}
	list := get()
	if d := cmp.Diff(one, list[0]); d != "" || len(list) != 2 {
		t.Errorf("%d models, the first:\n%s", len(list), d)
	}
	if two := list[1]; two["replacement"] != nil || two["retires_at"] != nil ||
		two["cache_write_cost_per_1k_usd"] != "0.001250" {
		t.Errorf("the second: %v", two)
	}
	h.Providers = []string{"anthropic"}
	h.cached.Store(nil)
	if list := get(); len(list) != 0 {
		t.Errorf("models of a provider without a key are listed: %v", list)
	}
	h.Providers = nil
	h.cached.Store(nil)
	now = now.Add(time.Second) // no price for two on this day
	if list := get(); len(list) != 1 || list[0]["id"] != "one" {
		t.Errorf("the next day: %v", list)
	}
	now = at(t, "2026-12-31T23:59:59Z") // the last day of one
	if list := get(); len(list) != 2 {
		t.Errorf("on the last day: %v", list)
	}
	now = now.Add(time.Second)
	if list := get(); len(list) != 1 || list[0]["id"] != "two" {
		t.Errorf("after the last day: %v", list)
	}
	source.current.Store(load(t)) // another price list, the same day
	if list := get(); len(list) != len(load(t).Offered(now)) {
		t.Errorf("the new price list has %d", len(list))
	}
	source.current.Store(c)
	now = at(t, "2026-12-05T00:00:00Z")
	long := get()[0]["long_context"].([]any)[0].(map[string]any)
	if long["above_input_tokens"] != 500.0 || long["input_cost_per_1k_usd"] != "0.002000" {
		t.Errorf("long requests: %v", long)
	}
}

func BenchmarkFind(b *testing.B) {
	c, err := LoadBuiltin()
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if _, r, ok := c.Find("gpt-6-luna", now); !ok || r.Snapshot() == "" {
			b.Fatal("not found")
		}
	}
}

func BenchmarkBuiltin(b *testing.B) {
	for b.Loop() {
		if _, err := LoadBuiltin(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestVersionsOfGoogle: both versions of Google's API that its clients ask for are there, and no other.
func TestVersionsOfGoogle(t *testing.T) {
	t.Parallel()
	c, err := Load([]byte(goodPriceList))
	if err != nil {
		t.Fatal(err)
	}
	source := new(Source)
	source.current.Store(c)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	(&Handler{Catalog: source, Now: time.Now}).Mount(rt)
	for path, want := range map[string]int{
		"/google/v1beta/models":     http.StatusOK,
		"/google/v1/models":         http.StatusOK,
		"/google/v1/models/one":     http.StatusOK,
		"/google/v1alpha/models":    http.StatusNotFound,
		"/google/models/models/one": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}
