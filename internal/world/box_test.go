package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/oidc"
	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/dial"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/server"
	"github.com/purserhq/purser/internal/testkit/bank"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// The hosts of a box begin so.
const (
	purserHost    = "purser"
	stripeHost    = "stripe"
	providersHost = "providers"
	peopleHost    = "people" // an identity provider
)

const (
	stripeKey     = "sk_test_key"
	stripeSecret  = "whsec_0123456789abcdef"
	operatorToken = "0123456789abcdefghijklmnopqrstuvwxyz"
)

const day = 24 * time.Hour

// began is when each history begins.
var began = time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)

// networks are the networks of all boxes, by the label that the hosts of a box have in common.
var networks sync.Map

// opened counts the boxes of this process.
var opened atomic.Int64

func init() {
	accounts.HashLightly()
	db.RelaxLimits(1) // the clock of a box goes by what happens in it, not by the machine's processors
	dial.Divert(func(ctx context.Context, network, address string) (net.Conn, error) {
		labels := strings.Split(address, ".")
		for _, label := range []string{labels[min(1, len(labels)-1)], strings.TrimSuffix(address, ":80")} {
			if n, ok := networks.Load(label); ok {
				return n.(*Network).Dial(ctx, network, address)
			}
		}
		return nil, fmt.Errorf("%s is in no box", address)
	})
	// The goroutine that waits for signals begins with the first Notify, and belongs to no box.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// Nor does the channel that package net makes for its resolver with the first name that it looks up.
	ended, end := context.WithCancel(context.Background())
	end()
	_, _ = (&net.Resolver{PreferGo: true}).LookupTXT(ended, "localhost")
}

// A Box is the product and everything that it reaches, in one process under one simulated clock.
type Box struct {
	T       *testing.T
	Network *Network
	Stripe  *stripe.Server
	Server  *server.Server // the process's that is asked

	engine   db.Engine
	label    string // of the hosts
	loopback string // the address of who receives webhooks: only such a one needs no certificate

	bankNetwork *bank.Network // between the product and Stripe
	providers   *providers
	receiver    *receiver
	file        *file // what stands between that process and the database
	clock       wallClock
	coverage    *coverage

	config  config.Config
	started int            // processes so far
	node    *node          // that is asked
	servers []*http.Server // of the outside
	log     *log

	said  atomic.Int64 // how often a process has said something, on PostgreSQL
	mu    sync.Mutex
	nodes []*node       // the processes that there are: on PostgreSQL two
	acted time.Time     // when somebody last did something
	woken chan struct{} // closed when somebody does something
	haste time.Duration // into so many parts jobs divide the time since then: see ticks

	failIn    int  // so many statements on, one fails; 0 = none
	hasFailed bool // one has

	wire     wire   // to the outside
	story    *story // what happens, and who sends a request
	whoSends func(jar http.CookieJar, headers []string) string

	ran        int            // statements of the product
	statements map[string]int // the most that a request has run, by its kind
}

// Run plays f in a box. On SQLite the clock is simulated: time passes as soon as everything waits for it. On PostgreSQL
// it is that of the machine, shifted: see nodes_test.go.
func Run(t *testing.T, e db.Engine, f func(b *Box)) {
	t.Helper()
	url := dbtest.URL(t, e)
	play := func(t *testing.T) {
		b := openBox(t, e, url)
		defer b.close()
		f(b)
	}
	if e == db.Postgres {
		play(t)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(began))
		play(t)
	})
}

