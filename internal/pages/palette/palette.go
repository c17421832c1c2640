// Package palette is the search of the pages: it finds pages, apps and connections by name, and the page of an id that
// was pasted. The browser shows it over any page (Ctrl-K); without JavaScript it is a page of its own.
package palette

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Bounds of a search.
const (
	maxQueryBytes  = 100
	maxResults     = 12
	maxConnections = 200
)

// Handler serves the search.
type Handler struct {
	DB       *db.DB
	Apps     *apps.Store
	Accounts *accounts.Store
	Webhooks *webhooks.Store
	Sessions *accounts.Sessions
}

// Mount adds the route.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /search", h.Sessions.Require(h.showSearch))
}

// showSearch is GET /search?q=. With part=1 it is the list of results alone, for the script.
func (h *Handler) showSearch(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(query) > maxQueryBytes {
		query = ""
	}
	page := ui.Search{Shell: a.Shell(""), Query: query}
	var err error
	if page.Results, err = h.find(r.Context(), a, query); err != nil {
		return fmt.Errorf("palette: %w", err)
	}
	page.Results = page.Results[:min(len(page.Results), maxResults)]
	if r.URL.Query().Get("part") != "" {
		return ui.RenderPart(w, page, "found")
	}
	return ui.Render(w, http.StatusOK, page)
}

