package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// backend loads and saves the rows of a batch in an engine's best way. It works on a
// driver's connection: the writer's own, or that of a caller's transaction.
type backend interface {
	bind(ctx context.Context, driverConn any) error           // for a batch of the writer's own
	bindExternalTx(ctx context.Context, driverConn any) error // for a caller's transaction
	begin(_ context.Context, writes bool) error               // writes: it surely or likely will
	load(context.Context, *rules.RowKeys) (*rules.State, error)
	save(context.Context, *rules.State) error // may leave the sending to flush or commit
	flush(context.Context) error
	commit(context.Context) error
	rollback(context.Context)
	flushDelayed(context.Context, time.Time) (wrote, more bool, err error) // between batches, now and then
	close(driverConn any) error
}

// ErrWriterStopped is the error of commands that come after the writer has stopped.
var ErrWriterStopped = errors.New("ledger: the writer has stopped")

// maxBatch bounds a transaction. Larger ones gain little and make callers wait.
const maxBatch = 256

// Writer runs commands in batches: whatever queued while the last batch was
// committed is the next one, so batches grow with load and need no timer.
type Writer struct {
	// Node is the node whose lease the holds live by. Nil: a test, or a command that makes no
	// holds. It is set before Run.
	Node *Node

	// Observe is called by Do after a command was applied and committed, in the goroutine of the
	// command's caller. It must not block. Nil: nothing observes. It is set before Run.
	Observe func(rules.Command, *rules.Result)

	db        *db.DB
	now       func() time.Time
	admission *admission
	jobs      sync.Pool // that have ended; their channels are this writer's
	queue     chan *job
	closed    chan struct{}
	backend   backend // belongs to the goroutine that has the write connection

	toSync               chan *job     // SQLite: what is committed, and answered when it is on the disk
	sync                 func() error  // replaced in tests
	unsyncedCount        atomic.Int64  // how many these are
	synced               chan struct{} // a sync is over
	minBatchWhileSyncing int           // so many commands are worth a batch while the disk is busy

	largeTimeout time.Duration // largeTimeout, or less in tests
	storesLarge  time.Time     // from when on large responses are stored again; belongs to Run
}

type job struct {
	cmd        rules.Command
	res        rules.Result
	err        error
	memoryOnly bool // a hold that is only in memory
	done       chan struct{}
	timer      *time.Timer // of the caller that waits for done
	abandoned  atomic.Bool // the caller has left and repeats the command
	stored     int         // bytes of the response that is stored with it
	unstored   bool        // its response was dropped
}

// A response that is stored with its settlement is written while all other commands wait.
const (
	// maxBatchBytes bounds the responses of a batch. A larger one, up to 16 MiB, is a batch of its own.
	maxBatchBytes = 1 << 20
	// largeTimeout is how long a larger one may take to save. Then it is not stored, and neither are others for
	// largePause: the settlement is money, the replay is not (decision 132).
	largeTimeout = 2 * time.Second
	largePause   = time.Minute
)

// isLarge reports whether the job's response is too large to be in a batch with others.
func (j *job) isLarge() bool { return j.stored > maxBatchBytes }

// responseOf returns what a command stores for replays; nil = nothing.
func responseOf(c rules.Command) *rules.StoredResponse {
	switch c := c.(type) {
	case rules.Settle:
		return c.Response
	case rules.Defer:
		return c.Response
	}
	return nil
}

// dropResponse lets the job's command store nothing.
func (j *job) dropResponse() {
	switch c := j.cmd.(type) {
	case rules.Settle:
		c.Response = nil
		j.cmd = c
	case rules.Defer:
		c.Response = nil
		j.cmd = c
	}
	j.stored, j.unstored = 0, true
}

// newJob makes a job for Writer.jobs.
func newJob() any {
	j := &job{done: make(chan struct{}, 1), timer: time.NewTimer(commandTimeout)}
	j.timer.Stop()
	return j
}

