package operatorpages

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/pages/operator"
)

// actionNames are the actions in the audit log.
var actionNames = []string{"approve", "refuse", "suspend", "lift", "reverse", "freeze", "resume", "grant", "incident",
	"settings", "invite", "sign_out", "reset_two_step", "goodwill", "close", "close_begun", "close_refunds", "settle",
	"revoke", "resend", "reconcile", "reseal", "reseal_begun"}

const logPath = "/operator/log"

// showLog is GET /operator/log: the audit log, newest first.
func (h *Handler) showLog(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(logPath, "Audit log", "Every operator action. Entries are permanent.")
	q := r.URL.Query()
	t := ui.NewList(logPath, q, "action", "actor", "subject")
	t.Label, t.Empty = "Log", "No results"
	actions := []ui.Option{{Text: "Any action"}}
	for _, a := range actionNames {
		actions = append(actions, ui.Option{ID: a, Text: a})
	}
	t.AddFilter("action", "Action", actions)
	t.AddFilter("actor", "Actor", nil, ui.Field{ID: "actor", Label: "Email, id, token’s name or IP address"})
	t.AddFilter("subject", "Subject", nil, ui.Field{ID: "subject", Label: "Id"})
	t.Finish(q.Get("after") == "", "")
	t.CSV = t.Download(logPath + ".csv")
	t.Head = []ui.ListColumn{
		{Text: "When", Class: "first"}, {Text: "Actor", Class: "second"}, {Text: "Action", Class: "first"},
		{Text: "Subject", Class: "second"}, {Text: "Reason"},
	}
	size := ui.ListPageSize(t.Query)
	list, err := h.findEntries(r.Context(), q, q.Get("after"), size+1)
	if err != nil {
		return c, err
	}
	if len(list) > size {
		list = list[:size]
		t.Older = t.Link("after", list[size-1].ID)
	}
	who, err := loadEntryNames(r.Context(), h.DB, list)
	if err != nil {
		return c, err
	}
	for _, e := range list {
		t.Rows = append(t.Rows, ui.ListRow{
			ID:   e.ID,
			Href: logPath + "/" + url.PathEscape(e.ID),
			Cells: []ui.ListCell{
				listCell(timeCell(e.CreatedUS)), listCell(actorCell(e.Actor, who)), {Text: e.Action},
				listCell(who.cell(e.Subject)), {Text: e.Reason},
			},
		})
	}
	c.Blocks = []ui.Block{{List: &t}}
	return c, nil
}

// findEntries returns the entries that pass the filters of a query, newest first. An actor is an id, an address or an
// email.
func (h *Handler) findEntries(ctx context.Context, q url.Values, after string, limit int) ([]operator.Entry, error) {
	f := operator.Filter{
		Actor:   strings.TrimSpace(q.Get("actor")),
		Action:  q.Get("action"),
		Subject: strings.TrimSpace(q.Get("subject")),
	}
	if strings.Contains(f.Actor, "@") {
		if a, err := h.Accounts.GetByEmail(ctx, f.Actor); err == nil {
			f.Actor = a.ID
		} else if notFound(err, "account") == err {
			return nil, err
		}
	}
	return h.Service.Log(ctx, f, after, limit)
}

// loadEntryNames returns the names of the actors and subjects of entries.
func loadEntryNames(ctx context.Context, d *db.DB, list []operator.Entry) (names, error) {
	ids := []string{}
	for _, e := range list {
		ids = append(ids, e.Actor, e.Subject)
	}
	return loadNames(ctx, d, ids...)
}

// maxExportedEntries is the number of entries in one file.
const maxExportedEntries = 10_000

// exportLog is GET /operator/log.csv: the newest entries that pass the filters.
func (h *Handler) exportLog(w http.ResponseWriter, r *http.Request, _ staff) error {
	q, err := web.ReadQuery(r)
	if err != nil {
		return err
	}
	list, err := h.findEntries(r.Context(), q, "", maxExportedEntries)
	if err != nil {
		return err
	}
	who, err := loadEntryNames(r.Context(), h.DB, list)
	if err != nil {
		return err
	}
	ui.SetDownload(w, "purser-audit-log.csv")
	out := csv.NewWriter(w)
	if err := out.Write([]string{"id", "created_at", "actor", "actor_name", "action", "subject", "subject_name",
		"reason"}); err != nil {
		return err
	}
	for _, e := range list {
		record := []string{e.ID, timestamp.Format(e.CreatedUS), e.Actor, who[e.Actor], e.Action, e.Subject,
			who[e.Subject], e.Reason}
		for i := range record {
			record[i] = ui.EscapeFormula(record[i])
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// actorCell shows an account, or the IP address that sent the operator's token.
func actorCell(actor string, who names) ui.Cell {
	if who[actor] != "" {
		return who.cell(actor)
	}
	return ui.Cell{Text: actor, Sub: "with the operator’s token"}
}

// showLogEntry is GET /operator/log/{id}: one entry, with what it changed.
func (h *Handler) showLogEntry(r *http.Request, s staff) (ui.Report, error) {
	e, err := h.Service.Entry(r.Context(), r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "entry")
	}
	who, err := loadNames(r.Context(), h.DB, e.Actor, e.Subject)
	if err != nil {
		return ui.Report{}, err
	}
	c := s.newReport("/operator/log", "Log: "+e.Action, "")
	c.Back = &ui.Link{Href: "/operator/log", Text: "Audit log"}
	reason := e.Reason
	if reason == "" {
		reason = "None required"
	}
	changes, err := diffTable(e.Before, e.After)
	if err != nil {
		return c, fmt.Errorf("operatorpages: log entry %s: %w", e.ID, err)
	}
	c.Blocks = []ui.Block{
		{Heading: "Entry", Facts: []ui.Detail{
			{Name: "Id", Cell: ui.Cell{Text: e.ID, Code: true}},
			{Name: "When", Cell: timeCell(e.CreatedUS)},
			{Name: "Actor", Cell: actorCell(e.Actor, who)},
			{Name: "Subject", Cell: who.cell(e.Subject)},
			{Name: "Reason", Cell: ui.Cell{Text: reason}},
		}},
		{Heading: "Changes", Table: changes},
		{Heading: "Before", Source: indentJSON(string(e.Before))},
		{Heading: "After", Source: indentJSON(string(e.After))},
	}
	return c, nil
}

// diffTable lists the members that differ between two JSON objects.
func diffTable(before, after json.RawMessage) (*ui.Table, error) {
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(before, &a); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &b); err != nil {
		return nil, err
	}
	names := maps.Clone(a)
	maps.Copy(names, b)
	t := &ui.Table{
		Label: "Changes",
		Heads: []ui.Head{{Name: "Member"}, {Name: "Before"}, {Name: "After"}},
		Empty: "No changes.",
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if string(a[name]) != string(b[name]) {
			t.Rows = append(t.Rows, []ui.Cell{
				{Text: name, Code: true},
				{Text: formatMember(a[name])},
				{Text: formatMember(b[name])},
			})
		}
	}
	return t, nil
}

// formatMember returns a JSON value as text: strings without quotes, "–" for a missing member.
func formatMember(v json.RawMessage) string {
	var text string
	if v == nil {
		return "–"
	} else if json.Unmarshal(v, &text) == nil {
		return text
	}
	return string(v)
}
