package identity_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// recipients returns who got the mails with a subject.
func (s *site) recipients(subject string) (list []string) {
	s.t.Helper()
	mails, err := s.mails.ListNewest(s.t.Context(), 50)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range mails {
		if m.Subject == subject {
			list = append(list, m.To)
		}
	}
	slices.Sort(list)
	return list
}

// askNewAddress requests a change of the address and returns the mailed link.
func (s *site) askNewAddress(session, email string) (link string) {
	s.t.Helper()
	s.pass(13 * time.Minute) // limits of mails
	s.post("/settings/email", session, "email", email, "present", password).want(s.t, 200, "")
	_, to, link := s.mail()
	if to != email {
		s.t.Fatalf("the link went to %s", to)
	}
	return link
}

// The holder of a former address has no way into the account: links to it end with the change of the address. The
// owner's sessions go on.
func TestLinksEndWithTheAddress(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session := s.join(person)
		link := s.askNewAddress(session, "new@example.com")
		s.pass(time.Second)
		s.post("/forgot", "", "email", person).want(t, 200, "")
		_, _, reset := s.mail()
		s.pass(time.Second)
		s.post(link, "").want(t, 200, "")
		s.get("/settings", session).want(t, 200, "")
		s.get(reset, "").want(t, 404, "")
		s.post(reset, "", "password", another).want(t, 404, "")
		s.post("/sign-in", "", "email", "new@example.com", "password", another).want(t, 401, "")
		s.post("/sign-in", "", "email", "new@example.com", "password", password).want(t, 303, "/")
		for subject, to := range map[string]string{
			"Your email address was changed":     person,
			"Your account uses this address now": "new@example.com",
		} {
			if got := s.recipients(subject); !slices.Equal(got, []string{to}) {
				t.Errorf("%q went to %q, want %s", subject, got, to)
			}
		}
		s.pass(13 * time.Minute)
		s.post("/forgot", "", "email", "new@example.com").want(t, 200, "")
		_, _, reset = s.mail()
		s.post(reset, "", "password", another).want(t, 200, "")
		if got := s.recipients("Your password was changed"); !slices.Equal(got, []string{"new@example.com"}) {
			t.Errorf("the new password was told to %q", got)
		}
	})
}

// Of several requests to change the address only the newest counts, so that a mistyped address opens nothing, and none
// is left after one was confirmed.
func TestTheNewestAddressRequestCounts(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session := s.join(person)
		mistyped := s.askNewAddress(session, "stranger@example.com")
		right := s.askNewAddress(session, "right@example.com")
		s.post(mistyped, "").want(t, 404, "")
		s.post(right, "").want(t, 200, "")
		s.post(mistyped, "").want(t, 404, "")

		taken := s.askNewAddress(session, "third@example.com")
		s.pass(time.Second)
		s.post("/settings/email", session, "email", "right@example.com", "present", password).want(t, 200, "")
		s.post(taken, "").want(t, 404, "") // replaced by a request that leads nowhere
		s.post("/sign-in", "", "email", "right@example.com", "password", password).want(t, 303, "/")
	})
}

// A set-up of an authenticator app is finished in the browser that gave the password, soon, and not after the password
// was changed.
func TestSetupBelongsToItsBrowser(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		session, other := s.join(person), s.signIn(password).cookie
		const path = "/settings/two-step/setup"
		s.post("/settings/two-step", other, "present", password).want(t, 303, path)
		s.get(path, session).want(t, 303, "/settings/two-step")
		s.post(path, session, "code", "000000").want(t, 303, "/settings/two-step")
		secret := s.setupSecret(other)
		s.post(path, session, "code", s.code(secret)).want(t, 303, "/settings/two-step")

		s.pass(10 * time.Minute)
		s.get(path, other).want(t, 303, "/settings/two-step")
		s.post(path, other, "code", s.code(secret)).want(t, 303, "/settings/two-step")
		if err := s.store.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := s.count("totp_seeds"); n != 0 {
			t.Errorf("%d seeds of expired set-ups are left", n)
		}

		s.post("/settings/two-step", session, "present", password).want(t, 303, path)
		secret = s.setupSecret(session)
		changed := s.post("/settings/password", session, "present", password, "password", another).want(t, 303,
			"/settings?done=password").cookie
		for _, browser := range []string{changed, s.signIn(another).want(t, 303, "/").cookie} {
			s.get(path, browser).want(t, 303, "/settings/two-step")
			s.post(path, browser, "code", s.code(secret)).want(t, 303, "/settings/two-step")
		}
	})
}

// An account that no one has confirmed is deleted when its link has expired and its mail is sent. Its address is free
// again. One that has a valid link stays.
func TestUnconfirmedAccountsArePurged(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := serve(t, d)
		s.join(person)
		s.post("/sign-up", "", "email", "new@example.com", "password", password).want(t, 200, "")
		s.pass(2 * time.Hour)
		s.post("/sign-up", "", "email", "later@example.com", "password", password).want(t, 200, "")
		purge := func(want int, after time.Duration) {
			t.Helper()
			s.pass(after)
			if err := s.store.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := s.count("accounts"); n != want {
				t.Errorf("%d accounts, not %d", n, want)
			}
		}
		purge(3, 21*time.Hour)
		purge(3, 2*time.Hour) // the mail still waits
		if _, err := d.ExecContext(t.Context(), `UPDATE mails SET status = 'sent', done_us = 1`); err != nil {
			t.Fatal(err)
		}
		// Strangers have tried to sign in: one transaction does not delete all that is known of it.
		if _, err := d.ExecContext(t.Context(), `INSERT INTO security_events (id, account_id, kind, address, agent,
				created_us)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 450)
			SELECT 'sev_try' || i, a.id, 'sign-in-failed', '', '', 1 FROM n JOIN accounts a
				ON a.email = 'new@example.com'`); err != nil {
			t.Fatal(err)
		}
		purge(2, 0)
		session := s.signIn(password).want(t, 303, "/").cookie
		s.post(s.askNewAddress(session, "new@example.com"), "").want(t, 200, "")
		purge(1, 24*time.Hour)
	})
}

// setupSecret returns the secret that the page of the set-up shows.
func (s *site) setupSecret(session string) string {
	s.t.Helper()
	page := s.get("/settings/two-step/setup", session).want(s.t, 200, "").page
	shown := regexp.MustCompile(`<code>([A-Z2-7-]+)</code>`).FindStringSubmatch(page)
	if shown == nil {
		s.t.Fatalf("no secret on %s", page)
	}
	return strings.ReplaceAll(shown[1], "-", "")
}
