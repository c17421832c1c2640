package operatorpages

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/pages/operator"
)

// actionNames are the actions in the audit log.
var actionNames = []string{"approve", "refuse", "suspend", "lift", "reverse", "freeze", "resume", "grant", "incident"}

// showLog is GET /operator/log: the audit log, newest first.
func (h *Handler) showLog(r *http.Request, s staff) (ui.Report, error) {
	q := r.URL.Query()
	c := s.newReport("/operator/log", "Audit log", "Every operator action. Entries are permanent.")
	f := operator.Filter{
		Actor:   strings.TrimSpace(q.Get("actor")),
		Action:  q.Get("action"),
		Subject: strings.TrimSpace(q.Get("subject")),
	}
	choices := []ui.Choice{{ID: "", Name: "All"}}
	for _, a := range actionNames {
		choices = append(choices, ui.Choice{ID: a, Name: a, Chosen: a == f.Action})
	}
	c.Blocks = []ui.Block{{Form: &ui.Ask{Search: true, Action: "/operator/log", Button: "Search", Fields: []ui.Entry{
		{ID: "actor", Label: "Actor (email, id or IP address)", Value: f.Actor},
		{ID: "action", Label: "Action", Choices: choices},
		{ID: "subject", Label: "Subject (id)", Value: f.Subject},
	}}}}
	if strings.Contains(f.Actor, "@") {
		if a, err := h.Accounts.GetByEmail(r.Context(), f.Actor); err == nil {
			f.Actor = a.ID
		} else if notFound(err, "account") == err {
			return c, err
		}
	}
	list, err := h.Service.Log(r.Context(), f, q.Get("after"), maxListed+1)
	if err != nil {
		return c, err
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	ids := []string{}
	for _, e := range list {
		ids = append(ids, e.Actor, e.Subject)
	}
	who, err := loadNames(r.Context(), h.DB, ids...)
	if err != nil {
		return c, err
	}
	t := &ui.Table{
		Label: "Log",
		Heads: []ui.Head{{Name: "When"}, {Name: "Actor"}, {Name: "Action"}, {Name: "Subject"}, {Name: "Reason"}},
		First: firstPage(r, "after"),
		Empty: "No results",
	}
	for _, e := range list {
		at := timeCell(e.CreatedUS)
		at.Href = "/operator/log/" + url.PathEscape(e.ID)
		t.Rows = append(t.Rows,
			[]ui.Cell{at, actorCell(e.Actor, who), {Text: e.Action, Tone: "plain"}, who.cell(e.Subject),
				{Text: e.Reason}})
	}
	if more {
		t.Next = nextPage(r, true, "after", list[len(list)-1].ID)
	}
	c.Blocks = append(c.Blocks, ui.Block{Table: t})
	return c, nil
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
