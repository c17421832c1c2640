package inference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// attempt is one try of a call, led by this request.
type attempt struct {
	*plan
	h       *Handler
	who     *callers.Caller
	call    rules.Call
	number  int64
	running *running
	api     provider.Provider
	calling context.Context // for the provider; it ends before the attempt's
	gone    func()          // says, once, that the client has gone
	drift   *estimates.Calibration
	began   time.Time
	ownKey  bool // the developer's own key at the provider serves it
}

// maxCall bounds a call at the provider, so that no hold is open for ever, and
// maxSettle how long its settlement is tried after that; then the sweep does it.
const (
	maxCall   = 10 * time.Minute
	maxSettle = time.Minute
)

var errTooLong = errors.New("the call took too long")

// run answers a planned call: it leads it, joins it, or replays it.
func (h *Handler) run(w http.ResponseWriter, r *http.Request, who *callers.Caller, q *plan, key, print string) error {
	k := rules.Key{ConnectionID: who.ConnectionID, Key: key}
	claim := web.RequestID(r.Context())
	c, leads := h.calls.enter(k, print, claim)
	if !leads {
		if c.fingerprint != print {
			return apierr.IdempotencyKeyReused.On(who.ConnectionID, "Idempotency-Key %s was used with a different request; use a new key", key)
		}
		return h.join(w, r, q, c)
	}
	err := error(apierr.Internal.Errorf("internal error")) // what joiners are told if this request panics
	defer func() { h.calls.leave(c, err) }()
	if err = h.prepare(r.Context(), who, q, k); err != nil {
		return err
	}
	demand, err := q.demand(h, who, q.call(who, key, claim, print), h.Node.ID, claim, h.Now())
	if err != nil {
		return err
	}
	own := h.own(r.Context(), who, q)
	demand.HasProviderKey = own != nil
	held, err := h.hold(r.Context(), demand)
	if err != nil {
		return err
	}
	switch held.Outcome {
	case rules.Done:
		err = h.replay(w, r, q, c, held.Entry.ID)
		return err
	case rules.Running:
		err = h.follow(w, r, q, c, held)
		return err
	case rules.Waiting:
		err = h.await(w, r, q, c, held.RequestID)
		return err
	}
	a := &attempt{plan: q, h: h, who: who, call: held.Call, number: held.Attempt, running: c, api: h.provider(who, q), drift: h.drift(who), began: time.Now()}
	if q.holdMC = held.Call.HoldMC; held.Call.PaidBy == rules.PaidByFreeCredit {
		q.margin, q.fee = 0, 0
	}
	if held.UseProviderKey {
		a.api, a.ownKey = own, true
	}
	c.mu.Lock()
	c.attempt, c.requestID = held.Attempt, held.RequestID
	c.mu.Unlock()
	w.Header().Set("X-Request-Id", held.RequestID)
	q.Request.ID = held.RequestID
	if r.Context().Err() != nil { // gone before anything was asked of the provider: not billed (F-29)
		err = a.fail(context.WithoutCancel(r.Context()), r.Context().Err())
		return err
	}
	// From here on the call belongs to nobody's connection: it ends settled or
	// released whether or not its client is still there. The provider is given up
	// before the ledger is: a call that was cut is still to be billed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxCall+maxSettle)
	defer cancel()
	calling, hangUp := context.WithTimeoutCause(ctx, maxCall, errTooLong)
	defer hangUp()
	calling, cut := context.WithCancelCause(calling)
	defer cut(nil)
	h.drains.begin(c, func() { cut(errDrained) })
	defer h.drains.end(c)
	a.calling, a.gone = calling, sync.OnceFunc(func() { h.drains.leave(c) })
	defer context.AfterFunc(r.Context(), a.gone)()
	returned := false
	defer func() {
		if !returned { // a panic: nothing of it may keep money held (F-95)
			_ = a.fail(ctx, errors.New("panic"))
		}
	}()
	if q.Stream {
		err = a.stream(ctx, w)
	} else {
		err = a.complete(ctx, w)
	}
	returned = true
	return err
}

