package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestMembers invites an account to an app as a viewer. It accepts, reads and can't change, becomes a developer, and
// is removed.
func TestMembers(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; TestRoles proves every route")
	t.Parallel()
	p := servertest.Start(t, "")
	app := p.DashboardURL + "/developer/apps/" + p.App.ID
	guest := newTab(t, p.BaseURL)
	guest.join(p)
	guest.open(p.DashboardURL + "/invitations")
	guest.says("Open your invitation again")
	guest.look("members-no-invitation")
	owner := newTab(t, p.BaseURL)
	owner.open(app + "/members")
	owner.signIn(p.Developer.Email, p.Developer.Password)
	owner.press("link", "Invite a member")
	owner.fill("Email", newcomer)
	owner.pick("Role", "viewer")
	owner.fill("Your password", "not this one")
	owner.press("button", "Send invitation")
	owner.says("There’s a problem")
	owner.look("members-invite-problem")
	owner.fill("Your password", p.Developer.Password)
	owner.press("button", "Send invitation")
	owner.says(newcomer, "Viewer", "works until")
	owner.look("members-invited")

	guest.open(p.BaseURL + "/dev/mail")
	guest.press("link", "You’re invited to work on an app")
	guest.look("members-mail")
	guest.open(run(guest, chromedp.Evaluate[string](`document.querySelector('a[href*="/invitations/"]').href`)))
	guest.says("Join Sample app", p.Developer.Email)
	guest.look("members-invitation")
	guest.press("button", "Accept invitation")
	for _, page := range []string{"", "/analytics", "/requests", "/webhooks", "/members"} {
		if status := guest.open(app + page); status != 200 {
			t.Errorf("a viewer opens %q: %d", page, status)
		}
	}
	guest.look("members-viewer")
	if text := guest.text(); strings.Contains(text, "Invite a member") || !strings.Contains(text, "Leave app") {
		t.Errorf("a viewer reads:\n%s", text)
	}
	if status := guest.open(app + "/secret"); status != 403 {
		t.Errorf("a viewer asks for a new secret: %d", status)
	}

	owner.open(app + "/members")
	owner.press("link", "Change role of "+newcomer)
	owner.pick("Role", "developer")
	owner.fill("Your password", p.Developer.Password)
	owner.look("members-role")
	owner.press("button", "Change role")
	owner.says("Developer")
	owner.press("link", "Remove "+newcomer)
	owner.says("loses access to this app at once")
	owner.fill("Your password", p.Developer.Password)
	owner.look("members-remove")
	owner.press("button", "Remove member")
	if strings.Contains(owner.text(), newcomer) {
		t.Errorf("after the removal:\n%s", owner.text())
	}
	if status := guest.open(app); status != 404 {
		t.Errorf("a removed member opens the app: %d", status)
	}
}
