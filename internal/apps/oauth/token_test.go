package oauth

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Contract §5, flow rules 2–7, from the consent to a refreshed token.
func TestCodeBecomesTokens(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		code := w.approve(w.signedIn("person@example.com"), w.live, "12.50", "daily_limit", "5")
		if n := w.count(`SELECT COUNT(*) FROM connections`); n != 0 {
			t.Errorf("consent alone made %d connections", n)
		}
		o := w.token(w.live, codeForm(code)).want(t, "exchange", 200, "")
		if o.TokenType != "Bearer" || o.ExpiresIn != 900 || o.AllocationMC == nil ||
			*o.AllocationMC != 1250*money.Cent || o.AllocationDisplay != "$12.50" ||
			len(o.AccessToken) != 43 || len(o.RefreshToken) != 43 || !strings.HasPrefix(o.ConnectionID, "conn_") {
			t.Errorf("tokens: %+v", o.TokenResponse)
		}
		conn, err := store.GetConnection(t.Context(), d, o.ConnectionID)
		if err != nil || conn.AllocationMC != 1250*money.Cent || conn.VelocityLimitMC == nil ||
			*conn.VelocityLimitMC != 5*money.Dollar || conn.AppID != w.live.ID {
			t.Errorf("connection: %+v, %v", conn, err)
		}
		b, err := store.GetBalance(t.Context(), d, conn.AccountID)
		if err != nil || b.AvailableMC != 750*money.Cent || b.ReservedMC != 1250*money.Cent {
			t.Errorf("balance: %+v, %v", b, err)
		}
		g, err := w.store.LookupAccessToken(t.Context(), o.AccessToken)
		if err != nil || g.ConnectionID != o.ConnectionID || g.AppID != w.live.ID ||
			g.ExpiresUS != w.clock.now().Add(15*time.Minute).UnixMicro() {
			t.Errorf("Lookup: %+v, %v", g, err)
		}
		if w.alive(o.RefreshToken) || w.alive(code) || w.alive("") {
			t.Error("something that is no access token works as one")
		}
		w.clock.pass(15*time.Minute - time.Microsecond)
		if !w.alive(o.AccessToken) {
			t.Error("the access token ended before 15 minutes")
		}
		w.clock.pass(time.Microsecond)
		if w.alive(o.AccessToken) {
			t.Error("the access token lives longer than 15 minutes")
		}
		r := w.token(w.live, refreshForm(o.RefreshToken)).want(t, "refresh", 200, "")
		if r.AccessToken == o.AccessToken || r.RefreshToken == o.RefreshToken || r.AllocationMC != nil ||
			r.ConnectionID != o.ConnectionID || !w.alive(r.AccessToken) {
			t.Errorf("refreshed: %+v", r.TokenResponse)
		}
		for _, secret := range []string{code, o.AccessToken, r.RefreshToken} {
			if n := w.count(`SELECT (SELECT COUNT(*) FROM oauth_tokens WHERE hash = $1) + (SELECT COUNT(*)
					FROM oauth_codes WHERE hash = $1)`, secret); n != 0 {
				t.Errorf("a secret is stored as it is")
			}
		}
	})
}

// Contract §2, 1 and F-75: what is allocated is what is available at the exchange.
func TestExchangeLendsWhatIsThere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		o := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "25"))).want(t, "exchange",
			200, "")
		if o.AllocationMC == nil || *o.AllocationMC != 20*money.Dollar {
			t.Errorf("allocated %v of $25 with $20 available", o.AllocationDisplay)
		}
	})
}

// F-68: a replayed code is refused and its tokens end; only for the app itself.
func TestReplayedCode(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		code := w.approve(w.signedIn("person@example.com"), w.live, "5")
		o := w.token(w.live, codeForm(code)).want(t, "exchange", 200, "")
		r := w.token(w.live, refreshForm(o.RefreshToken)).want(t, "refresh", 200, "")
		w.clock.pass(time.Second)
		w.token(w.sandbox, codeForm(code)).want(t, "another app", 400, "invalid_grant")
		if !w.alive(o.AccessToken) || !w.alive(r.AccessToken) {
			t.Error("another app's replay ended the tokens")
		}
		w.token(w.live, codeForm(code)).want(t, "replay", 400, "invalid_grant")
		if w.alive(o.AccessToken) || w.alive(r.AccessToken) {
			t.Error("the tokens outlive the replay")
		}
		w.token(w.live, refreshForm(r.RefreshToken)).want(t, "refresh after the replay", 400, "invalid_grant")
		if conn, err := store.GetConnection(t.Context(), d, o.ConnectionID); err != nil ||
			conn.Status != rules.Active || conn.AllocationMC != 5*money.Dollar {
			t.Errorf("the connection did not stay: %+v, %v", conn, err)
		}
	})
}

