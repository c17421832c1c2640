package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxApps is the most apps that a developer may have.
const maxApps = 100

// overviewDays is the number of days that overviews cover.
const overviewDays = 30

// appPages list, create and show apps.
type appPages struct {
	DB       *db.DB
	Apps     *apps.Store
	Features *features.Store
	GoLive   *golive.Store
	Webhooks *webhooks.Store
	Voice    *voice.Supervisor
	BaseURL  string
	AuthURL  string
	modelOffer
}

func (h appPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET /developer", access.Sessions.Require(h.showApps))
	rt.HandlePage("GET /developer/apps/new", access.requireDeveloper(h.showNewApp))
	rt.HandlePage("POST /developer/apps", access.requireDeveloper(h.createApp))
	rt.HandlePage("GET "+appPath, access.requireApp(apps.View, h.showApp))
	rt.HandlePage("GET "+appPath+"/live", access.requireApp(apps.View, h.showLive))
}

// showApps is GET /developer.
func (h appPages) showApps(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if !a.Developer {
		return ui.Render(w, http.StatusOK,
			ui.Enable{
				Console:     ui.Console{Shell: a.Shell(ui.Development), Heading: "Developer console"},
				TestAccount: a.Sandbox,
			})
	}
	list, err := h.Apps.ListMemberships(r.Context(), a.ID)
	if err != nil {
		return err
	}
	first := firstDay(h.Now(), overviewDays)
	figures, err := sumByApp(r.Context(), h.DB, list, first)
	if err != nil {
		return err
	}
	page := ui.Developer{Console: newDeveloperPage(r, a, "Your apps", "/developer")}
	for _, app := range list {
		days := figures[app.ID]
		line := ui.AppLine{
			ConsoleApp: *appHeader(app.App),
			Sum:        sumDays(days).format(),
			Role:       string(app.Role),
		}
		for i := range overviewDays {
			line.Days = append(line.Days, int64(days[formatDay(first.AddDate(0, 0, i))].Revenue))
		}
		page.Apps = append(page.Apps, line)
	}
	return ui.Render(w, http.StatusOK, page)
}

// clientFields returns the fields that a new app and its settings share, with the values of a.
func clientFields(a apps.App) []ui.Field {
	return []ui.Field{
		{ID: "name", Label: "Name", Value: a.Name, Hint: "Shown to users on the consent screen."},
		{
			ID:    "redirect_uris",
			Label: "Redirect URLs",
			Kind:  "area",
			Value: strings.Join(a.RedirectURIs, "\n"),
			Hint:  "One per line. Must match exactly. On users’ devices, http://127.0.0.1/… matches with any port.",
		},
	}
}

// How pages name the client types, and what they mean for the secret.
const (
	onServer   = "On your server"
	onDevices  = "On users’ devices (command line, desktop)"
	aboutTypes = "An app on users’ devices can’t keep a secret: it signs in with its client id alone, and the " +
		"consent screen says so."
)

// describeClientType names a client type.
func describeClientType(clientType string) string {
	if clientType == apps.Public {
		return onDevices
	}
	return onServer
}

// clientTypeField is the choice of a new app. That of an app that exists has a page of its own, for owners.
func clientTypeField() ui.Field {
	return ui.Field{
		ID:    "client_type",
		Label: "Where it runs",
		Kind:  "select",
		Value: apps.Confidential,
		Hint:  aboutTypes,
		Options: []ui.Option{
			{ID: apps.Confidential, Text: onServer, Chosen: true},
			{ID: apps.Public, Text: onDevices},
		},
	}
}

func newAppPage(r *http.Request, a accounts.Account) ui.FormPage {
	return ui.FormPage{
		Console: newDeveloperPage(r, a, "Create app", "/developer"),
		Lead:    "It starts in the sandbox, with a mock provider and test money.",
		Action:  "/developer/apps",
		Button:  "Create app",
		Fields:  slices.Insert(clientFields(apps.App{}), 1, clientTypeField()),
		Back:    ui.Link{Href: "/developer", Text: "Cancel"},
	}
}

// showNewApp is GET /developer/apps/new.
func (h appPages) showNewApp(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, newAppPage(r, a))
}

