package console

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
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

// deliveryStatuses are the choices of the filter for the status of a delivery.
var deliveryStatuses = []ui.Option{
	{ID: "", Text: "Any status"}, {ID: webhooks.Failed, Text: "Failed"}, {ID: webhooks.Pending, Text: "Pending"},
	{ID: webhooks.Delivered, Text: "Delivered"},
}

// newDeliveryTable returns the list of an endpoint's deliveries without its rows.
func newDeliveryTable(q url.Values, v visit, e webhooks.Endpoint) ui.List {
	t := ui.NewList(v.path("/webhooks/"+e.ID), q, "status", "type", "range", "from", "to")
	t.Label, t.Empty = "Deliveries", "No deliveries yet."
	t.Search = &ui.ListSearch{
		Name:  "find",
		Label: "Find a delivery by its id or its event’s",
		Hint:  "whd_… or evt_…",
		Value: strings.TrimSpace(q.Get("find")),
	}
	t.Head = []ui.ListColumn{
		{Text: "Event", Class: "first"}, {Text: "Status", Class: "first end"}, {Text: "When (UTC)", Class: "second"},
		{Text: "Attempts", Class: "end"}, {Text: "Last response", Class: "second"}, {Text: "Event id"},
	}
	t.AddFilter("status", "Status", deliveryStatuses)
	types := []ui.Option{{Text: "Any type"}}
	for _, kind := range webhooks.Types {
		types = append(types, ui.Option{ID: kind, Text: kind})
	}
	t.AddFilter("type", "Event", types)
	addRangeFilter(&t)
	return t
}

// readDeliveryFilter reads the filters of the list. It marks invalid ones, and reports whether there are none.
func (h endpointPages) readDeliveryFilter(t *ui.List) (f webhooks.Filter, ok bool) {
	f, ok = webhooks.Filter{Status: t.Query.Get("status"), Type: t.Query.Get("type")}, true
	var problems [3]string // of the filters in their order
	if f.Status != "" && !webhooks.IsStatus(f.Status) {
		problems[0] = "Choose one of these."
	}
	if f.Type != "" && !slices.Contains(webhooks.Types, f.Type) {
		problems[1] = "Choose one of these."
	}
	f.Since, f.Until, problems[2] = readRange(t.Query, h.Now())
	for i, problem := range problems {
		if t.Filter[i].Problem = problem; problem != "" {
			ok = false
		}
	}
	return f, ok
}

// deliveryTable returns the deliveries that the query selects; none if a filter is not valid.
func (h endpointPages) deliveryTable(r *http.Request, v visit, e webhooks.Endpoint) (t ui.List, err error) {
	q := r.URL.Query()
	t = newDeliveryTable(q, v, e)
	f, ok := h.readDeliveryFilter(&t)
	if f.Before = q.Get("before"); !strings.HasPrefix(f.Before, id.Delivery) {
		f.Before = "" // no link of these pages
	}
	t.Finish(f.Before == "", t.Link("part", "rows", "before", f.Before))
	t.CSV = t.Download(v.path("/webhooks/" + e.ID + "/deliveries.csv"))
	if t.Search.Value != "" { // findDelivery has found none
		t.Search.Problem = "This endpoint has no such delivery. Old ones are deleted."
	}
	if !ok || t.Search.Problem != "" {
		t.Following, t.Empty = false, "Correct the filter to see deliveries."
		return t, nil
	}
	if t.Filtered() {
		t.Empty = "No deliveries fit these filters."
	}
	list, more, err := h.Webhooks.FilterDeliveries(r.Context(), e.ID, f, ui.ListPageSize(t.Query))
	for _, d := range list {
		t.Rows = append(t.Rows, deliveryRow(d, v))
		t.Changing = t.Changing || h.changesSoon(d) && e.Status == webhooks.Active
	}
	if more {
		t.Older = t.Link("before", list[len(list)-1].ID)
	}
	return t, err
}

