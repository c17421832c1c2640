package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

const eventPrefix = "event."

// endpointPages manage the webhook endpoints of an app.
type endpointPages struct {
	Webhooks *webhooks.Store
	Now      func() time.Time
	identityCheck
}

func (h endpointPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/webhooks", access.requireApp(apps.View, h.showEndpoints))
	rt.HandlePage("POST "+appPath+"/webhooks", access.requireApp(apps.Configure, h.createEndpoint))
	rt.HandlePage("GET "+appPath+"/webhooks/events", access.requireApp(apps.View, h.showCatalogue))
	rt.HandlePage("POST "+appPath+"/webhooks/events", access.requireApp(apps.Configure, h.sendSample))
	rt.HandlePage("GET "+appPath+"/webhooks/{endpoint}", access.requireApp(apps.View, h.showEndpoint))
	rt.HandlePage("POST "+appPath+"/webhooks/{endpoint}", access.requireApp(apps.Configure, h.saveEndpoint))
	rt.HandlePage("GET "+appPath+"/webhooks/{endpoint}/rotate", access.requireApp(apps.Configure, h.confirmRotate))
	rt.HandlePage("GET "+appPath+"/webhooks/{endpoint}/delete", access.requireApp(apps.Configure, h.confirmDelete))
	rt.HandlePage("POST "+appPath+"/webhooks/{endpoint}/rotate", access.requireApp(apps.Configure, h.rotateSecret))
	rt.HandlePage("POST "+appPath+"/webhooks/{endpoint}/delete", access.requireApp(apps.Configure, h.deleteEndpoint))
	rt.HandlePage("POST "+appPath+"/webhooks/{endpoint}/test", access.requireApp(apps.Configure, h.sendTestEvent))
	rt.HandlePage("POST "+appPath+"/webhooks/{endpoint}/recover",
		access.requireApp(apps.Configure, h.recoverDeliveries))
	rt.HandlePage("GET "+appPath+"/webhooks/{endpoint}/deliveries.csv",
		access.requireApp(apps.View, access.inTurn(h.exportDeliveries)))
	rt.HandlePage("GET "+appPath+"/webhooks/{endpoint}/deliveries/{delivery}/state",
		access.requireApp(apps.View, h.showDeliveryState))
	rt.HandlePage("GET "+appPath+"/webhooks/{endpoint}/deliveries/{delivery}",
		access.requireApp(apps.View, h.showDelivery))
	rt.HandlePage("POST "+appPath+"/webhooks/{endpoint}/deliveries/{delivery}",
		access.requireApp(apps.Configure, h.redeliver))
}

func endpointFields(e webhooks.Endpoint) []ui.Field {
	fields := []ui.Field{{ID: "url", Label: "URL", Kind: "url", Value: e.URL, Hint: "Public HTTPS URL"}}
	if e.ID != "" {
		fields = append(fields, ui.Field{
			ID:    "status",
			Label: "Status",
			Kind:  "select",
			Value: e.Status,
			Options: []ui.Option{
				{ID: webhooks.Active, Text: "Active", Chosen: e.Status == webhooks.Active},
				{ID: webhooks.Disabled, Text: "Disabled: events wait", Chosen: e.Status == webhooks.Disabled},
			},
		})
	}
	return fields
}

// parseEndpoint reads the form, which changes the events of an endpoint. The form of a new endpoint has no status.
func parseEndpoint(form url.Values, events []string) webhooks.Change {
	in := formReader{form: ui.TypedFields(form)}
	return webhooks.Change{
		URL:    in.readText("url"),
		Events: setField(tickedBoxes(form, eventPrefix, webhooks.Types, events)),
		Status: in.readText("status"),
	}
}

func describeEndpoint(e webhooks.Endpoint) ui.Endpoint {
	events := "All events"
	if len(e.Events) > 0 {
		events = strings.Join(e.Events, ", ")
	}
	return ui.Endpoint{ID: e.ID, URL: e.URL, Events: events, Status: e.Status, Created: ui.Date(e.CreatedUS)}
}

func describeDelivery(d webhooks.Delivery) ui.Delivery {
	out := ui.Delivery{
		ID:       d.ID,
		Type:     d.EventType,
		Status:   d.Status,
		Attempts: strconv.Itoa(d.Attempts),
		At:       timestamp.Format(d.CreatedUS),
		Created:  formatTime(d.CreatedUS),
		Answer:   "–",
	}
	switch {
	case d.ResponseStatus != nil:
		out.Answer = "HTTP " + strconv.FormatInt(*d.ResponseStatus, 10)
	case d.LastError != nil:
		out.Answer = *d.LastError
	}
	if d.NextUS != nil {
		out.Next = ui.Date(*d.NextUS)
	}
	return out
}

