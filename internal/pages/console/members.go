package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// memberPages list, invite, change and remove the members of an app (decision 088).
type memberPages struct {
	Members *members.Store
	identityCheck
	modelOffer
}

func (h memberPages) mount(rt *web.Router, access access) {
	const member = appPath + "/members/{member}"
	rt.HandlePage("GET "+appPath+"/members", access.requireApp(apps.View, h.showMembers))
	rt.HandlePage("GET "+appPath+"/members/invite", access.requireApp(apps.ManageMembers, h.showInvite))
	rt.HandlePage("POST "+appPath+"/members/invite", access.requireApp(apps.ManageMembers, h.invite))
	rt.HandlePage("GET "+member, access.requireApp(apps.ManageMembers, h.showMember))
	rt.HandlePage("POST "+member, access.requireApp(apps.ManageMembers, h.changeRole))
	rt.HandlePage("GET "+member+"/remove", access.requireApp(apps.ManageMembers, h.confirmRemove))
	rt.HandlePage("POST "+member+"/remove", access.requireApp(apps.ManageMembers, h.remove))
	rt.HandlePage("POST "+appPath+"/invitations/{invitation}/revoke",
		access.requireApp(apps.ManageMembers, h.revokeInvitation))
	rt.HandlePage("GET "+appPath+"/leave", access.requireApp(apps.View, h.confirmLeave))
	rt.HandlePage("POST "+appPath+"/leave", access.requireApp(apps.View, h.leave))
}

func actor(r *http.Request, v visit) members.Actor {
	return members.Actor{Account: v.Account, From: accounts.ClientOf(r)}
}

// roleNames and roleTexts describe the roles to members.
var (
	roleNames = map[apps.Role]string{apps.Owner: "Owner", apps.Developer: "Developer", apps.Viewer: "Viewer"}
	roleTexts = map[apps.Role]string{
		apps.Owner: "Everything, also the client secret, going live and members.",
		apps.Developer: "Settings, features, webhooks and the playground. No client secret, no members, and it can’t " +
			"disable the app or ask to go live.",
		apps.Viewer: "Reads figures, calls and deliveries. Changes nothing and sees no secret.",
	}
)

// showMembers is GET /developer/apps/{id}/members.
func (h memberPages) showMembers(w http.ResponseWriter, r *http.Request, v visit) error {
	page := ui.MemberList{Console: v.newPage(r, "Members", "/members"), CanLeave: v.ID != v.app.OwnerID}
	page.Only = v.explain(apps.ManageMembers)
	for _, role := range apps.Roles {
		page.Roles = append(page.Roles, ui.Fact{Name: roleNames[role], Value: roleTexts[role]})
	}
	list, err := h.Members.List(r.Context(), v.app)
	if err != nil {
		return err
	}
	for _, m := range list {
		page.List = append(page.List, ui.MemberLine{
			ID:      m.AccountID,
			Email:   m.Email,
			Role:    roleNames[m.Role],
			Inviter: m.InvitedBy,
			Since:   ui.Date(m.SinceUS),
			You:     m.AccountID == v.ID,
			Creator: m.AccountID == v.app.OwnerID,
		})
	}
	if !v.can(apps.ManageMembers) { // addresses that owners have invited are theirs to see
		return ui.Render(w, http.StatusOK, page)
	}
	invitations, err := h.Members.ListInvitations(r.Context(), v.app.ID)
	if err != nil {
		return err
	}
	for _, i := range invitations {
		page.Invitations = append(page.Invitations, ui.InvitationLine{
			ID:      i.ID,
			Email:   i.Email,
			Role:    roleNames[i.Role],
			Inviter: i.Inviter,
			Until:   ui.Date(i.ExpiresUS),
			Expired: i.ExpiresUS <= h.Now().UnixMicro(),
		})
	}
	return ui.Render(w, http.StatusOK, page)
}

