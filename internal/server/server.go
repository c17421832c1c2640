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
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/domains"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/watch"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/memory"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/ticks"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/children"
	"github.com/purserhq/purser/internal/gateway/feed"
	"github.com/purserhq/purser/internal/gateway/inference"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/pages/status"
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

	databaseID string // "" in development
	Ledger     *store.Writer
	node       *store.Node

	Accounts           *accounts.Store
	identifiers        accounts.SafetyIdentifiers
	cardKey            []byte // of topups.NewCardKey
	children           *children.Handler
	identity           *identity.Store
	passkeyParty       *identity.PasskeyParty
	Apps               *apps.Store
	Features           *features.Store
	box                *seal.Box
	publisher          *proofs.Publisher
	proofs             *proofs.Log
	sandbox            *sandbox.Store
	golive             *golive.Store
	members            *members.Store
	watch              *watch.Watch
	operators          *operator.Service
	privacy            *privacy.Store
	sessions           *accounts.Sessions
	keys               *providerkeys.Store
	webhooks           *webhooks.Store
	domains            *domains.Checker
	dispatcher         *webhooks.Dispatcher // of RunDueJobs; nil while Run serves
	Tokens             *oauth.Store
	callers            *callers.Resolver
	freeRate           *callers.FreeRate // nil in development
	policies           *policies.Book
	pools              map[string]*upstream.Pool // the operator's keys, by provider
	catalog            *catalog.Source
	estimates          *estimates.Calibration
	listedProviders    []string // whose models are listed; nil = all
	developerProviders *developerProviders
	metrics            *metrics.Metrics
	closing            store.DayWalk                // of the job that sums the days of apps
	jobEnded           func(what string, err error) // for tests: called after each run of a job, unless it is nil
	Ticks              ticks.Source                 // when jobs run; replaced, before Run, in tests that simulate days
	telemetry          *telemetry.Exporter          // nil = nothing is sent
	Mails              *mail.Store
	sender             *mail.Sender // nil in dev, which sends nothing
	notices            *notices.Store
	topups             *topups.Store
	payouts            *payouts.Store
	metricsListener    net.Listener // of the metrics; nil = they are not served
	inference          *inference.Handler
	voice              *voice.Supervisor
	feed               *feed.Hub
	Router             *web.Router
	ready              readiness
	logIsLong          bool            // as noteLogSize saw it last
	differing          map[string]bool // settings in which nodes differ, as compareNodes saw them last
	health             *status.Recorder
	status             *status.Handler
}

// Serve runs a node until ctx ends, then finishes the calls in flight. It listens once all else is ready: until then a
// connection is refused, so that a proxy asks another node, and no client waits for a database or a migration.
func Serve(ctx context.Context, c config.Config, log *slog.Logger) error {
	s, err := Open(ctx, c, log, false)
	if err != nil {
		return err
	}
	s.Mount(ui.Home{BaseURL: c.BaseURL, AuthURL: c.AuthURL})
	listeners, err := openListeners(c)
	if err == nil && c.MetricsListen != "" {
		s.metricsListener, err = listen(c.MetricsListen)
	}
	if err != nil {
		return errors.Join(err, closeListeners(listeners), s.DB.Close())
	}
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
		l, err := listen(address)
		if err != nil {
			return nil, errors.Join(err, closeListeners(list))
		}
		list = append(list, l)
	}
	return list, nil
}

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

func closeListeners(list []net.Listener) (err error) {
	for _, l := range list {
		err = errors.Join(err, l.Close())
	}
	return err
}

// heapBallast is never written, so it takes no physical memory. The garbage collector
// counts it as heap and therefore runs later.
var heapBallast = sync.OnceValue(func() []byte { return make([]byte, ballastBytes) })

const ballastBytes = 72 << 20

// heapGrowth is by how much the heap may grow until it is collected, in per cent.
const heapGrowth = 50

// delayCollections trades memory for time: a small heap would be collected ten times a
// second. With the ballast any heap may grow by 36 MB more. In exchange, a large heap, as
// of thousands of streams, may grow by half and not by all of it. GOGC has precedence.
func delayCollections() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
		heapBallast()
	}
}

// limitMemory makes the garbage collector work harder before the process has a tenth less than the memory that it may
// use: the kernel would kill it there. The ballast is not in memory. GOMEMLIMIT has precedence.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory.Total(os.DirFS("/"))/10*9 + ballastBytes)
	}
}

