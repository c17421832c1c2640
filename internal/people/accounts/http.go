package accounts

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
)

// Handler serves the front page and the pages for signing in and out.
type Handler struct {
	Store    *Store
	Sessions *Sessions
	Home     ui.Home              // the front page; the handler adds the signed-in account and the prices
	Prices   func() []ui.PriceRow // nil = the front page shows none
	Provider string               // name of the OpenID Connect provider; "" = none
	Passkeys ui.Passkeys
	Origins  []string // where people sign in: of auth_url and dashboard_url; one or none = a single session
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /{$}", h.Sessions.With(h.showHome))
	rt.HandlePage("GET /sign-in", h.Sessions.With(h.showSignIn))
	rt.HandlePage("POST /sign-in", h.Sessions.With(h.signIn))
	rt.HandlePage("POST /sign-out", h.Sessions.With(h.signOut))
	rt.HandlePage("GET /sign-out/here", h.Sessions.With(h.signOutHere))
	rt.HandlePage("GET /signed-out", showSignedOut)
}

func (h *Handler) showHome(w http.ResponseWriter, r *http.Request) error {
	page := h.Home
	if h.Prices != nil {
		page.Prices = h.Prices()
	}
	if a, ok := CurrentAccount(r.Context()); ok {
		page.Shell = a.Shell("")
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h *Handler) showSignIn(w http.ResponseWriter, r *http.Request) error {
	next := LocalPath(r.URL.Query().Get("next"))
	if _, ok := CurrentAccount(r.Context()); ok {
		return web.SeeOther(w, next)
	}
	return ui.Render(w, http.StatusOK, ui.SignIn{Next: next, Provider: h.Provider, Passkeys: h.Passkeys})
}

func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	next := LocalPath(form.Get("next"))
	a, err := h.Store.SignIn(r.Context(), ClientOf(r), form.Get("email"), form.Get("password"))
	if refused, ok := errors.AsType[*apierr.Error](err); ok {
		if refused.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.RetryAfter.Seconds()))))
		}
		return ui.Render(w, refused.Code.Status, ui.SignIn{
			Next:     next,
			Email:    form.Get("email"),
			Provider: h.Provider,
			Passkeys: h.Passkeys,
			Errors:   []ui.Problem{{Field: "email", Text: refused.Message}},
		})
	} else if err != nil {
		return err
	}
	if a.TwoStep {
		if err := h.Sessions.Start(w, r, a, ProofPending); err != nil {
			return err
		}
		return web.SeeOther(w, CodePath(next))
	}
	if err := h.Sessions.Start(w, r, a, ProofSingle); err != nil {
		return err
	}
	return web.SeeOther(w, next)
}

// signOut ends the sessions of this browser. With the form value next it redirects to the sign-in
// page, for a user who wants to sign in again, or as somebody else.
func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if err := h.Sessions.End(r.Context(), w); err != nil {
		return err
	}
	to := "/signed-out"
	if form.Has("next") {
		h.Sessions.askAgain(w)
		to = SignInPath(form.Get("next"))
	}
	if other, here := h.otherOrigin(r); other != "" {
		return web.SeeOther(w, other+"/sign-out/here?"+url.Values{"back": {here}, "to": {to}}.Encode())
	}
	return web.SeeOther(w, to)
}

// otherOrigin returns the other origin with sign-ins, and the present one; "" = there is one only, or the request came
// to none of them. A browser has a session at each, because cookies belong to one host.
func (h *Handler) otherOrigin(r *http.Request) (other, here string) {
	for _, origin := range h.Origins {
		u, err := url.Parse(origin)
		if err != nil {
			continue
		}
		if strings.EqualFold(u.Host, r.Host) {
			here = origin
		} else {
			other = origin
		}
	}
	if here == "" {
		return "", ""
	}
	return other, here
}

// signOutHere ends the session at this origin after the one at the other has ended, and leads back there. A link on a
// foreign site asks first.
func (h *Handler) signOutHere(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		return ui.Render(w, http.StatusOK, ui.Form{
			Heading: "Sign out here, too?",
			Lead:    "Apps you connected stay connected.",
			Action:  "/sign-out",
			Button:  "Sign out",
		})
	}
	if err := h.Sessions.End(r.Context(), w); err != nil {
		return err
	}
	to := LocalPath(q.Get("to"))
	if other, _ := h.otherOrigin(r); other != "" && other == q.Get("back") {
		return web.SeeOther(w, other+to)
	}
	return web.SeeOther(w, to)
}

func showSignedOut(w http.ResponseWriter, _ *http.Request) error {
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "You’re signed out",
		Text:    "Apps you connected stay connected.",
		Link:    &ui.Link{Href: "/sign-in", Text: "Sign in again"},
	})
}

// RenderSignInAgain asks a to sign in again and leads back to this page.
func RenderSignInAgain(w http.ResponseWriter, r *http.Request, a Account) error {
	return ui.Render(w, http.StatusUnauthorized, ui.Form{
		Shell:   a.Shell(ui.Settings),
		Heading: "Sign in again",
		Lead: "Your account has no password, so this page needs a sign-in from the last ten minutes. " +
			"You’ll return here afterwards.",
		Action: "/sign-out",
		Next:   r.URL.EscapedPath(),
		Button: "Sign in again",
		Links:  []ui.Link{{Href: "/settings", Text: "Settings"}},
	})
}

// SignInPath returns the path of the sign-in page that continues at next, a local path.
func SignInPath(next string) string {
	return "/sign-in?next=" + url.QueryEscape(LocalPath(next))
}

// CodePath returns the path of the page for the second step (package identity), which continues at
// next.
func CodePath(next string) string {
	return "/sign-in/code?next=" + url.QueryEscape(LocalPath(next))
}

// LocalPath returns next if it is a path on this host, else "/". It prevents open redirects.
func LocalPath(next string) string {
	u, err := url.Parse(next)
	plain := !strings.ContainsFunc(next, func(c rune) bool { return c <= ' ' || c == '\\' || c >= 0x7f })
	if err != nil || !plain || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(u.Path, "//") ||
		strings.Contains(u.Path, "..") || strings.Contains(u.Path, `\`) {
		return "/"
	}
	return next
}

// A PageHandler serves a page to the signed-in account a.
type PageHandler func(w http.ResponseWriter, r *http.Request, a Account) error

// InTurn serves a heavy page to its account when no other one of the account runs, and few on this node
// (web.Turns).
func (s *Sessions) InTurn(next PageHandler) PageHandler {
	return func(w http.ResponseWriter, r *http.Request, a Account) error {
		return s.turns.Serve(w, r, a.ID, func(w http.ResponseWriter, r *http.Request) error { return next(w, r, a) })
	}
}

// Require serves next to signed-in browsers, and sends others to the sign-in page, which leads back to this one. A
// live part of a page has htmx reload the page instead.
func (s *Sessions) Require(next PageHandler) web.Handler {
	return s.With(func(w http.ResponseWriter, r *http.Request) error {
		a, ok := CurrentAccount(r.Context())
		switch {
		case ok:
			return next(w, r, a)
		case ui.Reload(w, r):
			return nil
		}
		return web.SeeOther(w, SignInPath(r.URL.EscapedPath()))
	})
}
