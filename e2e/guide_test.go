package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// maxSkippedBlocks bounds the programs of the guides that are not run. Raise it only for what cannot run: an
// installation, or a server that never ends.
const maxSkippedBlocks = 18

// TestGuide runs every program of the guides and the README against a fresh purser dev, each with an app and a
// connection of its own, and parses every block of JSON. docs/internals/testing.md says what the programs find. The
// usual run has each example in one of its languages.
func TestGuide(t *testing.T) {
	t.Parallel()
	var programs, skipped []*guideBlock
	for _, page := range guidePages(t) {
		for _, b := range readGuideBlocks(t, page) {
			switch {
			case b.isProgram():
				programs = append(programs, b)
			case b.skip != "":
				skipped = append(skipped, b)
			case b.language == "json":
				if err := b.checkJSON(); err != nil {
					t.Errorf("%s is no JSON: %v\n%s", b.name(), err, b.code)
				}
			}
		}
	}
	for _, b := range skipped {
		t.Logf("not run: %s (%s): %s", b.name(), b.language, b.skip)
	}
	if len(skipped) > maxSkippedBlocks {
		t.Errorf("%d programs are not run, and at most %d may be", len(skipped), maxSkippedBlocks)
	}
	if len(programs) == 0 {
		return
	}
	if !testkit.IsLong() {
		programs = chooseTabs(programs)
	}
	g := newGuide(t, programs)
	for i, b := range programs {
		t.Run(b.name(), func(t *testing.T) {
			t.Parallel()
			g.run(t, b, g.apps[i])
		})
	}
}

// A guide is what the programs of the guides share.
type guide struct {
	p        *servertest.Process
	user     *guideUser
	apps     []*guideApp // by the program's index
	bin      string      // folder with purser, for PATH
	programs *guidePrograms
}

// A guideApp is the app that one program works with.
type guideApp struct {
	name                   string
	id, clientID, secret   string
	publicID               string // client id of an app on users' devices
	port                   string // where the program may listen, and gets its webhooks
	redirectURI, listenURL string
}

// newGuide starts purser dev with an app for each program.
func newGuide(t *testing.T, programs []*guideBlock) *guide {
	t.Helper()
	g := &guide{bin: t.TempDir(), programs: newGuidePrograms(t, programs)}
	if err := os.Symlink(servertest.Binary(t), filepath.Join(g.bin, "purser")); err != nil {
		t.Fatal(err)
	}
	for _, b := range programs {
		g.apps = append(g.apps, &guideApp{
			name:        "Guide " + filepath.Base(b.name()),
			port:        freePort(t),
			redirectURI: fmt.Sprintf("http://127.0.0.1:%s/callback", freePort(t)),
		})
	}
	database := servertest.URL(t, db.SQLite)
	if err := createGuideApps(t.Context(), database, "developer@example.com", g.apps); err != nil {
		t.Fatal(err)
	}
	g.p = servertest.Start(t, database)
	t.Cleanup(g.p.Verify)
	g.user = newGuideUser(t, g.p)
	return g
}

// createGuideApps creates apps of a developer. On a page a developer creates one at a time, and at most 100.
func createGuideApps(ctx context.Context, database, developer string, list []*guideApp) error {
	d, err := db.Open(ctx, database)
	if err != nil {
		return err
	}
	defer d.Close()
	store := apps.NewStore(d, time.Now, true)
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		owner, err := accounts.IDByEmail(ctx, tx, developer)
		if err != nil {
			return err
		}
		for _, a := range list {
			if err := a.create(ctx, tx, store, owner); err != nil {
				return err
			}
		}
		return nil
	})
}

// create creates the app and its twin on users' devices.
func (a *guideApp) create(ctx context.Context, tx *db.Tx, store *apps.Store, owner string) error {
	a.listenURL = fmt.Sprintf("http://127.0.0.1:%s/webhooks", a.port)
	maxTokens := int64(apps.SuggestedMaxTokens)
	app, secret, err := store.Create(ctx, tx, apps.New{
		OwnerID:          owner,
		Name:             a.name,
		RedirectURIs:     []string{a.redirectURI},
		DefaultMaxTokens: &maxTokens,
		Tier:             apps.Sandbox,
		ProviderMode:     apps.Mock,
		DevMargin:        money.One / 5,
	})
	if err != nil {
		return err
	}
	a.id, a.clientID, a.secret = app.ID, app.ClientID, secret
	public, _, err := store.Create(ctx, tx, apps.New{
		OwnerID:      owner,
		Name:         a.name + " (device)",
		ClientType:   apps.Public,
		RedirectURIs: []string{"http://127.0.0.1/callback"},
		Tier:         apps.Sandbox,
		ProviderMode: apps.Mock,
	})
	a.publicID = public.ClientID
	return err
}

// manage calls the management API as the app.
func (g *guide) manage(t *testing.T, a *guideApp, method, path, body string, out any) {
	t.Helper()
	req := http.Request{Header: http.Header{}}
	req.SetBasicAuth(a.clientID, a.secret)
	if status := send(t, g.p, method, path, body, req.Header.Get("Authorization"), out); status/100 != 2 {
		t.Fatalf("%s %s: %d", method, path, status)
	}
}

// guideFeatures are registered for every app, as the sample app has them.
var guideFeatures = []string{
	`{"slug":"chat","display_name":"Chat","description":"Answers your questions in the chat window."}`,
	`{"slug":"summarize","display_name":"Summaries","description":"Shortens long texts that you paste.",` +
		`"default_model":"gpt-6-luna","dev_margin_rate":0.5}`,
}

