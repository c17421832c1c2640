package status

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/metrics"
)

// The states of a service, from best to worst. They are those of status.json.
const (
	Operational = "operational"
	Degraded    = "degraded"
	Down        = "down"
)

// Impacts are those that an incident may have: none, or a state.
var Impacts = []string{"none", Degraded, Down}

// worse returns the worse of two states.
func worse(a, b string) string {
	order := []string{Operational, Degraded, Down}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// judge returns the state of a service by its counts of the last minutes. A single failure says nothing; half of at
// least three attempts means down, a twentieth with at least two failures degraded.
func judge(attempts, failures int64) string {
	attempts = max(attempts, failures)
	switch {
	case failures >= 3 && failures*2 >= attempts:
		return Down
	case failures >= 2 && failures*20 >= attempts:
		return Degraded
	}
	return Operational
}

// ppm is one, for shares in parts per million.
const ppm = 1_000_000

// shareOK returns the share of attempts that did not fail, rounded down; false without attempts.
func shareOK(attempts, failures int64) (share int64, known bool) {
	if attempts <= 0 {
		return 0, false
	}
	return max(0, attempts-failures) * ppm / attempts, true
}

// A Bar is a day of a service.
type Bar struct {
	Date      string
	UptimePPM int64
	Known     bool // something was counted on that day
}

// A Service is a part of the service with its state.
type Service struct {
	Name, Title string // "openai", "OpenAI"
	Kind        string // what is counted: the service itself, or calls to a provider
	State       string
	Bars        []Bar // oldest first, one for each of Days days
	UptimePPM   int64 // over all known days
	Known       bool
}

// Days is the number of days that the page shows.
const Days = 90

// titles are the names that visitors read of what is no provider.
var titles = map[string]string{
	API:              "API",
	SignIn:           "Sign-in and pages",
	metrics.Payments: "Payments",
	metrics.Email:    "Email",
}

// Title returns the name of a service that people read.
func Title(service string) string {
	if t, ok := titles[service]; ok {
		return t
	}
	if service == "" {
		return "The whole service"
	}
	return catalog.ProviderName(service)
}

// isSampled reports whether nodes sample a service themselves, so that minutes without a sample are minutes without it.
func isSampled(service string) bool { return service == API || service == SignIn }

// makeBars returns the bars of a service. On a day between first and today, minutes without a sample of a sampled
// service count as down; on the first day the service may have started late.
func makeBars(service string, days []Day, first string, now time.Time) (list []Bar, all int64, known bool) {
	type sum struct{ attempts, failures, intervals int64 }
	byDate := map[string]sum{}
	for _, d := range days {
		if d.Service == service {
			s := byDate[d.Date]
			s.attempts, s.failures = s.attempts+d.Attempts, s.failures+d.Failures
			s.intervals = max(s.intervals, d.Intervals)
			byDate[d.Date] = s
		}
	}
	today := now.UTC().Truncate(24 * time.Hour)
	var shares, n int64
	for i := Days - 1; i >= 0; i-- {
		day := today.AddDate(0, 0, -i)
		b := Bar{Date: day.Format(time.DateOnly)}
		s := byDate[b.Date]
		b.UptimePPM, b.Known = shareOK(s.attempts, s.failures)
		if isSampled(service) && first != "" && b.Date > first {
			expected := int64(min(24*time.Hour, now.Sub(day)) / Interval)
			if i == 0 {
				expected -= 2 // the present one, and the one that is not summed yet
			}
			if expected > s.intervals && (b.Known || i > 0) {
				b.UptimePPM, b.Known = b.UptimePPM*s.intervals/expected, true
			}
		}
		if b.Known {
			shares, n = shares+b.UptimePPM, n+1
		}
		list = append(list, b)
	}
	if n > 0 {
		all, known = shares/n, true
	}
	return list, all, known
}

// judgeService returns the state of a service by the counts of the last minutes, worsened by incidents that last.
func judgeService(service string, recent []metrics.Tally, incidents []Incident) string {
	var sum metrics.Tally
	for _, t := range recent {
		if t.Service == service {
			sum.Add(t)
		}
	}
	state := judge(sum.Attempts, sum.Failures)
	for _, i := range incidents {
		if i.ResolvedUS == 0 && (i.Service == service || i.Service == "") && i.Impact != "none" {
			state = worse(state, i.Impact)
		}
	}
	return state
}
