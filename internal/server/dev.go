package server

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/ledger"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
)

// DevOptions are the flags of `purser dev`.
type DevOptions struct {
	Data     string // folder of the database and its keys
	Listen   string
	Database string // "" = SQLite in Data
	// Who serves the sample app's calls: mock, or live ones: emulator, or live for those of Configured.
	Providers  string
	Configured map[string]config.Provider
	OIDC       identity.OpenID // who else tells who people are
	JSON       bool            // print one line of JSON instead of the welcome
	Lease      time.Duration
	Out        io.Writer
}

// Seeded is what `purser dev` tells: everything that a first call needs. Its
// JSON is the line that --json prints.
type Seeded struct {
	BaseURL      string     `json:"base_url"`
	AuthURL      string     `json:"auth_url"`
	DashboardURL string     `json:"dashboard_url"`
	Operator     login      `json:"operator"`
	OperatorFile string     `json:"operator_token_file"` // who can read it is the operator
	Developer    login      `json:"developer"`
	TestAccount  login      `json:"test_account"`
	App          seededApp  `json:"app"`
	Connection   seededConn `json:"connection"`
	DB           string     `json:"db"`
}

type login struct {
	Email    string `json:"email"`
	Password string `json:"password"`
}

type seededApp struct {
	ID           string `json:"id"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	RedirectURI  string `json:"redirect_uri"`
}

type seededConn struct {
	ID           string `json:"id"`
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	ExpiresIn    int64  `json:"expires_in"`
}

// Dev runs a development node: on one SQLite file unless told otherwise, with
// the mock provider, seeded once with everything that a first call needs.
func Dev(ctx context.Context, o DevOptions, log *slog.Logger) error {
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	c, err := devConfig(o, l.Addr())
	if err == nil && o.Providers == "emulator" {
		c.Providers, err = emulate(log, c.Providers["openai"].Store)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err == nil {
		c.Stripe, err = emulateStripe(log, c.DashboardURL)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s, err := build(ctx, c, log, true)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	seeded, err := s.seed(ctx, mode(o.Providers))
	if err != nil {
		return errors.Join(err, l.Close(), s.db.Close())
	}
	seeded.OperatorFile = operatorFile(o)
	dev := ui.Dev{BaseURL: c.BaseURL, AuthURL: c.AuthURL, DashboardURL: c.DashboardURL, ClientID: seeded.App.ClientID, ClientSecret: seeded.App.ClientSecret}
	s.mount(ui.Home{BaseURL: c.BaseURL, AuthURL: c.AuthURL, Dev: true, ConnectURL: dev.ConnectURL()})
	dev.Mount(s.router)
	(&mail.Outbox{Store: s.mails}).Mount(s.router)
	ran := make(chan error, 1)
	go func() { ran <- s.run(ctx, []net.Listener{l}) }()
	if err := seeded.print(o, dev.ConnectURL()); err != nil {
		log.Error("the welcome was not printed", "error", err)
	}
	return <-ran
}

// devConfig is what serve reads from its file.
func devConfig(o DevOptions, at net.Addr) (config.Config, error) {
	key, err := devKey(filepath.Join(o.Data, "envelope.key"))
	if err != nil {
		return config.Config{}, err
	}
	here := "http://" + at.String()
	if a, ok := at.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		here = fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	} else if host, _, err := net.SplitHostPort(o.Listen); ok && err == nil && host == "localhost" {
		here = fmt.Sprintf("http://localhost:%d", a.Port) // as it was asked for: browsers make passkeys for a name only
	}
	token, err := devToken(operatorFile(o))
	if err != nil {
		return config.Config{}, err
	}
	c := config.Config{
		Database: o.Database, BaseURL: here, AuthURL: here, DashboardURL: here, FeeRate: money.One / 20, EnvelopeKey: key, Lease: o.Lease, VoiceIdle: 2 * time.Minute, NodeURL: here, OperatorToken: token,
		Providers: o.Configured, OIDC: o.OIDC, Free: tiers.DefaultFreeCredit, Risk: limits.DefaultRisk, SandboxDayMC: tiers.DefaultSandboxDayMC,
	}
	if o.Providers == "emulator" { // nobody is paid
		c.SandboxDayMC = money.Max
	}
	if c.Database == "" {
		c.Database = "sqlite:" + filepath.Join(o.Data, "purser.db")
	}
	return c, nil
}

// mode is the sample app's provider mode.
func mode(providers string) string {
	if providers == "mock" {
		return apps.Mock
	}
	return apps.Live
}

// operatorFile is where the token of the operator's API is kept, for nobody else
// to read; it is never printed.
func operatorFile(o DevOptions) string { return filepath.Join(o.Data, "operator.token") }

// devToken reads that token, and makes one the first time.
func devToken(path string) (string, error) {
	if err := makeOnce(path, []byte(id.Secret())); err != nil {
		return "", fmt.Errorf("operator's token: %w", err)
	}
	text, err := os.ReadFile(path)
	token := strings.TrimSpace(string(text))
	if err == nil && len(token) < 32 {
		err = fmt.Errorf("%s: must have at least 32 characters", path)
	}
	return token, err
}

// devKey reads the data folder's envelope key, and makes one the first time.
// Processes that start at once get the same one, and a crash leaves no half.
func devKey(path string) ([]byte, error) {
	key := make([]byte, seal.KeySize)
	rand.Read(key)
	if err := makeOnce(path, key); err != nil {
		return nil, fmt.Errorf("envelope key: %w", err)
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) != seal.KeySize {
		err = fmt.Errorf("%s: must have %d bytes", path, seal.KeySize)
	}
	return key, err
}

// makeOnce writes a secret beside path, for nobody else to read, and gives it that
// name unless there is one already or somebody was faster.
func makeOnce(path string, secret []byte) (err error) {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*.new") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(secret)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// What the seeded people start with.
const (
	seedBalance    = 1000 * money.Dollar
	seedAllocation = 25 * money.Dollar
)

// seed creates, once for a database, what a first call needs, and returns it
// with fresh tokens. Processes that start at once wait for each other's row,
// longer than the database lets them in one go.
func (s *Server) seed(ctx context.Context, mode string) (out Seeded, err error) {
	for range 12 {
		if out, err = s.seedOnce(ctx); !db.IsUnavailable(err) {
			break
		}
	}
	if err != nil {
		return out, fmt.Errorf("seed: %w", err)
	}
	c := s.config
	out.BaseURL, out.AuthURL, out.DashboardURL, out.DB = c.BaseURL, c.AuthURL, c.DashboardURL, c.Database
	out.App.RedirectURI = ui.Dev{DashboardURL: c.DashboardURL}.RedirectURI()
	app, err := s.apps.Get(ctx, out.App.ID)
	if err != nil || app.Tier != apps.Sandbox { // once it is live it is its developer's alone
		return out, err
	}
	return out, errors.Join(
		s.apps.SetRedirectURIs(ctx, app.ID, []string{out.App.RedirectURI}), // the port may have moved
		s.apps.SetProviderMode(ctx, app.ID, mode), s.describe(ctx, app.ID))
}

func (s *Server) seedOnce(ctx context.Context) (out Seeded, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out = Seeded{}
		if _, err := tx.ExecContext(ctx, `INSERT INTO settings (name, value) VALUES ('dev', '') ON CONFLICT (name) DO NOTHING`); err != nil {
			return err
		}
		var text string
		if err := tx.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = 'dev'`+tx.Engine.ForUpdate()).Scan(&text); err != nil {
			return err
		}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &out); err != nil {
				return fmt.Errorf("settings.dev: %w", err)
			}
			return s.connect(ctx, tx, &out)
		}
		if err := s.populate(ctx, tx, &out); err != nil {
			return err
		}
		kept, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE settings SET value = $1 WHERE name = 'dev'`, string(kept)); err != nil {
			return err
		}
		return s.connect(ctx, tx, &out)
	})
	return out, err
}

// populate creates people and app.
func (s *Server) populate(ctx context.Context, tx *db.Tx, out *Seeded) error {
	out.Operator = login{"operator@example.com", id.Secret()[:16]}
	out.Developer = login{"developer@example.com", id.Secret()[:16]}
	out.TestAccount = login{"tester@example.com", id.Secret()[:16]}
	if _, err := s.accounts.Create(ctx, tx, accounts.NewAccount{Email: out.Operator.Email, Password: out.Operator.Password, Operator: true}); err != nil {
		return err
	}
	developer, err := s.accounts.Create(ctx, tx, accounts.NewAccount{Email: out.Developer.Email, Password: out.Developer.Password, Developer: true})
	if err != nil {
		return err
	}
	tester, err := s.accounts.Create(ctx, tx, accounts.NewAccount{Email: out.TestAccount.Email, Password: out.TestAccount.Password, Sandbox: true, OwnerID: developer.ID})
	if err != nil {
		return err
	}
	if _, err := s.ledger.DoTx(ctx, tx, ledger.TopUp{AccountID: tester.ID, Sandbox: true, AmountMC: seedBalance}); err != nil {
		return err
	}
	app, secret, err := s.apps.Create(ctx, tx, apps.New{
		OwnerID: developer.ID, Name: "Sample app", RedirectURIs: []string{ui.Dev{DashboardURL: s.config.DashboardURL}.RedirectURI()},
		Tier: "sandbox", ProviderMode: "mock", DevMargin: money.One / 5,
	})
	if err != nil {
		return err
	}
	out.App = seededApp{ID: app.ID, ClientID: app.ClientID, ClientSecret: secret}
	return nil
}

// describe registers those of the sample app's features that are missing. Another
// process may do the same at the same time: whoever comes second finds it done.
func (s *Server) describe(ctx context.Context, appID string) error {
	set := func(v string) web.Field[string] { return web.Field[string]{Set: true, Value: v} }
	for _, f := range []features.Change{
		{Slug: set("chat"), DisplayName: set("Chat"), Description: set("Answers your questions in the chat window.")},
		{
			Slug: set("summarize"), DisplayName: set("Summaries"), Description: set("Shortens long texts that you paste."), DefaultModel: set("gpt-6-luna"),
			DevMarginRate: web.Field[jsontext.Value]{Set: true, Value: jsontext.Value("0.5")},
		},
	} {
		if _, err := s.features.Get(ctx, appID, f.Slug.Value); err == nil {
			continue
		}
		if _, err := s.features.Create(ctx, appID, f); err != nil {
			if _, missing := s.features.Get(ctx, appID, f.Slug.Value); missing != nil {
				return errors.Join(err, missing)
			}
		}
	}
	return nil
}

// connect finds or grants the seeded connection, and issues fresh tokens for it.
// Once the sample app is live it takes no test account.
func (s *Server) connect(ctx context.Context, tx *db.Tx, out *Seeded) error {
	if app, err := apps.Share(ctx, tx, out.App.ID); err != nil || app.Tier != apps.Sandbox {
		return err
	}
	var testerID string // it may have been created in this transaction
	if err := tx.QueryRowContext(ctx, `SELECT id FROM accounts WHERE email = $1`, out.TestAccount.Email).Scan(&testerID); err != nil {
		return err
	}
	conn, err := ledger.LiveConnection(ctx, tx, out.App.ID, testerID)
	if errors.Is(err, sql.ErrNoRows) {
		var r ledger.Result
		r, err = s.ledger.DoTx(ctx, tx, ledger.Connect{ConnectionID: id.New(id.Connection, s.db.Now()), AppID: out.App.ID, AccountID: testerID, Sandbox: true, RequestedMC: seedAllocation})
		conn = r.Connection
	}
	if err != nil {
		return err
	}
	t, err := s.tokens.Issue(ctx, tx, conn.ID, out.App.ID, "")
	out.Connection = seededConn{conn.ID, t.AccessToken, t.RefreshToken, t.ExpiresIn}
	return err
}

// print writes the one line of JSON, or the welcome.
func (d *Seeded) print(o DevOptions, connectURL string) error {
	if o.JSON {
		return json.NewEncoder(o.Out).Encode(d)
	}
	_, err := fmt.Fprintf(o.Out, welcome, d.BaseURL, d.DB,
		d.BaseURL, d.Connection.AccessToken, id.UUID(), d.BaseURL, d.Connection.AccessToken, id.UUID(),
		d.DashboardURL, connectURL, d.BaseURL,
		d.Developer.Email, d.Developer.Password, d.TestAccount.Email, d.TestAccount.Password, d.Operator.Email, d.Operator.Password, d.BaseURL, d.OperatorFile,
		d.App.ClientID, d.App.ClientSecret, d.DB)
	return err
}

const welcome = `
Purser is running at %s on %s, with a mock provider and fake money.

A metered call. Paste it twice: the second time is a replay, and costs nothing.
(The token lives 15 minutes; start again for a fresh one.)

  curl -s %s/v1/ai/gpt-6-luna -H 'Authorization: Bearer %s' \
    -H 'Idempotency-Key: %s' -H 'X-Svc-Feature: chat' \
    -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"Hello, what do you cost?"}]}'

The same, streamed:

  curl -sN %s/v1/ai/gpt-6-luna -H 'Authorization: Bearer %s' \
    -H 'Idempotency-Key: %s' \
    -H 'Content-Type: application/json' -d '{"stream":true,"messages":[{"role":"user","content":"Tell me a story."}]}'

Pages
  start               %s/
  connect an app      %s
  API description     %s/openapi.yaml

People and keys
  developer           %s   %s
  test account        %s      %s
  operator            %s    %s
  operator's API      purser operator requests --url %s --token-file %s
  app                 client_id %s   client_secret %s

Check the books at any time:  purser ledger verify --database %s
Stop with Ctrl-C.
`
