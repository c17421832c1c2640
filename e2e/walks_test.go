package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A walk is what one kind of user does, step by step. A step is what a person does before a page answers: a press, or a
// form that is filled in and sent. The long run keeps a picture of each.
type walk struct {
	*tab
	title string
	steps int
	took  time.Duration
}

func newWalk(t *testing.T, title string, width int64, origins ...string) *walk {
	t.Helper()
	w := &walk{tab: newTab(t, origins...), title: title}
	run(w.tab, chromedp.EmulateViewport(width, 844))
	return w
}

// step does one, and keeps its picture.
func (w *walk) step(what string, act func()) {
	w.t.Helper()
	w.steps++
	start := time.Now()
	act()
	w.took += time.Since(start)
	w.t.Logf("%2d  %s", w.steps, what)
	if testkit.IsLong() {
		w.shoot(fmt.Sprintf("walk-%s-%02d", w.title, w.steps))
	}
}

// end checks that the walk is no longer than it was: before is its steps on the pages of version 0.1.
func (w *walk) end(before int) {
	w.t.Helper()
	w.t.Logf("%s: %d steps, before %d; the pages took %.1f s", w.title, w.steps, before, w.took.Seconds())
	if w.steps > before {
		w.t.Errorf("%s takes %d steps, before %d", w.title, w.steps, before)
	}
}

// follow opens the first link of the page's main part to an address that begins so.
func (w *walk) follow(begin string) {
	w.t.Helper()
	w.open(run(w.tab, chromedp.Evaluate[string](`document.querySelector('main a[href^="`+begin+`"]').href`)))
}

// startWithHistory starts a node with the sample history.
func startWithHistory(t *testing.T) *servertest.Process {
	t.Helper()
	return servertest.Start(t, dbtest.URL(t, db.Postgres), "--empty=false")
}

// TestWalkOfNewUser goes from the front page to an app that spends some of $25.
func TestWalkOfNewUser(t *testing.T) {
	testkit.Long(t, "TestPersonFromNothing walks the same pages")
	t.Parallel()
	p := servertest.Start(t, "")
	goLive(t, p)
	app := newSampleApp(t, p)
	w := newWalk(t, "new-user", 1440, p.BaseURL, app.URL)
	w.step("open the front page", func() { w.open(p.BaseURL) })
	w.step("create an account", func() { w.press("link", "Create account") })
	w.step("send email and password", func() {
		w.fill("Email", newcomer)
		w.fill("Password", newcomersPassword)
		w.press("button", "Create account")
	})
	w.step("open the email", func() {
		w.open(p.BaseURL + "/dev/mail")
		w.press("link", "Confirm your email")
	})
	w.step("confirm", func() {
		w.open(run(w.tab, chromedp.Evaluate[string](`document.querySelector('a[href*="/sign-up/confirm/"]').href`)))
		w.fill("Password", newcomersPassword)
		w.press("button", "Confirm")
	})
	w.step("top up", func() { w.press("link", "Top up") })
	w.expect("/pay/cs_test_")
	w.step("choose $25", func() { w.press("button", "$25") })
	w.step("pay", func() {
		w.press("button", "Pay $25.00")
		for strings.Contains(w.text(), "Refresh") {
			w.press("link", "Refresh")
		}
	})
	w.step("open an app", func() { w.open(app.URL) })
	w.step("connect", func() { w.press("link", "Connect") })
	w.step("allow", func() { w.pressFirst("Allow") })
	w.step("see what it cost", func() {
		w.open(p.DashboardURL + "/dashboard")
		w.says("Sample app", "Ready to use")
	})
	w.end(13)
}

// TestWalkOfReturningUser lowers a cap and reads a receipt on a phone.
func TestWalkOfReturningUser(t *testing.T) {
	testkit.Long(t, "package dashboard proves these pages")
	t.Parallel()
	p := startWithHistory(t)
	w := newWalk(t, "returning-user", 390, p.BaseURL)
	w.step("open the dashboard", func() { w.open(p.DashboardURL + "/dashboard") })
	w.step("sign in", func() {
		w.signIn(p.TestAccount.Email, p.TestAccount.Password)
		w.says("Ready to use", "Spent, last 30 days")
	})
	w.step("change a cap", func() { w.press("link", w.named("link", "Change cap")) })
	w.step("save it", func() {
		w.fill("Spend cap (USD)", "500")
		w.press("button", "Save")
	})
	w.step("go to the activity", func() { w.press("link", "Activity") })
	w.step("unfold an app’s calls of a day", func() {
		run(w.tab, chromedp.Evaluate[bool](`document.querySelector("details.act summary").click(), true`))
	})
	w.step("open a receipt", func() {
		w.open(run(w.tab, chromedp.Evaluate[string](`document.querySelector("details.act[open] a").href`)))
		w.says("How it adds up")
	})
	w.end(9)
}

