package apitest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// Books are a ledger for tests, with commands that calls give it, and its clock: 10:00 on
// 21 November 2026, a millisecond later at every reading. The database's clock starts there, too.
type Books struct {
	DB     *db.DB
	Ledger *store.Writer
	// Terms are the price terms of holds, JSON.
	Terms string
	t     testing.TB
	mu    sync.Mutex
	at    time.Time
}

// NewBooks returns the ledger in d. It stops when the test ends.
func NewBooks(t testing.TB, d *db.DB) *Books {
	b := &Books{DB: d, Terms: "{}", t: t, at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	d.SetBack(time.Since(b.at))
	b.Ledger = StartLedger(t, d, b.Now)
	return b
}

// StartLedger runs a ledger writer over d, with the clock now, until the test ends.
func StartLedger(t testing.TB, d *db.DB, now func() time.Time) *store.Writer {
	t.Helper()
	w := store.NewWriter(d, now)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// Now returns the time, a millisecond later at every reading.
func (b *Books) Now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.at.Add(time.Millisecond)
	return b.at
}

// Pass advances the clock.
func (b *Books) Pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.at.Add(d)
	b.DB.SetBack(time.Since(b.at))
}

// Do applies a command, which must succeed.
func (b *Books) Do(c rules.Command) rules.Result {
	b.t.Helper()
	r, err := b.Ledger.Do(b.t.Context(), c)
	if err != nil {
		b.t.Fatalf("%T: %v", c, err)
	}
	return r
}

// Hold opens the hold of a new call on a connection.
func (b *Books) Hold(c rules.Connection, amount money.MC) rules.Call {
	b.t.Helper()
	call := rules.Call{
		ConnectionID: c.ID,
		AccountID:    c.AccountID,
		AppID:        c.AppID,
		Key:          id.NewSecret(),
		RequestID:    id.New(id.Request, b.Now()),
		Fingerprint:  "f",
		Feature:      "summaries",
		FeatureLabel: "summaries",
		Model:        "gpt-5.6-terra",
		Terms:        b.Terms,
		HoldMC:       amount,
	}
	b.Do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
	return call
}

// Spend bills a call: half of the amount is the provider's cost, a quarter the fee,
// and the rest the developer's margin.
func (b *Books) Spend(c rules.Connection, amount money.MC) rules.Entry {
	b.t.Helper()
	call := b.Hold(c, amount)
	charge := rules.Amounts{
		ProviderCostMC: amount / 2,
		SvcFeeMC:       amount / 4,
		DevMarginMC:    amount - amount/2 - amount/4,
		UserChargeMC:   amount,
	}
	return b.Do(rules.Settle{
		Call:       call,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage:      rules.Usage{JSON: "{}"},
		Charge:     charge,
	}).Entry
}

// Is reads a connection again.
func (b *Books) Is(c rules.Connection) rules.Connection {
	b.t.Helper()
	c, err := store.GetConnection(b.t.Context(), b.DB, c.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}
