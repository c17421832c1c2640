package identity

import (
	"context"
	html "html/template"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/mail"
)

// A letter is a mail before it is written out.
type letter struct {
	Subject    string
	Lines      []string
	Link, Does string // where it leads, and what one does there; "" = nowhere
}

func confirmLetter(url string) letter {
	return letter{"Confirm your address", []string{
		"Somebody, we think you, asked for a Purser account with this address. Confirm it within a day; you will be asked for the password that you chose.",
		"If it was not you, do nothing: there will be no account.",
	}, url, "Confirm"}
}

func takenLetter(dashboard string) letter {
	return letter{"You have an account already", []string{
		"Somebody, perhaps you, asked to use this address for a Purser account. It has one already, so nothing was changed.",
		"If you forgot your password, you can set a new one on the page where you sign in.",
	}, dashboard + "/sign-in", "Sign in"}
}

func resetLetter(url string) letter {
	return letter{"Set a new password", []string{
		"Somebody, we think you, forgot the password of the Purser account with this address. The link works once, for an hour.",
		"If it was not you, do nothing: your password stays as it is.",
	}, url, "Set a new password"}
}

func passwordLetter(dashboard string) letter {
	return letter{"Your password was changed", []string{
		"The password of your Purser account was just changed, and all other sessions ended.",
		"If it was not you, set another one at once.",
	}, dashboard + "/forgot", "Set a new password"}
}

func emailLetter(url string) letter {
	return letter{"Confirm your new address", []string{
		"Somebody, we think you, wants to use this address for their Purser account. The link works once, for an hour.",
		"If it was not you, do nothing.",
	}, url, "Use this address"}
}

func movedLetter() letter {
	return letter{"Your account has another address", []string{
		"Your Purser account now has another e-mail address, which was confirmed. No more mail comes to this one.",
		"If it was not you, write to whoever runs this service at once.",
	}, "", ""}
}

func closedLetter() letter {
	return letter{"Your account is closed", []string{
		"Your Purser account was just closed, as you asked, and what we knew of you is erased. The record of what was paid stays, without your name. This is the last mail.",
		"If it was not you, write to whoever runs this service at once.",
	}, "", ""}
}

// factorLetter tells of a second factor that came or went; turned says that
// two-step sign-in was turned on or off by it.
func factorLetter(what string, added, turned bool, dashboard string) letter {
	did, so := "was removed", "One step alone signs in again."
	if added {
		did, so = "was added", "One step alone no longer signs in."
	}
	l := letter{what + " " + did, []string{what + " " + did + ", as a way to sign in to your Purser account."}, dashboard + "/settings/security", "Look at your security settings"}
	if turned {
		l.Lines = append(l.Lines, so)
	}
	l.Lines = append(l.Lines, "If it was not you, set another password at once, then look at your security settings.")
	return l
}

func newcomerLetter(name, dashboard string) letter {
	return letter{"You have a Purser account", []string{
		"Somebody, we think you, continued to Purser with " + name + ", which knows that this address is theirs. So there is an account with it now.",
		"It has no password yet. If it was not you, look after your login at " + name + ", and set a password here: that ends what is going on.",
	}, dashboard + "/forgot", "Set a password"}
}

func linkedLetter(name, dashboard string) letter {
	return letter{name + " signs in to your account now", []string{
		"A login at " + name + " was linked with your Purser account: it signs in, beside your password.",
		"If it was not you, set another password at once and unlink it under Security.",
	}, dashboard + "/settings/security", "Security"}
}

func unlinkedLetter(name, dashboard string) letter {
	return letter{name + " no longer signs in to your account", []string{
		"The login at " + name + " was unlinked from your Purser account, and all other sessions ended.",
		"If it was not you, set another password at once.",
	}, dashboard + "/forgot", "Set a new password"}
}

func copiedLetter(dashboard string) letter {
	return letter{"A passkey was refused", []string{
		"Somebody tried to sign in to your Purser account with a passkey whose counter went backwards, which says that there may be a copy of it. Nobody was signed in.",
		"Remove that passkey and add another, whether or not it was you.",
	}, dashboard + "/settings/security", "Look at your security settings"}
}

var rich = html.Must(html.New("html").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{{.Subject}}</title></head>
<body style="font: 16px/1.5 sans-serif; max-width: 36em; margin: 1.5em auto; padding: 0 1em">
{{range .Lines}}<p>{{.}}</p>
{{end}}{{if .Link}}<p><a href="{{.Link}}" style="font-weight: bold">{{.Does}}</a></p>
{{end}}<p style="font-size: 13px; color: #777">Purser · You get this mail because it is about your account. It cannot be turned off.</p>
</body></html>
`))

// send queues a letter in the caller's transaction.
func (s *Store) send(ctx context.Context, tx *db.Tx, accountID, to string, l letter) error {
	var asHTML strings.Builder
	if err := rich.Execute(&asHTML, l); err != nil {
		return err
	}
	lines := l.Lines
	if l.Link != "" {
		lines = append(lines, l.Does+": "+l.Link)
	}
	text := strings.Join(lines, "\n\n") + "\n\n-- \nPurser\nYou get this mail because it is about your account. It cannot be turned off.\n"
	return s.mails.Queue(ctx, tx, mail.Message{AccountID: accountID, To: to, Subject: l.Subject, Text: text, HTML: asHTML.String()})
}
