package members_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// world is an app with its creator, and a clock that tests advance.
type world struct {
	*members.Store
	t       *testing.T
	d       *db.DB
	people  *accounts.Store
	mails   *mail.Store
	apps    *apps.Store
	app     apps.App
	creator members.Actor
	later   time.Duration
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	w := &world{t: t, d: d}
	now := func() time.Time { return d.Now().Add(w.later) }
	w.people, w.apps = accounts.NewStore(d, now), apps.NewStore(d, now, true)
	w.mails = &mail.Store{DB: d, Now: now}
	w.Store = members.NewStore(d, w.people, w.mails, now, "https://purser.example")
	w.creator = w.account("creator@example.com")
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		w.app, _, err = w.apps.Create(ctx, tx, apps.New{
			OwnerID:      w.creator.ID,
			Name:         "Reader",
			RedirectURIs: []string{"https://app.example.com/cb"},
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// account makes a confirmed account.
func (w *world) account(email string) members.Actor {
	w.t.Helper()
	var a accounts.Account
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = w.people.Create(ctx, tx, accounts.NewAccount{Email: email})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return members.Actor{Account: a}
}

var tokenIn = regexp.MustCompile(`/invitations/([A-Za-z0-9_-]{43})`)

// invite invites an address and returns the token of the mail.
func (w *world) invite(by members.Actor, email string, role apps.Role) string {
	w.t.Helper()
	if err := w.Invite(w.t.Context(), w.app.ID, by, email, role); err != nil {
		w.t.Fatal(err)
	}
	list, err := w.mails.ListNewest(w.t.Context(), 1)
	if err != nil || len(list) != 1 || list[0].To != strings.ToLower(email) {
		w.t.Fatalf("the mail of the invitation: %+v, %v", list, err)
	}
	token := tokenIn.FindStringSubmatch(list[0].Text)
	if token == nil {
		w.t.Fatalf("no link in %s", list[0].Text)
	}
	return token[1]
}

// join makes a new account a member by an invitation.
func (w *world) join(email string, role apps.Role) members.Actor {
	w.t.Helper()
	a := w.account(email)
	if _, err := w.Accept(w.t.Context(), w.invite(w.creator, email, role), a); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// role returns the role of an account in the app.
func (w *world) role(a members.Actor) apps.Role {
	w.t.Helper()
	m, err := w.apps.GetMembership(w.t.Context(), w.app.ID, a.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return apps.NoRole
	} else if err != nil {
		w.t.Fatal(err)
	}
	return m.Role
}

// An invitation works once, for seven days, for its address only, and its token is nowhere in the database.
func TestInvitation(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		ada, eve := w.account("ada@example.com"), w.account("eve@example.com")
		old := w.invite(w.creator, "Ada@Example.com", apps.Owner)
		token := w.invite(w.creator, "ada@example.com", apps.Developer)
		if _, err := w.Accept(ctx, old, ada); err == nil {
			t.Error("a replaced invitation works")
		}
		var n int
		if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM app_invitations WHERE token_hash = $1`, token).
			Scan(&n); err != nil || n != 0 {
			t.Errorf("the token is stored: %d, %v", n, err)
		}
		if _, err := w.Accept(ctx, token, eve); err == nil || w.role(eve) != apps.NoRole {
			t.Errorf("another address accepted: %v", err)
		}
		if _, err := w.Accept(ctx, token, ada); err != nil || w.role(ada) != apps.Developer {
			t.Fatalf("accept: %v, %q", err, w.role(ada))
		}
		if _, err := w.Accept(ctx, token, ada); err == nil {
			t.Error("the token works twice")
		}
		if a, err := w.people.Get(ctx, ada.ID); err != nil || !a.Developer {
			t.Errorf("developer tools are not enabled: %v", err)
		}
		if err := w.Invite(ctx, w.app.ID, w.creator, "ada@example.com", apps.Viewer); err == nil {
			t.Error("a member was invited again")
		}
		if err := w.Invite(ctx, w.app.ID, ada, "bob@example.com", apps.Viewer); err == nil {
			t.Error("a developer invites")
		}
		late := w.invite(w.creator, "eve@example.com", apps.Viewer)
		w.later = 7*24*time.Hour + time.Minute
		if _, err := w.Accept(ctx, late, eve); err == nil || w.role(eve) != apps.NoRole {
			t.Errorf("an expired invitation works: %v", err)
		}
	})
}

// A stranger to whom an invitation is sent reads nothing of its sender's in the subject, and no address of a site that
// the sender chose.
func TestInvitationSaysNothingOfItsSenders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for name, shown := range map[string]bool{
		"Reader": true,
		"Purser: confirm your card at purser-billing.example": false,
	} {
		_, err := w.d.ExecContext(t.Context(), `UPDATE apps SET name = $1 WHERE id = $2`, name, w.app.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.invite(w.creator, "stranger@example.com", apps.Viewer)
		var subject, text string
		err = w.d.QueryRowContext(t.Context(), `SELECT subject, text FROM mails
			WHERE recipient = 'stranger@example.com' ORDER BY id DESC LIMIT 1`).Scan(&subject, &text)
		if err != nil || subject != "You’re invited to work on an app" || strings.Contains(text, name) != shown {
			t.Errorf("%s: %q, %q, %v", name, subject, text, err)
		}
	}
}

// Each change of the inviter's account ends its invitations as the table of endings says: suspension does, a new
// password does not.
func TestInvitationEndsWithItsInviter(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		second := w.join("second@example.com", apps.Owner)
		for i, c := range accounts.Changes {
			invited := w.account(fmt.Sprintf("invited%d@example.com", i))
			w.later += time.Hour // limits of invitations
			token := w.invite(second, invited.Email, apps.Owner)
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				if c == accounts.Suspension {
					return w.people.Suspend(ctx, tx, second.ID, "abuse")
				}
				return w.people.EndWith(ctx, tx, second.ID, c)
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Accept(ctx, token, invited); (err != nil) != accounts.Ends(accounts.AppInvitation, c) {
				t.Errorf("%s: %v", c, err)
			}
			if c != accounts.Suspension {
				continue
			}
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				return w.people.Reinstate(ctx, tx, second.ID)
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An owner whose page was loaded before an operator suspended the account invites nobody, and takes the place of no
// other owner's invitation.
func TestSuspendedOwnerInvitesNobody(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		second, invited := w.join("second@example.com", apps.Owner), w.account("invited@example.com")
		token := w.invite(w.creator, invited.Email, apps.Viewer)
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return w.people.Suspend(ctx, tx, second.ID, "abuse")
		}); err != nil {
			t.Fatal(err)
		}
		for _, email := range []string{invited.Email, "other@example.com"} {
			if err := w.Invite(ctx, w.app.ID, second, email, apps.Owner); err == nil {
				t.Errorf("a suspended owner has invited %s", email)
			}
		}
		if list, err := w.ListInvitations(ctx, w.app.ID); err != nil || len(list) != 1 {
			t.Errorf("invitations: %+v, %v", list, err)
		}
		if _, err := w.Accept(ctx, token, invited); err != nil || w.role(invited) != apps.Viewer {
			t.Errorf("the other owner's invitation: %v, %q", err, w.role(invited))
		}
	})
}

// The answer to an invitation is the same for an address with and without an account, also over the limit.
func TestInvitationRevealsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.account("known@example.com")
	for _, email := range []string{"known@example.com", "unknown@example.com"} {
		for i := range 6 {
			err := w.Invite(t.Context(), w.app.ID, w.creator, email, apps.Viewer)
			if (err == nil) != (i < 5) {
				t.Errorf("%s, invitation %d: %v", email, i, err)
			}
		}
	}
}

// What one account invites uses up nothing of another's.
func TestInvitationsHaveShares(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, dbtest.Open(t, db.SQLite)), t.Context()
	second := w.join("second@example.com", apps.Owner)
	w.creator.From.Address, second.From.Address = "203.0.113.9", "198.51.100.7"
	for range 6 {
		_ = w.Invite(ctx, w.app.ID, w.creator, "colleague@example.com", apps.Viewer)
	}
	if err := w.Invite(ctx, w.app.ID, second, "colleague@example.com", apps.Viewer); err != nil {
		t.Errorf("another account's invitation: %v", err)
	}
	third := w.join("third@example.com", apps.Owner)
	third.From.Address = w.creator.From.Address
	if err := w.Invite(ctx, w.app.ID, third, "colleague@example.com", apps.Viewer); err == nil {
		t.Error("another account of the same network invites as many again")
	}
}

// together runs functions at the same time and returns how many succeed.
func together(list ...func() error) (succeeded int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, f := range list {
		wg.Go(func() {
			if f() == nil {
				mu.Lock()
				succeeded++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return succeeded
}

// Of several requests that accept an invitation at the same time, one succeeds; and an invitation that is revoked at
// that moment is accepted or revoked, not both.
func TestAcceptRaces(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		for _, email := range []string{"a@example.com", "b@example.com", "c@example.com"} {
			a := w.account(email)
			token := w.invite(w.creator, email, apps.Viewer)
			accept := func() error { _, err := w.Accept(ctx, token, a); return err }
			if n := together(accept, accept, accept, accept); n != 1 {
				t.Errorf("%d accepted", n)
			}
		}
		for _, email := range []string{"d@example.com", "e@example.com", "f@example.com"} {
			a := w.account(email)
			token := w.invite(w.creator, email, apps.Viewer)
			i, err := w.GetInvitation(ctx, token)
			if err != nil {
				t.Fatal(err)
			}
			accepted, revoked := 0, 0
			together(func() error { _, err := w.Accept(ctx, token, a); accepted = toInt(err == nil); return err },
				func() error {
					err := w.RevokeInvitation(ctx, w.app.ID, w.creator, i.ID)
					revoked = toInt(err == nil)
					return err
				})
			if accepted+revoked != 1 || (w.role(a) == apps.Viewer) != (accepted == 1) {
				t.Errorf("accepted %d, revoked %d, role %q", accepted, revoked, w.role(a))
			}
		}
	})
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Whatever owners do to each other and to themselves at the same time, the app keeps an owner: its own account.
func TestAnAppKeepsAnOwner(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		for range 3 {
			var all []func() error
			owners := []members.Actor{w.creator}
			for _, name := range []string{"x", "y", "z"} {
				email := name + "@example.com"
				a, err := w.people.GetByEmail(ctx, email)
				if err != nil {
					owners = append(owners, w.join(email, apps.Owner))
					continue
				}
				by := members.Actor{Account: a}
				if w.role(by) == apps.NoRole {
					if _, err := w.Accept(ctx, w.invite(w.creator, email, apps.Owner), by); err != nil {
						t.Fatal(err)
					}
				}
				owners = append(owners, by)
			}
			for _, by := range owners {
				all = append(all, func() error { return w.Leave(ctx, w.app.ID, by) })
				for _, other := range owners {
					all = append(all, func() error { return w.Remove(ctx, w.app.ID, by, other.ID) },
						func() error { return w.SetRole(ctx, w.app.ID, by, other.ID, apps.Viewer) })
				}
			}
			together(all...)
			if w.role(w.creator) != apps.Owner {
				t.Fatalf("the creator has role %q", w.role(w.creator))
			}
			if err := w.Leave(ctx, w.app.ID, w.creator); err == nil {
				t.Error("the creator left")
			}
		}
	})
}

// An account that stops being an owner takes its invitations with it, and owners learn of each change.
func TestRemoval(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		second := w.join("second@example.com", apps.Owner)
		eve := w.account("eve@example.com")
		for what, end := range map[string]func() error{
			"changed": func() error { return w.SetRole(ctx, w.app.ID, w.creator, second.ID, apps.Developer) },
			"removed": func() error { return w.Remove(ctx, w.app.ID, w.creator, second.ID) },
		} {
			if w.role(second) == apps.NoRole {
				if _, err := w.Accept(ctx, w.invite(w.creator, second.Email, apps.Owner), second); err != nil {
					t.Fatal(err)
				}
			} else if err := w.SetRole(ctx, w.app.ID, w.creator, second.ID, apps.Owner); err != nil {
				t.Fatal(err)
			}
			token := w.invite(second, eve.Email, apps.Owner)
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Accept(ctx, token, eve); err == nil {
				t.Errorf("the invitation of an owner who was %s works", what)
			}
			list, err := w.mails.ListNewest(ctx, 2)
			if err != nil || len(list) != 2 || list[0].To == list[1].To ||
				!strings.Contains(list[0].Subject+list[1].Subject, what) {
				t.Errorf("the mails of being %s: %+v, %v", what, list, err)
			}
		}
	})
}

// TestClosingIsTold tells the members of an app that it ended with the account that created it, and the owners of an
// app that a member's account was closed, without the address, which is erased.
func TestClosingIsTold(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w, ctx := newWorld(t, d), t.Context()
		w.join("second@example.com", apps.Owner)
		third := w.join("third@example.com", apps.Viewer)
		told := func() (list []string) {
			mails, err := w.mails.ListNewest(ctx, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range mails {
				if strings.Contains(m.Text, "third@") || strings.Contains(m.Text, "creator@") {
					t.Errorf("the address of a closed account is in %s", m.Text)
				}
				list = append(list, m.To+": "+m.Subject)
			}
			slices.Sort(list)
			return list
		}
		erase := func(who members.Actor, want ...string) {
			t.Helper()
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				return w.EraseAccount(ctx, tx, who.Account)
			}); err != nil {
				t.Fatal(err)
			}
			if got := told(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		erase(third, "creator@example.com: A member left “Reader”", "second@example.com: A member left “Reader”")
		w.join("fourth@example.com", apps.Developer)
		erase(w.creator, "fourth@example.com: “Reader” has ended", "second@example.com: “Reader” has ended")
	})
}
