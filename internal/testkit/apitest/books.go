package apitest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger"
)

// Books are the ledger of tests whose world is made of rows, with what calls do to
// it, and its clock: 10:00 on 21 November 2026, and at every look a moment later.
type Books struct {
	DB     *db.DB
	Ledger *ledger.Writer
	t      testing.TB
	mu     sync.Mutex
	at     time.Time
}

// NewBooks returns the books in d. They are closed when the test ends.
func NewBooks(t testing.TB, d *db.DB) *Books {
	b := &Books{DB: d, t: t, at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	b.Ledger = ledger.New(d, b.Now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Ledger.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

// Now is the time, a moment later at every look.
func (b *Books) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.at.Add(time.Millisecond)
	return b.at
}

// Pass lets time pass.
func (b *Books) Pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.at.Add(d)
}

// Do gives the ledger a command that it must take.
func (b *Books) Do(c ledger.Command) ledger.Result {
	b.t.Helper()
	r, err := b.Ledger.Do(b.t.Context(), c)
	if err != nil {
		b.t.Fatalf("%T: %v", c, err)
	}
	return r
}

// Hold begins a call on a connection.
func (b *Books) Hold(c ledger.Connection, amount money.MC) ledger.Call {
	b.t.Helper()
	call := ledger.Call{
		ConnectionID: c.ID, AccountID: c.AccountID, AppID: c.AppID, Key: id.NewSecret(),
		RequestID:   id.New(id.Request, b.Now()),
		Fingerprint: "f", Feature: "summaries", Bucket: "summaries", Model: "gpt-5.6-terra", Terms: "{}", HoldMC: amount,
	}
	b.Do(ledger.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
	return call
}

// Spend bills a call: half of the amount is the provider's cost, a quarter the fee,
// and the rest the developer's margin.
func (b *Books) Spend(c ledger.Connection, amount money.MC) ledger.Entry {
	b.t.Helper()
	call := b.Hold(c, amount)
	charge := ledger.Amounts{ProviderCostMC: amount / 2, SvcFeeMC: amount / 4, DevMarginMC: amount - amount/2 - amount/4, UserChargeMC: amount}
	return b.Do(ledger.Settle{Call: call, Attempt: 1, Settlement: ledger.Settled, Usage: ledger.Usage{JSON: "{}"}, Charge: charge}).Entry
}

// Is returns a connection as it is now.
func (b *Books) Is(c ledger.Connection) ledger.Connection {
	b.t.Helper()
	c, err := ledger.GetConnection(b.t.Context(), b.DB, c.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}
