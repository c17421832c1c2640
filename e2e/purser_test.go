// Package e2e drives Purser from outside with heavy clients: the official OpenAI
// SDKs, a stock OAuth library and a real browser. It is a module of its own, so
// that the product does not depend on them.
package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"golang.org/x/oauth2"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// eachNode runs f against the real binary on SQLite, and in the long run on each
// engine, and audits its database afterwards.
func eachNode(t *testing.T, f func(t *testing.T, p *servertest.Process), flags ...string) {
	t.Helper()
	engines := []db.Engine{db.SQLite, db.Postgres}
	if !testkit.IsLong() {
		engines = engines[:1]
	}
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			p := servertest.Start(t, servertest.URL(t, e), flags...)
			f(t, p)
			p.Verify()
		})
	}
}

// soon bounds what a test waits for. Only the machine decides how long that is.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// spends returns the spend rows of a connection, newest first, as the database
// has them.
func spends(t *testing.T, p *servertest.Process, connectionID string) []rules.Entry {
	t.Helper()
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := store.GetConnection(t.Context(), d, connectionID)
	if err != nil {
		t.Fatal(err)
	}
	list, err := store.RecentEntries(t.Context(), d, c.AccountID, c.ID, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// settled waits until no call of the connection holds money any more.
func settled(t *testing.T, p *servertest.Process, accessToken string) {
	t.Helper()
	for ctx := soon(t); ; {
		var c struct {
			Held *int64 `json:"held_mc"`
		}
		if status := send(t, p, "GET", "/v1/connection", "", "Bearer "+accessToken, &c); status != http.StatusOK ||
			c.Held == nil {
			t.Fatalf("GET /v1/connection: %d", status)
		}
		if *c.Held == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("still held: %d mc", *c.Held)
		}
	}
}

// send calls the API and reads the answer into out, if that is not nil.
func send(t *testing.T, p *servertest.Process, method, path, body, authorization string, out any) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.BaseURL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatalf("%s %s: %d %s: %v", method, path, resp.StatusCode, text, err)
	}
	return resp.StatusCode
}

// manage calls the management API as the sample app, and wants a 2xx.
func manage(t *testing.T, p *servertest.Process, method, path, body string, out any) {
	t.Helper()
	req := http.Request{Header: http.Header{}}
	req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
	if status := send(t, p, method, path, body, req.Header.Get("Authorization"), out); status/100 != 2 {
		t.Fatalf("%s %s: %d", method, path, status)
	}
}

// client is the sample app as golang.org/x/oauth2 sees it.
func client(p *servertest.Process) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.App.ClientID, ClientSecret: p.App.ClientSecret, RedirectURL: p.App.RedirectURI,
		Endpoint: oauth2.Endpoint{
			AuthURL:   p.AuthURL + "/oauth/authorize",
			TokenURL:  p.BaseURL + "/oauth/token",
			AuthStyle: oauth2.AuthStyleInHeader,
		},
	}
}

// grant connects a new test account with a cap and a daily limit, as typed, by
// the forms that a browser would send; "" is no limit.
func grant(t *testing.T, p *servertest.Process, spendCap, daily string) *oauth2.Token {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	user := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	post := func(address string, form url.Values) url.Values {
		t.Helper()
		resp, err := user.PostForm(address, form)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			text, _ := io.ReadAll(resp.Body)
			t.Fatalf("%s: %d %s", address, resp.StatusCode, text)
		}
		return to.Query()
	}
	app, verifier := client(p), oauth2.GenerateVerifier()
	post(p.AuthURL+"/sign-in", url.Values{"email": {p.Developer.Email}, "password": {p.Developer.Password}})
	back := post(app.AuthCodeURL("s", oauth2.S256ChallengeOption(verifier)),
		url.Values{"decision": {"approve"}, "test_account": {"new"}, "spend_cap": {spendCap}, "daily_limit": {daily}})
	token, err := app.Exchange(t.Context(), back.Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	endOnShared(t, p, token.Extra("connection_id").(string))
	return token
}

// register makes uri the only redirect address of the sample app. There is no
// page for that yet, so it is written where the server will read it.
func register(t *testing.T, p *servertest.Process, uri string) {
	t.Helper()
	text, err := json.Marshal([]string{uri})
	if err != nil {
		t.Fatal(err)
	}
	write(t, p, `UPDATE apps SET redirect_uris = $1 WHERE id = $2`, string(text), p.App.ID)
	p.App.RedirectURI = uri
}

// write changes the database of a node behind its back.
func write(t *testing.T, p *servertest.Process, query string, args ...any) {
	t.Helper()
	driver, source := "pgx", p.DB
	if path, ok := strings.CutPrefix(p.DB, "sqlite:"); ok {
		driver, source = "sqlite", path+"?_pragma=busy_timeout(5000)"
	}
	d, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// read decodes JSON.
func read[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
