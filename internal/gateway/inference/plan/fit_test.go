package plan

import (
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
	const wants, responses = "wants reasoning", "speaks Responses"
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
		{"claude-opus-5-5", oneTool + `,"reasoning_effort":"low"`, wants, "chat low"},
		{"gemini-3.8-flash", oneTool, responses, "chat"},
		// The nearest effort, of two the lower; none is near to nothing.
		{"gpt-6-luna", `"reasoning_effort":"minimal"`, "", "chat low !reasoning_effort"},
		{"gpt-5.5", `"reasoning_effort":"max"`, "", "chat xhigh !reasoning_effort"},
		{"gpt-6.2-sol", oneTool + `,"reasoning_effort":"none"`, "", "responses low !reasoning_effort"},
		{"claude-opus-5-5", `"reasoning_effort":"none"`, "", "chat low !reasoning_effort"},
		{"claude-haiku-5-5", `"reasoning_effort":"minimal"`, "", "chat low !reasoning_effort"},
		{"gemini-4-argon", `"reasoning_effort":"minimal"`, "", "chat low !reasoning_effort"},
		{"gemini-3.8-flash", `"reasoning_effort":"none"`, "", "chat minimal !reasoning_effort"},
		{"gemini-3.8-flash", `"reasoning_effort":"max"`, "", "chat high !reasoning_effort"},
		{"gpt-4.1-mini", `"reasoning_effort":"low"`, "", "chat !reasoning_effort"},
		{"gpt-4.1-mini", `"reasoning_effort":"none"`, "", "chat"},
		{"gpt-4.1-mini", `"reasoning_effort":"none"`, wants, "chat"},
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
		p.WantReasoning, p.FromResponses = tt.client == wants, tt.client == responses
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
		for _, member := range q.Ignored {
			got = append(got, "!"+member)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s {%s} %s: %s, want %s", tt.model, tt.request, tt.client, s, tt.want)
		}
	}
}