// F-69: a wrong try does not use the code up, the fifth does. An expired code is
// one that never was.
func TestWrongTriesAreCounted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		wrong := []func(url.Values) client{
			func(f url.Values) client { f.Set("code_verifier", strings.Repeat("a", 43)); return w.live },
			func(f url.Values) client { f.Set("redirect_uri", callback+"/"); return w.live },
			func(f url.Values) client { f.Set("code_verifier", "short"); return w.live },
			func(f url.Values) client { return w.sandbox },
			func(f url.Values) client { f.Set("code_verifier", challenge); return w.live },
		}
		for n := 4; n <= 5; n++ {
			code := w.approve(b, w.live, "1")
			for _, spoil := range wrong[:n] {
				f := codeForm(code)
				w.token(spoil(f), f).want(t, "wrong try", 400, "invalid_grant")
			}
			if n == 4 {
				w.token(w.live, codeForm(code)).want(t, "after four wrong tries", 200, "")
			} else {
				w.token(w.live, codeForm(code)).want(t, "after five wrong tries", 400, "invalid_grant")
			}
		}
		for wait, want := range map[time.Duration]int{59 * time.Second: 200, 60 * time.Second: 400} {
			code := w.approve(b, w.live, "1")
			w.clock.pass(wait)
			if o := w.token(w.live, codeForm(code)); o.Status != want {
				t.Errorf("a code after %s: %d, want %d", wait, o.Status, want)
			}
		}
		w.token(w.live, codeForm("never-was")).want(t, "unknown code", 400, "invalid_grant")
	})
}

// F-69: of 16 exchanges of one code exactly one wins, and its tokens live: the
// others were on their way already, they are no replays.
func TestParallelExchanges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		var winner outcome
		for round := range 5 {
			code := w.approve(b, w.live, "5")
			winner = w.race(t, 16, func() outcome { return w.token(w.live, codeForm(code)) })
			if !w.alive(winner.AccessToken) {
				t.Error("the winner's tokens do not live")
			}
			if n := w.count(`SELECT COUNT(*) FROM oauth_tokens`); n != 2*(round+1) {
				t.Errorf("%d tokens after %d codes, want 2 each", n, round+1)
			}
			w.clock.pass(5 * time.Second) // the token endpoint takes 20 requests a second
		}
		if n := w.count(`SELECT COUNT(*) FROM connections`); n != 1 {
			t.Errorf("%d connections", n)
		}
		balance, err := store.GetBalance(t.Context(), d, w.accountOf(winner.ConnectionID))
		if err != nil || balance.ReservedMC != 5*money.Dollar {
			t.Errorf("reserved %s, want $5.00 (%v)", balance.ReservedMC.Display(), err)
		}
	})
}

// F-70: of 16 refreshes with one token exactly one wins, and its tokens live.
func TestParallelRefreshes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		o := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t, "exchange",
			200, "")
		for range 5 {
			before := o.RefreshToken
			o = w.race(t, 16, func() outcome { return w.token(w.live, refreshForm(before)) })
			if !w.alive(o.AccessToken) {
				t.Error("the winner's access token does not live")
			}
			w.clock.pass(5 * time.Second)
		}
	})
}

// race runs f n times at once; exactly one may succeed, the others get 400
// invalid_grant.
func (w *world) race(t *testing.T, n int, f func() outcome) (winner outcome) {
	t.Helper()
	outcomes := make([]outcome, n)
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range outcomes {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			outcomes[i] = f()
		})
	}
	done.Wait()
	won := 0
	for _, o := range outcomes {
		if o.Status == http.StatusOK {
			won++
			winner = o
			continue
		}
		o.want(t, "a loser", 400, "invalid_grant")
	}
	if won != 1 {
		t.Fatalf("%d of %d succeeded, want 1", won, n)
	}
	return winner
}

func (w *world) accountOf(connectionID string) string {
	w.t.Helper()
	c, err := store.GetConnection(w.t.Context(), w.d, connectionID)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.AccountID
}

