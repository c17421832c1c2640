package operatorpages

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/pages/status"
)

// pricesPath is the page of the price list.
const pricesPath = "/operator/prices"

// showPrices is GET /operator/prices: the price list in force, with filters, and the versions before it.
func (h *Handler) showPrices(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(pricesPath, "Prices", "What providers charge, in US dollars per million tokens.")
	current := h.Catalog.Current()
	if h.Catalog.Broken() {
		c.Banner = &ui.Banner{Tone: "bad", Text: brokenPrices}
	}
	t, lines := h.findPrices(r.URL.Query())
	today := formatDay(h.Service.Now())
	for i := range lines {
		t.Rows = append(t.Rows, priceRow(&t, &lines[i], i, today))
	}
	versions, err := h.versionTable(r)
	if err != nil {
		return c, err
	}
	c.Blocks = []ui.Block{
		{
			Heading: "Version in force: " + current.Version(),
			Text:    "Models: " + ui.Count(int64(len(current.All()))) + ". The price of a call is the one at its hold.",
			List:    &t,
		},
		{
			Heading: "Versions",
			Text:    "Price lists that nodes used, newest first.",
			More:    &ui.Link{Href: pricesPath + "/compare", Text: "Compare two versions"},
			Table:   versions,
		},
	}
	return c, nil
}

// findPrices returns the list of prices without its rows, and the lines that pass the filters of the query.
func (h *Handler) findPrices(q url.Values) (t ui.List, lines []priceLine) {
	t = ui.NewList(pricesPath, q, "find", "provider", "state")
	t.Label, t.Empty, t.Sizes = "Prices", "No prices match.", nil
	t.Search = &ui.ListSearch{
		Name:  "find",
		Label: "Find a model",
		Hint:  "Part of a model’s id",
		Value: strings.TrimSpace(q.Get("find")),
	}
	all := priceLines(h.Catalog.Current())
	providers, seen := []ui.Option{{Text: "Any provider"}}, map[string]bool{}
	for _, l := range all {
		if !seen[l.Provider] {
			seen[l.Provider] = true
			providers = append(providers, ui.Option{ID: l.Provider, Text: status.Title(l.Provider)})
		}
	}
	t.AddFilter("provider", "Provider", providers)
	t.AddFilter("state", "In force", []ui.Option{
		{Text: "Any time"}, {ID: priceInForce, Text: "Now"}, {ID: priceScheduled, Text: "Scheduled"},
		{ID: priceEnded, Text: "Ended"},
	})
	t.Finish(true, "")
	t.CSV = t.Download(pricesPath + ".csv")
	t.Head = []ui.ListColumn{
		{Text: "Model", Class: "first"}, {Text: "In force", Class: "second"}, {Text: "Input", Class: "first end"},
		{Text: "Cached input", Class: "end"}, {Text: "Cache write", Class: "end"},
		{Text: "Output", Class: "second end"},
	}
	today := formatDay(h.Service.Now())
	find, provider, state := strings.ToLower(t.Search.Value), q.Get("provider"), q.Get("state")
	for _, l := range all {
		if strings.Contains(l.Model, find) && (provider == "" || l.Provider == provider) &&
			(state == "" || l.stateOn(today) == state) {
			lines = append(lines, l)
		}
	}
	return t, lines
}

// priceRow shows a line of the price list.
func priceRow(t *ui.List, l *priceLine, n int, today string) ui.ListRow {
	model := ui.ListCell{Text: l.Model, Code: true, Sub: status.Title(l.Provider)}
	if l.AboveInput > 0 {
		model.Sub += ", above " + ui.Count(l.AboveInput) + " input tokens"
	}
	price := func(kinds ...string) (cell ui.ListCell) {
		cell.Text = "–"
		for i, kind := range kinds {
			mc, ok := l.PricesMC[kind]
			if i == 0 && ok {
				cell.Text = mc.Display()
			} else if ok {
				word, _, _ := strings.Cut(kind, "_")
				cell.Sub = strings.TrimPrefix(cell.Sub+", "+word+" "+mc.Display(), ", ")
			}
		}
		return cell
	}
	return ui.ListRow{
		ID:   strconv.Itoa(n),
		Href: t.Link("find", l.Model, "provider", "", "state", ""),
		Cells: []ui.ListCell{
			model, periodCell(l, today), price("input", "audio_input", "image_input"),
			price("cached", "audio_cached", "image_cached"), price("cache_write"), price("output", "audio_output"),
		},
	}
}

