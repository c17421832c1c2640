package topups

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
)

// A plan is an account's rule for automatic top-up, with its card.
type plan struct {
	AccountID               string
	Customer                string // Stripe customer; "" = none yet
	PaymentMethod           string // Stripe id of the card; "" = none is saved
	Brand, Last4, Expires   string
	On                      bool
	OffReason               string // why Purser turned it off; "" = it did not
	Below, Add, Most        int64  // cents; Most is the maximum of a calendar month
	Failures, NextUS, Since int64
	CardUS                  int64 // when the card was charged that the user had saved, or when the user removed it
}

const planColumns = `account_id, COALESCE(customer, ''), COALESCE(payment_method, ''), brand, last4, expires, enabled,
		off_reason, below_cents, add_cents, most_cents, failures, next_us, COALESCE(agreed_us, 0),
		card_us`

func (p *plan) fields() []any {
	return []any{&p.AccountID, &p.Customer, &p.PaymentMethod, &p.Brand, &p.Last4, &p.Expires, &p.On, &p.OffReason,
		&p.Below, &p.Add, &p.Most, &p.Failures, &p.NextUS, &p.Since, &p.CardUS}
}

func getPlan(ctx context.Context, q db.Queryer, accountID string) (p plan, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+planColumns+` FROM auto_topups
		WHERE account_id = $1`, accountID).Scan(p.fields()...)
	return p, err
}

// lockPlan gets a plan and locks it, and with it the attempts of the account, until the transaction ends. The plan is
// locked before the balance.
func lockPlan(ctx context.Context, tx *db.Tx, accountID string) (p plan, err error) {
	err = tx.QueryRowContext(ctx, `SELECT `+planColumns+` FROM auto_topups
		WHERE account_id = $1`+tx.Engine.ForUpdate(), accountID).Scan(p.fields()...)
	return p, err
}

func insertPlan(ctx context.Context, d *db.DB, accountID string) error {
	_, err := d.ExecContext(ctx, `INSERT INTO auto_topups (account_id) VALUES ($1)
		ON CONFLICT (account_id) DO NOTHING`, accountID)
	return err
}

func setCustomer(ctx context.Context, d *db.DB, accountID, customer string) error {
	_, err := d.ExecContext(ctx, `UPDATE auto_topups SET customer = $2
		WHERE account_id = $1 AND customer IS NULL`, accountID, customer)
	return err
}

// clearCustomer forgets a Stripe customer of an account, unless it has another one by now.
func clearCustomer(ctx context.Context, q db.Execer, accountID, customer string) error {
	_, err := q.ExecContext(ctx, `UPDATE auto_topups SET customer = NULL
		WHERE account_id = $1 AND customer = $2`, accountID, customer)
	return err
}

// turnOn turns automatic top-up on, or changes its amounts, if it still is as it was before. It returns false if it is
// not, or if there is no card.
func turnOn(ctx context.Context, d *db.DB, before, p plan, nowUS int64) (bool, error) {
	r, err := d.ExecContext(ctx, `UPDATE auto_topups
		SET enabled = 1, off_reason = '', below_cents = $2, add_cents = $3, most_cents = $4, failures = 0, next_us = 0,
			agreed_us = $5
		WHERE account_id = $1 AND payment_method IS NOT NULL
			AND enabled = $6 AND below_cents = $7 AND add_cents = $8 AND most_cents = $9`,
		p.AccountID, p.Below, p.Add, p.Most, nowUS, db.BoolInt(before.On), before.Below, before.Add, before.Most)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

func turnOff(ctx context.Context, q db.Execer, accountID, reason string) error {
	_, err := q.ExecContext(ctx, `UPDATE auto_topups SET enabled = 0, off_reason = $2
		WHERE account_id = $1`, accountID, reason)
	return err
}

func setFailures(ctx context.Context, tx *db.Tx, accountID string, failures, nextUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE auto_topups SET failures = $2, next_us = $3
		WHERE account_id = $1`, accountID, failures, nextUS)
	return err
}

// markFull returns true for the first call in a month.
func markFull(ctx context.Context, tx *db.Tx, accountID string, monthUS int64) (bool, error) {
	r, err := tx.ExecContext(ctx, `UPDATE auto_topups SET told_month_us = $2
		WHERE account_id = $1 AND told_month_us <> $2`, accountID, monthUS)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// setCard replaces the card of a plan, by none if paymentMethod is "", and stores p.CardUS with it. The old card is
// queued for removal at Stripe.
func setCard(ctx context.Context, tx *db.Tx, p plan, paymentMethod, brand, last4, expires string) error {
	if p.PaymentMethod != "" && p.PaymentMethod != paymentMethod {
		if err := queueCardRemoval(ctx, tx, p.PaymentMethod); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `UPDATE auto_topups
		SET payment_method = $2, brand = $3, last4 = $4, expires = $5, failures = 0, next_us = 0, off_reason = '',
			enabled = CASE WHEN $6 = 0 THEN 0 ELSE enabled END, card_us = $7
		WHERE account_id = $1`, p.AccountID, db.NullText(paymentMethod), brand, last4, expires,
		db.BoolInt(paymentMethod != ""), p.CardUS)
	return err
}

// queueCardRemoval queues a card for removal at Stripe.
func queueCardRemoval(ctx context.Context, tx *db.Tx, paymentMethod string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO card_removals (payment_method, next_us) VALUES ($1, 0)
		ON CONFLICT (payment_method) DO NOTHING`, paymentMethod)
	return err
}

