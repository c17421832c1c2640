package audit

import (
	"context"
	"maps"
	"math/big"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
)

// A storedLoss is what was stored of the loss of an account (decision 110), with its balance at the row that it names,
// and what is disputed now.
type storedLoss struct {
	account              string
	seq, cents, changed  int64
	mc, balance          int64
	centsNow, changedNow int64
}

// A disputedPayment is a settled payment of which disputes are known.
type disputedPayment struct {
	seq            int64 // of the row that credited it; 0 = it is gone
	amount, cents  int64
	lost, returned int64 // reversed for lost disputes, and for other reasons
}

// disputed returns what is disputed of the payment.
func (p disputedPayment) disputed() int64 {
	return max(min(p.cents*1_000_000, p.amount-p.returned), p.lost)
}

// chargesOfApp are what calls to an app were charged, and the margin in it.
type chargesOfApp struct {
	app            string
	charge, margin int64
}

// checkLosses computes, from the rows up to the one that each loss names, what was lost and each app's share of it, and
// compares it with what was taken. It leaves out accounts whose disputes have changed since, at which the job has not
// looked yet, and those whose rows are gone with their year.
func checkLosses(ctx context.Context, a *verification, v *checkResult) error {
	list, err := db.QueryAll(ctx, a.Tx, db.ScanFields(func(l *storedLoss) []any {
		return []any{&l.account, &l.seq, &l.cents, &l.changed, &l.mc, &l.balance, &l.centsNow, &l.changedNow}
	}), `SELECT x.account_id, x.seq, x.disputed_cents, x.changed_us, x.loss_mc,
			COALESCE((SELECT b.available_mc + b.reserved_mc FROM balances b WHERE b.account_id = x.account_id), 0)
			- CAST((SELECT COALESCE(SUM(l.available_delta_mc + l.reserved_delta_mc), 0) FROM ledger l
				WHERE l.account_id = x.account_id AND l.seq > x.seq) AS BIGINT),
			CAST((SELECT COALESCE(SUM(d.cents * d.contested), 0) FROM disputes d JOIN checkouts c ON c.id = d.payment_id
				WHERE c.account_id = x.account_id) AS BIGINT),
			(SELECT COALESCE(MAX(d.changed_us), 0) FROM disputes d JOIN checkouts c ON c.id = d.payment_id
				WHERE c.account_id = x.account_id)
		FROM losses x ORDER BY x.account_id`)
	if err != nil {
		return err
	}
	for _, l := range list {
		v.checked++
		if l.cents != l.centsNow || l.changed != l.changedNow {
			continue
		}
		loss, shares, isKnown, err := a.computeLoss(ctx, l)
		if err != nil {
			return err
		}
		taken, err := a.takenByDisputes(ctx, l.account)
		if err != nil {
			return err
		}
		if loss != l.mc {
			v.addFinding("account=%s seq=%d loss_mc=%d should be %d", l.account, l.seq, l.mc, loss)
		}
		if !isKnown {
			continue
		}
		for app := range shares {
			taken[app] += 0 // also of which nothing was taken
		}
		for _, app := range slices.Sorted(maps.Keys(taken)) {
			if taken[app] != shares[app] {
				v.addFinding("account=%s seq=%d app=%s taken_mc=%d share_mc=%d", l.account, l.seq, app, taken[app],
					shares[app])
			}
		}
	}
	return nil
}

// takenByDisputes returns what disputed payments of an account take of each app's margin.
func (a *verification) takenByDisputes(ctx context.Context, account string) (map[string]int64, error) {
	list, err := db.QueryAll(ctx, a.Tx, db.ScanFields(func(c *chargesOfApp) []any { return []any{&c.app, &c.margin} }),
		`SELECT app_id, CAST(SUM(amount_mc) AS BIGINT) FROM margin_records
		WHERE kind = 'disputed' AND (subject = $1 OR subject IN (SELECT payment_id FROM payment_records
			WHERE account_id = $1 AND kind = 'opened')) GROUP BY app_id`, account)
	taken := map[string]int64{}
	for _, c := range list {
		taken[c.app] = c.margin
	}
	return taken, err
}