// periodCell shows whether a price is in force.
func periodCell(l *priceLine, today string) ui.ListCell {
	cell := map[string]ui.ListCell{
		priceInForce:   {Text: "Now", Dot: "good"},
		priceScheduled: {Text: "Scheduled", Dot: "warn"},
		priceEnded:     {Text: "Ended", Dot: "plain"},
	}[l.stateOn(today)]
	var parts []string
	for _, p := range []struct{ word, day string }{{"from ", l.From}, {"until ", l.To}, {"retires ", l.Retires}} {
		if p.day != "" {
			parts = append(parts, p.word+formatDate(p.day))
		}
	}
	cell.Sub = strings.Join(parts, ", ")
	return cell
}

// formatDate writes a day such as 2026-11-21 as 21 Nov 2026.
func formatDate(day string) string {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return day
	}
	return t.Format("2 Jan 2006")
}

// exportPrices is GET /operator/prices.csv: the lines that pass the filters, with prices in micro-cents per million
// tokens.
func (h *Handler) exportPrices(w http.ResponseWriter, r *http.Request, _ staff) error {
	q, err := web.ReadQuery(r)
	if err != nil {
		return err
	}
	_, lines := h.findPrices(q)
	head := []string{"model", "provider", "from", "to", "retires", "above_input_tokens", "price_list"}
	for _, kind := range priceKinds {
		head = append(head, kind.id+"_mc_per_million")
	}
	ui.SetDownload(w, "purser-prices.csv")
	out := csv.NewWriter(w)
	if err := out.Write(head); err != nil {
		return err
	}
	for _, l := range lines {
		record := []string{l.Model, l.Provider, l.From, l.To, l.Retires, strconv.FormatInt(l.AboveInput, 10), l.List}
		for _, kind := range priceKinds {
			text := ""
			if mc, ok := l.PricesMC[kind.id]; ok {
				text = strconv.FormatInt(int64(mc), 10)
			}
			record = append(record, text)
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// maxVersions is the number of versions that can be chosen.
const maxVersions = 100

// versionTable lists the price lists that nodes used, with links to what changed since each.
func (h *Handler) versionTable(r *http.Request) (*ui.Table, error) {
	list, err := listPriceLists(r.Context(), h.DB, maxVersions)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: price lists: %w", err)
	}
	t := &ui.Table{
		Label: "Versions",
		Heads: []ui.Head{{Name: "Version"}, {Name: "First used"}, {Name: "Models", End: true}, {Name: "Changes"}},
		Empty: "No version is stored yet.",
	}
	current := h.Catalog.Current().Version()
	for _, v := range list {
		changes := ui.Cell{Text: "Compare with the one in force", Href: comparePath(v.version, current)}
		if v.version == current {
			changes = ui.Cell{Text: "In force", Tone: "good"}
		}
		t.Rows = append(t.Rows,
			[]ui.Cell{{Text: v.version, Code: true}, timeCell(v.firstUS), countCell(v.models), changes})
	}
	return t, nil
}

func comparePath(before, after string) string {
	return pricesPath + "/compare?" + url.Values{"before": {before}, "after": {after}}.Encode()
}

// showPriceChanges is GET /operator/prices/compare: what differs between two versions of the price list. Without a
// query it compares the version in force with the one used before it.
func (h *Handler) showPriceChanges(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(pricesPath, "Compare prices", "In US dollars per million tokens, now and from later days on.")
	c.Back = &ui.Link{Href: pricesPath, Text: "Prices"}
	versions, err := h.listVersions(r)
	if err != nil {
		return c, err
	}
	before, after := r.URL.Query().Get("before"), r.URL.Query().Get("after")
	if after == "" {
		after = versions[0]
	}
	if before == "" {
		before = versions[min(1, len(versions)-1)]
	}
	choices := func(chosen string) (list []ui.Choice) {
		for _, v := range versions {
			name := v
			if v == h.Catalog.Current().Version() {
				name += " (in force)"
			}
			list = append(list, ui.Choice{ID: v, Name: name, Chosen: v == chosen})
		}
		return list
	}
	c.Blocks = []ui.Block{{Form: &ui.Ask{
		Search: true,
		Action: pricesPath + "/compare",
		Fields: []ui.Entry{
			{ID: "before", Label: "Before", Choices: choices(before)},
			{ID: "after", Label: "After", Choices: choices(after)},
		},
		Button: "Compare",
	}}}
	was, err := h.loadPriceLines(r, before)
	if err != nil {
		return c, err
	}
	is, err := h.loadPriceLines(r, after)
	if err != nil {
		return c, err
	}
	changes := comparePrices(was, is, formatDay(h.Service.Now()))
	n := countChanges(changes)
	c.Tiles = []ui.Tile{
		{Label: "Raised", Value: ui.Count(n.raised)}, {Label: "Lowered", Value: ui.Count(n.lowered)},
		{Label: "Added", Value: ui.Count(n.added)}, {Label: "Removed", Value: ui.Count(n.removed)},
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "Changes", Table: changeTable(changes)})
	return c, nil
}

// listVersions lists the versions that can be compared: first the one in force, then the stored ones, newest first,
// then the one that is part of the binary.
func (h *Handler) listVersions(r *http.Request) (versions []string, err error) {
	list, err := listPriceLists(r.Context(), h.DB, maxVersions)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: price lists: %w", err)
	}
	versions = []string{h.Catalog.Current().Version()}
	for _, v := range list {
		versions = append(versions, v.version)
	}
	versions = append(versions, h.Catalog.Builtin().Version())
	seen := map[string]bool{}
	return slices.DeleteFunc(versions, func(v string) bool {
		again := seen[v]
		seen[v] = true
		return again
	}), nil
}

