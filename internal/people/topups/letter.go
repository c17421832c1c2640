package topups

import (
	"context"
	"errors"
	"html/template"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// autoPath is the page of automatic top-ups.
const autoPath = "/top-up/auto"

// A letter is a mail before it is written out.
type letter struct {
	Subject    string
	Lines      []string
	Link, Does string // where it leads, and what one does there
	Settings   string
}

func dollarsOf(cents int64) string { return ui.Dollars(money.MC(cents) * money.Cent) }

func (p plan) card() string { return p.Brand + " ending in " + p.Last4 }

func (s *Store) chargedLetter(p plan, c checkout) letter {
	return letter{
		Subject: dollarsOf(c.Cents) + " was added to your balance",
		Lines:   []string{"Your balance fell below " + dollarsOf(p.Below) + ", so we charged " + dollarsOf(c.Cents) + " to your " + p.card() + ", as you set it up."},
		Link:    s.receiptURL(c.ID), Does: "Receipt", Settings: s.DashboardURL + autoPath,
	}
}

func (s *Store) offLetter(p plan, why string) letter {
	l := letter{
		Subject: "Automatic top-up is off: your card was refused",
		Lines: []string{
			"We tried " + times(p.Failures) + " to add " + dollarsOf(p.Add) + " to your balance with your " + p.card() + ". " + reasons[why] + " So we do not try again.",
			"You can top up by hand, and switch automatic top-ups on again when the card works, or with another card.",
		},
		Link: s.DashboardURL + "/top-up", Does: "Top up by hand", Settings: s.DashboardURL + autoPath,
	}
	if why == offWentBack {
		l.Subject = "Automatic top-up is off: a payment of yours went back"
		l.Lines = []string{"A payment that you made to your balance was refunded, or your bank disputes it. So that nothing is charged that you do not want, your card is no longer charged automatically.",
			"You can switch automatic top-ups on again whenever you like."}
	}
	return l
}

func (s *Store) fullLetter(p plan, usedCents int64, next time.Time) letter {
	return letter{
		Subject: "Automatic top-up has stopped for this month",
		Lines: []string{
			"Your balance is below " + dollarsOf(p.Below) + ". This month " + dollarsOf(usedCents) + " of at most " + dollarsOf(p.Most) + " was charged automatically, and " + dollarsOf(p.Add) + " more would pass that maximum. " +
				"So nothing more is charged automatically before " + day(next.UnixMicro()) + ", and apps can spend only what is left.",
			"You can top up by hand, or change the maximum.",
		},
		Link: s.DashboardURL + "/top-up", Does: "Top up by hand", Settings: s.DashboardURL + autoPath,
	}
}

func times(n int64) string {
	if n == maxFailures {
		return "three times"
	}
	return "more than once"
}

var rich = template.Must(template.New("html").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{{.Subject}}</title></head>
<body style="font: 16px/1.5 sans-serif; max-width: 36em; margin: 1.5em auto; padding: 0 1em">
{{range .Lines}}<p>{{.}}</p>
{{end}}<p><a href="{{.Link}}" style="font-weight: bold">{{.Does}}</a></p>
<p style="font-size: 13px; color: #777">Purser · <a href="{{.Settings}}" style="color: inherit">automatic top-ups</a> · You get this mail because it is about your money. It cannot be turned off.</p>
</body></html>
`))

// tell queues a letter in the caller's transaction. One that cannot be sent is
// logged: it must not hold up the money.
func (s *Store) tell(ctx context.Context, tx *db.Tx, accountID string, l letter) error {
	a, err := accounts.GetAccount(ctx, tx, accountID)
	if err != nil {
		return err
	}
	var asHTML strings.Builder
	if err := rich.Execute(&asHTML, l); err != nil {
		return err
	}
	text := strings.Join(l.Lines, "\n\n") + "\n\n" + l.Does + ": " + l.Link + "\n\n-- \nPurser\nAutomatic top-ups: " + l.Settings + "\nYou get this mail because it is about your money. It cannot be turned off.\n"
	err = s.Mails.Queue(ctx, tx, mail.Message{AccountID: a.ID, To: a.Email, Subject: l.Subject, Text: text, HTML: asHTML.String()})
	if errors.Is(err, mail.ErrMessage) {
		s.Log.Error("nobody is told of an automatic top-up", "account_id", accountID, "error", err)
		return nil
	}
	return err
}
