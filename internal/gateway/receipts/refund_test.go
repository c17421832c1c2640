package receipts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// refundWorld is a user of an app whose developer has a dollar.
type refundWorld struct {
	*testing.T
	*Refunder
	app apps.App
}

func newRefundWorld(t *testing.T, d *db.DB) *refundWorld {
	w := store.NewWriter(d, d.Now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r := &refundWorld{t, &Refunder{DB: d, Ledger: w, Now: d.Now}, apps.App{ID: "app_1", OwnerID: "wac_dev"}}
	for account, amount := range map[string]money.MC{"wac_user": 10 * money.Dollar, "wac_dev": money.Dollar} {
		r.do(rules.GiveGoodwill{GoodwillID: "gwc_" + account, AccountID: account, AmountMC: amount, Reason: "hello"})
	}
	r.do(rules.Connect{ConnectionID: "conn_1", AppID: "app_1", AccountID: "wac_user", RequestedMC: 8 * money.Dollar})
	if _, err := d.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, created_us)
		VALUES ('wac_user', 'user@example.com', '', 1), ('wac_dev', 'dev@example.com', '', 1)`); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *refundWorld) do(c rules.Command) rules.Result {
	w.Helper()
	r, err := w.Ledger.Do(w.Context(), c)
	if err != nil {
		w.Fatalf("%T: %v", c, err)
	}
	return r
}

// hold begins a call; bill ends one with this cost and margin.
func (w *refundWorld) hold(hold money.MC) rules.Call {
	w.Helper()
	requestID := id.New(id.Request, w.Now())
	call := rules.Call{
		ConnectionID: "conn_1", AccountID: "wac_user", AppID: "app_1", Key: requestID, RequestID: requestID,
		Fingerprint: "f", Model: "m", HoldMC: hold,
		Terms: `{"rates":{"book":"2026-11-21-0123abcd","mc_per_million":[[0,10000000,1000000,12500000,50000000]]}}`,
	}
	w.do(rules.Hold{Call: call, NodeID: "n", Claim: requestID})
	return call
}

func (w *refundWorld) bill(cost, margin money.MC) (requestID string) {
	w.Helper()
	call := w.hold(cost + margin)
	w.do(rules.Settle{
		Call:       call,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: cost, DevMarginMC: margin, UserChargeMC: cost + margin},
		Usage:      rules.Usage{JSON: `{"input":1,"output":1}`},
	})
	return call.RequestID
}

// refused refunds a call that cannot be refunded.
func (w *refundWorld) refused(app apps.App, requestID string, code apierr.Code, says string) {
	w.Helper()
	_, err := w.Refund(w.Context(), &app, requestID, "")
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != code || !strings.Contains(e.Message, says) {
		w.Errorf("%s: %v, want %s %q", requestID, err, code.Name, says)
	}
}

// TestRefundOfACall refunds calls: once, however often and from how many sides; from margin, then from the balance;
// and not where there is nothing to refund.
func TestRefundOfACall(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newRefundWorld(t, d)
		w.bill(money.Dollar, money.Dollar/2) // the margin that the app has
		call := w.bill(money.Dollar, money.Dollar/5)
		var wg sync.WaitGroup
		var mu sync.Mutex
		answers := map[Refund]int{}
		for n := range 8 {
			wg.Go(func() {
				r, err := w.Refund(t.Context(), &w.app, call, fmt.Sprint(" reason ", n))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				answers[r]++
			})
		}
		wg.Wait()
		for r, n := range answers {
			if n != 8 || r.RequestID != call || r.RefundedMC != money.Dollar+money.Dollar/5 ||
				r.PaidFromMarginMC != money.Dollar/2+money.Dollar/5 || r.PaidFromBalanceMC != money.Dollar/2 ||
				!strings.HasPrefix(r.Reason, "reason ") || r.Sandbox {
				t.Errorf("%d answers: %+v", n, r)
			}
			found, _, err := Find(t.Context(), d, call)
			if err != nil || found.RefundedMC != r.RefundedMC || *found.ReversedBy != r.ID ||
				!strings.Contains(found.Explanation, "refunded") {
				t.Errorf("the receipt: %+v, %v", found, err)
			}
			w.refused(w.app, id.ReplacePrefix(r.ID, id.Ledger, id.Request), apierr.InvalidRequest, "this is a refund")
		}
		var events int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM events WHERE type = 'request.refunded'`).
			Scan(&events); err != nil || events != 1 {
			t.Errorf("%d events, %v", events, err)
		}
		user, err := store.GetBalance(t.Context(), d, "wac_user")
		if err != nil || user.AvailableMC+user.ReservedMC != 8*money.Dollar+money.Dollar/2 {
			t.Errorf("the user has %+v, %v", user, err)
		}
		dear := w.bill(money.Dollar, 0)
		w.refused(w.app, dear, apierr.InvalidRequest, "the app has $0.00 of margin left and your balance has $0.50")
		w.refused(apps.App{ID: "app_2", OwnerID: "wac_dev"}, dear, apierr.NotFound, "")
		w.refused(w.app, "led_x", apierr.NotFound, "")
		w.refused(w.app, id.New(id.Request, time.Now()), apierr.NotFound, "")
		running := w.hold(money.Cent)
		w.do(rules.Defer{Call: running, Attempt: 1, Provider: "p"}) // so that it is in the file on SQLite, too
		w.refused(w.app, running.RequestID, apierr.InvalidRequest, "not billed: it is pending")
		w.refused(apps.App{ID: "app_2"}, running.RequestID, apierr.NotFound, "")
		reversed := w.bill(money.Cent, 0)
		w.do(rules.Reverse{
			EntryID:   id.ReplacePrefix(reversed, id.Request, id.Ledger),
			AccountID: "wac_user",
			Reason:    "provider_error",
		})
		w.refused(w.app, reversed, apierr.InvalidRequest, "refunded by the service already")
		if _, err := w.Refund(t.Context(), &w.app, dear, strings.Repeat("x", 201)); err == nil ||
			!strings.Contains(err.Error(), "reason") {
			t.Errorf("a reason that is too long: %v", err)
		}
	})
}

