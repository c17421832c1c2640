package operator

import (
	"context"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// Revoke ends a connection and its running calls: what is left of its allocation returns to its user, who gets an email
// with the reason. A developer who is gone can revoke nothing by the app's API.
func (d *Service) Revoke(ctx context.Context, by, connectionID, reason string) (after rules.Connection, err error) {
	found, err := store.GetConnection(ctx, d.DB, connectionID)
	if err != nil {
		return found, missing(err, "connection")
	}
	app, err := d.Apps.Get(ctx, found.AppID)
	if err != nil {
		return found, err
	}
	a := action{by: by, what: "revoke", subject: connectionID, reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		before, err := store.LockConnection(ctx, tx, connectionID)
		if err != nil {
			return err
		}
		if before.Status == rules.Revoked {
			return apierr.InvalidRequest.Errorf("the connection is revoked already")
		}
		done, err := d.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: connectionID, StopCalls: true})
		if err != nil {
			return err
		}
		after = done.Connection
		a.before, a.after = before.Resource(), after.Resource()
		return d.Notices.ReportRevoke(ctx, tx, app, after, done.ReleasedMC, reason)
	})
	return after, err
}

func (h *Handler) revoke(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	c, err := h.Service.Revoke(r.Context(), actorOf(r), r.PathValue("id"), reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, c.Resource())
}
