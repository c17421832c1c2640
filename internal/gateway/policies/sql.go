package policies

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

const columns = `id, from_us, settings, actor, reason, created_us`

func scan(r db.Row) (v Version, err error) {
	var text string
	if err := r.Scan(&v.ID, &v.FromUS, &text, &v.Actor, &v.Reason, &v.CreatedUS); err != nil {
		return v, err
	}
	if err := json.Unmarshal([]byte(text), &v.Changes); err != nil {
		return v, fmt.Errorf("version %s: %w", v.ID, err)
	}
	return v, nil
}

// selectAll returns all versions in the order of their times; sql.ErrNoRows if there is none.
func selectAll(ctx context.Context, q db.Queryer) ([]Version, error) {
	list, err := db.QueryAll(ctx, q, scan, `SELECT `+columns+` FROM policies ORDER BY from_us`)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return nil, err
	}
	return list, join(list)
}

// lock keeps other changes of the versions away until the transaction ends.
func lock(ctx context.Context, tx *db.Tx) error {
	var one int64
	return tx.QueryRowContext(ctx, `SELECT from_us FROM policies WHERE from_us = 0`+tx.Engine.ForUpdate()).Scan(&one)
}

// insertFirst stores the first version, unless there is one.
func insertFirst(ctx context.Context, tx *db.Tx, v *Version) error {
	return store(ctx, tx, v, ` ON CONFLICT (from_us) DO NOTHING`)
}

func insert(ctx context.Context, tx *db.Tx, v *Version) error { return store(ctx, tx, v, ``) }

func store(ctx context.Context, tx *db.Tx, v *Version, conflict string) error {
	text, err := json.Marshal(v.Changes)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO policies (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6)`+conflict,
		v.ID, v.FromUS, string(text), v.Actor, v.Reason, v.CreatedUS)
	return err
}

func deleteOne(ctx context.Context, tx *db.Tx, versionID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM policies WHERE id = $1`, versionID)
	return err
}

// deleteFrom removes the versions from a time on.
func deleteFrom(ctx context.Context, tx *db.Tx, fromUS int64) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM policies WHERE from_us >= $1`, fromUS)
	return err
}
