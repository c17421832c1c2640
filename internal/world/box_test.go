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
}

// A Box is the product and everything that it reaches, in one process under one simulated clock.
type Box struct {
	T       *testing.T
	Network *Network
	Stripe  *stripe.Server
	Server  *server.Server // that runs

	label    string // of the hosts
	loopback string // the address of who receives webhooks: only such a one needs no certificate

	bankNetwork *bank.Network // between the product and Stripe
	providers   *providers
	receiver    *receiver
	file        *file // of the database
	clock       wallClock
	coverage    *coverage

	config  config.Config
	stop    context.CancelFunc
	ended   chan error
	servers []*http.Server // of the outside
	log     *log

	mu    sync.Mutex
	acted time.Time     // when somebody last did something
	woken chan struct{} // closed when somebody does something

	failIn    int  // so many statements on, one fails; 0 = none
	hasFailed bool // one has

	wire     wire   // to the outside
	story    *story // what happens, and who sends a request
	whoSends func(jar http.CookieJar, headers []string) string

	ran        int            // statements of the product
	statements map[string]int // the most that a request has run, by its kind
}

// Run plays f in a box, whose clock is simulated: time passes as soon as everything waits for it.
func Run(t *testing.T, f func(b *Box)) {
	t.Helper()
	url := dbtest.URL(t, db.SQLite)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(began))
		b := openBox(t, url)
		defer b.close()
		f(b)
	})
}

func openBox(t *testing.T, url string) *Box {
	t.Helper()
	b := &Box{T: t, Network: &Network{}, log: &log{}, acted: time.Now(), woken: make(chan struct{}),
		statements: map[string]int{}, story: &story{names: map[string]string{}},
		wire: wire{sent: map[string]*bytes.Buffer{}}, coverage: newCoverage(),
		whoSends: func(http.CookieJar, []string) string { return "somebody" }}
	n := opened.Add(1)
	b.label, b.loopback = fmt.Sprint("box", n), fmt.Sprintf("127.%d.%d.1", 1+n>>8&127, n&255)
	for _, name := range []string{b.label, b.loopback} {
		networks.Store(name, b.Network)
		t.Cleanup(func() { networks.Delete(name) })
	}
	b.file = newFile(t, url, b.die)
	b.Stripe = stripe.New(stripe.Options{Key: stripeKey, WebhookSecret: stripeSecret, Now: b.clock.Now})
	b.bankNetwork = &bank.Network{Stripe: b.Stripe}
	b.providers, b.receiver = &providers{emulator: emulator.New(emulator.Options{})}, &receiver{}
	b.serve(b.host(stripeHost), b.wire.keep("to Stripe", b.story.hear(b.bankNetwork)))
	b.serve(b.host(providersHost), b.wire.keep("to providers", b.providers))
	b.serve(b.loopback, b.wire.keep("to receivers", b.receiver))
	home, providers := b.URL(purserHost), b.URL(providersHost)
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
		NodeURL:          home,
		Policy:           policy.Default,
		EnvelopeKeys:     [][]byte{bytes.Repeat([]byte("test"), 8)},
		Lease:            day, // a job that waits for long must not lose it
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
		Stripe:  topups.Config{Key: stripeKey, WebhookSecret: stripeSecret, BaseURL: b.URL(stripeHost)},
		Providers: map[string]config.Provider{
			"openai":    {BaseURL: providers + "/v1", Keys: []string{"emulated-key"}},
			"anthropic": {BaseURL: providers, Keys: []string{"emulated-key"}},
			"google":    {BaseURL: providers, Keys: []string{"emulated-key"}},
		},
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
	l := b.Network.Listen(host)
	go func() { _ = s.Serve(l) }() // until it is closed
}

// Start starts the product.
func (b *Box) Start() {
	b.T.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s, err := server.Open(ctx, b.config, slog.New(slog.NewJSONHandler(b.log, nil)), true)
	if err != nil {
		stop()
		b.T.Fatal(err)
	}
	s.Ticks = b.ticks
	s.DB.Fail(b.fails)
	b.clock.set(s.DB)
	s.Mount(ui.Home{BaseURL: b.config.BaseURL, AuthURL: b.config.AuthURL, Dev: true})
	b.coverage.know(s.Router.Routes())
	b.Server, b.stop, b.ended = s, stop, make(chan error, 1)
	l := b.Network.Listen(b.host(purserHost))
	go func() { b.ended <- s.Run(ctx, []net.Listener{l}) }()
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

// Stop stops the product as a signal does.
func (b *Box) Stop() {
	b.T.Helper()
	b.stop()
	if err := <-b.ended; err != nil {
		b.T.Error(err)
	}
	b.Server = nil
}

func (b *Box) close() {
	var err error
	if b.Server != nil {
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
func (b *Box) Pass(d time.Duration) { time.Sleep(d) }

// act notes that somebody does something, so that no job waits for longer than its interval.
func (b *Box) act() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acted = time.Now()
	close(b.woken)
	b.woken = make(chan struct{})
}

// longestPause is how long a job waits at most while nobody does anything.
const longestPause = 6 * time.Hour

// ticks are the product's. A job waits for a third of the time in which nobody has done anything: what is due is late
// by a third, and a month takes some hundred runs of a job and not a million.
func (b *Box) ticks(interval time.Duration) (<-chan time.Time, func()) {
	c, done := make(chan time.Time, 1), make(chan struct{})
	go func() {
		for last := time.Now(); ; {
			b.mu.Lock()
			wait, woken := max(interval, min(time.Since(b.acted)/3, longestPause)), b.woken
			b.mu.Unlock()
			select {
			case now := <-time.After(time.Until(last.Add(wait))):
				last = now
				select {
				case c <- now:
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
