package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// ListCurrentLosses returns the losses, by account, of the accounts that have no newer row.
func ListCurrentLosses(ctx context.Context, q db.Queryer) (map[string]rules.Loss, error) {
	list, err := db.QueryAll(ctx, q, db.ScanFields(func(l *rules.Loss) []any {
		return []any{&l.AccountID, &l.Seq, &l.DisputedCents, &l.ChangedUS, &l.LossMC}
	}), `SELECT l.account_id, l.seq, l.disputed_cents, l.changed_us, l.loss_mc
		FROM losses l JOIN balances b ON b.account_id = l.account_id AND b.seq = l.seq`)
	if err != nil {
		return nil, fmt.Errorf("ledger: losses: %w", err)
	}
	byAccount := map[string]rules.Loss{}
	for _, l := range list {
		byAccount[l.AccountID] = l
	}
	return byAccount, nil
}

// ReadDisputedPayment reads what is disputed of a payment of which cents are in disputes that are open or lost, and
// what its account's calls have cost since it settled, without refunded ones.
func ReadDisputedPayment(ctx context.Context, q db.Queryer, paymentID string,
	cents int64) (d rules.DisputedPayment, err error) {
	p, err := GetPayment(ctx, q, paymentID)
	if errors.Is(err, sql.ErrNoRows) {
		return d, nil // it was never opened here
	} else if err != nil {
		return d, fmt.Errorf("ledger: payment %s: %w", paymentID, err)
	}
	if d = p.Disputed(money.MC(cents) * money.Cent); d.DisputedMC == 0 {
		return d, nil
	}
	err = q.QueryRowContext(ctx, `SELECT seq FROM ledger WHERE id = $1`, p.SettledEntry).Scan(&d.SettledSeq)
	if errors.Is(err, sql.ErrNoRows) {
		return d, nil
	} else if err != nil {
		return d, fmt.Errorf("ledger: payment %s: %w", paymentID, err)
	}
	d.Since, err = db.QueryAll(ctx, q, db.ScanFields(func(c *rules.AppCharges) []any {
		return []any{&c.AppID, &c.ChargedMC, &c.MarginMC}
	}), `SELECT l.app_id, CAST(SUM(l.user_charge_mc) AS BIGINT), CAST(SUM(l.dev_margin_mc) AS BIGINT) FROM ledger l
		WHERE l.account_id = $1 AND l.seq > $2 AND l.type = 'spend' AND l.status = 'settled' AND l.paid_by = 'wallet'
			AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id)
		GROUP BY l.app_id ORDER BY l.app_id`, p.AccountID, d.SettledSeq)
	if err != nil {
		return d, fmt.Errorf("ledger: charges since payment %s: %w", paymentID, err)
	}
	return d, nil
}

// AppsOfDispute returns the apps of whose margin disputed payments have taken, or to which they have given back: those
// of an account, or those that an earlier version has recorded of a payment.
func AppsOfDispute(ctx context.Context, q db.Queryer, subject string) ([]string, error) {
	list, err := db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT DISTINCT app_id FROM margin_records
		WHERE subject = $1 AND kind = 'disputed' ORDER BY app_id`, subject)
	if err != nil {
		return nil, fmt.Errorf("ledger: disputed margin of %s: %w", subject, err)
	}
	return list, nil
}

// AppsOfAccount returns the apps on which an account has or had a connection: no other one's margin is of its calls.
func AppsOfAccount(ctx context.Context, q db.Queryer, accountID string) ([]string, error) {
	list, err := db.QueryAll(ctx, q, db.ScanColumn[string],
		`SELECT DISTINCT app_id FROM connections WHERE account_id = $1 ORDER BY app_id`, accountID)
	if err != nil {
		return nil, fmt.Errorf("ledger: apps of %s: %w", accountID, err)
	}
	return list, nil
}

// saveLosses stores what was lost by accounts.
func saveLosses(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, l := range s.Changes.Losses {
		_, err := tx.ExecContext(ctx, `INSERT INTO losses (account_id, seq, disputed_cents, changed_us, loss_mc)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (account_id) DO UPDATE SET seq = excluded.seq,
				disputed_cents = excluded.disputed_cents, changed_us = excluded.changed_us, loss_mc = excluded.loss_mc`,
			l.AccountID, l.Seq, l.DisputedCents, l.ChangedUS, l.LossMC)
		if err != nil {
			return err
		}
	}
	return nil
}
