package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// guides returns the paths of all guides, as the navigation lists them.
func (b *tab) guides() []string {
	b.t.Helper()
	list := run(b, chromedp.Evaluate[[]string](
		`[...document.querySelectorAll('#docs-nav a[href^="/docs/"]')].map((a) => a.pathname)`))
	if len(list) < 9 {
		b.t.Fatalf("the navigation lists %q", list)
	}
	return list
}

// await waits until an expression of the page is true, also if that is the page that follows this one.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	wait := `new Promise((done) => { const look = () => { if (` + expression +
		`) done(true); else setTimeout(look, 50); }; setTimeout(() => done(false), 30000); look(); })`
	look := chromedp.Evaluate[bool](wait, func(p *runtime.EvaluateParams) {
		yes := true
		p.AwaitPromise = &yes
	})
	ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
	defer cancel()
	for {
		came, err := chromedp.Run(ctx, look)
		if err != nil && strings.Contains(err.Error(), "Inspected target navigated") {
			continue // the promise went with its page
		}
		if err != nil {
			b.t.Fatal(err)
		}
		if !came {
			b.t.Fatalf("%s: did not come on\n%s", what, b.text())
		}
		return
	}
}

// TestDocs reads the guides as a developer does: with the search, the tabs, the copy buttons, and with values of an
// own app.
func TestDocs(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	b := newTab(t, p.BaseURL)
	b.open(p.BaseURL + "/docs")
	if b.at().Path != "/docs/quickstart" {
		t.Errorf("/docs leads to %s", b.at())
	}
	b.look("docs-guide")
	if testkit.IsLong() {
		b.readGuides(p)
	}
	run(b, chromedp.EmulateViewport(1440, 844))
	b.searchDocs(p)
	b.copyExample(p)
	b.switchTabs(p)
	b.filterModels(p)
	b.fillValues(p)
}

// readGuides opens every guide on a phone.
func (b *tab) readGuides(p *servertest.Process) {
	b.t.Helper()
	for _, path := range b.guides() {
		b.open(p.BaseURL + path)
		run(b, chromedp.EmulateViewport(390, 844))
		if wide := run(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > 390 {
			b.t.Errorf("%s is %d pixels wide on a phone", path, wide)
		}
		b.accessible(path)
	}
}

// filterModels reads the page of models and prices, which says what GET /v1/models says.
func (b *tab) filterModels(p *servertest.Process) {
	b.t.Helper()
	var list []struct{ ID string }
	if status := send(b.t, p, "GET", "/v1/models", "", "", &list); status != 200 || len(list) == 0 {
		b.t.Fatalf("GET /v1/models: %d, %d models", status, len(list))
	}
	b.open(p.BaseURL + "/models")
	var names []string
	for _, m := range list {
		names = append(names, m.ID)
	}
	b.says(names...)
	b.look("docs-models")
	b.fill("Model or provider", "GEMINI")
	b.press("button", "Filter")
	b.says("gemini-")
	if strings.Contains(b.text(), "claude-") {
		b.t.Error("the filter leaves other models")
	}
	b.open(p.BaseURL + "/models?model=none-of-them")
	b.says("No model has “none-of-them” in its name")
}

// searchDocs finds an error code as it types, and goes to it with the keyboard.
func (b *tab) searchDocs(p *servertest.Process) {
	b.t.Helper()
	b.open(p.BaseURL + "/docs/quickstart")
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "/", Text: "/"})
	b.await("the search has the focus", `document.activeElement.id === "q"`)
	run(b, chromedp.KeyEvent("allocation_exhausted"))
	// The results of the whole word: those of its beginning may have the same link, and are replaced with their focus.
	b.await("results", `document.querySelector("#found a[href='/docs/errors#allocation_exhausted']") &&
		document.querySelector("#found").innerText.includes("“allocation_exhausted”")`)
	b.accessible("docs-results")
	run(b, chromedp.KeyEvent(kb.ArrowDown))
	const focused = `document.activeElement.closest("#found a")`
	b.await("the first result has the focus", focused)
	run(b, chromedp.Evaluate[bool](`(() => {
		const q = document.querySelector("#q");
		q.value = "idempotency";
		return q.dispatchEvent(new Event("input", { bubbles: true }));
	})()`))
	b.await("later results", `performance.getEntriesByType("resource").some((e) => e.name.includes("q=idempotency"))`)
	b.await("the result still has the focus", focused)
	run(b, chromedp.KeyEvent(kb.Enter))
	b.await("the error", `location.pathname === "/docs/errors" && location.hash === "#allocation_exhausted"`)
	b.open(p.BaseURL + "/docs/search?q=idempotency")
	b.says("results for “idempotency”")
	b.look("docs-search")
}

// copyExample copies the first example of a page, and pastes it into the search.
func (b *tab) copyExample(p *servertest.Process) {
	b.t.Helper()
	b.open(p.BaseURL + "/docs/quickstart")
	run(b, chromedp.Click("Copy", as("button", "Copy")))
	b.await("the button says so", `document.querySelector(".copy").textContent === "Copied"`)
	run(b, chromedp.Evaluate[bool](`document.getElementById("q").focus(); true`))
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type:     "keyDown",
		Key:      "v",
		Commands: []string{"paste"},
	})
	const plain = `.replace(/\s+/g, "").slice(0, 80)`
	b.await("the clipboard has the text", `document.getElementById("q").value`+plain+
		` === document.querySelector("figure.code code").textContent`+plain)
}

