package mail

import (
	"context"
	"database/sql"

	"github.com/purserhq/purser/internal/base/db"
)

const columns = `id, account_id, recipient, subject, text, html, unsubscribe, created_us, status, attempts, next_us, lease, last_error, done_us`

func (m *Mail) fields() []any {
	return []any{&m.ID, &m.AccountID, &m.To, &m.Subject, &m.Text, &m.HTML, &m.Unsubscribe, &m.CreatedUS, &m.Status, &m.Attempts, &m.NextUS, &m.lease, &m.LastError, &m.DoneUS}
}

// isNobody reports whether nobody reads the mail of an account.
func isNobody(ctx context.Context, q db.Queryer, accountID string) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT sandbox <> 0 OR closed_us IS NOT NULL FROM accounts WHERE id = $1`, accountID).Scan(&yes)
	return yes, err
}

func erase(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM mails WHERE account_id = $1`, accountID)
	return err
}

func insert(ctx context.Context, tx *db.Tx, mailID string, m Message, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO mails (id, account_id, recipient, subject, text, html, unsubscribe, created_us, next_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		mailID, m.AccountID, m.To, m.Subject, m.Text, m.HTML, m.Unsubscribe, nowUS, nowUS)
	return err
}

func get(ctx context.Context, q db.Queryer, mailID string) (m Mail, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+columns+` FROM mails WHERE id = $1`, mailID).Scan(m.fields()...)
	return m, err
}

func newest(ctx context.Context, q db.Queryer, limit int) ([]Mail, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Mail).fields),
		`SELECT `+columns+` FROM mails ORDER BY id DESC LIMIT $1`, limit)
}

// due names the mail that has waited longest, and the turn that it waits for.
func due(ctx context.Context, q db.Queryer, nowUS int64) (mailID string, nextUS int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT id, next_us FROM mails WHERE status = 'pending' AND next_us <= $1 ORDER BY next_us, id LIMIT 1`, nowUS).Scan(&mailID, &nextUS)
	return mailID, nextUS, err
}

// take claims a mail whose turn is still turnUS; it is sql.ErrNoRows when somebody was faster.
func take(ctx context.Context, tx *db.Tx, mailID string, turnUS int64, lease string, untilUS int64) (m Mail, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE mails SET lease = $3, next_us = $4, attempts = attempts + 1
		WHERE id = $1 AND next_us = $2 AND status = 'pending' RETURNING `+columns, mailID, turnUS, lease, untilUS).Scan(m.fields()...)
	return m, err
}

// finish records how an attempt ended, if its lease still holds: who was given the
// mail meanwhile records an end of its own.
func finish(ctx context.Context, d *db.DB, m Mail, nowUS int64) error {
	done := sql.NullInt64{Int64: nowUS, Valid: m.Status != Pending}
	_, err := d.ExecContext(ctx, `UPDATE mails SET status = $3, next_us = $4, last_error = $5, done_us = $6, lease = '' WHERE id = $1 AND lease = $2`,
		m.ID, m.lease, m.Status, m.NextUS, m.LastError, done)
	return err
}

func countPending(ctx context.Context, q db.Queryer) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM mails WHERE status = 'pending'`).Scan(&n)
	return n, err
}

func purge(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.ExecContext(ctx, `DELETE FROM mails WHERE done_us < $1`, beforeUS)
	return err
}
