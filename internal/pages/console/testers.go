package console

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

func (h *Handler) testAccountsPage(r *http.Request, a accounts.Account) (ui.TestAccounts, error) {
	page := ui.TestAccounts{
		Console: own(r, a, "Test accounts", "/developer/test-accounts"),
		Most:    accounts.MaxTestAccounts,
	}
	list, err := h.Sandbox.List(r.Context(), a.ID)
	for _, t := range list {
		page.List = append(page.List, ui.TestAccount{
			ID:        t.ID,
			Email:     t.Email,
			Tester:    t.Tester,
			Available: ui.Dollars(t.Balance.AvailableMC),
			Reserved:  ui.Dollars(t.Balance.ReservedMC),
			Created:   ui.Date(t.CreatedUS),
		})
	}
	return page, err
}

// testAccounts is GET /developer/test-accounts.
func (h *Handler) testAccounts(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.testAccountsPage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// refuseTestAccount shows the list with what was refused, or passes on what is no
// refusal.
func (h *Handler) refuseTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account, refusal error) error {
	found := problems(refusal, nil)
	if errors.Is(refusal, sql.ErrNoRows) || found == nil {
		return gone(refusal)
	}
	page, err := h.testAccountsPage(r, a)
	if err != nil {
		return err
	}
	page.Errors = found
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// createTestAccount is POST /developer/test-accounts. The password is on the page
// that answers, and nowhere else.
func (h *Handler) createTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	t, password, err := h.Sandbox.Create(r.Context(), a.ID)
	if err != nil {
		return h.refuseTestAccount(w, r, a, err)
	}
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: own(r, a, "New test account", "/developer/test-accounts"),
		Lead:    "You won’t see the password again. Use these to sign in as this test user.",
		Facts: []ui.Fact{
			{Name: "Email", Value: t.Email},
			{Name: "Password", Value: password},
			{Name: "Available", Value: ui.Dollars(t.Balance.AvailableMC)},
		},
		Next: ui.Link{Href: "/developer/test-accounts", Text: "All test accounts"},
	})
}

// fundTestAccount is POST /developer/test-accounts/{account}/fund.
func (h *Handler) fundTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	amount, err := money.Parse(form.Get("amount"))
	if err != nil || amount == 0 {
		err = apierr.InvalidRequest.Errorf("enter an amount in dollars, such as 100 or 12.50")
	} else {
		_, err = h.Sandbox.Fund(r.Context(), a.ID, r.PathValue("account"), amount)
	}
	if err != nil {
		return h.refuseTestAccount(w, r, a, err)
	}
	return web.SeeOther(w, "/developer/test-accounts?done=funded")
}

// deleteTestAccount is POST /developer/test-accounts/{account}/delete.
func (h *Handler) deleteTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := h.Sandbox.Delete(r.Context(), a.ID, r.PathValue("account")); err != nil {
		return gone(err)
	}
	return web.SeeOther(w, "/developer/test-accounts?done=deleted")
}
