package accounts

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

func getSessionData(ctx context.Context, q db.Queryer, tokenHash string, nowUS int64) (data []byte, err error) {
	err = q.QueryRowContext(ctx, `SELECT data FROM sessions
		WHERE token_hash = $1 AND expires_us > $2`, tokenHash, nowUS).Scan(&data)
	return data, err
}

func insertSession(ctx context.Context, d *db.DB, tokenHash string, data []byte, b newSession) error {
	_, err := d.ExecContext(ctx, `INSERT INTO sessions (token_hash, data, account_id, pending, agent, started_us,
			seen_us, expires_us)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		tokenHash, data, b.accountID, db.BoolInt(b.proof == ProofPending), b.agent, b.startedUS, b.seenUS, b.expiresUS)
	return err
}

// extendSession moves the end of an existing session. It writes only if the end or the last use
// moves by at least slackUS, to save writes.
func extendSession(ctx context.Context, d *db.DB, tokenHash string, seenUS, expiresUS, slackUS int64) error {
	_, err := d.ExecContext(ctx, `UPDATE sessions SET seen_us = $2, expires_us = $3
		WHERE token_hash = $1 AND (expires_us <= $4 OR seen_us <= $5)`,
		tokenHash, seenUS, expiresUS, expiresUS-slackUS, seenUS-slackUS)
	return err
}

// listSessions reads the live sessions of an account, the last used first.
func listSessions(ctx context.Context, q db.Queryer, accountID string, nowUS int64, limit int) ([]Session, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *Session) []any {
		return []any{&s.ID, &s.Agent, &s.StartedUS, &s.SeenUS}
	}), `SELECT token_hash, agent, started_us, seen_us FROM sessions
		WHERE account_id = $1 AND pending = 0 AND expires_us > $2 ORDER BY seen_us DESC, token_hash LIMIT $3`,
		accountID, nowUS, limit)
}

func deleteSession(ctx context.Context, d *db.DB, tokenHash string) error {
	_, err := d.ExecContext(ctx, `DELETE FROM sessions WHERE token_hash = $1`, tokenHash)
	return err
}

func deleteAccountSession(ctx context.Context, tx *db.Tx, accountID, tokenHash string) (bool, error) {
	res, err := tx.ExecContext(ctx, `DELETE FROM sessions WHERE token_hash = $1 AND account_id = $2`, tokenHash,
		accountID)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func deleteAccountSessions(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM sessions WHERE account_id = $1`, accountID)
	return err
}

func deleteExpiredSessions(ctx context.Context, d *db.DB, nowUS int64) (int64, error) {
	return d.DeleteSlices(ctx, "sessions", `expires_us <= $1`, "expires_us", nowUS)
}
