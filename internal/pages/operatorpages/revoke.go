package operatorpages

import (
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
)

const connectionsPath = "/operator/connections"

// showRevoke is GET /operator/connections/{id}/revoke: what revoking does, and the form for its reason.
func (h *Handler) showRevoke(r *http.Request, s staff) (ui.Report, error) {
	x, err := store.GetConnection(r.Context(), h.DB, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "connection")
	}
	app, err := h.Service.Apps.Get(r.Context(), x.AppID)
	if err != nil {
		return ui.Report{}, err
	}
	at := connectionsPath + "/" + url.PathEscape(x.ID)
	c := s.newReport(accountsPath, "Revoke this connection?", "")
	c.Back = &ui.Link{Href: at, Text: "Connection to " + app.Name}
	if x.Status == rules.Revoked {
		c.Heading, c.Lead = "This can’t be done", "The connection is revoked."
		return c, nil
	}
	c.Lead = "The app’s calls end, and it can make no others. " + ui.Dollars(x.RemainingMC()) + " returns to the " +
		"user’s balance. The user gets an email with the reason, and can connect again. This can’t be undone."
	work, err := store.SumWorkHolds(r.Context(), h.DB, x.AccountID, x.ID)
	if err != nil {
		return ui.Report{}, err
	}
	if work > 0 {
		c.Lead += " The app can still charge up to " + ui.Dollars(work) + " that it holds for its own work, within " +
			"ten minutes."
	}
	if s.canAct() {
		c.Blocks = []ui.Block{{Heading: "Revoke", Form: &ui.Ask{
			Action:   at + "/revoke",
			Decision: "revoke",
			Fields:   reasonField("The user reads it."),
			Button:   "Revoke",
			Danger:   true,
		}}}
	}
	return c, nil
}

// revokeConnection is POST /operator/connections/{id}/revoke.
func (h *Handler) revokeConnection(r *http.Request, s staff, form url.Values) (string, error) {
	if form.Get("decision") != "revoke" {
		return "", apierr.InvalidRequest.Errorf("decision: must be revoke")
	}
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	_, err = h.Service.Revoke(r.Context(), s.ID, r.PathValue("id"), reason)
	return connectionsPath + "/" + url.PathEscape(r.PathValue("id")) + "?done=revoke", err
}
