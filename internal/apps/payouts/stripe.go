package payouts

import (
	"context"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// Page is where developers see their payouts.
const Page = "/developer/payouts"

// StatementsPage begins the addresses of revenue statements.
const StatementsPage = "/developer/statements/"

// findTransfer returns the transfer that Stripe has made for a payout, or nil: the one with this id, or, if that is "",
// the newest. Idempotency keys expire, this does not.
func (s *Store) findTransfer(ctx context.Context, payoutID, transferID string) (*stripe.Transfer, error) {
	payoutID, _, _ = strings.Cut(payoutID, secondTransfer)
	for t, err := range stripe.List[stripe.Transfer](ctx, s.Stripe, stripe.Params{"transfer_group": payoutID}) {
		if err != nil || transferID == "" || t.ID == transferID {
			return t, err
		}
	}
	return nil, nil
}

// createTransfer asks Stripe for a transfer. Money that we do not have at Stripe yet comes with the next top-ups.
func (s *Store) createTransfer(ctx context.Context, p *rules.Payout, destination, key string) (*stripe.Transfer,
	error) {
	return stripe.Create[stripe.Transfer](ctx, s.Stripe, stripe.Params{
		"amount":              strconv.FormatInt(int64(p.AmountMC/money.Cent), 10),
		"currency":            stripe.USD,
		"destination":         destination,
		"transfer_group":      p.ID,
		"metadata[payout_id]": p.ID,
		"metadata[app_id]":    p.AppID,
	}, key)
}

// endedEmail tells a developer how a payout has ended.
func (s *Store) endedEmail(p *rules.Payout) ui.Email {
	amount := ui.Dollars(p.AmountMC)
	e := ui.Email{
		Subject: "We paid you " + amount,
		Paragraphs: []string{
			"We sent " + amount + " of your app’s margin to your account at Stripe, which pays it to " +
				"your bank.",
		},
		Action: &ui.Link{Href: s.DashboardURL + Page, Text: "View payouts"},
		Why:    ui.AboutBalance,
	}
	if p.Failed() {
		e.Subject = "We couldn’t pay you " + amount
		e.Paragraphs = []string{"Stripe did not pay " + amount + " of your app’s margin: " + p.Reason + ".",
			"The amount is yours still. We pay it again once Stripe can pay you."}
	}
	return e
}

// goneEmail tells a developer that Stripe no longer has the account that payouts went to.
func (s *Store) goneEmail() ui.Email {
	return ui.Email{
		Subject: "Set up payouts again",
		Paragraphs: []string{
			"Stripe no longer has the account to which we paid what your apps earn. Nothing is lost: we pay it once " +
				"you have set up payouts again.",
		},
		Action: &ui.Link{Href: s.DashboardURL + Page, Text: "Set up payouts"},
		Why:    ui.AboutBalance,
	}
}

// sendMail queues an email to a developer. A closed account has no address.
func (s *Store) sendMail(ctx context.Context, tx *db.Tx, developerID string, e ui.Email) error {
	a, err := accounts.GetAccount(ctx, tx, developerID)
	if err != nil || a.Closed {
		return err
	}
	text, html, err := e.Render(s.Mails.Site)
	if err != nil {
		return err
	}
	return s.Mails.QueueMessage(ctx, tx, mail.Message{
		AccountID: a.ID,
		To:        a.Email,
		Subject:   e.Subject,
		Text:      text,
		HTML:      html,
	})
}
