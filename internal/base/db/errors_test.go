package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const session = `INSERT INTO sessions (token_hash, data, expires_us) VALUES ('a', '', 0)`
		if _, err := d.ExecContext(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			text                          string
			duplicate, check, unavailable bool
		}{
			{text: session, duplicate: true},
			{
				text: `INSERT INTO balances (account_id, sandbox, available_mc, reserved_mc, seq, head)
				VALUES ('a', 0, -1, 0, 0, '')`,
				check: true,
			},
			{
				text: `INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models,
					tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
				VALUES ('a', 'nobody', '', '', '', '', '', 'sandbox', 'mock', '', 0, 0)`,
			}, // a foreign key
			{text: `INSERT INTO nothing VALUES (1)`},
			{text: `UPDATE sessions SET expires_us = "x"`}, // no text on either engine
		} {
			_, err := d.ExecContext(t.Context(), c.text)
			if err == nil {
				t.Errorf("%s: no error", c.text)
			}
			err = fmt.Errorf("wrapped: %w", err)
			if db.IsDuplicate(err) != c.duplicate || db.IsCheckViolation(err) != c.check ||
				db.IsUnavailable(err) != c.unavailable {
				t.Errorf("%v: duplicate %v, check %v, unavailable %v", err, db.IsDuplicate(err),
					db.IsCheckViolation(err), db.IsUnavailable(err))
			}
		}
	})
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("a bug"), false},
		{sql.ErrNoRows, false},
		{context.Canceled, false}, // the client's doing
		{context.DeadlineExceeded, true},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true},
		{&pgconn.PgError{Code: "57P01"}, true}, // admin_shutdown
		{&pgconn.PgError{Code: "57P03"}, true}, // cannot_connect_now
		{&pgconn.PgError{Code: "08006"}, true}, // connection_failure
		{&pgconn.PgError{Code: "53300"}, true}, // too_many_connections
		{&pgconn.PgError{Code: "53100"}, true}, // disk_full
		{&pgconn.PgError{Code: "25006"}, true}, // read_only_sql_transaction
		{&pgconn.PgError{Code: "55P03"}, true}, // lock_not_available
		{&pgconn.PgError{Code: "57014"}, true}, // query_canceled by statement_timeout
		{&pgconn.PgError{Code: "40001"}, true}, // every retry lost
		{&pgconn.PgError{Code: "23514"}, false},
		{&pgconn.PgError{Code: "42P01"}, false},
		{&pgconn.PgError{Code: "28P01"}, false}, // wrong password: waiting does not help
	} {
		if got := db.IsUnavailable(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestTransactionOutOfTime: database/sql rolls a transaction back when its time is over, and its next statement says
// only that it has ended. The caller still hears that the database was too slow, or that its own client has left.
func TestTransactionOutOfTime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		use := func(ctx context.Context) error {
			return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				<-ctx.Done()
				for {
					if _, err := tx.ExecContext(context.Background(), `SELECT 1`); errors.Is(err, sql.ErrTxDone) {
						return fmt.Errorf("the second statement: %w", err)
					}
				}
			})
		}
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := use(short); !db.IsUnavailable(err) {
			t.Errorf("out of time: %v", err)
		}
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, leave)
		if err := use(left); !errors.Is(err, context.Canceled) || db.IsUnavailable(err) {
			t.Errorf("the client has left: %v", err)
		}
	})
}

// TestDatabaseGoesAway makes real databases unavailable.
func TestDatabaseGoesAway(t *testing.T) {
	t.Parallel()
	write := func(ctx context.Context, tx *db.Tx) error { return save(ctx, tx, "x") }
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if err := d.InTx(t.Context(), write); !db.IsUnavailable(err) {
				t.Error(err)
			}
		})
	})
	t.Run("terminated", func(t *testing.T) {
		t.Parallel()
		d := dbtest.Open(t, db.Postgres)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			var pid int
			if err := tx.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
				return err
			}
			const terminate = `SELECT pid FROM pg_stat_activity, pg_terminate_backend(pid, 5000) WHERE pid = $1`
			if err := d.QueryRowContext(ctx, terminate, pid).Scan(&pid); err != nil {
				return err
			}
			return save(ctx, tx, "x")
		})
		if !db.IsUnavailable(err) {
			t.Error(err)
		}
		if err := d.InTx(t.Context(), write); err != nil {
			t.Errorf("the pool does not recover: %v", err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Open(t.Context(), "postgres://u:p@"+address+"/d"); !db.IsUnavailable(err) {
			t.Error(err)
		}
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		d := dbtest.Open(t, db.SQLite)
		if _, err := d.ExecContext(t.Context(), `PRAGMA max_page_count = 1`); err != nil { // as many as it has
			t.Fatal(err)
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			const insert = `INSERT INTO sessions (token_hash, data, expires_us) VALUES ('x', $1, 0)`
			_, err := tx.ExecContext(ctx, insert, make([]byte, 1<<20))
			return err
		})
		if !db.IsUnavailable(err) {
			t.Error(err)
		}
		if _, err := d.ExecContext(t.Context(), `PRAGMA max_page_count = 1000000`); err != nil {
			t.Fatal(err)
		}
		if err := d.InTx(t.Context(), write); err != nil {
			t.Errorf("room again, and still no writing: %v", err)
		}
	})
}
