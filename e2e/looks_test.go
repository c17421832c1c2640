package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"purser/internal/server/servertest"
)

// TestLooks keeps a picture of every page in artifacts, light and dark, on a phone
// and on a desk, for people to look at. What a machine can say of them is that
// nothing is wider than the screen, and that dark pages are dark.
func TestLooks(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, "")
	b := newTab(t, p.BaseURL)
	look := func(page string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			for _, width := range []int64{390, 1280} {
				run(b, chromedp.EmulateViewport(width, 844))
				name := fmt.Sprintf("%s-%s-%d", page, scheme, width)
				if wide := run(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
					t.Errorf("%s is %d pixels wide", name, wide)
				}
				const light = `getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).slice(0, 3).every((c) => c > 127)`
				if run(b, chromedp.Evaluate[bool](light)) != (scheme == "light") {
					t.Errorf("%s is not %s", name, scheme)
				}
				b.shoot(name)
			}
		}
	}
	address, _ := link(p, "s")
	b.open(p.AuthURL)
	look("home")
	b.open(address)
	look("sign-in")
	b.signIn(p.TestAccount.Email, "a wrong one")
	look("sign-in-slip")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	look("consent")
	b.fill("Spend cap (USD)", "a lot")
	b.press("button", "Approve")
	look("consent-slip")
	b.press("button", "Deny")
	look("denied")
	b.open(p.AuthURL + "/oauth/authorize")
	look("error")
	b.open(address)
	b.press("button", "Use another account")
	b.signIn(p.Developer.Email, p.Developer.Password)
	look("consent-developer")
}
