package console

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/statements"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/papers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// This file makes developers' revenue statements as CSV and PDF (decision 113).

// monthLayout is the form of a month in an address.
const monthLayout = "2006-01"

// maxRevenueMonths is the number of months whose statements the page lists. Older ones have the same addresses.
const maxRevenueMonths = 24

// revenueMonths are the months since an app of the list was made, newest first.
func revenueMonths(list []payouts.AppMargin, now time.Time) (months []ui.RevenueMonth) {
	if len(list) == 0 {
		return nil
	}
	first := list[0].CreatedUS
	for _, m := range list {
		first = min(first, m.CreatedUS)
	}
	now = now.UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	for len(months) < maxRevenueMonths && month.AddDate(0, 1, 0).UnixMicro() > first {
		months = append(months, ui.RevenueMonth{
			Name: month.Format("January 2006"),
			File: payouts.StatementsPage + month.Format(monthLayout),
		})
		month = month.AddDate(0, -1, 0)
	}
	return months
}

// A revenue is a month of a developer's apps.
type revenue struct {
	account accounts.Account
	month   time.Time // its first day, UTC
	until   time.Time // its end, or now
	ended   bool
	apps    []statements.AppRevenue // of which there is something to say
	names   []string                // of apps
}

// A revenueLine is a line of a statement. What went out is negative.
type revenueLine struct {
	text, appID string
	rows        int64
	amounts     rules.Amounts // of calls
	margin      money.MC
}

// serveRevenue is GET /developer/statements/{file}: a month as 2026-11.csv or 2026-11.pdf.
func (h payoutPages) serveRevenue(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	name, form, _ := strings.Cut(r.PathValue("file"), ".")
	month, err := time.Parse(monthLayout, name)
	if err != nil || form != "csv" && form != "pdf" || month.After(h.Payouts.DB.Now()) {
		return ui.NotFound()
	}
	s, err := h.readRevenue(r, a, month)
	if err != nil {
		return err
	}
	download := "purser-revenue-" + name + "." + form
	if form == "csv" {
		ui.SetDownload(w, download)
		return s.writeCSV(w)
	}
	file, err := s.pdf()
	if err != nil {
		return err
	}
	ui.SetDownload(w, download)
	w.Header().Set("Content-Type", "application/pdf")
	_, err = w.Write(file)
	return err
}

func (h payoutPages) readRevenue(r *http.Request, a accounts.Account, month time.Time) (*revenue, error) {
	d := h.Payouts.DB
	s := &revenue{account: a, month: month, until: month.AddDate(0, 1, 0), ended: true}
	if now := d.Now().UTC(); now.Before(s.until) {
		s.until, s.ended = now, false
	}
	owned, err := apps.ListOwned(r.Context(), d, a.ID)
	if err != nil {
		return nil, err
	}
	names, ids := map[string]string{}, make([]string, 0, len(owned))
	for i := range owned {
		names[owned[i].ID] = owned[i].Name
		ids = append(ids, owned[i].ID)
	}
	list, err := store.ReadRevenue(r.Context(), d, ids, month, month.AddDate(0, 1, 0))
	for _, app := range list {
		if !app.IsEmpty() {
			s.apps, s.names = append(s.apps, app), append(s.names, names[app.AppID])
		}
	}
	return s, err
}

// lines are those of the statement, from the margin that was there to the one that is left.
func (s *revenue) lines() (list []revenueLine) {
	var opening, closing money.MC
	for i := range s.apps {
		opening += s.apps[i].OpeningMC
		closing += s.apps[i].ClosingMC()
	}
	list = append(list, revenueLine{text: "Margin before", margin: opening})
	for i := range s.apps {
		app, name := &s.apps[i], s.names[i]
		for _, l := range []revenueLine{
			{text: "Margin of calls", rows: app.Calls, amounts: app.Charged, margin: app.Charged.DevMarginMC},
			{text: "Margin of refunded calls", rows: app.Refunds, amounts: negate(app.Refunded),
				margin: -app.Refunded.DevMarginMC},
			{text: "Refunds paid from margin", margin: -app.RefundsPaidMC},
			{text: "Payouts", rows: app.Payouts, margin: -app.PaidOutMC},
			{text: "Disputed payments", margin: -app.DisputedMC},
		} {
			if l.rows != 0 || l.margin != 0 {
				l.text, l.appID = l.text+": "+name, app.AppID
				list = append(list, l)
			}
		}
	}
	return append(list, revenueLine{text: "Margin left", margin: closing})
}

