package inference

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/models/tokens"
)

// An attempt is one execution of a call whose hold was made. Besides the plan it has
// what is known only since then: who pays, which provider serves it, its number and the
// request id.
type attempt struct {
	*plan.Plan
	h         *Handler
	who       *callers.Caller
	running   *runningCall
	call      *call
	out       *sse             // of a streamed call
	shape     shapes.Call      // of the client; nil = canonical
	shaped    *shapedAnswer    // nil = adapters write what the client gets
	held      rules.Call       // as the ledger holds it
	number    int64            // of the attempts of its key
	request   provider.Request // the plan's, with the request id and the output cap of the hold
	shares    policy.Shares    // what the charge adds to the provider cost, by who pays
	api       provider.Provider
	estimates *estimates.Calibration // of live calls; nil in mock mode
	started   time.Time
	firstByte time.Duration  // from started to the first part of a stream; 0 = none has come
	delivered tokens.Counter // output of the frames of a stream that are not kept
	kept      int64          // bytes of a stream so far
	counted   int64          // of these, as the call's seat counts them

	asked, accepted bool // the provider was asked, and has begun a stream

	lapses   int64     // of the node, when the ledger last said that it holds the call
	askAgain time.Time // not before, because the ledger did not answer

	response *rules.StoredResponse // what is stored of the response, once packed; nil = nothing
	packed   bool

	developerPays bool            // the developer's own provider key serves the call
	trace         *telemetry.Call // nil = the call is not traced

	reportedInput func() int64 // input tokens by the provider's stream, also if it is cut; nil = it reports none

	upstream   context.Context // of upstream requests; it ends before that of the attempt
	clientGone func()          // reports, once, that the client has disconnected
}

// newAttempt returns the attempt of a new hold. The ledger has decided who pays the
// charge, and whether the provider that the developer pays serves the call.
func (h *Handler) newAttempt(
	c *call, running *runningCall, held *rules.Result, developer provider.Provider,
) *attempt {
	a := &attempt{
		Plan:      c.plan,
		h:         h,
		who:       c.who,
		running:   running,
		call:      c,
		out:       c.out,
		shape:     c.shape,
		held:      held.Call,
		number:    held.Attempt,
		request:   c.plan.Request,
		shares:    c.plan.Shares.PaidBy(held.Call.PaidBy),
		api:       h.platformProvider(&c.who.App, c.plan.Model.Provider),
		estimates: h.liveEstimates(&c.who.App),
		started:   time.Now(),
		lapses:    h.Node.Lapses(),
	}
	a.request.ID, a.request.AppID, a.request.ConnectionID = held.RequestID, held.Call.AppID, held.Call.ConnectionID
	a.request.EndUser = h.Identifiers.Identify(held.Call.AccountID)
	a.request.MaxTokens = held.MaxTokens // the hold may have lowered it
	a.shaped = newShapedAnswer(c.shape, shapes.Head{
		RequestID:   held.RequestID,
		Model:       a.request.Model,
		CreatedUnix: h.Now().Unix(),
		InputTokens: min(a.CountedTokens, a.InputTokens),
		Stream:      a.request.Stream,
	})
	if a.shaped != nil {
		a.request.To = a.shaped.write
	}
	switch {
	case developer != nil && (held.UseProviderKey || a.api == nil):
		a.api, a.developerPays = developer, true
	case a.api == nil:
		a.api = unconfigured{c.plan.Model.Provider}
	}
	a.clientGone = c.clientGone
	running.setAttempt(held.Attempt, held.RequestID)
	return a
}

// maxCallDuration bounds an upstream request, so that no hold stays open for ever.
// maxSettleDuration is for how long the settlement is tried after that; then the sweep
// ends the hold.
const (
	maxCallDuration   = 10 * time.Minute
	maxSettleDuration = time.Minute
)