func (h endpointPages) endpointsPage(r *http.Request, v visit) (ui.EndpointList, error) {
	page := ui.EndpointList{
		Console: v.newPage(r, "Webhooks", "/webhooks"),
		Fields:  endpointFields(webhooks.Endpoint{}),
		Events:  checkboxes(eventPrefix, webhooks.Types, nil),
	}
	page.Only = v.explain(apps.Configure)
	list, _, err := h.Webhooks.List(r.Context(), v.app.ID, web.Page{Limit: webhooks.MaxPerApp})
	if err != nil {
		return page, err
	}
	days, err := h.Webhooks.ListDays(r.Context(), v.app.ID, shownDays)
	for _, e := range list {
		line := describeEndpoint(e)
		line.Rate, line.Days = describeDays(days[e.ID])
		page.List = append(page.List, line)
	}
	return page, err
}

// showEndpoints is GET /developer/apps/{id}/webhooks.
func (h endpointPages) showEndpoints(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.endpointsPage(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// createEndpoint is POST /developer/apps/{id}/webhooks.
func (h endpointPages) createEndpoint(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	e, secret, err := h.Webhooks.Create(r.Context(), v.app.ID, parseEndpoint(form, nil))
	if err == nil {
		return h.showSecret(w, r, v, e, "The endpoint is ready", secret)
	}
	page, listErr := h.endpointsPage(r, v)
	if listErr != nil {
		return listErr
	}
	if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
		return err
	}
	page.Fields = withErrors(withValues(page.Fields, form), page.Errors)
	page.Events = checkboxes(eventPrefix, webhooks.Types, checkedBoxes(form, eventPrefix, webhooks.Types))
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

func (h endpointPages) showSecret(w http.ResponseWriter, r *http.Request, v visit, e webhooks.Endpoint,
	heading, secret string) error {
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: v.newPage(r, heading, "/webhooks"),
		Lead:    "You won’t see the webhook secret again. Your server verifies our signatures with it.",
		Facts:   []ui.Fact{{Name: "URL", Value: e.URL}, {Name: "Webhook secret", Value: secret}},
		Next:    ui.Link{Href: v.path("/webhooks/" + e.ID), Text: "Continue"},
	})
}

// getEndpoint returns the endpoint of the path; 404 unless it is the app's.
func (h endpointPages) getEndpoint(r *http.Request, v visit) (webhooks.Endpoint, error) {
	e, err := h.Webhooks.Get(r.Context(), v.app.ID, r.PathValue("endpoint"))
	return e, notFound(err)
}

func (h endpointPages) endpointPage(r *http.Request, v visit, e webhooks.Endpoint) (ui.EndpointPage, error) {
	page := ui.EndpointPage{
		Console:  v.newPage(r, e.URL, "/webhooks"),
		Endpoint: describeEndpoint(e),
		Fields:   endpointFields(e),
		Choices:  checkboxes(eventPrefix, webhooks.Types, e.Events),
		Since: ui.Field{
			ID:    "since",
			Label: "Events since (UTC)",
			Value: h.Now().UTC().AddDate(0, 0, -1).Format(sinceLayout),
			Hint:  "Such as " + h.Now().UTC().Format(sinceLayout),
		},
	}
	page.Shown = ui.ShownFields(page.Fields, page.Choices...)
	page.Only = v.explain(apps.Configure)
	days, err := h.Webhooks.ListDays(r.Context(), v.app.ID, shownDays)
	if err != nil {
		return page, err
	}
	page.Endpoint.Rate, page.Endpoint.Days = describeDays(days[e.ID])
	page.Table, err = h.deliveryTable(r, v, e)
	return page, err
}

// showEndpoint is GET /developer/apps/{id}/webhooks/{endpoint}. With part=rows it is the rows of its deliveries alone.
func (h endpointPages) showEndpoint(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(r.URL.Query().Get("find")); text != "" {
		target, err := h.findDelivery(r.Context(), v, e, text)
		if err != nil {
			return err
		} else if target != "" {
			return web.SeeOther(w, target)
		}
	}
	if r.URL.Query().Get("part") == "rows" {
		page := ui.EndpointPage{}
		if page.Table, err = h.deliveryTable(r, v, e); err != nil {
			return err
		}
		return ui.RenderPart(w, page, "rows")
	}
	page, err := h.endpointPage(r, v, e)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if page.Table.IsInvalid() {
		status = http.StatusUnprocessableEntity
	}
	return ui.Render(w, status, page)
}

