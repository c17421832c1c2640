package topups

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages of top-ups, and Stripe's events.
type Handler struct {
	Store    *Store
	Accounts *accounts.Store
	Sessions *accounts.Sessions
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /top-up", h.requireRealAccount(h.showForm))
	rt.HandlePage("POST /top-up", h.requireRealAccount(h.submitTopUp))
	rt.HandlePage("GET "+autoPath, h.requireRealAccount(h.showAuto))
	rt.HandlePage("POST "+autoPath, h.requireRealAccount(h.saveAuto))
	rt.HandlePage("POST "+autoPath+"/off", h.requireRealAccount(h.submitAutoOff))
	rt.HandlePage("POST "+autoPath+"/card", h.requireRealAccount(h.saveCard))
	rt.HandlePage("POST "+autoPath+"/card/remove", h.requireRealAccount(h.removeCard))
	rt.HandlePage("GET "+refundPath, h.requireRealAccount(h.showRefund))
	rt.HandlePage("POST "+refundPath, h.requireRealAccount(h.submitRefund))
	rt.HandlePage("GET /top-ups", h.requireRealAccount(h.showList))
	rt.HandlePage("GET /top-ups/{id}", h.requireRealAccount(h.showReceipt))
	rt.HandlePage("GET /top-ups/{id}/invoice", h.requireRealAccount(h.redirectToInvoice))
	rt.Handle("POST /stripe/events", h.receiveEvent)
}

// requireRealAccount requires a signed-in account. Test accounts, whose money is fake, get 404.
func (h *Handler) requireRealAccount(next accounts.PageHandler) web.Handler {
	return h.Sessions.Require(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if a.Sandbox {
			return ui.NotFound()
		}
		return next(w, r, a)
	})
}

// Numbers of top-ups on the form and in the list.
const (
	maxLatest = 3
	maxListed = 100
)

// showForm is GET /top-up.
func (h *Handler) showForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.renderForm(w, r, a, http.StatusOK, "", nil)
}

func (h *Handler) renderForm(w http.ResponseWriter, r *http.Request, a accounts.Account, status int, typed string,
	problems []ui.Problem) error {
	s := h.Store
	b, err := store.GetBalance(r.Context(), s.DB, a.ID)
	if err != nil {
		return fmt.Errorf("topups: balance: %w", err)
	}
	list, err := store.PaymentsOfAccount(r.Context(), s.DB, a.ID, maxLatest)
	if err != nil {
		return fmt.Errorf("topups: payments: %w", err)
	}
	page := ui.TopUpForm{
		Shell:     a.Shell(ui.TopUp),
		Off:       !s.IsConfigured(),
		Available: ui.Dollars(b.AvailableMC),
		Below:     b.AvailableMC < 0,
		Tokens:    []string{id.NewSecret(), id.NewSecret()},
		Amounts:   []string{"10", "25", "50", "100"},
		Amount:    typed,
		Least:     ui.Dollars(MinCents * money.Cent),
		Most:      ui.Dollars(MaxCents * money.Cent),
		Errors:    problems,
		List:      makeRows(list),
	}
	if page.Auto, err = s.autoSummary(r.Context(), a.ID); err != nil {
		return err
	}
	if s.Config.Clearance > 0 {
		page.WaitsForClear = ui.Duration(s.Config.Clearance)
	}
	if s.IsConfigured() {
		if err := web.AllowFormAction(w, s.checkoutURL()); err != nil {
			return err
		}
	}
	return ui.Render(w, status, page)
}

// checkoutURL returns the origin of the payment page.
func (s *Store) checkoutURL() string {
	if s.Config.BaseURL != "" {
		return s.Config.BaseURL
	}
	return "https://checkout.stripe.com"
}

// submitTopUp is POST /top-up: it redirects to Stripe. A form that is sent again redirects to the
// same session, or to the receipt if the payment has ended.
func (h *Handler) submitTopUp(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s := h.Store
	if !s.IsConfigured() {
		return h.renderForm(w, r, a, http.StatusServiceUnavailable, "", nil)
	}
	body, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token, typed := body.Get("token"), body.Get("amount")
	if len(token) != len(id.NewSecret()) {
		return apierr.InvalidRequest.Errorf("This form is incomplete. Reload the page and try again.")
	}
	cents, problem := ParseCents(typed)
	if problem != "" {
		return h.renderForm(w, r, a, http.StatusUnprocessableEntity, typed,
			[]ui.Problem{{Field: "amount", Text: problem}})
	}
	c, err := s.startCheckout(r.Context(), a.ID, "", token, cents)
	if err != nil {
		status, text := s.describeUnopened(err, c.ID)
		return h.renderForm(w, r, a, status, typed, []ui.Problem{{Field: "amount", Text: text}})
	}
	return h.redirectToStripe(w, r, c)
}

