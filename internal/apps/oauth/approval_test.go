package oauth

import (
	"context"
	"fmt"
	"html"
	"net/url"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
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

// TestLaterLimitsHold approves, decides on other limits, and then asks for tokens: the app gets them, and the limits
// are those of the later decision, by the dashboard or by another approval.
func TestLaterLimitsHold(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		first := w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "connect", 200, "")
		do := func(c rules.Command) {
			t.Helper()
			if _, err := w.store.Ledger.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		limits := func(what string, capMC money.MC, dayMC *money.MC, work bool) {
			t.Helper()
			conn, err := store.GetConnection(t.Context(), d, first.ConnectionID)
			if err != nil || conn.AllocationMC != capMC || (conn.VelocityLimitMC == nil) != (dayMC == nil) ||
				dayMC != nil && *conn.VelocityLimitMC != *dayMC {
				t.Errorf("%s: %+v, %v", what, conn, err)
			}
			got, err := w.store.AllowsWork(t.Context(), conn.AppID, conn.AccountID, conn.ID)
			if err != nil || got != work {
				t.Errorf("%s: own work %t, %v", what, got, err)
			}
		}
		day := 1 * money.Dollar
		for name, change := range map[string]rules.Command{
			"cap":         rules.ChangeCap{ConnectionID: first.ConnectionID, TargetMC: 2 * money.Dollar},
			"daily limit": rules.SetVelocityLimit{ConnectionID: first.ConnectionID, LimitMC: &day},
		} {
			do(rules.ChangeCap{ConnectionID: first.ConnectionID, TargetMC: 2 * money.Dollar})
			do(rules.SetVelocityLimit{ConnectionID: first.ConnectionID, LimitMC: &day})
			w.clock.pass(time.Second)
			code, dev := w.approve(b, w.live, "9"), w.startDevice(w.live)
			dev.decide(b, approval("8")).Want(t, 200, "Approved")
			w.clock.pass(time.Second)
			do(change)
			w.token(w.live, codeForm(code)).want(t, "the code after the change of the "+name, 200, "")
			limits("the code after the "+name, 2*money.Dollar, &day, false)
			dev.poll().want(t, "the device after the change of the "+name, 200, "")
			limits("the device after the "+name, 2*money.Dollar, &day, false)
		}
		older := w.approve(b, w.live, "12", "own_work", "1")
		w.clock.pass(time.Second)
		newer := w.approve(b, w.live, "3", "daily_limit", "1")
		w.clock.pass(time.Second)
		w.token(w.live, codeForm(newer)).want(t, "the newer approval", 200, "")
		w.token(w.live, codeForm(older)).want(t, "the older approval", 200, "")
		limits("approvals out of order", 3*money.Dollar, &day, false)
		older = w.approve(b, w.live, "12", "own_work", "1")
		w.clock.pass(time.Second)
		do(rules.ChangeCap{ConnectionID: first.ConnectionID, TargetMC: 2 * money.Dollar})
		w.token(w.live, codeForm(older)).want(t, "own work", 200, "")
		limits("a lower cap says nothing of own work", 2*money.Dollar, &day, true)
	})
}

// TestStaleConsentKeepsLimits: the consent screen of a live connection is open while its limits are lowered elsewhere.
// What was not typed in it stays as it is.
func TestStaleConsentKeepsLimits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		first := w.token(w.live, codeForm(w.approve(b, w.live, "12"))).want(t, "connect", 200, "")
		check := func(what string, o outcome, capMC, dayMC money.MC) {
			t.Helper()
			o.want(t, what, 200, "")
			conn, err := store.GetConnection(t.Context(), d, first.ConnectionID)
			if err != nil || conn.AllocationMC != capMC || conn.VelocityLimitMC == nil ||
				*conn.VelocityLimitMC != dayMC || *o.AllocationMC != capMC {
				t.Errorf("%s: %+v, %v", what, conn, err)
			}
		}
		shown := html.UnescapeString(b.Get(authorizePath(w.live)).Found(t, `name="shown" value="([^"]*)"`))
		day := 1 * money.Dollar
		for _, c := range []rules.Command{
			rules.ChangeCap{ConnectionID: first.ConnectionID, TargetMC: 2 * money.Dollar},
			rules.SetVelocityLimit{ConnectionID: first.ConnectionID, LimitMC: &day},
		} {
			if _, err := w.store.Ledger.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		w.clock.pass(time.Second)
		code := w.approve(b, w.live, "", "amount", "12.00", "shown", shown)
		check("nothing typed", w.token(w.live, codeForm(code)), 2*money.Dollar, day)
		dev := w.startDevice(w.live)
		dev.decide(b, approval("12.00", "shown", shown)).Want(t, 200, "Approved")
		check("nothing typed for a device", dev.poll(), 2*money.Dollar, day)
		code = w.approve(b, w.live, "7", "shown", shown)
		check("a cap typed", w.token(w.live, codeForm(code)), 7*money.Dollar, day)
		code = w.approve(b, w.live, "12.00", "daily_limit", "4", "shown", shown)
		check("a daily limit typed", w.token(w.live, codeForm(code)), 7*money.Dollar, 4*money.Dollar)
		page := b.Post(authorizePath(w.live), approval("x", "shown", shown)).Body
		has(t, page, `value="x"`, `name="daily_limit" inputmode="decimal" autocomplete="off" value="4.00"`)
	})
}

// TestMarginRisesWhileConsentIsOpen: the app raises its margin, or that of a feature, after the consent screen was
// shown. The screen is shown again and names both figures, in the browser and for a device; what it then shows is what
// is approved, and a rate that is lower asks nobody.
func TestMarginRisesWhileConsentIsOpen(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		shown := func(page apitest.Page) string {
			t.Helper()
			return html.UnescapeString(page.Found(t, `name="rates" value="([^"]*)"`))
		}
		first := shown(b.Get(authorizePath(w.live)))
		w.exec(`UPDATE apps SET dev_margin_ppm = 10000000 WHERE id = $1`, w.live.ID)
		page := b.Post(authorizePath(w.live), approval("5", "rates", first)).
			Want(t, 422, "Margin: 1000% instead of 15%.", `href="#price"`, `value="5"`)
		second := shown(page)
		w.exec(`UPDATE features SET dev_margin_ppm = 9990000 WHERE app_id = $1 AND slug = 'chat'`, w.live.ID)
		w.token(w.live, codeForm(w.approve(b, w.live, "5", "rates", second))).want(t, "a lower rate", 200, "")
		w.exec(`UPDATE apps SET dev_margin_ppm = 0 WHERE id = $1`, w.live.ID)
		dev := w.startDevice(w.live)
		third := shown(b.Post("/device", url.Values{"user_code": {dev.UserCode}}).Want(t, 200, dev.UserCode))
		w.exec(`UPDATE features SET dev_margin_ppm = 10000000 WHERE app_id = $1 AND slug = 'chat'`, w.live.ID)
		page = dev.decide(b, approval("6", "rates", third)).
			Want(t, 422, "Margin on “Chat window”: 1000% instead of 999%.", dev.UserCode)
		dev.poll().refused(t, "before the user has agreed", 400, "authorization_pending")
		dev.decide(b, approval("6", "rates", shown(page))).Want(t, 200, "Approved")
		dev.poll().want(t, "the device", 200, "")
	})
}