// roleField lets an owner choose a role.
func roleField(chosen apps.Role) ui.Field {
	f := ui.Field{ID: "role", Label: "Role", Kind: "select", Value: string(chosen)}
	var hints []string
	for _, role := range apps.Roles {
		f.Options = append(f.Options, ui.Option{ID: string(role), Text: roleNames[role], Chosen: role == chosen})
		hints = append(hints, roleNames[role]+": "+roleTexts[role])
	}
	f.Hint = strings.Join(hints, " ")
	return f
}

// passwordFields returns the field for the password of an account that has one.
func passwordFields(a accounts.Account) []ui.Field {
	if !a.HasPassword {
		return nil
	}
	return []ui.Field{{ID: "present", Label: "Your password", Kind: "password"}}
}

func invitePage(r *http.Request, v visit) ui.FormPage {
	return ui.FormPage{
		Console: v.newPage(r, "Invite a member", "/members"),
		Lead:    "We email a link that works once, for seven days. The account with this address decides.",
		Action:  v.path("/members/invite"),
		Button:  "Send invitation",
		Back:    ui.Link{Href: v.path("/members"), Text: "Cancel"},
		Fields: append([]ui.Field{{ID: "email", Label: "Email"}, roleField(apps.Developer)},
			passwordFields(v.Account)...),
	}
}

// showForm renders a form that needs the identity of the account once more.
func (h memberPages) showForm(w http.ResponseWriter, r *http.Request, v visit, page ui.FormPage) error {
	if h.Accounts.MustSignInAgain(r.Context(), v.Account) {
		return accounts.RenderSignInAgain(w, r, v.Account)
	}
	return ui.Render(w, http.StatusOK, page)
}

// submitForm checks the password of the form and calls change, then redirects. It answers with the page again if
// either refuses.
func (h memberPages) submitForm(w http.ResponseWriter, r *http.Request, v visit, page ui.FormPage, done string,
	change func(email string, role apps.Role) error) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if h.Accounts.MustSignInAgain(r.Context(), v.Account) {
		return accounts.RenderSignInAgain(w, r, v.Account)
	}
	status := http.StatusUnprocessableEntity
	err = h.Accounts.Reauthenticate(r.Context(), accounts.ClientOf(r), v.Account, form.Get("present"))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status < 500 {
		status, page.Errors = e.Code.Status, []ui.Problem{{Field: "present", Text: e.Message}}
	} else if err != nil {
		return err
	} else if err = change(form.Get("email"), apps.Role(form.Get("role"))); err == nil {
		return web.SeeOther(w, v.path("/members?done="+done))
	} else if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
		return notFound(err)
	}
	page.Fields = withErrors(withValues(page.Fields, form), page.Errors)
	return ui.Render(w, status, page)
}

// showInvite is GET /developer/apps/{id}/members/invite.
func (h memberPages) showInvite(w http.ResponseWriter, r *http.Request, v visit) error {
	return h.showForm(w, r, v, invitePage(r, v))
}

// invite is POST /developer/apps/{id}/members/invite.
func (h memberPages) invite(w http.ResponseWriter, r *http.Request, v visit) error {
	return h.submitForm(w, r, v, invitePage(r, v), "invited", func(email string, role apps.Role) error {
		return h.Members.Invite(r.Context(), v.app.ID, actor(r, v), email, role)
	})
}

// getMember returns the member of the path; 404 if there is none, and for the app's own account.
func (h memberPages) getMember(r *http.Request, v visit) (members.Member, error) {
	m, err := h.Members.Get(r.Context(), v.app.ID, r.PathValue("member"))
	return m, notFound(err)
}

func rolePage(r *http.Request, v visit, m members.Member) ui.FormPage {
	return ui.FormPage{
		Console: v.newPage(r, "Change the role of "+m.Email, "/members"),
		Action:  v.path("/members/" + m.AccountID),
		Button:  "Change role",
		Back:    ui.Link{Href: v.path("/members"), Text: "Cancel"},
		Fields:  append([]ui.Field{roleField(m.Role)}, passwordFields(v.Account)...),
	}
}