// switchTabs chooses a language with the keyboard. The choice holds on the next page.
func (b *tab) switchTabs(p *servertest.Process) {
	b.t.Helper()
	var found string
	for _, path := range b.guides() {
		b.open(p.BaseURL + path)
		if run(b, chromedp.Evaluate[bool](`!!document.querySelector("[role=tab]")`)) {
			found = path
			break
		}
	}
	if found == "" {
		b.t.Fatal("no guide has tabs")
	}
	b.look("docs-tabs")
	const shown = `[...document.querySelectorAll(".code-tabs")].map((g) => [
		g.querySelector("[aria-selected=true]").textContent,
		[...g.querySelectorAll("[role=tabpanel]")].filter((p) => !p.hidden).length].join(" ")).join()`
	first := run(b, chromedp.Evaluate[string](shown))
	run(b, chromedp.Evaluate[bool](`document.querySelector("[role=tab][aria-selected=true]").focus(); true`))
	run(b, chromedp.KeyEvent(kb.ArrowRight))
	second := run(b, chromedp.Evaluate[string](shown))
	if first == second || !run(b, chromedp.Evaluate[bool](
		`document.activeElement.matches("[role=tab][aria-selected=true]")`)) {
		b.t.Errorf("the arrow leads from %q to %q", first, second)
	}
	b.open(p.BaseURL + found)
	if again := run(b, chromedp.Evaluate[string](shown)); again != second {
		b.t.Errorf("chose %q, and the page shows %q when it is opened again", second, again)
	}
}

// fillValues creates a token for the examples, which works.
func (b *tab) fillValues(p *servertest.Process) {
	b.t.Helper()
	b.open(p.BaseURL + "/docs/quickstart")
	run(b, chromedp.Click("#values summary"))
	b.press("link", "Sign in")
	b.signIn(p.Developer.Email, p.Developer.Password)
	if b.at().Path != "/docs/quickstart" {
		b.t.Fatalf("signed in, and is at %s", b.at())
	}
	run(b, chromedp.Click("#values summary"))
	if status := b.press("button", "Create sandbox token"); status != http.StatusOK {
		b.t.Fatalf("no token: %d", status)
	}
	b.says("token created", "spends test money only")
	b.look("docs-values")
	token := run(b, chromedp.Evaluate[string](`document.getElementById("access-token").textContent`))
	code := run(b, chromedp.Evaluate[string](
		`[...document.querySelectorAll("figure code")].map((c) => c.textContent).join("\n")`))
	if !strings.Contains(code, token) {
		b.t.Errorf("the examples lack the token:\n%s", code)
	}
	r, err := http.NewRequestWithContext(soon(b.t), "GET", p.BaseURL+"/v1/connection", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		b.t.Errorf("a call with the token: %d, %v", resp.StatusCode, err)
	}
}

// TestDocsWithoutScripts reads the documentation without JavaScript.
func TestDocsWithoutScripts(t *testing.T) {
	testkit.Long(t, "package docs proves what the pages say")
	t.Parallel()
	p := servertest.Start(t, "")
	b := newTab(t, p.BaseURL)
	b.withoutScripts()
	b.open(p.BaseURL + "/docs/quickstart")
	b.says("Quickstart", "On this page", "$BASE_URL", "Next")
	b.accessible("docs-without-scripts")
	b.open(p.BaseURL + "/docs/search?q=risk_throttled")
	b.says("results for “risk_throttled”")
	b.press("link", run(b, chromedp.Evaluate[string](
		`document.querySelector(".results a").textContent.replace(/\s+/g, " ").trim()`)))
	b.open(p.BaseURL + "/reference")
	b.says("POST", "/v1/ai/{model}", "/oauth/token", "OpenAPI 3.1")
	b.look("reference-without-scripts")
	if b.press("link", "guides"); b.at().Path != "/docs/quickstart" {
		t.Errorf("the guides are at %s", b.at())
	}
}

// TestReference reads the reference that Scalar draws, and tries a call with it.
func TestReference(t *testing.T) {
	testkit.Long(t, "its script is of others and changes with its version; package docs proves that it is served")
	t.Parallel()
	p := servertest.Start(t, "")
	b := newTab(t, p.BaseURL)
	run(b, chromedp.EmulateViewport(1440, 1000))
	// A library within Scalar tries once whether it may compile code, may not, and does without. Styles are allowed.
	b.expect("the content policy reports script-src ")
	b.open(p.BaseURL + "/reference#tag/models/GET/v1/models")
	const button = `[...document.querySelectorAll("#reference button")].find((b) =>
		b.textContent.includes("(get /v1/models)"))`
	b.await("the reference", button)
	b.says("List", "/v1/models")
	if testkit.IsLong() {
		b.shoot("reference")
	}
	run(b, chromedp.Evaluate[bool](button+`.click(); true`))
	const send = `[...document.querySelectorAll("button")].find((b) =>
		/^Send\b/.test(b.textContent.trim()) && b.offsetParent)`
	b.await("the form of a request", send)
	run(b, chromedp.Evaluate[bool](send+`.click(); true`))
	b.await("the response", `/200\s*OK/.test(document.body.innerText)`)
}
