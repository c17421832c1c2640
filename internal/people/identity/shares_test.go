package identity

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func clientAt(address string) accounts.Client { return accounts.Client{Address: address} }

// A stranger who asks for emails to an address stops neither another purpose nor another network, and with many
// networks not the one from which the account signs in.
func TestStrangersUseUpNoMails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, ctx := newEndingsWorld(t, d), t.Context()
		a := w.account(false)
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return w.accounts.RecordEvent(ctx, tx, a.ID, accounts.SignedIn, clientAt("192.0.2.7"))
		})
		ask := func(address string, purpose mailPurpose) bool {
			return w.throttleMail(ctx, clientAt(address), purpose, a.Email) == nil
		}
		for i := range 6 {
			for _, purpose := range []mailPurpose{signUpMail, resetMail, addressMail} {
				if w.at = w.at.Add(6 * time.Second); ask("203.0.113.9", purpose) != (i < 5) {
					t.Errorf("the stranger's request %d for %s", i+1, purpose)
				}
			}
		}
		if !ask("198.51.100.7", resetMail) || !ask("198.51.100.7", signUpMail) {
			t.Error("the owner is refused on another network")
		}
		for i := range 40 {
			ask(fmt.Sprintf("203.0.113.%d", 100+i), resetMail)
		}
		if ask("198.51.100.8", resetMail) {
			t.Error("many networks fill a mailbox without a limit")
		}
		if !ask("192.0.2.7", resetMail) {
			t.Error("the owner is refused where the account signs in")
		}
		if !ask("198.51.100.8", signUpMail) {
			t.Error("resets use up what a sign-up needs")
		}
	})
}

// Who has only the password of an account with a second step uses up no attempts of its owner.
func TestStrangersUseUpNoCodes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, ctx := newEndingsWorld(t, d), t.Context()
		a := w.account(false)
		w.inTx(func(ctx context.Context, tx *db.Tx) error {
			return w.accounts.RecordEvent(ctx, tx, a.ID, accounts.SignedIn, clientAt("192.0.2.7"))
		})
		wrong := func(address string) bool {
			tries := w.newCodeTries(clientAt(address), a.ID, a.Epoch)
			ok := tries.check(ctx, w.db) == nil
			if ok {
				tries.fail()
			}
			return ok
		}
		for i := range 6 {
			if wrong("203.0.113.9") != (i < 5) {
				t.Errorf("the thief's code %d", i+1)
			}
		}
		if !wrong("198.51.100.7") {
			t.Error("the owner is refused on another network")
		}
		tried := 0
		for i := range 60 {
			if wrong(fmt.Sprintf("203.0.113.%d", 100+i)) {
				tried++
			}
		}
		if tried != 14 || wrong("198.51.100.8") {
			t.Errorf("%d codes from many networks, want 14 of 20 after six", tried)
		}
		if !wrong("192.0.2.7") {
			t.Error("the owner is refused where the account signs in")
		}
		a.Epoch++ // the owner has set another password
		if !wrong("198.51.100.8") {
			t.Error("the owner is refused after a new password")
		}
	})
}
