package identity

import (
	"errors"
	"net/http"
	"slices"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

const passkeyPath = "/sign-in/passkey"

// passkeyPages are the pages for passkeys.
type passkeyPages struct {
	*Handler
	store passkeyStore
}

func (h passkeyPages) mount(rt *web.Router) {
	rt.HandlePage("POST "+passkeyPath, h.Sessions.With(h.startSignIn))
	rt.HandlePage("GET "+passkeyPath, h.Sessions.With(h.showSignIn))
	rt.HandlePage("POST "+passkeyPath+"/answer", h.Sessions.With(h.submitSignIn))
	rt.HandlePage("GET /settings/passkeys/new", h.requireRecentSignIn(h.showNew))
	rt.HandlePage("POST /settings/passkeys/new", h.requireRecentSignIn(h.submitNew))
	rt.HandlePage("GET /settings/passkeys/make", h.Sessions.Require(h.showRegistration))
	rt.HandlePage("POST /settings/passkeys/make", h.Sessions.Require(h.submitRegistration))
	rt.HandlePage("GET /settings/passkeys/{id}", h.requireRecentSignIn(h.showRemove))
	rt.HandlePage("POST /settings/passkeys/{id}", h.requireRecentSignIn(h.submitRemove))
}

// startSignIn begins a sign-in by passkey, alone or as the second step.
func (h passkeyPages) startSignIn(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	if _, ok := accounts.CurrentAccount(r.Context()); ok {
		return web.SeeOther(w, next)
	}
	half, _ := accounts.PendingSecondStep(r.Context())
	if err := h.store.beginSignIn(r.Context(), accounts.ClientOf(r), half,
		h.Sessions.EnsureBrowserID(w, r, challengeTTL)); err != nil {
		return h.showRefusal(w, r, next, err)
	}
	return web.SeeOther(w, passkeySignInPath(next))
}

func (h passkeyPages) showSignIn(w http.ResponseWriter, r *http.Request) error {
	next := accounts.LocalPath(r.URL.Query().Get("next"))
	half, ok := accounts.PendingSecondStep(r.Context())
	kind, back, cancel := signInChallenge, accounts.SignInPath(next), "Sign in with your password"
	if ok {
		kind, back, cancel = secondStepChallenge, accounts.CodePath(next), "Use a code"
	}
	c, err := h.store.getPendingChallenge(r.Context(), h.Sessions.BrowserID(r), kind, half)
	if _, ok := errors.AsType[*apierr.Error](err); ok {
		return web.SeeOther(w, back)
	} else if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Passkey{
		Passkeys: h.Store.party.PageData(),
		Heading:  "Use your passkey",
		Lead:     "Follow the prompt from your browser.",
		Action:   passkeyPath + "/answer",
		Next:     next,
		Options:  c.options,
		Button:   "Try again",
		Cancel:   cancel,
		Back:     back,
	})
}

func (h passkeyPages) submitSignIn(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	half, _ := accounts.PendingSecondStep(r.Context())
	a, err := h.store.finishSignIn(r.Context(), accounts.ClientOf(r), half, h.Sessions.BrowserID(r), form.Get("answer"))
	if err != nil {
		return h.showRefusal(w, r, next, err)
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofMFA); err != nil {
		return err
	}
	return web.SeeOther(w, next)
}

// showRefusal shows the page where the sign-in began, with the error.
func (h passkeyPages) showRefusal(w http.ResponseWriter, r *http.Request, next string, err error) error {
	p, e := toProblem(err, "passkey")
	if e == nil {
		return err
	}
	if half, ok := accounts.PendingSecondStep(r.Context()); ok {
		page, lost := h.makeCodePage(r, half, next)
		if lost != nil {
			return lost
		}
		return renderFormError(w, err, page, "passkey")
	}
	setRetryAfter(w, e)
	return ui.Render(w, e.Code.Status, ui.SignIn{
		Passkeys: h.Store.party.PageData(),
		Next:     next,
		Errors:   []ui.Problem{p},
	})
}

