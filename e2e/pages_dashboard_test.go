package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A raise is what the API says of an allocation request.
type raise struct {
	ApprovalURL string `json:"approval_url"`
}

// more asks, as the sample app, for a higher cap.
func more(t *testing.T, p *servertest.Process, targetMC int64, reason string) (r raise) {
	t.Helper()
	manage(t, p, "POST", "/v1/connections/"+p.Connection.ID+"/allocation-requests",
		fmt.Sprintf(`{"target_allocation_mc":%d,"reason":%q}`, targetMC, reason), &r)
	return r
}

// limits are the connection's terms and state.
func limits(t *testing.T, p *servertest.Process) (c struct {
	Allocation int64  `json:"allocation_mc"`
	Velocity   *int64 `json:"velocity_limit_mc"`
	Status     string
}) {
	t.Helper()
	manage(t, p, "GET", "/v1/connections/"+p.Connection.ID, "", &c)
	return c
}

// freeze pauses the sample connection, as the risk layer does.
func freeze(t *testing.T, p *servertest.Process) {
	t.Helper()
	d := dbtest.OpenURL(t, p.DB)
	if _, err := store.NewWriter(d, time.Now).Do(t.Context(),
		rules.Freeze{ConnectionID: p.Connection.ID, By: rules.FrozenByRisk}); err != nil {
		t.Fatal(err)
	}
}

// refused calls a model and returns the code and the links of the refusal.
func refused(t *testing.T, p *servertest.Process) (code, reviewURL string) {
	t.Helper()
	var a struct {
		Error struct {
			Code      string
			ReviewURL *string `json:"review_url"`
		}
	}
	body := `{"model":"` + model + `","max_tokens":10,"messages":[{"role":"user","content":"Hello"}]}`
	send(t, p, "POST", "/v1/chat/completions", body, "Bearer "+p.Connection.AccessToken, &a)
	if a.Error.ReviewURL != nil {
		reviewURL = *a.Error.ReviewURL
	}
	return a.Error.Code, reviewURL
}

// TestReview goes from a refused call to its review: a changed cap does not lift
// the pause, resuming does, and revoking ends it.
func TestReview(t *testing.T) {
	testkit.Long(t, "package dashboard proves it over HTTP")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	b := newTab(t, p.BaseURL)
	b.withoutScripts()
	if code, _ := refused(t, p); code != "" {
		t.Fatalf("before the pause: %s", code)
	}
	freeze(t, p)
	code, address := refused(t, p)
	if code != "connection_frozen" || address == "" {
		t.Fatalf("paused: %s, %q", code, address)
	}
	b.open(address)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	b.says("Sample app is paused", model, "Spent in the last 24 hours")
	b.open(p.AuthURL + "/connections")
	b.says("Sample app", "Paused")
	b.press("link", "Change cap of Sample app")
	b.says("A higher cap doesn’t resume it")
	b.fill("Spend cap (USD)", "2000")
	b.fill("Daily limit (USD, optional)", "x")
	if status := b.press("button", "Save"); status != http.StatusUnprocessableEntity ||
		b.value("Spend cap (USD)") != "2000" {
		t.Errorf("wrong amounts: %d", status)
	}
	if said := b.described("Daily limit (USD, optional)"); !said.invalid {
		t.Errorf("the daily limit is described as %+v", said)
	}
	b.fill("Spend cap (USD)", "12.50")
	b.fill("Daily limit (USD, optional)", "3")
	b.press("button", "Save")
	b.says("Saved. The spend cap is $12.50.")
	if now := limits(t, p); now.Allocation != 12_50_000_000 || now.Velocity == nil || *now.Velocity != 3_00_000_000 ||
		now.Status != "frozen" {
		t.Errorf("saved: %+v", now)
	}
	b.open(address)
	b.choose("Up to 2× faster")
	b.press("button", "Resume")
	b.says("Resumed.", "not paused")
	if code, _ := refused(t, p); code != "" {
		t.Errorf("resumed: %s", code)
	}
	b.press("link", "Revoke")
	b.press("button", "Revoke")
	b.open(address)
	b.says("Sample app is disconnected")
	if code, _ := refused(t, p); code != "connection_revoked" {
		t.Errorf("revoked: %q", code)
	}
	p.Verify()
}

