package identity

import (
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxEvents is how many security events the page shows.
const maxEvents = 50

// done is what pages say of what was just done; nothing else that stands in an
// address is shown.
var done = map[string]string{
	"password": "Password changed. Your other sessions were signed out.", "session": "Session signed out.",
	"two-step-off": "Two-step verification is off. Your other sessions were signed out.", "app": "Authenticator app added.", "app-off": "Authenticator app removed.",
	"passkey": "Passkey added.", "passkey-off": "Passkey removed.",
	"provider-linked": "Login linked. You can now sign in with it.", "provider-unlinked": "Login unlinked. Your other sessions were signed out.",
}

func (h *Handler) settings(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, ui.SettingsIndex{
		Shell: a.Shell(ui.Settings), TestAccount: a.Sandbox, TwoStep: a.TwoStep, Notices: a.Notices, Saved: done[r.URL.Query().Get("done")],
	})
}

func (h *Handler) developer(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("Test accounts can’t own apps.")
	}
	if !a.Developer {
		if err := h.Store.BecomeDeveloper(r.Context(), accounts.ClientOf(r), a.ID); err != nil {
			return err
		}
	}
	return seeOther(w, "/developer")
}

func (h *Handler) security(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page := ui.Security{Shell: a.Shell(ui.Settings), TwoStep: a.TwoStep, Saved: done[r.URL.Query().Get("done")]}
	if err := h.waysIn(r, a, &page); err != nil {
		return err
	}
	sessions, err := h.Sessions.ListSessions(r.Context(), a.ID)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		page.Sessions = append(page.Sessions, ui.Device{
			ID: s.ID, Name: browser(s.Agent), Started: shown(s.StartedUS), Seen: shown(s.SeenUS), This: s.ID == accounts.CurrentSessionID(r.Context()),
		})
	}
	events, err := h.Accounts.ListEvents(r.Context(), a.ID, maxEvents)
	if err != nil {
		return err
	}
	for _, e := range events {
		page.Events = append(page.Events, ui.SecurityEvent{
			Text: words[e.Kind], When: ledger.Timestamp(e.CreatedUS), Shown: time.UnixMicro(e.CreatedUS).UTC().Format("2 Jan, 15:04"), Address: e.Address, Device: browser(e.Agent),
			Bad: slices.Contains([]accounts.EventKind{accounts.SignInFailed, accounts.CodeFailed, accounts.PasskeyFailed, accounts.ProviderRefused, accounts.PasskeyCopied}, e.Kind),
		})
	}
	factors, err := h.Store.Factors(r.Context(), a.ID)
	if err != nil {
		return err
	}
	page.Passkeys, page.App = h.Store.party.Offer(), factors.App
	for _, k := range factors.Passkeys {
		key := ui.Key{ID: k.ID, Name: k.Name, Added: shown(k.CreatedUS)}
		if k.UsedUS > 0 {
			key.Used = shown(k.UsedUS)
		}
		page.Keys = append(page.Keys, key)
	}
	if page.Codes, err = h.Store.CodesLeft(r.Context(), a.ID); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// words are what people read of an event.
var words = map[accounts.EventKind]string{
	accounts.SignedIn: "Signed in", accounts.SignInFailed: "Incorrect password", accounts.CodeFailed: "Incorrect code",
	accounts.Confirmed: "Email address confirmed", accounts.ResetRequested: "Password reset requested", accounts.PasswordChanged: "Password changed",
	accounts.EmailChangeRequested: "Email address change requested", accounts.EmailChanged: "Email address changed",
	accounts.TwoStepEnabled: "Two-step verification turned on", accounts.TwoStepDisabled: "Two-step verification turned off",
	accounts.RecoveryCodeUsed: "Recovery code used", accounts.RecoveryCodesReplaced: "New recovery codes created",
	accounts.PasskeyAdded: "Passkey added", accounts.PasskeyRemoved: "Passkey removed", accounts.PasskeyFailed: "Passkey rejected",
	accounts.PasskeyCopied:      "Passkey rejected: it may have been copied. Remove it and add a new one",
	accounts.AuthenticatorAdded: "Authenticator app added", accounts.AuthenticatorRemoved: "Authenticator app removed",
	accounts.ProviderLinked: "Provider login linked", accounts.ProviderUnlinked: "Provider login unlinked", accounts.ProviderRefused: "Provider sign-in rejected: not linked",
	accounts.SessionEnded: "Session signed out", accounts.DeveloperEnabled: "Developer tools enabled",
	accounts.DataExported: "Your data downloaded", accounts.AccountClosed: "Account closed",
}

