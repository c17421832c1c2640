package notices

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

func insertDigestRun(ctx context.Context, d *db.DB, week string) error {
	_, err := d.ExecContext(ctx, `INSERT INTO digest_runs (week, after_account, done) VALUES ($1, '', 0)
		ON CONFLICT (week) DO NOTHING`, week)
	return err
}

func getDigestRun(ctx context.Context, q db.Queryer, week string) (after string, done bool, err error) {
	err = q.QueryRowContext(ctx, `SELECT after_account, done <> 0 FROM digest_runs WHERE week = $1`, week).
		Scan(&after, &done)
	return after, done, err
}

// moveDigestRun moves the position of a week from one account to another. It reports false if another node has moved
// it.
func moveDigestRun(ctx context.Context, tx *db.Tx, week, from, to string, done bool) (moved bool, err error) {
	res, err := tx.ExecContext(ctx, `UPDATE digest_runs SET after_account = $3, done = $4
		WHERE week = $1 AND after_account = $2 AND done = 0`, week, from, to, db.BoolInt(done))
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
