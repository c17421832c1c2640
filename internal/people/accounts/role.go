package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

// A Role is what an account may do on the operator's pages.
type Role string

// Nobody does not see the pages; a viewer sees everything and changes nothing.
const (
	Nobody   Role = ""
	Viewer   Role = "viewer"
	Operator Role = "operator"
)

// RoleOf returns the role of an account; one that does not exist is Nobody.
func (s *Store) RoleOf(ctx context.Context, accountID string) (Role, error) {
	return roleOf(ctx, s.db, accountID)
}

func roleOf(ctx context.Context, q db.Queryer, accountID string) (role Role, err error) {
	err = q.QueryRowContext(ctx, `SELECT operator_role FROM accounts WHERE id = $1 AND operator = 1 AND sandbox = 0`, accountID).Scan(&role)
	if errors.Is(err, sql.ErrNoRows) {
		return Nobody, nil
	} else if err != nil {
		return Nobody, fmt.Errorf("accounts: role: %w", err)
	}
	return role, nil
}

// SetRole gives an account a role, or takes it with Nobody, in the caller's
// transaction, and returns the role that it had. It locks the account; the error
// wraps sql.ErrNoRows when there is no such account, or it is a test account.
func (s *Store) SetRole(ctx context.Context, tx *db.Tx, accountID string, role Role) (before Role, err error) {
	if _, err := Lock(ctx, tx, accountID); err != nil {
		return Nobody, err
	}
	if before, err = roleOf(ctx, tx, accountID); err != nil {
		return Nobody, err
	}
	kept := role
	if role == Nobody {
		kept = Operator // of nobody it says nothing
	}
	res, err := tx.ExecContext(ctx, `UPDATE accounts SET operator = $2, operator_role = $3 WHERE id = $1 AND sandbox = 0`, accountID, flag(role != Nobody), string(kept))
	if err != nil {
		return Nobody, fmt.Errorf("accounts: set role: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return Nobody, fmt.Errorf("accounts: set role: %w", errors.Join(err, sql.ErrNoRows))
	}
	return before, nil
}

// Newest returns accounts, newest first, those older than the one named by after
// if it is not empty.
func (s *Store) Newest(ctx context.Context, after string, limit int) (list []Account, err error) {
	if after == "" {
		after = "~" // behind every id
	}
	list, err = db.List(ctx, s.db, db.Fields((*Account).fields), `SELECT `+columns+` FROM accounts WHERE id < $1 ORDER BY id DESC LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("accounts: newest: %w", err)
	}
	return list, nil
}
