package topups

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxShownAttempts is the number of attempts on the page.
const maxShownAttempts = 5

// savedTexts confirm a change, by the query parameter done.
var savedTexts = map[string]string{
	"on":      "Automatic top-up is on.",
	"off":     "Automatic top-up is off. Your card is still saved.",
	"removed": "Card removed. Automatic top-up is off.",
}

// describeOff describes why automatic top-up was turned off.
func describeOff(reason string) string {
	switch reason {
	case "":
		return ""
	case offReversed:
		return "One of your payments was refunded or disputed."
	case offClosed:
		return "This account can’t be topped up."
	case cardGone:
		return "Stripe no longer has your saved card. Save it again, or another one."
	case offRestored:
		return "We restored our systems from a backup. Turn it on again if you still want it."
	}
	return "Your card was declined three times. " + failureTexts[reason]
}

// waitTexts describe the obstacles of a charge.
var waitTexts = map[string]string{
	"below-zero": "Paused while your balance is below zero.",
	"frozen":     "Paused until you review your paused connection.",
	"disputed":   "Paused while your bank decides about a payment that was disputed.",
	"suspended":  "Paused while your account is suspended.",
	"clearing":   "Paused until your last payment clears.",
	"month":      "You’ve reached your monthly maximum. It resumes next month.",
}

// showAuto is GET /top-up/auto.
func (h *Handler) showAuto(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	p, err := h.getPlan(r.Context(), a.ID)
	if err != nil {
		return err
	}
	page := ui.TopUpAuto{Done: savedTexts[r.URL.Query().Get("done")]}
	add, below, most := p.Add, p.Below, p.Most
	if add == 0 { // never set
		below, add, most = 10_00, 25_00, 100_00
	}
	page.Below.Value, page.Add.Value, page.Most.Value, page.First.Value = formatCents(below), formatCents(add),
		formatCents(most), "25"
	return h.renderAuto(w, r, a, p, http.StatusOK, page)
}

// shownPlan is what the form shows of a plan that is on. The whole form of one that is off is submitted.
func shownPlan(p plan) ui.Shown {
	return ui.ShownFields([]ui.Field{
		{ID: "on", Value: "yes"},
		{ID: "below", Value: formatCents(p.Below)},
		{ID: "add", Value: formatCents(p.Add)},
		{ID: "most", Value: formatCents(p.Most)},
	})
}

// getPlan returns the plan of an account, which is empty if the user has never saved a card.
func (h *Handler) getPlan(ctx context.Context, accountID string) (plan, error) {
	p, err := getPlan(ctx, h.Store.DB, accountID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, fmt.Errorf("topups: plan: %w", err)
	}
	p.AccountID = accountID
	return p, nil
}

func formatCents(cents int64) string {
	if cents%100 == 0 {
		return fmt.Sprint(cents / 100)
	}
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}

// renderAuto completes the page, which has the typed values and their errors, and renders it.
func (h *Handler) renderAuto(w http.ResponseWriter, r *http.Request, a accounts.Account, p plan, status int,
	page ui.TopUpAuto) error {
	s, now := h.Store, h.Store.Now()
	page.Shell, page.Off, page.Token = a.Shell(ui.TopUp), !s.IsConfigured(), id.NewSecret()
	page.Below = makeDollarField(page.Below, "below", "When balance is below (USD)", MinBelowCents, MaxBelowCents)
	page.Add = makeDollarField(page.Add, "add", "Add (USD)", MinCents, MaxAutoCents)
	page.Most = makeDollarField(page.Most, "most", "Monthly maximum (USD)", MinCents, MaxMonthCents)
	page.First = makeDollarField(page.First, "first", "Pay now (USD)", MinCents, MaxCents)
	if p.PaymentMethod != "" {
		page.Card = &ui.SavedCard{Name: p.card(), Expires: p.Expires}
	}
	page.On, page.WentOff = p.On, describeOff(p.OffReason)
	if p.On {
		page.Shown = shownPlan(p)
		page.Since, page.Summary = formatDay(p.Since), p.summary()
	}
	if err := s.fillMonth(r.Context(), p, now, &page); err != nil {
		return err
	}
	if err := s.fillAttempts(r.Context(), p, &page); err != nil {
		return err
	}
	if s.IsConfigured() {
		if err := web.AllowFormAction(w, s.checkoutURL()); err != nil {
			return err
		}
	}
	return ui.Render(w, status, page)
}

