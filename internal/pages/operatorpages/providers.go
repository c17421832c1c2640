package operatorpages

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/estimates/calibration"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/pages/status"
)

// showProviders is GET /operator/providers: calls and errors of the providers, the calibration of estimates, and the
// free pools.
func (h *Handler) showProviders(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport("/operator/providers", "Providers and prices", "")
	calls, err := h.Metrics.Calls()
	if err != nil {
		return c, err
	}
	failures, err := h.Metrics.ProviderErrors()
	if err != nil {
		return c, err
	}
	now := h.Service.Now().UTC()
	freePools, err := h.freePoolTable(r, now)
	if err != nil {
		return c, err
	}
	health, err := status.ListHealth(r.Context(), h.DB, now)
	if err != nil {
		return c, err
	}
	priceList := ui.Block{
		Heading: "Price list",
		Text:    "Version in force: " + h.Catalog.Current().Version() + ".",
		More:    &ui.Link{Href: pricesPath, Text: "Prices and changes"},
	}
	if h.Catalog.Broken() {
		priceList.Text += " " + brokenPrices
	}
	c.Blocks = []ui.Block{
		{Heading: "Health, last 24 hours", Text: "Calls of all nodes.", Table: healthTable(health)},
		{Heading: "Calls of this node since its start", Table: callTable(calls)},
		{Heading: "Provider errors", Table: errorTable(failures)},
		{Heading: "Keys of this node", Text: keysText, Table: h.keyTable()},
		{Heading: "Requests that providers called invalid", Text: refusalsText, Table: h.refusalTable()},
		{
			Heading: "Estimate calibration",
			Text: "Ratio of reported to counted input tokens. For its hold, the count of the next call is multiplied by " +
				"the factor.",
			Table: calibrationTable(h.Estimates.Stats()),
		},
		{
			Heading: "Free pools, " + now.Format("January 2006"),
			Text: "Free credit that each live app’s users can spend before their own money: " +
				ui.Dollars(h.Service.Policies.At(h.Service.Now()).Free.PoolMC) + " per app and month.",
			Table: freePools,
		},
		priceList,
	}
	return c, nil
}

// brokenPrices is shown when the price file cannot be used.
const brokenPrices = "The price file can’t be used. The previous prices stay in force."

// keysText explains the table of keys.
const keysText = "Keys of a provider serve in turn, and for each other. A key that is refused, or whose account is " +
	"out of quota, rests; a refusal that is about a model concerns only that model."

// keyTable lists the operator's keys, by provider.
func (h *Handler) keyTable() *ui.Table {
	t := &ui.Table{
		Label: "Keys",
		Heads: []ui.Head{
			{Name: "Provider"}, {Name: "Key"}, {Name: "State"}, {Name: "Served", End: true},
			{Name: "Passed on", End: true}, {Name: "Last use"},
		},
		Empty: "No provider has a key.",
	}
	for _, name := range slices.Sorted(maps.Keys(h.Pools)) {
		for _, k := range h.Pools[name].States() {
			last := ui.Cell{Text: "–"}
			if !k.LastUse.IsZero() {
				last = timeCell(k.LastUse.UnixMicro())
			}
			t.Rows = append(t.Rows, []ui.Cell{
				{Text: status.Title(name)}, {Text: k.ID, Code: true}, keyStateCell(k.Rests),
				countCell(k.Served), countCell(k.Failed), last,
			})
		}
	}
	return t
}

// keyStateCell says whether a key serves, and until when it rests. Its rests are in the order of their models: that for
// all models comes first.
func keyStateCell(rests []upstream.KeyRest) ui.Cell {
	if len(rests) == 0 {
		return ui.Cell{Text: "Ready", Tone: "good"}
	}
	r := rests[0]
	why := map[string]string{
		"refused": "Refused", "out_of_quota": "Out of quota", "rate_limited": "Rate limited",
	}[r.Why]
	until := "rests until " + formatTime(r.Until.UnixMicro())
	if r.Model == "" {
		return ui.Cell{Text: why, Tone: "bad", Sub: until}
	}
	if len(rests) > 1 {
		return ui.Cell{Text: fmt.Sprintf("%s for %d models", why, len(rests)), Tone: "bad", Sub: r.Model + " " + until}
	}
	return ui.Cell{Text: why + " for " + r.Model, Tone: "bad", Sub: until}
}

// refusalsText explains the table of refusals.
const refusalsText = "By this node since its start, with the operator’s keys. Apps get them as their own fault, or, " +
	"within an answer, as a failure of the provider. What a text quotes, numbers and ids are left out. A text that " +
	"means your account, such as a disabled organization, is one that Purser doesn’t know yet."

