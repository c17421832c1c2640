package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is one headless browser for all tests; each has a profile of its own
// in it. stopChromium ends it, if it was started.
var (
	chromium     = sync.OnceValues(startChromium)
	stopChromium = func() error { return nil }
)

func TestMain(m *testing.M) {
	code := m.Run()
	if !allTests.end(code != 0) {
		code = 1
	}
	if err := unvisited(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := stopChromium(); err != nil {
		fmt.Fprintln(os.Stderr, "stop Chromium:", err)
		code = 1
	}
	os.Exit(code)
}

func startChromium() (context.Context, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errors.New("Chromium is not installed: run make setup")
	}
	profile, err := os.MkdirTemp("", "purser-chromium-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.NoFirstRun, chromedp.UserDataDir(profile), chromedp.WindowSize(1280, 900))
	for _, name := range []string{"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "no-proxy-server", "disable-site-isolation-trials",
		// a microphone, and nobody who must allow it
		"use-fake-device-for-media-stream", "use-fake-ui-for-media-stream"} {
		options = append(options, chromedp.Flag(name, true))
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	stopChromium = func() error { cancel(); return os.RemoveAll(profile) }
	ctx, end := chromedp.NewContext(ctx)
	stopChromium = func() error { end(); cancel(); return os.RemoveAll(profile) }
	return ctx, chromedp.Do(ctx)
}

// A tab is a window of somebody who was never here before. What should not
// happen on any page of ours fails its test: an error in the console, a report of
// the content policy, a request to a stranger.
type tab struct {
	t     *testing.T
	ctx   context.Context
	hosts []string // it may talk to
	// scriptless: its pages run no JavaScript.
	scriptless bool

	mu       sync.Mutex
	trouble  []string
	expected string // what is no trouble in this test: what it holds, "" = nothing
}

func newTab(t *testing.T, origins ...string) *tab {
	t.Helper()
	browser, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	for _, o := range origins {
		b.hosts = append(b.hosts, strings.TrimPrefix(o, "http://"))
	}
	if err := chromedp.Do(ctx); err != nil { // without a limit: it would end the tab
		cancel()
		t.Fatal(err)
	}
	limited, stop := context.WithTimeout(ctx, 8*time.Minute) // the machine may be busy
	t.Cleanup(func() {
		stop()
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, s := range b.trouble {
			t.Error(s)
		}
	})
	b.ctx = limited
	if err := chromedp.Listen(b.ctx, b.watch); err != nil {
		t.Fatal(err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, audits.Enable, cdp.Empty{})
	return b
}

// watch notes what should not happen.
func (b *tab) watch(event any) {
	note := func(format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s := fmt.Sprintf(format, args...); b.expected == "" || !strings.Contains(s, b.expected) {
			b.trouble = append(b.trouble, s)
		}
	}
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme != "data" && !slices.Contains(b.hosts, u.Host) {
			note("a request to %s", e.Request.URL)
		}
	case *log.EventEntryAdded: // that a page answers 4xx is what some tests are about
		if e.Entry.Level == log.EntryLevelError && !strings.Contains(e.Entry.Text, "responded with a status of 4") {
			note("in the console: %s", e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		thrown := ""
		if e.ExceptionDetails.Exception != nil {
			thrown = e.ExceptionDetails.Exception.Description
		}
		note("exception: %s %s", e.ExceptionDetails.Text, thrown)
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			note("the content policy reports %s %s", d.ViolatedDirective, d.BlockedURL)
		}
	}
}

// expect says what the test is about, and so no trouble.
func (b *tab) expect(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = part
}

// call sends a command to the browser.
func call[P, R any](b *tab, c cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, c, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// stepLimit bounds one step of a browser: a missing element fails its test before
// the limit of the whole test.
const stepLimit = time.Minute

// run takes one step.
func run[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// withoutScripts turns JavaScript off.
func (b *tab) withoutScripts() {
	b.t.Helper()
	b.scriptless = true
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// withScripts turns JavaScript on again.
func (b *tab) withScripts() {
	b.t.Helper()
	b.scriptless = false
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
}

// open goes to an address and returns the status of the page at its end.
func (b *tab) open(address string) int {
	b.t.Helper()
	return int(run(b, chromedp.NavigateResponse(address)).Status)
}

// as finds an element as a screen reader does: by its role and accessible name.
func as(role, name string) chromedp.QueryOption {
	return chromedp.ByFunc(func(ctx context.Context, t *chromedp.Target, n *chromedp.Node) ([]cdp.NodeID, error) {
		found, err := cdp.Call(ctx, t, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{
			NodeID:         n.NodeID,
			Role:           role,
			AccessibleName: name,
		})
		if err != nil && strings.Contains(err.Error(), "No node with given id") || err == nil && len(found.Nodes) == 0 {
			return nil, nil // not there yet: the page is just changing
		} else if err != nil {
			return nil, err
		}
		nodes, err := cdp.Call(ctx, t, dom.PushNodesByBackendIDsToFrontend,
			dom.PushNodesByBackendIDsToFrontendParams{BackendNodeIDs: []cdp.BackendNodeID{
				found.Nodes[0].BackendDOMNodeID,
			}})
		return nodes.NodeIDs, err
	})
}

// fill types into a field in place of what is there.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	run(b, chromedp.Steps(chromedp.Clear(label, as("textbox", label)),
		chromedp.SendKeys(label, text, as("textbox", label))))
}

// value is what stands in a field.
func (b *tab) value(label string) string {
	b.t.Helper()
	return run(b, chromedp.Value(label, as("textbox", label)))
}

// press presses a button, or follows a link, that leads to another page, and
// returns the status of that.
func (b *tab) press(role, name string) int {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
	defer cancel()
	resp, err := chromedp.RunResponse(ctx, chromedp.Click(name, as(role, name)))
	if err != nil {
		b.t.Fatalf("%s %q: %v", role, name, err)
	}
	return int(resp.Status)
}

// enter presses Enter in a field that leads to another page by its script. The key is an event of the page: one of the
// browser's may never be answered when the page leaves on it, and all that is asked of the tab then waits.
func (b *tab) enter(label string) {
	b.t.Helper()
	if !run(b, chromedp.Evaluate[bool](`(() => {
		const field = document.activeElement;
		const label = `+fmt.Sprintf("%q", label)+`;
		if (![...field.labels ?? []].some((l) => l.textContent === label)) return false;
		field.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true}));
		return true;
	})()`)) {
		b.t.Fatalf("the field %q has no focus", label)
	}
}

// pressFirst presses the button whose name begins with this, as the one that says an amount: "Allow up to $5.00".
func (b *tab) pressFirst(begin string) int {
	b.t.Helper()
	for _, x := range b.things() {
		if x.role == "button" && strings.HasPrefix(x.name, begin) {
			return b.press("button", x.name)
		}
	}
	b.t.Fatalf("there is no button %q", begin)
	return 0
}

// fillCap types another amount than the offered ones on the consent screen.
func (b *tab) fillCap(text string) {
	b.t.Helper()
	b.choose("Other")
	b.fill("Spend cap (USD)", text)
}

// cap is the amount that is chosen on the consent screen, or typed.
func (b *tab) cap() string {
	b.t.Helper()
	return run(b, chromedp.Evaluate[string](`(() => {
		const chosen = document.querySelector("input[name=amount]:checked").value;
		return chosen === "other" ? document.getElementById("spend_cap").value : chosen;
	})()`))
}

// unfold shows what the page has folded.
func (b *tab) unfold() {
	b.t.Helper()
	run(b, chromedp.Evaluate[int](`[...document.querySelectorAll("main details")].map((d) => d.open = true).length`))
}

// text is what the page shows.
func (b *tab) text() string {
	b.t.Helper()
	return run(b, chromedp.Evaluate[string](`document.body.innerText`))
}

// says fails the test unless the page shows every part.
func (b *tab) says(parts ...string) {
	b.t.Helper()
	text := b.text()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			b.t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
}

// choose picks the radio button whose name begins with this.
func (b *tab) choose(begin string) {
	b.t.Helper()
	for _, x := range b.things() {
		if x.role == "radio" && strings.HasPrefix(x.name, begin) {
			run(b, chromedp.Click(x.name, as("radio", x.name)))
			return
		}
	}
	b.t.Fatalf("there is no choice %q", begin)
}

// at is where the tab is.
func (b *tab) at() *url.URL {
	b.t.Helper()
	u, err := url.Parse(run(b, chromedp.Location()))
	if err != nil {
		b.t.Fatal(err)
	}
	return u
}

// signIn fills in the sign-in page.
func (b *tab) signIn(email, password string) int {
	b.t.Helper()
	b.fill("Email", email)
	b.fill("Password", password)
	return b.press("button", "Sign in")
}

// shoot keeps a picture of the whole page in artifacts.
func (b *tab) shoot(name string) {
	b.t.Helper()
	picture := run(b, chromedp.FullScreenshot(100)) // that is PNG
	if err := os.MkdirAll("artifacts", 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("artifacts", name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
