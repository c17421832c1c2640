package status

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/shared"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/metrics"
)

const (
	// cacheAge is how long an answer may be reused, by us and by others.
	cacheAge = 30 * time.Second
	// loadTimeout bounds the reads of an answer. A database that does not answer in time is unreachable.
	loadTimeout = 2 * time.Second
	// recentTime is what the present state is judged by.
	recentTime = 15 * time.Minute
	// shownFor is how long a resolved incident is shown.
	shownFor = 14 * 24 * time.Hour
	// maxIncidents bounds the incidents of the page.
	maxIncidents = 20
)

// A Handler serves the page for visitors.
type Handler struct {
	DB       *db.DB
	Recorder *Recorder
	// Providers are those that calls can reach.
	Providers []string
	// Payments and Email report whether there are top-ups and mail.
	Payments, Email bool
	Now             func() time.Time
	Log             *slog.Logger

	reads shared.Flight[Report]

	mu     sync.Mutex
	cached Report
	kept   data // as it was read last
}

// data is what a report is made of.
type data struct {
	hours     []hour
	firstUS   int64 // of the oldest interval; 0 = nothing was counted
	recent    []metrics.Tally
	incidents []Incident
}

// A Report says how the service is.
type Report struct {
	At          time.Time
	Unreachable bool // the database cannot be read: what is older than At is from memory
	State       string
	Services    []Service
	Incidents   []Incident // those that last first, then newest first
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /status", h.servePage)
	rt.Handle("GET /status.json", h.serveJSON)
}

// Load returns the report, made at most cacheAge ago, so that visitors do not load the database. One visitor's read is
// for all who come meanwhile.
func (h *Handler) Load(ctx context.Context) Report {
	report, _ := h.reads.Do(ctx, h.load) // an error only for a visitor who has left
	return report
}

func (h *Handler) load(ctx context.Context) (Report, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	if !h.cached.At.IsZero() && now.Sub(h.cached.At) < cacheAge {
		return h.cached, nil
	}
	reading, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	d, err := h.read(reading, now)
	if ctx.Err() != nil { // all visitors have left: nothing is known of the database
		return h.cached, ctx.Err()
	}
	if err != nil {
		h.Log.WarnContext(ctx, "status not read", "error", err)
		h.kept.recent = h.Recorder.unsavedTallies(now.Add(-recentTime).UnixMicro())
	} else {
		h.kept = d
	}
	h.cached = h.makeReport(h.kept, err != nil, now)
	return h.cached, nil
}

// Forget lets the next report be made from current data.
func (h *Handler) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cached = Report{}
}

func (h *Handler) read(ctx context.Context, now time.Time) (d data, err error) {
	if d.hours, err = listHours(ctx, h.DB, now); err != nil {
		return d, err
	}
	if d.firstUS, err = firstInterval(ctx, h.DB); err != nil {
		return d, err
	}
	if d.recent, err = sumBetween(ctx, h.DB, now.Add(-recentTime).UnixMicro(), math.MaxInt64); err != nil {
		return d, err
	}
	d.incidents, err = ListIncidents(ctx, h.DB, "", maxIncidents)
	return d, err
}

// ownNames are the parts that are not providers.
func (h *Handler) ownNames() []string {
	own := []string{API, SignIn}
	if h.Payments {
		own = append(own, metrics.Payments)
	}
	if h.Email {
		own = append(own, metrics.Email)
	}
	return own
}

// Names are the parts of the page, in its order.
func (h *Handler) Names() []string { return append(h.ownNames(), h.Providers...) }

// makeReport judges what was read.
func (h *Handler) makeReport(d data, unreachable bool, now time.Time) Report {
	r := Report{At: now, Unreachable: unreachable, State: Operational}
	own := h.ownNames()
	for _, name := range h.Names() {
		s := Service{Name: name, Title: Title(name), Kind: "provider"}
		if slices.Contains(own, name) {
			s.Kind = "service"
		}
		s.State = judgeService(name, d.recent, d.incidents)
		if unreachable && s.Kind == "service" && name != metrics.Email {
			s.State = Down // none of them works without the database
		}
		s.Bars, s.UptimePPM, s.Known = makeBars(name, d.hours, d.firstUS, now)
		r.Services = append(r.Services, s)
		if s.Kind == "service" {
			r.State = worse(r.State, s.State)
		} else if s.State != Operational {
			r.State = worse(r.State, Degraded) // other providers still answer
		}
	}
	for _, lasts := range []bool{true, false} {
		for _, i := range d.incidents {
			if lasts == (i.ResolvedUS == 0) && (lasts || now.UnixMicro()-i.ResolvedUS < shownFor.Microseconds()) {
				r.Incidents = append(r.Incidents, i)
			}
		}
	}
	return r
}

func setCaching(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "public, max-age="+strconv.Itoa(int(cacheAge/time.Second)))
}

// serveJSON is GET /status.json.
func (h *Handler) serveJSON(w http.ResponseWriter, r *http.Request) error {
	setCaching(w)
	w.Header().Set("Access-Control-Allow-Origin", "*")
	return web.WriteJSON(w, http.StatusOK, h.Load(r.Context()).resource())
}

