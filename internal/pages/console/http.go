package console

import (
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/domains"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages.
type Handler struct {
	DB       *db.DB
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Apps     *apps.Store
	Features *features.Store
	Sandbox  *sandbox.Store
	Keys     *providerkeys.Store
	Webhooks *webhooks.Store
	Domains  *domains.Checker
	GoLive   *golive.Store
	Members  *members.Store
	Payouts  *payouts.Store
	Tokens   *oauth.Store
	Catalog  *catalog.Source
	Voice    *voice.Supervisor
	Calls    *inference.Handler // which the playground stops
	Refunds  *receipts.Refunder
	Now      func() time.Time
	API      http.Handler // this node's API, which the playground calls
	BaseURL  string       // of the API, for apps
	AuthURL  string       // of the consent screen, for browsers
}

// appPath is the address of an app's pages.
const appPath = "/developer/apps/{id}"

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	access := access{h.Sessions, h.Apps}
	offer, identity := modelOffer{h.Catalog, h.Now}, identityCheck{h.Accounts}
	playground := playgroundPages{
		DB:         h.DB,
		Features:   h.Features,
		Sandbox:    h.Sandbox,
		Tokens:     h.Tokens,
		Calls:      h.Calls,
		API:        h.API,
		BaseURL:    h.BaseURL,
		modelOffer: offer,
	}
	appPages{
		DB:         h.DB,
		Apps:       h.Apps,
		Features:   h.Features,
		GoLive:     h.GoLive,
		Webhooks:   h.Webhooks,
		Voice:      h.Voice,
		BaseURL:    h.BaseURL,
		AuthURL:    h.AuthURL,
		modelOffer: offer,
	}.mount(rt, access)
	settingsPages{h.Apps, h.Domains, web.NewLimiter(10*time.Second, 10, h.Now), identity, offer}.mount(rt, access)
	featurePages{h.Apps, h.Features, offer}.mount(rt, access)
	endpointPages{h.Webhooks, h.Now, identity}.mount(rt, access)
	analyticsPages{h.DB, h.Tokens, h.Now}.mount(rt, access)
	requestPages{
		DB:       h.DB,
		Features: h.Features,
		Catalog:  h.Catalog,
		Webhooks: h.Webhooks,
		Refunds:  h.Refunds,
		Now:      h.Now,
	}.mount(rt, access)
	goLivePages{h.GoLive}.mount(rt, access)
	playground.mount(rt, access)
	voicePages{playground, h.Voice}.mount(rt, access)
	keyPages{h.Keys}.mount(rt, access)
	testAccountPages{h.Sandbox}.mount(rt, access)
	payoutPages{h.Accounts, h.Payouts}.mount(rt, access)
	memberPages{h.Members, identity, offer}.mount(rt, access)
	invitationPages{h.Sessions, h.Apps, h.Members, strings.HasPrefix(h.AuthURL, "https://")}.mount(rt)
}

// A modelOffer is the models that can be called now.
type modelOffer struct {
	Catalog *catalog.Source
	Now     func() time.Time
}

// isOffered reports whether a model can be called now.
func (o modelOffer) isOffered(model string) bool {
	_, _, ok := o.Catalog.Current().Find(model, o.Now())
	return ok
}

// access decides which pages a browser may see.
type access struct {
	Sessions *accounts.Sessions
	Apps     *apps.Store
}

// requireDeveloper serves next to developers, and sends other users to the page that enables developer tools.
func (g access) requireDeveloper(next accounts.PageHandler) web.Handler {
	return g.Sessions.Require(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if !a.Developer {
			return web.SeeOther(w, "/developer")
		}
		return next(w, r, a)
	})
}

// inTurn serves a heavy page of an app, as Sessions.InTurn.
func (g access) inTurn(
	next func(http.ResponseWriter, *http.Request, visit) error,
) func(http.ResponseWriter, *http.Request, visit) error {
	return func(w http.ResponseWriter, r *http.Request, v visit) error {
		return g.Sessions.InTurn(func(w http.ResponseWriter, r *http.Request, _ accounts.Account) error {
			return next(w, r, v)
		})(w, r, v.Account)
	}
}

// A visit is the request of a member of an app for one of its pages.
type visit struct {
	accounts.Account
	app  apps.App
	role apps.Role         // of the account in the app
	all  []apps.Membership // of the account, newest first
}

// can reports whether the member's role allows an action.
func (v visit) can(a apps.Action) bool { return apps.Allows(v.role, a) }

// requireApp serves next to the members of the app of the path whose role allows the action. Others do not learn
// whether the app exists. No other code of the console checks who may do what with an app.
func (g access) requireApp(action apps.Action, next func(http.ResponseWriter, *http.Request, visit) error) web.Handler {
	return g.requireDeveloper(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		m, err := g.Apps.GetMembership(r.Context(), r.PathValue("id"), a.ID)
		if err != nil {
			return notFound(err)
		}
		all, err := g.Apps.ListMemberships(r.Context(), a.ID)
		if err != nil {
			return err
		}
		v := visit{a, m.App, m.Role, all}
		if !v.can(action) {
			return ui.Render(w, http.StatusForbidden, ui.Forbidden{
				Console: v.newPage(r, "Your role doesn’t allow this", ""),
				Text:    describeMissingRole(action),
				Back:    ui.Link{Href: v.path(""), Text: "Back to the app"},
			})
		}
		return next(w, r, v)
	})
}

