// Package server puts Purser together: it opens the store, builds every handler
// and job by plain assignment in one visible list, listens, and stops cleanly.
package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/api"
	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/connections"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/watch"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/mock"
	"github.com/purserhq/purser/internal/models/tokens"
	"github.com/purserhq/purser/internal/pages/console"
	"github.com/purserhq/purser/internal/pages/dashboard"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/operatorpages"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
)

// Server is one running node.
type Server struct {
	config config.Config
	log    *slog.Logger
	db     *db.DB
	ledger *ledger.Writer
	node   *ledger.Node

	accounts  *accounts.Store
	identity  *identity.Store
	party     *identity.Party
	apps      *apps.Store
	features  *features.Store
	sandbox   *sandbox.Store
	golive    *golive.Store
	watch     *watch.Watch
	desk      *operator.Desk
	keys      *providerkeys.Store
	webhooks  *webhooks.Store
	tokens    *oauth.Store
	callers   *callers.Resolver
	catalog   *catalog.Source
	estimates *estimates.Drift
	own       *ownKeys
	metrics   *metrics.Metrics
	mails     *mail.Store
	sender    *mail.Sender // nil in dev, which sends nothing
	notices   *notices.Store
	topups    *topups.Store
	monitored net.Listener // of the metrics; nil = they are not served
	inference *inference.Handler
	voice     *voice.Handler
	router    *web.Router
}

// Serve runs a node until ctx ends, then finishes what is under way.
func Serve(ctx context.Context, c config.Config, log *slog.Logger) error {
	listeners, err := listen(c)
	if err != nil {
		return err
	}
	s, err := build(ctx, c, log, false)
	if err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	if c.MetricsListen != "" {
		if s.monitored, err = net.Listen("tcp", c.MetricsListen); err != nil {
			return errors.Join(fmt.Errorf("listen: %w", err), s.db.Close(), closeAll(listeners))
		}
	}
	s.mount(ui.Home{BaseURL: c.BaseURL, AuthURL: c.AuthURL})
	log.Info("listening", "base_url", c.BaseURL, "auth_url", c.AuthURL, "dashboard_url", c.DashboardURL)
	return s.run(ctx, listeners)
}

// handler is everything that is served, for clients behind the operator's proxies.
func (s *Server) handler() http.Handler { return web.Behind(s.config.Proxies, s.router) }

// listen opens the sockets: one for everything, or a second for the pages.
func listen(c config.Config) ([]net.Listener, error) {
	var list []net.Listener
	for _, address := range []string{c.Listen, c.AuthListen} {
		if address == "" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen: %w", err), closeAll(list))
		}
		list = append(list, l)
	}
	return list, nil
}

func closeAll(list []net.Listener) (err error) {
	for _, l := range list {
		err = errors.Join(err, l.Close())
	}
	return err
}

// ballast is never touched, so it is no memory of the machine's; but the collector
// runs when the heap has doubled, and counts it as heap.
var ballast = sync.OnceValue(func() []byte { return make([]byte, 24<<20) })

// collectLater trades memory for time: a small heap would be collected ten times
// a second. With the ballast it grows by 24 MB more than it would, and no more
// than that when it is large, as a factor would have it. GOGC still wins.
func collectLater() {
	if os.Getenv("GOGC") == "" {
		ballast()
	}
}

// build opens the store and wires everything that works on it.
func build(ctx context.Context, c config.Config, log *slog.Logger, dev bool) (*Server, error) {
	collectLater()
	d, err := db.Open(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, log: log, db: d}
	if err := s.wire(ctx, dev); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return s, nil
}

