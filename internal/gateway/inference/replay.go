package inference

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// attach answers a follower of a call that runs on this node, of which it is a client: it
// reads the response from its first chunk, and gets the same end (F-36, F-43).
func (h *Handler) attach(w http.ResponseWriter, r *http.Request, c *call, running *runningCall) error {
	w.Header().Set("Idempotent-Replayed", "true")
	if !c.plan.Request.Stream {
		v, err := running.readOutput(r.Context(), math.MaxInt)
		if err != nil {
			return err
		}
		if err := c.seat.reserveAnswer(answerFactor * int64(len(v.result.body))); err != nil {
			return err
		}
		return writeFollowerResponse(w, c.shape, &v)
	}
	requestID, err := running.waitRequestID(r.Context()) // a hold takes a moment: no keep-alive yet
	if err != nil {
		return err
	}
	if requestID != "" {
		w.Header().Set("X-Request-Id", requestID)
	}
	c.out.startKeepAlive()
	for pos := 0; ; {
		v, err := running.readOutput(r.Context(), pos)
		if err != nil {
			return web.AlreadyReported(err) // the follower has disconnected; the call goes on
		}
		if v.tooLong {
			return refuseTooLong(c.out)
		}
		c.out.writeFrames(v.frames)
		c.out.flush()
		pos += len(v.frames)
		if v.ended {
			return endFollowerStream(w, c, &v)
		}
	}
}

func refuseTooLong(out *sse) error {
	out.stop()
	return out.endWithError(
		apierr.IdempotencyKeyReused.Errorf("the response to this key was too large to store; use a new key"))
}

// writeFollowerResponse answers a follower whose call has ended.
func writeFollowerResponse(w http.ResponseWriter, shape shapes.Call, v *view) error {
	if v.err != nil {
		w.Header().Del("Idempotent-Replayed")
		return copyError(v.err)
	}
	w.Header().Set("X-Request-Id", v.result.entry.RequestID())
	return writeResponse(w, shape, v.result.body, &v.result.entry)
}

// endFollowerStream writes the end of a follower's stream.
func endFollowerStream(w http.ResponseWriter, c *call, v *view) error {
	c.out.stop()
	if v.err == nil {
		return endStream(c.plan, c.out, &v.result)
	}
	if !c.out.hasBegun() {
		w.Header().Del("Idempotent-Replayed")
	}
	return c.out.endWithError(copyError(v.err))
}

// copyError copies an error for another request: the pipeline completes each request's
// error.
func copyError(err error) error {
	var e *apierr.Error
	if errors.As(err, &e) {
		c := *e
		return &c
	}
	return err
}

// endStream writes the last events of a stream whose response is in the ledger.
func endStream(q *plan.Plan, out *sse, r *result) error {
	if !q.Route.Chat {
		out.writeFrames(r.usage)
	}
	return writeEnd(q, out, r)
}

// writeEnd writes what follows the frames of a stream when its bill is known.
func writeEnd(q *plan.Plan, out *sse, r *result) error {
	end := r.usage
	if r.differs { // a replay of the key will differ (F-09)
		end = failFrames(out.format, out.sent(), interrupted(out.connID, chargeOfStored(r)), out.links)
		if out.format == nil {
			out.writeFrames(end)
		}
	}
	var err error
	if out.format == nil {
		end, err = finalFrames(q, r)
	} else {
		end, err = fillBill(out.format, end, r)
	}
	if err != nil {
		return err
	}
	out.writeFrames(end)
	return nil
}

// replay answers a key that was billed: with the same status and the same body, and
// without a charge.
func (h *Handler) replay(
	ctx context.Context, w http.ResponseWriter, c *call, running *runningCall, entryID string,
) error {
	res, err := h.loadResult(ctx, c.plan, entryID, c.seat.reserveAnswer)
	if err != nil {
		return err
	}
	return h.writeReplay(w, c, running, &res)
}

