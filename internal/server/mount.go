package server

import (
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/connections"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/feed"
	"github.com/purserhq/purser/internal/gateway/holds"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/pages/console"
	"github.com/purserhq/purser/internal/pages/dashboard"
	"github.com/purserhq/purser/internal/pages/docs"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/pages/palette"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/topups"
)

// Mount adds every handler to the router, layer by layer. home is the start page.
func (s *Server) Mount(home ui.Home) {
	c := s.Config
	s.Router = web.NewRouter(s.log, linksOf(c))
	s.Router.SetPageError(ui.RenderError)
	site := c.Site
	site.TestPayments = !home.Dev && c.StripeMode() == config.StripeTest
	s.Router.SetSite(site)
	if c.Drill && !c.DrillWrites {
		s.Router.SetReadOnly("This is a drill on a restored copy: it changes nothing. To try changes, start it with " +
			"--drill-writes.")
	}
	s.Router.SetClock(s.DB.Now)
	s.Router.SetTracer(s.telemetry.Tracer())
	s.Router.SetLogSample(int64(c.LogSample))
	s.Router.SetPageHome(pageHome(c))
	s.Router.SetFormOrigins(signInOrigins(c)...)
	if strings.HasPrefix(c.BaseURL, "https://") {
		s.Router.SetSecure()
	}
	sessions := s.sessions

	ui.Mount(s.Router)
	s.mountPeople(home, sessions)
	s.mountOAuth(sessions)
	s.mountApps()
	s.mountGateway()
	s.mountPages(sessions)
	s.mountOperator(home, sessions)
	s.mountDocs(sessions)
	s.status.Mount(s.Router)
	s.Router.Handle("GET /healthz", serveHealth)
	s.Router.Handle("GET /readyz", s.serveReadiness)
}

// mountPeople mounts sign-in, identity providers, top-ups and privacy.
func (s *Server) mountPeople(home ui.Home, sessions *accounts.Sessions) {
	c := s.Config
	openID := c.OIDC
	if c.Drill { // reaches nothing outside
		openID = identity.OpenIDConfig{}
	}
	(&accounts.Handler{
		Store:    s.Accounts,
		Sessions: sessions,
		Home:     home,
		Prices:   func() []ui.PriceRow { return docs.ExamplePrices(s.modelList()) },
		Provider: openID.Name,
		Passkeys: s.passkeyParty.PageData(),
		Origins:  signInOrigins(c),
	}).Mount(s.Router)
	provider := identity.NewOpenIDClient(openID, s.DB.Now, c.AuthURL, c.DashboardURL)
	if provider != nil {
		provider.RaiseAlarm = s.metrics.RaiseAlarm
	}
	(&identity.Handler{
		Store:    s.identity,
		Accounts: s.Accounts,
		Sessions: sessions,
		Provider: provider,
		NoMail:   s.sender != nil && c.SMTP.Host == "",
	}).Mount(s.Router)
	(&topups.Handler{Store: s.topups, Accounts: s.Accounts, Sessions: sessions}).Mount(s.Router)
	(&privacy.Handler{Store: s.privacy}).Mount(s.Router)
}

// mountOAuth mounts the authorization server with its consent screen.
func (s *Server) mountOAuth(sessions *accounts.Sessions) {
	c := s.Config
	(&oauth.Handler{
		Store:        s.Tokens,
		Accounts:     s.Accounts,
		Sandbox:      s.sandbox,
		Sessions:     sessions,
		Apps:         s.Apps,
		Features:     s.Features,
		Catalog:      s.catalog,
		FeeRate:      s.feeRate,
		Kept:         c.Providers["openai"].Store,
		AuthURL:      c.AuthURL,
		BaseURL:      c.BaseURL,
		DashboardURL: c.DashboardURL,
	}).Mount(s.Router)
}

// mountApps mounts the API that apps and their developers manage apps by.
func (s *Server) mountApps() {
	(&connections.Handler{
		DB:     s.DB,
		Apps:   s.Apps,
		Ledger: s.Ledger,
		Links:  linksOf(s.Config),
	}).Mount(s.Router)
	(&apps.Handler{Store: s.Apps, Offered: s.isModelOffered}).Mount(s.Router)
	(&usage.Handler{DB: s.DB, Apps: s.Apps, Now: s.DB.Now}).Mount(s.Router)
	(&golive.Handler{Store: s.golive, Apps: s.Apps}).Mount(s.Router)
	(&features.Handler{Store: s.Features, Apps: s.Apps}).Mount(s.Router)
	(&webhooks.Handler{Store: s.webhooks, Apps: s.Apps}).Mount(s.Router)
	(&sandbox.Handler{Store: s.sandbox, Apps: s.Apps}).Mount(s.Router)
	(&providerkeys.Handler{Store: s.keys, Apps: s.Apps}).Mount(s.Router)
}

