package identity

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	callbackPath = "/sign-in/provider/callback"
	loginPath    = "/settings/provider"
)

// openIDPages are the pages for signing in at the provider, and for linking logins.
type openIDPages struct {
	*Handler
	store loginStore
}

func (h openIDPages) mount(rt *web.Router) {
	rt.HandlePage("POST /sign-in/provider", h.requireProvider(h.startSignIn))
	rt.HandlePage("GET "+callbackPath, h.requireProvider(h.Sessions.With(h.handleCallback)))
	rt.HandlePage("GET "+loginPath, h.requireProvider(h.requirePassword(h.showLogin)))
	rt.HandlePage("POST "+loginPath, h.requireProvider(h.Sessions.Require(h.startLink)))
	rt.HandlePage("POST "+loginPath+"/unlink", h.requireProvider(h.Sessions.Require(h.submitUnlink)))
}

// requireProvider answers 404 when no provider is configured.
func (h openIDPages) requireProvider(next web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if h.Provider == nil {
			return apierr.NotFound.Errorf("Signing in with another provider isn’t set up here.")
		}
		return next(w, r)
	}
}

// browserCookie returns the cookie that binds authorization requests to the browser. It is shared
// by concurrent requests of several windows.
func browserCookie(origin, value string) *http.Cookie {
	return &http.Cookie{
		Name:     cookieName(origin),
		Value:    value,
		Path:     "/",
		MaxAge:   int(authRequestTTL.Seconds()),
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
		Secure:   strings.HasPrefix(origin, "https://"),
	}
}

// cookieName returns the name of the cookie, with the __Host- prefix on https.
func cookieName(origin string) string {
	if strings.HasPrefix(origin, "https://") {
		return "__Host-purser-provider"
	}
	return "purser-provider"
}

// getBrowserSecret returns the browser's secret, "" if it has none.
func getBrowserSecret(r *http.Request, origin string) string {
	c, err := r.Cookie(cookieName(origin))
	if err != nil || len(c.Value) != len(id.NewSecret()) {
		return ""
	}
	return c.Value
}

// startSignIn handles the button "Continue with …" of the sign-in and sign-up pages.
func (h openIDPages) startSignIn(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	return h.redirectToProvider(w, r, accounts.Account{}, accounts.LocalPath(form.Get("next")))
}

// redirectToProvider sends the browser to the provider by a page with a Refresh header: the
// Content-Security-Policy form-action also applies to redirects after a form post, and the hosts
// behind the provider are unknown.
func (h openIDPages) redirectToProvider(w http.ResponseWriter, r *http.Request, a accounts.Account, next string) error {
	p := h.Provider
	if wait, ok := p.startLimiter.Allow(id.Hash(web.ClientNetwork(r))); !ok {
		e := apierr.RateLimited.Errorf("Too many requests. Wait a moment, then try again.")
		e.RetryAfter = wait
		return e
	}
	origin := p.matchOrigin(r)
	browser := getBrowserSecret(r, origin)
	if browser == "" {
		browser = id.NewSecret()
	}
	d, err := p.discover(r.Context())
	if err != nil {
		return h.showFailure(w, r, err, next)
	}
	t, err := h.store.beginAuthRequest(r.Context(), browser, a, next)
	if err != nil {
		return err
	}
	to := p.makeAuthorizationURL(d, origin, t, a.ID == "" && h.Sessions.AsksAgain(r))
	http.SetCookie(w, browserCookie(origin, browser))
	w.Header().Set("Refresh", "0; url="+to)
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Continue to " + p.Name,
		Text:    "We’re sending you to " + p.Name + " to sign in. If nothing happens, use the button.",
		Link:    &ui.Link{Href: to, Text: "Continue"},
	})
}

