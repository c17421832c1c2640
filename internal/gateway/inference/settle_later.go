package inference

import (
	"context"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
)

// settlementWait is how long a client waits for its call to be settled or released while the
// database is unavailable (decision 050).
const settlementWait = 5 * time.Second

// lateSettlements are the settlements that are repeated after their clients were answered.
type lateSettlements struct {
	running sync.WaitGroup
	stopped chan struct{} // closed when they are to end
}

// settleInTime settles the call with settle, which repeats the command until its context
// ends, and notes the result. If that takes longer than settlementWait because the database
// is unavailable, settle is called again in the background: the provider has been paid.
// Until that ends, the call stays on this node and its key is answered 503 unavailable, as
// this client is.
func (a *attempt) settleInTime(
	ctx context.Context, settle func(context.Context) (result, error),
) (result, error) {
	soon, cancel := context.WithTimeout(ctx, a.h.DB.Limit(settlementWait))
	defer cancel()
	r, err := settle(soon)
	if err == nil {
		a.running.setResult(r)
		return r, nil
	}
	if !db.IsUnavailable(err) {
		return result{}, err
	}
	late := apierr.Unavailable.On(a.held.ConnectionID, "the response is ready but could not be recorded yet; "+
		"retry with the same Idempotency-Key to get it, or ask GET /v1/requests/%s", a.held.RequestID).WithCause(err)
	late.RetryAfter = time.Second
	a.running.settleLater(late)
	giveBack := a.call.seat.handOver()
	a.h.late.running.Go(func() { a.settleInBackground(ctx, settle, giveBack) })
	return result{}, late
}

// settleInBackground settles the call until the deadline of ctx, and ends it. A response that was not stored is kept
// for the client that was told to fetch it, and its bytes are given back later.
func (a *attempt) settleInBackground(
	ctx context.Context, settle func(context.Context) (result, error), giveBack func(),
) {
	deadline, _ := ctx.Deadline() // execute has set it
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	go func() {
		select {
		case <-a.h.late.stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	r, err := settle(ctx)
	if err == nil {
		a.running.setResult(r)
	}
	if err == nil && a.response == nil && len(r.body) > 0 {
		a.h.stored.keep(a.held.RequestID, r.body, giveBack)
	} else {
		defer giveBack()
	}
	a.h.calls.leave(a.running, err)
}

// StopSettling waits for the settlements that are repeated in the background until ctx ends,
// and then ends them. The holds that remain are ended by the sweep of another node, or after
// the restart.
func (h *Handler) StopSettling(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		h.late.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	close(h.late.stopped)
	<-done
}