// markRemovalFailing records since when Stripe does not remove a card.
func markRemovalFailing(ctx context.Context, q db.Execer, paymentMethod string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `UPDATE card_removals SET failing_us = COALESCE(failing_us, $2)
		WHERE payment_method = $1`, paymentMethod, nowUS)
	return err
}

// markCustomerFailing records since when Stripe does not delete a customer.
func markCustomerFailing(ctx context.Context, q db.Execer, customer string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `UPDATE customer_removals SET failing_us = COALESCE(failing_us, $2)
		WHERE customer = $1`, customer, nowUS)
	return err
}

// listLowAccounts returns accounts whose balance is below their threshold and which have no open attempt.
func listLowAccounts(ctx context.Context, q db.Queryer, nowUS int64) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT a.account_id FROM auto_topups a
		JOIN balances b ON b.account_id = a.account_id
		WHERE a.enabled = 1 AND a.next_us <= $1 AND b.available_mc < a.below_cents * 1000000
			AND NOT EXISTS (SELECT 1 FROM checkouts c
			WHERE c.account_id = a.account_id AND c.n IS NOT NULL AND c.next_us IS NOT NULL)
		ORDER BY a.next_us, a.account_id LIMIT 100`, nowUS)
}

// getMonthUse returns the number of the account's newest attempt, the cents that its attempts used of a month, and
// whether an attempt is open. A failed attempt used nothing, unless it was paid and then reversed.
func getMonthUse(ctx context.Context, q db.Queryer, accountID string,
	monthUS int64) (n, cents int64, underWay bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(n), 0),
			COALESCE(SUM(CASE WHEN month_us <> $2 OR failed = 1 AND paid = 0 THEN 0 ELSE cents END), 0),
			COALESCE(MAX(CASE WHEN next_us IS NULL THEN 0 ELSE 1 END), 0) > 0 FROM (
			SELECT c.n, c.month_us, c.cents, c.next_us, CASE WHEN EXISTS (SELECT 1 FROM payment_records p
			WHERE p.payment_id = c.id AND p.kind = 'failed') THEN 1 ELSE 0 END AS failed,
				CASE WHEN EXISTS (SELECT 1 FROM payment_records p
			WHERE p.payment_id = c.id AND p.kind = 'paid') THEN 1 ELSE 0 END AS paid
			FROM checkouts c
		WHERE c.account_id = $1 AND c.n IS NOT NULL) AS attempts`, accountID, monthUS).Scan(&n, &cents, &underWay)
	return n, cents, underWay, err
}

func insertAttempt(ctx context.Context, tx *db.Tx, c checkout, token string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO checkouts (id, account_id, token, cents, next_us, created_us, customer,
			n, month_us, most_cents, payment_method)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		c.ID, c.AccountID, token, c.Cents, c.NextUS, c.CreatedUS, c.Customer, c.N, c.MonthUS, c.MostCents,
		c.PaymentMethod)
	return err
}

