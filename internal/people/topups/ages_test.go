package topups_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
)

// waits are what may wait for us, or for Stripe's answer, besides what moves money: what begins it, and the requests
// that Stripe then refuses.
var waits = map[string]struct {
	begin        func(p *person)
	method, path string
}{
	"a payment that cannot be fetched": {isCharged("works"), "GET", "/v1/payment_intents/"},
	"a payment that cannot be canceled": {
		isCharged("unasked"), "POST", "/v1/payment_intents/",
	},
	"a payment that is neither paid nor failed": {isCharged("processing"), "", ""},
	"a checkout that cannot be fetched":         {func(p *person) { p.begin("10") }, "GET", "/v1/checkout/sessions/"},
	"a card that is not removed": {func(p *person) {
		p.saves("25", "works")
		p.Post("/top-up/auto/card/remove", url.Values{}).Leads(p.t, "/top-up/auto?done=removed")
	}, "POST", "/v1/payment_methods/"},
	"a customer that is not deleted": {func(p *person) {
		p.saves("25", "works")
		p.deletePlan(p)
	}, "DELETE", "/v1/customers/"},
	"a refund that waits for our balance": {func(p *person) {
		p.topUp("10")
		p.do("", "refunds", "status", "pending", "reason", "insufficient_funds")
		p.toCard("10")
		p.wantAlarm("refund_waits")
	}, "", ""},
}

// isCharged returns what lets a saved card be charged that behaves so then.
func isCharged(behaves string) func(p *person) {
	return func(p *person) {
		p.saves("25", "works")
		p.do(p.stripe.SavedCards()[0], "card", "card", behaves)
		p.wishes("30", "50", "100")
	}
}

// TestNothingWaitsWithoutAnAlarm raises an alarm for whatever has waited for us, or for Stripe's answer, for an hour,
// and for nothing before. It ends when Stripe has done it.
func TestNothingWaitsWithoutAnAlarm(t *testing.T) {
	t.Parallel()
	for name, c := range waits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				isRefused := false
				w.between(func(rw http.ResponseWriter, r *http.Request) bool {
					if !isRefused || c.method != r.Method || !strings.HasPrefix(r.URL.Path, c.path) || c.path == "" {
						return false
					}
					refuse(rw, http.StatusForbidden)
					return true
				})
				p := w.person(accounts.NewAccount{})
				c.begin(p)
				isRefused = true
				if strings.Contains(name, "checkout") {
					w.later(61 * time.Minute) // it is asked about hourly
				}
				w.once()
				w.later(50 * time.Minute)
				w.once()
				if w.isRaised("overdue") {
					t.Error("an alarm before an hour")
				}
				for range 2 {
					w.later(15 * time.Minute)
					w.once()
				}
				w.wantAlarm("overdue")
			})
		})
	}
}

// TestStoppedBeforeTheBank counts no failure and blames no bank when Stripe does not get so far as to ask it. It tries
// again after a while.
func TestStoppedBeforeTheBank(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		p := w.person(accounts.NewAccount{})
		isCharged("unasked")(p)
		for range 5 {
			w.once()
			w.once() // not at once
			w.later(11 * time.Minute)
		}
		if got := p.payment(); got.Status != rules.PaymentFailed || got.Reason != "stopped" {
			t.Errorf("%s: %s", got.Status, got.Reason)
		}
		if n := len(w.stripe.Payments()); n != 6 {
			t.Errorf("%d payments at Stripe", n)
		}
		p.told(0, "")
		p.Get("/top-ups/"+p.payment().ID).Want(t, 200, "stopped before your bank was asked")
		w.do(w.stripe.SavedCards()[0], "card", "card", "works")
		w.once()
		p.wants(75*money.Dollar, rules.PaymentSettled)
	})
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		isCharged("confirm")(p)
		w.once()
		if got := p.payment(); got.Status != rules.PaymentFailed || got.Reason != "needs_authentication" {
			t.Errorf("%s: %s", got.Status, got.Reason)
		}
	})
}

// TestLaterCardHolds has the event of an older payment come after another card was saved, or the card was removed.
func TestLaterCardHolds(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"another card", "no card"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				p := w.person(accounts.NewAccount{})
				agree := func() (session string) {
					t.Helper()
					a := p.Post("/top-up/auto/card", url.Values{
						"token": {p.Get("/top-up/auto").Found(t, tokenField)}, "first": {"25"}, "agree": {"yes"},
					})
					return a.To[strings.LastIndexByte(a.To, '/')+1:]
				}
				w.do(agree(), "pay", "card", "works")
				late := w.fresh()
				w.later(time.Minute)
				w.do(agree(), "pay", "card", "poor")
				w.deliver(w.fresh(), http.StatusOK)
				if what == "no card" {
					p.Post("/top-up/auto/card/remove", url.Values{}).Leads(t, "/top-up/auto?done=removed")
				}
				var saved, kept string
				query := `SELECT COALESCE(payment_method, '') FROM auto_topups WHERE account_id = $1`
				if err := w.d.QueryRowContext(t.Context(), query, p.ID).Scan(&saved); err != nil {
					t.Fatal(err)
				}
				w.deliver(late, http.StatusOK)
				w.once()
				if err := w.d.QueryRowContext(t.Context(), query, p.ID).Scan(&kept); err != nil || kept != saved {
					t.Errorf("%q is saved, and %q after the late event: %v", saved, kept, err)
				}
				if n, want := len(w.stripe.SavedCards()), map[string]int{"another card": 1}[what]; n != want {
					t.Errorf("Stripe keeps %d cards, want %d", n, want)
				}
				p.wants(50*money.Dollar, rules.PaymentSettled)
			})
		})
	}
}
