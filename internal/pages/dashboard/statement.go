package dashboard

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/statements"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/papers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// This file makes monthly statements as CSV and PDF (decision 111).

// kindNames are the kinds of a statement's lines as people read them.
var kindNames = map[statements.Kind]string{
	statements.TopUps:            "Top-ups",
	statements.Goodwill:          "Goodwill credits",
	statements.Calls:             "Calls",
	statements.CallRefunds:       "Refunded calls",
	statements.PaidRefunds:       "Paid for refunds of your apps’ calls",
	statements.ReturnedToCard:    "Returned to cards",
	statements.PaymentsReversed:  "Payments reversed or disputed",
	statements.GoodwillWithdrawn: "Goodwill credits withdrawn",
}

// A statement is a month of an account with what its lines are called.
type statement struct {
	statements.Statement
	account accounts.Account
	month   time.Time // its first day, UTC
	until   time.Time // its end, or now
	ended   bool
	names   []string // of Lines
}

// readStatement returns an account's statement of a month.
func (h *Handler) readStatement(ctx context.Context, a accounts.Account, month time.Time) (*statement, error) {
	s := &statement{account: a, month: month, until: month.AddDate(0, 1, 0), ended: true}
	if now := h.DB.Now().UTC(); now.Before(s.until) {
		s.until, s.ended = now, false
	}
	opening, groups, err := store.ReadMonth(ctx, h.DB, a.ID, month, month.AddDate(0, 1, 0))
	if err != nil {
		return nil, err
	}
	if s.Statement, err = statements.Make(opening, groups); err != nil {
		return nil, err
	}
	apps := h.newAppNames()
	for _, line := range s.Lines {
		name := kindNames[line.Kind]
		if line.AppID != "" {
			app, err := apps.nameOf(ctx, line.AppID)
			if err != nil {
				return nil, err
			}
			name += ": " + app
		}
		s.names = append(s.names, name)
	}
	return s, nil
}

// period says what the statement covers.
func (s *statement) period() string {
	if s.ended {
		return s.month.Format("January 2006") + ", UTC"
	}
	return s.month.Format("January 2006") + " until " + s.until.Format("2 January, 15:04") +
		" UTC; the month has not ended"
}

// serveStatement is GET /statements/{file}: a month as 2026-11.csv or 2026-11.pdf, or its calls as 2026-11-focus.csv.
func (h *Handler) serveStatement(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	name, form, _ := strings.Cut(r.PathValue("file"), ".")
	name, focus := strings.CutSuffix(name, "-focus")
	month, err := time.Parse(monthLayout, name)
	if err != nil || form != "csv" && (focus || form != "pdf") || month.After(h.DB.Now()) {
		return ui.NotFound()
	}
	if focus {
		return h.Sessions.InTurn(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
			return h.exportFOCUS(w, r, a, month)
		})(w, r, a)
	}
	s, err := h.readStatement(r.Context(), a, month)
	if err != nil {
		return err
	}
	download := "purser-statement-" + name + "." + form
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

// statementColumns are the columns of the CSV. An amount in US dollars has all digits of its micro-cents.
const statementColumns = "month from until line app_id calls_or_rows amount_mc amount_usd"

