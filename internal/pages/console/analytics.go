package console

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// ranges are the periods of the analytics, in days. One day is the last 24 hours, by hour; only sums have it.
var ranges = []struct {
	name, text string
	days       int
}{{"1", "24 hours", 1}, {"7", "7 days", 7}, {"30", "30 days", 30}, {"90", "90 days", 90}, {"365", "1 year", 365}}

// analyticsPages show what the calls of an app cost and earned, who made them, and how they fared.
type analyticsPages struct {
	DB     *db.DB
	Tokens *oauth.Store
	Now    func() time.Time
}

func (h analyticsPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/analytics", access.requireApp(apps.View, h.showAnalytics))
	rt.HandlePage("GET "+appPath+"/analytics.csv", access.requireApp(apps.View, access.inTurn(h.exportAnalytics)))
}

// An analyticsView is what the query of the page chooses.
type analyticsView struct {
	tab      string // "" = revenue
	days     int
	by       usage.Group
	interval usage.Interval
	compare  bool
}

// analyticsTabs are the tabs of the page.
var analyticsTabs = []struct{ name, text string }{
	{"", "Revenue"}, {"usage", "Usage"}, {"users", "Users"}, {"errors", "Errors"}, {"latency", "Latency"},
}

func readView(r *http.Request) analyticsView {
	q := r.URL.Query()
	v := analyticsView{days: overviewDays, by: usage.ByNone, compare: q.Get("compare") == "1"}
	for _, t := range analyticsTabs {
		if t.name == q.Get("tab") {
			v.tab = t.name
		}
	}
	for _, x := range ranges {
		if x.name == q.Get("days") {
			v.days = x.days
		}
	}
	switch by := usage.Group(q.Get("by")); by {
	case usage.ByModel, usage.ByFeature:
		v.by = by
	case usage.ByNone, usage.ByConnection:
	}
	if !v.hasHours() && v.days == 1 { // a link from a tab that has them
		v.days = ranges[1].days
	}
	if v.days == 1 {
		v.interval = usage.Hour
		return v
	}
	switch interval := usage.Interval(q.Get("interval")); interval {
	case usage.Day, usage.Week, usage.Month:
		v.interval = interval
	default:
		v.interval = v.usualInterval()
	}
	return v
}

// usualInterval is the interval that a period has unless one is chosen: 365 days are too many points to read.
func (v analyticsView) usualInterval() usage.Interval {
	if v.days == 1 {
		return usage.Hour
	}
	if v.days > 90 {
		return usage.Week
	}
	return usage.Day
}

// period writes the length of the period.
func (v analyticsView) period() string {
	if v.days == 1 {
		return "24 hours"
	}
	return strconv.Itoa(v.days) + " days"
}

// hasHours reports whether the tab can show the last 24 hours.
func (v analyticsView) hasHours() bool { return v.tab == "" || v.tab == "usage" }

// query writes the view as a query string.
func (v analyticsView) query() string {
	q := url.Values{}
	if v.tab != "" {
		q.Set("tab", v.tab)
	}
	q.Set("days", strconv.Itoa(v.days))
	if v.by != usage.ByNone {
		q.Set("by", string(v.by))
	}
	if v.interval != v.usualInterval() {
		q.Set("interval", string(v.interval))
	}
	if v.compare {
		q.Set("compare", "1")
	}
	return "?" + q.Encode()
}

