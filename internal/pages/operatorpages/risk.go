package operatorpages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/mail"
)

// risks returns events that tell of risk, newest first, those older than the one
// named by after if it is not empty. Samples that developers sent are none.
func risks(ctx context.Context, q db.Queryer, after string, limit int) ([]rules.Event, error) {
	if after == "" {
		after = "~" // behind every id
	}
	return db.QueryAll(ctx, q, db.ScanFields(func(e *rules.Event) []any {
		return []any{&e.ID, &e.Type, &e.AppID, &e.ConnectionID, &e.CreatedUS}
	}), `SELECT id, type, app_id, COALESCE(connection_id, ''), created_us FROM events
		WHERE (type = 'connection.frozen' OR type = 'connection.risk_warning' OR type = 'app.spend_limit_reached') AND test = 0 AND id < $1 ORDER BY id DESC LIMIT $2`, after, limit)
}

// riskWords say what the events mean.
var riskWords = map[string]ui.Cell{
	"connection.frozen":       {Text: "Connection paused", Tone: "bad"},
	"connection.risk_warning": {Text: "Spending fast", Tone: "warn"},
	"app.spend_limit_reached": {Text: "App’s daily limit reached", Tone: "warn"},
}

// risk is GET /operator/risk.
func (h *Handler) risk(r *http.Request, s staff) (ui.Report, error) {
	c := s.console("/operator/risk", "Risk",
		"Connections that spent too fast or were paused, apps at their daily limit, and apps suspended by risk rules.")
	after := r.URL.Query().Get("after")
	list, err := risks(r.Context(), h.DB, after, maxListed+1)
	if err != nil {
		return c, fmt.Errorf("admin: risk: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Risk events",
		Heads: []ui.Head{{Name: "When"}, {Name: "Event"}, {Name: "App"}, {Name: "Connection"}},
		First: first(r, "after"),
		Empty: "No risk events.",
	}
	for _, e := range list {
		app, err := h.Service.Apps.Get(r.Context(), e.AppID)
		if err != nil {
			return c, err
		}
		connection := ui.Cell{Text: "–"}
		if e.ConnectionID != "" {
			connection = link("/operator/connections/", e.ConnectionID)
		}
		t.Rows = append(t.Rows,
			[]ui.Cell{when(e.CreatedUS), riskWords[e.Type],
				{Text: app.Name, Href: "/operator/apps/" + url.PathEscape(app.ID)}, connection})
	}
	if more {
		t.Next = next(r, true, "after", list[len(list)-1].ID)
	}
	if after == "" {
		suspended, err := h.suspendedByRisk(r)
		if err != nil {
			return c, err
		}
		c.Blocks = append(c.Blocks, ui.Block{Heading: "Suspended by risk now", Table: suspended})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Events, newest first", Table: t})
	return c, nil
}

func (h *Handler) suspendedByRisk(r *http.Request) (*ui.Table, error) {
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
				[]ui.Cell{when(n.SinceUS), {Text: a.Name, Href: "/operator/apps/" + url.PathEscape(a.ID)},
					{Text: n.Reason}})
		}
	}
	return t, nil
}

// mails lists what was sent to an account. Their text is not for operators: it
// holds links with which one acts for the person.
func (h *Handler) mails(ctx context.Context, accountID string) (t *ui.Table, err error) {
	t = &ui.Table{Label: "Emails", Heads: []ui.Head{{Name: "When"}, {Name: "Subject"}, {Name: "State"}}, Empty: "None."}
	list, err := db.QueryAll(ctx, h.DB, db.ScanFields(func(m *mail.Mail) []any {
		return []any{&m.Subject, &m.Status, &m.CreatedUS, &m.LastError}
	}), `SELECT subject, status, created_us, last_error FROM mails WHERE account_id = $1 ORDER BY id DESC LIMIT $2`,
		accountID, maxListed)
	if err != nil {
		return nil, fmt.Errorf("admin: mails: %w", err)
	}
	for _, m := range list {
		state := map[string]ui.Cell{
			mail.Pending: {Text: "Waiting", Tone: "warn"},
			mail.Sent:    {Text: "Sent", Tone: "good"},
			mail.Failed:  {Text: "Failed", Tone: "bad"},
		}[m.Status]
		state.Sub = m.LastError
		t.Rows = append(t.Rows, []ui.Cell{when(m.CreatedUS), {Text: m.Subject}, state})
	}
	return t, nil
}