// TestDashboardLooks keeps pictures of these pages, and compares what can be
// operated on them with what a screen reader is told.
func TestDashboardLooks(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package dashboard proves what they do")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	b := newTab(t, p.BaseURL)
	page := p.AuthURL + "/connections/" + p.Connection.ID
	refused(t, p)
	big := more(t, p, 5000_00_000_000, "The whole library, with all of its catalogues, supplements and annexes.")
	b.open(big.ApprovalURL)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	b.look("approval-too-little")
	asked := more(t, p, 40_00_000_000, "Your report has 40 more pages.")
	b.open(asked.ApprovalURL)
	b.look("approval")
	frame := []string{"link Skip to content", "main", "link Purser", "link Overview", "link Connections",
		"link Activity", "link Settings", "link Search", "button Sign out", "link Docs",
		"link API reference", "link Status"}
	b.operable("the approval page",
		append(frame, "heading Sample app requested a higher spend cap", "button Raise to $40.00", "button Keep $25.00",
			"link Set the spend cap yourself")...)
	b.open(p.AuthURL + "/connections")
	b.look("connections")
	b.operable("the list",
		append(frame, "heading Connections", "link All (1)", "link Active (1)", "link Paused (0)", "link Ended (0)",
			"heading Apps that you have connected", "heading Sample app", "link Sample app", "button Pause Sample app",
			"link Requested a higher cap: $40.00 (Sample app)", "link Change cap of Sample app")...)
	b.open(page + "/increase")
	b.look("increase")
	b.operable("the page of the cap",
		append(frame, "heading Spend cap of Sample app", "link Review request", "link Only what is used",
			"link $30.00", "link $35.00", "link $50.00", "textbox Spend cap (USD)",
			"textbox Daily limit (USD, optional)", "button Save", "button Preview",
			"link Review recent calls or revoke this connection")...)
	b.press("link", "$35.00")
	b.says("After saving", "Ready to use", "$965.00")
	b.look("increase-preview")
	b.fill("Spend cap (USD)", "2000")
	b.press("button", "Save")
	b.look("increase-slip")
	b.open(page + "/review")
	b.look("review")
	freeze(t, p)
	b.open(page + "/review")
	b.look("review-paused")
	var speeds []string
	for _, x := range b.things() {
		if x.role == "radio" {
			speeds = append(speeds, "radio "+x.name)
		}
	}
	if len(speeds) != 3 {
		t.Errorf("choices: %v", speeds)
	}
	b.operable("the review",
		append(append(frame, speeds...), "heading Sample app is paused", "heading Recent calls",
			"heading Revoke this connection", "button Resume", "link Revoke")...)
	b.open(asked.ApprovalURL)
	b.pressFirst("Raise to")
	b.look("approved")
	b.open(page + "/review")
	b.press("link", "Revoke")
	b.press("button", "Revoke")
	b.open(page + "/review")
	b.look("review-revoked")
}

