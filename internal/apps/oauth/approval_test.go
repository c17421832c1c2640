package oauth

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestApprovalsEndWithWhatTheyStandOn approves in the browser and for a device, makes each change of the account that
// the one table knows, or revokes the connection, and then asks for tokens: what has ended gives none, and moves no
// money. What is approved afterwards connects.
func TestApprovalsEndWithWhatTheyStandOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		connect := func() outcome {
			code := w.approve(w.signedIn("person@example.com"), w.live, "2")
			return w.token(w.live, codeForm(code)).want(t, "connect", 200, "")
		}
		live := connect()
		accountID := w.accountOf(live.ConnectionID)
		check := func(what string, ends bool, end func(ctx context.Context, tx *db.Tx) error) {
			b := w.signedIn("person@example.com")
			code, dev := w.approve(b, w.live, "9"), w.startDevice(w.live)
			dev.decide(b, approval("8")).Want(t, 200, "Approved")
			w.tx(end)
			if !ends {
				w.token(w.live, codeForm(code)).want(t, what+", the code", 200, "")
				dev.poll().want(t, what+", the device", 200, "")
				connect()
				return
			}
			w.token(w.live, codeForm(code)).because(t, what+", the code", verdict.ConnectionRevoked)
			dev.poll().refused(t, what+", the device", 400, "invalid_grant")
			if n := w.count(`SELECT COUNT(*) FROM connections WHERE account_id = $1 AND status <> 'revoked'
				AND allocation_mc <> 200000000`, accountID); n != 0 {
				t.Errorf("%s: an approval that has ended has moved money", what)
			}
		}
		for _, c := range accounts.Changes {
			check(string(c), accounts.Ends(accounts.AppApproval, c), func(ctx context.Context, tx *db.Tx) error {
				return w.people.EndWith(ctx, tx, accountID, c)
			})
		}
		check("the connection is revoked", true, func(ctx context.Context, tx *db.Tx) error {
			_, err := w.store.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: live.ConnectionID})
			return err
		})
		if again := connect(); again.ConnectionID == live.ConnectionID {
			t.Error("the connection that was revoked is back")
		}
	})
}

// TestReuseEndsChildren: a token that is used again by a second party ends the children of its family. The reuse is of
// a code, of a refresh token or of a device code.
func TestReuseEndsChildren(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		code := w.approve(b, w.live, "9")
		first := w.token(w.live, codeForm(code)).want(t, "code", 200, "")
		dev := w.startDevice(w.live)
		dev.decide(b, approval("9")).Want(t, 200, "Approved")
		second := dev.poll().want(t, "device", 200, "")
		third := w.token(w.live, codeForm(w.approve(b, w.live, "9"))).want(t, "another code", 200, "")
		fourth := w.token(w.live, refreshForm(third.RefreshToken)).want(t, "refresh", 200, "")
		w.token(w.live, refreshForm(fourth.RefreshToken)).want(t, "refresh again", 200, "")
		for i, access := range []string{first.AccessToken, second.AccessToken, third.AccessToken} {
			grant, err := w.store.LookupAccessToken(t.Context(), access)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.store.Ledger.Do(t.Context(), rules.Delegate{Child: rules.Child{
				ID: fmt.Sprint("chd_", i), ConnectionID: first.ConnectionID, FamilyID: grant.FamilyID, AmountMC: 100,
				TokenHash: fmt.Sprint(i), Key: fmt.Sprint(i), ExpiresUS: w.clock.now().Add(time.Hour).UnixMicro(),
			}}); err != nil {
				t.Fatal(err)
			}
		}
		w.clock.pass(time.Second)
		live := func() int { return w.count(`SELECT COUNT(*) FROM children WHERE ended_us IS NULL`) }
		for i, again := range []url.Values{codeForm(code), dev.form(), refreshForm(third.RefreshToken)} {
			if o := w.token(w.live, again); o.Status != 400 || live() != 2-i {
				t.Errorf("reuse %d: %d %s, %d children live", i, o.Status, o.Body, live())
			}
		}
	})
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