func openBox(t *testing.T, e db.Engine, url string) *Box {
	t.Helper()
	b := &Box{T: t, engine: e, Network: newNetwork(e == db.Postgres), log: &log{}, woken: make(chan struct{}),
		statements: map[string]int{}, story: &story{names: map[string]string{}},
		wire: wire{sent: map[string]*bytes.Buffer{}}, coverage: newCoverage(),
		whoSends: func(http.CookieJar, []string) string { return "somebody" }}
	b.clock.passed.Store(int64(time.Until(began))) // in a bubble it has come
	b.acted, b.haste = b.clock.steady(), 3
	n := opened.Add(1)
	b.label, b.loopback = fmt.Sprint("box", n), fmt.Sprintf("127.%d.%d.1", 1+n>>8&127, n&255)
	for _, name := range []string{b.label, b.loopback} {
		networks.Store(name, b.Network)
		t.Cleanup(func() { networks.Delete(name) })
	}
	if e == db.SQLite {
		b.file = newFile(t, url, func() { b.die(b.node) })
	}
	b.Stripe = stripe.New(stripe.Options{Key: stripeKey, WebhookSecret: stripeSecret, Now: b.clock.Now})
	b.bankNetwork = &bank.Network{Stripe: b.Stripe}
	b.providers = &providers{emulator: emulator.New(emulator.Options{}), clock: &b.clock, waits: b.lingers}
	b.receiver = &receiver{clock: &b.clock, waits: b.lingers}
	b.serve(b.host(stripeHost), b.wire.keep("to Stripe", b.story.hear(b.bankNetwork)))
	b.serve(b.host(providersHost), b.wire.keep("to providers", b.providers))
	b.serve(b.loopback, b.wire.keep("to receivers", b.receiver))
	home := b.URL(purserHost)
	people, err := oidc.New(oidc.Options{Issuer: b.URL(peopleHost), Now: b.clock.Now, Redirects: []string{
		home + "/sign-in/provider/callback"}})
	if err != nil {
		t.Fatal(err)
	}
	b.serve(b.host(peopleHost), people)
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(prices, pricesText("gpt-4o-mini"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.config = config.Config{
		Database:         url,
		BaseURL:          home,
		AuthURL:          home,
		DashboardURL:     home,
		Policy:           policy.Default,
		EnvelopeKeys:     [][]byte{bytes.Repeat([]byte("test"), 8)},
		Lease:            leases[e],
		Grace:            time.Second,
		Retention:        config.DefaultRetention,
		VerifyAt:         "03:00",
		VoiceIdleTimeout: 2 * time.Minute,
		LogSample:        money.One,
		OperatorTokens:   []string{operatorToken},
		SignUps:          identity.OpenSignUps,
		PricesFile:       prices,
		OIDC: identity.OpenIDConfig{Name: "Work", Issuer: b.URL(peopleHost), ClientID: oidc.ClientID,
			ClientSecret: oidc.ClientSecret},
		Payouts: payouts.Config{Every: 3 * day, Window: 2 * day, MinimumMC: money.Dollar},
		Stripe:  topups.Config{Key: stripeKey, WebhookSecret: stripeSecret},
	}
	b.Start()
	return b
}

// host returns the name of a host of the box, and URL its address.
func (b *Box) host(name string) string { return name + "." + b.label + ".example.com" }

// URL returns the address of a host of the box.
func (b *Box) URL(name string) string { return "http://" + b.host(name) }

// serve lets h be reached as a host.
func (b *Box) serve(host string, h http.Handler) {
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	b.servers = append(b.servers, s)
	l := b.listen(host)
	go func() { _ = s.Serve(l) }() // until it is closed
}

func (b *Box) listen(host string) net.Listener {
	b.T.Helper()
	l, err := b.Network.Listen(host)
	if err != nil {
		b.T.Fatal(err)
	}
	return l
}

// A node is a process of the product.
type node struct {
	box    *Box
	number int // of all processes of the box
	file   *file
	server *server.Server
	stop   context.CancelFunc
	ended  chan error
}

// host returns the name of a host of the box by which the process alone reaches it, or is reached.
func (n *node) host(name string) string { return fmt.Sprint(name, "-", n.number) }

// Start starts the processes of the product that do not run.
func (b *Box) Start() {
	b.T.Helper()
	for len(b.running()) < processes[b.engine] {
		b.startNode()
	}
	b.turnTo(b.nodes[0])
}

func (b *Box) startNode() {
	b.T.Helper()
	b.started++
	n := &node{box: b, number: b.started, file: b.file, ended: make(chan error, 1)}
	c := b.config
	if b.engine == db.Postgres {
		c.Database = b.standBetween(n)
	}
	b.Network.add(n.number, n.before)
	c.NodeURL, c.Stripe.BaseURL = b.URL(n.host(purserHost)), b.URL(n.host(stripeHost))
	at := b.URL(n.host(providersHost))
	c.Providers = map[string]config.Provider{
		"openai":    {BaseURL: at + "/v1", Keys: []string{"emulated-key"}},
		"anthropic": {BaseURL: at, Keys: []string{"emulated-key"}},
		"google":    {BaseURL: at, Keys: []string{"emulated-key"}},
	}
	ctx, stop := context.WithCancel(context.Background())
	s, err := server.Open(ctx, c, slog.New(slog.NewJSONHandler(b.log, nil)), true)
	if err != nil {
		stop()
		b.T.Fatal(err)
	}
	n.server, n.stop = s, stop
	s.Ticks = n.ticks
	s.DB.Fail(b.fails)
	b.clock.set(s.DB, 0)
	s.Mount(ui.Home{BaseURL: b.config.BaseURL, AuthURL: b.config.AuthURL, Dev: true})
	b.coverage.know(s.Router.Routes())
	l := b.listen(b.host(n.host(purserHost)))
	b.mu.Lock()
	b.nodes = append(b.nodes, n)
	b.mu.Unlock()
	go func() { n.ended <- s.Run(ctx, []net.Listener{l}) }()
}

// running returns the processes that there are.
func (b *Box) running() []*node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.nodes)
}

