package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Bounds of the overview.
const (
	maxShares  = 6
	maxRecent  = 40 // rows, before they are folded
	maxConcern = 5
	maxCards   = 6
)

// showOverview is GET /dashboard.
func (h *Handler) showOverview(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx, n := r.Context(), h.newAppNames()
	balance, err := store.GetBalance(ctx, h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: balance: %w", err)
	}
	today := h.DB.Now().UTC()
	p := readPeriod(r)
	days, err := store.ListDailyTotals(ctx, h.DB, a.ID, "", formatDay(today, 1-2*max(p.days, chartDays)))
	if err != nil {
		return fmt.Errorf("dashboard: totals: %w", err)
	}
	spending, err := h.loadSpending(ctx, p, a.ID, "", days)
	if err != nil {
		return err
	}
	list, err := store.LiveConnectionsOfAccount(ctx, h.DB, a.ID, maxListed)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	rows, next, err := store.BrowseEntries(ctx, h.DB, store.EntryFilter{AccountID: a.ID}, 0, maxRecent)
	if err != nil {
		return fmt.Errorf("dashboard: activity: %w", err)
	}
	requests, err := store.PendingRequestsOfAccount(ctx, h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	page := ui.Dashboard{
		Shell:     a.Shell(ui.Overview),
		Available: ui.Money(balance.AvailableMC),
		Reserved:  sumReserved(list, balance),
		Sandbox:   a.Sandbox,
		NewHere:   balance.Seq == 0 && len(list) == 0,
		Open:      len(list),
		Period:    p.String(),
		Choices:   p.choices("/dashboard"),
		Chart:     spending.chart(url.Values{}),
		Pace:      estimatePace(balance.AvailableMC+balance.ReservedMC, sumByDay(days), today),
	}
	spent := sumTotals(spending.totals)
	page.Spent, page.Compared = ui.TotalMoney(spent), compareSpend(spent, sumTotals(spending.before))
	if !a.Sandbox {
		if page.AutoTopUp, page.AutoTopUpOff, err = h.TopUps.DescribeAutomatic(ctx, a.ID); err != nil {
			return err
		}
	}
	if page.Shares, err = breakdowns(ctx, n, spending); err != nil {
		return err
	}
	if page.Summary, err = h.loadSummary(ctx, n, a.ID); err != nil {
		return err
	}
	if page.Recent, err = foldEntries(ctx, n, rows, next > 0); err != nil {
		return err
	}
	for _, c := range list {
		if c.Status == rules.Active {
			page.Active++
		}
	}
	if page.Running, err = h.listRunning(ctx, n, a.ID); err != nil {
		return err
	}
	if page.Cards, err = h.makeCards(ctx, n, list[:min(len(list), maxCards)], days, requests, "overview"); err != nil {
		return err
	}
	page.Done = r.URL.Query().Get("done")
	if page.Done == "pause" && (page.Open == 0 || page.Active > 0) || !slices.Contains(doneTexts, page.Done) {
		page.Done = ""
	}
	if page.Concerns, err = listConcerns(ctx, n, list, requests); err != nil {
		return err
	}
	if len(days) == 0 { // no call of the last days: a new user, or one who comes back
		all, err := store.ConnectionsOfAccount(ctx, h.DB, a.ID, maxListed)
		if err != nil {
			return fmt.Errorf("dashboard: connections: %w", err)
		}
		page.Tasks = listTasks(a, balance, all)
	}
	return ui.Render(w, http.StatusOK, page)
}

// doneTexts are what a page confirms that the user has just done.
var doneTexts = []string{"pause", "freeze", "resume"}

// confirmDone returns what a user has just done to a connection, if its status is still that.
func confirmDone(r *http.Request, status rules.ConnectionStatus) string {
	done := r.URL.Query().Get("done")
	if done == "freeze" && status == rules.Frozen || done == "resume" && status == rules.Active {
		return done
	}
	return ""
}

// listTasks returns the steps of the first use, or nil if all are done.
func listTasks(a accounts.Account, balance rules.Balance, list []rules.Connection) []ui.Task {
	funded, connected, used := balance.AvailableMC+balance.ReservedMC > 0, len(list) > 0, false
	for _, c := range list {
		used = used || c.ConsumedMC > 0
	}
	if used {
		return nil
	}
	top := ui.Task{
		Text: "Add money to your balance",
		Hint: "You decide which apps can use it.",
		Done: funded,
		Link: &ui.Link{Href: "/top-up", Text: "Top up"},
	}
	if a.Sandbox {
		top.Hint, top.Link = "Test accounts need no top-up: their developer adds test money.", nil
	}
	return []ui.Task{top,
		{
			Text: "Connect an app",
			Hint: "Choose “Connect with Purser” in an app. You set its spend cap, the most it can ever spend.",
			Done: connected,
		},
		{
			Text: "See your first call here",
			Hint: "Every call has a receipt. You can pause or revoke the app at any time.",
			Done: used,
		},
	}
}

// sumReserved writes what is set aside for connections, as the sum of what their cards show, and of what running calls
// of ended connections still hold.
func sumReserved(list []rules.Connection, balance rules.Balance) ui.Amount {
	rest, parts := balance.ReservedMC, make([]money.MC, 0, len(list)+1)
	for _, c := range list {
		parts = append(parts, c.AllocationMC-c.ConsumedMC)
		rest -= c.AllocationMC - c.ConsumedMC
	}
	return ui.SumDollars(append(parts, max(rest, 0))...)
}

func formatDay(today time.Time, plusDays int) string {
	return today.AddDate(0, 0, plusDays).Format(time.DateOnly)
}

// filteredActivity returns the address of the activity with a filter and further pairs of names and values.
func filteredActivity(filter url.Values, pairs ...string) string {
	query := maps.Clone(filter)
	for i := 0; i < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return "/activity?" + query.Encode()
}

// breakdowns sums the spend of a period by app, feature and model. The lines that are not shown are summed in the last
// one. Apps and models lead to their activity.
func breakdowns(ctx context.Context, n appNames, s spending) ([]ui.Shares, error) {
	var out []ui.Shares
	for _, kind := range []struct {
		title, head string
		name        func(store.DailyTotal) (string, error)
		filter      string // of the activity; "" = it has none for this
		value       func(store.DailyTotal) string
	}{
		{
			title:  "By app",
			head:   "App",
			name:   func(t store.DailyTotal) (string, error) { return n.nameOf(ctx, t.AppID) },
			filter: "app",
			value:  func(t store.DailyTotal) string { return t.AppID },
		},
		{
			title: "By feature",
			head:  "Feature",
			name:  func(t store.DailyTotal) (string, error) { return cmp.Or(t.Feature, "No feature"), nil },
		},
		{
			title:  "By model",
			head:   "Model",
			name:   func(t store.DailyTotal) (string, error) { return t.Model, nil },
			filter: "model",
			value:  func(t store.DailyTotal) string { return t.Model },
		},
	} {
		list, rest, err := sumShares(s.totals, kind.name)
		if err != nil {
			return nil, err
		}
		if kind.filter != "" {
			if err := linkShares(list, s.totals, kind.name, func(t store.DailyTotal) string {
				return filteredActivity(url.Values{}, kind.filter, kind.value(t), "from", s.from())
			}); err != nil {
				return nil, err
			}
		}
		if len(list) > 0 {
			out = append(out, ui.Shares{Title: kind.title, Head: kind.head, List: list, More: rest})
		}
	}
	return out, nil
}

// linkShares gives each share the address of its totals. Shares of the same name as several values have none.
func linkShares(list []ui.Share, totals []store.DailyTotal, nameOf func(store.DailyTotal) (string, error),
	address func(store.DailyTotal) string) error {
	hrefs := map[string]string{}
	for _, t := range totals {
		name, err := nameOf(t)
		if err != nil {
			return err
		}
		if known, ok := hrefs[name]; ok && known != address(t) {
			hrefs[name] = ""
			continue
		}
		hrefs[name] = address(t)
	}
	for i := range list {
		list[i].Href = hrefs[list[i].Name]
	}
	return nil
}

// sumShares sums the spend by name, largest first. If there are more than maxShares names, the last line is the sum of
// rest of them. The amounts add up to the total.
func sumShares(totals []store.DailyTotal, nameOf func(store.DailyTotal) (string, error)) (shares []ui.Share, rest int,
	err error) {
	type sum struct {
		name  string
		spent money.MC
		calls int64
	}
	sums := map[string]*sum{}
	for _, t := range totals {
		name, err := nameOf(t)
		if err != nil {
			return nil, 0, err
		}
		if sums[name] == nil {
			sums[name] = &sum{name: name}
		}
		sums[name].spent += t.UserChargeMC
		sums[name].calls += t.Calls
	}
	list := slices.SortedFunc(maps.Values(sums), func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.spent, a.spent), cmp.Compare(a.name, b.name))
	})
	if len(list) > maxShares {
		others := &sum{}
		for _, s := range list[maxShares-1:] {
			others.spent += s.spent
			others.calls += s.calls
		}
		rest = len(list) - maxShares + 1
		others.name = fmt.Sprintf("%d others", rest)
		list = append(list[:maxShares-1:maxShares-1], others)
	}
	parts := make([]money.MC, len(list))
	for i, s := range list {
		parts[i] = s.spent
	}
	spent := ui.SplitTotal(parts...)
	for i, s := range list {
		shares = append(shares, ui.Share{
			Name:    s.name,
			Spent:   spent[i],
			Calls:   ui.Count(s.calls),
			Percent: meterPercent(s.spent, list[0].spent),
		})
	}
	return shares, rest, nil
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
func listConcerns(ctx context.Context, n appNames, list []rules.Connection,
	requests map[string]rules.AllocationRequest) (out []ui.Concern, err error) {
	for _, c := range list {
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
