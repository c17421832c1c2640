package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/provider"
)

// listMarks names the places of a request that are marked, in order: t0 is the end of tool 0, m1 of
// turn 1, m1.0 of its block 0.
func listMarks(r *provider.Request) string {
	var list []string
	for i := range r.Tools {
		if r.Tools[i].CacheBreakpoint {
			list = append(list, fmt.Sprintf("t%d", i))
		}
	}
	for i := range r.Turns {
		blocks := r.Turns[i].Blocks
		for j := range blocks {
			switch {
			case !blocks[j].CacheBreakpoint:
			case j == len(blocks)-1:
				list = append(list, fmt.Sprintf("m%d", i))
			default:
				list = append(list, fmt.Sprintf("m%d.%d", i, j))
			}
		}
	}
	return strings.Join(list, " ")
}

// TestMarkPrefix is the rule of decision 071: which requests are marked for the provider's cache, and
// where.
func TestMarkPrefix(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("Every word of this text counts. ", 200)
	const tools = `,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}]`
	const calls = `{"role":"assistant","tool_calls":[{"id":"a","type":"function",` +
		`"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"r"}`
	system, user := `{"role":"system","content":"`+long+`"}`, `{"role":"user","content":"`+long+`"}`
	const assistant = `{"role":"assistant","content":"b"}`
	for _, tt := range []struct {
		name, messages, members string
		model                   string // "" = Claude
		off                     bool   // the app's prompt_cache is false
		want                    string
	}{
		{name: "a question", messages: system + "," + user},
		{name: "a question with tools", messages: system + "," + user, members: tools, want: "m0 m1"},
		{name: "without a system prompt", messages: user, members: tools, want: "t1 m0"},
		{name: "a forced call is one question", messages: user, members: tools + `,"tool_choice":"required"`},
		{name: "tools that must not be called", messages: user, members: tools + `,"tool_choice":"none"`},
		{name: "a conversation", messages: system + "," + user + "," + assistant + "," + user, want: "m0 m1 m3"},
		{name: "after a tool's result", messages: system + "," + user + "," + calls, members: tools, want: "m0 m1 m3"},
		{
			name:     "far into an agent's run",
			messages: system + "," + user + "," + calls + "," + calls,
			members:  tools,
			want:     "m0 m3 m5",
		},
		{
			name:     "a short conversation",
			messages: `{"role":"user","content":"a"},` + assistant + `,{"role":"user","content":"c"}`,
		},
		{
			name: "the app has marked",
			messages: system +
				`,{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}`,
			members: tools,
			want:    "m1",
		},
		{
			name: "all places of marks",
			messages: `{"role":"user","content":"a","cache_control":{"type":"ephemeral","ttl":"5m"}},` +
				`{"role":"user","content":"b"}`,
			members: `,"cache_control":{"type":"ephemeral"},"tools":[{"type":"function","function":{"name":"f"},` +
				`"cache_control":{"type":"ephemeral"}}]`,
			want: "t0 m0 m1",
		},
		{name: "the app is off", messages: system + "," + user, members: tools, off: true},
		{name: "the request is off", messages: system + "," + user, members: tools + `,"cache":false`},
		{
			name:     "off, and marked by the app",
			messages: system + "," + user,
			members:  tools + `,"cache":false,"cache_control":{"type":"ephemeral"}`,
			off:      true,
			want:     "m1",
		},
		{name: "OpenAI finds prefixes by itself", messages: system + "," + user, members: tools, model: "gpt-6.2-sol"},
		{name: "so does Google", messages: system + "," + user, members: tools, model: "gemini-3.8-flash"},
	} {
		request, err := Parse([]byte(`{"messages":[` + tt.messages + `]` + tt.members + `}`))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		before := listMarks(&request.Request)
		model := tt.model
		if model == "" {
			model = "claude-haiku-5-5"
		}
		p, err := newTestPlan(request, Route{Path: "ai/" + model, Model: model}, "", &apps.App{PromptCache: !tt.off},
			nil, book, nil, 0, factsDay)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got := listMarks(&p.Request); got != tt.want {
			t.Errorf("%s: marks at %q, want %q", tt.name, got, tt.want)
		}
		if after := listMarks(&request.Request); after != before {
			t.Errorf("%s: the parsed request was changed: %q", tt.name, after)
		}
	}
}

