package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	maxListed = 100 // most connections that a page lists
	weekDays  = 7   // days of a card's chart
)

// showConnections is GET /connections.
func (h *Handler) showConnections(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx, n := r.Context(), h.newAppNames()
	balance, err := store.GetBalance(ctx, h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: balance: %w", err)
	}
	live, err := store.LiveConnectionsOfAccount(ctx, h.DB, a.ID, maxListed+1)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	all, err := store.ConnectionsOfAccount(ctx, h.DB, a.ID, maxListed+1)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	requests, err := store.PendingRequestsOfAccount(ctx, h.DB, a.ID)
	if err != nil {
		return fmt.Errorf("dashboard: allocation requests: %w", err)
	}
	week, err := store.ListDailyTotals(ctx, h.DB, a.ID, "", formatDay(h.DB.Now().UTC(), 1-weekDays))
	if err != nil {
		return fmt.Errorf("dashboard: totals: %w", err)
	}
	page := ui.Connections{
		Person:    ui.Person{Shell: a.Shell(ui.Connected), Path: "/connections"},
		Reserved:  sumReserved(live, balance),
		LiveCount: len(live),
		More:      len(all) > maxListed,
		Done:      r.URL.Query().Get("done"),
	}
	live = live[:min(len(live), maxListed)]
	ended := slices.DeleteFunc(all, func(c rules.Connection) bool { return c.Status != rules.Revoked })
	show := r.URL.Query().Get("show")
	if !slices.Contains([]string{"active", "paused", "ended"}, show) {
		show = ""
	}
	if len(live)+len(ended) > 0 {
		page.Tabs = connectionTabs(live, ended, show)
	}
	switch show {
	case "active":
		live, ended = slices.DeleteFunc(live, isFrozen), nil
	case "paused":
		live, ended = slices.DeleteFunc(live, func(c rules.Connection) bool { return !isFrozen(c) }), nil
	case "ended":
		live = nil
	}
	if page.Live, err = h.makeCards(ctx, n, live, week, requests, "connections"); err != nil {
		return err
	}
	if page.Ended, err = h.makeCards(ctx, n, ended, week, nil, "connections"); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func isFrozen(c rules.Connection) bool { return c.Status == rules.Frozen }

// connectionTabs are the filters of the list, with the number of connections of each.
func connectionTabs(live, ended []rules.Connection, show string) []ui.Tab {
	paused := 0
	for _, c := range live {
		if isFrozen(c) {
			paused++
		}
	}
	tab := func(name, text string, count int) ui.Tab {
		t := ui.Tab{Href: "/connections", Text: fmt.Sprintf("%s (%d)", text, count), Current: show == name}
		if name != "" {
			t.Href += "?show=" + name
		}
		return t
	}
	return []ui.Tab{
		tab("", "All", len(live)+len(ended)), tab("active", "Active", len(live)-paused),
		tab("paused", "Paused", paused), tab("ended", "Ended", len(ended)),
	}
}

// makeCards returns the cards of connections. totals has at least the days of the cards' charts.
func (h *Handler) makeCards(ctx context.Context, n appNames, list []rules.Connection, totals []store.DailyTotal,
	requests map[string]rules.AllocationRequest, from string) ([]ui.ConnectionCard, error) {
	today, firstDay := h.DB.Now().UTC(), formatDay(h.DB.Now().UTC(), 1-weekDays)
	weeks := map[string]map[string]money.MC{} // connection → day → spend
	for _, t := range totals {
		if t.Day < firstDay {
			continue
		}
		if weeks[t.ConnectionID] == nil {
			weeks[t.ConnectionID] = map[string]money.MC{}
		}
		weeks[t.ConnectionID][t.Day] += t.UserChargeMC
	}
	cards := make([]ui.ConnectionCard, 0, len(list))
	for i := range list {
		c := &list[i]
		app, err := n.get(ctx, c.AppID)
		if err != nil {
			return nil, err
		}
		f, err := h.explainFreeze(ctx, c)
		if err != nil {
			return nil, err
		}
		card := ui.ConnectionCard{
			Funds:     describeFunds(*c, app, f),
			ID:        c.ID,
			From:      from,
			Percent:   meterPercent(c.ConsumedMC, c.AllocationMC),
			Resumable: c.FrozenBy == rules.FrozenByUser,
		}
		var spent money.MC
		for back := weekDays - 1; back >= 0; back-- {
			on := weeks[c.ID][formatDay(today, -back)]
			card.Week = append(card.Week, int64(on))
			spent += on
		}
		card.WeekSpent = ui.TotalMoney(spent)
		if request, ok := requests[c.ID]; ok {
			card.Request, card.RequestTarget = request.ID, ui.Dollars(request.TargetMC)
		}
		cards = append(cards, card)
	}
	return cards, nil
}
