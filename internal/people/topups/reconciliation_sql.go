package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/stripe"
)

const reconciliationColumns = `id, cause, waits, since_us, stage, after_id, compared, booked, unbooked, error,
	claimed_us, created_us, COALESCE(ended_us, 0)`

func (r *Reconciliation) fields() []any {
	return []any{&r.ID, &r.Cause, &r.waits, &r.SinceUS, &r.Stage, &r.after, &r.Compared, &r.Booked, &r.Unbooked,
		&r.Error, &r.claimedUS, &r.CreatedUS, &r.EndedUS}
}

// getReconciliation returns a reconciliation, or sql.ErrNoRows.
func getReconciliation(ctx context.Context, q db.Queryer, reconciliationID string) (r Reconciliation, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+reconciliationColumns+` FROM reconciliations WHERE id = $1`,
		reconciliationID).Scan(r.fields()...)
	return r, err
}

// newestReconciliation returns the newest reconciliation that has ended, or sql.ErrNoRows.
func newestReconciliation(ctx context.Context, q db.Queryer) (r Reconciliation, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+reconciliationColumns+` FROM reconciliations WHERE open IS NULL
		ORDER BY created_us DESC, id DESC LIMIT 1`).Scan(r.fields()...)
	return r, err
}

// getOpenReconciliation returns the open reconciliation, or sql.ErrNoRows.
func getOpenReconciliation(ctx context.Context, q db.Queryer) (r Reconciliation, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+reconciliationColumns+` FROM reconciliations WHERE open = 1`).
		Scan(r.fields()...)
	return r, err
}

// hasOpenReconciliation reports whether one is open, and, with waits = 1, one during which no money leaves.
func hasOpenReconciliation(ctx context.Context, q db.Queryer, waits int64) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM reconciliations WHERE open = 1 AND waits >= $1`,
		waits).Scan(&yes)
	return yes, err
}

// insertReconciliation inserts r unless one is open, and returns and locks the open one.
func insertReconciliation(ctx context.Context, tx *db.Tx, r Reconciliation) (is Reconciliation, err error) {
	for range 3 { // the open one may end between the two statements
		_, err = tx.ExecContext(ctx, `INSERT INTO reconciliations (id, cause, open, waits, since_us, stage, after_id,
				claimed_us, created_us) VALUES ($1, $2, 1, $3, $4, $5, '', 0, $6) ON CONFLICT (open) DO NOTHING`,
			r.ID, r.Cause, r.waits, r.SinceUS, r.Stage, r.CreatedUS)
		if err != nil {
			return is, err
		}
		err = tx.QueryRowContext(ctx, `SELECT `+reconciliationColumns+` FROM reconciliations
			WHERE open = 1`+tx.Engine.ForUpdate()).Scan(is.fields()...)
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	return is, err
}

// restartReconciliation lets the open reconciliation begin again, as one that is created now. The node that goes on
// with it loses its claim.
func restartReconciliation(ctx context.Context, tx *db.Tx, r Reconciliation) error {
	_, err := tx.ExecContext(ctx, `UPDATE reconciliations SET cause = $2, waits = $3, since_us = $4, stage = $5,
			created_us = $6, after_id = '', claimed_us = 0 WHERE id = $1 AND open = 1`,
		r.ID, r.Cause, r.waits, r.SinceUS, r.Stage, r.CreatedUS)
	return err
}

// claimReconciliation claims the open reconciliation until a time, or returns sql.ErrNoRows. A claim that lasts much
// longer was made by a clock that was ahead, and is over.
func claimReconciliation(ctx context.Context, d *db.DB, nowUS, untilUS int64) (r Reconciliation, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `UPDATE reconciliations SET claimed_us = $2
			WHERE open = 1 AND (claimed_us <= $1 OR claimed_us > 2 * CAST($2 AS BIGINT) - CAST($1 AS BIGINT))
			RETURNING `+reconciliationColumns, nowUS, untilUS).Scan(r.fields()...)
	})
	return r, err
}

// saveReconciliation stores how far a claimed reconciliation is, and moves its claim. It returns errClaimLost if
// another node has it, or it has begun again.
func saveReconciliation(ctx context.Context, q db.Execer, r *Reconciliation, untilUS int64) error {
	return storeProgress(ctx, q, r, untilUS, `open = 1`)
}

// endReconciliation ends a claimed reconciliation.
func endReconciliation(ctx context.Context, q db.Execer, r *Reconciliation) error {
	return storeProgress(ctx, q, r, 0, `open = NULL, ended_us = CAST($9 AS BIGINT)`)
}

func storeProgress(ctx context.Context, q db.Execer, r *Reconciliation, claimUS int64, also string) error {
	args := []any{r.ID, r.claimedUS, r.Stage, r.after, r.Compared, r.Booked, r.Unbooked, r.Error}
	if strings.Contains(also, "$9") {
		args = append(args, r.EndedUS)
	}
	args = append(args, claimUS)
	done, err := q.ExecContext(ctx, fmt.Sprintf(`UPDATE reconciliations SET stage = $3, after_id = $4, compared = $5,
			booked = $6, unbooked = $7, error = $8, claimed_us = $%d, `, len(args))+also+`
		WHERE id = $1 AND open = 1 AND claimed_us = $2`, args...)
	if err != nil {
		return err
	}
	n, err := done.RowsAffected()
	if err == nil && n == 0 {
		err = errClaimLost
	}
	r.claimedUS = claimUS
	return err
}

// listUnsettled returns the payments after one of which refunds or disputes have not ended, as far as is known, or may
// end otherwise: a refund that succeeded since a time may still fail.
func listUnsettled(ctx context.Context, q db.Queryer, after string, succeededUS int64, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT payment_id FROM disputes
			WHERE undecided = 1 AND payment_id > $1
		UNION SELECT payment_id FROM stripe_refunds WHERE payment_id > $1
			AND (status NOT IN ('succeeded', 'failed', 'canceled') OR status = 'succeeded' AND changed_us >= $2)
		UNION SELECT payment_id FROM refunds WHERE state = 'open' AND payment_id > $1
		ORDER BY payment_id LIMIT $3`, after, succeededUS, limit)
}