func (s *Server) wire(ctx context.Context, dev bool) (err error) {
	now := s.db.Now
	if s.catalog, err = catalog.Open(s.config.Prices, s.log); err != nil {
		return err
	}
	tokens.Load()
	s.ledger = ledger.New(s.db, now)
	if s.node, err = ledger.Join(ctx, s.db, id.New(id.Node, now()), s.config.Lease, now); err != nil {
		return err
	}
	s.accounts = accounts.NewStore(s.db, now)
	s.apps = apps.NewStore(s.db, now, dev)
	s.features = features.NewStore(s.db, now, s.offered)
	s.sandbox = sandbox.NewStore(s.db, s.accounts, s.ledger, now)
	s.golive = &golive.Store{DB: s.db, Apps: s.apps, Ledger: s.ledger, Now: now}
	box, err := s.openEnvelope(ctx)
	if err != nil {
		return err
	}
	s.keys = providerkeys.NewStore(s.db, box, now, baseURLs(s.config))
	c := s.config
	s.webhooks = webhooks.NewStore(s.db, box, now, webhooks.Addresses{
		Allow: append(allowed(dev), c.WebhookAllow...), HTTP: dev, Own: []string{c.BaseURL, c.AuthURL, c.DashboardURL},
	}, web.Links{Dashboard: c.DashboardURL})
	s.tokens = &oauth.Store{DB: s.db, Ledger: s.ledger, Now: now}
	if s.estimates, err = estimates.Open(ctx, s.db, now, s.log); err != nil {
		return err
	}
	s.metrics = metrics.New(s.catalog, s.estimates)
	s.mails = &mail.Store{DB: s.db, Now: now}
	if s.party, err = identity.NewParty(c.AuthURL, c.DashboardURL); err != nil {
		return err
	}
	s.identity = identity.NewStore(s.db, s.accounts, s.mails, box, now, c.DashboardURL, s.party)
	if !dev {
		s.sender = &mail.Sender{Store: s.mails, Server: s.config.SMTP, Metrics: s.metrics, Log: s.log}
	}
	stops, err := notices.NewSigner(s.config.EnvelopeKey)
	if err != nil {
		return err
	}
	s.notices = &notices.Store{DB: s.db, Apps: s.apps, Mails: s.mails, Links: web.Links{Dashboard: s.config.DashboardURL}, Stops: stops, Log: s.log}
	s.topups = &topups.Store{DB: s.db, Ledger: s.ledger, Config: c.Stripe, DashboardURL: c.DashboardURL, Mails: s.mails, Metrics: s.metrics, Log: s.log, Now: now}
	if err := s.topups.Open(); err != nil {
		return err
	}
	live, records := s.providers()
	s.callers = callers.NewResolver(s.db, s.tokens, s.apps, s.features, now)
	s.apps.OnChange = s.callers.Forget
	s.inference = &inference.Handler{
		DB: s.db, Ledger: s.ledger, Node: s.node, Apps: s.apps, Catalog: s.catalog, Estimates: s.estimates, Metrics: s.metrics, Fee: s.config.FeeRate, Free: s.config.Free, Risk: s.config.Risk, SandboxDayMC: s.config.SandboxDayMC, Now: now, Log: s.log,
		Callers:   s.callers,
		Mock:      mock.New(tokens.Count, s.countInput, now),
		Providers: live, Records: records, Own: s.own.provider,
		Dialects: map[string]inference.Dialect{"anthropic": dialect(anthropic.Encode), "google": dialect(google.Encode)},
		Images:   images.New(images.Config{Allow: allowed(dev)}),
	}
	s.voice = &voice.Handler{
		DB: s.db, Ledger: s.ledger, Node: s.node.ID, NodeURL: c.NodeURL, Callers: s.callers, Apps: s.apps, Catalog: s.catalog, Metrics: s.metrics, Fee: c.FeeRate, Free: c.Free, Risk: c.Risk, SandboxDayMC: c.SandboxDayMC,
		Idle: c.VoiceIdle, PublicURL: c.BaseURL, BaseURL: s.address("openai"), Key: c.Providers["openai"].Key, Own: s.ownVoice, Client: &http.Client{}, Now: now, Log: s.log,
	}
	s.watch = &watch.Watch{DB: s.db, Apps: s.apps, Metrics: s.metrics, Log: s.log, Now: now}
	s.desk = &operator.Desk{DB: s.db, Accounts: s.accounts, Apps: s.apps, GoLive: s.golive, Ledger: s.ledger, Now: now}
	return nil
}

// countInput counts a request's input the way its hold does.
func (s *Server) countInput(r *provider.Request) int64 {
	m, _, _ := s.catalog.Current().Find(r.Model, s.db.Now()) // a model that just retired counts as the default family
	return tokens.CountRequest(r, m.Family)
}

// baseURLs is where providers are reached that are not at their public address.
func baseURLs(c config.Config) map[string]string {
	list := map[string]string{}
	for name, p := range c.Providers {
		list[name] = p.BaseURL
	}
	return list
}

