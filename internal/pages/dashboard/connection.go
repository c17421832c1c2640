package dashboard

import (
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

func connectionPath(connectionID string) string { return "/connections/" + connectionID }

// connection is GET /connections/{id}: what it may do, did, and holds now.
func (h *Handler) connection(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx := r.Context()
	v, err := h.visit(ctx, a, r.PathValue("id"), connectionPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	c, page := v.conn, h.funded(v)
	waiting, err := store.PendingRequestsOfAccount(ctx, h.DB, c.AccountID)
	if err != nil {
		return fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	if raise, ok := waiting[c.ID]; ok && c.Status != rules.Revoked {
		page.Request, page.RequestTarget = raise.ID, ui.Dollars(raise.TargetMC)
	}
	totals, err := store.ListDailyTotals(ctx, h.DB, c.AccountID, c.ID, h.since())
	if err != nil {
		return fmt.Errorf("dashboard: totals: %w", err)
	}
	page.Chart = h.chart(totals)
	rows, _, err := store.BrowseEntries(ctx, h.DB, store.EntryFilter{AccountID: c.AccountID, ConnectionID: c.ID}, 0,
		maxCalls)
	if err != nil {
		return fmt.Errorf("dashboard: activity: %w", err)
	}
	if page.Rows, err = lines(ctx, h.names(), rows); err != nil {
		return err
	}
	if page.Voices, err = h.Voice.ListForPage(ctx, voice.Filter{ConnectionID: c.ID}); err != nil {
		return err
	}
	if r.URL.Query().Get("done") == "freeze" && c.Status == rules.Frozen {
		page.Done = "freeze"
	}
	return ui.Render(w, http.StatusOK, page)
}

// funded is a page with the money of its connection, as it is now.
func (h *Handler) funded(v visit) ui.Connection {
	c := v.conn
	page := ui.Connection{
		Person:       v.Person,
		Funds:        funds(c, v.app),
		ConnectionID: c.ID,
		Percent:      percent(c.ConsumedMC, c.AllocationMC),
		Exact: [4]ui.Amount{ui.Money(c.AllocationMC), ui.Money(c.ConsumedMC), ui.Money(c.HeldMC),
			ui.Money(c.RemainingMC())},
		Today: ui.Dollars(money.MC(c.Spent.Sum(h.DB.Now(), tiers.DailyWindow))),
		Since: time.UnixMicro(c.CreatedUS).UTC().Format("2 January 2006"),
		Calls: "No calls in progress",
	}
	if c.HeldMC > 0 {
		page.Calls = "For calls in progress. Unused money returns"
	}
	if c.VelocityLimitMC != nil {
		page.Daily = ui.Dollars(*c.VelocityLimitMC)
	}
	return page
}

// live is GET /connections/{id}/live: the money again, while calls run.
func (h *Handler) live(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	v, err := h.visit(r.Context(), a, r.PathValue("id"), connectionPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	return ui.RenderPart(w, h.funded(v), "live")
}

// freeze is POST /connections/{id}/freeze: the user pauses it at once (contract §3).
func (h *Handler) freeze(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.act(w, r, a, func(connectionID string) rules.Command {
		return rules.Freeze{ConnectionID: connectionID, ByUser: true}
	}, "?done=freeze")
}

// revokePage is GET /connections/{id}/revoke, which asks once more.
func (h *Handler) revokePage(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	v, err := h.visit(r.Context(), a, r.PathValue("id"), connectionPath(r.PathValue("id"))+"/revoke")
	if err != nil {
		return err
	}
	if v.conn.Status == rules.Revoked {
		return web.SeeOther(w, connectionPath(v.conn.ID))
	}
	return ui.Render(w, http.StatusOK, ui.Revoke{
		Person:       v.Person,
		Funds:        funds(v.conn, v.app),
		ConnectionID: v.conn.ID,
	})
}

// revoke is POST /connections/{id}/revoke.
func (h *Handler) revoke(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.act(w, r, a, func(connectionID string) rules.Command {
		return rules.Revoke{ConnectionID: connectionID}
	}, "")
}

// act does what a button says, and shows the connection as it then is. One that
// was revoked meanwhile is shown as that.
func (h *Handler) act(w http.ResponseWriter, r *http.Request, a accounts.Account,
	command func(connectionID string) rules.Command, done string) error {
	v, err := h.visit(r.Context(), a, r.PathValue("id"), connectionPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	if _, err := web.ReadForm(r); err != nil {
		return err
	}
	if _, err := h.Ledger.Do(r.Context(), command(v.conn.ID)); err != nil && told(err) == "" {
		return err
	}
	return web.SeeOther(w, connectionPath(v.conn.ID)+done)
}