// describeUnopened returns the status and the text for the user whose checkout was not opened. Unless the user has
// reached a limit, it logs why and raises an alarm.
func (s *Store) describeUnopened(err error, topupID string) (status int, text string) {
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.RateLimited {
		return e.Code.Status, e.Message
	}
	s.Log.Error("checkout not opened", "topup_id", topupID, "error", err)
	s.Metrics.RaiseAlarm("checkout_failed", "stripe")
	return http.StatusBadGateway,
		"We can’t reach Stripe right now. You haven’t been charged. Please try again in a minute."
}

// redirectToStripe redirects to the payment page of a checkout, or to its receipt if the payment has ended.
func (h *Handler) redirectToStripe(w http.ResponseWriter, r *http.Request, c checkout) error {
	p, err := store.GetPayment(r.Context(), h.Store.DB, c.ID)
	if err != nil {
		return fmt.Errorf("topups: payment: %w", err)
	}
	if p.Status != rules.PaymentPending || p.Paid() || c.URL == "" {
		return web.SeeOther(w, "/top-ups/"+c.ID)
	}
	return web.SeeOther(w, c.URL)
}

// ParseCents parses an amount that a user typed. It returns a problem for the user if the amount is invalid.
func ParseCents(typed string) (int64, string) { return parseCentsWithin(typed, MinCents, MaxCents) }

func parseCentsWithin(typed string, least, most money.MC) (int64, string) {
	mc, err := money.Parse(typed)
	switch {
	case err != nil || mc%money.Cent != 0:
		return 0, "Enter an amount in dollars and cents, such as 25 or 12.50."
	case mc < least*money.Cent || mc > most*money.Cent:
		return 0, "The amount must be from " + ui.Dollars(least*money.Cent) + " to " + ui.Dollars(most*money.Cent) + "."
	}
	return int64(mc / money.Cent), ""
}

// showList is GET /top-ups.
func (h *Handler) showList(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	list, err := store.PaymentsOfAccount(r.Context(), h.Store.DB, a.ID, maxListed+1)
	if err != nil {
		return fmt.Errorf("topups: payments: %w", err)
	}
	return ui.Render(w, http.StatusOK, ui.TopUpList{
		Shell: a.Shell(ui.TopUp),
		List:  makeRows(list[:min(len(list), maxListed)]),
		More:  len(list) > maxListed,
	})
}

// showReceipt is GET /top-ups/{id}. It shows the state of the ledger. The redirect back from Stripe
// changes nothing; only events and jobs do.
func (h *Handler) showReceipt(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.renderReceipt(w, r, a, http.StatusOK, r.URL.Query().Get("back"))
}

// renderReceipt shows the receipt, after what the person came back from.
func (h *Handler) renderReceipt(w http.ResponseWriter, r *http.Request, a accounts.Account, status int,
	back string) error {
	p, err := store.GetPayment(r.Context(), h.Store.DB, r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) || err == nil && p.AccountID != a.ID {
		return ui.NotFound()
	} else if err != nil {
		return fmt.Errorf("topups: payment: %w", err)
	}
	page := ui.TopUpReceipt{
		Shell:     a.Shell(ui.TopUp),
		Payment:   makeRow(&p),
		Back:      back,
		Reference: p.PaymentIntent,
		Reason:    failureTexts[p.Reason],
	}
	if p.ReversedMC > 0 {
		page.Returned = ui.Dollars(p.ReversedMC)
	}
	for _, rec := range p.Records {
		switch rec.Kind {
		case "settled":
			page.Settled = ui.Date(rec.CreatedUS)
		case "paid":
			page.Clears = ui.Date(rec.HoldUntilUS)
		}
		if rec.EntryID != "" {
			amount := rec.AmountMC
			if rec.Kind == "reversed" {
				amount = -amount
			}
			page.Entries = append(page.Entries, ui.LedgerLine{
				ID:     rec.EntryID,
				When:   ui.Date(rec.CreatedUS),
				What:   describeRecord(rec),
				Amount: ui.Dollars(amount),
			})
		}
	}
	open, err := store.ListOpenDisputes(r.Context(), h.Store.DB, a.ID)
	if err != nil {
		return fmt.Errorf("topups: disputes: %w", err)
	}
	page.Disputed = slices.ContainsFunc(open, func(d rules.OpenDispute) bool { return d.PaymentID == p.ID })
	c, err := getCheckout(r.Context(), h.Store.DB, p.ID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("topups: checkout: %w", err)
	}
	page.Automatic, page.SavesCard = c.automatic(), c.SaveCard
	page.Invoice = h.Store.hasInvoice(&p, c)
	if page.State == "open" && page.Back != "paid" {
		page.Pay = c.URL
	}
	return ui.Render(w, status, page)
}