// mount is the whole program in one list.
func (s *Server) mount(home ui.Home) {
	c := s.config
	s.router = web.NewRouter(s.log, web.Links{Dashboard: c.DashboardURL})
	s.router.SetPageError(ui.RenderError)
	sessions := accounts.NewSessions(s.accounts, strings.HasPrefix(c.AuthURL, "https://"))

	ui.Mount(s.router)
	(&accounts.Handler{Store: s.accounts, Sessions: sessions, Home: home, Provider: c.OIDC.Name, Passkeys: s.party.Offer()}).Mount(s.router)
	(&oauth.Handler{
		Store: s.tokens, Accounts: s.accounts, Sandbox: s.sandbox, Sessions: sessions, Apps: s.apps, Features: s.features, Catalog: s.catalog, FeeRate: c.FeeRate,
		Kept: c.Providers["openai"].Store, AuthURL: c.AuthURL, BaseURL: c.BaseURL, DashboardURL: c.DashboardURL,
	}).Mount(s.router)
	(&identity.Handler{
		Store: s.identity, Accounts: s.accounts, Sessions: sessions, Provider: identity.NewRelyingParty(c.OIDC, s.db.Now, c.AuthURL, c.DashboardURL),
	}).Mount(s.router)
	(&privacy.Handler{Store: &privacy.Store{
		DB: s.db, Accounts: s.accounts, Sessions: sessions, Identity: s.identity, Apps: s.apps, Sandbox: s.sandbox, Keys: s.keys, Topups: s.topups, Webhooks: s.webhooks, Ledger: s.ledger, Now: s.db.Now,
	}}).Mount(s.router)
	(&notices.Handler{Accounts: s.accounts, Sessions: sessions, Stops: s.notices.Stops}).Mount(s.router)
	(&topups.Handler{Store: s.topups, Sessions: sessions}).Mount(s.router)
	(&dashboard.Handler{DB: s.db, Ledger: s.ledger, Apps: s.apps, Accounts: s.accounts, Sessions: sessions, Voice: s.voice}).Mount(s.router)
	(&console.Handler{
		DB: s.db, Ledger: s.ledger, Accounts: s.accounts, Sessions: sessions, Apps: s.apps, Features: s.features, Sandbox: s.sandbox, Keys: s.keys, Webhooks: s.webhooks,
		GoLive: s.golive, Tokens: s.tokens, Catalog: s.catalog, Voice: s.voice, Now: s.db.Now, API: s.router, BaseURL: c.BaseURL, AuthURL: c.AuthURL,
	}).Mount(s.router)
	(&catalog.Handler{Catalog: s.catalog, Now: s.db.Now}).Mount(s.router)
	s.callers.Mount(s.router)
	s.inference.Mount(s.router)
	s.voice.Mount(s.router)
	(&connections.Handler{DB: s.db, Apps: s.apps, Ledger: s.ledger, Links: web.Links{Dashboard: c.DashboardURL}}).Mount(s.router)
	(&apps.Handler{Store: s.apps, Offered: s.offered}).Mount(s.router)
	(&golive.Handler{Store: s.golive, Apps: s.apps}).Mount(s.router)
	(&features.Handler{Store: s.features, Apps: s.apps}).Mount(s.router)
	(&webhooks.Handler{Store: s.webhooks, Apps: s.apps}).Mount(s.router)
	(&sandbox.Handler{Store: s.sandbox, Apps: s.apps}).Mount(s.router)
	(&providerkeys.Handler{Store: s.keys, Apps: s.apps}).Mount(s.router)
	(&operator.Handler{Desk: s.desk, Token: c.OperatorToken}).Mount(s.router)
	(&operatorpages.Handler{
		DB: s.db, Desk: s.desk, Accounts: s.accounts, Sessions: sessions, Catalog: s.catalog, Estimates: s.estimates, Metrics: s.metrics, Free: c.Free, MFA: secondFactor(home.Dev),
	}).Mount(s.router)
	s.router.Handle("GET /openapi.yaml", openapi)
	s.router.Handle("GET /healthz", healthy)
	s.router.Handle("GET /readyz", s.ready)
}

// secondFactor says whether a session of an operator proved a second factor. In
// development none is asked for.
func secondFactor(dev bool) func(*http.Request) bool {
	if dev {
		return nil
	}
	return accounts.HasMFA
}

func (s *Server) offered(model string) bool {
	_, _, ok := s.catalog.Current().Find(model, s.db.Now())
	return ok
}

func openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, err := w.Write(api.Spec)
	return web.Begun(err)
}

func healthy(w http.ResponseWriter, _ *http.Request) error {
	return web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready says whether this node can do work: its database answers.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	var one int
	if err := s.db.QueryRowContext(r.Context(), `SELECT 1`).Scan(&one); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// grace is how long calls may take to finish after a stop was asked for.
const grace = 5 * time.Minute

// run serves until ctx ends. Then it stops accepting, lets calls finish, and
// settles what they owe, in this order: sockets, jobs, lease, writer, store.
func (s *Server) run(ctx context.Context, listeners []net.Listener) error {
	writing, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	wrote := make(chan error, 1)
	go func() { wrote <- s.ledger.Run(writing) }()

	hangUp := make(chan os.Signal, 1) // heard also without a file of prices: it would end the process
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	working, stopJobs := context.WithCancel(context.WithoutCancel(ctx))
	jobs, working := errgroup.WithContext(working)
	for _, j := range s.jobs() {
		jobs.Go(func() error { return j(working) })
	}
	jobs.Go(func() error { return s.watchPrices(working, hangUp) })
	if s.monitored != nil {
		jobs.Go(func() error { return s.serveMetrics(working, s.monitored) })
	}

	serving, serveCtx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		server := web.NewServer(s.handler(), s.log)
		serving.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		serving.Go(func() error {
			<-serveCtx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			return server.Shutdown(last)
		})
	}
	serving.Go(func() error { // its sockets are not the HTTP server's any longer (F-93)
		<-serveCtx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		s.voice.Stop(last)
		return nil
	})
	err := serving.Wait()
	stopJobs()
	err = errors.Join(err, jobs.Wait())
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, s.estimates.Save(leaving), s.node.Leave(leaving))
	stopWriter()
	return errors.Join(err, <-wrote, s.db.Close())
}

