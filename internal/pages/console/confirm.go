package console

import (
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/accounts"
)

// An identityCheck proves the identity of a developer once more, before a secret is replaced (decision 057).
type identityCheck struct {
	Accounts *accounts.Store
}

// show renders the page that asks for confirmation, with the field for the password. An account without a password must
// have signed in recently instead.
func (c identityCheck) show(w http.ResponseWriter, r *http.Request, a accounts.Account, page ui.Confirm) error {
	if c.Accounts.MustSignInAgain(r.Context(), a) {
		return accounts.RenderSignInAgain(w, r, a)
	}
	page.Password = a.HasPassword
	return ui.Render(w, http.StatusOK, page)
}

// pass checks the password of the form. If it is wrong, pass answers with the page again and returns false.
func (c identityCheck) pass(w http.ResponseWriter, r *http.Request, a accounts.Account, password string,
	page ui.Confirm) (bool, error) {
	if c.Accounts.MustSignInAgain(r.Context(), a) {
		return false, accounts.RenderSignInAgain(w, r, a)
	}
	err := c.Accounts.Reauthenticate(r.Context(), accounts.ClientOf(r), a, password)
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status < 500 {
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		}
		page.Password = a.HasPassword
		page.Errors = []ui.Problem{{Field: "present", Text: e.Message}}
		return false, ui.Render(w, e.Code.Status, page)
	}
	return err == nil, err
}
