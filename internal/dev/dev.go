// Package dev runs a development node: the production server on one SQLite file,
// with sample data, emulated providers or the mock, and an emulated Stripe. Nothing
// that serves real users imports it (build tag serve).
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/stripe"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/history"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/server"
)

// Options are the flags and the environment of `purser dev`.
type Options struct {
	Data      string // folder of the database and its keys
	Listen    string
	Database  string   // "" = SQLite in Data
	Providers string   // what answers the sample app's calls: mock, emulator or live
	Environ   []string // settings of purser serve that count here, too; ReadEnvironment says which do not
	Empty     bool     // make no sample history
	Days      int      // of the sample history
	Clock     Duration // how far the clock is ahead at least; 0 = as far as it was
	JSON      bool     // print one line of JSON instead of the welcome
	Lease     time.Duration
	Drain     time.Duration
	Grace     time.Duration
	Out       io.Writer
}

// instead says what takes the place of the settings of purser serve that purser dev does not take.
var instead = map[string]string{
	"database":              "give --database",
	"listen":                "give --listen",
	"auth_listen":           "give --listen",
	"metrics_listen":        "the metrics are purser serve's",
	"base_url":              "it follows from --listen",
	"auth_url":              "it follows from --listen",
	"dashboard_url":         "it follows from --listen",
	"node_url":              "it follows from --listen",
	"envelope_key":          "the folder of --data has its own key",
	"envelope_key_command":  "the folder of --data has its own key",
	"stripe.key":            "Stripe is emulated",
	"stripe.webhook_secret": "Stripe is emulated",
	"stripe.base_url":       "Stripe is emulated",
	"smtp.url":              "mail is shown at /dev/mail",
	"smtp.from":             "mail is shown at /dev/mail",
	"smtp.tls":              "mail is shown at /dev/mail",
}

// ReadEnvironment returns the settings in the environment. Its error names all that are wrong, or that purser dev does
// not take, a line each.
func ReadEnvironment(environ []string) (config.Config, error) {
	c, _, _ := config.ReadSound("", nil, environ)
	_, err := config.Read("", nil, environ, nil)
	errs := []error{err}
	for _, name := range c.Given {
		if other := instead[name]; other != "" {
			errs = append(errs, fmt.Errorf("environment: purser dev does not take the setting %s: %s", name, other))
		}
	}
	return c, errors.Join(errs...)
}

// Run runs a development node until ctx ends.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	listeners, err := listen(o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	moved := &clock{}
	c, err := configure(o, listeners[0].Addr(), moved.now, log)
	if err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	moved.fixed = c.OIDC.Issuer != ""
	s, err := open(ctx, o, c, log)
	if err != nil {
		return errors.Join(err, closeAll(listeners))
	}
	s.Ticks = moved.every
	if err := moved.start(ctx, s.DB, time.Duration(o.Clock)); err != nil {
		return errors.Join(err, closeAll(listeners), s.DB.Close())
	}
	data, err := seed(ctx, s, o)
	if err != nil {
		return errors.Join(err, closeAll(listeners), s.DB.Close())
	}
	data.BaseURL, data.AuthURL, data.DashboardURL = c.BaseURL, c.AuthURL, c.DashboardURL
	data.DB, data.OperatorFile = c.Database, operatorTokenFile(o)
	if err := writeAppFile(o.Data, &data); err != nil {
		return errors.Join(fmt.Errorf("data folder: %w", err), closeAll(listeners), s.DB.Close())
	}
	app := ui.Dev{
		BaseURL:      c.BaseURL,
		AuthURL:      c.AuthURL,
		DashboardURL: c.DashboardURL,
		ClientID:     data.App.ClientID,
		ClientSecret: data.App.ClientSecret,
	}
	s.Mount(ui.Home{BaseURL: c.BaseURL, AuthURL: c.AuthURL, Dev: true, ConnectURL: app.ConnectURL()})
	app.Mount(s.Router)
	(&mail.Outbox{Store: s.Mails}).Mount(s.Router)
	moved.mount(s.Router)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx, listeners) }()
	if err := printWelcome(o, &c, &data); err != nil {
		log.Error("welcome not printed", "error", err)
	}
	return <-ran
}

// open opens the server. Before that it gives an empty database its history.
func open(ctx context.Context, o Options, c config.Config, log *slog.Logger) (*server.Server, error) {
	s, err := server.Open(ctx, c, log, true)
	if err != nil || o.Empty {
		return s, err
	}
	mine, err := history.Claim(ctx, s.DB)
	if err != nil {
		return nil, errors.Join(err, s.DB.Close())
	}
	if !mine {
		return s, nil
	}
	if err := s.DB.Close(); err != nil {
		return nil, err
	}
	if err := makeHistory(ctx, o, c, log); err != nil {
		return nil, err
	}
	return server.Open(ctx, c, log, true)
}

// makeHistory makes the sample history with a server of its own, which is gone afterwards with all that it remembers.
// Its providers are emulated, whatever the developer configured.
func makeHistory(ctx context.Context, o Options, c config.Config, log *slog.Logger) error {
	m := history.Maker{Days: o.Days}
	payments := stripe.New(stripe.Options{
		Key:           c.Stripe.Key,
		WebhookSecret: c.Stripe.WebhookSecret,
		Now:           func() time.Time { return m.Server.DB.Now() },
	})
	m.Stripe = payments
	closeStripe, stripeURL, err := serveForNow(payments)
	if err != nil {
		return err
	}
	defer closeStripe()
	closeProviders, providersURL, err := serveForNow(emulator.New(emulator.Options{}))
	if err != nil {
		return err
	}
	defer closeProviders()
	c.Stripe.BaseURL, c.Providers = stripeURL, emulatedProviders(providersURL, false)
	c.Stripe.Clearance = 0 // the sample users spend what they have paid
	if m.Server, err = server.Open(ctx, c, log, true); err != nil {
		return err
	}
	m.Server.Mount(ui.Home{BaseURL: c.BaseURL, AuthURL: c.AuthURL, Dev: true})
	m.Seed = func(ctx context.Context) (sample.Data, error) { return seed(ctx, m.Server, o) }
	return m.Server.RunOffline(ctx, m.Make)
}

