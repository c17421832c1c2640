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
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/server"
)

// Options are the flags of `purser dev`.
type Options struct {
	Data      string // folder of the database and its keys
	Listen    string
	Database  string // "" = SQLite in Data
	Providers string // what answers the sample app's calls: mock, emulator or live
	// Configured are the providers that Providers "live" reaches.
	Configured map[string]config.Provider
	PricesFile string                // file of models and prices that go before the built-in ones; "" = none
	SandboxDay money.MC              // what these may cost in 24 hours
	OIDC       identity.OpenIDConfig // an identity provider to sign in with
	JSON       bool                  // print one line of JSON instead of the welcome
	Lease      time.Duration
	Drain      time.Duration
	Grace      time.Duration
	Out        io.Writer
}

// Run runs a development node until ctx ends.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s, err := open(ctx, o, l.Addr(), log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	c := s.Config
	redirectURI := ui.Dev{DashboardURL: c.DashboardURL}.RedirectURI()
	stores := sample.Stores{
		DB:       s.DB,
		Ledger:   s.Ledger,
		Accounts: s.Accounts,
		Apps:     s.Apps,
		Features: s.Features,
		Tokens:   s.Tokens,
	}
	data, err := sample.Seed(ctx, stores, redirectURI, providerMode(o.Providers))
	if err != nil {
		return errors.Join(err, l.Close(), s.DB.Close())
	}
	data.BaseURL, data.AuthURL, data.DashboardURL = c.BaseURL, c.AuthURL, c.DashboardURL
	data.DB, data.OperatorFile = c.Database, operatorTokenFile(o)
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
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx, []net.Listener{l}) }()
	if err := printWelcome(o, &data, app.ConnectURL()); err != nil {
		log.Error("welcome not printed", "error", err)
	}
	return <-ran
}

// open starts the emulators and opens the server on them.
func open(ctx context.Context, o Options, at net.Addr, log *slog.Logger) (*server.Server, error) {
	c, err := configure(o, at)
	if err != nil {
		return nil, err
	}
	if o.Providers != "live" {
		emulated, err := emulateProviders(log, c.Providers["openai"].Store)
		if err != nil {
			return nil, err
		}
		c.Providers = chooseProviders(o, emulated)
	}
	if c.Stripe, err = emulateStripe(log, c.DashboardURL); err != nil {
		return nil, err
	}
	return server.Open(ctx, c, log, true)
}

// chooseProviders returns how live calls reach the providers: by the emulator, so that an app that goes live in
// development works. With the mock, a provider that the developer configured is reached as configured.
func chooseProviders(o Options, emulated map[string]config.Provider) map[string]config.Provider {
	for name, p := range o.Configured {
		if o.Providers == "mock" && (p.Key != "" || p.BaseURL != "") {
			emulated[name] = p
		}
	}
	return emulated
}

// configure returns what `purser serve` reads from its file.
func configure(o Options, at net.Addr) (config.Config, error) {
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
		FeeRate:          money.One / 20,
		EnvelopeKey:      key,
		Lease:            o.Lease,
		Drain:            o.Drain,
		Grace:            o.Grace,
		Retention:        store.DefaultRetention,
		VoiceIdleTimeout: 2 * time.Minute,
		OperatorToken:    token,
		Providers:        o.Configured,
		PricesFile:       o.PricesFile,
		OIDC:             o.OIDC,
		FreeCredit:       tiers.DefaultFreeCredit,
		RiskThresholds:   limits.DefaultRiskThresholds,
		SandboxDayMC:     o.SandboxDay,
	}
	if o.Providers == "emulator" { // emulated calls cost nothing
		c.SandboxDayMC = money.Max
	}
	if c.Database == "" {
		c.Database = "sqlite:" + filepath.Join(o.Data, "purser.db")
	}
	return c, nil
}

// listenURL is the address of the node for browsers. A listener on all interfaces
// is reached on loopback. The name localhost is kept, because browsers make
// passkeys for names only.
func listenURL(asked string, at net.Addr) string {
	a, ok := at.(*net.TCPAddr)
	if ok && a.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	}
	if host, _, err := net.SplitHostPort(asked); ok && err == nil && host == "localhost" {
		return fmt.Sprintf("http://localhost:%d", a.Port)
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
