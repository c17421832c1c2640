package operatorpages

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/pages/operator"
)

const appsPath = "/operator/apps"

// showApps is GET /operator/apps: all or the results of a search, newest first; or the suspended apps.
func (h *Handler) showApps(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(appsPath, "Apps", "")
	q := r.URL.Query()
	t := ui.NewList(appsPath, q, "q", "state")
	t.Label, t.Empty = "Apps", "No results"
	t.Search = &ui.ListSearch{
		Name:  "q",
		Label: "Name, id or client id",
		Hint:  "Name, id or client id",
		Value: strings.TrimSpace(q.Get("q")),
	}
	t.AddFilter("state", "State", []ui.Option{{Text: "All"}, {ID: "suspended", Text: "Suspended"}})
	t.Finish(q.Get("after") == "", "")
	t.Head = []ui.ListColumn{
		{Text: "App", Class: "first"}, {Text: "Tier", Class: "second"}, {Text: "State", Class: "first"},
		{Text: "Created", Class: "second"},
	}
	size := ui.ListPageSize(t.Query)
	var list []apps.App
	var err error
	if q.Get("state") == "suspended" {
		list, err = h.Service.Apps.ListSuspended(r.Context(), q.Get("after"), size+1)
	} else {
		list, err = h.Service.Apps.Search(r.Context(), t.Search.Value, q.Get("after"), size+1)
	}
	if err != nil {
		return c, err
	}
	if len(list) > size {
		list = list[:size]
		t.Older = t.Link("after", list[size-1].ID)
	}
	for _, a := range list {
		state := appStateCell(a)
		t.Rows = append(t.Rows, ui.ListRow{
			ID:   a.ID,
			Href: appsPath + "/" + url.PathEscape(a.ID),
			Cells: []ui.ListCell{
				{Text: a.Name, Sub: a.ID, Monogram: a.ID}, {Text: a.Tier}, {Text: state.Text, Dot: state.Tone},
				listCell(timeCell(a.CreatedUS)),
			},
		})
	}
	c.Blocks = []ui.Block{{List: &t}}
	return c, nil
}

func appStateCell(a apps.App) ui.Cell {
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

// ownerCell links to the developer of an app.
func (h *Handler) ownerCell(r *http.Request, a apps.App) (ui.Cell, error) {
	owner, err := h.Accounts.Get(r.Context(), a.OwnerID)
	if err != nil {
		return ui.Cell{}, err
	}
	return names{owner.ID: owner.Email}.cell(owner.ID), nil
}

// appBlock lists the settings of an app.
func appBlock(a apps.App) ui.Block {
	models := strings.Join(a.AllowedModels, ", ")
	if models == "" {
		models = "Every offered model"
	}
	uris := strings.Join(a.RedirectURIs, ", ")
	if uris == "" {
		uris = "None"
	}
	return ui.Block{
		Heading: "App",
		Facts: []ui.Detail{
			{Name: "Id", Cell: ui.Cell{Text: a.ID, Code: true}},
			{Name: "Client id", Cell: ui.Cell{Text: a.ClientID, Code: true}},
			{Name: "Tier", Cell: ui.Cell{Text: a.Tier}},
			{
				Name: "Provider mode",
				Cell: ui.Cell{Text: map[string]string{apps.Mock: "Mock", apps.Live: "Live"}[a.ProviderMode]},
			},
			{Name: "Margin", Cell: ui.Cell{Text: a.DevMargin.String()}},
			{Name: "Models", Cell: ui.Cell{Text: models}},
			{Name: "Redirect URLs", Cell: ui.Cell{Text: uris}},
			{Name: "Created", Cell: timeCell(a.CreatedUS)},
		},
	}
}

// showApp is GET /operator/apps/{id}.
func (h *Handler) showApp(r *http.Request, s staff) (ui.Report, error) {
	a, err := h.Service.Apps.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "app")
	}
	c := s.newReport("/operator/apps", a.Name, "")
	state := appStateCell(a)
	c.Back, c.Badge = &ui.Link{Href: "/operator/apps", Text: "Apps"}, &ui.Badge{Text: state.Text, Tone: state.Tone}
	owner, err := h.ownerCell(r, a)
	if err != nil {
		return c, err
	}
	month, err := sumCountedDays(r.Context(), h.DB, a.ID,
		h.Service.Now().UTC().AddDate(0, 0, -29).Format(time.DateOnly))
	if err != nil {
		return c, fmt.Errorf("operatorpages: sums: %w", err)
	}
	c.Tiles = []ui.Tile{
		moneyTile("Charged, 30 days", month.chargeMC, ui.Count(month.calls)+" calls with real money"),
		moneyTile("Provider cost, 30 days", month.costMC, ""),
		moneyTile("Margin, 30 days", month.marginMC, ""),
	}
	facts := appBlock(a)
	facts.Facts = append(facts.Facts, ui.Detail{Name: "Developer", Cell: owner})
	facts.Facts = append(facts.Facts, tierFacts(a)...)
	if n := a.Suspension; n != nil {
		facts.Facts = append(facts.Facts, ui.Detail{Name: "Suspended", Cell: timeCell(n.SinceUS)},
			ui.Detail{Name: "Why", Cell: ui.Cell{Text: n.Reason}})
	}
	c.Blocks = []ui.Block{facts}
	if s.canAct() {
		c.Blocks = append(c.Blocks, suspensionBlock(a))
	}
	t, err := h.appConnectionTable(r, a.ID)
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

