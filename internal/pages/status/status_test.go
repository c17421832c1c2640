package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A world is a node that counts, and the page.
type world struct {
	*Handler
	t                     *testing.T
	now                   time.Time
	tallies               []metrics.Tally
	notReady, notReadable error
	router                *web.Router
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 11, 20, 23, 40, 0, 0, time.UTC)}
	now := func() time.Time { return w.now }
	w.Handler = &Handler{
		DB: d,
		Recorder: &Recorder{
			DB:       d,
			NodeID:   "node_1",
			Now:      now,
			Tallies:  func() ([]metrics.Tally, error) { return slices.Clone(w.tallies), nil },
			Ready:    func(context.Context) error { return w.notReady },
			Readable: func(context.Context) error { return w.notReadable },
		},
		Providers: []string{"openai", "google"},
		Payments:  true,
		Now:       now,
		Log:       slog.New(slog.DiscardHandler),
	}
	w.router = web.NewRouter(w.Log, web.Links{})
	w.router.SetPageError(ui.RenderError)
	w.Mount(w.router)
	return w
}

// call counts calls to a model.
func (w *world) call(service, model string, attempts, failures int64) {
	t := metrics.Tally{Service: service, Model: model, Attempts: attempts, Failures: failures}
	t.Took[3] = attempts
	for i, have := range w.tallies {
		if have.Service == service && have.Model == model {
			w.tallies[i].Add(t)
			return
		}
	}
	w.tallies = append(w.tallies, t)
}

