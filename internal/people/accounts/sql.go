package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

const columns = `id, email, sandbox <> 0, developer <> 0, operator <> 0, COALESCE(owner_id, ''), COALESCE(tester_id, ''), deactivated_us IS NOT NULL OR closed_us IS NOT NULL, notices <> 0, unconfirmed <> 0, two_step <> 0, password_hash <> '', epoch, created_us`

func (a *Account) fields() []any {
	return []any{&a.ID, &a.Email, &a.Sandbox, &a.Developer, &a.Operator, &a.OwnerID, &a.TesterID, &a.Deactivated, &a.Notices, &a.Unconfirmed, &a.TwoStep, &a.HasPassword, &a.Epoch, &a.CreatedUS}
}

// GetAccount reads an account inside or outside of a transaction; the error wraps
// sql.ErrNoRows when there is none.
func GetAccount(ctx context.Context, q db.Queryer, accountID string) (a Account, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+columns+` FROM accounts WHERE id = $1`, accountID).Scan(a.fields()...)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: get: %w", err)
	}
	return a, nil
}

// Lock is GetAccount that keeps other transactions from changing the account
// until this one ends. It comes before any lock of the account's money.
func Lock(ctx context.Context, tx *db.Tx, accountID string) (a Account, err error) {
	err = tx.QueryRowContext(ctx, `SELECT `+columns+` FROM accounts WHERE id = $1`+tx.Engine.ForUpdate(), accountID).Scan(a.fields()...)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: lock: %w", err)
	}
	return a, nil
}

func byEmail(ctx context.Context, q db.Queryer, email string) (a Account, passwordHash string, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+columns+`, password_hash FROM accounts WHERE email = $1`, email).Scan(append(a.fields(), &passwordHash)...)
	return a, passwordHash, err
}

// ownedBy reads the test accounts of a developer that are in use, oldest first.
func ownedBy(ctx context.Context, q db.Queryer, ownerID string) ([]Account, error) {
	return db.List(ctx, q, db.Fields((*Account).fields), `SELECT `+columns+` FROM accounts WHERE owner_id = $1 AND deactivated_us IS NULL ORDER BY id`, ownerID)
}

func insert(ctx context.Context, tx *db.Tx, a Account, passwordHash string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, sandbox, developer, operator, owner_id, tester_id, unconfirmed, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		a.ID, a.Email, passwordHash, flag(a.Sandbox), flag(a.Developer), flag(a.Operator), sql.NullString{String: a.OwnerID, Valid: a.OwnerID != ""}, sql.NullString{String: a.TesterID, Valid: a.TesterID != ""}, flag(a.Unconfirmed), a.CreatedUS)
	return err
}

func deactivate(ctx context.Context, tx *db.Tx, accountID string, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE accounts SET deactivated_us = $2 WHERE id = $1`, accountID, nowUS)
	return err
}

func updateNotices(ctx context.Context, d *db.DB, accountID string, on bool) error {
	res, err := d.ExecContext(ctx, `UPDATE accounts SET notices = $2 WHERE id = $1`, accountID, flag(on))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sql.ErrNoRows)
	}
	return nil
}

func updateDeveloper(ctx context.Context, d *db.DB, accountID string, on bool) error {
	res, err := d.ExecContext(ctx, `UPDATE accounts SET developer = $2 WHERE id = $1 AND sandbox = 0`, accountID, flag(on))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sql.ErrNoRows)
	}
	return nil
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
