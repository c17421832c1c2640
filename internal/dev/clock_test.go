package dev

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestDurationsOfTheClock(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"30d": "30d", "+30d": "30d", "36h": "1d12h", "1d12h": "1d12h", "90m": "1h30m", "24h": "1d",
		"1s": "1s",
		"":   "", "0": "", "0d": "", "-1d": "", "1d-2h": "", "1d+2h": "", "d": "", "1.5d": "", "99999999d": "",
		"70000d": "",
		"1w":     "", "soon": "", "500ms": "", "8000d": "",
	} {
		d, err := parseDuration(text)
		if err == nil && formatAhead(time.Duration(d)) != want || err != nil && want != "" {
			t.Errorf("%q: %s, %v; want %q", text, formatAhead(time.Duration(d)), err, want)
		}
	}
}

// TestClock: the clock of a development node goes forward, on both engines, wakes the jobs, and is where it was after a
// restart. It never goes back.
func TestClock(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		c, rt := &clock{}, web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
		if err := c.start(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		c.mount(rt)
		job, stop := c.every(time.Hour)
		defer stop()
		ask := func(method, path, kind, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			rt.ServeHTTP(w, r)
			return w
		}
		const form = "application/x-www-form-urlencoded"
		advance := func(by string) *httptest.ResponseRecorder {
			return ask("POST", "/v1/dev/clock", "application/json", `{"advance":"`+by+`"}`)
		}
		before := d.RealNow()
		if w := advance("30d"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"ahead":"30d"`) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		<-job // an hour before its time
		ahead := func() time.Duration { return d.Now().Sub(before).Round(time.Hour) }
		if ahead() != 30*day || time.Until(c.now()).Round(time.Hour) != 30*day {
			t.Errorf("%s ahead", ahead())
		}
		if w := ask("POST", "/dev/clock", form, "advance=12h"); w.Code != http.StatusSeeOther {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := ask("GET", "/dev/clock", "", ""); !strings.Contains(w.Body.String(), "30d12h ahead") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for _, wrong := range []string{"-1d", "", "366d", "soon"} {
			if w := advance(wrong); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "advance: ") {
				t.Errorf("%q: %d %s", wrong, w.Code, w.Body)
			}
			if w := ask("POST", "/dev/clock", form, "advance="+wrong); w.Code != 400 ||
				!strings.Contains(w.Body.String(), "such as 30d") && wrong != "366d" {
				t.Errorf("%q: %d %s", wrong, w.Code, w.Body)
			}
		}
		// What a page of another site could send without asking first.
		if w := ask("POST", "/v1/dev/clock", "text/plain", `{"advance":"1d"}`); w.Code < 400 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		d.SetBack(0) // another process
		again := &clock{}
		if err := again.start(t.Context(), d, 20*day); err == nil || !strings.Contains(err.Error(), "forward only") {
			t.Errorf("back: %v", err)
		}
		for _, want := range []time.Duration{0, 40 * day} { // 0: as far as it was
			if err := again.start(t.Context(), d, want); err != nil {
				t.Error(err)
			}
			if got := ahead(); got != max(want, 30*day+12*time.Hour) {
				t.Errorf("%s ahead, want %s", got, want)
			}
		}
		again.fixed = true
		if err := again.advance(t.Context(), day); !errors.Is(err, errFixed) {
			t.Errorf("%v", err)
		}
		again.fixed = false
		if err := again.start(t.Context(), d, 3*365*day); err != nil || ahead() != 3*365*day { // in steps of a year
			t.Errorf("%v, %s ahead", err, ahead())
		}
	})
}