// pass lets minutes pass, each with a run of the job.
func (w *world) pass(minutes int) {
	w.t.Helper()
	for range minutes {
		w.now = w.now.Add(time.Minute)
		if err := w.Recorder.Once(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// status returns status.json.
func (w *world) status() (r reportResource) {
	w.t.Helper()
	a := w.get("/status.json")
	if err := json.Unmarshal(a.Body.Bytes(), &r); err != nil || a.Code != http.StatusOK {
		w.t.Fatalf("%d %v %s", a.Code, err, a.Body)
	}
	return r
}

func (w *world) get(path string) *httptest.ResponseRecorder {
	r, a := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
	r.Header.Set("Accept", "text/html")
	w.router.ServeHTTP(a, r)
	return a
}

func (w *world) service(name string) serviceResource {
	w.t.Helper()
	list := w.status().Services
	i := slices.IndexFunc(list, func(s serviceResource) bool { return s.Name == name })
	if i < 0 {
		w.t.Fatalf("no %s", name)
	}
	return list[i]
}

// TestCountsBecomeHours counts over midnight on both engines, with two nodes.
func TestCountsBecomeHours(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		r := w.status()
		if r.Status != Operational || r.Services[0].Uptime != nil || len(r.Services[0].Hours) != Hours {
			t.Errorf("before anything was counted: %+v", r.Services[0])
		}
		w.call("openai", "gpt-6-luna", 9, 0)
		w.call("openai", "gpt-6.2-astra", 1, 1)
		w.pass(30) // until 0:10
		other := w.Recorder
		w.Recorder = &Recorder{
			DB:       d,
			NodeID:   "node_2",
			Now:      other.Now,
			Tallies:  other.Tallies,
			Ready:    other.Ready,
			Readable: other.Readable,
		}
		w.tallies = nil
		w.call("openai", "gpt-6-luna", 20, 0)
		w.pass(11)
		if s := w.service("openai"); s.Status != Operational || *s.Hours[Hours-2].Uptime != "0.9000" ||
			*s.Hours[Hours-1].Uptime != "1.0000" || s.Hours[0].Uptime != nil || *s.Uptime != "0.9500" {
			t.Errorf("%s %v", s.Status, s.Hours[Hours-2:])
		}
		if s := w.service("google"); s.Uptime != nil || s.Status != Operational {
			t.Errorf("a provider without calls: %+v", s)
		}
		list, err := sumBetween(t.Context(), d, 0, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		var calls, took int64
		for _, x := range list {
			if x.Service == "openai" {
				calls, took = calls+x.Attempts, took+x.Took[3]
			}
		}
		if calls != 30 || took != 30 {
			t.Errorf("%d calls, %d durations", calls, took)
		}
	})
}

// TestHealthOfADay sums the calls of the last 24 hours, and finds the newest interval of failures. What is older than
// three days is deleted.
func TestHealthOfADay(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		var began []int64
		for i, failures := range []int64{0, 3, 4, 1} {
			if i > 0 {
				w.now = w.now.Add(time.Hour)
			}
			w.call("openai", "gpt-6-luna", 10, failures)
			w.pass(1)
			began = append(began, w.now.Truncate(Interval).UnixMicro())
		}
		for _, c := range []struct {
			at                                  time.Time
			models                              int
			attempts, failures, troubleUS, left int64
		}{
			{w.now, 1, 40, 8, began[2], 4},
			{w.now.Add(22 * time.Hour), 1, 20, 5, began[2], 4},
			{w.now.Add(23 * time.Hour), 1, 10, 1, 0, 4},
			{w.now.Add(71 * time.Hour), 0, 0, 0, 0, 1},
		} {
			w.now = c.at
			w.pass(5)
			list, err := ListHealth(t.Context(), d, c.at)
			var sum Health
			for _, h := range list {
				sum.Add(h.Tally)
				sum.TroubleUS = h.TroubleUS
			}
			if err != nil || len(list) != c.models || sum.Attempts != c.attempts || sum.Failures != c.failures ||
				sum.TroubleUS != c.troubleUS {
				t.Errorf("at %v: %+v, %v", c.at, list, err)
			}
			var left int64
			if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM health WHERE service = 'openai'`).
				Scan(&left); err != nil || left != c.left {
				t.Errorf("at %v: %d rows are left, %v", c.at, left, err)
			}
		}
	})
}

// TestOutageOfTheService has a node that is not ready, and hours without any node.
func TestOutageOfTheService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.pass(30)
	w.notReady = errors.New("the disk is full")
	w.pass(16)
	if s := w.service(API); s.Status != Down {
		t.Errorf("%+v", s.Status)
	}
	if s := w.service(SignIn); s.Status != Operational {
		t.Errorf("%+v", s.Status)
	}
	w.notReady = nil
	w.now = w.now.Add(3*time.Hour + 4*time.Minute) // no node runs from 0:26 to 3:30
	w.pass(20)
	api := w.service(API)
	if api.Status != Operational || len(api.Hours) != Hours {
		t.Errorf("%+v", api)
	}
	// From 23:00 on, when the node started late. In the hour of midnight it sampled six intervals of twelve, and was
	// not ready in 16 samples of 27; in the present one five intervals of nine that are over.
	for name, want := range map[string][5]string{
		API:    {"1.0000", "0.2037", "0.0000", "0.0000", "0.5555"},
		SignIn: {"1.0000", "0.5000", "0.0000", "0.0000", "0.5555"},
	} {
		for i, bar := range w.service(name).Hours[Hours-len(want):] {
			if bar.Uptime == nil || *bar.Uptime != want[i] {
				t.Errorf("%s: %s is %s, want %s", name, bar.From, *cmp.Or(bar.Uptime, new(string)), want[i])
			}
		}
	}
}

// TestDatabaseUnreachable answers from memory, and counts nothing twice when the database is back.
func TestDatabaseUnreachable(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	w := newWorld(t, d)
	w.call("openai", "gpt-6-luna", 100, 0)
	w.pass(20)
	if r := w.status(); r.Database != "reachable" || r.Status != Operational {
		t.Errorf("%s %s", r.Database, r.Status)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	w.notReady, w.notReadable = errors.New("closed"), errors.New("closed")
	w.now = w.now.Add(time.Minute)
	w.call("google", "gemini-4-argon", 4, 4)
	if err := w.Recorder.Once(t.Context()); err == nil {
		t.Error("saved into a closed database")
	}
	r := w.status()
	if r.Database != "unreachable" || r.Status != Down {
		t.Errorf("%s %s", r.Database, r.Status)
	}
	if s := w.service("openai"); s.Status != Operational || s.Uptime != nil && *s.Uptime != "1.0000" {
		t.Errorf("openai: %+v", s)
	}
	if s := w.service("google"); s.Status != Down {
		t.Errorf("google: %+v", s)
	}
	a := w.get("/status")
	if a.Code != http.StatusOK || !strings.Contains(a.Body.String(), "The database is unreachable") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// TestIncidentsWorsenTheState shows incidents with hostile texts, and their ends.
func TestIncidentsWorsenTheState(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	w := newWorld(t, d)
	save := func(i Incident) {
		t.Helper()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return SaveIncident(ctx, tx, i) })
		if err != nil {
			t.Fatal(err)
		}
		w.Forget()
	}
	i := Incident{
		ID:      "inc_1",
		Service: "openai",
		Impact:  Down,
		Title:   "<script>alert(1)</script>",
		Text:    "Line one.\n\"Line\" two & more.",
		FromUS:  w.now.UnixMicro(),
	}
	save(i)
	if s := w.service("openai"); s.Status != Down {
		t.Error(s.Status)
	}
	if r := w.status(); r.Status != Degraded || *r.Incidents[0].Service != "openai" ||
		r.Incidents[0].ResolvedAt != nil {
		t.Errorf("%s %+v", r.Status, r.Incidents)
	}
	a := w.get("/status")
	for _, text := range []string{"&lt;script&gt;alert(1)", "Some services are degraded", "Down"} {
		if !strings.Contains(a.Body.String(), text) {
			t.Errorf("%s is missing", text)
		}
	}
	if strings.Contains(a.Body.String(), "<script>alert") || a.Header().Get("Cache-Control") != "public, max-age=30" {
		t.Error(a.Header(), a.Body)
	}
	i.ResolvedUS = w.now.UnixMicro() + 1
	save(i)
	if r := w.status(); r.Status != Operational || r.Incidents[0].ResolvedAt == nil {
		t.Errorf("%s %+v", r.Status, r.Incidents)
	}
	w.now = w.now.Add(15 * 24 * time.Hour)
	w.Forget()
	if r := w.status(); len(r.Incidents) != 0 {
		t.Errorf("%+v", r.Incidents)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		attempts, failures int64
		want               string
	}{
		{0, 0, Operational}, {1, 1, Operational}, {2, 2, Degraded}, {3, 3, Down}, {6, 3, Down}, {7, 3, Degraded},
		{40, 2, Degraded}, {41, 2, Operational}, {0, 3, Down},
	} {
		if got := judge(x.attempts, x.failures); got != x.want {
			t.Errorf("%d of %d failed: %s", x.failures, x.attempts, got)
		}
	}
}

func TestFormatShare(t *testing.T) {
	t.Parallel()
	for share, want := range map[int64]string{ppm: "100.00%", 999_999: "99.99%", 5_000: "0.50%", 0: "0.00%"} {
		if got := FormatShare(share); got != want {
			t.Errorf("%d: %s", share, got)
		}
	}
}
