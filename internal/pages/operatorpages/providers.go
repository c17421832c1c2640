package operatorpages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
)

// providers is GET /operator/providers: how the providers do, the price book, how
// well input is estimated, and the free pools.
func (h *Handler) providers(r *http.Request, s staff) (ui.Report, error) {
	c := s.console("/operator/providers", "Providers and prices", "")
	calls, err := h.Metrics.Calls()
	if err != nil {
		return c, err
	}
	failures, err := h.Metrics.ProviderErrors()
	if err != nil {
		return c, err
	}
	now := h.Service.Now().UTC()
	pools, err := h.pools(r, now)
	if err != nil {
		return c, err
	}
	book := ui.Block{
		Heading: "Price list",
		Text: "Provider prices in dollars per million tokens. Version in force: " + h.Catalog.Current().Version() +
			".",
		Table: prices(h.Catalog.Current(), now),
	}
	if h.Catalog.Broken() {
		book.Text += " The price file can’t be used. The previous prices stay in force."
	}
	c.Blocks = []ui.Block{
		{Heading: "Calls of this node since its start", Table: health(calls)},
		{Heading: "Provider errors", Table: failuresTable(failures)},
		{
			Heading: "Estimate calibration",
			Text:    "Ratio of reported to counted input tokens. For its hold, the count of the next call is multiplied by the factor.",
			Table:   drift(h.Estimates.Stats()),
		},
		{
			Heading: "Free pools, " + now.Format("January 2006"),
			Text: "Free credit that each live app’s users can spend before their own money: " +
				ui.Dollars(h.Free.PoolMC) + " per app and month.",
			Table: pools,
		},
		book,
	}
	return c, nil
}

// health counts calls by provider and how they ended.
func health(list []metrics.Count) *ui.Table {
	t := &ui.Table{
		Label: "Calls",
		Heads: []ui.Head{{Name: "Provider"}, {Name: "Model"}, {Name: "Outcome"}, {Name: "Calls", End: true}},
		Empty: "No calls yet.",
	}
	for _, x := range list {
		ended := ui.Cell{Text: x.Labels[2], Tone: "good"}
		if x.Labels[2] == metrics.Failed || x.Labels[2] == metrics.Rejected {
			ended.Tone = "bad"
		} else if x.Labels[2] != "settled" {
			ended.Tone = "warn"
		}
		t.Rows = append(t.Rows, []ui.Cell{{Text: x.Labels[0]}, {Text: x.Labels[1], Code: true}, ended, count(x.N)})
	}
	return t
}

func failuresTable(list []metrics.Count) *ui.Table {
	t := &ui.Table{
		Label: "Failures",
		Heads: []ui.Head{{Name: "Provider"}, {Name: "Status"}, {Name: "Count", End: true}},
		Empty: "None.",
	}
	for _, x := range list {
		status := x.Labels[1]
		switch status {
		case "none":
			status = "no response"
		case "cut":
			status = "stream interrupted"
		}
		t.Rows = append(t.Rows, []ui.Cell{{Text: x.Labels[0]}, {Text: status}, count(x.N)})
	}
	return t
}

// prices lists every price of the book: those of now, and those that were or come.
func prices(c *catalog.Catalog, now time.Time) *ui.Table {
	t := &ui.Table{Label: "Prices", Heads: []ui.Head{
		{Name: "Model"},
		{Name: "In force"},
		{Name: "List"},
		{Name: "Input", End: true},
		{Name: "Cached", End: true},
		{Name: "Output", End: true},
	}}
	for _, m := range c.All() {
		for _, p := range m.Periods {
			for _, step := range p.Rates.Steps {
				model := ui.Cell{Text: m.Model.ID, Code: true, Sub: m.Model.Provider}
				if step.AboveInput > 0 {
					model.Sub = "above " + ui.Count(step.AboveInput) + " input tokens"
				}
				t.Rows = append(t.Rows,
					[]ui.Cell{model, inForce(m.Model, p, now), {Text: p.Rates.PriceList}, {Text: step.Input.Display()},
						{Text: step.Cached.Display()}, {Text: step.Output.Display()}})
			}
		}
	}
	return t
}

