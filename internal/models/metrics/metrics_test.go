package metrics

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func fresh(t testing.TB) *Metrics {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	prices, err := catalog.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	drift, err := estimates.Load(t.Context(), dbtest.Open(t, db.SQLite), time.Now, log)
	if err != nil {
		t.Fatal(err)
	}
	return New(prices, drift)
}

func TestText(t *testing.T) {
	t.Parallel()
	m := fresh(t)
	m.CountCall("google", "gemini-4-argon", "estimated", 3*time.Second)
	m.CountCall("google", "gemini-4-argon", Abandoned, time.Millisecond)
	m.CountProviderError("google", 0)
	m.CountProviderError("google", 429)
	m.CountCutStream("google")
	m.CountRefusal("balance_exhausted")
	m.RaiseAlarm("the key is refused", "google")
	m.CountMail("sent")
	m.SetMailsPending(3)
	m.CountFailedJob("purge")
	m.SetBacklog(4, 5*time.Second, 6)
	m.SetUnclaimedEvents(8 * time.Second)
	m.WatchNode(func() time.Duration { return 7 * time.Second }, func() bool { return false })
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`purser_jobs_failed_total{task="purge"} 1`,
		`purser_open_holds 4`,
		`purser_oldest_hold_seconds 5`,
		`purser_deliveries_waiting 6`,
		`purser_oldest_new_event_seconds 8`,
		`purser_lease_age_seconds 7`,
		`purser_accepts_holds 0`,
		`purser_calls_total{model="gemini-4-argon",outcome="estimated",provider="google"} 1`,
		`purser_calls_total{model="gemini-4-argon",outcome="abandoned",provider="google"} 1`,
		`purser_call_seconds_bucket{model="gemini-4-argon",provider="google",le="2.5"} 1`,
		`purser_call_seconds_bucket{model="gemini-4-argon",provider="google",le="5"} 2`,
		`purser_provider_errors_total{provider="google",status="none"} 1`,
		`purser_provider_errors_total{provider="google",status="429"} 1`,
		`purser_provider_errors_total{provider="google",status="cut"} 1`,
		`purser_refused_calls_total{code="balance_exhausted"} 1`,
		`purser_alarms_total{alarm="the key is refused",subject="google"} 1`,
		`purser_mails_total{outcome="sent"} 1`,
		`purser_mails_pending 3`,
		`purser_prices_broken 0`,
		`go_goroutines`,
	} {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("%s is missing", line)
		}
	}
	if t.Failed() {
		t.Log(w.Body)
	}
}

func TestNil(t *testing.T) {
	t.Parallel()
	var m *Metrics
	m.CountCall("", "", "", 0)
	m.CountProviderError("", 0)
	m.CountCutStream("")
	m.CountRefusal("")
	m.RaiseAlarm("", "")
	m.CountMail("")
	m.CountPayment(true)
	if list, err := m.Tallies(); err != nil || list != nil {
		t.Errorf("%v, %v", list, err)
	}
	m.SetMailsPending(0)
}

// BenchmarkCall is what a call pays for being counted.
func BenchmarkCall(b *testing.B) {
	m := fresh(b)
	b.ReportAllocs()
	for b.Loop() {
		m.CountCall("openai", "gpt-6-luna", "settled", time.Second)
	}
}
