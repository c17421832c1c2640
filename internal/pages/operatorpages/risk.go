package operatorpages

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/mail"
)

// riskEventCells describe the risk events, by type.
var riskEventCells = map[string]ui.Cell{
	"connection.frozen":       {Text: "Connection paused", Tone: "bad"},
	"connection.risk_warning": {Text: "Spending fast", Tone: "warn"},
	"app.spend_limit_reached": {Text: "App’s daily limit reached", Tone: "warn"},
}

const riskPath = "/operator/risk"

// showRisk is GET /operator/risk: what the risk rules noticed, of all apps or of one, newest first.
func (h *Handler) showRisk(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(riskPath, "Risk",
		"Connections that spent too fast or were paused, apps at their daily limit, and apps suspended by risk rules.")
	q := r.URL.Query()
	t := ui.NewList(riskPath, q, "type", "of")
	t.Label, t.Empty = "Risk events", "No risk events."
	types := []ui.Option{{Text: "Any event"}}
	for _, kind := range slices.Sorted(maps.Keys(riskEventCells)) {
		types = append(types, ui.Option{ID: kind, Text: riskEventCells[kind].Text})
	}
	t.AddFilter("type", "Event", types)
	t.AddFilter("of", "App or connection", nil, ui.Field{ID: "of", Label: "Id of an app or a connection"})
	t.Finish(q.Get("after") == "", "")
	t.Head = []ui.ListColumn{
		{Text: "When", Class: "second"}, {Text: "Event", Class: "first"}, {Text: "App", Class: "first end"},
		{Text: "Connection", Class: "second end"},
	}
	if t.Filtered() {
		t.Empty = "No risk events fit these filters."
	}
	size := ui.ListPageSize(t.Query)
	list, err := listRiskEvents(r.Context(), h.DB, riskFilter{q.Get("type"), strings.TrimSpace(q.Get("of"))},
		q.Get("after"), size+1)
	if err != nil {
		return c, fmt.Errorf("operatorpages: risk: %w", err)
	}
	if len(list) > size {
		list = list[:size]
		t.Older = t.Link("after", list[size-1].ID)
	}
	ids := []string{}
	for _, e := range list {
		ids = append(ids, e.AppID, e.ConnectionID)
	}
	who, err := loadNames(r.Context(), h.DB, ids...)
	if err != nil {
		return c, err
	}
	for _, e := range list {
		kind := riskEventCells[e.Type]
		row := ui.ListRow{
			ID:   e.ID,
			Href: who.cell(e.AppID).Href,
			Cells: []ui.ListCell{
				listCell(timeCell(e.CreatedUS)), {Text: kind.Text, Dot: kind.Tone}, listCell(who.cell(e.AppID)),
				listCell(who.cellOr(e.ConnectionID)),
			},
		}
		if e.ConnectionID != "" {
			row.Href = who.cell(e.ConnectionID).Href
		}
		t.Rows = append(t.Rows, row)
	}
	if q.Get("after") == "" && !t.Filtered() {
		suspended, err := h.suspendedByRiskTable(r)
		if err != nil {
			return c, err
		}
		c.Blocks = append(c.Blocks, ui.Block{Heading: "Suspended by risk now", Table: suspended})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Events, newest first", List: &t})
	return c, nil
}

func (h *Handler) suspendedByRiskTable(r *http.Request) (*ui.Table, error) {
	list, err := h.Service.Apps.ListSuspended(r.Context(), "", 1000)
	if err != nil {
		return nil, err
	}
	t := &ui.Table{
		Label: "Suspended apps",
		Heads: []ui.Head{{Name: "Since"}, {Name: "App"}, {Name: "Reason"}},
		Empty: "None.",
	}
	for _, a := range list {
		if n := a.Suspension; n != nil && n.By == apps.ByRisk {
			t.Rows = append(t.Rows,
				[]ui.Cell{timeCell(n.SinceUS), names{a.ID: a.Name}.cell(a.ID),
					{Text: n.Reason}})
		}
	}
	return t, nil
}

// mailTable lists the emails to an account. It shows no texts: their links would let an operator act as the user.
func (h *Handler) mailTable(ctx context.Context, accountID string) (t *ui.Table, err error) {
	t = &ui.Table{Label: "Emails", Heads: []ui.Head{{Name: "When"}, {Name: "Subject"}, {Name: "State"}}, Empty: "None."}
	list, err := listMails(ctx, h.DB, accountID, maxListed)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: mails: %w", err)
	}
	for _, m := range list {
		state := map[string]ui.Cell{
			mail.Pending: {Text: "Waiting", Tone: "warn"},
			mail.Sent:    {Text: "Sent", Tone: "good"},
			mail.Failed:  {Text: "Failed", Tone: "bad"},
		}[m.Status]
		state.Sub = m.LastError
		t.Rows = append(t.Rows, []ui.Cell{timeCell(m.CreatedUS), {Text: m.Subject}, state})
	}
	return t, nil
}
