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
}

const payeeColumns = `account_id, stripe_id, enabled, submitted, checked_us`

func (p *Payee) fields() []any {
	return []any{&p.AccountID, &p.StripeID, &p.Enabled, &p.Submitted, &p.CheckedUS}
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

func insertPayee(ctx context.Context, q db.Execer, accountID, stripeID string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `INSERT INTO payees (account_id, stripe_id, created_us) VALUES ($1, $2, $3)
		ON CONFLICT (account_id) DO NOTHING`, accountID, stripeID, nowUS)
	return err
}

func updatePayee(ctx context.Context, q db.Execer, p Payee) error {
	_, err := q.ExecContext(
		ctx,
		`UPDATE payees SET enabled = $2, submitted = $3, checked_us = $4 WHERE account_id = $1`,
		p.AccountID,
		db.BoolInt(p.Enabled),
		db.BoolInt(p.Submitted),
		p.CheckedUS,
	)
	return err
}