func makeDollarField(f ui.Field, name, label string, least, most int64) ui.Field {
	f.ID, f.Label, f.Kind, f.Hint = name, label, "dollars", "From "+formatDollars(least)+" to "+formatDollars(most)+"."
	switch name {
	case "add":
		f.Hint = "Must be at least the threshold."
	case "most":
		f.Hint = "Per calendar month, in UTC. Up to " + formatDollars(most) + "."
	}
	return f
}

func formatDay(us int64) string { return time.UnixMicro(us).UTC().Format("2 January 2006") }

// DescribeAutomatic says what automatic top-up does for an account, "" if it is off. It may be off
// because Purser turned it off; then wentOff says why.
func (s *Store) DescribeAutomatic(ctx context.Context, accountID string) (summary, wentOff string, err error) {
	p, err := getPlan(ctx, s.DB, accountID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("topups: plan: %w", err)
	case p.On:
		return "Adds " + formatDollars(p.Add) + " when below " + formatDollars(p.Below), "", nil
	}
	return "", describeOff(p.OffReason), nil
}

func (p plan) summary() string {
	return "When your balance is below " + formatDollars(p.Below) + ", we charge " + formatDollars(p.Add) +
		" to your " + p.card() + "."
}

// autoSummary describes the state of automatic top-up for the page of top-ups.
func (s *Store) autoSummary(ctx context.Context, accountID string) (string, error) {
	p, err := getPlan(ctx, s.DB, accountID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("topups: plan: %w", err)
	case p.On:
		return "On. " + p.summary(), nil
	case p.OffReason != "":
		return "Off. " + describeOff(p.OffReason), nil
	case p.PaymentMethod != "":
		return "Off. Your " + p.card() + " is saved.", nil
	}
	return "", nil
}

// fillMonth fills in the use of the monthly maximum, and the obstacle of a charge.
func (s *Store) fillMonth(ctx context.Context, p plan, now time.Time, page *ui.TopUpAuto) error {
	from, _ := monthBounds(now)
	_, used, underWay, err := getMonthUse(ctx, s.DB, p.AccountID, from.UnixMicro())
	if err != nil {
		return fmt.Errorf("topups: month: %w", err)
	}
	page.Month = ui.AutoMonth{
		Name: from.Format("January 2006"),
		Used: formatDollars(used),
		Most: formatDollars(p.Most),
		Left: formatDollars(max(0, p.Most-used)),
	}
	if !p.On {
		return nil
	}
	page.Month.Percent = min(100, used*100/p.Most)
	b, err := store.GetBalance(ctx, s.DB, p.AccountID)
	if err != nil {
		return fmt.Errorf("topups: balance: %w", err)
	}
	o, err := s.findObstacle(ctx, s.DB, p, b.AvailableMC, used, now)
	if err != nil {
		return fmt.Errorf("topups: obstacle: %w", err)
	}
	switch {
	case underWay:
	case o.why != "":
		page.Waits = waitTexts[o.why]
	case p.Failures > 0 && p.NextUS > now.UnixMicro():
		page.Waits = "Your card was declined. We’ll try again after " + ui.Date(p.NextUS) + "."
	}
	return nil
}

func (s *Store) fillAttempts(ctx context.Context, p plan, page *ui.TopUpAuto) error {
	ids, err := listAttempts(ctx, s.DB, p.AccountID, maxShownAttempts)
	if err != nil {
		return fmt.Errorf("topups: attempts: %w", err)
	}
	for _, paymentID := range ids {
		paid, err := store.GetPayment(ctx, s.DB, paymentID)
		if err != nil {
			return fmt.Errorf("topups: attempt: %w", err)
		}
		page.Attempts = append(page.Attempts, ui.AutoAttempt{Payment: makeRow(&paid), Why: failureTexts[paid.Reason]})
	}
	return nil
}

// saveAuto is POST /top-up/auto: it turns automatic top-up on, or changes its amounts.
func (h *Handler) saveAuto(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	p, err := h.getPlan(r.Context(), a.ID)
	if err != nil {
		return err
	}
	set, page := readPlan(planValues(form, p))
	if !p.On && ui.ShownValue(form, "on") != "" {
		page.Errors = []ui.Problem{{Text: "Automatic top-up was turned off after you opened this page, and stays " +
			"off. Turn it on if you want it."}}
	}
	if len(page.Errors) > 0 {
		page.First.Value = "25"
		return h.renderAuto(w, r, a, p, http.StatusUnprocessableEntity, page)
	}
	set.AccountID = a.ID
	ok, err := turnOn(r.Context(), h.Store.DB, p, set, h.Store.Now().UnixMicro())
	if err != nil {
		return fmt.Errorf("topups: turn on: %w", err)
	} else if !ok { // the card was removed or the plan changed at this moment: the page shows it
		return web.SeeOther(w, autoPath)
	}
	return web.SeeOther(w, autoPath+"?done=on")
}

