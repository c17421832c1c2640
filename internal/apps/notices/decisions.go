package notices

import (
	"context"
	"errors"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// A Review is an operator's answer to a go-live request, or to a change of a live app.
type Review struct {
	Approved bool
	Change   bool   // of a live app
	Reason   string // of a rejection
}

// ReportReview tells the owners of an app how a review has ended, in the transaction that ends it.
func (s *Store) ReportReview(ctx context.Context, tx *db.Tx, a apps.App, r Review) error {
	owners, err := members.ListOwners(ctx, tx, a)
	if err != nil {
		return err
	}
	for _, owner := range owners {
		if owner.Closed {
			continue
		}
		if err := s.mailDecision(ctx, tx, owner, s.reviewEmail(&a, r)); err != nil {
			return err
		}
	}
	return nil
}

// reviewEmail writes the email about a review.
func (s *Store) reviewEmail(a *apps.App, r Review) ui.Email {
	e := ui.Email{
		Subject: a.Name + " is live",
		Paragraphs: []string{
			"We approved your request. Calls of " + a.Name + " now go to the real providers, and users connect with " +
				"real money. Connections of test accounts have ended.",
		},
		Action: &ui.Link{
			Href: s.Links.Dashboard + "/developer/apps/" + url.PathEscape(a.ID) + "/go-live",
			Text: "View app",
		},
		Why: ui.AboutWebhooks,
	}
	switch {
	case r.Approved && r.Change:
		e.Subject = "Your change of " + a.Name + " is approved"
		e.Paragraphs = []string{"We approved your change of " + a.Name + ". Users see it from now on."}
	case r.Change:
		e.Subject = "Your change of " + a.Name + " was not approved"
		e.Paragraphs = []string{
			"We did not approve your change of " + a.Name + ". Reason: " + ui.Sentence(r.Reason),
			"The app stays as it is. You can change it again.",
		}
	case !r.Approved:
		e.Subject = a.Name + " was not approved"
		e.Paragraphs = []string{
			"We did not approve your request to go live with " + a.Name + ". Reason: " + ui.Sentence(r.Reason),
			"The app stays as it is. You can request again.",
		}
	}
	return e
}

// ReportRevoke tells a user that an operator has revoked a connection, in the transaction that revokes it. released
// returned to the user's balance.
func (s *Store) ReportRevoke(ctx context.Context, tx *db.Tx, app apps.App, c rules.Connection, released money.MC,
	reason string) error {
	user, err := accounts.GetAccount(ctx, tx, c.AccountID)
	if err != nil || user.Closed || user.Sandbox {
		return err
	}
	work, err := store.SumWorkHolds(ctx, tx, c.AccountID, c.ID)
	if err != nil {
		return err
	}
	e := ui.Email{
		Subject: "We disconnected " + app.Name,
		Paragraphs: appendWork([]string{
			"We revoked your connection to " + app.Name + ". " + ui.Sentence(reason),
			app.Name + " can’t make calls any more. " + ui.Dollars(released) + " that it had not used is back in " +
				"your balance.",
		}, app.Name, data{WorkMC: work}),
		Action: &ui.Link{Href: s.Links.Dashboard + "/connections/" + url.PathEscape(c.ID), Text: "View connection"},
		Why:    ui.AboutBalance,
	}
	return s.mailDecision(ctx, tx, user, e)
}

// mailDecision queues an email about what an operator decided. One that cannot be sent, such as with a name that no
// subject can have, is logged: the decision counts all the same.
func (s *Store) mailDecision(ctx context.Context, tx *db.Tx, to accounts.Account, e ui.Email) error {
	text, html, err := e.Render(s.Mails.Site)
	if err != nil {
		return err
	}
	err = s.Mails.QueueMessage(ctx, tx, mail.Message{
		AccountID: to.ID,
		To:        to.Email,
		Subject:   e.Subject,
		Text:      text,
		HTML:      html,
	})
	if errors.Is(err, mail.ErrInvalidMessage) {
		s.Log.Error("decision not mailed", "account_id", to.ID, "error", err)
		return nil
	}
	return err
}
