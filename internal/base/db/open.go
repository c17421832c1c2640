package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/purserhq/purser/internal/base/filelock"
)

// sqliteDriver is the driver of package sql that opens SQLite files.
var sqliteDriver = "sqlite"

// Divert lets another driver open SQLite files, which stands before the driver sqlite and lets statements fail. Tests
// call it before anything else runs.
func Divert(driver string) { sqliteDriver = driver }

// errURL is the error for a URL of no database.
var errURL = errors.New("database: must be sqlite:PATH or postgres://USER:PASSWORD@HOST/NAME")

// open creates the pools of the database at target, without connecting.
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
		config, connections, err := postgresConfig(target)
		if err != nil {
			return nil, err
		}
		config.RuntimeParams["default_transaction_read_only"] = "on"
		if config.ValidateConnect != nil && strings.Contains(target, "target_session_attrs=read-write") {
			// A session that is read-only is what we ask for: of the URL's hosts it is to be at the primary.
			config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
		}
		return &DB{Engine: Postgres, poolSize: connections / 2, read: limitPool(stdlib.OpenDB(*config), 2)}, nil
	}
	path, err := sqlitePath(target)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), refuseRemains(path, true))
	}
	return openSQLiteReadOnly(path, "")
}

// openSQLiteReadOnly creates the pool for reading the file at path, with further parameters of its URL.
func openSQLiteReadOnly(path, more string) (*DB, error) {
	lacks := lacksLog(path)
	if lacks && more == "" {
		more = "&immutable=1" // or SQLite would make a log in the place of the one that is missing
	}
	read, err := sql.Open(sqliteDriver,
		fileURL(path)+"?mode=ro&_dqs=0&_pragma=busy_timeout(10000)&_pragma=query_only(1)"+more)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return &DB{Engine: SQLite, path: path, lacksLog: lacks, read: limitPool(read, 2)}, nil
}

func isPostgres(target string) bool {
	return strings.HasPrefix(target, "postgres://") || strings.HasPrefix(target, "postgresql://")
}

// limitPool lets p have at most size connections, and keep as many open when they are idle.
func limitPool(p *sql.DB, size int) *sql.DB {
	p.SetMaxOpenConns(size)
	p.SetMaxIdleConns(size)
	return p
}

// Connections that a node keeps open to PostgreSQL at most, half of them for reads, unless pool_max_conns of the URL
// says another number. PostgreSQL accepts 100 by default, so three nodes fit beside tools. More connections than
// processors pay, because many wait for a lock or for the disk.
const (
	defaultConnections = 24
	minConnections     = 8
	maxConnections     = 1000
)

// takeConnections returns the most connections of a node by the URL, and removes it from what the server is told.
func takeConnections(config *pgx.ConnConfig) (int, error) {
	const name = "pool_max_conns"
	text, ok := config.RuntimeParams[name]
	if !ok {
		return defaultConnections, nil
	}
	delete(config.RuntimeParams, name)
	n, err := strconv.Atoi(text)
	if err != nil || n < minConnections || n > maxConnections {
		return 0, fmt.Errorf("database: %s must be a whole number from %d to %d", name, minConnections, maxConnections)
	}
	return n, nil
}

func openPostgres(target string) (*DB, error) {
	config, connections, err := postgresConfig(target)
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
	d := &DB{Engine: Postgres, poolSize: connections / 2}
	d.read = limitPool(sql.OpenDB(newConnector(config, d.pingIdle, rejectClosed)), d.poolSize)
	d.write = limitPool(sql.OpenDB(newConnector(config, d.pingIdle, rejectStandby)), d.poolSize)
	return d, nil
}

// errPooler is the error of a URL that leads to a pooler in transaction mode.
var errPooler = errors.New("the URL leads to a pooler, such as PgBouncer, that drops the settings of sessions: " +
	"connect to PostgreSQL itself, a node keeps at most 24 connections (docs/operate/failover.md)")

// refusePooler returns an error if a pooler stands in front of PostgreSQL and gives a statement to any session:
// prepared statements, the time-outs of statements and the lock of migrations belong to one. Such a pooler refuses the
// time-outs of openPostgres, or ignores them.
func (d *DB) refusePooler(ctx context.Context) error {
	if d.Engine != Postgres {
		return nil
	}
	var idleTimeout string
	err := d.write.QueryRowContext(ctx, `SELECT current_setting('idle_in_transaction_session_timeout')`).
		Scan(&idleTimeout)
	if err != nil && strings.Contains(err.Error(), "unsupported startup parameter") {
		return errors.Join(errPooler, err)
	}
	if err == nil && idleTimeout == "0" {
		return errPooler
	}
	return nil // another error is that of the first statement that matters
}

