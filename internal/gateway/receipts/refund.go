package receipts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxRefundReason is the longest reason of a refund, in characters.
const maxRefundReason = 200

// Refunder refunds calls in the name of their app's developer (decision 106).
type Refunder struct {
	DB     *db.DB
	Ledger *store.Writer
	Now    func() time.Time
}

// Refund is the refund of a call as the API shows it.
type Refund struct {
	ID                string   `json:"id"` // of the ledger row that gave the money back
	Object            string   `json:"object"`
	RequestID         string   `json:"request_id"`
	ConnectionID      string   `json:"connection_id"`
	Reason            string   `json:"reason"`
	CreatedAt         string   `json:"created_at"`
	RefundedMC        money.MC `json:"refunded_mc"`
	RefundedDisplay   string   `json:"refunded_display"`
	PaidFromMarginMC  money.MC `json:"paid_from_margin_mc"`  // of the app, with that of the call
	PaidFromBalanceMC money.MC `json:"paid_from_balance_mc"` // of the developer
	Sandbox           bool     `json:"sandbox"`              // a test account's call: nothing was paid
}

// refundTries bounds how often a refund reads the app's margin again because another refund came between.
const refundTries = 50

// Refund refunds a call of an app, once. A call that the app has refunded before gives the same refund again.
func (f *Refunder) Refund(ctx context.Context, app *apps.App, requestID, reason string) (Refund, error) {
	reason, err := checkRefundReason(reason)
	if err != nil {
		return Refund{}, err
	}
	original, err := f.findCall(ctx, app.ID, requestID)
	if err != nil {
		return Refund{}, err
	}
	for range refundTries {
		margin, err := store.ReadAppMargin(ctx, f.DB, app.ID, f.Now())
		if err != nil {
			return Refund{}, err
		}
		done, err := f.refundOnce(ctx, rules.RefundCall{
			EntryID:     original.ID,
			AccountID:   original.AccountID,
			AppID:       app.ID,
			DeveloperID: app.OwnerID,
			Margin:      margin,
			Reason:      reason,
			Receipt:     JSON,
		})
		if err != nil {
			return Refund{}, err
		}
		if done.Outcome != rules.Waiting {
			return newRefund(&original, &done.CallRefund), nil
		}
	}
	e := apierr.Unavailable.Errorf("too many refunds of this app at once; nothing was refunded")
	e.RetryAfter = time.Second
	return Refund{}, e
}

// refundOnce applies a refund under the lock of the user's account, so that the account is not closed meanwhile:
// nothing is returned to an account that is closed. A call that was refunded before stays refunded.
func (f *Refunder) refundOnce(ctx context.Context, c rules.RefundCall) (done rules.Result, err error) {
	err = f.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		user, err := accounts.Lock(ctx, tx, c.AccountID)
		if err != nil {
			return err
		}
		if done, err = f.Ledger.DoTx(ctx, tx, c); err != nil {
			return err
		}
		if user.Closed && done.Outcome == rules.Applied {
			return apierr.InvalidRequest.Errorf("the user has closed the account; the charge can't be returned to it")
		}
		if done.Outcome != rules.Applied || done.CallRefund.BalanceMC == 0 {
			return nil
		}
		developer, err := accounts.GetAccount(ctx, tx, c.DeveloperID) // after its balance was locked
		if err == nil && developer.SuspendedUS != 0 {
			err = apierr.InvalidRequest.Errorf("the developer's account is suspended: what is left of its balance " +
				"goes back to its cards, and pays for no refund")
		}
		return err
	})
	return done, err
}

// findCall returns the spend row of a call that can be refunded.
func (f *Refunder) findCall(ctx context.Context, appID, requestID string) (rules.Entry, error) {
	notFound := apierr.NotFound.Errorf("no such request")
	if !strings.HasPrefix(requestID, id.Request) {
		return rules.Entry{}, notFound
	}
	e, err := store.GetEntry(ctx, f.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
	if err == nil && e.Type == rules.EntrySpend && e.AppID == appID {
		if e.ReversalOf != "" {
			return e, apierr.InvalidRequest.Errorf("this is a refund, and cannot be refunded")
		}
		return e, nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return e, fmt.Errorf("receipts: refund: %w", err)
	}
	found, foundApp, err := Find(ctx, f.DB, requestID)
	switch {
	case errors.Is(err, sql.ErrNoRows) || err == nil && foundApp != appID:
		return e, notFound
	case err != nil:
		return e, fmt.Errorf("receipts: refund: %w", err)
	}
	return e, apierr.InvalidRequest.Errorf("this call is not billed: it is %s", found.Status)
}

// DefaultRefundReason is the reason of a refund that was given none.
const DefaultRefundReason = "refunded_by_app"

func checkRefundReason(reason string) (string, error) {
	reason = strings.TrimSpace(reason)
	if reason == "" {
		return DefaultRefundReason, nil
	}
	return reason, apps.CheckText("reason", reason, maxRefundReason)
}

func newRefund(original *rules.Entry, r *rules.CallRefund) Refund {
	return Refund{
		ID:                r.ReversalID,
		Object:            "refund",
		RequestID:         original.RequestID(),
		ConnectionID:      original.ConnectionID,
		Reason:            r.Reason,
		CreatedAt:         timestamp.Format(r.CreatedUS),
		RefundedMC:        original.UserChargeMC,
		RefundedDisplay:   original.UserChargeMC.Display(),
		PaidFromMarginMC:  r.MarginMC,
		PaidFromBalanceMC: r.BalanceMC,
		Sandbox:           r.Sandbox,
	}
}

// refundBody is the body of POST /v1/requests/{id}/refund, which may be absent.
type refundBody struct {
	Reason web.Field[string] `json:"reason"`
}

// refundRequest answers POST /v1/requests/{id}/refund, to the app of the request.
func (h *Handler) refundRequest(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return err
	}
	var b refundBody
	if r.ContentLength != 0 {
		if err := web.ReadJSON(r, &b); err != nil {
			return err
		}
	}
	refund, err := h.Refunds.Refund(r.Context(), &app, r.PathValue("id"), b.Reason.Value)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, refund)
}
