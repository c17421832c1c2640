package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file applies commands inside a caller's transaction.

// DoTx applies c inside the caller's transaction, which commits it or rolls it back.
//
// Commands of the hot path cannot be given here: they are answered before their
// caller could roll them back.
func (w *Writer) DoTx(ctx context.Context, tx *db.Tx, c rules.Command) (res rules.Result, err error) {
	switch c.(type) {
	case rules.Hold, rules.Settle, rules.Defer, rules.Release, rules.RecordRefusal:
		return rules.Result{}, fmt.Errorf("ledger: %T is not for a caller's transaction", c)
	}
	keys := rules.NewRowKeys()
	keys.Add(c)
	rare, err := resolve(ctx, tx, keys)
	if err != nil {
		return rules.Result{}, err
	}
	st := w.backend // SQLite: the one write connection has the statements
	if w.db.Engine == db.Postgres {
		st = newBackend(w.db)
	}
	var s *rules.State
	err = tx.Raw(func(dc any) (err error) {
		if err := st.bindExternalTx(ctx, dc); err != nil {
			return err
		}
		if s, err = st.load(ctx, keys); err != nil {
			return err
		}
		rare.addTo(s, keys)
		if res, err = rules.Apply(s, c, w.now()); err != nil {
			return err
		}
		return errors.Join(st.save(ctx, s), st.flush(ctx))
	})
	if err != nil {
		return res, err
	}
	return res, errors.Join(saveRequests(ctx, tx, s), savePayments(ctx, tx, s), saveGoodwill(ctx, tx, s),
		saveCallRefunds(ctx, tx, s), saveMargins(ctx, tx, s), saveChildren(ctx, tx, s), saveStops(ctx, tx, s),
		saveDisputes(ctx, tx, s))
}

// rareRows are the rows that only commands outside the hot path need.
type rareRows struct {
	originals []rules.Entry
	reversed  map[string]bool // originals that have a reversal
	requests  []*rules.AllocationRequest
	payments  []*rules.Payment
	goodwill  []*rules.Goodwill
	refunds   []*rules.CallRefund
	margins   []*rules.MarginRecord // those of one subject in their order
	children  []*rules.Child
	freezes   []rules.FreezeRow
	disputes  []rules.OpenDispute
}

// resolve finds what a command outside the hot path does not know: the account of
// its connection, the live connection of an app and account, the row that it
// reverses. All of it is immutable, or guarded by the account's row, which is locked
// before it is read.
func resolve(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) (*rareRows, error) {
	rare := &rareRows{reversed: map[string]bool{}}
	for _, step := range []func(context.Context, *db.Tx, *rules.RowKeys) error{
		rare.findOriginals, findRequestConnections, findPaymentAccounts, findGoodwillAccounts, findAccounts,
		lockAccounts,
		findLiveConnections, findConnectionsOf, rare.findReversals, rare.findRequests, rare.findPayments,
		rare.findGoodwill, rare.findCallRefunds, rare.findMargins, rare.findChildren, rare.findFreezes,
	} {
		if err := step(ctx, tx, keys); err != nil {
			return nil, err
		}
	}
	return rare, nil
}

// addTo adds what resolve found to a state.
func (r *rareRows) addTo(s *rules.State, keys *rules.RowKeys) {
	for _, e := range r.originals {
		s.AddOriginal(e, r.reversed[e.ID])
	}
	for _, request := range r.requests {
		s.AddAllocationRequest(request)
	}
	for _, p := range r.payments {
		s.AddPayment(p)
	}
	for _, g := range r.goodwill {
		s.AddGoodwill(g)
	}
	for _, refund := range r.refunds {
		s.AddCallRefund(refund)
	}
	for _, m := range r.margins {
		s.AddMarginRecord(m)
	}
	for _, c := range r.children {
		s.AddChild(c)
	}
	for _, f := range r.freezes {
		s.AddFreeze(f)
	}
	for _, d := range r.disputes {
		s.AddOpenDispute(d)
	}
	s.FindLive(keys.AppAccounts)
}

// findOriginals reads the rows that are to be reversed.
func (r *rareRows) findOriginals(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for entryID := range keys.Entries {
		e, err := GetEntry(ctx, tx, entryID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		keys.AddOriginal(&e)
		r.originals = append(r.originals, e)
	}
	return nil
}

// findReversals finds which of the originals are reversed already.
func (r *rareRows) findReversals(ctx context.Context, tx *db.Tx, _ *rules.RowKeys) error {
	for _, e := range r.originals {
		var n int
		err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger WHERE reversal_of = $1`, e.ID).Scan(&n)
		if err != nil {
			return err
		}
		r.reversed[e.ID] = n > 0
	}
	return nil
}

// findAccounts finds the accounts of connections that are named alone.
func findAccounts(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for connectionID, accountID := range keys.Connections {
		if accountID != "" {
			continue
		}
		err := tx.QueryRowContext(ctx, `SELECT account_id FROM connections WHERE id = $1`,
			connectionID).Scan(&accountID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		keys.Connections[connectionID] = accountID
		keys.Accounts[accountID] = true
	}
	return nil
}

// lockAccounts locks the accounts' balances before anything that they guard is read.
func lockAccounts(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for accountID, sandbox := range keys.NewBalances { // a row to lock, so that two first top-ups wait for each other
		_, err := tx.ExecContext(ctx, `INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
			VALUES ($1, $2, 0, 0, 0, '') ON CONFLICT (account_id) DO NOTHING`, accountID, db.BoolInt(sandbox))
		if err != nil {
			return err
		}
	}
	for _, accountID := range slices.Sorted(maps.Keys(keys.Accounts)) { // as every batch: no two wait in a circle
		if err := lockBalance(ctx, tx, accountID); err != nil {
			return err
		}
	}
	return nil
}

// lockBalance locks an account's balance, if it has one, until tx ends.
func lockBalance(ctx context.Context, tx *db.Tx, accountID string) error {
	var id string
	err := tx.QueryRowContext(ctx, `SELECT account_id FROM balances WHERE account_id = $1`+tx.Engine.ForUpdate(),
		accountID).
		Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// findLiveConnections finds the live connection of each app and account.
func findLiveConnections(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for p := range keys.AppAccounts {
		var connectionID string
		err := tx.QueryRowContext(ctx,
			`SELECT id FROM connections WHERE app_id = $1 AND account_id = $2 AND status <> 'revoked'`,
			p.AppID, p.AccountID).Scan(&connectionID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		keys.Connections[connectionID] = p.AccountID
		keys.PendingRequestsOf = append(keys.PendingRequestsOf, connectionID)
	}
	return nil
}