func shown(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04 UTC") }

// browser names the program and the system that a browser says it is, as far as
// people know them by name.
func browser(agent string) string {
	name, system := "Unknown browser", ""
	for _, b := range [][2]string{{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"}} {
		if strings.Contains(agent, b[0]) {
			name = b[1]
			break
		}
	}
	for _, o := range [][2]string{{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"Linux", "Linux"}} {
		if strings.Contains(agent, o[0]) {
			system = " on " + o[1]
			break
		}
	}
	return name + system
}

func (h *Handler) endSession(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if err := h.Sessions.Revoke(r.Context(), a.ID, form.Get("session"), accounts.ClientOf(r)); err != nil {
		return err
	}
	return saved(w, "/settings/security", "session")
}

// restart signs in again after all sessions have ended, as far as the one that
// goes on had shown.
func (h *Handler) restart(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	proof := accounts.ProofSingle
	if accounts.HasMFA(r) {
		proof = accounts.ProofMFA
	}
	return h.Sessions.Start(w, r, a, proof)
}

func passwordPage(a accounts.Account) ui.Form {
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Change your password", Action: "/settings/password", Button: "Change password",
		Fields: []ui.Input{presentField("Current password"), newPasswordField("New password")},
		Links:  []ui.Link{{Href: "/forgot", Text: "Forgot your password?"}, {Href: "/settings", Text: "Settings"}},
	}
}

func (h *Handler) passwordForm(w http.ResponseWriter, _ *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, passwordPage(a))
}

func (h *Handler) password(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, err := h.Store.ChangePassword(r.Context(), accounts.ClientOf(r), a, form.Get("present"), form.Get("password"))
	if err != nil {
		return again(w, err, passwordPage(a), "present")
	}
	if err := h.restart(w, r, changed); err != nil {
		return err
	}
	return saved(w, "/settings", "password")
}

func emailPage(a accounts.Account, email string) ui.Form {
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Change your email address", Lead: "Your address is " + a.Email + ". We’ll email a link to the new one. The change takes effect when you open it.",
		Action: "/settings/email", Button: "Send link", Fields: confirming(a, ui.Input{Name: "email", Label: "New email address", Type: "email", Complete: "email", Value: email}),
		Links: []ui.Link{{Href: "/settings", Text: "Settings"}},
	}
}

func (h *Handler) emailForm(w http.ResponseWriter, _ *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, emailPage(a, ""))
}

func (h *Handler) email(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("A test account’s address can’t be changed.")
	}
	if err := h.Store.AskEmail(r.Context(), accounts.ClientOf(r), a, form.Get("email"), form.Get("present")); err != nil {
		return again(w, err, emailPage(a, form.Get("email")), "present")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Check your email", Text: "We sent a link to your new address. It works once, within one hour.", Link: &ui.Link{Href: "/settings", Text: "Settings"},
	})
}

func twoStepPage(a accounts.Account) ui.Form {
	lead := "You’ll need an authenticator app on your phone."
	if !a.TwoStep {
		lead += " Setting it up signs out your other sessions."
	}
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Set up an authenticator app", Lead: lead,
		Action: "/settings/two-step", Button: "Continue", Fields: confirming(a), Links: []ui.Link{{Href: "/settings/security", Text: "Not now"}},
	}
}

func (h *Handler) twoStepForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if f, err := h.Store.Factors(r.Context(), a.ID); err != nil {
		return err
	} else if f.App {
		return seeOther(w, "/settings/security")
	}
	return ui.Render(w, http.StatusOK, twoStepPage(a))
}

func (h *Handler) twoStep(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if f, err := h.Store.Factors(r.Context(), a.ID); err != nil {
		return err
	} else if f.App {
		return seeOther(w, "/settings/security")
	}
	if err := h.Store.BeginTwoStep(r.Context(), accounts.ClientOf(r), a, form.Get("present")); err != nil {
		return again(w, err, twoStepPage(a), "present")
	}
	return seeOther(w, "/settings/two-step/setup")
}