// prepare does what only a new call needs: it looks at the images, which tells
// what they cost, and asks the provider's dialect whether it can say the
// request. Both may refuse it, so they come before any hold (decisions, Order of
// checks). A key that is known is about to be replayed or refused instead.
func (h *Handler) prepare(ctx context.Context, who *callers.Caller, q *plan, k rules.Key) error {
	if q.Images > 0 {
		known, err := store.IsKeyUsed(ctx, h.DB, k)
		if known || err != nil {
			return err
		}
		if err := h.Images.Load(ctx, &q.Request, q.model.Provider); err != nil {
			return err
		}
		if err := tokens.CheckImages(&q.Request, q.model.Family); err != nil {
			return err
		}
		if err := q.price(&who.App, h.Estimates); err != nil {
			return err
		}
	}
	check := h.Dialects[q.model.Provider]
	if check == nil {
		return nil
	}
	err := check(&q.Request)
	var p *provider.Error
	if errors.As(err, &p) {
		return apierr.InvalidRequest.Errorf("%s", p.Message).WithCause(err)
	}
	return err
}

// own returns who serves a call of a live model in the sandbox by the developer's
// own key, or nil.
func (h *Handler) own(ctx context.Context, who *callers.Caller, q *plan) provider.Provider {
	if h.Own == nil || who.App.Tier != tiers.Sandbox || who.App.ProviderMode == apps.Mock {
		return nil
	}
	p, ok := h.Own(ctx, who.App.OwnerID, q.model.Provider)
	if !ok {
		return nil
	}
	return p
}

// patience is how long a caller waits for a database that is away.
const patience = 5 * time.Second