// jobs are what a node does besides answering. Each ends with its context.
func (s *Server) jobs() []func(context.Context) error {
	return []func(context.Context) error{
		s.inference.Checkpoint,
		webhooks.NewDispatcher(s.webhooks, s.log, webhooks.Options{}).Run,
		s.every(s.config.Lease/10, "renew the lease", s.node.Renew),
		s.every(min(5*time.Second, s.config.Lease/2), "end dead nodes' holds", func(ctx context.Context) error {
			_, err := s.inference.Sweep(ctx)
			return err
		}),
		s.every(time.Second, "keep voice sessions", s.voice.Renew),
		s.every(time.Second, "watch voice sessions", s.voice.Watch),
		s.every(time.Second, "hang up voice calls", s.voice.HangUps),
		s.every(5*time.Second, "settle pending calls", func(ctx context.Context) error {
			_, err := s.inference.Resolve(ctx)
			return err
		}),
		s.every(5*time.Second, "settle top-ups", s.topups.Once),
		s.every(time.Hour, "purge old events of Stripe", s.topups.Purge),
		s.every(5*time.Second, "make mail of notices", s.notices.Once),
		s.every(5*time.Second, "send mail", s.sendMail),
		s.every(time.Hour, "purge old mail", s.mails.Purge),
		s.every(30*time.Second, "read the database's clock", s.db.SyncClock),
		s.every(time.Minute, "save how estimates fared", s.estimates.Save),
		s.every(time.Minute, "watch live apps", s.watch.Run),
		s.every(15*time.Second, "count money for the operator", (&operatorpages.Counter{DB: s.db, Now: s.db.Now}).Once),
		s.every(time.Second, "verify the books when asked", (&operatorpages.Verifier{DB: s.db, URL: s.config.Database, Now: s.db.Now}).Once),
		s.every(time.Hour, "purge old answers", s.node.Purge),
		s.every(time.Hour, "purge old tokens", s.tokens.Purge),
		s.every(time.Hour, "purge old deliveries", s.webhooks.Purge),
		s.every(5*time.Second, "write security events", s.accounts.FlushEvents),
		s.every(time.Hour, "purge old links", s.identity.Purge),
		s.every(time.Hour, "purge old sessions", func(ctx context.Context) error {
			_, err := s.accounts.Purge(ctx)
			return err
		}),
	}
}

// sendMail sends what waits. In development mail stays in the outbox.
func (s *Server) sendMail(ctx context.Context) error {
	if s.sender == nil {
		return nil
	}
	return s.sender.Once(ctx)
}

// watchPrices reads the operator's prices again when their file changes, and at
// once on SIGHUP.
func (s *Server) watchPrices(ctx context.Context, asked <-chan os.Signal) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.config.Prices != "" {
				s.catalog.Poll()
			}
		case <-asked:
			if s.config.Prices != "" {
				s.catalog.Reload()
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// openEnvelope returns what seals secrets under the envelope key. It refuses a
// key that is not the database's: each secret would fail on its own, later.
func (s *Server) openEnvelope(ctx context.Context) (*seal.Box, error) {
	box, err := seal.New(s.config.EnvelopeKey)
	if err != nil {
		return nil, err
	}
	place := seal.Place{"settings", "value", "envelope"}
	sealed, err := box.Seal(nil, place)
	if err != nil {
		return nil, err
	}
	if _, err := s.db.ExecContext(ctx, `INSERT INTO settings (name, value) VALUES ('envelope', $1) ON CONFLICT (name) DO NOTHING`, base64.StdEncoding.EncodeToString(sealed)); err != nil {
		return nil, err
	}
	var text string
	if err := s.db.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = 'envelope'`).Scan(&text); err != nil {
		return nil, err
	}
	if sealed, err = base64.StdEncoding.DecodeString(text); err == nil {
		_, err = box.Open(sealed, place)
	}
	if err != nil {
		return nil, fmt.Errorf("envelope_key: this database's secrets were sealed under another one: %w", err)
	}
	return box, nil
}

// every runs f at once and then in intervals. A failure is logged and tried
// again: none of these jobs may stop the node.
func (s *Server) every(interval time.Duration, what string, f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("job failed", "job", what, "error", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