// NewWriter returns a writer on d. Run must be started before Do is used.
func NewWriter(d *db.DB, now func() time.Time) *Writer {
	return &Writer{
		db:                   d,
		now:                  now,
		admission:            newAdmission(),
		jobs:                 sync.Pool{New: newJob},
		queue:                make(chan *job, 4*maxBatch),
		closed:               make(chan struct{}),
		backend:              newBackend(d),
		toSync:               make(chan *job, 4*maxBatch),
		sync:                 d.Sync,
		synced:               make(chan struct{}, 1),
		minBatchWhileSyncing: 64,
		largeTimeout:         largeTimeout,
	}
}

// newBackend returns the backend of an engine. On SQLite all writers of a DB share
// one: its cache and its statements belong to the one write connection.
func newBackend(d *db.DB) backend {
	if d.Engine == db.Postgres {
		return &postgres{}
	}
	return d.WriteConnState(func() any { return newSQLite(d) }).(backend)
}

// Do applies c in the next batch, and returns when the change is on the disk. Once c
// is queued, Do does not return when ctx ends: only the batch decides whether c is
// applied.
//
// Do waits 5 s for a command of the hot path (Hold, Settle, Defer, Release, RecordRefusal), or
// until the deadline of ctx. After that it returns an error for which db.IsUnavailable is true, and c may still be
// applied: repeated, it finds what it has done. A hold that is not accepted, because the last
// commit failed or the node's lease is old, is refused as 503 unavailable.
func (w *Writer) Do(ctx context.Context, c rules.Command) (res rules.Result, err error) {
	if !isHotPath(c) { // rare, and not repeatable: runs in a separate transaction
		err = w.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			res, err = w.DoTx(ctx, tx, c)
			return err
		})
		if err == nil && w.Observe != nil {
			observed := res
			w.Observe(c, &observed)
		}
		return res, err
	}
	if _, isHold := c.(rules.Hold); isHold {
		if err := w.admit(ctx); err != nil {
			return rules.Result{}, err
		}
	}
	j := w.jobs.Get().(*job)
	j.cmd = c
	if r := responseOf(c); r != nil {
		j.stored = len(r.Body)
	}
	isLarge := j.isLarge() // the writer may change it
	wait := w.db.Limit(commandTimeout)
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	j.timer.Reset(wait)
	select {
	case w.queue <- j:
	case <-j.timer.C:
		return rules.Result{}, errCommandTimeout
	case <-ctx.Done():
		return rules.Result{}, ctx.Err()
	case <-w.closed:
		return rules.Result{}, ErrWriterStopped
	}
	select {
	case <-j.done:
	case <-j.timer.C:
		j.abandoned.Store(true) // a batch that already has j may apply it
		if !isLarge {           // which may have waited for other large ones
			w.admission.close(errCommandTimeout)
		}
		return rules.Result{}, errCommandTimeout
	case <-w.closed:
		select {
		case <-j.done: // it was in the last batch
		default:
			return rules.Result{}, ErrWriterStopped
		}
	}
	if res, err = j.res, j.err; err == nil && res.Refused != nil {
		err = res.Refused
	}
	res.Unstored = j.unstored && err == nil && res.Outcome != rules.Done // else an earlier try may have stored it
	if err == nil && w.Observe != nil {
		w.Observe(c, &j.res) // not &res, which would then be on the heap
	}
	j.timer.Stop()
	*j = job{done: j.done, timer: j.timer}
	w.jobs.Put(j)
	return res, err
}

