package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// link is the authorize link of the sample app, with the verifier of its PKCE pair.
func link(p *servertest.Process, state string) (address, verifier string) {
	verifier = oauth2.GenerateVerifier()
	return client(p).AuthCodeURL(state, oauth2.S256ChallengeOption(verifier),
		oauth2.SetAuthURLParam("requested_allocation_mc", "1500000000"),
		oauth2.SetAuthURLParam("features", "chat,summarize")), verifier
}

// landed checks that the tab is back at the app, and returns what that was told.
func (b *tab) landed(p *servertest.Process, state string) url.Values {
	b.t.Helper()
	at := b.at()
	q := at.Query()
	if at.RawQuery = ""; at.String() != p.App.RedirectURI || q.Get("state") != state || q.Get("iss") != p.AuthURL {
		b.t.Fatalf("landed at %s with %v", at, q)
	}
	return q
}

// TestConsent is the whole way of a user and an app in a real browser: sign in,
// allow spending, spend, change the cap, say no. In the long run it is the same with JavaScript turned off, and on
// PostgreSQL.
func TestConsent(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		for _, scripts := range []bool{true, false} {
			if !testkit.IsLong() && (e != db.SQLite || !scripts) {
				continue
			}
			t.Run(fmt.Sprintf("%s, scripts=%t", e, scripts), func(t *testing.T) {
				t.Parallel()
				p := servertest.Start(t, servertest.URL(t, e))
				b := newTab(t, p.BaseURL)
				if !scripts {
					b.withoutScripts()
				}
				token := allowSpending(t, p, b)
				spend(t, p, token)
				relend(t, p, b, token)
				refuse(t, p, b)
				p.Verify()
			})
		}
	}
}