// execute calls the provider and settles the call. Once the provider may have been
// called, the call no longer depends on its client: it ends settled or released. The
// upstream request ends before the attempt does, so that a cut call can be charged.
func (a *attempt) execute(ctx context.Context, w http.ResponseWriter) error {
	if a.out == nil || !a.out.hasBegun() { // it has while another node ran the call
		w.Header().Del("Idempotent-Replayed")
		w.Header().Set("X-Request-Id", a.request.ID)
	}
	detached, traced := a.startTrace(context.WithoutCancel(ctx))
	defer traced.End()
	if stop := a.running.stopped.Load(); stop != nil { // while the hold was made
		return a.endUnasked(detached, stop)
	}
	ctx, cancel := context.WithTimeout(detached, maxCallDuration+maxSettleDuration)
	defer cancel()
	asking, stop := context.WithTimeoutCause(ctx, maxCallDuration, failures.ErrTooLong)
	defer stop()
	asking, cut := context.WithCancelCause(asking)
	defer cut(nil)
	a.upstream = asking
	if !a.h.orphans.watchCall(a.running, a.cutBy(cut), a.request.Stream) { // not billed (F-29)
		return a.endUnasked(detached, a.running.work.Cause())
	}
	defer a.h.orphans.unwatch(a.running)
	return a.respond(ctx, w)
}

// respond writes the response. A panic releases the hold (F-95).
func (a *attempt) respond(ctx context.Context, w http.ResponseWriter) error {
	returned := false
	defer func() {
		if !returned {
			_ = a.releaseHold(ctx, errors.New("panic"))
		}
	}()
	var err error
	if a.request.Stream {
		err = a.stream(ctx)
	} else {
		err = a.complete(ctx, w)
	}
	returned = true
	return err
}

// complete executes a call whose response comes whole. It is not inlined, so that a stream does not have its stack too.
//
//go:noinline
func (a *attempt) complete(ctx context.Context, w http.ResponseWriter) error {
	a.asked = true
	arriving := upstream.WithArrived(a.upstream, func(n int) { a.call.seat.countArrived(answerFactor * int64(n)) })
	response, err := a.api.Complete(arriving, &a.request)
	if err != nil {
		return a.releaseHold(ctx, err)
	}
	a.dropMessages()
	body := a.body(response)
	a.call.seat.countAnswer(answerFactor * int64(len(body)))
	delivery := a.delivery(body)
	output := func() int64 { return countText(a.format(), body) }
	res, err := a.settleInTime(ctx, func(ctx context.Context) (result, error) {
		entry, outcome, err := a.settleCall(ctx, response.Usage, output, body, delivery)
		if err == nil && outcome == rules.Done { // another attempt may have been billed: its response is the key's
			stored, err := a.h.loadResult(ctx, a.Plan, entry.ID, a.countStored)
			if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.IdempotencyKeyReused {
				return stored, err
			} // none is stored: ours answers the call that was charged
		}
		return result{entry: entry, body: body}, err
	})
	if err != nil {
		return err
	}
	a.h.calls.leave(a.running, nil) // who joined does not wait until this client has read it
	return writeResponse(w, a.shape, res.body, &res.entry)
}

// stream relays a response chunk by chunk. When the client disconnects, it reads on.
func (a *attempt) stream(ctx context.Context) error {
	out := a.out
	out.startKeepAlive()
	a.asked = true
	arriving := upstream.WithArrived(a.upstream, func(n int) {
		a.call.seat.countArrived(a.counted + answerFactor*int64(n))
	})
	up, err := a.api.Stream(arriving, &a.request)
	if err != nil {
		return a.failStream(ctx, out, err)
	}
	defer up.Close()
	if reports, ok := up.(interface{ ReportedInput() int64 }); ok {
		a.reportedInput = reports.ReportedInput
	}
	a.accepted = true
	a.dropMessages()
	a.h.orphans.markBegun(a.running)
	defer func() {
		if !up.BodyEnded() {
			out.flush() // before Close, which waits for the provider
		}
	}()
	var end streamEnd
	for {
		chunk, err := up.Next()
		if err != nil {
			if identified, ok := up.(interface{ ID() string }); ok {
				end.recordID = identified.ID()
			}
			end.err = err
			return a.finishStream(ctx, out, &end)
		}
		if stop := a.running.stopped.Load(); stop != nil { // the chunk was read before the upstream request ended
			end.err = stop
			return a.finishStream(ctx, out, &end)
		}
		if a.isLost(ctx) {
			end.err = errLost
			return a.finishStream(ctx, out, &end)
		}
		frames := a.frames(&chunk)
		if a.firstByte == 0 && len(frames) > 0 {
			a.firstByte = time.Since(a.started)
			a.trace.Answered(a.firstByte)
		}
		out.writeFrames(frames)
		if chunk.Usage != nil {
			end.usage, end.goesOn = chunk.Usage, false
		} else if len(frames) > 0 && end.usage != nil {
			end.goesOn = true
		}
		// A frame with unusable usage would mislead clients.
		if chunk.UsageFrame != nil && chunk.Usage != nil && a.shaped == nil {
			end.usageFrame = append([]byte(nil), chunk.UsageFrame...)
			if !a.Route.Chat {
				out.writeFrames(end.usageFrame)
			}
		}
		out.flush()
		if len(frames) > 0 { // after the client has them: a crash bills no more than was delivered (F-06)
			a.keepFrames(frames)
		}
		if out.isGone() {
			a.clientGone()
		}
	}
}