// postgresConfig also returns the most connections of a node.
func postgresConfig(target string) (*pgx.ConnConfig, int, error) {
	config, err := pgx.ParseConfig(target)
	if err != nil {
		return nil, 0, fmt.Errorf("database: %w", err) // shows no password
	}
	connections, err := takeConnections(config)
	if err != nil {
		return nil, 0, err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 3 * time.Second
	}
	config.DialFunc = (&net.Dialer{
		// A connection whose packets are lost is found within some seconds, also while it waits for an answer.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         limitUnacknowledged,
	}).DialContext
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "purser"
	}
	return config, connections, nil
}

// migrationLockTimeout is how long a statement of a migration waits for those who use the table: everyone else waits
// behind it.
const migrationLockTimeout = "500ms"

// migrationPool returns the pool that migrations run on, and the function that closes it. On PostgreSQL it is a
// separate pool without time-outs of statements, whose locks are waited for migrationLockTimeout (F-94).
func (d *DB) migrationPool(target string) (p *sql.DB, closePool func() error, err error) {
	if d.Engine != Postgres {
		return d.write, func() error { return nil }, nil
	}
	config, _, err := postgresConfig(target)
	if err != nil {
		return nil, nil, err
	}
	config.RuntimeParams["lock_timeout"] = migrationLockTimeout
	p = limitPool(stdlib.OpenDB(*config), 3)
	return p, p.Close, nil
}

// sqlitePath returns the file of "sqlite:PATH" as an absolute path with links resolved, so that a file has one lock.
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

// fileURL returns path as the URL that SQLite opens, with special characters escaped.
func fileURL(path string) string {
	if filepath.VolumeName(path) != "" { // of Windows: file:/C:/purser.db
		path = "/" + filepath.ToSlash(path)
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath()
}

// openSQLite creates a pool of one connection for writing and a pool for reading. In WAL mode readers and the writer
// do not wait for each other.
func openSQLite(path string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	lock, err := lockFile(path)
	if err != nil {
		return nil, err
	}
	d := &DB{Engine: SQLite, lock: lock, path: path, lost: make(chan struct{})}
	d.wal = &wal{path: path + "-wal", fdatasync: fdatasync, onFailure: d.loseLog}
	if d.opened, err = os.Stat(path); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), d.Close())
	}
	// synchronous=NORMAL: a commit survives a power cut after Sync. A WAL checkpoint every 4,000 pages (16 MB) spreads
	// its cost over some thousand calls and keeps the log short. The writer's cache of 16 MB holds the pages that calls
	// touch; the readers get 2 MB each. _dqs=0 refuses "text" for 'text', as PostgreSQL does.
	const write = "?_txlock=immediate&_dqs=0&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)" +
		"&_pragma=synchronous(normal)&_pragma=foreign_keys(1)&_pragma=wal_autocheckpoint(4000)" +
		"&_pragma=journal_size_limit(67108864)&_pragma=cache_size(-16384)"
	const read = "?_dqs=0&_pragma=busy_timeout(5000)&_pragma=query_only(1)&_pragma=cache_size(-2048)"
	w, err := sql.Open(sqliteDriver, fileURL(path)+write)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.write = limitPool(w, 1)
	r, err := sql.Open(sqliteDriver, fileURL(path)+read)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.read = limitPool(r, 9) // one of them is pinned
	d.stmts = newStmtCache(d.read)
	return d, nil
}

// lockFile locks the file at path for this process, and makes the file readable by its owner only. It creates a missing
// file, unless there are remains of an earlier one. The kernel releases the lock when the process dies.
func lockFile(path string) (*os.File, error) {
	f, unused, err := takeLock(path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(refuseRemains(path, !unused), refuseLostLog(path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), f.Close())
	}
	if err := errors.Join(file.Close(), f.Truncate(0)); err != nil {
		return nil, errors.Join(fmt.Errorf("database: %w", err), f.Close())
	}
	return f, nil
}

// unusedLock is the content of the lock's file until the database's file is there. A process that is killed between
// the two leaves nothing that a later start would miss. All other locks are empty.
const unusedLock = "unused"

