package world

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// files are the databases of all boxes, by path.
var files sync.Map

func init() {
	sql.Register("faulty", faultyDriver{})
	db.Divert("faulty")
}

// A fault of the database happens at one of the next statements, which are all that the product's driver is told: also
// those of the ledger's writer, and the beginning and end of each transaction.
type fault string

const (
	hangs    fault = "hangs"     // the statement, until its context ends, or for half a minute
	diskFull fault = "disk-full" // nothing is written for a while
	kill     fault = "kill"      // the process ends: nothing of it gets through any more
	// On PostgreSQL:
	stops       fault = "stops"        // the process is stopped, and goes on after its lease has ended
	stopsAsking fault = "stops-asking" // likewise, when it is about to ask somebody outside
)

// fullFor is how long a disk is full. A call waits longer for its settlement.
const fullFor = 20 * time.Second

// A file is what stands between the product and the database of a box.
type file struct {
	full error  // SQLite's own
	die  func() // ends the process
	stop func() // lets it go on later

	mu     sync.Mutex
	armed  fault // "" = none
	in     int   // statements from now on
	rests  bool  // while judges ask
	happen fault // what has happened, and nobody has asked for
	until  time.Time
	lives  int           // of the process
	stands chan struct{} // until the process goes on; nil = it is not stopped
}

// arm lets a fault happen at the n-th statement from now on, in place of one that has not happened yet.
func (f *file) arm(what fault, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.in = what, n
}

// disarm ends what was armed, but for a kill and a stop, which wait. It returns what has happened since it was last
// asked, and for how long it goes on.
func (f *file) disarm() (happened fault, rest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed == hangs || f.armed == diskFull {
		f.armed = ""
	}
	happened, f.happen = f.happen, ""
	return happened, time.Until(f.until)
}

// rest says whether nothing happens for a while.
func (f *file) rest(rests bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rests = rests
}

// errKilled is what a process that has ended would see.
var errKilled = errors.New("the process has ended")

// pass is asked before each statement. It returns the error that the statement has.
func (f *file) pass(ctx context.Context, life int, query string) error {
	f.mu.Lock()
	due := fault("")
	if life == f.lives && f.armed != "" && !f.rests && f.canHappen(ctx, query) {
		if f.in--; f.in <= 0 {
			due, f.armed, f.happen = f.armed, "", f.armed
		}
	}
	switch due {
	case kill:
		f.lives++
	case diskFull:
		f.until = time.Now().Add(fullFor)
	case stops, stopsAsking:
		f.stands = make(chan struct{})
	}
	stands := f.stands
	isDead, isFull := life < f.lives, time.Now().Before(f.until) && writes(query)
	f.mu.Unlock()
	switch due {
	case kill:
		f.die()
	case stops, stopsAsking:
		f.stop()
	}
	if stands != nil {
		<-stands
	}
	switch {
	case isDead:
		return errKilled
	case isFull:
		return f.full
	case due == hangs:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(30 * time.Second):
		}
	}
	return nil
}

// canHappen reports whether what is armed may happen to a statement. One without the end of a context runs under locks
// of the product, and nothing moves a simulated clock while others wait for such a lock.
func (f *file) canHappen(ctx context.Context, query string) bool {
	switch f.armed {
	case hangs:
		return ctx.Done() != nil
	case diskFull:
		return writes(query)
	case stopsAsking:
		return query == toOutside
	}
	return true
}

// writes reports whether a statement writes. That of an orderly end is the only PRAGMA that does.
func writes(query string) bool {
	verb, rest, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(query)), " ")
	return !slices.Contains([]string{"SELECT", "BEGIN", "ROLLBACK", "PRAGMA"}, verb) ||
		strings.HasPrefix(rest, "USER_VERSION =")
}

func (f *file) life() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lives
}

// newFile lets the statements on a database have faults.
func newFile(t *testing.T, database string, die func()) *file {
	t.Helper()
	path, err := filepath.EvalSymlinks(filepath.Dir(strings.TrimPrefix(database, "sqlite:")))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(path, filepath.Base(database))
	f := &file{full: fullError(t), die: die}
	files.Store(path, f)
	t.Cleanup(func() { files.Delete(path) })
	return f
}

// fullError returns what SQLite says of a full disk.
var fullError = func() func(t *testing.T) error {
	find := sync.OnceValue(func() error {
		c, err := (&sqlite.Driver{}).Open("file::memory:")
		if err != nil {
			return err
		}
		defer c.Close()
		for _, query := range []string{`PRAGMA max_page_count = 2`, `CREATE TABLE t (a)`,
			`INSERT INTO t VALUES (zeroblob(100000))`} {
			if _, err = c.(driver.ExecerContext).ExecContext(context.Background(), query, nil); err != nil {
				return err
			}
		}
		return nil
	})
	return func(t *testing.T) error {
		t.Helper()
		err := find()
		if !db.IsAway(err) {
			t.Fatalf("a full disk is %v", err)
		}
		return err
	}
}()

type faultyDriver struct{}

// Open opens a connection of the life of the process that there is.
func (faultyDriver) Open(name string) (driver.Conn, error) {
	c, err := (&sqlite.Driver{}).Open(name)
	if err != nil {
		return nil, err
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(name, "file:"), "?")
	if path, err = url.PathUnescape(path); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	at, ok := files.Load(path)
	if !ok {
		return c, nil
	}
	f := at.(*file)
	return &faultyConn{Conn: c, of: f, life: f.life(), prepared: map[string]driver.Stmt{}}, nil
}

