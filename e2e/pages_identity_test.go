package e2e

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// otp is the code that an authenticator app would show (RFC 6238).
func otp(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha1.New, key)
	_ = binary.Write(mac, binary.BigEndian, at.Unix()/30)
	sum := mac.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1_000_000)
}

// TestJoining goes from nothing to an account with two-step sign-in, without
// JavaScript: sign up, confirm by the mail, set it up, sign out and in again.
func TestJoining(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package identity proves joining and the second step")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	b := newTab(t, p.BaseURL)
	b.withoutScripts()
	const email, password = "newcomer@example.org", "a long enough password"
	b.open(p.BaseURL + "/sign-in?next=/settings")
	b.look("sign-in")
	b.press("link", "Create account")
	b.fill("Email", email)
	b.fill("Password", "short")
	b.press("button", "Create account")
	b.look("sign-up-errors")
	b.fill("Password", password)
	b.press("button", "Create account")
	b.says("Check your email")
	b.open(p.BaseURL + "/dev/mail")
	b.press("link", "Confirm your email")
	b.look("confirm-mail")
	b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/sign-up/confirm/"]').href`)))
	b.fill("Password", password)
	b.look("confirm")
	if status := b.press("button", "Confirm"); status != http.StatusOK || b.at().Path != "/settings" {
		t.Fatalf("confirmed, and got %d at %s", status, b.at())
	}
	b.look("settings")
	b.press("link", "Security")
	b.press("link", "Set up authenticator app")
	b.look("security-two-step")
	b.fill("Password", password)
	b.press("button", "Continue")
	b.look("two-step-setup")
	secret := strings.ReplaceAll(run(b, chromedp.Evaluate[string](`document.querySelector('.key code').textContent`)),
		"-", "")
	b.fill("Six-digit code", otp(t, secret, time.Now()))
	b.press("button", "Turn on")
	b.says("Recovery codes")
	b.look("recovery-codes")
	code := run(b, chromedp.Evaluate[string](`document.querySelector('.codes code').textContent`))
	b.press("link", "I’ve saved these codes")
	b.says("10 recovery codes are left", "This browser", "Two-step verification turned on")
	b.look("security")
	for _, page := range []string{"password", "email", "two-step/codes", "two-step/off"} {
		b.open(p.BaseURL + "/settings/" + page)
		b.look("security-" + strings.ReplaceAll(page, "/", "-"))
	}

	b.open(p.BaseURL + "/settings/email")
	b.fill("New email address", "another@example.org")
	b.fill("Password", password)
	b.press("button", "Send link")
	b.open(p.BaseURL + "/dev/mail")
	b.press("link", "Confirm your new email address")
	b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/settings/email/confirm/"]').href`)))
	b.says("another@example.org")
	b.look("email-confirm") // and leave it at that
	b.open(p.BaseURL + "/settings")

	b.press("button", "Sign out")
	b.look("signed-out")
	b.open(p.BaseURL + "/forgot")
	b.look("forgot")
	b.fill("Email", email)
	b.press("button", "Send link")
	b.look("forgot-sent")
	b.open(p.BaseURL + "/dev/mail")
	b.press("link", "Reset your password")
	b.open(run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/reset/"]').href`)))
	b.look("reset")
	b.open(p.BaseURL + "/settings")
	b.signIn(email, password)
	b.says("Two-step verification")
	b.look("second-step")
	b.open(p.BaseURL + "/settings")
	if b.at().Path != "/sign-in" {
		t.Errorf("without the second step, %s is there", b.at())
	}
	b.signIn(email, password)
	b.fill("Code", "000000")
	b.press("button", "Sign in")
	b.says("Incorrect code")
	b.fill("Code", code)
	b.press("button", "Sign in")
	if b.at().Path != "/settings" {
		t.Errorf("after the second step, %s", b.at())
	}
}