func inForce(m catalog.Model, p catalog.Period, now time.Time) ui.Cell {
	cell := ui.Cell{Text: "Now", Tone: "good"}
	switch {
	case m.RetiresAt != nil && !now.Before(*m.RetiresAt):
		cell = ui.Cell{Text: "Retired", Tone: "plain"}
	case !p.From.IsZero() && now.Before(p.From):
		cell = ui.Cell{Text: "Scheduled", Tone: "warn"}
	case !p.Contains(now):
		cell = ui.Cell{Text: "Past", Tone: "plain"}
	}
	if !p.From.IsZero() {
		cell.Sub = "from " + p.From.Format("2 Jan 2006")
	}
	if !p.To.IsZero() {
		cell.Sub += " until " + p.To.Format("2 Jan 2006")
	}
	return cell
}

func drift(list []estimates.ModelStats) *ui.Table {
	t := &ui.Table{
		Label: "Estimates",
		Heads: []ui.Head{
			{Name: "Model"},
			{Name: "Calls", End: true},
			{Name: "Mean", End: true},
			{Name: "Largest", End: true},
			{Name: "Factor", End: true},
			{Name: "Too low", End: true},
		},
		Empty: "No calls compared yet.",
	}
	ratio := func(ppm int64) ui.Cell {
		return ui.Cell{Text: fmt.Sprintf("%d.%03d", ppm/estimates.RatioOne, ppm%estimates.RatioOne/1000)}
	}
	for _, m := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{{Text: m.Model, Code: true}, count(m.Calls), ratio(m.MeanPPM), ratio(max(m.MaxPPM, m.PriorPPM)),
				ratio(m.FactorPPM()), count(m.Alarms)})
	}
	return t
}

// A pool is an app's free credit of a month.
type pool struct {
	appID, name string
	used, held  money.MC
}

// freePools returns the pools of a month that were used, of the newest apps first.
// Windows are found by their whole name, one for each app.
func freePools(ctx context.Context, q db.Queryer, month, after string, limit int) ([]pool, error) {
	if after == "" {
		after = "~" // behind every id
	}
	return db.QueryAll(ctx, q, scanPool,
		`SELECT apps.id, apps.name, windows.buckets, windows.held FROM apps JOIN windows ON windows.subject = 'free/' || apps.id || '/' || $1
		WHERE apps.tier <> 'sandbox' AND apps.id < $2 ORDER BY apps.id DESC LIMIT $3`, month, after, limit)
}

func scanPool(row db.Row) (p pool, err error) {
	var buckets string
	if err := row.Scan(&p.appID, &p.name, &buckets, &p.held); err != nil {
		return p, err
	}
	used, err := limits.ParseSeries(0, buckets)
	p.used = money.MC(used.Sum(time.Time{}, 0))
	return p, err
}

func (h *Handler) pools(r *http.Request, now time.Time) (*ui.Table, error) {
	list, err := freePools(r.Context(), h.DB, now.Format("2006-01"), r.URL.Query().Get("after"), maxListed+1)
	if err != nil {
		return nil, fmt.Errorf("admin: free pools: %w", err)
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Free pools",
		Heads: []ui.Head{
			{Name: "App"},
			{Name: "Used", End: true},
			{Name: "Held", End: true},
			{Name: "Left", End: true},
		},
		First: first(r, "after"),
		Empty: "No free credit was used this month.",
	}
	for _, p := range list {
		left := max(0, h.Free.PoolMC-p.used-p.held)
		t.Rows = append(t.Rows,
			[]ui.Cell{{Text: p.name, Href: "/operator/apps/" + url.PathEscape(p.appID)}, ui.MoneyCell(p.used),
				ui.MoneyCell(p.held), ui.MoneyCell(left)})
	}
	if more {
		t.Next = next(r, true, "after", list[len(list)-1].appID)
	}
	return t, nil
}