// errLost is why a stream ends whose node was taken for dead, so that another one has ended the call.
var errLost = errors.New("another node has ended the call, because this one did not renew its lease")

// lossTimeout bounds the look at a hold before a stream goes on. While the database is away, no node ends a call.
const lossTimeout = 2 * time.Second

// isLost reports whether another node has ended the call, after this one has slept for example. Then nothing more is
// relayed: its replay has ended (F-09).
func (a *attempt) isLost(ctx context.Context) bool {
	lapses := a.h.Node.Lapses()
	if lapses == a.lapses {
		return false
	}
	if time.Now().Before(a.askAgain) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	row, err := store.GetHold(ctx, a.h.DB, a.running.key)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		a.askAgain = time.Now().Add(lossTimeout)
		return false
	}
	a.lapses = lapses
	if err != nil {
		return true
	}
	return row.State != rules.Open || row.Attempt != a.number
}

// keepFrames keeps frames that the client has. Those of a stream that is too long are counted instead, so that what
// was delivered is billed however the stream ends.
func (a *attempt) keepFrames(frames []byte) {
	if dropped := a.running.appendFrames(frames); dropped != nil {
		a.delivered.Add(generatedText(a.format(), dropped))
		a.running.setDeliveredTokens(a.delivered.Counted())
	}
	if a.kept += int64(len(frames)); a.kept >= a.counted+answerStep {
		a.counted = min(a.kept, maxStoredResponse)
		a.call.seat.countAnswer(a.counted)
	}
}

// dropMessages lets go of the text of a large request: the provider has it and answers.
func (a *attempt) dropMessages() {
	if a.call.seat.isLarge() {
		a.call.dropMessages()
		a.Plan, a.request.Turns = a.call.plan, nil
	}
}

// A streamEnd is how a stream ended.
type streamEnd struct {
	usage      *provider.Usage
	goesOn     bool // content came after the usage, which is that of a part unless the response is complete
	usageFrame []byte
	output     func() int64 // tokens that were delivered
	recordID   string       // the provider's id of the response; "" = not known
	delivery   rules.Delivery
	err        error // io.EOF if it is complete
}

// finishStream settles a stream that has ended, complete or not, and writes its last events.
func (a *attempt) finishStream(ctx context.Context, out *sse, end *streamEnd) error {
	a.awaitStop()
	if a.shaped != nil && errors.Is(end.err, io.EOF) {
		frames := a.shaped.conclude() // what waits is counted, too
		out.writeFrames(frames)
		a.keepFrames(frames)
	}
	// All frames are unpacked, and packed to be stored.
	a.call.seat.countAnswer(answerFactor * min(a.kept, maxStoredResponse))
	sent, tooLong := a.running.frames()
	frames, lost := sent, []byte(nil)
	end.delivery = a.delivery(frames)
	end.output = sync.OnceValue(func() int64 { // frames are nil if there were too many to keep
		a.delivered.Add(generatedText(a.format(), frames))
		return a.delivered.Count()
	})
	if end.goesOn && !errors.Is(end.err, io.EOF) {
		end.usage, end.usageFrame = nil, nil
	}
	// Usage comes last: with it, everything was delivered (F-21).
	if !errors.Is(end.err, io.EOF) && end.usage == nil {
		a.h.Log.WarnContext(ctx, "stream cut", "request_id", a.held.RequestID, "model", a.Model.ID,
			"error", end.err, "cause", context.Cause(a.upstream))
		a.raiseAlarm(ctx, end.err)
		if end.output() == 0 {
			return a.failStream(ctx, out, end.err)
		}
		failure := failFrames(a.format(), sent, a.cutError(end.err), a.h.Links)
		switch {
		case a.shaped != nil:
			end.usageFrame = failure
		case errors.Is(end.err, errLost): // the ledger knows how the replay ends
			lost = failure
		default:
			out.writeFrames(failure)
			a.running.appendFrames(failure) // followers and replays get it too
			sent, tooLong = a.running.frames()
		}
	} else if a.shaped != nil {
		end.usageFrame = a.shaped.writer.End()
	}
	delivered := result{
		body:  append(append(sent, end.usageFrame...), lost...), // no frames follow
		usage: end.usageFrame,
	}
	if tooLong {
		delivered.body = nil
	}
	r, err := a.settleInTime(ctx, func(ctx context.Context) (result, error) {
		settled := delivered
		err := a.settleStream(ctx, end, &settled)
		return settled, err
	})
	if err != nil {
		var e *apierr.Error
		if !errors.As(err, &e) {
			e = apierr.Internal.On(a.held.ConnectionID,
				"the answer could not be billed; ask GET /v1/requests/%s", a.held.RequestID)
		}
		out.writeFailure(e)
		return web.AlreadyReported(err)
	}
	if !r.differs && len(lost) > 0 {
		out.writeFrames(lost)
		a.running.appendFrames(lost)
	}
	a.h.calls.leave(a.running, nil) // who joined does not wait until this client has read its end
	if err := writeEnd(a.Plan, out, &r); err != nil {
		return web.AlreadyReported(err)
	}
	return nil
}

