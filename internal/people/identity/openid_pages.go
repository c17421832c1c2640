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

func (h *Handler) mountOpenID(rt *web.Router) {
	rt.HandlePage("POST /sign-in/provider", h.withProvider(h.leave))
	rt.HandlePage("GET "+callbackPath, h.withProvider(h.Sessions.With(h.arrive)))
	rt.HandlePage("GET "+loginPath, h.withProvider(h.knowsPassword(h.loginForm)))
	rt.HandlePage("POST "+loginPath, h.withProvider(h.signedIn(h.linkForm)))
	rt.HandlePage("POST "+loginPath+"/unlink", h.withProvider(h.signedIn(h.unlink)))
}

// withProvider leaves out the pages where no provider is set up.
func (h *Handler) withProvider(next web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if h.Provider == nil {
			return apierr.NotFound.Errorf("Signing in with another provider isn’t set up here.")
		}
		return next(w, r)
	}
}

// confirms asks whoever has no password to have signed in just now, on pages that
// ask others for theirs.
func (h *Handler) confirms(next func(http.ResponseWriter, *http.Request, accounts.Account) error) web.Handler {
	return h.signedIn(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if h.Accounts.MustSignInAgain(r.Context(), a) {
			return accounts.RenderSignInAgain(w, r, a)
		}
		return next(w, r, a)
	})
}

// knowsPassword asks whoever has no password to set one first, on pages about the
// ways in, of which it must be one.
func (h *Handler) knowsPassword(next func(http.ResponseWriter, *http.Request, accounts.Account) error) web.Handler {
	return h.signedIn(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
		if a.HasPassword {
			return next(w, r, a)
		}
		return ui.Render(w, http.StatusOK, ui.Form{
			Shell: a.Shell(ui.Settings), Heading: "Set a password first", Lead: "This page needs your password, and your account has none yet. We’ll email you a link to set one.",
			Action: "/forgot", Button: "Send link", Fields: []ui.Input{emailField(a.Email)}, Links: []ui.Link{{Href: "/settings/security", Text: "Security"}},
		})
	})
}

// browserCookie binds trips to the browser. It outlives them: people may start
// in two windows.
func browserCookie(origin, value string) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(origin), Value: value, Path: "/", MaxAge: int(tripLasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(origin, "https://"),
	}
}

// cookieName binds the cookie to exactly this host wherever that is possible.
func cookieName(origin string) string {
	if strings.HasPrefix(origin, "https://") {
		return "__Host-purser-provider"
	}
	return "purser-provider"
}

// browserOf returns the secret of the browser, "" if it has none.
func browserOf(r *http.Request, origin string) string {
	c, err := r.Cookie(cookieName(origin))
	if err != nil || len(c.Value) != len(id.NewSecret()) {
		return ""
	}
	return c.Value
}

// leave is the button on the pages where people sign in and up.
func (h *Handler) leave(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	return h.sendOut(w, r, accounts.Account{}, accounts.LocalPath(form.Get("next")))
}

// sendOut sends a browser to the provider: by a page that goes on by itself,
// because browsers hold whatever follows a form to form-action, and the provider
// may lead on to hosts that nobody here knows.
func (h *Handler) sendOut(w http.ResponseWriter, r *http.Request, a accounts.Account, next string) error {
	p := h.Provider
	if wait, ok := p.starts.Allow(id.Hash(accounts.ClientOf(r).Address)); !ok {
		e := apierr.RateLimited.Errorf("Too many requests. Wait a moment, then try again.")
		e.RetryAfter = wait
		return e
	}
	origin := p.origin(r)
	browser := browserOf(r, origin)
	if browser == "" {
		browser = id.NewSecret()
	}
	d, err := p.discover(r.Context())
	if err != nil {
		return h.failed(w, r, err, next)
	}
	t, err := h.Store.begin(r.Context(), browser, a, next)
	if err != nil {
		return err
	}
	to := p.wayOut(d, origin, t)
	http.SetCookie(w, browserCookie(origin, browser))
	w.Header().Set("Refresh", "0; url="+to)
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Continue to " + p.Name, Text: "We’re sending you to " + p.Name + " to sign in. If nothing happens, use the button.", Link: &ui.Link{Href: to, Text: "Continue"},
	})
}

