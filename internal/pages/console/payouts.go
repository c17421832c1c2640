package console

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/apps/payouts"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// payoutPages show developers what their apps have earned, and let them say where it is paid to.
type payoutPages struct {
	Accounts *accounts.Store
	Payouts  *payouts.Store
}

// maxPayoutsListed is the number of payouts on the page.
const maxPayoutsListed = 50

func (h payoutPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+payouts.Page, access.requireDeveloper(h.show))
	rt.HandlePage("POST "+payouts.Page, access.requireDeveloper(h.setUp))
	rt.HandlePage("GET "+payouts.StatementsPage+"{file}", access.requireDeveloper(h.serveRevenue))
}

// show is GET /developer/payouts. Stripe sends developers back to it.
func (h payoutPages) show(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.render(w, r, a, http.StatusOK, nil)
}

func (h payoutPages) render(w http.ResponseWriter, r *http.Request, a accounts.Account, status int,
	problems []ui.Problem) error {
	s := h.Payouts
	page := ui.Payouts{
		Console:  newDeveloperPage(r, a, "Payouts", payouts.Page),
		Off:      !s.IsOn(),
		Sandbox:  a.Sandbox,
		Minimum:  ui.Dollars(s.Config.MinimumMC),
		Days:     int(s.Config.Window / (24 * time.Hour)),
		Every:    describeInterval(s.Config.Every),
		Password: a.HasPassword,
	}
	page.Errors = problems
	if !page.Off && !a.Sandbox {
		if err := h.fillPayee(r, a, &page); err != nil {
			return err
		}
		if err := web.AllowFormAction(w, s.OnboardingOrigin()); err != nil {
			return err
		}
	}
	margins, err := s.ListMargins(r.Context(), a.ID)
	if err != nil {
		return err
	}
	for _, m := range margins {
		page.Apps = append(page.Apps, marginRow(m, s.Config.MinimumMC))
	}
	page.Months = revenueMonths(margins, s.DB.Now())
	list, err := store.PayoutsOfDeveloper(r.Context(), s.DB, a.ID, maxPayoutsListed)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, m := range margins {
		names[m.ID] = m.Name
	}
	for _, p := range list {
		page.List = append(page.List, ui.Payout{
			ID:     p.ID,
			App:    names[p.AppID],
			Amount: ui.Dollars(p.AmountMC),
			Status: p.Status,
			When:   ui.Date(p.CreatedUS),
			Reason: p.Reason,
		})
	}
	return ui.Render(w, status, page)
}

// fillPayee says on the page whether Stripe can pay the developer.
func (h payoutPages) fillPayee(r *http.Request, a accounts.Account, page *ui.Payouts) error {
	p, err := h.Payouts.GetPayee(r.Context(), a.ID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("console: payee: %w", err)
	case p.GoneUS > 0:
		page.Payee = "gone"
	case p.Enabled:
		page.Payee = "enabled"
	case p.Submitted:
		page.Payee = "submitted"
	default:
		page.Payee = "begun"
	}
	return nil
}

// marginRow is the line of an app.
func marginRow(m payouts.AppMargin, minimum money.MC) ui.PayoutApp {
	payable := max(m.Balance()-m.KeptMC, 0)
	row := ui.PayoutApp{
		ID:       m.ID,
		Name:     m.Name,
		Earned:   ui.Dollars(m.EarnedMC),
		Paid:     ui.Dollars(m.TakenMC - m.DisputedMC),
		Disputed: ui.Dollars(m.DisputedMC),
		Waiting:  ui.Dollars(max(m.EarnedMC-m.TakenMC-payable, 0)),
		Payable:  ui.Dollars(payable),
		Next:     ui.Date(m.NextUS),
	}
	switch {
	case m.Balance() < 0:
		row.Owed, row.Next = ui.Dollars(-m.Balance()), ""
	case m.Payable(minimum) == 0:
		row.Next = ""
	}
	return row
}

// setUp is POST /developer/payouts: it proves the developer's identity once more, since it says where money goes, and
// redirects to Stripe.
func (h payoutPages) setUp(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	body, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if a.Sandbox || !h.Payouts.IsOn() {
		return h.render(w, r, a, http.StatusServiceUnavailable, nil)
	}
	if h.Accounts.MustSignInAgain(r.Context(), a) {
		return accounts.RenderSignInAgain(w, r, a)
	}
	err = h.Accounts.Reauthenticate(r.Context(), accounts.ClientOf(r), a, body.Get("present"))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status < 500 {
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		}
		return h.render(w, r, a, e.Code.Status, []ui.Problem{{Field: "present", Text: e.Message}})
	} else if err != nil {
		return err
	}
	to, err := h.Payouts.Onboard(r.Context(), a)
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.Unavailable {
		return h.render(w, r, a, e.Code.Status, []ui.Problem{{Field: "form", Text: e.Message}})
	} else if err != nil {
		return err
	}
	return web.SeeOther(w, to)
}

// describeInterval says how often payouts are made.
func describeInterval(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{7 * 24 * time.Hour, "week"}, {24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		switch n := d / unit.length; {
		case d%unit.length != 0 || n == 0:
		case n == 1:
			return "every " + unit.name
		default:
			return fmt.Sprintf("every %d %ss", n, unit.name)
		}
	}
	return "every " + d.String()
}
