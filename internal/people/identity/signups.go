package identity

import (
	"context"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
)

// SignUps says who may create an account.
type SignUps string

// The kinds of SignUps; "" is OpenSignUps.
const (
	OpenSignUps    SignUps = "open"    // everybody
	InvitedSignUps SignUps = "invited" // whom the operator or an app's owner has invited
	ClosedSignUps  SignUps = "closed"  // nobody, not even by an invitation
)

// errSignUpRefused says that sign-ups are not open to this person.
var errSignUpRefused = errors.New("identity: sign-ups are not open to this address")

// mayCreate reports whether the owner of an email address may get an account now.
func (s *Store) mayCreate(ctx context.Context, q db.Queryer, email string) (bool, error) {
	switch s.SignUps {
	case ClosedSignUps:
		return false, nil
	case InvitedSignUps:
		if invited, err := s.IsInvited(ctx, q, email); err != nil || invited || s.Admits == nil {
			return invited, err
		}
		return s.Admits(ctx, q, email)
	}
	return true, nil
}

// invitationsPath is where an account accepts an invitation into an app. A sign-up that leads there may have been
// invited by the app's owner.
const invitationsPath = "/invitations"

// showsSignUp reports whether a sign-up that continues at a path has a form. The operator's invitations have a link of
// their own.
func (h accessPages) showsSignUp(next string) bool {
	return h.Store.SignUps == "" || h.Store.SignUps == OpenSignUps ||
		h.Store.SignUps == InvitedSignUps && h.Store.Admits != nil && next == invitationsPath
}

// showSignUpsClosed says why there is no form.
func (h accessPages) showSignUpsClosed(w http.ResponseWriter, status int) error {
	m := ui.Message{
		Heading: "New accounts are by invitation",
		Text: "Open the link of your invitation to create your account. Without one, ask the operator of this " +
			"service.",
		Link: &ui.Link{Href: "/sign-in", Text: "Sign in"},
	}
	if h.Store.SignUps == ClosedSignUps {
		m.Heading = "New accounts can’t be created"
		m.Text = "Sign-up is closed. If you have an account, sign in as usual."
	}
	return ui.Render(w, status, m)
}
