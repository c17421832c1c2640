package topups

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// refundPath is the page by which users take unspent money back.
const refundPath = "/top-up/refund"

// maxRefundsListed is the number of refunds on the page.
const maxRefundsListed = 20

// showRefund is GET /top-up/refund.
func (h *Handler) showRefund(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if h.Accounts.MustSignInAgain(r.Context(), a) {
		return accounts.RenderSignInAgain(w, r, a)
	}
	return h.renderRefund(w, r, a, http.StatusOK, "", nil)
}

func (h *Handler) renderRefund(w http.ResponseWriter, r *http.Request, a accounts.Account, status int, typed string,
	problems []ui.Problem) error {
	s := h.Store
	b, cents, err := s.balanceForCard(r, a.ID)
	if err != nil {
		return err
	}
	page := ui.CardRefund{
		Shell:      a.Shell(ui.TopUp),
		Off:        !s.IsConfigured(),
		Available:  ui.Dollars(b.AvailableMC),
		Refundable: formatDollars(cents),
		Nothing:    cents == 0,
		Token:      id.NewSecret(),
		Amount:     typed,
		Password:   a.HasPassword,
		Errors:     problems,
		Done:       r.URL.Query().Get("done") == "1",
	}
	if typed == "" {
		page.Amount = fmt.Sprintf("%d.%02d", cents/100, cents%100)
	}
	list, err := listRefunds(r.Context(), s.DB, a.ID, maxRefundsListed)
	if err != nil {
		return fmt.Errorf("topups: refunds: %w", err)
	}
	for _, refund := range list {
		page.List = append(page.List, ui.CardRefundRow{
			Amount: formatDollars(refund.Cents),
			When:   ui.Date(refund.CreatedUS),
			State:  string(refund.State),
			TopUp:  refund.PaymentID,
		})
	}
	return ui.Render(w, status, page)
}

// balanceForCard returns the balance of an account, and how many cents of it can go back to the cards that brought it.
func (s *Store) balanceForCard(r *http.Request, accountID string) (b rules.Balance, cents int64, err error) {
	if b, err = store.GetBalance(r.Context(), s.DB, accountID); err != nil {
		return b, 0, fmt.Errorf("topups: balance: %w", err)
	}
	b.AccountID = accountID // of one that has no balance yet
	if cents, _, err = s.refundable(r.Context(), s.DB, b); err != nil {
		return b, 0, fmt.Errorf("topups: refundable: %w", err)
	}
	return b, cents, nil
}

// submitRefund is POST /top-up/refund. It asks Stripe at once; what Stripe does not answer stays pending, and the job
// goes on with it.
func (h *Handler) submitRefund(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	s := h.Store
	if !s.IsConfigured() {
		return h.renderRefund(w, r, a, http.StatusServiceUnavailable, "", nil)
	}
	body, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token, typed := body.Get("token"), body.Get("amount")
	if len(token) != len(id.NewSecret()) {
		return apierr.InvalidRequest.Errorf("This form is incomplete. Reload the page and try again.")
	}
	if h.Accounts.MustSignInAgain(r.Context(), a) {
		return accounts.RenderSignInAgain(w, r, a)
	}
	cents, problem := parseRefund(typed)
	if problem == "" {
		problem, err = s.whyNoRefund(r, a.ID)
	}
	if err != nil {
		return err
	} else if problem != "" {
		return h.renderRefund(w, r, a, http.StatusUnprocessableEntity, typed,
			[]ui.Problem{{Field: "amount", Text: problem}})
	}
	err = h.Accounts.Reauthenticate(r.Context(), accounts.ClientOf(r), a, body.Get("present"))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status < 500 {
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		}
		return h.renderRefund(w, r, a, e.Code.Status, typed, []ui.Problem{{Field: "present", Text: e.Message}})
	} else if err != nil {
		return err
	}
	list, err := s.startUserRefund(r.Context(), a.ID, token, cents)
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.InvalidRequest {
		return h.renderRefund(w, r, a, http.StatusUnprocessableEntity, typed,
			[]ui.Problem{{Field: "amount", Text: e.Message}})
	} else if err != nil {
		return err
	}
	for _, refund := range list {
		if refund.State != refundOpen {
			continue
		}
		if err := s.finishRefund(r.Context(), refund); err != nil { // it stays pending, and the job repeats it
			s.Log.Error("refund not finished", "refund_id", refund.ID, "error", err)
		}
	}
	return web.SeeOther(w, refundPath+"?done=1")
}

// parseRefund parses the amount of a refund that a user typed. It returns a problem for the user if it is invalid.
func parseRefund(typed string) (cents int64, problem string) {
	mc, err := money.Parse(typed)
	if err != nil || mc%money.Cent != 0 || mc <= 0 || mc > money.Max {
		return 0, "Enter an amount in dollars and cents, such as 25 or 12.50."
	}
	return int64(mc / money.Cent), ""
}

// whyNoRefund returns what keeps an account from refunds, for the user; "" = nothing. Automatic top-up would charge the
// card again as soon as the balance is low.
func (s *Store) whyNoRefund(r *http.Request, accountID string) (string, error) {
	p, err := getPlan(r.Context(), s.DB, accountID)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("topups: automatic: %w", err)
	case p.On:
		return autoIsOn, nil
	}
	return "", nil
}
