package identity

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// twoStepPages are the pages for the authenticator app and recovery codes.
type twoStepPages struct {
	*Handler
	store twoStepStore
}

func (h twoStepPages) mount(rt *web.Router) {
	rt.HandlePage("GET /settings/two-step", h.requireRecentSignIn(h.showTwoStep))
	rt.HandlePage("POST /settings/two-step", h.requireRecentSignIn(h.submitTwoStep))
	rt.HandlePage("GET /settings/two-step/setup", h.Sessions.Require(h.showSetup))
	rt.HandlePage("POST /settings/two-step/setup", h.Sessions.Require(h.submitSetup))
	rt.HandlePage("GET /settings/two-step/codes", h.requireRecentSignIn(h.showRecoveryCodes))
	rt.HandlePage("POST /settings/two-step/codes", h.requireRecentSignIn(h.submitRecoveryCodes))
	rt.HandlePage("GET /settings/two-step/off", h.requireRecentSignIn(h.showOff))
	rt.HandlePage("POST /settings/two-step/off", h.requireRecentSignIn(h.submitOff))
}

func makeTwoStepPage(a accounts.Account) ui.Form {
	lead := "You’ll need an authenticator app on your phone."
	if !a.TwoStep {
		lead += " Setting it up signs out your other sessions."
	}
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Set up an authenticator app",
		Lead:    lead,
		Action:  "/settings/two-step",
		Button:  "Continue",
		Fields:  appendPasswordField(a),
		Links:   []ui.Link{{Href: "/settings/security", Text: "Not now"}},
	}
}

func (h twoStepPages) showTwoStep(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if f, err := h.Store.GetFactors(r.Context(), a.ID); err != nil {
		return err
	} else if f.App {
		return web.SeeOther(w, "/settings/security")
	}
	return ui.Render(w, http.StatusOK, makeTwoStepPage(a))
}

func (h twoStepPages) submitTwoStep(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if f, err := h.Store.GetFactors(r.Context(), a.ID); err != nil {
		return err
	} else if f.App {
		return web.SeeOther(w, "/settings/security")
	}
	if err := h.store.beginSetup(r.Context(), accounts.ClientOf(r), a, h.Sessions.BrowserID(r),
		form.Get("present")); err != nil {
		return renderFormError(w, err, makeTwoStepPage(a), "present")
	}
	return web.SeeOther(w, "/settings/two-step/setup")
}

func (h twoStepPages) showSetup(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.renderSetup(w, r, a, http.StatusOK, nil)
}

func (h twoStepPages) renderSetup(w http.ResponseWriter, r *http.Request, a accounts.Account, status int,
	problems []ui.Problem) error {
	secret, err := h.store.getSetupSecret(r.Context(), a, h.Sessions.BrowserID(r))
	if errors.Is(err, sql.ErrNoRows) {
		return web.SeeOther(w, "/settings/two-step")
	} else if err != nil {
		return err
	}
	page := ui.TwoStepSetup{Shell: a.Shell(ui.Settings), Secret: groupCode(secret), Errors: problems}
	if page.Size, page.Path, err = drawQRCode(a.Email, secret); err != nil {
		return err
	}
	return ui.Render(w, status, page)
}

func (h twoStepPages) submitSetup(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, codes, err := h.store.finishSetup(r.Context(), accounts.ClientOf(r), a, h.Sessions.BrowserID(r),
		form.Get("code"))
	if errors.Is(err, errSetUpMeanwhile) {
		return ui.Render(w, http.StatusConflict, ui.Message{
			Heading: "Two-step verification is on",
			Text: "It was turned on by another request, perhaps because this form was sent twice. Sign in with a " +
				"code from your app. If you haven’t seen your recovery codes, create new ones under Security.",
			Link: &ui.Link{Href: accounts.SignInPath("/settings/security"), Text: "Sign in"},
		})
	}
	if p, e := toProblem(err, "code"); e != nil {
		setRetryAfter(w, e)
		return h.renderSetup(w, r, a, e.Code.Status, []ui.Problem{p})
	} else if err != nil {
		return err
	}
	if codes == nil {
		return redirectSaved(w, "/settings/security", "app")
	}
	if err := h.Sessions.Continue(w, r, changed, accounts.ProofMFA); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.RecoveryCodes{Shell: changed.Shell(ui.Settings), Codes: codes})
}

// requireMFA returns 400 invalid_request unless the session passed a second step.
func requireMFA(r *http.Request) error {
	if !accounts.HasMFA(r) {
		return apierr.InvalidRequest.Errorf(
			"This needs a sign-in with two-step verification. Sign out, then sign in again.")
	}
	return nil
}

func makeRecoveryPage(a accounts.Account) ui.Form {
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "New recovery codes",
		Lead:    "Your current codes will stop working.",
		Action:  "/settings/two-step/codes",
		Button:  "Create new codes",
		Fields:  appendPasswordField(a),
		Links:   []ui.Link{{Href: "/settings/security", Text: "Keep them"}},
	}
}

func (h twoStepPages) showRecoveryCodes(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := requireMFA(r); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, makeRecoveryPage(a))
}

func (h twoStepPages) submitRecoveryCodes(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err == nil {
		err = requireMFA(r)
	}
	if err != nil {
		return err
	}
	codes, err := h.store.replaceRecoveryCodes(r.Context(), accounts.ClientOf(r), a, form.Get("present"))
	if err != nil {
		return renderFormError(w, err, makeRecoveryPage(a), "present")
	}
	return ui.Render(w, http.StatusOK, ui.RecoveryCodes{Shell: a.Shell(ui.Settings), Codes: codes})
}

func (h twoStepPages) makeOffPage(a accounts.Account, f Factors) ui.Form {
	lead := "This is your last second step: " + h.describeSingleStep(a) +
		" alone will be enough to sign in, your recovery codes are deleted, and your other sessions are signed out."
	if len(f.Passkeys) > 0 {
		lead = "Your passkeys and recovery codes stay: " + h.describeSingleStep(a) +
			" alone is still not enough to sign in."
	}
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Remove authenticator app",
		Lead:    lead,
		Danger:  true,
		Action:  "/settings/two-step/off",
		Button:  "Remove",
		Fields:  appendPasswordField(a),
		Links:   []ui.Link{{Href: "/settings/security", Text: "Keep it"}},
	}
}

func (h twoStepPages) showOff(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := requireMFA(r); err != nil {
		return err
	}
	f, err := h.Store.GetFactors(r.Context(), a.ID)
	if err != nil {
		return err
	}
	if !f.App {
		return web.SeeOther(w, "/settings/security")
	}
	return ui.Render(w, http.StatusOK, h.makeOffPage(a, f))
}

func (h twoStepPages) submitOff(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err == nil {
		err = requireMFA(r)
	}
	if err != nil {
		return err
	}
	f, err := h.Store.GetFactors(r.Context(), a.ID)
	if err != nil {
		return err
	}
	if !f.App {
		return web.SeeOther(w, "/settings/security")
	}
	changed, err := h.store.removeAuthenticator(r.Context(), accounts.ClientOf(r), a, form.Get("present"))
	if err != nil {
		return renderFormError(w, err, h.makeOffPage(a, f), "present")
	}
	return h.redirectAfterRemoval(w, r, changed, "app-off")
}
