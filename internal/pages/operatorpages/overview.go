package operatorpages

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// A backlog counts pending work.
type backlog struct {
	reviews, suspended, frozen int64
	events, deliveries         int64
	mails, failedMails         int64
	oldestMailUS               int64
}

// countText writes a number of a backlog, of which maxCounted are counted at most.
func countText(n int64) string {
	if n == maxCounted {
		return ui.Count(n) + "+"
	}
	return ui.Count(n)
}

// revenue sums the calls of three periods, all in UTC.
type revenue struct{ today, period, allTime callSum }

// periods are the periods that the overview can show, in days.
var periods = []int{7, 30, 90}

// readPeriod returns the days that the request asks for.
func readPeriod(r *http.Request) int {
	for _, days := range periods {
		if r.URL.Query().Get("days") == strconv.Itoa(days) {
			return days
		}
	}
	return 30
}

// periodTabs are the links to the periods.
func periodTabs(path string, chosen int) (tabs []ui.Tab) {
	for _, days := range periods {
		tabs = append(tabs, ui.Tab{
			Href:    path + "?days=" + strconv.Itoa(days),
			Text:    strconv.Itoa(days) + " days",
			Current: days == chosen,
		})
	}
	return tabs
}

// showOverview is GET /operator: first what waits for an operator, then the state of each part and money over time.
func (h *Handler) showOverview(r *http.Request, s staff) (ui.Report, error) {
	ctx, now, days := r.Context(), h.Service.Now().UTC(), readPeriod(r)
	c := s.newReport("/operator", "Operator", "")
	last, err := lastVerification(ctx, h.DB, stateClean, stateFindings, stateFailed)
	if err != nil {
		return c, fmt.Errorf("operatorpages: verification: %w", err)
	}
	c.Banner = last.banner(now)
	if c.Queue, err = h.queueBlock(ctx, now, last); err != nil {
		return c, err
	}
	if c.Strip, err = h.strip(ctx, now); err != nil {
		return c, err
	}
	t, err := getBalanceTotals(ctx, h.DB)
	if err != nil {
		return c, fmt.Errorf("operatorpages: totals: %w", err)
	}
	sums, err := h.sumRevenue(ctx, now, days)
	if err != nil {
		return c, err
	}
	c.Tiles = revenueTiles(t, sums, days)
	money, err := h.moneyBlock(ctx, now, days)
	if err != nil {
		return c, err
	}
	money.Text = "Real money only, without test accounts. As of " + formatTime(t.countedUS) + "."
	if t.countedUS == 0 {
		money.Text = "Figures are being computed for the first time. Reload in a minute."
	}
	alarms, err := h.alarmBlock(ctx)
	if err != nil {
		return c, err
	}
	backlog, err := h.backlogBlock(ctx)
	if err != nil {
		return c, err
	}
	c.Blocks = []ui.Block{money}
	if day, err := time.Parse(time.DateOnly, r.URL.Query().Get("day")); err == nil {
		apps, err := h.dayBlock(ctx, day)
		if err != nil {
			return c, err
		}
		c.Blocks = append(c.Blocks, apps)
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Revenue", Table: revenueTable(sums, days)}, backlog, alarms)
	return c, nil
}

// moneyBlock draws the money of the last days.
func (h *Handler) moneyBlock(ctx context.Context, now time.Time, days int) (ui.Block, error) {
	b := ui.Block{Heading: "Money over time", Range: periodTabs("/operator", days)}
	from := now.AddDate(0, 0, 1-days).Format(time.DateOnly)
	sums, err := listMoneyDays(ctx, h.DB, from)
	if err != nil {
		return b, fmt.Errorf("operatorpages: money by day: %w", err)
	}
	balances, err := listBalanceDays(ctx, h.DB, from)
	if err != nil {
		return b, fmt.Errorf("operatorpages: balances by day: %w", err)
	}
	byDay, balanceOf := map[string]callSum{}, map[string]balanceDay{}
	for _, s := range sums {
		byDay[s.day] = s
	}
	for _, x := range balances {
		balanceOf[x.day] = x
	}
	chart := func(id, title, desc, head, note string, series ...string) ui.Chart {
		return ui.Chart{
			ID:     id,
			Title:  title,
			Desc:   fmt.Sprintf("%s on each of the last %d days.", desc, days),
			Heads:  [3]string{"Day (UTC)", head, note},
			Series: series,
		}
	}
	volume := chart("volume", "Charged to users", "Where the money of calls went", "Charged", "Calls", "Provider cost",
		"Fees", "Developers’ margin")
	float := chart("float", "Users’ balances", "What users have", "Balances", "", "Available", "Reserved for apps")
	for i := days - 1; i >= 0; i-- {
		day := now.AddDate(0, 0, -i)
		key, label := day.Format(time.DateOnly), day.Format("2 Jan")
		s, held := byDay[key], balanceOf[key]
		bar := ui.Bar{
			Label: label,
			Value: int64(s.costMC + s.feeMC + s.marginMC),
			Parts: []int64{int64(s.costMC), int64(s.feeMC), int64(s.marginMC)},
			Note:  ui.Count(s.calls),
		}
		if s.calls > 0 {
			bar.Href = fmt.Sprintf("/operator?days=%d&day=%s#day", days, key)
		}
		volume.Bars = append(volume.Bars, bar)
		float.Bars = append(float.Bars, ui.Bar{
			Label: label,
			Value: int64(held.availableMC + held.reservedMC),
			Parts: []int64{int64(held.availableMC), int64(held.reservedMC)},
		})
	}
	b.Charts = []ui.Chart{volume, float}
	return b, nil
}

// maxAppsOfDay bounds the apps of a day that are listed.
const maxAppsOfDay = 50

// dayBlock lists the apps whose calls a bar of the chart sums.
func (h *Handler) dayBlock(ctx context.Context, day time.Time) (ui.Block, error) {
	t := &ui.Table{
		Label: "Apps of the day",
		Heads: append([]ui.Head{{Name: "App"}}, revenueHeads...),
		Empty: "No calls on this day.",
	}
	b := ui.Block{ID: "day", Heading: day.Format("2 January 2006") + ", by app", Table: t}
	list, err := listDayOfApps(ctx, h.DB, day.Format(time.DateOnly), maxAppsOfDay+1)
	if err != nil {
		return b, fmt.Errorf("operatorpages: apps of a day: %w", err)
	}
	if len(list) > maxAppsOfDay {
		list, b.Text = list[:maxAppsOfDay], fmt.Sprintf("The %d apps with the highest charges.", maxAppsOfDay)
	}
	var ids []string
	for _, s := range list {
		ids = append(ids, s.appID)
	}
	who, err := loadNames(ctx, h.DB, ids...)
	if err != nil {
		return b, err
	}
	for _, s := range list {
		t.Rows = append(t.Rows, append([]ui.Cell{who.cell(s.appID)}, revenueCells(s.callSum)...))
	}
	return b, nil
}

func (h *Handler) sumRevenue(ctx context.Context, now time.Time, days int) (sums revenue, err error) {
	for _, period := range []struct {
		from string
		into *callSum
	}{
		{now.Format(time.DateOnly), &sums.today},
		{now.AddDate(0, 0, 1-days).Format(time.DateOnly), &sums.period},
		{"", &sums.allTime},
	} {
		if *period.into, err = sumCountedDays(ctx, h.DB, "", period.from); err != nil {
			return sums, fmt.Errorf("operatorpages: sums: %w", err)
		}
	}
	return sums, nil
}

func revenueTiles(t balanceTotals, sums revenue, days int) []ui.Tile {
	balances := ui.SplitDollars(t.availableMC, t.reservedMC)
	return []ui.Tile{
		{
			Label: "Users’ balances",
			Value: ui.Dollars(t.availableMC + t.reservedMC),
			Exact: (t.availableMC + t.reservedMC).Display(),
			Hint: balances[0].Text + " available, " + balances[1].Text + " reserved for apps; accounts: " +
				ui.Count(t.accounts),
		},
		moneyTile("Owed to developers", sums.allTime.marginMC, "All-time margin; no payouts yet"),
		moneyTile(fmt.Sprintf("Fees earned, %d days", days), sums.period.feeMC, ui.Total(sums.today.feeMC)+" today"),
		moneyTile(fmt.Sprintf("Provider cost, %d days", days), sums.period.costMC,
			ui.Total(sums.today.costMC)+" today"),
	}
}

func moneyTile(label string, mc money.MC, hint string) ui.Tile {
	return ui.Tile{Label: label, Value: ui.Total(mc), Exact: mc.Display(), Hint: hint}
}

// revenueHeads are the columns that revenueCells fills.
var revenueHeads = []ui.Head{
	{Name: "Calls", End: true},
	{Name: "Charged", End: true},
	{Name: "Provider cost", End: true},
	{Name: "Fees", End: true},
	{Name: "Developers’ margin", End: true},
}

func revenueCells(s callSum) []ui.Cell {
	return append([]ui.Cell{countCell(s.calls), ui.TotalCell(s.chargeMC)},
		ui.AmountCells(ui.SplitTotal(s.costMC, s.feeMC, s.marginMC)...)...)
}

func revenueTable(sums revenue, days int) *ui.Table {
	row := func(period string, s callSum) []ui.Cell {
		return append([]ui.Cell{{Text: period}}, revenueCells(s)...)
	}
	return &ui.Table{
		Label: "Revenue",
		Heads: append([]ui.Head{{Name: "Period (UTC)"}}, revenueHeads...),
		Rows: [][]ui.Cell{row("Today", sums.today), row(strconv.Itoa(days)+" days", sums.period),
			row("All time", sums.allTime)},
	}
}

// backlogBlock counts the work that jobs do by themselves.
func (h *Handler) backlogBlock(ctx context.Context) (ui.Block, error) {
	b, err := countBacklog(ctx, h.DB)
	if err != nil {
		return ui.Block{}, err
	}
	webhooks := countText(b.deliveries) + " deliveries pending, " + countText(b.events) + " events to dispatch"
	return ui.Block{
		Heading: "Backlog",
		Facts: []ui.Detail{
			{Name: "Webhooks", Cell: ui.Cell{Text: webhooks}},
			{Name: "Email", Cell: ui.Cell{Text: countText(b.mails) + " to send"}},
		},
	}, nil
}

// alarmBlock lists the alarms that this node raised since its start.
func (h *Handler) alarmBlock(ctx context.Context) (ui.Block, error) {
	t := &ui.Table{
		Label: "Alarms",
		Heads: []ui.Head{{Name: "Alarm"}, {Name: "Subject"}, {Name: "Count", End: true}},
		Empty: "None.",
	}
	b := ui.Block{ID: "alarms", Heading: "Alarms of this node since its start", Table: t}
	list, err := h.Metrics.Alarms()
	if err != nil {
		return b, err
	}
	add := func(name string, subject ui.Cell, n int64) {
		t.Rows = append(t.Rows, []ui.Cell{{Text: name, Tone: "bad"}, subject, countCell(n)})
	}
	ids := []string{}
	for _, a := range list {
		ids = append(ids, a.Labels[1])
	}
	who, err := loadNames(ctx, h.DB, ids...)
	if err != nil {
		return b, err
	}
	for _, a := range list {
		add(a.Labels[0], who.cell(a.Labels[1]), a.N)
	}
	for _, m := range h.Estimates.Stats() {
		if m.Alarms > 0 {
			add("input_estimated_too_low", ui.Cell{Text: m.Model, Code: true}, m.Alarms)
		}
	}
	if h.Catalog.Broken() {
		add("prices_broken", ui.Cell{Text: brokenPrices}, h.Catalog.Failures())
	}
	return b, nil
}

// statusCell shows the status of a connection.
func statusCell(c rules.Connection) ui.Cell {
	switch c.EffectiveStatus() {
	case "active":
		return ui.Cell{Text: "Active", Tone: "good"}
	case "exhausted":
		return ui.Cell{Text: "Spend cap used up", Tone: "warn"}
	case "frozen":
		return ui.Cell{Text: "Paused", Tone: "bad"}
	}
	return ui.Cell{Text: "Revoked", Tone: "plain"}
}

func countCell(n int64) ui.Cell { return ui.Cell{Text: ui.Count(n)} }
