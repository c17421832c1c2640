package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const callRefundColumns = `app_id, n, entry_id, reversal_id, developer_id, sandbox, margin_mc, balance_mc,
	COALESCE(debit_id, ''), margin_used_mc, earned_day, earned_mc, reason, created_us`

func scanCallRefund(ctx context.Context, q db.Queryer, where string, args ...any) (*rules.CallRefund, error) {
	r, sandbox := &rules.CallRefund{}, int64(0)
	err := q.QueryRowContext(ctx, `SELECT `+callRefundColumns+` FROM call_refunds WHERE `+where, args...).Scan(&r.AppID,
		&r.N, &r.EntryID, &r.ReversalID, &r.DeveloperID, &sandbox, &r.MarginMC, &r.BalanceMC, &r.DebitID,
		&r.MarginUsedMC, &r.EarnedDay, &r.EarnedMC, &r.Reason, &r.CreatedUS)
	r.Sandbox = sandbox != 0
	return r, err
}

// GetCallRefund returns the refund of a call by its app, or sql.ErrNoRows.
func GetCallRefund(ctx context.Context, q db.Queryer, entryID string) (rules.CallRefund, error) {
	r, err := scanCallRefund(ctx, q, `entry_id = $1`, entryID)
	return *r, err
}

func lastCallRefund(ctx context.Context, q db.Queryer, appID string) (*rules.CallRefund, error) {
	return scanCallRefund(ctx, q, `app_id = $1 ORDER BY n DESC LIMIT 1`, appID)
}

// ReadAppMargin reads the margin that an app has earned with real money, for a RefundCall. The newest refund has the
// sum of the days that were over then, so only the days since are read. A day is taken as over a day later: the clocks
// of nodes are not quite the same.
func ReadAppMargin(ctx context.Context, q db.Queryer, appID string, now time.Time) (m rules.AppMargin, err error) {
	record, err := lastMarginRecord(ctx, q, appID, "") // first: what comes between is seen by its number
	if err != nil {
		return m, err
	}
	last, err := lastCallRefund(ctx, q, appID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return m, fmt.Errorf("ledger: refunds of %s: %w", appID, err)
	}
	m.Refunds, m.Records = last.N, record.N
	m.ClosedDay = max(closedDay(now), last.EarnedDay)
	days, err := ReadAppDays(ctx, q, AppDayFilter{AppID: appID, From: last.EarnedDay})
	if err != nil {
		return m, fmt.Errorf("ledger: margin of %s: %w", appID, err)
	}
	m.ClosedMC = last.EarnedMC
	m.EarnedMC = last.EarnedMC
	for _, d := range days {
		m.EarnedMC += d.DevMarginMC
		if d.Day < m.ClosedDay {
			m.ClosedMC += d.DevMarginMC
		}
	}
	return m, nil
}

// findCallRefunds reads the refund of each call that is named and the newest refund of its app, under the lock of the
// balance of the app's developer.
func (r *rareRows) findCallRefunds(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for entryID, appID := range keys.CallRefunds {
		last, err := lastCallRefund(ctx, tx, appID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		r.refunds = append(r.refunds, last)
		switch own, err := scanCallRefund(ctx, tx, `entry_id = $1`, entryID); {
		case err == nil:
			r.refunds = append(r.refunds, own)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

// saveCallRefunds appends the refunds of calls.
func saveCallRefunds(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, r := range s.Changes.CallRefunds {
		_, err := tx.ExecContext(ctx, `INSERT INTO call_refunds (app_id, n, entry_id, reversal_id, developer_id,
				sandbox, margin_mc, balance_mc, debit_id, margin_used_mc, earned_day, earned_mc, reason, created_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
			r.AppID, r.N, r.EntryID, r.ReversalID, r.DeveloperID, db.BoolInt(r.Sandbox), r.MarginMC, r.BalanceMC,
			db.NullText(r.DebitID), r.MarginUsedMC, r.EarnedDay, r.EarnedMC, r.Reason, r.CreatedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
