package accounts_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// site is the pages of this package, served.
type site struct {
	*httptest.Server
	d     *db.DB
	clock *clock
}

// serve starts the pages; origins are those with sign-ins, if there are several.
func serve(t *testing.T, d *db.DB, secure bool, origins ...string) *site {
	t.Helper()
	c := newClock()
	s := accounts.NewStore(d, c.now)
	mustCreate(t, d, s, accounts.NewAccount{Email: "person@example.com", Password: password})
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	(&accounts.Handler{
		Store:    s,
		Sessions: accounts.NewSessions(s, secure),
		Home:     ui.Home{BaseURL: "https://api.example.com"},
		Origins:  origins,
	}).Mount(rt)
	rt.SetFormOrigins(origins...)
	srv := httptest.NewServer(rt)
	t.Cleanup(srv.Close)
	return &site{srv, d, c}
}

// do sends a request without following redirects.
func (s *site) do(t *testing.T, method, path, cookie string, form url.Values, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != "" {
		req.Header.Set("Cookie", cookie)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func signIn(next string) url.Values {
	return url.Values{"email": {"person@example.com"}, "password": {password}, "next": {next}}
}

// cookie is the session that an answer sets, as a browser sends it back.
func cookie(t *testing.T, resp *http.Response) string {
	t.Helper()
	if len(resp.Cookies()) != 1 {
		t.Fatalf("%s %s set %d cookies, want 1", resp.Request.Method, resp.Request.URL.Path, len(resp.Cookies()))
	}
	c := resp.Cookies()[0]
	return c.Name + "=" + c.Value
}

// who is the e-mail that the front page greets.
func (s *site) who(t *testing.T, cookie string) bool {
	t.Helper()
	body, err := io.ReadAll(s.do(t, "GET", "/", cookie, nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(body), "person@example.com")
}

func TestSessionsBeginAndEnd(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, false)
		resp := s.do(t, "POST", "/sign-in", "", signIn("/somewhere?a=b"))
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/somewhere?a=b" {
			t.Fatalf("sign in: %d to %q", resp.StatusCode, resp.Header.Get("Location"))
		}
		session := cookie(t, resp)
		if !s.who(t, session) || s.who(t, "") || s.who(t, session+"x") {
			t.Error("the front page knows the wrong people")
		}
		_, token, _ := strings.Cut(session, "=")
		var stored int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM sessions WHERE token_hash = $1`,
			token).Scan(&stored); err != nil || stored != 0 {
			t.Errorf("the token itself is stored (%v)", err)
		}

		out := s.do(t, "POST", "/sign-out", session, nil)
		if out.StatusCode != http.StatusSeeOther || out.Header.Get("Location") != "/signed-out" {
			t.Errorf("sign out: %d to %q", out.StatusCode, out.Header.Get("Location"))
		}
		if s.who(t, session) {
			t.Error("the session works after signing out")
		}
	})
}

// A sign-out at one of two hosts leads on to the other, which ends the session of the same browser there.
func TestSignOutEndsTheSessionsOfABrowser(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), false, "https://connect.example", "https://my.example")
	session := cookie(t, s.do(t, "POST", "/sign-in", "", signIn("/"), "Host", "connect.example"))
	mine := cookie(t, s.do(t, "POST", "/sign-in", "", signIn("/"), "Host", "my.example"))

	out := s.do(t, "POST", "/sign-out", mine, nil, "Host", "my.example")
	to, ok := strings.CutPrefix(out.Header.Get("Location"), "https://connect.example/sign-out/here?")
	if !ok || out.StatusCode != http.StatusSeeOther || s.who(t, mine) {
		t.Fatalf("signing out leads to %q", out.Header.Get("Location"))
	}
	policy := out.Header.Get("Content-Security-Policy")
	if !strings.HasSuffix(policy, "form-action 'self' https://connect.example https://my.example") {
		t.Errorf("the browser does not follow: %s", policy)
	}
	asked := s.do(t, "GET", "/sign-out/here?"+to, session, nil, "Host", "connect.example", "Sec-Fetch-Site",
		"cross-site")
	if asked.StatusCode != http.StatusOK || !s.who(t, session) {
		t.Error("a foreign site signs out")
	}
	out = s.do(t, "GET", "/sign-out/here?"+to, session, nil, "Host", "connect.example", "Sec-Fetch-Site", "same-site")
	if got := out.Header.Get("Location"); got != "https://my.example/signed-out" || s.who(t, session) {
		t.Errorf("the other host leads to %q, or its session goes on", got)
	}
	for back, want := range map[string]string{
		"https://my.example":      "https://my.example/signed-out",
		"https://evil.example":    "/signed-out",
		"https://my.example.evil": "/signed-out",
		"":                        "/signed-out",
	} {
		q := url.Values{"back": {back}, "to": {"/signed-out"}}.Encode()
		out := s.do(t, "GET", "/sign-out/here?"+q, "", nil, "Host", "connect.example")
		if got := out.Header.Get("Location"); got != want {
			t.Errorf("back to %q leads to %q", back, got)
		}
	}
	if got := s.do(t, "GET", "/sign-out/here?to=//evil.example", "", nil).Header.Get("Location"); got != "/" {
		t.Errorf("an open redirect to %q", got)
	}
	out = s.do(t, "POST", "/sign-out", "", nil, "Host", "node.internal")
	if got := out.Header.Get("Location"); got != "/signed-out" {
		t.Errorf("at a node's own address: %q", got)
	}
}

// A session lasts 12 hours without use and 7 days with it.
func TestSessionsExpire(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, false)
		idle := cookie(t, s.do(t, "POST", "/sign-in", "", signIn("/")))
		s.clock.pass(12*time.Hour - time.Second)
		if !s.who(t, idle) {
			t.Fatal("ended before 12 hours")
		}
		s.clock.pass(12 * time.Hour)
		if s.who(t, idle) {
			t.Error("12 hours without use did not end it")
		}
		busy := cookie(t, s.do(t, "POST", "/sign-in", "", signIn("/")))
		for hours := 6; hours < 7*24; hours += 6 {
			s.clock.pass(6 * time.Hour)
			if !s.who(t, busy) {
				t.Fatalf("ended after %d hours of use", hours)
			}
		}
		s.clock.pass(6 * time.Hour)
		if s.who(t, busy) {
			t.Error("7 days of use did not end it")
		}
		store := accounts.NewStore(d, s.clock.now)
		if n, err := store.Purge(t.Context(), accounts.DefaultRetention); n != 2 || err != nil {
			t.Errorf("purged %d sessions (%v), want 2", n, err)
		}
	})
}

// A token that was there before sign-in, planted or old, is worth nothing after.
func TestSessionsAreNotFixed(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d, false)
		old := cookie(t, s.do(t, "POST", "/sign-in", "", signIn("/")))
		for _, planted := range []string{old, "purser=chosen-by-somebody-else-0000000000000000"} {
			fresh := cookie(t, s.do(t, "POST", "/sign-in", planted, signIn("/")))
			if fresh == planted || s.who(t, planted) || !s.who(t, fresh) {
				t.Errorf("after signing in with %q: it still works, or the new one does not", planted)
			}
		}
	})
}

func TestCookieIsBound(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	s := serve(t, d, true)
	c := s.do(t, "POST", "/sign-in", "", signIn("/")).Cookies()[0]
	if c.Name != "__Host-purser" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" ||
		c.Domain != "" || len(c.Value) != 43 {
		t.Errorf("cookie: %v", c)
	}
}

func TestPagesAreProtected(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), false)
	session := cookie(t, s.do(t, "POST", "/sign-in", "", signIn("/")))
	for _, path := range []string{"/", "/sign-in", "/signed-out"} {
		h := s.do(t, "GET", path, "", nil).Header
		policy := h.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'self'"} {
			if !strings.Contains(policy, rule) {
				t.Errorf("%s: policy %q lacks %q", path, policy, rule)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "script-src") ||
			h.Get("X-Frame-Options") != "DENY" ||
			h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	for _, foreign := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://elsewhere.example.com"},
		{"Origin", "null"},
	} {
		for _, path := range []string{"/sign-in", "/sign-out"} {
			if resp := s.do(t, "POST", path, session, signIn("/"),
				foreign...); resp.StatusCode != http.StatusForbidden || len(resp.Cookies()) != 0 {
				t.Errorf("POST %s with %v: %d, want 403", path, foreign, resp.StatusCode)
			}
		}
	}
	if !s.who(t, session) {
		t.Error("a foreign form signed the person out")
	}
}

// The sign-in form says what was wrong, keeps the e-mail and never the password.
func TestSignInFormComesBack(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), false)
	form := url.Values{
		"email":    {`person@example.com"><script>`},
		"password": {"wrong <password>"},
		"next":     {"/somewhere"},
	}
	resp := s.do(t, "POST", "/sign-in", "", form)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	page := string(body)
	if resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) != 0 {
		t.Errorf("status %d, cookies %v", resp.StatusCode, resp.Cookies())
	}
	for _, want := range []string{`role="alert"`, `value="/somewhere"`, "person@example.com&#34;&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "wrong &lt;") {
		t.Error("the page repeats what it must not")
	}
	for range 10 {
		resp = s.do(t, "POST", "/sign-in", "", form)
	}
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "6" {
		t.Errorf("the 11th wrong try: %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

// Nothing here leads people to somebody else's site.
func TestRedirectsStayHere(t *testing.T) {
	t.Parallel()
	s := serve(t, dbtest.Open(t, db.SQLite), false)
	for next, want := range map[string]string{
		"/":                             "/",
		"/oauth/authorize?a=b&c=%2F%2F": "/oauth/authorize?a=b&c=%2F%2F",
		"":                              "/",
		"https://elsewhere.example.com": "/",
		"//elsewhere.example.com":       "/",
		"///elsewhere.example.com":      "/",
		`/\elsewhere.example.com`:       "/",
		`\\elsewhere.example.com`:       "/",
		"/%5Celsewhere.example.com":     "/",
		"/%2Felsewhere.example.com":     "/",
		"/..//elsewhere.example.com":    "/",
		"/\t/elsewhere.example.com":     "/",
		"/\n/elsewhere.example.com":     "/",
		" //elsewhere.example.com":      "/",
		"javascript:alert(1)":           "/",
		"elsewhere":                     "/",
		"?a=b":                          "/",
		"/a\r\nSet-Cookie: b=c":         "/",
		"/ü":                            "/",
		"http:/elsewhere.example.com":   "/",
		"/a%zz":                         "/",
	} {
		if got := accounts.LocalPath(next); got != want {
			t.Errorf("LocalPath(%q) = %q, want %q", next, got, want)
		}
		resp := s.do(t, "POST", "/sign-in", "", signIn(next))
		if strings.ContainsAny(next, "\r\n") && resp.StatusCode == http.StatusBadRequest {
			continue
		}
		if got := resp.Header.Get("Location"); got != want {
			t.Errorf("signing in with next=%q leads to %q, want %q", next, got, want)
		}
		out := s.do(t, "POST", "/sign-out", "", url.Values{"next": {next}})
		if got := out.Header.Get("Location"); got != "/sign-in?next="+url.QueryEscape(want) {
			t.Errorf("signing out with next=%q leads to %q", next, got)
		}
	}
}

// Ending a session is an event; ending one that does not exist, or of another account, is none.
func TestEndingNoSessionIsNoEvent(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		site := serve(t, d, false)
		cookie(t, site.do(t, "POST", "/sign-in", "", signIn("/")))
		s := accounts.NewStore(d, site.clock.now)
		sessions := accounts.NewSessions(s, false)
		other := mustCreate(t, d, s, accounts.NewAccount{Email: "other@example.com"})
		person, err := accounts.GetAccountByEmail(t.Context(), d, "person@example.com")
		if err != nil {
			t.Fatal(err)
		}
		list, err := sessions.ListSessions(t.Context(), person.ID, 10)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, c := range []struct {
			accountID, sessionID string
			events               int
		}{
			{person.ID, "unknown", 0},
			{other.ID, list[0].ID, 0},
			{person.ID, list[0].ID, 1},
			{person.ID, list[0].ID, 1},
		} {
			if err := sessions.Revoke(t.Context(), c.accountID, c.sessionID, accounts.Client{}); err != nil {
				t.Error(err)
			}
			var n int
			if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM security_events
				WHERE kind = 'session-ended'`).Scan(&n); err != nil || n != c.events {
				t.Errorf("%+v: %d events, %v", c, n, err)
			}
		}
	})
}
