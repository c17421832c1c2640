package inference

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestEmptyAnswers counts a billed call in which the model said nothing, with its charge, and none in which it said
// something.
func TestEmptyAnswers(t *testing.T) {
	t.Parallel()
	const last = `data: {"id":"chatcmpl-9","choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for text, wantEmpty := range map[string]bool{"": true, "Hello": false} {
		b := newBundle(t, db.SQLite, &fakeProvider{
			chunks: []provider.Chunk{
				{Frames: []byte(delta(text))},
				{Frames: []byte(last)},
				{UsageFrame: []byte(usageEvent), Usage: &provider.Usage{Input: 9, Output: 5}},
			},
			ended: io.EOF,
		})
		prices, err := catalog.Open("", b.Log)
		if err != nil {
			t.Fatal(err)
		}
		drift, err := estimates.Load(t.Context(), b.DB, b.clock, b.Log)
		if err != nil {
			t.Fatal(err)
		}
		b.Metrics = metrics.New(prices, drift)
		key := id.NewUUID()
		b.call(key, "")
		b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1 AND user_charge_mc > 0`, key)
		w := httptest.NewRecorder()
		b.Metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		counted := strings.Contains(w.Body.String(), "purser_empty_answers_total{") &&
			strings.Contains(w.Body.String(), "purser_empty_answer_charges_mc_total{")
		if counted != wantEmpty {
			t.Errorf("of the answer %q: counted = %t", text, counted)
		}
		b.audit()
	}
}
