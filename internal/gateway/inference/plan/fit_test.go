package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/models/catalog"
)

const oneTool = `"tools":[{"type":"function","function":{"name":"f"}}]`

// TestFit sends each model what it takes, and names what it does not: the nearest effort, no stop sequences where they
// are refused, and tools by the API that takes them with the effort that was asked for, or with the model's own. No
// reasoning is ever given up for another member.
func TestFit(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	const wants, asks, responses = "wants reasoning", "asks for thinking", "speaks Responses"
	for _, tt := range []struct {
		model, request, client string
		want                   string // the API of OpenAI's models; effort, stop sequences, ignored members
	}{
		// Edge case 28: Chat Completions takes tools with one effort alone.
		{"gpt-6-luna", oneTool, "", "responses"},
		{"gpt-6-luna", oneTool + `,"reasoning_effort":"low"`, "", "responses low"},
		{"gpt-6-luna", oneTool + `,"reasoning_effort":"max","tool_choice":"none"`, "", "responses max"},
		{"gpt-6-luna", oneTool + `,"reasoning_effort":"none"`, "", "chat none"},
		{"gpt-6-luna", `"tools":[],"reasoning_effort":"low"`, "", "chat low"},
		{"gpt-5.6-sol", oneTool, "", "responses"},
		{"gpt-5.5", oneTool + `,"reasoning_effort":"xhigh"`, "", "responses xhigh"},
		{"gpt-5.4", oneTool + `,"reasoning_effort":"medium"`, "", "responses medium"},
		{"gpt-5.4-mini", oneTool, "", "responses"},
		{"gpt-5.4-mini", `"reasoning_effort":"low"`, "", "chat low"},
		{"gpt-6.2-sol", oneTool + `,"reasoning_effort":"low"`, "", "responses low"},
		{"gpt-6.2-sol", `"max_tokens":5`, "", "chat"},
		{"gpt-4.1-mini", oneTool, "", "chat"},
		// Only the Responses API returns reasoning, and its own clients get its defaults.
		{"gpt-6-luna", `"max_tokens":50`, wants, "responses"},
		{"gpt-6-luna", oneTool + `,"reasoning_effort":"none"`, wants, "responses none"},
		{"gpt-6-luna", `"max_tokens":50`, responses, "responses"},
		{"gpt-6-luna", oneTool + `,"reasoning_effort":"none"`, responses, "responses none"},
		{"gpt-4.1-mini", oneTool, wants, "chat"},
		{"gpt-4.1-mini", oneTool, responses, "chat"},
		{"claude-opus-5-5", oneTool + `,"reasoning_effort":"low"`, wants, "chat low thinks"},
		{"gemini-3.8-flash", oneTool, responses, "chat"},
		// The nearest effort, of two the lower; none is near to nothing.
		{"gpt-6-luna", `"reasoning_effort":"minimal"`, "", "chat low !reasoning_effort"},
		{"gpt-5.5", `"reasoning_effort":"max"`, "", "chat xhigh !reasoning_effort"},
		{"gpt-6.2-sol", oneTool + `,"reasoning_effort":"none"`, "", "responses low !reasoning_effort"},
		{"claude-opus-5-5", `"reasoning_effort":"none"`, "", "chat low thinks !reasoning_effort"},
		{"claude-haiku-5-5", `"reasoning_effort":"minimal"`, "", "chat low thinks !reasoning_effort"},
		{"gemini-4-argon", `"reasoning_effort":"minimal"`, "", "chat low !reasoning_effort"},
		{"gemini-3.8-flash", `"reasoning_effort":"none"`, "", "chat minimal !reasoning_effort"},
		{"gemini-3.8-flash", `"reasoning_effort":"max"`, "", "chat high !reasoning_effort"},
		{"gpt-4.1-mini", `"reasoning_effort":"low"`, "", "chat !reasoning_effort"},
		{"gpt-4.1-mini", `"reasoning_effort":"none"`, "", "chat"},
		{"gpt-4.1-mini", `"reasoning_effort":"none"`, wants, "chat"},
		// Claude thinks when asked, as far as it can.
		{"claude-haiku-4-5", `"reasoning_effort":"low"`, "", "chat low thinks"},
		{"claude-haiku-4-5", `"reasoning_effort":"max"`, "", "chat high thinks !reasoning_effort"},
		{"claude-haiku-4-5", `"reasoning_effort":"none"`, "", "chat none"},
		{"claude-haiku-4-5", `"reasoning_effort":"low","max_tokens":1024`, "", "chat low !reasoning_effort"},
		{"claude-haiku-4-5", `"reasoning_effort":"low","max_tokens":1025`, "", "chat low thinks"},
		{"claude-haiku-4-5", oneTool + `,"tool_choice":"required"`, asks, "chat !reasoning_effort"},
		{"claude-haiku-4-5", `"max_tokens":5000`, wants, "chat"},
		{"claude-haiku-4-5", `"max_tokens":5000`, asks, "chat thinks"},
		{"claude-sonnet-4-6", `"reasoning_effort":"xhigh"`, "", "chat high thinks !reasoning_effort"},
		{"claude-sonnet-4-6", `"max_tokens":128000,"reasoning_effort":"max"`, "", "chat max thinks"},
		{"claude-sonnet-4-6", `"max_tokens":5`, asks, "chat thinks"},
		{"claude-sonnet-4-6", `"reasoning_effort":"low",` + oneTool + `,"tool_choice":"required"`, "",
			"chat low !reasoning_effort"},
		{"claude-haiku-5-5", oneTool + `,"tool_choice":"required"`, "", "chat"},
		{"claude-haiku-5-5", oneTool + `,"tool_choice":"required"`, asks, "chat !reasoning_effort"},
		{"claude-opus-5-5", `"reasoning_effort":"low"`, "", "chat low thinks"},
		{"claude-opus-5-5", `"response_format":{"type":"json_object"}`, "", "chat !response_format"},
		{"claude-opus-5-5", `"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}`, "",
			"chat"},
		{"gpt-4.1-mini", `"response_format":{"type":"json_object"}`, "", "chat"},
		// What Gemini has no word for.
		{"gemini-4-argon", strings.Replace(oneTool, `"f"`, `"f","strict":true`, 1) + `,"parallel_tool_calls":false`,
			"", "chat !tools.strict !parallel_tool_calls"},
		{"gemini-4-argon", strings.Replace(oneTool, `"f"`, `"f","strict":false`, 1) + `,"parallel_tool_calls":true`,
			"", "chat"},
		// Stop sequences.
		{"gpt-6-luna", `"stop":["x"]`, "", "chat !stop"},
		{"gpt-6-luna", `"stop":["x"],"reasoning_effort":"low"`, "", "chat low !stop"},
		{"gpt-6-luna", `"stop":["x"],"reasoning_effort":"none"`, "", "chat none [x]"},
		{"gpt-6-luna", `"stop":["x"],"reasoning_effort":"none"`, wants, "responses none !stop"},
		{"gpt-6-luna", `"stop":["x"],"reasoning_effort":"none",` + oneTool, "", "chat none [x]"},
		{"gpt-6-luna", `"stop":["x"],"reasoning_effort":"minimal",` + oneTool, "",
			"responses low !reasoning_effort !stop"},
		{"gpt-6-astra", `"stop":["x"],` + oneTool, "", "responses !stop"},
		{"gpt-4.1-mini", `"stop":["x"],` + oneTool, responses, "chat [x]"},
		{"claude-opus-5-5", `"stop":["x"]`, wants, "chat [x]"},
		{"gemini-4-argon", `"stop":["x"],"reasoning_effort":"low"`, "", "chat low [x]"},
	} {
		p, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],` + tt.request + `}`))
		if err != nil {
			t.Fatalf("%s {%s}: %v", tt.model, tt.request, err)
		}
		p.WantReasoning, p.FromResponses = tt.client == wants || tt.client == asks, tt.client == responses
		if tt.client == asks {
			p.Thinking = "on"
		}
		q, err := newTestPlan(p, Route{Path: "ai/" + tt.model, Model: tt.model}, "", &apps.App{}, nil, book, nil, 0,
			factsDay)
		if err != nil {
			t.Errorf("%s {%s} %s: %v", tt.model, tt.request, tt.client, err)
			continue
		}
		got := []string{"chat"}
		if q.Request.Facts.Responses {
			got[0] = "responses"
		}
		if q.Request.ReasoningEffort != "" {
			got = append(got, q.Request.ReasoningEffort)
		}
		if len(q.Request.Stop) > 0 {
			got = append(got, "["+strings.Join(q.Request.Stop, ",")+"]")
		}
		if q.Model.Provider == "anthropic" && q.Request.AsksToThink() {
			got = append(got, "thinks")
		}
		for _, member := range q.Ignored {
			got = append(got, "!"+member)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s {%s} %s: %s, want %s", tt.model, tt.request, tt.client, s, tt.want)
		}
	}
}

// TestFitHistory: with a budget, Claude wants the thinking before each call of the history back, and does not go on
// from its own words. Where it cannot think it does not, and the response says so.
func TestFitHistory(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	const call = `,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}`
	const result = `{"role":"tool","tool_call_id":"a","content":"x"}`
	const kept = `"extra_content":{"anthropic":{"thinking":[]}}`
	for _, tt := range []struct {
		messages      string
		haiku, sonnet bool // whether Haiku 4.5 and Sonnet 4.6 think
	}{
		{`{"role":"assistant","content":"a"},{"role":"user","content":"b"}`, true, true},
		{`{"role":"assistant","content":"a"}`, false, false},
		{`{"role":"assistant"` + call + `}]},` + result, false, true},
		{`{"role":"assistant"` + call + `,` + kept + `}]},` + result, true, true},
		{`{"role":"assistant",` + kept + call + `}]},` + result, true, true},
		{`{"role":"assistant","content":"a",` + kept + `},{"role":"assistant"` + call + `}]},` + result, true, true},
		{`{"role":"assistant"` + call + `}]},` + result + `,{"role":"user","content":"b"}`, false, true},
		{`{"role":"assistant"` + call + `,"extra_content":{"google":{}}}]},` + result, false, true},
	} {
		for model, want := range map[string]bool{"claude-haiku-4-5": tt.haiku, "claude-sonnet-4-6": tt.sonnet} {
			p, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"},` + tt.messages +
				`],"reasoning_effort":"low"}`))
			if err != nil {
				t.Fatalf("%s: %v", tt.messages, err)
			}
			route := Route{Path: "ai/" + model, Model: model}
			q, err := newTestPlan(p, route, "", &apps.App{}, nil, book, nil, 0, factsDay)
			if err != nil || q.Request.AsksToThink() != want || (len(q.Ignored) == 0) != want {
				t.Errorf("%s %s: %v, %+v", model, tt.messages, err, q)
			}
		}
	}
}

