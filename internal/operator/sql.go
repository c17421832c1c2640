package operator

import (
	"context"
	"encoding/json"
	"errors"

	"purser/internal/db"
)

// logPrefix is that of the ids of log entries.
const logPrefix = "opl_"

// An Entry says what the operator did: never changed, never deleted.
type Entry struct {
	ID              string
	Actor           string // the address that sent the operator's token
	Action, Subject string
	Reason          string // "" = none was asked for
	Before, After   json.RawMessage
	CreatedUS       int64
}

func insert(ctx context.Context, tx *db.Tx, e Entry) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO operator_log (id, actor, action, subject, reason, before, after, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		e.ID, e.Actor, e.Action, e.Subject, e.Reason, string(e.Before), string(e.After), e.CreatedUS)
	return err
}

// newest returns entries, newest first, from the one behind after on.
func newest(ctx context.Context, q db.Queryer, after string, limit int) (list []Entry, err error) {
	rows, err := q.QueryContext(ctx, `SELECT id, actor, action, subject, reason, before, after, created_us FROM operator_log WHERE $1 = '' OR id < $1 ORDER BY id DESC LIMIT $2`, after, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e Entry
		var before, after string
		if err := rows.Scan(&e.ID, &e.Actor, &e.Action, &e.Subject, &e.Reason, &before, &after, &e.CreatedUS); err != nil {
			return nil, err
		}
		e.Before, e.After = json.RawMessage(before), json.RawMessage(after)
		list = append(list, e)
	}
	return list, rows.Err()
}
