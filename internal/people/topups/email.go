package topups

import (
	"context"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// autoPath is the page of automatic top-ups.
const autoPath = "/top-up/auto"

func formatDollars(cents int64) string { return ui.Dollars(money.MC(cents) * money.Cent) }

func (p plan) card() string { return p.Brand + " ending in " + p.Last4 }

// automaticEmail is an email about automatic top-ups, with the link to their page.
func (s *Store) automaticEmail(subject string, action ui.Link, paragraphs ...string) ui.Email {
	return ui.Email{
		Subject:    subject,
		Paragraphs: paragraphs,
		Action:     &action,
		Footer:     []ui.Link{{Href: s.DashboardURL + autoPath, Text: "Automatic top-up"}},
		Why:        ui.AboutBalance,
	}
}

func (s *Store) chargedEmail(p plan, c checkout) ui.Email {
	return s.automaticEmail(
		"We added "+formatDollars(c.Cents)+" to your balance",
		ui.Link{Href: s.receiptURL(c.ID), Text: "View receipt"},
		"Your balance fell below "+formatDollars(p.Below)+", so we charged "+formatDollars(c.Cents)+" to your "+
			p.card()+
			", as you set up.",
	)
}

// turnedOffEmail reports that automatic top-up was turned off, because of a failed card or a payment that was reversed.
func (s *Store) turnedOffEmail(p plan, why string) ui.Email {
	action := ui.Link{Href: s.DashboardURL + "/top-up", Text: "Top up"}
	if why == offReversed {
		return s.automaticEmail(
			"Automatic top-up is off: a payment was reversed", action,
			"One of your payments was refunded or disputed by your bank. To be safe, we no longer charge your card "+
				"automatically.",
			"You can turn automatic top-up on again at any time.",
		)
	}
	if why == offRestored {
		return s.automaticEmail(
			"Automatic top-up is off: please turn it on again",
			ui.Link{Href: s.DashboardURL + "/top-up/auto", Text: "Turn it on"},
			"We restored our systems from a backup, which may not have your latest changes. To be safe, we "+
				"turned automatic top-up off, and won’t charge your card.",
			"Your card is still saved. Turn automatic top-up on again if you still want it.",
		)
	}
	return s.automaticEmail(
		"Automatic top-up is off: your card was declined", action,
		"We tried "+formatTimes(p.Failures)+" to add "+formatDollars(p.Add)+" to your balance with your "+p.card()+". "+
			failureTexts[why]+
			" We won’t try again.",
		"You can still top up yourself. Turn automatic top-up on again when the card works, or with another card.",
	)
}

// cardGoneEmail reports that automatic top-up was turned off because Stripe no longer has the card.
func (s *Store) cardGoneEmail(p plan) ui.Email {
	return s.automaticEmail(
		"Automatic top-up is off: save your card again",
		ui.Link{Href: s.DashboardURL + autoPath, Text: "Save a card"},
		"Stripe, which keeps your card for us, no longer has your "+p.card()+", so we stopped a top-up.",
		"Save it again, or another one, and turn automatic top-up on again. Until then, apps can only spend what is "+
			"left of your balance.",
	)
}

// paidTwiceEmail reports the second payment of a top-up.
func paidTwiceEmail(cents int64, dashboard string) ui.Email {
	return ui.Email{
		Subject: "A top-up of " + formatDollars(cents) + " was paid twice",
		Paragraphs: []string{
			"Because of an error of ours, one of your top-ups was paid twice. Both payments are in your balance. You " +
				"can return the second one to your card.",
		},
		Action: &ui.Link{Href: dashboard + refundPath, Text: "Return money"},
		Why:    ui.AboutBalance,
	}
}

func (s *Store) monthlyMaximumEmail(p plan, usedCents int64, next time.Time) ui.Email {
	return s.automaticEmail(
		"Automatic top-up is paused until next month",
		ui.Link{Href: s.DashboardURL + "/top-up", Text: "Top up"},
		"Your balance is below "+formatDollars(p.Below)+". This month we charged "+formatDollars(usedCents)+
			" of your maximum of "+
			formatDollars(p.Most)+", and another "+formatDollars(p.Add)+
			" would exceed it. We won’t charge your card again before "+
			formatDay(next.UnixMicro())+". Until then, apps can only spend what is left.",
		"You can top up yourself, or raise the maximum.",
	)
}

func goodwillEmail(amount money.MC, reason, dashboard string) ui.Email {
	return ui.Email{
		Subject: "We added " + ui.Dollars(amount) + " to your balance",
		Paragraphs: []string{
			"We credited " + amount.Display() + " to your Purser balance. You don’t have to do anything. Reason: " +
				reason,
		},
		Action: &ui.Link{Href: dashboard + "/activity", Text: "View activity"},
		Why:    ui.AboutBalance,
	}
}

// NotifyGoodwill queues the email about a goodwill credit, in the caller's transaction.
func (s *Store) NotifyGoodwill(ctx context.Context, tx *db.Tx, accountID string, amount money.MC, reason string) error {
	return s.sendMail(ctx, tx, accountID, goodwillEmail(amount, reason, s.DashboardURL))
}

func formatTimes(n int64) string {
	if n == maxFailures {
		return "three times"
	}
	return "more than once"
}

// sendMail queues an email in the caller's transaction. An email that cannot be sent is logged: it must not hold up the
// money. A closed account has no address.
func (s *Store) sendMail(ctx context.Context, tx *db.Tx, accountID string, e ui.Email) error {
	a, err := accounts.GetAccount(ctx, tx, accountID)
	if err != nil || a.Closed {
		return err
	}
	text, html, err := e.Render(s.Mails.Site)
	if err != nil {
		return err
	}
	err = s.Mails.QueueMessage(ctx, tx, mail.Message{
		AccountID: a.ID,
		To:        a.Email,
		Subject:   e.Subject,
		Text:      text,
		HTML:      html,
	})
	if errors.Is(err, mail.ErrInvalidMessage) {
		s.Log.Error("top-up email not queued", "account_id", accountID, "error", err)
		return nil
	}
	return err
}
