package inference

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/id"
)

// TestStopSequencesOfModelsThatReason: OpenAI's models take none while they reason, so the answer ends before the
// sequence here. What the model goes on to say is neither delivered nor stored, and is charged as the provider does.
func TestStopSequencesOfModelsThatReason(t *testing.T) {
	t.Parallel()
	m, watched := newEmulated(t)
	d := &dialect{name: "responses", provider: "openai", model: "gpt-6-sol"}
	const prompt = `"messages":[{"role":"user","content":"Name a river."}]`
	for _, route := range []string{"ai", "messages"} {
		for _, streamed := range []bool{true, false} {
			member, path, told := "stop", "/v1/ai/"+d.model, `"finish_reason":"stop"`
			if route == "messages" {
				member, path, told = "stop_sequences", "/anthropic/v1/messages", `"stop_reason":"stop_sequence"`
			}
			body := fmt.Sprintf(`{%q:["canned"],"max_tokens":2000,"stream":%t,%s}`, member, streamed, prompt)
			if route == "messages" {
				body = strings.Replace(body, "{", `{"model":"`+d.model+`",`, 1)
			}
			p := &playedCell{cell: &cell{dialect: d, route: route, streamed: streamed}, m: m, node: m.bundle,
				key: id.NewUUID()}
			ask := func() *reading {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header = http.Header{
					"Authorization":   {"Bearer " + m.token},
					"Content-Type":    {"application/json"},
					"Idempotency-Key": {p.key},
				}
				got := readCall(t.Context(), r)
				<-got.ended
				return got
			}
			p.got = ask()
			text, row := p.got.raw.String(), p.charge()
			if streamed && p.got.message(route).said != "You said: Name a river.. I am a " ||
				!streamed && !strings.Contains(text, `"You said: Name a river.. I am a "`) ||
				!strings.Contains(text, told) || strings.Contains(text, "answer") {
				t.Errorf("%s streamed %t: %d %s", route, streamed, p.got.status, text)
			}
			if row == nil || row.settlement != "settled" || row.output < 24+15 { // thoughts, and all text
				t.Errorf("%s streamed %t: the row is %+v", route, streamed, row)
			}
			if asked, refusal := watched.take(); asked != 1 || refusal != "" {
				t.Errorf("%s streamed %t: asked %d times, refused: %s", route, streamed, asked, refusal)
			}
			if again := ask().raw.String(); again != text {
				t.Errorf("%s streamed %t: replayed\n%s\nnot\n%s", route, streamed, again, text)
			}
		}
	}
	m.audit()
}
