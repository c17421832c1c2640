package payouts

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

// A Payee is the account at Stripe that a developer is paid to.
type Payee struct {
	AccountID string
	StripeID  string // acct_…
	Enabled   bool   // Stripe lets it be paid
	Submitted bool   // the developer has answered Stripe's questions
	CheckedUS int64  // when Stripe was last asked
	GoneUS    int64  // since when Stripe no longer has it; 0 = it has
}

const payeeColumns = `account_id, stripe_id, enabled, submitted, checked_us, COALESCE(gone_us, 0)`

func (p *Payee) fields() []any {
	return []any{&p.AccountID, &p.StripeID, &p.Enabled, &p.Submitted, &p.CheckedUS, &p.GoneUS}
}

// getPayee returns the payee of a developer, or sql.ErrNoRows.
func getPayee(ctx context.Context, q db.Queryer, accountID string) (p Payee, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+payeeColumns+` FROM payees WHERE account_id = $1`, accountID).
		Scan(p.fields()...)
	return p, err
}

// listPayees returns the payees after an account, in the order of their accounts.
func listPayees(ctx context.Context, q db.Queryer, after string, limit int) ([]Payee, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Payee).fields), `SELECT `+payeeColumns+` FROM payees
		WHERE account_id > $1 ORDER BY account_id LIMIT $2`, after, limit)
}

// insertPayee stores the account of a developer. It replaces one that is gone.
func insertPayee(ctx context.Context, q db.Execer, accountID, stripeID string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `INSERT INTO payees (account_id, stripe_id, created_us) VALUES ($1, $2, $3)
		ON CONFLICT (account_id) DO UPDATE SET stripe_id = excluded.stripe_id, enabled = 0, submitted = 0,
			checked_us = 0, gone_us = NULL WHERE payees.gone_us IS NOT NULL`, accountID, stripeID, nowUS)
	return err
}

// updatePayee stores what Stripe says of an account, unless it was replaced meanwhile. One that is there is not gone.
func updatePayee(ctx context.Context, q db.Execer, p Payee) error {
	_, err := q.ExecContext(
		ctx,
		`UPDATE payees SET enabled = $3, submitted = $4, checked_us = $5, gone_us = NULL
			WHERE account_id = $1 AND stripe_id = $2`,
		p.AccountID,
		p.StripeID,
		db.BoolInt(p.Enabled),
		db.BoolInt(p.Submitted),
		p.CheckedUS,
	)
	return err
}

// setPayeeGone records that Stripe no longer has an account. It returns false if that is known, or if it was replaced.
func setPayeeGone(ctx context.Context, q db.Execer, p Payee, nowUS int64) (bool, error) {
	r, err := q.ExecContext(ctx, `UPDATE payees SET gone_us = $3, enabled = 0
		WHERE account_id = $1 AND stripe_id = $2 AND gone_us IS NULL`, p.AccountID, p.StripeID, nowUS)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}
