package proofs

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// History returns what OpenHistory writes.
func (l *Log) History(ctx context.Context, accountID string) (*History, error) {
	s, err := l.OpenHistory(ctx, accountID)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := s.Write(ctx, &b); err != nil {
		return nil, err
	}
	_, h, err := Parse(b.Bytes())
	return h, err
}

// TestHistoryInSteps: a history of several steps has all rows, and one of which a row is gone has no end.
func TestHistoryInSteps(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	p, l := openTest(t, d, newKey(t))
	const rows = 2*historyStep + 3
	topUp(t, d, "acc_a", rows)
	publish(t, p)
	h, err := l.History(t.Context(), "acc_a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Verify(l.Key); err != nil || len(h.Rows) != rows {
		t.Errorf("%d rows of %d, %v", len(h.Rows), rows, err)
	}
	if _, err := d.ExecContext(t.Context(), `DROP TRIGGER ledger_no_update`); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int64{1, historyStep + 5, rows} {
		s, err := l.OpenHistory(t.Context(), "acc_a")
		if err != nil {
			t.Fatal(err)
		}
		if seq == rows {
			s.last-- // the log commits to another one
		} else if _, err := d.ExecContext(t.Context(), `UPDATE ledger SET amount_mc = 7 WHERE account_id = 'acc_a'
			AND seq = $1`, seq); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.Write(t.Context(), &b); err == nil {
			t.Errorf("row %d was changed, and the history is written", seq)
		}
		if _, h, err := Parse(b.Bytes()); err == nil {
			t.Errorf("row %d was changed, and the history has an end: %d rows", seq, len(h.Rows))
		}
		if _, err := d.ExecContext(t.Context(),
			`UPDATE ledger SET amount_mc = 100 WHERE account_id = 'acc_a'`); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.OpenHistory(t.Context(), "acc_none"); !errors.Is(err, ErrNotYet) {
		t.Errorf("an account without rows: %v", err)
	}
}
