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

// The paths of the pages.
const (
	settingsPath = "/settings/notices"
	stopPath     = "/unsubscribe/"
)

// A Handler serves the pages where users choose which emails they get.
type Handler struct {
	Accounts *accounts.Store
	Sessions *accounts.Sessions
	Stops    Signer
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET "+settingsPath, h.Sessions.Require(h.showSettings))
	rt.HandlePage("POST "+settingsPath, h.Sessions.Require(h.saveSettings))
	rt.HandlePage("GET "+stopPath+"{token}", h.showUnsubscribe)
	rt.HandlePage("POST "+stopPath+"{token}", h.unsubscribe)
}

func (h *Handler) showSettings(w http.ResponseWriter, _ *http.Request, a accounts.Account) error {
	return renderSettings(w, a, false)
}

func renderSettings(w http.ResponseWriter, a accounts.Account, saved bool) error {
	choice := func(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }
	return ui.Render(w, http.StatusOK, ui.Notices{
		Shell:       a.Shell(ui.Settings),
		On:          a.Notices,
		Shown:       ui.ShownFields([]ui.Field{{ID: "notices", Value: choice(a.Notices)}}),
		Saved:       saved,
		TestAccount: a.Sandbox,
	})
}

func (h *Handler) saveSettings(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if choice := form.Get("notices"); choice != "on" && choice != "off" {
		return apierr.InvalidRequest.Errorf("notices: must be on or off")
	}
	if choice := ui.TypedFields(form).Get("notices"); choice != "" { // else it stays
		a.Notices = choice == "on"
		if err := h.Accounts.SetNotices(r.Context(), a.ID, a.Notices); err != nil {
			return err
		}
	}
	return renderSettings(w, a, true)
}

// showUnsubscribe is the page that the link in an email leads to. It changes nothing: mail scanners open every link.
func (h *Handler) showUnsubscribe(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	if _, ok := h.Stops.Read(token); !ok {
		return invalidLink()
	}
	return ui.Render(w, http.StatusOK, ui.Unsubscribe{Action: stopPath + token})
}

// unsubscribe is the button of that page, and the one-click POST of RFC 8058. It needs only the token: the body, of
// either content type, is not read.
func (h *Handler) unsubscribe(w http.ResponseWriter, r *http.Request) error {
	accountID, ok := h.Stops.Read(r.PathValue("token"))
	if !ok {
		return invalidLink()
	}
	if err := h.Accounts.SetNotices(r.Context(), accountID, false); errors.Is(err, sql.ErrNoRows) {
		return invalidLink()
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

func invalidLink() error {
	return apierr.NotFound.Errorf(
		"This link is not valid, or the account no longer exists. Sign in to change your email settings at %s.",
		settingsPath)
}
