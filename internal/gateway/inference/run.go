package inference

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// runCall executes a planned call as its leader, attaches to the running one as a follower,
// or replays the stored response.
func (h *Handler) runCall(w http.ResponseWriter, r *http.Request, c *call) error {
	if c.plan.Request.Stream {
		c.out = newSSE(w, h.keepAlive)
		c.out.links, c.out.connID = h.Links, c.who.ConnectionID
		if c.shape != nil {
			c.out.format = c.shape.Format()
		}
		defer c.out.stop()
	}
	for {
		running, leads := h.calls.enter(c.key, c.fingerprint, c.claim, c.who.App.ID)
		if c.out != nil {
			c.out.sent = func() []byte { sent, _ := running.frames(); return sent }
		}
		if leads {
			return h.leadShared(w, r, c, running)
		}
		if running.fingerprint != c.fingerprint {
			return apierr.IdempotencyKeyReused.On(c.who.ConnectionID,
				"Idempotency-Key %s was used with a different request; use a new key", c.key.Key)
		}
		if h.orphans.addClient(running) {
			defer h.orphans.removeClient(running)
			running.hurryLeader()
			c.dropMessages()
			return h.attach(w, r, c, running)
		}
		if err := running.waitEnd(r.Context()); err != nil { // all its clients have left: this one leads the next
			return err
		}
	}
}

// leadShared leads a call that others may join, until it ends. Only here the leader is a
// client like the others, which may leave.
func (h *Handler) leadShared(w http.ResponseWriter, r *http.Request, c *call, running *runningCall) error {
	c.clientGone = sync.OnceFunc(func() { h.orphans.removeClient(running) })
	defer context.AfterFunc(r.Context(), c.clientGone)()
	if c.out != nil {
		c.out.isShared = func() bool { return running.work.Callers() > 1 }
		running.setLeader(c.out)
		defer running.setLeader(nil)
	}
	err := error(apierr.Internal.Errorf("internal error")) // what followers get if lead panics
	defer func() {
		if !running.settlesLater() {
			h.calls.leave(running, err)
		}
	}()
	err = h.leadCall(running.work.Context(r.Context()), w, c, running)
	if cause := running.work.Cause(); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	return err
}

// leadCall makes the hold of a call. A new attempt is executed; a key that was used before
// is answered with what became of it. If the node that runs the call dies before it has
// delivered anything, this one makes a hold again and runs it. ctx is the context of the
// shared work.
func (h *Handler) leadCall(ctx context.Context, w http.ResponseWriter, c *call, running *runningCall) error {
	if err := h.checkFreeRate(&c.who.App); err != nil {
		c.unstored = true // it would be as free as the call
		return err
	}
	if err := h.checkUnbilled(ctx, c); err != nil {
		return err
	}
	developer, err := h.developerProvider(ctx, &c.who.App, c.plan.Model.Provider)
	if err != nil {
		return err
	}
	if err := h.prepare(ctx, c, developer); err != nil {
		return err
	}
	key, app, bound := h.boundOf(c)
	if err := h.inFlight.enterKey(key, app, bound); err != nil {
		return err
	}
	defer h.inFlight.leaveKey(key, app)
	for {
		attempt, used, err := h.beginAttempt(ctx, c, running, developer)
		switch {
		case err != nil:
			return err
		case attempt != nil:
			h.chargeImages(c, -c.remoteImages) // its charge pays for them
			return attempt.execute(ctx, w)
		case used.Outcome == rules.Done:
			c.dropMessages()
			return h.replay(ctx, w, c, running, used.Entry.ID)
		case used.Outcome == rules.Waiting:
			c.dropMessages()
			return h.replayPending(ctx, w, c, running, used.RequestID)
		}
		if err := h.followRemote(ctx, w, c, running, used); !errors.Is(err, errOwnerLost) {
			return err
		}
	}
}

