package operatorpages

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
)

// A Counter adds up money for the overview once a minute, for all nodes together:
// real money only, test accounts are left out.
type Counter struct {
	DB  *db.DB
	Now func() time.Time
}

// countEvery is how old the figures of the overview may be.
const countEvery = time.Minute

// Once counts if that is due. Every node calls it as often as it likes. What is
// counted already is not counted again, but for the day before the newest: a batch
// that was late at midnight may have added to it.
func (c *Counter) Once(ctx context.Context) error {
	now := c.Now()
	due, err := takeTurn(ctx, c.DB, now.UnixMicro(), now.Add(countEvery).UnixMicro())
	if err != nil || !due {
		return err
	}
	from, err := newestDay(ctx, c.DB)
	if err != nil {
		return fmt.Errorf("admin: count: %w", err)
	}
	if day, err := time.Parse(time.DateOnly, from); err == nil {
		from = day.AddDate(0, 0, -1).Format(time.DateOnly)
	}
	list, err := sumDays(ctx, c.DB, from)
	if err != nil {
		return fmt.Errorf("admin: count days: %w", err)
	}
	t, err := sumBalances(ctx, c.DB)
	if err != nil {
		return fmt.Errorf("admin: count balances: %w", err)
	}
	t.countedUS = now.UnixMicro()
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return keepFigures(ctx, tx, list, t) })
	if err != nil {
		return fmt.Errorf("admin: keep figures: %w", err)
	}
	return nil
}

// A sum is what calls cost: of an app's day, or of many.
type sum struct {
	appID, day string
	calls      int64
	cost, fee  money.MC
	margin     money.MC
	charge     money.MC
}

// totals are what users' balances add up to.
type totals struct {
	available, reserved money.MC
	accounts            int64
	countedUS           int64 // 0 = never yet
}

func takeTurn(ctx context.Context, d *db.DB, nowUS, nextUS int64) (mine bool, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		var one int64
		err := tx.QueryRowContext(ctx, `UPDATE operator_totals SET next_us = $2 WHERE next_us <= $1 RETURNING one`,
			nowUS, nextUS).Scan(&one)
		if mine = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return mine, err
}

func newestDay(ctx context.Context, q db.Queryer) (day string, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(day), '') FROM operator_days`).Scan(&day)
	return day, err
}

// sumDays adds up rollups from a day on. Grouping by an expression keeps SQLite from
// walking the index of apps, all of it, in place of the days'.
func sumDays(ctx context.Context, q db.Queryer, from string) ([]sum, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *sum) []any {
		return []any{&s.appID, &s.day, &s.calls, &s.cost, &s.fee, &s.margin, &s.charge}
	}), `SELECT (r.app_id || ''), r.day, CAST(SUM(r.calls) AS BIGINT), CAST(SUM(r.provider_cost_mc) AS BIGINT), CAST(SUM(r.svc_fee_mc) AS BIGINT), CAST(SUM(r.dev_margin_mc) AS BIGINT), CAST(SUM(r.user_charge_mc) AS BIGINT)
		FROM rollups AS r JOIN balances AS b ON b.account_id = r.account_id AND b.sandbox = 0 WHERE r.day >= $1 GROUP BY (r.app_id || ''), r.day`, from)
}

func sumBalances(ctx context.Context, q db.Queryer) (t totals, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT COUNT(*), CAST(COALESCE(SUM(available_mc), 0) AS BIGINT), CAST(COALESCE(SUM(reserved_mc), 0) AS BIGINT) FROM balances WHERE sandbox = 0`).
		Scan(&t.accounts, &t.available, &t.reserved)
	return t, err
}

// keepFigures stores what was counted. Who comes second stores the same numbers.
func keepFigures(ctx context.Context, tx *db.Tx, list []sum, t totals) error {
	for _, s := range list {
		if _, err := tx.ExecContext(ctx,
			`INSERT INTO operator_days (app_id, day, calls, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (app_id, day) DO UPDATE SET calls = excluded.calls, provider_cost_mc = excluded.provider_cost_mc, svc_fee_mc = excluded.svc_fee_mc, dev_margin_mc = excluded.dev_margin_mc, user_charge_mc = excluded.user_charge_mc`,
			s.appID, s.day, s.calls, s.cost, s.fee, s.margin, s.charge); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx,
		`UPDATE operator_totals SET available_mc = $1, reserved_mc = $2, accounts = $3, counted_us = $4`, t.available,
		t.reserved, t.accounts, t.countedUS)
	return err
}

func readTotals(ctx context.Context, q db.Queryer) (t totals, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT available_mc, reserved_mc, accounts, counted_us FROM operator_totals`).Scan(&t.available, &t.reserved,
		&t.accounts, &t.countedUS)
	return t, err
}

// earned adds up what is counted, from a day on; of one app if it is named.
func earned(ctx context.Context, q db.Queryer, appID, from string) (s sum, err error) {
	where, args := `day >= $1`, []any{from}
	if appID != "" {
		where, args = `day >= $1 AND app_id = $2`, append(args, appID)
	}
	err = q.QueryRowContext(ctx,
		`SELECT CAST(COALESCE(SUM(calls), 0) AS BIGINT), CAST(COALESCE(SUM(provider_cost_mc), 0) AS BIGINT), CAST(COALESCE(SUM(svc_fee_mc), 0) AS BIGINT),
		CAST(COALESCE(SUM(dev_margin_mc), 0) AS BIGINT), CAST(COALESCE(SUM(user_charge_mc), 0) AS BIGINT) FROM operator_days WHERE `+where, args...).
		Scan(&s.calls, &s.cost, &s.fee, &s.margin, &s.charge)
	return s, err
}