// find returns what the account may see. A foreign id and one that does not exist both find nothing.
func (h *Handler) find(ctx context.Context, a accounts.Account, query string) ([]ui.Found, error) {
	kind, _, isID := strings.Cut(query, "_")
	if isID {
		found, err := h.findID(ctx, a, kind+"_", query)
		if errors.Is(err, sql.ErrNoRows) {
			found, err = nil, nil
		}
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	found := pagesNamed(a, query)
	memberships, err := h.Apps.ListMemberships(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	for _, m := range memberships {
		if query != "" && isNamed(m.Name, query) {
			found = append(found, ui.Found{Href: "/developer/apps/" + m.ID, Text: m.Name, Detail: "App", Icon: "boxes"})
		}
	}
	if query != "" {
		connections, err := h.findConnections(ctx, a, query)
		if err != nil {
			return nil, err
		}
		found = append(found, connections...)
	}
	if a.Operator && query != "" {
		q := "?q=" + url.QueryEscape(query)
		found = append(found,
			ui.Found{Href: "/operator/accounts" + q, Text: "Accounts: " + query, Detail: "Operator", Icon: "users"},
			ui.Found{Href: "/operator/apps" + q, Text: "Apps: " + query, Detail: "Operator", Icon: "boxes"})
	}
	return found, nil
}

// findConnections returns the connections of an account to apps with this in their name.
func (h *Handler) findConnections(ctx context.Context, a accounts.Account, query string) (found []ui.Found, err error) {
	list, err := store.ConnectionsOfAccount(ctx, h.DB, a.ID, maxConnections)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, c := range list {
		if _, ok := names[c.AppID]; !ok {
			app, err := h.Apps.Get(ctx, c.AppID)
			if err != nil {
				return nil, err
			}
			names[c.AppID] = app.Name
		}
		if name := names[c.AppID]; isNamed(name, query) {
			found = append(found,
				ui.Found{Href: "/connections/" + c.ID, Text: name, Detail: "Connection", Icon: "plug"})
		}
	}
	return found, nil
}

// pagesNamed returns the pages of the navigation with this in their name; all for "".
func pagesNamed(a accounts.Account, query string) (found []ui.Found) {
	for _, group := range a.Shell(ui.Development).Nav() {
		for _, l := range group.Links {
			if isNamed(l.Text, query) {
				found = append(found, ui.Found{Href: l.Href, Text: l.Text, Detail: group.Title, Icon: l.Icon})
			}
		}
	}
	for _, p := range []ui.Found{
		{Href: "/dashboard/pause", Text: "Pause everything", Icon: "pause"},
		{Href: "/settings/security", Text: "Security", Icon: "lock"},
		{Href: "/settings/notices", Text: "Email notices", Icon: "mail"},
		{Href: "/settings/data", Text: "Your data", Icon: "download"},
		{Href: "/models", Text: "Models and prices", Icon: "receipt"},
		{Href: "/status", Text: "Service status", Icon: "activity"},
	} {
		if query != "" && isNamed(p.Text, query) {
			found = append(found, p)
		}
	}
	return found
}

func isNamed(name, query string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(query))
}

// findID returns the page of an id. The error wraps sql.ErrNoRows if there is nothing by that id that the account may
// see.
func (h *Handler) findID(ctx context.Context, a accounts.Account, kind, text string) ([]ui.Found, error) {
	one := func(href, what, icon string) []ui.Found {
		return []ui.Found{{Href: href, Text: what, Detail: text, Icon: icon}}
	}
	switch kind {
	case id.App:
		if _, err := h.Apps.GetMembership(ctx, text, a.ID); err == nil {
			return one("/developer/apps/"+text, "App", "boxes"), nil
		} else if !a.Operator || !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		app, err := h.Apps.Get(ctx, text)
		return one("/operator/apps/"+text, app.Name, "boxes"), err
	case id.Connection:
		c, err := store.GetConnection(ctx, h.DB, text)
		if err != nil {
			return nil, err
		}
		return h.choose(ctx, a, c.AccountID, c.AppID, choice{
			own: one("/connections/"+text, "Connection", "plug"),
			developer: one("/developer/apps/"+c.AppID+"/requests?connection="+text, "Requests of this connection",
				"plug"),
			operator: one("/operator/connections/"+text, "Connection", "plug"),
		})
	case id.Ledger, id.Request:
		return h.findCall(ctx, a, text, one)
	case id.AllocationRequest:
		request, err := store.GetAllocationRequest(ctx, h.DB, text)
		if err != nil {
			return nil, err
		}
		c, err := store.GetConnection(ctx, h.DB, request.ConnectionID)
		if err != nil {
			return nil, err
		}
		return h.choose(ctx, a, c.AccountID, "",
			choice{own: one("/allocation-requests/"+text, "Spend cap request", "wallet")})
	case id.Event:
		return h.findEvent(ctx, a, text)
	case id.Delivery:
		d, appID, err := h.Webhooks.FindDelivery(ctx, text)
		if err != nil {
			return nil, err
		}
		if _, err := h.Apps.GetMembership(ctx, appID, a.ID); err != nil {
			return nil, err
		}
		return []ui.Found{deliveryFound(appID, d)}, nil
	case id.Payment: // its page tells strangers nothing, and so does a link to it
		return one("/top-ups/"+url.PathEscape(text), "Top-up", "wallet"), nil
	case id.Account:
		if a.Operator {
			return one("/operator/accounts/"+url.PathEscape(text), "Account", "user"), nil
		}
	}
	return nil, sql.ErrNoRows
}

// findEvent finds the deliveries of an event; of an event without any, the endpoints of its app.
func (h *Handler) findEvent(ctx context.Context, a accounts.Account, eventID string) (found []ui.Found, err error) {
	t, err := h.Webhooks.GetTrace(ctx, eventID)
	if err != nil {
		return nil, err
	}
	if _, err := h.Apps.GetMembership(ctx, t.AppID, a.ID); err != nil {
		return nil, err
	}
	for _, d := range t.Deliveries {
		found = append(found, deliveryFound(t.AppID, d))
	}
	if len(found) == 0 {
		found = []ui.Found{{
			Href:   "/developer/apps/" + t.AppID + "/webhooks",
			Text:   t.Type + ", no delivery",
			Detail: eventID,
			Icon:   "webhook",
		}}
	}
	return found, nil
}

// deliveryFound leads to the page of a delivery.
func deliveryFound(appID string, d webhooks.Delivery) ui.Found {
	return ui.Found{
		Href:   "/developer/apps/" + appID + "/webhooks/" + d.EndpointID + "/deliveries/" + d.ID,
		Text:   d.EventType + ", " + d.Status,
		Detail: d.ID,
		Icon:   "webhook",
	}
}

// findCall finds a ledger row or a call. A call has a row only if it was billed.
func (h *Handler) findCall(ctx context.Context, a accounts.Account, text string,
	one func(href, what, icon string) []ui.Found) ([]ui.Found, error) {
	rest := text[strings.IndexByte(text, '_')+1:]
	entry, err := store.GetEntry(ctx, h.DB, id.Ledger+rest)
	if err == nil {
		call := entry.Type == rules.EntrySpend
		options := choice{
			own:      one("/activity/"+entry.ID, "Activity", "list"),
			operator: one("/operator/ledger/"+entry.ID, "Ledger entry", "list"),
		}
		if call {
			options.own = one("/requests/"+id.Request+rest, "Call", "scroll-text")
			options.developer = one("/developer/apps/"+entry.AppID+"/requests/"+id.Request+rest, "Call", "scroll-text")
		}
		return h.choose(ctx, a, entry.AccountID, entry.AppID, options)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	refusal, err := store.GetRefusal(ctx, h.DB, id.Request+rest)
	if err != nil {
		return nil, err
	}
	c, err := store.GetConnection(ctx, h.DB, refusal.ConnectionID)
	if err != nil {
		return nil, err
	}
	return h.choose(ctx, a, c.AccountID, refusal.AppID, choice{
		own: one("/requests/"+refusal.RequestID, "Refused call", "circle-x"),
		developer: one("/developer/apps/"+refusal.AppID+"/requests/"+refusal.RequestID, "Refused call: "+refusal.Code,
			"circle-x"),
	})
}

// A choice is the page of a thing for its user, for a member of its app, and for operators; nil = there is none.
type choice struct{ own, developer, operator []ui.Found }

// choose returns the page that the account may see. The error wraps sql.ErrNoRows if there is none.
func (h *Handler) choose(ctx context.Context, a accounts.Account, ownerID, appID string, c choice) ([]ui.Found, error) {
	if appID != "" && c.developer != nil {
		if _, err := h.Apps.GetMembership(ctx, appID, a.ID); err == nil {
			return c.developer, nil
		} else if !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
	}
	own := ownerID == a.ID
	if !own {
		owner, err := h.Accounts.Get(ctx, ownerID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		own = err == nil && owner.OwnerID == a.ID // a test account of this developer
	}
	switch {
	case own && c.own != nil:
		return c.own, nil
	case a.Operator && c.operator != nil:
		return c.operator, nil
	}
	return nil, sql.ErrNoRows
}