// writeReplay sends a stored response.
func (h *Handler) writeReplay(w http.ResponseWriter, c *call, running *runningCall, res *result) error {
	running.setResult(*res)
	running.setRequestID(res.entry.RequestID())
	if c.out == nil || !c.out.hasBegun() { // it has while another node ran the call
		w.Header().Set("Idempotent-Replayed", "true")
		w.Header().Set("X-Request-Id", res.entry.RequestID())
	}
	var frames []byte
	if c.out != nil {
		frames, _ = splitStored(res.body)
		running.appendFrames(frames)
	}
	h.calls.leave(running, nil) // who joined does not wait until this client has read it
	if c.out == nil {
		return writeResponse(w, c.shape, res.body, &res.entry)
	}
	c.out.writeFrames(frames)
	return endStream(c.plan, c.out, res)
}

// loadResult reads a billed call from the database. reserve reserves the bytes of its answer before it is unpacked.
func (h *Handler) loadResult(
	ctx context.Context, q *plan.Plan, entryID string, reserve func(int64) error,
) (result, error) {
	entry, err := store.GetEntry(ctx, h.DB, entryID)
	if err != nil {
		return result{}, err
	}
	stored, err := store.GetStoredResponse(ctx, h.DB, entry.RequestID())
	if errors.Is(err, sql.ErrNoRows) {
		if body := h.stored.findPromised(entry.RequestID()); body != nil {
			return result{entry: entry, body: body}, nil
		}
		return result{}, apierr.IdempotencyKeyReused.On(entry.ConnectionID,
			"the response to this key is no longer stored; it was billed once, as request %s", entry.RequestID())
	} else if err != nil {
		return result{}, err
	}
	body, err := unpackResponse(stored, reserve)
	if err != nil {
		return result{}, err
	}
	res := result{entry: entry, body: body}
	if q.Request.Stream {
		_, res.usage = splitStored(body)
	}
	return res, nil
}

// How often a call on another node is looked at: first after minFollowPause, then less
// and less often.
const (
	minFollowPause = 20 * time.Millisecond
	maxFollowPause = 250 * time.Millisecond
)

// followTime is for how long a call of another node is followed: its node may take maxCallDuration and
// maxSettleDuration, and if it dies then, another one ends the call.
const followTime = maxCallDuration + 2*maxSettleDuration

// pollPatience is for how long a call of another node is followed while the database cannot be read: its node may serve
// it meanwhile.
const pollPatience = 30 * time.Second

// errOwnerLost says that the node which ran a call has died before it delivered anything, so
// that its follower may run the call.
var errOwnerLost = errors.New("the node that ran the call is dead")

// followRemote answers a follower of a call that runs on another node: it reads the
// checkpoints as they are saved, and the end from the ledger (F-37). Other followers on
// this node read along.
func (h *Handler) followRemote(
	ctx context.Context, w http.ResponseWriter, c *call, running *runningCall, held *rules.Result,
) error {
	f := &remoteFollower{
		h:       h,
		w:       w,
		out:     c.out,
		shape:   c.shape,
		plan:    c.plan,
		running: running,
		held:    held,
		reserve: c.seat.reserveAnswer,
	}
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	running.setRequestID(held.RequestID)
	if c.out == nil || !c.out.hasBegun() {
		w.Header().Set("Idempotent-Replayed", "true")
		w.Header().Set("X-Request-Id", held.RequestID)
	}
	if c.out != nil {
		c.out.startKeepAlive()
		defer c.out.stop()
	}
	var failingSince time.Time // zero: the last poll succeeded
	for pause := minFollowPause; ; pause = min(pause*3/2, maxFollowPause) {
		ended, err := f.poll(ctx)
		switch {
		case ended:
			return err
		case err == nil:
			failingSince = time.Time{}
		case failingSince.IsZero():
			failingSince = time.Now()
			h.Log.WarnContext(ctx, "call of another node not read", "request_id", held.RequestID, "error", err)
		}
		_, final := errors.AsType[*apierr.Error](err)
		if final || err != nil && time.Since(failingSince) > h.pollPatience || !retry.Sleep(ctx, pause) {
			return f.endEarly(ctx, err)
		}
	}
}

// A remoteFollower follows a call that runs on another node.
type remoteFollower struct {
	h       *Handler
	w       http.ResponseWriter
	out     *sse
	shape   shapes.Call // of the client; nil = canonical
	plan    *plan.Plan
	running *runningCall
	held    *rules.Result     // the hold of the other node
	sent    int               // bytes of the stream
	next    int64             // the checkpoint to be read
	reserve func(int64) error // of bytes of the answer
}

