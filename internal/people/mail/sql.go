package mail

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
)

const mailColumns = `id, account_id, recipient, subject, text, html, unsubscribe, created_us, status, attempts, next_us,
		lease, last_error, done_us, names_others`

func (m *Mail) fields() []any {
	return []any{&m.ID, &m.AccountID, &m.To, &m.Subject, &m.Text, &m.HTML, &m.Unsubscribe, &m.CreatedUS, &m.Status,
		&m.Attempts, &m.NextUS, &m.lease, &m.LastError, &m.DoneUS, &m.namesOthers}
}

// isUndeliverable reports whether mail to an account must be dropped: it is a test account or
// closed.
func isUndeliverable(ctx context.Context, q db.Queryer, accountID string) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT sandbox <> 0 OR closed_us IS NOT NULL FROM accounts
		WHERE id = $1`, accountID).Scan(&yes)
	return yes, err
}

func hasPending(ctx context.Context, q db.Queryer, accountID string) (yes bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM mails WHERE account_id = $1 AND status = 'pending')`,
		accountID).Scan(&yes)
	return yes, err
}

func deleteAccountMail(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM mails WHERE account_id = $1`, accountID)
	return err
}

func insertMail(ctx context.Context, tx *db.Tx, mailID string, m Message, nowUS int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO mails (id, account_id, recipient, subject, text, html, unsubscribe,
			created_us, next_us, urgent, names_others)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		mailID, m.AccountID, m.To, m.Subject, m.Text, m.HTML, m.Unsubscribe, nowUS, nowUS, db.BoolInt(m.Urgent),
		db.BoolInt(m.NamesOthers))
	return err
}

func getMail(ctx context.Context, q db.Queryer, mailID string) (m Mail, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+mailColumns+` FROM mails WHERE id = $1`, mailID).Scan(m.fields()...)
	return m, err
}

func listNewest(ctx context.Context, q db.Queryer, limit int) ([]Mail, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Mail).fields),
		`SELECT `+mailColumns+` FROM mails ORDER BY id DESC LIMIT $1`,
		limit)
}

// A due mail has its turn: its id, when it is due, and how often it was claimed.
type due struct {
	mailID   string
	nextUS   int64
	attempts int64
}

// getNextDue returns the urgent mail that is due longest or, without any, the other one.
func getNextDue(ctx context.Context, q db.Queryer, nowUS int64) (d due, err error) {
	for _, condition := range []string{`AND urgent = 1 `, ``} {
		err = q.QueryRowContext(ctx, `SELECT id, next_us, attempts FROM mails
			WHERE status = 'pending' `+condition+`AND next_us <= $1 ORDER BY next_us, id LIMIT 1`, nowUS).
			Scan(&d.mailID, &d.nextUS, &d.attempts)
		if !errors.Is(err, sql.ErrNoRows) {
			return d, err
		}
	}
	return d, err
}

// leaseMail leases a mail that is still due, and counts the attempt; the error is sql.ErrNoRows when another node has
// leased it.
func leaseMail(ctx context.Context, tx *db.Tx, d due, lease string, untilUS int64) (m Mail, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE mails SET lease = $3, next_us = $4, attempts = attempts + 1
		WHERE id = $1 AND next_us = $2 AND status = 'pending'
		RETURNING `+mailColumns, d.mailID, d.nextUS, lease, untilUS).Scan(m.fields()...)
	return m, err
}

// updateAttempt records an attempt that did not succeed if its lease still holds; otherwise another node records its
// own.
func updateAttempt(ctx context.Context, d *db.DB, m Mail) error {
	_, err := d.ExecContext(ctx,
		`UPDATE mails SET next_us = $3, last_error = $4, attempts = $5, lease = '' WHERE id = $1 AND lease = $2`,
		m.ID, m.lease, m.NextUS, m.LastError, m.Attempts)
	return err
}

// updateDone records that a mail was sent or given up, if the lease of the attempt still holds. Its text leaves the
// table: its links may still work.
func updateDone(ctx context.Context, d *db.DB, m Mail, sealed []byte, nowUS int64) error {
	_, err := d.ExecContext(ctx, `UPDATE mails SET status = $3, next_us = $4, last_error = $5, done_us = $6, lease = '',
			text = '', html = '', sealed = $7
		WHERE id = $1 AND lease = $2`, m.ID, m.lease, m.Status, m.NextUS, m.LastError, nowUS, sealed)
	return err
}

// lockMail reads a mail with its sealed body, and locks it until the transaction ends.
func lockMail(ctx context.Context, tx *db.Tx, mailID string) (m Mail, sealed []byte, err error) {
	err = tx.QueryRowContext(ctx, `SELECT `+mailColumns+`, sealed FROM mails WHERE id = $1`+tx.Engine.ForUpdate(),
		mailID).Scan(append(m.fields(), &sealed)...)
	return m, sealed, err
}

// updateResent makes a mail due now.
func updateResent(ctx context.Context, tx *db.Tx, mailID string, body sealedBody, nowUS int64) error {
	_, err := tx.ExecContext(ctx,
		`UPDATE mails SET status = 'pending', attempts = 0, next_us = $2, done_us = NULL, lease = '',
			text = $3, html = $4, sealed = NULL
		WHERE id = $1`, mailID, nowUS, body.Text, body.HTML)
	return err
}

func listOfAccount(ctx context.Context, q db.Queryer, accountID, after string, limit int) ([]Summary, error) {
	if after == "" {
		after = "~" // behind every id
	}
	return db.QueryAll(ctx, q, db.ScanFields(func(m *Summary) []any {
		return []any{&m.ID, &m.AccountID, &m.Subject, &m.Status, &m.Attempts, &m.LastError, &m.CreatedUS, &m.DoneUS}
	}), `SELECT id, account_id, subject, status, attempts, last_error, created_us, done_us FROM mails
		WHERE account_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, accountID, after, limit)
}

func countPending(ctx context.Context, q db.Queryer) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM mails WHERE status = 'pending'`).Scan(&n)
	return n, err
}

func deleteDoneBefore(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.DeleteSlices(ctx, "mails", `done_us < $1`, "done_us", beforeUS)
	return err
}

// Of a change of the envelope key.
const (
	listSealed    = `SELECT id, sealed FROM mails WHERE id > $1 AND sealed IS NOT NULL ORDER BY id LIMIT $2`
	replaceSealed = `UPDATE mails SET sealed = $1 WHERE id = $2 AND sealed = $3`
)
