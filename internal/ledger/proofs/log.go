package proofs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/store"
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
		if len(rows) < int(min(seq, 2)) { // the row or the one before is archived
			rows, err = completeRows(ctx, tx, accountID, seq, rows)
		}
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return errors.New("its leaf is there, and the row is not")
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

// completeRows puts before a row the hash of the archived one before it. It returns a store.ArchivedError if the row is
// archived itself, or that hash is not known.
func completeRows(ctx context.Context, tx *db.Tx, accountID string, seq int64, rows []Row) ([]Row, error) {
	if len(rows) == 1 {
		row, err := selectRows(ctx, tx, accountID, seq, seq)
		if err != nil {
			return nil, err
		}
		hash, err := selectArchivedHash(ctx, tx, accountID, seq-1)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if len(row) == 1 && hash != "" {
			return []Row{{Hash: hash}, row[0]}, nil
		}
	}
	return rows, store.RefuseArchived(ctx, tx, accountID, time.UnixMicro(0))
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

// maxHistoryRows bounds the rows of a history that is made in memory.
const maxHistoryRows = 100_000

// ErrTooLong says that an account has more rows than a history may have.
var ErrTooLong = fmt.Errorf("proofs: the account has more than %d rows", maxHistoryRows)

// History returns all rows of an account that the log has, with their proof. It is ErrNotYet if the log has none, and a
// store.ArchivedError if some are archived.
func (l *Log) History(ctx context.Context, accountID string) (*History, error) {
	h := &History{Format: HistoryFormat, AccountID: accountID}
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
		if err := store.RefuseArchived(ctx, tx, accountID, time.UnixMicro(0)); err != nil {
			return fmt.Errorf("proofs: history: %w", err)
		}
		leaf, secret, err := selectLeaf(ctx, tx, accountID, last)
		if err != nil {
			return fmt.Errorf("proofs: history: %w", err)
		}
		h.Secret = secret
		if h.Proof, err = l.prove(ctx, tx, leaf); err != nil {
			return err
		}
		if h.Rows, err = selectRows(ctx, tx, accountID, 1, last); err != nil {
			return fmt.Errorf("proofs: history: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err := h.Verify(l.Key); err != nil {
		return nil, fmt.Errorf("history of %s: %w", accountID, err)
	}
	return h, nil
}
