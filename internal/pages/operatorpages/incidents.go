package operatorpages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/pages/status"
)

// incidentTime is the form of an incident's start in the form, in UTC.
const incidentTime = "2006-01-02 15:04"

// showIncidents is GET /operator/incidents: what visitors read on the status page, and the form for a new incident.
func (h *Handler) showIncidents(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport("/operator/incidents", "Incidents", "What visitors read on the public status page.")
	list, err := status.ListIncidents(r.Context(), h.DB, r.URL.Query().Get("after"), maxListed+1)
	if err != nil {
		return c, fmt.Errorf("operatorpages: incidents: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Incidents",
		Heads: []ui.Head{{Name: "Incident"}, {Name: "Part"}, {Name: "State"}, {Name: "Since"}, {Name: "Resolved"}},
		First: firstPage(r, "after"),
		Empty: "No incidents.",
	}
	for _, i := range list {
		t.Rows = append(t.Rows, []ui.Cell{
			{Text: i.Title, Href: "/operator/incidents/" + url.PathEscape(i.ID)},
			{Text: status.Title(i.Service)},
			incidentCell(i),
			timeCell(i.FromUS),
			timeCell(i.ResolvedUS),
		})
	}
	if more {
		t.Next = nextPage(r, true, "after", list[len(list)-1].ID)
	}
	if s.canAct() {
		now := status.Incident{Impact: status.Degraded, FromUS: h.Service.Now().UnixMicro()}
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "New incident",
			Text:    "Visitors see it within half a minute. It says nothing about users or money.",
			Form: &ui.Ask{
				Action:   "/operator/incidents",
				Decision: "post",
				Fields:   h.incidentFields(now),
				Button:   "Publish",
			},
		})
	}
	c.Blocks = append(c.Blocks, ui.Block{Table: t, More: &ui.Link{Href: "/status", Text: "Status page"}})
	return c, nil
}

func incidentCell(i status.Incident) ui.Cell {
	switch {
	case i.ResolvedUS > 0:
		return ui.Cell{Text: "Resolved", Tone: "good"}
	case i.Impact == status.Down:
		return ui.Cell{Text: "Down", Tone: "bad"}
	case i.Impact == status.Degraded:
		return ui.Cell{Text: "Degraded", Tone: "warn"}
	}
	return ui.Cell{Text: "Notice", Tone: "plain"}
}

// incidentFields are the fields of the form, filled with an incident.
func (h *Handler) incidentFields(i status.Incident) []ui.Entry {
	parts := []ui.Choice{{ID: "", Name: status.Title(""), Chosen: i.Service == ""}}
	for _, name := range h.Status.Names() {
		parts = append(parts, ui.Choice{ID: name, Name: status.Title(name), Chosen: i.Service == name})
	}
	impacts := []ui.Choice{
		{ID: "none", Name: "Notice, no effect", Chosen: i.Impact == "none"},
		{ID: status.Degraded, Name: "Degraded", Chosen: i.Impact == status.Degraded},
		{ID: status.Down, Name: "Down", Chosen: i.Impact == status.Down},
	}
	return []ui.Entry{
		{ID: "title", Label: "Title", Value: i.Title},
		{ID: "service", Label: "Part", Choices: parts},
		{ID: "impact", Label: "Impact", Choices: impacts},
		{ID: "from", Label: "Since (UTC)", Value: time.UnixMicro(i.FromUS).UTC().Format(incidentTime)},
		{ID: "text", Label: "Text", Value: i.Text, Long: true, Max: 2000, Hint: "Shown to everybody as written."},
	}
}

// showIncident is GET /operator/incidents/{id}.
func (h *Handler) showIncident(r *http.Request, s staff) (ui.Report, error) {
	i, err := status.GetIncident(r.Context(), h.DB, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "incident")
	}
	c := s.newReport("/operator/incidents", i.Title, "")
	cell := incidentCell(i)
	c.Back = &ui.Link{Href: "/operator/incidents", Text: "Incidents"}
	c.Badge = &ui.Badge{Text: cell.Text, Tone: cell.Tone}
	c.Blocks = []ui.Block{{
		Heading: "Incident",
		Text:    i.Text,
		Facts: []ui.Detail{
			{Name: "Part", Cell: ui.Cell{Text: status.Title(i.Service)}},
			{Name: "Since", Cell: timeCell(i.FromUS)},
			{Name: "Resolved", Cell: timeCell(i.ResolvedUS)},
		},
		More: &ui.Link{Href: "/operator/log?subject=" + url.QueryEscape(i.ID), Text: "Audit log"},
	}}
	if s.canAct() {
		at := "/operator/incidents/" + url.PathEscape(i.ID)
		if i.ResolvedUS == 0 {
			c.Blocks = append(c.Blocks, ui.Block{
				Heading: "Resolve",
				Text:    "The page shows it as resolved for 14 days.",
				Form:    &ui.Ask{Action: at, Decision: "resolve", Button: "Resolve"},
			})
		}
		fields := h.incidentFields(i)
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "Change",
			Form: &ui.Ask{
				Action:   at,
				Decision: "post",
				Fields:   fields,
				Shown:    ui.ShownEntries(fields),
				Button:   "Save",
			},
		})
	}
	return c, nil
}

// saveIncident is POST /operator/incidents and POST /operator/incidents/{id}.
func (h *Handler) saveIncident(r *http.Request, s staff, form url.Values) (string, error) {
	var i status.Incident
	if incidentID := r.PathValue("id"); incidentID != "" {
		var err error
		if i, err = status.GetIncident(r.Context(), h.DB, incidentID); err != nil {
			return "", notFound(err, "incident")
		}
	}
	switch form.Get("decision") {
	case "resolve":
		if i.ID == "" || i.ResolvedUS > 0 {
			return "", apierr.InvalidRequest.Errorf("decision: there is nothing to resolve")
		}
		i.ResolvedUS = h.Service.Now().UnixMicro()
	case "post":
		typed := ui.TypedFields(form)
		for name, set := range map[string]*string{
			"title": &i.Title, "text": &i.Text, "impact": &i.Impact, "service": &i.Service,
		} {
			if i.ID == "" || typed.Has(name) {
				*set = form.Get(name)
			}
		}
		if i.Service != "" && !slices.Contains(h.Status.Names(), i.Service) {
			return "", apierr.InvalidRequest.Errorf("service: is not a part of the service")
		}
		if i.ID != "" && !typed.Has("from") {
			break
		}
		from, err := time.Parse(incidentTime, strings.TrimSpace(form.Get("from")))
		if err != nil {
			return "", apierr.InvalidRequest.Errorf("from: must be a time such as 2026-11-21 10:00")
		}
		i.FromUS = from.UnixMicro()
	default:
		return "", apierr.InvalidRequest.Errorf("decision: must be post or resolve")
	}
	i, err := h.Service.SaveIncident(r.Context(), s.ID, i)
	h.Status.Forget()
	return "/operator/incidents/" + url.PathEscape(i.ID) + "?done=incident", err
}
