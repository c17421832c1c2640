package topups_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/stripeapi"
	"github.com/purserhq/purser/internal/people/topups"
)

// customer is the Stripe customer of the person.
func (p *person) customer() (id string) {
	p.t.Helper()
	err := p.d.QueryRowContext(p.t.Context(), `SELECT customer FROM auto_topups WHERE account_id = $1`, p.ID).Scan(&id)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// TestGoneCustomer deletes the customer of a card at Stripe. The user is told, and saves a card again: also one who had
// not been charged since.
func TestGoneCustomer(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "100")
		gone := p.customer()
		w.do(gone, "vanish")
		w.once()
		p.wants(25*money.Dollar, rules.PaymentFailed)
		p.auto("Stripe no longer has your saved card")
		p.told(1, "save your card again", "no longer has your Visa ending in 4242, so we stopped a top-up.")
		if strings.Contains(p.mails()[0].Text, "charged") { // an earlier try may have been
			t.Errorf("%+v", p.mails())
		}
		p.Get("/top-ups/"+p.payment().ID).Lacks(t, "charged")
		p.charged(0, 0)
		w.wantAlarm("card_gone")
		for range 3 { // it is not tried again
			w.later(24 * time.Hour)
			w.once()
		}
		p.told(1, "save your card again")
		p.Browser.SignIn(p.Email)
		p.saves("25", "works")
		if p.customer() == gone {
			t.Error("the same customer")
		}
		other := w.person(accounts.NewAccount{})
		other.saves("25", "works")
		w.do(other.customer(), "vanish")
		other.Post("/top-up/auto/card/remove", url.Values{}).Leads(t, "/top-up/auto?done=removed")
		other.saves("25", "works") // the customer is replaced at the checkout
		other.wants(50*money.Dollar, rules.PaymentSettled)
	})
}