// Run applies batches until ctx ends, and then what is still queued.
func (w *Writer) Run(ctx context.Context) error {
	defer close(w.closed)
	var syncs sync.WaitGroup
	syncs.Go(w.answerAfterSync)
	syncs.Go(func() { w.probeWhileClosed(ctx) })
	defer syncs.Wait()
	defer close(w.toSync)
	defer w.closeBackend()
	batch, late := make([]*job, 0, maxBatch), make([]*job, 0, 2*maxBatch)
	var flush <-chan time.Time // nil while nothing is delayed: an idle node sleeps
	for {
		select {
		case <-flush:
			flush = nil
			more := w.flushDelayed()
			if len(late) > 0 { // the batch before them failed, and no sync follows
				late = w.runBatch(nil, late)
			}
			if more || len(late) > 0 {
				flush = time.After(holdFlushDelay)
			}
		case <-w.synced:
			late = w.runBatch(nil, late)
		case j := <-w.queue:
			w.waitForCallers()
			batch = drainQueue(append(batch[:0], j), w.queue)
			late = w.runBatch(batch, late)
			for w.db.Engine == db.Postgres && len(late) > 0 { // large responses, each after what came meanwhile
				batch = drainQueue(batch[:0], w.queue)
				late = w.runBatch(batch, late)
			}
			if flush == nil {
				flush = time.After(holdFlushDelay)
			}
		case <-ctx.Done():
			for {
				if batch = drainQueue(batch[:0], w.queue); len(batch) == 0 {
					w.minBatchWhileSyncing = 0
					for len(late) > 0 {
						late = w.runBatch(nil, late)
					}
					return nil
				}
				late = w.runBatch(batch, late)
			}
		}
	}
}

