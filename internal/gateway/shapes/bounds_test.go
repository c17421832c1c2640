package shapes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/embeddings"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
)

// TestUnlistedMembers bounds the members of a body that no shape lists, at its top and in an item of its input: each
// costs a look-up, and none is billed.
func TestUnlistedMembers(t *testing.T) {
	t.Parallel()
	unlisted := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":1`, i)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		body  string // TOP and ITEM stand for unlisted members
		parse func([]byte) error
	}{
		"chat completions": {`{"messages":[{"role":"user","content":"a"ITEM}]TOP}`,
			func(b []byte) error { _, err := plan.Parse(b); return err }},
		"embeddings": {`{"model":"m","input":"a"TOP}`,
			func(b []byte) error { _, err := embeddings.Parse(b); return err }},
		"responses": {`{"model":"m","input":[{"role":"user","content":"a"ITEM}]TOP}`,
			func(b []byte) error { _, err := responses.Parse(b); return err }},
		"contents": {`{"contents":[{"parts":[{"text":"a"}]ITEM}]TOP}`,
			func(b []byte) error { _, err := contents.Parse(b, "m", false); return err }},
		"messages": {`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"ITEM}]TOP}`,
			func(b []byte) error { _, err := messages.Parse(b); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, place := range []string{"TOP", "ITEM"} {
				for n, want := range map[int]bool{1000: true, 1 << 16: false} {
					if place == "ITEM" && !strings.Contains(c.body, place) {
						continue
					}
					body := strings.Replace(c.body, place, unlisted(n), 1)
					err := c.parse([]byte(strings.NewReplacer("TOP", "", "ITEM", "").Replace(body)))
					if want != (err == nil) || !want && !strings.Contains(err.Error(), "too many members") {
						t.Errorf("%d members at %s: %v", n, place, err)
					}
				}
			}
		})
	}
}
