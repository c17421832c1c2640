package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver sqlite
)

// errURL answers a URL that names no store.
var errURL = errors.New("database: must be sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME")

// open makes the pools of the store at target; nothing is connected yet.
func open(target string) (*DB, error) {
	if isPostgres(target) {
		return openPostgres(target)
	}
	path, err := sqlitePath(target)
	if err != nil {
		return nil, err
	}
	return openSQLite(path)
}

func openReadOnly(target string) (*DB, error) {
	if isPostgres(target) {
		config, err := postgresConfig(target)
		if err != nil {
			return nil, err
		}
		config.RuntimeParams["default_transaction_read_only"] = "on"
		return &DB{Engine: Postgres, read: pool(stdlib.OpenDB(*config), 2)}, nil
	}
	path, err := sqlitePath(target)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	read, err := sql.Open("sqlite", fileURL(path)+"?mode=ro&_dqs=0&_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return &DB{Engine: SQLite, read: pool(read, 2)}, nil
}

func isPostgres(target string) bool {
	return strings.HasPrefix(target, "postgres://") || strings.HasPrefix(target, "postgresql://")
}

// pool bounds p and keeps its connections for use.
func pool(p *sql.DB, size int) *sql.DB {
	p.SetMaxOpenConns(size)
	p.SetMaxIdleConns(size)
	return p
}

// Connections of one node: a PostgreSQL takes 100 unless told otherwise, so four
// nodes fit. What waits for a row's lock or for the disk needs no processor.
const postgresPoolSize = 12

func openPostgres(target string) (*DB, error) {
	config, err := postgresConfig(target)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"statement_timeout":                   "15s",
		"lock_timeout":                        "5s",
		"idle_in_transaction_session_timeout": "10s", // locks of a node that hangs
	} {
		if _, set := config.RuntimeParams[name]; !set {
			config.RuntimeParams[name] = value
		}
	}
	d := &DB{
		Engine: Postgres,
		read:   pool(stdlib.OpenDB(*config), postgresPoolSize),
		write:  pool(stdlib.OpenDB(*config, stdlib.OptionResetSession(leaveStandby)), postgresPoolSize),
	}
	for _, p := range []*sql.DB{d.read, d.write} {
		p.SetConnMaxLifetime(30 * time.Minute) // finds its way after a failover
	}
	return d, nil
}

// leaveStandby drops a connection whose server is now a standby.
func leaveStandby(_ context.Context, c *pgx.Conn) error {
	if c.PgConn().ParameterStatus("in_hot_standby") == "on" {
		return driver.ErrBadConn
	}
	return nil
}

func postgresConfig(target string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(target)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err) // shows no password
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "purser"
	}
	return config, nil
}

// migrationPool returns the pool that migrations run on, and the function that closes it. On PostgreSQL it is a
// separate pool without time-outs of statements.
func (d *DB) migrationPool(target string) (p *sql.DB, closePool func() error, err error) {
	if d.Engine != Postgres {
		return d.write, func() error { return nil }, nil
	}
	config, err := postgresConfig(target)
	if err != nil {
		return nil, nil, err
	}
	p = pool(stdlib.OpenDB(*config), 3)
	return p, p.Close, nil
}

// sqlitePath is the file of "sqlite:PATH", absolute and with links resolved, so
// that one file has one lock.
func sqlitePath(target string) (string, error) {
	path, ok := strings.CutPrefix(target, "sqlite:")
	switch {
	case !ok || path == "":
		return "", errURL
	case path == ":memory:":
		return "", errors.New("database: sqlite::memory: is no file, and must be one")
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return "", fmt.Errorf("database: %s: must be sqlite:PATH, where an absolute path has one slash", target)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("database: %w", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path, nil
}

// fileURL writes path as SQLite takes it, whatever signs are in it.
func fileURL(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

// openSQLite opens one connection that writes and a pool that reads: in WAL mode
// they do not wait for each other.
func openSQLite(path string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	lock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	d := &DB{Engine: SQLite, lock: lock, wal: &wal{path: path + "-wal", flush: flush}}
	// synchronous=NORMAL: a commit survives a power cut after Sync. A checkpoint every 4,000
	// pages (16 MB) spreads the cost of one over some thousand calls and keeps the
	// log short. The writer's 16 MB of cache hold the pages that calls touch;
	// readers, of which there are several, get 2 MB each. _dqs=0 refuses "text" for
	// 'text', as PostgreSQL does.
	const write = "?_txlock=immediate&_dqs=0&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=foreign_keys(1)" +
		"&_pragma=wal_autocheckpoint(4000)&_pragma=journal_size_limit(67108864)&_pragma=cache_size(-16384)"
	const read = "?_dqs=0&_pragma=busy_timeout(5000)&_pragma=query_only(1)&_pragma=cache_size(-2048)"
	w, err := sql.Open("sqlite", fileURL(path)+write)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.write = pool(w, 1)
	r, err := sql.Open("sqlite", fileURL(path)+read)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.read = pool(r, 8)
	d.texts = newTexts(d.read)
	return d, nil
}

// lockFile makes this process the only server of the file at path, and the file
// readable by its owner only. The kernel frees the lock when the process dies.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("database: %s is in use by another purser: stop that one, or share a PostgreSQL", path), f.Close())
	} else if err != nil {
		return nil, errors.Join(fmt.Errorf("database: lock %s.lock: %w", path, err), f.Close())
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), f.Close())
	}
	return f, file.Close()
}