// TestWalkOfStop stops everything from a phone.
func TestWalkOfStop(t *testing.T) {
	testkit.Long(t, "package dashboard proves the pause of everything")
	t.Parallel()
	p := startWithHistory(t)
	w := newWalk(t, "stop", 390, p.BaseURL)
	w.step("open the dashboard", func() { w.open(p.DashboardURL + "/dashboard") })
	w.step("sign in", func() { w.signIn(p.TestAccount.Email, p.TestAccount.Password) })
	w.step("pause everything", func() { w.press("link", "Pause everything…") })
	w.step("confirm", func() {
		w.press("button", "Pause everything")
		w.says("Paused")
	})
	w.end(4)
}

// TestWalkOfDeveloper goes from an account to a live app.
func TestWalkOfDeveloper(t *testing.T) {
	testkit.Long(t, "TestDeveloperFromNothing walks the same pages")
	t.Parallel()
	p := servertest.Start(t, "")
	w := newWalk(t, "developer", 1440, p.BaseURL)
	w.join(p)
	w.step("enable developer tools", func() {
		w.open(p.DashboardURL + "/developer")
		w.press("button", "Enable developer tools")
	})
	w.step("create an app", func() { w.press("link", "Create your first app") })
	w.step("send its name and redirect URL", func() {
		w.fill("Name", "Night Reader")
		w.write("Redirect URLs", "https://reader.example.com/callback")
		w.press("button", "Create app")
	})
	w.step("continue from the secret", func() { w.press("link", "Continue") })
	app := w.at().String()
	w.step("go to the test accounts", func() { w.press("link", "Test accounts") })
	w.step("create one", func() { w.press("button", "Create test account") })
	w.step("go to the features", func() { w.open(app + "/features") })
	w.step("add one", func() {
		w.fill("Slug", "summaries")
		w.fill("Name", "Summaries")
		w.fill("Description", "Shortens what you read at night.")
		w.press("button", "Add feature")
	})
	w.step("go to the settings", func() { w.open(app + "/settings") })
	w.step("choose models", func() {
		w.tick(model)
		w.press("button", "Save")
	})
	w.step("go to the review", func() { w.press("link", "Go live") })
	w.step("request it", func() { w.press("button", "Request review") })
	operator := newTab(t, p.BaseURL)
	operator.open(p.DashboardURL + "/operator/reviews")
	operator.signIn(p.Operator.Email, p.Operator.Password)
	operator.press("link", "Night Reader")
	operator.press("button", "Approve")
	w.step("see that it is live", func() {
		w.open(app)
		w.says("limited-live")
	})
	w.end(13)
}

// TestWalkOfHunt finds one refused call of an earlier day by the id that a user reported.
func TestWalkOfHunt(t *testing.T) {
	testkit.Long(t, "package palette proves the search")
	t.Parallel()
	p := startWithHistory(t)
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var request, app, code string
	if err := d.QueryRowContext(t.Context(), `SELECT request_id, app_id, code FROM refusals WHERE created_us < $1
		ORDER BY request_id DESC LIMIT 1`, time.Now().Add(-24*time.Hour).UnixMicro()).
		Scan(&request, &app, &code); err != nil {
		t.Fatal(err)
	}
	w := newWalk(t, "hunt", 1440, p.BaseURL)
	w.step("open the console", func() { w.open(p.DashboardURL + "/developer") })
	w.step("sign in", func() { w.signIn(p.Developer.Email, p.Developer.Password) })
	w.await("the page", `document.readyState === "complete"`)
	w.step("search", func() {
		run(w.tab, chromedp.Click("Search", as("link", "Search")))
		w.await("the search", `document.getElementById("palette").open`)
	})
	w.accessible("the search")
	w.step("paste the id", func() {
		w.fill("Page, app, connection or id", request)
		w.await("the call", `document.querySelector('#palette-results a[href*="`+request+`"]')`)
	})
	w.step("open the call", func() {
		const field = "Page, app, connection or id"
		w.enter(field)
		w.arrives("/developer/apps/" + app + "/requests/" + request)
		w.says(code)
	})
	w.end(6)
}

// TestWalkOfMorning: an operator reads on one page what needs a decision, and reaches it by one press.
func TestWalkOfMorning(t *testing.T) {
	testkit.Long(t, "package operatorpages proves the overview")
	t.Parallel()
	p := startWithHistory(t)
	freeze(t, p)
	register(t, p, "https://app.example.com/callback")
	manage(t, p, "PATCH", "/v1/apps/"+p.App.ID, `{"allowed_models":["`+model+`"]}`, nil)
	manage(t, p, "POST", "/v1/apps/"+p.App.ID+"/go-live", "", nil)
	w := newWalk(t, "morning", 1440, p.BaseURL)
	w.step("open the operator’s pages", func() { w.open(p.DashboardURL + "/operator") })
	w.step("sign in", func() {
		w.signIn(p.Operator.Email, p.Operator.Password)
		w.says("Needs a decision", "Sample app", "Operational")
	})
	w.step("open the request to go live", func() { w.follow("/operator/reviews/") })
	w.step("back", func() { w.open(p.DashboardURL + "/operator") })
	w.step("open the paused connection", func() { w.follow("/operator/connections/") })
	w.end(8)
}