// handleCallback handles the authorization response.
func (h openIDPages) handleCallback(w http.ResponseWriter, r *http.Request) error {
	p, answer := h.Provider, r.URL.Query()
	origin := p.matchOrigin(r)
	t := authRequest{state: answer.Get("state"), browser: getBrowserSecret(r, origin)}
	kept, err := h.store.endAuthRequest(r.Context(), t)
	if err != nil {
		return h.showFailure(w, r, err, "/")
	}
	if answer.Has("error") {
		return h.showDeclined(w, r, answer.Get("error"), kept)
	}
	l, err := p.exchangeCode(r.Context(), origin, t, answer)
	if err != nil {
		return h.showFailure(w, r, err, kept.next)
	}
	if kept.accountID != "" {
		return h.finishLink(w, r, kept, l)
	}
	if h.Sessions.AsksAgain(r) && !h.Accounts.IsRecentProof(l.provenUS) {
		return h.showFailure(w, r, errNotProven, kept.next)
	}
	a, err := h.store.signIn(r.Context(), accounts.ClientOf(r), l, p.Name)
	if err != nil {
		return h.showFailure(w, r, err, kept.next)
	}
	next := accounts.LocalPath(kept.next)
	if a.TwoStep { // the provider's own second step is unknown: ours follows
		if err := h.Sessions.Start(w, r, a, accounts.ProofPending); err != nil {
			return err
		}
		return web.SeeOther(w, accounts.CodePath(next))
	}
	if err := h.Sessions.StartProvenAt(w, r, a, accounts.ProofSingle, l.provenUS); err != nil {
		return err
	}
	return web.SeeOther(w, next)
}

// finishLink links the login to the account that started the request, in the same session.
func (h openIDPages) finishLink(w http.ResponseWriter, r *http.Request, kept storedAuthRequest, l login) error {
	a, ok := accounts.CurrentAccount(r.Context())
	if !ok || !kept.isOf(a) {
		return h.showFailure(w, r, errRequestExpired, loginPath)
	}
	if err := h.store.link(r.Context(), accounts.ClientOf(r), a, l, h.Provider.Name); err != nil {
		return h.showFailure(w, r, err, loginPath)
	}
	return redirectSaved(w, "/settings/security", "provider-linked")
}

// showDeclined renders an authorization error response. It does not show the provider's text: an
// attacker could forge it.
func (h openIDPages) showDeclined(w http.ResponseWriter, r *http.Request, reason string, kept storedAuthRequest) error {
	web.Log(r.Context(), slog.String("provider_error", truncateForLog(reason)))
	m := ui.Message{
		Heading: "You’re not signed in",
		Text:    h.Provider.Name + " didn’t sign you in, perhaps because you cancelled.",
		Link:    &ui.Link{Href: accounts.SignInPath(kept.next), Text: "Sign in"},
	}
	switch reason {
	case "server_error", "temporarily_unavailable", "unauthorized_client", "invalid_client", "invalid_scope",
		"unsupported_response_type": // nothing that the user did (RFC 6749 §4.1.2.1)
		m.Text = "Signing in with " + h.Provider.Name + " isn’t working right now. Try again in a minute, or use " +
			"your password."
	}
	if kept.accountID != "" {
		m.Heading, m.Link = "Nothing was linked", &ui.Link{Href: "/settings/security", Text: "Security"}
	}
	return ui.Render(w, http.StatusForbidden, m)
}

// truncateForLog shortens an untrusted text for the log.
func truncateForLog(text string) string { return strings.ToValidUTF8(text[:min(len(text), 300)], "") }

