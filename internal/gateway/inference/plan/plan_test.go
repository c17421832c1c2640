package plan

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// ceiling is the most output of the model m, whose input costs 100 micro-cents a
// token and whose output 1,000.
const ceiling = 1000

const planBook = `
date: 2026-11-21
models:
  - id: m
    provider: openai
    family: gpt-mini
    context_tokens: 100000
    max_output_tokens: 1000
    vision: false
    tools: false
    forced_tool_choice: false
    temperature: free
    reasoning: false
    source: this test
    prices:
      - {input: "1.00", cached: "1.00", output: "10.00"}
`

// newTestPlan plans a call of an app.
func newTestPlan(
	request *Request, route Route, feature string, app *apps.App, registered map[string]*features.Feature,
	book *catalog.Catalog, estimated *estimates.Calibration, fee money.PPM, now time.Time,
) (*Plan, error) {
	return New(&Input{
		Request:   request,
		Route:     route,
		Feature:   feature,
		Caller:    &callers.Caller{App: *app, Features: registered},
		Catalog:   book,
		Policy:    &policy.Policy{Fee: fee},
		Calibrate: estimated.Correct,
		Now:       now,
	})
}

// TestHoldCap resolves the output cap of a call in the four steps of contract §2,
// holds 5: request, feature, app, model. The same number bounds the provider's
// answer, prices the hold, and stands in the terms.
func TestHoldCap(t *testing.T) {
	t.Parallel()
	book, err := catalog.Load([]byte(planBook))
	if err != nil {
		t.Fatal(err)
	}
	const none = -1 // not set
	const onFeature, byHeader, elsewhere, noFeature = "ai/features/f", "header f", "header g", ""
	const tooMuch = "max_tokens: m allows at most 1000"
	for _, tt := range []struct {
		request string // members of the body
		how     string // the feature f is named by the route, by the header, or not at all
		feature int64  // its max_tokens
		app     int64  // default_max_tokens
		want    int64
		refused string
	}{
		// 1. The request, whatever the others say, less or more.
		{request: `"max_tokens":50`, feature: none, app: none, want: 50},
		{request: `"max_tokens":50`, how: byHeader, feature: 40, app: 30, want: 50},
		{request: `"max_tokens":50`, how: onFeature, feature: 40, app: 30, want: 50},
		{request: `"max_tokens":50`, how: byHeader, feature: 60, app: 70, want: 50},
		{request: `"max_completion_tokens":50`, how: byHeader, feature: 40, app: 30, want: 50},
		{request: `"max_completion_tokens":50,"max_tokens":50`, how: byHeader, feature: 40, app: 30, want: 50},
		{request: `"max_tokens":null,"max_completion_tokens":50`, how: byHeader, feature: 40, app: 30, want: 50},
		{request: `"max_tokens":1`, how: byHeader, feature: 40, app: 30, want: 1},
		{request: `"max_tokens":999`, how: byHeader, feature: 40, app: 30, want: 999},
		{request: `"max_tokens":1000`, how: byHeader, feature: 40, app: 30, want: ceiling},
		{request: `"max_tokens":1001`, how: byHeader, feature: 40, app: 30, refused: tooMuch},
		{request: `"max_completion_tokens":1001`, feature: none, app: none, refused: tooMuch},
		{request: `"max_tokens":9223372036854775807`, feature: none, app: none, refused: tooMuch},
		// 2. The feature's, if the call names a registered one.
		{how: byHeader, feature: 40, app: 30, want: 40},
		{how: onFeature, feature: 40, app: 30, want: 40},
		{how: byHeader, feature: 40, app: 50, want: 40},
		{request: `"max_tokens":null`, how: byHeader, feature: 40, app: 30, want: 40},
		{how: byHeader, feature: 1, app: none, want: 1},
		{how: byHeader, feature: ceiling, app: 30, want: ceiling},
		{how: byHeader, feature: ceiling + 1, app: 30, want: ceiling},
		{how: onFeature, feature: 1_000_000_000, app: 30, want: ceiling},
		// 3. The app's, if there is no such feature, or it says nothing.
		{how: noFeature, feature: 40, app: 30, want: 30},
		{how: elsewhere, feature: 40, app: 30, want: 30},
		{how: byHeader, feature: none, app: 30, want: 30},
		{how: onFeature, feature: none, app: 30, want: 30},
		{request: `"max_tokens":null,"max_completion_tokens":null`, feature: none, app: 30, want: 30},
		{feature: none, app: 1, want: 1},
		{feature: none, app: ceiling, want: ceiling},
		{feature: none, app: ceiling + 1, want: ceiling},
		// 4. The model's ceiling.
		{feature: none, app: none, want: ceiling},
		{how: elsewhere, feature: 40, app: none, want: ceiling},
		{how: byHeader, feature: none, app: none, want: ceiling},
		{how: onFeature, feature: none, app: none, want: ceiling},
	} {
		name := fmt.Sprintf("{%s}, %s, feature %d, app %d", tt.request, tt.how, tt.feature, tt.app)
		set := func(n int64) *int64 {
			if n == none {
				return nil
			}
			return &n
		}
		model := "m"
		registered := map[string]*features.Feature{"f": {Slug: "f", MaxTokens: set(tt.feature), DefaultModel: &model}}
		app := &apps.App{DefaultMaxTokens: set(tt.app), DevMargin: money.One / 5}
		rt, header := Route{Path: "ai/m", Model: "m"}, ""
		switch tt.how {
		case onFeature:
			rt, header = Route{Path: onFeature, Slug: "f"}, "f"
		case byHeader:
			header = "f"
		case elsewhere:
			header = "g"
		}
		body := `{"messages":[{"role":"user","content":"Hello"}]`
		if tt.request != "" {
			body += "," + tt.request
		}
		p, err := Parse([]byte(body + "}"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		q, err := newTestPlan(p, rt, header, app, registered, book, nil, money.One/20, time.Now())
		if tt.refused != "" {
			if err == nil || err.Error() != "invalid_request: "+tt.refused {
				t.Errorf("%s: %v, want %s", name, err, tt.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// 8 tokens of input; 20 % of margin and 5 % of fee on the cost; 5 % more held; rounded up.
		cost := 8*100 + tt.want*1000
		hold := money.MC((cost*125*105 + 9999) / 10000)
		if q.Request.MaxTokens != tt.want || q.CountedTokens != 8 || q.Demand.HoldMC != hold ||
			!strings.HasSuffix(q.Demand.Terms, fmt.Sprintf(`"input_tokens":8,"max_tokens":%d}`, tt.want)) {
			t.Errorf("%s: at most %d tokens after %d, hold %d, %s; want %d and %d", name, q.Request.MaxTokens,
				q.CountedTokens, q.Demand.HoldMC, q.Demand.Terms, tt.want, hold)
		}
	}
	for _, request := range []string{`"max_tokens":0`, `"max_tokens":-1`, `"max_tokens":1.5`, `"max_tokens":"50"`,
		`"max_tokens":1e2`, `"max_tokens":9223372036854775808`, `"max_completion_tokens":0`,
		`"max_tokens":50,"max_completion_tokens":51`} {
		if _, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],` + request + `}`)); err == nil {
			t.Errorf("{%s} is taken", request)
		}
	}
}

// TestModelFacts refuses what a model cannot do, by the facts of the built-in
// book, before anything is held.
func TestModelFacts(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ model, request, refused string }{
		{"gpt-6-luna", `"temperature":0.5`, "temperature: gpt-6-luna accepts only its default; leave it out"},
		{"gpt-6-luna", `"temperature":1,"top_p":1`, ""},
		{"gpt-6-luna", `"top_p":0.5`, "top_p: gpt-6-luna accepts only its default; leave it out"},
		{"claude-opus-5-5", `"temperature":0`, "temperature: claude-opus-5-5 accepts only its default; leave it out"},
		{"claude-haiku-4-5", `"temperature":0`, ""},
		{"gemini-4-argon", `"temperature":0`, ""},
		{"gpt-6-luna", `"max_tokens":128001`, "max_tokens: gpt-6-luna allows at most 128000"},
		{"gemini-2.5-flash-lite", `"max_tokens":65536`, "max_tokens: gemini-2.5-flash-lite allows at most 65535"},
		{"gpt-4.1-mini", `"max_completion_tokens":32768`, ""},
		{"claude-sonnet-5-5", oneTool + `,"tool_choice":"required"`,
			"tool_choice: claude-sonnet-5-5 cannot be forced to call a tool; use auto"},
		{"claude-fable-5-1", oneTool + `,"tool_choice":{"type":"function","function":{"name":"f"}}`,
			"tool_choice: claude-fable-5-1 cannot be forced to call a tool; use auto"},
		{"claude-sonnet-5-5", oneTool + `,"tool_choice":"auto"`, ""},
		{"claude-haiku-5-5", oneTool + `,"tool_choice":"required"`, ""},
		{"gpt-6-astra", oneTool + `,"tool_choice":"required"`, ""},
		{"gpt-4.1-mini", oneTool, ""},
		{"gpt-6-luna", oneTool + `,"max_tokens":15`, "max_tokens: gpt-6-luna takes at least 16 in this call"},
		{"gpt-6-luna", oneTool + `,"max_tokens":16`, ""},
		{"gpt-6-luna", oneTool + `,"max_tokens":1,"reasoning_effort":"none"`, ""},
		{"gpt-6-luna", `"max_tokens":1`, ""},
		{"claude-haiku-5-5", oneTool + `,"max_tokens":1`, ""},
		{"gpt-3.5-turbo", `"stop":["x"]`, `model: "gpt-3.5-turbo" is not offered; GET /v1/models lists what is`},
	} {
		p, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],` + tt.request + `}`))
		if err != nil {
			t.Fatalf("%s {%s}: %v", tt.model, tt.request, err)
		}
		_, err = newTestPlan(p, Route{Path: "ai/" + tt.model, Model: tt.model}, "", &apps.App{}, nil, book, nil, 0,
			factsDay)
		if tt.refused == "" && err != nil ||
			tt.refused != "" && (err == nil || err.Error() != "invalid_request: "+tt.refused) {
			t.Errorf("%s {%s}: %v, want %q", tt.model, tt.request, err, tt.refused)
		}
	}
}

// factsDay is a day of the built-in book.
var factsDay = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestNotOffered refuses a model that has no price now, is retired, or was taken
// away by the operator, like one that never was.
func TestNotOffered(t *testing.T) {
	t.Parallel()
	book, err := catalog.Load([]byte(strings.Replace(planBook, "    source: this test\n    prices:\n      - {",
		"    source: this test\n    retires_at: 2026-11-25\n    prices:\n      - {from: 2026-11-21, to: 2026-11-23, ",
		1) +
		"      - {from: 2026-11-24, input: \"1.00\", cached: \"1.00\", output: \"10.00\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	off, err := book.With([]byte("date: 2026-11-21\nmodels:\n  - {id: m, off: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		day  string
		book *catalog.Catalog
		want bool
	}{
		{"2026-11-20", book, false}, // no price yet
		{"2026-11-21", book, true},
		{"2026-11-23", book, false}, // a gap between prices
		{"2026-11-24", book, true},
		{"2026-11-25", book, false}, // retired, though it has a price
		{"2026-11-21", off, false},
	} {
		now, err := time.Parse(time.DateOnly, tt.day)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = newTestPlan(p, Route{Path: "ai/m", Model: "m"}, "", &apps.App{}, nil, tt.book, nil, 0, now)
		if listed := len(tt.book.Offered(now)) == 1; (err == nil) != tt.want || listed != tt.want {
			t.Errorf("%s: listed %v, called %v; want %v", tt.day, listed, err, tt.want)
		}
	}
}

// TestCorrected holds for what earlier calls of the model have shown, and keeps
// the count for an estimate, which never charges for more.
func TestCorrected(t *testing.T) {
	t.Parallel()
	book, err := catalog.Load([]byte(planBook))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		calls int
		real  int64 // of 1,000 counted
		held  int64 // of 8 counted
		terms string
	}{
		{"too few to tell", 49, 1250, 8, `"input_tokens":8,"max_tokens":1000}`},
		{"counted too low", 50, 1250, 10, `"input_tokens":10,"max_tokens":1000,"counted_tokens":8}`},
		{"counted too high", 256, 800, 7, `"input_tokens":7,"max_tokens":1000}`},
	} {
		drift, err := estimates.Load(t.Context(), dbtest.Open(t, db.SQLite), time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for range tt.calls {
			drift.Record("m", 1000, 2000, tt.real)
		}
		p, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		q, err := newTestPlan(p, Route{Path: "ai/m", Model: "m"}, "", &apps.App{}, nil, book, drift, 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		hold := money.MC(((tt.held*100+ceiling*1000)*105 + 99) / 100)
		if q.CountedTokens != 8 || q.InputTokens != tt.held || q.Demand.HoldMC != hold ||
			!strings.HasSuffix(q.Demand.Terms, tt.terms) {
			t.Errorf("%s: %d counted, %d held for, hold %d, %s; want %d and %d", tt.name, q.CountedTokens,
				q.InputTokens, q.Demand.HoldMC, q.Demand.Terms, tt.held, hold)
		}
	}
}
