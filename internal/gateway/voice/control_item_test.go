package voice

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
)

// TestItemMembers: an app may name an item, its place and its status, as OpenAI's clients do. None of it is dropped in
// silence.
func TestItemMembers(t *testing.T) {
	t.Parallel()
	message := `"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]`
	create := func(before, item string) string {
		return `{"type":"conversation.item.create",` + before + `"item":{` + item + message + `}}`
	}
	for text, want := range map[string]struct {
		after, id, status, problem string
	}{
		create("", ""):                           {},
		create(`"previous_item_id":null,`, ""):   {},
		create(`"previous_item_id":"root",`, ""): {after: "root"},
		create("", `"id":"item_1","status":"completed","object":"realtime.item",`): {
			id: "item_1", status: "completed",
		},
		create("", `"status":"done",`):                                                 {problem: "item.status"},
		create("", `"object":"item",`):                                                 {problem: "item.object"},
		create("", `"audio":"x",`):                                                     {problem: "item.audio"},
		create("", `"id":"`+strings.Repeat("x", session.MaxName+1)+`",`):               {problem: "item.id"},
		create(`"previous_item_id":"`+strings.Repeat("x", session.MaxName+1)+`",`, ""): {problem: "previous_item_id"},
	} {
		e := parseControlEvent([]byte(text), &catalog.Model{})
		if want.problem != "" {
			if !strings.HasPrefix(e.Problem, want.problem) {
				t.Errorf("%.90s: %q", text, e.Problem)
			}
			continue
		}
		if e.Problem != "" || e.After != want.after || e.Item.ID != want.id || e.Item.Status != want.status {
			t.Errorf("%.90s: %+v, %+v", text, e, e.Item)
		}
	}
}
