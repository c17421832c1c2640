package server

import (
	"net/http"
	"strings"

	"github.com/purserhq/purser/api"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/connections"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/pages/console"
	"github.com/purserhq/purser/internal/pages/dashboard"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/topups"
)

// Mount is the whole program in one list.
func (s *Server) Mount(home ui.Home) {
	c := s.Config
	s.Router = web.NewRouter(s.log, web.Links{Dashboard: c.DashboardURL})
	s.Router.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(s.Accounts, strings.HasPrefix(c.AuthURL, "https://"))

	ui.Mount(s.Router)
	(&accounts.Handler{
		Store:    s.Accounts,
		Sessions: sessions,
		Home:     home,
		Provider: c.OIDC.Name,
		Passkeys: s.party.PageData(),
	}).Mount(s.Router)
	(&oauth.Handler{
		Store:        s.Tokens,
		Accounts:     s.Accounts,
		Sandbox:      s.sandbox,
		Sessions:     sessions,
		Apps:         s.Apps,
		Features:     s.Features,
		Catalog:      s.catalog,
		FeeRate:      c.FeeRate,
		Kept:         c.Providers["openai"].Store,
		AuthURL:      c.AuthURL,
		BaseURL:      c.BaseURL,
		DashboardURL: c.DashboardURL,
	}).Mount(s.Router)
	(&identity.Handler{
		Store:    s.identity,
		Accounts: s.Accounts,
		Sessions: sessions,
		Provider: identity.NewOpenIDClient(c.OIDC, s.DB.Now, c.AuthURL, c.DashboardURL),
	}).Mount(s.Router)
	(&privacy.Handler{Store: &privacy.Store{
		DB:       s.DB,
		Accounts: s.Accounts,
		Sessions: sessions,
		Identity: s.identity,
		Apps:     s.Apps,
		Sandbox:  s.sandbox,
		Keys:     s.keys,
		Topups:   s.topups,
		Webhooks: s.webhooks,
		Ledger:   s.Ledger,
		Now:      s.DB.Now,
	}}).Mount(s.Router)
	(&notices.Handler{Accounts: s.Accounts, Sessions: sessions, Stops: s.notices.Stops}).Mount(s.Router)
	(&topups.Handler{Store: s.topups, Sessions: sessions}).Mount(s.Router)
	(&dashboard.Handler{
		DB:       s.DB,
		Ledger:   s.Ledger,
		Apps:     s.Apps,
		Accounts: s.Accounts,
		Sessions: sessions,
		Voice:    s.voice.Store,
	}).Mount(s.Router)
	(&console.Handler{
		DB:       s.DB,
		Ledger:   s.Ledger,
		Sessions: sessions,
		Apps:     s.Apps,
		Features: s.Features,
		Sandbox:  s.sandbox,
		Keys:     s.keys,
		Webhooks: s.webhooks,
		GoLive:   s.golive,
		Tokens:   s.Tokens,
		Catalog:  s.catalog,
		Voice:    s.voice,
		Now:      s.DB.Now,
		API:      s.Router,
		BaseURL:  c.BaseURL,
		AuthURL:  c.AuthURL,
	}).Mount(s.Router)
	(&catalog.Handler{Catalog: s.catalog, Now: s.DB.Now}).Mount(s.Router)
	s.callers.Mount(s.Router)
	s.inference.Mount(s.Router)
	(&receipts.Handler{DB: s.DB, Apps: s.Apps, Callers: s.callers}).Mount(s.Router)
	(&voice.Handler{
		Supervisor:  s.voice,
		Callers:     s.callers,
		Catalog:     s.catalog,
		Policy:      s.policy,
		IdleTimeout: c.VoiceIdleTimeout,
		PublicURL:   c.BaseURL,
		Now:         s.DB.Now,
	}).Mount(s.Router)
	(&connections.Handler{
		DB:     s.DB,
		Apps:   s.Apps,
		Ledger: s.Ledger,
		Links:  web.Links{Dashboard: c.DashboardURL},
	}).Mount(s.Router)
	(&apps.Handler{Store: s.Apps, Offered: s.offered}).Mount(s.Router)
	(&golive.Handler{Store: s.golive, Apps: s.Apps}).Mount(s.Router)
	(&features.Handler{Store: s.Features, Apps: s.Apps}).Mount(s.Router)
	(&webhooks.Handler{Store: s.webhooks, Apps: s.Apps}).Mount(s.Router)
	(&sandbox.Handler{Store: s.sandbox, Apps: s.Apps}).Mount(s.Router)
	(&providerkeys.Handler{Store: s.keys, Apps: s.Apps}).Mount(s.Router)
	(&operator.Handler{Service: s.desk, Token: c.OperatorToken}).Mount(s.Router)
	(&operatorpages.Handler{
		DB:        s.DB,
		Service:   s.desk,
		Accounts:  s.Accounts,
		Sessions:  sessions,
		Catalog:   s.catalog,
		Estimates: s.estimates,
		Metrics:   s.metrics,
		Free:      c.FreeCredit,
		MFA:       secondFactor(home.Dev),
	}).Mount(s.Router)
	s.Router.Handle("GET /openapi.yaml", openapi)
	s.Router.Handle("GET /healthz", healthy)
	s.Router.Handle("GET /readyz", s.ready)
}

// secondFactor says whether a session of an operator proved a second factor. In
// development none is asked for.
func secondFactor(dev bool) func(*http.Request) bool {
	if dev {
		return nil
	}
	return accounts.HasMFA
}

func openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, err := w.Write(api.Spec)
	return web.AlreadyReported(err)
}

func healthy(w http.ResponseWriter, _ *http.Request) error {
	return web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready says whether this node can do work: its database answers.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	var one int
	if err := s.DB.QueryRowContext(r.Context(), `SELECT 1`).Scan(&one); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}