// hold repeats a hold while the database is away. One whose COMMIT was carried
// out although its answer was lost finds itself by its claim (F-02); if that
// never happens, the sweep ends it.
func (h *Handler) hold(ctx context.Context, c rules.Hold) (rules.Result, error) {
	r, err := h.Ledger.Do(ctx, c)
	if !db.IsUnavailable(err) {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return persist(ctx, func(ctx context.Context) (rules.Result, error) { return h.Ledger.Do(ctx, c) })
}

// complete runs a call whose answer comes whole.
func (a *attempt) complete(ctx context.Context, w http.ResponseWriter) error {
	answer, err := a.api.Complete(a.calling, &a.Request)
	if err != nil {
		return a.fail(ctx, err)
	}
	entry, outcome, err := a.settle(ctx, answer.Usage, func() string { return provider.GeneratedBodyText(answer.Body) }, answer.Body)
	if err != nil {
		return err
	}
	res := result{entry: entry, body: answer.Body}
	if outcome == rules.Done { // another attempt may have been billed: its answer is the key's
		if res, err = a.h.recall(ctx, a.plan, entry.ID); err != nil {
			return err
		}
	}
	a.running.settled(res)
	return writeAnswer(w, withBlock(res.body, &res.entry))
}

// stream relays an answer chunk by chunk. When the client goes, it reads on.
func (a *attempt) stream(ctx context.Context, w http.ResponseWriter) error {
	up, err := a.api.Stream(a.calling, &a.Request)
	if err != nil {
		return a.fail(ctx, err)
	}
	defer up.Close()
	out := newSSE(w)
	defer func() {
		if !up.BodyEnded() {
			out.flush() // before Close waits: the client need not
		}
	}()
	var usage *provider.Usage
	var usageFrame []byte
	for {
		chunk, err := up.Next()
		if err != nil {
			record := ""
			if named, ok := up.(interface{ ID() string }); ok {
				record = named.ID()
			}
			return a.finish(ctx, out, &delivered{usage, usageFrame, record, err})
		}
		out.write(chunk.Frames)
		if chunk.Usage != nil {
			usage = chunk.Usage
		}
		if chunk.UsageFrame != nil && chunk.Usage != nil { // unusable usage misleads clients too
			usageFrame = append([]byte(nil), chunk.UsageFrame...)
			if !a.route.chat {
				out.write(usageFrame)
			}
		}
		out.flush()
		if len(chunk.Frames) > 0 { // after the client has them: a crash bills what was delivered, never more (F-06)
			a.running.push(chunk.Frames)
		}
		if out.gone {
			a.gone()
		}
	}
}

// delivered is how a stream ended, beside its frames.
type delivered struct {
	usage      *provider.Usage
	usageFrame []byte
	record     string // the provider's id of the answer; "" = not known
	ended      error
}

// finish settles a stream that ended, well or not, or leaves it pending where the
// provider knows what it used and has not said so; and writes its last events.
func (a *attempt) finish(ctx context.Context, out *sse, d *delivered) error {
	frames, tooLong := a.running.frames()
	if !errors.Is(d.ended, io.EOF) && d.usage == nil { // usage comes last: with it, all was said (F-21)
		a.h.Log.WarnContext(ctx, "stream cut", "request_id", a.call.RequestID, "model", a.model.ID, "error", d.ended, "cause", context.Cause(a.calling))
		if !tooLong && provider.GeneratedText(frames) == "" {
			return a.cutBeforeOutput(ctx, out, d.ended)
		}
		a.h.Metrics.Cut(a.api.Name())
		broke := brokeOff(a.recorder() != nil)
		out.write(broke)
		a.running.push(broke) // who asks again with the key learns it too
	}
	sent, tooLong := a.running.frames()
	r := result{body: append(sent, d.usageFrame...), usage: d.usageFrame} // nobody pushes any more, and readers have sent only
	if tooLong {
		r.body = nil
	}
	var err error
	if !a.usable(d.usage) && a.recorder() != nil {
		r.pending, err = a.postpone(ctx, d.record, r.body)
	}
	if r.pending {
		a.h.Metrics.Call(a.api.Name(), a.model.ID, metrics.Pending, time.Since(a.began))
		r.entry = unsettled(a.call.RequestID, a.model.ID, id.Time(a.call.RequestID))
	} else if err == nil {
		r.entry, _, err = a.settle(ctx, d.usage, func() string { return provider.GeneratedText(frames) }, r.body)
	}
	if err != nil {
		out.write(errorFrame(apierr.Internal.Errorf("the answer could not be billed; ask GET /v1/requests/%s", a.call.RequestID)))
		return web.AlreadyReported(err)
	}
	a.running.settled(r)
	tail, err := finale(a.plan, &r)
	if err != nil {
		return web.AlreadyReported(err)
	}
	out.write(tail)
	return nil
}

// cutBeforeOutput ends a stream that broke before anything billable: not billed.
func (a *attempt) cutBeforeOutput(ctx context.Context, out *sse, cause error) error {
	err := a.fail(ctx, cause)
	if !out.begun {
		return err
	}
	var e *apierr.Error
	if !errors.As(err, &e) {
		e = apierr.Internal.Errorf("internal error")
	}
	out.write(errorFrame(e))
	out.write(done)
	return web.AlreadyReported(err)
}

// settle charges what the provider reported, or what we count where it did not,
// and does not give up while the database is away: the answer is already paid.
func (a *attempt) settle(ctx context.Context, usage *provider.Usage, text func() string, body []byte) (rules.Entry, rules.Outcome, error) {
	c := rules.Settle{Call: a.call, Attempt: a.number, Settlement: rules.Settled, Risk: a.h.pace(&a.who.App), Response: keep(body), Receipt: receiptText}
	if body == nil {
		c.Response = nil
	}
	var amounts pricing.Amounts
	var err error
	if a.usable(usage) {
		amounts, err = pricing.Charge(a.rates, *usage, a.margin, a.fee)
		a.drift.Record(a.model.ID, a.input, a.held, usage.Input+usage.Cached+usage.CacheWrite)
	} else {
		if usage != nil {
			a.h.Metrics.Alarm("absurd usage", a.model.ID)
			a.h.Log.ErrorContext(ctx, "absurd usage counts as missing", "request_id", a.call.RequestID, "model", a.model.ID, "usage", fmt.Sprintf("%+v", *usage))
		}
		usage = &provider.Usage{Input: min(a.input, a.held), Output: min(int64(tokens.Count(text())), a.MaxTokens)}
		c.Settlement = rules.Estimated
		amounts, err = pricing.ChargeEstimate(a.rates, usage.Input, usage.Output, a.margin, a.fee, a.holdMC)
	}
	if err != nil {
		return rules.Entry{}, rules.Applied, err
	}
	c.Charge, c.Usage = rules.Amounts(amounts), counted(*usage)
	entry, outcome, err := a.h.settle(ctx, c)
	if err == nil && outcome == rules.Applied {
		a.h.Metrics.Call(a.api.Name(), a.model.ID, string(c.Settlement), time.Since(a.began))
	}
	return entry, outcome, err
}

// settle commits a settlement, repeating it while the database is away. Done
// means that the key was billed before: by our own COMMIT, whose answer was lost,
// or by an attempt that took our place.
func (h *Handler) settle(ctx context.Context, c rules.Settle) (rules.Entry, rules.Outcome, error) {
	r, err := persist(ctx, func(ctx context.Context) (rules.Result, error) { return h.Ledger.Do(ctx, c) })
	switch {
	case err != nil:
		h.Log.ErrorContext(ctx, "a paid answer could not be settled", "request_id", c.RequestID, "error", err)
		return rules.Entry{}, r.Outcome, err
	case r.Outcome == rules.Fenced:
		h.Log.WarnContext(ctx, "a late settlement was fenced", "request_id", c.RequestID, "attempt", c.Attempt)
		return rules.Entry{}, r.Outcome, apierr.ProviderError.On(c.ConnectionID, "this attempt took too long and was superseded; retry with the same Idempotency-Key")
	case r.Outcome == rules.Done:
		e, err := store.GetEntry(ctx, h.DB, r.Entry.ID)
		return e, r.Outcome, err
	}
	if r.Shortfall > 0 {
		h.Metrics.Alarm("a call cost more than its hold and the rest of the cap", c.Model)
		h.Log.ErrorContext(ctx, "real cost above hold and remaining; the fee takes the shortfall", "request_id", c.RequestID, "model", c.Model, "shortfall_mc", r.Shortfall)
	}
	return r.Entry, r.Outcome, nil
}

// persistBackoff paces the repeats of a ledger command.
var persistBackoff = retry.Backoff{First: 20 * time.Millisecond, Max: 2 * time.Second}

// maxUnknownFailures is how often a ledger command may fail for an unknown reason.
const maxUnknownFailures = 6

// persist repeats a ledger command while the database is unavailable, until ctx
// ends, and a few times when it failed for an unknown reason. A refusal is a result
// and is not repeated.
func persist(ctx context.Context, do func(context.Context) (rules.Result, error)) (rules.Result, error) {
	unknown := 0
	return retry.Do(ctx, persistBackoff, do, func(err error) bool {
		var refusal *apierr.Error
		if errors.As(err, &refusal) || db.IsCheckViolation(err) {
			return false
		}
		if !db.IsUnavailable(err) {
			unknown++
		}
		return unknown < maxUnknownFailures
	})
}

// fail releases the hold of a call that the provider refused or could not do,
// and says so: 400 or 502, not billed.
func (a *attempt) fail(ctx context.Context, cause error) error {
	release := rules.Release{Call: a.call, Attempt: a.number}
	if _, err := persist(ctx, func(ctx context.Context) (rules.Result, error) {
		return a.h.Ledger.Do(context.WithoutCancel(ctx), release)
	}); err != nil {
		a.h.Log.ErrorContext(ctx, "a hold could not be released; the sweep will", "request_id", a.call.RequestID, "error", err)
	}
	a.h.Log.LogAttrs(ctx, slog.LevelWarn, "provider failed", slog.String("request_id", a.call.RequestID), slog.String("model", a.model.ID), slog.Any("error", cause))
	a.count(cause)
	var p *provider.Error
	if errors.As(cause, &p) && p.Kind == provider.Rejected {
		return apierr.InvalidRequest.On(a.call.ConnectionID, "%s", p.Message).WithCause(cause)
	}
	e := apierr.ProviderError.On(a.call.ConnectionID, "the provider failed; nothing was billed, retry with the same Idempotency-Key").WithCause(cause)
	if p != nil {
		e.RetryAfter = p.RetryAfter
	}
	return e
}

// count tells the metrics why a call was not billed.
func (a *attempt) count(cause error) {
	outcome, m := metrics.Failed, a.h.Metrics
	var p *provider.Error
	switch {
	case errors.As(cause, &p):
		m.ProviderError(a.api.Name(), p.Status)
		if p.Kind == provider.Rejected {
			outcome = metrics.Rejected
		}
	case errors.Is(cause, context.Canceled):
		outcome = metrics.Abandoned
	default:
		m.ProviderError(a.api.Name(), 0)
	}
	m.Call(a.api.Name(), a.model.ID, outcome, time.Since(a.began))
}
