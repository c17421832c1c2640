package identity

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

const (
	invitationPath = "/sign-up/invited/"
	invitationTTL  = 7 * 24 * time.Hour
)

// An Invitation lets the owner of an email address choose a password for an account. Who opens its URL needs no email
// from this service.
type Invitation struct {
	AccountID, Email string
	URL              string
	ExpiresUS        int64
}

// Invite creates the account of an email address, unless there is one that was never confirmed, and the link by which
// its owner sets a password, in the caller's transaction. A second invitation replaces the first. An address of a
// confirmed account is 400 invalid_request.
func (s *Store) Invite(ctx context.Context, tx *db.Tx, email string) (Invitation, error) {
	email, err := accounts.NormalizeNewEmail(email)
	if err != nil {
		return Invitation{}, err
	}
	a, err := accounts.GetAccountByEmail(ctx, tx, email)
	if errors.Is(err, sql.ErrNoRows) {
		a, err = s.accounts.Create(ctx, tx, accounts.NewAccount{Email: email, Unconfirmed: true})
	}
	if err != nil {
		return Invitation{}, fmt.Errorf("identity: invite: %w", err)
	}
	if !a.Unconfirmed || a.Deactivated {
		return Invitation{}, apierr.InvalidRequest.Errorf("email: this address has an account already")
	}
	token := id.NewSecret()
	i := Invitation{
		AccountID: a.ID,
		Email:     email,
		URL:       s.dashboard + invitationPath + token,
		ExpiresUS: s.now().Add(invitationTTL).UnixMicro(),
	}
	if err := saveInvitation(ctx, tx, i, id.Hash(token)); err != nil {
		return Invitation{}, fmt.Errorf("identity: invite: %w", err)
	}
	return i, nil
}

// IsInvited reports whether the operator has invited the owner of an email address, and the invitation is still open.
func (s *Store) IsInvited(ctx context.Context, q db.Queryer, email string) (bool, error) {
	email, err := accounts.NormalizeEmail(email)
	if err != nil {
		return false, nil
	}
	invited, err := hasInvitation(ctx, q, email, s.now().UnixMicro())
	if err != nil {
		return false, fmt.Errorf("identity: invited: %w", err)
	}
	return invited, nil
}

// getInvitation returns the open invitation of a token; the error is 404 not_found.
func (s *Store) getInvitation(ctx context.Context, q db.Queryer, token string) (Invitation, error) {
	i, err := getInvitation(ctx, q, id.Hash(token))
	if errors.Is(err, sql.ErrNoRows) || err == nil && s.now().UnixMicro() >= i.ExpiresUS {
		return Invitation{}, errInvitation()
	} else if err != nil {
		return Invitation{}, fmt.Errorf("identity: invitation: %w", err)
	}
	return i, nil
}

func errInvitation() error {
	return apierr.NotFound.Errorf("This invitation was already used, has expired or is invalid. Ask for a new one.")
}

// acceptInvitation confirms the account of an invitation and sets its password. Only one of several callers succeeds,
// and none once the account was confirmed in another way.
func (s *Store) acceptInvitation(ctx context.Context, from accounts.Client,
	token, password string) (a accounts.Account, err error) {
	i, err := s.getInvitation(ctx, s.db, token)
	if err != nil {
		return a, err
	}
	if may, err := s.mayCreate(ctx, s.db, i.Email); err != nil {
		return a, err
	} else if !may {
		return a, apierr.InvalidRequest.Errorf("Sign-up is closed on this service now.")
	}
	hash, err := accounts.HashPassword(ctx, from, password)
	if err != nil {
		return a, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		i, err := s.getInvitation(ctx, tx, token)
		if err != nil {
			return err
		}
		now, err := accounts.Lock(ctx, tx, i.AccountID)
		if err != nil {
			return err
		}
		n, err := deleteInvitation(ctx, tx, id.Hash(token))
		if err != nil {
			return fmt.Errorf("identity: accept: %w", err)
		}
		if n != 1 || !now.Unconfirmed || now.Deactivated {
			return errInvitation()
		}
		if err := s.accounts.ConfirmAddress(ctx, tx, now.ID, hash); err != nil {
			return err
		}
		if err := s.accounts.RecordEvent(ctx, tx, now.ID, accounts.Confirmed, from); err != nil {
			return err
		}
		a, err = accounts.GetAccount(ctx, tx, now.ID)
		return err
	})
	return a, err
}

func makeInvitationPage(token, email string) ui.Form {
	return ui.Form{
		Heading: "Create your account",
		Lead:    "You’re invited as " + email + ". Choose a password.",
		Action:  invitationPath + token,
		Fields:  []ui.Input{newPasswordField("Password")},
		Button:  "Create account",
	}
}

func (h accessPages) showInvitation(w http.ResponseWriter, r *http.Request) error {
	token := r.PathValue("token")
	i, err := h.Store.getInvitation(r.Context(), h.Store.db, token)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, makeInvitationPage(token, i.Email))
}

func (h accessPages) submitInvitation(w http.ResponseWriter, r *http.Request) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	token := r.PathValue("token")
	i, err := h.Store.getInvitation(r.Context(), h.Store.db, token)
	if err != nil {
		return err
	}
	a, err := h.Store.acceptInvitation(r.Context(), accounts.ClientOf(r), token, form.Get("password"))
	if err != nil {
		return renderFormError(w, err, makeInvitationPage(token, i.Email), "password")
	}
	if err := h.Sessions.Start(w, r, a, accounts.ProofSingle); err != nil {
		return err
	}
	return web.SeeOther(w, "/")
}
