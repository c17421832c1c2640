package topups_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// paidBy returns who would pay for a call that fits into free credit.
func (p *person) paidBy() string {
	p.t.Helper()
	name, conn := id.New(id.Request, p.now()), p.allocate(money.Dollar)
	c, err := store.GetConnection(p.t.Context(), p.d, conn)
	if err != nil {
		p.t.Fatal(err)
	}
	call := rules.Call{ConnectionID: conn, AccountID: p.ID, AppID: c.AppID, Key: name, RequestID: name,
		Fingerprint: "f", Model: "m", HoldMC: money.Cent, Terms: "{}"}
	pool, onApp, onAll := rules.FreeCreditSubjects(call.AppID, p.ID, p.now())
	free := &rules.FreeCreditHold{Terms: `{"pool":"` + pool + `"}`, HoldMC: money.Cent}
	for _, subject := range []string{pool, onApp, onAll} {
		free.Limits = append(free.Limits, limits.Limit{Subject: subject, Max: int64(money.Dollar), Unit: limits.Spend})
	}
	r, err := p.ledger.Do(p.t.Context(), rules.Hold{Call: call, FreeCredit: free, DryRun: true})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.Call.PaidBy
}

// wantsPayers checks who pays for a call of each that free credit covers, and then the books.
func wantsPayers(w *world, want string, people ...*person) {
	w.t.Helper()
	for i, p := range people {
		if got := p.paidBy(); got != want {
			w.t.Errorf("the call of person %d is paid by %s, want %s", i, got, want)
		}
	}
	w.verify()
}

// TestFreeCreditOncePerCard pays for several accounts by one card: free credit is for the one that paid first, also
// after that account is closed, and whatever way its money came (decision 129).
func TestFreeCreditOncePerCard(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		first, second, third, other := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{}),
			w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		pay := func(p *person, card string) {
			w.do(p.begin("10"), "pay", "fingerprint", card)
			w.deliver(w.fresh(), http.StatusOK)
		}
		// An attempt that is not paid counts for nobody.
		w.do(second.begin("10"), "expire", "fingerprint", "A")
		w.deliver(w.fresh(), http.StatusOK)
		pay(first, "A")
		pay(other, "B")
		pay(first, "A") // again
		pay(second, "A")
		w.do("", "resend")
		w.deliver(w.fresh(), http.StatusOK)
		wantsPayers(w, rules.PaidByFreeCredit, first, other)
		wantsPayers(w, rules.PaidByWallet, second)
		// A card of its own later gives none back, and is no card for another.
		pay(second, "C")
		pay(third, "C")
		wantsPayers(w, rules.PaidByWallet, second, third)
		// Nor does the end of the account that was first.
		if _, err := w.d.ExecContext(t.Context(), `UPDATE accounts SET closed_us = 1 WHERE id = $1`,
			first.ID); err != nil {
			t.Fatal(err)
		}
		fourth := w.person(accounts.NewAccount{})
		pay(fourth, "A")
		wantsPayers(w, rules.PaidByWallet, fourth)
	})
}

// TestFreeCreditOfASavedCard tops up automatically by a card that another account has paid by.
func TestFreeCreditOfASavedCard(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		first, second := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
		w.do(first.begin("10"), "pay", "fingerprint", "of "+second.ID)
		w.deliver(w.fresh(), http.StatusOK)
		second.saves("25", "works")
		wantsPayers(w, rules.PaidByFreeCredit, first)
		wantsPayers(w, rules.PaidByWallet, second)
	})
}

// TestOneCardAtOnce lets two nodes book payments of several accounts by one card at once.
func TestOneCardAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		var people []*person
		for range 6 {
			p := w.person(accounts.NewAccount{})
			w.do(p.begin("10"), "pay", "fingerprint", "A")
			people = append(people, p)
		}
		var wg sync.WaitGroup
		for _, e := range w.fresh() {
			wg.Go(func() { _ = w.tell(e, w.stripe.Sign(e)) })
		}
		if w.d.Engine == db.Postgres {
			other := w.another()
			w.later(time.Hour)
			wg.Go(func() {
				if err := other.RunDue(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.do("", "resend")
		w.deliver(w.fresh(), http.StatusOK)
		free := 0
		for _, p := range people {
			if p.paidBy() == rules.PaidByFreeCredit {
				free++
			}
		}
		if free != 1 {
			t.Errorf("free credit pays for %d accounts of one card", free)
		}
		w.verify()
	})
}