// TestRefundBySuspendedDeveloper: what is left of a suspended developer's balance goes back to cards. It pays for no
// refund, which the app's margin may still do.
func TestRefundBySuspendedDeveloper(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newRefundWorld(t, d)
		w.bill(money.Dollar/2, money.Dollar) // the margin that the app has
		byMargin, byBalance := w.bill(money.Dollar/2, money.Dollar/2), w.bill(money.Dollar, 0)
		suspend := `UPDATE accounts SET suspended_us = 5 WHERE id = 'wac_dev'`
		if _, err := d.ExecContext(t.Context(), suspend); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Refund(t.Context(), &w.app, byMargin, ""); err != nil {
			t.Error(err)
		}
		w.refused(w.app, byBalance, apierr.InvalidRequest, "the developer's account is suspended")
		if b, err := store.GetBalance(t.Context(), d, "wac_dev"); err != nil || b.AvailableMC != money.Dollar {
			t.Errorf("the developer has %+v, %v", b, err)
		}
	})
}

// TestNoRefundToAClosedAccount refunds no call to an account that is closed: neither its balance nor the developer's
// moves. A call that was refunded before stays refunded.
func TestNoRefundToAClosedAccount(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newRefundWorld(t, d)
		before, after := w.bill(money.Dollar/2, money.Dollar/5), w.bill(money.Dollar/2, money.Dollar/5)
		if _, err := w.Refund(t.Context(), &w.app, before, ""); err != nil {
			t.Fatal(err)
		}
		w.do(rules.Revoke{ConnectionID: "conn_1"})
		if _, err := d.ExecContext(t.Context(), `UPDATE accounts SET closed_us = 5 WHERE id = 'wac_user'`); err != nil {
			t.Fatal(err)
		}
		rows := func() (n int) {
			if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM ledger`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		n := rows()
		w.refused(w.app, after, apierr.InvalidRequest, "the user has closed the account")
		if _, err := w.Refund(t.Context(), &w.app, before, ""); err != nil {
			t.Errorf("the refund of before: %v", err)
		}
		if rows() != n {
			t.Error("money moved")
		}
	})
}
