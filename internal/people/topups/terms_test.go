package topups_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
)

// termChanges are what may happen to a plan while an attempt of $50 waits for Stripe, and what is charged afterwards,
// besides $50 that were charged before.
var termChanges = map[string]struct {
	change func(w *world, p *person)
	cents  int64 // of the attempts afterwards
}{
	"nothing":                        {func(*world, *person) {}, 50_00},
	"a smaller amount":               {func(_ *world, p *person) { p.wishes("30", "40", "100") }, 40_00},
	"a lower threshold":              {func(_ *world, p *person) { p.wishes("20", "50", "100") }, 0},
	"a smaller maximum of the month": {func(_ *world, p *person) { p.wishes("30", "50", "60") }, 0},
	"a top-up by hand":               {func(_ *world, p *person) { p.topUp("100") }, 0},
	"off":                            {func(_ *world, p *person) { p.Post("/top-up/auto/off", url.Values{}) }, 0},
	"a suspended account":            {func(_ *world, p *person) { p.suspend() }, 0},
	"a paused connection": {func(w *world, p *person) {
		connection := p.allocate(money.Dollar)
		_, err := w.ledger.Do(w.t.Context(), rules.Freeze{ConnectionID: connection, By: rules.FrozenByUser})
		if err != nil {
			w.t.Fatal(err)
		}
	}, 0},
	"a dispute, although it was turned on again": {func(w *world, p *person) {
		w.do(w.session(p), "dispute")
		w.deliver(w.fresh(), http.StatusOK)
		p.wishes("30", "50", "100")
		var connection string
		err := w.d.QueryRowContext(w.t.Context(), `SELECT id FROM connections WHERE account_id = $1`, p.ID).
			Scan(&connection)
		if err == nil {
			_, err = w.ledger.Do(w.t.Context(), rules.Resume{
				ConnectionID:   connection,
				By:             rules.FrozenByOperator,
				DespiteDispute: true,
			})
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}, 0},
	"a closed account": {func(w *world, p *person) { w.deletePlan(p) }, 0},
}

// deletePlan deletes a person's plan, as closing the account does.
func (w *world) deletePlan(p *person) {
	w.t.Helper()
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return w.store.DeletePlan(ctx, tx, p.ID)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestTermsAreReadAgain lets Stripe be away when an attempt begins, changes a term, and lets Stripe come back. The
// attempt is not charged under the terms of before.
func TestTermsAreReadAgain(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		const takes = 4 * time.Hour // no month shall end meanwhile
		if w.now().Add(takes).UTC().Month() != w.now().UTC().Month() {
			w.later(takes)
		}
		for name, c := range termChanges {
			w.t.Log(name)
			p := w.person(accounts.NewAccount{})
			p.saves("25", "works")
			p.wishes("30", "50", "100")
			w.once()
			p.charged(50_00, 1)
			w.deliver(w.fresh(), http.StatusOK)
			p.allocate(50 * money.Dollar)
			w.do("", "down", "down", "99")
			w.once()
			w.do("", "down", "down", "0")
			p.wants(25*money.Dollar, rules.PaymentPending)
			c.change(w, p)
			w.later(6 * time.Minute)
			w.once()
			w.later(11 * time.Minute)
			w.once()
			payments := 1
			if c.cents > 0 {
				payments = 2
			}
			p.charged(50_00+c.cents, payments)
			w.verify()
		}
	})
}

// TestClosingDuringACharge deletes the plan of an account while the outcome of a charge is unknown. The payment ends as
// Stripe says, and nothing of it stays pending.
func TestClosingDuringACharge(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"never made": false, "made, and its answer and event lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(w *world) {
				p := w.person(accounts.NewAccount{})
				p.saves("25", "works")
				p.wishes("30", "50", "100")
				i := &interference{}
				if w.between(i.handle(w)); made {
					i.lost = "/v1/payment_intents"
				} else {
					w.do("", "down", "down", "99")
				}
				w.once()
				w.do("", "down", "down", "0")
				i.lost = ""
				w.fresh()
				w.deletePlan(p)
				w.later(6 * time.Minute)
				w.once()
				if made {
					p.wants(75*money.Dollar, rules.PaymentSettled)
				} else {
					p.wants(25*money.Dollar, rules.PaymentFailed)
				}
			})
		})
	}
}

// TestManyCheckoutsOfOneUser bounds how many checkouts a user leaves unpaid, and charges another user's low balance
// although they are all due.
func TestManyCheckoutsOfOneUser(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("10", "works")
		p.wishes("5", "20", "500")
		busy := w.person(accounts.NewAccount{})
		first := busy.begin("5")
		for range 9 {
			busy.begin("5")
		}
		form := url.Values{"token": {busy.Get("/top-up").Found(t, tokenField)}, "amount": {"5"}}
		busy.Post("/top-up", form).Want(t, http.StatusTooManyRequests, "You have 10 top-ups that are not paid.")
		w.do(first, "pay")
		w.deliver(w.fresh(), http.StatusOK)
		busy.begin("5")

		p.allocate(9 * money.Dollar)
		var asked []string
		w.between(func(_ http.ResponseWriter, r *http.Request) bool {
			asked = append(asked, r.Method+" "+r.URL.Path)
			return false
		})
		w.later(61 * time.Minute)
		w.once()
		p.charged(20_00, 1)
		if n := slices.Index(asked, "POST /v1/payment_intents"); n < 0 || n > 2 || len(asked) < 10 {
			t.Errorf("the charge was request %d of %q", n, asked)
		}
	})
}

// TestNoChargeDuringASecondDispute charges no card while a dispute is open, also if another one of the same payment is
// lost.
func TestNoChargeDuringASecondDispute(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		session := p.topUp("5")
		w.do(session, "dispute", "cents", "300")
		w.do(session, "dispute", "cents", "100")
		w.do(session, "lost")
		w.deliver(w.fresh(), 200)
		p.wishes("30", "50", "100")
		w.once()
		p.charged(0, 0)
		w.do(session, "won")
		w.deliver(w.fresh(), 200)
		w.later(time.Hour)
		w.once()
		p.charged(5000, 1)
	})
}
