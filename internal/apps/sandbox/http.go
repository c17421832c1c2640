package sandbox

import (
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/apps/{id}/test-accounts. The accounts are those of the
// developer who owns the app, so each app of that developer shows the same ones.
type Handler struct {
	Store *Store
	Apps  *apps.Store
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/apps/{id}/test-accounts", h.listTestAccounts)
	rt.Handle("POST /v1/apps/{id}/test-accounts", h.createTestAccount)
	rt.Handle("DELETE /v1/apps/{id}/test-accounts/{wac_id}", h.deleteTestAccount)
	rt.Handle("POST /v1/apps/{id}/test-accounts/{wac_id}/fund", h.fundTestAccount)
}

// resource is a test account as the API shows it: the Account of contract §2, and
// whose it is.
type resource struct {
	ID               string   `json:"wac_id"`
	Email            string   `json:"email"`
	Sandbox          bool     `json:"sandbox"`
	AvailableMC      money.MC `json:"balance_available_mc"`
	AvailableDisplay string   `json:"balance_available_display"`
	ReservedMC       money.MC `json:"balance_reserved_mc"`
	ReservedDisplay  string   `json:"balance_reserved_display"`
	Tester           *string  `json:"tester"`
	CreatedAt        string   `json:"created_at"`
}

// created is a resource with the password, once.
type created struct {
	resource
	Password string `json:"password"`
}

func (t *TestAccount) resource() resource {
	r := resource{
		ID:               t.ID,
		Email:            t.Email,
		Sandbox:          t.Sandbox,
		CreatedAt:        timestamp.Format(t.CreatedUS),
		AvailableMC:      t.Balance.AvailableMC,
		AvailableDisplay: t.Balance.AvailableMC.Display(),
		ReservedMC:       t.Balance.ReservedMC,
		ReservedDisplay:  t.Balance.ReservedMC.Display(),
	}
	if t.Tester != "" {
		r.Tester = &t.Tester
	}
	return r
}

func (h *Handler) listTestAccounts(w http.ResponseWriter, r *http.Request) error {
	developerID, err := h.requireDeveloper(r)
	if err != nil {
		return err
	}
	list, err := h.Store.List(r.Context(), developerID)
	if err != nil {
		return err
	}
	out := make([]resource, len(list))
	for i := range list {
		out[i] = list[i].resource()
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) createTestAccount(w http.ResponseWriter, r *http.Request) error {
	developerID, err := h.requireDeveloper(r)
	if err != nil {
		return err
	}
	t, password, err := h.Store.Create(r.Context(), developerID)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return web.WriteJSON(w, http.StatusOK, created{t.resource(), password})
}

func (h *Handler) deleteTestAccount(w http.ResponseWriter, r *http.Request) error {
	developerID, err := h.requireDeveloper(r)
	if err != nil {
		return err
	}
	if err := h.Store.Delete(r.Context(), developerID, r.PathValue("wac_id")); err != nil {
		return notFoundError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Handler) fundTestAccount(w http.ResponseWriter, r *http.Request) error {
	developerID, err := h.requireDeveloper(r)
	if err != nil {
		return err
	}
	if err := h.Store.requireTestAccount(r.Context(), developerID, r.PathValue("wac_id")); err != nil {
		return notFoundError(err) // before the body is read: 404 comes before 400
	}
	var body struct {
		AmountMC web.Field[money.MC] `json:"amount_mc"`
	}
	if err := web.ReadJSON(r, &body); err != nil {
		return err
	}
	if amount := body.AmountMC; !amount.Set || amount.Null || amount.Value < 1 || amount.Value > money.Max {
		return apierr.InvalidRequest.Errorf("amount_mc: required, must be an integer from 1 to %d", money.Max)
	}
	t, err := h.Store.Fund(r.Context(), developerID, r.PathValue("wac_id"), body.AmountMC.Value)
	if err != nil {
		return notFoundError(err)
	}
	return web.WriteJSON(w, http.StatusOK, t.resource())
}

// notFoundError returns 404 in place of sql.ErrNoRows.
func notFoundError(err error) error { return db.NotFound(err, "no such test account") }

// requireDeveloper returns the owner of the app of the path, which must be the authenticated app
// and in the sandbox: live apps accept only real accounts.
func (h *Handler) requireDeveloper(r *http.Request) (accountID string, err error) {
	app, err := h.Apps.Authenticate(r.Context(), r)
	if err != nil {
		return "", err
	}
	if r.PathValue("id") != app.ID {
		return "", apierr.NotFound.Errorf("no such app")
	}
	if app.Tier != apps.Sandbox {
		return "", apierr.InvalidRequest.Errorf(
			"the app is live, and takes real accounts only; use the credentials of an app that is in sandbox")
	}
	return app.OwnerID, nil
}