// allowSpending signs in and approves, with a slip on each page first.
func allowSpending(t *testing.T, p *servertest.Process, b *tab) *oauth2.Token {
	address, verifier := link(p, "one")
	if status := b.open(address); status != http.StatusOK || b.at().Path != "/sign-in" {
		t.Fatalf("the link leads to %d %s", status, b.at())
	}
	if status := b.signIn(p.TestAccount.Email, "a wrong one"); status != http.StatusUnauthorized ||
		b.value("Email") != p.TestAccount.Email || b.value("Password") != "" {
		t.Errorf("a wrong password: %d, and the form keeps %q, %q", status, b.value("Email"), b.value("Password"))
	}
	if status := b.signIn(p.TestAccount.Email, p.TestAccount.Password); status != http.StatusOK ||
		b.at().Path != "/oauth/authorize" {
		t.Fatalf("signing in leads to %d %s", status, b.at())
	}
	b.unfold()
	b.says("Sample app", "Chat", "Summaries", p.TestAccount.Email, "Every offered model", "To revoke",
		"neither spent nor held returns at once", "stays free")
	if v := b.cap(); v != "15.00" {
		t.Errorf("the cap is pre-filled with %q", v)
	}
	b.fillCap("a lot")
	b.fill("Daily limit (USD, optional)", "-3")
	if status := b.pressFirst("Allow"); status != http.StatusUnprocessableEntity ||
		b.cap() != "a lot" || b.value("Daily limit (USD, optional)") != "-3" {
		t.Errorf("wrong amounts: %d, and the form keeps %q, %q", status, b.cap(),
			b.value("Daily limit (USD, optional)"))
	}
	for field, message := range map[string]string{
		"Spend cap (USD)":             "Enter a spend cap in dollars",
		"Daily limit (USD, optional)": "Enter a daily limit in dollars",
	} {
		if said := b.described(field); !said.invalid || !strings.Contains(said.description, message) {
			t.Errorf("%s is described as %+v", field, said)
		}
	}
	b.fillCap("12.50")
	b.fill("Daily limit (USD, optional)", "3")
	if status := b.pressFirst("Allow"); status != http.StatusOK {
		t.Errorf("approved, and got %d", status)
	}
	token, err := client(p).Exchange(t.Context(), b.landed(p, "one").Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// spend calls a model with the token, refreshes it and calls again.
func spend(t *testing.T, p *servertest.Process, token *oauth2.Token) {
	if id := token.Extra("connection_id"); id != p.Connection.ID {
		t.Errorf("connected as %v, want the one that is there, %s", id, p.Connection.ID)
	}
	fresh := *token
	for range 2 {
		if _, err := ask(t, p, fresh.AccessToken, model, "Hello"); err != nil {
			t.Error(err)
		}
		next, err := client(p).TokenSource(t.Context(), &oauth2.Token{RefreshToken: fresh.RefreshToken}).Token()
		if err != nil {
			t.Fatal(err)
		}
		fresh = *next
	}
	var c struct {
		Allocation int64 `json:"allocation_mc"`
		Velocity   int64 `json:"velocity_limit_mc"`
		Consumed   int64 `json:"consumed_mc"`
	}
	if send(t, p, "GET", "/v1/connection", "", "Bearer "+fresh.AccessToken, &c); c.Allocation != 1_250_000_000 ||
		c.Velocity != 300_000_000 || c.Consumed == 0 {
		t.Errorf("the connection is %+v", c)
	}
	*token = fresh
}

// relend consents again: it moves the cap of the same connection.
func relend(t *testing.T, p *servertest.Process, b *tab, token *oauth2.Token) {
	address, verifier := link(p, "two")
	b.open(address)
	b.says("Already connected", "$12.50")
	if v := b.value("Daily limit (USD, optional)"); v != "3.00" {
		t.Errorf("the daily limit is pre-filled with %q", v)
	}
	b.fillCap("20")
	b.fill("Daily limit (USD, optional)", "")
	b.pressFirst("Allow")
	again, err := client(p).Exchange(t.Context(), b.landed(p, "two").Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	if again.Extra("connection_id") != p.Connection.ID || again.Extra("allocation_mc") != 2_000_000_000.0 {
		t.Errorf("connected again: %v with %v", again.Extra("connection_id"), again.Extra("allocation_mc"))
	}
	var c struct {
		Velocity *int64 `json:"velocity_limit_mc"`
	}
	if send(t, p, "GET", "/v1/connection", "", "Bearer "+again.AccessToken, &c); c.Velocity != nil {
		t.Errorf("the daily limit is still %d", *c.Velocity)
	}
}

// refuse says no.
func refuse(t *testing.T, p *servertest.Process, b *tab) {
	address, _ := link(p, "three")
	b.open(address)
	b.press("button", "Not now")
	if q := b.landed(p, "three"); q.Get("error") != "access_denied" || q.Has("code") {
		t.Errorf("denied, and came back with %v", q)
	}
}

// TestDeveloperChooses signs in as the app's developer, who connects one test
// account and makes another.
func TestDeveloperChooses(t *testing.T) {
	testkit.Long(t, "package oauth proves it over HTTP")
	t.Parallel()
	p := servertest.Start(t, "")
	b := newTab(t, p.BaseURL)
	choose := func(account string) *oauth2.Token {
		t.Helper()
		address, verifier := link(p, account)
		b.open(address)
		if b.at().Path == "/sign-in" {
			b.signIn(p.Developer.Email, p.Developer.Password)
		}
		b.choose(account)
		b.pressFirst("Allow")
		token, err := client(p).Exchange(t.Context(), b.landed(p, account).Get("code"), oauth2.VerifierOption(verifier))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	if id := choose(p.TestAccount.Email).Extra("connection_id"); id != p.Connection.ID {
		t.Errorf("as the test account: %v", id)
	}
	created := choose("New test account")
	if id := created.Extra("connection_id"); id == p.Connection.ID || id == nil {
		t.Errorf("as a new test account: %v", id)
	}
	if _, err := ask(t, p, created.AccessToken, model, "Hello"); err != nil {
		t.Error(err)
	}
	address, _ := link(p, "s")
	b.open(address)
	b.says("$985.00 available")
	b.press("button", "Use another account")
	if b.signIn(p.Operator.Email, p.Operator.Password); b.at().Path != "/oauth/authorize" {
		t.Errorf("signed in as somebody else, and landed at %s", b.at())
	}
	b.says("This account can’t connect", p.Operator.Email)
	p.Verify()
}
