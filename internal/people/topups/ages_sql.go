package topups

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
)

// pendingQueries return the id and the begin of the oldest that is pending at Stripe, by what it is.
var pendingQueries = map[string]string{
	"refund": `SELECT id, created_us FROM refunds WHERE state = 'open' ORDER BY created_us LIMIT 1`,
	"debit": `SELECT c.id, c.created_us FROM checkouts c WHERE c.next_us IS NOT NULL AND c.n IS NULL
		AND c.session_id IS NOT NULL AND NOT EXISTS (
			SELECT 1 FROM payment_records p WHERE p.payment_id = c.id AND p.kind = 'paid')
		ORDER BY c.created_us LIMIT 1`,
	"dispute": `SELECT dispute_id, since_us FROM open_disputes ORDER BY since_us LIMIT 1`,
}

// oldestPending returns what has been pending at Stripe for the longest time; "" = nothing is.
func oldestPending(ctx context.Context, q db.Queryer, what string) (id string, sinceUS int64, err error) {
	err = q.QueryRowContext(ctx, pendingQueries[what]).Scan(&id, &sinceUS)
	if errors.Is(err, sql.ErrNoRows) {
		return "", 0, nil
	}
	return id, sinceUS, err
}
