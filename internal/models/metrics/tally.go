package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The services of tallies that are not providers.
const (
	Payments = "payments"
	Email    = "email"
)

// limits are the upper limits of the classes of durations.
var limits = [...]time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
	5 * time.Minute, 10 * time.Minute}

// Classes is the number of classes of durations: one for each limit, and one for longer calls.
const Classes = len(limits) + 1

// limitSeconds returns the limits for a histogram.
func limitSeconds() (list []float64) {
	for _, l := range limits {
		list = append(list, l.Seconds())
	}
	return list
}

// A Tally counts the attempts at one service.
type Tally struct {
	Service            string // a provider, Payments or Email
	Model              string // of a provider; "" = of no single one, as broken streams
	Attempts, Failures int64
	Took               [Classes]int64 // calls by duration; only of models
}

// Add adds the counts of u.
func (t *Tally) Add(u Tally) {
	t.Attempts += u.Attempts
	t.Failures += u.Failures
	for i, n := range u.Took {
		t.Took[i] += n
	}
}

// Since returns the counts since an earlier tally.
func (t Tally) Since(earlier Tally) Tally {
	t.Attempts -= earlier.Attempts
	t.Failures -= earlier.Failures
	for i, n := range earlier.Took {
		t.Took[i] -= n
	}
	return t
}

// IsZero reports whether nothing was counted.
func (t Tally) IsZero() bool { return t.Attempts == 0 && t.Failures == 0 && t.Took == [Classes]int64{} }

// Percentile returns the duration that a percentage of the calls did not exceed, interpolated within its class. It
// returns 0 without calls, and the last limit for calls that took longer.
func (t Tally) Percentile(percent int64) time.Duration {
	var all int64
	for _, n := range t.Took {
		all += n
	}
	if all <= 0 {
		return 0
	}
	rank := max(1, (all*percent+99)/100)
	var below int64
	var from time.Duration
	for i, limit := range limits {
		if n := t.Took[i]; below+n >= rank {
			return from + (limit-from)*time.Duration(rank-below)/time.Duration(n)
		}
		below, from = below+t.Took[i], limit
	}
	return from
}

// Tallies returns what this node has counted since it started, in the order of services and models. Calls that a
// provider rejected, and calls of clients that disconnected, say nothing about the provider and do not count.
func (m *Metrics) Tallies() ([]Tally, error) {
	if m == nil {
		return nil, nil
	}
	families, err := m.health.Gather()
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	byKey := map[[2]string]*Tally{}
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			values := map[string]string{}
			for _, l := range sample.GetLabel() {
				values[l.GetName()] = l.GetValue()
			}
			var upTo []int64 // calls up to each limit
			for _, b := range sample.GetHistogram().GetBucket() {
				upTo = append(upTo, int64(b.GetCumulativeCount()))
			}
			upTo = append(upTo, int64(sample.GetHistogram().GetSampleCount()))
			t := newTally(f.GetName(), values, int64(sample.GetCounter().GetValue()), upTo)
			key := [2]string{t.Service, t.Model}
			if t.IsZero() {
				continue
			} else if byKey[key] == nil {
				byKey[key] = &Tally{Service: t.Service, Model: t.Model}
			}
			byKey[key].Add(t)
		}
	}
	list := make([]Tally, 0, len(byKey))
	for _, t := range byKey {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Model, b.Model))
	})
	return list, nil
}

// newTally returns what one sample counts: n of a counter, or upTo of a histogram.
func newTally(name string, labels map[string]string, n int64, upTo []int64) Tally {
	t := Tally{Service: labels["provider"], Model: labels["model"]}
	switch name {
	case "purser_calls_total":
		switch labels["outcome"] {
		case Rejected, Abandoned:
		case Failed:
			t.Attempts, t.Failures = n, n
		default:
			t.Attempts = n
		}
	case "purser_provider_errors_total":
		if labels["status"] == "cut" { // the call itself is counted as settled
			t.Failures = n
		}
	case "purser_call_seconds":
		var before int64
		for i, calls := range upTo {
			t.Took[i], before = calls-before, calls
		}
	case "purser_mails_total":
		t.Service, t.Attempts = Email, n
		if labels["outcome"] != "sent" {
			t.Failures = n
		}
	case "purser_payment_requests_total":
		t.Service, t.Attempts = Payments, n
		if labels["outcome"] == Failed {
			t.Failures = n
		}
	}
	return t
}
