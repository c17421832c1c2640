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

func (h *Handler) mountPasskeys(rt *web.Router) {
	rt.HandlePage("POST "+passkeyPath, h.Sessions.With(h.askPasskey))
	rt.HandlePage("GET "+passkeyPath, h.Sessions.With(h.usePasskey))
	rt.HandlePage("POST "+passkeyPath+"/answer", h.Sessions.With(h.passkeyAnswer))
	rt.HandlePage("GET /settings/passkeys/new", h.confirms(h.newPasskeyForm))
	rt.HandlePage("POST /settings/passkeys/new", h.confirms(h.newPasskey))
	rt.HandlePage("GET /settings/passkeys/make", h.signedIn(h.makePasskey))
	rt.HandlePage("POST /settings/passkeys/make", h.signedIn(h.madePasskey))
	rt.HandlePage("GET /settings/passkeys/{id}", h.confirms(h.passkeyForm))
	rt.HandlePage("POST /settings/passkeys/{id}", h.confirms(h.removePasskey))
}

// askPasskey begins a sign-in by passkey: the second step of whoever typed the
// right password, or the whole of it.
func (h *Handler) askPasskey(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	if _, ok := accounts.CurrentAccount(r.Context()); ok {
		return seeOther(w, next)
	}
	half, _ := accounts.PendingSecondStep(r.Context())
	if err := h.Store.AskPasskey(r.Context(), accounts.ClientOf(r), half, h.Sessions.EnsureBrowserID(w, r, challengeLasts)); err != nil {
		return h.passkeyRefused(w, r, next, err)
	}
	return seeOther(w, usePath(next))
}

func (h *Handler) usePasskey(w http.ResponseWriter, r *http.Request) error {
	next := accounts.LocalPath(r.URL.Query().Get("next"))
	half, ok := accounts.PendingSecondStep(r.Context())
	kind, back, cancel := signInKey, accounts.SignInPath(next), "Sign in with your password"
	if ok {
		kind, back, cancel = secondStep, accounts.CodePath(next), "Use a code"
	}
	c, err := h.Store.open(r.Context(), h.Sessions.BrowserID(r), kind, half)
	if _, ok := errors.AsType[*apierr.Error](err); ok {
		return seeOther(w, back)
	} else if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Passkey{
		Passkeys: h.Store.party.Offer(), Heading: "Use your passkey", Lead: "Follow the prompt from your browser.",
		Action: passkeyPath + "/answer", Next: next, Options: c.options, Button: "Try again", Cancel: cancel, Back: back,
	})
}

func (h *Handler) passkeyAnswer(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := accounts.LocalPath(form.Get("next"))
	half, _ := accounts.PendingSecondStep(r.Context())
	a, err := h.Store.SignInByPasskey(r.Context(), accounts.ClientOf(r), half, h.Sessions.BrowserID(r), form.Get("answer"))
	if err != nil {
		return h.passkeyRefused(w, r, next, err)
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofMFA); err != nil {
		return err
	}
	return seeOther(w, next)
}

// passkeyRefused shows the page from which the sign-in began, with what is wrong.
func (h *Handler) passkeyRefused(w http.ResponseWriter, r *http.Request, next string, err error) error {
	p, e := problem(err, "passkey")
	if e == nil {
		return err
	}
	if half, ok := accounts.PendingSecondStep(r.Context()); ok {
		page, lost := h.codePage(r, half, next)
		if lost != nil {
			return lost
		}
		return again(w, err, page, "passkey")
	}
	retryAfter(w, e)
	return ui.Render(w, e.Code.Status, ui.SignIn{Passkeys: h.Store.party.Offer(), Next: next, Errors: []ui.Problem{p}})
}