func (h passkeyPages) makeNewPage(a accounts.Account, name string) ui.Form {
	lead := "You’ll be able to sign in with it alone."
	if a.HasPassword {
		lead = "Confirm with your password now. You won’t need it when you sign in with the passkey."
	}
	if !a.TwoStep {
		lead += " From then on, " + h.describeSingleStep(a) +
			" alone is not enough to sign in, and your other sessions are signed out. You’ll get recovery codes in " +
			"case you lose the passkey."
	}
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Add a passkey",
		Lead:    lead,
		Action:  "/settings/passkeys/new",
		Button:  "Continue",
		Links:   []ui.Link{{Href: "/settings/security", Text: "Not now"}},
		Fields: appendPasswordField(a, ui.Input{
			Name:     "name",
			Label:    "Name",
			Type:     "text",
			Complete: "off",
			Value:    name,
			Hint:     "For example, the device it is stored on.",
		}),
	}
}

func (h passkeyPages) showNew(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, h.makeNewPage(a, describeBrowser(r.UserAgent())))
}

func (h passkeyPages) submitNew(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	err = h.store.beginRegistration(r.Context(), accounts.ClientOf(r), a, form.Get("present"), form.Get("name"),
		h.Sessions.BrowserID(r))
	if err != nil {
		return renderFormError(w, err, h.makeNewPage(a, form.Get("name")), "present")
	}
	return web.SeeOther(w, "/settings/passkeys/make")
}

func (h passkeyPages) showRegistration(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	c, err := h.store.getPendingChallenge(r.Context(), h.Sessions.BrowserID(r), registerChallenge, a)
	if _, ok := errors.AsType[*apierr.Error](err); ok {
		return web.SeeOther(w, "/settings/passkeys/new")
	} else if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Passkey{
		Shell:    a.Shell(ui.Settings),
		Passkeys: h.Store.party.PageData(),
		Heading:  "Create a passkey",
		Lead:     "Your browser will ask where to save “" + c.name + "”, and for your fingerprint, face or PIN.",
		Action:   "/settings/passkeys/make",
		Options:  c.options,
		Create:   true,
		Button:   "Create a passkey",
		Cancel:   "Not now",
		Back:     "/settings/security",
	})
}

func (h passkeyPages) submitRegistration(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, codes, err := h.store.finishRegistration(r.Context(), accounts.ClientOf(r), a, h.Sessions.BrowserID(r),
		form.Get("answer"))
	if err != nil {
		return renderFormError(w, err, h.makeNewPage(a, describeBrowser(r.UserAgent())), "name")
	}
	if codes == nil {
		return redirectSaved(w, "/settings/security", "passkey")
	}
	if err := h.Sessions.Continue(w, r, changed, accounts.ProofMFA); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.RecoveryCodes{Shell: changed.Shell(ui.Settings), Codes: codes, Key: true})
}

// makeRemovePage returns the form that removes a passkey. A passkey of another account is 404.
func (h passkeyPages) makeRemovePage(r *http.Request, a accounts.Account) (ui.Form, error) {
	f, err := h.Store.GetFactors(r.Context(), a.ID)
	if err != nil {
		return ui.Form{}, err
	}
	i := slices.IndexFunc(f.Passkeys, func(k Passkey) bool { return k.ID == r.PathValue("id") })
	if i < 0 {
		return ui.Form{}, errNoPasskey()
	}
	k := f.Passkeys[i]
	lead := "“" + k.Name + "” can no longer be used to sign in. Delete it on your device, too."
	if len(f.Passkeys) == 1 && !f.App {
		lead += " This is your last second step: " + h.describeSingleStep(a) +
			" alone will be enough to sign in, your recovery codes are deleted, and your other sessions are signed out."
	}
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Remove a passkey",
		Lead:    lead,
		Danger:  true,
		Action:  "/settings/passkeys/" + k.ID,
		Button:  "Remove",
		Fields:  appendPasswordField(a),
		Links:   []ui.Link{{Href: "/settings/security", Text: "Keep it"}},
	}, nil
}

func (h passkeyPages) showRemove(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.makeRemovePage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h passkeyPages) submitRemove(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	page, err := h.makeRemovePage(r, a)
	if err != nil {
		return err
	}
	changed, err := h.store.remove(r.Context(), accounts.ClientOf(r), a, form.Get("present"), r.PathValue("id"))
	if err != nil {
		return renderFormError(w, err, page, "present")
	}
	return h.redirectAfterRemoval(w, r, changed, "passkey-off")
}