// seed makes or finds the sample data, with fresh tokens.
func seed(ctx context.Context, s *server.Server, o Options) (sample.Data, error) {
	return sample.Seed(ctx, sample.Stores{
		DB:       s.DB,
		Ledger:   s.Ledger,
		Accounts: s.Accounts,
		Apps:     s.Apps,
		Features: s.Features,
		Tokens:   s.Tokens,
	}, ui.Dev{DashboardURL: s.Config.DashboardURL}.RedirectURI(), providerMode(o.Providers))
}

// chooseProviders returns how live calls reach the providers: by the emulator, so that an app that goes live in
// development works. With the mock, a provider that the developer configured is reached as configured.
func chooseProviders(o Options, configured, emulated map[string]config.Provider) map[string]config.Provider {
	for name, p := range configured {
		if o.Providers == "mock" && (len(p.Keys) > 0 || p.BaseURL != "") {
			emulated[name] = p
		}
	}
	return emulated
}

// configure starts the emulators, and returns what `purser serve` reads from its file, with them.
func configure(o Options, at net.Addr, now func() time.Time, log *slog.Logger) (config.Config, error) {
	c, err := readConfig(o, at)
	if err != nil {
		return c, err
	}
	if o.Providers != "live" {
		emulated, err := emulateProviders(log, c.Providers["openai"].Store)
		if err != nil {
			return c, err
		}
		c.Providers = chooseProviders(o, c.Providers, emulated)
	}
	emulated, err := emulateStripe(log, c.DashboardURL, now)
	emulated.Clearance, emulated.Invoices = c.Stripe.Clearance, c.Stripe.Invoices
	c.Stripe = emulated
	return c, err
}

// defaultPolicy is the policy unless the environment says otherwise.
func defaultPolicy(providers string) policy.Policy {
	p := policy.Default
	p.SandboxTotalDayMC = money.Max
	if providers == "emulator" { // emulated calls cost nothing
		p.SandboxDayMC = money.Max
	}
	return p
}

// readConfig returns the configuration without the emulators.
func readConfig(o Options, at net.Addr) (config.Config, error) {
	key, err := envelopeKey(filepath.Join(o.Data, "envelope.key"))
	if err != nil {
		return config.Config{}, err
	}
	token, err := operatorToken(operatorTokenFile(o))
	if err != nil {
		return config.Config{}, err
	}
	url := listenURL(o.Listen, at)
	c := config.Config{
		Database:         o.Database,
		BaseURL:          url,
		AuthURL:          url,
		DashboardURL:     url,
		NodeURL:          url,
		Policy:           defaultPolicy(o.Providers),
		EnvelopeKeys:     [][]byte{key},
		Lease:            o.Lease,
		Drain:            o.Drain,
		Grace:            o.Grace,
		Retention:        config.DefaultRetention,
		VerifyAt:         "03:00",
		VoiceIdleTimeout: 2 * time.Minute,
		LogSample:        money.One,
		Providers:        map[string]config.Provider{},
		SignUps:          identity.OpenSignUps,
		Backup:           backup.Settings{Keep: 14},
		OTLP:             telemetry.Config{Sample: money.One},
		// Two weeks of sample calls earn less than half a dollar.
		Payouts: payouts.Config{Every: time.Minute, Window: 24 * time.Hour, MinimumMC: money.Dollar / 10},
	}
	if c.Database == "" {
		c.Database = "sqlite:" + filepath.Join(o.Data, "purser.db")
	}
	err = c.Override(o.Environ)
	c.OperatorTokens = append(c.OperatorTokens, token)
	return c, err
}

// listen opens the listeners of an address. The name localhost may lead to either loopback address, so it gets both
// where the machine has IPv6.
func listen(address string) ([]net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != localhost {
		l, err := net.Listen("tcp", address)
		return []net.Listener{l}, err
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	list := []net.Listener{l}
	_, port, _ = net.SplitHostPort(l.Addr().String()) // port 0 has become a real one
	switch six, err := net.Listen("tcp6", net.JoinHostPort("::1", port)); {
	case err == nil:
		list = append(list, six)
	case errors.Is(err, syscall.EADDRINUSE): // browsers would reach that program instead
		return nil, errors.Join(err, l.Close())
	}
	return list, nil
}

func closeAll(list []net.Listener) (err error) {
	for _, l := range list {
		err = errors.Join(err, l.Close())
	}
	return err
}

// localhost is the name of this machine for which browsers make passkeys, as they do not for an address.
const localhost = "localhost"

// listenURL is the address of the node for browsers. A listener on localhost or on all interfaces is reached at
// localhost.
func listenURL(asked string, at net.Addr) string {
	host, _, err := net.SplitHostPort(asked)
	if a, ok := at.(*net.TCPAddr); ok && (a.IP.IsUnspecified() || err == nil && host == localhost) {
		return fmt.Sprintf("http://%s:%d", localhost, a.Port)
	}
	return "http://" + at.String()
}

// providerMode is the sample app's.
func providerMode(providers string) string {
	if providers == "mock" {
		return apps.Mock
	}
	return apps.Live
}