// flushDelayed lets the backend save what it has delayed, and reports whether there is more. What fails is tried again.
func (w *Writer) flushDelayed() (more bool) {
	if w.db.Engine == db.Postgres {
		return false // every hold is saved with its batch
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	conn, err := w.db.Conn(ctx)
	if err != nil {
		w.noteWrite(err)
		return true
	}
	wrote := false
	err = conn.Raw(func(dc any) (err error) {
		if err := w.backend.bind(ctx, dc); err != nil {
			return err
		}
		wrote, more, err = w.backend.flushDelayed(ctx, w.now())
		return err
	})
	_ = conn.Close()
	if err != nil {
		w.noteWrite(err)
	}
	if wrote {
		w.queueForSync(&job{done: make(chan struct{}, 1)}) // no caller waits for it
	}
	return more || err != nil
}

// answerAfterSync answers committed commands when their changes are on the disk.
// Meanwhile the next batch runs; its commands are the next ones here.
func (w *Writer) answerAfterSync() {
	batch := make([]*job, 0, maxBatch)
	for j := range w.toSync {
		batch = drainQueue(append(batch[:0], j), w.toSync)
		err := w.sync()
		w.noteWrite(err)
		answerAll(batch, err)
		w.unsyncedCount.Add(-int64(len(batch)))
		select {
		case w.synced <- struct{}{}:
		default: // the writer will see it anyway
		}
	}
}

func (w *Writer) queueForSync(j *job) {
	w.unsyncedCount.Add(1)
	w.toSync <- j
}

// closeBackend closes the prepared statements, so that the database can be closed.
func (w *Writer) closeBackend() {
	if w.db.Engine == db.Postgres {
		return // they belong to their connections
	}
	conn, err := w.db.Conn(context.Background())
	if err != nil {
		return // closed already, statements and all
	}
	_ = conn.Raw(func(dc any) error { return w.backend.close(dc) }) // nothing was left undone
	_ = conn.Close()
}

// waitForCallers lets goroutines that are ready to run queue their commands first, so
// that a busy machine makes few large commits instead of many small ones. On an idle
// machine it returns without waiting.
func (w *Writer) waitForCallers() {
	for range 4 {
		n := len(w.queue)
		runtime.Gosched()
		if len(w.queue) == n || n >= maxBatch {
			return
		}
	}
}

// drainQueue appends the queued commands to batch, up to maxBatch.
func drainQueue(batch []*job, queue <-chan *job) []*job {
	for len(batch) < maxBatch {
		select {
		case j, ok := <-queue:
			if !ok {
				return batch
			}
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// runBatch commits a batch and the delayed commands before it, and returns those that
// it delays. On SQLite holds come first, in a separate batch: most of them write
// nothing, and need not wait for commands that do. (On PostgreSQL two batches would
// take twice as many round trips.) The other commands are delayed while a sync runs
// and they are few: no other sync could begin for them yet, and many small commits
// cost more than a large one. Of the large responses one is stored, after all else; the
// others are delayed, so that what comes meanwhile waits for one only.
func (w *Writer) runBatch(batch, late []*job) []*job {
	batch = slices.DeleteFunc(batch, func(j *job) bool { return j.abandoned.Load() })
	holds := 0
	if w.db.Engine == db.SQLite {
		for i, j := range batch {
			if _, ok := j.cmd.(rules.Hold); ok {
				batch[i], batch[holds] = batch[holds], j
				holds++
			}
		}
	}
	if holds > 0 {
		_ = w.commitOrSplit(batch[:holds]) // each caller has its answer
	}
	late = slices.DeleteFunc(append(late, batch[holds:]...), func(j *job) bool { return j.abandoned.Load() })
	if len(late) == 0 || w.unsyncedCount.Load() > 0 && len(late) < w.minBatchWhileSyncing {
		return late
	}
	n := countFitting(late)
	if n == len(late) {
		_ = w.commitOrSplit(late)
		return late[:0]
	}
	slices.SortStableFunc(late, func(a, b *job) int { // the large ones last
		return int(db.BoolInt(a.isLarge()) - db.BoolInt(b.isLarge()))
	})
	if n = countFitting(late); n > 0 {
		if err := w.commitOrSplit(late[:n]); db.IsAway(err) {
			w.answerBatch(late[n:], err)
			return late[:0]
		}
		late = append(late[:0], late[n:]...)
	}
	if i := slices.IndexFunc(late, (*job).isLarge); i >= 0 {
		w.commitLarge(late[i])
		late = append(late[:i], late[i+1:]...)
	}
	return late
}

// countFitting returns how many of the first jobs are a batch: none is large, and they have no more bytes than one may
// have.
func countFitting(jobs []*job) int {
	bytes := 0
	for i, j := range jobs {
		if bytes += j.stored; bytes > maxBatchBytes {
			return i
		}
	}
	return len(jobs)
}

// commitLarge runs a command whose response is large. If that takes too long to save, or fails for a reason that may be
// the response's, the command is run without it. A caller that has left meanwhile repeats the command.
func (w *Writer) commitLarge(j *job) {
	batch := []*job{j}
	if w.now().Before(w.storesLarge) {
		j.dropResponse()
		_ = w.commitOrSplit(batch) // the caller has its answer
		return
	}
	err := w.tryBatch(batch)
	isTooSlow := errors.Is(err, errTooSlow)
	switch {
	case err == nil, db.IsAway(err) && !isTooSlow:
		w.answerBatch(batch, err)
	case j.abandoned.Load():
	case errors.Is(err, errFileChanged), db.IsUnavailable(err) && !isTooSlow: // such as a conflict
		_ = w.commitOrSplit(batch)
	default:
		j.dropResponse()
		if err := w.commitOrSplit(batch); db.IsAway(err) {
			w.storesLarge = time.Time{} // it was not the response
		}
	}
}

// commitOrSplit runs a batch. If the batch fails as a whole, it runs each command
// alone, so that a bad command fails only its own caller. Commands of the hot path may
// be repeated: each finds what it has already done. If the database is away, every
// command gets that error: to try each would make the last one wait for all others.
// A command whose caller has left is not tried: while a row is locked, each may take as
// long as the batch did, and callers wait behind it. It returns the error with which it has
// answered commands because the database is away.
func (w *Writer) commitOrSplit(batch []*job) error {
	err := w.tryBatch(batch)
	for n := 0; errors.Is(err, errFileChanged) && n < 3; n++ {
		err = w.tryBatch(batch)
	}
	if err == nil || len(batch) == 1 || db.IsAway(err) {
		w.answerBatch(batch, err)
		return err
	}
	for i := range batch {
		if batch[i].abandoned.Load() {
			continue
		}
		err := w.tryBatch(batch[i : i+1])
		if db.IsAway(err) {
			w.answerBatch(batch[i:], err)
			return err
		}
		w.answerBatch(batch[i:i+1], err)
	}
	return nil
}

// answerBatch answers a batch when its changes are on the disk. Holds in memory and
// refused commands have no changes to wait for.
func (w *Writer) answerBatch(batch []*job, err error) {
	if err != nil || w.db.Engine != db.SQLite {
		answerAll(batch, err)
		return
	}
	for _, j := range batch {
		if j.err != nil || j.memoryOnly {
			j.done <- struct{}{}
		} else {
			w.queueForSync(j)
		}
	}
}

func answerAll(batch []*job, err error) {
	for _, j := range batch {
		if err != nil {
			j.res, j.err = rules.Result{}, fmt.Errorf("ledger: %w", err)
		}
		j.done <- struct{}{}
	}
}

// errTooSlow says that a batch with a large response took longer to save than it may.
var errTooSlow = errors.New("ledger: a large response takes too long to save")

// tryBatch runs a batch in one transaction. Each command has its own answer; the error
// is that of the whole batch.
func (w *Writer) tryBatch(batch []*job) (err error) {
	defer func() {
		if errors.Is(err, errTooSlow) {
			return // the next try of its command tells whether the database is away
		}
		if err != nil || w.db.Engine == db.Postgres { // on SQLite the sync decides
			w.noteWrite(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(dc any) error { return w.applyBatch(ctx, dc, batch) })
	return errors.Join(err, conn.Close())
}

// batchTimeout is after how long a connection is given up that does not answer. It is longer
// than PostgreSQL's lock_timeout, so that a locked row is not taken for a lost database.
const batchTimeout = 6 * time.Second

func (w *Writer) applyBatch(ctx context.Context, dc any, batch []*job) (err error) {
	if err := w.backend.bind(ctx, dc); err != nil {
		return err
	}
	need := rules.NewRowKeys()
	for _, j := range batch {
		need.Add(j.cmd)
	}
	defer func() {
		if err != nil {
			w.backend.rollback(ctx)
		}
	}()
	_, hold := batch[0].cmd.(rules.Hold) // on SQLite, and then all are
	if err := w.backend.begin(ctx, !hold); err != nil {
		return err
	}
	s, err := w.backend.load(ctx, need)
	if err != nil {
		return err
	}
	now := w.now()
	for _, j := range batch {
		j.res, j.err = rules.Apply(s, j.cmd, now)
	}
	for _, j := range batch {
		_, hold := j.cmd.(rules.Hold)
		// what is done may be on its way to the disk
		j.memoryOnly = hold && j.res.Outcome != rules.Done && j.res.Outcome != rules.Waiting && !s.Changes.MustSync
	}
	if batch[0].isLarge() {
		return w.saveLarge(ctx, s)
	}
	if err := w.backend.save(ctx, s); err != nil {
		return err
	}
	return w.backend.commit(ctx)
}

// saveLarge saves and commits a large response, for no longer than one may take. If it took longer, no other is stored
// for a while.
func (w *Writer) saveLarge(ctx context.Context, s *rules.State) error {
	soon, cancel := context.WithTimeout(ctx, w.largeTimeout)
	defer cancel()
	began := time.Now()
	err := w.backend.save(soon, s)
	if err == nil {
		err = w.backend.commit(soon)
	}
	if time.Since(began) < w.largeTimeout {
		return err
	}
	w.storesLarge = w.now().Add(largePause)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errTooSlow, err)
	}
	return err
}
