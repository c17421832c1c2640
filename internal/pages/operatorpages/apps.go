package operatorpages

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/pages/operator"
)

// apps is GET /operator/apps: newest first, those that a search finds, or those
// that are switched off.
func (h *Handler) apps(r *http.Request, s staff) (ui.Report, error) {
	q := r.URL.Query()
	text, state, after := strings.TrimSpace(q.Get("q")), q.Get("state"), q.Get("after")
	c := s.console("/operator/apps", "Apps", "")
	var list []apps.App
	var err error
	if state == "suspended" {
		list, err = h.Service.Apps.ListSuspended(r.Context(), after, maxListed+1)
	} else {
		list, err = h.Service.Apps.Search(r.Context(), text, after, maxListed+1)
	}
	if err != nil {
		return c, err
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Apps",
		Heads: []ui.Head{{Name: "App"}, {Name: "Tier"}, {Name: "State"}, {Name: "Created"}},
		First: first(r, "after"),
		Empty: "No results",
	}
	for _, a := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{{
				Text: a.Name,
				Href: "/operator/apps/" + url.PathEscape(a.ID),
				Sub:  a.ID,
			}, {Text: a.Tier}, appState(a), when(a.CreatedUS)})
	}
	if more {
		t.Next = next(r, true, "after", list[len(list)-1].ID)
	}
	find := &ui.Ask{Search: true, Action: "/operator/apps", Button: "Search", Fields: []ui.Entry{
		{ID: "q", Label: "Name, id or client id", Value: text},
		{
			ID:    "state",
			Label: "State",
			Choices: []ui.Choice{
				{ID: "", Name: "All"},
				{ID: "suspended", Name: "Suspended", Chosen: state == "suspended"},
			},
		},
	}}
	c.Blocks = []ui.Block{{Form: find}, {Table: t}}
	return c, nil
}

func appState(a apps.App) ui.Cell {
	switch {
	case a.Suspension != nil && a.Suspension.By == apps.ByRisk:
		return ui.Cell{Text: "Suspended by risk", Tone: "bad"}
	case a.Suspension != nil:
		return ui.Cell{Text: "Suspended by operator", Tone: "bad"}
	case a.SwitchedOff:
		return ui.Cell{Text: "Disabled by its developer", Tone: "warn"}
	}
	return ui.Cell{Text: "Active", Tone: "good"}
}

// owner is a cell with the developer of an app.
func (h *Handler) owner(r *http.Request, a apps.App) (ui.Cell, error) {
	owner, err := h.Accounts.Get(r.Context(), a.OwnerID)
	if err != nil {
		return ui.Cell{}, err
	}
	return ui.Cell{Text: owner.Email, Href: "/operator/accounts/" + url.PathEscape(owner.ID)}, nil
}

// appFacts is what an app is.
func appFacts(a apps.App) ui.Block {
	models := strings.Join(a.AllowedModels, ", ")
	if models == "" {
		models = "Every offered model"
	}
	uris := strings.Join(a.RedirectURIs, ", ")
	if uris == "" {
		uris = "None"
	}
	return ui.Block{Heading: "App",
		Facts: []ui.Detail{
			{Name: "Id", Cell: ui.Cell{Text: a.ID, Code: true}},
			{Name: "Client id", Cell: ui.Cell{Text: a.ClientID, Code: true}},
			{Name: "Tier", Cell: ui.Cell{Text: a.Tier}},
			{
				Name: "Provider mode",
				Cell: ui.Cell{Text: map[string]string{apps.Mock: "Mock", apps.Live: "Live"}[a.ProviderMode]},
			},
			{Name: "Margin", Cell: ui.Cell{Text: a.DevMargin.String()}}, {Name: "Models", Cell: ui.Cell{Text: models}},
			{Name: "Redirect URLs", Cell: ui.Cell{Text: uris}}, {Name: "Created", Cell: when(a.CreatedUS)},
		}}
}