// raiseAlarm reports an error within a stream that the operator must fix. Those before it are reported where they are
// tried again.
func (a *attempt) raiseAlarm(ctx context.Context, err error) {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Alarm != "" && !a.developerPays {
		a.h.Metrics.RaiseAlarm(e.Alarm, a.api.Name())
		a.h.Log.ErrorContext(ctx, "provider alarm", "provider", a.api.Name(), "alarm", e.Alarm, "error", err)
	}
}

// settleStream settles a stream, or leaves it pending where the provider keeps a record
// of the usage that it has not reported. It completes r, whose body is stored.
func (a *attempt) settleStream(ctx context.Context, end *streamEnd, r *result) (err error) {
	if !a.isUsable(end.usage) && a.recorder() != nil && a.running.stopped.Load() == nil {
		r.pending, err = a.deferSettlement(ctx, end, r.body)
		if err != nil {
			return err
		}
	}
	if r.pending {
		a.h.Metrics.CountCall(a.api.Name(), a.Model.ID, metrics.Pending, time.Since(a.started))
		r.entry = pendingEntry(a.held.RequestID, a.Model.ID, id.Time(a.held.RequestID))
		return a.takeStoredResult(ctx, r)
	}
	entry, outcome, err := a.settleCall(ctx, end.usage, end.output, r.body, end.delivery)
	if err != nil || outcome != rules.Done {
		r.entry = entry
		return err
	}
	r.entry = entry
	return a.takeStoredResult(ctx, r)
}

// takeStoredResult replaces the result of a stream whose response is stored already. That was
// our own COMMIT, or the sweep: it has taken this node for dead, and has stored less than the
// client got.
func (a *attempt) takeStoredResult(ctx context.Context, r *result) error {
	stored, err := a.loadStoredResult(ctx, r)
	var refusal *apierr.Error
	switch {
	case errors.As(err, &refusal): // no response is stored: there is nothing to differ from
		return nil
	case err != nil:
		return err
	}
	stored.differs = !bytes.Equal(stored.body, r.body)
	*r = stored
	return nil
}

func (a *attempt) loadStoredResult(ctx context.Context, r *result) (result, error) {
	if r.pending {
		return a.h.loadPendingResult(ctx, a.Plan, a.held.RequestID, a.countStored)
	}
	return a.h.loadResult(ctx, a.Plan, r.entry.ID, a.countStored)
}

// countStored counts the stored response of the call, which was accepted.
func (a *attempt) countStored(n int64) error {
	a.call.seat.countAnswer(n)
	return nil
}

// endUnasked ends a call whose provider was not asked.
func (a *attempt) endUnasked(ctx context.Context, cause error) error {
	if a.out == nil {
		return a.releaseHold(ctx, cause)
	}
	return a.failStream(ctx, a.out, cause)
}

