package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// sqlite loads and saves a batch by loops of prepared single-row statements,
// SQLite's fastest way (multi-row VALUES measured slower). It speaks to the
// driver itself, because database/sql costs as much again as these statements.
//
// This process has the file for itself, so rows that a batch has committed are
// remembered for the next one. Whatever another connection commits (an operator
// with a shell) changes SQLite's data_version, and everything is forgotten.
//
// For the same reason a hold need not be in the file before it is answered: it
// dies with its process, as its call does. A batch that only opens holds writes
// nothing; a hold that is still open after a moment is saved by the next tick,
// so that a crash can bill what a long stream has delivered. In the file held_mc
// is always the sum of the holds that are there.
type sqlite struct {
	db           *db.DB
	conn         driver.Conn // the connection that the statements belong to
	stmts        map[string]driver.Stmt
	args         []driver.NamedValue
	cache        rowCache
	cacheVersion int64        // data_version at which known was true
	usedKeys     *keyFilter   // of the keys that were ever used
	stopFilling  func()       // ends its filling
	batch        *rules.State // what becomes known when it is committed
	inTx         bool         // a transaction of ours is open

	mu              sync.RWMutex                // held while the file and unsavedMC change together
	unsaved         map[rules.Key]rules.HoldRow // open holds that are not in the file
	unsavedMC       map[string]money.MC         // their sum, per connection and counter
	inExternalTx    bool                        // a caller's transaction was the last to be here
	stashedHolds    map[rules.Key]rules.HoldRow // what was unsaved then, and is saved if that was committed
	unsavedCounters map[string]rules.Counter    // counters of calls that are ahead of the file; the next write saves them
}

// memory is what the last batches have left: rows as they are, unsaved holds included.
type rowCache struct {
	balances    map[string]rules.Balance
	connections map[string]rules.Connection
	holds       map[rules.Key]rules.HoldRow // open ones
	totals      map[rules.DailyTotalsKey]bool
	windows     map[string]rules.Counter
}

// maxKnown bounds the memory: beyond it everything is forgotten and read again.
const maxCachedRows = 50_000

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

// forget drops what can be read again. Unsaved holds and counted calls cannot.
func (q *sqlite) resetCache() {
	q.cache = rowCache{
		map[string]rules.Balance{},
		map[string]rules.Connection{},
		map[rules.Key]rules.HoldRow{},
		map[rules.DailyTotalsKey]bool{},
		map[string]rules.Counter{},
	}
	for k, h := range q.unsaved {
		q.cache.holds[k] = h
	}
	for subject, c := range q.unsavedCounters {
		q.cache.windows[subject] = c
	}
}

// learn remembers what a batch has read and written. Its new holds stay unsaved.
func (q *sqlite) cacheBatch(s *rules.State, written bool) {
	for id, b := range s.Balances {
		q.cache.balances[id] = *b
	}
	for id, c := range s.Connections {
		q.cache.connections[id] = *c
	}
	for k := range s.Changes.Holds {
		q.dropUnsaved(k)
		if h := s.Holds[k]; h != nil && h.State == rules.Open {
			q.cache.holds[k], q.unsaved[k] = *h, *h
			h.EachHeldAmount(func(id string, amount money.MC) { q.unsavedMC[id] += amount })
		} else {
			delete(q.cache.holds, k)
		}
	}
	for k := range s.Changes.DailyTotals {
		q.cache.totals[k] = true
	}
	if written {
		clear(q.unsavedCounters)
	}
	for subject, counter := range s.Counters {
		q.cache.windows[subject] = *counter
		if !written && s.Changes.Counters[subject] && counter.Spent.Width == limits.CallsWidth {
			q.unsavedCounters[subject] = *counter
		}
	}
	if len(q.cache.balances) > maxCachedRows || len(q.cache.connections) > maxCachedRows || len(q.cache.totals) > maxCachedRows ||
		len(q.cache.windows) > maxCachedRows {
		q.resetCache()
	}
}

// held runs read, which looks into the file, and then add, which adds what
// connections hold that is not in it: together they see one state.
func (q *sqlite) readWithUnsaved(read func() error, add func(unsavedMC map[string]money.MC)) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if err := read(); err != nil {
		return err
	}
	add(q.unsavedMC)
	return nil
}

// saved takes a hold off the unsaved ones.
func (q *sqlite) dropUnsaved(k rules.Key) {
	if h, ok := q.unsaved[k]; ok {
		delete(q.unsaved, k)
		h.EachHeldAmount(func(id string, amount money.MC) {
			if q.unsavedMC[id] -= amount; q.unsavedMC[id] == 0 {
				delete(q.unsavedMC, id)
			}
		})
	}
}

