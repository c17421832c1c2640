package backup

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/rowfile"
)

// selectAll returns the query for all rows of a table.
func selectAll(table string) string { return `SELECT * FROM ` + table }

// checkColumns returns an error unless a table has exactly these columns, in any order.
func checkColumns(ctx context.Context, tx *db.Tx, table string, columns []string) (err error) {
	rows, err := tx.QueryContext(ctx, `SELECT * FROM `+table+` LIMIT 0`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	have, err := rows.Columns()
	if err != nil {
		return err
	}
	if !slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(columns))) {
		return fmt.Errorf("%w: its columns differ from those of the schema", rowfile.ErrDamaged)
	}
	return rows.Err()
}

// sumHeads reads the newest row of each hash chain.
func sumHeads(ctx context.Context, tx *db.Tx) (h Heads, err error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT account_id, seq, head FROM balances ORDER BY account_id`+tx.Engine.OrderBytes())
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	digest := sha256.New()
	for ; rows.Next(); h.Accounts++ {
		var account, head string
		var seq int64
		if err := rows.Scan(&account, &seq, &head); err != nil {
			return h, err
		}
		h.Entries += seq
		fmt.Fprintf(digest, "%s %d %s\n", account, seq, head)
	}
	if err := rows.Err(); err != nil {
		return h, err
	}
	h.Digest = hex.EncodeToString(digest.Sum(nil))
	return h, nil
}

// findNewestEntry returns the time of the newest ledger row; 0 = there is none.
func findNewestEntry(ctx context.Context, tx *db.Tx) (createdUS int64, err error) {
	var newest sql.NullInt64
	err = tx.QueryRowContext(ctx, `SELECT MAX(created_us) FROM ledger`).Scan(&newest)
	return newest.Int64, err
}
