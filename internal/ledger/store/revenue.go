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
// snapshot. It reads the sums of all days of the apps up to then.
func ReadRevenue(ctx context.Context, d *db.DB, appIDs []string, from, to time.Time) (list []statements.AppRevenue,
	err error) {
	err = d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error {
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
	if a.Refunds, a.Refunded, err = sumReversed(ctx, tx, appID, from.UnixMicro(), to.UnixMicro()); err != nil {
		return a, err
	}
	back := &a.Refunded
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
			WHERE app_id = $1 AND created_us < $2 ORDER BY created_us DESC, n DESC LIMIT 1), 0)`,
			appID, used.at.UnixMicro()).Scan(used.into)
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

// reversedPerStep is how many reversed calls one statement reads, each with the balance of its account.
const reversedPerStep = 300

// sumReversed counts and sums the calls of an app with real money that were reversed from a time up to another. It
// reads them in steps, however many there are.
func sumReversed(ctx context.Context, q db.Queryer, appID string, fromUS, toUS int64) (n int64, sum rules.Amounts,
	err error) {
	type reversal struct {
		id                 string
		createdUS, sandbox int64
		rules.Amounts
	}
	for last := (reversal{createdUS: fromUS}); ; {
		step, err := db.QueryAll(ctx, q, db.ScanFields(func(r *reversal) []any {
			return []any{&r.id, &r.createdUS, &r.sandbox, &r.ProviderCostMC, &r.SvcFeeMC, &r.DevMarginMC,
				&r.UserChargeMC}
		}), `SELECT l.id, l.created_us, b.sandbox, l.provider_cost_mc, l.svc_fee_mc, l.dev_margin_mc, l.user_charge_mc
			FROM (SELECT * FROM ledger WHERE app_id = $1 AND type = 'spend' AND status = 'reversed'
				AND created_us >= $2 AND created_us < $3 AND (created_us > $2 OR id > $4)
				ORDER BY created_us, id LIMIT $5) AS l
			JOIN balances b ON b.account_id = l.account_id ORDER BY l.created_us, l.id`,
			appID, last.createdUS, toUS, last.id, reversedPerStep)
		if err != nil {
			return 0, rules.Amounts{}, err
		}
		for _, r := range step {
			if last = r; r.sandbox != 0 {
				continue
			}
			n++
			sum.ProviderCostMC += r.ProviderCostMC
			sum.SvcFeeMC += r.SvcFeeMC
			sum.DevMarginMC += r.DevMarginMC
			sum.UserChargeMC += r.UserChargeMC
		}
		if len(step) < reversedPerStep {
			return n, sum, nil
		}
	}
}
