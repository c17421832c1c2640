package docs

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/models/catalog"
)

// modelKinds are the parts of the page of models, in its order.
var modelKinds = []struct {
	title string
	has   func(catalog.Capabilities) bool
}{
	{"Text", func(c catalog.Capabilities) bool { return !c.Realtime && !c.Embeddings }},
	{"Voice", func(c catalog.Capabilities) bool { return c.Realtime }},
	{"Embeddings", func(c catalog.Capabilities) bool { return c.Embeddings }},
}

// showModels is GET /models: the models that can be called, with the providers' prices.
func (h *Handler) showModels(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	page := ui.ModelList{
		Docs:    newFrame(r, l, "/models"),
		Fee:     (h.FeeRate() * 100).String() + "%",
		BaseURL: h.BaseURL,
	}
	page.Query = strings.TrimSpace(r.URL.Query().Get("model"))
	listings := h.Models.List()
	slices.SortStableFunc(listings, func(a, b catalog.Listing) int { return cmp.Compare(a.Provider, b.Provider) })
	for _, kind := range modelKinds {
		group := ui.PriceGroup{Title: kind.title}
		for _, m := range listings {
			if kind.has(m.Capabilities) && matchesModel(m, page.Query) {
				group.Models = append(group.Models, describeModel(m))
			}
		}
		if len(group.Models) > 0 {
			page.Kinds = append(page.Kinds, group)
		}
	}
	return ui.RenderDocs(w, r, page)
}

// examplesPerProvider is how many models of a provider the front page shows.
const examplesPerProvider = 2

// ExamplePrices returns the prices of a few text models of each provider, for the front page.
func ExamplePrices(models *catalog.Handler) (rows []ui.PriceRow) {
	shown := map[string]int{}
	listings := models.List()
	slices.SortStableFunc(listings, func(a, b catalog.Listing) int { return cmp.Compare(a.Provider, b.Provider) })
	for _, m := range listings {
		if !modelKinds[0].has(m.Capabilities) || m.DeprecatedAt != nil || shown[m.Provider] == examplesPerProvider {
			continue
		}
		shown[m.Provider]++
		rows = append(rows, describeModel(m))
	}
	return rows
}

// matchesModel reports whether the name of a model or of its provider has the text.
func matchesModel(m catalog.Listing, text string) bool {
	return strings.Contains(strings.ToLower(m.Provider+" "+m.ID), strings.ToLower(text))
}

// describeModel returns a row of the page.
func describeModel(m catalog.Listing) ui.PriceRow {
	row := ui.PriceRow{
		ID:       m.ID,
		Provider: catalog.ProviderName(m.Provider),
		Input:    perMillion(m.Input),
		Cached:   perMillion(m.Cached),
		Output:   perMillion(m.Output),
		Context:  ui.Count(m.ContextWindow),
		Assumed:  m.IsPriceAssumed(),
	}
	if m.MaxOutputTokens > 0 {
		row.MaxOutput = ui.Count(m.MaxOutputTokens)
	}
	if v := m.Voice; v != nil {
		row.AudioInput, row.AudioOutput = perMillion(v.AudioInput), perMillion(v.AudioOutput)
	}
	c := m.Capabilities
	for _, can := range []struct {
		has  bool
		name string
	}{{c.Vision, "images"}, {c.Tools, "tools"}, {c.Reasoning, "reasoning"}} {
		if can.has {
			row.Can = append(row.Can, can.name)
		}
	}
	if m.RetiresAt != nil {
		row.Retires = m.RetiresAt.Format("2 January 2006")
	}
	return row
}

// perMillion turns a price per thousand tokens, with six decimals of a dollar, into dollars per million. It is exact;
// "" = nothing.
func perMillion(perThousand string) string {
	if perThousand == "0.000000" {
		return ""
	}
	whole, decimals, _ := strings.Cut(perThousand, ".")
	if len(decimals) != 6 {
		return "$" + perThousand + " / 1K" // no price of the catalog has this form
	}
	whole, decimals = strings.TrimLeft(whole+decimals[:3], "0"), strings.TrimRight(decimals[3:], "0")
	for len(decimals) < 2 {
		decimals += "0"
	}
	return "$" + cmp.Or(whole, "0") + "." + decimals
}
