package accounts

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

func insertEvent(ctx context.Context, tx *db.Tx, e Event) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO security_events (id, account_id, kind, address, agent, created_us)
		VALUES ($1, $2, $3, $4, $5, $6)`,
		e.ID, e.AccountID, string(e.Kind), e.Address, e.Agent, e.CreatedUS)
	return err
}

// insertQueuedEvents is insertEvent for events that may be written already, or whose account may be gone: those must
// not keep the others from being written. An account that is closed gets none, because the events of another node are
// written later than its closing has erased them. The lock waits for a transaction that is closing it.
func insertQueuedEvents(ctx context.Context, tx *db.Tx, list []Event) error {
	var values strings.Builder
	args := make([]any, 0, 6*len(list))
	for i, e := range list {
		if i > 0 {
			values.WriteByte(',')
		}
		n := len(args)
		fmt.Fprintf(&values, `($%d, $%d, $%d, $%d, $%d, CAST($%d AS BIGINT))`, n+1, n+2, n+3, n+4, n+5, n+6)
		args = append(args, e.ID, e.AccountID, string(e.Kind), e.Address, e.Agent, e.CreatedUS)
	}
	_, err := tx.ExecContext(ctx, `WITH new(id, account_id, kind, address, agent, created_us) AS (
			VALUES `+values.String()+`)
		INSERT INTO security_events (id, account_id, kind, address, agent, created_us)
		SELECT new.id, a.id, new.kind, new.address, new.agent, new.created_us
		FROM new JOIN accounts a ON a.id = new.account_id
		WHERE a.closed_us IS NULL`+tx.Engine.ForShare()+`
		ON CONFLICT (id) DO NOTHING`, args...)
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

// listWrongCodes reads the wrong codes of an account with ids from from, without those before the last password. They
// are bounded, and so are the failed sign-ins of a day among them.
func listWrongCodes(ctx context.Context, q db.Queryer, accountID, from string) ([]Event, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(e *Event) []any {
		return []any{&e.ID, &e.AccountID, &e.Kind, &e.Address, &e.Agent, &e.CreatedUS}
	}), `SELECT id, account_id, kind, address, agent, created_us FROM security_events
		WHERE account_id = $1 AND id >= $2 AND kind = $3 AND id > COALESCE((SELECT MAX(id) FROM security_events
			WHERE account_id = $1 AND id >= $2 AND kind = $4), '')
		ORDER BY id DESC LIMIT 1000`, accountID, from, string(CodeFailed), string(PasswordChanged))
}

// maxErased is how many security events of an account one transaction deletes. Strangers' failed sign-ins may have made
// a hundred thousand of them.
const maxErased = 200

// deleteSomeEvents deletes at most maxErased security events of an account, the newest, and reports whether there are
// no more.
func deleteSomeEvents(ctx context.Context, tx *db.Tx, accountID string) (done bool, err error) {
	r, err := tx.ExecContext(ctx, `DELETE FROM security_events WHERE id IN (SELECT id FROM security_events
		WHERE account_id = $1 ORDER BY id DESC LIMIT $2)`, accountID, maxErased)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n < maxErased, err
}

// eraseEvents deletes the security events of an account that closes. Of many it leaves some to eraseClosed.
func eraseEvents(ctx context.Context, tx *db.Tx, accountID string) error {
	done, err := deleteSomeEvents(ctx, tx, accountID)
	if err != nil || done {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO erasures (account_id) VALUES ($1)`, accountID)
	return err
}

// eraseClosed deletes the security events that closed accounts still have, but for that of the closing.
func eraseClosed(ctx context.Context, d *db.DB) error {
	list, err := db.QueryAll(ctx, d, db.ScanColumn[string], `SELECT account_id FROM erasures ORDER BY account_id
		LIMIT 1000`)
	if err != nil {
		return err
	}
	for _, accountID := range list {
		if err := deleteOldEvents(ctx, d, accountID); err != nil {
			return err
		}
		// Another node that deletes the same rows may not have committed, and ours ended early.
		_, err := d.ExecContext(ctx, `DELETE FROM erasures WHERE account_id = $1 AND NOT EXISTS (
			SELECT 1 FROM security_events WHERE account_id = $1 AND kind <> $2)`, accountID, string(AccountClosed))
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteOldEvents deletes the security events of an account in slices, but for that of its closing. BETWEEN gives
// PostgreSQL the index that begins with the account: an order by one value is none for it.
func deleteOldEvents(ctx context.Context, d *db.DB, accountID string) error {
	_, err := d.DeleteSlices(ctx, "security_events", `account_id BETWEEN $1 AND $1 AND kind <> $2`, "account_id, id",
		accountID, string(AccountClosed))
	return err
}

func deleteEventsBefore(ctx context.Context, d *db.DB, beforeUS int64) error {
	_, err := d.DeleteSlices(ctx, "security_events", `created_us < $1`, "created_us", beforeUS)
	return err
}
