package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/stripeapi"
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

// A waitQuery finds what waits for us, or for Stripe's answer, besides the requests of stripeapi: the id and the begin
// of the oldest.
type waitQuery struct {
	kind    stripeapi.Kind
	outcome stripeapi.Outcome
	text    string
	query   string
}

var waitQueries = []waitQuery{
	{"top-up", stripeapi.Unknown, "its payment cannot be fetched, or canceled", `SELECT id, failing_us FROM checkouts
		WHERE failing_us IS NOT NULL AND next_us IS NOT NULL AND (session_id IS NOT NULL OR intent_id IS NOT NULL)
		ORDER BY failing_us LIMIT 1`},
	{stripeapi.Charge, stripeapi.Unknown, "it is neither paid nor failed", `SELECT c.id, c.created_us FROM checkouts c
		WHERE c.next_us IS NOT NULL AND c.n IS NOT NULL AND c.intent_id IS NOT NULL AND NOT EXISTS (
			SELECT 1 FROM payment_records p WHERE p.payment_id = c.id AND p.kind = 'paid')
		ORDER BY c.created_us LIMIT 1`},
	{"card", stripeapi.Unknown, "it is not removed", `SELECT payment_method, failing_us FROM card_removals
		WHERE failing_us IS NOT NULL ORDER BY failing_us LIMIT 1`},
	{stripeapi.Customer, stripeapi.Unknown, "it is not deleted", `SELECT customer, failing_us FROM customer_removals
		WHERE failing_us IS NOT NULL ORDER BY failing_us LIMIT 1`},
	{stripeapi.Refund, stripeapi.Ours, "our balance at Stripe is too small", `SELECT id, changed_us FROM stripe_refunds
		WHERE status = 'pending' AND pending_reason = 'insufficient_funds' ORDER BY changed_us LIMIT 1`},
}

// ListWaits returns what waits for us, or for Stripe's answer, besides the requests of stripeapi: the oldest of each
// kind.
func ListWaits(ctx context.Context, q db.Queryer) (list []stripeapi.Overdue, err error) {
	for _, w := range waitQueries {
		is := stripeapi.Overdue{Kind: w.kind, Outcome: w.outcome, Text: w.text}
		err := q.QueryRowContext(ctx, w.query).Scan(&is.ID, &is.SinceUS)
		if err == nil {
			list = append(list, is)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("topups: waits: %w", err)
		}
	}
	return list, nil
}
