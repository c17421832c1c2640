package inference

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestEmptyAnswers makes a call free in which the model said nothing, unless the operator charges it or the app sent
// stop sequences, and says so in the stream, the receipt and the metrics. One in which it said something is charged.
func TestEmptyAnswers(t *testing.T) {
	t.Parallel()
	const last = `data: {"id":"chatcmpl-9","choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	for _, tt := range []struct {
		name, text, query string
		output            int64
		dayMC             money.MC
		free, counted     bool
	}{
		{name: "empty", output: 5, dayMC: money.Dollar, free: true, counted: true},
		{name: "empty, for the OpenAI-compatible route", query: "?chat", output: 5, dayMC: money.Dollar, free: true,
			counted: true},
		{name: "a text", text: "Hello", output: 5, dayMC: money.Dollar},
		{name: "empty, with stop sequences", query: "?stop", output: 5, dayMC: money.Dollar, counted: true},
		{name: "empty, where it is charged", output: 5, counted: true},
		{name: "empty, beyond the amount of a day", output: 5, dayMC: 1, counted: true},
		{name: "empty, of more tokens than nothing has", output: 17, dayMC: money.Dollar},
	} {
		b := newBundle(t, db.SQLite, &fakeProvider{
			chunks: []provider.Chunk{
				{Frames: []byte(delta(tt.text))},
				{Frames: []byte(last)},
				{UsageFrame: []byte(usageEvent), Usage: &provider.Usage{Input: 9, Output: tt.output}},
			},
			ended: io.EOF,
		})
		b.Policies = policies.Fixed(policy.Policy{Fee: money.One / 20, EmptyAnswersDayMC: tt.dayMC})
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
		body, requestID, _ := b.call(key, tt.query)
		charge := map[bool]string{true: "= 0 AND svc_fee_mc = -provider_cost_mc", false: "> 0"}[tt.free]
		b.expectOne(`SELECT COUNT(*) FROM ledger
			WHERE key = $1 AND provider_cost_mc > 0 AND user_charge_mc `+charge, key)
		receipt := b.receipt(requestID, "settled", true)
		for where, text := range map[string]string{"stream": body, "receipt": receipt} {
			if strings.Contains(text, `"waived":"empty_answer"`) != tt.free {
				t.Errorf("%s: the %s says\n%s", tt.name, where, text)
			}
		}
		if strings.Contains(receipt, "gave an empty answer, so the call was free") != tt.free {
			t.Errorf("%s: the receipt says\n%s", tt.name, receipt)
		}
		w := httptest.NewRecorder()
		b.Metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		scraped := w.Body.String()
		if got := strings.Contains(scraped, "purser_empty_answers_total{"); got != tt.counted {
			t.Errorf("%s: counted = %t", tt.name, got)
		}
		noCharge := fmt.Sprintf("purser_empty_answer_charges_mc_total{model=%q,provider=\"openai\"} 0\n", testModel)
		if got := strings.Contains(scraped, noCharge); got != tt.free {
			t.Errorf("%s: no charge is counted = %t", tt.name, got)
		}
		b.audit()
	}
}