// TestKeyOfAnotherAccount gives the node a key of another account at Stripe, which has none of our customers and cards.
// No card is forgotten and no user is told; the card is charged once the key is right again.
func TestKeyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		stranger := stripe.New(stripe.Options{Key: "sk_test_key", Account: "acct_stranger", Now: w.now})
		isWrong := false
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if isWrong {
				stranger.ServeHTTP(rw, r)
			}
			return isWrong
		})
		p, q := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		p.saves("25", "works")
		q.saves("25", "works")
		if err := w.store.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.between(func(rw http.ResponseWriter, r *http.Request) bool { // a node that starts with the key
			if isWrong {
				stranger.ServeHTTP(rw, r)
			}
			return isWrong
		})
		isWrong = true
		p.wishes("30", "50", "100")
		q.Post("/top-up/auto/card/remove", url.Values{}).Leads(t, "/top-up/auto?done=removed")
		for range 3 {
			w.once()
			w.later(20 * time.Minute)
		}
		if err := w.store.Reconcile(t.Context()); !errors.Is(err, stripeapi.ErrOtherAccount) {
			t.Errorf("compared with another account: %v", err)
		}
		w.wantAlarm("stripe_account")
		p.wants(25*money.Dollar, rules.PaymentPending)
		p.auto("Visa ending in 4242")
		p.told(0, "")
		isWrong = false
		w.once()
		p.charged(50_00, 1)
		p.wants(75*money.Dollar, rules.PaymentSettled)
		var left int
		err := w.d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM card_removals`).Scan(&left)
		if err != nil || left != 0 {
			t.Errorf("%d cards are left, %v", left, err)
		}
	})
}

// TestEventBeforeTheAnswer has the event of a refund come while its answer is still awaited, and then the answer is
// lost. The refund has ended, and nothing waits.
func TestEventBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("25")
		w.between(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || r.URL.Path != "/v1/refunds" {
				return false
			}
			w.stripe.ServeHTTP(httptest.NewRecorder(), r)
			w.deliver(w.fresh(), http.StatusOK)
			refuse(rw, http.StatusBadGateway)
			return true
		})
		p.toCard("25")
		p.wants(0, rules.PaymentSettled)
		w.later(2 * time.Hour)
		w.once()
		if w.isRaised("overdue") {
			t.Error("what has ended waits")
		}
	})
}

// ourFaults are answers to a charge that blame us.
var ourFaults = map[string][]string{
	"a key without the permission":   {"status", "403"},
	"a key that has expired":         {"status", "401", "code", "api_key_expired"},
	"an account that is not active":  {"status", "400", "message", "Your account cannot currently make live charges."},
	"an account that is not active,": {"status", "400", "code", "testmode_charges_only", "stored", "1"},
	"a pace that is too high":        {"status", "429", "code", "rate_limit"},
}

// TestOurFaultEndsNoCharge refuses charges for faults of ours for two days. No bank was asked, so no text says that one
// declined; the operator is told. The card is charged when the fault is mended.
func TestOurFaultEndsNoCharge(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		for name, answer := range ourFaults {
			t.Log(name)
			p := w.person(accounts.NewAccount{})
			p.saves("25", "works")
			p.wishes("30", "50", "100")
			w.do("", "answer", append(answer, "method", "POST", "path", "/v1/payment_intents", "times", "10")...)
			for range 10 {
				w.once()
				w.later(5 * time.Hour)
			}
			p.Browser.SignIn(p.Email)
			if page := p.Get("/top-up/auto"); strings.Contains(page.Body, "declined") || len(p.mails()) > 0 {
				t.Errorf("%s: a bank is blamed: %+v", name, p.mails())
			}
			w.wantAlarm("charge_waits")
			w.wantAlarm("overdue")
			w.do("", "answer")
			for range 4 { // a stored error is repeated, and then another attempt is made
				w.once()
				w.later(61 * time.Minute)
			}
			p.charged(50_00, 1)
			p.wants(75*money.Dollar, rules.PaymentSettled)
		}
	})
}

// TestStoredErrorOfACharge lets Stripe fail with 500, which it repeats for a day. An hour after the first repetition
// another attempt is made, if Stripe still has nothing. If it has, the charge is found.
func TestStoredErrorOfACharge(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"nothing was done": false, "the card was charged": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				p := w.person(accounts.NewAccount{})
				p.saves("25", "works")
				p.wishes("30", "50", "100")
				pairs := []string{"method", "POST", "path", "/v1/payment_intents", "status", "500", "type", "api_error"}
				if made {
					pairs = append(pairs, "after", "1")
				}
				w.do("", "answer", pairs...)
				w.once()
				w.fresh() // no event comes
				p.wants(25*money.Dollar, rules.PaymentPending)
				for range 3 {
					w.later(62 * time.Minute)
					w.once()
				}
				p.charged(50_00, 1)
				p.wants(75*money.Dollar, rules.PaymentSettled)
			})
		})
	}
}

// TestStoredErrorOfACheckout opens a checkout although Stripe has stored an error for it.
func TestStoredErrorOfACheckout(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		form := url.Values{"token": {p.Get("/top-up").Found(t, tokenField)}, "amount": {"25"}}
		w.do("", "answer", "method", "POST", "path", "/v1/checkout/sessions", "status", "500", "type", "api_error")
		p.Post("/top-up", form)
		if a := p.Post("/top-up", form); a.Status != http.StatusSeeOther || !strings.Contains(a.To, "/pay/cs_test_") {
			t.Errorf("%d to %q\n%s", a.Status, a.To, a.Body)
		}
	})
}

// TestRefundDuringADispute asks for a refund at the moment at which the payment is disputed. It waits for the bank: one
// that is won is refunded, and one that is lost ends it.
func TestRefundDuringADispute(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"won", "lost"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				p := w.person(accounts.NewAccount{})
				session, isDisputed := p.topUp("25"), false
				w.between(func(_ http.ResponseWriter, r *http.Request) bool {
					if r.Method == http.MethodPost && r.URL.Path == "/v1/refunds" && !isDisputed {
						isDisputed = true
						w.do(session, "dispute")
					}
					return false
				})
				p.toCard("25")
				w.later(6 * time.Minute)
				w.once()
				p.wants(0, rules.PaymentSettled)
				w.do(session, how)
				for range 2 {
					w.later(61 * time.Minute)
					w.once()
				}
				w.later(61 * time.Minute)
				w.once()
				w.deliver(w.fresh(), http.StatusOK)
				p.wants(0, rules.PaymentSettled)
				subject := map[string]string{"won": "We returned", "lost": "We couldn’t return"}[how]
				if p.mailsOf(subject+" $25.00 to your card") != 1 {
					t.Errorf("%+v", p.mails())
				}
			})
		})
	}
}

// TestKnownByAnEvent loses Stripe's answers to a charge and to a refund. Their events tell what Stripe has done, so
// nothing is unknown any more.
func TestKnownByAnEvent(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		i := &interference{}
		w.between(i.handle(w))
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "100")
		i.lost = "/v1/payment_intents"
		w.once()
		i.lost = ""
		w.wantAlarm("charge_waits")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(75*money.Dollar, rules.PaymentSettled)
		p.Post("/top-up/auto/off", url.Values{})
		i.lost = "/v1/refunds"
		p.toCard("50")
		i.lost = ""
		w.wantAlarm("refund_waits")
		w.deliver(w.fresh(), http.StatusOK)
		p.wants(25*money.Dollar, rules.PaymentSettled)
		w.later(2 * time.Hour)
		w.once()
		if w.isRaised("overdue") {
			t.Error("what is known waits")
		}
	})
}

// TestPendingForLong raises an alarm for a refund that Stripe calls pending for longer than any bank takes.
func TestPendingForLong(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.topUp("25")
		w.between(func(http.ResponseWriter, *http.Request) bool { return false })
		w.do("", "refunds", "status", "pending")
		p.toCard("25")
		w.later(13 * 24 * time.Hour)
		w.once()
		if w.isRaised("pending_for_long") {
			t.Error("an alarm after 13 days")
		}
		w.later(2 * 24 * time.Hour)
		w.once()
		w.wantAlarm("pending_for_long")
	})
}

// TestDisputeBeforeItsCharge disputes and refunds automatic charges whose answers were lost, before any other event of
// them has come. The books have these top-ups: nothing is unknown, so that other money does not wait.
func TestDisputeBeforeItsCharge(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for _, what := range []string{"dispute", "refund"} {
			p := w.person(accounts.NewAccount{})
			p.saves("25", "works")
			p.wishes("30", "50", "100")
			w.do("", "lose", "lose", "100", "method", "POST")
			w.once()
			w.do("", "lose", "lose", "0")
			for _, at := range w.stripe.Payments() {
				if at.Account == p.ID && at.OffSession {
					w.do(at.Intent, what, "cents", "1000")
				}
			}
			events := w.stripe.Events()
			w.deliver(events[len(events)-1:], http.StatusOK)
			if waits, err := topups.MoneyWaits(t.Context(), w.d); waits || err != nil {
				t.Errorf("after a %s money waits: %v; %v", what, waits, err)
			}
			if what == "dispute" { // it is credited when the bank has decided
				p.wants(25*money.Dollar, rules.PaymentPending)
			} else {
				p.wants(65*money.Dollar, rules.PaymentSettled)
			}
		}
	})
}
