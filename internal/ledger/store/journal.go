package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// longestCall is how much earlier than its row a call may have begun, whose time stands in the row's id: a hold lasts
// minutes, and the charge of a pending one comes minutes later.
const longestCall = 26 * time.Hour

// A JournalRow is a row of a real account with what stands beside the ledger.
type JournalRow struct {
	rules.Entry
	Goodwill bool      // it gives a goodwill credit, or takes one back
	MarginMC *money.MC // of a refund by an app: what the app's margin pays for it; nil = it is none
}

// EachRealEntry calls do with the rows of real accounts that were written from one time up to another, in the order of
// their ids. It reads the rows of the period by their ids, and keeps none.
func EachRealEntry(ctx context.Context, q db.Queryer, from, to time.Time,
	do func(r *JournalRow) error) (err error) {
	rows, err := q.QueryContext(ctx, `SELECT `+journalColumns+` FROM ledger l
		JOIN balances b ON b.account_id = l.account_id AND b.sandbox = 0
		LEFT JOIN goodwill_records g ON g.entry_id = l.id LEFT JOIN call_refunds c ON c.reversal_id = l.id
		WHERE l.id >= $1 AND l.id < $2 AND l.created_us >= $3 AND l.created_us < $4 ORDER BY l.id`,
		id.Floor(id.Ledger, from.Add(-longestCall)), id.Floor(id.Ledger, to.Add(time.Hour)), from.UnixMicro(),
		to.UnixMicro())
	if err != nil {
		return fmt.Errorf("ledger: journal: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e JournalRow
		err := rows.Scan(&e.ID, &e.AccountID, &e.Type, &e.Status, &e.ReversalOf, &e.Reason, &e.AppID, &e.Model,
			&e.PaidBy, &e.ProviderCostMC, &e.SvcFeeMC, &e.DevMarginMC, &e.UserChargeMC, &e.AmountMC,
			&e.AvailableDeltaMC, &e.ReservedDeltaMC, &e.CreatedUS, &e.Goodwill, &e.MarginMC)
		if err != nil {
			return fmt.Errorf("ledger: journal: %w", err)
		}
		if err := do(&e); err != nil {
			return err
		}
	}
	return rows.Err()
}

// EachMarginRecord calls do with what happened to the margins of apps from one time up to another, by app and in order.
func EachMarginRecord(ctx context.Context, q db.Queryer, from, to time.Time,
	do func(r *rules.MarginRecord) error) error {
	list, err := readMarginRecords(ctx, q, `created_us >= $1 AND created_us < $2 ORDER BY app_id, n`, from.UnixMicro(),
		to.UnixMicro())
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := do(r); err != nil {
			return err
		}
	}
	return nil
}

const journalColumns = `l.id, l.account_id, l.type, l.status, COALESCE(l.reversal_of, ''), COALESCE(l.reason, ''),
	COALESCE(l.app_id, ''), COALESCE(l.model, ''), COALESCE(l.paid_by, ''), COALESCE(l.provider_cost_mc, 0),
	COALESCE(l.svc_fee_mc, 0), COALESCE(l.dev_margin_mc, 0), COALESCE(l.user_charge_mc, 0), COALESCE(l.amount_mc, 0),
	l.available_delta_mc, l.reserved_delta_mc, l.created_us, g.entry_id IS NOT NULL, c.margin_mc`
