package e2e

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A componentsApp is an app whose pages have Purser's web components, under a policy that allows no
// inline style or script.
type componentsApp struct {
	*httptest.Server
	t     *testing.T
	p     *servertest.Process
	popup bool // consent opens in a window of its own

	mu       sync.Mutex
	verifier string
	token    *oauth2.Token // of the one user; nil = not connected
	refused  bool
}

func newComponentsApp(t *testing.T, popup bool) *componentsApp {
	t.Helper()
	a := &componentsApp{t: t, p: servertest.Start(t, ""), popup: popup}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.showPage)
	mux.HandleFunc("GET /app.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		_, _ = io.WriteString(w, `:root { color-scheme: light dark; } body { background: light-dark(white, #161f1c);
			color: light-dark(black, white); font-family: sans-serif; }`)
	})
	mux.HandleFunc("GET /connect", a.connect)
	mux.HandleFunc("GET /callback", a.finish)
	mux.HandleFunc("GET /connection", a.relay("/v1/connection"))
	mux.HandleFunc("GET /events", a.relay("/v1/connection/events"))
	a.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	register(t, a.p, a.URL+"/callback")
	return a
}

func (a *componentsApp) writePage(w http.ResponseWriter, body string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "+
		"connect-src 'self'; style-src 'self'; script-src "+a.p.BaseURL)
	_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>An app</title>
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,"><link rel="stylesheet" href="/app.css">
<script type="module" crossorigin src="%s/components/v1/purser.js"></script></head>
<body><main><h1>An app</h1>%s</main></body></html>`, html.EscapeString(a.p.BaseURL), body)
}

func (a *componentsApp) showPage(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	extra := ""
	if a.popup {
		extra = " popup"
	}
	if a.refused {
		extra += ` state="refused"`
	}
	meter := ""
	if a.token != nil || a.popup {
		meter = `<purser-meter src="/connection" events="/events"></purser-meter>`
	}
	a.writePage(w, `<purser-connect href="/connect" src="/connection"`+extra+`></purser-connect>`+meter)
}

func (a *componentsApp) connect(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var address string
	address, a.verifier = link(a.p, "components")
	a.refused = false
	http.Redirect(w, r, address, http.StatusSeeOther)
}

