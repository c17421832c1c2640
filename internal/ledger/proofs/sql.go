package proofs

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// accountsPerStep is of how many accounts one statement looks whether they have rows that the log has not. Ids of
// accounts rise with time, so that accounts in their order are close together.
const accountsPerStep = 2000

// findNew returns the first accounts after one that have rows which the log has not, in the order of their ids, at most
// limit; none = there are none from there on.
func (p *Publisher) findNew(ctx context.Context, after string, limit int) (found []string, err error) {
	for {
		var n, fresh int64
		var last string
		err := p.DB.InTurn(ctx, func() error {
			return p.DB.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MAX(b.account_id), ''),
					COALESCE(SUM(CASE WHEN b.seq > COALESCE(a.seq, 0) THEN 1 ELSE 0 END), 0)
				FROM (SELECT account_id, seq FROM balances WHERE account_id > $1 ORDER BY account_id LIMIT $2) AS b
				LEFT JOIN log_accounts a ON a.account_id = b.account_id`, after, accountsPerStep).
				Scan(&n, &last, &fresh)
		})
		if err != nil || n == 0 {
			return found, err
		}
		if fresh > 0 {
			step, err := db.QueryAll(ctx, p.DB, db.ScanColumn[string], `SELECT b.account_id
				FROM balances b LEFT JOIN log_accounts a ON a.account_id = b.account_id
				WHERE b.account_id > $1 AND b.account_id <= $2 AND b.seq > COALESCE(a.seq, 0)
				ORDER BY b.account_id LIMIT $3`, after, last, limit-len(found))
			if found = append(found, step...); err != nil || len(found) >= limit {
				return found, err
			}
		}
		after = last
	}
}

// hasCheckpoint reports whether the log has one.
func hasCheckpoint(ctx context.Context, q db.Queryer) (bool, error) {
	checkpoint, err := selectState(ctx, q)
	return checkpoint != "", err
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

// selectPending returns up to limit rows of accounts that the log has not, in the order of the accounts and their rows.
// Rows are numbered without gaps, so it knows which ones it needs before it reads them: an account may have millions.
func selectPending(ctx context.Context, q db.Queryer, accounts []string, limit int) (list []pendingRow, err error) {
	if len(accounts) == 0 {
		return nil, nil
	}
	ids, places := make([]any, len(accounts)), make([]string, len(accounts))
	for i, accountID := range accounts {
		ids[i], places[i] = accountID, fmt.Sprintf("$%d", i+1)
	}
	type account struct {
		id          string
		first, last int64 // row numbers: after the first, up to the last
		secret      []byte
	}
	pending, err := db.QueryAll(ctx, q, db.ScanFields(func(a *account) []any {
		return []any{&a.id, &a.first, &a.last, &a.secret}
	}), `SELECT b.account_id, COALESCE(a.seq, 0), b.seq, a.secret
		FROM balances b LEFT JOIN log_accounts a ON a.account_id = b.account_id
		WHERE b.account_id IN (`+strings.Join(places, ", ")+`) AND b.seq > COALESCE(a.seq, 0)
		ORDER BY b.account_id`, ids...)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	var ranges []any
	secrets, room := map[string][]byte{}, int64(limit)
	for _, a := range pending {
		if room <= 0 {
			break
		}
		a.last = min(a.last, a.first+room)
		room -= a.last - a.first
		ranges = append(ranges, a.id, a.first, a.last)
		secrets[a.id] = a.secret
	}
	return db.QueryAll(ctx, q, func(r db.Row) (p pendingRow, err error) {
		err = r.Scan(&p.accountID, &p.seq, &p.hash)
		p.secret = secrets[p.accountID]
		return p, err
	}, `WITH n(account_id, first, last) AS (VALUES `+typedPlaces(len(ranges)/3)+`)
		SELECT l.account_id, l.seq, l.hash FROM n
		JOIN ledger l ON l.account_id = n.account_id AND l.seq > n.first AND l.seq <= n.last
		ORDER BY l.account_id, l.seq`, ranges...)
}

// typedPlaces returns the places of so many ranges of accounts.
func typedPlaces(n int) string {
	places := make([]string, n)
	for i := range places {
		places[i] = fmt.Sprintf("($%d, CAST($%d AS BIGINT), CAST($%d AS BIGINT))", 3*i+1, 3*i+2, 3*i+3)
	}
	return strings.Join(places, ", ")
}

// saveAccounts says up to which row the log has the rows of accounts. values are each account's id, secret and row.
func saveAccounts(ctx context.Context, tx *db.Tx, values []any) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO log_accounts (account_id, secret, seq)
		VALUES `+db.Places(len(values)/3, 3)+`
		ON CONFLICT (account_id) DO UPDATE SET seq = EXCLUDED.seq`, values...)
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
	var args []any
	for _, l := range leaves {
		args = append(args, l.position, l.accountID, l.seq, l.entry)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO log_rows (position, account_id, seq, entry)
		VALUES `+db.Places(len(leaves), 4), args...)
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

// selectRows returns an account's rows from seq first to last. PostgreSQL takes the numbers of an account's rows for
// those of all accounts, most of which have few: only the limit tells it that so many rows are not half of the ledger.
func selectRows(ctx context.Context, q db.Queryer, accountID string, first, last int64) ([]Row, error) {
	return db.QueryAll(ctx, q, scanRow, `SELECT `+rules.EntryColumns+`, hash FROM ledger
		WHERE account_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq LIMIT $4`, accountID, first, last, last-first+1)
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

// selectIndexed returns the newest checkpoint, "" before the first, and how many leaves are indexed.
func selectIndexed(ctx context.Context, q db.Queryer) (checkpoint string, indexed int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT checkpoint, calls FROM log_state WHERE id = 1`).Scan(&checkpoint, &indexed)
	return checkpoint, indexed, err
}

// indexCalls notes the calls among the leaves from a position up to another.
func indexCalls(ctx context.Context, tx *db.Tx, from, to int64) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO log_calls (app_id, position, entry_id)
		SELECT l.app_id, r.position, l.id FROM log_rows r CROSS JOIN ledger l
		WHERE r.position >= $1 AND r.position < $2 AND l.account_id = r.account_id AND l.seq = r.seq
			AND l.type = 'spend'`, from, to); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE log_state SET calls = $1 WHERE id = 1`, to)
	return err
}

// A loggedCall is a row of log_calls.
type loggedCall struct {
	position int64
	entryID  string
}

// selectCalls returns an app's calls among the leaves from a position up to another.
func selectCalls(ctx context.Context, q db.Queryer, appID string, from, to int64, limit int) ([]loggedCall, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(c *loggedCall) []any {
		return []any{&c.position, &c.entryID}
	}), `SELECT position, entry_id FROM log_calls WHERE app_id = $1 AND position >= $2 AND position < $3
		ORDER BY position LIMIT $4`, appID, from, to, limit)
}
