package identity

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// accessPages are the pages for signing up, resetting a password, the second step and confirming a
// new email.
type accessPages struct {
	*Handler
	codes twoStepStore
}

func (h accessPages) mount(rt *web.Router) {
	rt.HandlePage("GET /sign-up", h.showSignUp)
	rt.HandlePage("POST /sign-up", h.submitSignUp)
	rt.HandlePage("GET "+confirmPath+"{token}", h.showConfirm)
	rt.HandlePage("POST "+confirmPath+"{token}", h.Sessions.With(h.submitConfirm))
	rt.HandlePage("GET "+invitationPath+"{token}", h.showInvitation)
	rt.HandlePage("POST "+invitationPath+"{token}", h.Sessions.With(h.submitInvitation))
	rt.HandlePage("GET /forgot", h.showForgot)
	rt.HandlePage("POST /forgot", h.submitForgot)
	rt.HandlePage("GET "+resetPath+"{token}", h.showReset)
	rt.HandlePage("POST "+resetPath+"{token}", h.submitReset)
	rt.HandlePage("GET /sign-in/code", h.Sessions.With(h.showCode))
	rt.HandlePage("POST /sign-in/code", h.Sessions.With(h.submitCode))
	rt.HandlePage("GET "+emailPath+"{token}", h.showNewEmail)
	rt.HandlePage("POST "+emailPath+"{token}", h.submitNewEmail)
}

func (h accessPages) makeSignUpPage(next, email string) ui.Form {
	return ui.Form{
		Provider: h.Provider.displayName(),
		Heading:  "Create your account",
		Lead:     "Apps only spend what you allow.",
		Action:   "/sign-up",
		Next:     next,
		Fields:   []ui.Input{emailField(email), newPasswordField("Password")},
		Button:   "Create account",
		Links:    []ui.Link{{Href: accounts.SignInPath(next), Text: "Sign in instead"}},
	}
}

func (h accessPages) showSignUp(w http.ResponseWriter, r *http.Request) error {
	if !h.showsSignUp(accounts.LocalPath(r.URL.Query().Get("next"))) {
		return h.showSignUpsClosed(w, http.StatusOK)
	}
	if h.NoMail && h.Provider == nil {
		return ui.Render(w, http.StatusOK, noMailMessage("You can’t create an account here yet"))
	}
	return ui.Render(w, http.StatusOK, h.makeSignUpPage(accounts.LocalPath(r.URL.Query().Get("next")), ""))
}

func (h accessPages) submitSignUp(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	may := h.showsSignUp(next)
	if may {
		if may, err = h.Store.mayCreate(r.Context(), h.Store.db, form.Get("email")); err != nil {
			return err
		}
	}
	if !may {
		return h.showSignUpsClosed(w, http.StatusForbidden)
	}
	if err := h.Store.signUp(r.Context(), accounts.ClientOf(r), form.Get("email"), form.Get("password"),
		next); err != nil {
		return renderFormError(w, err, h.makeSignUpPage(next, form.Get("email")), "email")
	}
	if h.NoMail {
		return ui.Render(w, http.StatusOK, noMailMessage("Your account can’t be confirmed yet"))
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Check your email",
		Text:    "We sent you a link. Open it within a day to finish creating your account.",
	})
}

// noMailMessage says that this server cannot send the email that ends a sign-up.
func noMailMessage(heading string) ui.Message {
	return ui.Message{
		Heading: heading,
		Text: "Email is not set up on this server, so it can’t send you the link that confirms your address. Ask its " +
			"operator for an invitation.",
		Link: &ui.Link{Href: "/sign-in", Text: "Sign in"},
	}
}

func makeConfirmPage(token string) ui.Form {
	return ui.Form{
		Heading: "Confirm your email",
		Lead:    "Enter the password you chose when you signed up.",
		Action:  confirmPath + token,
		Button:  "Confirm",
		Fields: []ui.Input{{
			Name:     "password",
			Label:    "Password",
			Type:     "password",
			Complete: "current-password",
		}},
		Links: []ui.Link{{Href: "/sign-up", Text: "Start over with another password"}},
	}
}

// showConfirm serves the link of the sign-up email.
func (h accessPages) showConfirm(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	if _, err := h.Store.getValidLink(r.Context(), token, signUpLink); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, makeConfirmPage(token))
}

func (h accessPages) submitConfirm(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token := r.PathValue("token")
	a, next, err := h.Store.confirmSignUp(r.Context(), accounts.ClientOf(r), token, form.Get("password"))
	if err != nil {
		return renderFormError(w, err, makeConfirmPage(token), "password")
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofSingle); err != nil {
		return err
	}
	return web.SeeOther(w, accounts.LocalPath(next))
}

