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

// A Bar is an hour of a service.
type Bar struct {
	FromUS    int64
	UptimePPM int64
	Known     bool // something was counted in that hour
}

// A Service is a part of the service with its state.
type Service struct {
	Name, Title string // "openai", "OpenAI"
	Kind        string // what is counted: the service itself, or calls to a provider
	State       string
	Bars        []Bar // oldest first, one for each of the last Hours hours
	UptimePPM   int64 // over all known hours
	Known       bool
}

// Hours is the number of hours that the page shows, with the present one.
const Hours = 24

// firstHour returns when the first of them began.
func firstHour(now time.Time) time.Time { return now.Truncate(time.Hour).Add((1 - Hours) * time.Hour) }

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

// makeBars returns the bars of a service. In an hour that began after the first interval, minutes without a sample of a
// sampled service count as down; in the first hour the service may have started late.
func makeBars(service string, hours []hour, firstUS int64, now time.Time) (list []Bar, all int64, known bool) {
	byStart := map[int64]hour{}
	for _, h := range hours {
		if h.service == service {
			byStart[h.fromUS] = h
		}
	}
	var shares, n int64
	for i := range Hours {
		from := firstHour(now).Add(time.Duration(i) * time.Hour)
		b := Bar{FromUS: from.UnixMicro()}
		h := byStart[b.FromUS]
		b.UptimePPM, b.Known = shareOK(h.attempts, h.failures)
		if isSampled(service) && firstUS > 0 && b.FromUS > firstUS {
			isPresent := i == Hours-1
			expected := int64(min(time.Hour, now.Sub(from)) / Interval)
			if isPresent {
				expected-- // one that may not be saved yet
			}
			if expected > h.intervals && (b.Known || !isPresent) {
				b.UptimePPM, b.Known = b.UptimePPM*h.intervals/expected, true
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