// arrive is where the provider sends people back to.
func (h *Handler) arrive(w http.ResponseWriter, r *http.Request) error {
	p, answer := h.Provider, r.URL.Query()
	origin := p.origin(r)
	t := trip{state: answer.Get("state"), browser: browserOf(r, origin)}
	kept, err := h.Store.end(r.Context(), t)
	if err != nil {
		return h.failed(w, r, err, "/")
	}
	if answer.Has("error") {
		return h.declined(w, r, answer.Get("error"), kept)
	}
	l, err := p.arrive(r.Context(), origin, t, answer)
	if err != nil {
		return h.failed(w, r, err, kept.next)
	}
	if kept.accountID != "" {
		return h.linkTo(w, r, kept, l)
	}
	a, err := h.Store.enter(r.Context(), accounts.ClientOf(r), l, p.Name)
	if err != nil {
		return h.failed(w, r, err, kept.next)
	}
	next := accounts.LocalPath(kept.next)
	if a.TwoStep { // what the provider asked for besides is not known: ours is still to come
		if err := h.Sessions.Start(w, r, a, accounts.ProofPending); err != nil {
			return err
		}
		return seeOther(w, accounts.CodePath(next))
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofSingle); err != nil {
		return err
	}
	return seeOther(w, next)
}

// linkTo ends a trip that began under Security: in the same session of the same
// person.
func (h *Handler) linkTo(w http.ResponseWriter, r *http.Request, kept attempt, l login) error {
	a, ok := accounts.CurrentAccount(r.Context())
	if !ok || a.ID != kept.accountID || a.Epoch != kept.epoch {
		return h.failed(w, r, errTrip, loginPath)
	}
	if err := h.Store.linkLogin(r.Context(), accounts.ClientOf(r), a, l, h.Provider.Name); err != nil {
		return h.failed(w, r, err, loginPath)
	}
	return saved(w, "/settings/security", "provider-linked")
}

// declined answers a provider that sent somebody back without saying who it is.
// Its words are not shown: whoever makes up an answer could choose them.
func (h *Handler) declined(w http.ResponseWriter, r *http.Request, reason string, kept attempt) error {
	web.Log(r.Context(), slog.String("provider_error", short(reason)))
	m := ui.Message{
		Heading: "You’re not signed in", Text: h.Provider.Name + " didn’t sign you in, perhaps because you cancelled.", Link: &ui.Link{Href: accounts.SignInPath(kept.next), Text: "Sign in"},
	}
	if kept.accountID != "" {
		m.Heading, m.Link = "Nothing was linked", &ui.Link{Href: "/settings/security", Text: "Security"}
	}
	return ui.Render(w, http.StatusForbidden, m)
}

// short is what the log gets of a text that strangers chose.
func short(text string) string { return strings.ToValidUTF8(text[:min(len(text), 300)], "") }