func makeForgotPage(email string) ui.Form {
	return ui.Form{
		Heading: "Forgot your password?",
		Lead:    "We’ll email you a link to reset it.",
		Action:  "/forgot",
		Fields:  []ui.Input{emailField(email)},
		Button:  "Send link",
		Links:   []ui.Link{{Href: "/sign-in", Text: "Sign in"}},
	}
}

func (h accessPages) showForgot(w http.ResponseWriter, _ *http.Request) error {
	return ui.Render(w, http.StatusOK, makeForgotPage(""))
}

func (h accessPages) submitForgot(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if err := h.Store.requestReset(r.Context(), accounts.ClientOf(r), form.Get("email")); err != nil {
		return renderFormError(w, err, makeForgotPage(form.Get("email")), "email")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Check your email",
		Text:    "If an account uses this address, we sent it a link. The link works once, within one hour.",
		Link:    &ui.Link{Href: "/sign-in", Text: "Sign in"},
	})
}

func makeResetPage(token string) ui.Form {
	return ui.Form{
		Heading: "Set a new password",
		Lead:    "This signs you out everywhere.",
		Action:  resetPath + token,
		Fields:  []ui.Input{newPasswordField("New password")},
		Button:  "Set password",
	}
}

func (h accessPages) showReset(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	if _, err := h.Store.getValidLink(r.Context(), token, resetLink); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, makeResetPage(token))
}

func (h accessPages) submitReset(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token := r.PathValue("token")
	if err := h.Store.resetPassword(r.Context(), accounts.ClientOf(r), token, form.Get("password")); err != nil {
		return renderFormError(w, err, makeResetPage(token), "password")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Password changed",
		Text:    "You were signed out everywhere. Sign in with your new password.",
		Link:    &ui.Link{Href: "/sign-in", Text: "Sign in"},
	})
}

// makeCodePage returns the form for the second steps that the account has.
func (h *Handler) makeCodePage(r *http.Request, half accounts.Account, next string) (ui.Form, error) {
	f, err := h.Store.GetFactors(r.Context(), half.ID)
	if err != nil {
		return ui.Form{}, err
	}
	page := ui.Form{
		Heading: "Two-step verification",
		Lead:    "Enter the six-digit code from your authenticator app, or a recovery code.",
		Action:  "/sign-in/code",
		Next:    next,
		Button:  "Sign in",
		Links:   []ui.Link{{Href: accounts.SignInPath(next), Text: "Start over"}},
		Fields: []ui.Input{{
			Name:     "code",
			Label:    "Code",
			Type:     "text",
			Complete: "one-time-code",
			Code:     true,
			Hint:     "Lost all of these? Contact support, who can turn two-step verification off for you.",
		}},
	}
	if len(f.Passkeys) > 0 {
		page.Passkeys = h.Store.party.PageData()
		if !f.App {
			page.First = true
			page.Lead, page.Fields[0].Label = "Use your passkey. If you don’t have it with you, enter a recovery code.",
				"Recovery code"
		}
	}
	return page, nil
}

func (h accessPages) showCode(w http.ResponseWriter, r *http.Request) error {
	next := accounts.LocalPath(r.URL.Query().Get("next"))
	half, ok := accounts.PendingSecondStep(r.Context())
	if !ok {
		return web.SeeOther(w, accounts.SignInPath(next))
	}
	page, err := h.makeCodePage(r, half, next)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h accessPages) submitCode(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	a, ok := accounts.PendingSecondStep(r.Context())
	if !ok {
		return web.SeeOther(w, accounts.SignInPath(next))
	}
	if err := h.codes.verifyCode(r.Context(), accounts.ClientOf(r), a, form.Get("code")); err != nil {
		page, lost := h.makeCodePage(r, a, next)
		if lost != nil {
			return lost
		}
		return renderFormError(w, err, page, "code")
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofMFA); err != nil {
		return err
	}
	return web.SeeOther(w, next)
}

func makeNewEmailPage(token, email string) ui.Form {
	return ui.Form{
		Heading: "Confirm your new email address",
		Lead:    "Your account will use " + email + ".",
		Action:  emailPath + token,
		Button:  "Confirm",
	}
}

func (h accessPages) showNewEmail(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	l, err := h.Store.getValidLink(r.Context(), token, newEmailLink)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, makeNewEmailPage(token, l.email))
}

func (h accessPages) submitNewEmail(w http.ResponseWriter, r *http.Request) error {
	if _, err := web.ReadForm(r); err != nil {
		return err
	}
	if err := h.Store.confirmEmailChange(r.Context(), accounts.ClientOf(r), r.PathValue("token")); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Email address changed",
		Text:    "Use it to sign in from now on. We also notified your old address.",
		Link:    &ui.Link{Href: "/settings", Text: "Settings"},
	})
}
