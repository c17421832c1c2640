package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const paymentColumns = `payment_id, n, kind, account_id, amount_mc, COALESCE(entry_id, ''), COALESCE(payment_intent,
	''), COALESCE(hold_until_us, 0), COALESCE(reason, ''), created_us`

// GetPayment returns a payment, or sql.ErrNoRows.
func GetPayment(ctx context.Context, q db.Queryer, paymentID string) (rules.Payment, error) {
	list, err := readPayments(ctx, q, `payment_id = $1`, paymentID)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return rules.Payment{}, err
	}
	return *list[0], nil
}

// PaymentByIntent returns the payment that an intent of Stripe's paid, or sql.ErrNoRows.
func PaymentByIntent(ctx context.Context, q db.Queryer, intent string) (rules.Payment, error) {
	var paymentID string
	if err := q.QueryRowContext(ctx, `SELECT payment_id FROM payment_records WHERE payment_intent = $1`,
		intent).Scan(&paymentID); err != nil {
		return rules.Payment{}, err
	}
	return GetPayment(ctx, q, paymentID)
}

// FindPaid reads how the top-ups among some ledger rows were paid into the rows.
func FindPaid(ctx context.Context, q db.Queryer, entries []rules.Entry) error {
	for i := range entries {
		e := &entries[i]
		if e.Type != rules.EntryTopUp {
			continue
		}
		err := q.QueryRowContext(ctx, `SELECT p.payment_intent, p.hold_until_us FROM payment_records r
			JOIN payment_records p ON p.payment_id = r.payment_id WHERE r.entry_id = $1 AND p.kind = 'paid'`, e.ID).
			Scan(&e.PaymentIntent, &e.HoldUntilUS)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// paymentsPerStep is how many payments one statement reads. The records of each may be on pages of their own.
const paymentsPerStep = 300

// PaymentsOfAccount returns at most limit payments of an account, newest first. It reads them in steps: they are those
// of one moment only if the caller has locked the account's balance.
func PaymentsOfAccount(ctx context.Context, q db.Queryer, accountID string, limit int) (list []*rules.Payment,
	err error) {
	for before := "~"; ; { // sorts after every id
		n := min(limit-len(list), paymentsPerStep)
		step, err := readPayments(ctx, q, `payment_id IN (SELECT payment_id FROM payment_records
			WHERE account_id = $1 AND kind = 'opened' AND payment_id < $2 ORDER BY payment_id DESC LIMIT $3)`,
			accountID, before, n)
		if list = append(list, step...); err != nil || len(step) < n || len(list) == limit {
			return list, err
		}
		before = step[n-1].ID
	}
}

func readPayments(ctx context.Context, q db.Queryer, where string, args ...any) (list []*rules.Payment, err error) {
	records, err := db.QueryAll(ctx, q, db.ScanFields(func(r *rules.PaymentRecord) []any {
		return []any{&r.PaymentID, &r.N, &r.Kind, &r.AccountID, &r.AmountMC, &r.EntryID, &r.PaymentIntent,
			&r.HoldUntilUS, &r.Reason, &r.CreatedUS}
	}), `SELECT `+paymentColumns+` FROM payment_records WHERE `+where+` ORDER BY payment_id DESC, n`, args...)
	for _, r := range records {
		if len(list) == 0 || list[len(list)-1].ID != r.PaymentID {
			list = append(list, &rules.Payment{})
		}
		list[len(list)-1].Fold(r)
	}
	return list, err
}

// findPaymentAccounts adds the accounts of the payments that are named: a payment
// never moves to another.
func findPaymentAccounts(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, paymentID := range keys.Payments {
		var accountID string
		err := tx.QueryRowContext(ctx, `SELECT account_id FROM payment_records WHERE payment_id = $1 AND n = 1`,
			paymentID).Scan(&accountID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		keys.Accounts[accountID] = true
	}
	return nil
}

// findPayments reads the payments themselves, under the lock of their account.
func (r *rareRows) findPayments(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, intent := range keys.PaymentIntents {
		p, err := PaymentByIntent(ctx, tx, intent)
		if err == nil {
			r.payments = append(r.payments, &p)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	for _, paymentID := range keys.Payments {
		p, err := GetPayment(ctx, tx, paymentID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		r.payments = append(r.payments, &p)
		if keys.FreezesAccount {
			err = errors.Join(findLiveConnectionsOf(ctx, tx, keys, p.AccountID), allowOverdraft(ctx, tx, keys, &p))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allowOverdraft lets a balance fall below zero from now on, if money of its payment
// is really reversed. The schema allows it in no other case.
func allowOverdraft(ctx context.Context, tx *db.Tx, keys *rules.RowKeys, p *rules.Payment) error {
	for _, c := range keys.Reversals {
		if back, _ := p.Difference(c); c.PaymentID != p.ID || back <= 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, `UPDATE balances SET disputed = 1 WHERE account_id = $1`,
			p.AccountID); err != nil {
			return err
		}
	}
	return nil
}

// savePayments appends what was recorded.
func savePayments(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, r := range s.Changes.PaymentRecords {
		_, err := tx.ExecContext(ctx,
			`INSERT INTO payment_records (payment_id, n, kind, account_id, amount_mc, entry_id, payment_intent,
				hold_until_us, reason, created_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			r.PaymentID, r.N, r.Kind, r.AccountID, r.AmountMC, db.NullText(r.EntryID), db.NullText(r.PaymentIntent),
			sql.NullInt64{Int64: r.HoldUntilUS, Valid: r.Kind == "paid"}, db.NullText(r.Reason), r.CreatedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
