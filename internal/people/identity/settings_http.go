package identity

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// settingsPages are the pages under Settings, apart from two-step verification, passkeys and
// logins.
type settingsPages struct {
	*Handler
	codes twoStepStore
}

func (h settingsPages) mount(rt *web.Router) {
	rt.HandlePage("GET /settings", h.Sessions.Require(h.showIndex))
	rt.HandlePage("POST /settings/developer", h.Sessions.Require(h.submitDeveloper))
	rt.HandlePage("GET /settings/security", h.Sessions.Require(h.showSecurity))
	rt.HandlePage("POST /settings/security/sessions", h.Sessions.Require(h.submitEndSession))
	rt.HandlePage("GET /settings/password", h.requirePassword(h.showPassword))
	rt.HandlePage("POST /settings/password", h.Sessions.Require(h.submitPassword))
	rt.HandlePage("GET /settings/email", h.requireRecentSignIn(h.showEmail))
	rt.HandlePage("POST /settings/email", h.requireRecentSignIn(h.submitEmail))
}

// maxShownSessions bounds the sessions on the page.
const maxShownSessions = 100

// maxShownEvents bounds the security events on the page.
const maxShownEvents = 50

// savedTexts are the confirmations that a page may show, by the value of its query parameter done.
var savedTexts = map[string]string{
	"password":          "Password changed. Your other sessions were signed out.",
	"session":           "Session signed out.",
	"two-step-off":      "Two-step verification is off. Your other sessions were signed out.",
	"app":               "Authenticator app added.",
	"app-off":           "Authenticator app removed.",
	"passkey":           "Passkey added.",
	"passkey-off":       "Passkey removed.",
	"provider-linked":   "Login linked. You can now sign in with it.",
	"provider-unlinked": "Login unlinked. Your other sessions were signed out.",
}

func (h settingsPages) showIndex(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, ui.SettingsIndex{
		Shell:       a.Shell(ui.Settings),
		TestAccount: a.Sandbox,
		TwoStep:     a.TwoStep,
		Notices:     a.Notices,
		Saved:       savedTexts[r.URL.Query().Get("done")],
	})
}

func (h settingsPages) submitDeveloper(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("Test accounts can’t own apps.")
	}
	if !a.Developer {
		if err := h.Store.enableDeveloper(r.Context(), accounts.ClientOf(r), a.ID); err != nil {
			return err
		}
	}
	return web.SeeOther(w, "/developer")
}

