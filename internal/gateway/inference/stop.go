package inference

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/metrics"
)

// This file ends running calls that their user, or the operator, stops (decision 067). A stop is
// a row that every node reads twice a second, so it does not matter where the call runs. A stop
// that is requested at the call's own node ends it immediately, also while the database is away.

// A stoppedError is why a call was stopped.
type stoppedError struct{ cause rules.StopCause }

// Error returns the cause.
func (e *stoppedError) Error() string { return "the call was stopped: " + string(e.cause) }

// How a stopped call is billed.
const (
	nothingBilled = "nothing was billed"
	partBilled    = "what was delivered is billed as an estimate"
	inputBilled   = "its input is billed as an estimate"
)

// apiError returns the error for the client of a stopped call. billed says how it is billed.
func (e *stoppedError) apiError(connectionID, billed string) *apierr.Error {
	switch e.cause {
	case rules.StoppedByPause:
		return apierr.ConnectionFrozen.On(connectionID, "the connection was paused while this call ran; %s", billed)
	case rules.StoppedByRevoke:
		return apierr.ConnectionRevoked.On(connectionID, "the connection was revoked while this call ran; %s", billed)
	case rules.StoppedBySuspension:
		return apierr.AppSuspended.On(connectionID, "the app was suspended while this call ran; %s", billed)
	default:
		return apierr.CallStopped.On(connectionID, "the user stopped this call; %s", billed)
	}
}

// lastWriteTimeout is how long a client that reads slowly may take, after a stop, to accept what
// was relayed before it.
const lastWriteTimeout = 500 * time.Millisecond

// cutBy returns the function that ends the upstream request of the attempt. When the call is
// stopped, it also ends a write that a slow client does not accept.
func (a *attempt) cutBy(cancel context.CancelCauseFunc) func(error) {
	return func(cause error) {
		if a.out != nil && a.running.stopped.Load() != nil {
			_ = a.out.rc.SetWriteDeadline(time.Now().Add(lastWriteTimeout)) // not every writer has deadlines
		}
		cancel(cause)
	}
}

// awaitStop returns why the call was stopped, or nil. After it, the stop changes nothing more: the
// last frames have a write deadline of their own.
func (a *attempt) awaitStop() *stoppedError {
	stop := a.running.stopped.Load()
	if stop != nil {
		a.h.orphans.unwatch(a.running)
		if a.out != nil {
			a.out.renewDeadline()
		}
	}
	return stop
}

// endStopped returns the error of a stopped call that has delivered nothing.
func (a *attempt) endStopped(ctx context.Context, stop *stoppedError, cause error) error {
	a.h.Log.InfoContext(ctx, "call stopped", "request_id", a.held.RequestID, "model", a.Model.ID, "cause", stop.cause)
	a.h.Metrics.CountCall(a.api.Name(), a.Model.ID, metrics.Abandoned, time.Since(a.started))
	a.trace.Fail("stopped")
	return stop.apiError(a.held.ConnectionID, nothingBilled).WithCause(cause)
}

// cutError returns what a client reads after the frames of a stream that was cut or stopped.
func (a *attempt) cutError(cause error) *apierr.Error {
	if stop := a.running.stopped.Load(); stop != nil {
		return stop.apiError(a.held.ConnectionID, partBilled)
	}
	if errors.Is(cause, errLost) {
		return interrupted(a.held.ConnectionID, chargeOfPart(a.recorder() != nil))
	}
	a.h.Metrics.CountCutStream(a.api.Name())
	return brokenOff(a.Model.Provider, a.held.ConnectionID, cause, a.recorder() != nil)
}

// stopCall stops a call of this node. The first cause stands. A call whose settlement has begun
// ends as it would without the stop.
func (o *orphanedCalls) stopCall(c *runningCall, cause rules.StopCause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	stop := &stoppedError{cause}
	if c.stopped.CompareAndSwap(nil, stop) && c.cut != nil {
		o.remove(c)
		c.cut(stop)
	}
}

// stopCalls stops the calls of this node that match.
func (h *Handler) stopCalls(cause rules.StopCause, matches func(*runningCall) bool) {
	for _, c := range h.calls.listCalls() {
		if matches(c) {
			h.orphans.stopCall(c, cause)
		}
	}
}