// app is GET /operator/apps/{id}.
func (h *Handler) app(r *http.Request, s staff) (ui.Report, error) {
	a, err := h.Service.Apps.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return ui.Report{}, missing(err, "app")
	}
	c := s.console("/operator/apps", a.Name, "")
	state := appState(a)
	c.Back, c.Badge = &ui.Link{Href: "/operator/apps", Text: "Apps"}, &ui.Badge{Text: state.Text, Tone: state.Tone}
	owner, err := h.owner(r, a)
	if err != nil {
		return c, err
	}
	month, err := earned(r.Context(), h.DB, a.ID, h.Service.Now().UTC().AddDate(0, 0, -29).Format(time.DateOnly))
	if err != nil {
		return c, fmt.Errorf("admin: earned: %w", err)
	}
	c.Tiles = []ui.Tile{
		{
			Label: "Charged, 30 days",
			Value: ui.Money(month.charge).Text,
			Exact: month.charge.Display(),
			Hint:  ui.Count(month.calls) + " calls with real money",
		},
		{Label: "Provider cost, 30 days", Value: ui.Money(month.cost).Text, Exact: month.cost.Display()},
		{Label: "Margin, 30 days", Value: ui.Money(month.margin).Text, Exact: month.margin.Display()},
	}
	facts := appFacts(a)
	facts.Facts = append(facts.Facts, ui.Detail{Name: "Developer", Cell: owner})
	facts.Facts = append(facts.Facts, tierFacts(a)...)
	if n := a.Suspension; n != nil {
		facts.Facts = append(facts.Facts, ui.Detail{Name: "Suspended", Cell: when(n.SinceUS)},
			ui.Detail{Name: "Why", Cell: ui.Cell{Text: n.Reason}})
	}
	c.Blocks = []ui.Block{facts}
	if s.acts() {
		c.Blocks = append(c.Blocks, switchBlock(a))
	}
	t, err := h.connectionsOf(r, a.ID)
	if err != nil {
		return c, err
	}
	c.Blocks = append(c.Blocks, ui.Block{
		Heading: "Connections",
		Table:   t,
		More:    &ui.Link{Href: "/operator/log?subject=" + url.QueryEscape(a.ID), Text: "Audit log"},
	})
	return c, nil
}

// tierFacts are the limits of an app's tier.
func tierFacts(a apps.App) []ui.Detail {
	t := tiers.PolicyOf(a.Tier)
	if t.AppDayMC == 0 {
		return nil
	}
	return []ui.Detail{
		{Name: "App, per 24 hours", Cell: ui.Cell{Text: "at most " + ui.Dollars(t.AppDayMC)}},
		{Name: "Connection, per 24 hours", Cell: ui.Cell{Text: "at most " + ui.Dollars(t.ConnectionDayMC)}},
		{Name: "Spend cap", Cell: ui.Cell{Text: "at most " + ui.Dollars(t.MaxCapMC)}},
	}
}

func switchBlock(a apps.App) ui.Block {
	at := "/operator/apps/" + url.PathEscape(a.ID)
	if a.Suspension != nil {
		return ui.Block{
			Heading: "Lift the suspension",
			Text:    "Tokens and connections work again. Risk counts before this moment are reset.",
			Form:    &ui.Ask{Action: at, Decision: "lift", Fields: reason("For the audit log."), Button: "Lift"},
		}
	}
	return ui.Block{
		Heading: "Suspend this app",
		Text:    "Calls, new tokens and new connections are refused immediately, until an operator lifts the suspension. Users keep their money.",
		Form: &ui.Ask{
			Action:   at,
			Decision: "suspend",
			Fields:   reason("Shown to the developer as written."),
			Button:   "Suspend",
			Danger:   true,
		},
	}
}

// connectionsOf lists an app's connections, newest first.
func (h *Handler) connectionsOf(r *http.Request, appID string) (*ui.Table, error) {
	list, err := store.ConnectionsOfApp(r.Context(), h.DB, appID, r.URL.Query().Get("after"), maxListed+1)
	if err != nil {
		return nil, fmt.Errorf("admin: connections: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Connections",
		Heads: []ui.Head{
			{Name: "Connection"},
			{Name: "Account"},
			{Name: "Status"},
			{Name: "Cap", End: true},
			{Name: "Used", End: true},
			{Name: "Held", End: true},
		},
		First: first(r, "after"),
		Empty: "No connections yet.",
	}
	for _, x := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{link("/operator/connections/", x.ID), link("/operator/accounts/", x.AccountID), statusCell(x),
				ui.MoneyCell(x.AllocationMC), ui.MoneyCell(x.ConsumedMC), ui.MoneyCell(x.HeldMC)})
	}
	if more {
		t.Next = next(r, true, "after", list[len(list)-1].ID)
	}
	return t, nil
}

// switchApp is POST /operator/apps/{id}.
func (h *Handler) switchApp(r *http.Request, s staff, form url.Values) (string, error) {
	why, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	appID, decision := r.PathValue("id"), form.Get("decision")
	switch decision {
	case "suspend":
		_, err = h.Service.Suspend(r.Context(), s.ID, appID, why)
	case "lift":
		_, err = h.Service.Lift(r.Context(), s.ID, appID, why)
	default:
		err = apierr.InvalidRequest.Errorf("decision: must be suspend or lift")
	}
	return "/operator/apps/" + url.PathEscape(appID) + "?done=" + decision, err
}
