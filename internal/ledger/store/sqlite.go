package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// sqlite loads and saves a batch by loops of prepared single-row statements,
// SQLite's fastest way (multi-row VALUES measured slower). It speaks to the
// driver itself, because database/sql costs as much again as these statements.
//
// No other process writes to the file, so rows that a batch has committed are cached for
// the next one (sqlite_cache.go). A commit of another connection, such as an operator's
// shell, changes SQLite's data_version, and the cache is reset.
//
// For the same reason a hold need not be in the file before it is answered: it ends with
// its process, as its call does (sqlite_unsaved.go).
type sqlite struct {
	db    *db.DB
	conn  driver.Conn // the connection that the statements belong to
	stmts map[string]driver.Stmt
	args  []driver.NamedValue // of the last statement, kept to be filled again
	batch *rules.State        // goes into the cache when it is committed
	inTx  bool                // a transaction of the writer's is open

	cache        rowCache
	cacheVersion int64      // the data_version that the cache belongs to
	usedKeys     *keyFilter // of the keys that were ever used
	stopFilling  func()     // ends the filling of usedKeys

	mu              sync.RWMutex                // held while the file and unsavedMC change together
	unsaved         map[rules.Key]rules.HoldRow // open holds that are not in the file
	unsavedMC       map[string]money.MC         // their sum, by connection or counter
	unsavedCounters map[string]rules.Counter    // counters of calls that are newer than in the file
	inExternalTx    bool                        // the last transaction was a caller's
	stashedHolds    map[rules.Key]rules.HoldRow // saved in that transaction, if it was committed
}

func newSQLite(d *db.DB) *sqlite {
	q := &sqlite{
		db:              d,
		usedKeys:        newKeyFilter(0),
		stopFilling:     func() {},
		unsaved:         map[rules.Key]rules.HoldRow{},
		unsavedMC:       map[string]money.MC{},
		unsavedCounters: map[string]rules.Counter{},
	}
	q.resetCache()
	return q
}

// bind prepares for a batch of the writer's own.
func (q *sqlite) bind(_ context.Context, dc any) error {
	conn, ok := dc.(driver.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a SQLite connection", dc)
	}
	if q.conn != conn { // the pool has opened another connection
		q.conn, q.stmts = conn, map[string]driver.Stmt{}
		q.resetCache()
	}
	return q.resolveExternalTx()
}

// close finalizes the statements of a connection: SQLite cannot be closed before.
func (q *sqlite) close(dc any) error {
	if q.conn != dc {
		return nil
	}
	q.stopFilling()
	var errs []error
	for _, s := range q.stmts {
		errs = append(errs, s.Close())
	}
	q.conn = nil
	return errors.Join(errs...)
}

// begin resets the cache if it is outdated. The transaction begins here if the batch is
// likely to write, else in save.
func (q *sqlite) begin(_ context.Context, writes bool) error {
	if writes {
		if err := q.exec(`BEGIN IMMEDIATE`); err != nil {
			return err
		}
		q.inTx = true
	}
	return q.checkVersion()
}

func (q *sqlite) flush(context.Context) error { return nil }

// errFileChanged says that another connection wrote between the batch's reads and its
// transaction. The writer runs the commands again.
var errFileChanged = errors.New("ledger: the file was changed by another connection")

// save writes what the batch has changed, unless it has only opened holds.
func (q *sqlite) save(ctx context.Context, s *rules.State) error {
	q.batch = s
	for k := range s.Changes.Holds { // before they are committed
		q.usedKeys.addKey(k.IndexHash())
	}
	if q.inExternalTx || q.inTx {
		return q.saveAll(s)
	}
	if !s.Changes.MustSync {
		return nil
	}
	version := q.cacheVersion
	if err := q.begin(ctx, true); err != nil {
		return err
	}
	if q.cacheVersion != version {
		return errFileChanged
	}
	return q.saveAll(s)
}

func (q *sqlite) commit(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	written := q.inTx
	if written {
		if err := q.exec(`COMMIT`); err != nil {
			return err
		}
		q.inTx = false
	}
	q.cacheBatch(q.batch, written)
	return nil
}

func (q *sqlite) rollback(context.Context) {
	q.resetCache()
	if q.inTx {
		q.inTx = false
		_ = q.exec(`ROLLBACK`) // it may have rolled back by itself
	}
}

// stmt returns the prepared statement, and its arguments in the driver's form.
func (q *sqlite) stmt(text string, args []any) (driver.Stmt, []driver.NamedValue, error) {
	s := q.stmts[text]
	if s == nil {
		var err error
		if s, err = q.conn.Prepare(text); err != nil {
			return nil, nil, err
		}
		q.stmts[text] = s
	}
	q.args = q.args[:0]
	for i, a := range args {
		q.args = append(q.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s, q.args, nil
}

// exec runs a statement. It has no context, which would cost a goroutine.
func (q *sqlite) exec(text string, args ...any) error {
	_, err := q.execCount(text, args...)
	return err
}

// execCount runs a statement and returns how many rows it changed.
func (q *sqlite) execCount(text string, args ...any) (int64, error) {
	s, named, err := q.stmt(text, args)
	if err != nil {
		return 0, err
	}
	r, err := s.(driver.StmtExecContext).ExecContext(context.Background(), named)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query calls f for every row of a query of width columns.
func (q *sqlite) query(text string, width int, f func(r []driver.Value) error, args ...any) (err error) {
	s, named, err := q.stmt(text, args)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), named)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, width)
	for {
		if err := rows.Next(row); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
}
