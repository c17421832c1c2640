package apps

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

// roleSQL is the role of the account $1 in the app of a row of apps, or NULL.
const roleSQL = `CASE WHEN apps.owner_id = $1 THEN 'owner'
	ELSE (SELECT m.role FROM app_members m WHERE m.app_id = apps.id AND m.account_id = $1) END`

// MemberAppsSQL selects the ids of the apps in which the account $1 has a role.
const MemberAppsSQL = `SELECT id FROM apps WHERE owner_id = $1
	UNION ALL SELECT app_id FROM app_members WHERE account_id = $1`

// A roleRow is a row of appColumns and roleSQL.
type roleRow struct {
	db.Row
	role *Role
}

// Scan scans the columns of the app, and then the role.
func (r roleRow) Scan(dest ...any) error { return r.Row.Scan(append(dest, r.role)...) }

func scanMembership(row db.Row) (m Membership, err error) {
	m.App, _, err = scanApp(roleRow{row, &m.Role})
	return m, err
}

// getMembership returns an app with the role of an account in it. The error is sql.ErrNoRows if there is no such app
// or the account has no role in it.
func getMembership(ctx context.Context, q db.Queryer, appID, accountID string) (Membership, error) {
	return scanMembership(q.QueryRowContext(ctx, `SELECT `+appColumns+`, `+roleSQL+` FROM apps
		WHERE id = $2 AND `+roleSQL+` IS NOT NULL`, accountID, appID))
}

// listMemberships returns the apps in which an account has a role, newest first.
func listMemberships(ctx context.Context, q db.Queryer, accountID string) ([]Membership, error) {
	return db.QueryAll(ctx, q, scanMembership, `SELECT `+appColumns+`, `+roleSQL+` FROM apps
		WHERE id IN (`+MemberAppsSQL+`) ORDER BY id DESC`, accountID)
}
