package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

const (
	shownDays    = 14                 // of attempts
	dayHeight    = 38                 // of the highest bar, in pixels
	sinceLayout  = "2006-01-02 15:04" // of the form that recovers deliveries
	refreshAhead = time.Minute        // how long before its next attempt a delivery is watched
)

// describeDays returns the share of successful attempts and a bar for each day.
func describeDays(days []webhooks.Day) (rate string, bars []ui.EndpointDay) {
	var succeeded, failed, most int64
	for _, d := range days {
		succeeded, failed, most = succeeded+d.Succeeded, failed+d.Failed, max(most, d.Succeeded+d.Failed)
	}
	if most == 0 {
		return "", nil
	}
	for i, d := range days {
		// A day with few attempts, and few failures among many, are still seen.
		height := func(n int64) int {
			if n == 0 {
				return 0
			}
			return max(2, int(n*(dayHeight-2)/most))
		}
		bar := ui.EndpointDay{
			Label:     d.Day,
			X:         i * 12,
			Good:      height(d.Succeeded),
			Bad:       height(d.Failed),
			Succeeded: ui.Count(d.Succeeded),
			Failed:    ui.Count(d.Failed),
		}
		bar.GoodY = dayHeight + 2 - bar.Good
		bar.BadY = bar.GoodY - bar.Bad
		bars = append(bars, bar)
	}
	// Rounded down: it is 100 % only without a failure.
	return fmt.Sprintf("%d%%", succeeded*100/(succeeded+failed)), bars
}

// deliveryLog returns the deliveries that the query selects.
func (h endpointPages) deliveryLog(r *http.Request, v visit, e webhooks.Endpoint) (ui.DeliveryLog, error) {
	q := r.URL.Query()
	f := webhooks.Filter{Status: q.Get("status"), Type: q.Get("type"), Before: q.Get("before")}
	at := v.path("/webhooks/" + e.ID)
	address := func(path, status, before string) string {
		next := url.Values{}
		for name, value := range map[string]string{"status": status, "type": f.Type, "before": before} {
			if value != "" {
				next.Set(name, value)
			}
		}
		if len(next) == 0 {
			return path
		}
		return path + "?" + next.Encode()
	}
	page := ui.DeliveryLog{
		AppID:      v.app.ID,
		EndpointID: e.ID,
		Status:     f.Status,
		Type:       f.Type,
		ReadOnly:   !v.can(apps.Configure),
	}
	for _, t := range []struct{ status, text string }{
		{"", "All"}, {webhooks.Failed, "Failed"}, {webhooks.Pending, "Pending"}, {webhooks.Delivered, "Delivered"},
	} {
		page.Statuses = append(page.Statuses,
			ui.Tab{Href: address(at, t.status, ""), Text: t.text, Current: t.status == f.Status})
	}
	page.Types = []ui.Option{{Text: "All types"}}
	for _, kind := range webhooks.Types {
		page.Types = append(page.Types, ui.Option{ID: kind, Text: kind, Chosen: kind == f.Type})
	}
	list, more, err := h.Webhooks.FilterDeliveries(r.Context(), e.ID, f)
	for _, d := range list {
		page.List = append(page.List, describeDelivery(d))
		if h.changesSoon(d) && e.Status == webhooks.Active {
			page.Refresh = address(at+"/deliveries", f.Status, f.Before)
		}
	}
	if more {
		page.Older = address(at, f.Status, list[len(list)-1].ID)
	}
	return page, err
}

// changesSoon reports whether an attempt of the delivery is due.
func (h endpointPages) changesSoon(d webhooks.Delivery) bool {
	return d.Status == webhooks.Pending && d.NextUS != nil &&
		time.UnixMicro(*d.NextUS).Before(h.Now().Add(refreshAhead))
}

// showDeliveries is GET /developer/apps/{id}/webhooks/{endpoint}/deliveries: the live part of the endpoint's page.
func (h endpointPages) showDeliveries(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	page, err := h.deliveryLog(r, v, e)
	if err != nil {
		return err
	}
	return ui.RenderPart(w, page, "deliveries")
}

