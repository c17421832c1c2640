package voice

import (
	"context"
	"errors"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/provider"
)

// placeCall makes the provider's call of a browser's offer, and returns the provider's answer, or the 502 of the offer.
func (r *runner) placeCall(ctx context.Context, offer []byte) (answer []byte, err error) {
	answer, callID, err := r.node.provider.createCall(ctx, r.terms, offer, r.config)
	if err == nil {
		// no row names the call: only this node can end it
		if err = r.node.store.setCall(ctx, r.id, callID); err != nil {
			r.node.work.Go(func() { r.node.hangUpUnsaved(r.terms, r.id, callID) })
		}
	}
	if err != nil {
		r.node.log.WarnContext(ctx, "voice offer failed", "session_id", r.id, "error", err)
		refusal := r.explainRefusal(err)
		r.postEvent(session.CallRefused{Message: refusal.Message, Details: refusal.Details})
		return nil, refusal.WithCause(err)
	}
	r.postEvent(session.CallAnswered{CallID: callID})
	return answer, nil
}

// explainRefusal returns the 502 of an offer. The ticket is spent: what may be repeated is the session.
func (r *runner) explainRefusal(cause error) *apierr.Error {
	f := failures.Classify(r.terms.Provider, cause)
	what, advice := f.Sentence(), "nothing was billed, create another session"
	if p, ok := errors.AsType[*provider.Error](cause); ok && p.Kind == provider.Rejected {
		what = p.Message
	} else if ok && p.Alarm != "" && !r.terms.DeveloperKey {
		r.node.biller.metrics.RaiseAlarm(p.Alarm, r.terms.Provider)
		r.node.log.Error("provider alarm", "provider", r.terms.Provider, "alarm", p.Alarm, "error", cause)
	}
	if errors.Is(cause, errNoProviderKey) {
		f.Kind, f.Retry, what = failures.NotConfigured, false, "this service has no key for "+f.Provider
	}
	if !f.Retry {
		advice = "nothing was billed, and another session of the same settings does not help"
	}
	e := apierr.ProviderError.On(r.terms.ConnectionID, "%s; %s", what, advice)
	e.RetryAfter, e.Final, e.Details = f.RetryAfter, !f.Retry, f.Details()
	return e
}

// superviseCall attaches a sideband to the call and gives its events to the session until it ends.
func (r *runner) superviseCall(callID string, again bool) {
	ws, gone, err := dialSideband(r.ctx, r.node.provider, r.terms, callID, again)
	if err != nil {
		if r.ctx.Err() == nil {
			r.node.log.WarnContext(r.ctx, "voice sideband attach failed", "session_id", r.id, "error", err)
			r.postEvent(session.AttachFailed{Gone: gone})
		}
		return
	}
	r.connectProvider(&providerLink{
		send: func(event []byte) error {
			ctx, cancel := context.WithTimeout(r.ctx, providerTimeout)
			defer cancel()
			return ws.Write(ctx, websocket.MessageText, event)
		},
		close: func() { _ = ws.CloseNow() },
	})
	r.postEvent(session.SidebandUp{})
	r.attachOnce.Do(func() { close(r.attached) })
	if lost, clean := readSideband(r.ctx, ws, r.postProviderEvent); lost {
		r.postEvent(session.SidebandDown{Clean: clean})
	}
}

// hangUp ends the call at the provider, and repeats that while the session runs here. After that
// Supervisor.HangUps of any node repeats it (F-85).
func (r *runner) hangUp() {
	if r.state.Mock {
		r.mu.Lock()
		link := r.provider
		r.mu.Unlock()
		if link != nil {
			link.close()
		}
		return
	}
	callID, hadSideband := r.state.CallID, r.state.EverAttached // only this goroutine may read the state
	if callID == "" {
		return
	}
	r.node.work.Go(func() {
		pauses := retry.Backoff{First: 250 * time.Millisecond, Max: 2 * time.Second}
		for {
			err := r.node.provider.hangUp(r.node.abandoned, r.terms, callID)
			if err == nil || hadSideband && errors.Is(err, errUnknownCall) {
				r.postEvent(session.CallGone{})
				return
			}
			r.node.log.WarnContext(r.ctx, "voice hang-up failed", "session_id", r.id, "error", err)
			if !retry.Sleep(r.ctx, pauses.Next()) {
				return
			}
		}
	})
}

// lateBrowser is how long after the end of a session its browser may still connect to a call that the provider did not
// know.
const lateBrowser = 5 * time.Minute

// longestCall is how long a call of the provider lasts at most (provider notes D).
const longestCall = time.Hour

// endCall hangs the call of an ended session up and notes that it is gone. A call that the provider does not know, and
// that never had a sideband, may still begin: it is tried again.
func (n *node) endCall(ctx context.Context, r *row, saved *savedSession) error {
	if r.CallID != "" {
		err := n.provider.hangUp(ctx, &saved.Terms, r.CallID)
		unknown := errors.Is(err, errUnknownCall)
		ended := n.store.Now().Sub(r.endedAt())
		if unknown && !saved.State.EverAttached && ended < lateBrowser {
			return nil
		}
		isOver := errors.Is(err, errOtherKey) && ended > longestCall
		if err != nil && !unknown && !isOver {
			if ended > 2*lateBrowser {
				n.biller.metrics.RaiseAlarm("a voice call cannot be hung up", saved.Terms.Provider)
			}
			return err
		}
	}
	return n.store.setCallGone(ctx, r.ID)
}

// hangUpUnsaved ends a call that no row names. It repeats that until it succeeds, or the row of the ended session names
// the call: then Supervisor.HangUps of any node repeats it, and this node may stop.
func (n *node) hangUpUnsaved(t *billingTerms, sessionID, callID string) {
	begun := n.store.Now()
	retryUntil(n.abandoned, func(ctx context.Context) error {
		err := n.provider.hangUp(ctx, t, callID)
		if err == nil {
			return nil
		}
		saved, failed := n.store.setCallOfEnded(ctx, sessionID, callID)
		if saved {
			return nil
		}
		if errors.Is(err, errUnknownCall) {
			if !n.store.Now().Before(begun.Add(lateBrowser)) {
				return nil
			}
			return err
		}
		n.log.ErrorContext(ctx, "voice hang-up of unsaved call failed",
			"session_id", sessionID, "call_id", callID, "error", err, "save_error", failed)
		return err
	})
}
