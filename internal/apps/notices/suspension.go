package notices

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// ReportSuspension tells the developer of an app that the service has suspended it, and why: by an email and by the
// event app.suspended, in the transaction that suspends it.
func (s *Store) ReportSuspension(ctx context.Context, tx *db.Tx, a apps.App) error {
	data, err := json.Marshal(map[string]any{"app": map[string]any{
		"id":           a.ID,
		"suspended_by": a.Suspension.By,
		"reason":       a.Suspension.Reason,
		"suspended_at": timestamp.Format(a.Suspension.SinceUS),
	}})
	if err != nil {
		return err
	}
	event := rules.EmitAppEvent{AppID: a.ID, Type: "app.suspended", Data: string(data)}
	if _, err := s.Ledger.DoTx(ctx, tx, event); err != nil {
		return err
	}
	owner, err := accounts.GetAccount(ctx, tx, a.OwnerID)
	if err != nil {
		return err
	}
	m := mail.Message{AccountID: owner.ID, To: owner.Email}
	e := s.suspensionEmail(&a)
	m.Subject = e.Subject
	if m.Text, m.HTML, err = e.Render(s.Mails.Site); err != nil {
		return err
	}
	err = s.Mails.QueueMessage(ctx, tx, m)
	if errors.Is(err, mail.ErrInvalidMessage) { // such as a name that no subject can have: suspend the app all the same
		s.Log.Error("suspension not mailed", "app_id", a.ID, "error", err)
		return nil
	}
	return err
}

// suspensionEmail writes the email about a suspension.
func (s *Store) suspensionEmail(a *apps.App) ui.Email {
	return ui.Email{
		Subject: a.Name + " is suspended",
		Paragraphs: []string{
			"We suspended your app " + a.Name + ". " + ui.Sentence(a.Suspension.Reason),
			"Calls of its users are refused with 403 app_suspended until an operator lifts the suspension. Contact " +
				"support once you know the cause.",
		},
		Action: &ui.Link{Href: s.Links.Dashboard + "/developer/apps/" + url.PathEscape(a.ID), Text: "View app"},
		Why:    ui.AboutWebhooks,
	}
}