// recoverDeliveries is POST /developer/apps/{id}/webhooks/{endpoint}/recover. A second press finds nothing to do.
func (h endpointPages) recoverDeliveries(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	since, err := time.Parse(sinceLayout, strings.TrimSpace(form.Get("since")))
	problem := "Events since: enter a time such as " + h.Now().UTC().Format(sinceLayout) + "."
	if err == nil && !since.After(h.Now()) {
		queued, more, err := h.Webhooks.Recover(r.Context(), e, since)
		if err != nil {
			return err
		}
		done := "recovered"
		switch {
		case more:
			done = "recovered-part"
		case queued == 0:
			done = "recovered-none"
		}
		return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done="+done))
	}
	page, err := h.endpointPage(r, v, e)
	if err != nil {
		return err
	}
	page.Since.Value, page.Since.Error = form.Get("since"), problem
	page.Errors = []ui.Problem{{Field: "since", Text: problem}}
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// deliveryPage returns the page of the delivery of the path.
func (h endpointPages) deliveryPage(r *http.Request, v visit) (ui.DeliveryPage, error) {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return ui.DeliveryPage{}, err
	}
	d, body, err := h.Webhooks.GetPayload(r.Context(), e, r.PathValue("delivery"))
	if err != nil {
		return ui.DeliveryPage{}, notFound(err)
	}
	page := ui.DeliveryPage{
		Console:  v.newPage(r, d.EventType, "/webhooks"),
		Endpoint: describeEndpoint(e),
		Delivery: describeDelivery(d),
		Payload:  indentJSON(body),
	}
	page.Only = v.explain(apps.Configure)
	page.Facts = []ui.Fact{
		{Name: "Status", Value: d.Status}, {Name: "Attempts", Value: page.Delivery.Attempts},
		{Name: "Last response", Value: page.Delivery.Answer},
		{Name: "Created", Value: ui.Date(d.CreatedUS)}, {Name: "Event", Value: d.EventID}, {Name: "To", Value: e.URL},
	}
	if d.DeliveredUS != nil {
		page.Facts = append(page.Facts, ui.Fact{Name: "Delivered", Value: ui.Date(*d.DeliveredUS)})
	}
	if page.Delivery.Next != "" {
		page.Facts = append(page.Facts, ui.Fact{Name: "Next attempt", Value: page.Delivery.Next})
	}
	if h.changesSoon(d) && e.Status == webhooks.Active {
		page.Refresh = v.path("/webhooks/" + e.ID + "/deliveries/" + d.ID + "/state")
	}
	list, err := h.Webhooks.ListAttempts(r.Context(), d.ID)
	for _, a := range list {
		page.Attempts = append(page.Attempts, describeAttempt(a))
	}
	return page, err
}

func describeAttempt(a webhooks.Attempt) ui.Attempt {
	out := ui.Attempt{
		At:       timestamp.Format(a.BegunUS),
		Shown:    formatTime(a.BegunUS),
		Answer:   "No response",
		Duration: ui.Count(a.DurationMS) + " ms",
		OK:       a.Error == nil,
		Excerpt:  a.Excerpt,
	}
	switch {
	case a.ResponseStatus != nil:
		out.Answer = fmt.Sprintf("HTTP %d", *a.ResponseStatus)
	case a.Error != nil:
		out.Answer = *a.Error
	}
	return out
}

// showDelivery is GET /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}.
func (h endpointPages) showDelivery(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.deliveryPage(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// showDeliveryState is GET /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}/state: the live part of that
// page.
func (h endpointPages) showDeliveryState(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.deliveryPage(r, v)
	if err != nil {
		return err
	}
	return ui.RenderPart(w, page, "delivery-state")
}

// showCatalogue is GET /developer/apps/{id}/webhooks/events.
func (h endpointPages) showCatalogue(w http.ResponseWriter, r *http.Request, v visit) error {
	page := ui.EventCatalogue{Console: v.newPage(r, "Event catalogue", "/webhooks")}
	page.Only = v.explain(apps.Configure)
	list, _, err := h.Webhooks.List(r.Context(), v.app.ID, web.Page{Limit: webhooks.MaxPerApp})
	if err != nil {
		return err
	}
	for _, e := range list {
		page.Endpoints = append(page.Endpoints,
			ui.Option{ID: e.ID, Text: e.URL, Chosen: e.ID == r.URL.Query().Get("endpoint")})
	}
	for _, kind := range webhooks.Types {
		c, err := h.Webhooks.Describe(v.app.ID, kind)
		if err != nil {
			return err
		}
		page.List = append(page.List, ui.EventType{
			Type:        c.Type,
			Description: c.Description,
			Object:      c.Object,
			Members:     membersOf(c.Sample, c.Object),
			Sample:      indentJSON(c.Sample),
		})
	}
	return ui.Render(w, http.StatusOK, page)
}

// membersOf returns the members of an object in the data of an event, with their JSON types.
func membersOf(body []byte, object string) (list []ui.Fact) {
	var event struct {
		Data map[string]map[string]any `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return nil
	}
	for name, value := range event.Data[object] {
		list = append(list, ui.Fact{Name: name, Value: jsonType(value)})
	}
	slices.SortFunc(list, func(a, b ui.Fact) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// jsonType names the type of a value in a sample.
func jsonType(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "integer"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null in the sample"
}

// sendSample is POST /developer/apps/{id}/webhooks/events: a sample event for one endpoint.
func (h endpointPages) sendSample(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	e, err := h.Webhooks.Get(r.Context(), v.app.ID, form.Get("endpoint"))
	if err != nil {
		return notFound(err)
	}
	if _, err := h.Webhooks.SendTest(r.Context(), e, form.Get("type")); err != nil {
		return err
	}
	return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done=sent"))
}
