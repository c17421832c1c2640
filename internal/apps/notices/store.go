package notices

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// batch is the number of notices in one transaction.
const batch = 100

// A Store turns notices into emails.
type Store struct {
	DB    *db.DB
	Apps  *apps.Store
	Mails *mail.Store
	Links web.Links
	Stops Signer
	Log   *slog.Logger

	Ledger *store.Writer // takes the events about suspended apps
}

// data is the content of a notice: the connection or the allocation request, in the shape of the API.
type data struct {
	Connection rules.ConnectionResource `json:"connection"`
	Request    struct {
		ID        string   `json:"id"`
		CurrentMC money.MC `json:"current_allocation_mc"`
		TargetMC  money.MC `json:"target_allocation_mc"`
	} `json:"allocation_request"`
	WorkMC money.MC `json:"-"` // what the app holds for work of its own
}

// QueuePending turns all waiting notices into emails.
func (s *Store) QueuePending(ctx context.Context) error {
	for {
		passed := 0
		err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			list, err := store.ClaimNotices(ctx, tx, batch)
			if err != nil {
				return err
			}
			for _, n := range list {
				if err := s.queueMail(ctx, tx, n); err != nil {
					return err
				}
			}
			passed = len(list)
			return nil
		})
		if err != nil {
			return fmt.Errorf("notices: %w", err)
		} else if passed < batch {
			return nil
		}
	}
}

// queueMail queues the email of a notice, unless the user has turned it off. It logs and skips a notice that cannot be
// rendered, so that the others are sent.
func (s *Store) queueMail(ctx context.Context, tx *db.Tx, n rules.Notice) error {
	err := s.renderAndQueue(ctx, tx, n)
	if errors.Is(err, sql.ErrNoRows) || errors.Is(err, mail.ErrInvalidMessage) || errors.Is(err, errNotice) {
		s.Log.Error("notice not turned into email", "notice_id", n.ID, "kind", n.Kind, "error", err)
		return nil
	}
	return err
}

func (s *Store) renderAndQueue(ctx context.Context, tx *db.Tx, n rules.Notice) error {
	kind, known := kinds[n.Kind]
	if !known {
		return fmt.Errorf("%w: kind %q", errNotice, n.Kind)
	}
	a, err := accounts.GetAccount(ctx, tx, n.AccountID)
	if err != nil || a.Sandbox || kind.optional && !a.Notices {
		return err
	}
	app, err := s.Apps.Get(ctx, n.AppID)
	if err != nil {
		return err
	}
	var d data
	if err := json.Unmarshal([]byte(n.Data), &d); err != nil {
		return fmt.Errorf("%w: its data is not what it should be", errNotice)
	}
	if d.WorkMC, err = store.SumWorkHolds(ctx, tx, n.AccountID, n.ConnectionID); err != nil {
		return err
	}
	e := kind.write(s.Links, app.Name, n, d)
	if kind.optional {
		e.Why = ui.AboutApps
		return s.QueueOptional(ctx, tx, a, e)
	}
	e.Why = ui.AboutBalance
	m := mail.Message{AccountID: a.ID, To: a.Email, Subject: e.Subject}
	if m.Text, m.HTML, err = e.Render(s.Mails.Site); err != nil {
		return err
	}
	return s.Mails.QueueMessage(ctx, tx, m)
}

// QueueOptional queues an email that accounts can turn off, with the link that does so. It does nothing for an account
// that has turned such emails off, and for a test account.
func (s *Store) QueueOptional(ctx context.Context, tx *db.Tx, a accounts.Account, e ui.Email) (err error) {
	if a.Sandbox || !a.Notices {
		return nil
	}
	m := mail.Message{AccountID: a.ID, To: a.Email, Subject: e.Subject}
	m.Unsubscribe = s.Links.Dashboard + stopPath + s.Stops.Sign(a.ID)
	e.Footer = []ui.Link{
		{Href: s.Links.Dashboard + settingsPath, Text: "Email settings"},
		{Href: m.Unsubscribe, Text: "Unsubscribe"},
	}
	if m.Text, m.HTML, err = e.Render(s.Mails.Site); err != nil {
		return err
	}
	return s.Mails.QueueMessage(ctx, tx, m)
}

var errNotice = errors.New("notices: no mail can be made of it")
