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

// Where links in mails lead.
const (
	confirmPath = "/sign-up/confirm/"
	resetPath   = "/reset/"
	emailPath   = "/settings/email/confirm/"
)

// A Handler serves the pages.
type Handler struct {
	Store    *Store
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Provider *RelyingParty // by which people may sign in; nil = none
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /sign-up", h.signUpForm)
	rt.HandlePage("POST /sign-up", h.signUp)
	rt.HandlePage("GET "+confirmPath+"{token}", h.confirmForm)
	rt.HandlePage("POST "+confirmPath+"{token}", h.Sessions.With(h.confirm))
	rt.HandlePage("GET /forgot", h.forgotForm)
	rt.HandlePage("POST /forgot", h.forgot)
	rt.HandlePage("GET "+resetPath+"{token}", h.resetForm)
	rt.HandlePage("POST "+resetPath+"{token}", h.reset)
	rt.HandlePage("GET /sign-in/code", h.Sessions.With(h.codeForm))
	rt.HandlePage("POST /sign-in/code", h.Sessions.With(h.code))

	h.mountPasskeys(rt)

	rt.HandlePage("GET /settings", h.signedIn(h.settings))
	rt.HandlePage("POST /settings/developer", h.signedIn(h.developer))
	rt.HandlePage("GET /settings/security", h.signedIn(h.security))
	rt.HandlePage("POST /settings/security/sessions", h.signedIn(h.endSession))
	rt.HandlePage("GET /settings/password", h.knowsPassword(h.passwordForm))
	rt.HandlePage("POST /settings/password", h.signedIn(h.password))
	rt.HandlePage("GET /settings/email", h.confirms(h.emailForm))
	rt.HandlePage("POST /settings/email", h.confirms(h.email))
	rt.HandlePage("GET "+emailPath+"{token}", h.newEmailForm)
	rt.HandlePage("POST "+emailPath+"{token}", h.newEmail)
	rt.HandlePage("GET /settings/two-step", h.confirms(h.twoStepForm))
	rt.HandlePage("POST /settings/two-step", h.confirms(h.twoStep))
	rt.HandlePage("GET /settings/two-step/setup", h.signedIn(h.setupForm))
	rt.HandlePage("POST /settings/two-step/setup", h.signedIn(h.setup))
	rt.HandlePage("GET /settings/two-step/codes", h.confirms(h.codesForm))
	rt.HandlePage("POST /settings/two-step/codes", h.confirms(h.codes))
	rt.HandlePage("GET /settings/two-step/off", h.confirms(h.offForm))
	rt.HandlePage("POST /settings/two-step/off", h.confirms(h.off))
	h.mountOpenID(rt)
}

// signedIn asks whoever is not signed in to do so, and to come back to the page.
func (h *Handler) signedIn(next func(http.ResponseWriter, *http.Request, accounts.Account) error) web.Handler {
	return h.Sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		a, ok := accounts.CurrentAccount(r.Context())
		if !ok {
			return seeOther(w, accounts.SignInPath(r.URL.EscapedPath()))
		}
		return next(w, r, a)
	})
}

