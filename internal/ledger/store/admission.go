package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file decides whether the writer accepts holds (decision 050). A hold that cannot be
// settled is money at risk, so after a failed commit no hold is accepted until a write has
// succeeded. Settlements and releases are always accepted: their calls were made already.

const (
	// commandTimeout is how long Do waits for a command of the hot path.
	commandTimeout = 5 * time.Second
	// closedWait is for how long after a failed commit holds wait for the next success. Later
	// ones are refused immediately.
	closedWait = time.Second
	// probeTimeout bounds a probe write.
	probeTimeout = 2 * time.Second
	// freshCommit is the age up to which a commit shows that the database takes writes.
	freshCommit = time.Second
)

// probeBackoff paces the probe writes after a failed commit.
var probeBackoff = retry.Backoff{First: 20 * time.Millisecond, Max: 500 * time.Millisecond}

// errCommandTimeout is the error of a command that the writer has not answered in time. It
// may still be applied.
var errCommandTimeout = unavailableError{"ledger: the database has not answered in time"}

// errLeaseNotRenewed says that the node's lease is too old for new holds.
var errLeaseNotRenewed = unavailableError{"ledger: the node's lease could not be renewed"}

// unavailableError is an error for which db.IsUnavailable is true.
type unavailableError struct{ text string }

func (e unavailableError) Error() string { return e.text }

// Unwrap makes it count as a time limit that was exceeded.
func (e unavailableError) Unwrap() error { return context.DeadlineExceeded }

// admission is the state that decides whether holds are accepted.
type admission struct {
	closed      atomic.Bool  // holds are not accepted; for the hot path
	committedAt atomic.Int64 // when a write last succeeded, in nanoseconds since start
	start       time.Time

	mu       sync.Mutex
	reopened chan struct{} // closed when holds are accepted again; nil while they are accepted
	closedAt time.Time
	cause    error
	damaged  bool          // the file is damaged: holds are not accepted until restart
	wake     chan struct{} // wakes the goroutine that probes
}

func newAdmission() *admission {
	return &admission{start: time.Now(), wake: make(chan struct{}, 1)}
}

// close stops the admission of holds because a write has failed.
func (a *admission) close(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cause, a.damaged = cause, a.damaged || db.IsDamaged(cause)
	if a.reopened != nil {
		return
	}
	a.reopened, a.closedAt = make(chan struct{}), time.Now()
	a.closed.Store(true)
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
}

// noteSuccess notes that a write has succeeded, and admits holds again.
func (a *admission) noteSuccess() {
	a.committedAt.Store(int64(time.Since(a.start)))
	if !a.closed.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reopened == nil || a.damaged {
		return
	}
	close(a.reopened)
	a.reopened, a.cause = nil, nil
	a.closed.Store(false)
}

// state returns since when holds are refused, a channel that is closed when they are accepted
// again, and why. While they are accepted, cause is nil.
func (a *admission) state() (since time.Time, reopened <-chan struct{}, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reopened == nil {
		return time.Time{}, nil, nil
	}
	return a.closedAt, a.reopened, a.cause
}

// hasFreshCommit reports whether a write has succeeded within freshCommit.
func (a *admission) hasFreshCommit() bool {
	at := a.committedAt.Load()
	return at > 0 && time.Since(a.start)-time.Duration(at) < freshCommit
}

// admit returns nil if holds are accepted. It waits for a moment after a failed commit,
// because most failures are one lost connection. Its error is 503 unavailable.
func (w *Writer) admit(ctx context.Context) error {
	if !w.admission.closed.Load() {
		if w.isLeaseFresh() {
			return nil
		}
		w.admission.close(errLeaseNotRenewed) // the probe renews it
	}
	since, reopened, cause := w.admission.state()
	if cause == nil {
		return nil
	}
	if wait := closedWait - time.Since(since); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-reopened:
			if w.isLeaseFresh() {
				return nil
			}
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.closed:
			return ErrWriterStopped
		}
	}
	return refuseHold(cause)
}

func (w *Writer) isLeaseFresh() bool { return w.Node == nil || w.Node.IsLeaseFresh() }

func refuseHold(cause error) error {
	e := apierr.Unavailable.Errorf("The service is briefly unavailable. Try again in a moment.").WithCause(cause)
	e.RetryAfter = time.Second
	return e
}

// noteWrite notes how a write of the writer has ended.
func (w *Writer) noteWrite(err error) {
	switch {
	case err == nil:
		w.admission.noteSuccess()
	case db.IsAway(err) || db.IsDamaged(err):
		w.admission.close(err)
		w.db.NoteError(err)
	}
}

// probeWhileClosed repeats a probe write, until ctx ends, whenever and for as long as holds
// are not accepted.
func (w *Writer) probeWhileClosed(ctx context.Context) {
	for {
		select {
		case <-w.admission.wake:
		case <-ctx.Done():
			return
		}
		for b := probeBackoff; w.admission.closed.Load(); {
			if !retry.Sleep(ctx, b.Next()) {
				return
			}
			_ = w.probe(ctx) // its result is noted
		}
	}
}

// probe writes to the database as a settlement does, on the write connection, and notes how
// that ended. The write is the renewal of the node's lease. Without a node the next command
// is the probe.
func (w *Writer) probe(ctx context.Context) error {
	if w.Node == nil {
		w.admission.noteSuccess()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := w.Node.RenewLease(ctx)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return err // the caller has left: nothing is known
	}
	w.noteWrite(err)
	return err
}

// CheckReady returns nil if this node can hold and settle now, or why it cannot: the last
// write failed, the lease is old, or the probe write that it makes if there was no commit in
// the last second fails.
func (w *Writer) CheckReady(ctx context.Context) error {
	if _, _, cause := w.admission.state(); cause != nil {
		return cause
	}
	if !w.isLeaseFresh() {
		return errLeaseNotRenewed
	}
	if w.admission.hasFreshCommit() {
		return nil
	}
	return w.probe(ctx)
}

// RefuseHolds stops the admission of holds until restart, because the database is damaged.
func (w *Writer) RefuseHolds(cause error) { w.admission.close(cause) }

// AcceptsHolds reports whether holds are accepted: the last write succeeded.
func (w *Writer) AcceptsHolds() bool { return !w.admission.closed.Load() }

// isHotPath reports whether a command runs in the writer's batches.
func isHotPath(c rules.Command) bool {
	switch c.(type) {
	case rules.Hold, rules.Settle, rules.Defer, rules.Release, rules.RecordRefusal:
		return true
	}
	return false
}
