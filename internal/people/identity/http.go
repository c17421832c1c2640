package identity

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Paths of mailed links.
const (
	confirmPath = "/sign-up/confirm/"
	resetPath   = "/reset/"
	emailPath   = "/settings/email/confirm/"
)

// A Handler serves the pages of this package.
type Handler struct {
	Store    *Store
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Provider *OpenIDClient // OpenID Connect provider; nil = none
	NoMail   bool          // no mail server is set up: a sign-up cannot be confirmed
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	codes := twoStepStore{h.Store}
	accessPages{h, codes}.mount(rt)
	settingsPages{h, codes}.mount(rt)
	twoStepPages{h, codes}.mount(rt)
	passkeyPages{h, passkeyStore{h.Store}}.mount(rt)
	openIDPages{h, loginStore{h.Store}}.mount(rt)
}

// requireRecentSignIn guards pages that ask for the password: an account without a password must
// have signed in recently.
func (h *Handler) requireRecentSignIn(next func(http.ResponseWriter, *http.Request,
	accounts.Account) error) web.Handler {
	return h.Sessions.Require(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if h.Accounts.MustSignInAgain(r.Context(), a) {
			return accounts.RenderSignInAgain(w, r, a)
		}
		return next(w, r, a)
	})
}

// requirePassword guards pages about sign-in methods that rely on the password: an account without
// one is asked to set it first.
func (h *Handler) requirePassword(next func(http.ResponseWriter, *http.Request, accounts.Account) error) web.Handler {
	return h.Sessions.Require(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if a.HasPassword {
			return next(w, r, a)
		}
		return ui.Render(w, http.StatusOK, ui.Form{
			Shell:   a.Shell(ui.Settings),
			Heading: "Set a password first",
			Lead:    "This page needs your password, and your account has none yet. We’ll email you a link to set one.",
			Action:  "/forgot",
			Button:  "Send link",
			Fields:  []ui.Input{emailField(a.Email)},
			Links:   []ui.Link{{Href: "/settings/security", Text: "Security"}},
		})
	})
}

// renderFormError renders a form with the error, if the user can correct it; other errors are
// returned. An error message "name: text" belongs to the field of that name, any other to field.
func renderFormError(w http.ResponseWriter, err error, page ui.Form, field string) error {
	p, e := toProblem(err, field)
	if e == nil {
		return err
	}
	page.Errors = []ui.Problem{p}
	setRetryAfter(w, e)
	return ui.Render(w, e.Code.Status, page)
}

func toProblem(err error, field string) (ui.Problem, *apierr.Error) {
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code == apierr.NotFound {
		return ui.Problem{}, nil
	}
	if name, rest, ok := strings.Cut(e.Message, ": "); ok && !strings.Contains(name, " ") {
		return ui.Problem{Field: name, Text: "It " + rest + "."}, e
	}
	return ui.Problem{Field: field, Text: e.Message}, e
}

func setRetryAfter(w http.ResponseWriter, e *apierr.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
}

const passwordHint = "At least 10 characters. Tip: several words are easier to remember."

func emailField(value string) ui.Input {
	return ui.Input{
		Name:     "email",
		Label:    "Email",
		Type:     "email",
		Complete: "username",
		Value:    value,
	}
}

func newPasswordField(label string) ui.Input {
	return ui.Input{
		Name:     "password",
		Label:    label,
		Type:     "password",
		Complete: "new-password",
		Hint:     passwordHint,
	}
}

func currentPasswordField(label string) ui.Input {
	return ui.Input{
		Name:     "present",
		Label:    label,
		Type:     "password",
		Complete: "current-password",
	}
}

// appendPasswordField appends the password field to fields if the account has a password.
// requireRecentSignIn guards the page for accounts without one.
func appendPasswordField(a accounts.Account, fields ...ui.Input) []ui.Input {
	if !a.HasPassword {
		return fields
	}
	return append(fields, currentPasswordField("Password"))
}

// describeSingleStep names the step that signs in to an account without a second step.
func (h *Handler) describeSingleStep(a accounts.Account) string {
	if a.HasPassword || h.Provider == nil {
		return "your password"
	}
	return h.Provider.Name
}

func passkeySignInPath(next string) string {
	return passkeyPath + "?" + url.Values{"next": {next}}.Encode()
}

// redirectSaved redirects to a page that confirms what was saved, a key of savedTexts.
func redirectSaved(w http.ResponseWriter, path, what string) error {
	return web.SeeOther(w, path+"?"+url.Values{"done": {what}}.Encode())
}

// restartSession starts a session after a change ended all sessions, with the proof of the current
// one.
func (h *Handler) restartSession(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	proof := accounts.ProofSingle
	if accounts.HasMFA(r) {
		proof = accounts.ProofMFA
	}
	return h.Sessions.Start(w, r, a, proof)
}

// redirectAfterRemoval responds after a second factor was removed. If it was the last, the new
// session has no second step.
func (h *Handler) redirectAfterRemoval(w http.ResponseWriter, r *http.Request, a accounts.Account, what string) error {
	if !a.TwoStep {
		if err := h.Sessions.Continue(w, r, a, accounts.ProofSingle); err != nil {
			return err
		}
		what = "two-step-off"
	}
	return redirectSaved(w, "/settings/security", what)
}
