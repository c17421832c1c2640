package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// refused reports whether err is 429 with a time to wait.
func refused(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return ok && e.Code == apierr.RateLimited && e.RetryAfter > 0
}

// One address that tries one password on many accounts is stopped, and so are many addresses that try one account. An
// IPv6 client is its /64. The owner gets in: from where the account has signed in before, and with a session.
func TestSignInLimits(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
		s, ctx := NewStore(d, func() time.Time { return now }), t.Context()
		var owner Account
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			if owner, err = s.Create(ctx, tx, NewAccount{Email: "owner@example.com"}); err != nil {
				return err
			}
			return s.RecordEvent(ctx, tx, owner.ID, SignedIn, Client{Address: "192.0.2.7"})
		}); err != nil {
			t.Fatal(err)
		}
		// try makes an attempt with a wrong password and reports whether it is refused.
		try := func(address, email string, a Account) bool {
			attempt := s.newAttempt(Client{Address: address}, email, a, false)
			err := attempt.check(ctx)
			if err == nil {
				attempt.fail()
			} else if !refused(err) {
				t.Fatal(err)
			}
			return err != nil
		}
		count := func(n int, try func(i int) bool) (tried int) {
			for i := range n {
				if !try(i) {
					tried++
				}
			}
			return tried
		}
		if n := count(60, func(i int) bool {
			return try(fmt.Sprintf("2001:db8::%x", i), "someone@example.com", Account{})
		}); n != 10 {
			t.Errorf("%d wrong passwords from one /64 for one email, want 10", n)
		}
		if n := count(200, func(i int) bool {
			return try("203.0.113.9", fmt.Sprintf("u%d@example.com", i), Account{})
		}); n != 50 {
			t.Errorf("%d wrong passwords from one address for many emails, want 50", n)
		}
		if n := count(200, func(i int) bool {
			return try(fmt.Sprintf("198.51.100.%d", i), owner.Email, owner)
		}); n != 50 {
			t.Errorf("%d wrong passwords from many addresses for one account, want 50", n)
		}
		if !try("198.51.100.250", owner.Email, owner) || try("192.0.2.7", owner.Email, owner) {
			t.Error("a stranger gets in, or the owner does not, where the account has signed in before")
		}
		if err := s.newAttempt(Client{Address: "198.51.100.251"}, owner.Email, owner, true).check(ctx); err != nil {
			t.Errorf("the owner's session: %v", err)
		}
		changed := owner
		changed.Epoch++ // a new password
		if try("198.51.100.252", owner.Email, changed) {
			t.Error("the owner is refused after a new password")
		}
	})
}

// Hashes that wait are bounded, for one network more than for all.
func TestHashQueue(t *testing.T) {
	t.Parallel()
	q, ctx := newHashQueue(1), t.Context()
	release, err := q.acquire(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxWaitingOfANetwork {
		if err := q.enter("a"); err != nil {
			t.Fatalf("the network's place %d: %v", i, err)
		}
	}
	var busy *apierr.Error
	if err := q.enter("a"); !errors.As(err, &busy) || busy.Code != apierr.Unavailable || busy.RetryAfter == 0 {
		t.Errorf("a network fills the queue: %v", err)
	}
	for i := range maxWaitingHashes - maxWaitingOfANetwork {
		if err := q.enter(fmt.Sprint("network ", i)); err != nil {
			t.Fatalf("place %d: %v", i, err)
		}
	}
	if err := q.enter("b"); !errors.As(err, &busy) {
		t.Errorf("the queue has no end: %v", err)
	}
	q.leave("a")
	got := make(chan error, 1)
	go func() {
		free, err := q.acquire(ctx, "b")
		if err == nil {
			free()
		}
		got <- err
	}()
	release()
	if err := <-got; err != nil {
		t.Errorf("a free place: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	q.slots <- struct{}{}
	if _, err := q.acquire(canceled, "c"); !errors.Is(err, context.Canceled) || q.byNetwork["c"] != 0 {
		t.Errorf("who leaves keeps a place: %v", err)
	}
}

// The last sign-ins of an account are found among many failed attempts of strangers by their index.
func TestSignInsUseTheirIndex(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		for _, text := range []string{
			`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ('wac_x', 'x@example.com', '', 1)`,
			`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
			INSERT INTO security_events (id, account_id, kind, address, agent, created_us)
			SELECT 'sev_' || i, 'wac_x', CASE WHEN i % 5000 = 0 THEN 'signed-in' ELSE 'sign-in-failed' END, 'a' || i,
				'', i FROM n`,
			`ANALYZE`,
		} {
			if _, err := d.ExecContext(ctx, text); err != nil {
				t.Fatal(err)
			}
		}
		plan := dbtest.Explain(t, d, func(q db.Queryer) error {
			list, err := listSignInAddresses(ctx, q, "wac_x", 20)
			if len(list) != 4 || list[0] != "a5000" {
				t.Errorf("sign-ins from %v", list)
			}
			return err
		})
		if !strings.Contains(plan, "security_events_sign_ins") {
			t.Error(plan)
		}
	})
}

// Who knows the password of an account, wherever from, has a share of the hashes.
func TestCorrectPasswordsAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		const password = "correct horse battery"
		now := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
		s, ctx := NewStore(d, func() time.Time { return now }), t.Context()
		var list [2]Account
		if err := d.InTx(db.ForJob(ctx), func(ctx context.Context, tx *db.Tx) (err error) {
			for i := range list {
				n := NewAccount{Email: fmt.Sprintf("person%d@example.com", i), Password: password}
				if list[i], err = s.Create(ctx, tx, n); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		tries := 0
		try := func(a Account) error {
			tries++
			_, err := s.SignIn(ctx, Client{Address: fmt.Sprintf("198.51.100.%d", tries)}, a.Email, password)
			return err
		}
		for i := range 30 {
			if err := try(list[0]); err != nil {
				t.Fatalf("sign-in %d: %v", i+1, err)
			}
		}
		if err := try(list[0]); !refused(err) {
			t.Errorf("sign-in 31: %v", err)
		}
		if err := s.CheckPassword(ctx, Client{Address: "192.0.2.1"}, list[0], password); !refused(err) {
			t.Errorf("a step-up: %v", err)
		}
		if err := try(list[1]); err != nil {
			t.Errorf("another account: %v", err)
		}
		now = now.Add(2 * time.Second)
		if err := try(list[0]); err != nil {
			t.Errorf("two seconds later: %v", err)
		}
	})
}
