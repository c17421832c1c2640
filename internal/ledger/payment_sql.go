package ledger

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
)

// paymentWants are the payments that a command needs: those named, and those that
// an intent paid. freezes is a command that may freeze the account's connections,
// back what it says went back.
type paymentWants struct {
	ids, intents []string
	freezes      bool
	back         []ReversePayment
	found        []*Payment
}

const paymentColumns = `payment_id, n, kind, account_id, amount_mc, COALESCE(entry_id, ''), COALESCE(payment_intent, ''), COALESCE(hold_until_us, 0), COALESCE(reason, ''), created_us`

// GetPayment returns a payment, or sql.ErrNoRows.
func GetPayment(ctx context.Context, q db.Queryer, paymentID string) (Payment, error) {
	list, err := readPayments(ctx, q, `payment_id = $1`, paymentID)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return Payment{}, err
	}
	return *list[0], nil
}

// PaymentByIntent returns the payment that an intent of Stripe's paid, or sql.ErrNoRows.
func PaymentByIntent(ctx context.Context, q db.Queryer, intent string) (Payment, error) {
	var paymentID string
	if err := q.QueryRowContext(ctx, `SELECT payment_id FROM payment_records WHERE payment_intent = $1`, intent).Scan(&paymentID); err != nil {
		return Payment{}, err
	}
	return GetPayment(ctx, q, paymentID)
}

// PaymentsOfAccount returns at most limit payments of an account, newest first.
func PaymentsOfAccount(ctx context.Context, q db.Queryer, accountID string, limit int) ([]*Payment, error) {
	return readPayments(ctx, q, `payment_id IN (SELECT payment_id FROM payment_records WHERE account_id = $1 AND kind = 'opened' ORDER BY payment_id DESC LIMIT $2)`, accountID, limit)
}

func readPayments(ctx context.Context, q db.Queryer, where string, args ...any) (list []*Payment, err error) {
	records, err := db.QueryAll(ctx, q, db.ScanFields(func(r *PaymentRecord) []any {
		return []any{&r.PaymentID, &r.N, &r.Kind, &r.AccountID, &r.AmountMC, &r.EntryID, &r.Intent, &r.HoldUntilUS, &r.Reason, &r.CreatedUS}
	}), `SELECT `+paymentColumns+` FROM payment_records WHERE `+where+` ORDER BY payment_id DESC, n`, args...)
	for _, r := range records {
		if len(list) == 0 || list[len(list)-1].ID != r.PaymentID {
			list = append(list, &Payment{})
		}
		list[len(list)-1].add(r)
	}
	return list, err
}

// findPaymentAccounts adds the accounts of the payments that are named: a payment
// never moves to another.
func findPaymentAccounts(ctx context.Context, tx *db.Tx, w *wants) error {
	for _, paymentID := range w.payments.ids {
		var accountID string
		err := tx.QueryRowContext(ctx, `SELECT account_id FROM payment_records WHERE payment_id = $1 AND n = 1`, paymentID).Scan(&accountID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		w.accounts[accountID] = true
	}
	return nil
}

// findPayments reads the payments themselves, under the lock of their account.
func findPayments(ctx context.Context, tx *db.Tx, w *wants) error {
	for _, intent := range w.payments.intents {
		p, err := PaymentByIntent(ctx, tx, intent)
		if err == nil {
			w.payments.found = append(w.payments.found, &p)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	for _, paymentID := range w.payments.ids {
		p, err := GetPayment(ctx, tx, paymentID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		w.payments.found = append(w.payments.found, &p)
		if w.payments.freezes {
			err = errors.Join(findActive(ctx, tx, w, p.AccountID), overdraw(ctx, tx, w, &p))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// overdraw lets a balance fall below zero, from now on, if money of its payment
// really goes back: the schema lets nothing else do it.
func overdraw(ctx context.Context, tx *db.Tx, w *wants, p *Payment) error {
	for _, c := range w.payments.back {
		if back := p.goesBack(c); c.PaymentID != p.ID || p.Status != PaymentSettled || back <= 0 || p.ReversedMC+back > p.AmountMC {
			continue
		}
		if _, err := tx.ExecContext(ctx, `UPDATE balances SET disputed = 1 WHERE account_id = $1`, p.AccountID); err != nil {
			return err
		}
	}
	return nil
}

// findActive finds the connections of an account that may be frozen.
func findActive(ctx context.Context, tx *db.Tx, w *wants, accountID string) error {
	active, err := db.QueryAll(ctx, tx, db.ScanColumn[string], `SELECT id FROM connections WHERE account_id = $1 AND status = 'active'`, accountID)
	for _, connectionID := range active {
		w.connections[connectionID] = accountID
	}
	return err
}

// savePayments appends what was recorded.
func savePayments(ctx context.Context, tx *db.Tx, s *State) error {
	for _, r := range s.payments.dirty {
		_, err := tx.ExecContext(ctx, `INSERT INTO payment_records (payment_id, n, kind, account_id, amount_mc, entry_id, payment_intent, hold_until_us, reason, created_us)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			r.PaymentID, r.N, r.Kind, r.AccountID, r.AmountMC, orNull(r.EntryID), orNull(r.Intent), sql.NullInt64{Int64: r.HoldUntilUS, Valid: r.Kind == "paid"}, orNull(r.Reason), r.CreatedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