// TestPeopleLooks keeps pictures of the pages about a person's money, and walks
// from the overview to a receipt, to pausing and to the end.
func TestPeopleLooks(t *testing.T) {
	testkit.Long(t, "axe and pictures of every page of a user's account")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	b := newTab(t, p.BaseURL)
	b.open(p.AuthURL + "/dashboard")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	for range 3 {
		refused(t, p)
	}
	more(t, p, 40_00_000_000, "More pages.")
	b.open(p.AuthURL + "/dashboard")
	b.says("Overview", "$975.00", "Needs your attention", "Sample app", model)
	b.look("overview")
	// On a phone a button opens the navigation, without a script of ours.
	run(b, chromedp.EmulateViewport(390, 844))
	closed := b.things()
	run(b, chromedp.Click("Menu", as("button", "Menu")))
	b.shoot("menu-390")
	open := b.things()
	for _, x := range []thing{{role: "link", name: "Settings"}, {role: "button", name: "Sign out"}} {
		if slices.Contains(closed, x) || !slices.Contains(open, x) {
			t.Errorf("%s %s is there before the menu opens, or not after", x.role, x.name)
		}
	}
	b.press("link", "Activity")
	b.look("activity")
	run(b, chromedp.Evaluate[bool](`document.querySelectorAll(".chip summary")[3].click(), true`))
	b.look("activity-chip")
	if run(b, chromedp.Evaluate[float64](`document.getElementById("from").getBoundingClientRect().height`)) > 60 {
		t.Error("the field of a date is not where its label is")
	}
	b.press("button", "Apply")
	b.open(p.AuthURL + "/activity?model=none-of-them")
	b.says("No results")
	b.look("activity-none")
	b.open(p.AuthURL + "/activity?type=spend")
	b.says("3 calls", "Type: Call")
	run(b, chromedp.Evaluate[bool](`document.querySelector("details.act summary").click(), true`))
	run(b, chromedp.Evaluate[bool](`document.querySelector(".act-rows a").click(), true`))
	b.await("the drawer", `document.querySelector("#drawer h2") !== null`)
	b.look("activity-drawer")
	run(b, chromedp.KeyEvent(kb.Escape))
	b.await("no drawer", `document.querySelector("#drawer h2") === null &&
		document.activeElement.matches(".act-rows a")`)
	b.open(run(b, chromedp.Evaluate[string](`document.querySelector(".act-rows a").href`)))
	b.says("How it adds up", "Settled", "Service fee", "Charged")
	b.look("receipt")
	b.press("link", "Sample app")
	b.look("connection")
	b.press("button", "Pause")
	b.says("Paused.", "New calls are refused")
	b.look("connection-paused")
	b.press("button", "Resume")
	b.says("Resumed.")
	b.open(p.AuthURL + "/connections")
	b.press("button", "Pause Sample app")
	b.says("Paused.", "You paused it. Since", "Paused (1)")
	b.look("connections-paused")
	b.open(p.AuthURL + "/activity?month=" + time.Now().UTC().Format("2006-01"))
	b.says("Spend by app", "Total")
	b.look("statement")
	if code, _ := refused(t, p); code != "connection_frozen" {
		t.Errorf("paused: %q", code)
	}
	b.open(p.AuthURL + "/requests/" + refusal(t, p))
	b.says("Refused, nothing charged", "connection_frozen")
	b.look("receipt-refused")
	b.open(p.AuthURL + "/connections/" + p.Connection.ID)
	b.press("link", "Revoke…")
	b.look("revoke")
	b.press("button", "Revoke")
	b.says("Ended")
	if code, _ := refused(t, p); code != "connection_revoked" {
		t.Errorf("revoked: %q", code)
	}
	p.Verify()
}

// refusal is the id of the newest call that was refused.
func refusal(t *testing.T, p *servertest.Process) (requestID string) {
	t.Helper()
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.QueryRowContext(t.Context(),
		`SELECT request_id FROM refusals ORDER BY created_us DESC LIMIT 1`).Scan(&requestID); err != nil {
		t.Fatal(err)
	}
	return requestID
}

// TestLiveSpend watches a connection's page while a call is billed: its figures
// change by themselves, without a new page, and without JavaScript on the next one.
func TestLiveSpend(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	b := newTab(t, p.BaseURL)
	b.open(p.AuthURL + "/connections/" + p.Connection.ID)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	const used = `document.querySelector("#live dd").innerText`
	before := run(b, chromedp.Evaluate[string](used))
	run(b, chromedp.Evaluate[bool](`window.stays = true`))
	if code, _ := refused(t, p); code != "" {
		t.Fatalf("a call: %s", code)
	}
	for run(b, chromedp.Evaluate[string](used)) == before { // the tab's own limit ends it
		time.Sleep(50 * time.Millisecond)
	}
	if !run(b, chromedp.Evaluate[bool](`window.stays === true`)) {
		t.Error("the whole page was loaded again")
	}
	after := run(b, chromedp.Evaluate[string](used))
	b.withoutScripts()
	b.open(p.AuthURL + "/connections/" + p.Connection.ID)
	b.says(strings.TrimSpace(strings.Split(after, "\n")[0]))
	p.Verify()
}