// mountGateway mounts the API of calls: models, inference, receipts and voice.
func (s *Server) mountGateway() {
	s.modelList().Mount(s.Router)
	s.callers.Mount(s.Router)
	(&feed.Handler{Hub: s.feed, Callers: s.callers}).Mount(s.Router)
	s.inference.Mount(s.Router)
	(&proofs.Handler{Log: s.proofs, BaseURL: s.Config.BaseURL, Witnesses: s.Config.Witnesses}).Mount(s.Router)
	(&receipts.Handler{
		DB:      s.DB,
		Apps:    s.Apps,
		Callers: s.callers,
		Catalog: s.catalog,
		Refunds: s.refunder(),
		Log:     s.proofs,
	}).Mount(s.Router)
	s.children.Mount(s.Router)
	(&holds.Handler{
		DB:       s.DB,
		Ledger:   s.Ledger,
		NodeID:   s.node.ID,
		Apps:     s.Apps,
		Tokens:   s.Tokens,
		Callers:  s.callers,
		Policies: s.policies,
		FreeRate: s.freeRate,
		Rate:     holds.NewRate(s.DB.Now),
	}).Mount(s.Router)
	(&voice.Handler{
		Supervisor:  s.voice,
		Tokens:      s.Tokens,
		Callers:     s.callers,
		Catalog:     s.catalog,
		Policies:    s.policies,
		IdleTimeout: s.Config.VoiceIdleTimeout,
		PublicURL:   s.Config.BaseURL,
		Now:         s.DB.Now,
	}).Mount(s.Router)
}

// mountPages mounts the pages of users and developers.
func (s *Server) mountPages(sessions *accounts.Sessions) {
	c := s.Config
	(&notices.Handler{Accounts: s.Accounts, Sessions: sessions, Stops: s.notices.Stops}).Mount(s.Router)
	(&dashboard.Handler{
		DB:       s.DB,
		Ledger:   s.Ledger,
		Log:      s.proofs,
		Apps:     s.Apps,
		Accounts: s.Accounts,
		Sessions: sessions,
		Voice:    s.voice,
		Calls:    s.inference,
		TopUps:   s.topups,
		Policies: s.policies,
		Catalog:  s.catalog,
	}).Mount(s.Router)
	(&palette.Handler{
		DB:       s.DB,
		Apps:     s.Apps,
		Accounts: s.Accounts,
		Webhooks: s.webhooks,
		Sessions: sessions,
	}).Mount(s.Router)
	(&console.Handler{
		DB:       s.DB,
		Accounts: s.Accounts,
		Sessions: sessions,
		Apps:     s.Apps,
		Features: s.Features,
		Sandbox:  s.sandbox,
		Keys:     s.keys,
		Webhooks: s.webhooks,
		Domains:  s.domains,
		GoLive:   s.golive,
		Members:  s.members,
		Payouts:  s.payouts,
		Tokens:   s.Tokens,
		Catalog:  s.catalog,
		Voice:    s.voice,
		Calls:    s.inference,
		Refunds:  s.refunder(),
		Now:      s.DB.Now,
		API:      s.Router,
		BaseURL:  c.BaseURL,
		AuthURL:  c.AuthURL,
	}).Mount(s.Router)
}

// refunder refunds calls for their apps.
func (s *Server) refunder() *receipts.Refunder {
	return &receipts.Refunder{DB: s.DB, Ledger: s.Ledger, Now: s.DB.Now}
}

// modelList lists the models that this installation can call.
func (s *Server) modelList() *catalog.Handler {
	return &catalog.Handler{Catalog: s.catalog, Now: s.DB.Now, Providers: s.listedProviders}
}

// mountDocs mounts the documentation for developers.
func (s *Server) mountDocs(sessions *accounts.Sessions) {
	c := s.Config
	(&docs.Handler{
		DB:           s.DB,
		Sessions:     sessions,
		Sandbox:      s.sandbox,
		Tokens:       s.Tokens,
		Models:       s.modelList(),
		FeeRate:      s.feeRate,
		BaseURL:      c.BaseURL,
		AuthURL:      c.AuthURL,
		DashboardURL: c.DashboardURL,
	}).Mount(s.Router)
}

// mountOperator mounts the operator's API and pages.
func (s *Server) mountOperator(home ui.Home, sessions *accounts.Sessions) {
	(&operator.Handler{Service: s.operators, Tokens: s.Config.OperatorTokens}).Mount(s.Router)
	(&operatorpages.Handler{
		DB:        s.DB,
		Service:   s.operators,
		Accounts:  s.Accounts,
		Sessions:  sessions,
		Catalog:   s.catalog,
		Estimates: s.estimates,
		Pools:     s.pools,
		Metrics:   s.metrics,
		Status:    s.status,
		MFA:       secondFactorCheck(home.Dev),
	}).Mount(s.Router)
}

// secondFactorCheck says whether a session of an operator proved a second factor. In
// development none is asked for.
func secondFactorCheck(dev bool) func(*http.Request) bool {
	if dev {
		return nil
	}
	return accounts.HasMFA
}

func serveHealth(w http.ResponseWriter, _ *http.Request) error {
	return web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
