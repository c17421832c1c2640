package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/purserhq/purser/internal/base/apierr"
)

// NotFound returns 404 not_found with the message in place of an error that wraps sql.ErrNoRows. It
// returns other errors unchanged.
func NotFound(err error, message string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("%s", message)
	}
	return err
}

// sqlState returns PostgreSQL's SQLSTATE of err, or "".
func sqlState(err error) string {
	if p, ok := errors.AsType[*pgconn.PgError](err); ok {
		return p.Code
	}
	return ""
}

// sqliteCode returns SQLite's extended result code of err, or 0.
func sqliteCode(err error) int {
	if s, ok := errors.AsType[*sqlite.Error](err); ok {
		return s.Code()
	}
	return 0
}

// IsDuplicate reports whether err is a violated unique key.
func IsDuplicate(err error) bool {
	c := sqliteCode(err)
	return sqlState(err) == "23505" || c == sqlite3.SQLITE_CONSTRAINT_UNIQUE ||
		c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY
}

// IsCheckViolation reports whether err is a violated CHECK, which is a bug that the database has caught.
func IsCheckViolation(err error) bool {
	return sqlState(err) == "23514" || sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT_CHECK
}

// IsLocked reports whether a statement of PostgreSQL waited for a lock for longer than it may.
func IsLocked(err error) bool { return sqlState(err) == "55P03" }

// isConflict reports whether the transaction was rolled back because of a conflict and may run again.
func isConflict(err error) bool {
	s := sqlState(err)
	return s == "40001" || s == "40P01"
}

// IsUnavailable reports whether err says that the database is unreachable, full or overloaded, so that the same
// statement may succeed later. A transaction that failed with such an error may have been committed.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	if s := sqlState(err); s != "" {
		return isConflict(err) || isUnavailableState(s)
	}
	if c := sqliteCode(err); c != 0 {
		switch c & 0xff { // the primary code
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
			sqlite3.SQLITE_CANTOPEN:
			return true
		}
		return false
	}
	return isConnectionLost(err)
}

// IsAway reports whether err says that the database as a whole cannot be used now: it is unreachable, full or
// stopping. A conflict or a row that is locked for too long is not.
func IsAway(err error) bool {
	return IsUnavailable(err) && !isConflict(err) && sqlState(err) != "55P03"
}

// errDamaged is what CheckPages found.
var errDamaged = errors.New("database: the file is damaged")

// IsDamaged reports whether err says that a SQLite file is damaged.
func IsDamaged(err error) bool {
	c := sqliteCode(err) & 0xff
	return errors.Is(err, errDamaged) || c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB
}

// isUnavailableState reports whether a SQLSTATE is of class 08 (connection), 53 (resources) or 57P (shutdown), says
// that the server is a standby, or that a time limit of openPostgres was exceeded.
func isUnavailableState(s string) bool {
	return strings.HasPrefix(s, "08") || strings.HasPrefix(s, "53") || strings.HasPrefix(s, "57P") ||
		s == "25006" || s == "25P03" || s == "55P03" || s == "57014"
}

// IsStarting reports whether err says that a PostgreSQL does not accept connections yet.
func IsStarting(err error) bool {
	return sqlState(err) == "57P03" || errors.Is(err, syscall.ECONNREFUSED)
}

func isConnectionLost(err error) bool {
	for _, known := range []error{errNotDurable, driver.ErrBadConn, sql.ErrConnDone, pgconn.ErrConnClosed, io.EOF,
		io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return true
		}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return strings.Contains(err.Error(), "sql: database is closed") // database/sql does not export it
}