// F-71, F-72 and RFC 9700: the old token is refused; once its successor was used
// too, the family ends.
func TestRotation(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		first := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t, "exchange",
			200, "")
		second := w.token(w.live, refreshForm(first.RefreshToken)).want(t, "refresh", 200, "")
		w.clock.pass(time.Second)
		w.token(w.live, refreshForm(first.RefreshToken)).want(t, "the old token", 400, "invalid_grant")
		if !w.alive(second.AccessToken) {
			t.Fatal("a retry of the old token ended the family")
		}
		w.token(w.sandbox, refreshForm(second.RefreshToken)).want(t, "another app's token", 400, "invalid_grant")
		third := w.token(w.live, refreshForm(second.RefreshToken)).want(t, "its successor", 200, "")
		w.clock.pass(time.Second)
		w.token(w.live, refreshForm(first.RefreshToken)).want(t, "the old token again", 400, "invalid_grant")
		for _, o := range []outcome{first, second, third} {
			if w.alive(o.AccessToken) {
				t.Error("an access token outlives its family")
			}
		}
		w.token(w.live, refreshForm(third.RefreshToken)).want(t, "the newest token", 400, "invalid_grant")

		again := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "6"))).want(t,
			"reconnecting", 200, "")
		if again.ConnectionID != first.ConnectionID || *again.AllocationMC != 6*money.Dollar {
			t.Errorf("reconnecting: %+v, want the same connection with $6", again.TokenResponse)
		}
		w.clock.pass(90*24*time.Hour - time.Second)
		again = w.token(w.live, refreshForm(again.RefreshToken)).want(t, "after almost 90 days", 200, "")
		w.clock.pass(90 * 24 * time.Hour)
		w.token(w.live, refreshForm(again.RefreshToken)).want(t, "after 90 days", 400, "invalid_grant")
	})
}

// F-73 and contract §3: what the state of connection and app means for tokens.
func TestStatesDecideAboutTokens(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		o := w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "exchange", 200, "")
		command := func(c rules.Command) {
			w.tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := w.store.Ledger.DoTx(ctx, tx, c)
				return err
			})
		}
		command(rules.Freeze{ConnectionID: o.ConnectionID, By: rules.FrozenByRisk})
		o = w.token(w.live, refreshForm(o.RefreshToken)).want(t, "frozen", 200, "")

		code := w.approve(b, w.live, "5")
		w.exec(`UPDATE apps SET suspended = 1 WHERE id = $1`, w.live.ID)
		w.token(w.live, refreshForm(o.RefreshToken)).because(t, "suspended, refresh", verdict.AppSuspended)
		w.token(w.live, codeForm(code)).because(t, "suspended, exchange", verdict.AppSuspended)
		resp := b.Get(authorizePath(w.live))
		if to := resp.To; resp.Status != 302 || !strings.Contains(to, "error=unauthorized_client") {
			t.Errorf("suspended, authorize: %d to %q", resp.Status, to)
		}
		w.exec(`UPDATE apps SET suspended = 0 WHERE id = $1`, w.live.ID)
		w.token(w.live, codeForm(code)).want(t, "lifted, exchange", 200, "")
		o = w.token(w.live, refreshForm(o.RefreshToken)).want(t, "lifted, refresh", 200, "")

		command(rules.Revoke{ConnectionID: o.ConnectionID})
		w.token(w.live, refreshForm(o.RefreshToken)).because(t, "revoked", verdict.ConnectionRevoked)
		if !w.alive(o.AccessToken) {
			t.Error("the access token of a revoked connection must still say whose it was: calls answer 403, not 401")
		}
		fresh := w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "after revoke", 200, "")
		if fresh.ConnectionID == o.ConnectionID {
			t.Error("a revoked connection came back")
		}
	})
}

