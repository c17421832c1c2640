package notices

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

// marginInterval is the least time between two emails to a user about the margin of one app.
const marginInterval = 24 * time.Hour

// approvalTTL is longer than an approval that was given before a change can be exchanged after it.
const approvalTTL = 15 * time.Minute

// Bounds of one run of QueueMargins: what is left waits for the next.
const (
	maxMarginApps  = 100
	maxMarginUsers = 1000
)

// QueueMargins queues an email to each user of a live app whose margin has risen since the user approved or was last
// told (decision 125). A user gets at most one a day for an app; it says all that has risen by then.
func (s *Store) QueueMargins(ctx context.Context) error {
	list, err := apps.ListUntoldMargins(ctx, s.DB, maxMarginApps)
	if err != nil {
		return fmt.Errorf("notices: margins: %w", err)
	}
	for _, newest := range list {
		if err := s.queueMargins(ctx, newest.AppID, newest.ChangedUS); err != nil {
			return fmt.Errorf("notices: margins of %s: %w", newest.AppID, err)
		}
	}
	return nil
}

// queueMargins tells the users of an app of its changes up to a time. The changes are done when no user is left to tell
// and none who approved before them can come.
func (s *Store) queueMargins(ctx context.Context, appID string, untilUS int64) error {
	app, err := s.Apps.Get(ctx, appID)
	if err != nil {
		return err
	}
	users, err := listUntoldUsers(ctx, s.DB, appID, untilUS, maxMarginUsers)
	if err != nil {
		return err
	}
	if len(users) == 0 {
		return apps.EndMarginChanges(ctx, s.DB, appID, min(untilUS, s.Mails.Now().Add(-approvalTTL).UnixMicro()))
	}
	for _, u := range users {
		if u.mailedUS > s.Mails.Now().Add(-marginInterval).UnixMicro() {
			continue // those who were told today come last
		}
		if err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return s.queueMargin(ctx, tx, app, u, untilUS)
		}); err != nil {
			return err
		}
	}
	return nil
}

// queueMargin tells a user of the changes since the last ones. It does nothing if another node has.
func (s *Store) queueMargin(ctx context.Context, tx *db.Tx, app apps.App, u marginUser, untilUS int64) error {
	changes, err := apps.ListMarginChanges(ctx, tx, app.ID, u.sinceUS)
	if err != nil {
		return err
	}
	raised, mailedUS := apps.RaisedMargins(changes), u.mailedUS
	if len(raised) > 0 {
		mailedUS = s.Mails.Now().UnixMicro()
	}
	if len(changes) > 0 {
		untilUS = max(untilUS, changes[len(changes)-1].ChangedUS)
	}
	moved, err := setMarginNotice(ctx, tx, app.ID, u, untilUS, mailedUS)
	if err != nil || !moved || len(raised) == 0 {
		return err
	}
	a, err := accounts.GetAccount(ctx, tx, u.accountID)
	if err != nil || a.Sandbox {
		return err
	}
	e := s.marginEmail(app, u.connectionID, raised)
	m := mail.Message{AccountID: a.ID, To: a.Email, Subject: e.Subject}
	if m.Text, m.HTML, err = e.Render(s.Mails.Site); err != nil {
		return err
	}
	return s.Mails.QueueMessage(ctx, tx, m)
}

// marginEmail writes the email about rates that have risen.
func (s *Store) marginEmail(app apps.App, connectionID string, raised []apps.MarginChange) ui.Email {
	e := ui.Email{
		Subject: quoted(app.Name) + " raised its margin",
		Paragraphs: []string{quoted(app.Name) + " raised its margin. You pay it on top of what the provider charges, " +
			"for each new call that the app makes with your balance."},
		Action: &ui.Link{Href: s.Links.Dashboard + "/connections/" + connectionID, Text: "View connection"},
		Why:    ui.AboutBalance,
	}
	for _, c := range raised {
		e.Paragraphs = append(e.Paragraphs,
			c.Of()+": "+apps.FormatMargin(c.After)+" instead of "+apps.FormatMargin(c.Before)+".")
	}
	e.Paragraphs = append(e.Paragraphs, "The app can’t spend more than its cap. You can lower the cap, pause the app "+
		"or revoke the connection at any time.")
	return e
}
