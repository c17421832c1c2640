package topups_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
)

// post carries a request out at Stripe that none of our nodes makes now, and returns the id of what it made.
func (w *world) post(path, body string) string {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), "POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer sk_test_key")
	rec := httptest.NewRecorder()
	w.stripe.ServeHTTP(rec, r)
	var made struct{ ID string }
	if err := json.Unmarshal(rec.Body.Bytes(), &made); err != nil || made.ID == "" {
		w.t.Fatalf("%v: %s", err, rec.Body)
	}
	return made.ID
}

// repeats returns a function that carries the last of our requests to a path out again, as a node does that has paused
// for longer than Stripe remembers its key.
func (w *world) repeats(path string) (again func() string) {
	w.t.Helper()
	var body []byte
	w.between(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == path {
			body, _ = io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		return false
	})
	return func() string { return w.post(path, string(body)) }
}

// renamed are events under other ids, as Stripe tells the same by several.
func renamed(events [][]byte) (list [][]byte) {
	for _, e := range events {
		list = append(list, bytes.Replace(e, []byte(`"id":"evt_`), []byte(`"id":"evt_`+id.NewSecret()[:8]), 1))
	}
	return list
}

// TestPaidTwice pays a top-up a second time, by the request of a node that has paused for longer than Stripe remembers
// its key. The second payment is a top-up of its own: its user is told and may return it.
func TestPaidTwice(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(w *world){
		"by its events": func(w *world) { w.deliver(w.fresh(), http.StatusOK) },
		"by a comparison": func(w *world) {
			w.noEvents()
			w.later(25 * time.Hour)
			w.reconcile()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				again := w.repeats("/v1/payment_intents")
				p := w.person(accounts.NewAccount{})
				p.saves("25", "works")
				p.wishes("30", "50", "50")
				w.once()
				w.deliver(w.fresh(), http.StatusOK)
				p.wants(75*money.Dollar, rules.PaymentSettled)
				again()
				for range 2 {
					find(w)
					p.wants(125*money.Dollar, rules.PaymentSettled)
				}
				w.wantAlarm("payment_twice")
				p.told(2, "A top-up of $50.00 was paid twice", "paid twice")
				w.deliver(renamed(w.stripe.Events()), http.StatusOK)
				p.wants(125*money.Dollar, rules.PaymentSettled)
			})
			each(t, func(w *world) {
				again := w.repeats("/v1/checkout/sessions")
				p := w.person(accounts.NewAccount{})
				p.topUp("10")
				second := again()
				w.do(second, "pay")
				for range 2 {
					find(w)
					p.wants(20*money.Dollar, rules.PaymentSettled)
				}
				w.wantAlarm("payment_twice")
				p.told(1, "A top-up of $10.00 was paid twice", "paid twice")
				w.do(second, "refund", "cents", "300")
				w.deliver(w.stripe.Events(), http.StatusOK)
				p.wants(17*money.Dollar, rules.PaymentSettled)
				w.do(again(), "expire") // of a page that nobody has seen
				w.deliver(w.fresh(), http.StatusOK)
				p.Browser.SignIn(p.Email)
				p.toCard("17")
				w.deliver(w.fresh(), http.StatusOK)
				p.wants(0, rules.PaymentSettled)
			})
		})
	}
}

// TestNodeChargesTwice lets a node pause right before its charge until another node has charged the card and Stripe has
// forgotten the key. The node credits what it has charged besides.
func TestNodeChargesTwice(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			w.serveStripe(rw, r)
			return true
		})
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "100")
		h, done := w.hold("POST", "/v1/payment_intents", false), make(chan error, 1)
		go func() { done <- w.store.RunDue(t.Context()) }()
		<-h.here
		w.later(6 * time.Minute) // past the claim
		w.once()
		p.wants(75*money.Dollar, rules.PaymentSettled)
		w.do("", "forget")
		close(h.goOn)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		p.wants(125*money.Dollar, rules.PaymentSettled)
		w.wantAlarm("payment_twice")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(125*money.Dollar, rules.PaymentSettled)
	})
}

// TestAllGoneAfterItEnded charges a card although the attempt has ended, and takes all of it back before its events
// come. They are taken, and what comes back later is credited.
func TestAllGoneAfterItEnded(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(w *world, intent string){
		"a refund in Stripe's dashboard": func(w *world, intent string) { w.do(intent, "refund") },
		"a lost dispute": func(w *world, intent string) {
			w.do(intent, "dispute")
			w.do(intent, "lost")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				again := w.repeats("/v1/payment_intents")
				p := w.person(accounts.NewAccount{})
				p.saves("25", "works")
				p.wishes("30", "50", "100")
				w.do("", "answer", "method", "POST", "path", "/v1/payment_intents", "status", "500",
					"type", "api_error")
				w.once()
				p.Post("/top-up/auto/off", url.Values{})
				w.later(6 * time.Minute)
				w.once()
				p.wants(25*money.Dollar, rules.PaymentFailed)
				leave(w, again())
				for range 2 {
					w.deliver(renamed(w.stripe.Events()), http.StatusOK)
					p.wants(25*money.Dollar, rules.PaymentFailed)
				}
				w.wantAlarm("payment_reopened")
				n := len(p.payment().Records)
				w.reconcile()
				if got := len(p.payment().Records); got != n {
					t.Errorf("%d records, and %d after a comparison", n, got)
				}
				if strings.Contains(name, "refund") {
					w.do("", "refunds", "status", "failed", "all", "1")
					w.deliver(w.fresh(), http.StatusOK)
					p.wants(75*money.Dollar, rules.PaymentSettled)
				}
			})
		})
	}
}

// TestLargeEventOfAnother takes an event about what is not ours and has much metadata: Stripe would send a refused one
// for days, and give up the endpoint.
func TestLargeEventOfAnother(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		e := []byte(`{"id":"evt_large","object":"event","type":"charge.refunded","livemode":false,"data":{"object":{` +
			`"id":"ch_1","payment_intent":"pi_another","metadata":{"note":"` + strings.Repeat("x", 200<<10) + `"}}}}`)
		w.deliver([][]byte{e}, http.StatusOK)
	})
}

// TestEventOfADevelopersAccount takes events of connected accounts, to which an endpoint may be subscribed, and does
// nothing.
func TestEventOfADevelopersAccount(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("10")
		for _, e := range renamed(w.stripe.Events()) {
			e = bytes.Replace(e, []byte("{"), []byte(`{"account":"acct_developer",`), 1)
			if got := w.tell(e, w.stripe.Sign(e)); got != http.StatusOK {
				t.Errorf("%.200s: %d", e, got)
			}
		}
		p.wants(10*money.Dollar, rules.PaymentSettled)
	})
}
