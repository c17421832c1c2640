package topups

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxEvent is more than any event has that we ask for.
const maxEvent = 64 << 10

// event is POST /stripe/events. It answers when what follows is committed (F-66); any
// error makes Stripe send it again.
func (h *Handler) event(w http.ResponseWriter, r *http.Request) error {
	s := h.Store
	if !s.Usable() {
		return apierr.NotFound.Errorf("Stripe is not set up here.")
	}
	body, err := web.ReadBody(r, "application/json", maxEvent)
	if err != nil {
		return err
	}
	e, err := webhook.ConstructEventWithOptions(body, r.Header.Get("Stripe-Signature"), s.Config.WebhookSecret,
		webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true}) // only names are read of it; the rest is asked for
	if err != nil || e.Data == nil {
		return apierr.InvalidRequest.Errorf("Stripe-Signature: does not fit").WithCause(err)
	}
	err = s.hear(r.Context(), e)
	if bad, ok := errors.AsType[*refused](err); ok {
		return apierr.InvalidRequest.Errorf("not what was opened here").WithCause(bad)
	} else if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, map[string]bool{"received": true})
}

// hear follows an event, once.
func (s *Store) hear(ctx context.Context, e stripe.Event) error {
	if old, err := seen(ctx, s.DB, e.ID); err != nil || old {
		return err
	}
	if e.Livemode != s.Config.live() || e.Account != "" {
		return s.refuse("", fmt.Sprintf("event %s is of another account or mode", e.ID))
	}
	c, err := s.about(ctx, e)
	if errors.Is(err, sql.ErrNoRows) { // of something else that is sold there
		return markSeen(ctx, s.DB, e.ID, string(e.Type), s.Now().UnixMicro())
	} else if err != nil {
		return err
	}
	return s.follow(ctx, c, func(ctx context.Context, tx *db.Tx) error {
		return markSeen(ctx, tx, e.ID, string(e.Type), s.Now().UnixMicro())
	})
}

// about finds the checkout that an event is about, or sql.ErrNoRows.
func (s *Store) about(ctx context.Context, e stripe.Event) (checkout, error) {
	kind := string(e.Type)
	switch {
	case strings.HasPrefix(kind, "checkout.session."):
		var session stripe.CheckoutSession
		if err := json.Unmarshal(e.Data.Raw, &session); err != nil {
			return checkout{}, s.refuse("", "event "+e.ID+" is not about a session")
		}
		return s.ofSession(ctx, &session)
	case strings.HasPrefix(kind, "payment_intent."): // of an automatic top-up
		var intent stripe.PaymentIntent
		if err := json.Unmarshal(e.Data.Raw, &intent); err != nil {
			return checkout{}, s.refuse("", "event "+e.ID+" is not about a payment")
		}
		return s.ofAttempt(ctx, &intent)
	case strings.HasPrefix(kind, "charge."): // refunds and disputes
		var of struct {
			PaymentIntent *stripe.PaymentIntent `json:"payment_intent"`
		}
		if err := json.Unmarshal(e.Data.Raw, &of); err != nil || of.PaymentIntent == nil {
			return checkout{}, sql.ErrNoRows
		}
		return s.ofIntent(ctx, of.PaymentIntent.ID)
	}
	return checkout{}, sql.ErrNoRows
}

// ofSession finds the checkout of a session, which the event repeats: it must fit,
// too. One whose answer was lost is found by the name that we gave it.
func (s *Store) ofSession(ctx context.Context, session *stripe.CheckoutSession) (checkout, error) {
	c, err := bySession(ctx, s.DB, session.ID)
	if errors.Is(err, sql.ErrNoRows) && session.ClientReferenceID != "" {
		if c, err = get(ctx, s.DB, session.ClientReferenceID); err == nil && c.SessionID != "" {
			return c, s.refuse(c.ID, "another session paid for it: "+session.ID)
		}
		c.SessionID, c.URL = session.ID, session.URL
	}
	if errors.Is(err, sql.ErrNoRows) && session.Metadata["topup_id"] != "" {
		return c, s.refuse(session.Metadata["topup_id"], "session "+session.ID+" was never opened here")
	} else if err != nil {
		return c, err
	}
	if wrong := differs(session, c.order, s.Config.live()); wrong != "" {
		return c, s.refuse(c.ID, wrong)
	}
	return c, nil
}

// ofAttempt finds the automatic checkout of a payment, which must fit. One whose
// answer was lost is found by the name that we gave it. That of a session is told by
// events of the session.
func (s *Store) ofAttempt(ctx context.Context, intent *stripe.PaymentIntent) (checkout, error) {
	c, err := get(ctx, s.DB, intent.Metadata["topup_id"])
	if err != nil {
		return c, err
	} else if !c.automatic() {
		return checkout{}, sql.ErrNoRows
	}
	if wrong := intentDiffers(intent, c, s.Config.live()); wrong != "" {
		return c, s.refuse(c.ID, wrong)
	}
	c.IntentID = intent.ID
	return c, nil
}

// ofIntent finds the checkout of a payment, even if we have not heard yet that it
// was paid (F-63).
func (s *Store) ofIntent(ctx context.Context, intent string) (checkout, error) {
	p, err := store.PaymentByIntent(ctx, s.DB, intent)
	if err == nil {
		return get(ctx, s.DB, p.ID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return checkout{}, err
	}
	if c, err := byIntent(ctx, s.DB, intent); !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	sessionID, err := s.sessionOf(ctx, intent)
	if err != nil {
		return checkout{}, err
	}
	return bySession(ctx, s.DB, sessionID)
}
