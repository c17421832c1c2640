package identity

import (
	"context"
	"slices"
	"strconv"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/mail"
)

func confirmEmail(url string) ui.Email {
	return ui.Email{
		Subject: "Confirm your email",
		Paragraphs: []string{
			"Confirm your email to finish creating your Purser account. You’ll be asked for the password you chose. " +
				"The link works for one day.",
			"If this wasn’t you, ignore this email. No account will be created.",
		},
		Action: &ui.Link{Href: url, Text: "Confirm email"},
	}
}

func alreadyRegisteredEmail(dashboard string) ui.Email {
	return ui.Email{
		Subject: "You already have an account",
		Paragraphs: []string{
			"We received a request to use this address for a Purser account. It already has one, so nothing was " +
				"changed.",
			"Forgot your password? You can reset it on the sign-in page.",
		},
		Action: &ui.Link{Href: dashboard + "/sign-in", Text: "Sign in"},
	}
}

func resetPasswordEmail(url string) ui.Email {
	return ui.Email{
		Subject: "Reset your password",
		Paragraphs: []string{
			"We received a request to reset the password of your Purser account. The link works once, within one hour.",
			"If this wasn’t you, ignore this email. Your password stays the same.",
		},
		Action: &ui.Link{Href: url, Text: "Reset password"},
	}
}

func passwordChangedEmail(dashboard string) ui.Email {
	return ui.Email{
		Subject: "Your password was changed",
		Paragraphs: []string{
			"The password of your Purser account was changed. All other sessions were signed out.",
			"If this wasn’t you, reset your password now.",
		},
		Action: &ui.Link{Href: dashboard + "/forgot", Text: "Reset password"},
	}
}

func confirmNewAddressEmail(url string) ui.Email {
	return ui.Email{
		Subject: "Confirm your new email address",
		Paragraphs: []string{
			"Confirm this address to use it for your Purser account. The link works once, within one hour.",
			"If this wasn’t you, ignore this email.",
		},
		Action: &ui.Link{Href: url, Text: "Confirm email"},
	}
}

func newAddressEmail(dashboard string) ui.Email {
	return ui.Email{
		Subject: "Your account uses this address now",
		Paragraphs: []string{
			"This is now the email address of your Purser account. Use it to sign in. We told your old address, too.",
			"If this wasn’t you, contact support right away.",
		},
		Action: &ui.Link{Href: dashboard + "/settings/security", Text: "Review security settings"},
	}
}

func addressChangedEmail() ui.Email {
	return ui.Email{
		Subject: "Your email address was changed",
		Paragraphs: []string{
			"Your Purser account now uses another email address. We won’t send any more email to this one.",
			"If this wasn’t you, contact support right away.",
		},
	}
}

func accountClosedEmail(byOperator bool, goesOn []string) ui.Email {
	first, last := "Your Purser account is closed, as you asked, and your personal data is erased. Payment records "+
		"stay, without your name. This is our last email to you.", "If this wasn’t you, contact support right away."
	if byOperator {
		first, last = "We closed your Purser account, and your personal data is erased. Money of your payments that "+
			"you had not spent goes back to your card. Payment records stay, without your name. This is our last "+
			"email to you.", "Contact support if you don’t agree."
	}
	return ui.Email{
		Subject:    "Your account is closed",
		Paragraphs: slices.Concat([]string{first}, goesOn, []string{last}),
	}
}

// factorChangedEmail reports a second factor that was added or removed. turned says that this turned two-step
// verification on or off.
func factorChangedEmail(factor string, added, turned bool, dashboard string) ui.Email {
	did, effect := "was removed", "You can now sign in without a second step."
	if added {
		did, effect = "was added", "You’ll now need a second step to sign in."
	}
	e := ui.Email{
		Subject:    factor + " " + did,
		Paragraphs: []string{factor + " " + did + " as a way to sign in to your Purser account."},
		Action:     &ui.Link{Href: dashboard + "/settings/security", Text: "Review security settings"},
	}
	if turned {
		e.Paragraphs = append(e.Paragraphs, effect)
	}
	e.Paragraphs = append(e.Paragraphs,
		"If this wasn’t you, reset your password now, then review your security settings.")
	return e
}