// tierFacts lists the limits of an app's tier.
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

// fieldSuspended says when the suspension began that the page of the form showed.
const fieldSuspended = "suspended_us"

func seenSuspension(sinceUS int64) *ui.Seen {
	return &ui.Seen{Name: fieldSuspended, Value: strconv.FormatInt(sinceUS, 10)}
}

// readSeenSuspension returns 0 for a form that does not say.
func readSeenSuspension(form url.Values) (int64, error) {
	if !form.Has(fieldSuspended) {
		return 0, nil
	}
	sinceUS, err := strconv.ParseInt(form.Get(fieldSuspended), 10, 64)
	if err != nil {
		return 0, apierr.InvalidRequest.Errorf("%s: must be a number", fieldSuspended)
	}
	return sinceUS, nil
}

// suspensionBlock has the button that suspends an app or lifts its suspension.
func suspensionBlock(a apps.App) ui.Block {
	at := "/operator/apps/" + url.PathEscape(a.ID)
	if a.Suspension != nil {
		return ui.Block{
			Heading: "Lift the suspension",
			Text:    "Tokens and connections work again. Risk counts before this moment are reset.",
			Form: &ui.Ask{
				Action:   at,
				Decision: "lift",
				Seen:     seenSuspension(a.Suspension.SinceUS),
				Fields:   reasonField("For the audit log."),
				Button:   "Lift",
			},
		}
	}
	return ui.Block{
		Heading: "Suspend this app",
		Text: "Calls, new tokens and new connections are refused immediately, until an operator lifts the " +
			"suspension. Users keep their money.",
		Form: &ui.Ask{
			Action:   at,
			Decision: "suspend",
			Fields:   reasonField("Shown to the developer as written."),
			Button:   "Suspend",
			Danger:   true,
		},
	}
}

// appConnectionTable lists the connections of an app, newest first.
func (h *Handler) appConnectionTable(r *http.Request, appID string) (*ui.Table, error) {
	list, err := store.ConnectionsOfApp(r.Context(), h.DB, appID, r.URL.Query().Get("after"), maxListed+1)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: connections: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Connections",
		Heads: []ui.Head{
			{Name: "Connection of"},
			{Name: "Status"},
			{Name: "Created"},
			{Name: "Cap", End: true},
			{Name: "Used", End: true},
			{Name: "Held", End: true},
		},
		First: firstPage(r, "after"),
		Empty: "No connections yet.",
	}
	ids := []string{}
	for _, x := range list {
		ids = append(ids, x.AccountID)
	}
	who, err := loadNames(r.Context(), h.DB, ids...)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{connectionCell(x.ID, who[x.AccountID], x.AccountID), statusCell(x), timeCell(x.CreatedUS),
				ui.MoneyCell(x.AllocationMC), ui.TotalCell(x.ConsumedMC), ui.TotalCell(x.HeldMC)})
	}
	if more {
		t.Next = nextPage(r, true, "after", list[len(list)-1].ID)
	}
	return t, nil
}

// changeSuspension is POST /operator/apps/{id}.
func (h *Handler) changeSuspension(r *http.Request, s staff, form url.Values) (string, error) {
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	shownUS, err := readSeenSuspension(form)
	if err != nil {
		return "", err
	}
	appID, decision := r.PathValue("id"), form.Get("decision")
	switch decision {
	case "suspend":
		_, err = h.Service.Suspend(r.Context(), s.ID, appID, reason)
	case "lift":
		_, err = h.Service.Lift(r.Context(), s.ID, appID, reason, shownUS)
	default:
		err = apierr.InvalidRequest.Errorf("decision: must be suspend or lift")
	}
	return "/operator/apps/" + url.PathEscape(appID) + "?done=" + decision, err
}
