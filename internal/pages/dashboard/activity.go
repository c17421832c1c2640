package dashboard

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Rows of a page, and of a step of an export.
const (
	activityPage = 100
	exportStep   = 1000
)

// modelDays is how far back the filter looks for models that were used, and maxModels the most that it offers.
const (
	modelDays = 365
	maxModels = 100
)

// Forms of a month and of a minute in an address: 2026-11, 2026-11-21T10:00.
const (
	monthLayout  = "2006-01"
	minuteLayout = "2006-01-02T15:04"
)

// refunds is the filter value for reversals, which have the type of the row that they reverse.
const refunds = "refund"

// noEntryText explains an id that leads nowhere.
const noEntryText = "You have no entry with this id. Enter the id of an entry (led_…), a call (req_…) or a " +
	"connection (conn_…)."

// activityFilters are the names of the filters in a query.
var activityFilters = []string{"type", "app", "connection", "model", "from", "to", "month"}

// A search is the query of the activity page.
type search struct {
	store.EntryFilter
	list   ui.List   // without rows and chips
	before int64     // 0 = from the newest
	month  time.Time // first day of the month of a statement; zero = none
}

// readSearch reads the query. It leaves out invalid dates and returns them as problems.
func readSearch(r *http.Request, accountID string) (s search, problems []ui.Problem, err error) {
	q, err := web.ReadQuery(r)
	if err != nil {
		return search{}, nil, err
	}
	for name := range q {
		q.Set(name, strings.TrimSpace(q.Get(name)))
	}
	if find := q.Get("find"); strings.HasPrefix(find, id.Connection) {
		q.Set("connection", find)
		q.Del("find")
	}
	s = search{EntryFilter: store.EntryFilter{
		AccountID:    accountID,
		AppID:        q.Get("app"),
		ConnectionID: q.Get("connection"),
		Model:        q.Get("model"),
	}, list: ui.NewList("/activity", q, activityFilters...)}
	s.list.Label, s.list.Sizes = "Entries", nil // pages have one size: a day's rows are folded
	s.list.Search = &ui.ListSearch{
		Name:  "find",
		Label: "Find an entry by its id",
		Hint:  "Id of an entry, a call or a connection",
		Value: q.Get("find"),
	}
	if s.Type = rules.EntryType(q.Get("type")); s.Type == refunds {
		s.Type, s.Reversed = rules.EntrySpend, true
	}
	moment := func(field string, plusDays int) int64 {
		if q.Get(field) == "" {
			return 0
		}
		at, err := parseMoment(q.Get(field), plusDays)
		if err != nil || at.Year() < 2000 || at.Year() > 9000 {
			problems = append(problems, ui.Problem{Field: field, Text: "Enter a date such as 2026-11-21."})
			return 0
		}
		return at.UnixMicro()
	}
	s.FromUS, s.ToUS = moment("from", 0), moment("to", 1)
	if text := q.Get("month"); text != "" {
		month, err := time.Parse(monthLayout, text)
		if err != nil || month.Year() < 2000 || month.Year() > 9000 {
			return search{}, nil, apierr.InvalidRequest.Errorf("month: must be a month such as 2026-11")
		}
		s.month, s.FromUS, s.ToUS = month, month.UnixMicro(), month.AddDate(0, 1, 0).UnixMicro()
	}
	if text := q.Get("before"); text != "" {
		if s.before, err = strconv.ParseInt(text, 10, 64); err != nil || s.before < 1 {
			return search{}, nil, apierr.InvalidRequest.Errorf("before: must be a number from a link of this list")
		}
	}
	return s, problems, nil
}

// parseMoment reads a day, to which it adds plusDays, or a minute in UTC.
func parseMoment(text string, plusDays int) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, plusDays), nil
	}
	return time.Parse(minuteLayout, text)
}

