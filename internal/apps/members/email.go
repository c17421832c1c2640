package members

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// InvitationPath is the path of the page of an invitation, without its token.
const InvitationPath = "/invitations/"

// quote quotes the name of an app, which its members chose.
func quote(app string) string { return "“" + app + "”" }

// withArticle returns a role with its article.
func withArticle(r apps.Role) string {
	if r == apps.Owner {
		return "an owner"
	}
	return "a " + string(r)
}

func membersLink(dashboard string, app apps.App) *ui.Link {
	return &ui.Link{Href: dashboard + "/developer/apps/" + app.ID + "/members", Text: "See the members"}
}

// invitationEmail goes to an address that may have nothing to do with the app. What the app's members wrote is in
// none of its subject, and is left out if programs would make a link of it.
func invitationEmail(app string, i Invitation, url string) ui.Email {
	what := "the app " + quote(app)
	if apps.FindAddress(app, "") != "" {
		what = "an app"
	}
	return ui.Email{
		Subject: "You’re invited to work on an app",
		Paragraphs: []string{
			fmt.Sprintf("%s invites you to work on %s as %s.", i.Inviter, what, withArticle(i.Role)),
			fmt.Sprintf("The link works once, until %s. You sign in or create an account with this address, and then "+
				"decide.", time.UnixMicro(i.ExpiresUS).UTC().Format("2 January 2006, 15:04 UTC")),
			"If you don’t know the sender, ignore this email. Nothing happens unless you accept.",
		},
		Action: &ui.Link{Href: url, Text: "View invitation"},
	}
}

func addedEmail(app apps.App, email string, i Invitation, dashboard string) ui.Email {
	return ui.Email{
		Subject: "A member joined " + quote(app.Name),
		Paragraphs: []string{
			fmt.Sprintf("%s accepted the invitation of %s and is now %s of %s.", email, i.Inviter, withArticle(i.Role),
				quote(app.Name)),
			"If you don’t expect this, remove the member.",
		},
		Action: membersLink(dashboard, app),
	}
}

func roleEmail(app apps.App, m Member, role apps.Role, by, dashboard string) ui.Email {
	return ui.Email{
		Subject: "A role in " + quote(app.Name) + " was changed",
		Paragraphs: []string{
			fmt.Sprintf("%s changed the role of %s in %s from %s to %s.", by, m.Email, quote(app.Name), m.Role, role),
		},
		Action: membersLink(dashboard, app),
	}
}

func removedEmail(app apps.App, m Member, by, dashboard string) ui.Email {
	return ui.Email{
		Subject: "A member of " + quote(app.Name) + " was removed",
		Paragraphs: []string{
			fmt.Sprintf("%s removed %s, who was %s of %s.", by, m.Email, withArticle(m.Role), quote(app.Name)),
			"A secret that the member has seen still works. Replace it if you have to.",
		},
		Action: membersLink(dashboard, app),
	}
}

// yourRoleEmail and yourRemovalEmail tell the member whose role an owner changed, or whom an owner removed.
func yourRoleEmail(app apps.App, role apps.Role, by, dashboard string) ui.Email {
	return ui.Email{
		Subject:    "Your role in " + quote(app.Name) + " was changed",
		Paragraphs: []string{fmt.Sprintf("%s made you %s of %s.", by, withArticle(role), quote(app.Name))},
		Action:     &ui.Link{Href: dashboard + "/developer/apps/" + app.ID, Text: "Open the app"},
	}
}

func yourRemovalEmail(app apps.App, by string) ui.Email {
	return ui.Email{
		Subject: "You were removed from " + quote(app.Name),
		Paragraphs: []string{
			fmt.Sprintf("%s removed you from %s. You can no longer open its pages in the console.", by,
				quote(app.Name)),
			"If this is a mistake, ask an owner of the app for a new invitation.",
		},
	}
}

func leftEmail(app apps.App, m Member, dashboard string) ui.Email {
	return ui.Email{
		Subject: "A member left " + quote(app.Name),
		Paragraphs: []string{
			fmt.Sprintf("%s, who was %s of %s, has left.", m.Email, withArticle(m.Role), quote(app.Name)),
			"A secret that the member has seen still works. Replace it if you have to.",
		},
		Action: membersLink(dashboard, app),
	}
}

// endedEmail tells a member that an app has ended, because the account that created it was closed.
func endedEmail(app apps.App, dashboard string) ui.Email {
	return ui.Email{
		Subject: quote(app.Name) + " has ended",
		Paragraphs: []string{
			fmt.Sprintf("The account that created %s was closed, and the app ended with it. Its users can’t use it "+
				"any more, and you can no longer open its pages in the console.", quote(app.Name)),
			"To go on, create an app of your own. Its users connect again.",
		},
		Action: &ui.Link{Href: dashboard + "/developer", Text: "Open the console"},
	}
}

// closedEmail tells the owners of an app that the account of a member was closed. It does not name the account, whose
// personal data is erased.
func closedEmail(app apps.App, role apps.Role, dashboard string) ui.Email {
	return ui.Email{
		Subject: "A member left " + quote(app.Name),
		Paragraphs: []string{
			fmt.Sprintf("The account of a member, who was %s of %s, was closed.", withArticle(role), quote(app.Name)),
			"A secret that the member has seen still works. Replace it if you have to.",
		},
		Action: membersLink(dashboard, app),
	}
}

// ListOwners returns the accounts of the owners of an app, its own account first.
func ListOwners(ctx context.Context, tx *db.Tx, app apps.App) ([]accounts.Account, error) {
	list, err := listMembers(ctx, tx, app.ID)
	if err != nil {
		return nil, fmt.Errorf("members: owners: %w", err)
	}
	ids := []string{app.OwnerID}
	for _, m := range list {
		if m.Role == apps.Owner {
			ids = append(ids, m.AccountID)
		}
	}
	owners := make([]accounts.Account, len(ids))
	for i, accountID := range ids {
		if owners[i], err = accounts.GetAccount(ctx, tx, accountID); err != nil {
			return nil, fmt.Errorf("members: owner %s: %w", accountID, err)
		}
	}
	return owners, nil
}

// notifyOwners sends an email to the owners of an app.
func (s *Store) notifyOwners(ctx context.Context, tx *db.Tx, app apps.App, e ui.Email) error {
	owners, err := ListOwners(ctx, tx, app)
	if err != nil {
		return err
	}
	for _, a := range owners {
		if err := s.sendMail(ctx, tx, a.ID, a.Email, e); err != nil {
			return err
		}
	}
	return nil
}

// sendMail queues an email in the caller's transaction.
func (s *Store) sendMail(ctx context.Context, tx *db.Tx, accountID, to string, e ui.Email) error {
	e.Why = ui.AboutMembers
	text, html, err := e.Render(s.mails.Site)
	if err != nil {
		return err
	}
	return s.mails.QueueMessage(ctx, tx, mail.Message{
		AccountID:   accountID,
		To:          to,
		Subject:     e.Subject,
		Text:        text,
		HTML:        html,
		Urgent:      true,
		NamesOthers: true,
	})
}