// loadPriceLines returns the lines of a version.
func (h *Handler) loadPriceLines(r *http.Request, version string) (lines []priceLine, err error) {
	if current := h.Catalog.Current(); version == current.Version() {
		return priceLines(current), nil
	}
	text, err := getPriceLines(r.Context(), h.DB, version)
	if builtin := h.Catalog.Builtin(); errors.Is(err, sql.ErrNoRows) && version == builtin.Version() {
		return priceLines(builtin), nil
	} else if err != nil {
		return nil, notFound(err, "price list")
	}
	if err := json.Unmarshal([]byte(text), &lines); err != nil {
		return nil, fmt.Errorf("operatorpages: price list %s: %w", version, err)
	}
	return lines, nil
}

// changeTable lists the prices that differ.
func changeTable(list []priceChange) *ui.Table {
	t := &ui.Table{
		Label: "Changes",
		Heads: []ui.Head{
			{Name: "Model"},
			{Name: "Price"},
			{Name: "When"},
			{Name: "Before", End: true},
			{Name: "After", End: true},
			{Name: "Change", End: true},
		},
		Empty: "The prices of these versions are the same.",
	}
	for _, c := range list {
		model := ui.Cell{Text: c.model, Code: true, Sub: status.Title(c.provider)}
		if c.aboveInput > 0 {
			model.Sub += ", above " + ui.Count(c.aboveInput) + " input tokens"
		}
		when := ui.Cell{Text: "Now"}
		if c.day != "" {
			when.Text = "From " + formatDate(c.day)
		}
		before, after := ui.Cell{Text: "–"}, ui.Cell{Text: "–"}
		change := ui.Cell{Text: formatChange(c.beforeMC, c.afterMC), Tone: "good"}
		if c.afterMC > c.beforeMC {
			change.Tone = "bad"
		}
		if c.beforeMC > 0 {
			before.Text = c.beforeMC.Display()
		} else {
			change = ui.Cell{Text: "Added", Tone: "plain"}
		}
		if c.afterMC > 0 {
			after.Text = c.afterMC.Display()
		} else {
			change = ui.Cell{Text: "Removed", Tone: "plain"}
		}
		t.Rows = append(t.Rows, []ui.Cell{model, {Text: c.kind}, when, before, after, change})
	}
	return t
}