// TestNoConnectionInADispute: while a payment of the user is disputed, no app is connected and no cap is raised, also
// by a consent of before; a connection that is there keeps its tokens (decision 123).
func TestNoConnectionInADispute(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		o := w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "exchange", 200, "")
		command := func(c rules.Command) {
			w.tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := w.store.Ledger.DoTx(ctx, tx, c)
				return err
			})
		}
		raise, same := w.approve(b, w.live, "7"), w.approve(b, w.live, "4")
		command(rules.OpenPayment{
			PaymentID: "top_1",
			AccountID: w.accountOf(o.ConnectionID),
			AmountMC:  money.Dollar,
		})
		command(rules.DisputePayment{PaymentID: "top_1", DisputeID: "du_1"})
		w.token(w.live, codeForm(raise)).because(t, "a raise of before", verdict.ConnectionRevoked)
		again := w.token(w.live, codeForm(same)).want(t, "no more than before", 200, "")
		w.token(w.live, refreshForm(again.RefreshToken)).want(t, "refresh", 200, "")
		form := url.Values{"decision": {"approve"}, "spend_cap": {"6"}}
		if p := b.Post(authorizePath(w.live), form); p.Status != 422 || !strings.Contains(p.Body, "is disputed") {
			t.Errorf("a raise in a dispute: %d", p.Status)
		}
		command(rules.Revoke{ConnectionID: o.ConnectionID})
		form.Set("spend_cap", "1")
		if p := b.Post(authorizePath(w.live), form); p.Status != 422 || !strings.Contains(p.Body, "is disputed") {
			t.Errorf("a connection in a dispute: %d", p.Status)
		}
		command(rules.EndDispute{PaymentID: "top_1", DisputeID: "du_1"})
		w.token(w.live, codeForm(w.approve(b, w.live, "6"))).want(t, "after it was won", 200, "")
	})
}

// A live app's code is worth nothing to a test account, also when the app went
// live between consent and exchange (I-29).
func TestSandboxWallHoldsAtTheExchange(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		code := w.approve(w.signedIn("tester@example.com"), w.sandbox, "5")
		w.exec(`UPDATE apps SET tier = 'limited-live' WHERE id = $1`, w.sandbox.ID)
		w.token(w.sandbox, codeForm(code)).because(t, "exchange", verdict.ConnectionRevoked)
		if n := w.count(`SELECT COUNT(*) FROM connections`); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}

// A code is worth nothing once its test account is deleted, whichever comes first
// of several that come together: a deleted account is connected to nothing.
func TestDeletedTestAccountsDoNotConnect(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		box := sandbox.NewStore(d, w.people, w.store.Ledger, w.clock.now)
		b := w.signedIn("developer@example.com")
		for i := range 12 {
			code := w.approve(b, w.sandbox, "5", "test_account", "new")
			var testID string
			if err := d.QueryRowContext(t.Context(), `SELECT account_id FROM oauth_codes
				WHERE used_us IS NULL ORDER BY account_id DESC`).Scan(&testID); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var o outcome
			if i == 0 { // before: no race
				if err := box.Delete(t.Context(), w.sandbox.OwnerID, testID); err != nil {
					t.Fatal(err)
				}
			} else {
				wg.Go(func() {
					if err := box.Delete(context.WithoutCancel(t.Context()), w.sandbox.OwnerID, testID); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() { o = w.token(w.sandbox, codeForm(code)) })
			wg.Wait()
			if o.Status != 200 && o.Error.Code != "invalid_grant" || i == 0 && o.Status == 200 {
				t.Errorf("%d: exchanged: %d %s", i, o.Status, o.Error.Code)
			}
			w.exec(`DELETE FROM oauth_codes`)
			w.clock.pass(time.Second)
		}
		if n := w.count(`SELECT COUNT(*) FROM connections WHERE status <> 'revoked'`); n != 0 {
			t.Errorf("%d connections of deleted test accounts are live", n)
		}
		if n := w.count(`SELECT SUM(reserved_mc) FROM balances`); n != 0 {
			t.Errorf("%d micro-cents are still reserved", n)
		}
		page := b.Get(authorizePath(w.sandbox)).Body
		lacks(t, page, "@test.invalid")
	})
}

// A browser in which a test account is signed in forgets it when it is deleted.
func TestDeletedTestAccountsAreSignedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("tester@example.com")
	if err := sandbox.NewStore(w.d, w.people, w.store.Ledger, w.clock.now).Delete(t.Context(), w.sandbox.OwnerID,
		w.tester.ID); err != nil {
		t.Fatal(err)
	}
	if resp := b.Get(authorizePath(w.sandbox)); resp.Status != 303 || !strings.HasPrefix(resp.To, "/sign-in") {
		t.Errorf("%d to %q", resp.Status, resp.To)
	}
	if resp := b.Post("/sign-in",
		url.Values{"email": {"tester@example.com"}, "password": {apitest.Password}}); resp.Status != 401 {
		t.Errorf("signing in again: %d", resp.Status)
	}
}

const (
	key1 = "4f1c2b3a-0d9e-4f7a-8b6c-5d4e3f2a1b0c"
	key2 = "00000000-0000-4000-8000-000000000000"
)

