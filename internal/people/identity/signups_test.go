package identity_test

import (
	"context"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/oidctest"
)

// TestSignUps asks for accounts by a password, by the identity provider and by an invitation, in each state of the
// setting. Who has an account signs in as ever.
func TestSignUps(t *testing.T) {
	t.Parallel()
	stranger := oidctest.Person{Subject: "1", Email: "stranger@example.com", Verified: true}
	guest := oidctest.Person{Subject: "2", Email: "guest@example.com", Verified: true}
	for state, want := range map[identity.SignUps]struct {
		form, stranger, guest bool // may they get an account
	}{
		"":                      {true, true, true},
		identity.OpenSignUps:    {true, true, true},
		identity.InvitedSignUps: {false, false, true},
		identity.ClosedSignUps:  {false, false, false},
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			s := serve(t, dbtest.Open(t, db.SQLite), stranger, guest)
			s.join(person)
			var byLink string
			err := s.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := s.store.Invite(ctx, tx, guest.Email); err != nil {
					return err
				}
				i, err := s.store.Invite(ctx, tx, "link@example.com")
				byLink = strings.TrimPrefix(i.URL, "http://purser.example")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			s.store.SignUps = state
			mails := s.mailCount()
			status := 403
			if want.form {
				status = 200
			}
			if has := strings.Contains(s.get("/sign-up", "").page, `name="password"`); has != want.form {
				t.Errorf("there is a form: %t", has)
			}
			s.post("/sign-up", "", "email", "new@example.com", "password", password).want(t, status, "")
			if sent := s.mailCount() > mails; sent != want.form {
				t.Errorf("a mail is sent: %t", sent)
			}
			for who, may := range map[*oidctest.Person]bool{&stranger: want.stranger, &guest: want.guest} {
				b := s.browser()
				if b.enter(*who); b.signedIn() != may {
					t.Errorf("%s has an account: %t", who.Email, !may)
				}
			}
			status, to := 400, ""
			if want.guest {
				status, to = 303, "/"
			}
			s.post(byLink, "", "password", password).want(t, status, to)
			s.signIn(password).want(t, 303, "/")

			// An app's owner has invited a colleague: the sign-up that leads to the invitation admits that address.
			s.store.Admits = func(_ context.Context, _ db.Queryer, email string) (bool, error) {
				return email == "colleague@example.com", nil
			}
			const next = "/sign-up?next=%2Finvitations"
			mayJoin := want.form || state == identity.InvitedSignUps
			if has := strings.Contains(s.get(next, "").page, `name="password"`); has != mayJoin {
				t.Errorf("there is a form for a colleague: %t", has)
			}
			if strings.Contains(s.get("/sign-up", "").page, `name="password"`) != want.form {
				t.Error("there is a form for a stranger")
			}
			for email, may := range map[string]bool{"colleague@example.com": mayJoin, "x@example.com": want.form} {
				mails, status := s.mailCount(), 403
				if may {
					status = 200
				}
				s.post("/sign-up", "", "email", email, "password", password, "next", "/invitations").want(t, status, "")
				if sent := s.mailCount() > mails; sent != may {
					t.Errorf("a mail is sent to %s: %t", email, sent)
				}
			}
		})
	}
}