func (s *statement) writeCSV(w http.ResponseWriter) error {
	out := csv.NewWriter(w)
	record := func(line, appID string, rows int64, amount money.MC) error {
		return out.Write([]string{s.month.Format(monthLayout), timestamp.Format(s.month.UnixMicro()),
			timestamp.Format(s.until.UnixMicro()), ui.EscapeFormula(line), appID, strconv.FormatInt(rows, 10),
			strconv.FormatInt(int64(amount), 10), papers.Decimal(amount)})
	}
	if err := out.Write(strings.Split(statementColumns, " ")); err != nil {
		return err
	}
	if err := record("Balance before", "", 0, s.OpeningMC); err != nil {
		return err
	}
	for i, line := range s.Lines {
		if err := record(s.names[i], line.AppID, line.Rows, line.AmountMC); err != nil {
			return err
		}
	}
	if err := record("Balance after", "", 0, s.ClosingMC); err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

// pdf returns the statement as a PDF file.
func (s *statement) pdf() ([]byte, error) {
	table := papers.Table{Head: []string{"", "US dollars"}, Rows: []papers.Row{
		{Cells: []string{"Balance before", papers.Decimal(s.OpeningMC)}, Strong: true, Border: "B"},
	}}
	for i, line := range s.Lines {
		text := s.names[i]
		if line.Kind == statements.Calls {
			text += " (" + ui.Count(line.Rows) + ")"
		}
		table.Rows = append(table.Rows, papers.Row{Cells: []string{text, papers.Decimal(line.AmountMC)}})
	}
	table.Rows = append(table.Rows, papers.Row{
		Cells: []string{"Balance after", papers.Decimal(s.ClosingMC)}, Strong: true, Border: "T",
	})
	return papers.PDF(papers.Paper{
		Title:   "Statement for " + s.month.Format("January 2006"),
		Heading: s.heading(),
		Tables:  []papers.Table{table},
		Notes:   s.notes(),
		At:      s.until,
	})
}

func (s *statement) heading() []string {
	list := []string{"Purser", s.account.Email, "Account " + s.account.ID, s.period()}
	if s.account.Sandbox {
		list = append(list, "Test account: no real money is used.")
	}
	return list
}

func (s *statement) notes() []string {
	list := []string{"The balance includes what apps may spend of it. Amounts have all digits, and add up exactly."}
	if s.FreeCalls > 0 {
		list = append(list, ui.Count(s.FreeCalls)+" calls were paid by free credit, and cost nothing.")
	}
	return list
}

// focusColumns are the columns of FOCUS 1.2, the open format for the usage and cost of services, that have a meaning
// here, and two of our own.
const focusColumns = "BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd " +
	"BillingPeriodStart ChargeCategory ChargeClass ChargeDescription ChargeFrequency ChargePeriodEnd " +
	"ChargePeriodStart ConsumedQuantity ConsumedUnit ContractedCost EffectiveCost InvoiceIssuerName ListCost " +
	"PricingQuantity PricingUnit ProviderName PublisherName ResourceId ServiceCategory ServiceName " +
	"ServiceSubcategory SkuId SubAccountId SubAccountName x_Feature x_RequestId"

// exportFOCUS answers with a month's calls and their refunds as FOCUS rows, newest first, streamed.
func (h *Handler) exportFOCUS(w http.ResponseWriter, r *http.Request, a accounts.Account, month time.Time) error {
	next := month.AddDate(0, 1, 0)
	f := store.EntryFilter{
		AccountID: a.ID,
		Type:      rules.EntrySpend,
		FromUS:    month.UnixMicro(),
		ToUS:      next.UnixMicro(),
	}
	ui.SetDownload(w, "purser-focus-"+month.Format(monthLayout)+".csv")
	out, apps := csv.NewWriter(w), h.newAppNames()
	if err := out.Write(strings.Split(focusColumns, " ")); err != nil {
		return err
	}
	for _, f.Reversed = range []bool{false, true} {
		for before := int64(0); ; {
			rows, older, err := store.BrowseEntries(r.Context(), h.DB, f, before, exportStep)
			if err != nil {
				return fmt.Errorf("dashboard: FOCUS: %w", err)
			}
			for i := range rows {
				app, err := apps.nameOf(r.Context(), rows[i].AppID)
				if err != nil {
					return err
				}
				if err := out.Write(focusRecord(&rows[i], a, app, month, next)); err != nil {
					return err
				}
			}
			if out.Flush(); older == 0 || out.Error() != nil {
				break
			}
			before = older
		}
	}
	return out.Error()
}

// focusRecord returns a call or its refund as a row of FOCUS. A call that free credit paid costs nothing.
func focusRecord(e *rules.Entry, a accounts.Account, app string, month, next time.Time) []string {
	cost, class, what := e.UserChargeMC, "", "Call to "+e.Model
	if e.PaidBy == rules.PaidByFreeCredit {
		cost = 0
	}
	if e.Status == "reversed" {
		cost, class, what = -cost, "Correction", "Refund of a call to "+e.Model
	}
	billed, at := papers.Decimal(cost), timestamp.Format(e.CreatedUS)
	request := id.ReplacePrefix(e.ID, id.Ledger, id.Request)
	if e.ReversalOf != "" {
		request = id.ReplacePrefix(e.ReversalOf, id.Ledger, id.Request)
	}
	return []string{
		billed, a.ID, ui.EscapeFormula(a.Email), "USD", timestamp.Format(next.UnixMicro()),
		timestamp.Format(month.UnixMicro()), "Usage", class, ui.EscapeFormula(what), "Usage-Based", at,
		at, "1", "Requests", billed, billed, "Purser", billed,
		"1", "Requests", "Purser", ui.EscapeFormula(app), e.ConnectionID, "AI and Machine Learning", "AI calls",
		"Generative AI", ui.EscapeFormula(e.Model), e.AppID, ui.EscapeFormula(app),
		ui.EscapeFormula(e.Feature), request,
	}
}
