package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

const accountColumns = `id, email, sandbox <> 0, developer <> 0, operator <> 0, COALESCE(owner_id, ''),
		COALESCE(tester_id, ''), deactivated_us IS NOT NULL OR closed_us IS NOT NULL OR suspended_us IS NOT NULL,
		closed_us IS NOT NULL, COALESCE(suspended_us, 0), suspended_reason, notices <> 0,
		unconfirmed <> 0, two_step <> 0, password_hash <> '', epoch + address_changes, epoch, created_us`

func (a *Account) fields() []any {
	return []any{&a.ID, &a.Email, &a.Sandbox, &a.Developer, &a.Operator, &a.OwnerID, &a.TesterID, &a.Deactivated,
		&a.Closed, &a.SuspendedUS, &a.SuspendedReason, &a.Notices, &a.Unconfirmed, &a.TwoStep,
		&a.HasPassword, &a.Epoch, &a.SessionEpoch, &a.CreatedUS}
}

// GetAccount reads an account, inside or outside of a transaction. The error wraps sql.ErrNoRows
// when there is none.
func GetAccount(ctx context.Context, q db.Queryer, accountID string) (a Account, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+accountColumns+` FROM accounts WHERE id = $1`, accountID).Scan(a.fields()...)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: get: %w", err)
	}
	return a, nil
}

// Lock reads an account and locks its row until the transaction ends. Call it before any lock of
// the account's money.
func Lock(ctx context.Context, tx *db.Tx, accountID string) (a Account, err error) {
	err = tx.QueryRowContext(ctx, `SELECT `+accountColumns+` FROM accounts WHERE id = $1`+tx.Engine.ForUpdate(),
		accountID).Scan(a.fields()...)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: lock: %w", err)
	}
	return a, nil
}

// GetAccountByEmail reads the account of a normalized email, inside or outside of a transaction. The
// error wraps sql.ErrNoRows when there is none.
func GetAccountByEmail(ctx context.Context, q db.Queryer, email string) (Account, error) {
	a, _, err := getByEmail(ctx, q, email)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: get by email: %w", err)
	}
	return a, nil
}

func getByEmail(ctx context.Context, q db.Queryer, email string) (a Account, passwordHash string, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+accountColumns+`, password_hash FROM accounts WHERE email = $1`,
		email).Scan(append(a.fields(), &passwordHash)...)
	return a, passwordHash, err
}

// IDByEmail reads the id of the account with an address, or returns sql.ErrNoRows.
func IDByEmail(ctx context.Context, q db.Queryer, email string) (accountID string, err error) {
	err = q.QueryRowContext(ctx, `SELECT id FROM accounts WHERE email = $1`, email).Scan(&accountID)
	return accountID, err
}

// listTestAccounts reads the test accounts of a developer that are not deleted, oldest first: at most MaxTestAccounts.
// The limit, which is above that, lets PostgreSQL take the index of these, and not that of all that ever were.
func listTestAccounts(ctx context.Context, q db.Queryer, ownerID string) ([]Account, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Account).fields), `SELECT `+accountColumns+` FROM accounts
		WHERE owner_id = $1 AND deactivated_us IS NULL ORDER BY id LIMIT $2`, ownerID, 4*MaxTestAccounts)
}

func insertAccount(ctx context.Context, tx *db.Tx, a Account, passwordHash string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, sandbox, developer, operator,
			owner_id, tester_id, unconfirmed, created_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		a.ID, a.Email, passwordHash, db.BoolInt(a.Sandbox), db.BoolInt(a.Developer), db.BoolInt(a.Operator),
		sql.NullString{String: a.OwnerID, Valid: a.OwnerID != ""},
		sql.NullString{String: a.TesterID, Valid: a.TesterID != ""}, db.BoolInt(a.Unconfirmed), a.CreatedUS)
	return err
}

func updateDeactivated(ctx context.Context, tx *db.Tx, accountID string, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `UPDATE accounts SET deactivated_us = $2 WHERE id = $1`, accountID, nowUS)
	return err
}

// listNewest reads accounts, newest first; with after, those created before the account with that id.
func listNewest(ctx context.Context, q db.Queryer, after string, limit int) ([]Account, error) {
	if after == "" {
		after = "~" // sorts after every id
	}
	return db.QueryAll(ctx, q, db.ScanFields((*Account).fields), `SELECT `+accountColumns+` FROM accounts
		WHERE id < $1 ORDER BY id DESC LIMIT $2`, after, limit)
}

