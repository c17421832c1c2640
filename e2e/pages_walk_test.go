package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// newcomer is somebody who was never here before.
const newcomer, newcomersPassword = "newcomer@example.org", "a long enough password"

// join makes the newcomer's account, from the sign-up page on: it is confirmed by
// the mail that was sent, and signs in.
func (b *tab) join(p *servertest.Process) {
	b.t.Helper()
	b.open(p.BaseURL + "/sign-up")
	b.fill("Email", newcomer)
	b.fill("Password", newcomersPassword)
	b.press("button", "Create account")
	b.says("Check your email")
	b.open(p.BaseURL + "/dev/mail")
	b.press("link", "Confirm your email")
	b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/sign-up/confirm/"]').href`)))
	b.fill("Password", newcomersPassword)
	if status := b.press("button", "Confirm"); status != http.StatusOK {
		b.t.Fatalf("confirmed, and got %d at %s", status, b.at())
	}
}

// byPasskey makes a passkey under Settings, signs out, and signs in with it alone.
// It is the one step that needs scripts.
func (b *tab) byPasskey(p *servertest.Process) {
	b.t.Helper()
	b.withScripts()
	defer b.withoutScripts()
	b.device()
	run(b, chromedp.EmulateViewport(1440, 844)) // narrower, the way out is behind a button
	b.open(p.DashboardURL + "/settings/security")
	b.press("link", "Add a passkey")
	b.fill("Name", "My phone")
	b.fill("Password", newcomersPassword)
	b.press("button", "Continue")
	b.press("button", "Create a passkey")
	b.says("Recovery codes")
	b.press("link", "I’ve saved these codes")
	b.says("My phone", "Not used yet")
	b.press("button", "Sign out")
	b.open(p.DashboardURL + "/dashboard")
	if b.at().Path != "/sign-in" {
		b.t.Fatalf("signed out, and at %s", b.at())
	}
	b.press("button", "Use a passkey")
	b.arrives("/dashboard")
}

// topUp pays $25 at the emulator's Checkout, and comes back.
func (b *tab) topUp(base string) {
	b.t.Helper()
	b.open(base + "/top-up")
	b.expect("/pay/cs_test_") // the one foreign page that a person goes to
	b.press("button", "$25")
	b.accessible("the emulator's checkout")
	b.press("button", "Pay $25.00")
	for strings.Contains(b.text(), "Refresh") { // the event is on its way
		time.Sleep(50 * time.Millisecond)
		b.press("link", "Refresh")
	}
	b.says("$25.00 was added to your balance")
}

// TestPersonFromNothing walks a person's whole way, without JavaScript but for the
// passkey: sign up, sign in with a passkey, put money in, allow an app to spend some of it,
// see what a call cost, raise the cap, pause, resume, revoke, and have the rest back.
func TestPersonFromNothing(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		goLive(t, p)
		app := newSampleApp(t, p)
		b := newTab(t, p.BaseURL, app.URL)
		b.withoutScripts()
		b.join(p)
		b.byPasskey(p)
		b.topUp(p.BaseURL)

		b.open(app.URL)
		b.press("link", "Connect")
		b.says("Sample app", "$25.00")
		b.pressFirst("Allow")
		b.says("Connected", "The model said: ")
		connection := app.token.Extra("connection_id").(string)

		b.open(p.DashboardURL + "/activity?type=spend")
		b.open(run(b, chromedp.Evaluate[string](`document.querySelector('main a[href^="/activity/led_"]').href`)))
		b.says("How it adds up", "Settled", "Sample app", model, "Charged")

		var asked raise
		manage(t, p, "POST", "/v1/connections/"+connection+"/allocation-requests",
			`{"target_allocation_mc":2000000000,"reason":"More pages."}`, &asked)
		b.open(asked.ApprovalURL)
		b.says("Sample app requested a higher spend cap", "More pages.")
		b.pressFirst("Raise to")
		b.says("You approved it", "The spend cap is now $20.00")

		b.open(p.DashboardURL + "/connections/" + connection)
		b.press("button", "Pause")
		b.says("Paused.", "New calls are refused")
		var refusal *openai.Error
		if _, err := app.ask(t.Context(), "Hello?"); !errors.As(err, &refusal) || refusal.Code != "connection_frozen" {
			t.Errorf("paused: %v", err)
		}
		b.open(p.DashboardURL + "/connections/" + connection + "/review")
		b.press("button", "Resume")
		b.says("Resumed.")
		if _, err := app.ask(t.Context(), "Hello again"); err != nil {
			t.Errorf("resumed: %v", err)
		}
		b.open(p.DashboardURL + "/connections/" + connection)
		b.press("link", "Revoke…")
		b.press("button", "Revoke")
		b.says("Ended")
		if _, err := app.ask(t.Context(), "Hello?"); err == nil {
			t.Error("revoked, and answered")
		}
		rest := moneyBack(t, p, connection)
		b.open(p.DashboardURL + "/dashboard")
		b.says(rest)
	}, "--providers=emulator", "--listen=localhost:0")
}

// named is the whole name of the first thing of a role whose name begins so.
func (b *tab) named(role, begin string) string {
	b.t.Helper()
	for _, x := range b.things() {
		if x.role == role && strings.HasPrefix(x.name, begin) {
			return x.name
		}
	}
	b.t.Fatalf("there is no %s %q", role, begin)
	return ""
}

// moneyBack wants all that was not spent of $25 to be available to the owner of an
// ended connection, and returns it as pages write it.
func moneyBack(t *testing.T, p *servertest.Process, connectionID string) string {
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
	balance, err := store.GetBalance(t.Context(), d, c.AccountID)
	if err != nil {
		t.Fatal(err)
	}
	left := 25_00_000_000 - int64(c.ConsumedMC)
	if balance.ReservedMC != 0 || int64(balance.AvailableMC) != left || len(spends(t, p, connectionID)) != 2 {
		t.Errorf("%+v of %+v, after %d calls", balance, c, len(spends(t, p, connectionID)))
	}
	return ui.Dollars(balance.AvailableMC)
}
