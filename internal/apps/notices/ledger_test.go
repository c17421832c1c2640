package notices_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// What the ledger itself writes becomes mail: a share of a cap is told once, when
// a call passes it, and a pause once.
func TestWhatTheLedgerNotices(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d, "Notes", "")
		books := store.NewWriter(d, time.Now)
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		ran := make(chan error, 1)
		go func() { ran <- books.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-ran; err != nil {
				t.Error(err)
			}
		})
		do := func(c rules.Command) rules.Result {
			t.Helper()
			r, err := books.Do(ctx, c)
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			return r
		}
		do(rules.TopUp{AccountID: w.ada.ID, AmountMC: 100 * money.Dollar})
		c := do(rules.Connect{
			ConnectionID: id.New(id.Connection, time.Now()),
			AppID:        w.app.ID,
			AccountID:    w.ada.ID,
			RequestedMC:  10 * money.Dollar,
		}).Connection
		spend := func(amount money.MC) {
			t.Helper()
			call := rules.Call{
				ConnectionID: c.ID,
				AccountID:    c.AccountID,
				AppID:        c.AppID,
				Key:          id.NewUUID(),
				RequestID:    id.New(id.Request, time.Now()),
				Fingerprint:  "f",
				Model:        "gpt-6-luna",
				Terms:        "{}",
				HoldMC:       amount,
			}
			held := do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
			do(rules.Settle{
				Call:       call,
				Attempt:    held.Attempt,
				Settlement: rules.Settled,
				Usage:      rules.Usage{JSON: "{}"},
				Charge:     rules.Amounts{ProviderCostMC: amount, UserChargeMC: amount},
			})
		}
		var told []string
		for _, step := range []struct {
			do   func()
			want string // what is said; "" = nothing
		}{
			{func() { spend(4 * money.Dollar) }, ""},
			{func() { spend(1 * money.Dollar) }, "$5.00 of its $10.00"},
			{func() { spend(1 * money.Dollar) }, ""},
			{func() { spend(3 * money.Dollar) }, "$9.00 of its $10.00"},
			{func() { spend(1 * money.Dollar) }, "used its $10.00 spend cap"},
			{func() { do(rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByRisk}) }, "much more of your balance"},
			{func() { do(rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByRisk}) }, ""},
			{func() { do(rules.Resume{ConnectionID: c.ID}) }, ""},
			{func() { do(rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByUser}) }, ""},
			{func() { do(rules.Resume{ConnectionID: c.ID}) }, ""},
			{func() {
				do(rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByOperator, Reason: "Its secret has leaked."})
			}, "The reason: Its secret has leaked."},
			{func() { do(rules.Resume{ConnectionID: c.ID, By: rules.FrozenByOperator}) }, ""},
			{func() {
				do(rules.ChangeCap{ConnectionID: c.ID, TargetMC: 11 * money.Dollar})
				call := rules.Call{
					ConnectionID: c.ID,
					AccountID:    c.AccountID,
					AppID:        c.AppID,
					Key:          "work",
					RequestID:    id.New(id.Request, time.Now()),
					Fingerprint:  "f",
					Model:        rules.OwnWork,
					Terms:        "{}",
					HoldMC:       20 * money.Cent,
				}
				do(rules.Hold{Call: call, NodeID: "n", Claim: "c", Pending: rules.OwnWork})
				do(rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByRisk})
			}, "can still charge up to $0.20 that it holds for its own work"},
		} {
			step.do()
			w.once()
			if step.want != "" {
				told = append(told, step.want)
			}
			all := w.all()
			if len(all) != len(told) { // in no order: they are of one moment
				t.Fatalf("%d mails, want %q", len(all), told)
			}
			if step.want != "" &&
				!slices.ContainsFunc(all, func(m mail.Mail) bool { return strings.Contains(m.Text, step.want) }) {
				t.Errorf("nobody is told %q", step.want)
			}
		}
	})
}
