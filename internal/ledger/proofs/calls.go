package proofs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/db"
)

// This file lists the calls of an app in the order of the public log (decision 139). The log has each row once it is
// committed, and none before an earlier one: who reads on misses no call, however long it ran.

// indexedPerTx is the number of leaves that one transaction looks at.
const indexedPerTx = 150

// The cursors that name no history: before the first call, and after the last.
const (
	FirstCall  = "0"
	NewestCall = "newest"
)

// ErrUnknownCursor says that a cursor is of no part of this log: it was made up, or the database was restored to an
// earlier moment since.
var ErrUnknownCursor = errors.New("proofs: the cursor is not of this log")

// IndexCalls notes which new leaves of the log are calls of an app. The first time it does so for all of them.
func (p *Publisher) IndexCalls(ctx context.Context) error {
	ctx = db.ForJob(ctx)
	for {
		n := int64(0)
		if size, done, err := p.readSizes(ctx, p.DB); err != nil || size == done {
			return err // most of the time there is no need for a lock
		}
		err := p.DB.InTurn(ctx, func() error {
			return p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				if _, err := lockState(ctx, tx); err != nil {
					return err
				}
				size, done, err := p.readSizes(ctx, tx)
				if err != nil {
					return err
				}
				n = min(size-done, indexedPerTx)
				return indexCalls(ctx, tx, done, done+n)
			})
		})
		if err != nil {
			return fmt.Errorf("proofs: index calls: %w", err)
		}
		if n < indexedPerTx {
			return nil
		}
	}
}

// readSizes returns how many leaves the log has, and how many are indexed.
func (p *Publisher) readSizes(ctx context.Context, q db.Queryer) (size, indexed int64, err error) {
	tree, indexed, err := readIndexed(ctx, q, p.key)
	return tree.N, indexed, err
}

func readIndexed(ctx context.Context, q db.Queryer, key string) (tree tlog.Tree, indexed int64, err error) {
	signed, indexed, err := selectIndexed(ctx, q)
	if err != nil || signed == "" {
		return tree, 0, err
	}
	c, err := OpenCheckpoint(signed, key)
	return c.Tree, indexed, err
}

// ListCalls returns the ledger rows of an app's calls and refunds that are in the log after a cursor, oldest first, and
// the cursor after them.
func (l *Log) ListCalls(ctx context.Context, appID, cursor string, limit int) (entryIDs []string, next string,
	err error) {
	err = l.DB.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		tree, indexed, err := readIndexed(ctx, tx, l.Key)
		if err != nil {
			return err
		}
		history := tlog.TileHashReader(tree, storedTiles{ctx, tx})
		from, err := parseCursor(cursor, indexed, history)
		if err != nil {
			return err
		}
		list, err := selectCalls(ctx, tx, appID, from, indexed, limit)
		if err != nil {
			return err
		}
		for _, c := range list {
			entryIDs = append(entryIDs, c.entryID)
		}
		if len(list) == limit {
			indexed = list[limit-1].position + 1
		}
		next, err = formatCursor(indexed, history)
		return err
	})
	if err != nil && !errors.Is(err, ErrUnknownCursor) {
		err = fmt.Errorf("proofs: calls of %s: %w", appID, err)
	}
	return entryIDs, next, err
}

// formatCursor names the part of the log that is read: its size, and the beginning of its hash. A database that was
// restored to an earlier moment, and has got other rows since, has another hash.
func formatCursor(size int64, history tlog.HashReader) (string, error) {
	if size == 0 {
		return FirstCall, nil
	}
	hash, err := tlog.TreeHash(size, history)
	return fmt.Sprintf("%d-%x", size, hash[:8]), err
}

// parseCursor returns how many leaves the holder of a cursor has read, of those that are indexed.
func parseCursor(cursor string, indexed int64, history tlog.HashReader) (size int64, err error) {
	switch cursor {
	case FirstCall:
		return 0, nil
	case NewestCall:
		return indexed, nil
	}
	text, _, _ := strings.Cut(cursor, "-")
	size, err = strconv.ParseInt(text, 10, 64)
	if err != nil || size < 1 || size > indexed {
		return 0, ErrUnknownCursor
	}
	known, err := formatCursor(size, history)
	if err == nil && known != cursor {
		err = ErrUnknownCursor
	}
	return size, err
}