func seeOther(w http.ResponseWriter, path string) error {
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// again shows a form with what is wrong in it, if the error is one that the
// person can do something about. The field of a message that begins with
// "name: " is that one, otherwise it is field.
func again(w http.ResponseWriter, err error, page ui.Form, field string) error {
	p, e := problem(err, field)
	if e == nil {
		return err
	}
	page.Errors = []ui.Problem{p}
	retryAfter(w, e)
	return ui.Render(w, e.Code.Status, page)
}

func problem(err error, field string) (ui.Problem, *apierr.Error) {
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code == apierr.NotFound {
		return ui.Problem{}, nil
	}
	if name, rest, ok := strings.Cut(e.Message, ": "); ok && !strings.Contains(name, " ") {
		return ui.Problem{Field: name, Text: "It " + rest + "."}, e
	}
	return ui.Problem{Field: field, Text: e.Message}, e
}

func retryAfter(w http.ResponseWriter, e *apierr.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
}

const passwordHint = "At least 10 characters. Tip: several words are easier to remember."

func emailField(value string) ui.Input {
	return ui.Input{Name: "email", Label: "Email", Type: "email", Complete: "username", Value: value}
}

func newPasswordField(label string) ui.Input {
	return ui.Input{Name: "password", Label: label, Type: "password", Complete: "new-password", Hint: passwordHint}
}

func presentField(label string) ui.Input {
	return ui.Input{Name: "present", Label: label, Type: "password", Complete: "current-password"}
}

// confirming is a page's fields and, behind them, the password of an account that
// has one; confirms has seen to it that others signed in just now.
func confirming(a accounts.Account, fields ...ui.Input) []ui.Input {
	if !a.HasPassword {
		return fields
	}
	return append(fields, presentField("Password"))
}

// alone is the one step by which an account would sign in without a second one.
func (h *Handler) alone(a accounts.Account) string {
	if a.HasPassword || h.Provider == nil {
		return "your password"
	}
	return h.Provider.Name
}

func (h *Handler) signUpPage(next, email string) ui.Form {
	return ui.Form{
		Provider: h.Provider.name(),
		Heading:  "Create your account", Lead: "Apps only spend what you allow.",
		Action: "/sign-up", Next: next, Fields: []ui.Input{emailField(email), newPasswordField("Password")}, Button: "Create account",
		Links: []ui.Link{{Href: accounts.SignInPath(next), Text: "Sign in instead"}},
	}
}

func (h *Handler) signUpForm(w http.ResponseWriter, r *http.Request) error {
	return ui.Render(w, http.StatusOK, h.signUpPage(accounts.LocalPath(r.URL.Query().Get("next")), ""))
}

func (h *Handler) signUp(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	if err := h.Store.SignUp(r.Context(), accounts.ClientOf(r), form.Get("email"), form.Get("password"), next); err != nil {
		return again(w, err, h.signUpPage(next, form.Get("email")), "email")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Check your email",
		Text:    "We sent you a link. Open it within a day to finish creating your account.",
	})
}

func confirmPage(token string) ui.Form {
	return ui.Form{
		Heading: "Confirm your email", Lead: "Enter the password you chose when you signed up.",
		Action: confirmPath + token, Button: "Confirm", Fields: []ui.Input{{Name: "password", Label: "Password", Type: "password", Complete: "current-password"}},
		Links: []ui.Link{{Href: "/sign-up", Text: "Start over with another password"}},
	}
}

// confirmForm is where the link in a mail leads.
func (h *Handler) confirmForm(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	if _, err := h.Store.link(r.Context(), token, signUp); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, confirmPage(token))
}

func (h *Handler) confirm(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token := r.PathValue("token")
	a, next, err := h.Store.Confirm(r.Context(), accounts.ClientOf(r), token, form.Get("password"))
	if err != nil {
		return again(w, err, confirmPage(token), "password")
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofSingle); err != nil {
		return err
	}
	return seeOther(w, accounts.LocalPath(next))
}

func forgotPage(email string) ui.Form {
	return ui.Form{
		Heading: "Forgot your password?", Lead: "We’ll email you a link to reset it.",
		Action: "/forgot", Fields: []ui.Input{emailField(email)}, Button: "Send link", Links: []ui.Link{{Href: "/sign-in", Text: "Sign in"}},
	}
}

func (h *Handler) forgotForm(w http.ResponseWriter, _ *http.Request) error {
	return ui.Render(w, http.StatusOK, forgotPage(""))
}

func (h *Handler) forgot(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if err := h.Store.Forgot(r.Context(), accounts.ClientOf(r), form.Get("email")); err != nil {
		return again(w, err, forgotPage(form.Get("email")), "email")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Check your email",
		Text:    "If an account uses this address, we sent it a link. The link works once, within one hour.",
		Link:    &ui.Link{Href: "/sign-in", Text: "Sign in"},
	})
}

