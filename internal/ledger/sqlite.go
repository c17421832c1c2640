package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"purser/internal/db"
	"purser/internal/limits"
	"purser/internal/money"
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
	db      *db.DB
	conn    driver.Conn // the connection that the statements belong to
	stmts   map[string]driver.Stmt
	args    []driver.NamedValue
	known   memory
	version int64  // data_version at which known was true
	seen    *seen  // of the keys that were ever used
	stop    func() // ends its filling
	batch   *State // what becomes known when it is committed
	begun   bool   // a transaction of ours is open

	mu        sync.RWMutex        // held while the file and unsavedMC change together
	unsaved   map[Key]HoldRow     // open holds that are not in the file
	unsavedMC map[string]money.MC // their sum, per connection and counter
	guest     bool                // a caller's transaction was the last to be here
	aside     map[Key]HoldRow     // what was unsaved then, and is saved if that was committed
	counted   map[string]Counter  // counters of calls that are ahead of the file; the next write saves them
}

// memory is what the last batches have left: rows as they are, unsaved holds included.
type memory struct {
	balances    map[string]Balance
	connections map[string]Connection
	holds       map[Key]HoldRow // open ones
	totals      map[rollupKey]bool
	windows     map[string]Counter
}

// maxKnown bounds the memory: beyond it everything is forgotten and read again.
const maxKnown = 50_000

func newSQLite(d *db.DB) *sqlite {
	q := &sqlite{db: d, seen: newSeen(0), stop: func() {}, unsaved: map[Key]HoldRow{}, unsavedMC: map[string]money.MC{}, counted: map[string]Counter{}}
	q.forget()
	return q
}

// forget drops what can be read again. Unsaved holds and counted calls cannot.
func (q *sqlite) forget() {
	q.known = memory{map[string]Balance{}, map[string]Connection{}, map[Key]HoldRow{}, map[rollupKey]bool{}, map[string]Counter{}}
	for k, h := range q.unsaved {
		q.known.holds[k] = h
	}
	for subject, c := range q.counted {
		q.known.windows[subject] = c
	}
}

// learn remembers what a batch has read and written. Its new holds stay unsaved.
func (q *sqlite) learn(s *State, written bool) {
	for id, b := range s.balances {
		q.known.balances[id] = *b
	}
	for id, c := range s.connections {
		q.known.connections[id] = *c
	}
	for k := range s.dirtyHolds {
		q.saved(k)
		if h := s.holds[k]; h != nil && h.State == Open {
			q.known.holds[k], q.unsaved[k] = *h, *h
			h.parts(func(id string, amount money.MC) { q.unsavedMC[id] += amount })
		} else {
			delete(q.known.holds, k)
		}
	}
	for k := range s.rollups {
		q.known.totals[k] = true
	}
	if written {
		clear(q.counted)
	}
	for subject, counter := range s.windows {
		q.known.windows[subject] = *counter
		if !written && s.dirtyWindows[subject] && counter.Spent.Width == limits.CallsWidth {
			q.counted[subject] = *counter
		}
	}
	if len(q.known.balances) > maxKnown || len(q.known.connections) > maxKnown || len(q.known.totals) > maxKnown || len(q.known.windows) > maxKnown {
		q.forget()
	}
}

// held runs read, which looks into the file, and then add, which adds what
// connections hold that is not in it: together they see one state.
func (q *sqlite) held(read func() error, add func(unsavedMC map[string]money.MC)) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if err := read(); err != nil {
		return err
	}
	add(q.unsavedMC)
	return nil
}

// saved takes a hold off the unsaved ones.
func (q *sqlite) saved(k Key) {
	if h, ok := q.unsaved[k]; ok {
		delete(q.unsaved, k)
		h.parts(func(id string, amount money.MC) {
			if q.unsavedMC[id] -= amount; q.unsavedMC[id] == 0 {
				delete(q.unsavedMC, id)
			}
		})
	}
}

func (q *sqlite) use(dc any) error {
	conn, ok := dc.(driver.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a SQLite connection", dc)
	}
	if q.conn != conn { // the pool opened another one
		q.conn, q.stmts = conn, map[string]driver.Stmt{}
		q.forget()
	}
	return q.alone()
}