// negate returns the amounts of calls that were refunded.
func negate(a rules.Amounts) rules.Amounts {
	return rules.Amounts{
		ProviderCostMC: -a.ProviderCostMC,
		SvcFeeMC:       -a.SvcFeeMC,
		DevMarginMC:    -a.DevMarginMC,
		UserChargeMC:   -a.UserChargeMC,
	}
}

// revenueColumns are the columns of the CSV. An amount in US dollars has all digits of its micro-cents.
const revenueColumns = "month from until line app_id calls_or_rows charged_mc provider_cost_mc svc_fee_mc margin_mc " +
	"margin_usd"

func (s *revenue) writeCSV(w http.ResponseWriter) error {
	out := csv.NewWriter(w)
	if err := out.Write(strings.Split(revenueColumns, " ")); err != nil {
		return err
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, l := range s.lines() {
		err := out.Write([]string{
			s.month.Format(monthLayout), timestamp.Format(s.month.UnixMicro()), timestamp.Format(s.until.UnixMicro()),
			ui.EscapeFormula(l.text), l.appID, number(l.rows), number(int64(l.amounts.UserChargeMC)),
			number(int64(l.amounts.ProviderCostMC)), number(int64(l.amounts.SvcFeeMC)), number(int64(l.margin)),
			papers.Decimal(l.margin),
		})
		if err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// pdf returns the statement as a PDF file: the margin, and what was charged for the calls that brought it.
func (s *revenue) pdf() ([]byte, error) {
	lines := s.lines()
	balance := papers.Table{Head: []string{"", "US dollars"}}
	for i, l := range lines {
		row := papers.Row{Cells: []string{l.text, papers.Decimal(l.margin)}}
		switch i {
		case 0:
			row.Strong, row.Border = true, "B"
		case len(lines) - 1:
			row.Strong, row.Border = true, "T"
		}
		if l.rows > 0 {
			row.Cells[0] += " (" + ui.Count(l.rows) + ")"
		}
		balance.Rows = append(balance.Rows, row)
	}
	charged := papers.Table{
		Title: "What was charged",
		Head:  []string{"App", "Charged", "Provider cost", "Service fee", "Margin"},
	}
	for i := range s.apps {
		c, back := &s.apps[i].Charged, &s.apps[i].Refunded
		charged.Rows = append(charged.Rows, papers.Row{Cells: []string{
			s.names[i],
			papers.Decimal(c.UserChargeMC - back.UserChargeMC),
			papers.Decimal(c.ProviderCostMC - back.ProviderCostMC),
			papers.Decimal(c.SvcFeeMC - back.SvcFeeMC),
			papers.Decimal(c.DevMarginMC - back.DevMarginMC),
		}})
	}
	p := papers.Paper{
		Title:   "Revenue in " + s.month.Format("January 2006"),
		Heading: []string{"Purser", s.account.Email, "Account " + s.account.ID, s.period()},
		Tables:  []papers.Table{balance},
		Notes: []string{"Margin is what your apps earn on calls in real money. Amounts have all digits, and add up " +
			"exactly. Payouts count when they begin; one that fails is given back in the month in which it fails."},
		At: s.until,
	}
	if len(charged.Rows) > 0 {
		p.Tables = append(p.Tables, charged)
		p.Notes = append(p.Notes, "What was charged includes calls that free credit paid, which bring no margin, and "+
			"is less what was refunded.")
	}
	return papers.PDF(p)
}

// period says what the statement covers.
func (s *revenue) period() string {
	if s.ended {
		return s.month.Format("January 2006") + ", UTC"
	}
	return s.month.Format("January 2006") + " until " + s.until.Format("2 January, 15:04") +
		" UTC; the month has not ended"
}
