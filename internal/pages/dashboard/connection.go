package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
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

// showConnection is GET /connections/{id}: its limits, its calls and what it holds now.
func (h *Handler) showConnection(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx := r.Context()
	v, err := h.loadVisit(ctx, a, r.PathValue("id"), connectionPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	c, page := v.conn, h.connectionPage(v)
	requests, err := store.PendingRequestsOfAccount(ctx, h.DB, c.AccountID)
	if err != nil {
		return fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	if request, ok := requests[c.ID]; ok && c.Status != rules.Revoked {
		page.Request, page.RequestTarget = request.ID, ui.Dollars(request.TargetMC)
	}
	p := readPeriod(r)
	spending, err := h.loadSpending(ctx, p, c.AccountID, c.ID, nil)
	if err != nil {
		return err
	}
	var filter url.Values // the developer of a test account does not have its activity
	if v.For == "" {
		filter = url.Values{"connection": {c.ID}}
	}
	page.Choices, page.Chart = p.choices(connectionPath(c.ID)), spending.chart(filter)
	rows, _, err := store.BrowseEntries(ctx, h.DB, store.EntryFilter{AccountID: c.AccountID, ConnectionID: c.ID}, 0,
		maxCalls)
	if err != nil {
		return fmt.Errorf("dashboard: activity: %w", err)
	}
	if page.Rows, err = formatEntries(ctx, h.newAppNames(), rows); err != nil {
		return err
	}
	if page.Voices, err = h.Voice.ListForPage(ctx, voice.Filter{ConnectionID: c.ID}); err != nil {
		return err
	}
	children, err := store.ListLiveChildren(ctx, h.DB, c.ID)
	if err != nil {
		return fmt.Errorf("dashboard: children: %w", err)
	}
	page.Children = listChildren(children)
	if c.Status != rules.Revoked {
		if page.Raised, err = h.listRaises(ctx, c); err != nil {
			return err
		}
	}
	page.Done = confirmDone(r, c.Status)
	return ui.Render(w, http.StatusOK, page)
}

// raiseShown is how long the page of a connection says that the app has raised its margin.
const raiseShown = 30 * 24 * time.Hour

// listRaises returns the margin rates of the connection's app that have risen since its user last approved what the app
// may spend (decision 125).
func (h *Handler) listRaises(ctx context.Context, c rules.Connection) ([]ui.Raise, error) {
	since := max(c.AgreedUS(), h.DB.Now().Add(-raiseShown).UnixMicro())
	changes, err := apps.ListMarginChanges(ctx, h.DB, c.AppID, since)
	if err != nil {
		return nil, fmt.Errorf("dashboard: margins: %w", err)
	}
	var list []ui.Raise
	for _, m := range apps.RaisedMargins(changes) {
		list = append(list, ui.Raise{
			Name:   m.Of(),
			Before: apps.FormatMargin(m.Before),
			After:  apps.FormatMargin(m.After),
			On:     time.UnixMicro(m.ChangedUS).UTC().Format("2 January 2006"),
		})
	}
	return list, nil
}

// connectionPage returns the page with the current amounts.
func (h *Handler) connectionPage(v visit) ui.Connection {
	c, parts := v.conn, splitCap(v.conn)
	page := ui.Connection{
		Person:       v.Person,
		Funds:        v.funds(),
		ConnectionID: c.ID,
		Percent:      meterPercent(c.ConsumedMC, c.AllocationMC),
		Exact:        [4]ui.Amount{ui.Money(c.AllocationMC), parts.used, parts.held, parts.remaining},
		Today:        ui.Total(money.MC(c.Spent.Sum(h.DB.Now(), tiers.DailyWindow))),
		Since:        time.UnixMicro(c.CreatedUS).UTC().Format("2 January 2006"),
		Calls:        "No calls in progress",
		Resumable:    c.FrozenBy == rules.FrozenByUser,
		WorkHolds:    workRows(v.work),
	}
	if c.HeldMC > 0 {
		page.Calls = "For calls in progress. Unused money returns"
	}
	if passed := c.UnheldDelegatedMC(); passed > 0 {
		page.Calls = "With " + ui.Dollars(passed) + " that the app has passed on. Unused money returns"
	}
	if c.VelocityLimitMC != nil {
		page.Daily = ui.Dollars(*c.VelocityLimitMC)
	}
	return page
}

// showLive is GET /connections/{id}/live: the live part of the page.
func (h *Handler) showLive(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	v, err := h.loadVisit(r.Context(), a, r.PathValue("id"), connectionPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	return ui.RenderPart(w, h.connectionPage(v), "live")
}

// showRevoke is GET /connections/{id}/revoke: it asks for confirmation.
func (h *Handler) showRevoke(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	v, err := h.loadVisit(r.Context(), a, r.PathValue("id"), connectionPath(r.PathValue("id"))+"/revoke")
	if err != nil {
		return err
	}
	if v.conn.Status == rules.Revoked {
		return web.SeeOther(w, connectionPath(v.conn.ID))
	}
	before := ui.SplitDollars(v.balance.AvailableMC, v.conn.RemainingMC())
	return ui.Render(w, http.StatusOK, ui.Revoke{
		Person:       v.Person,
		Funds:        v.funds(),
		ConnectionID: v.conn.ID,
		Before:       [2]ui.Amount(before),
		After:        ui.Money(v.balance.AvailableMC + v.conn.RemainingMC()),
	})
}

// revokeConnection is POST /connections/{id}/revoke.
func (h *Handler) revokeConnection(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.runCommand(w, r, a, func(connectionID string) rules.Command {
		return rules.Revoke{ConnectionID: connectionID, StopCalls: true}
	}, "", "")
}

// listChildren returns the rows of a connection's live children, each after its parent.
func listChildren(list []store.ChildBudget) (rows []ui.Child) {
	below := map[string][]*store.ChildBudget{}
	for i := range list {
		below[list[i].ParentID] = append(below[list[i].ParentID], &list[i])
	}
	var add func(parentID string)
	add = func(parentID string) {
		for _, c := range below[parentID] {
			left := ui.SplitDollars(c.RemainingMC(), c.HeldMC)
			row := ui.Child{
				ID:      c.ID,
				Label:   cmp.Or(c.Label, "No name"),
				Depth:   int(c.Depth),
				Given:   ui.Money(c.AmountMC),
				Left:    left[0],
				Expires: ui.NewMoment(c.ExpiresUS),
			}
			if c.HeldMC > 0 {
				row.Held = left[1]
			}
			rows = append(rows, row)
			add(c.ID)
		}
	}
	add("")
	return rows
}

// endChild is POST /connections/{id}/children/{child}/end: it takes back what the app has passed on.
func (h *Handler) endChild(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.runCommand(w, r, a, func(connectionID string) rules.Command {
		return rules.EndChild{ConnectionID: connectionID, ChildID: r.PathValue("child"), By: rules.EndedByUser}
	}, "#children", "")
}
