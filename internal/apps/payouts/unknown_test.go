package payouts_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
)

// mailsTo counts the emails to the developer with a subject.
func (w *world) mailsTo(subject string) (n int) {
	w.t.Helper()
	list, err := w.Mails.ListNewest(w.t.Context(), 100)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range list {
		if m.AccountID == w.dev.ID && m.Subject == subject {
			n++
		}
	}
	return n
}

// meter counts alarms from now on.
func (w *world) meter() {
	w.t.Helper()
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	drift, err := estimates.Load(w.t.Context(), w.DB, w.now, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	w.Metrics = metrics.New(prices, drift)
}

// alarmed checks how often an alarm was raised since meter.
func (w *world) alarmed(alarm string, times int) {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.Metrics.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	of := fmt.Sprintf("purser_alarms_total{alarm=%q,subject=\"stripe\"} ", alarm)
	if times == 0 && strings.Contains(rec.Body.String(), of) ||
		times > 0 && !strings.Contains(rec.Body.String(), fmt.Sprintf("%s%d\n", of, times)) {
		w.t.Errorf("alarm %s was not raised %d times", alarm, times)
	}
}

// TestGonePayee deletes the developer's account at Stripe: the developer is told once, sets up another one, and is paid
// what failed meanwhile.
func TestGonePayee(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.topUp()
		w.call("k1", 10)
		w.onboard()
		gone := w.payee
		w.pass(3 * day)
		w.steer(gone, "vanish")
		w.run()
		w.pass(day)
		w.run()
		w.wants(nil)
		if p, err := w.GetPayee(t.Context(), w.dev.ID); err != nil || p.Enabled || p.GoneUS == 0 {
			t.Errorf("%+v, %v", p, err)
		}
		if w.mailsTo("Set up payouts again") != 1 {
			t.Error("the developer was not told once")
		}
		w.onboard()
		if w.payee == gone {
			t.Error("the same payee")
		}
		w.run()
		w.wants([]int64{1000}, "paid")
		w.steer(w.payee, "vanish")
		w.onboard() // nobody knew yet that it was gone
		if p, err := w.GetPayee(t.Context(), w.dev.ID); err != nil || !p.Enabled || p.GoneUS != 0 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestPayeeGoneMeanwhile deletes the developer's account while a payout waits. It fails, and the app has the amount
// again.
func TestPayeeGoneMeanwhile(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.beginsWaiting()
		w.steer("", "transfers", "status", "")
		w.steer(w.payee, "vanish")
		for range 3 { // the answer about our balance is repeated first
			w.pass(61 * time.Minute)
			w.run()
		}
		w.wants(nil, "failed")
		if m := w.margin(); m.Balance() != 10*money.Dollar {
			t.Errorf("%+v", m)
		}
	})
}

// TestKeyOfAnotherAccount gives the node a key of another account at Stripe, which has none of our payees. That is the
// operator's to mend: no payee is gone, no developer is told, and the payout waits.
func TestKeyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.beginsWaiting()
		w.steer("", "transfers", "status", "")
		if err := w.Account.Check(t.Context()); err != nil { // the daily job does
			t.Fatal(err)
		}
		stranger := stripe.New(stripe.Options{Key: "sk_test_key", Account: "acct_stranger", Now: w.now})
		isWrong := true
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if isWrong {
				stranger.ServeHTTP(rw, r)
			}
			return isWrong
		})
		for range 3 {
			w.pass(61 * time.Minute)
			w.run()
		}
		w.wants(nil, "begun")
		if p, err := w.GetPayee(t.Context(), w.dev.ID); err != nil || !p.Enabled || p.GoneUS != 0 {
			t.Errorf("%+v, %v", p, err)
		}
		if link, err := w.Onboard(t.Context(), w.dev); err == nil {
			t.Errorf("onboarded anew: %q", link)
		}
		if n := w.mailsTo("Set up payouts again"); n != 0 {
			t.Errorf("%d emails", n)
		}
		isWrong = false
		for range 2 {
			w.pass(61 * time.Minute)
			w.run()
		}
		w.wants([]int64{1000}, "paid")
	})
}

// TestPayeeOfAnotherAddress changes the developer's email address after the answer with the payee was lost. Stripe has
// the key with the old address; the developer gets a payee at once.
func TestPayeeOfAnotherAddress(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		isLost := true
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/accounts" || !isLost {
				return false
			}
			isLost = false
			w.stripe.ServeHTTP(discard{http.Header{}}, r)
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden) // nothing that the client repeats
			_ = json.NewEncoder(rw).Encode(map[string]any{"error": map[string]string{"message": "no"}})
			return true
		})
		if _, err := w.Onboard(t.Context(), w.dev); err == nil {
			t.Error("onboarded")
		}
		w.dev.Email = "dev@new.example.com"
		w.onboard()
	})
}

// discard takes an answer.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// TestPayeeThatCannotBeFetched raises an alarm while Stripe does not say whether a developer can be paid, and pays the
// developer once it does.
func TestPayeeThatCannotBeFetched(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ready()
		w.meter()
		isAway := true
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if isAway && strings.HasPrefix(r.URL.Path, "/v1/accounts/") {
				rw.WriteHeader(http.StatusForbidden)
				return true
			}
			return false
		})
		w.run()
		w.wants(nil)
		w.alarmed("payout_waits", 1)
		isAway = false
		w.run()
		w.wants([]int64{1000}, "paid")
	})
}
