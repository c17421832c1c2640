package e2e

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"purser/internal/server/servertest"
)

// browser starts a headless Chromium of its own.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("Chromium is not installed; run make setup")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func get[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// shoot keeps a picture of the page.
func shoot(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	picture := get(t, ctx, chromedp.FullScreenshot(90))
	if err := os.MkdirAll("artifacts", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("artifacts", name+".jpg"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// authorize is the address that an app sends its user to.
func authorize(p *servertest.Process) string {
	return p.AuthURL + "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {p.App.ClientID}, "redirect_uri": {p.App.RedirectURI}, "state": {"s"}, "code_challenge_method": {"S256"},
		"code_challenge": {"E9Melhoa2OwvFrEMTJGuCHaoeK1t8URWbuGJSstw-cM"}, "requested_allocation_mc": {"1000000000"}, "features": {"chat,summarize"},
	}.Encode()
}

// The fields are found as a screen reader finds them: by their label.
func field(label string) string {
	return `//input[@id=//label[starts-with(normalize-space(.), "` + label + `")]/@for]`
}

func button(name string) string { return `//button[normalize-space(.)="` + name + `"]` }

// TestConsent signs in, edits the cap, approves, and denies, in a real browser.
func TestConsent(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		ctx := browser(t)
		do(t, ctx, chromedp.Navigate(authorize(p)), chromedp.SendKeys(field("Email"), p.TestAccount.Email), chromedp.SendKeys(field("Password"), "wrong"), chromedp.Click(button("Sign in")))
		do(t, ctx, chromedp.WaitVisible(`//*[@role="alert"]`), chromedp.SendKeys(field("Password"), p.TestAccount.Password), chromedp.Click(button("Sign in")))
		do(t, ctx, chromedp.WaitVisible(button("Approve")))
		shoot(t, ctx, "consent")
		page := get(t, ctx, chromedp.Text("body"))
		for _, part := range []string{"Sample app", "Chat", "Summaries"} {
			if !strings.Contains(page, part) {
				t.Errorf("the consent page lacks %q", part)
			}
		}
		if v := get(t, ctx, chromedp.Value(field("Spend cap (USD)"))); v != "25" && v != "10" && v != "10.00" && v != "25.00" {
			t.Errorf("the cap is pre-filled with %q", v)
		}
		do(t, ctx, chromedp.Clear(field("Spend cap (USD)")), chromedp.SendKeys(field("Spend cap (USD)"), "nonsense"), chromedp.Click(button("Approve")), chromedp.WaitVisible(`//*[@role="alert"]`))
		shoot(t, ctx, "consent-wrong")
		do(t, ctx, chromedp.Clear(field("Spend cap (USD)")), chromedp.SendKeys(field("Spend cap (USD)"), "12.50"), chromedp.SendKeys(field("Daily limit (USD, optional)"), "3"), chromedp.Click(button("Approve")))
		back := landed(t, ctx)
		if back.Get("code") == "" || back.Get("state") != "s" || back.Get("iss") != p.AuthURL {
			t.Errorf("approved, and came back with %v", back)
		}
		do(t, ctx, chromedp.Navigate(authorize(p)), chromedp.Click(button("Deny")))
		if back := landed(t, ctx); back.Get("error") != "access_denied" || back.Get("state") != "s" || back.Get("code") != "" {
			t.Errorf("denied, and came back with %v", back)
		}
	})
}

// landed waits for the app's redirect address and returns what it was told.
func landed(t *testing.T, ctx context.Context) url.Values {
	t.Helper()
	for ctx.Err() == nil {
		u, err := url.Parse(get(t, ctx, chromedp.Location()))
		if err != nil {
			t.Fatal(err)
		}
		if u.Path == "/dev/callback" {
			return u.Query()
		}
	}
	t.Fatal("the browser never came back to the app")
	return nil
}