// createApp is POST /developer/apps. It does not redirect: only its response shows the secret.
func (h appPages) createApp(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	var app apps.App
	var secret string
	maxTokens := int64(apps.SuggestedMaxTokens)
	err = h.DB.InTx(r.Context(), func(ctx context.Context, tx *db.Tx) error {
		owner, err := accounts.Lock(ctx, tx, a.ID) // two requests must not count at the same time
		if err != nil {
			return err
		}
		if owner.Deactivated {
			return apierr.InvalidRequest.Errorf("your account was closed or suspended in the meantime")
		}
		list, err := apps.ListOwned(ctx, tx, a.ID)
		if err != nil {
			return err
		}
		if len(list) >= maxApps {
			return apierr.InvalidRequest.Errorf("a developer has at most %d apps", maxApps)
		}
		app, secret, err = h.Apps.Create(ctx, tx, apps.New{
			OwnerID:          a.ID,
			Name:             strings.TrimSpace(form.Get("name")),
			ClientType:       form.Get("client_type"),
			RedirectURIs:     splitLines(form.Get("redirect_uris")),
			DefaultMaxTokens: &maxTokens,
		})
		return err
	})
	if err != nil {
		page := newAppPage(r, a)
		if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
			return err
		}
		page.Fields = withErrors(withValues(page.Fields, form), page.Errors)
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	v := visit{Account: a, app: app, role: apps.Owner}
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: v.newPage(r, "Your app is ready", ""),
		Lead:    "You won’t see the client secret again." + secretNote(app),
		Facts:   []ui.Fact{{Name: "Client id", Value: app.ClientID}, {Name: "Client secret", Value: secret}},
		Next:    ui.Link{Href: v.path(""), Text: "Continue"},
	})
}

// secretNote says what the secret of a public client is for.
func secretNote(a apps.App) string {
	if a.ClientType != apps.Public {
		return ""
	}
	return " It is for your own calls of the management API. Never ship it with the app."
}

// describeMode describes the provider mode of an app.
func describeMode(a apps.App) string {
	if a.ProviderMode == apps.Mock {
		return "Mock (free, canned answers)"
	}
	return "Live (the models’ providers)"
}

// describeModels names the models that an app may call.
func describeModels(a apps.App) string {
	if len(a.AllowedModels) == 0 {
		return "All models"
	}
	return strings.Join(a.AllowedModels, ", ")
}

// firstModel returns a model that the app may call, for the examples.
func (h appPages) firstModel(a apps.App) string {
	if len(a.AllowedModels) > 0 {
		return a.AllowedModels[0]
	}
	if offered := h.Catalog.Current().Offered(h.Now()); len(offered) > 0 {
		return offered[0].ID
	}
	return "MODEL"
}

func sumDays(days map[string]callSum) (t callSum) {
	for _, s := range days {
		t.add(s)
	}
	return t
}

func sumAll(list []callSum) (t callSum) {
	for _, s := range list {
		t.add(s)
	}
	return t
}

// format returns the sum as text for a table.
func (s callSum) format() ui.Sum {
	out := ui.Sum{
		Name:    s.Name,
		Calls:   ui.Count(s.Calls),
		Input:   ui.Count(s.Input),
		Output:  ui.Count(s.Output),
		Revenue: ui.Total(s.Revenue),
		Cost:    ui.Total(s.Cost),
		Margin:  ui.Total(s.Margin),
	}
	if s.Cached != 0 || s.Saved != 0 {
		out.Cached, out.Saved = ui.Count(s.Cached), ui.Total(s.Saved)
	}
	return out
}

// formatSums returns a table. The amounts of each column add up to the total of all lines.
func formatSums(caption, of string, list []callSum) ui.Sums {
	t := ui.Sums{Caption: caption, Of: of}
	revenue, margin, saved := make([]money.MC, len(list)), make([]money.MC, len(list)), make([]money.MC, len(list))
	for i, s := range list {
		t.List = append(t.List, s.format())
		revenue[i], margin[i], saved[i] = s.Revenue, s.Margin, s.Saved
	}
	revenues, margins, savings := ui.SplitTotal(revenue...), ui.SplitTotal(margin...), ui.SplitTotal(saved...)
	for i := range t.List {
		t.List[i].Revenue, t.List[i].Margin = revenues[i].Text, margins[i].Text
		if t.List[i].Cached != "" {
			t.List[i].Saved, t.HasCached = savings[i].Text, true
		}
	}
	return t
}
