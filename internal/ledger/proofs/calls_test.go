package proofs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// addRow adds a row to an account's ledger: a call of an app, or something else without one. The tests of the log need
// no money behind it.
func addRow(t *testing.T, d *db.DB, account, app string) (entryID string) {
	t.Helper()
	entryID = fmt.Sprintf("led_%s_%d", account, rand.Int64())
	kind, charge := "spend", any(5)
	if app == "" {
		kind, charge = "topup", nil
	}
	for _, s := range []struct {
		query string
		args  []any
	}{
		{`INSERT INTO balances (account_id, available_mc, reserved_mc, seq, head, sandbox) VALUES ($1, 0, 0, 0, '', 0)
			ON CONFLICT (account_id) DO NOTHING`, []any{account}},
		{`UPDATE balances SET seq = seq + 1 WHERE account_id = $1`, []any{account}},
		{`INSERT INTO ledger (id, account_id, seq, type, status, app_id, provider_cost_mc, svc_fee_mc, dev_margin_mc,
				user_charge_mc, available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc,
				created_us, hash)
			SELECT $1, $2, seq, $3, 'settled', $4, $5, CASE WHEN $3 = 'spend' THEN 0 END,
				CASE WHEN $3 = 'spend' THEN 0 END, $5, 0, 0, 0, 0, 1, 'h' FROM balances WHERE account_id = $2`,
			[]any{entryID, account, kind, app, charge}},
	} {
		if _, err := d.ExecContext(t.Context(), s.query, s.args...); err != nil {
			t.Fatal(err)
		}
	}
	return entryID
}

func index(t *testing.T, p *Publisher) {
	t.Helper()
	publish(t, p)
	if err := p.IndexCalls(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCallsInTheOrderOfTheLog reads an app's calls by pages while others are appended, also to accounts that sort
// before those that were read: each comes once.
func TestCallsInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p, l := openTest(t, d, newKey(t))
		if list, next, err := l.ListCalls(t.Context(), "app", FirstCall, 2); len(list) != 0 || next != FirstCall ||
			err != nil {
			t.Fatalf("at first %v, next %q (%v)", list, next, err)
		}
		var made, got []string
		cursor := FirstCall
		for round := range 6 {
			account := fmt.Sprintf("acc_%d", 9-round)
			made = append(made, addRow(t, d, account, "app"), addRow(t, d, "acc_5", "app"))
			addRow(t, d, account, "other")
			addRow(t, d, account, "")
			if round%2 == 0 {
				index(t, p)
			}
			list, next, err := l.ListCalls(t.Context(), "app", cursor, 3)
			if err != nil {
				t.Fatal(err)
			}
			got, cursor = append(got, list...), next
		}
		index(t, p)
		for {
			list, next, err := l.ListCalls(t.Context(), "app", cursor, 3)
			if err != nil {
				t.Fatal(err)
			}
			if got, cursor = append(got, list...), next; len(list) == 0 {
				break
			}
		}
		slices.Sort(made)
		slices.Sort(got)
		if !slices.Equal(made, got) {
			t.Errorf("read %v, made %v", got, made)
		}
		if _, newest, err := l.ListCalls(t.Context(), "other", NewestCall, 3); newest != cursor || err != nil {
			t.Errorf("the newest cursor is %q, want %q (%v)", newest, cursor, err)
		}
	})
}

// TestCallsAreIndexedFromTheFirst fills the index of a log that an earlier version has written, in several steps.
func TestCallsAreIndexedFromTheFirst(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, newKey(t))
	topUp(t, d, "acc_1", 2*indexedPerTx)
	want := addRow(t, d, "acc_2", "app")
	publish(t, p)
	if list, _, err := l.ListCalls(t.Context(), "app", FirstCall, 3); len(list) != 0 || err != nil {
		t.Errorf("before: %v (%v)", list, err)
	}
	index(t, p)
	if list, _, err := l.ListCalls(t.Context(), "app", FirstCall, 3); !slices.Equal(list, []string{want}) ||
		err != nil {
		t.Errorf("after: %v (%v)", list, err)
	}
}

// TestCursorsOfALostLog sets a database back, and lets it publish rows of the backup in another order: no cursor of
// what was lost is taken, and one of what is left is.
func TestCursorsOfALostLog(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		key := newKey(t)
		p, l := openTest(t, d, key)
		addRow(t, d, "acc_5", "app")
		index(t, p)
		_, kept, err := l.ListCalls(t.Context(), "app", FirstCall, 9)
		if err != nil {
			t.Fatal(err)
		}
		var backup []string
		tables := []string{"log_state", "log_accounts", "log_rows", "log_tiles", "log_calls"}
		for _, table := range tables {
			backup = append(backup, "CREATE TABLE copy_"+table+" AS SELECT * FROM "+table)
		}
		execAll(t, d, backup...)
		addRow(t, d, "acc_5", "app") // in the backup, and not yet in its log
		index(t, p)
		list, lost, err := l.ListCalls(t.Context(), "app", kept, 9)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v (%v)", list, err)
		}
		for _, table := range tables {
			execAll(t, d, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM copy_"+table)
		}
		addRow(t, d, "acc_1", "app") // the log gets it first
		for range 2 {
			for _, cursor := range []string{lost, "1-0011223344556677", "-1-x", "x", "",
				"9999999-" + strings.Split(lost, "-")[1]} {
				if list, next, err := l.ListCalls(t.Context(), "app", cursor, 9); !errors.Is(err, ErrUnknownCursor) {
					t.Errorf("after %q: %v, next %q (%v)", cursor, list, next, err)
				}
			}
			index(t, p)
		}
		if list, _, err := l.ListCalls(t.Context(), "app", kept, 9); len(list) != 2 || err != nil {
			t.Errorf("after what is left: %v (%v)", list, err)
		}
	})
}

func execAll(t *testing.T, d *db.DB, statements ...string) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, s := range statements {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
