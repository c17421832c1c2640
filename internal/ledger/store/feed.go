package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file reads what the streams of connections show (package feed).

// A ConnectionMark differs from an earlier one of its connection if the connection has changed, or may have a new
// ledger row.
type ConnectionMark struct {
	AllocationMC, ConsumedMC, HeldMC money.MC
	Status                           rules.ConnectionStatus
	EventSeq                         int64 // of its newest event: changes of its settings have one
	Seq                              int64 // of the newest ledger row of its account
}

// marksPerQuery bounds the connections that one query names.
const marksPerQuery = 500

// ListConnectionMarks returns the marks of connections, by id. On SQLite, holds that are not in the file do not count.
func ListConnectionMarks(
	ctx context.Context, q db.Queryer, connectionIDs []string,
) (marks map[string]ConnectionMark, err error) {
	marks = make(map[string]ConnectionMark, len(connectionIDs))
	for len(connectionIDs) > 0 {
		n := min(len(connectionIDs), marksPerQuery)
		if err := addConnectionMarks(ctx, q, connectionIDs[:n], marks); err != nil {
			return nil, err
		}
		connectionIDs = connectionIDs[n:]
	}
	return marks, nil
}

func addConnectionMarks(
	ctx context.Context, q db.Queryer, connectionIDs []string, marks map[string]ConnectionMark,
) error {
	args, places := make([]any, len(connectionIDs)), make([]string, len(connectionIDs))
	for i, connectionID := range connectionIDs {
		args[i], places[i] = connectionID, fmt.Sprintf("$%d", i+1)
	}
	type marked struct {
		id string
		ConnectionMark
	}
	list, err := db.QueryAll(ctx, q, db.ScanFields(func(m *marked) []any {
		return []any{&m.id, &m.AllocationMC, &m.ConsumedMC, &m.HeldMC, &m.Status, &m.EventSeq, &m.Seq}
	}), `SELECT c.id, c.allocation_mc, c.consumed_mc, c.held_mc, c.status, c.event_seq, b.seq
		FROM connections c JOIN balances b ON b.account_id = c.account_id
		WHERE c.id IN (`+strings.Join(places, ", ")+`)`, args...)
	for _, m := range list {
		marks[m.id] = m.ConnectionMark
	}
	return err
}

// SpendsAfter returns at most limit spend rows of a connection, refunds included, that its account's chain has after
// the row number after and not after the number last, oldest first. next is the after of the next page: last if there
// are no more rows.
func SpendsAfter(
	ctx context.Context, q db.Queryer, accountID, connectionID string, after, last int64, limit int,
) (list []rules.Entry, next int64, err error) {
	span := min(last, after+maxRowsPerPage)
	list, err = db.QueryAll(ctx, q, scanEntry, `SELECT `+entryValues+` FROM ledger
		WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND connection_id = $4 AND type = 'spend'
		ORDER BY seq LIMIT $5`, accountID, after, span, connectionID, limit)
	if err != nil {
		return nil, after, err
	}
	if len(list) == limit {
		return list, list[limit-1].Seq, nil
	}
	return list, span, nil
}

// NewestEntry returns the newest ledger row of a connection, or sql.ErrNoRows. It walks the account's chain backwards.
func NewestEntry(ctx context.Context, q db.Queryer, accountID, connectionID string) (rules.Entry, error) {
	return scanEntry(q.QueryRowContext(ctx, `SELECT `+entryValues+` FROM ledger
		WHERE account_id = $1 AND connection_id = $2 ORDER BY seq DESC LIMIT 1`, accountID, connectionID))
}
