package console

import (
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages.
type Handler struct {
	DB       *db.DB
	Ledger   *store.Writer
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Apps     *apps.Store
	Features *features.Store
	Sandbox  *sandbox.Store
	Keys     *providerkeys.Store
	Webhooks *webhooks.Store
	GoLive   *golive.Store
	Tokens   *oauth.Store
	Catalog  *catalog.Source
	Voice    *voice.Supervisor
	Now      func() time.Time
	API      http.Handler // this node, for the calls of the playground
	BaseURL  string       // where apps reach the API
	AuthURL  string       // where browsers reach consent
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /developer", h.Sessions.Require(h.front))

	rt.HandlePage("GET /developer/apps/new", h.developer(h.newApp))
	rt.HandlePage("POST /developer/apps", h.developer(h.createApp))
	rt.HandlePage("GET /developer/test-accounts", h.developer(h.testAccounts))
	rt.HandlePage("POST /developer/test-accounts", h.developer(h.createTestAccount))
	rt.HandlePage("POST /developer/test-accounts/{account}/fund", h.developer(h.fundTestAccount))
	rt.HandlePage("POST /developer/test-accounts/{account}/delete", h.developer(h.deleteTestAccount))
	rt.HandlePage("GET /developer/keys", h.developer(h.keys))
	rt.HandlePage("POST /developer/keys", h.developer(h.putKey))
	rt.HandlePage("POST /developer/keys/{provider}/delete", h.developer(h.deleteKey))

	const app = "/developer/apps/{id}"
	rt.HandlePage("GET "+app, h.app(h.overview))
	rt.HandlePage("GET "+app+"/live", h.app(h.live))
	rt.HandlePage("GET "+app+"/settings", h.app(h.settings))
	rt.HandlePage("POST "+app+"/settings", h.app(h.saveSettings))
	rt.HandlePage("POST "+app+"/logo", h.app(h.setLogo))
	rt.HandlePage("POST "+app+"/logo/delete", h.app(h.removeLogo))
	rt.HandlePage("POST "+app+"/secret", h.app(h.replaceSecret))
	rt.HandlePage("POST "+app+"/switch", h.app(h.switchApp))
	rt.HandlePage("GET "+app+"/features", h.app(h.features))
	rt.HandlePage("POST "+app+"/features", h.app(h.createFeature))
	rt.HandlePage("GET "+app+"/features/{slug}", h.app(h.feature))
	rt.HandlePage("POST "+app+"/features/{slug}", h.app(h.saveFeature))
	rt.HandlePage("GET "+app+"/webhooks", h.app(h.hooks))
	rt.HandlePage("POST "+app+"/webhooks", h.app(h.createHook))
	rt.HandlePage("GET "+app+"/webhooks/{hook}", h.app(h.hook))
	rt.HandlePage("POST "+app+"/webhooks/{hook}", h.app(h.saveHook))
	rt.HandlePage("POST "+app+"/webhooks/{hook}/rotate", h.app(h.rotateHook))
	rt.HandlePage("POST "+app+"/webhooks/{hook}/delete", h.app(h.deleteHook))
	rt.HandlePage("POST "+app+"/webhooks/{hook}/test", h.app(h.testHook))
	rt.HandlePage("GET "+app+"/webhooks/{hook}/deliveries/{delivery}", h.app(h.delivery))
	rt.HandlePage("POST "+app+"/webhooks/{hook}/deliveries/{delivery}", h.app(h.redeliver))
	rt.HandlePage("GET "+app+"/analytics", h.app(h.analytics))
	rt.HandlePage("GET "+app+"/requests", h.app(h.requests))
	rt.HandlePage("GET "+app+"/requests/{request}", h.app(h.request))
	rt.HandlePage("GET "+app+"/go-live", h.app(h.goLive))
	rt.HandlePage("POST "+app+"/go-live", h.app(h.askGoLive))
	rt.HandlePage("GET "+app+"/playground", h.app(h.playground))
	rt.HandlePage("POST "+app+"/playground", h.app(h.play))
	rt.HandlePage("GET "+app+"/playground/voice", h.app(h.talk))
	rt.HandlePage("POST "+app+"/playground/voice", h.app(h.beginTalk))
	rt.HandlePage("GET "+app+"/voice/{session}", h.app(h.session))
	rt.HandlePage("POST "+app+"/voice/{session}/end", h.app(h.endTalk))
}

// developer sends whoever is none to the page that says how to become one.
func (h *Handler) developer(next accounts.PageHandler) web.Handler {
	return h.Sessions.Require(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if !a.Developer {
			return web.SeeOther(w, "/developer")
		}
		return next(w, r, a)
	})
}

