package proofs

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// newRows joins accounts with more rows than the log has of them.
const newRows = `FROM balances b LEFT JOIN log_accounts a ON a.account_id = b.account_id
	WHERE b.seq > COALESCE(a.seq, 0)`

// hasPending reports whether the ledger has rows that the log has not.
func hasPending(ctx context.Context, q db.Queryer) (pending bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 `+newRows+`)
		OR EXISTS (SELECT 1 FROM log_state WHERE checkpoint = '')`).Scan(&pending)
	if err != nil {
		return false, fmt.Errorf("proofs: %w", err)
	}
	return pending, nil
}

// lockState returns the newest checkpoint, "" before the first, and keeps other publishers away until the transaction
// ends.
func lockState(ctx context.Context, tx *db.Tx) (checkpoint string, err error) {
	query := `SELECT checkpoint FROM log_state WHERE id = 1` + tx.Engine.ForUpdate()
	err = tx.QueryRowContext(ctx, query).Scan(&checkpoint)
	return checkpoint, err
}

// selectState returns the newest checkpoint, "" before the first.
func selectState(ctx context.Context, q db.Queryer) (checkpoint string, err error) {
	err = q.QueryRowContext(ctx, `SELECT checkpoint FROM log_state WHERE id = 1`).Scan(&checkpoint)
	return checkpoint, err
}

// A pendingRow is a ledger row that the log has not. secret is its account's, nil if the account is new to the log.
type pendingRow struct {
	accountID string
	seq       int64
	hash      string
	secret    []byte
}

// selectPending returns up to limit rows that the log has not, in the order of accounts and their rows.
func selectPending(ctx context.Context, q db.Queryer, limit int) ([]pendingRow, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(p *pendingRow) []any {
		return []any{&p.accountID, &p.seq, &p.hash, &p.secret}
	}), `SELECT l.account_id, l.seq, l.hash, n.secret
		FROM (SELECT b.account_id AS account_id, COALESCE(a.seq, 0) AS seq, a.secret AS secret `+newRows+`
			ORDER BY b.account_id LIMIT $1) n
		JOIN ledger l ON l.account_id = n.account_id AND l.seq > n.seq
		ORDER BY l.account_id, l.seq LIMIT $1`, limit)
}

// saveAccount says that the log has the account's rows up to seq.
func saveAccount(ctx context.Context, tx *db.Tx, accountID string, secret []byte, seq int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO log_accounts (account_id, secret, seq) VALUES ($1, $2, $3)
		ON CONFLICT (account_id) DO UPDATE SET seq = EXCLUDED.seq`, accountID, secret, seq)
	return err
}

// A leaf is a row of log_rows.
type leaf struct {
	position  int64
	accountID string
	seq       int64
	entry     []byte
}

// insertLeaves stores leaves by one statement.
func insertLeaves(ctx context.Context, tx *db.Tx, leaves []leaf) error {
	if len(leaves) == 0 {
		return nil
	}
	var values strings.Builder
	var args []any
	for i, l := range leaves {
		if i > 0 {
			values.WriteByte(',')
		}
		fmt.Fprintf(&values, "($%d, $%d, $%d, $%d)", 4*i+1, 4*i+2, 4*i+3, 4*i+4)
		args = append(args, l.position, l.accountID, l.seq, l.entry)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO log_rows (position, account_id, seq, entry) VALUES `+values.String(),
		args...)
	return err
}

// saveTile stores a tile, or a longer one in its place.
func saveTile(ctx context.Context, tx *db.Tx, level int, position int64, hashes []byte) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO log_tiles (level, position, hashes) VALUES ($1, $2, $3)
		ON CONFLICT (level, position) DO UPDATE SET hashes = EXCLUDED.hashes`, level, position, hashes)
	return err
}

// saveState stores a checkpoint.
func saveState(ctx context.Context, tx *db.Tx, checkpoint string) error {
	_, err := tx.ExecContext(ctx, `UPDATE log_state SET checkpoint = $1 WHERE id = 1`, checkpoint)
	return err
}

// selectTile returns the hashes of a tile; sql.ErrNoRows if there is none.
func selectTile(ctx context.Context, q db.Queryer, level int, position int64) (hashes []byte, err error) {
	err = q.QueryRowContext(ctx, `SELECT hashes FROM log_tiles WHERE level = $1 AND position = $2`,
		level, position).Scan(&hashes)
	return hashes, err
}

// selectEntries returns the entries of n leaves from a position on, fewer at the log's end.
func selectEntries(ctx context.Context, q db.Queryer, position, n int64) ([][]byte, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[[]byte],
		`SELECT entry FROM log_rows WHERE position >= $1 AND position < $2 ORDER BY position`, position, position+n)
}

// selectLeaf returns the leaf of a ledger row and its account's secret; sql.ErrNoRows if the log has not got it yet.
func selectLeaf(ctx context.Context, q db.Queryer, accountID string, seq int64) (l leaf, secret []byte, err error) {
	l.accountID, l.seq = accountID, seq
	err = q.QueryRowContext(ctx, `SELECT r.position, r.entry, a.secret FROM log_rows r
		JOIN log_accounts a ON a.account_id = r.account_id WHERE r.account_id = $1 AND r.seq = $2`,
		accountID, seq).Scan(&l.position, &l.entry, &secret)
	return l, secret, err
}

// selectPublished returns the account's last row in the log; sql.ErrNoRows if it has none.
func selectPublished(ctx context.Context, q db.Queryer, accountID string) (seq int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT seq FROM log_accounts WHERE account_id = $1`, accountID).Scan(&seq)
	return seq, err
}

// selectRows returns an account's rows from seq first to last.
func selectRows(ctx context.Context, q db.Queryer, accountID string, first, last int64) ([]Row, error) {
	return db.QueryAll(ctx, q, scanRow, `SELECT `+rules.EntryColumns+`, hash FROM ledger
		WHERE account_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq`, accountID, first, last)
}

// selectArchivedHash returns the hash of an archived row after which no other one of its account is archived;
// sql.ErrNoRows if it is another one.
func selectArchivedHash(ctx context.Context, q db.Queryer, accountID string, seq int64) (hash string, err error) {
	err = q.QueryRowContext(ctx, `SELECT last_hash FROM ledger_archived_accounts WHERE account_id = $1
		AND last_seq = $2 ORDER BY year DESC LIMIT 1`, accountID, seq).Scan(&hash)
	return hash, err
}

// scanRow reads a row as it is stored, without a notion of what its columns mean.
func scanRow(r db.Row) (row Row, err error) {
	values, into := make([]any, len(columnNames)), make([]any, len(columnNames)+1)
	for i := range values {
		into[i] = &values[i]
	}
	into[len(columnNames)] = &row.Hash
	if err := r.Scan(into...); err != nil {
		return row, err
	}
	for i, name := range columnNames {
		c := Column{Name: name}
		switch v := values[i].(type) {
		case nil:
		case string:
			c.Value = rules.TextColumn(v)
		case int64:
			c.Value = rules.Integer(v)
		default:
			return row, fmt.Errorf("column %s is a %T", name, v)
		}
		row.Columns = append(row.Columns, c)
	}
	return row, nil
}