// decision 035: the same answer to a code for 60 s, so that a lost one costs nothing.
func TestLostAnswersAreReplayed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		code := w.approve(w.signedIn("person@example.com"), w.live, "5")
		first := w.token(w.live, codeForm(code), "Idempotency-Key", key1).want(t, "exchange", 200, "")
		w.clock.pass(time.Second)
		again := w.token(w.live, codeForm(code), "Idempotency-Key", strings.ToUpper(key1)).want(t, "again", 200, "")
		if first.Replayed || !again.Replayed || again.AccessToken != first.AccessToken ||
			again.RefreshToken != first.RefreshToken || *again.AllocationMC != *first.AllocationMC {
			t.Errorf("replayed: %+v of %+v", again, first)
		}
		w.token(w.live, refreshForm(first.RefreshToken), "Idempotency-Key", key1).want(t, "the key for something else",
			409, "idempotency_key_reused")
		w.token(w.live, refreshForm("unknown"), "Idempotency-Key", key1).want(t, "the key for nonsense", 409,
			"idempotency_key_reused")
		w.token(w.sandbox, codeForm(code), "Idempotency-Key", key1).want(t, "another app with the key", 400,
			"invalid_grant")

		second := w.token(w.live, refreshForm(first.RefreshToken), "Idempotency-Key", key2).want(t, "refresh", 200, "")
		third := w.token(w.live, refreshForm(second.RefreshToken), "Idempotency-Key", key2).want(t,
			"the key is free again once the successor is used", 200, "")
		w.token(w.live, refreshForm(third.RefreshToken), "Idempotency-Key", "x").want(t, "a key that is no UUID", 400,
			"invalid_request")
		var sealed string
		if err := d.QueryRowContext(t.Context(), `SELECT sealed FROM oauth_replays
			WHERE key = $1`, key2).Scan(&sealed); err != nil || strings.Contains(sealed, third.AccessToken[:8]) {
			t.Errorf("the kept answer shows the token (%v)", err)
		}
	})
}

// Decision 035, F-71: a refresh whose answer was lost ends no connection. The same key gets the same answer from the
// old token, on each node, until the new one is used for the first time or has expired.
func TestLostRefreshesAreReplayed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		connect := func() string {
			b := w.signedIn("person@example.com")
			return w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "exchange", 200, "").RefreshToken
		}
		old := connect()
		lost := w.token(w.live, refreshForm(old), "Idempotency-Key", key1).want(t, "refresh", 200, "")
		node2 := &Store{DB: d, Ledger: w.store.Ledger, Now: w.clock.now}
		for _, step := range []struct {
			wait      time.Duration
			expiresIn int64
		}{
			{0, 900},
			{59 * time.Second, 900},
			{5 * time.Second, 836},
			{time.Hour, 1},
			{89*24*time.Hour + 22*time.Hour, 1},
		} {
			w.clock.pass(step.wait)
			if err := w.store.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := w.token(w.live, refreshForm(old), "Idempotency-Key", key1).want(t, "again", 200, "")
			if !again.Replayed || again.RefreshToken != lost.RefreshToken || again.AccessToken != lost.AccessToken ||
				again.ConnectionID != lost.ConnectionID || again.ExpiresIn != step.expiresIn {
				t.Errorf("%s later: %+v of %+v", step.wait, again, lost)
			}
			a, err := node2.runGrant(t.Context(), w.live.App, tokenRequest{
				RefreshToken: old,
				Key:          key1,
				Fingerprint:  id.Hash(refreshForm(old).Encode()),
				ArrivedUS:    w.clock.now().UnixMicro(),
			})
			if err != nil || !a.replayed || a.tokens.RefreshToken != lost.RefreshToken {
				t.Errorf("%s later, another node: %+v, %v", step.wait, a, err)
			}
		}
		w.token(w.live, refreshForm(old)).because(t, "without the key", verdict.Used)
		w.token(w.sandbox, refreshForm(old), "Idempotency-Key", key1).because(t, "another app", verdict.Unknown)
		next := w.token(w.live, refreshForm(lost.RefreshToken), "Idempotency-Key", key2).want(t, "successor", 200, "")
		if n := w.count(`SELECT COUNT(*) FROM oauth_replays WHERE key = $1`, key1); n != 0 {
			t.Error("the answer is kept although its token was used")
		}
		w.clock.pass(time.Second)
		w.token(w.live, refreshForm(old), "Idempotency-Key", key1).because(t, "after the successor's use", verdict.Used)
		if w.alive(next.AccessToken) {
			t.Error("the old token after its successor's use left the family alive")
		}
		w.token(w.live, refreshForm(next.RefreshToken), "Idempotency-Key", key1).because(t, "its family", verdict.Used)

		old = connect()
		lost = w.token(w.live, refreshForm(old), "Idempotency-Key", key1).want(t, "refresh", 200, "")
		w.clock.pass(90 * 24 * time.Hour)
		w.token(w.live, refreshForm(old), "Idempotency-Key", key1).because(t, "after 90 days", verdict.Used)
		w.token(w.live, refreshForm(lost.RefreshToken)).because(t, "its successor after 90 days", verdict.Expired)
		if err := w.store.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.count(`SELECT (SELECT COUNT(*) FROM oauth_replays) + (SELECT COUNT(*) FROM oauth_tokens
				WHERE expires_us <= $1)`, w.clock.now().UnixMicro()); n != 0 {
			t.Errorf("%d kept answers and tokens after 90 days", n)
		}
	})
}

