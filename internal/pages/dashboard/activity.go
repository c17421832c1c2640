package dashboard

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
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

// monthLayout is the form of a month in an address: 2026-11.
const monthLayout = "2006-01"

// refunds is the filter value for reversals, which have the type of the row that they reverse.
const refunds = "refund"

// A search is the query of the activity page.
type search struct {
	store.EntryFilter
	query  url.Values // the filters, for links
	before int64      // 0 = from the newest
	month  time.Time  // first day of the month of a statement; zero = none
}

// readSearch reads the query. It leaves out invalid dates and returns them as problems.
func readSearch(r *http.Request, accountID string) (s search, problems []ui.Problem, err error) {
	q, err := web.ReadQuery(r)
	if err != nil {
		return search{}, nil, err
	}
	s = search{EntryFilter: store.EntryFilter{
		AccountID:    accountID,
		AppID:        q.Get("app"),
		ConnectionID: q.Get("connection"),
		Model:        strings.TrimSpace(q.Get("model")),
	}, query: url.Values{}}
	if s.Type = rules.EntryType(q.Get("type")); s.Type == refunds {
		s.Type, s.Reversed = rules.EntrySpend, true
	}
	day := func(field string, plus int) int64 {
		if q.Get(field) == "" {
			return 0
		}
		t, err := time.Parse(time.DateOnly, q.Get(field))
		if err != nil || t.Year() < 2000 || t.Year() > 9000 {
			problems = append(problems, ui.Problem{Field: field, Text: "Enter a date such as 2026-11-21."})
			return 0
		}
		return t.AddDate(0, 0, plus).UnixMicro()
	}
	s.FromUS, s.ToUS = day("from", 0), day("to", 1)
	if text := q.Get("month"); text != "" {
		month, err := time.Parse(monthLayout, text)
		if err != nil || month.Year() < 2000 || month.Year() > 9000 {
			return search{}, nil, apierr.InvalidRequest.Errorf("month: must be a month such as 2026-11")
		}
		s.month, s.FromUS, s.ToUS = month, month.UnixMicro(), month.AddDate(0, 1, 0).UnixMicro()
	}
	for _, name := range []string{"type", "app", "connection", "model", "from", "to", "month"} {
		if v := strings.TrimSpace(q.Get(name)); v != "" {
			s.query.Set(name, v)
		}
	}
	if text := q.Get("before"); text != "" {
		if s.before, err = strconv.ParseInt(text, 10, 64); err != nil || s.before < 1 {
			return search{}, nil, apierr.InvalidRequest.Errorf("before: must be a number from a link of this list")
		}
	}
	return s, problems, nil
}

// showActivity is GET /activity.
func (h *Handler) showActivity(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s, problems, err := readSearch(r, a.ID)
	if err != nil {
		return err
	}
	page := ui.Activity{
		Shell:         a.Shell(ui.Activities),
		Connection:    s.ConnectionID,
		From:          s.query.Get("from"),
		To:            s.query.Get("to"),
		Filtered:      len(s.query) > 0 && (len(s.query) > 1 || s.month.IsZero()),
		CSV:           activityPath("/activity.csv", s.query, 0),
		StatementHref: "/activity?month=" + h.DB.Now().UTC().Format(monthLayout),
		Errors:        problems,
	}
	n := h.newAppNames()
	if err := h.fillOptions(r, n, s, &page); err != nil {
		return err
	}
	if len(problems) > 0 {
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	if !s.month.IsZero() {
		if page.Statement, err = h.makeStatement(r.Context(), n, s); err != nil {
			return err
		}
	}
	rows, next, err := store.BrowseEntries(r.Context(), h.DB, s.EntryFilter, s.before, activityPage)
	if err != nil {
		return fmt.Errorf("dashboard: activity: %w", err)
	}
	if page.Days, err = foldEntries(r.Context(), n, rows, next > 0); err != nil {
		return err
	}
	if next > 0 {
		page.Older = activityPath("/activity", s.query, next)
	}
	if s.before > 0 {
		page.Newest = activityPath("/activity", s.query, 0)
	}
	return ui.Render(w, http.StatusOK, page)
}

// activityPath returns the address of a page of the list, or of its export.
func activityPath(path string, filters url.Values, before int64) string {
	q := url.Values{}
	for name, v := range filters {
		q[name] = v
	}
	if before > 0 {
		q.Set("before", strconv.FormatInt(before, 10))
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// fillOptions adds the apps and models that the account has used, and the types, to the filters.
func (h *Handler) fillOptions(r *http.Request, n appNames, s search, page *ui.Activity) error {
	list, err := store.ConnectionsOfAccount(r.Context(), h.DB, s.AccountID, maxListed)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	models, err := store.ListUsedModels(r.Context(), h.DB, s.AccountID, formatDay(h.DB.Now().UTC(), -modelDays),
		maxModels)
	if err != nil {
		return fmt.Errorf("dashboard: models: %w", err)
	}
	page.Apps, page.Models = []ui.Option{{Text: "All apps"}}, []ui.Option{{Text: "All models"}}
	for _, c := range list {
		app, err := n.nameOf(r.Context(), c.AppID)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(page.Apps, func(o ui.Option) bool { return o.ID == c.AppID }) {
			page.Apps = append(page.Apps, ui.Option{ID: c.AppID, Text: app, Chosen: c.AppID == s.AppID})
		}
	}
	if s.Model != "" && !slices.Contains(models, s.Model) { // by an address: an older one, or none of this account
		models = append(models, s.Model)
	}
	for _, model := range models {
		page.Models = append(page.Models, ui.Option{ID: model, Text: model, Chosen: model == s.Model})
	}
	page.Types = []ui.Option{{Text: "Everything"}, {ID: refunds, Text: "Refunds", Chosen: s.Reversed}}
	for kind, name := range entryNames {
		page.Types = append(page.Types, ui.Option{ID: string(kind), Text: name, Chosen: kind == s.Type && !s.Reversed})
	}
	slices.SortFunc(page.Types[1:], func(a, b ui.Option) int { return cmp.Compare(a.Text, b.Text) })
	return nil
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
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="purser-activity.csv"`)
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
			if err := out.Write(csvRecord(&rows[i], app)); err != nil {
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

func csvRecord(e *rules.Entry, app string) []string {
	list := []string{
		e.ID, strconv.FormatInt(e.Seq, 10), timestamp.Format(e.CreatedUS), entryName(e), string(e.Type), e.Status,
		e.ReversalOf, ui.EscapeFormula(app), e.ConnectionID,
		ui.EscapeFormula(e.Feature), ui.EscapeFormula(e.Model), string(e.Settlement), e.PaidBy,
	}
	for _, mc := range []int64{int64(e.HoldMC), int64(e.ProviderCostMC), int64(e.SvcFeeMC), int64(e.DevMarginMC),
		int64(e.UserChargeMC), int64(e.AvailableDeltaMC), int64(e.ReservedDeltaMC)} {
		list = append(list, strconv.FormatInt(mc, 10))
	}
	return list
}