func (a *componentsApp) finish(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if code := r.FormValue("code"); code != "" {
		token, err := client(a.p).Exchange(r.Context(), code, oauth2.VerifierOption(a.verifier))
		if err != nil {
			a.t.Error(err)
		}
		a.token = token
	} else {
		a.refused = true
	}
	if a.popup {
		a.writePage(w, `<purser-return></purser-return>`)
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// relay answers as Purser does for the user's token, which never reaches the page.
func (a *componentsApp) relay(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		token := a.token
		a.mu.Unlock()
		if token == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, a.p.BaseURL+path, nil)
		if err != nil {
			a.t.Error(err)
			return
		}
		token.SetAuthHeader(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return // the page is gone
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		for part := make([]byte, 4096); ; {
			n, err := resp.Body.Read(part)
			_, _ = w.Write(part[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	}
}

// awaitShadow waits until an expression about a component's shadow tree s has the value want.
func (b *tab) awaitShadow(selector, expression, want string) {
	b.t.Helper()
	script := fmt.Sprintf(`(() => { const s = document.querySelector(%q)?.shadowRoot; return String(s && (%s)) })()`,
		selector, expression)
	got := ""
	for end := time.Now().Add(stepLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = run(b, chromedp.Evaluate[string](script)); got == want {
			return
		}
	}
	b.t.Fatalf("%s: %s is %q, want %q", selector, expression, got, want)
}

const (
	buttonText = `s.querySelector("button").hidden ? "" : s.querySelector("button").innerText`
	meterText  = `s.querySelector("[part=text]").innerText`
	meterNow   = `Number(s.querySelector("[role=meter]").getAttribute("aria-valuenow")) < 1250000000`
)

// TestComponents connects by <purser-connect> in the same window, by keyboard alone, and watches
// <purser-meter> go down. The pages run under a strict policy; axe looks at every state.
func TestComponents(t *testing.T) {
	t.Parallel()
	a := newComponentsApp(t, false)
	b := newTab(t, a.URL, a.p.BaseURL)
	b.open(a.URL)
	b.awaitShadow("purser-connect", buttonText, "Pay with Purser")
	b.look("components-ready")
	pressByKeyboard := func() {
		t.Helper()
		if _, err := chromedp.RunResponse(b.ctx, chromedp.Steps(chromedp.KeyEvent("\t"),
			chromedp.KeyEvent("\r"))); err != nil {
			t.Fatal(err)
		}
	}
	pressByKeyboard()
	b.signIn(a.p.TestAccount.Email, a.p.TestAccount.Password)
	b.press("button", "Not now")
	b.awaitShadow("purser-connect", buttonText, "Try again")
	b.awaitShadow("purser-connect", `s.querySelector("[role=status]").innerText`,
		"You declined. You haven’t been charged.")
	b.look("components-refused")

	pressByKeyboard()
	b.fillCap("12.50")
	b.pressFirst("Allow")
	b.awaitShadow("purser-connect", `s.querySelector("[part=connected]").innerText`, "Connected to Purser. Manage")
	b.awaitShadow("purser-meter", meterText, "$12.50 of $12.50 left")
	b.awaitShadow("purser-meter", `s.querySelector("[part=raise]").href`,
		a.p.DashboardURL+"/connections/"+a.p.Connection.ID+"/increase")
	b.look("components-connected")
	if _, err := ask(t, a.p, a.token.AccessToken, model, "Hello"); err != nil {
		t.Fatal(err)
	}
	b.awaitShadow("purser-meter", meterNow, "true")
	names := map[string]bool{}
	for _, x := range b.things() {
		names[x.role+" "+x.name] = true
	}
	for _, want := range []string{"meter Spend cap", "link Raise the cap", "link Top up", "link Pause or stop"} {
		if !names[want] {
			t.Errorf("a screen reader does not find %q among %v", want, names)
		}
	}
	a.mu.Lock()
	a.token = nil // the app forgets a connection that it revokes
	a.mu.Unlock()
	manage(t, a.p, "POST", "/v1/connections/"+a.p.Connection.ID+"/revoke", "", nil)
	b.awaitShadow("purser-meter", meterText, "Not connected.")
}

// TestComponentsInAPopup connects in a window of its own, which tells the page and closes.
func TestComponentsInAPopup(t *testing.T) {
	t.Parallel()
	a := newComponentsApp(t, true)
	b := newTab(t, a.URL, a.p.BaseURL)
	b.open(a.p.BaseURL + "/sign-in")
	b.signIn(a.p.TestAccount.Email, a.p.TestAccount.Password)
	b.open(a.URL)
	b.awaitShadow("purser-connect", buttonText, "Pay with Purser")
	b.awaitShadow("purser-meter", meterText, "Not connected.")
	opened := chromedp.WaitNewTarget(b.ctx, func(*target.Info) bool { return true })
	run(b, chromedp.Click("Pay with Purser", as("button", "Pay with Purser")))
	b.awaitShadow("purser-connect", buttonText, "Opening Purser…")
	var popupID target.ID
	select {
	case popupID = <-opened:
	case <-time.After(stepLimit):
		t.Fatal("no window was opened")
	}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(popupID))
	defer cancel()
	popup := &tab{t: t, ctx: ctx}
	const approve = `(() => { const b = document.querySelector("button[value=approve]"); b?.click(); return !!b })()`
	for end := time.Now().Add(stepLimit); !run(popup, chromedp.Evaluate[bool](approve)); {
		if time.Now().After(end) {
			t.Fatalf("the window is at %s", popup.at())
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.awaitShadow("purser-connect", `s.querySelector("[part=connected]").innerText`, "Connected to Purser. Manage")
	for end := time.Now().Add(stepLimit); ; time.Sleep(50 * time.Millisecond) {
		list, err := chromedp.Targets(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		open := false
		for _, info := range list {
			open = open || info.TargetID == popupID
		}
		if !open {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the window stays open")
		}
	}
}