// applyStop stops the calls of this node that a stop names.
func (h *Handler) applyStop(s *rules.Stop) {
	h.stopCalls(s.Cause, func(c *runningCall) bool {
		return c.key.ConnectionID == s.ConnectionID && (s.RequestID == "" || c.hasRequestID(s.RequestID))
	})
}

// hasRequestID reports whether a call has a request id.
func (c *runningCall) hasRequestID(requestID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requestID == requestID
}

// StopCall stops one running call of a connection, because its user stops it: on this node
// immediately, on another one within a second. A call that has ended stays as it is. The error is
// the database's; it is nil if the call runs here.
func (h *Handler) StopCall(ctx context.Context, connectionID, requestID string) error {
	found := false
	h.stopCalls(rules.StoppedByUser, func(c *runningCall) bool {
		matches := c.key.ConnectionID == connectionID && c.hasRequestID(requestID)
		found = found || matches
		return matches
	})
	// Save it in any case: what runs here may be a follower of the call.
	err := store.InsertStop(ctx, h.DB, connectionID, requestID, h.Now())
	if err != nil && found {
		h.Log.WarnContext(ctx, "stop not saved", "request_id", requestID, "error", err)
		return nil
	}
	return err
}

// PauseCalls stops the calls of some connections that run on this node, because their user pauses
// the connections. The command that freezes them reaches the other nodes.
func (h *Handler) PauseCalls(connectionIDs []string) {
	h.stopCalls(rules.StoppedByPause, func(c *runningCall) bool {
		return slices.Contains(connectionIDs, c.key.ConnectionID)
	})
}

const (
	// stopTimeout bounds one reading of the stops.
	stopTimeout = 2 * time.Second
	// stopSlack is longer than a transaction takes to commit, than the clocks of nodes differ, and than callers are
	// cached.
	stopSlack = 10 * time.Second
)

// A stopWatch remembers which stops this node has read. Only WatchStops uses it.
type stopWatch struct {
	readAt time.Time            // of the last reading that succeeded
	seen   map[string]time.Time // when a stop was last read
}

// WatchStops stops the calls of this node that any node was asked to stop. Call it twice a second.
// A stop is applied once, when it is first read, so that it does not end a call that begins after
// the connection was resumed. The suspension of an app is applied each time, for as long as callers
// may be cached that do not know it: a hold does not look for it. It cannot end a call that begins
// after it was lifted, because only calls are stopped that ran before it was read.
func (h *Handler) WatchStops(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	w, now := &h.stops, h.Now()
	since := w.readAt.Add(-stopSlack)
	running := h.calls.listCalls()
	stops, err := store.ListStops(ctx, h.DB, since)
	if err != nil {
		return err
	}
	suspended, err := h.Apps.ListSuspendedByOperator(ctx, since.UnixMicro())
	if err != nil {
		return err
	}
	for i := range stops {
		if w.noteStop(stops[i].ID, now) {
			h.applyStop(&stops[i])
		}
	}
	for i := range suspended {
		for _, c := range running {
			if c.appID == suspended[i].ID {
				h.orphans.stopCall(c, rules.StoppedBySuspension)
			}
		}
	}
	w.readAt = now
	for key, at := range w.seen {
		if now.Sub(at) > 2*stopSlack {
			delete(w.seen, key)
		}
	}
	return nil
}

// noteStop notes that a stop was read, and reports whether it was read for the first time.
func (w *stopWatch) noteStop(key string, now time.Time) bool {
	_, known := w.seen[key]
	w.seen[key] = now
	return !known
}

// findStopError returns why a call of another node was stopped before it delivered anything; nil =
// it failed by itself.
func (h *Handler) findStopError(ctx context.Context, connectionID, requestID string) *apierr.Error {
	s, err := store.FindStop(ctx, h.DB, connectionID, requestID, id.Time(requestID))
	if err != nil {
		if !errors.Is(err, sql.ErrNoRows) {
			h.Log.WarnContext(ctx, "stops not read", "request_id", requestID, "error", err)
		}
		return nil
	}
	return (&stoppedError{s.Cause}).apiError(connectionID, nothingBilled)
}
