package db

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Engine is the kind of database.
type Engine string

// The engines that Purser runs on.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// ForUpdate is the suffix of a SELECT that locks its rows. On SQLite a write
// transaction has the whole file anyway.
func (e Engine) ForUpdate() string {
	if e == Postgres {
		return " FOR UPDATE"
	}
	return ""
}

func (e Engine) dialect() goose.Dialect {
	if e == Postgres {
		return goose.DialectPostgres
	}
	return goose.DialectSQLite3
}

func (e Engine) snapshot() sql.IsolationLevel {
	if e == Postgres {
		return sql.LevelRepeatableRead
	}
	return sql.LevelDefault // a read transaction in WAL mode sees one state
}

// guards make the database itself refuse to change or delete ledger rows.
func (e Engine) guards() []string {
	if e == Postgres {
		return []string{
			`CREATE OR REPLACE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$`,
			`CREATE OR REPLACE TRIGGER ledger_no_change BEFORE UPDATE OR DELETE ON ledger FOR EACH ROW EXECUTE FUNCTION ledger_is_append_only()`,
			`CREATE OR REPLACE TRIGGER ledger_no_truncate BEFORE TRUNCATE ON ledger FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()`,
		}
	}
	return []string{
		`CREATE TRIGGER IF NOT EXISTS ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END`,
		`CREATE TRIGGER IF NOT EXISTS ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END`,
	}
}

// open opens the pools of the store at target: "sqlite:PATH" or "postgres://…".
func open(target string, readOnly bool) (*DB, error) {
	if strings.HasPrefix(target, "postgres://") || strings.HasPrefix(target, "postgresql://") {
		return openPostgres(target)
	}
	if path, ok := strings.CutPrefix(target, "sqlite:"); ok && path != "" {
		return openSQLite(path, readOnly)
	}
	return nil, errors.New("database: must be sqlite:PATH or postgres://…")
}

func openPostgres(target string) (*DB, error) {
	d := &DB{Engine: Postgres}
	var err error
	if d.write, err = sql.Open("pgx", target); err != nil {
		return nil, fmt.Errorf("database: %w", redact(err))
	}
	if d.read, err = sql.Open("pgx", target); err != nil {
		return nil, fmt.Errorf("database: %w", redact(err))
	}
	for _, pool := range []*sql.DB{d.read, d.write} {
		pool.SetMaxOpenConns(16)
		pool.SetMaxIdleConns(16)
	}
	return d, nil
}

// redact keeps a password in a URL out of the message.
func redact(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// openSQLite opens one connection that writes and a pool that reads. WAL lets
// both work at once; synchronous=FULL makes a commit survive a power cut.
func openSQLite(path string, readOnly bool) (*DB, error) {
	d := &DB{Engine: SQLite}
	file := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}).String()
	var err error
	if readOnly {
		d.read, err = sql.Open("sqlite", file+"?mode=ro&_pragma=busy_timeout(10000)&_pragma=query_only(1)")
		return d, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if d.lock, err = lockFile(path); err != nil {
		return nil, err
	}
	// A checkpoint every 4,000 pages (16 MB) keeps the WAL small without
	// stalling writers often; 64 MB of cache keep the hot pages in memory.
	const common = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(1)&_pragma=wal_autocheckpoint(4000)"
	if d.write, err = sql.Open("sqlite", file+common+"&_pragma=cache_size(-32768)&_txlock=immediate"); err != nil {
		return nil, err
	}
	d.write.SetMaxOpenConns(1)
	d.write.SetMaxIdleConns(1)
	if d.read, err = sql.Open("sqlite", file+common+"&_pragma=query_only(1)"); err != nil {
		return nil, err
	}
	d.read.SetMaxOpenConns(8)
	d.read.SetMaxIdleConns(8)
	return d, nil
}

// lockFile makes this process the only server of the file. The kernel gives the
// lock free when the process dies.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %s is in use by another purser; stop it, or share a PostgreSQL instead", path), f.Close())
	}
	return f, nil
}

// sqlState returns PostgreSQL's code of err, "" if there is none.
func sqlState(err error) string {
	var p *pgconn.PgError
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

func sqliteCode(err error) int {
	var s *sqlite.Error
	if errors.As(err, &s) {
		return s.Code()
	}
	return 0
}

// IsDuplicate reports whether err is a violated unique key.
func IsDuplicate(err error) bool {
	c := sqliteCode(err)
	return sqlState(err) == "23505" || c == sqlite3.SQLITE_CONSTRAINT_UNIQUE || c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsCheck reports whether err is a violated CHECK: a bug that the database caught.
func IsCheck(err error) bool {
	return sqlState(err) == "23514" || sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_CHECK
}

// isConflict reports whether the transaction lost a conflict and may run again.
func isConflict(err error) bool {
	s := sqlState(err)
	return s == "40001" || s == "40P01"
}

// IsUnavailable reports whether err says that the database is away, full or
// overloaded: trying again later may help, and nothing is known to be wrong.
func IsUnavailable(err error) bool {
	if err == nil {
		return false
	}
	if s := sqlState(err); s != "" {
		return strings.HasPrefix(s, "08") || strings.HasPrefix(s, "53") || strings.HasPrefix(s, "57P") || s == "25006" || s == "57014" || isConflict(err)
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