// planValues returns the values of the form. Of a plan that is on, what was not typed stays as it is.
func planValues(form url.Values, p plan) func(string) string {
	now, _ := url.ParseQuery(string(shownPlan(p)))
	typed := ui.TypedFields(form)
	return func(name string) string {
		if p.On && !typed.Has(name) {
			return now.Get(name)
		}
		return form.Get(name)
	}
}

// readPlan reads the amounts of the form. The page has the typed values and the errors.
func readPlan(typed func(string) string) (p plan, page ui.TopUpAuto) {
	read := func(f *ui.Field, name string, least, most money.MC) (cents int64) {
		f.Value = typed(name)
		cents, f.Error = parseCentsWithin(f.Value, least, most)
		return cents
	}
	p.Below = read(&page.Below, "below", MinBelowCents, MaxBelowCents)
	p.Add = read(&page.Add, "add", MinCents, MaxAutoCents)
	p.Most = read(&page.Most, "most", MinCents, MaxMonthCents)
	if page.Below.Error == "" && page.Add.Error == "" && p.Add < p.Below {
		page.Add.Error = "Add at least " + formatDollars(p.Below) + " to bring your balance back above the threshold."
	}
	if page.Add.Error == "" && page.Most.Error == "" && p.Most < p.Add {
		page.Most.Error = "The monthly maximum must allow at least one top-up of " + formatDollars(p.Add) + "."
	}
	for _, f := range []struct{ id, text string }{
		{"below", page.Below.Error},
		{"add", page.Add.Error},
		{"most", page.Most.Error},
	} {
		if f.text != "" {
			page.Errors = append(page.Errors, ui.Problem{Field: f.id, Text: f.text})
		}
	}
	return p, page
}

// submitAutoOff is POST /top-up/auto/off.
func (h *Handler) submitAutoOff(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := turnOff(r.Context(), h.Store.DB, a.ID, ""); err != nil {
		return fmt.Errorf("topups: turn off: %w", err)
	}
	return web.SeeOther(w, autoPath+"?done=off")
}

// removeCard is POST /top-up/auto/card/remove.
func (h *Handler) removeCard(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := h.Store.removeCard(r.Context(), a.ID); err != nil {
		return fmt.Errorf("topups: remove card: %w", err)
	}
	return web.SeeOther(w, autoPath+"?done=removed")
}

// saveCard is POST /top-up/auto/card: a top-up by hand that saves the card, with the user's agreement.
func (h *Handler) saveCard(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s := h.Store
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token := form.Get("token")
	if len(token) != len(id.NewSecret()) {
		return apierr.InvalidRequest.Errorf("This form is incomplete. Reload the page and try again.")
	}
	p, err := h.getPlan(r.Context(), a.ID)
	if err != nil {
		return err
	}
	page := ui.TopUpAuto{First: ui.Field{Value: form.Get("first")}}
	if !s.IsConfigured() {
		return h.renderAuto(w, r, a, p, http.StatusServiceUnavailable, page)
	}
	cents, problem := ParseCents(page.First.Value)
	if page.First.Error = problem; problem != "" {
		page.Errors = append(page.Errors, ui.Problem{Field: "first", Text: problem})
	}
	if form.Get("agree") != "yes" {
		page.Agree = "Check the box to save your card. To pay without saving it, use a one-time top-up."
		page.Errors = append(page.Errors, ui.Problem{Field: "agree", Text: page.Agree})
	}
	if len(page.Errors) > 0 {
		return h.renderAuto(w, r, a, p, http.StatusUnprocessableEntity, page)
	}
	var c checkout
	customer, err := s.ensureCustomer(r.Context(), a.ID)
	if err == nil {
		c, err = s.startCheckout(r.Context(), a.ID, customer, token, cents)
	}
	if err != nil {
		status, text := s.describeUnopened(err, c.ID)
		page.Errors = []ui.Problem{{Field: "first", Text: text}}
		return h.renderAuto(w, r, a, p, status, page)
	}
	return h.redirectToStripe(w, r, c)
}