// failStream ends a stream that was cut before any billable output. It is not billed.
func (a *attempt) failStream(ctx context.Context, out *sse, cause error) error {
	err := a.releaseHold(ctx, cause)
	out.stop()
	return out.endWithError(err)
}

// releaseHold releases the hold of a call that the provider refused or could not serve, and
// returns the error for the client: 400 or 502. The call is not billed, unless its client has ended it and has used up
// the day of such calls (decision 133).
func (a *attempt) releaseHold(ctx context.Context, cause error) error {
	ended := a.endedByUser()
	release := rules.Release{Call: a.held, Attempt: a.number, Unbilled: a.unbilled(ctx, cause, ended)}
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.h.DB.Limit(settlementWait))
	defer cancel()
	r, err := persist(soon, func(ctx context.Context) (rules.Result, error) { return a.h.Ledger.Do(ctx, release) })
	if err != nil { // the sweep will release it
		a.h.Log.ErrorContext(ctx, "hold not released", "request_id", a.held.RequestID, "error", err)
	} else {
		a.noteReleased(release.Unbilled, &r)
	}
	stop := a.awaitStop()
	if r.Estimated {
		a.h.Log.InfoContext(ctx, "call charged for its input", "request_id", a.held.RequestID, "model", a.Model.ID,
			"cause", cause)
		a.h.Metrics.CountCall(a.api.Name(), a.Model.ID, string(rules.Estimated), time.Since(a.started))
		a.trace.Fail("stopped")
		a.call.unstored = true // its receipt is that of its row
		return ended.WithCause(cause)
	}
	if stop != nil {
		return a.endStopped(ctx, stop, cause)
	}
	if errors.Is(cause, errLost) {
		a.countFailure(cause)
		return apierr.Unavailable.On(a.held.ConnectionID,
			"this node has lost the call; retry with the same Idempotency-Key").WithCause(cause)
	}
	if err := a.running.work.Cause(); err != nil && errors.Is(cause, err) { // the provider was not asked
		a.h.Log.InfoContext(ctx, "call abandoned", "request_id", a.held.RequestID, "model", a.Model.ID, "cause", cause)
		a.countFailure(context.Canceled)
		return cause
	}
	a.h.Log.LogAttrs(ctx, slog.LevelWarn, "provider failed", slog.String("request_id", a.held.RequestID),
		slog.String("model", a.Model.ID), slog.Any("error", cause))
	a.countFailure(cause)
	if errors.Is(cause, errNotConfigured) {
		return errNoKey(a.Model.ID, a.Model.Provider, a.who.App.Tier).WithCause(cause)
	}
	var p *provider.Error
	if errors.As(cause, &p) && p.Kind == provider.Rejected {
		e := apierr.InvalidRequest.On(a.held.ConnectionID, "%s", p.Message)
		if p.TooLong {
			e.Details = map[string]any{"reason": shapes.TooLong}
		}
		return e.WithCause(cause)
	}
	f := failures.Classify(a.Model.Provider, cause)
	return newFailureError(&f, a.held.ConnectionID).WithCause(cause)
}

// noteReleased counts what a released attempt may have cost beyond what its user was charged. u may be nil.
func (a *attempt) noteReleased(u *rules.Unbilled, r *rules.Result) {
	if u == nil || r.Outcome != rules.Applied {
		return
	}
	cost := u.CostMC
	if r.Estimated {
		cost -= u.Estimate.Charge.ProviderCostMC
	} else if u.Estimate != nil {
		a.h.stored.giveBack(&a.who.App, a.held.AccountID, u.Estimate.Response)
	}
	a.h.Metrics.CountUnbilled(a.Model.ID, int64(cost))
	a.h.countUnbilled(&a.held, cost)
}

// countFailure counts in the metrics why a call was not billed.
func (a *attempt) countFailure(cause error) {
	outcome, m := metrics.Failed, a.h.Metrics
	a.trace.Fail(failureKind(cause))
	var p *provider.Error
	switch {
	case errors.As(cause, &p):
		m.CountProviderError(a.api.Name(), p.Status)
		if p.Kind == provider.Rejected {
			outcome = metrics.Rejected
		}
	case errors.Is(cause, context.Canceled):
		outcome = metrics.Abandoned
	default:
		m.CountProviderError(a.api.Name(), 0)
	}
	m.CountCall(a.api.Name(), a.Model.ID, outcome, time.Since(a.started))
}
