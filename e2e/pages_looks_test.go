package e2e

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestLooks keeps a picture of every page in artifacts, light and dark, on a phone
// and on a desk, for people to look at. What a machine can say of them is that
// nothing is wider than the screen, and that dark pages are dark.
func TestLooks(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; TestAccessibleNames sees sign-in and consent")
	t.Parallel()
	p := servertest.Start(t, "")
	b := newTab(t, p.BaseURL)
	look := b.look
	address, _ := link(p, "s")
	b.open(p.AuthURL)
	look("home")
	b.open(address)
	look("sign-in")
	b.signIn(p.TestAccount.Email, "a wrong one")
	look("sign-in-slip")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	look("consent")
	b.fillCap("a lot")
	b.pressFirst("Allow")
	look("consent-slip")
	b.press("button", "Not now")
	look("denied")
	b.open(p.AuthURL + "/oauth/authorize")
	look("error")
	b.open(address)
	b.press("button", "Use another account")
	b.signIn(p.Developer.Email, p.Developer.Password)
	look("consent-developer")
	device, err := publicClient(p).DeviceAuth(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	b.open(device.VerificationURI)
	look("device")
	b.fill("Code", "WDJB-MJHT")
	b.press("button", "Continue")
	look("device-slip")
	b.open(device.VerificationURIComplete)
	look("device-filled")
	b.press("button", "Continue")
	look("consent-device")
	b.press("button", "Not now")
	look("device-denied")
	b.open(p.DashboardURL + "/settings/notices")
	look("notices")
	b.choose("No emails")
	b.press("button", "Save")
	b.says("Saved.")
	look("notices-saved")
}

// TestLooksOfMail shows the outbox of dev, a mail in it, and where its link leads.
func TestLooksOfMail(t *testing.T) {
	testkit.Long(t, "pictures of mails, and the wait for the job that sends them")
	t.Parallel()
	url := servertest.URL(t, db.Postgres)
	p := servertest.Start(t, url)
	b := newTab(t, p.BaseURL)
	look := b.look
	b.open(p.BaseURL + "/dev/mail")
	look("outbox-empty")
	d, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	const paused = `{"connection":{"allocation_mc":2500000000,"consumed_mc":1250000000,"allocation_remaining_mc":1250000000}}`
	for _, kind := range []string{"allocation_50", "frozen"} {
		_, err := d.ExecContext(t.Context(),
			`INSERT INTO notices (id, kind, account_id, connection_id, app_id, data, created_us) SELECT 'e2e_' || $1::text, $1, id, $2, $3, $4, 1 FROM accounts WHERE developer = 1`,
			kind, p.Connection.ID, p.App.ID, paused)
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < 2; { // the job looks every five seconds
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM mails`).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	b.open(p.BaseURL + "/")
	b.press("link", "outbox")
	b.says("“Sample app” has used half of its spend cap", "developer@example.com")
	look("outbox")
	b.press("link", "“Sample app” has used half of its spend cap")
	look("outbox-mail")
	stop := run(b, chromedp.Evaluate[string](`document.querySelector('a[href*="/unsubscribe/"]').href`))
	b.open(stop)
	look("unsubscribe")
	b.press("button", "Unsubscribe")
	b.says("You’re unsubscribed")
	b.open(p.BaseURL + "/")
	b.press("link", "clock")
	b.says("as elsewhere")
	look("clock")
	b.fill("Move it forward by", "yesterday")
	b.press("button", "Move forward")
	b.says("such as 30d")
	look("clock-refused")
	b.fill("Move it forward by", "1d12h")
	b.press("button", "Move forward")
	b.says("1d12h ahead")
}

// look checks one page in both widths and colour schemes. The long run checks all
// four combinations by axe and keeps their pictures, the usual one two of them, and of what axe knows only the names.
func (b *tab) look(page string) {
	b.t.Helper()
	b.light(page)
	for _, scheme := range []string{"light", "dark"} {
		call(b, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme},
			}})
		for _, width := range []int64{390, 1440} {
			if !testkit.IsLong() && (width == 1440) == (scheme == "light") {
				continue
			}
			run(b, chromedp.EmulateViewport(width, 844))
			name := fmt.Sprintf("%s-%s-%d", page, scheme, width)
			if wide := run(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
				b.t.Errorf("%s is %d pixels wide", name, wide)
			}
			const light = `getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).slice(0, 3).every((c) => c > 127)`
			if run(b, chromedp.Evaluate[bool](light)) != (scheme == "light") {
				b.t.Errorf("%s is not %s", name, scheme)
			}
			if testkit.IsLong() {
				b.shoot(name)
			}
			switch {
			case testkit.IsLong() && (width == 1440) == (scheme == "light"):
				b.accessible(name)
			case testkit.IsLong(): // how it is built does not change with the colours, and is checked at both widths
				b.accessible(name, colours...)
			case scheme == "light":
				if roles := b.nameless(); len(roles) > 0 {
					b.t.Errorf("%s: without a name: %q", name, roles)
				}
			}
		}
	}
}

// Bounds of a page as it loads.
const (
	maxPageBytes   = 150_000
	maxLayoutShift = 0.05
)

// light checks that the page came with few bytes, of which fonts don't count since browsers keep them, and that
// nothing in it moved as it loaded. It does nothing where scripts are off.
func (b *tab) light(page string) {
	b.t.Helper()
	if b.scriptless {
		return
	}
	const weigh = `performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource"))
		.filter((e) => !/\.woff2|\/assets\/scalar/.test(e.name)).reduce((sum, e) => sum + e.encodedBodySize, 0)`
	if bytes := run(b, chromedp.Evaluate[int64](weigh)); bytes > maxPageBytes {
		b.t.Errorf("%s came with %d bytes, at most %d", page, bytes, maxPageBytes)
	}
	const moved = `(() => {
		const o = new PerformanceObserver(() => {});
		o.observe({ type: "layout-shift", buffered: true });
		const shifts = o.takeRecords().filter((e) => !e.hadRecentInput);
		const name = ({ node }) => node?.id || node?.className || node?.nodeName;
		return {
			sum: shifts.reduce((sum, e) => sum + e.value, 0),
			nodes: shifts.flatMap((e) => e.sources.map(name)).join(", "),
		};
	})()`
	shifts := run(b, chromedp.Evaluate[struct {
		Sum   float64
		Nodes string
	}](moved))
	if shifts.Sum > maxLayoutShift {
		b.t.Errorf("%s moved by %.3f as it loaded, at most %.2f: %s", page, shifts.Sum, maxLayoutShift, shifts.Nodes)
	}
}
