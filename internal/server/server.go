// Package server assembles Purser: it opens the store, builds every handler and job by
// plain assignment in one visible list, listens, and stops cleanly.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/watch"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
)

// Server is one running node. Its exported fields are for package dev, which adds sample
// data and pages.
type Server struct {
	Config config.Config
	log    *slog.Logger
	DB     *db.DB
	Ledger *store.Writer
	node   *store.Node

	Accounts           *accounts.Store
	identity           *identity.Store
	passkeyParty       *identity.PasskeyParty
	Apps               *apps.Store
	Features           *features.Store
	sandbox            *sandbox.Store
	golive             *golive.Store
	watch              *watch.Watch
	operators          *operator.Service
	keys               *providerkeys.Store
	webhooks           *webhooks.Store
	Tokens             *oauth.Store
	callers            *callers.Resolver
	policy             *policy.Policy
	catalog            *catalog.Source
	estimates          *estimates.Calibration
	developerProviders *developerProviders
	metrics            *metrics.Metrics
	Mails              *mail.Store
	sender             *mail.Sender // nil in dev, which sends nothing
	notices            *notices.Store
	topups             *topups.Store
	metricsListener    net.Listener // of the metrics; nil = they are not served
	inference          *inference.Handler
	voice              *voice.Supervisor
	Router             *web.Router
}

// Serve runs a node until ctx ends, then finishes the calls in flight.
func Serve(ctx context.Context, c config.Config, log *slog.Logger) error {
	listeners, err := openListeners(c)
	if err != nil {
		return err
	}
	s, err := Open(ctx, c, log, false)
	if err != nil {
		return errors.Join(err, closeListeners(listeners))
	}
	if c.MetricsListen != "" {
		if s.metricsListener, err = net.Listen("tcp", c.MetricsListen); err != nil {
			return errors.Join(fmt.Errorf("listen: %w", err), s.DB.Close(), closeListeners(listeners))
		}
	}
	s.Mount(ui.Home{BaseURL: c.BaseURL, AuthURL: c.AuthURL})
	log.Info("listening", "base_url", c.BaseURL, "auth_url", c.AuthURL, "dashboard_url", c.DashboardURL)
	return s.Run(ctx, listeners)
}

// rootHandler returns the router behind the check of trusted proxies.
func (s *Server) rootHandler() http.Handler {
	return web.TrustProxies(s.Config.TrustedProxies, s.Router)
}

// openListeners opens the sockets: one for everything, or a second one for the pages.
func openListeners(c config.Config) ([]net.Listener, error) {
	var list []net.Listener
	for _, address := range []string{c.Listen, c.AuthListen} {
		if address == "" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen: %w", err), closeListeners(list))
		}
		list = append(list, l)
	}
	return list, nil
}

func closeListeners(list []net.Listener) (err error) {
	for _, l := range list {
		err = errors.Join(err, l.Close())
	}
	return err
}

// heapBallast is never written, so it takes no physical memory. The garbage collector
// counts it as heap and therefore runs later.
var heapBallast = sync.OnceValue(func() []byte { return make([]byte, 24<<20) })

// delayCollections trades memory for time: a small heap would be collected ten times a
// second. With the ballast any heap may grow by 24 MB more. GOGC has precedence.
func delayCollections() {
	if os.Getenv("GOGC") == "" {
		heapBallast()
	}
}

// Open opens the store and wires everything that works on it. A development server
// takes loopback addresses and sends no mail.
func Open(ctx context.Context, c config.Config, log *slog.Logger, dev bool) (*Server, error) {
	delayCollections()
	d, err := db.Open(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	s := &Server{Config: c, log: log, DB: d}
	if err := s.wireAll(ctx, dev); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return s, nil
}

// shutdownGrace is how long calls may take to finish after a stop was requested.
const shutdownGrace = 5 * time.Minute

// Run serves until ctx ends. Then it stops accepting, lets calls finish, and
// settles what they owe, in this order: sockets, jobs, lease, writer, store.
func (s *Server) Run(ctx context.Context, listeners []net.Listener) error {
	writing, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	wrote := make(chan error, 1)
	go func() { wrote <- s.Ledger.Run(writing) }()

	hangUp := make(chan os.Signal, 1) // heard also without a file of prices: it would end the process
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	working, stopJobs := context.WithCancel(context.WithoutCancel(ctx))
	jobs, working := errgroup.WithContext(working)
	for _, j := range s.listJobs() {
		jobs.Go(func() error { return j(working) })
	}
	jobs.Go(func() error { return s.watchPrices(working, hangUp) })
	if s.metricsListener != nil {
		jobs.Go(func() error { return s.serveMetrics(working, s.metricsListener) })
	}

	serving, serveCtx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		server := web.NewServer(s.rootHandler(), s.log)
		serving.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		serving.Go(func() error {
			<-serveCtx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
			defer cancel()
			return server.Shutdown(last)
		})
	}
	serving.Go(func() error { // Shutdown does not close hijacked connections (F-93)
		<-serveCtx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		s.voice.Stop(last)
		return nil
	})
	err := serving.Wait()
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	s.inference.StopSettling(settling)
	stopJobs()
	err = errors.Join(err, jobs.Wait())
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, s.estimates.Save(leaving), s.node.EndLease(leaving))
	stopWriter()
	return errors.Join(err, <-wrote, s.DB.Close())
}