func resetPage(token string) ui.Form {
	return ui.Form{
		Heading: "Set a new password", Lead: "This signs you out everywhere.",
		Action: resetPath + token, Fields: []ui.Input{newPasswordField("New password")}, Button: "Set password",
	}
}

func (h *Handler) resetForm(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	if _, err := h.Store.link(r.Context(), token, reset); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, resetPage(token))
}

func (h *Handler) reset(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token := r.PathValue("token")
	if err := h.Store.Reset(r.Context(), accounts.ClientOf(r), token, form.Get("password")); err != nil {
		return again(w, err, resetPage(token), "password")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Password changed", Text: "You were signed out everywhere. Sign in with your new password.", Link: &ui.Link{Href: "/sign-in", Text: "Sign in"},
	})
}

// codePage asks for a second step that the account has.
func (h *Handler) codePage(r *http.Request, half accounts.Account, next string) (ui.Form, error) {
	f, err := h.Store.Factors(r.Context(), half.ID)
	if err != nil {
		return ui.Form{}, err
	}
	page := ui.Form{
		Heading: "Two-step verification", Lead: "Enter the six-digit code from your authenticator app, or a recovery code.",
		Action: "/sign-in/code", Next: next, Button: "Sign in", Links: []ui.Link{{Href: accounts.SignInPath(next), Text: "Start over"}},
		Fields: []ui.Input{{Name: "code", Label: "Code", Type: "text", Complete: "one-time-code", Code: true}},
	}
	if len(f.Passkeys) > 0 {
		page.Passkeys = h.Store.party.Offer()
		if !f.App {
			page.First = true
			page.Lead, page.Fields[0].Label = "Use your passkey. If you don’t have it with you, enter a recovery code.", "Recovery code"
		}
	}
	return page, nil
}

func (h *Handler) codeForm(w http.ResponseWriter, r *http.Request) error {
	next := accounts.LocalPath(r.URL.Query().Get("next"))
	half, ok := accounts.PendingSecondStep(r.Context())
	if !ok {
		return seeOther(w, accounts.SignInPath(next))
	}
	page, err := h.codePage(r, half, next)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h *Handler) code(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	a, ok := accounts.PendingSecondStep(r.Context())
	if !ok {
		return seeOther(w, accounts.SignInPath(next))
	}
	if err := h.Store.SecondStep(r.Context(), accounts.ClientOf(r), a, form.Get("code")); err != nil {
		page, lost := h.codePage(r, a, next)
		if lost != nil {
			return lost
		}
		return again(w, err, page, "code")
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofMFA); err != nil {
		return err
	}
	return seeOther(w, next)
}

func usePath(next string) string { return passkeyPath + "?" + url.Values{"next": {next}}.Encode() }

func newEmailPage(token, email string) ui.Form {
	return ui.Form{Heading: "Confirm your new email address", Lead: "Your account will use " + email + ".", Action: emailPath + token, Button: "Confirm"}
}

func (h *Handler) newEmailForm(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	l, err := h.Store.link(r.Context(), token, newEmail)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, newEmailPage(token, l.email))
}

func (h *Handler) newEmail(w http.ResponseWriter, r *http.Request) error {
	if _, err := web.ReadForm(r); err != nil {
		return err
	}
	if err := h.Store.ChangeEmail(r.Context(), accounts.ClientOf(r), r.PathValue("token")); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Email address changed", Text: "Use it to sign in from now on. We also notified your old address.", Link: &ui.Link{Href: "/settings", Text: "Settings"},
	})
}

// saved leads back to a page that says what was done.
func saved(w http.ResponseWriter, path, what string) error {
	return seeOther(w, path+"?"+url.Values{"done": {what}}.Encode())
}