func (h *Handler) newPasskeyPage(a accounts.Account, name string) ui.Form {
	lead := "You’ll be able to sign in with it alone."
	if a.HasPassword {
		lead = "Confirm with your password now. You won’t need it when you sign in with the passkey."
	}
	if !a.TwoStep {
		lead += " From then on, " + h.alone(a) + " alone is not enough to sign in, and your other sessions are signed out. You’ll get recovery codes in case you lose the passkey."
	}
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Add a passkey", Lead: lead, Action: "/settings/passkeys/new", Button: "Continue", Links: []ui.Link{{Href: "/settings/security", Text: "Not now"}},
		Fields: confirming(a, ui.Input{Name: "name", Label: "Name", Type: "text", Complete: "off", Value: name, Hint: "For example, the device it is stored on."}),
	}
}

func (h *Handler) newPasskeyForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, h.newPasskeyPage(a, browser(r.UserAgent())))
}

func (h *Handler) newPasskey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	err = h.Store.BeginPasskey(r.Context(), accounts.ClientOf(r), a, form.Get("present"), form.Get("name"), h.Sessions.BrowserID(r))
	if err != nil {
		return again(w, err, h.newPasskeyPage(a, form.Get("name")), "present")
	}
	return seeOther(w, "/settings/passkeys/make")
}

func (h *Handler) makePasskey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	c, err := h.Store.open(r.Context(), h.Sessions.BrowserID(r), addKey, a)
	if _, ok := errors.AsType[*apierr.Error](err); ok {
		return seeOther(w, "/settings/passkeys/new")
	} else if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Passkey{
		Shell: a.Shell(ui.Settings), Passkeys: h.Store.party.Offer(), Heading: "Create a passkey", Lead: "Your browser will ask where to save “" + c.name + "”, and for your fingerprint, face or PIN.",
		Action: "/settings/passkeys/make", Options: c.options, Create: true, Button: "Create a passkey", Cancel: "Not now", Back: "/settings/security",
	})
}

func (h *Handler) madePasskey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, codes, err := h.Store.EndPasskey(r.Context(), accounts.ClientOf(r), a, h.Sessions.BrowserID(r), form.Get("answer"))
	if err != nil {
		return again(w, err, h.newPasskeyPage(a, browser(r.UserAgent())), "name")
	}
	if codes == nil {
		return saved(w, "/settings/security", "passkey")
	}
	if err := h.Sessions.Continue(w, r, changed, accounts.ProofMFA); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.RecoveryCodes{Shell: changed.Shell(ui.Settings), Codes: codes, Key: true})
}

// removePage asks for the password before a key goes. Somebody else's is as one
// that does not exist.
func (h *Handler) removePage(r *http.Request, a accounts.Account) (ui.Form, error) {
	f, err := h.Store.Factors(r.Context(), a.ID)
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
		lead += " This is your last second step: " + h.alone(a) + " alone will be enough to sign in, your recovery codes are deleted, and your other sessions are signed out."
	}
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Remove a passkey", Lead: lead, Danger: true,
		Action: "/settings/passkeys/" + k.ID, Button: "Remove", Fields: confirming(a), Links: []ui.Link{{Href: "/settings/security", Text: "Keep it"}},
	}, nil
}

func (h *Handler) passkeyForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.removePage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h *Handler) removePasskey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	page, err := h.removePage(r, a)
	if err != nil {
		return err
	}
	changed, err := h.Store.RemovePasskey(r.Context(), accounts.ClientOf(r), a, form.Get("present"), r.PathValue("id"))
	if err != nil {
		return again(w, err, page, "present")
	}
	return h.lessened(w, r, changed, "passkey-off")
}

// lessened goes on after a second factor was taken away: in a session that shows
// no second step if it was the last one.
func (h *Handler) lessened(w http.ResponseWriter, r *http.Request, a accounts.Account, what string) error {
	if !a.TwoStep {
		if err := h.Sessions.Continue(w, r, a, accounts.ProofSingle); err != nil {
			return err
		}
		what = "two-step-off"
	}
	return saved(w, "/settings/security", what)
}
