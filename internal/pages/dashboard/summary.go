package dashboard

import (
	"context"
	"net/url"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/summary"
)

// loadSummary explains an account's spend of this month, with links to the activity that each sentence is about. It
// returns none if there is nothing to compare.
func (h *Handler) loadSummary(ctx context.Context, n appNames, accountID string) (list []ui.SummaryLine, err error) {
	s, p, err := receipts.LoadSummary(ctx, h.DB, h.Catalog.Current(), accountID, "")
	if err != nil || !s.Comparable() {
		return nil, err
	}
	for i := range s.Causes { // sentences name apps that are loaded
		if _, err := n.get(ctx, s.Causes[i].App); err != nil {
			return nil, err
		}
	}
	for _, sentence := range s.Sentences(p, func(app string) string { return n.list[app].Name }) {
		list = append(list, ui.SummaryLine{Text: sentence.Text, Link: linkCause(p, sentence.Cause)})
	}
	return list, nil
}

// linkCause returns the link to the activity of a cause, or of the month.
func linkCause(p summary.Period, c *summary.Cause) ui.Link {
	if c == nil {
		return ui.Link{Href: "/activity?month=" + p.Month(), Text: "See this month"}
	}
	filter := url.Values{"app": {c.App}, "from": {p.Now.From}}
	if c.Model != "" {
		filter.Set("model", c.Model)
	}
	if c.Kind == summary.Refunds {
		filter.Set("type", refunds)
		return ui.Link{Href: filteredActivity(filter), Text: "See the refunds"}
	}
	if c.Calls == 0 {
		filter.Set("from", p.Before.From)
		filter.Set("to", p.Before.To)
		return ui.Link{Href: filteredActivity(filter), Text: "See the earlier calls"}
	}
	return ui.Link{Href: filteredActivity(filter), Text: "See the calls"}
}