// listed returns the marks $1, $2, … of ids and their values.
func listed(ids []string) (marks string, values []any) {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `$%d`, i+1)
		values = append(values, id)
	}
	return b.String(), values
}

// knownPayments returns which of these payments of Stripe's the books know as paid.
func knownPayments(ctx context.Context, q db.Queryer, ids []string) ([]string, error) {
	marks, values := listed(ids)
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT payment_intent FROM payment_records
		WHERE payment_intent IN (`+marks+`)`, values...)
}

// knownRefunds returns the states of those of these refunds of Stripe's that the books know.
func knownRefunds(ctx context.Context, q db.Queryer, ids []string) ([]string, error) {
	marks, values := listed(ids)
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id || ' ' || status FROM stripe_refunds
		WHERE id IN (`+marks+`)`, values...)
}

// toldRefunds returns the ids at Stripe of the refunds of a payment that Stripe has told.
func toldRefunds(ctx context.Context, q db.Queryer, paymentID string) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id FROM stripe_refunds WHERE payment_id = $1`, paymentID)
}

// knownDisputes returns the states of those of these disputes that the books know.
func knownDisputes(ctx context.Context, q db.Queryer, ids []string) ([]string, error) {
	marks, values := listed(ids)
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id || ' ' || cents || ' ' || contested || ' ' || undecided
		FROM disputes WHERE id IN (`+marks+`)`, values...)
}

// saveRefunds stores the refunds of a payment as Stripe tells them.
func saveRefunds(ctx context.Context, tx *db.Tx, paymentID string, list []*stripe.Refund, nowUS int64) (err error) {
	for _, r := range list {
		_, failed := tx.ExecContext(ctx, `INSERT INTO stripe_refunds (id, payment_id, cents, status,
				pending_reason, changed_us) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE
			SET cents = excluded.cents, status = excluded.status, pending_reason = excluded.pending_reason,
				changed_us = excluded.changed_us
			WHERE stripe_refunds.cents <> excluded.cents OR stripe_refunds.status <> excluded.status
				OR stripe_refunds.pending_reason <> excluded.pending_reason`,
			r.ID, paymentID, r.Amount, r.Status, r.PendingReason, nowUS)
		err = errors.Join(err, failed)
	}
	return err
}

// insertFound inserts a checkout that Stripe has and the books had not.
func insertFound(ctx context.Context, tx *db.Tx, c checkout) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO checkouts (id, account_id, token, cents, session_id, intent_id,
			created_us, customer, n, month_us, most_cents, payment_method, named_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (id) DO NOTHING`,
		c.ID, c.AccountID, "found:"+c.ID, c.Cents, db.NullText(c.SessionID), db.NullText(c.IntentID), c.CreatedUS,
		db.NullText(c.Customer), nullIfZero(c.N), nullIfZero(c.MonthUS), nullIfZero(c.MostCents),
		db.NullText(c.PaymentMethod), db.NullText(c.NamedID))
	return err
}

func nullIfZero(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: n != 0} }

// hasCheckoutSince reports whether a checkout was begun since a time.
func hasCheckoutSince(ctx context.Context, q db.Queryer, sinceUS int64) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM checkouts WHERE created_us >= $1)`, sinceUS).Scan(&yes)
	return yes, err
}

// hasEventSince reports whether an event was taken since a time.
func hasEventSince(ctx context.Context, q db.Queryer, sinceUS int64) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM stripe_events WHERE created_us >= $1)`,
		sinceUS).Scan(&yes)
	return yes, err
}

// countUnfinished counts what waits for Stripe: refunds, and charges of saved cards.
func countUnfinished(ctx context.Context, q db.Queryer) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM refunds WHERE state = 'open')
		+ (SELECT COUNT(*) FROM checkouts WHERE n IS NOT NULL AND next_us IS NOT NULL)`).Scan(&n)
	return n, err
}

// listPlansBefore returns accounts whose automatic top-up is on, and was agreed to before a time.
func listPlansBefore(ctx context.Context, q db.Queryer, beforeUS int64, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT account_id FROM auto_topups
		WHERE enabled = 1 AND COALESCE(agreed_us, 0) < $1 ORDER BY account_id LIMIT $2`, beforeUS, limit)
}