// choices returns the links that change the view.
func (v analyticsView) choices(path string) (list []ui.Choices) {
	link := func(text string, to analyticsView) ui.Tab {
		return ui.Tab{Href: path + to.query(), Text: text, Current: to == v}
	}
	period := ui.Choices{Label: "Period"}
	for _, x := range ranges {
		to := v
		to.days = x.days
		if x.days == 1 && !v.hasHours() {
			continue
		}
		if x.days == 1 || v.interval == v.usualInterval() {
			to.interval = to.usualInterval()
		}
		period.List = append(period.List, link(x.text, to))
	}
	list = append(list, period)
	if !v.hasHours() {
		return list
	}
	by, interval, before := ui.Choices{Label: "Stack by"}, ui.Choices{Label: "Interval"}, ui.Choices{Label: "Compare"}
	for _, x := range []struct {
		text string
		by   usage.Group
	}{{"None", usage.ByNone}, {"Feature", usage.ByFeature}, {"Model", usage.ByModel}} {
		to := v
		to.by = x.by
		by.List = append(by.List, link(x.text, to))
	}
	for _, x := range []struct {
		text     string
		interval usage.Interval
	}{{"Day", usage.Day}, {"Week", usage.Week}, {"Month", usage.Month}} {
		to := v
		to.interval = x.interval
		interval.List = append(interval.List, link(x.text, to))
	}
	for _, x := range []struct {
		text    string
		compare bool
	}{{"Off", false}, {"Period before", true}} {
		to := v
		to.compare = x.compare
		before.List = append(before.List, link(x.text, to))
	}
	if v.days == 1 {
		return append(list, by, before)
	}
	return append(list, by, interval, before)
}