// A faultyConn is a connection of the driver sqlite. It keeps its statements: to compile them was a quarter of the time
// of a history.
type faultyConn struct {
	driver.Conn
	of       *file
	life     int
	prepared map[string]driver.Stmt // those that do not run
}

// take returns a statement for one run, after which keep gets it.
func (c *faultyConn) take(ctx context.Context, query string) (driver.Stmt, error) {
	if s, ok := c.prepared[query]; ok {
		delete(c.prepared, query)
		return s, nil
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *faultyConn) keep(query string, s driver.Stmt) error {
	if _, ok := c.prepared[query]; ok {
		return s.Close()
	}
	c.prepared[query] = s
	return nil
}

// Close leaves the log of the file where it is, if the process has ended: who closes orderly copies it into the file.
func (c *faultyConn) Close() error {
	var err error
	for _, s := range c.prepared {
		err = errors.Join(err, s.Close())
	}
	if c.life < c.of.life() {
		_, e := c.FileControlPersistWAL("main", 1)
		_, unlimited := c.Conn.(driver.ExecerContext).ExecContext(context.Background(),
			`PRAGMA journal_size_limit = -1`, nil) // else SQLite would empty the log, which no kill does
		err = errors.Join(err, e, unlimited)
	}
	return errors.Join(err, c.Conn.Close())
}

// FileControlPersistWAL and FileControlDataVersion are those of the driver sqlite.
func (c *faultyConn) FileControlPersistWAL(name string, mode int) (int, error) {
	return c.Conn.(sqlite.FileControl).FileControlPersistWAL(name, mode)
}

func (c *faultyConn) FileControlDataVersion(name string) (uint32, error) {
	return c.Conn.(sqlite.FileControl).FileControlDataVersion(name)
}

func (c *faultyConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.of.pass(ctx, c.life, "BEGIN"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return faultyTx{tx, c}, nil
}

// Prepare and PrepareContext give statements of which each run may fail.
func (c *faultyConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &faultyStmt{s, c, query}, nil
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.of.pass(ctx, c.life, query); err != nil {
		return nil, err
	}
	s, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	r, err := s.(driver.StmtExecContext).ExecContext(ctx, args)
	return r, errors.Join(err, c.keep(query, s))
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.of.pass(ctx, c.life, query); err != nil {
		return nil, err
	}
	s, err := c.take(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, args)
	if err != nil {
		return nil, errors.Join(err, c.keep(query, s))
	}
	return &keptRows{rows, c, query, s}, nil
}

// keptRows are the rows of a statement that is kept.
type keptRows struct {
	driver.Rows
	conn  *faultyConn
	query string
	stmt  driver.Stmt
}

func (r *keptRows) Close() error { return errors.Join(r.Rows.Close(), r.conn.keep(r.query, r.stmt)) }

func (c *faultyConn) Ping(ctx context.Context) error { return c.Conn.(driver.Pinger).Ping(ctx) }

func (c *faultyConn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}

func (c *faultyConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

// A faultyTx is rolled back where it cannot be committed, as SQLite does it.
type faultyTx struct {
	driver.Tx
	conn *faultyConn
}

func (tx faultyTx) Commit() error {
	if err := tx.conn.of.pass(context.Background(), tx.conn.life, "COMMIT"); err != nil {
		return errors.Join(err, tx.Tx.Rollback())
	}
	return tx.Tx.Commit()
}

type faultyStmt struct {
	driver.Stmt
	conn  *faultyConn
	query string
}

func (s *faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.of.pass(ctx, s.conn.life, s.query); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.conn.of.pass(ctx, s.conn.life, s.query); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// die ends a process as a power cut does: from now on nothing of it gets through.
func (b *Box) die(n *node) {
	b.Network.cut(n.number)
	n.stop()
}

// revive starts a process on what one that has ended has left, after some time, in which that one is gone.
func (b *Box) revive(n *node, after time.Duration) {
	b.T.Helper()
	b.remove(n)
	<-n.ended // with errors, as nothing has worked
	b.Pass(deadTime + after)
	b.Start()
}

// deadTime is longer than what is left of an ended process goes on trying to reach somebody.
const deadTime = 30 * time.Second

// arms returns a step that lets a fault of the database happen to one of so many next statements that it may happen to.
func arms(what fault, statements int) func(*world, bank.Step) error {
	return func(w *world, s bank.Step) error {
		w.file.arm(what, 1+s.B%statements)
		return nil
	}
}

// overcome ends the fault of a process's database that a step has met, and returns it; "" = none.
func (w *world) overcome(n *node, s bank.Step) (happened fault) {
	happened, rest := n.file.disarm()
	switch happened {
	case "":
		return ""
	case kill:
		w.money.Resume()
		w.revive(n, time.Duration(s.A%100)*time.Second)
		w.money.Book.DB = w.Server.DB
	case stops, stopsAsking:
		n.file.awaken(nil)
	default:
		time.Sleep(rest)
	}
	w.api.drawn["met: "+string(happened)]++
	return happened
}