func (h *Handler) setupForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.showSetup(w, r, a, http.StatusOK, nil)
}

func (h *Handler) showSetup(w http.ResponseWriter, r *http.Request, a accounts.Account, status int, problems []ui.Problem) error {
	secret, err := h.Store.Secret(r.Context(), a.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return seeOther(w, "/settings/two-step")
	} else if err != nil {
		return err
	}
	page := ui.TwoStepSetup{Shell: a.Shell(ui.Settings), Secret: groups(secret), Errors: problems}
	if page.Size, page.Path, err = square(a.Email, secret); err != nil {
		return err
	}
	return ui.Render(w, status, page)
}

func (h *Handler) setup(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, codes, err := h.Store.EndTwoStep(r.Context(), accounts.ClientOf(r), a, form.Get("code"))
	if p, e := problem(err, "code"); e != nil {
		retryAfter(w, e)
		return h.showSetup(w, r, a, e.Code.Status, []ui.Problem{p})
	} else if err != nil {
		return err
	}
	if codes == nil {
		return saved(w, "/settings/security", "app")
	}
	if err := h.Sessions.Continue(w, r, changed, accounts.ProofMFA); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.RecoveryCodes{Shell: changed.Shell(ui.Settings), Codes: codes})
}

// bothSteps refuses what only somebody may do who passed the second step, should
// a session ever have come by without.
func bothSteps(r *http.Request) error {
	if !accounts.HasMFA(r) {
		return apierr.InvalidRequest.Errorf("This needs a sign-in with two-step verification. Sign out, then sign in again.")
	}
	return nil
}

func codesPage(a accounts.Account) ui.Form {
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "New recovery codes", Lead: "Your current codes will stop working.",
		Action: "/settings/two-step/codes", Button: "Create new codes", Fields: confirming(a), Links: []ui.Link{{Href: "/settings/security", Text: "Keep them"}},
	}
}

func (h *Handler) codesForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := bothSteps(r); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, codesPage(a))
}

func (h *Handler) codes(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err == nil {
		err = bothSteps(r)
	}
	if err != nil {
		return err
	}
	codes, err := h.Store.NewCodes(r.Context(), accounts.ClientOf(r), a, form.Get("present"))
	if err != nil {
		return again(w, err, codesPage(a), "present")
	}
	return ui.Render(w, http.StatusOK, ui.RecoveryCodes{Shell: a.Shell(ui.Settings), Codes: codes})
}

func (h *Handler) offPage(a accounts.Account, f Factors) ui.Form {
	lead := "This is your last second step: " + h.alone(a) + " alone will be enough to sign in, your recovery codes are deleted, and your other sessions are signed out."
	if len(f.Passkeys) > 0 {
		lead = "Your passkeys and recovery codes stay: " + h.alone(a) + " alone is still not enough to sign in."
	}
	return ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Remove authenticator app", Lead: lead, Danger: true,
		Action: "/settings/two-step/off", Button: "Remove", Fields: confirming(a), Links: []ui.Link{{Href: "/settings/security", Text: "Keep it"}},
	}
}

func (h *Handler) offForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := bothSteps(r); err != nil {
		return err
	}
	f, err := h.Store.Factors(r.Context(), a.ID)
	if err != nil {
		return err
	}
	if !f.App {
		return seeOther(w, "/settings/security")
	}
	return ui.Render(w, http.StatusOK, h.offPage(a, f))
}

func (h *Handler) off(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err == nil {
		err = bothSteps(r)
	}
	if err != nil {
		return err
	}
	f, err := h.Store.Factors(r.Context(), a.ID)
	if err != nil {
		return err
	}
	if !f.App {
		return seeOther(w, "/settings/security")
	}
	changed, err := h.Store.TurnOff(r.Context(), accounts.ClientOf(r), a, form.Get("present"))
	if err != nil {
		return again(w, err, h.offPage(a, f), "present")
	}
	return h.lessened(w, r, changed, "app-off")
}