func getRole(ctx context.Context, q db.Queryer, accountID string) (role Role, err error) {
	err = q.QueryRowContext(ctx, `SELECT operator_role FROM accounts
		WHERE id = $1 AND operator = 1 AND sandbox = 0`, accountID).Scan(&role)
	if errors.Is(err, sql.ErrNoRows) {
		return NoRole, nil
	} else if err != nil {
		return NoRole, fmt.Errorf("accounts: role: %w", err)
	}
	return role, nil
}

// updateAccount sets columns of an account; set refers to value as $2. The error is sql.ErrNoRows when there
// is no such account.
func updateAccount(ctx context.Context, tx *db.Tx, accountID, set string, value any) error {
	return requireRow(tx.ExecContext(ctx, `UPDATE accounts SET `+set+` WHERE id = $1`, accountID, value))
}

// raiseEpoch raises the epoch of an account and, with sessions, that of its sessions.
func raiseEpoch(ctx context.Context, tx *db.Tx, accountID string, sessions bool) error {
	set := `address_changes = address_changes + $2`
	if sessions {
		set = `epoch = epoch + $2`
	}
	return updateAccount(ctx, tx, accountID, set, 1)
}

// updateClosed turns an account into a tombstone. The error is sql.ErrNoRows for a test account and for a
// closed account.
func updateClosed(ctx context.Context, tx *db.Tx, accountID string, nowUS int64) error {
	return requireRow(tx.ExecContext(ctx, `UPDATE accounts
		SET email = $2, password_hash = '', developer = 0, operator = 0, notices = 0, two_step = 0,
			unconfirmed = 0, closed_us = $3, suspended_us = NULL, suspended_reason = ''
		WHERE id = $1 AND sandbox = 0 AND closed_us IS NULL`,
		accountID, tombstone(accountID), nowUS))
}

// updateSuspended suspends an account since nowUS, or reinstates it if that is 0. The error is sql.ErrNoRows for a test
// account and for a closed account.
func updateSuspended(ctx context.Context, tx *db.Tx, accountID, reason string, nowUS int64) error {
	return requireRow(tx.ExecContext(ctx, `UPDATE accounts
		SET suspended_us = $2, suspended_reason = $3
		WHERE id = $1 AND sandbox = 0 AND closed_us IS NULL`,
		accountID, sql.NullInt64{Int64: nowUS, Valid: nowUS != 0}, reason))
}

// ListUnconfirmed returns up to limit accounts, after one in the order of ids, that were created before a time and that
// no one has confirmed.
func ListUnconfirmed(ctx context.Context, q db.Queryer, beforeUS int64, after string, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id FROM accounts
		WHERE unconfirmed = 1 AND suspended_us IS NULL AND created_us < $1 AND id > $2 ORDER BY id LIMIT $3`,
		beforeUS, after, limit)
}

// deleteUnconfirmed deletes the row of an account. The error is sql.ErrNoRows for one that was confirmed or suspended.
func deleteUnconfirmed(ctx context.Context, tx *db.Tx, accountID string) error {
	return requireRow(tx.ExecContext(ctx,
		`DELETE FROM accounts WHERE id = $1 AND unconfirmed = 1 AND suspended_us IS NULL`, accountID))
}

func updateRole(ctx context.Context, tx *db.Tx, accountID string, operator bool, role Role) error {
	return requireRow(tx.ExecContext(ctx, `UPDATE accounts SET operator = $2, operator_role = $3
		WHERE id = $1 AND sandbox = 0`, accountID, db.BoolInt(operator), string(role)))
}

func updateNotices(ctx context.Context, d *db.DB, accountID string, on bool) error {
	return requireRow(d.ExecContext(ctx, `UPDATE accounts SET notices = $2 WHERE id = $1`, accountID, db.BoolInt(on)))
}

func updateDeveloper(ctx context.Context, d db.Execer, accountID string, on bool) error {
	return requireRow(d.ExecContext(ctx, `UPDATE accounts SET developer = $2
		WHERE id = $1 AND sandbox = 0`, accountID, db.BoolInt(on)))
}

// requireRow returns sql.ErrNoRows for an update that changed no row.
func requireRow(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, sql.ErrNoRows)
	}
	return nil
}

// listIDsAfter returns ids of accounts in their order.
func listIDsAfter(ctx context.Context, q db.Queryer, after string, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT id FROM accounts WHERE id > $1 ORDER BY id LIMIT $2`,
		after, limit)
}