// beginAttempt makes the hold of a call, and returns its attempt, or what became of its key if that was used before.
// It is not inlined: its 6 KB of stack would last as long as the call, and with them the stack of a stream that waits
// could not be halved (docs/internals/performance.md).
//
//go:noinline
func (h *Handler) beginAttempt(
	ctx context.Context, c *call, running *runningCall, developer provider.Provider,
) (*attempt, *rules.Result, error) {
	hold := c.plan.Demand
	hold.Key, hold.RequestID, hold.Fingerprint = c.key.Key, c.claim, c.fingerprint
	hold.NodeID, hold.Claim = h.Node.ID, c.claim
	hold.HasProviderKey = developer != nil
	step, end := h.Traces.Step(ctx, "hold")
	held, err := h.holdCall(step, hold)
	end(err)
	if err != nil {
		return nil, nil, c.plan.ExplainRefusal(err)
	}
	switch held.Outcome {
	case rules.Done, rules.Waiting, rules.Running:
		used := held // only this one is on the heap
		return nil, &used, nil
	}
	return h.newAttempt(c, running, &held, developer), nil, nil
}

// prepare does what only a new call needs. It refuses a model that no key here can call,
// reads the images, whose sizes decide what they cost, and checks whether the provider's
// dialect can express the request. All may refuse the call, so they come before the hold
// (decision 008). A used key is not prepared again: it will be replayed or refused.
// developer is the provider by the developer's own key, or nil.
func (h *Handler) prepare(ctx context.Context, c *call, developer provider.Provider) error {
	noKey := h.hasNoProvider(c, developer)
	if noKey || c.plan.Images > 0 {
		used, err := store.IsKeyUsed(ctx, h.DB, c.key)
		if used || err != nil {
			return err
		}
	}
	return h.prepareNew(ctx, c, noKey)
}

// hasNoProvider reports whether no provider key here can call the model of a call.
func (h *Handler) hasNoProvider(c *call, developer provider.Provider) bool {
	return developer == nil && h.platformProvider(&c.who.App, c.plan.Model.Provider) == nil
}

// prepareNew prepares a call whose key is new. noKey says that no provider key here can call its model.
func (h *Handler) prepareNew(ctx context.Context, c *call, noKey bool) error {
	if noKey {
		return errNoKey(c.plan.Model.ID, c.plan.Model.Provider, c.who.App.Tier)
	}
	if c.plan.Images > 0 {
		if err := h.readImages(ctx, c); err != nil {
			return err
		}
	}
	checks := []Dialect{h.Dialects[c.plan.Model.Provider]}
	if c.who.App.ProviderMode == apps.Mock {
		checks = append(checks, h.CheckMock)
	}
	for _, check := range checks {
		if check == nil {
			continue
		}
		err := check(&c.plan.Request)
		var p *provider.Error
		if errors.As(err, &p) {
			return apierr.InvalidRequest.Errorf("%s", p.Message).WithCause(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readImages reads the images of a request, and plans the call again by their sizes.
func (h *Handler) readImages(ctx context.Context, c *call) error {
	request := c.plan.CopyRequest()
	if err := h.checkImageRate(c, request); err != nil {
		return err
	}
	arriving := imageBytes{seat: c.seat, before: requestFactor * sumBytes(request)}
	if err := h.Images.Load(ctx, request, c.plan.Model.Provider, arriving.reserve); err != nil {
		return err
	}
	if err := tokens.CheckImages(request, c.plan.Model.Family); err != nil {
		return err
	}
	in := c.input
	in.Calibrate = h.calibrate // in mock mode too
	planned, err := c.plan.WithImages(request, &in)
	if err != nil {
		return err
	}
	c.plan = planned
	return c.countRequest()
}

// holdTimeout is for how long a hold is tried while the database is unavailable.
const holdTimeout = 5 * time.Second

// holdCall gives the ledger a hold. A repeated hold whose first COMMIT was carried out,
// though its answer was lost, finds itself by its claim (F-02). If that never happens,
// the sweep ends it.
func (h *Handler) holdCall(ctx context.Context, c rules.Hold) (rules.Result, error) {
	began := time.Now()
	r, err := h.Ledger.Do(ctx, c)
	if !db.IsUnavailable(err) || time.Since(began) >= h.DB.Limit(holdTimeout) {
		return r, err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(h.DB.Limit(holdTimeout)))
	defer cancel()
	return persist(ctx, func(ctx context.Context) (rules.Result, error) { return h.Ledger.Do(ctx, c) })
}

// persistBackoff paces the repeats of a ledger command.
var persistBackoff = retry.Backoff{First: 20 * time.Millisecond, Max: 2 * time.Second}

// maxUnknownFailures is how often a ledger command may fail for an unknown reason.
const maxUnknownFailures = 6

// persist repeats a ledger command while the database is unavailable, until ctx ends,
// and a few times when it failed for an unknown reason. A refusal is a result and is not
// repeated.
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
