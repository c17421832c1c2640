package topups

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
)

// A checkout is one attempt to pay, by hand or automatic.
type checkout struct {
	order
	SessionID, URL string // "" = Stripe has not answered yet
	NextUS         int64  // time of the next reconciliation; 0 = none
	CreatedUS      int64
	SaveCard       bool   // the user agreed to save the card
	Customer       string // Stripe customer of the card; "" = none
	attempt

	refusal *refusal // of a refund, to be booked with what Stripe says next; it is not stored
}

// An attempt has the fields of an automatic checkout.
type attempt struct {
	N             int64 // number of the account's attempt; 0 = by hand
	MonthUS       int64 // start of the month that it counts for
	MostCents     int64 // the monthly maximum at the time
	PaymentMethod string
	IntentID      string // "" = Stripe has not answered yet
}

func (a attempt) automatic() bool { return a.N > 0 }

const checkoutColumns = `id, account_id, cents, COALESCE(session_id, ''), COALESCE(url, ''), COALESCE(next_us, 0),
		created_us, save_card, COALESCE(customer, ''),
	COALESCE(n, 0), COALESCE(month_us, 0), COALESCE(most_cents, 0), COALESCE(payment_method, ''), COALESCE(intent_id,
		''), COALESCE(named_id, '')`

func (c *checkout) fields() []any {
	return []any{&c.ID, &c.AccountID, &c.Cents, &c.SessionID, &c.URL, &c.NextUS, &c.CreatedUS, &c.SaveCard, &c.Customer,
		&c.N, &c.MonthUS, &c.MostCents, &c.PaymentMethod, &c.IntentID, &c.NamedID}
}

// insertCheckout inserts c unless its form was sent before, and returns the stored checkout.
func insertCheckout(ctx context.Context, tx *db.Tx, c checkout, token string) (is checkout, err error) {
	_, err = tx.ExecContext(ctx, `INSERT INTO checkouts (id, account_id, token, cents, next_us, created_us, save_card,
			customer) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (account_id, token) DO NOTHING`,
		c.ID, c.AccountID, token, c.Cents, c.NextUS, c.CreatedUS, db.BoolInt(c.SaveCard), db.NullText(c.Customer))
	if err != nil {
		return is, err
	}
	err = tx.QueryRowContext(ctx, `SELECT `+checkoutColumns+` FROM checkouts
		WHERE account_id = $1 AND token = $2`, c.AccountID, token).Scan(is.fields()...)
	return is, err
}

