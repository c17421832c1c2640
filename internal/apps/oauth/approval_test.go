package oauth

import (
	"context"
	"testing"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// endings are what ends the approvals of a person, each with a change to the connection or the credentials.
var endings = []struct {
	what string
	end  func(w *world, accountID, connectionID string)
}{
	{"the password changes", func(w *world, accountID, _ string) {
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			return w.people.SetPassword(ctx, tx, accountID, apitest.PasswordHash(w.t))
		})
	}},
	{"all sessions are signed out", func(w *world, accountID, _ string) {
		w.tx(func(ctx context.Context, tx *db.Tx) error { return w.people.EndSessions(ctx, tx, accountID) })
	}},
	{"a second step is turned on", func(w *world, accountID, _ string) {
		w.tx(func(ctx context.Context, tx *db.Tx) error { return w.people.SetTwoStep(ctx, tx, accountID, true) })
	}},
	{"the account was suspended for a while", func(w *world, accountID, _ string) {
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			if err := w.people.Suspend(ctx, tx, accountID, "taken over"); err != nil {
				return err
			}
			return w.people.Reinstate(ctx, tx, accountID)
		})
	}},
	{"the connection is revoked", func(w *world, _, connectionID string) {
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := w.store.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: connectionID})
			return err
		})
	}},
}

// TestApprovalsEndWithWhatTheyStandOn approves in the browser and for a device, ends what the approvals stand on, and
// then asks for tokens: there are none, and no money moves. What is approved afterwards connects.
func TestApprovalsEndWithWhatTheyStandOn(t *testing.T) {
	t.Parallel()
	for _, c := range endings {
		t.Run(c.what, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				w := newWorld(t, d)
				b := w.signedIn("person@example.com")
				live := w.token(w.live, codeForm(w.approve(b, w.live, "2"))).want(t, "connect", 200, "")
				code, dev := w.approve(b, w.live, "9"), w.startDevice(w.live)
				dev.decide(b, approval("8")).Want(t, 200, "Approved")
				accountID := w.accountOf(live.ConnectionID)
				c.end(w, accountID, live.ConnectionID)
				w.token(w.live, codeForm(code)).because(t, "the code", verdict.ConnectionRevoked)
				dev.poll().refused(t, "the device", 400, "invalid_grant")
				if n := w.count(`SELECT COUNT(*) FROM connections WHERE account_id = $1 AND status <> 'revoked'
					AND allocation_mc <> 200000000`, accountID); n != 0 {
					t.Error("an approval that has ended has moved money")
				}
				w.exec(`UPDATE accounts SET two_step = 0`)
				w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "3"))).
					want(t, "approved afterwards", 200, "")
			})
		})
	}
}

// TestApprovalForTestAccountEndsWithApprover: a developer approves for a test account, and changes the password.
func TestApprovalForTestAccountEndsWithApprover(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer@example.com")
		code := w.approve(b, w.sandbox, "2", "test_account", w.tester.ID)
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			return w.people.SetPassword(ctx, tx, w.tester.OwnerID, apitest.PasswordHash(w.t))
		})
		w.token(w.sandbox, codeForm(code)).because(t, "the code", verdict.ConnectionRevoked)
		b = w.signedIn("developer@example.com")
		w.token(w.sandbox, codeForm(w.approve(b, w.sandbox, "2", "test_account", w.tester.ID))).
			want(t, "approved afterwards", 200, "")
	})
}
