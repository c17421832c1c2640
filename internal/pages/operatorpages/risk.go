package operatorpages

import (
	"context"
	"fmt"
	"net/http"

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

// showRisk is GET /operator/risk.
func (h *Handler) showRisk(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport("/operator/risk", "Risk",
		"Connections that spent too fast or were paused, apps at their daily limit, and apps suspended by risk rules.")
	after := r.URL.Query().Get("after")
	list, err := listRiskEvents(r.Context(), h.DB, after, maxListed+1)
	if err != nil {
		return c, fmt.Errorf("operatorpages: risk: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Risk events",
		Heads: []ui.Head{{Name: "When"}, {Name: "Event"}, {Name: "App"}, {Name: "Connection"}},
		First: firstPage(r, "after"),
		Empty: "No risk events.",
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
		t.Rows = append(t.Rows,
			[]ui.Cell{timeCell(e.CreatedUS), riskEventCells[e.Type], who.cell(e.AppID), who.cellOr(e.ConnectionID)})
	}
	if more {
		t.Next = nextPage(r, true, "after", list[len(list)-1].ID)
	}
	if after == "" {
		suspended, err := h.suspendedByRiskTable(r)
		if err != nil {
			return c, err
		}
		c.Blocks = append(c.Blocks, ui.Block{Heading: "Suspended by risk now", Table: suspended})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Events, newest first", Table: t})
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