func (q *sqlite) bind(dc any) error {
	conn, ok := dc.(driver.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a SQLite connection", dc)
	}
	if q.conn != conn { // the pool opened another one
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

// visit is use for a caller's transaction. It must see the true state, so what is
// unsaved is saved in it. Whether it will be committed is not known here: nothing
// is taken from memory, and alone finds out later.
func (q *sqlite) bindExternalTx(dc any) error {
	conn, ok := dc.(driver.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a SQLite connection", dc)
	}
	if q.conn != conn {
		q.conn, q.stmts = conn, map[string]driver.Stmt{}
	}
	if !q.inExternalTx {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.inExternalTx, q.stashedHolds, q.unsaved, q.unsavedMC = true, q.unsaved, map[rules.Key]rules.HoldRow{}, map[string]money.MC{}
	}
	q.resetCache()
	saved, err := q.stashWasCommitted()
	if err != nil || saved {
		return err
	}
	return q.insertHolds(q.stashedHolds, func(rules.HoldRow) bool { return true })
}

// alone ends a visit: the holds that it saved are in the file if it was
// committed, all or none, and unsaved again if it was not.
func (q *sqlite) resolveExternalTx() error {
	if !q.inExternalTx {
		return nil
	}
	saved, err := q.stashWasCommitted()
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !saved {
		q.unsaved = q.stashedHolds
		for _, h := range q.unsaved {
			h.EachHeldAmount(func(id string, amount money.MC) { q.unsavedMC[id] += amount })
		}
	}
	q.inExternalTx, q.stashedHolds = false, nil
	q.resetCache()
	return nil
}

// asideSaved looks for one of the holds that were set aside.
func (q *sqlite) stashWasCommitted() (saved bool, err error) {
	for k := range q.stashedHolds {
		err = q.query(`SELECT 1 FROM holds WHERE connection_id = ? AND key = ? AND state = 'open'`, 1,
			func([]driver.Value) error {
				saved = true
				return nil
			}, k.ConnectionID, k.Key)
		return saved, err
	}
	return true, nil
}

// insertHolds writes those holds that pass, and what they hold.
func (q *sqlite) insertHolds(list map[rules.Key]rules.HoldRow, pass func(rules.HoldRow) bool) error {
	sums, counters := map[string]money.MC{}, map[string]money.MC{}
	for k, h := range list {
		if !pass(h) {
			continue
		}
		if err := q.insertHold(&h); err != nil {
			return err
		}
		h.EachHeldAmount(func(id string, amount money.MC) {
			if id == k.ConnectionID {
				sums[id] += amount
			} else {
				counters[id] += amount
			}
		})
	}
	for id, sum := range sums {
		if err := q.exec(`UPDATE connections SET held_mc = held_mc + ? WHERE id = ?`, int64(sum), id); err != nil {
			return err
		}
	}
	for subject, sum := range counters {
		if err := q.exec(
			`INSERT INTO windows (subject, buckets, held, told) VALUES (?, '', ?, 0) ON CONFLICT (subject) DO UPDATE SET held = held + excluded.held`, subject, int64(sum)); err != nil {
			return err
		}
	}
	return nil
}

// young is how long a hold may stay unsaved: most calls of a fast provider are
// over by then, and their holds never touch the disk.
const holdFlushDelay = 250 * time.Millisecond

// tick saves the holds that have become old, and calls that were counted.
func (q *sqlite) flushDelayed(ctx context.Context, now time.Time) (wrote bool, err error) {
	old := func(h rules.HoldRow) bool { return now.UnixMicro()-h.CreatedUS >= holdFlushDelay.Microseconds() }
	var keys []rules.Key
	for k, h := range q.unsaved {
		if old(h) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 && len(q.unsavedCounters) == 0 {
		return false, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.exec(`BEGIN IMMEDIATE`); err != nil {
		return false, err
	}
	err = q.insertHolds(q.unsaved, old)
	for subject, c := range q.unsavedCounters {
		if err == nil {
			err = q.saveCounter(subject, c)
		}
	}
	if err == nil {
		err = q.exec(`COMMIT`)
	}
	if err != nil {
		q.inTx = true
		q.rollback(ctx)
		return false, err
	}
	clear(q.unsavedCounters)
	for _, k := range keys {
		q.dropUnsaved(k)
	}
	return true, nil
}

// begin checks that what is remembered still holds. The transaction itself
// begins when something must be written, or at once if that is likely.
func (q *sqlite) begin(_ context.Context, writes bool) error {
	if writes {
		if err := q.exec(`BEGIN IMMEDIATE`); err != nil {
			return err
		}
		q.inTx = true
	}
	return q.checkVersion()
}

// check forgets what is remembered if another connection has written since.
func (q *sqlite) checkVersion() error {
	var version int64
	err := q.query(`PRAGMA data_version`, 1, func(r []driver.Value) error {
		version = r[0].(int64)
		return nil
	})
	if err == nil && version != q.cacheVersion {
		q.resetCache()
		q.cacheVersion = version
		err = q.refillUsedKeys()
	}
	return err
}

// lookBack lets the filter of keys be filled from the file.
func (q *sqlite) refillUsedKeys() error {
	q.stopFilling()
	var rows int64
	if err := q.query(`SELECT COALESCE(MAX(rowid), 0) FROM ledger`, 1, func(r []driver.Value) error {
		rows = r[0].(int64)
		return nil
	}); err != nil {
		return err
	}
	f, stop := newKeyFilter(int(rows)), make(chan struct{})
	for k := range q.unsaved { // these will come to the file without being added again
		f.add(k.Hash())
	}
	var filling sync.WaitGroup
	filling.Go(func() { _ = f.fill(q.db, stop) }) // if it fails, keys are looked for in the file
	q.usedKeys, q.stopFilling = f, sync.OnceFunc(func() {
		close(stop)
		filling.Wait()
	})
	return nil
}

func (q *sqlite) flush(context.Context) error { return nil }

// errChanged says that another connection wrote between our reads and our
// transaction. The writer runs the commands again.
var errFileChanged = errors.New("ledger: the file was changed by another connection")

// save writes what the batch has changed, unless it only opened holds.
func (q *sqlite) save(ctx context.Context, s *rules.State) error {
	q.batch = s
	for k := range s.Changes.Holds { // before they are committed
		q.usedKeys.add(k.Hash())
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

// The statements run to their end: a context would cost a goroutine each.
func (q *sqlite) exec(text string, args ...any) error {
	_, err := q.execCount(text, args...)
	return err
}

// affected runs a statement and returns how many rows it changed.
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

// each calls f for every row of a query of width columns.
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
