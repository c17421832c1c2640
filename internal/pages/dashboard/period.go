package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
)

// chartDays is how far back figures look unless another period is chosen.
const chartDays = 30

// A period is what figures and a chart cover: days up to today, or the last 24 hours by hour. Times are UTC.
type period struct {
	days    int  // 1 = the last 24 hours
	compare bool // draw the period before, too
}

// readPeriod reads the period that an address chooses.
func readPeriod(r *http.Request) period {
	q := r.URL.Query()
	p := period{days: chartDays, compare: q.Get("compare") == "1"}
	if days, err := strconv.Atoi(q.Get("days")); err == nil && slices.Contains(periodDays, days) {
		p.days = days
	}
	return p
}

// periodDays are the periods to choose from.
var periodDays = []int{1, 7, chartDays, 90}

func (p period) isHourly() bool { return p.days == 1 }

// String returns the length of the period.
func (p period) String() string {
	if p.isHourly() {
		return "24 hours"
	}
	return strconv.Itoa(p.days) + " days"
}

// choices returns the links to the page at a path with another period.
func (p period) choices(path string) []ui.Choices {
	link := func(text string, to period) ui.Tab {
		q := url.Values{}
		if to.days != chartDays {
			q.Set("days", strconv.Itoa(to.days))
		}
		if to.compare {
			q.Set("compare", "1")
		}
		tab := ui.Tab{Href: path, Text: text, Current: to == p}
		if len(q) > 0 {
			tab.Href += "?" + q.Encode()
		}
		return tab
	}
	lengths := ui.Choices{Label: "Period"}
	for _, days := range periodDays {
		to := period{days, p.compare}
		lengths.List = append(lengths.List, link(to.String(), to))
	}
	return []ui.Choices{lengths, {Label: "Compare", List: []ui.Tab{
		link("Off", period{p.days, false}), link("Period before", period{p.days, true}),
	}}}
}

// starts returns the beginnings of the hours or days up to a time, and of those of the period before.
func (p period) starts(now time.Time) (list, before []time.Time) {
	n, step := p.days, 24*time.Hour
	if p.isHourly() {
		n, step = 24, time.Hour
	}
	first := now.UTC().Truncate(step).Add(-time.Duration(n-1) * step)
	for i := range n {
		at := first.Add(time.Duration(i) * step)
		list, before = append(list, at), append(before, at.Add(-time.Duration(n)*step))
	}
	return list, before
}

// key returns the name of the total that begins at a time.
func (p period) key(at time.Time) string {
	if p.isHourly() {
		return at.Format(store.HourLayout)
	}
	return at.Format(time.DateOnly)
}

// A spending is what was spent in a period and in the one before it.
type spending struct {
	period
	now            time.Time
	totals, before []store.DailyTotal
}

// loadSpending sums what an account has spent on all connections or on one. days are the daily totals from at least two
// chosen periods ago on; nil = they are read.
func (h *Handler) loadSpending(ctx context.Context, p period, accountID, connectionID string,
	days []store.DailyTotal) (s spending, err error) {
	s = spending{period: p, now: h.DB.Now().UTC()}
	starts, before := p.starts(s.now)
	switch {
	case p.isHourly():
		days, err = store.ListHourlyTotals(ctx, h.DB, accountID, connectionID, before[0].UnixMicro())
	case days == nil:
		days, err = store.ListDailyTotals(ctx, h.DB, accountID, connectionID, p.key(before[0]))
	}
	if err != nil {
		return s, fmt.Errorf("dashboard: totals: %w", err)
	}
	for _, t := range days {
		if t.Day >= p.key(starts[0]) {
			s.totals = append(s.totals, t)
		} else if t.Day >= p.key(before[0]) {
			s.before = append(s.before, t)
		}
	}
	return s, nil
}

// from returns the beginning of the period, as the filter of the activity reads it.
func (s spending) from() string {
	starts, _ := s.starts(s.now)
	return s.moment(starts[0])
}

// moment writes the beginning of an hour or a day, as the filter of the activity reads it.
func (s spending) moment(at time.Time) string {
	if s.isHourly() {
		return at.Format(minuteLayout)
	}
	return at.Format(time.DateOnly)
}

// chart draws the spend of each hour or day, also of those without any. One with calls leads to its activity with the
// filter; nil = it does not.
func (s spending) chart(filter url.Values) ui.Chart {
	spent, past, calls := sumByDay(s.totals), sumByDay(s.before), map[string]int64{}
	for _, t := range s.totals {
		calls[t.Day] += t.Calls
	}
	c := ui.Chart{
		ID:      "by-day",
		Title:   fmt.Sprintf("Spend by day, the last %s", s),
		Heads:   [3]string{"Day (UTC)", "Spent", "Calls"},
		Desc:    fmt.Sprintf("%s in total. The table below has the same numbers.", ui.Total(sumTotals(s.totals))),
		Compare: s.compare,
	}
	label, step := "2 Jan", 24*time.Hour
	if s.isHourly() {
		c.Title, c.Heads[0] = "Spend by hour, the last 24 hours", "Hour (UTC)"
		label, step = "15:04", time.Hour
	}
	starts, before := s.starts(s.now)
	for i, at := range starts {
		key := s.key(at)
		b := ui.Bar{
			Label:  at.Format(label),
			Start:  key,
			Value:  int64(spent[key]),
			Before: int64(past[s.key(before[i])]),
		}
		if n := calls[key]; n > 0 {
			b.Note = ui.Count(n)
			if filter != nil {
				to := at // the filter has the whole of its last day
				if s.isHourly() {
					to = at.Add(step)
				}
				b.Href = filteredActivity(filter, "from", s.moment(at), "to", s.moment(to))
			}
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}

func sumTotals(list []store.DailyTotal) (sum money.MC) {
	for _, t := range list {
		sum += t.UserChargeMC
	}
	return sum
}

// sumByDay sums totals by their days or hours.
func sumByDay(list []store.DailyTotal) map[string]money.MC {
	sums := map[string]money.MC{}
	for _, t := range list {
		sums[t.Day] += t.UserChargeMC
	}
	return sums
}