// describeMissingRole says which roles allow an action, to a member whose role does not.
func describeMissingRole(a apps.Action) string {
	who := "Only owners and developers"
	if !apps.Allows(apps.Developer, a) {
		who = "Only owners"
	}
	return who + " can " + actionTexts[a] + "."
}

// actionTexts name the actions that some members may not do.
var actionTexts = map[apps.Action]string{
	apps.RunCalls:      "use the playground, because it spends test money",
	apps.Configure:     "change settings, features and webhook endpoints",
	apps.ManageSecret:  "replace the client secret and change where the app runs",
	apps.Disable:       "disable and enable the app",
	apps.RequestReview: "request a review",
	apps.ManageMembers: "invite, change and remove members",
	apps.RefundCalls:   "refund calls, because it spends the developer’s money",
}

// explain returns why a part of a page is not shown to a member, or "" if the role allows the action.
func (v visit) explain(a apps.Action) string {
	if v.can(a) {
		return ""
	}
	return describeMissingRole(a)
}

// notFound turns sql.ErrNoRows into 404; it returns other errors as they are.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ui.NotFound()
	}
	return err
}

// path returns the address of a page of the app.
func (v visit) path(rest string) string { return "/developer/apps/" + v.app.ID + rest }

// maxSwitch is the number of other apps that the navigation offers. The page of all apps has the rest.
const maxSwitch = 12

// newPage returns the frame of a page of the app; tab is the path of its tab.
func (v visit) newPage(r *http.Request, heading, tab string) ui.Console {
	p := ui.Console{Shell: v.Shell(ui.Development), Heading: heading, App: appHeader(v.app), Done: doneText(r)}
	for _, m := range v.all {
		if m.ID != v.app.ID && len(p.Others) < maxSwitch {
			p.Others = append(p.Others, *appHeader(m.App))
		}
	}
	for _, t := range []struct {
		rest, text string
		action     apps.Action
	}{
		{"", "Overview", apps.View}, {"/analytics", "Analytics", apps.View}, {"/requests", "Requests", apps.View},
		{"/features", "Features", apps.View}, {"/webhooks", "Webhooks", apps.View},
		{"/playground", "Playground", apps.RunCalls}, {"/settings", "Settings", apps.Configure},
		{"/members", "Members", apps.View}, {"/go-live", "Go live", apps.View},
	} {
		if v.can(t.action) {
			p.Tabs = append(p.Tabs, ui.Tab{Href: v.path(t.rest), Text: t.text, Current: t.rest == tab})
		}
	}
	return p
}

// newDeveloperPage returns the frame of a page that belongs to no app; tab is the path of its tab.
func newDeveloperPage(r *http.Request, a accounts.Account, heading, tab string) ui.Console {
	p := ui.Console{Shell: a.Shell(ui.Development), Heading: heading, Done: doneText(r)}
	for _, t := range []struct{ href, text string }{
		{"/developer", "Apps"}, {"/developer/test-accounts", "Test accounts"}, {"/developer/keys", "Provider keys"},
		{payouts.Page, "Payouts"},
	} {
		p.Tabs = append(p.Tabs, ui.Tab{Href: t.href, Text: t.text, Current: t.href == tab})
	}
	return p
}

// doneTexts are the messages after an action, by the value of the redirect's query member done. A link from another
// site can only choose among them.
var doneTexts = map[string]string{
	"saved":          "Saved.",
	"logo":           "Logo saved.",
	"no-logo":        "Logo removed.",
	"profile":        "Saved.",
	"domain":         "Your domain is verified.",
	"on":             "The app is enabled.",
	"off":            "The app is disabled. Its calls are refused.",
	"feature":        "Feature added.",
	"funded":         "Test money added.",
	"deleted":        "Deleted.",
	"key":            "Key verified and saved.",
	"sent":           "Sample sent.",
	"again":          "Redelivery started.",
	"recovered":      "Recovery started.",
	"recovered-part": "Recovery started with the oldest 1,000. Press Recover again for the rest.",
	"recovered-none": "There was nothing to recover.",
	"asked":          "Your request was submitted.",
	"invited":        "Invitation sent.",
	"revoked":        "Invitation revoked.",
	"role":           "Role changed.",
	"removed":        "Member removed.",
	"joined":         "You’re a member of this app now.",
}

func doneText(r *http.Request) string { return doneTexts[r.URL.Query().Get("done")] }

func appHeader(a apps.App) *ui.ConsoleApp {
	c := &ui.ConsoleApp{ID: a.ID, Name: a.Name, Logo: a.LogoPath(), Tier: a.Tier, Mode: a.ProviderMode}
	switch {
	case a.Suspension != nil:
		c.Off = "The service suspended this app: " + ui.Sentence(a.Suspension.Reason)
	case a.SwitchedOff:
		c.Off = "You disabled this app. You can enable it in its settings."
	}
	return c
}

// formatTime returns a time in UTC, without year and zone, for a column whose heading says UTC.
func formatTime(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan, 15:04:05") }
