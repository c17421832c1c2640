package operatorpages

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/pages/operator"
)

// actions are what operators can do, in the words of the log.
var actions = []string{"approve", "refuse", "suspend", "lift", "reverse", "freeze", "resume", "grant"}

// log is GET /operator/log: what operators did, newest first.
func (h *Handler) log(r *http.Request, s staff) (ui.Report, error) {
	q := r.URL.Query()
	c := s.console("/operator/log", "Audit log", "Every operator action. Entries are permanent.")
	f := operator.Filter{
		Actor:   strings.TrimSpace(q.Get("actor")),
		Action:  q.Get("action"),
		Subject: strings.TrimSpace(q.Get("subject")),
	}
	choices := []ui.Choice{{ID: "", Name: "All"}}
	for _, a := range actions {
		choices = append(choices, ui.Choice{ID: a, Name: a, Chosen: a == f.Action})
	}
	c.Blocks = []ui.Block{{Form: &ui.Ask{Search: true, Action: "/operator/log", Button: "Search", Fields: []ui.Entry{
		{ID: "actor", Label: "Actor (email, id or IP address)", Value: f.Actor}, {
			ID:      "action",
			Label:   "Action",
			Choices: choices,
		}, {
			ID:    "subject",
			Label: "Subject (id)",
			Value: f.Subject,
		},
	}}}}
	if strings.Contains(f.Actor, "@") {
		if a, err := h.Accounts.GetByEmail(r.Context(), f.Actor); err == nil {
			f.Actor = a.ID
		} else if missing(err, "account") == err {
			return c, err
		}
	}
	list, err := h.Service.Log(r.Context(), f, q.Get("after"), maxListed+1)
	if err != nil {
		return c, err
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	actors := map[string]bool{}
	for _, e := range list {
		actors[e.Actor] = true
	}
	who, err := h.emails(r.Context(), actors)
	if err != nil {
		return c, err
	}
	t := &ui.Table{
		Label: "Log",
		Heads: []ui.Head{{Name: "When"}, {Name: "Actor"}, {Name: "Action"}, {Name: "Subject"}, {Name: "Reason"}},
		First: first(r, "after"),
		Empty: "No results",
	}
	for _, e := range list {
		at := when(e.CreatedUS)
		at.Href = "/operator/log/" + url.PathEscape(e.ID)
		t.Rows = append(t.Rows,
			[]ui.Cell{at, actor(e.Actor, who), {Text: e.Action, Tone: "plain"}, subject(e.Subject), {Text: e.Reason}})
	}
	if more {
		t.Next = next(r, true, "after", list[len(list)-1].ID)
	}
	c.Blocks = append(c.Blocks, ui.Block{Table: t})
	return c, nil
}

// actor is who did something: a person, or an address that sent the token.
func actor(by string, who map[string]string) ui.Cell {
	if email := who[by]; email != "" {
		return ui.Cell{Text: email, Href: "/operator/accounts/" + url.PathEscape(by)}
	}
	return ui.Cell{Text: by, Sub: "with the operator’s token"}
}

// subject links to what an action was about.
func subject(of string) ui.Cell {
	for prefix, path := range map[string]string{
		id.App:        "/operator/apps/",
		id.Connection: "/operator/connections/",
		id.Ledger:     "/operator/ledger/",
		id.Account:    "/operator/accounts/",
		"glr_":        "/operator/reviews/",
	} {
		if strings.HasPrefix(of, prefix) {
			return link(path, of)
		}
	}
	return ui.Cell{Text: of, Code: true}
}

// logged is GET /operator/log/{id}: one entry, with what it changed.
func (h *Handler) logged(r *http.Request, s staff) (ui.Report, error) {
	e, err := h.Service.Entry(r.Context(), r.PathValue("id"))
	if err != nil {
		return ui.Report{}, missing(err, "entry")
	}
	who, err := h.emails(r.Context(), map[string]bool{e.Actor: true})
	if err != nil {
		return ui.Report{}, err
	}
	c := s.console("/operator/log", "Log: "+e.Action, "")
	c.Back = &ui.Link{Href: "/operator/log", Text: "Audit log"}
	why := e.Reason
	if why == "" {
		why = "None required"
	}
	changes, err := diff(e.Before, e.After)
	if err != nil {
		return c, fmt.Errorf("admin: log entry %s: %w", e.ID, err)
	}
	c.Blocks = []ui.Block{
		{Heading: "Entry", Facts: []ui.Detail{
			{Name: "Id", Cell: ui.Cell{Text: e.ID, Code: true}},
			{Name: "When", Cell: when(e.CreatedUS)},
			{Name: "Actor", Cell: actor(e.Actor, who)},
			{Name: "Subject", Cell: subject(e.Subject)},
			{Name: "Reason", Cell: ui.Cell{Text: why}},
		}},
		{Heading: "Changes", Table: changes}, {Heading: "Before", Source: indented(string(e.Before))},
		{Heading: "After", Source: indented(string(e.After))},
	}
	return c, nil
}

// diff lists the members that differ between two JSON objects.
func diff(before, after json.RawMessage) (*ui.Table, error) {
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
			t.Rows = append(t.Rows, []ui.Cell{{Text: name, Code: true}, {Text: shown(a[name])}, {Text: shown(b[name])}})
		}
	}
	return t, nil
}

// shown writes a value for people: texts without their quotes.
func shown(v json.RawMessage) string {
	var text string
	if v == nil {
		return "–"
	} else if json.Unmarshal(v, &text) == nil {
		return text
	}
	return string(v)
}