// failed says in words what went wrong with the provider, and in the log why.
// What is no fault of it is returned.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error, next string) error {
	name := h.Provider.Name
	status, m := http.StatusBadRequest, ui.Message{Link: &ui.Link{Href: accounts.SignInPath(next), Text: "Start over"}}
	switch {
	case errors.Is(err, errAway):
		status, m.Heading = http.StatusServiceUnavailable, name+" isn’t responding"
		m.Text = "Signing in with " + name + " isn’t working right now. Try again in a minute, or use your password."
		w.Header().Set("Retry-After", "60")
	case errors.Is(err, errTrip):
		m.Heading, m.Text = "Please start over", "This sign-in expired, was already used, or started in another browser."
	case errors.Is(err, errUnverified):
		status, m.Heading = http.StatusForbidden, name+" hasn’t confirmed your address"
		m.Text = "A new account needs an email address that " + name + " has confirmed. Confirm it there, or create an account with a password here."
		m.Link = &ui.Link{Href: "/sign-up", Text: "Create account"}
	case errors.Is(err, errTaken):
		status, m.Heading = http.StatusForbidden, "You already have an account"
		m.Text = "An account with your address exists, but this " + name + " login isn’t linked to it. Sign in with your password first, then link it under Security."
		m.Link.Text = "Sign in"
		if next == "/" {
			m.Link.Href = accounts.SignInPath(loginPath)
		}
	case errors.Is(err, errElsewhere):
		status, m.Heading = http.StatusConflict, "Linked to another account"
		m.Text = "This " + name + " login belongs to another Purser account. Unlink it there first."
		m.Link = &ui.Link{Href: "/settings/security", Text: "Security"}
	case errors.Is(err, errAnother):
		status, m.Heading = http.StatusConflict, "Another login is already linked"
		m.Text = "Another " + name + " login is linked to your account. Unlink it first."
		m.Link = &ui.Link{Href: loginPath, Text: "View login"}
	case errors.Is(err, errClosed):
		status, m.Heading, m.Text = http.StatusForbidden, "This account is closed", "You can no longer sign in to it."
	case errors.Is(err, errAnswer):
		m.Heading = "That didn’t work"
		m.Text = "We couldn’t verify the response from " + name + ". Nothing was changed. Start over, and contact support if it happens again."
	default:
		return err
	}
	web.Log(r.Context(), slog.String("provider_error", short(err.Error())))
	return ui.Render(w, status, m)
}

// waysIn tells the page of security how an account signs in.
func (h *Handler) waysIn(r *http.Request, a accounts.Account, page *ui.Security) (err error) {
	page.Password = a.HasPassword
	if h.Provider == nil || a.Sandbox {
		return nil
	}
	page.Provider = h.Provider.Name
	l, ok, err := h.Store.loginOf(r.Context(), a.ID, h.Provider.Issuer)
	if ok {
		page.Linked = &ui.Login{Email: l.email, Since: shown(l.createdUS)}
	}
	return err
}

// loginForm is the page on which the login is linked and unlinked.
func (h *Handler) loginForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.loginPage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h *Handler) loginPage(r *http.Request, a accounts.Account) (ui.Form, error) {
	l, ok, err := h.Store.loginOf(r.Context(), a.ID, h.Provider.Issuer)
	if err != nil {
		return ui.Form{}, err
	}
	name := h.Provider.Name
	page := ui.Form{
		Shell: a.Shell(ui.Settings), Heading: "Link " + name, Lead: "You’ll be able to sign in with " + name + " or with your password. Next, we’ll send you to " + name + " to sign in.",
		Action: loginPath, Button: "Continue to " + name, Fields: []ui.Input{presentField("Password")}, Links: []ui.Link{{Href: "/settings/security", Text: "Not now"}},
	}
	if ok {
		page.Heading, page.Lead, page.Button, page.Danger = "Unlink "+name, "You’ll no longer be able to sign in with the login"+of(l.email)+". Your password still works. Your other sessions are signed out.", "Unlink", true
		page.Action, page.Links[0].Text = loginPath+"/unlink", "Keep it"
	}
	return page, nil
}

// loginAgain shows the page with what is wrong.
func (h *Handler) loginAgain(w http.ResponseWriter, r *http.Request, a accounts.Account, wrong error) error {
	page, err := h.loginPage(r, a)
	if err != nil {
		return err
	}
	return again(w, wrong, page, "present")
}

func of(email string) string {
	if email == "" {
		return ""
	}
	return " " + email
}

func (h *Handler) linkForm(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if a.Sandbox {
		return apierr.InvalidRequest.Errorf("Test accounts sign in with a password only.")
	}
	if err := h.Accounts.CheckPassword(r.Context(), accounts.ClientOf(r), a, form.Get("present")); err != nil {
		return h.loginAgain(w, r, a, err)
	}
	return h.sendOut(w, r, a, "/settings/security")
}

func (h *Handler) unlink(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	changed, err := h.Store.unlink(r.Context(), accounts.ClientOf(r), a, h.Provider.Issuer, h.Provider.Name, form.Get("present"))
	if err != nil {
		return h.loginAgain(w, r, a, err)
	}
	if err := h.restart(w, r, changed); err != nil {
		return err
	}
	return saved(w, "/settings/security", "provider-unlinked")
}