// poll sends what was saved since the last time, and reports whether the call has ended and
// its end was sent.
func (f *remoteFollower) poll(ctx context.Context) (ended bool, err error) {
	if f.out != nil {
		if err := f.readCheckpoints(ctx); err != nil {
			return false, err
		}
	}
	return f.checkEnd(ctx)
}

// endEarly ends the follower while the call goes on: for err, or for the reason that ctx has
// ended. What is no error of the call, and no client that leaves, is unavailable.
func (f *remoteFollower) endEarly(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause != nil {
		err = cause
	}
	if _, final := errors.AsType[*apierr.Error](err); !final && !errors.Is(cause, context.Canceled) {
		err = apierr.Unavailable.On(f.running.key.ConnectionID,
			"the call has not ended yet; retry with the same Idempotency-Key").WithCause(err)
	}
	if f.out == nil {
		f.w.Header().Del("Idempotent-Replayed")
		return err
	}
	f.out.stop()
	return f.out.endWithError(err)
}

// readCheckpoints sends what was saved since the last time.
func (f *remoteFollower) readCheckpoints(ctx context.Context) error {
	body, next, err := store.GetCheckpoints(ctx, f.h.DB, f.held.RequestID, f.held.Attempt, f.next)
	if err != nil {
		return err
	}
	f.out.writeFrames(body)
	f.out.flush()
	f.running.appendFrames(body) // for followers on this node
	f.sent, f.next = f.sent+len(body), next
	return nil
}

// checkEnd reports whether the call has ended, and sends its end.
func (f *remoteFollower) checkEnd(ctx context.Context) (bool, error) {
	row, err := store.GetHold(ctx, f.h.DB, f.running.key)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		res, err := f.h.loadResult(ctx, f.plan, id.ReplacePrefix(f.held.RequestID, id.Request, id.Ledger),
			f.reserve)
		if err != nil {
			return false, err
		}
		return true, f.writeEnd(&res)
	case err != nil:
		return false, err
	case row.State == rules.Pending:
		res, err := f.h.loadPendingResult(ctx, f.plan, f.held.RequestID, f.reserve)
		if err != nil {
			return false, err
		}
		return true, f.writeEnd(&res)
	case row.State == rules.Failed, row.Attempt != f.held.Attempt:
		return f.endFailed(ctx, row.State == rules.Failed)
	}
	return false, nil
}

// endFailed ends the follower of an attempt that has failed. If its node is dead or is this
// one, on which nothing else runs the call, or another attempt has begun meanwhile, and the
// client has got nothing of the response, the follower may run or follow the call again (F-03).
func (f *remoteFollower) endFailed(ctx context.Context, failed bool) (bool, error) {
	if f.sent == 0 {
		alive, err := store.IsNodeAlive(ctx, f.h.DB, f.held.NodeID, f.h.DB.Moment())
		if err != nil {
			return false, err
		}
		if !alive || !failed || f.held.NodeID == f.h.Node.ID {
			return true, errOwnerLost
		}
	}
	return true, f.writeFailure(ctx)
}

// writeEnd sends the part of an ended call that was not sent.
func (f *remoteFollower) writeEnd(res *result) error {
	f.running.setResult(*res)
	var rest []byte
	if f.plan.Request.Stream {
		frames, _ := splitStored(res.body)
		rest = frames[min(f.sent, len(frames)):]
		f.running.appendFrames(rest)
	}
	f.h.calls.leave(f.running, nil) // who joined does not wait until this client has read it
	if !f.plan.Request.Stream {
		return writeResponse(f.w, f.shape, res.body, &res.entry)
	}
	f.out.writeFrames(rest)
	return endStream(f.plan, f.out, res)
}

// writeFailure answers with the failure of the other node's attempt.
func (f *remoteFollower) writeFailure(ctx context.Context) error {
	e := f.h.findStopError(ctx, f.running.key.ConnectionID, f.held.RequestID)
	if e == nil {
		e = apierr.ProviderError.On(f.running.key.ConnectionID,
			"the call failed on another node; nothing was billed, retry with the same Idempotency-Key")
	}
	if f.out == nil {
		f.w.Header().Del("Idempotent-Replayed")
		return e
	}
	f.out.stop()
	if !f.out.hasBegun() {
		f.w.Header().Del("Idempotent-Replayed")
	}
	return f.out.endWithError(e)
}