// setIntent stores the payment intent of an attempt. A stored intent never changes.
func setIntent(ctx context.Context, tx *db.Tx, topupID, intentID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE checkouts SET intent_id = $2
		WHERE id = $1 AND intent_id IS NULL`, topupID, db.NullText(intentID))
	return err
}

func getByIntent(ctx context.Context, q db.Queryer, intentID string) (c checkout, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+checkoutColumns+` FROM checkouts
		WHERE intent_id = $1`, intentID).Scan(c.fields()...)
	return c, err
}

// listAttempts returns the ids of an account's newest automatic top-ups.
func listAttempts(ctx context.Context, q db.Queryer, accountID string, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id FROM checkouts
		WHERE account_id = $1 AND n IS NOT NULL ORDER BY n DESC LIMIT $2`, accountID, limit)
}

// hasFrozenConnection reports whether a connection of the account is frozen.
func hasFrozenConnection(ctx context.Context, q db.Queryer, accountID string) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM connections
		WHERE account_id = $1 AND status = 'frozen'`, accountID).Scan(&yes)
	return yes, err
}

// sumClearing returns the paid amount that is not credited yet.
func sumClearing(ctx context.Context, q db.Queryer, accountID string) (sum money.MC, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(SUM(o.amount_mc), 0) FROM payment_records o
		WHERE o.account_id = $1 AND o.kind = 'opened'
		AND EXISTS (SELECT 1 FROM payment_records p WHERE p.payment_id = o.payment_id AND p.kind = 'paid')
		AND NOT EXISTS (SELECT 1 FROM payment_records p
			WHERE p.payment_id = o.payment_id AND (p.kind = 'settled' OR p.kind = 'failed'))`, accountID).Scan(&sum)
	return sum, err
}

// claimDueRemoval claims a card that is to be detached at Stripe; "" = none.
func claimDueRemoval(ctx context.Context, d *db.DB, now time.Time) (paymentMethod string, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT payment_method FROM card_removals
			WHERE next_us <= $1 ORDER BY next_us, payment_method LIMIT 1`+tx.Engine.ForUpdate(),
			now.UnixMicro()).Scan(&paymentMethod)
		if errors.Is(err, sql.ErrNoRows) {
			paymentMethod = ""
			return nil
		} else if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE card_removals SET next_us = $2
			WHERE payment_method = $1`, paymentMethod, now.Add(claimTTL).UnixMicro())
		return err
	})
	return paymentMethod, err
}

// queueCustomerRemoval queues the deletion of a customer at Stripe.
func queueCustomerRemoval(ctx context.Context, tx *db.Tx, customer string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO customer_removals (customer, next_us) VALUES ($1, 0)
		ON CONFLICT (customer) DO NOTHING`, customer)
	return err
}

// claimDueCustomer claims a customer that is to be deleted at Stripe, and of which no payment is still followed: lost
// charges are looked up by their customer. "" = none.
func claimDueCustomer(ctx context.Context, d *db.DB, now time.Time) (customer string, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT customer FROM customer_removals r WHERE next_us <= $1
			AND NOT EXISTS (SELECT 1 FROM checkouts c WHERE c.customer = r.customer AND c.next_us IS NOT NULL)
			ORDER BY next_us, customer LIMIT 1`+tx.Engine.ForUpdate(), now.UnixMicro()).Scan(&customer)
		if errors.Is(err, sql.ErrNoRows) {
			customer = ""
			return nil
		} else if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE customer_removals SET next_us = $2 WHERE customer = $1`, customer,
			now.Add(claimTTL).UnixMicro())
		return err
	})
	return customer, err
}

func deleteCustomerRemoval(ctx context.Context, d *db.DB, customer string) error {
	_, err := d.ExecContext(ctx, `DELETE FROM customer_removals WHERE customer = $1`, customer)
	return err
}

func deletePlan(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM auto_topups WHERE account_id = $1`, accountID)
	return err
}

func deleteRemoval(ctx context.Context, d *db.DB, paymentMethod string) error {
	_, err := d.ExecContext(ctx, `DELETE FROM card_removals WHERE payment_method = $1`, paymentMethod)
	return err
}