// showActivity is GET /activity.
func (h *Handler) showActivity(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s, problems, err := readSearch(r, a.ID)
	if err != nil {
		return err
	}
	if find := s.list.Search.Value; find != "" {
		receipt, err := h.findReceipt(r.Context(), a, find)
		if err != nil {
			return err
		} else if receipt != "" {
			return web.SeeOther(w, receipt)
		}
		s.list.Search.Problem = noEntryText
	}
	page := ui.Activity{
		Shell:         a.Shell(ui.Activities),
		StatementHref: "/activity?month=" + h.DB.Now().UTC().Format(monthLayout),
		Errors:        problems,
	}
	n := h.newAppNames()
	if err := h.addFilters(r.Context(), n, &s, problems); err != nil {
		return err
	}
	s.list.CSV = s.list.Download("/activity.csv")
	s.list.Finish(s.before == 0, "")
	if page.List = s.list; len(problems) > 0 || s.list.Search.Problem != "" {
		page.List.Empty = "Correct the filter to see activity."
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	if !s.month.IsZero() {
		if page.Statement, err = h.makeStatement(r.Context(), n, s); err != nil {
			return err
		}
		if s.month.Before(h.DB.Now()) {
			page.Statement.File = "/statements/" + s.month.Format(monthLayout)
		}
	}
	if err := h.readDays(r.Context(), n, s, &page.List); err != nil {
		return err
	}
	switch {
	case page.List.Older != "":
		page.List.Empty = "No results on this page. Older entries may match."
	case page.List.Filtered():
		page.List.Empty = "No results. Try a longer period or fewer filters."
	case page.Statement != nil:
		page.List.Empty = "Nothing happened in this month."
	}
	return ui.Render(w, http.StatusOK, page)
}

// readDays reads a page of rows and folds them by day.
func (h *Handler) readDays(ctx context.Context, n appNames, s search, t *ui.List) error {
	rows, next, err := store.BrowseEntries(ctx, h.DB, s.EntryFilter, s.before, activityPage)
	if err != nil {
		return fmt.Errorf("dashboard: activity: %w", err)
	}
	if t.Days, err = foldEntries(ctx, n, rows, next > 0); err != nil {
		return err
	}
	for _, day := range t.Days {
		for _, g := range day.Groups {
			for i := range g.Rows {
				g.Rows[i].Drawer = g.Rows[i].Href + "?part=drawer"
			}
		}
	}
	if next > 0 {
		t.Older = t.Link("before", strconv.FormatInt(next, 10))
	}
	return nil
}

// findReceipt returns the address of the receipt of a ledger row or a call; "" = the account has none with this id.
func (h *Handler) findReceipt(ctx context.Context, a accounts.Account, text string) (href string, err error) {
	switch {
	case strings.HasPrefix(text, id.Ledger):
		_, _, err = h.loadEntry(ctx, a, text)
		href = "/activity/" + text
	case strings.HasPrefix(text, id.Request):
		_, err = h.findCallOwner(ctx, a, text)
		href = "/requests/" + text
	}
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.NotFound {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return href, nil
}

// addFilters adds the chips of the list: the types, the apps and models that the account has used, and the time.
func (h *Handler) addFilters(ctx context.Context, n appNames, s *search, problems []ui.Problem) error {
	list, err := store.ConnectionsOfAccount(ctx, h.DB, s.AccountID, maxListed)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	today := h.DB.Now().UTC()
	models, err := store.ListUsedModels(ctx, h.DB, s.AccountID, formatDay(today, -modelDays), maxModels)
	if err != nil {
		return fmt.Errorf("dashboard: models: %w", err)
	}
	types := []ui.Option{{Text: "Everything"}, {ID: refunds, Text: "Refunds"}}
	for kind, name := range entryNames {
		types = append(types, ui.Option{ID: string(kind), Text: name})
	}
	slices.SortFunc(types[1:], func(a, b ui.Option) int { return cmp.Compare(a.Text, b.Text) })
	t := &s.list
	t.AddFilter("type", "Type", withChosen(types, t.Query.Get("type")))
	apps := []ui.Option{{Text: "All apps"}}
	for _, c := range list {
		app, err := n.nameOf(ctx, c.AppID)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(apps, func(o ui.Option) bool { return o.ID == c.AppID }) {
			apps = append(apps, ui.Option{ID: c.AppID, Text: app})
		}
	}
	t.AddFilter("app", "App", withChosen(apps, s.AppID))
	options := []ui.Option{{Text: "All models"}}
	for _, model := range models {
		options = append(options, ui.Option{ID: model, Text: model})
	}
	t.AddFilter("model", "Model", withChosen(options, s.Model))
	if s.ConnectionID != "" { // by a link or by its id: apps are what people know
		t.AddFilter("connection", "Connection",
			[]ui.Option{{Text: "All connections"}, {ID: s.ConnectionID, Text: "…" + lastCharacters(s.ConnectionID)}})
	}
	addTimeFilter(t, today, problems)
	return nil
}

// withChosen adds a value that is set and no option yet: an address may have any.
func withChosen(options []ui.Option, chosen string) []ui.Option {
	if slices.ContainsFunc(options, func(o ui.Option) bool { return o.ID == chosen }) {
		return options
	}
	return append(options, ui.Option{ID: chosen, Text: chosen})
}

// lastCharacters returns the end of an id, in which ids of one day differ.
func lastCharacters(id string) string { return id[max(len(id)-6, 0):] }

// addTimeFilter adds the chip for the time: days that count back from today, or two dates.
func addTimeFilter(t *ui.List, today time.Time, problems []ui.Problem) {
	from, to := t.Query.Get("from"), t.Query.Get("to")
	field := func(name, label, value string) ui.Field {
		f := ui.Field{ID: name, Label: label, Kind: "date"}
		if _, err := time.Parse(minuteLayout, value); err == nil {
			f.Kind = "" // an hour of a chart
		}
		return f
	}
	f := t.AddFilter("from", "Date", []ui.Option{
		{Text: "Any time"}, {ID: formatDay(today, 0), Text: "Today"},
		{ID: formatDay(today, -6), Text: "Last 7 days"}, {ID: formatDay(today, -29), Text: "Last 30 days"},
	}, field("from", "From (UTC)", from), field("to", "Until (UTC)", to))
	if to != "" {
		for i := range f.Choices {
			f.Choices[i].Current = false
		}
	}
	switch {
	case from != "" && from == to:
		f.Chosen = from
	case from != "" && to != "":
		f.Chosen = from + " – " + to
	case to != "":
		f.Chosen = "until " + to
	case f.Chosen == from && from != "":
		f.Chosen = "since " + from
	}
	for _, p := range problems {
		f.Problem = p.Text
	}
}

// makeStatement sums up the spend of the month of s by app, from the daily totals.
func (h *Handler) makeStatement(ctx context.Context, n appNames, s search) (*ui.Statement, error) {
	first, next := s.month.Format(time.DateOnly), s.month.AddDate(0, 1, 0)
	totals, err := store.ListDailyTotals(ctx, h.DB, s.AccountID, "", first)
	if err != nil {
		return nil, fmt.Errorf("dashboard: totals: %w", err)
	}
	totals = slices.DeleteFunc(totals, func(t store.DailyTotal) bool { return t.Day >= next.Format(time.DateOnly) })
	page := &ui.Statement{Month: s.month.Format("January 2006"), Spent: ui.TotalMoney(sumTotals(totals))}
	var calls int64
	for _, t := range totals {
		calls += t.Calls
	}
	page.Calls = ui.Count(calls)
	if page.ByApp, _, err = sumShares(totals, func(t store.DailyTotal) (string, error) {
		return n.nameOf(ctx, t.AppID)
	}); err != nil {
		return nil, err
	}
	link := func(month time.Time) *ui.Link {
		return &ui.Link{Href: "/activity?month=" + month.Format(monthLayout), Text: month.Format("January 2006")}
	}
	page.Previous = link(s.month.AddDate(0, -1, 0))
	if next.Before(h.DB.Now().UTC()) {
		page.Next = link(next)
	}
	return page, nil
}

// exportActivity is GET /activity.csv: all rows of the list, streamed.
func (h *Handler) exportActivity(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s, problems, err := readSearch(r, a.ID)
	if err != nil {
		return err
	} else if len(problems) > 0 {
		return apierr.InvalidRequest.Errorf("%s: %s", problems[0].Field, problems[0].Text)
	}
	rows, next, err := store.BrowseEntries(r.Context(), h.DB, s.EntryFilter, s.before, exportStep)
	if err != nil {
		return fmt.Errorf("dashboard: export: %w", err)
	}
	ui.SetDownload(w, "purser-activity.csv")
	out, n := csv.NewWriter(w), h.newAppNames()
	if err := out.Write(strings.Split(csvColumns, " ")); err != nil {
		return err
	}
	for {
		for i := range rows {
			app, err := n.nameOf(r.Context(), rows[i].AppID)
			if err != nil {
				return err
			}
			what, err := n.entryName(r.Context(), &rows[i])
			if err != nil {
				return err
			}
			if err := out.Write(csvRecord(&rows[i], what, app)); err != nil {
				return err
			}
		}
		if out.Flush(); next == 0 || out.Error() != nil {
			return out.Error()
		}
		if rows, next, err = store.BrowseEntries(r.Context(), h.DB, s.EntryFilter, next, exportStep); err != nil {
			return fmt.Errorf("dashboard: export: %w", err)
		}
	}
}

// csvColumns are the columns of the export. Amounts are whole micro-cents: 100,000,000 are a US dollar.
const csvColumns = "id seq created_at what type status reversal_of app connection_id feature model settlement " +
	"paid_by hold_mc provider_cost_mc svc_fee_mc dev_margin_mc user_charge_mc available_change_mc reserved_change_mc"

func csvRecord(e *rules.Entry, what, app string) []string {
	list := []string{
		e.ID, strconv.FormatInt(e.Seq, 10), timestamp.Format(e.CreatedUS), what, string(e.Type), e.Status,
		e.ReversalOf, ui.EscapeFormula(app), e.ConnectionID,
		ui.EscapeFormula(e.Feature), ui.EscapeFormula(e.Model), string(e.Settlement), e.PaidBy,
	}
	for _, mc := range []int64{int64(e.HoldMC), int64(e.ProviderCostMC), int64(e.SvcFeeMC), int64(e.DevMarginMC),
		int64(e.UserChargeMC), int64(e.AvailableDeltaMC), int64(e.ReservedDeltaMC)} {
		list = append(list, strconv.FormatInt(mc, 10))
	}
	return list
}