// Decision 035: who presents a used token with another key has it from somewhere else. The family ends; a revoked
// connection and a suspended app answer as they always do.
func TestAnotherKeyEndsTheFamily(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		connect := func() (old, lost outcome) {
			old = w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "exchange", 200, "")
			lost = w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key1).want(t, "refresh", 200, "")
			w.clock.pass(time.Second)
			return old, lost
		}
		old, lost := connect()
		w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key2).because(t, "a race", verdict.Used)
		if !w.alive(lost.AccessToken) {
			t.Fatal("the loser of a race ended the family")
		}
		w.clock.pass(2 * time.Second)
		w.token(w.sandbox, refreshForm(old.RefreshToken), "Idempotency-Key", key2).because(t, "another app",
			verdict.Unknown)
		if !w.alive(lost.AccessToken) {
			t.Fatal("another app ended the family")
		}
		w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key2).because(t, "another key", verdict.Used)
		w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key1).because(t, "its own key", verdict.Used)
		w.token(w.live, refreshForm(lost.RefreshToken)).because(t, "the successor", verdict.Used)
		if w.alive(old.AccessToken) || w.alive(lost.AccessToken) {
			t.Error("tokens outlive the family")
		}

		w.exec(`DELETE FROM oauth_replays`)
		old, lost = connect()
		w.exec(`UPDATE apps SET suspended = 1 WHERE id = $1`, w.live.ID)
		w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key1).because(t, "suspended",
			verdict.AppSuspended)
		w.exec(`UPDATE apps SET suspended = 0 WHERE id = $1`, w.live.ID)
		w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key1).want(t, "lifted", 200, "")
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := w.store.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: lost.ConnectionID})
			return err
		})
		w.token(w.live, refreshForm(old.RefreshToken), "Idempotency-Key", key1).because(t, "revoked",
			verdict.ConnectionRevoked)
	})
}

// Retries of a refresh and the first use of its successor, all at once and on two nodes: one rotation each, and every
// answer names the same tokens.
func TestParallelRetriesOfARefresh(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		nodes := []*Store{w.store, {DB: d, Ledger: w.store.Ledger, Now: w.clock.now}}
		old := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t, "exchange",
			200, "").RefreshToken
		present := func(i int, token, key string) answer {
			a, err := nodes[i%len(nodes)].runGrant(t.Context(), w.live.App,
				tokenRequest{RefreshToken: token, Key: key, Fingerprint: token, ArrivedUS: w.clock.now().UnixMicro()})
			if err != nil {
				t.Error(err)
			}
			return a
		}
		for round := range 5 {
			keys := [2]string{id.NewUUID(), id.NewUUID()}
			var wg sync.WaitGroup
			answers := make([]answer, 8)
			for i := range answers {
				wg.Go(func() { answers[i] = present(i, old, keys[0]) })
			}
			wg.Wait()
			rotations := 0
			for _, a := range answers {
				if a.rejected != nil || a.tokens.RefreshToken != answers[0].tokens.RefreshToken {
					t.Fatalf("round %d: %+v beside %+v", round, a, answers[0])
				}
				if !a.replayed {
					rotations++
				}
			}
			if rotations != 1 {
				t.Fatalf("round %d: %d rotations", round, rotations)
			}
			var next answer
			late := make([]answer, 4)
			wg.Go(func() { next = present(0, answers[0].tokens.RefreshToken, keys[1]) })
			for i := range late {
				wg.Go(func() { late[i] = present(i, old, keys[0]) }) // in the same microsecond: no reuse
			}
			wg.Wait()
			for _, a := range late {
				if a.rejected == nil && a.tokens.RefreshToken != answers[0].tokens.RefreshToken || a.reuseDetected {
					t.Fatalf("round %d: a late retry got %+v", round, a)
				}
			}
			if next.rejected != nil {
				t.Fatalf("round %d: the successor: %v", round, next.rejected)
			}
			old = next.tokens.RefreshToken
			w.clock.pass(time.Second)
		}
	})
}

