package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/topups"
)

// reconciliation is a reconciliation as the API shows it.
type reconciliation struct {
	ID         string  `json:"id"`
	Object     string  `json:"object"`
	Cause      string  `json:"cause"`
	Status     string  `json:"status"` // open or ended
	MoneyWaits bool    `json:"money_waits"`
	Since      string  `json:"since"`
	Stage      string  `json:"stage,omitempty"`
	Compared   int64   `json:"compared"`
	Booked     int64   `json:"booked"`
	Unbooked   int64   `json:"unbooked"`
	Error      string  `json:"error,omitempty"`
	CreatedAt  string  `json:"created_at"`
	EndedAt    *string `json:"ended_at"`
}

func newReconciliation(r topups.Reconciliation) reconciliation {
	out := reconciliation{
		ID:         r.ID,
		Object:     "reconciliation",
		Cause:      r.Cause,
		Status:     "open",
		MoneyWaits: r.EndedUS == 0 && r.Waits(),
		Since:      timestamp.Format(r.SinceUS),
		Stage:      r.Stage,
		Compared:   r.Compared,
		Booked:     r.Booked,
		Unbooked:   r.Unbooked,
		Error:      r.Error,
		CreatedAt:  timestamp.Format(r.CreatedUS),
	}
	if r.EndedUS > 0 {
		ended := timestamp.Format(r.EndedUS)
		out.Status, out.EndedAt = "ended", &ended
	}
	return out
}

// Reconcile begins a comparison of the books with Stripe, which a job makes (decision 127). After a restore no money
// leaves until it has ended. newAccount says that the key is, or will be, of another
// account or mode of Stripe than before, on purpose.
func (d *Service) Reconcile(ctx context.Context, by string, since time.Time, restored, newAccount bool) (
	r topups.Reconciliation, err error) {
	if !d.Topups.IsConfigured() {
		return r, apierr.InvalidRequest.Errorf("stripe.key: required to compare the books with Stripe")
	}
	a := action{by: by, what: "reconcile", subject: "stripe"}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		if newAccount {
			for _, name := range []string{settings.StripeAccount, settings.StripeMode} {
				if err := settings.Clear(ctx, tx, name); err != nil {
					return err
				}
			}
		}
		r, err = d.Topups.BeginReconciliation(ctx, tx, since, restored)
		a.before, a.after = struct{}{}, newReconciliation(r)
		return err
	})
	return r, err
}

// reconcileBody is the body of POST /v1/operator/reconciliations.
type reconcileBody struct {
	Since        web.Field[string] `json:"since"`
	AfterRestore web.Field[bool]   `json:"after_restore"`
	NewAccount   web.Field[bool]   `json:"new_account"`
}

func (h *Handler) reconcile(w http.ResponseWriter, r *http.Request) error {
	var b reconcileBody
	if err := web.ReadJSON(r, &b); err != nil {
		return err
	}
	var since time.Time
	if b.Since.Set && !b.Since.Null {
		var err error
		if since, err = time.Parse(time.RFC3339, b.Since.Value); err != nil || since.After(h.Service.Now()) {
			return apierr.InvalidRequest.Errorf("since: must be a time of the past such as 2026-11-01T00:00:00Z")
		}
	}
	is, err := h.Service.Reconcile(r.Context(), actorOf(r), since, b.AfterRestore.Value,
		b.NewAccount.Value)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newReconciliation(is))
}

func (h *Handler) reconciliation(w http.ResponseWriter, r *http.Request) error {
	is, err := h.Service.Topups.GetReconciliation(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "reconciliation")
	}
	return web.WriteJSON(w, http.StatusOK, newReconciliation(is))
}
