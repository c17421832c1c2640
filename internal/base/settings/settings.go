// Package settings stores the few values that a database has once for all its nodes, in the table settings: a name
// and a text.
package settings

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/db"
)

// Restored is the name of the setting that says when the database was restored from a backup. The reconciliation with
// Stripe that follows clears it.
const Restored = "restored"

// DatabaseID is the name of the setting that has the id of the database. A copy of it, such as a restored backup, gets
// another, so that what belongs to two databases never has one name.
const DatabaseID = "database_id"

// Development is the name of the setting that every database of purser dev has: its money is not real.
const Development = "dev"

// ClockAhead is the name of the setting that says by how many microseconds the clock of purser dev is ahead of that of
// the machine, or of PostgreSQL.
const ClockAhead = "dev_clock_ahead"

// ParseClockAhead reads the value of ClockAhead. "" is no time.
func ParseClockAhead(value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	us, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the setting %s: %w", ClockAhead, err)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// StripeMode is the name of the setting that says in which mode of Stripe, test or live, the payments were made.
const StripeMode = "stripe_mode"

// StripeAccount is the name of the setting that has the id of our account at Stripe.
const StripeAccount = "stripe_account"

// Keep stores value under name, unless the database has one already, and returns the value that it has then. Of
// several nodes that start together, one wins.
func Keep(ctx context.Context, d *db.DB, name, value string) (kept string, err error) {
	if err := create(ctx, d, name, value); err != nil {
		return "", err
	}
	err = d.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = $1`, name).Scan(&kept)
	return kept, err
}

// Get returns the value under name, or "" if there is none.
func Get(ctx context.Context, q db.Queryer, name string) (value string, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(value), '') FROM settings WHERE name = $1`, name).Scan(&value)
	return value, err
}

// Lock returns the value under name, or "" if there was none, and locks it until the transaction ends, so that no
// other node locks or changes it before.
func Lock(ctx context.Context, tx *db.Tx, name string) (value string, err error) {
	if err := create(ctx, tx, name, ""); err != nil {
		return "", err
	}
	query := `SELECT value FROM settings WHERE name = $1` + tx.Engine.ForUpdate()
	err = tx.QueryRowContext(ctx, query, name).Scan(&value)
	return value, err
}

// Set changes a value that Lock has locked.
func Set(ctx context.Context, tx *db.Tx, name, value string) error {
	_, err := tx.ExecContext(ctx, `UPDATE settings SET value = $2 WHERE name = $1`, name, value)
	return err
}

// Clear removes a value.
func Clear(ctx context.Context, tx *db.Tx, name string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM settings WHERE name = $1`, name)
	return err
}

func create(ctx context.Context, q db.Execer, name, value string) error {
	_, err := q.ExecContext(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`,
		name, value)
	return err
}