// All of 16 retries with one key get the one answer.
func TestParallelRetriesShareTheAnswer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		code := w.approve(w.signedIn("person@example.com"), w.live, "5")
		outcomes := make([]outcome, 16)
		var wg sync.WaitGroup
		for i := range outcomes {
			wg.Go(func() { outcomes[i] = w.token(w.live, codeForm(code), "Idempotency-Key", key1) })
		}
		wg.Wait()
		replayed := 0
		for _, o := range outcomes {
			o.want(t, "retry", 200, "")
			if o.Replayed {
				replayed++
			}
			if o.RefreshToken != outcomes[0].RefreshToken {
				t.Error("two retries got different tokens")
			}
		}
		if replayed != 15 {
			t.Errorf("%d of 16 were replays, want 15", replayed)
		}
	})
}

// Of two answers kept at once under one key, for different requests, one is
// undone; a key is free again when its minute is over.
func TestKeptAnswersDoNotReplaceEachOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		keep := func(credential string) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return w.store.saveReplay(ctx, tx, w.live.ID, tokenRequest{
					Code:        credential,
					Key:         key1,
					Fingerprint: credential,
				}, TokenResponse{})
			})
		}
		for _, step := range []struct {
			wait       time.Duration
			credential string
			want       string
		}{{0, "one", ""}, {59 * time.Second, "two", "idempotency_key_reused"}, {time.Second, "two", ""}} {
			w.clock.pass(step.wait)
			if got := codeOf(keep(step.credential)); got != step.want {
				t.Errorf("after %s, %s: %q, want %q", step.wait, step.credential, got, step.want)
			}
		}
	})
}

// RFC 7009 and the answers that are common to both endpoints.
func TestRevocationEndpoint(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		o := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t, "exchange",
			200, "")
		r := w.token(w.live, refreshForm(o.RefreshToken)).want(t, "refresh", 200, "")
		revoke := func(app client, token string) {
			t.Helper()
			req, err := http.NewRequest("POST", w.URL+"/oauth/revoke",
				strings.NewReader(url.Values{"token": {token}, "token_type_hint": {"access_token"}}.Encode()))
			if err == nil {
				req.SetBasicAuth(app.ClientID, app.secret)
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			if resp := w.browser().Do(req, err); resp.Status != 200 || resp.Body != "{}\n" {
				t.Errorf("revoke: %d %s", resp.Status, resp.Body)
			}
		}
		revoke(w.live, "unknown")
		revoke(w.sandbox, r.RefreshToken)
		if !w.alive(r.AccessToken) || !w.alive(o.AccessToken) {
			t.Fatal("another app revoked the tokens")
		}
		revoke(w.live, o.AccessToken)
		if w.alive(o.AccessToken) || !w.alive(r.AccessToken) {
			t.Error("an access token was not revoked alone")
		}
		revoke(w.live, o.RefreshToken) // used, and still it names the family
		if w.alive(r.AccessToken) {
			t.Error("a refresh token was not revoked with its family")
		}
		w.token(w.live, refreshForm(r.RefreshToken)).want(t, "after revoke", 400, "invalid_grant")
		if conn, err := store.GetConnection(t.Context(), d, o.ConnectionID); err != nil ||
			conn.Status != rules.Active {
			t.Errorf("the connection did not stay: %+v, %v", conn, err)
		}
	})
}