func (h settingsPages) showSecurity(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page := ui.Security{Shell: a.Shell(ui.Settings), TwoStep: a.TwoStep, Saved: savedTexts[r.URL.Query().Get("done")]}
	if err := h.fillSignInMethods(r, a, &page); err != nil {
		return err
	}
	sessions, err := h.Sessions.ListSessions(r.Context(), a.ID, maxShownSessions+1)
	if err != nil {
		return err
	}
	page.MoreSessions = len(sessions) > maxShownSessions
	for _, s := range sessions[:min(len(sessions), maxShownSessions)] {
		page.Sessions = append(page.Sessions, ui.Device{
			ID:      s.ID,
			Name:    describeBrowser(s.Agent),
			Started: formatTime(s.StartedUS),
			Seen:    formatTime(s.SeenUS),
			This:    s.ID == accounts.CurrentSessionID(r.Context()),
		})
	}
	events, err := h.Accounts.ListEvents(r.Context(), a.ID, maxShownEvents)
	if err != nil {
		return err
	}
	for _, e := range events {
		page.Events = append(page.Events, ui.SecurityEvent{
			Text:    eventTexts[e.Kind],
			When:    timestamp.Format(e.CreatedUS),
			Shown:   time.UnixMicro(e.CreatedUS).UTC().Format("2 Jan, 15:04"),
			Address: e.Address,
			Device:  describeBrowser(e.Agent),
			Bad: slices.Contains([]accounts.EventKind{accounts.SignInFailed, accounts.CodeFailed,
				accounts.PasskeyFailed, accounts.ProviderRefused, accounts.PasskeyCopied}, e.Kind),
		})
	}
	factors, err := h.Store.GetFactors(r.Context(), a.ID)
	if err != nil {
		return err
	}
	page.Passkeys, page.App = h.Store.party.PageData(), factors.App
	for _, k := range factors.Passkeys {
		key := ui.Key{ID: k.ID, Name: k.Name, Added: formatTime(k.CreatedUS)}
		if k.UsedUS > 0 {
			key.Used = formatTime(k.UsedUS)
		}
		page.Keys = append(page.Keys, key)
	}
	if page.Codes, err = h.codes.countRecoveryCodes(r.Context(), a.ID); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// eventTexts are the texts of security events.
var eventTexts = map[accounts.EventKind]string{
	accounts.SignedIn:              "Signed in",
	accounts.SignInFailed:          "Incorrect password",
	accounts.CodeFailed:            "Incorrect code",
	accounts.Confirmed:             "Email address confirmed",
	accounts.ResetRequested:        "Password reset requested",
	accounts.PasswordChanged:       "Password changed",
	accounts.EmailChangeRequested:  "Email address change requested",
	accounts.EmailChanged:          "Email address changed",
	accounts.TwoStepEnabled:        "Two-step verification turned on",
	accounts.TwoStepDisabled:       "Two-step verification turned off",
	accounts.RecoveryCodeUsed:      "Recovery code used",
	accounts.RecoveryCodesReplaced: "New recovery codes created",
	accounts.PasskeyAdded:          "Passkey added",
	accounts.PasskeyRemoved:        "Passkey removed",
	accounts.PasskeyFailed:         "Passkey rejected",
	accounts.PasskeyCopied:         "Passkey rejected: it may have been copied. Remove it and add a new one",
	accounts.AuthenticatorAdded:    "Authenticator app added",
	accounts.AuthenticatorRemoved:  "Authenticator app removed",
	accounts.ProviderLinked:        "Provider login linked",
	accounts.ProviderUnlinked:      "Provider login unlinked",
	accounts.ProviderRefused:       "Provider sign-in rejected: not linked",
	accounts.SessionEnded:          "Session signed out",
	accounts.SignedOut:             "Signed out everywhere by support",
	accounts.TwoStepReset:          "Two-step verification turned off by support",
	accounts.Suspended:             "Account suspended",
	accounts.Reinstated:            "Account reinstated",
	accounts.DeveloperEnabled:      "Developer tools enabled",
	accounts.DataExported:          "Your data downloaded",
	accounts.AccountClosed:         "Account closed",
	accounts.MemberInvited:         "Member invited to an app",
	accounts.InvitationRevoked:     "Invitation to an app revoked",
	accounts.MemberChanged:         "Role in an app changed",
	accounts.MemberRemoved:         "Member removed from an app",
	accounts.AppJoined:             "Joined an app",
	accounts.AppLeft:               "Left an app",
}

func formatTime(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04 UTC") }

// describeBrowser names the browser and the operating system of a User-Agent.
func describeBrowser(agent string) string {
	name, system := "Unknown browser", ""
	for _, b := range [][2]string{
		{"Edg/", "Edge"},
		{"OPR/", "Opera"},
		{"Firefox/", "Firefox"},
		{"Chrome/", "Chrome"},
		{"Safari/", "Safari"},
		{"curl/", "curl"},
	} {
		if strings.Contains(agent, b[0]) {
			name = b[1]
			break
		}
	}
	for _, o := range [][2]string{
		{"iPhone", "iPhone"},
		{"iPad", "iPad"},
		{"Android", "Android"},
		{"Windows", "Windows"},
		{"Mac OS X", "macOS"},
		{"Linux", "Linux"},
	} {
		if strings.Contains(agent, o[0]) {
			system = " on " + o[1]
			break
		}
	}
	return name + system
}

func (h settingsPages) submitEndSession(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if err := h.Sessions.Revoke(r.Context(), a.ID, form.Get("session"), accounts.ClientOf(r)); err != nil {
		return err
	}
	return redirectSaved(w, "/settings/security", "session")
}

func makePasswordPage(a accounts.Account) ui.Form {
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Change your password",
		Action:  "/settings/password",
		Button:  "Change password",
		Fields:  []ui.Input{currentPasswordField("Current password"), newPasswordField("New password")},
		Links:   []ui.Link{{Href: "/forgot", Text: "Forgot your password?"}, {Href: "/settings", Text: "Settings"}},
	}
}

func (h settingsPages) showPassword(w http.ResponseWriter, _ *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, makePasswordPage(a))
}

func (h settingsPages) submitPassword(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, err := h.Store.changePassword(r.Context(), accounts.ClientOf(r), a, form.Get("present"),
		form.Get("password"))
	if err != nil {
		return renderFormError(w, err, makePasswordPage(a), "present")
	}
	if err := h.restartSession(w, r, changed); err != nil {
		return err
	}
	return redirectSaved(w, "/settings", "password")
}

func makeEmailPage(a accounts.Account, email string) ui.Form {
	return ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Change your email address",
		Lead: "Your address is " + a.Email +
			". We’ll email a link to the new one. The change takes effect when you open it.",
		Action: "/settings/email",
		Button: "Send link",
		Fields: appendPasswordField(a, ui.Input{
			Name:     "email",
			Label:    "New email address",
			Type:     "email",
			Complete: "email",
			Value:    email,
		}),
		Links: []ui.Link{{Href: "/settings", Text: "Settings"}},
	}
}

func (h settingsPages) showEmail(w http.ResponseWriter, _ *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, makeEmailPage(a, ""))
}

func (h settingsPages) submitEmail(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("A test account’s address can’t be changed.")
	}
	if err := h.Store.requestEmailChange(r.Context(), accounts.ClientOf(r), a, form.Get("email"),
		form.Get("present")); err != nil {
		return renderFormError(w, err, makeEmailPage(a, form.Get("email")), "present")
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Check your email",
		Text:    "We sent a link to your new address. It works once, within one hour.",
		Link:    &ui.Link{Href: "/settings", Text: "Settings"},
	})
}

// fillSignInMethods adds the account's sign-in methods to the security page.
func (h *Handler) fillSignInMethods(r *http.Request, a accounts.Account, page *ui.Security) (err error) {
	page.Password = a.HasPassword
	if h.Provider == nil || a.Sandbox {
		return nil
	}
	page.Provider = h.Provider.Name
	l, ok, err := loginStore{h.Store}.getLogin(r.Context(), a.ID, h.Provider.Issuer)
	if ok {
		page.Linked = &ui.Login{Email: l.email, Since: formatTime(l.createdUS)}
	}
	return err
}
