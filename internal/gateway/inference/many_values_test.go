package inference

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/embeddings"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
)

// A large body, filled with the smallest elements of each array and map, takes a small multiple of its
// bytes on every route for inference, and is refused. It is no parallel test, as it counts all that the process
// allocates, what is garbage again included.
func TestManyValuesTakeLittleMemoryOnEveryRoute(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	chat := func(body []byte) (shapes.Call, error) { _, err := plan.Parse(body); return nil, err }
	codex := func(body []byte) (shapes.Call, error) { c, err := responses.Parse(body); return c, err }
	google := func(body []byte) (shapes.Call, error) { return contents.Parse(body, "m", false) }
	list := func(item string) func(int) string { return func(int) string { return item } }
	names := func(i int) string { return fmt.Sprintf(`"%x":0`, i) }
	// Each message has few parts, and all messages together have many.
	spread := func(head, part, tail string, parts int) func(int) string {
		return list(head + strings.TrimSuffix(strings.Repeat(part+",", parts), ",") + tail)
	}
	for _, c := range []struct {
		name, head string
		item       func(i int) string
		tail       string
		parse      func(body []byte) (shapes.Call, error)
	}{
		{"messages", `{"messages":[`, list(`{}`), `]}`, chat},
		{"tools", `{"messages":[` + user + `],"tools":[`, list(`{}`), `]}`, chat},
		{"named tools", `{"messages":[` + user + `],"tools":[`, list(`{"type":"function"}`), `]}`, chat},
		{"tool calls", `{"messages":[` + user + `,{"role":"assistant","tool_calls":[`, list(`{}`), `]}]}`, chat},
		{"parts", `{"messages":[{"role":"user","content":[`, list(`{}`), `]}]}`, chat},
		{"texts", `{"messages":[{"role":"user","content":[`, list(`{"type":"text","text":""}`), `]}]}`, chat},
		{"parts of all", `{"messages":[`,
			spread(`{"role":"user","content":[`, `{"type":"text","text":""}`, `]}`, 80), `]}`, chat},
		{"calls of all", `{"messages":[`, spread(`{"role":"assistant","tool_calls":[`, `{}`, `]}`, 600), `]}`, chat},
		{"stop", `{"messages":[` + user + `],"stop":[`, list(`""`), `]}`, chat},
		{"unknown", `{"messages":[` + user + `],"x":{`, names, `}}`, chat},
		{"schema", `{"messages":[` + user + `],"response_format":{`, names, `}}`, chat},

		{"items", `{"model":"m","input":[`, list(`{}`), `]}`, codex},
		{"item parts", `{"model":"m","input":[{"role":"user","content":[`, list(`{}`), `]}]}`, codex},
		{"parts of all items", `{"model":"m","input":[`,
			spread(`{"role":"user","content":[`, `{"type":"text","text":""}`, `]}`, 80), `]}`, codex},
		{"flat tools", `{"model":"m","input":"hi","tools":[`, list(`{"type":"function"}`), `]}`, codex},
		{"added tools", `{"model":"m","input":[`,
			spread(`{"type":"additional_tools","tools":[`, `{"type":"function"}`, `]}`, 100), `]}`, codex},
		{"include", `{"model":"m","input":[],"include":[`, list(`""`), `]}`, codex},
		{"metadata", `{"model":"m","input":"hi","metadata":{`, names, `}}`, codex},

		{"turns", `{"model":"m","max_tokens":9,"messages":[`, list(`{}`), `]}`, messages.Parse},
		{"system", `{"model":"m","max_tokens":9,"system":[`, list(`{}`), `],"messages":[` + user + `]}`,
			messages.Parse},
		{"blocks", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[`, list(`{}`), `]}]}`,
			messages.ParseCount},
		{"blocks of all", `{"model":"m","max_tokens":9,"messages":[`,
			spread(`{"role":"user","content":[`, `{}`, `]}`, 600), `]}`, messages.Parse},
		{"custom tools", `{"model":"m","max_tokens":9,"messages":[` + user + `],"tools":[`, list(`{}`), `]}`,
			messages.Parse},
		{"stops", `{"model":"m","max_tokens":9,"messages":[` + user + `],"stop_sequences":[`, list(`""`), `]}`,
			messages.Parse},

		{"contents", `{"contents":[`, list(`{}`), `]}`, google},
		{"parts of contents", `{"contents":[{"parts":[`, list(`{}`), `]}]}`, google},
		{"parts of all contents", `{"contents":[`, spread(`{"parts":[`, `{"text":""}`, `]}`, 600), `]}`, google},
		{"functions", `{"contents":{"parts":{"text":"hi"}},"tools":[{"functionDeclarations":[`, list(`{}`), `]}]}`,
			google},
		{"named functions", `{"contents":{"parts":{"text":"hi"}},"tools":[`, list(`{"functionDeclarations":{}}`), `]}`,
			google},
		{"allowed functions", `{"contents":{"parts":{"text":"hi"}},"toolConfig":{"functionCallingConfig":` +
			`{"mode":"ANY","allowedFunctionNames":[`, list(`""`), `]}}}`, google},
		{"parts of a response", `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"}}]},` +
			`{"parts":[{"functionResponse":{"name":"f","parts":[`, list(`{}`), `]}}]}]}`, google},

		{"inputs", `{"model":"m","input":[`, list(`""`), `]}`, embeddings.Parse},
		{"token ids", `{"model":"m","input":[`, list(`0`), `]}`, embeddings.Parse},
		{"lists of ids", `{"model":"m","input":[`, list(`[0]`), `]}`, embeddings.Parse},
		{"long lists of ids", `{"model":"m","input":[`, spread(`[`, `0`, `]`, 1<<19), `]}`, embeddings.Parse},
	} {
		size := 12 << 20
		if strings.Contains(c.name, "inputs") || strings.Contains(c.name, "ids") {
			size = 8 << 20 // the most of an embedding
		}
		body := []byte(c.head)
		for i := 0; len(body) < size-1<<20; i++ {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, c.item(i)...)
		}
		body = append(body, c.tail...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := c.parse(body)
		runtime.ReadMemStats(&after)
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code.Status != http.StatusBadRequest || len(e.Message) > 400 {
			t.Errorf("%s: %v", c.name, err)
		}
		got := after.TotalAlloc - before.TotalAlloc
		most := uint64(8)
		if c.name == "added tools" { // most of it is garbage, as each item replaces the tools of the one before it
			most = 24
		}
		if got > most*uint64(len(body)) {
			t.Errorf("%s: a body of %d bytes takes %d", c.name, len(body), got)
		}
	}
}

// A schema that is nested as deep as may be is read once, not once a level.
func TestNestedSchemaTakesLittleMemory(t *testing.T) {
	schema := `{"enum":["` + strings.Repeat("x", 4<<20) + `"]}`
	for range 29 {
		schema = `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":` + schema + `}}`
	}
	body := []byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],` +
		`"output_format":{"type":"json_schema","schema":` + schema + `}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := messages.Parse(body)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > 8*uint64(len(body)) {
		t.Errorf("a body of %d bytes takes %d, %v", len(body), got, err)
	}
}
