package usage

import (
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// MaxDays is the longest period of a query.
const MaxDays = 366

// An Interval is the length of a bucket. Buckets are in UTC, and a week begins on Monday.
type Interval string

// The intervals. Hour is for ListHours alone.
const (
	Hour  Interval = "hour"
	Day   Interval = "day"
	Week  Interval = "week"
	Month Interval = "month"
)

// A Group is what a query sums by, besides the interval.
type Group string

// The groups.
const (
	ByNone       Group = "none"
	ByModel      Group = "model"
	ByFeature    Group = "feature"
	ByConnection Group = "connection"
)

// columns are the columns of daily_totals and refusals with the values of each group.
var columns = map[Group]struct{ called, refused string }{
	ByNone:       {"''", "''"},
	ByModel:      {"r.model", "COALESCE(f.model, '')"},
	ByFeature:    {"r.feature", "COALESCE(f.feature, '')"},
	ByConnection: {"r.connection_id", "f.connection_id"},
}

// A Query chooses calls of one app.
type Query struct {
	AppID    string
	Sandbox  bool      // sum the calls of test accounts, and no others
	From, To time.Time // the first and the last day; of ListHours from a time to before another
	Interval Interval
	GroupBy  Group
	// Filters; "" = any.
	Model, Feature, Connection string
	// AfterBucket and AfterGroup are the last row of the page before; "" = this is the first.
	AfterBucket, AfterGroup string
	Limit                   int // rows; 0 = all
}

// A Row sums the calls of one bucket and group.
type Row struct {
	Bucket string // its first day, as 2026-11-21; the first bucket may begin before Query.From
	Group  string // "" = without a feature, a refusal without a model, or Query.GroupBy is none
	Sum
}

// A Sum sums calls. Refunds are subtracted from its amounts.
type Sum struct {
	Calls, Refused int64
	Input, Output  int64 // tokens
	Cached         int64 // of Input: read from the provider's cache
	ChargeMC       money.MC
	CostMC         money.MC
	MarginMC       money.MC
	SavedMC        money.MC // by the cache; negative = writing cost more
}

// Add adds t to s.
func (s *Sum) Add(t Sum) {
	s.Calls += t.Calls
	s.Refused += t.Refused
	s.Input += t.Input
	s.Output += t.Output
	s.Cached += t.Cached
	s.ChargeMC += t.ChargeMC
	s.CostMC += t.CostMC
	s.MarginMC += t.MarginMC
	s.SavedMC += t.SavedMC
}

// FormatDay writes the UTC day of a time as 2026-11-21.
func FormatDay(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// FormatHour writes the UTC hour of a time as 2026-11-21 14:00.
func FormatHour(t time.Time) string { return t.UTC().Format("2006-01-02 15:00") }

// Total sums rows.
func Total(list []Row) (t Sum) {
	for _, r := range list {
		t.Add(r.Sum)
	}
	return t
}