// saveEndpoint is POST /developer/apps/{id}/webhooks/{endpoint}.
func (h endpointPages) saveEndpoint(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	change := parseEndpoint(form, e.Events)
	if _, err = h.Webhooks.Patch(r.Context(), v.app.ID, e.ID, change); err == nil {
		return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done=saved"))
	}
	page, listErr := h.endpointPage(r, v, e)
	if listErr != nil {
		return listErr
	}
	if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
		return notFound(err)
	}
	page.Fields = withErrors(withValues(page.Fields, ui.TypedFields(form)), page.Errors)
	page.Choices = checkboxes(eventPrefix, webhooks.Types, change.Events.Value)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// rotatePage asks whether to replace the webhook secret of an endpoint.
func rotatePage(r *http.Request, v visit, e webhooks.Endpoint) ui.Confirm {
	return ui.Confirm{
		Console: v.newPage(r, "Replace the webhook secret?", "/webhooks"),
		Lead: "The old secret ends now: from the next delivery on, we sign with the new one. Your server refuses " +
			"deliveries until it has it; we try again for a while.",
		Facts:  []ui.Fact{{Name: "URL", Value: e.URL}},
		Action: v.path("/webhooks/" + e.ID + "/rotate"),
		Button: "Replace webhook secret",
		Back:   ui.Link{Href: v.path("/webhooks/" + e.ID), Text: "Cancel"},
	}
}

// confirmRotate is GET /developer/apps/{id}/webhooks/{endpoint}/rotate.
func (h endpointPages) confirmRotate(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	return h.identityCheck.show(w, r, v.Account, rotatePage(r, v, e))
}

// rotateSecret is POST /developer/apps/{id}/webhooks/{endpoint}/rotate.
func (h endpointPages) rotateSecret(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	page := rotatePage(r, v, e)
	if ok, err := h.identityCheck.pass(w, r, v.Account, form.Get("present"), page); !ok || err != nil {
		return err
	}
	e, secret, err := h.Webhooks.RotateSecret(r.Context(), v.app.ID, e.ID)
	if err != nil {
		return notFound(err)
	}
	return h.showSecret(w, r, v, e, "New webhook secret", secret)
}

// confirmDelete is GET /developer/apps/{id}/webhooks/{endpoint}/delete.
func (h endpointPages) confirmDelete(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Confirm{
		Console: v.newPage(r, "Delete this endpoint?", "/webhooks"),
		Lead:    "Pending deliveries and the history are deleted. This can’t be undone.",
		Facts:   []ui.Fact{{Name: "URL", Value: e.URL}},
		Action:  v.path("/webhooks/" + e.ID + "/delete"),
		Button:  "Delete endpoint",
		Back:    ui.Link{Href: v.path("/webhooks/" + e.ID), Text: "Cancel"},
	})
}

// deleteEndpoint is POST /developer/apps/{id}/webhooks/{endpoint}/delete.
func (h endpointPages) deleteEndpoint(w http.ResponseWriter, r *http.Request, v visit) error {
	if err := h.Webhooks.Delete(r.Context(), v.app.ID, r.PathValue("endpoint")); err != nil {
		return notFound(err)
	}
	return web.SeeOther(w, v.path("/webhooks?done=deleted"))
}

// sendTestEvent is POST /developer/apps/{id}/webhooks/{endpoint}/test.
func (h endpointPages) sendTestEvent(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if _, err := h.Webhooks.SendTest(r.Context(), e, form.Get("type")); err != nil {
		return err
	}
	return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done=sent"))
}

// redeliver is POST /developer/apps/{id}/webhooks/{endpoint}/deliveries/{delivery}.
func (h endpointPages) redeliver(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.getEndpoint(r, v)
	if err != nil {
		return err
	}
	if _, err := h.Webhooks.Redeliver(r.Context(), e, r.PathValue("delivery")); err != nil {
		return notFound(err)
	}
	return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done=again"))
}

// indentJSON indents a JSON text. It returns any other text as it is.
func indentJSON(text []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(text)
	}
	return b.String()
}