// Open opens the store and wires everything that works on it. A development server
// takes loopback addresses and sends no mail.
func Open(ctx context.Context, c config.Config, log *slog.Logger, dev bool) (*Server, error) {
	delayCollections()
	limitMemory()
	if c.Drill {
		c = c.WithoutOutside()
		c.Site.Drill = true
		log.Warn("drill: no mail, webhooks, payments, providers or backups", "takes_changes", c.DrillWrites)
	}
	for _, w := range c.Warnings() {
		log.Warn("unsafe setting", "setting", w.Setting, "why", w.Text, "remedy", w.Remedy)
	}
	d, err := openDatabase(ctx, c.Database, log)
	if err != nil {
		return nil, err
	}
	s := &Server{Config: c, log: log, DB: d}
	s.ready.check, s.ready.timeout = s.checkReady, readinessTimeout
	if err := s.wireAll(ctx, dev); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return s, nil
}

const (
	// startWait is how long a node waits for a PostgreSQL that is starting.
	startWait = 30 * time.Second
	// migrationWait is how long a node waits for other transactions, such as that of a backup, to leave the tables that
	// a migration changes. Each try holds up the running nodes for half a second at most.
	migrationWait  = 10 * time.Minute
	migrationPause = 5 * time.Second // between tries
)

// openDatabase opens the database. It waits for a PostgreSQL that does not accept connections yet, and for the locks of
// migrations.
func openDatabase(ctx context.Context, url string, log *slog.Logger) (*db.DB, error) {
	begun, warned := time.Now(), ""
	for {
		d, err := db.Open(ctx, url)
		event, patience, pause := "waiting for the database", startWait, 250*time.Millisecond
		if db.IsLocked(err) {
			event, patience, pause = "waiting to migrate the database", migrationWait, migrationPause
		}
		if !db.IsStarting(err) && !db.IsLocked(err) || time.Since(begun) > patience {
			return d, err
		}
		if event != warned {
			log.Warn(event, "timeout", patience, "error", err)
			warned = event
		}
		if !retry.Sleep(ctx, pause) {
			return nil, err
		}
	}
}

const (
	// settleGrace is how long calls that were cut after the grace may take to be settled.
	settleGrace = 10 * time.Second

	// lostGrace is how long a node whose database file is lost answers the calls in flight.
	lostGrace = time.Second

	// closeTimeout bounds each of the last steps of a node that ends, and closeFileTimeout those
	// of a node with a SQLite file, whose log may be copied into the file.
	closeTimeout     = time.Second
	closeFileTimeout = 10 * time.Second
)

// Run serves until ctx ends. Then it reports that it is not ready while it still serves
// (drain), stops accepting, lets calls finish (grace), and settles what they owe, in this
// order: sockets, jobs, lease, writer, store. If the database file is lost, it ends soon,
// with an error: nothing can be settled before a restart.
func (s *Server) Run(ctx context.Context, listeners []net.Listener) error {
	writing, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	wrote := make(chan error, 1)
	go func() { wrote <- s.Ledger.Run(writing) }()
	// A slow start has used up the lease, and the job that renews it waits for the first run of all the others.
	s.logFailure("lease not renewed", s.node.RenewLease(ctx))

	hangUp := make(chan os.Signal, 1) // heard also without a file of prices: it would end the process
	signal.Notify(hangUp, syscall.SIGHUP)
	defer signal.Stop(hangUp)
	working, stopJobs := context.WithCancel(context.WithoutCancel(ctx))
	defer stopJobs()
	jobs, working := errgroup.WithContext(working)
	for _, j := range s.listJobs() {
		jobs.Go(func() error { return j(working) })
	}
	jobs.Go(func() error { return s.watchPrices(working, hangUp) })
	if s.metricsListener != nil {
		jobs.Go(func() error { return s.serveMetrics(working, s.metricsListener) })
	}

	err := s.serve(ctx, listeners)
	s.ready.draining.Store(true)
	ending := context.WithoutCancel(ctx)
	settling, cancel := context.WithTimeout(ending, s.closeTimeout())
	defer cancel()
	s.inference.StopSettling(settling)
	stopJobs()
	err = errors.Join(err, s.waitFor("jobs", jobs.Wait))
	leaving, cancel := context.WithTimeout(ending, s.closeTimeout())
	defer cancel()
	if s.isLost() {
		s.logFailure("the log of the database file is lost", s.DB.RescueLog()) // nobody reads any more
		return errors.Join(err, s.DB.LostReason())
	}
	s.logFailure("lease not ended", s.node.EndLease(leaving)) // first: other nodes wait for it
	s.logFailure("estimates not saved", s.estimates.Save(leaving))
	s.logFailure("security events not written", s.waitFor("security events", func() error {
		return s.Accounts.FlushEvents(leaving) // has time limits of its own
	}))
	sending, cancel := context.WithTimeout(ending, closeTimeout)
	defer cancel()
	s.logFailure("telemetry not sent", s.telemetry.Stop(sending))
	stopWriter()
	return errors.Join(err, s.waitFor("writer", func() error { return <-wrote }), s.waitFor("database", s.DB.Close))
}

