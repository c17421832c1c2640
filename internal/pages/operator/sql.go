package operator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

// logPrefix is that of the ids of log entries.
const logPrefix = "opl_"

// An Entry says what the operator did: never changed, never deleted.
type Entry struct {
	ID              string
	Actor           string // the name of the operator's token, the address of one without, or the account
	Action, Subject string
	Reason          string // "" = none was asked for
	Before, After   json.RawMessage
	CreatedUS       int64
}

func insert(ctx context.Context, tx *db.Tx, e Entry) error {
	_, err := tx.ExecContext(ctx,
		`INSERT INTO operator_log (id, actor, action, subject, reason, before, after, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		e.ID, e.Actor, e.Action, e.Subject, e.Reason, string(e.Before), string(e.After), e.CreatedUS)
	return err
}

// A Filter says which entries are asked for; an empty member asks for all.
type Filter struct{ Actor, Action, Subject string }

// Log returns entries, newest first, from the one behind after on.
func (d *Service) Log(ctx context.Context, f Filter, after string, limit int) ([]Entry, error) {
	list, err := newest(ctx, d.DB, f, after, limit)
	if err != nil {
		return nil, fmt.Errorf("operator: log: %w", err)
	}
	return list, nil
}

func newest(ctx context.Context, q db.Queryer, f Filter, after string, limit int) ([]Entry, error) {
	if after == "" {
		after = "~" // behind every id
	}
	where, args := `id < $1`, []any{after, limit}
	for _, c := range []struct{ column, value string }{
		{"actor", f.Actor},
		{"action", f.Action},
		{"subject", f.Subject},
	} {
		if c.value != "" {
			args = append(args, c.value)
			where += fmt.Sprintf(" AND %s = $%d", c.column, len(args))
		}
	}
	return db.QueryAll(ctx, q, scan,
		`SELECT `+columns+` FROM operator_log WHERE `+where+` ORDER BY id DESC LIMIT $2`, args...)
}

const columns = `id, actor, action, subject, reason, before, after, created_us`

func scan(row db.Row) (e Entry, err error) {
	var before, after string
	err = row.Scan(&e.ID, &e.Actor, &e.Action, &e.Subject, &e.Reason, &before, &after, &e.CreatedUS)
	e.Before, e.After = json.RawMessage(before), json.RawMessage(after)
	return e, err
}

// Entry returns an entry of the log; the error wraps sql.ErrNoRows when there is none.
func (d *Service) Entry(ctx context.Context, entryID string) (Entry, error) {
	e, err := scan(d.DB.QueryRowContext(ctx, `SELECT `+columns+` FROM operator_log WHERE id = $1`, entryID))
	if err != nil {
		return e, fmt.Errorf("operator: log: %w", err)
	}
	return e, nil
}
