package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/statements"
)

// ReadMonth returns an account's balance, available and reserved together, at a time, and its rows from then up to
// another time, in one snapshot. The balance is that of now without what came since, so that it needs no rows from
// before.
func ReadMonth(ctx context.Context, d *db.DB, accountID string, from, to time.Time) (
	openingMC money.MC, groups []statements.Group, err error) {
	err = d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		err = tx.QueryRowContext(ctx, `SELECT COALESCE(SUM(available_mc + reserved_mc), 0) FROM balances
			WHERE account_id = $1`, accountID).Scan(&openingMC)
		if err != nil {
			return err
		}
		groups, err = sumSince(ctx, tx, accountID, from, to)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("ledger: month of %s: %w", accountID, err)
	}
	inMonth := groups[:0]
	for _, g := range groups {
		openingMC -= g.MovedMC
		if g.Rows > 0 { // else of the time after
			inMonth = append(inMonth, g)
		}
	}
	return openingMC, inMonth, nil
}

// monthRowsPerStep is how many rows of an account one statement sums. Each may be on a page of its own.
const monthRowsPerStep = 1000

// sumSince sums an account's rows since a time by what they are, those after another time by themselves. It reads them
// in steps: an account may have millions.
func sumSince(ctx context.Context, tx *db.Tx, accountID string, from, to time.Time) ([]statements.Group, error) {
	b, err := GetBalance(ctx, tx, accountID)
	if err != nil {
		return nil, err
	}
	first, err := findSeqAt(ctx, tx, accountID, b.Seq, from.UnixMicro())
	if err != nil {
		return nil, err
	}
	sums := map[statements.Group]statements.Group{}
	for first = max(first-clockSlack, 1); first <= b.Seq; first += monthRowsPerStep {
		step, err := db.QueryAll(ctx, tx, scanMonthGroup, `SELECT
				CASE WHEN l.created_us >= $3 THEN 1 ELSE 0 END AS after, l.type, l.status,
				CASE WHEN l.type = 'topup' AND l.status = 'reversed' THEN COALESCE(l.reason, '') ELSE '' END,
				COALESCE(l.paid_by, ''), COALESCE(l.app_id, ''), CASE WHEN g.entry_id IS NULL THEN 0 ELSE 1 END,
				CASE WHEN l.type = 'topup' AND l.amount_mc < 0 THEN 1 ELSE 0 END, COUNT(*),
				CAST(SUM(l.available_delta_mc + l.reserved_delta_mc) AS BIGINT)
			FROM ledger l LEFT JOIN goodwill_records g ON g.entry_id = l.id
			WHERE l.account_id = $1 AND l.seq >= $4 AND l.seq < $5 AND l.created_us >= $2
			GROUP BY 1, 2, 3, 4, 5, 6, 7, 8`, accountID, from.UnixMicro(), to.UnixMicro(), first,
			first+monthRowsPerStep)
		if err != nil {
			return nil, err
		}
		for _, g := range step {
			of := g
			of.MovedMC, of.Rows = 0, 1
			if g.Rows < 0 { // of the time after
				of.Rows = -1
			}
			sum := sums[of]
			g.Rows, g.MovedMC = g.Rows+sum.Rows, g.MovedMC+sum.MovedMC
			sums[of] = g
		}
	}
	return slices.Collect(maps.Values(sums)), nil
}

// scanMonthGroup reads a group; its number of rows is negative if they are from after the month.
func scanMonthGroup(row db.Row) (g statements.Group, err error) {
	var after, goodwill, negative int64
	err = row.Scan(&after, &g.Type, &g.Status, &g.Reason, &g.PaidBy, &g.AppID, &goodwill, &negative, &g.Rows,
		&g.MovedMC)
	if g.Goodwill, g.Negative = goodwill != 0, negative != 0; after != 0 {
		g.Rows = -g.Rows
	}
	return g, err
}