// serve serves until ctx ends or the database is lost, and then until the calls in flight
// have ended.
func (s *Server) serve(ctx context.Context, listeners []net.Listener) error {
	serving, serveCtx := errgroup.WithContext(ctx)
	stopping := make(chan struct{}) // closed when nothing new is accepted
	serving.Go(func() error {
		defer close(stopping)
		select {
		case <-serveCtx.Done():
			s.drain(ctx)
			return nil
		case <-s.DB.Lost():
			return s.DB.LostReason()
		}
	})
	for _, l := range listeners {
		server := web.NewServer(s.rootHandler(), s.log)
		serving.Go(func() error {
			if err := server.Serve(web.LimitWrites(l)); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
		serving.Go(func() error {
			<-stopping
			s.shutDown(context.WithoutCancel(ctx), server)
			return nil
		})
	}
	serving.Go(func() error { // Shutdown waits for streams, which do not end by themselves
		<-stopping
		s.feed.Stop()
		return nil
	})
	serving.Go(func() error { // Shutdown does not close hijacked connections (F-93)
		<-stopping
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace())
		defer cancel()
		s.voice.Stop(last)
		return nil
	})
	return serving.Wait()
}

// drain lets load balancers see that the node is not ready while it still serves. It returns
// after the setting drain, or when the database is lost. It does nothing after a listener has
// failed.
func (s *Server) drain(ctx context.Context) {
	if ctx.Err() == nil || s.Config.Drain == 0 {
		return
	}
	s.ready.draining.Store(true)
	s.log.Info("draining", "drain", s.Config.Drain)
	select {
	case <-time.After(s.Config.Drain):
	case <-s.DB.Lost():
	}
}

// grace returns how long the calls in flight may take to finish.
func (s *Server) grace() time.Duration {
	if s.isLost() {
		return lostGrace
	}
	return s.Config.Grace
}

// shutDown closes the listener of a server and waits for its calls, for the grace at most.
// The calls that are left then are cut, and charged as estimates of what they delivered.
func (s *Server) shutDown(ctx context.Context, server *http.Server) {
	waiting, cancel := context.WithTimeout(ctx, s.grace())
	defer cancel()
	go func() { // the grace ends when the file is lost
		select {
		case <-s.DB.Lost():
			time.AfterFunc(lostGrace, cancel)
		case <-waiting.Done():
		}
	}()
	if server.Shutdown(waiting) == nil {
		return
	}
	if !s.isLost() {
		s.log.Warn("calls cut after the grace", "grace", s.Config.Grace)
		s.inference.CutCalls()
		settling, cancel := context.WithTimeout(ctx, settleGrace)
		defer cancel()
		if server.Shutdown(settling) == nil {
			return
		}
	}
	s.logFailure("connections not closed", server.Close())
}

func (s *Server) isLost() bool {
	select {
	case <-s.DB.Lost():
		return true
	default:
		return false
	}
}

func (s *Server) closeTimeout() time.Duration {
	if s.DB.Engine == db.SQLite {
		return closeFileTimeout
	}
	return closeTimeout
}

// waitFor waits for one of the last steps, for closeTimeout at most: a database that hangs
// must not keep the process. What it has not done is done by the next start.
func (s *Server) waitFor(what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(s.closeTimeout()):
		s.log.Warn("not ended in time", "what", what)
		return nil
	}
}

// logFailure logs the failure of a step that need not succeed.
func (s *Server) logFailure(event string, err error) {
	if err != nil {
		s.log.Warn(event, "error", err)
	}
}
