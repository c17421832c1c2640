package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

const eventPrefix = "event."

func hookFields(e webhooks.Endpoint) []ui.Field {
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

// hookChange reads the form; a new endpoint has no status to choose.
func hookChange(form url.Values) webhooks.Change {
	c := webhooks.Change{
		URL:    given(strings.TrimSpace(form.Get("url"))),
		Events: given(ticked(form, eventPrefix, webhooks.Types)),
	}
	if form.Has("status") {
		c.Status = given(form.Get("status"))
	}
	return c
}

func shownHook(e webhooks.Endpoint) ui.Hook {
	events := "All events"
	if len(e.Events) > 0 {
		events = strings.Join(e.Events, ", ")
	}
	return ui.Hook{ID: e.ID, URL: e.URL, Events: events, Status: e.Status, Created: ui.Date(e.CreatedUS)}
}

func shownDelivery(d webhooks.Delivery) ui.HookDelivery {
	out := ui.HookDelivery{
		ID:       d.ID,
		Type:     d.EventType,
		Status:   d.Status,
		Attempts: strconv.Itoa(d.Attempts),
		Created:  short(d.CreatedUS),
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

func (h *Handler) hooksPage(r *http.Request, v visit) (ui.Hooks, error) {
	page := ui.Hooks{
		Console: v.page(r, "Webhooks", "/webhooks"),
		Fields:  hookFields(webhooks.Endpoint{}),
		Events:  boxes(eventPrefix, webhooks.Types, nil),
	}
	list, _, err := h.Webhooks.List(r.Context(), v.app.ID, web.Page{Limit: webhooks.MaxPerApp})
	for _, e := range list {
		page.List = append(page.List, shownHook(e))
	}
	return page, err
}

// hooks is GET /developer/apps/{id}/webhooks.
func (h *Handler) hooks(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.hooksPage(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// createHook is POST /developer/apps/{id}/webhooks.
func (h *Handler) createHook(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	e, secret, err := h.Webhooks.Create(r.Context(), v.app.ID, hookChange(form))
	if err == nil {
		return h.hookSecret(w, r, v, e, "The endpoint is ready", secret)
	}
	page, listErr := h.hooksPage(r, v)
	if listErr != nil {
		return listErr
	}
	if page.Errors = problems(err, page.Fields); page.Errors == nil {
		return err
	}
	page.Fields = beside(typed(page.Fields, form), page.Errors)
	page.Events = boxes(eventPrefix, webhooks.Types, ticked(form, eventPrefix, webhooks.Types))
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

func (h *Handler) hookSecret(w http.ResponseWriter, r *http.Request, v visit, e webhooks.Endpoint,
	heading, secret string) error {
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: v.page(r, heading, "/webhooks"),
		Lead:    "You won’t see the webhook secret again. Your server verifies our signatures with it.",
		Facts:   []ui.Fact{{Name: "URL", Value: e.URL}, {Name: "Webhook secret", Value: secret}},
		Next:    ui.Link{Href: v.path("/webhooks/" + e.ID), Text: "Continue"},
	})
}

// endpoint is the one of the path, if it is the app's own.
func (h *Handler) endpoint(r *http.Request, v visit) (webhooks.Endpoint, error) {
	e, err := h.Webhooks.Get(r.Context(), v.app.ID, r.PathValue("hook"))
	return e, gone(err)
}

func (h *Handler) hookPage(r *http.Request, v visit, e webhooks.Endpoint) (ui.HookPage, error) {
	page := ui.HookPage{
		Console: v.page(r, e.URL, "/webhooks"),
		Hook:    shownHook(e),
		Fields:  hookFields(e),
		Choices: boxes(eventPrefix, webhooks.Types, e.Events),
		Types:   webhooks.Types,
	}
	list, err := h.Webhooks.ListDeliveries(r.Context(), e.ID)
	for _, d := range list {
		page.Deliveries = append(page.Deliveries, shownDelivery(d))
	}
	return page, err
}

// hook is GET /developer/apps/{id}/webhooks/{hook}.
func (h *Handler) hook(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.endpoint(r, v)
	if err != nil {
		return err
	}
	page, err := h.hookPage(r, v, e)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// saveHook is POST /developer/apps/{id}/webhooks/{hook}.
func (h *Handler) saveHook(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.endpoint(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if _, err = h.Webhooks.Patch(r.Context(), v.app.ID, e.ID, hookChange(form)); err == nil {
		return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done=saved"))
	}
	page, listErr := h.hookPage(r, v, e)
	if listErr != nil {
		return listErr
	}
	if page.Errors = problems(err, page.Fields); page.Errors == nil {
		return gone(err)
	}
	page.Fields = beside(typed(page.Fields, form), page.Errors)
	page.Choices = boxes(eventPrefix, webhooks.Types, ticked(form, eventPrefix, webhooks.Types))
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// rotateHook is POST /developer/apps/{id}/webhooks/{hook}/rotate.
func (h *Handler) rotateHook(w http.ResponseWriter, r *http.Request, v visit) error {
	e, secret, err := h.Webhooks.RotateSecret(r.Context(), v.app.ID, r.PathValue("hook"))
	if err != nil {
		return gone(err)
	}
	return h.hookSecret(w, r, v, e, "New webhook secret", secret)
}

// deleteHook is POST /developer/apps/{id}/webhooks/{hook}/delete.
func (h *Handler) deleteHook(w http.ResponseWriter, r *http.Request, v visit) error {
	if err := h.Webhooks.Delete(r.Context(), v.app.ID, r.PathValue("hook")); err != nil {
		return gone(err)
	}
	return web.SeeOther(w, v.path("/webhooks?done=deleted"))
}

// testHook is POST /developer/apps/{id}/webhooks/{hook}/test.
func (h *Handler) testHook(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.endpoint(r, v)
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

// delivery is GET /developer/apps/{id}/webhooks/{hook}/deliveries/{delivery}.
func (h *Handler) delivery(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.endpoint(r, v)
	if err != nil {
		return err
	}
	d, body, err := h.Webhooks.GetPayload(r.Context(), e, r.PathValue("delivery"))
	if err != nil {
		return gone(err)
	}
	page := ui.HookPayload{
		Console:  v.page(r, d.EventType, "/webhooks"),
		Hook:     shownHook(e),
		Delivery: shownDelivery(d),
		Payload:  indented(body),
	}
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
	return ui.Render(w, http.StatusOK, page)
}

// redeliver is POST /developer/apps/{id}/webhooks/{hook}/deliveries/{delivery}.
func (h *Handler) redeliver(w http.ResponseWriter, r *http.Request, v visit) error {
	e, err := h.endpoint(r, v)
	if err != nil {
		return err
	}
	if _, err := h.Webhooks.Redeliver(r.Context(), e, r.PathValue("delivery")); err != nil {
		return gone(err)
	}
	return web.SeeOther(w, v.path("/webhooks/"+e.ID+"?done=again"))
}

// indented spreads JSON over lines; what is none stays as it is.
func indented(text []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(text)
	}
	return b.String()
}