// countUnpaid counts the checkouts of an account that may still be paid, besides the automatic ones: those with a
// session that has not ended, and those that are being opened, since a time.
func countUnpaid(ctx context.Context, q db.Queryer, accountID string, sinceUS int64) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM checkouts c
		WHERE c.account_id = $1 AND c.n IS NULL AND c.next_us IS NOT NULL
			AND (c.session_id IS NOT NULL OR c.created_us > $2) AND NOT EXISTS (
				SELECT 1 FROM payment_records p WHERE p.payment_id = c.id AND p.kind = 'paid')`,
		accountID, sinceUS).Scan(&n)
	return n, err
}

func getCheckout(ctx context.Context, q db.Queryer, topupID string) (c checkout, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+checkoutColumns+` FROM checkouts WHERE id = $1`, topupID).Scan(c.fields()...)
	return c, err
}

func getBySession(ctx context.Context, q db.Queryer, sessionID string) (c checkout, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+checkoutColumns+` FROM checkouts
		WHERE session_id = $1`, sessionID).Scan(c.fields()...)
	return c, err
}

// setCheckoutCustomer replaces the Stripe customer of a checkout of which no session was opened.
func setCheckoutCustomer(ctx context.Context, d *db.DB, topupID, customer string) error {
	_, err := d.ExecContext(ctx, `UPDATE checkouts SET customer = $2
		WHERE id = $1 AND session_id IS NULL`, topupID, customer)
	return err
}

// setSession stores the session of a checkout. A stored session never changes.
func setSession(ctx context.Context, tx *db.Tx, topupID, sessionID, url string) error {
	_, err := tx.ExecContext(ctx, `UPDATE checkouts SET session_id = $2, url = $3
		WHERE id = $1 AND session_id IS NULL`, topupID, sessionID, url)
	return err
}

func setNext(ctx context.Context, q db.Execer, topupID string, nextUS int64) error {
	_, err := q.ExecContext(ctx, `UPDATE checkouts SET next_us = $2
		WHERE id = $1`, topupID, sql.NullInt64{Int64: nextUS, Valid: nextUS != 0})
	return err
}

// endUnopened ends a checkout of which Stripe has opened no session.
func endUnopened(ctx context.Context, q db.Execer, topupID string) error {
	_, err := q.ExecContext(ctx, `UPDATE checkouts SET next_us = NULL WHERE id = $1 AND session_id IS NULL`, topupID)
	return err
}

// getNextDue returns the checkout that is due for the longest time, or sql.ErrNoRows.
func getNextDue(ctx context.Context, q db.Queryer, nowUS int64) (c checkout, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+checkoutColumns+` FROM checkouts
		WHERE next_us <= $1 ORDER BY next_us, id LIMIT 1`, nowUS).Scan(c.fields()...)
	return c, err
}

// claimCheckout claims a due checkout until untilUS. It returns false if another node has changed its next time from
// nextUS.
func claimCheckout(ctx context.Context, d *db.DB, topupID string, nextUS, untilUS int64) (bool, error) {
	r, err := d.ExecContext(ctx, `UPDATE checkouts SET next_us = $3
		WHERE id = $1 AND next_us = $2`, topupID, nextUS, untilUS)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// A question to Stripe about a checkout.
type question struct {
	n        int64 // its number
	appliedN int64 // that of the question whose answer was the last to be applied when it was asked
}

// takeNumber numbers a question to Stripe about a checkout.
func takeNumber(ctx context.Context, d *db.DB, topupID string) (q question, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `UPDATE checkouts SET asked_n = asked_n + 1 WHERE id = $1
			RETURNING asked_n, applied_n`, topupID).Scan(&q.n, &q.appliedN)
	})
	return q, err
}

// errOvertaken says that the answer to an earlier question was applied after a question was asked.
var errOvertaken = errors.New("topups: another answer was applied meanwhile")

// markApplied records that the answer to a question is applied. It returns false if the answer to a later question was:
// that was asked when all was known that this one was asked for. If the answer to an earlier question was applied since
// this one was asked, it returns errOvertaken: Stripe may have answered that one later. It locks the checkout until the
// transaction ends.
func markApplied(ctx context.Context, tx *db.Tx, topupID string, q question) (bool, error) {
	r, err := tx.ExecContext(ctx, `UPDATE checkouts SET applied_n = $2, failing_us = NULL
		WHERE id = $1 AND applied_n = $3`, topupID, q.n, q.appliedN)
	if err != nil {
		return false, err
	}
	if rows, err := r.RowsAffected(); err != nil || rows == 1 {
		return rows == 1, err
	}
	var appliedN int64
	err = tx.QueryRowContext(ctx, `SELECT applied_n FROM checkouts WHERE id = $1`, topupID).Scan(&appliedN)
	if err == nil && appliedN < q.n {
		err = errOvertaken
	}
	return false, err
}

// markFailing records since when Stripe does not answer about a checkout.
func markFailing(ctx context.Context, q db.Execer, topupID string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `UPDATE checkouts SET failing_us = COALESCE(failing_us, $2) WHERE id = $1`, topupID,
		nowUS)
	return err
}

func wasSeen(ctx context.Context, q db.Queryer, eventID string) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM stripe_events WHERE id = $1`, eventID).Scan(&yes)
	return yes, err
}

func markSeen(ctx context.Context, q db.Execer, eventID, kind string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `INSERT INTO stripe_events (id, type, created_us) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO NOTHING`, eventID, kind, nowUS)
	return err
}

func deleteSeenBefore(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.DeleteSlices(ctx, "stripe_events", `created_us < $1`, "created_us", beforeUS)
	return err
}

// insertPayingCard records that an account has paid by a card, and reports whether it was the first to do so. Of two
// transactions at once one waits for the other.
func insertPayingCard(ctx context.Context, tx *db.Tx, card, accountID string, nowUS int64) (isFirst bool, err error) {
	for _, first := range []int64{1, 0} { // the second is refused if the account has a row
		if _, err := tx.ExecContext(ctx, `INSERT INTO paying_cards (card, account_id, is_first, since_us)
			VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, card, accountID, first, nowUS); err != nil {
			return false, err
		}
	}
	var n int64
	err = tx.QueryRowContext(ctx, `SELECT is_first FROM paying_cards WHERE card = $1 AND account_id = $2`, card,
		accountID).Scan(&n)
	return n == 1, err
}
