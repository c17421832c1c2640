package dashboard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Bounds of the overview.
const (
	chartDays  = 30
	maxShares  = 6
	maxRecent  = 8
	maxConcern = 5
)

// appNames caches the names of apps for one page.
type appNames struct {
	apps  *apps.Store
	names map[string]string
}

func (h *Handler) newAppNames() appNames { return appNames{h.Apps, map[string]string{}} }

// nameOf returns the name of an app; "" for no app.
func (n appNames) nameOf(ctx context.Context, appID string) (string, error) {
	if name, ok := n.names[appID]; ok || appID == "" {
		return name, nil
	}
	app, err := n.apps.Get(ctx, appID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("dashboard: app: %w", err)
	}
	n.names[appID] = cmp.Or(app.Name, appID)
	return n.names[appID], nil
}

// showOverview is GET /dashboard.
func (h *Handler) showOverview(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx := r.Context()
	balance, err := store.GetBalance(ctx, h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: balance: %w", err)
	}
	totals, err := store.ListDailyTotals(ctx, h.DB, a.ID, "", h.firstChartDay())
	if err != nil {
		return fmt.Errorf("dashboard: totals: %w", err)
	}
	list, err := store.ConnectionsOfAccount(ctx, h.DB, a.ID, maxListed)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	rows, _, err := store.BrowseEntries(ctx, h.DB, store.EntryFilter{AccountID: a.ID}, 0, maxRecent)
	if err != nil {
		return fmt.Errorf("dashboard: activity: %w", err)
	}
	n := h.newAppNames()
	page := ui.Dashboard{
		Shell:     a.Shell(ui.Overview),
		Available: ui.Money(balance.AvailableMC),
		Reserved:  ui.Money(balance.ReservedMC),
		Sandbox:   a.Sandbox,
		NewHere:   balance.Seq == 0 && len(list) == 0,
		Chart:     h.spendChart(totals),
	}
	var spent money.MC
	for _, t := range totals {
		spent += t.UserChargeMC
	}
	page.Spent = ui.TotalMoney(spent)
	if page.Shares, err = breakdowns(ctx, n, totals); err != nil {
		return err
	}
	if page.Recent, err = formatEntries(ctx, n, rows); err != nil {
		return err
	}
	for _, c := range list {
		if c.Status != rules.Revoked {
			page.Open++
		}
		if c.Status == rules.Active {
			page.Active++
		}
	}
	if page.Running, err = h.listRunning(ctx, n, a.ID); err != nil {
		return err
	}
	page.Paused = r.URL.Query().Get("done") == "pause" && page.Open > 0 && page.Active == 0
	if page.Concerns, err = h.listConcerns(ctx, n, a.ID, list); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// firstChartDay returns the first day of the chart.
func (h *Handler) firstChartDay() string {
	return h.DB.Now().UTC().AddDate(0, 0, 1-chartDays).Format(time.DateOnly)
}

// spendChart draws the spend of each day, including days without any.
func (h *Handler) spendChart(totals []store.DailyTotal) ui.Chart {
	spent, calls := map[string]money.MC{}, map[string]int64{}
	var all money.MC
	for _, t := range totals {
		spent[t.Day] += t.UserChargeMC
		calls[t.Day] += t.Calls
		all += t.UserChargeMC
	}
	c := ui.Chart{
		ID:    "by-day",
		Title: fmt.Sprintf("Spend by day, the last %d days", chartDays),
		Heads: [3]string{"Day (UTC)", "Spent", "Calls"},
		Desc:  fmt.Sprintf("%s in total. The table below has the same numbers.", ui.Total(all)),
	}
	today := h.DB.Now().UTC()
	for i := chartDays - 1; i >= 0; i-- {
		day := today.AddDate(0, 0, -i)
		b := ui.Bar{Label: day.Format("2 Jan"), Amount: spent[day.Format(time.DateOnly)]}
		if n := calls[day.Format(time.DateOnly)]; n > 0 {
			b.Note = ui.Count(n)
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}

// breakdowns sums the spend by app, feature and model.
func breakdowns(ctx context.Context, n appNames, totals []store.DailyTotal) ([]ui.Shares, error) {
	type sum struct {
		name  string
		spent money.MC
		calls int64
	}
	var out []ui.Shares
	for _, kind := range []struct {
		title, head string
		name        func(store.DailyTotal) (string, error)
	}{
		{"By app", "App", func(t store.DailyTotal) (string, error) { return n.nameOf(ctx, t.AppID) }},
		{"By feature", "Feature", func(t store.DailyTotal) (string, error) {
			return cmp.Or(t.Feature, "No feature"), nil
		}},
		{"By model", "Model", func(t store.DailyTotal) (string, error) { return t.Model, nil }},
	} {
		sums := map[string]*sum{}
		for _, t := range totals {
			name, err := kind.name(t)
			if err != nil {
				return nil, err
			}
			if sums[name] == nil {
				sums[name] = &sum{name: name}
			}
			sums[name].spent += t.UserChargeMC
			sums[name].calls += t.Calls
		}
		var list []*sum
		for _, s := range sums {
			list = append(list, s)
		}
		slices.SortFunc(list, func(a, b *sum) int {
			return cmp.Or(cmp.Compare(b.spent, a.spent), cmp.Compare(a.name, b.name))
		})
		shares := ui.Shares{Title: kind.title, Head: kind.head, More: max(len(list)-maxShares, 0)}
		parts := make([]money.MC, len(list))
		for i, s := range list {
			parts[i] = s.spent
		}
		spent := ui.SplitTotal(parts...)
		for i, s := range list[:min(len(list), maxShares)] {
			shares.List = append(shares.List, ui.Share{
				Name:    s.name,
				Spent:   spent[i],
				Calls:   ui.Count(s.calls),
				Percent: meterPercent(s.spent, list[0].spent),
			})
		}
		if len(list) > 0 {
			out = append(out, shares)
		}
	}
	return out, nil
}

// meterPercent returns a share in percent, rounded down, for a meter.
func meterPercent(part, whole money.MC) int {
	if part <= 0 || whole <= 0 {
		return 0
	}
	p, err := money.MulDiv(int64(min(part, whole)), 100, int64(whole), money.Down)
	if err != nil {
		return 0
	}
	return int(p)
}

// listConcerns returns the connections that need a decision of the user.
func (h *Handler) listConcerns(ctx context.Context, n appNames, accountID string,
	list []rules.Connection) (out []ui.Concern, err error) {
	requests, err := store.PendingRequestsOfAccount(ctx, h.DB, accountID)
	if err != nil {
		return nil, fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	for _, c := range list {
		if c.Status == rules.Revoked {
			continue
		}
		concern := ui.Concern{}
		if concern.App, err = n.nameOf(ctx, c.AppID); err != nil {
			return nil, err
		}
		request, asks := requests[c.ID]
		switch {
		case c.Status == rules.Frozen:
			concern.Why, concern.Badge, concern.Href, concern.Action = "Paused", "bad", reviewPath(c.ID), "Review"
		case asks:
			concern.Why, concern.Badge, concern.Href, concern.Action = "Requested a spend cap of "+
				ui.Dollars(request.TargetMC), "warn", "/allocation-requests/"+request.ID, "Decide"
		case c.EffectiveStatus() == "exhausted":
			concern.Why, concern.Badge, concern.Href, concern.Action = "Spend cap used up", "warn", increasePath(c.ID),
				"Change spend cap"
		default:
			continue
		}
		if out = append(out, concern); len(out) == maxConcern {
			break
		}
	}
	return out, nil
}

// entryNames are the names of the types of ledger rows on pages.
var entryNames = map[rules.EntryType]string{
	rules.EntrySpend:   "Call",
	rules.EntryTopUp:   "Top-up",
	rules.EntryConnect: "Connected",
	rules.EntryCap:     "Cap changed",
	rules.EntryRevoke:  "Connection ended",
	rules.EntryRelease: "Unspent money returned",
}

// entryName returns the name of a ledger row on pages.
func entryName(e *rules.Entry) string {
	if e.Status == "reversed" && e.Type == rules.EntrySpend {
		return "Refund"
	}
	return cmp.Or(entryNames[e.Type], string(e.Type))
}

// formatEntries returns ledger rows for a list.
func formatEntries(ctx context.Context, n appNames, rows []rules.Entry) ([]ui.Row, error) {
	out := make([]ui.Row, 0, len(rows))
	for i := range rows {
		e := &rows[i]
		app, err := n.nameOf(ctx, e.AppID)
		if err != nil {
			return nil, err
		}
		change := e.AvailableDeltaMC + e.ReservedDeltaMC
		row := ui.Row{
			Href:    "/activity/" + e.ID,
			When:    timestamp.Format(e.CreatedUS),
			Shown:   time.UnixMicro(e.CreatedUS).UTC().Format("2 Jan 2006, 15:04:05"),
			What:    entryName(e),
			App:     app,
			Model:   e.Model,
			Feature: e.Feature,
			Change:  ui.Signed(ui.TotalMoney(change), change),
		}
		if e.Type == rules.EntrySpend {
			row.Change = ui.Signed(ui.PriceMoney(change), change)
		}
		switch {
		case e.PaidBy == rules.PaidByFreeCredit:
			row.Note = "paid by free credit: " + ui.Price(e.UserChargeMC)
		case e.ReversedBy != "":
			row.Note = "refunded"
		case e.Settlement == rules.Estimated:
			row.Note = "estimated"
		case change == 0 && e.Type != rules.EntrySpend:
			row.Moved, row.Note = true, describeMove(e)
		}
		out = append(out, row)
	}
	return out, nil
}

// describeMove describes money that a row moved between available and reserved.
func describeMove(e *rules.Entry) string {
	switch {
	case e.ReservedDeltaMC > 0:
		return ui.Total(e.ReservedDeltaMC) + " reserved"
	case e.ReservedDeltaMC < 0:
		return ui.Total(-e.ReservedDeltaMC) + " returned"
	}
	return "–"
}
