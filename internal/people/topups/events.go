package topups

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

// maxEventBytes bounds the body of an event. Stripe names no bound: objects of others in the same account may have many
// members and much metadata, and their events are acknowledged, too, or Stripe would give the endpoint up.
const maxEventBytes = 1 << 20

// receiveEvent is POST /stripe/events. It answers after the changes are committed (F-66). After an
// error Stripe sends the event again.
func (h *Handler) receiveEvent(w http.ResponseWriter, r *http.Request) error {
	s := h.Store
	if !s.IsConfigured() {
		return apierr.NotFound.Errorf("Stripe is not set up here.")
	}
	body, err := web.ReadBody(r, "application/json", maxEventBytes)
	if err != nil {
		return err
	}
	// Only ids are read from the event, whatever its version of the API is; the state is fetched.
	e, err := stripe.ReadEvent(body, r.Header.Get("Stripe-Signature"), s.Config.WebhookSecret, time.Now())
	if err != nil {
		s.badSinceUS.CompareAndSwap(0, s.Now().UnixMicro())
		return apierr.InvalidRequest.Errorf("Stripe-Signature: does not fit").WithCause(err)
	}
	s.badSinceUS.Store(0)
	err = s.handleEvent(r.Context(), e)
	if bad, ok := errors.AsType[*refused](err); ok {
		return apierr.InvalidRequest.Errorf("not what was opened here").WithCause(bad)
	} else if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, map[string]bool{"received": true})
}

// handleEvent reconciles the checkout of an event, unless the event was already handled.
func (s *Store) handleEvent(ctx context.Context, e stripe.Event) error {
	if old, err := wasSeen(ctx, s.DB, e.ID); err != nil || old {
		return err
	}
	if e.Account != "" { // of a developer's account, to an endpoint that gets those events, too
		return markSeen(ctx, s.DB, e.ID, e.Type, s.Now().UnixMicro())
	} else if e.Livemode != s.Config.isLive() {
		return s.refuseTopUp("", fmt.Sprintf("event %s is of another mode", e.ID))
	}
	c, err := s.findCheckoutOfEvent(ctx, e)
	if errors.Is(err, sql.ErrNoRows) { // the event is about another payment of this Stripe account
		return markSeen(ctx, s.DB, e.ID, e.Type, s.Now().UnixMicro())
	} else if err != nil {
		return err
	}
	_, err = s.reconcile(ctx, c, func(ctx context.Context, tx *db.Tx) error {
		return markSeen(ctx, tx, e.ID, e.Type, s.Now().UnixMicro())
	})
	return err
}

// findCheckoutOfEvent finds the checkout that an event is about, or sql.ErrNoRows.
func (s *Store) findCheckoutOfEvent(ctx context.Context, e stripe.Event) (checkout, error) {
	switch {
	case strings.HasPrefix(e.Type, "checkout.session."):
		var session stripe.CheckoutSession
		if err := json.Unmarshal(e.Data.Object, &session); err != nil {
			return checkout{}, s.refuseTopUp("", "event "+e.ID+" is not about a session")
		}
		return s.findCheckoutOfSession(ctx, &session)
	case strings.HasPrefix(e.Type, "payment_intent."): // of an automatic top-up
		var intent stripe.PaymentIntent
		if err := json.Unmarshal(e.Data.Object, &intent); err != nil {
			return checkout{}, s.refuseTopUp("", "event "+e.ID+" is not about a payment")
		}
		return s.findCheckoutOfAttempt(ctx, &intent)
	case strings.HasPrefix(e.Type, "charge.") || strings.HasPrefix(e.Type, "refund."): // refunds and disputes
		var of struct {
			PaymentIntent *stripe.PaymentIntent `json:"payment_intent"`
		}
		if err := json.Unmarshal(e.Data.Object, &of); err != nil || of.PaymentIntent == nil {
			return checkout{}, sql.ErrNoRows
		}
		return s.findCheckoutOfIntent(ctx, of.PaymentIntent.ID)
	}
	return checkout{}, sql.ErrNoRows
}

