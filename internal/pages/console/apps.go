package console

import (
	"context"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxApps is how many apps a developer may create here.
const maxApps = 100

// month is how many days overviews look back on.
const month = 30

// front is GET /developer.
func (h *Handler) front(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if !a.Developer {
		return ui.Render(w, http.StatusOK,
			ui.Enable{
				Console:     ui.Console{Shell: a.Shell(ui.Development), Heading: "Developer console"},
				TestAccount: a.Sandbox,
			})
	}
	list, err := apps.ListOwned(r.Context(), h.DB, a.ID)
	if err != nil {
		return err
	}
	figures, err := byApp(r.Context(), h.DB, a.ID, h.since(month))
	if err != nil {
		return err
	}
	page := ui.Developer{Console: own(r, a, "Your apps", "/developer")}
	for _, app := range list {
		page.Apps = append(page.Apps, ui.AppLine{ConsoleApp: *head(app), Sum: figures[app.ID].shown()})
	}
	return ui.Render(w, http.StatusOK, page)
}

func newAppFields() []ui.Field {
	return []ui.Field{
		{ID: "name", Label: "Name", Hint: "Shown to users on the consent screen."},
		{ID: "redirect_uris", Label: "Redirect URLs", Kind: "area", Hint: "One per line. Must match exactly."},
	}
}

func newAppPage(r *http.Request, a accounts.Account) ui.FormPage {
	return ui.FormPage{
		Console: own(r, a, "Create app", "/developer"),
		Lead:    "It starts in the sandbox, with a mock provider and test money.",
		Action:  "/developer/apps",
		Button:  "Create app",
		Fields:  newAppFields(),
		Back:    ui.Link{Href: "/developer", Text: "Cancel"},
	}
}

// newApp is GET /developer/apps/new.
func (h *Handler) newApp(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, newAppPage(r, a))
}

// createApp is POST /developer/apps. The secret is on the page that answers, and
// nowhere else, so there is no redirect.
func (h *Handler) createApp(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	var app apps.App
	var secret string
	err = h.DB.InTx(r.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := accounts.Lock(ctx, tx, a.ID); err != nil { // so that nobody counts beside us
			return err
		}
		list, err := apps.ListOwned(ctx, tx, a.ID)
		if err != nil {
			return err
		}
		if len(list) >= maxApps {
			return apierr.InvalidRequest.Errorf("a developer has at most %d apps", maxApps)
		}
		app, secret, err = h.Apps.Create(ctx, tx, apps.New{
			OwnerID:      a.ID,
			Name:         strings.TrimSpace(form.Get("name")),
			RedirectURIs: lines(form.Get("redirect_uris")),
		})
		return err
	})
	if err != nil {
		page := newAppPage(r, a)
		if page.Errors = problems(err, page.Fields); page.Errors == nil {
			return err
		}
		page.Fields = beside(typed(page.Fields, form), page.Errors)
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	v := visit{a, app}
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: v.page(r, "Your app is ready", ""), Lead: "You won’t see the client secret again.",
		Facts: []ui.Fact{{Name: "Client id", Value: app.ClientID}, {Name: "Client secret", Value: secret}},
		Next:  ui.Link{Href: v.path(""), Text: "Continue"},
	})
}

// overview is GET /developer/apps/{id}.
func (h *Handler) overview(w http.ResponseWriter, r *http.Request, v visit) error {
	days, err := by(r.Context(), h.DB, v.app, "day", h.since(month))
	if err != nil {
		return err
	}
	list, err := h.Features.ListAll(r.Context(), v.app.ID)
	if err != nil {
		return err
	}
	feature := ""
	if len(list) > 0 {
		feature = list[0].Slug
	}
	page := ui.AppOverview{
		Console:  v.page(r, "Overview", ""),
		Month:    total(days).shown(),
		Connect:  v.connect(h.AuthURL),
		Exchange: []ui.Code{{Language: "curl", Text: v.exchange(h.BaseURL)}},
		Call: calls(call{
			BaseURL:   h.BaseURL,
			Feature:   feature,
			Model:     h.firstModel(v.app),
			Prompt:    "Hello",
			MaxTokens: 100,
		}),
		Facts: []ui.Fact{
			{Name: "Client id", Value: v.app.ClientID}, {Name: "Tier", Value: v.app.Tier},
			{Name: "Mode", Value: source(v.app)},
			{Name: "Your margin", Value: inPercent(v.app.DevMargin) + "% of provider cost"},
			{Name: "Models", Value: modelCount(v.app)},
		},
	}
	for i := range page.Call {
		page.Call[i].Language = "3 · Call, with " + page.Call[i].Language
	}
	page.ByDay = h.daily(days, month)
	if page.Now, err = h.now(r.Context(), v.app); err != nil {
		return err
	}
	if page.Sessions, err = h.Voice.ListForPage(r.Context(), voice.Filter{AppID: v.app.ID}); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// now is what an app's users spend at this moment.
func (h *Handler) now(ctx context.Context, app apps.App) (n ui.Now, err error) {
	connections, held, err := heldNow(ctx, h.DB, app.ID)
	if err != nil {
		return ui.Now{}, err
	}
	today, err := by(ctx, h.DB, app, "day", h.since(1))
	if err != nil {
		return ui.Now{}, err
	}
	t := total(today)
	return ui.Now{
		Held:        ui.Money(held),
		Connections: connections,
		Today:       ui.Money(t.Revenue),
		Calls:       ui.Count(t.Calls),
	}, nil
}

// live is GET /developer/apps/{id}/live: the same again, while calls run.
func (h *Handler) live(w http.ResponseWriter, r *http.Request, v visit) error {
	now, err := h.now(r.Context(), v.app)
	if err != nil {
		return err
	}
	return ui.RenderPart(w, ui.AppOverview{Console: ui.Console{App: head(v.app)}, Now: now}, "live")
}

func source(a apps.App) string {
	if a.ProviderMode == apps.Mock {
		return "Mock (free, canned answers)"
	}
	return "Live (the models’ providers)"
}

func modelCount(a apps.App) string {
	if len(a.AllowedModels) == 0 {
		return "All models"
	}
	return strings.Join(a.AllowedModels, ", ")
}

// firstModel is a model that the app may call.
func (h *Handler) firstModel(a apps.App) string {
	if len(a.AllowedModels) > 0 {
		return a.AllowedModels[0]
	}
	if offered := h.Catalog.Current().Offered(h.Now()); len(offered) > 0 {
		return offered[0].ID
	}
	return "MODEL"
}

func total(list []sum) (t sum) {
	for _, s := range list {
		t.add(s)
	}
	return t
}

// shown writes the figures for people.
func (s sum) shown() ui.Sum {
	return ui.Sum{
		Name:    s.Name,
		Calls:   ui.Count(s.Calls),
		Input:   ui.Count(s.Input),
		Output:  ui.Count(s.Output),
		Revenue: ui.Dollars(s.Revenue),
		Cost:    ui.Dollars(s.Cost),
		Margin:  ui.Dollars(s.Margin),
	}
}

func shownSums(caption, of string, list []sum) ui.Sums {
	t := ui.Sums{Caption: caption, Of: of}
	for _, s := range list {
		t.List = append(t.List, s.shown())
	}
	return t
}