// TestFitSampling: a temperature or top_p that the model does not take is dropped and named for the clients of other
// APIs, who send it always. The contract's own routes refuse it.
func TestFitSampling(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ model, request, want, own string }{
		{"gpt-6-luna", `"temperature":0`, "!temperature", "temperature: gpt-6-luna accepts only its default"},
		{"gpt-6-luna", `"temperature":0,"top_p":0.5`, "!temperature !top_p", "temperature: gpt-6-luna accepts only"},
		{"gpt-6-luna", `"temperature":1,"top_p":1`, "temperature 1 top_p 1", ""},
		{"gpt-5.6-sol", `"temperature":0.1,"reasoning_effort":"none"`, "temperature 0.1", ""},
		{"gpt-5.6-sol", `"top_p":0.1,"reasoning_effort":"none",` + oneTool, "top_p 0.1", ""},
		{"gpt-6.2-sol", `"temperature":0.1,"reasoning_effort":"none"`, "!reasoning_effort !temperature",
			"temperature: gpt-6.2-sol accepts only its default"},
		{"gpt-4.1-mini", `"temperature":0.1`, "temperature 0.1", ""},
		{"claude-opus-5-5", `"top_p":0.5`, "!top_p", "top_p: claude-opus-5-5 accepts only its default"},
		{"claude-haiku-4-5", `"temperature":0.1`, "temperature 0.1", ""},
		{"claude-haiku-4-5", `"temperature":0.1,"top_p":0.5`, "temperature 0.1 !top_p", "temperature 0.1 !top_p"},
		{"claude-haiku-4-5", `"temperature":1,"top_p":0.5`, "temperature 1 top_p 0.5", ""},
		{"claude-haiku-4-5", `"temperature":1.5,"top_p":0.5`, "top_p 0.5 !temperature", "top_p 0.5 !temperature"},
		{"claude-haiku-4-5", `"temperature":0.1,"reasoning_effort":"low"`, "!temperature",
			"temperature: claude-haiku-4-5 accepts only its default while it thinks"},
		{"gemini-4-argon", `"temperature":1.5,"top_p":0.5`, "temperature 1.5 top_p 0.5", ""},
	} {
		if tt.own == "" {
			tt.own = tt.want
		}
		for _, compatible := range []bool{true, false} {
			p, err := Parse([]byte(`{"model":"` + tt.model + `","messages":[{"role":"user","content":"Hello"}],` +
				tt.request + `}`))
			if err != nil {
				t.Fatal(err)
			}
			route, want := Route{Path: "ai/" + tt.model, Model: tt.model}, tt.own
			if compatible {
				route, want = Route{Path: "chat/completions", Chat: true}, tt.want
			}
			q, err := newTestPlan(p, route, "", &apps.App{}, nil, book, nil, 0, factsDay)
			var got []string
			if err != nil {
				got = append(got, strings.TrimPrefix(err.Error(), "invalid_request: "))
			} else {
				if v := q.Request.Temperature; v != nil {
					got = append(got, fmt.Sprint("temperature ", *v))
				}
				if v := q.Request.TopP; v != nil {
					got = append(got, fmt.Sprint("top_p ", *v))
				}
				for _, member := range q.Ignored {
					got = append(got, "!"+member)
				}
			}
			if s := strings.Join(got, " "); s != want && (err == nil || !strings.HasPrefix(s, want)) {
				t.Errorf("%s {%s}, compatible %t: %s, want %s", tt.model, tt.request, compatible, s, want)
			}
		}
	}
}

// TestFitLeastTokens: a hold lowers the output cap of a call to no less than its API takes.
func TestFitLeastTokens(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		model, request string
		want           int64
	}{
		{"gpt-6-luna", `"max_tokens":500`, 2},
		{"gpt-6-luna", `"max_tokens":500,` + oneTool, 16},
		{"gpt-6-luna", `"max_tokens":16,` + oneTool, 16},
		{"claude-haiku-4-5", `"max_tokens":5000`, 2},
		{"claude-haiku-4-5", `"max_tokens":5000,"reasoning_effort":"low"`, 1025},
		{"claude-sonnet-4-6", `"max_tokens":5000,"reasoning_effort":"low"`, 2},
	} {
		p, err := Parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],` + tt.request + `}`))
		if err != nil {
			t.Fatal(err)
		}
		q, err := newTestPlan(p, Route{Path: "ai/" + tt.model, Model: tt.model}, "",
			&apps.App{Fit: true, FitMinTokens: 2}, nil, book, nil, 0, factsDay)
		if err != nil || q.MinTokens != tt.want {
			t.Errorf("%s {%s}: %v, %+v, want %d", tt.model, tt.request, err, q, tt.want)
		}
	}
}
