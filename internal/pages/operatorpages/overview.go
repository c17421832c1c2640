package operatorpages

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// A backlog is what waits.
type backlog struct {
	reviews, suspended, frozen int64
	events, deliveries         int64
	mails, failedMails         int64
	oldestMailUS               int64
}

// waits counts it; every count has a small index of its own.
func waits(ctx context.Context, q db.Queryer) (b backlog, err error) {
	for _, c := range []struct {
		text string
		into *int64
	}{
		{`SELECT COUNT(*) FROM golive_requests WHERE status = 'pending'`, &b.reviews},
		{`SELECT COUNT(*) FROM apps WHERE ` + apps.SuspendedSQL("apps"), &b.suspended},
		{`SELECT COUNT(*) FROM connections WHERE status = 'frozen'`, &b.frozen},
		{`SELECT COUNT(*) FROM events WHERE passed = 0`, &b.events},
		{`SELECT COUNT(*) FROM deliveries WHERE status = 'pending'`, &b.deliveries},
		{`SELECT COUNT(*) FROM mails WHERE status = 'pending'`, &b.mails},
		{`SELECT COUNT(*) FROM mails WHERE status = 'failed'`, &b.failedMails},
		{`SELECT COALESCE(MIN(next_us), 0) FROM mails WHERE status = 'pending'`, &b.oldestMailUS},
	} {
		if err := q.QueryRowContext(ctx, c.text).Scan(c.into); err != nil {
			return b, fmt.Errorf("admin: backlog: %w", err)
		}
	}
	return b, nil
}

// overview is GET /operator.
func (h *Handler) overview(r *http.Request, s staff) (ui.Report, error) {
	c := s.console("/operator", "Operator", "")
	t, err := readTotals(r.Context(), h.DB)
	if err != nil {
		return c, fmt.Errorf("admin: totals: %w", err)
	}
	c.Lead = "Real money only, without test accounts. As of " + date(t.countedUS) + "."
	if t.countedUS == 0 {
		c.Lead = "Figures are being computed for the first time. Reload in a minute."
	}
	now := h.Service.Now().UTC()
	periods := []struct{ name, from string }{
		{"Today", now.Format(time.DateOnly)},
		{"30 days", now.AddDate(0, 0, -29).Format(time.DateOnly)},
		{"All time", ""},
	}
	sums := make([]sum, len(periods))
	for i, p := range periods {
		if sums[i], err = earned(r.Context(), h.DB, "", p.from); err != nil {
			return c, fmt.Errorf("admin: earned: %w", err)
		}
	}
	all := sums[2]
	c.Tiles = []ui.Tile{
		{
			Label: "Users’ balances",
			Value: ui.Money(t.available + t.reserved).Text,
			Exact: (t.available + t.reserved).Display(),
			Hint: ui.Money(t.available).Text + " available, " + ui.Money(t.reserved).Text +
				" reserved for apps; accounts: " + ui.Count(t.accounts),
		},
		{
			Label: "Owed to developers",
			Value: ui.Money(all.margin).Text,
			Exact: all.margin.Display(),
			Hint:  "All-time margin; no payouts yet",
		},
		{
			Label: "Fees earned, 30 days",
			Value: ui.Money(sums[1].fee).Text,
			Exact: sums[1].fee.Display(),
			Hint:  ui.Money(sums[0].fee).Text + " today",
		},
		{
			Label: "Provider cost, 30 days",
			Value: ui.Money(sums[1].cost).Text,
			Exact: sums[1].cost.Display(),
			Hint:  ui.Money(sums[0].cost).Text + " today",
		},
	}
	table := &ui.Table{Label: "Revenue", Heads: []ui.Head{
		{Name: "Period (UTC)"},
		{Name: "Calls", End: true},
		{Name: "Charged", End: true},
		{Name: "Provider cost", End: true},
		{Name: "Fees", End: true},
		{Name: "Developers’ margin", End: true},
	}}
	for i, p := range periods {
		x := sums[i]
		table.Rows = append(table.Rows,
			[]ui.Cell{{Text: p.name}, count(x.calls), ui.MoneyCell(x.charge), ui.MoneyCell(x.cost), ui.MoneyCell(x.fee),
				ui.MoneyCell(x.margin)})
	}
	attention, err := h.attention(r.Context(), now)
	if err != nil {
		return c, err
	}
	books, err := h.books(r.Context())
	if err != nil {
		return c, err
	}
	c.Blocks = []ui.Block{attention, books, {Heading: "Revenue", Table: table}}
	alarms, err := h.alarms()
	if err != nil {
		return c, err
	}
	c.Blocks = append(c.Blocks, alarms)
	return c, nil
}

