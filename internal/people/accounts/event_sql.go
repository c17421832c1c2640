package accounts

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

func insertEvent(ctx context.Context, tx *db.Tx, e Event) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO security_events (id, account_id, kind, address, agent, created_us)
		VALUES ($1, $2, $3, $4, $5, $6)`,
		e.ID, e.AccountID, string(e.Kind), e.Address, e.Agent, e.CreatedUS)
	return err
}

// insertQueuedEvent is insertEvent for an event that may be written already, or whose account may be gone: it must not
// keep the others from being written. An account that is closed gets none, because the events of another node are
// written later than its closing has erased them. The lock waits for a transaction that is closing it.
func insertQueuedEvent(ctx context.Context, tx *db.Tx, e Event) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO security_events (id, account_id, kind, address, agent, created_us)
		SELECT CAST($1 AS TEXT), id, CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS BIGINT)
		FROM accounts WHERE id = $2 AND closed_us IS NULL`+tx.Engine.ForShare()+`
		ON CONFLICT (id) DO NOTHING`,
		e.ID, e.AccountID, string(e.Kind), e.Address, e.Agent, e.CreatedUS)
	return err
}

func listEvents(ctx context.Context, q db.Queryer, accountID string, limit int) ([]Event, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(e *Event) []any {
		return []any{&e.ID, &e.AccountID, &e.Kind, &e.Address, &e.Agent, &e.CreatedUS}
	}), `SELECT id, account_id, kind, address, agent, created_us FROM security_events
		WHERE account_id = $1 ORDER BY id DESC LIMIT $2`, accountID, limit)
}

// listSignInAddresses reads the addresses of the last sign-ins of an account.
func listSignInAddresses(ctx context.Context, q db.Queryer, accountID string, limit int) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT address FROM security_events
		WHERE account_id = $1 AND kind = 'signed-in' ORDER BY id DESC LIMIT $2`, accountID, limit)
}

func deleteAccountEvents(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM security_events WHERE account_id = $1`, accountID)
	return err
}

func deleteEventsBefore(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.DeleteSlices(ctx, "security_events", `created_us < $1`, beforeUS)
	return err
}
