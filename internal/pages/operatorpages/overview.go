package operatorpages

import (
	"context"
	"fmt"
	"net/http"
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

// revenue sums the calls of three periods, all in UTC.
type revenue struct{ today, month, allTime callSum }

// showOverview is GET /operator.
func (h *Handler) showOverview(r *http.Request, s staff) (ui.Report, error) {
	ctx, now := r.Context(), h.Service.Now().UTC()
	c := s.newReport("/operator", "Operator", "")
	t, err := getBalanceTotals(ctx, h.DB)
	if err != nil {
		return c, fmt.Errorf("operatorpages: totals: %w", err)
	}
	c.Lead = "Real money only, without test accounts. As of " + formatTime(t.countedUS) + "."
	if t.countedUS == 0 {
		c.Lead = "Figures are being computed for the first time. Reload in a minute."
	}
	sums, err := h.sumRevenue(ctx, now)
	if err != nil {
		return c, err
	}
	c.Tiles = revenueTiles(t, sums)
	attention, err := h.attentionBlock(ctx, now)
	if err != nil {
		return c, err
	}
	verification, err := h.verificationBlock(ctx)
	if err != nil {
		return c, err
	}
	alarms, err := h.alarmBlock()
	if err != nil {
		return c, err
	}
	c.Blocks = []ui.Block{attention, verification, {Heading: "Revenue", Table: revenueTable(sums)}, alarms}
	return c, nil
}

func (h *Handler) sumRevenue(ctx context.Context, now time.Time) (sums revenue, err error) {
	for _, period := range []struct {
		from string
		into *callSum
	}{
		{now.Format(time.DateOnly), &sums.today},
		{now.AddDate(0, 0, -29).Format(time.DateOnly), &sums.month},
		{"", &sums.allTime},
	} {
		if *period.into, err = sumCountedDays(ctx, h.DB, "", period.from); err != nil {
			return sums, fmt.Errorf("operatorpages: sums: %w", err)
		}
	}
	return sums, nil
}

func revenueTiles(t balanceTotals, sums revenue) []ui.Tile {
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
		moneyTile("Fees earned, 30 days", sums.month.feeMC, ui.Total(sums.today.feeMC)+" today"),
		moneyTile("Provider cost, 30 days", sums.month.costMC, ui.Total(sums.today.costMC)+" today"),
	}
}

func moneyTile(label string, mc money.MC, hint string) ui.Tile {
	return ui.Tile{Label: label, Value: ui.Total(mc), Exact: mc.Display(), Hint: hint}
}

func revenueTable(sums revenue) *ui.Table {
	row := func(period string, s callSum) []ui.Cell {
		return append([]ui.Cell{{Text: period}, countCell(s.calls), ui.TotalCell(s.chargeMC)},
			ui.AmountCells(ui.SplitTotal(s.costMC, s.feeMC, s.marginMC)...)...)
	}
	return &ui.Table{
		Label: "Revenue",
		Heads: []ui.Head{
			{Name: "Period (UTC)"},
			{Name: "Calls", End: true},
			{Name: "Charged", End: true},
			{Name: "Provider cost", End: true},
			{Name: "Fees", End: true},
			{Name: "Developers’ margin", End: true},
		},
		Rows: [][]ui.Cell{row("Today", sums.today), row("30 days", sums.month), row("All time", sums.allTime)},
	}
}

// attentionBlock lists pending work.
func (h *Handler) attentionBlock(ctx context.Context, now time.Time) (ui.Block, error) {
	b, err := countBacklog(ctx, h.DB)
	if err != nil {
		return ui.Block{}, err
	}
	mails := ui.Count(b.mails) + " to send"
	if wait := now.Sub(time.UnixMicro(b.oldestMailUS)); b.mails > 0 && wait > time.Minute {
		mails += ", oldest waiting for " + wait.Round(time.Minute).String()
	}
	if b.failedMails > 0 {
		mails += ", " + ui.Count(b.failedMails) + " failed in 30 days"
	}
	webhooks := ui.Count(b.deliveries) + " deliveries pending, " + ui.Count(b.events) + " events to dispatch"
	return ui.Block{
		Heading: "Needs attention",
		Facts: []ui.Detail{
			{
				Name: "Go-live requests",
				Cell: ui.Cell{Text: ui.Count(b.reviews) + " to review", Href: "/operator/reviews"},
			},
			{
				Name: "Suspended apps",
				Cell: ui.Cell{Text: ui.Count(b.suspended), Href: "/operator/apps?state=suspended"},
			},
			{Name: "Paused connections", Cell: ui.Cell{Text: ui.Count(b.frozen), Href: "/operator/risk"}},
			{Name: "Webhooks", Cell: ui.Cell{Text: webhooks}},
			{Name: "Email", Cell: ui.Cell{Text: mails}},
		},
	}, nil
}

// verificationBlock shows the result of the last verification.
func (h *Handler) verificationBlock(ctx context.Context) (ui.Block, error) {
	list, err := listVerifications(ctx, h.DB, 1)
	if err != nil {
		return ui.Block{}, err
	}
	b := ui.Block{Heading: "Ledger verification", More: &ui.Link{Href: "/operator/verify", Text: "Verify"}}
	if len(list) == 0 {
		b.Text = "Not verified yet."
		return b, nil
	}
	v := list[0]
	b.Facts = []ui.Detail{
		{Name: "Last verification", Cell: v.resultCell()},
		{Name: "Requested", Cell: timeCell(v.requestedUS)},
	}
	if v.finishedUS > 0 {
		text := fmt.Sprintf("%s in %s checks of %s entries", ui.Count(v.findings), ui.Count(v.checks),
			ui.Count(v.rowsChecked))
		b.Facts = append(b.Facts, ui.Detail{Name: "Findings", Cell: ui.Cell{Text: text}})
	}
	return b, nil
}

// alarmBlock lists the alarms that this node raised since its start.
func (h *Handler) alarmBlock() (ui.Block, error) {
	t := &ui.Table{
		Label: "Alarms",
		Heads: []ui.Head{{Name: "Alarm"}, {Name: "Subject"}, {Name: "Count", End: true}},
		Empty: "None.",
	}
	b := ui.Block{Heading: "Alarms of this node since its start", Table: t}
	list, err := h.Metrics.Alarms()
	if err != nil {
		return b, err
	}
	add := func(name string, subject ui.Cell, n int64) {
		t.Rows = append(t.Rows, []ui.Cell{{Text: name, Tone: "bad"}, subject, countCell(n)})
	}
	for _, a := range list {
		add(a.Labels[0], ui.Cell{Text: a.Labels[1], Code: true}, a.N)
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
