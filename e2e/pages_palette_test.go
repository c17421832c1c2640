package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestPalette opens the search of the console and finds a refused call by the id that a user reported.
func TestPalette(t *testing.T) {
	testkit.Long(t, "the script of the search; package palette proves what it finds")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	freeze(t, p)
	code, _ := refused(t, p)
	request := refusal(t, p)
	b := newTab(t, p.BaseURL)
	run(b, chromedp.EmulateViewport(1440, 844))
	b.open(p.DashboardURL + "/developer")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.await("the page", `document.readyState === "complete"`)
	run(b, chromedp.Click("Search", as("link", "Search")))
	b.await("the search", `document.getElementById("palette").open`)
	b.accessible("the search")
	const field = "Page, app, connection or id"
	b.fill(field, request)
	b.await("the call", `document.querySelector('#palette-results a[href*="`+request+`"]')`)
	b.enter(field)
	b.arrives("/developer/apps/" + p.App.ID + "/requests/" + request)
	b.says(code)
}