// attention is what waits for somebody.
func (h *Handler) attention(ctx context.Context, now time.Time) (ui.Block, error) {
	b, err := waits(ctx, h.DB)
	if err != nil {
		return ui.Block{}, err
	}
	mails := ui.Count(b.mails) + " to send"
	if late := now.Sub(time.UnixMicro(b.oldestMailUS)); b.mails > 0 && late > time.Minute {
		mails += ", oldest waiting for " + late.Round(time.Minute).String()
	}
	if b.failedMails > 0 {
		mails += ", " + ui.Count(b.failedMails) + " failed in 30 days"
	}
	return ui.Block{Heading: "Needs attention",
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
			{
				Name: "Webhooks",
				Cell: ui.Cell{
					Text: ui.Count(b.deliveries) + " deliveries pending, " + ui.Count(b.events) + " events to dispatch",
				},
			},
			{Name: "Email", Cell: ui.Cell{Text: mails}},
		}}, nil
}

// books says how the last audit ended.
func (h *Handler) books(ctx context.Context) (ui.Block, error) {
	list, err := newestVerifications(ctx, h.DB, 1)
	if err != nil {
		return ui.Block{}, err
	}
	b := ui.Block{Heading: "Ledger verification", More: &ui.Link{Href: "/operator/verify", Text: "Verify"}}
	if len(list) == 0 {
		b.Text = "Not verified yet."
		return b, nil
	}
	v := list[0]
	b.Facts = []ui.Detail{{Name: "Last verification", Cell: v.cell()}, {Name: "Requested", Cell: when(v.askedUS)}}
	if v.finishedUS > 0 {
		b.Facts = append(b.Facts,
			ui.Detail{
				Name: "Findings",
				Cell: ui.Cell{
					Text: fmt.Sprintf("%s in %s checks of %s entries", ui.Count(v.nOfFindings), ui.Count(v.checks),
						ui.Count(v.checked)),
				},
			})
	}
	return b, nil
}

// alarms are what this node raised since it started.
func (h *Handler) alarms() (ui.Block, error) {
	b := ui.Block{Heading: "Alarms of this node since its start", Table: &ui.Table{
		Label: "Alarms", Heads: []ui.Head{
			{Name: "Alarm"},
			{Name: "Subject"},
			{Name: "Count", End: true},
		}, Empty: "None.",
	}}
	list, err := h.Metrics.Alarms()
	if err != nil {
		return b, err
	}
	for _, a := range list {
		b.Table.Rows = append(b.Table.Rows,
			[]ui.Cell{{Text: a.Labels[0], Tone: "bad"}, {Text: a.Labels[1], Code: true}, count(a.N)})
	}
	for _, m := range h.Estimates.Stats() {
		if m.Alarms > 0 {
			b.Table.Rows = append(b.Table.Rows,
				[]ui.Cell{{Text: "input_estimated_too_low", Tone: "bad"}, {Text: m.Model, Code: true}, count(m.Alarms)})
		}
	}
	if h.Catalog.Broken() {
		b.Table.Rows = append(b.Table.Rows,
			[]ui.Cell{{Text: "prices_broken", Tone: "bad"},
				{Text: "The price file can’t be used. The previous prices stay in force."},
				count(h.Catalog.Failures())})
	}
	return b, nil
}

// statusCell is how a connection stands.
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

func count(n int64) ui.Cell { return ui.Cell{Text: ui.Count(n)} }
