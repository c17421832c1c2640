package console

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// testAccountPages manage the test accounts of a developer.
type testAccountPages struct {
	Sandbox *sandbox.Store
}

func (h testAccountPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET /developer/test-accounts", access.requireDeveloper(h.showTestAccounts))
	rt.HandlePage("POST /developer/test-accounts", access.requireDeveloper(h.createTestAccount))
	rt.HandlePage("POST /developer/test-accounts/{account}/fund", access.requireDeveloper(h.fundTestAccount))
	rt.HandlePage("GET /developer/test-accounts/{account}/delete", access.requireDeveloper(h.confirmDelete))
	rt.HandlePage("POST /developer/test-accounts/{account}/delete", access.requireDeveloper(h.deleteTestAccount))
}

func (h testAccountPages) testAccountsPage(r *http.Request, a accounts.Account) (ui.TestAccounts, error) {
	page := ui.TestAccounts{
		Console: newDeveloperPage(r, a, "Test accounts", "/developer/test-accounts"),
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

// showTestAccounts is GET /developer/test-accounts.
func (h testAccountPages) showTestAccounts(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.testAccountsPage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// showTestAccountError shows the list with a refusal. It returns other errors.
func (h testAccountPages) showTestAccountError(w http.ResponseWriter, r *http.Request, a accounts.Account,
	refusal error) error {
	found := formProblems(refusal, nil)
	if errors.Is(refusal, sql.ErrNoRows) || found == nil {
		return notFound(refusal)
	}
	page, err := h.testAccountsPage(r, a)
	if err != nil {
		return err
	}
	page.Errors = found
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// createTestAccount is POST /developer/test-accounts. Only its response shows the
// password.
func (h testAccountPages) createTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	t, password, err := h.Sandbox.Create(r.Context(), a.ID)
	if err != nil {
		return h.showTestAccountError(w, r, a, err)
	}
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: newDeveloperPage(r, a, "New test account", "/developer/test-accounts"),
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
func (h testAccountPages) fundTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
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
		return h.showTestAccountError(w, r, a, err)
	}
	return web.SeeOther(w, "/developer/test-accounts?done=funded")
}

// confirmDelete is GET /developer/test-accounts/{account}/delete.
func (h testAccountPages) confirmDelete(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	list, err := h.Sandbox.List(r.Context(), a.ID)
	if err != nil {
		return err
	}
	for _, t := range list {
		if t.ID == r.PathValue("account") {
			return ui.Render(w, http.StatusOK, ui.Confirm{
				Console: newDeveloperPage(r, a, "Delete this test account?", "/developer/test-accounts"),
				Lead: "Its connections are revoked and it can’t sign in any more. Its ledger is kept. This can’t be " +
					"undone.",
				Facts: []ui.Fact{
					{Name: "Email", Value: t.Email},
					{Name: "Available", Value: ui.Dollars(t.Balance.AvailableMC)},
				},
				Action: "/developer/test-accounts/" + t.ID + "/delete",
				Button: "Delete test account",
				Back:   ui.Link{Href: "/developer/test-accounts", Text: "Cancel"},
			})
		}
	}
	return ui.NotFound()
}

// deleteTestAccount is POST /developer/test-accounts/{account}/delete.
func (h testAccountPages) deleteTestAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := h.Sandbox.Delete(r.Context(), a.ID, r.PathValue("account")); err != nil {
		return notFound(err)
	}
	return web.SeeOther(w, "/developer/test-accounts?done=deleted")
}