// The members of status.json.
type (
	reportResource struct {
		Status    string             `json:"status"`
		Database  string             `json:"database"`
		UpdatedAt string             `json:"updated_at"`
		Services  []serviceResource  `json:"services"`
		Incidents []incidentResource `json:"incidents"`
	}
	serviceResource struct {
		Name   string         `json:"name"`
		Title  string         `json:"title"`
		Kind   string         `json:"kind"`
		Status string         `json:"status"`
		Uptime *string        `json:"uptime"`
		Hours  []hourResource `json:"hours"`
	}
	hourResource struct {
		From   string  `json:"from"`
		Uptime *string `json:"uptime"`
	}
	incidentResource struct {
		ID         string  `json:"id"`
		Service    *string `json:"service"`
		Impact     string  `json:"impact"`
		Title      string  `json:"title"`
		Text       string  `json:"text"`
		From       string  `json:"from"`
		ResolvedAt *string `json:"resolved_at"`
	}
)

func (r Report) resource() reportResource {
	out := reportResource{
		Status:    r.State,
		Database:  "reachable",
		UpdatedAt: timestamp.Format(r.At.UnixMicro()),
		Services:  []serviceResource{},
		Incidents: []incidentResource{},
	}
	if r.Unreachable {
		out.Database = "unreachable"
	}
	for _, s := range r.Services {
		v := serviceResource{
			Name:   s.Name,
			Title:  s.Title,
			Kind:   s.Kind,
			Status: s.State,
			Uptime: shareResource(s.UptimePPM, s.Known),
		}
		for _, b := range s.Bars {
			v.Hours = append(v.Hours, hourResource{timestamp.Format(b.FromUS), shareResource(b.UptimePPM, b.Known)})
		}
		out.Services = append(out.Services, v)
	}
	for _, i := range r.Incidents {
		v := incidentResource{
			ID:     i.ID,
			Impact: i.Impact,
			Title:  i.Title,
			Text:   i.Text,
			From:   timestamp.Format(i.FromUS),
		}
		if i.Service != "" {
			v.Service = &i.Service
		}
		if i.ResolvedUS > 0 {
			at := timestamp.Format(i.ResolvedUS)
			v.ResolvedAt = &at
		}
		out.Incidents = append(out.Incidents, v)
	}
	return out
}

// shareResource returns a share as "0.9987", or nil if it is not known.
func shareResource(share int64, known bool) *string {
	if !known {
		return nil
	}
	digits := strconv.FormatInt(ppm+share, 10)
	text := string(digits[0]-1) + "." + digits[1:5]
	return &text
}

// servePage is GET /status.
func (h *Handler) servePage(w http.ResponseWriter, r *http.Request) error {
	report := h.Load(r.Context())
	setCaching(w)
	return ui.Render(w, http.StatusOK, report.page())
}

// page returns the report as people read it.
func (r Report) page() ui.Status {
	p := ui.Status{State: r.State, Unreachable: r.Unreachable, At: newMoment(r.At.UnixMicro())}
	for _, kind := range []string{"service", "provider"} {
		g := ui.StatusGroup{Title: map[string]string{"service": "Purser", "provider": "AI providers"}[kind]}
		for _, s := range r.Services {
			if s.Kind == kind {
				g.Services = append(g.Services, s.Show())
			}
		}
		if g.Services != nil {
			p.Groups = append(p.Groups, g)
		}
	}
	for _, i := range r.Incidents {
		v := ui.StatusIncident{
			Title:   i.Title,
			Text:    i.Text,
			Service: Title(i.Service),
			Impact:  i.Impact,
			From:    newMoment(i.FromUS),
		}
		if i.ResolvedUS > 0 {
			at := newMoment(i.ResolvedUS)
			v.Resolved = &at
		}
		p.Incidents = append(p.Incidents, v)
	}
	return p
}

// Show returns a service as people read it.
func (s Service) Show() ui.StatusService {
	v := ui.StatusService{Name: s.Name, Title: s.Title, State: s.State}
	if s.Known {
		v.Uptime = FormatShare(s.UptimePPM)
	}
	for _, b := range s.Bars {
		hour := ui.StatusHour{From: time.UnixMicro(b.FromUS).UTC().Format("15:04"), Level: "none", Text: "no data"}
		if b.Known {
			hour.Text = FormatShare(b.UptimePPM)
			switch {
			case b.UptimePPM >= 995_000:
				hour.Level = "good"
			case b.UptimePPM >= 950_000:
				hour.Level = "warn"
			default:
				hour.Level = "bad"
			}
		}
		v.Hours = append(v.Hours, hour)
	}
	return v
}

// FormatShare returns a share of one in per cent with two decimals, rounded down: "99.87%".
func FormatShare(share int64) string {
	return strconv.FormatInt(share/10_000, 10) + "." + strconv.FormatInt(100+share%10_000/100, 10)[1:] + "%"
}

func newMoment(us int64) ui.Moment {
	return ui.Moment{When: timestamp.Format(us), Shown: time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04 UTC")}
}