// deliveryRow returns a row of the list.
func deliveryRow(d webhooks.Delivery, v visit) ui.ListRow {
	shown := describeDelivery(d)
	status := ui.ListCell{Text: "Pending", Dot: "warn"}
	switch d.Status {
	case webhooks.Delivered:
		status = ui.ListCell{Text: "Delivered", Dot: "good"}
	case webhooks.Failed:
		status = ui.ListCell{Text: "Failed", Dot: "bad"}
	default:
		if d.Attempts > 0 && shown.Next != "" {
			status.Sub = "retry " + shown.Next
		}
	}
	href := v.path("/webhooks/" + d.EndpointID + "/deliveries/" + d.ID)
	return ui.ListRow{
		ID:     d.ID,
		Href:   href,
		Drawer: href + "?part=drawer",
		Cells: []ui.ListCell{
			{Text: d.EventType},
			status,
			{Text: shown.Created, Time: shown.At},
			{Text: shown.Attempts},
			{Text: shown.Answer},
			{
				Text:  "…" + d.EventID[max(len(d.EventID)-6, 0):],
				Title: d.EventID,
				Code:  true,
			},
		},
	}
}

// findDelivery returns the address of the delivery of an id, its own or its event's; "" = the endpoint has none.
func (h endpointPages) findDelivery(ctx context.Context, v visit, e webhooks.Endpoint, text string) (string, error) {
	var found []webhooks.Delivery
	if strings.HasPrefix(text, id.Event) {
		t, err := h.Webhooks.GetTrace(ctx, text)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return "", err
		}
		found = t.Deliveries
	} else if strings.HasPrefix(text, id.Delivery) {
		d, _, err := h.Webhooks.FindDelivery(ctx, text)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return "", err
		}
		found = append(found, d)
	}
	for _, d := range found {
		if d.EndpointID == e.ID {
			return v.path("/webhooks/" + e.ID + "/deliveries/" + d.ID), nil
		}
	}
	return "", nil
}

// deliveryColumns are the columns of the export.
const deliveryColumns = "id created_at event_id event_type status attempts response_status error delivered_at " +
	"next_attempt_at"

// exportDeliveries is GET /developer/apps/{id}/webhooks/{endpoint}/deliveries.csv: the rows of the list with its
// filters, newest first, streamed; at most exportMost.
func (h endpointPages) exportDeliveries(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	t := newDeliveryTable(r.URL.Query(), v, e)
	f, ok := h.readDeliveryFilter(&t)
	if !ok {
		return apierr.InvalidRequest.Errorf("The filters of this download are not valid.")
	}
	list, more, err := h.Webhooks.FilterDeliveries(r.Context(), e.ID, f, exportStep)
	if err != nil {
		return err
	}
	ui.SetDownload(w, "purser-deliveries.csv")
	out := csv.NewWriter(w)
	if err := out.Write(strings.Fields(deliveryColumns)); err != nil {
		return err
	}
	for written := 0; ; {
		for _, d := range list {
			if err := out.Write(deliveryRecord(d)); err != nil {
				return err
			}
		}
		written += len(list)
		if out.Flush(); !more || written >= exportMost || out.Error() != nil {
			return out.Error()
		}
		f.Before = list[len(list)-1].ID
		if list, more, err = h.Webhooks.FilterDeliveries(r.Context(), e.ID, f, exportStep); err != nil {
			return err
		}
	}
}

func deliveryRecord(d webhooks.Delivery) []string {
	moment := func(us *int64) string {
		if us == nil {
			return ""
		}
		return timestamp.Format(*us)
	}
	status, failed := "", ""
	if d.ResponseStatus != nil {
		status = strconv.FormatInt(*d.ResponseStatus, 10)
	}
	if d.LastError != nil {
		failed = ui.EscapeFormula(*d.LastError)
	}
	return []string{
		d.ID, timestamp.Format(d.CreatedUS), d.EventID, d.EventType, d.Status, strconv.Itoa(d.Attempts), status, failed,
		moment(d.DeliveredUS), moment(d.NextUS),
	}
}

// changesSoon reports whether an attempt of the delivery is due.
func (h endpointPages) changesSoon(d webhooks.Delivery) bool {
	return d.Status == webhooks.Pending && d.NextUS != nil &&
		time.UnixMicro(*d.NextUS).Before(h.Now().Add(refreshAhead))
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

// showDelivery is GET /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}. With part=drawer it is the part
// beside the list.
func (h endpointPages) showDelivery(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.deliveryPage(r, v)
	if err != nil {
		return err
	}
	if r.URL.Query().Get("part") == "drawer" {
		return ui.RenderPart(w, page, "drawer")
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
