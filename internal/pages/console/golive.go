package console

import (
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// goLivePages show the go-live checklist of an app and request a review.
type goLivePages struct {
	GoLive *golive.Store
}

func (h goLivePages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/go-live", access.requireApp(apps.View, h.showGoLive))
	rt.HandlePage("POST "+appPath+"/go-live", access.requireApp(apps.RequestReview, h.requestGoLive))
}

func (h goLivePages) goLivePage(r *http.Request, v visit) (ui.GoLive, error) {
	page := ui.GoLive{Console: v.newPage(r, "Go live", "/go-live"), Tier: v.app.Tier, Ready: true}
	page.Only = v.explain(apps.RequestReview)
	switch v.app.Tier {
	case apps.Sandbox:
		page.Next = apps.LimitedLive
	case apps.LimitedLive:
		page.Why = "This app is live, with the limits of a new app. The next tier isn’t available yet."
	default:
		page.Why = "This app is live, in the highest tier."
	}
	s, err := h.GoLive.GetStatus(r.Context(), v.app)
	if err != nil {
		return page, err
	}
	fixes := map[string]ui.Link{
		"redirect_uri":   {Href: v.path("/settings#redirect_uris"), Text: "Add one"},
		"feature":        {Href: v.path("/features"), Text: "Register one"},
		"allowed_models": {Href: v.path("/settings#allowed_models"), Text: "Choose them"},
		"logo":           {Href: v.path("/settings#logo"), Text: "Add one"},
		"live_models":    {Href: v.path("/settings#provider_mode"), Text: "Try them"},
	}
	for _, i := range s.Checklist {
		c := ui.Check{Text: i.Text, Required: i.Required, Met: i.Met}
		if fix, ok := fixes[i.Name]; ok && v.can(apps.Configure) {
			c.Fix = &fix
		}
		page.List = append(page.List, c)
		page.Ready = page.Ready && (i.Met || !i.Required)
	}
	for _, q := range s.Requests {
		a := ui.Asked{Created: ui.Date(q.CreatedUS), Status: q.Status, Reason: q.Reason}
		if q.DecidedUS != 0 {
			a.Decided = ui.Date(q.DecidedUS)
		}
		page.Pending = page.Pending || q.Status == golive.Pending
		page.Requests = append(page.Requests, a)
	}
	return page, nil
}

// showGoLive is GET /developer/apps/{id}/go-live.
func (h goLivePages) showGoLive(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.goLivePage(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// requestGoLive is POST /developer/apps/{id}/go-live.
func (h goLivePages) requestGoLive(w http.ResponseWriter, r *http.Request, v visit) error {
	_, err := h.GoLive.CreateRequest(r.Context(), v.app.ID)
	if err == nil {
		return web.SeeOther(w, v.path("/go-live?done=asked"))
	}
	page, pageErr := h.goLivePage(r, v)
	if pageErr != nil {
		return pageErr
	}
	if page.Errors = formProblems(err, nil); page.Errors == nil {
		return err
	}
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}