// hasInvoice reports whether Stripe may have an invoice of a payment: not of what it charges to a saved card, nor of
// what was paid before invoices were on, which only Stripe can say.
func (s *Store) hasInvoice(p *rules.Payment, c checkout) bool {
	return s.IsConfigured() && s.Config.Invoices != NoInvoices && p.Paid() && c.SessionID != "" && !c.automatic()
}

// redirectToInvoice is GET /top-ups/{id}/invoice.
func (h *Handler) redirectToInvoice(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s := h.Store
	p, err := store.GetPayment(r.Context(), s.DB, r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) || err == nil && p.AccountID != a.ID {
		return ui.NotFound()
	} else if err != nil {
		return fmt.Errorf("topups: payment: %w", err)
	}
	c, err := getCheckout(r.Context(), s.DB, p.ID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("topups: checkout: %w", err)
	}
	if !s.hasInvoice(&p, c) {
		return ui.NotFound()
	}
	to, err := s.invoiceURL(r.Context(), c)
	switch {
	case err != nil:
		s.Log.Error("invoice not found at Stripe", "topup_id", p.ID, "error", err)
		return h.renderReceipt(w, r, a, http.StatusServiceUnavailable, "no-stripe")
	case to == "":
		return h.renderReceipt(w, r, a, http.StatusNotFound, "no-invoice")
	}
	return web.SeeOther(w, to)
}

// describeRecord names the ledger row of a record.
func describeRecord(r rules.PaymentRecord) string {
	switch r.Kind {
	case "opened":
		return "Started"
	case "settled":
		return "Credited"
	case "failed":
		return "Not paid"
	}
	switch {
	case r.Kind == "reopened":
		return "Started again"
	case r.Kind == "restored":
		return "Refund came back"
	}
	switch r.Reason {
	case "dispute_lost":
		return "Returned after a dispute"
	case returnedToCard:
		return "Returned to your card"
	}
	return "Refunded"
}

// failureTexts describe why a payment failed, by reason.
var failureTexts = map[string]string{
	"expired":              "The payment was not completed in time.",
	"payment_failed":       "Your bank declined the payment.",
	"card_declined":        "Your card was declined.",
	"card_expired":         "Your card has expired.",
	"insufficient_funds":   "Your card has insufficient funds.",
	"needs_authentication": "Your bank requires you to confirm payments with this card.",
	stopped:                "Your card wasn’t charged: this top-up was stopped before your bank was asked.",
	cardGone:               "This top-up was stopped: Stripe no longer has your card.",
	"refunded":             "The payment was refunded before it was credited.",
	"dispute_lost":         "Your bank reversed the payment before it was credited.",
}

func makeRows(list []*rules.Payment) (out []ui.Payment) {
	for _, p := range list {
		out = append(out, makeRow(p))
	}
	return out
}

func makeRow(p *rules.Payment) ui.Payment {
	out := ui.Payment{
		ID:     p.ID,
		Amount: ui.Dollars(p.AmountMC),
		When:   ui.Date(p.OpenedUS),
		State:  "open",
	}
	switch {
	case p.Status == rules.PaymentFailed:
		out.State = "failed"
	case p.ReversedMC == p.AmountMC:
		out.State = "back"
	case p.ReversedMC > 0:
		out.State = "part"
	case p.Status == rules.PaymentSettled:
		out.State = "settled"
	case p.Paid():
		out.State = "clearing"
	}
	return out
}
