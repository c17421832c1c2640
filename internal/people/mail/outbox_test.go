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
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
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
		code, page := get("/dev/mail/" + w.all()[0].ID)
		for _, want := range []string{"mail 1", "ada@example.com",
			`href="https://purser.example.com/connections/conn_x/review"`, `href="` + hello().Unsubscribe,
			"&lt;p&gt;Hello&lt;/p&gt;"} {
			if code != 200 || !strings.Contains(page, want) {
				t.Errorf("%d, without %s:\n%s", code, want, page)
			}
		}
		if code, _ := get("/dev/mail/mail_none"); code != 404 {
			t.Errorf("no such mail: %d", code)
		}
	})
}
