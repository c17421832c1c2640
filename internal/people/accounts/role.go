package accounts

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
)

// A Role is the access of an account to the operator's pages.
type Role string

// The roles. NoRole has no access; a viewer reads all pages and changes nothing.
const (
	NoRole   Role = ""
	Viewer   Role = "viewer"
	Operator Role = "operator"
)

// GetRole returns the role of an account, NoRole if it does not exist.
func (s *Store) GetRole(ctx context.Context, accountID string) (Role, error) {
	return getRole(ctx, s.db, accountID)
}

// SetRole sets the role of an account, in the caller's transaction, and returns the former role. It
// locks the account; the error wraps sql.ErrNoRows when there is no such account or it is a test
// account. An account without two-step verification is 400 invalid_request: who knows its password
// could add a second step of their own.
func (s *Store) SetRole(ctx context.Context, tx *db.Tx, accountID string, role Role) (before Role, err error) {
	a, err := Lock(ctx, tx, accountID)
	if err != nil {
		return NoRole, err
	}
	if a.Sandbox {
		return NoRole, fmt.Errorf("accounts: set role: %w", sql.ErrNoRows)
	}
	if role != NoRole && !a.TwoStep && !s.RolesWithoutSecondStep {
		return NoRole, apierr.InvalidRequest.Errorf(
			"this account has no two-step verification: its owner turns it on first, under Settings, Security")
	}
	if before, err = getRole(ctx, tx, accountID); err != nil {
		return NoRole, err
	}
	stored := role
	if role == NoRole {
		stored = Operator // the column has no meaning while operator is 0
	}
	if err := updateRole(ctx, tx, accountID, role != NoRole, stored); err != nil {
		return NoRole, fmt.Errorf("accounts: set role: %w", err)
	}
	return before, nil
}

// ListNewest returns accounts, newest first; with after, those created before the account with that
// id.
func (s *Store) ListNewest(ctx context.Context, after string, limit int) (list []Account, err error) {
	list, err = listNewest(ctx, s.db, after, limit)
	if err != nil {
		return nil, fmt.Errorf("accounts: newest: %w", err)
	}
	return list, nil
}
