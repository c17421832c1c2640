package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

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

// Follows reports whether the chain of an account with the balance now goes on from an earlier balance of it: the row
// that was its newest one then is still there. After a restore to a moment before, it is not. Earlier may be zero.
func Follows(ctx context.Context, q db.Queryer, earlier, now *rules.Balance) (bool, error) {
	if earlier.Seq == 0 {
		return true, nil
	} else if now.Seq <= earlier.Seq {
		return now.Seq == earlier.Seq && now.Head == earlier.Head, nil
	}
	var hash string
	err := q.QueryRowContext(ctx, `SELECT hash FROM ledger WHERE account_id = $1 AND seq = $2`, earlier.AccountID,
		earlier.Seq).Scan(&hash)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return hash == earlier.Head, err
}

// NewestEntry returns the newest ledger row of a connection up to the row number last of its account's chain, or
// sql.ErrNoRows. Of an account that has made many calls by others since, it does not walk the chain back to that row:
// the daily totals say on which day the connection made its last call, and what is no call has an index.
func NewestEntry(ctx context.Context, q db.Queryer, accountID, connectionID string, last int64) (rules.Entry, error) {
	e, err := newestBetween(ctx, q, accountID, connectionID, last-maxRowsPerPage, last)
	if !errors.Is(err, sql.ErrNoRows) {
		return e, err
	}
	last -= maxRowsPerPage
	move, err := scanEntry(q.QueryRowContext(ctx, `SELECT `+entryValues+` FROM ledger
		WHERE account_id = $1 AND (type <> 'spend' OR status = 'reversed') AND connection_id = $2 AND seq <= $3
		ORDER BY created_us DESC, seq DESC LIMIT 1`, accountID, connectionID, last))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return e, err
	}
	call, err := newestOfLastDay(ctx, q, accountID, connectionID, last)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return e, err
	case move.Seq == 0 && call.Seq == 0:
		return e, sql.ErrNoRows
	case call.Seq > move.Seq:
		return call, nil
	}
	return move, nil
}

// newestBetween returns the newest row of a connection that its account's chain has after one row number and not after
// another.
func newestBetween(ctx context.Context, q db.Queryer, accountID, connectionID string, after, last int64) (
	rules.Entry, error) {
	return scanEntry(q.QueryRowContext(ctx, `SELECT `+entryValues+` FROM ledger
		WHERE account_id = $1 AND seq > $2 AND seq <= $3 AND connection_id = $4 ORDER BY seq DESC LIMIT 1`,
		accountID, after, last, connectionID))
}

// newestOfLastDay returns the newest row of the last day on which a connection made calls, up to a row number.
func newestOfLastDay(ctx context.Context, q db.Queryer, accountID, connectionID string, last int64) (rules.Entry,
	error) {
	var day string
	err := q.QueryRowContext(ctx, `SELECT COALESCE(MAX(day), '') FROM daily_totals WHERE connection_id = $1`,
		connectionID).Scan(&day)
	if err != nil || day == "" || last <= 0 {
		return rules.Entry{}, errors.Join(err, sql.ErrNoRows)
	}
	begin, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return rules.Entry{}, err
	}
	first, err := findSeqAt(ctx, q, accountID, last, begin.UnixMicro())
	if err != nil {
		return rules.Entry{}, err
	}
	end, err := findSeqAt(ctx, q, accountID, last, begin.AddDate(0, 0, 1).UnixMicro())
	if err != nil {
		return rules.Entry{}, err
	}
	for end = min(end+clockSlack, last); end > first-clockSlack; end -= maxRowsPerPage {
		e, err := newestBetween(ctx, q, accountID, connectionID, end-maxRowsPerPage, end)
		if !errors.Is(err, sql.ErrNoRows) {
			return e, err
		}
	}
	return rules.Entry{}, sql.ErrNoRows
}