// guideCap is the spend cap of each connection, in US dollars. The test account has 1,000 for all.
const guideCap = "4"

// connect connects the sample test account to the app, and returns the environment of its program.
func (g *guide) connect(t *testing.T, a *guideApp) (environ []string, endpointID string) {
	t.Helper()
	for _, f := range guideFeatures {
		g.manage(t, a, "POST", "/v1/apps/"+a.id+"/features", f, nil)
	}
	g.manage(t, a, "PATCH", "/v1/apps/"+a.id, `{"own_work":true}`, nil)
	config := oauth2.Config{
		ClientID:     a.clientID,
		ClientSecret: a.secret,
		RedirectURL:  a.redirectURI,
		Endpoint: oauth2.Endpoint{
			AuthURL:   g.p.AuthURL + "/oauth/authorize",
			TokenURL:  g.p.BaseURL + "/oauth/token",
			AuthStyle: oauth2.AuthStyleInHeader,
		},
	}
	verifier := oauth2.GenerateVerifier()
	code, err := g.user.approve(config.AuthCodeURL("s", oauth2.S256ChallengeOption(verifier)), guideCap)
	if err != nil {
		t.Fatal(err)
	}
	token, err := config.Exchange(t.Context(), code, oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	var endpoint struct{ ID, Secret string }
	body, err := json.Marshal(map[string]string{"url": a.listenURL})
	if err != nil {
		t.Fatal(err)
	}
	g.manage(t, a, "POST", "/v1/apps/"+a.id+"/webhooks", string(body), &endpoint)
	return []string{
		"BASE_URL=" + g.p.BaseURL,
		"AUTH_URL=" + g.p.AuthURL,
		"DASHBOARD_URL=" + g.p.DashboardURL,
		"DATABASE=" + g.p.DB,
		"APP_ID=" + a.id,
		"CLIENT_ID=" + a.clientID,
		"CLIENT_SECRET=" + a.secret,
		"PUBLIC_CLIENT_ID=" + a.publicID,
		"REDIRECT_URI=" + a.redirectURI,
		"CONNECTION_ID=" + token.Extra("connection_id").(string),
		"ACCESS_TOKEN=" + token.AccessToken,
		"REFRESH_TOKEN=" + token.RefreshToken,
		"WEBHOOK_URL=" + a.listenURL,
		"WEBHOOK_ID=" + endpoint.ID,
		"WEBHOOK_SECRET=" + endpoint.Secret,
		"PORT=" + a.port,
		// Of the commands of purser that watch an app.
		"PURSER_APP=" + a.id,
		"PURSER_CLIENT_ID=" + a.clientID,
		"PURSER_CLIENT_SECRET=" + a.secret,
	}, endpoint.ID
}

// approve signs in as the test account if needed, approves a spend cap at the consent screen, and returns the code.
func (u *guideUser) approve(authorizeURL, spendCap string) (code string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	browser := http.Client{Jar: u.http.Jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	if !u.signedIn {
		resp, err := browser.PostForm(u.p.AuthURL+"/sign-in",
			url.Values{"email": {u.p.TestAccount.Email}, "password": {u.p.TestAccount.Password}})
		if err != nil {
			return "", err
		}
		resp.Body.Close()
		u.signedIn = true
	}
	resp, err := browser.PostForm(authorizeURL,
		url.Values{"decision": {"approve"}, "spend_cap": {spendCap}, "own_work": {"1"}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("consent is answered with %s: %w", resp.Status, err)
	}
	if code = to.Query().Get("code"); code == "" {
		return "", fmt.Errorf("consent leads to %s", to)
	}
	return code, nil
}

// guideTimeout bounds one program.
const guideTimeout = time.Minute

// run runs one program with an app of its own.
func (g *guide) run(t *testing.T, b *guideBlock, a *guideApp) {
	t.Helper()
	environ, endpointID := g.connect(t, a)
	command := g.programs.command(t, b)
	home := t.TempDir()
	command.Env = append(append([]string{
		"PATH=" + g.bin + ":" + os.Getenv("PATH"),
		"HOME=" + home,
		"LANG=C.UTF-8",
		"NO_COLOR=1",
	}, command.Env...), environ...)
	if b.expect == "" { // curl fails with an error answer, and shows it
		if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("fail-with-body\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := &guideRun{
		block:   b,
		command: command,
		user:    g.user,
		timeout: guideTimeout,
	}
	if b.trigger != "" {
		run.trigger = func(ctx context.Context) error {
			if err := awaitListener(ctx, a.port); err != nil {
				return err
			}
			g.manage(t, a, "POST", "/v1/apps/"+a.id+"/webhooks/"+endpointID+"/test",
				fmt.Sprintf(`{"type":%q}`, b.trigger), nil)
			return nil
		}
	}
	if err := run.do(t.Context()); err != nil {
		t.Errorf("%s (%s): %v\n--- program ---\n%s--- output ---\n%s", b.name(), b.language, err,
			b.numberedCode(), run.output())
	}
}

// awaitListener waits until a program listens on a port.
func awaitListener(ctx context.Context, port string) error {
	for {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the program does not listen on PORT: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// numberedCode returns the program with the page's line numbers.
func (b *guideBlock) numberedCode() string {
	var out strings.Builder
	n := b.line
	for line := range strings.Lines(b.code) {
		fmt.Fprintf(&out, "%4d  %s", n, line)
		n++
	}
	return out.String()
}