// TestMarksMustPay: a write is worth it only if one read saves more than it costs.
func TestMarksMustPay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		step catalog.Step
		want bool
	}{
		{catalog.Step{Input: 100, Cached: 10, CacheWrite: 125}, true},
		{catalog.Step{Input: 100, Cached: 10, CacheWrite: 100}, false}, // nothing to decide
		{catalog.Step{Input: 100, Cached: 10, CacheWrite: 189}, true},
		{catalog.Step{Input: 100, Cached: 10, CacheWrite: 190}, false},
		{catalog.Step{Input: 100, Cached: 90, CacheWrite: 125}, false},
	} {
		if got := marksPay(tt.step); got != tt.want {
			t.Errorf("%+v: %v", tt.step, got)
		}
	}
}

// TestCacheKey: the provider never sees the app's key or the connection's id, and no two connections
// share a key.
func TestCacheKey(t *testing.T) {
	t.Parallel()
	book, err := catalog.LoadBuiltin()
	if err != nil {
		t.Fatal(err)
	}
	keyOf := func(connection, member string, on bool) string {
		request, err := Parse([]byte(`{"messages":[{"role":"user","content":"a"}]` + member + `}`))
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(&Input{
			Request: request,
			Route:   Route{Model: "gpt-6.2-sol"},
			Caller:  &callers.Caller{ConnectionID: connection, App: apps.App{PromptCache: on}},
			Catalog: book,
			Policy:  &policy.Policy{},
			Now:     factsDay,
		})
		if err != nil {
			t.Fatal(err)
		}
		return p.Request.CacheKey
	}
	seen := map[string]bool{"": true}
	for _, connection := range []string{"conn_1", "conn_2"} {
		for _, member := range []string{``, `,"prompt_cache_key":"k"`, `,"prompt_cache_key":"conn_1"`} {
			key := keyOf(connection, member, true)
			if seen[key] || len(key) != 32 || key != keyOf(connection, member, true) ||
				strings.Contains(key, connection) {
				t.Errorf("%s {%s}: key %q", connection, member, key)
			}
			seen[key] = true
		}
	}
	if key := keyOf("conn_1", ``, false); key != "" {
		t.Errorf("off, and none given: %q", key)
	}
	if key := keyOf("conn_1", `,"prompt_cache_key":"k"`, false); !seen[key] || key == "" {
		t.Errorf("off, and given: %q", key)
	}
}

// TestCacheMembersAreRefused names what is wrong with them.
func TestCacheMembersAreRefused(t *testing.T) {
	t.Parallel()
	const longer = ".ttl: only 5m is offered; a longer lifetime has another price"
	for _, tt := range []struct{ message, members, want string }{
		{members: `"cache_control":{"type":"ephemeral","ttl":"1h"}`, want: "cache_control" + longer},
		{
			message: `,"cache_control":{"type":"forever"}`,
			members: `"stream":false`,
			want:    "messages[0].cache_control.type: must be ephemeral",
		},
		{
			members: `"tools":[{"type":"function","function":{"name":"f"},` +
				`"cache_control":{"type":"ephemeral","ttl":"1h"}}]`,
			want: "tools[0].cache_control" + longer,
		},
		{members: `"prompt_cache_key":""`, want: "prompt_cache_key: must have 1 to 512 bytes"},
	} {
		body := `{"messages":[{"role":"user","content":"a"` + tt.message + `}],` + tt.members + `}`
		if _, err := Parse([]byte(body)); err == nil || err.Error() != "invalid_request: "+tt.want {
			t.Errorf("%s: %v, want %s", body, err, tt.want)
		}
	}
}