// showFailure renders and logs an error of the sign-in at the provider; other errors are returned.
func (h openIDPages) showFailure(w http.ResponseWriter, r *http.Request, err error, next string) error {
	name := h.Provider.Name
	status, m := http.StatusBadRequest, ui.Message{Link: &ui.Link{Href: accounts.SignInPath(next), Text: "Start over"}}
	switch {
	case errors.Is(err, errProviderDown):
		status, m.Heading = http.StatusServiceUnavailable, name+" isn’t responding"
		m.Text = "Signing in with " + name +
			" isn’t working right now. Try again in a minute, or use your password."
		w.Header().Set("Retry-After", "60")
	case errors.Is(err, errClientRefused):
		status, m.Heading = http.StatusServiceUnavailable, "Signing in with "+name+" isn’t working"
		m.Text = "The problem is on our side, and we know about it. Your account is safe: use your password " +
			"meanwhile, or set one by email."
		m.Link = &ui.Link{Href: "/forgot", Text: "Set a password"}
	case errors.Is(err, errRequestExpired):
		m.Heading, m.Text = "Please start over",
			"This sign-in expired, was already used, or started in another browser."
	case errors.Is(err, errEmailUnverified):
		status, m.Heading = http.StatusForbidden, name+" hasn’t confirmed your address"
		m.Text = "A new account needs an email address that " + name +
			" has confirmed. Confirm it there, or create an account with a password here."
		m.Link = &ui.Link{Href: "/sign-up", Text: "Create account"}
	case errors.Is(err, errSignUpRefused):
		status, m.Heading = http.StatusForbidden, "New accounts are by invitation"
		m.Text = "Your address isn’t invited, or sign-up is closed. Ask the operator of this service for an invitation."
		m.Link.Text = "Sign in"
	case errors.Is(err, errEmailTaken):
		status, m.Heading = http.StatusForbidden, "You already have an account"
		m.Text = "An account with your address exists, but this " + name +
			" login isn’t linked to it. Sign in with your password first, then link it under Security."
		m.Link.Text = "Sign in"
		if next == "/" {
			m.Link.Href = accounts.SignInPath(loginPath)
		}
	case errors.Is(err, errLoginLinkedElsewhere):
		status, m.Heading = http.StatusConflict, "Linked to another account"
		m.Text = "This " + name + " login belongs to another Purser account. Unlink it there first."
		m.Link = &ui.Link{Href: "/settings/security", Text: "Security"}
	case errors.Is(err, errOtherLoginLinked):
		status, m.Heading = http.StatusConflict, "Another login is already linked"
		m.Text = "Another " + name + " login is linked to your account. Unlink it first."
		m.Link = &ui.Link{Href: loginPath, Text: "View login"}
	case errors.Is(err, errNotProven):
		status, m.Heading = http.StatusForbidden, name+" didn’t ask who you are"
		m.Text = "You wanted to sign in again, but " + name + " let you pass without your credentials, or didn’t " +
			"tell us when it asked for them. Sign out there and start over, or set a password for your account here."
		m.Link = &ui.Link{Href: "/forgot", Text: "Set a password"}
	case errors.Is(err, errAccountUnusable):
		status, m.Heading, m.Text = http.StatusForbidden, "This account is closed",
			"You can no longer sign in to it."
	case errors.Is(err, errAccountSuspended):
		status, m.Heading, m.Text = http.StatusForbidden, "This account is suspended", "Contact support."
		m.Link = nil
	case errors.Is(err, errInvalidResponse):
		m.Heading = "That didn’t work"
		m.Text = "We couldn’t verify the response from " + name +
			". Nothing was changed. Start over, and contact support if it happens again."
	default:
		return err
	}
	web.Log(r.Context(), slog.String("provider_error", truncateForLog(err.Error())))
	return ui.Render(w, status, m)
}

// showLogin shows the page that links and unlinks the login.
func (h openIDPages) showLogin(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.makeLoginPage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h openIDPages) makeLoginPage(r *http.Request, a accounts.Account) (ui.Form, error) {
	l, ok, err := h.store.getLogin(r.Context(), a.ID, h.Provider.Issuer)
	if err != nil {
		return ui.Form{}, err
	}
	name := h.Provider.Name
	page := ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Link " + name,
		Lead: "You’ll be able to sign in with " + name + " or with your password. Next, we’ll send you to " + name +
			" to sign in.",
		Action: loginPath,
		Button: "Continue to " + name,
		Fields: []ui.Input{currentPasswordField("Password")},
		Links:  []ui.Link{{Href: "/settings/security", Text: "Not now"}},
	}
	if ok {
		page.Heading, page.Button, page.Danger = "Unlink "+name, "Unlink", true
		page.Lead = "You’ll no longer be able to sign in with the login" + prefixSpace(l.email) +
			". Your password still works. Your other sessions are signed out."
		page.Action, page.Links[0].Text = loginPath+"/unlink", "Keep it"
	}
	return page, nil
}

// showLoginAgain shows the page with the error.
func (h openIDPages) showLoginAgain(w http.ResponseWriter, r *http.Request, a accounts.Account, wrong error) error {
	page, err := h.makeLoginPage(r, a)
	if err != nil {
		return err
	}
	return renderFormError(w, wrong, page, "present")
}

func prefixSpace(email string) string {
	if email == "" {
		return ""
	}
	return " " + email
}

func (h openIDPages) startLink(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("Test accounts sign in with a password only.")
	}
	if err := h.Accounts.CheckPassword(r.Context(), accounts.ClientOf(r), a, form.Get("present")); err != nil {
		return h.showLoginAgain(w, r, a, err)
	}
	return h.redirectToProvider(w, r, a, "/settings/security")
}

func (h openIDPages) submitUnlink(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, err := h.store.unlink(r.Context(), accounts.ClientOf(r), a, h.Provider.Issuer, h.Provider.Name,
		form.Get("present"))
	if err != nil {
		return h.showLoginAgain(w, r, a, err)
	}
	if err := h.restartSession(w, r, changed); err != nil {
		return err
	}
	return redirectSaved(w, "/settings/security", "provider-unlinked")
}