// computeLoss returns what disputed payments of an account have lost, and each app's share.
func (a *verification) computeLoss(ctx context.Context, l storedLoss) (loss int64, shares map[string]int64,
	isKnown bool, err error) {
	payments, err := db.QueryAll(ctx, a.Tx, db.ScanFields(func(p *disputedPayment) []any {
		return []any{&p.seq, &p.amount, &p.cents, &p.lost, &p.returned}
	}), `SELECT p.seq, p.amount_mc,
			CAST((SELECT SUM(d.cents * d.contested) FROM disputes d WHERE d.payment_id = p.payment_id) AS BIGINT),
			CAST(COALESCE(SUM(CASE WHEN r.reason = 'dispute_lost' THEN r.amount_mc END), 0) AS BIGINT),
			CAST(COALESCE(SUM(CASE WHEN r.reason <> 'dispute_lost' THEN r.amount_mc END), 0) AS BIGINT)
		FROM (SELECT s.payment_id, s.amount_mc, COALESCE(e.seq, 0) AS seq
				FROM payment_records s LEFT JOIN ledger e ON e.id = s.entry_id
				WHERE s.account_id = $1 AND s.kind = 'settled' AND COALESCE(e.seq, 0) <= $2
					AND s.payment_id IN (SELECT payment_id FROM disputes)) AS p
			LEFT JOIN (SELECT o.payment_id, o.reason, CASE o.kind WHEN 'reversed' THEN o.amount_mc
						ELSE -o.amount_mc END AS amount_mc
					FROM payment_records o LEFT JOIN ledger e ON e.id = o.entry_id
					WHERE o.account_id = $1 AND o.kind IN ('reversed', 'restored') AND COALESCE(e.seq, 0) <= $2) AS r
				ON r.payment_id = p.payment_id
		GROUP BY p.payment_id, p.amount_mc, p.seq ORDER BY p.seq DESC`, l.account, l.seq)
	if err != nil {
		return 0, nil, false, err
	}
	var disputed, open int64
	for _, p := range payments {
		disputed += p.disputed()
		open += p.disputed() - p.lost
	}
	shares, loss = map[string]int64{}, min(max(open-l.balance, 0), disputed)
	var charges []chargesOfApp
	var charged, reached int64
	for _, p := range payments {
		if reached >= loss && charged >= loss {
			break
		} else if p.disputed() == 0 {
			continue
		} else if p.seq == 0 {
			return loss, nil, false, nil
		}
		if charges, err = a.chargesSince(ctx, l, p.seq); err != nil {
			return 0, nil, false, err
		}
		reached, charged = reached+p.disputed(), 0
		for _, c := range charges {
			charged += c.charge
		}
	}
	if loss > 0 && charged > 0 {
		for _, c := range charges {
			share := new(big.Int).Mul(big.NewInt(min(c.margin, c.charge)), big.NewInt(min(loss, charged)))
			shares[c.app] = share.Quo(share, big.NewInt(charged)).Int64()
		}
	}
	return loss, shares, true, nil
}

// chargesSince returns what the account's calls after a row were charged, without what the loss saw as refunded.
func (a *verification) chargesSince(ctx context.Context, l storedLoss, seq int64) ([]chargesOfApp, error) {
	return db.QueryAll(ctx, a.Tx, db.ScanFields(func(c *chargesOfApp) []any {
		return []any{&c.app, &c.charge, &c.margin}
	}), `SELECT l.app_id, CAST(SUM(l.user_charge_mc) AS BIGINT), CAST(SUM(l.dev_margin_mc) AS BIGINT) FROM ledger l
		WHERE l.account_id = $1 AND l.seq > $2 AND l.seq <= $3 AND l.type = 'spend' AND l.status = 'settled'
			AND l.paid_by = 'wallet' AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id AND r.seq <= $3)
		GROUP BY l.app_id`, l.account, seq, l.seq)
}