// turnTo lets those who ask the product ask a process.
func (b *Box) turnTo(n *node) {
	b.node, b.Server, b.file = n, n.server, n.file
	b.Network.lead(n.number)
}

// remove takes a process away, which has ended or is to end, and lets another one be asked if there is one.
func (b *Box) remove(n *node) {
	b.mu.Lock()
	b.nodes = slices.DeleteFunc(b.nodes, func(other *node) bool { return other == n })
	b.mu.Unlock()
	b.Server = nil
	for _, other := range b.running() {
		b.turnTo(other)
	}
}

// failNext lets the n-th statement of the product from now on fail; 0 = none does any more. It reports whether the one
// before has failed.
func (b *Box) failNext(n int) (hasFailed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hasFailed, b.hasFailed, b.failIn = b.hasFailed, false, n
	return hasFailed
}

func (b *Box) fails(string, []any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ran++; b.failIn == 0 {
		return false
	}
	b.failIn--
	b.hasFailed = b.failIn == 0
	return b.hasFailed
}

// countStatements returns how many statements the product has run.
func (b *Box) countStatements() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ran
}

// Stop stops the process that is asked as a signal does.
func (b *Box) Stop() {
	b.T.Helper()
	n := b.node
	b.remove(n)
	n.stop()
	if err := <-n.ended; err != nil {
		b.T.Error(err)
	}
}

func (b *Box) close() {
	var err error
	for b.Server != nil {
		b.Stop()
	}
	for _, s := range b.servers {
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		b.T.Error(err)
	}
	if b.T.Failed() {
		b.T.Logf("log of the product:\n%s", b.log)
	}
}

// Pass lets time pass.
func (b *Box) Pass(d time.Duration) {
	if b.engine == db.Postgres {
		b.shift(d)
		return
	}
	time.Sleep(d)
}

// Wait waits until everything waits.
func (b *Box) Wait() {
	if b.engine == db.Postgres {
		b.awaitSilence()
		return
	}
	synctest.Wait()
}

// since is how long ago something was.
func (b *Box) since(at time.Time) time.Duration { return b.clock.steady().Sub(at) }

// act notes that somebody does something, so that no job waits for longer than its interval.
func (b *Box) act() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acted = b.clock.steady()
	b.wake()
}

// wake lets those who wait for a time look at the clock.
func (b *Box) wake() {
	close(b.woken)
	b.woken = make(chan struct{})
}

// longestPauses are how long a job waits at most while nobody does anything. Leaps take no longer for more runs.
var longestPauses = map[db.Engine]time.Duration{db.SQLite: 6 * time.Hour, db.Postgres: 0}

// ticks are the product's. A job waits for a third of the time in which nobody has done anything, at the end for all of
// it: what is due is late by a third, and a month takes some hundred runs of a job and not a million.
func (n *node) ticks(interval time.Duration) (<-chan time.Time, func()) {
	b, c, done := n.box, make(chan time.Time, 1), make(chan struct{})
	go func() {
		for last := b.clock.steady(); ; {
			b.mu.Lock()
			wait, woken := max(interval, min(b.since(b.acted)/b.haste, longestPauses[b.engine])), b.woken
			b.mu.Unlock()
			select {
			case <-time.After(wait - b.since(last)):
				n.file.awaken(done)
				last = b.clock.steady()
				select {
				case c <- last:
				default:
				}
			case <-woken:
			case <-done:
				return
			}
		}
	}()
	return c, func() { close(done) }
}

// log is the product's log.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// errors returns the last lines of the log that tell of an error.
func (l *log) errors() string {
	var lines []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, `"level":"ERROR"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-5):], "")
}