func twoStepResetEmail(dashboard string) ui.Email {
	return ui.Email{
		Subject: "Two-step verification was turned off",
		Paragraphs: []string{
			"At your request, support removed all passkeys, the authenticator app and the recovery codes of your Purser " +
				"account. All sessions were signed out. Sign in and turn two-step verification on again.",
			"If this wasn’t you, reset your password now and contact support.",
		},
		Action: &ui.Link{Href: dashboard + "/settings/security", Text: "Review security settings"},
	}
}

func accountSuspendedEmail(reason string, work money.MC) ui.Email {
	e := ui.Email{
		Subject: "Your account is suspended",
		Paragraphs: []string{
			"Your Purser account is suspended. You can’t sign in, and apps can’t make calls. Reason: " + reason,
			"Your balance stays as it is. Contact support if you don’t agree.",
		},
	}
	if work > 0 {
		e.Paragraphs = append(e.Paragraphs, "Apps can still charge up to "+work.Display()+" that they hold for their "+
			"own work, within ten minutes.")
	}
	return e
}

func accountReinstatedEmail(dashboard string) ui.Email {
	return ui.Email{
		Subject: "Your account is reinstated",
		Paragraphs: []string{
			"The suspension of your Purser account is lifted. You can sign in again.",
		},
		Action: &ui.Link{Href: dashboard + "/sign-in", Text: "Sign in"},
	}
}

func welcomeEmail(provider, dashboard string) ui.Email {
	return ui.Email{
		Subject: "Welcome to Purser",
		Paragraphs: []string{
			"You signed in to Purser with " + provider + ", so we created an account with this address.",
			"Your account has no password yet. If this wasn’t you, secure your " + provider +
				" login and set a password here. That signs out all sessions.",
		},
		Action: &ui.Link{Href: dashboard + "/forgot", Text: "Set a password"},
	}
}

func loginLinkedEmail(provider, dashboard string) ui.Email {
	return ui.Email{
		Subject: "You can now sign in with " + provider,
		Paragraphs: []string{
			"A " + provider +
				" login was linked to your Purser account. You can sign in with it or with your password.",
			"If this wasn’t you, reset your password now and unlink the login in your security settings.",
		},
		Action: &ui.Link{Href: dashboard + "/settings/security", Text: "Review security settings"},
	}
}

func loginUnlinkedEmail(provider, dashboard string) ui.Email {
	return ui.Email{
		Subject: "You can no longer sign in with " + provider,
		Paragraphs: []string{
			"The " + provider + " login was unlinked from your Purser account. All other sessions were signed out.",
			"If this wasn’t you, reset your password now.",
		},
		Action: &ui.Link{Href: dashboard + "/forgot", Text: "Reset password"},
	}
}

func passkeyCopiedEmail(dashboard string) ui.Email {
	return ui.Email{
		Subject: "We blocked a sign-in with your passkey",
		Paragraphs: []string{
			"A passkey of your Purser account was used in a way that suggests it was copied. We blocked the sign-in.",
			"Remove that passkey and add a new one, even if this was you.",
		},
		Action: &ui.Link{Href: dashboard + "/settings/security", Text: "Review security settings"},
	}
}

func wrongCodesEmail(n int, dashboard string) ui.Email {
	return ui.Email{
		Subject: "Someone may know your password",
		Paragraphs: []string{
			"Someone entered the password of your Purser account, and then " + strconv.Itoa(n) + " wrong codes of " +
				"your second step within a day. They’re not signed in.",
			"If this wasn’t you, set a new password now. That signs out all sessions.",
		},
		Action: &ui.Link{Href: dashboard + "/forgot", Text: "Set a new password"},
	}
}

// sendMail queues an email in the caller's transaction.
func (s *Store) sendMail(ctx context.Context, tx *db.Tx, accountID, to string, e ui.Email) error {
	e.Why = ui.AboutAccount
	text, html, err := e.Render(s.mails.Site)
	if err != nil {
		return err
	}
	return s.mails.QueueMessage(ctx, tx, mail.Message{
		AccountID: accountID,
		To:        to,
		Subject:   e.Subject,
		Text:      text,
		HTML:      html,
		Urgent:    true,
	})
}
