package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// invitationPages show and accept an invitation by its mailed link.
type invitationPages struct {
	Sessions *accounts.Sessions
	Apps     *apps.Store
	Members  *members.Store
	secure   bool // the pages are served over https
}

// invitationCookie keeps the token while the browser signs in or signs up. The addresses of those pages are stored,
// and the token is not.
const invitationCookie = "purser-invitation"

// invitationCookieTTL is longer than the link of a sign-up works.
const invitationCookieTTL = 24 * time.Hour

func (h invitationPages) mount(rt *web.Router) {
	rt.HandlePage("GET /invitations", h.resume)
	rt.HandlePage("GET "+members.InvitationPath+"{token}", h.Sessions.With(h.showInvitation))
	rt.HandlePage("POST "+members.InvitationPath+"{token}", h.Sessions.Require(h.accept))
}

// setCookie keeps a token, or ends the cookie with "".
func (h invitationPages) setCookie(w http.ResponseWriter, token string) {
	age := int(invitationCookieTTL.Seconds())
	if token == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name:     invitationCookie,
		Value:    token,
		Path:     "/invitations",
		MaxAge:   age,
		HttpOnly: true,
		Secure:   h.secure,
		SameSite: http.SameSiteLaxMode,
	})
}

// resume is GET /invitations: it leads back to the invitation after a sign-in.
func (h invitationPages) resume(w http.ResponseWriter, r *http.Request) error {
	c, err := r.Cookie(invitationCookie)
	if err != nil || c.Value == "" {
		return ui.Render(w, http.StatusOK, ui.Message{
			Heading: "Open your invitation again",
			Text:    "You’re signed in. Now open the link in the email with the invitation once more.",
			Link:    &ui.Link{Href: "/dashboard", Text: "Go to your dashboard"},
		})
	}
	h.setCookie(w, "")
	return web.SeeOther(w, members.InvitationPath+url.PathEscape(c.Value))
}

// showInvitation is GET /invitations/{token}. It changes nothing, because mail scanners open links.
func (h invitationPages) showInvitation(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	i, err := h.Members.GetInvitation(r.Context(), token)
	if err != nil {
		return err
	}
	app, err := h.Apps.Get(r.Context(), i.AppID)
	if err != nil {
		return notFound(err)
	}
	page := ui.Invitation{
		App:     app.Name,
		Logo:    app.LogoPath(),
		Inviter: i.Inviter,
		Role:    strings.ToLower(roleNames[i.Role]),
		Does:    roleTexts[i.Role],
		Until:   ui.Date(i.ExpiresUS),
	}
	a, ok := accounts.CurrentAccount(r.Context())
	switch {
	case ok && a.Email == i.Email && !a.Sandbox:
		page.Shell, page.Action = a.Shell(ui.Development), members.InvitationPath+token
	case ok:
		page.Shell, page.Switch = a.Shell(ui.Development), "/invitations"
		h.setCookie(w, token)
	default:
		page.SignIn, page.SignUp = accounts.SignInPath("/invitations"), "/sign-up?next=%2Finvitations"
		h.setCookie(w, token)
	}
	return ui.Render(w, http.StatusOK, page)
}

// accept is POST /invitations/{token}.
func (h invitationPages) accept(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	i, err := h.Members.Accept(r.Context(), r.PathValue("token"),
		members.Actor{Account: a, From: accounts.ClientOf(r)})
	if err != nil {
		return err
	}
	return web.SeeOther(w, "/developer/apps/"+i.AppID+"?done=joined")
}