// findCheckoutOfSession finds the checkout of a session and checks the session of the event against the order. If the
// response with the session id was lost, it finds the checkout by the client reference id. A second session of a
// checkout is of no interest until it is paid.
func (s *Store) findCheckoutOfSession(ctx context.Context, session *stripe.CheckoutSession) (checkout, error) {
	c, err := getBySession(ctx, s.DB, session.ID)
	if errors.Is(err, sql.ErrNoRows) && session.ClientReferenceID != "" {
		c, err = getCheckout(ctx, s.DB, session.ClientReferenceID)
		switch isSecond := err == nil && c.SessionID != ""; {
		case isSecond && session.PaymentIntent == nil:
			return c, sql.ErrNoRows
		case isSecond:
			return s.findUnknown(ctx, session.PaymentIntent.ID)
		}
		c.SessionID, c.URL = session.ID, session.URL
	}
	if errors.Is(err, sql.ErrNoRows) && session.Metadata["topup_id"] != "" && session.PaymentIntent != nil {
		return s.findUnknown(ctx, session.PaymentIntent.ID)
	} else if err != nil {
		return c, err
	}
	if wrong := findSessionDifference(session, c.order, s.Config.isLive()); wrong != "" {
		return c, s.refuseTopUp(c.ID, wrong)
	}
	return c, nil
}

// findCheckoutOfAttempt finds the automatic checkout of a payment by its metadata and checks the payment against the
// order. It returns sql.ErrNoRows for a payment of a session, which has events of its session. A second payment of a
// checkout is of no interest until it brings money.
func (s *Store) findCheckoutOfAttempt(ctx context.Context, intent *stripe.PaymentIntent) (checkout, error) {
	c, err := getByIntent(ctx, s.DB, intent.ID)
	if errors.Is(err, sql.ErrNoRows) {
		c, err = getCheckout(ctx, s.DB, intent.Metadata["topup_id"])
	}
	switch isUnknown := errors.Is(err, sql.ErrNoRows) && intent.Metadata["topup_id"] != ""; {
	case isUnknown, err == nil && c.automatic() && c.IntentID != "" && c.IntentID != intent.ID:
		return s.findUnknown(ctx, intent.ID)
	case err != nil:
		return c, err
	case !c.automatic():
		return checkout{}, sql.ErrNoRows
	}
	if wrong := findIntentDifference(intent, c, s.Config.isLive()); wrong != "" {
		return c, s.refuseTopUp(c.ID, wrong)
	}
	c.IntentID = intent.ID
	return c, nil
}

// findCheckoutOfIntent finds the checkout of a payment, even before the event that it was paid has arrived (F-63).
func (s *Store) findCheckoutOfIntent(ctx context.Context, intent string) (checkout, error) {
	p, err := store.PaymentByIntent(ctx, s.DB, intent)
	if err == nil {
		return getCheckout(ctx, s.DB, p.ID)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return checkout{}, err
	}
	if c, err := getByIntent(ctx, s.DB, intent); !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	sessionID, err := s.findSessionOfIntent(ctx, intent)
	if err != nil {
		return checkout{}, err
	}
	c, err := getBySession(ctx, s.DB, sessionID)
	if errors.Is(err, sql.ErrNoRows) {
		return s.findUnknown(ctx, intent)
	}
	return c, err
}

// findUnknown finds the top-up of a payment that has brought money and that the books do not know, and records one that
// they do not have. It returns sql.ErrNoRows for a payment that is not ours.
func (s *Store) findUnknown(ctx context.Context, intentID string) (checkout, error) {
	intent, err := stripe.Get[stripe.PaymentIntent](ctx, s.client, intentID, nil)
	switch {
	case stripeapi.Sort(err).Outcome == stripeapi.Gone && s.account.Check(ctx) == nil:
		s.Log.Warn("the account at stripe has no such payment", "payment", intentID)
		return checkout{}, sql.ErrNoRows
	case stripeapi.Sort(err).Outcome == stripeapi.Gone: // at the account of this key, which is another one
		return checkout{}, s.refuseTopUp("", "payment "+intentID+" is not at stripe")
	case err != nil:
		return checkout{}, fmt.Errorf("topups: payment: %w", err)
	case intent.Metadata["topup_id"] == "" || !hasMoney(intent) || intent.Livemode != s.Config.isLive():
		return checkout{}, sql.ErrNoRows
	}
	c, err := s.topUpOfIntent(ctx, intent)
	if _, ok := errors.AsType[*refused](err); ok { // of an account that is not here; it was logged
		return checkout{}, sql.ErrNoRows
	}
	return c, err
}
