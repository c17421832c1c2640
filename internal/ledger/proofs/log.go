package proofs

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
)

// A Log makes proofs from what the Publishers of a database have stored.
type Log struct {
	DB  *db.DB
	Key string // that verifies its checkpoints
}

// ErrNotYet says that the log has not got a row yet. A Publisher appends it soon.
var ErrNotYet = errors.New("proofs: the row is not in the log yet")

// Prove returns the receipt of an account's row seq, which is ErrNotYet if the log has not got it.
func (l *Log) Prove(ctx context.Context, accountID string, seq int64) (*Receipt, error) {
	r := &Receipt{Format: ReceiptFormat}
	err := l.DB.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		leaf, secret, err := selectLeaf(ctx, tx, accountID, seq)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotYet
		} else if err != nil {
			return err
		}
		rows, err := selectRows(ctx, tx, accountID, seq-1, seq)
		if err != nil {
			return err
		}
		if len(rows) < int(min(seq, 2)) {
			return errors.New("its leaf is there, and the row or the one before is not")
		}
		r.Row, r.Blind = rows[len(rows)-1], Blind(secret, seq)
		if len(rows) == 2 {
			r.PreviousHash = rows[0].Hash
		}
		r.Proof, err = l.prove(ctx, tx, leaf)
		return err
	})
	if err == nil {
		_, err = r.Verify(l.Key) // never hand out what would not convince
	}
	if err != nil {
		return nil, fmt.Errorf("proofs: row %d of %s: %w", seq, accountID, err)
	}
	return r, nil
}

// prove proves that a leaf is in the tree of the newest checkpoint.
func (l *Log) prove(ctx context.Context, tx *db.Tx, leaf leaf) (p Proof, err error) {
	p = Proof{Position: leaf.position, Entry: leaf.entry, Key: l.Key}
	if p.Checkpoint, err = selectState(ctx, tx); err != nil {
		return p, fmt.Errorf("proofs: %w", err)
	}
	c, err := OpenCheckpoint(p.Checkpoint, l.Key)
	if err != nil {
		return p, err
	}
	hashes, err := tlog.ProveRecord(c.Tree.N, leaf.position, tlog.TileHashReader(c.Tree, storedTiles{ctx, tx}))
	if err != nil {
		return p, fmt.Errorf("proofs: leaf %d: %w", leaf.position, err)
	}
	for _, h := range hashes {
		p.Hashes = append(p.Hashes, h[:])
	}
	return p, nil
}

// maxHistoryRows bounds the rows of a history, which who reads it has in memory.
const maxHistoryRows = 100_000

// ErrTooLong says that an account has more rows than a history may have.
var ErrTooLong = fmt.Errorf("proofs: the account has more than %d rows", maxHistoryRows)

// historyStep is how many rows of a history are read at a time.
const historyStep = 500

// A StoredHistory is a history whose rows are still in the database.
type StoredHistory struct {
	History
	log  *Log
	last int64
}

// OpenHistory returns the history of all rows of an account that the log has, with their proof, but without the rows
// themselves. It is ErrNotYet if the log has none.
func (l *Log) OpenHistory(ctx context.Context, accountID string) (*StoredHistory, error) {
	s := &StoredHistory{History: History{Format: HistoryFormat, AccountID: accountID}, log: l}
	err := l.DB.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		last, err := selectPublished(ctx, tx, accountID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return ErrNotYet
		case err != nil:
			return fmt.Errorf("proofs: history: %w", err)
		case last > maxHistoryRows:
			return ErrTooLong
		}
		leaf, secret, err := selectLeaf(ctx, tx, accountID, last)
		if err != nil {
			return fmt.Errorf("proofs: history: %w", err)
		}
		s.Secret, s.last = secret, last
		s.Proof, err = l.prove(ctx, tx, leaf)
		return err
	})
	return s, err
}

// Write writes the history as JSON, as History encodes it. It reads the rows in steps, so that neither memory nor a
// connection is taken for all of them while a client reads: they never change. It verifies them as it goes, and writes
// no end if they would not convince.
func (s *StoredHistory) Write(ctx context.Context, w io.Writer) error {
	head, err := json.Marshal(&s.History) // with rows that are null
	if err != nil {
		return fmt.Errorf("proofs: history: %w", err)
	}
	before, after, _ := bytes.Cut(head, []byte(`"rows":null`))
	if _, err := fmt.Fprintf(w, `%s"rows":[`, before); err != nil {
		return err
	}
	hash := ""
	for first := int64(1); first <= s.last; first += historyStep {
		rows, err := selectRows(ctx, s.log.DB, s.AccountID, first, min(first+historyStep-1, s.last))
		if err != nil {
			return fmt.Errorf("proofs: history: %w", err)
		}
		if want := min(historyStep, s.last-first+1); int64(len(rows)) != want {
			return fmt.Errorf("proofs: history of %s: %d rows from row %d, not %d", s.AccountID, len(rows), first, want)
		}
		if hash, err = writeRows(w, s.AccountID, first, hash, rows); err != nil {
			return err
		}
	}
	if _, err := s.verifyEnd(s.log.Key, s.last, hash); err != nil {
		return fmt.Errorf("history of %s: %w", s.AccountID, err)
	}
	_, err = fmt.Fprintf(w, `]%s`, after)
	return err
}

// writeRows verifies and writes rows after one with a hash, and returns the hash of the last one.
func writeRows(w io.Writer, accountID string, first int64, head string, rows []Row) (string, error) {
	var err error
	for i := range rows {
		if head, err = rows[i].checkAfter(head, accountID, first+int64(i)); err != nil {
			return "", err
		}
		text, err := json.Marshal(&rows[i])
		if err != nil {
			return "", fmt.Errorf("proofs: history: %w", err)
		}
		if first+int64(i) > 1 {
			text = append([]byte{','}, text...)
		}
		if _, err := w.Write(text); err != nil {
			return "", err
		}
	}
	return head, nil
}