// Who asks, and how: 401s and malformed bodies.
func TestTokenEndpointRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, secret := range []string{"", "wrong", w.sandbox.secret} {
		app := w.live
		app.secret = secret
		w.token(app, refreshForm("x")).want(t, "secret "+secret, 401, "unauthorized")
	}
	w.token(w.live, refreshForm("x"), "Authorization", "Bearer "+w.live.secret).want(t, "bearer", 401, "unauthorized")
	twice := refreshForm("x")
	twice.Add("refresh_token", "y")
	w.token(w.live, twice).want(t, "a parameter twice", 400, "invalid_request")
	w.token(w.live, refreshForm("x\x00")).want(t, "control characters", 400, "invalid_request")
	w.token(w.live, refreshForm("x"), "Content-Type", "application/json").want(t, "JSON", 400, "invalid_request")
	w.token(w.live, refreshForm("x"), "Content-Encoding", "gzip").want(t, "compressed", 400, "invalid_request")
	req, err := http.NewRequest("POST", w.URL+"/oauth/token?"+refreshForm("x").Encode(), nil)
	if err == nil {
		req.SetBasicAuth(w.live.ClientID, w.live.secret)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if resp := w.browser().Do(req, err); resp.Status != 400 ||
		!strings.Contains(resp.Body, "grant_type: required, in the body") {
		t.Errorf("parameters in the query: %d %s", resp.Status, resp.Body)
	}
	if resp := w.browser().Get("/oauth/token"); resp.Status != 405 {
		t.Errorf("GET /oauth/token: %d", resp.Status)
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	resp := w.browser().Get("/.well-known/oauth-authorization-server")
	body := resp.Body
	for _, want := range []string{
		`"issuer":"https://auth.example.com"`, `"authorization_endpoint":"https://auth.example.com/oauth/authorize"`,
		`"token_endpoint":"https://api.example.com/oauth/token"`,
		`"revocation_endpoint":"https://api.example.com/oauth/revoke"`,
		`"code_challenge_methods_supported":["S256"]`, `"authorization_response_iss_parameter_supported":true`,
	} {
		if resp.Status != 200 || !strings.Contains(body, want) {
			t.Errorf("discovery: %d, lacks %s", resp.Status, want)
		}
	}
}

// What can no longer matter is deleted, and nothing else.
func TestPurge(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		o := w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5")), "Idempotency-Key",
			key1).want(t, "exchange", 200, "")
		left := func() [3]int {
			if err := w.store.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			return [3]int{w.count(`SELECT COUNT(*) FROM oauth_codes`), w.count(`SELECT COUNT(*)
				FROM oauth_tokens`), w.count(`SELECT COUNT(*) FROM oauth_replays`)}
		}
		for _, step := range []struct {
			wait time.Duration
			want [3]int // codes, tokens, kept answers
		}{
			{0, [3]int{1, 2, 1}},
			{time.Minute, [3]int{1, 2, 0}},
			{14 * time.Minute, [3]int{1, 1, 0}},
			{24 * time.Hour, [3]int{0, 1, 0}},
		} {
			w.clock.pass(step.wait)
			if got := left(); got != step.want {
				t.Errorf("after another %s: %v codes, tokens, answers, want %v", step.wait, got, step.want)
			}
		}
		w.token(w.live, refreshForm(o.RefreshToken)).want(t, "refresh after the purge", 200, "")
	})
}

// A token counts as revoked when it was revoked itself, or its family, also once its own row is gone, however often the
// family was refreshed.
func TestRevokedTokens(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		list := []outcome{w.token(w.live, codeForm(w.approve(w.signedIn("person@example.com"), w.live, "5"))).want(t,
			"exchange", 200, "")}
		for range 4 {
			w.clock.pass(time.Second)
			last := list[len(list)-1].RefreshToken
			list = append(list, w.token(w.live, refreshForm(last)).want(t, "refresh", 200, ""))
		}
		var family string
		if err := d.QueryRowContext(t.Context(), `SELECT MIN(family_id) FROM oauth_tokens`).Scan(&family); err != nil {
			t.Fatal(err)
		}
		wantRevoked := func(what string, want ...bool) {
			t.Helper()
			for i, o := range list {
				if got, err := w.store.IsRevoked(t.Context(), o.AccessToken, family); err != nil || got != want[i] {
					t.Errorf("%s: access token %d: %t, %v", what, i, got, err)
				}
			}
		}
		wantRevoked("in order", false, false, false, false, false)
		revoke := func(token string) {
			t.Helper()
			if err := w.store.RevokeToken(t.Context(), w.live.ID, token); err != nil {
				t.Fatal(err)
			}
		}
		revoke(list[4].AccessToken)
		wantRevoked("one access token", false, false, false, false, true)
		w.exec(`DELETE FROM oauth_tokens WHERE hash = $1`, id.Hash(list[0].AccessToken)) // as when it has expired
		revoke(list[2].RefreshToken)
		wantRevoked("the family", true, true, true, true, true)
	})
}