// showAnalytics is GET /developer/apps/{id}/analytics.
func (h analyticsPages) showAnalytics(w http.ResponseWriter, r *http.Request, v visit) error {
	view := readView(r)
	page := ui.Analytics{
		Console: v.newPage(r, "Analytics", "/analytics"),
		Choices: view.choices(v.path("/analytics")),
		CSV:     v.path("/analytics.csv") + view.query(),
	}
	for _, t := range analyticsTabs {
		to := view
		to.tab = t.name
		page.Views = append(page.Views, ui.Tab{
			Href:    v.path("/analytics") + to.query(),
			Text:    t.text,
			Current: t.name == view.tab,
		})
	}
	if err := h.fill(r.Context(), &page, v, view); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// fill adds what a view shows.
func (h analyticsPages) fill(ctx context.Context, page *ui.Analytics, v visit, view analyticsView) error {
	switch view.tab {
	case "users":
		return h.fillUsers(ctx, page, v, view)
	case "errors":
		return h.fillErrors(ctx, page, v, view)
	case "latency":
		return h.fillLatency(ctx, page, v, view)
	}
	return h.fillSums(ctx, page, v, view)
}

// exportAnalytics is GET /developer/apps/{id}/analytics.csv: the charts of a view as rows, in whole micro-cents,
// numbers or milliseconds.
func (h analyticsPages) exportAnalytics(w http.ResponseWriter, r *http.Request, v visit) error {
	var page ui.Analytics
	if err := h.fill(r.Context(), &page, v, readView(r)); err != nil {
		return err
	}
	w.Header().Set("X-Frame-Options", "DENY")
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="purser-analytics.csv"`)
	out := csv.NewWriter(w)
	for _, c := range page.Charts {
		head := append([]string{"chart", "start"}, c.Series...)
		if !c.Lines {
			head = append(head, "total")
		}
		if c.Compare {
			head = append(head, "before")
		}
		if err := out.Write(guarded(head)); err != nil {
			return err
		}
		for _, b := range c.Bars {
			row := []string{c.ID, b.Start}
			for i := range c.Series {
				row = append(row, strconv.FormatInt(b.Parts[i], 10))
			}
			if !c.Lines {
				row = append(row, strconv.FormatInt(b.Value, 10))
			}
			if c.Compare {
				row = append(row, strconv.FormatInt(b.Before, 10))
			}
			if err := out.Write(row); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// guarded keeps spreadsheets from reading names as formulas.
func guarded(names []string) []string {
	for i, name := range names {
		if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
			names[i] = "'" + name
		}
	}
	return names
}

// buckets returns the first days of the buckets of a period.
func buckets(from, to time.Time, interval usage.Interval) (list []time.Time) {
	at := from.UTC().Truncate(24 * time.Hour)
	switch interval {
	case usage.Hour:
		at = from.UTC().Truncate(time.Hour)
	case usage.Week:
		at = at.AddDate(0, 0, -(int(at.Weekday())+6)%7)
	case usage.Month:
		at = at.AddDate(0, 0, 1-at.Day())
	case usage.Day:
	}
	for !at.After(to) {
		list = append(list, at)
		switch interval {
		case usage.Hour:
			at = at.Add(time.Hour)
		case usage.Week:
			at = at.AddDate(0, 0, 7)
		case usage.Month:
			at = at.AddDate(0, 1, 0)
		case usage.Day:
			at = at.AddDate(0, 0, 1)
		}
	}
	return list
}

// maxStack is the number of parts of a bar that have names; the rest is one part.
const maxStack = 7

// fillSums adds the revenue or the usage.
func (h analyticsPages) fillSums(ctx context.Context, page *ui.Analytics, v visit, view analyticsView) error {
	to, from := h.Now(), firstDay(h.Now(), view.days)
	q := usage.Query{
		AppID:    v.app.ID,
		Sandbox:  v.app.Tier == apps.Sandbox,
		From:     from,
		To:       to,
		Interval: view.interval,
		GroupBy:  view.by,
	}
	read := usage.List
	if view.interval == usage.Hour {
		read = usage.ListHours
		q.To = to.UTC().Truncate(time.Hour).Add(time.Hour)
		q.From = q.To.Add(-24 * time.Hour)
		from = q.From
	}
	list, err := read(ctx, h.DB, q)
	if err != nil {
		return err
	}
	if q.GroupBy = usage.ByNone; view.interval == usage.Hour {
		q.From, q.To = from.Add(-24*time.Hour), from
	} else {
		q.From, q.To = from.AddDate(0, 0, -view.days), from.AddDate(0, 0, -1)
	}
	before, err := read(ctx, h.DB, q)
	if err != nil {
		return err
	}
	total, past := usage.Total(list), usage.Total(before)
	page.Tiles = sumTiles(total, past)
	starts, pastStarts := buckets(from, to, view.interval), buckets(q.From, q.To, view.interval)
	if view.interval == usage.Hour { // the end of the day before is before its last bucket
		pastStarts = pastStarts[:len(pastStarts)-1]
	}
	revenue := func(s usage.Sum) int64 { return int64(s.ChargeMC) }
	chart := ui.Chart{
		ID:    "by-day",
		Title: fmt.Sprintf("Spent by users, by %s, the last %s", view.interval, view.period()),
		Desc: fmt.Sprintf("%s in total, including your margin of %s. %s", ui.Total(total.ChargeMC),
			ui.Total(total.MarginMC), sameNumbers),
		Heads: [3]string{"Start (UTC)", "Spent", "Calls and tokens"},
	}
	charts := []sumChart{{chart, revenue, true}}
	if view.tab == "usage" {
		calls, tokens := chart, chart
		calls.ID, calls.Unit, calls.Title, calls.Heads[1] = "calls", ui.InCounts, "Calls", "Calls"
		calls.Desc = ui.Count(total.Calls) + " calls in total. " + sameNumbers
		tokens.ID, tokens.Unit, tokens.Title, tokens.Heads[1] = "tokens", ui.InCounts, "Tokens, input and output",
			"Tokens"
		tokens.Desc = ui.Count(total.Input+total.Output) + " tokens in total. " + sameNumbers
		charts = []sumChart{
			{calls, func(s usage.Sum) int64 { return s.Calls }, false},
			{tokens, func(s usage.Sum) int64 { return s.Input + s.Output }, false},
		}
	}
	for _, c := range charts {
		c.Compare = view.compare
		c.fill(list, before, starts, pastStarts, view.interval, view.by, v)
		page.Charts = append(page.Charts, c.Chart)
	}
	if total.Calls == 0 && total.ChargeMC == 0 {
		return nil
	}
	for _, g := range []struct{ column, heading, of string }{
		{"feature", "By feature", "Feature"},
		{"model", "By model", "Model"},
	} {
		list, err := h.sumGroup(ctx, v, view, g.column, from)
		if err != nil {
			return err
		}
		page.Groups = append(page.Groups, groupSums(list, g.column, g.heading, g.of))
	}
	return nil
}

// sumGroup sums the calls of the period by feature or model.
func (h analyticsPages) sumGroup(ctx context.Context, v visit, view analyticsView, column string,
	from time.Time) ([]callSum, error) {
	if view.interval != usage.Hour {
		return sumBy(ctx, h.DB, v.app, column, from)
	}
	rows, err := usage.ListHours(ctx, h.DB, usage.Query{
		AppID:   v.app.ID,
		Sandbox: v.app.Tier == apps.Sandbox,
		From:    from,
		To:      from.Add(24 * time.Hour),
		GroupBy: usage.Group(column),
	})
	sums := map[string]callSum{}
	for _, r := range rows {
		sum := sums[r.Group]
		sum.Name = r.Group
		sum.add(callSum{
			Calls:   r.Calls,
			Input:   r.Input,
			Output:  r.Output,
			Revenue: r.ChargeMC,
			Cost:    r.CostMC,
			Margin:  r.MarginMC,
		})
		if sum.Calls != 0 || sum.Revenue != 0 { // not only refused
			sums[r.Group] = sum
		}
	}
	names := slices.Sorted(maps.Keys(sums))
	list := make([]callSum, len(names))
	for i, name := range names {
		list[i] = sums[name]
	}
	return list, err
}

// A sumChart is a chart of one figure of the sums.
type sumChart struct {
	ui.Chart
	value   func(usage.Sum) int64
	isMoney bool
}

// fill adds the bars: stacked by the group, or by the margin and the rest.
func (c *sumChart) fill(list, before []usage.Row, starts, pastStarts []time.Time, interval usage.Interval,
	by usage.Group, v visit) {
	sums, parts, all := map[string]usage.Sum{}, map[string]map[string]int64{}, map[string]int64{}
	for _, row := range list {
		sum := sums[row.Bucket]
		sum.Add(row.Sum)
		sums[row.Bucket] = sum
		if parts[row.Bucket] == nil {
			parts[row.Bucket] = map[string]int64{}
		}
		parts[row.Bucket][row.Group] += c.value(row.Sum)
		all[row.Group] += c.value(row.Sum)
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	names = slices.DeleteFunc(names, func(name string) bool { return all[name] == 0 })
	named := names[:min(len(names), maxStack)]
	total := usage.Total(list)
	switch {
	case by != usage.ByNone:
		for _, name := range named {
			c.Series = append(c.Series, cmp.Or(name, "none"))
			c.Links = append(c.Links, seriesPath(v, by, name, starts))
		}
		if len(names) > len(named) {
			c.Series = append(c.Series, "All others")
		}
	case c.isMoney && total.MarginMC > 0:
		c.Series = moneyParts[:]
	}
	past := map[string]usage.Sum{}
	for _, row := range before {
		past[row.Bucket] = row.Sum
	}
	bucketOf, layout := formatDay, "2 Jan"
	if interval == usage.Hour {
		bucketOf, layout = usage.FormatHour, "15:04"
	}
	for i, start := range starts {
		day, end := bucketOf(start), time.Time{} // the last bucket goes on
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		sum := sums[day]
		b := ui.Bar{
			Label: start.Format(layout),
			Start: day,
			Value: c.value(sum),
			Note:  describeCalls(callSum{Calls: sum.Calls, Input: sum.Input, Output: sum.Output}),
			Href:  callsPath(v, "", start, end),
		}
		if at := len(pastStarts) - len(starts) + i; at >= 0 && at < len(pastStarts) {
			b.Before = c.value(past[bucketOf(pastStarts[at])])
		}
		if by != usage.ByNone {
			rest := b.Value
			for _, name := range named {
				b.Parts = append(b.Parts, parts[day][name])
				rest -= parts[day][name]
			}
			if len(names) > len(named) {
				b.Parts = append(b.Parts, rest)
			}
		} else if len(c.Series) > 0 {
			b.Parts = []int64{int64(sum.ChargeMC - sum.MarginMC), int64(sum.MarginMC)}
		}
		c.Bars = append(c.Bars, b)
	}
}

// formatMoment writes the beginning of a day or an hour as the request log reads it.
func formatMoment(t time.Time) string {
	if t.UTC().Hour() == 0 {
		return formatDay(t)
	}
	return usage.FormatHour(t)
}

// callsPath returns the address of the request log from a day or an hour to before another; a zero end is none.
func callsPath(v visit, status string, from, end time.Time) string {
	q := url.Values{"from": {formatMoment(from)}}
	if !end.IsZero() {
		q.Set("to", formatMoment(end))
	}
	if status != "" {
		q.Set("status", status)
	}
	return v.path("/requests?" + q.Encode())
}

// seriesPath returns the address of the calls of a feature or a model in the period; "" = the request log has no filter
// for them: calls without a feature, and those of several.
func seriesPath(v visit, by usage.Group, name string, starts []time.Time) string {
	if name == "" || by == usage.ByFeature && name == "other" || len(starts) == 0 {
		return ""
	}
	q := url.Values{string(by): {name}, "from": {formatMoment(starts[0])}}
	return v.path("/requests?" + q.Encode())
}

// refusalStatus returns the filter of the request log for refusals with a code.
func refusalStatus(code string) string {
	if code == "provider_error" {
		return "failed"
	}
	return "refused"
}

// sumTiles returns the key figures with their change from the period before.
func sumTiles(now, past usage.Sum) []ui.Figure {
	list := []ui.Figure{
		newFigure("Calls", ui.Count(now.Calls), now.Calls, past.Calls, true),
		newFigure("Spent by users", ui.Total(now.ChargeMC), int64(now.ChargeMC), int64(past.ChargeMC), true),
		newFigure("Your margin", ui.Total(now.MarginMC), int64(now.MarginMC), int64(past.MarginMC), true),
		newFigure("Error rate", share(now.Refused, now.Calls+now.Refused), ratio(now.Refused, now.Calls+now.Refused),
			ratio(past.Refused, past.Calls+past.Refused), false),
	}
	if now.Cached != 0 || now.SavedMC != 0 {
		list = append(list, ui.Figure{Name: "Cached input", Value: ui.Count(now.Cached)},
			ui.Figure{Name: "Saved by caching", Value: ui.Total(now.SavedMC)})
	}
	return list
}

// ratio returns a part of a whole in hundredths of a percent.
func ratio(part, whole int64) int64 {
	if whole == 0 {
		return 0
	}
	return int64(float64(part) / float64(whole) * 10_000) // a statistic, no money
}

// share writes a part of a whole in percent.
func share(part, whole int64) string {
	return strconv.FormatFloat(float64(ratio(part, whole))/100, 'f', -1, 64) + "%"
}

// newFigure returns a key figure with its change. More is good if it is desired.
func newFigure(name, value string, now, past int64, desired bool) ui.Figure {
	f := ui.Figure{Name: name, Value: value}
	if past <= 0 || now == past {
		return f
	}
	change := float64(now-past) / float64(past) * 100 // a statistic, no money
	sign := "+"
	if change < 0 {
		sign = "−"
	}
	f.Change = sign + strconv.FormatFloat(math.Abs(math.Round(change)), 'f', 0, 64) + "%"
	f.Good = (now > past) == desired
	return f
}

// fillUsers adds who used the app: active, new and ended connections, and the consent screens.
func (h analyticsPages) fillUsers(ctx context.Context, page *ui.Analytics, v visit, view analyticsView) error {
	from := firstDay(h.Now(), view.days)
	active, err := countActive(ctx, h.DB, v.app, from)
	if err != nil {
		return err
	}
	began, ended, err := countConnections(ctx, h.DB, v.app.ID, from)
	if err != nil {
		return err
	}
	consents, err := h.Tokens.ConsentCounts(ctx, v.app.ID, formatDay(from), formatDay(h.Now()))
	if err != nil {
		return err
	}
	asked := map[string]oauth.ConsentCount{}
	var shown, approved, denied int64
	for _, c := range consents {
		asked[c.Day] = c
		shown, approved, denied = shown+c.Shown, approved+c.Approved, denied+c.Denied
	}
	heads := [3]string{"Day (UTC)", "Total", ""}
	users := ui.Chart{
		ID:    "active",
		Title: "Active connections by day",
		Desc:  sameNumbers,
		Unit:  ui.InCounts,
		Heads: heads,
	}
	users.Heads[1] = "Active"
	changes := ui.Chart{ID: "changes", Title: "New and ended connections by day", Desc: sameNumbers, Unit: ui.InCounts,
		Heads: heads, Lines: true, Series: []string{"New", "Ended"}}
	screens := ui.Chart{ID: "consent", Title: "Consent screens by day", Desc: sameNumbers, Unit: ui.InCounts,
		Heads: heads, Lines: true, Series: []string{"Shown", "Approved", "Denied"}}
	var added, removed int64
	for _, day := range buckets(from, h.Now(), usage.Day) {
		on, text := formatDay(day), day.Format("2 Jan")
		users.Bars = append(users.Bars, ui.Bar{Label: text, Start: on, Value: active[on]})
		changes.Bars = append(changes.Bars, ui.Bar{Label: text, Start: on, Parts: []int64{began[on], ended[on]}})
		c := asked[on]
		screens.Bars = append(screens.Bars,
			ui.Bar{Label: text, Start: on, Parts: []int64{c.Shown, c.Approved, c.Denied}})
		added, removed = added+began[on], removed+ended[on]
	}
	page.Tiles = []ui.Figure{
		{Name: "New connections", Value: ui.Count(added)},
		{Name: "Ended connections", Value: ui.Count(removed)},
		{Name: "Consent screens shown", Value: ui.Count(shown)},
		{Name: "Approved", Value: share(approved, shown), Note: ui.Count(approved) + " of " + ui.Count(shown)},
		{Name: "Denied", Value: share(denied, shown), Note: ui.Count(denied) + " of " + ui.Count(shown)},
	}
	page.Charts = []ui.Chart{users, changes, screens}
	return nil
}

// fillErrors adds the refusals by code.
func (h analyticsPages) fillErrors(ctx context.Context, page *ui.Analytics, v visit, view analyticsView) error {
	from := firstDay(h.Now(), view.days).Truncate(24 * time.Hour)
	counts, err := countRefusals(ctx, h.DB, v.app.ID, from)
	if err != nil {
		return err
	}
	days, err := countRefusalsByDay(ctx, h.DB, v.app.ID, from)
	if err != nil {
		return err
	}
	chart := ui.Chart{
		ID:    "errors",
		Title: "Errors and refusals by day",
		Desc:  sameNumbers,
		Unit:  ui.InCounts,
		Heads: [3]string{"Day (UTC)", "Total", ""},
	}
	page.Refused = ui.Ranks{ID: "by-code", Title: "Errors and refusals by code", Desc: sameNumbers}
	var total int64
	for i, c := range counts {
		total += c.n
		page.Refused.List = append(page.Refused.List, ui.Rank{Name: c.code, Shown: ui.Count(c.n), Value: c.n})
		page.Refusals = append(page.Refusals, ui.RefusalSum{
			Code:  c.code,
			Count: ui.Count(c.n),
			Last:  formatTime(c.lastUS),
			Means: refusalTexts[c.code],
		})
		if i < maxStack {
			chart.Series = append(chart.Series, c.code)
			chart.Links = append(chart.Links, callsPath(v, refusalStatus(c.code), from, time.Time{}))
		}
	}
	if len(counts) > maxStack {
		chart.Series = append(chart.Series, "All others")
	}
	for _, day := range buckets(from, h.Now(), usage.Day) {
		on := days[formatDay(day)]
		b := ui.Bar{
			Label: day.Format("2 Jan"),
			Start: formatDay(day),
			Parts: make([]int64, len(chart.Series)),
		}
		statuses := map[string]bool{}
		for code, n := range on {
			statuses[refusalStatus(code)] = true
			at := slices.IndexFunc(counts, func(c refusalCount) bool { return c.code == code })
			if at < 0 { // refused between the two queries
				continue
			}
			b.Parts[min(at, len(b.Parts)-1)] += n
			b.Value += n
		}
		status := "" // of a day with both: all calls
		if len(statuses) == 1 {
			status = slices.Collect(maps.Keys(statuses))[0]
		}
		b.Href = callsPath(v, status, day, day.AddDate(0, 0, 1))
		chart.Bars = append(chart.Bars, b)
	}
	page.Tiles = []ui.Figure{{Name: "Errors and refusals", Value: ui.Count(total)}}
	page.Charts, page.ShowsErrors = []ui.Chart{chart}, true
	return nil
}

// fillLatency adds how long calls took, of the newest maxTimes of the period.
func (h analyticsPages) fillLatency(ctx context.Context, page *ui.Analytics, v visit, view analyticsView) error {
	from := firstDay(h.Now(), view.days).Truncate(24 * time.Hour)
	list, err := listTimes(ctx, h.DB, v.app.ID, from)
	if err != nil {
		return err
	}
	var firsts, lasts []int64
	byDay := map[string][2][]int64{}
	for _, t := range list {
		on := byDay[t.day]
		if t.firstMS != nil {
			firsts, on[0] = append(firsts, *t.firstMS), append(on[0], *t.firstMS)
		}
		lasts, on[1] = append(lasts, t.lastMS), append(on[1], t.lastMS)
		byDay[t.day] = on
	}
	page.Tiles = []ui.Figure{
		{Name: "First byte, median", Value: formatMillis(percentile(firsts, 50))},
		{Name: "First byte, p95", Value: formatMillis(percentile(firsts, 95))},
		{Name: "Duration, median", Value: formatMillis(percentile(lasts, 50))},
		{Name: "Duration, p95", Value: formatMillis(percentile(lasts, 95))},
	}
	charts := []ui.Chart{
		{ID: "first-byte", Title: "Time to the first byte, by day"},
		{ID: "duration", Title: "Duration, by day"},
	}
	for i := range charts {
		c := &charts[i]
		c.Desc, c.Unit, c.Lines, c.Series = sameNumbers, ui.InMillis, true, []string{"Median", "95th percentile"}
		c.Heads[0] = "Day (UTC)"
		for _, day := range buckets(from, h.Now(), usage.Day) {
			times := byDay[formatDay(day)][i]
			c.Bars = append(c.Bars, ui.Bar{
				Label: day.Format("2 Jan"),
				Start: formatDay(day),
				Parts: []int64{percentile(times, 50), percentile(times, 95)},
			})
		}
	}
	page.Charts = charts
	if len(list) == maxTimes {
		page.Note = fmt.Sprintf("Of the newest %s calls of the period.", ui.Count(maxTimes))
	}
	return nil
}

// percentile returns the least value that p percent of the values do not exceed; -1 = there are no values.
func percentile(values []int64, p int) int64 {
	if len(values) == 0 {
		return -1
	}
	slices.Sort(values)
	return values[(len(values)*p+99)/100-1]
}

func formatMillis(ms int64) string {
	if ms < 0 {
		return "–"
	}
	return ui.Millis(ms)
}

// sameNumbers is part of the description of each drawing, for screen readers.
const sameNumbers = "The table has the same numbers."

// moneyParts are the two parts of each bar.
var moneyParts = [2]string{"Provider cost and fee", "Your margin"}

// firstDay returns the first of the given number of days that end with now's, in UTC.
func firstDay(now time.Time, days int) time.Time { return now.UTC().AddDate(0, 0, 1-days) }

// dailySpend draws every day, and lists the days with calls, newest first.
func dailySpend(now time.Time, list []callSum, days int) ui.Daily {
	all, on := sumAll(list), map[string]callSum{}
	for _, s := range list {
		on[s.Name] = s
	}
	d := ui.Daily{Chart: ui.Chart{
		ID:    "by-day",
		Title: fmt.Sprintf("Spent by users, day by day, the last %d days", days),
		Desc: fmt.Sprintf("%s in total, including your margin of %s. %s", ui.Total(all.Revenue),
			ui.Total(all.Margin), sameNumbers),
	}}
	d.Heads = [3]string{"Day (UTC)", "Spent", "Calls and tokens"}
	if all.Margin > 0 {
		d.Series = moneyParts[:]
	}
	for first, i := firstDay(now, days), 0; i < days; i++ {
		at := first.AddDate(0, 0, i)
		s := on[formatDay(at)]
		d.Bars = append(d.Bars, ui.Bar{
			Label: at.Format("2 Jan"),
			Value: int64(s.Revenue),
			Note:  describeCalls(s),
			Parts: []int64{int64(s.Revenue - s.Margin), int64(s.Margin)},
		})
	}
	newest := slices.Clone(list)
	slices.Reverse(newest)
	d.Table = formatSums("By day, newest first", "Day", newest)
	return d
}

// describeCalls says how many calls there were, and of how many tokens.
func describeCalls(s callSum) string {
	if s.Calls == 0 {
		return ""
	}
	return fmt.Sprintf("%s calls, %s in, %s out", ui.Count(s.Calls), ui.Count(s.Input), ui.Count(s.Output))
}

// groupSums draws and lists the sums of one column's values, the largest first.
func groupSums(list []callSum, column, heading, of string) ui.Group {
	slices.SortStableFunc(list, func(a, b callSum) int { return cmp.Compare(b.Revenue, a.Revenue) })
	g := ui.Group{
		Heading: heading,
		Ranks:   ui.Ranks{ID: "by-" + column, Title: "Spent by users, " + strings.ToLower(heading), Desc: sameNumbers},
		Table:   describeFeatureSums(formatSums(heading+", the largest first", of, list), column),
	}
	if sumAll(list).Margin > 0 {
		g.Ranks.Parts = moneyParts
	}
	for i, s := range list {
		g.Ranks.List = append(g.Ranks.List, ui.Rank{
			Name:  g.Table.List[i].Name,
			Shown: g.Table.List[i].Revenue,
			Value: int64(s.Revenue),
			Part:  int64(s.Margin),
		})
	}
	return g
}

// describeFeatureSums explains the feature labels that are no features: "" and "other" (contract §2, Feature).
func describeFeatureSums(t ui.Sums, column string) ui.Sums {
	if column != "feature" {
		return t
	}
	for i := range t.List {
		switch t.List[i].Name {
		case "":
			t.List[i].Name, t.List[i].Detail = "none", "calls without a feature"
		case "other":
			t.List[i].Detail = "unregistered features"
		}
	}
	return t
}

// refusalTexts explain the codes of refusals (contract §7).
var refusalTexts = map[string]string{
	"invalid_request":              "The request was invalid.",
	"feature_model_not_configured": "The call named no model, and its feature has no default.",
	"unauthorized":                 "The access token was invalid.",
	"allocation_exhausted":         "The remaining spend cap didn’t cover the call.",
	"feature_cost_exceeded":        "The call could cost more than its feature allows.",
	"connection_revoked":           "The user revoked the connection.",
	"connection_frozen":            "The connection was paused. Its user can resume it.",
	"app_suspended":                "The app was suspended.",
	"model_not_allowed":            "The model is not among the app’s allowed models.",
	"idempotency_key_reused":       "An idempotency key was reused for another request.",
	"rate_limited":                 "Too many calls per minute.",
	"risk_throttled":               "The connection spent much faster than usual.",
	"daily_limit_reached":          "The user’s daily limit was reached.",
	"app_spend_limited":            "The app’s daily spend limit was reached.",
	"sandbox_live_cost_limited":    "The daily sandbox allowance of live calls was used up.",
	"provider_error":               "The provider failed. Nothing was billed.",
}