// close finalizes the statements of a connection: SQLite cannot be closed before.
func (q *sqlite) close(dc any) error {
	if q.conn != dc {
		return nil
	}
	q.stop()
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
func (q *sqlite) visit(dc any) error {
	conn, ok := dc.(driver.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a SQLite connection", dc)
	}
	if q.conn != conn {
		q.conn, q.stmts = conn, map[string]driver.Stmt{}
	}
	if !q.guest {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.guest, q.aside, q.unsaved, q.unsavedMC = true, q.unsaved, map[Key]HoldRow{}, map[string]money.MC{}
	}
	q.forget()
	saved, err := q.asideSaved()
	if err != nil || saved {
		return err
	}
	return q.insertHolds(q.aside, func(HoldRow) bool { return true })
}

// alone ends a visit: the holds that it saved are in the file if it was
// committed, all or none, and unsaved again if it was not.
func (q *sqlite) alone() error {
	if !q.guest {
		return nil
	}
	saved, err := q.asideSaved()
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !saved {
		q.unsaved = q.aside
		for _, h := range q.unsaved {
			h.parts(func(id string, amount money.MC) { q.unsavedMC[id] += amount })
		}
	}
	q.guest, q.aside = false, nil
	q.forget()
	return nil
}

// asideSaved looks for one of the holds that were set aside.
func (q *sqlite) asideSaved() (saved bool, err error) {
	for k := range q.aside {
		err = q.each(`SELECT 1 FROM holds WHERE connection_id = ? AND key = ? AND state = 'open'`, 1, func([]driver.Value) error {
			saved = true
			return nil
		}, k.ConnectionID, k.Key)
		return saved, err
	}
	return true, nil
}

// insertHolds writes those holds that pass, and what they hold.
func (q *sqlite) insertHolds(list map[Key]HoldRow, pass func(HoldRow) bool) error {
	sums, counters := map[string]money.MC{}, map[string]money.MC{}
	for k, h := range list {
		if !pass(h) {
			continue
		}
		if err := q.insertHold(&h); err != nil {
			return err
		}
		h.parts(func(id string, amount money.MC) {
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
		if err := q.exec(`INSERT INTO windows (subject, buckets, held, told) VALUES (?, '', ?, 0) ON CONFLICT (subject) DO UPDATE SET held = held + excluded.held`, subject, int64(sum)); err != nil {
			return err
		}
	}
	return nil
}

// young is how long a hold may stay unsaved: most calls of a fast provider are
// over by then, and their holds never touch the disk.
const young = 250 * time.Millisecond

// tick saves the holds that have become old, and calls that were counted.
func (q *sqlite) tick(ctx context.Context, now time.Time) (wrote bool, err error) {
	old := func(h HoldRow) bool { return now.UnixMicro()-h.CreatedUS >= young.Microseconds() }
	var keys []Key
	for k, h := range q.unsaved {
		if old(h) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 && len(q.counted) == 0 {
		return false, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.exec(`BEGIN IMMEDIATE`); err != nil {
		return false, err
	}
	err = q.insertHolds(q.unsaved, old)
	for subject, c := range q.counted {
		if err == nil {
			err = q.saveCounter(subject, c)
		}
	}
	if err == nil {
		err = q.exec(`COMMIT`)
	}
	if err != nil {
		q.begun = true
		q.rollback(ctx)
		return false, err
	}
	clear(q.counted)
	for _, k := range keys {
		q.saved(k)
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
		q.begun = true
	}
	return q.check()
}

// check forgets what is remembered if another connection has written since.
func (q *sqlite) check() error {
	var version int64
	err := q.each(`PRAGMA data_version`, 1, func(r []driver.Value) error {
		version = r[0].(int64)
		return nil
	})
	if err == nil && version != q.version {
		q.forget()
		q.version = version
		err = q.lookBack()
	}
	return err
}

// lookBack lets the filter of keys be filled from the file.
func (q *sqlite) lookBack() error {
	q.stop()
	var rows int64
	if err := q.each(`SELECT COALESCE(MAX(rowid), 0) FROM ledger`, 1, func(r []driver.Value) error {
		rows = r[0].(int64)
		return nil
	}); err != nil {
		return err
	}
	f, stop := newSeen(int(rows)), make(chan struct{})
	for k := range q.unsaved { // these will come to the file without being added again
		f.add(k.hash())
	}
	var filling sync.WaitGroup
	filling.Go(func() { _ = f.fill(q.db, stop) }) // if it fails, keys are looked for in the file
	q.seen, q.stop = f, sync.OnceFunc(func() {
		close(stop)
		filling.Wait()
	})
	return nil
}

func (q *sqlite) flush(context.Context) error { return nil }

// errChanged says that another connection wrote between our reads and our
// transaction. The writer runs the commands again.
var errChanged = errors.New("ledger: the file was changed by another connection")

// save writes what the batch has changed, unless it only opened holds.
func (q *sqlite) save(ctx context.Context, s *State) error {
	q.batch = s
	for k := range s.dirtyHolds { // before they are committed
		q.seen.add(k.hash())
	}
	if q.guest || q.begun {
		return q.write(s)
	}
	if !s.hard {
		return nil
	}
	version := q.version
	if err := q.begin(ctx, true); err != nil {
		return err
	}
	if q.version != version {
		return errChanged
	}
	return q.write(s)
}

func (q *sqlite) commit(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	written := q.begun
	if written {
		if err := q.exec(`COMMIT`); err != nil {
			return err
		}
		q.begun = false
	}
	q.learn(q.batch, written)
	return nil
}

func (q *sqlite) rollback(context.Context) {
	q.forget()
	if q.begun {
		q.begun = false
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
	_, err := q.affected(text, args...)
	return err
}

// affected runs a statement and returns how many rows it changed.
func (q *sqlite) affected(text string, args ...any) (int64, error) {
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
func (q *sqlite) each(text string, width int, f func(r []driver.Value) error, args ...any) (err error) {
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

func (q *sqlite) load(_ context.Context, w *wants) (*State, error) {
	s := NewState()
	for a := range w.accounts {
		if b, ok := q.known.balances[a]; ok {
			s.balances[a] = &b
			continue
		}
		err := q.each(`SELECT sandbox, available_mc, reserved_mc, seq, head FROM balances WHERE account_id = ?`, 5, func(r []driver.Value) error {
			s.balances[a] = &Balance{a, r[0].(int64) != 0, money.MC(r[1].(int64)), money.MC(r[2].(int64)), r[3].(int64), r[4].(string)}
			return nil
		}, a)
		if err != nil {
			return nil, err
		}
	}
	for c := range w.connections {
		if known, ok := q.known.connections[c]; ok {
			s.connections[c] = &known
			continue
		}
		err := q.each(`SELECT app_id, account_id, allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status, spent, event_seq, created_us, revoked_us, faster, warned_us
			FROM connections WHERE id = ?`, 13, func(r []driver.Value) (err error) {
			s.connections[c], err = newConnection(c, r)
			s.connections[c].HeldMC += q.unsavedMC[c]
			return err
		}, c)
		if err != nil {
			return nil, err
		}
	}
	for k := range w.keys {
		if h, ok := q.known.holds[k]; ok {
			s.holds[k] = &h
			continue
		}
		hash := k.hash()
		if q.seen.never(hash) {
			continue
		}
		// A key with a hold has no row in the ledger yet, so one of the two answers.
		err := q.each(`SELECT request_id, fingerprint, state, attempt, node_id, claim, amount_mc, created_us, model, terms, app_id, account_id, COALESCE(feature, ''), COALESCE(bucket, ''), paid_by, counts
			FROM holds WHERE connection_id = ?1 AND key = ?2
			UNION ALL SELECT id, fingerprint, 'done', 0, '', '', 0, 0, '', '', '', '', '', '', '', '' FROM ledger WHERE key_hash = ?3 AND connection_id = ?1 AND key = ?2`, 16, func(r []driver.Value) (err error) {
			if r[2].(string) == "done" {
				s.done[k] = doneRow{r[0].(string), r[1].(string)}
			} else {
				s.holds[k], err = newHold(k, r)
			}
			return err
		}, k.ConnectionID, k.Key, hash)
		if err != nil {
			return nil, err
		}
	}
	for subject, width := range w.windows {
		if known, ok := q.known.windows[subject]; ok {
			s.windows[subject] = &known
			continue
		}
		counter := &Counter{Spent: limits.Series{Width: width}}
		err := q.each(`SELECT buckets, held, told FROM windows WHERE subject = ?`, 3, func(r []driver.Value) (err error) {
			counter.HeldMC, counter.Told = money.MC(r[1].(int64)), r[2].(int64) != 0
			counter.Spent, err = limits.ParseSeries(width, r[0].(string))
			return err
		}, subject)
		if err != nil {
			return nil, err
		}
		counter.HeldMC += q.unsavedMC[subject]
		s.windows[subject] = counter
	}
	return s, nil
}

// newConnection reads a row of the thirteen columns that load selects.
func newConnection(id string, r []driver.Value) (*Connection, error) {
	spent, err := limits.ParseSeries(limits.SpendWidth, r[7].(string))
	if err != nil {
		return nil, err
	}
	c := &Connection{
		ID: id, AppID: r[0].(string), AccountID: r[1].(string),
		AllocationMC: money.MC(r[2].(int64)), ConsumedMC: money.MC(r[3].(int64)), HeldMC: money.MC(r[4].(int64)),
		Status: Status(r[6].(string)), Spent: spent, EventSeq: r[8].(int64), CreatedUS: r[9].(int64), Faster: r[11].(int64), WarnedUS: r[12].(int64),
	}
	if v, ok := r[5].(int64); ok {
		c.VelocityLimitMC = (*money.MC)(&v)
	}
	if us, ok := r[10].(int64); ok {
		c.RevokedUS = &us
	}
	return c, nil
}

// newHold reads a row of the sixteen columns that load selects.
func newHold(k Key, r []driver.Value) (*HoldRow, error) {
	counts, err := ParseCounts(r[15].(string))
	return &HoldRow{
		Call: Call{
			ConnectionID: k.ConnectionID, Key: k.Key, RequestID: r[0].(string), Fingerprint: r[1].(string), HoldMC: money.MC(r[6].(int64)),
			Model: r[8].(string), Terms: r[9].(string), AppID: r[10].(string), AccountID: r[11].(string), Feature: r[12].(string), Bucket: r[13].(string), PaidBy: r[14].(string), Counts: counts,
		},
		State: HoldState(r[2].(string)), Attempt: r[3].(int64), NodeID: r[4].(string), Claim: r[5].(string), CreatedUS: r[7].(int64),
	}, err
}

func (q *sqlite) write(s *State) error {
	for _, save := range []func(*State) error{q.saveMoney, q.saveHolds, q.saveRows, q.saveCounts} {
		if err := save(s); err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) saveMoney(s *State) error {
	for id := range s.dirtyBalances { // its row is there since the first top-up
		b := s.balances[id]
		if err := q.exec(`UPDATE balances SET available_mc = ?, reserved_mc = ?, seq = ?, head = ? WHERE account_id = ?`,
			int64(b.AvailableMC), int64(b.ReservedMC), b.Seq, b.Head, id); err != nil {
			return err
		}
	}
	unsaved := q.unsavedAfter(s)
	for id := range s.dirtyConnections {
		c := s.connections[id]
		held := int64(c.HeldMC - unsaved[id])
		var err error
		if s.deep[id] { // indexes depend on what changes here
			err = q.put(true,
				`UPDATE connections SET allocation_mc = ?, consumed_mc = ?, held_mc = ?, velocity_limit_mc = ?, status = ?, spent = ?, event_seq = ?, revoked_us = ?, faster = ?, warned_us = ? WHERE id = ?`,
				[]any{int64(c.AllocationMC), int64(c.ConsumedMC), held, orNil((*int64)(c.VelocityLimitMC)), string(c.Status), c.Spent.String(), c.EventSeq, orNil(c.RevokedUS), c.Faster, c.WarnedUS, id},
				`INSERT INTO connections (allocation_mc, consumed_mc, held_mc, velocity_limit_mc, status, spent, event_seq, revoked_us, faster, warned_us, id, app_id, account_id, created_us)
				VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, c.AppID, c.AccountID, c.CreatedUS)
		} else {
			err = q.exec(`UPDATE connections SET allocation_mc = ?, consumed_mc = ?, held_mc = ?, spent = ? WHERE id = ?`,
				int64(c.AllocationMC), int64(c.ConsumedMC), held, c.Spent.String(), id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put updates a row that is likely there, and inserts it if it is not: cheaper
// than ON CONFLICT, which looks twice. The insert takes the update's arguments
// and more.
func (q *sqlite) put(likely bool, update string, args []any, insert string, more ...any) error {
	if likely {
		n, err := q.affected(update, args...)
		if err != nil || n > 0 {
			return err
		}
	}
	return q.exec(insert, append(args, more...)...)
}

// unsavedAfter is what the holds that will not be in the file when the batch is
// committed hold of each connection and counter.
func (q *sqlite) unsavedAfter(s *State) map[string]money.MC {
	sums := make(map[string]money.MC, len(s.dirtyConnections))
	for id := range s.dirtyConnections {
		sums[id] = q.unsavedMC[id]
	}
	for subject := range s.dirtyWindows {
		sums[subject] = q.unsavedMC[subject]
	}
	for k := range s.dirtyHolds {
		if h, ok := q.unsaved[k]; ok {
			h.parts(func(id string, amount money.MC) { sums[id] -= amount })
		}
		if h := s.holds[k]; h != nil && h.State == Open && !q.guest {
			h.parts(func(id string, amount money.MC) { sums[id] += amount })
		}
	}
	return sums
}

// saveHolds takes ended holds out of the file, if they were ever in it. New
// ones wait for the tick.
func (q *sqlite) saveHolds(s *State) error {
	for k := range s.dirtyHolds {
		h := s.holds[k]
		was, unsaved := q.unsaved[k]
		var err error
		switch {
		case h == nil && (!unsaved || was.Attempt > 1): // an earlier attempt has left its row
			err = q.exec(`DELETE FROM holds WHERE connection_id = ? AND key = ?`, k.ConnectionID, k.Key)
		case h != nil && (h.State != Open || q.guest):
			err = q.insertHold(h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) insertHold(h *HoldRow) error {
	return q.exec(`INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id, claim, amount_mc, account_id, app_id, feature, bucket, model, terms, created_us, paid_by, counts)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (connection_id, key) DO UPDATE SET state = excluded.state, attempt = excluded.attempt, node_id = excluded.node_id, claim = excluded.claim,
		amount_mc = excluded.amount_mc, feature = excluded.feature, bucket = excluded.bucket, model = excluded.model, terms = excluded.terms, created_us = excluded.created_us,
		paid_by = excluded.paid_by, counts = excluded.counts`,
		h.ConnectionID, h.Key, h.RequestID, h.Fingerprint, string(h.State), h.Attempt, h.NodeID, h.Claim, int64(h.HoldMC),
		h.AccountID, h.AppID, nullable(h.Feature), nullable(h.Bucket), h.Model, h.Terms, h.CreatedUS, h.PaidBy, h.Counts.String())
}

func (q *sqlite) saveRows(s *State) error {
	var args [32]any
	for i := range s.entries {
		e := &s.entries[i]
		for j, c := range e.columns() {
			args[j] = c.value()
		}
		args[30], args[31] = e.Hash, e.keyHash().value()
		if err := q.exec(`INSERT INTO ledger (`+entryColumns+`, hash, key_hash)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, args[:]...); err != nil {
			return err
		}
	}
	for _, a := range s.answers {
		if err := q.exec(`INSERT INTO answers (request_id, encoding, body, created_us) VALUES (?, ?, ?, ?)`, a.requestID, a.Encoding, a.Body, a.createdUS); err != nil {
			return err
		}
	}
	for _, r := range s.refusals {
		if err := q.exec(`INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details, feature, model, created_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (request_id) DO NOTHING`,
			r.RequestID, r.ConnectionID, r.AppID, int64(r.Status), r.Code, r.Message, r.Details, nullable(r.Feature), nullable(r.Model), r.CreatedUS); err != nil {
			return err
		}
	}
	for _, d := range s.deferred {
		if err := q.exec(`INSERT INTO deferred (request_id, connection_id, key, provider, record, tries, since_us, next_us) VALUES (?, ?, ?, ?, ?, 0, ?, ?)`,
			d.requestID, d.ConnectionID, d.Key.Key, d.provider, d.record, d.nowUS, d.nowUS+firstAsk.Microseconds()); err != nil {
			return err
		}
	}
	for _, requestID := range s.resolved {
		if err := q.exec(`DELETE FROM deferred WHERE request_id = ?`, requestID); err != nil {
			return err
		}
	}
	for _, e := range s.events {
		if err := q.exec(`INSERT INTO events (id, type, app_id, connection_id, seq, data, created_us) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			e.ID, e.Type, e.AppID, nullable(e.ConnectionID), e.Seq, e.Data, e.CreatedUS); err != nil {
			return err
		}
	}
	for _, n := range s.notices {
		if err := q.exec(`INSERT INTO notices (id, kind, account_id, connection_id, app_id, data, created_us) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			n.ID, n.Kind, n.AccountID, n.ConnectionID, n.AppID, n.Data, n.CreatedUS); err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) saveCounts(s *State) error {
	for k, r := range s.rollups {
		if err := q.put(q.known.totals[k],
			`UPDATE rollups SET calls = calls + ?, input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, provider_cost_mc = provider_cost_mc + ?, svc_fee_mc = svc_fee_mc + ?,
			dev_margin_mc = dev_margin_mc + ?, user_charge_mc = user_charge_mc + ? WHERE connection_id = ? AND day = ? AND feature = ? AND model = ?`,
			[]any{r.calls, r.input, r.output, int64(r.ProviderCostMC), int64(r.SvcFeeMC), int64(r.DevMarginMC), int64(r.UserChargeMC), k.connectionID, k.day, k.feature, k.model},
			`INSERT INTO rollups AS r (calls, input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, connection_id, day, feature, model, app_id, account_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (connection_id, day, feature, model) DO UPDATE SET calls = r.calls + excluded.calls, input_tokens = r.input_tokens + excluded.input_tokens,
			output_tokens = r.output_tokens + excluded.output_tokens, provider_cost_mc = r.provider_cost_mc + excluded.provider_cost_mc, svc_fee_mc = r.svc_fee_mc + excluded.svc_fee_mc,
			dev_margin_mc = r.dev_margin_mc + excluded.dev_margin_mc, user_charge_mc = r.user_charge_mc + excluded.user_charge_mc`, r.appID, r.accountID); err != nil {
			return err
		}
	}
	if !q.guest {
		for subject, c := range q.counted {
			if s.windows[subject] == nil {
				s.windows[subject] = &c
			}
			s.dirtyWindows[subject] = true
		}
	}
	if len(s.dirtyWindows) == 0 {
		return nil
	}
	unsaved := q.unsavedAfter(s)
	for _, subject := range slices.Sorted(maps.Keys(s.dirtyWindows)) {
		c := *s.windows[subject]
		c.HeldMC -= unsaved[subject]
		if err := q.saveCounter(subject, c); err != nil {
			return err
		}
	}
	return nil
}

func (q *sqlite) saveCounter(subject string, c Counter) error {
	return q.exec(`INSERT INTO windows (subject, buckets, held, told) VALUES (?, ?, ?, ?)
		ON CONFLICT (subject) DO UPDATE SET buckets = excluded.buckets, held = excluded.held, told = excluded.told`,
		subject, c.Spent.String(), int64(c.HeldMC), flag(c.Told))
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func orNil(p *int64) any {
	if p == nil {
		return nil
	}
	return *p
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}
