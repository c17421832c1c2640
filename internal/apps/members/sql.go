package members

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
)

func (m *Member) fields() []any {
	return []any{&m.AccountID, &m.Email, &m.Role, &m.InvitedBy, &m.SinceUS}
}

// listMembers returns the members of an app besides its own account, the first to join first.
func listMembers(ctx context.Context, q db.Queryer, appID string) ([]Member, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Member).fields),
		`SELECT m.account_id, a.email, m.role, i.email, m.created_us FROM app_members m
		JOIN accounts a ON a.id = m.account_id JOIN accounts i ON i.id = m.invited_by
		WHERE m.app_id = $1 ORDER BY m.created_us, m.account_id`, appID)
}

// getMember returns a member other than the app's own account; the error is sql.ErrNoRows if there is none.
func getMember(ctx context.Context, q db.Queryer, appID, accountID string) (m Member, err error) {
	err = q.QueryRowContext(ctx, `SELECT m.account_id, a.email, m.role, i.email, m.created_us FROM app_members m
		JOIN accounts a ON a.id = m.account_id JOIN accounts i ON i.id = m.invited_by
		WHERE m.app_id = $1 AND m.account_id = $2`, appID, accountID).Scan(m.fields()...)
	return m, err
}

func countMembers(ctx context.Context, q db.Queryer, appID string) (n int, err error) {
	err = q.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM app_members WHERE app_id = $1) +
		(SELECT COUNT(*) FROM app_invitations WHERE app_id = $1)`, appID).Scan(&n)
	return n, err
}

// insertMember adds a member. An account that is a member already keeps its role.
func insertMember(ctx context.Context, tx *db.Tx, appID, accountID string, role apps.Role, invitedBy string,
	nowUS int64) (added bool, err error) {
	return changed(tx.ExecContext(ctx, `INSERT INTO app_members (app_id, account_id, role, invited_by, created_us)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (app_id, account_id) DO NOTHING`,
		appID, accountID, string(role), invitedBy, nowUS))
}

func updateRole(ctx context.Context, tx *db.Tx, appID, accountID string, role apps.Role) (bool, error) {
	return changed(tx.ExecContext(ctx, `UPDATE app_members SET role = $3
		WHERE app_id = $1 AND account_id = $2 AND role <> $3`, appID, accountID, string(role)))
}

func deleteMember(ctx context.Context, tx *db.Tx, appID, accountID string) (bool, error) {
	return changed(tx.ExecContext(ctx, `DELETE FROM app_members WHERE app_id = $1 AND account_id = $2`,
		appID, accountID))
}

func (i *Invitation) fields() []any {
	return []any{&i.ID, &i.AppID, &i.Email, &i.Role, &i.InviterID, &i.Inviter, &i.CreatedUS, &i.ExpiresUS}
}

const selectInvitation = `SELECT i.id, i.app_id, i.email, i.role, i.invited_by, a.email, i.created_us, i.expires_us
	FROM app_invitations i JOIN accounts a ON a.id = i.invited_by `

// listInvitations returns the invitations of an app, also those that have expired, the oldest first.
func listInvitations(ctx context.Context, q db.Queryer, appID string) ([]Invitation, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Invitation).fields),
		selectInvitation+`WHERE i.app_id = $1 ORDER BY i.id`, appID)
}

// listInvitationsOf returns the invitations to an address, and those that an account has sent.
func listInvitationsOf(ctx context.Context, q db.Queryer, email, accountID string) ([]Invitation, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Invitation).fields),
		selectInvitation+`WHERE i.email = $1 OR i.invited_by = $2 ORDER BY i.id`, email, accountID)
}

// getInvitation returns the invitation of a token that has not expired; the error is sql.ErrNoRows if there is none.
func getInvitation(ctx context.Context, q db.Queryer, tokenHash string, nowUS int64) (i Invitation, err error) {
	err = q.QueryRowContext(ctx, selectInvitation+`WHERE i.token_hash = $1 AND i.expires_us > $2`, tokenHash, nowUS).
		Scan(i.fields()...)
	return i, err
}

// upsertInvitation stores an invitation in place of an earlier one to the same address, whose link ends.
func upsertInvitation(ctx context.Context, tx *db.Tx, i Invitation, tokenHash string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO app_invitations (id, app_id, email, role, token_hash, invited_by,
			created_us, expires_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (app_id, email) DO UPDATE SET id = excluded.id, role = excluded.role,
			token_hash = excluded.token_hash, invited_by = excluded.invited_by, created_us = excluded.created_us,
			expires_us = excluded.expires_us`,
		i.ID, i.AppID, i.Email, string(i.Role), tokenHash, i.InviterID, i.CreatedUS, i.ExpiresUS)
	return err
}

// useInvitation deletes the invitation of a token that has not expired; only one of several callers succeeds.
func useInvitation(ctx context.Context, tx *db.Tx, tokenHash string, nowUS int64) (bool, error) {
	return changed(tx.ExecContext(ctx, `DELETE FROM app_invitations WHERE token_hash = $1 AND expires_us > $2`,
		tokenHash, nowUS))
}

func deleteInvitation(ctx context.Context, tx *db.Tx, appID, invitationID string) (email string, err error) {
	err = tx.QueryRowContext(ctx, `DELETE FROM app_invitations WHERE app_id = $1 AND id = $2 RETURNING email`,
		appID, invitationID).Scan(&email)
	return email, err
}

// deleteInvitationsBy deletes the invitations into an app that an account has sent.
func deleteInvitationsBy(ctx context.Context, tx *db.Tx, appID, inviterID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM app_invitations WHERE app_id = $1 AND invited_by = $2`, appID, inviterID)
	return err
}

// deleteInvitationsOf deletes all invitations that an account has sent.
func deleteInvitationsOf(ctx context.Context, tx *db.Tx, inviterID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM app_invitations WHERE invited_by = $1`, inviterID)
	return err
}

func deleteExpiredInvitations(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.DeleteSlices(ctx, "app_invitations", `expires_us <= $1`, "expires_us", beforeUS)
	return err
}

// deleteOfAccount deletes the memberships of an account, all members of its own apps, and the invitations to its
// address, by it and into its own apps.
func deleteOfAccount(ctx context.Context, tx *db.Tx, accountID, email string) error {
	const own = `app_id IN (SELECT id FROM apps WHERE owner_id = $1)`
	_, err := tx.ExecContext(ctx, `DELETE FROM app_members WHERE account_id = $1 OR `+own, accountID)
	_, failed := tx.ExecContext(ctx, `DELETE FROM app_invitations WHERE invited_by = $1 OR email = $2 OR `+own,
		accountID, email)
	return errors.Join(err, failed)
}

func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// hasInvitation reports whether an address has an open invitation into an app.
func hasInvitation(ctx context.Context, q db.Queryer, email string, nowUS int64) (invited bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM app_invitations WHERE email = $1 AND expires_us > $2)`,
		email, nowUS).Scan(&invited)
	return invited, err
}
