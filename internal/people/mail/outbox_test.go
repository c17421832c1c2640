package mail

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// The development outbox lists the newest mail first and shows each mail as text.
func TestOutboxPages(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
		rt.SetPageError(ui.RenderError)
		(&Outbox{Store: w.Store}).Mount(rt)
		get := func(path string) (int, string) {
			a := httptest.NewRecorder()
			rt.ServeHTTP(a, httptest.NewRequest("GET", path, nil))
			return a.Code, a.Body.String()
		}
		if code, page := get("/dev/mail"); code != 200 || !strings.Contains(page, "No emails yet") {
			t.Errorf("empty: %d\n%s", code, page)
		}
		for n := range 2 {
			m := hello()
			m.Subject = fmt.Sprintf("<b>mail %d</b>", n)
			m.Text += "https://purser.example.com/connections/conn_x/review\n"
			w.mustQueue(m)
			w.pass(time.Second)
		}
		_, page := get("/dev/mail")
		if first, second := strings.Index(page, "mail 1"), strings.Index(page, "mail 0"); first < 0 || second < first ||
			strings.Contains(page, "<b>") {
			t.Errorf("list:\n%s", page)
		}
		path := "/dev/mail/" + w.all()[0].ID
		for view, wants := range map[string][]string{
			"": {`<iframe class="mail-frame" src="` + path + `/html"`,
				`sandbox="allow-popups allow-popups-to-escape-sandbox"`},
			"?view=text":   {"Hello"},
			"?view=source": {"&lt;p&gt;Hello&lt;/p&gt;"},
		} {
			code, page := get(path + view)
			for _, want := range append(wants, "mail 1", "ada@example.com", `aria-current="page"`,
				`href="https://purser.example.com/connections/conn_x/review"`, `href="`+hello().Unsubscribe) {
				if code != 200 || !strings.Contains(page, want) {
					t.Errorf("%s: %d, without %s:\n%s", view, code, want, page)
				}
			}
		}
		for _, none := range []string{"/dev/mail/mail_none", "/dev/mail/mail_none/html"} {
			if code, _ := get(none); code != 404 {
				t.Errorf("%s: %d", none, code)
			}
		}
	})
}

// The HTML of a mail may use its own styles. It runs no script, loads nothing from elsewhere, and only our own pages
// frame it.
func TestOutboxFramesMailsSafely(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	rt.SetPageError(ui.RenderError)
	(&Outbox{Store: w.Store}).Mount(rt)
	m := hello()
	m.HTML = `<script>alert(1)</script><img src="https://evil.example.com/"><p>Hello</p>`
	w.mustQueue(m)
	path := "/dev/mail/" + w.all()[0].ID
	page, frame := httptest.NewRecorder(), httptest.NewRecorder()
	rt.ServeHTTP(page, httptest.NewRequest("GET", path, nil))
	rt.ServeHTTP(frame, httptest.NewRequest("GET", path+"/html", nil))
	policy := page.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "frame-src 'self'; default-src 'none'") || strings.Contains(policy, "unsafe-inline") ||
		strings.Contains(page.Body.String(), "<script") {
		t.Errorf("the page: %s\n%s", policy, page.Body)
	}
	policy = frame.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "style-src 'unsafe-inline'", "frame-ancestors 'self'",
		"form-action 'none'", "; sandbox allow-popups allow-popups-to-escape-sandbox"} {
		if frame.Body.String() != m.HTML || !strings.Contains(policy, want) {
			t.Errorf("the frame: %s, without %s\n%s", policy, want, frame.Body)
		}
	}
	if strings.Contains(policy, "script-src") || strings.Contains(policy, "img-src") ||
		strings.Contains(policy, "allow-scripts") || strings.Contains(policy, "allow-same-origin") {
		t.Errorf("the frame may do more than show text: %s", policy)
	}
	plain := hello()
	plain.HTML = ""
	w.mustQueue(plain)
	for _, sent := range w.all() {
		if sent.HTML != "" {
			continue
		}
		shown := httptest.NewRecorder()
		rt.ServeHTTP(shown, httptest.NewRequest("GET", "/dev/mail/"+sent.ID, nil))
		if strings.Contains(shown.Body.String(), "<iframe") || !strings.Contains(shown.Body.String(), "Hello") {
			t.Errorf("a mail without HTML:\n%s", shown.Body)
		}
	}
}
