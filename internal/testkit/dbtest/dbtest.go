package dbtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
)

// Each runs f on a fresh database of each engine, both in parallel.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(t, Open(t, e))
		})
	}
}

// InTurn runs f for each engine in the long run, and in the usual run for the one that the test's name chooses: for
// what says the same on both.
func InTurn(t *testing.T, f func(t *testing.T, e db.Engine)) {
	t.Helper()
	engines := []db.Engine{db.SQLite, db.Postgres}
	if !testkit.IsLong() {
		i := crc32.ChecksumIEEE([]byte(t.Name())) % 2
		engines = engines[i : i+1]
	}
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(t, e)
		})
	}
}

// EachInTurn is Each on the engines of InTurn.
func EachInTurn(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	InTurn(t, func(t *testing.T, e db.Engine) { f(t, Open(t, e)) })
}

// Databases that a test opens, also the server inside its process, have longer time limits than Purser's: a statement
// takes seconds where others keep the processors busy.
func init() { db.RelaxLimits(12) }

// Open returns a fresh database of an engine, closed when the test ends.
func Open(t testing.TB, e db.Engine) *db.DB {
	t.Helper()
	return OpenURL(t, URL(t, e))
}

// OpenURL opens a database that has a URL already, as Open does.
func OpenURL(t testing.TB, target string) *db.DB {
	t.Helper()
	if strings.HasPrefix(target, "postgres:") {
		target += "&lock_timeout=30s&statement_timeout=60s"
	}
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// OpenReadOnly opens a database to look at it, beside its node. The caller closes it.
func OpenReadOnly(t testing.TB, target string) *db.DB {
	t.Helper()
	d, err := db.OpenReadOnly(context.Background(), target)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Number returns the one number that a query answers, beside the database's node.
func Number(t testing.TB, target, query string, args ...any) (n int64) {
	t.Helper()
	d := OpenReadOnly(t, target)
	defer d.Close()
	if err := d.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// AwaitLock waits until a transaction waits for the lock of another. SQLite tells nobody: there it returns immediately.
func AwaitLock(t testing.TB, d *db.DB) {
	t.Helper()
	AwaitLocks(t, d, 1)
}

// AwaitLocks is AwaitLock for so many transactions.
func AwaitLocks(t testing.TB, d *db.DB, n int) {
	t.Helper()
	if d.Engine == db.SQLite {
		return
	}
	for waits, late := false, time.Now().Add(time.Minute); !waits; time.Sleep(5 * time.Millisecond) {
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) >= $1 FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`, n).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if !waits && time.Now().After(late) {
			t.Fatalf("fewer than %d transactions wait for a lock", n)
		}
	}
}

// Explain returns how the database answers the queries that f makes.
func Explain(t testing.TB, d *db.DB, f func(q db.Queryer) error) string {
	t.Helper()
	e := &explainer{DB: d, t: t}
	if err := f(e); err != nil {
		t.Fatal(err)
	}
	return e.plans.String()
}

// An explainer asks the database for the plan of each query before it makes it.
type explainer struct {
	*db.DB
	t     testing.TB
	plans strings.Builder
}

func (e *explainer) explain(ctx context.Context, query string, args []any) {
	e.t.Helper()
	prefix, columns := `EXPLAIN QUERY PLAN `, make([]any, 4)
	if e.Engine == db.Postgres {
		prefix, columns = `EXPLAIN `, make([]any, 1)
	}
	var line string
	for i := range columns {
		columns[i] = new(any)
	}
	columns[len(columns)-1] = &line
	rows, err := e.DB.QueryContext(ctx, prefix+query, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	for rows.Next() && err == nil {
		err = rows.Scan(columns...)
		e.plans.WriteString(line + "\n")
	}
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		e.t.Fatal(err)
	}
}

func (e *explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	e.t.Helper()
	e.explain(ctx, query, args)
	return e.DB.QueryContext(ctx, query, args...)
}

func (e *explainer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	e.t.Helper()
	e.explain(ctx, query, args)
	return e.DB.QueryRowContext(ctx, query, args...)
}

// URL returns the URL of a fresh, migrated database that is not open, for tests that start
// a server. The database is deleted when the test ends.
func URL(t testing.TB, e db.Engine) string {
	t.Helper()
	if e == db.SQLite {
		file, err := sqlite()
		if err != nil {
			t.Fatal(err)
		}
		return writeFile(t, file)
	}
	template, err := postgres()
	if err != nil {
		t.Fatalf("a test needs PostgreSQL: %v", err)
	}
	return template.create(t, " TEMPLATE "+template.name+" STRATEGY FILE_COPY")
}

// filled are the databases that Filled has made in this process: their errors, and the bytes of SQLite's.
var filled sync.Map

// Filled returns the URL of a copy of a database that fill has filled, and that is not open. fill gets the URL of a
// migrated database, once for a name; test processes that share a PostgreSQL share the result, so a name says all that
// the content depends on.
func Filled(t testing.TB, e db.Engine, name string, fill func(url string) error) string {
	t.Helper()
	once, _ := filled.LoadOrStore(string(e)+name, sync.OnceValues(func() ([]byte, error) {
		if e == db.SQLite {
			return fillFile(URL(t, e), fill)
		}
		template, err := postgres()
		if err != nil {
			return nil, err
		}
		return nil, template.filled(name).ensure(t.Context(), " TEMPLATE "+template.name, fill)
	}))
	file, err := once.(func() ([]byte, error))()
	if err != nil {
		t.Fatalf("fill a database: %v", err)
	}
	if e == db.SQLite {
		return writeFile(t, file)
	}
	template, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	return template.create(t, " TEMPLATE "+template.filled(name).name+" STRATEGY FILE_COPY")
}

// fillFile fills a SQLite file and returns its bytes.
func fillFile(url string, fill func(url string) error) ([]byte, error) {
	if err := fill(url); err != nil {
		return nil, err
	}
	path := strings.TrimPrefix(url, "sqlite:")
	// A process that stopped while a statement was still being interrupted has left its log. To open the file and close
	// it again copies the log into the file, once nobody else has it open: on a busy machine that takes a moment.
	for late := time.After(2 * time.Minute); ; {
		if err := migrate(url); err != nil {
			return nil, err
		}
		_, err := os.Stat(path + "-wal")
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		select {
		case <-late:
			return nil, errors.Join(errors.New("it is still open"), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return os.ReadFile(path)
}

// EmptyURL returns the URL of a fresh PostgreSQL database without a schema. The database is deleted when the test ends.
// Its texts have the order of their bytes, or that of a language of ICU.
func EmptyURL(t testing.TB, language ...string) string {
	t.Helper()
	template, err := postgres()
	if err != nil {
		t.Fatalf("a test needs PostgreSQL: %v", err)
	}
	more := ""
	if len(language) > 0 {
		more = " TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE '" + language[0] + "'"
	}
	return template.create(t, more)
}

// create creates a database, with further words of the statement, and returns its URL.
func (t *template) create(tb testing.TB, more string) string {
	tb.Helper()
	name := newName()
	if err := t.admin("CREATE DATABASE " + name + more); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := t.admin("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			tb.Error(err)
		}
	})
	return t.newURL(name)
}

// writeFile writes a SQLite file: copying is much faster than migrating.
func writeFile(t testing.TB, file []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "purser.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// sqlite returns the bytes of a migrated file.
var sqlite = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "purser-sqlite-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "template.db")
	if err := migrate("sqlite:" + path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func migrate(target string) error {
	d, err := db.Open(context.Background(), target)
	if err != nil {
		return err
	}
	return d.Close()
}

// template is a migrated database of a cluster.
type template struct {
	cluster url.URL
	name    string
	own     *Cluster // kept, because the server ends with the process that holds it
}

// postgres returns the template, on a cluster that it starts if there is none.
var postgres = sync.OnceValues(func() (*template, error) {
	target, own := os.Getenv(Env), (*Cluster)(nil)
	if target == "" {
		var err error
		if own, err = Start(false); err != nil {
			return nil, err
		}
		target = own.URL
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	schema, err := db.Postgres.SchemaHash()
	if err != nil {
		return nil, err
	}
	t := &template{*u, "template_" + schema[:32], own}
	return t, t.ensure(context.Background(), "", migrate)
})

// filled returns the template that is filled from this one.
func (t *template) filled(name string) *template {
	sum := sha256.Sum256([]byte(t.name + name))
	return &template{t.cluster, "filled_" + hex.EncodeToString(sum[:16]), t.own}
}

// templateLock is the advisory lock of the process that makes the template.
const templateLock = 4_251_906

// ensure makes the template if the cluster does not have it yet. Test processes
// share it, because its name has the hash of the schema; the first one makes it
// under another name, so that a template is never half filled. words go on with the
// statement that creates it.
func (t *template) ensure(ctx context.Context, words string, fill func(url string) error) (err error) {
	d, err := sql.Open("pgx", t.cluster.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	conn, err := d.Conn(ctx) // whose end frees the lock
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, templateLock); err != nil {
		return err
	}
	var exists bool
	row := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)`, t.name)
	if err := row.Scan(&exists); err != nil || exists {
		return err
	}
	draft := newName()
	if _, err := conn.ExecContext(ctx, "CREATE DATABASE "+draft+words); err != nil {
		return err
	}
	if err := fill(t.newURL(draft)); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "ALTER DATABASE "+draft+" RENAME TO "+t.name)
	return err
}

// newURL returns the URL of a database of the cluster. That is never down, but on a starved machine it may take
// seconds to accept a connection: only the caller's own limit applies there.
func (t *template) newURL(name string) string {
	u := t.cluster
	u.Path = "/" + name
	query := u.Query()
	query.Set("connect_timeout", "30")
	u.RawQuery = query.Encode()
	return u.String()
}

// admin runs one statement on the cluster's own database.
func (t *template) admin(text string) (err error) {
	d, err := sql.Open("pgx", t.cluster.String())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	_, err = d.Exec(text)
	return err
}

func newName() string { return "t_" + strings.ToLower(rand.Text()) }
