package notices

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Where the pages are.
const (
	settingsPath = "/settings/notices"
	stopPath     = "/unsubscribe/"
)

// A Handler serves the pages on which people say which mail they want.
type Handler struct {
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Stops    Signer
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET "+settingsPath, h.Sessions.With(h.settings))
	rt.HandlePage("POST "+settingsPath, h.Sessions.With(h.change))
	rt.HandlePage("GET "+stopPath+"{token}", h.ask)
	rt.HandlePage("POST "+stopPath+"{token}", h.stop)
}

func (h *Handler) settings(w http.ResponseWriter, r *http.Request) error {
	a, ok := accounts.CurrentAccount(r.Context())
	if !ok {
		return signIn(w)
	}
	return ui.Render(w, http.StatusOK, ui.Notices{Shell: a.Shell(ui.Settings), On: a.Notices, TestAccount: a.Sandbox})
}

func (h *Handler) change(w http.ResponseWriter, r *http.Request) error {
	a, ok := accounts.CurrentAccount(r.Context())
	if !ok {
		return signIn(w)
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	choice := form.Get("notices")
	if choice != "on" && choice != "off" {
		return apierr.InvalidRequest.Errorf("notices: must be on or off")
	}
	if err := h.Accounts.SetNotices(r.Context(), a.ID, choice == "on"); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Notices{
		Shell:       a.Shell(ui.Settings),
		On:          choice == "on",
		Saved:       true,
		TestAccount: a.Sandbox,
	})
}

func signIn(w http.ResponseWriter) error {
	w.Header().Set("Location", accounts.SignInPath(settingsPath))
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// ask is where the link in a mail leads. It changes nothing: programs that check
// mail for bad links open all of them.
func (h *Handler) ask(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	if _, ok := h.Stops.Account(token); !ok {
		return errLink()
	}
	return ui.Render(w, http.StatusOK, ui.Unsubscribe{Action: stopPath + token})
}

// stop is the button of ask, and the one click of RFC 8058. The token is all that
// it needs: the body may be of either type, and is not read.
func (h *Handler) stop(w http.ResponseWriter, r *http.Request) error {
	accountID, ok := h.Stops.Account(r.PathValue("token"))
	if !ok {
		return errLink()
	}
	if err := h.Accounts.SetNotices(r.Context(), accountID, false); errors.Is(err, sql.ErrNoRows) {
		return errLink()
	} else if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "You’re unsubscribed",
		Text: "You won’t get these emails any more. Spend caps still apply, and we still email you when we pause " +
			"an app.",
		Link: &ui.Link{Href: settingsPath, Text: "Email settings"},
	})
}

func errLink() error {
	return apierr.NotFound.Errorf(
		"This link is not valid, or the account no longer exists. Sign in to change your email settings at %s.",
		settingsPath)
}