// refusalTable lists the texts of refused requests, by provider.
func (h *Handler) refusalTable() *ui.Table {
	t := &ui.Table{
		Label: "Refused requests",
		Heads: []ui.Head{{Name: "Provider"}, {Name: "Text"}, {Name: "Requests", End: true}, {Name: "Last"}},
		Empty: "No provider has called a request invalid.",
	}
	for _, name := range slices.Sorted(maps.Keys(h.Pools)) {
		for _, x := range h.Pools[name].Refusals() {
			t.Rows = append(t.Rows, []ui.Cell{
				{Text: status.Title(name)}, {Text: x.Text}, countCell(x.N), timeCell(x.Last.UnixMicro()),
			})
		}
	}
	return t
}

// callTable counts calls by provider, model and outcome.
func callTable(list []metrics.Count) *ui.Table {
	t := &ui.Table{
		Label: "Calls",
		Heads: []ui.Head{{Name: "Provider"}, {Name: "Model"}, {Name: "Outcome"}, {Name: "Calls", End: true}},
		Empty: "No calls yet.",
	}
	for _, x := range list {
		outcome := ui.Cell{Text: x.Labels[2], Tone: "good"}
		if x.Labels[2] == metrics.Failed || x.Labels[2] == metrics.Rejected {
			outcome.Tone = "bad"
		} else if x.Labels[2] != "settled" {
			outcome.Tone = "warn"
		}
		t.Rows = append(t.Rows,
			[]ui.Cell{{Text: x.Labels[0]}, {Text: x.Labels[1], Code: true}, outcome, countCell(x.N)})
	}
	return t
}

// healthTable shows how calls to each model fared.
func healthTable(list []status.Health) *ui.Table {
	t := &ui.Table{
		Label: "Health",
		Heads: []ui.Head{
			{Name: "Provider"}, {Name: "Model"}, {Name: "Calls", End: true}, {Name: "Failed", End: true},
			{Name: "Median", End: true}, {Name: "95th percentile", End: true}, {Name: "Last incident"},
		},
		Empty: "No calls yet.",
	}
	for _, x := range list {
		failed := countCell(x.Failures)
		if x.Failures > 0 {
			failed.Tone = "bad"
		}
		t.Rows = append(t.Rows, []ui.Cell{
			{Text: status.Title(x.Service)}, {Text: x.Model, Code: true}, countCell(x.Attempts), failed,
			{Text: formatDuration(x.Percentile(50))}, {Text: formatDuration(x.Percentile(95))}, timeCell(x.TroubleUS),
		})
	}
	return t
}

// formatDuration returns a duration to a tenth of a second; "–" for none.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return d.Round(100 * time.Millisecond).String()
}

// errorTable counts provider errors by HTTP status.
func errorTable(list []metrics.Count) *ui.Table {
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
		t.Rows = append(t.Rows, []ui.Cell{{Text: x.Labels[0]}, {Text: status}, countCell(x.N)})
	}
	return t
}

// calibrationTable shows the estimate calibration of each model.
func calibrationTable(list []estimates.ModelStats) *ui.Table {
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
		return ui.Cell{Text: fmt.Sprintf("%d.%03d", ppm/calibration.RatioOne, ppm%calibration.RatioOne/1000)}
	}
	for _, m := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{{Text: m.Model, Code: true}, countCell(m.Calls), ratio(m.MeanPPM),
				ratio(max(m.MaxPPM, m.PriorPPM)),
				ratio(m.FactorPPM()), countCell(m.Alarms)})
	}
	return t
}

// A freePool is an app's free credit of one month.
type freePool struct {
	appID, name    string
	usedMC, heldMC money.MC
}

// freePoolTable lists the free pools that were used in the month of now.
func (h *Handler) freePoolTable(r *http.Request, now time.Time) (*ui.Table, error) {
	list, err := listFreePools(r.Context(), h.DB, now.Format("2006-01"), r.URL.Query().Get("after"), maxListed+1)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: free pools: %w", err)
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
		First: firstPage(r, "after"),
		Empty: "No free credit was used this month.",
	}
	for _, p := range list {
		left := max(0, h.Service.Policies.At(h.Service.Now()).Free.PoolMC-p.usedMC-p.heldMC)
		parts := ui.AmountCells(ui.SplitDollars(left, p.heldMC, p.usedMC)...)
		t.Rows = append(t.Rows,
			[]ui.Cell{names{p.appID: p.name}.cell(p.appID), parts[2], parts[1], parts[0]})
	}
	if more {
		t.Next = nextPage(r, true, "after", list[len(list)-1].appID)
	}
	return t, nil
}
