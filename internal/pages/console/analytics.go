package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// ranges are the periods of the analytics, in days.
var ranges = []struct {
	name, text string
	days       int
}{{"7", "7 days", 7}, {"30", "30 days", 30}, {"90", "90 days", 90}}

// analyticsPages show what the calls of an app cost and earned.
type analyticsPages struct {
	DB  *db.DB
	Now func() time.Time
}

func (h analyticsPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/analytics", access.requireApp(apps.View, h.showAnalytics))
}

// showAnalytics is GET /developer/apps/{id}/analytics.
func (h analyticsPages) showAnalytics(w http.ResponseWriter, r *http.Request, v visit) error {
	page := ui.Analytics{Console: v.newPage(r, "Analytics", "/analytics")}
	days, asked := overviewDays, r.URL.Query().Get("days")
	for _, x := range ranges {
		if x.name == asked {
			days = x.days
		}
	}
	for _, x := range ranges {
		page.Ranges = append(page.Ranges, ui.Tab{
			Href:    v.path("/analytics?days=" + x.name),
			Text:    x.text,
			Current: x.days == days,
		})
	}
	since := firstDay(h.Now(), days)
	list, err := sumBy(r.Context(), h.DB, v.app, "day", since)
	if err != nil {
		return err
	}
	page.Total, page.ByDay = sumAll(list).format(), dailySpend(h.Now(), list, days)
	for _, g := range []struct{ column, heading, of string }{
		{"feature", "By feature", "Feature"},
		{"model", "By model", "Model"},
	} {
		list, err := sumBy(r.Context(), h.DB, v.app, g.column, since)
		if err != nil {
			return err
		}
		if len(list) > 0 {
			page.Groups = append(page.Groups, groupSums(list, g.column, g.heading, g.of))
		}
	}
	counts, err := countRefusals(r.Context(), h.DB, v.app.ID, since)
	if err != nil {
		return err
	}
	page.Refused = ui.Ranks{ID: "by-code", Title: "Errors and refusals by code", Desc: sameNumbers}
	for _, c := range counts {
		page.Refused.List = append(page.Refused.List, ui.Rank{Name: c.code, Shown: ui.Count(c.n), Value: c.n})
		page.Refusals = append(page.Refusals, ui.RefusalSum{
			Code:  c.code,
			Count: ui.Count(c.n),
			Last:  formatTime(c.lastUS),
			Means: refusalTexts[c.code],
		})
	}
	return ui.Render(w, http.StatusOK, page)
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
