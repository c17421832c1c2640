package store

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/statements"
)

// ReadRevenue reads what apps have earned with real money from a time up to another, which begin months in UTC, in one
// snapshot. It reads the sums of all days of the apps up to then. If rows of that time are archived, the error is an
// ArchivedError.
func ReadRevenue(ctx context.Context, d *db.DB, appIDs []string, from, to time.Time) (list []statements.AppRevenue,
	err error) {
	err = d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := RefuseArchivedYear(ctx, tx, from); err != nil {
			return err
		}
		for _, appID := range appIDs {
			a, err := readAppRevenue(ctx, tx, appID, from, to)
			if err != nil {
				return err
			}
			list = append(list, a)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ledger: revenue: %w", err)
	}
	return list, nil
}

func readAppRevenue(ctx context.Context, tx *db.Tx, appID string, from, to time.Time) (a statements.AppRevenue,
	err error) {
	a.AppID = appID
	days, err := ReadAppDays(ctx, tx, AppDayFilter{AppID: appID, Before: to.UTC().Format(time.DateOnly)})
	if err != nil {
		return a, err
	}
	var net rules.DailyTotalsDelta // of refunds, which are added below
	for _, d := range days {
		if d.Day < from.UTC().Format(time.DateOnly) {
			a.OpeningMC += d.DevMarginMC
		} else {
			d.addTo(&net)
		}
	}
	a.Calls = net.Calls
	back := &a.Refunded
	err = tx.QueryRowContext(ctx, `SELECT COUNT(*), CAST(COALESCE(SUM(l.provider_cost_mc), 0) AS BIGINT),
			CAST(COALESCE(SUM(l.svc_fee_mc), 0) AS BIGINT), CAST(COALESCE(SUM(l.dev_margin_mc), 0) AS BIGINT),
			CAST(COALESCE(SUM(l.user_charge_mc), 0) AS BIGINT)
		FROM ledger l JOIN balances b ON b.account_id = l.account_id
		WHERE l.app_id = $1 AND l.type = 'spend' AND l.status = 'reversed' AND l.created_us >= $2 AND l.created_us < $3
			AND b.sandbox = 0`, appID, from.UnixMicro(), to.UnixMicro()).
		Scan(&a.Refunds, &back.ProviderCostMC, &back.SvcFeeMC, &back.DevMarginMC, &back.UserChargeMC)
	if err != nil {
		return a, err
	}
	a.Charged = rules.Amounts{
		ProviderCostMC: net.ProviderCostMC + back.ProviderCostMC,
		SvcFeeMC:       net.SvcFeeMC + back.SvcFeeMC,
		DevMarginMC:    net.DevMarginMC + back.DevMarginMC,
		UserChargeMC:   net.UserChargeMC + back.UserChargeMC,
	}
	var usedBefore, usedAfter, takenBefore money.MC
	for _, used := range []struct {
		into *money.MC
		at   time.Time
	}{{&usedBefore, from}, {&usedAfter, to}} { // each refund has the sum up to it, and needs no row of a call
		err = tx.QueryRowContext(ctx, `SELECT COALESCE((SELECT margin_used_mc FROM call_refunds
			WHERE app_id = $1 AND created_us < $2 ORDER BY n DESC LIMIT 1), 0)`, appID, used.at.UnixMicro()).
			Scan(used.into)
		if err != nil {
			return a, err
		}
	}
	a.RefundsPaidMC = usedAfter - usedBefore
	err = tx.QueryRowContext(ctx, `SELECT
			CAST(COALESCE(SUM(CASE WHEN created_us < $2 THEN amount_mc ELSE 0 END), 0) AS BIGINT),
			COUNT(CASE WHEN created_us >= $2 AND kind IN ('begun', 'found') THEN 1 END),
			CAST(COALESCE(SUM(CASE WHEN created_us < $2 OR kind = 'disputed' THEN 0 ELSE amount_mc END), 0) AS BIGINT),
			CAST(COALESCE(SUM(CASE WHEN created_us < $2 OR kind <> 'disputed' THEN 0 ELSE amount_mc END), 0) AS BIGINT)
		FROM margin_records WHERE app_id = $1 AND created_us < $3`, appID, from.UnixMicro(), to.UnixMicro()).
		Scan(&takenBefore, &a.Payouts, &a.PaidOutMC, &a.DisputedMC)
	a.OpeningMC -= usedBefore + takenBefore
	return a, err
}