// takeLock takes the lock of the file at path, which need not exist, and reports whether the lock has never locked a
// file: it creates the lock's file with unusedLock, and who creates the database's file empties it.
func takeLock(path string) (f *os.File, unused bool, err error) {
	if err := makeLock(path + ".lock"); err != nil {
		return nil, false, fmt.Errorf("database: %w", err)
	}
	if f, err = os.OpenFile(path+".lock", os.O_RDWR, 0o600); err != nil {
		return nil, false, fmt.Errorf("database: %w", err)
	}
	if locked, err := filelock.TryLock(f); err != nil {
		return nil, false, errors.Join(fmt.Errorf("database: lock %s.lock: %w", path, err), f.Close())
	} else if !locked {
		return nil, false, errors.Join(
			fmt.Errorf("database: %s is in use by another purser: stop that one, or share a PostgreSQL", path),
			f.Close())
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("database: %w", err), f.Close())
	}
	return f, info.Size() > 0, nil
}

// makeLock creates the file of a lock, unless it is there. The file is never without its content, or a kill would
// leave the lock of a database.
func makeLock(path string) (err error) {
	if isThere(path) {
		return nil
	}
	draft, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*.new") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	_, err = draft.WriteString(unusedLock)
	if err = errors.Join(err, draft.Sync(), draft.Close(), giveToOwner(draft.Name())); err != nil {
		return err
	}
	err = os.Link(draft.Name(), path)
	if err != nil && !isThere(path) { // a file system without links
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err == nil {
			_, err = f.WriteString(unusedLock)
			return errors.Join(err, f.Close())
		}
	}
	if isThere(path) { // made by this process or another
		return nil
	}
	return err
}

// refuseRemains returns an error if the SQLite file at path is not there, or empty, and its log is: that has what was
// acknowledged last, and SQLite would delete it with the first commit of a new file. hadLock says that the file's lock
// was there before, so that a database was too.
func refuseRemains(path string, hadLock bool) error {
	file, err := os.Stat(path)
	if err == nil && file.Size() > 0 {
		return nil
	}
	remains := ""
	if err != nil && hadLock && isThere(path+".lock") {
		remains = path + ".lock"
	}
	if err != nil && isThere(path+"-journal") { // a first start that was killed may leave one beside an empty file
		remains = path + "-journal"
	}
	if log, failed := os.Stat(path + "-wal"); failed == nil && (err != nil || log.Size() > 0) {
		remains = log.Name()
	}
	if remains == "" {
		return nil
	}
	return fmt.Errorf("database: %s is not there or empty, but %s is: the file was moved or deleted, or its disk is "+
		"not mounted. Put it back. For a new database, first move away %[1]s-wal, %[1]s-shm and %[1]s.lock",
		path, remains)
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A Place is where a SQLite file will appear, with the lock of that file, so that no node starts on it meanwhile.
type Place struct {
	path   string
	lock   *os.File
	unused bool // no file was here
	filled bool
}

// TakePlace locks a path for a new SQLite file. It refuses one where there is a file, or a part of one: SQLite would
// apply the log of another file to the new one.
func TakePlace(file string) (*Place, error) {
	path, err := sqlitePath("sqlite:" + file)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := refuseParts(path); err != nil { // before a lock is made beside them
		return nil, err
	}
	lock, unused, err := takeLock(path)
	if err != nil {
		return nil, err
	}
	p := &Place{path: path, lock: lock, unused: unused}
	// From now on no start makes an empty database here, also if this process is killed.
	if err := errors.Join(refuseParts(path), lock.Truncate(0)); err != nil {
		return nil, errors.Join(err, p.Leave())
	}
	return p, nil
}

func refuseParts(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if isThere(path + suffix) {
			return fmt.Errorf("%s%s exists already", path, suffix)
		}
	}
	return nil
}

// Fill gives the file at draft, on the same disk, the name of the place, and the owner of the folder if this process is
// root's. It replaces no file.
func (p *Place) Fill(draft string) error {
	if err := giveToOwner(draft); err != nil {
		return err
	}
	err := os.Link(draft, p.path)
	if err != nil && !errors.Is(err, os.ErrExist) && !isThere(p.path) { // a file system without links
		err = os.Rename(draft, p.path)
	} else if err == nil {
		err = os.Remove(draft)
	}
	p.filled = err == nil
	return err
}

// Leave releases the lock.
func (p *Place) Leave() (err error) {
	if p.unused && !p.filled { // or the next start would miss a file
		err = os.Remove(p.lock.Name())
	}
	return errors.Join(err, unlockFile(p.lock))
}

// unlockFile releases the lock and closes its file. Closing alone would not release it while a child that another
// goroutine is just starting still has a copy of the descriptor. A nil or closed file has no lock.
func unlockFile(f *os.File) error {
	if f == nil {
		return nil
	}
	if err := filelock.Unlock(f); errors.Is(err, os.ErrClosed) {
		return nil
	} else if err != nil {
		return errors.Join(fmt.Errorf("database: unlock: %w", err), f.Close())
	}
	return f.Close()
}