// showMember is GET /developer/apps/{id}/members/{member}.
func (h memberPages) showMember(w http.ResponseWriter, r *http.Request, v visit) error {
	m, err := h.getMember(r, v)
	if err != nil {
		return err
	}
	return h.showForm(w, r, v, rolePage(r, v, m))
}

// changeRole is POST /developer/apps/{id}/members/{member}.
func (h memberPages) changeRole(w http.ResponseWriter, r *http.Request, v visit) error {
	m, err := h.getMember(r, v)
	if err != nil {
		return err
	}
	return h.submitForm(w, r, v, rolePage(r, v, m), "role", func(_ string, role apps.Role) error {
		return h.Members.SetRole(r.Context(), v.app.ID, actor(r, v), m.AccountID, role)
	})
}

func removePage(r *http.Request, v visit, m members.Member) ui.Confirm {
	return ui.Confirm{
		Console: v.newPage(r, "Remove "+m.Email+"?", "/members"),
		Lead: "The account loses access to this app at once. Secrets that it has seen still work: replace them if " +
			"you have to.",
		Facts:  []ui.Fact{{Name: "Role", Value: roleNames[m.Role]}},
		Action: v.path("/members/" + m.AccountID + "/remove"),
		Button: "Remove member",
		Back:   ui.Link{Href: v.path("/members"), Text: "Cancel"},
	}
}

// confirmRemove is GET /developer/apps/{id}/members/{member}/remove.
func (h memberPages) confirmRemove(w http.ResponseWriter, r *http.Request, v visit) error {
	m, err := h.getMember(r, v)
	if err != nil {
		return err
	}
	return h.identityCheck.show(w, r, v.Account, removePage(r, v, m))
}

// remove is POST /developer/apps/{id}/members/{member}/remove.
func (h memberPages) remove(w http.ResponseWriter, r *http.Request, v visit) error {
	m, err := h.getMember(r, v)
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	ok, err := h.identityCheck.pass(w, r, v.Account, form.Get("present"), removePage(r, v, m))
	if !ok || err != nil {
		return err
	}
	if err := h.Members.Remove(r.Context(), v.app.ID, actor(r, v), m.AccountID); err != nil {
		return notFound(err)
	}
	if m.AccountID == v.ID {
		return web.SeeOther(w, "/developer")
	}
	return web.SeeOther(w, v.path("/members?done=removed"))
}

// revokeInvitation is POST /developer/apps/{id}/invitations/{invitation}/revoke.
func (h memberPages) revokeInvitation(w http.ResponseWriter, r *http.Request, v visit) error {
	if err := h.Members.RevokeInvitation(r.Context(), v.app.ID, actor(r, v), r.PathValue("invitation")); err != nil {
		return notFound(err)
	}
	return web.SeeOther(w, v.path("/members?done=revoked"))
}

func leavePage(r *http.Request, v visit) ui.Confirm {
	return ui.Confirm{
		Console: v.newPage(r, "Leave "+v.app.Name+"?", "/members"),
		Lead:    "You lose access to this app at once. To come back, you need a new invitation.",
		Facts:   []ui.Fact{{Name: "Your role", Value: roleNames[v.role]}},
		Action:  v.path("/leave"),
		Button:  "Leave app",
		Back:    ui.Link{Href: v.path("/members"), Text: "Cancel"},
	}
}

// confirmLeave is GET /developer/apps/{id}/leave.
func (h memberPages) confirmLeave(w http.ResponseWriter, r *http.Request, v visit) error {
	return ui.Render(w, http.StatusOK, leavePage(r, v))
}

// leave is POST /developer/apps/{id}/leave.
func (h memberPages) leave(w http.ResponseWriter, r *http.Request, v visit) error {
	err := h.Members.Leave(r.Context(), v.app.ID, actor(r, v))
	if err == nil {
		return web.SeeOther(w, "/developer")
	}
	page := leavePage(r, v)
	if page.Errors = formProblems(err, nil); page.Errors == nil {
		return notFound(err)
	}
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}