// A visit is a developer at a page of an app that is theirs.
type visit struct {
	accounts.Account
	app apps.App
}

// app is the one place where ownership is checked: the app of the path must be
// the visitor's own.
func (h *Handler) app(next func(http.ResponseWriter, *http.Request, visit) error) web.Handler {
	return h.developer(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		app, err := h.Apps.Get(r.Context(), r.PathValue("id"))
		if errors.Is(err, sql.ErrNoRows) || err == nil && app.OwnerID != a.ID {
			return ui.NotFound()
		} else if err != nil {
			return err
		}
		return next(w, r, visit{a, app})
	})
}

// gone answers for what a store does not find.
func gone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ui.NotFound()
	}
	return err
}

// path is the address of a page of the app.
func (v visit) path(rest string) string { return "/developer/apps/" + v.app.ID + rest }

// page begins a page of the app; at is the tab that it belongs to.
func (v visit) page(r *http.Request, heading, at string) ui.Console {
	p := ui.Console{Shell: v.Shell(ui.Development), Heading: heading, App: head(v.app), Done: done(r)}
	for _, t := range []struct{ rest, text string }{
		{"", "Overview"}, {"/analytics", "Analytics"}, {"/requests", "Requests"}, {"/features", "Features"},
		{"/webhooks", "Webhooks"},
		{"/playground", "Playground"}, {"/settings", "Settings"}, {"/go-live", "Go live"},
	} {
		p.Tabs = append(p.Tabs, ui.Tab{Href: v.path(t.rest), Text: t.text, Current: t.rest == at})
	}
	return p
}

// own begins a page about the developer.
func own(r *http.Request, a accounts.Account, heading, at string) ui.Console {
	p := ui.Console{Shell: a.Shell(ui.Development), Heading: heading, Done: done(r)}
	for _, t := range []struct{ href, text string }{
		{"/developer", "Apps"}, {"/developer/test-accounts", "Test accounts"}, {"/developer/keys", "Provider keys"},
	} {
		p.Tabs = append(p.Tabs, ui.Tab{Href: t.href, Text: t.text, Current: t.href == at})
	}
	return p
}

// dones are what the address after a redirect may say was done: a link from
// elsewhere can choose among these words, and put none of its own on the page.
var dones = map[string]string{
	"saved":   "Saved.",
	"logo":    "Logo saved.",
	"no-logo": "Logo removed.",
	"on":      "The app is enabled.",
	"off":     "The app is disabled. Its calls are refused.",
	"feature": "Feature added.",
	"funded":  "Test money added.",
	"deleted": "Deleted.",
	"key":     "Key verified and saved.",
	"sent":    "Test event sent. Reload the page to see the result.",
	"again":   "Redelivery started. Reload the page to see the result.",
	"asked":   "Your request was submitted.",
}

func done(r *http.Request) string { return dones[r.URL.Query().Get("done")] }

func head(a apps.App) *ui.ConsoleApp {
	c := &ui.ConsoleApp{ID: a.ID, Name: a.Name, Logo: a.LogoPath(), Tier: a.Tier, Mode: a.ProviderMode}
	switch {
	case a.Suspension != nil:
		c.Off = "The service suspended this app: " + sentence(a.Suspension.Reason)
	case a.SwitchedOff:
		c.Off = "You disabled this app. You can enable it in its settings."
	}
	return c
}

// short is date in a table, under a heading that says UTC.
func short(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan, 15:04:05") }
