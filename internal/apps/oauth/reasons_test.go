package oauth

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Decision 033: an authenticated client reads why its code or refresh token is refused. What is another client's is
// unknown, byte by byte.
func TestInvalidGrantSaysWhy(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		unknown := w.token(w.live, codeForm("never-was")).because(t, "an unknown code", verdict.Unknown)
		foreign := func(what string, app client, form url.Values) {
			t.Helper()
			if o := w.token(app, form); o.Status != 400 || o.Body != unknown.Body {
				t.Errorf("%s, by another app: %d %s, want %s", what, o.Status, o.Body, unknown.Body)
			}
		}
		foreign("an unknown token", w.live, refreshForm("never-was"))

		code := w.approve(b, w.live, "5")
		foreign("a code", w.sandbox, codeForm(code))
		form := codeForm(code)
		form.Set("redirect_uri", callback+"/")
		w.token(w.live, form).because(t, "another redirect_uri", verdict.RedirectURIMismatch)
		form = codeForm(code)
		form.Set("code_verifier", strings.Repeat("a", 43))
		w.token(w.live, form).because(t, "another verifier", verdict.VerifierMismatch)
		w.clock.pass(verdict.CodeTTL)
		w.token(w.live, codeForm(code)).because(t, "an old code", verdict.Expired)
		foreign("an old code", w.sandbox, codeForm(code))

		code = w.approve(b, w.live, "5")
		first := w.token(w.live, codeForm(code)).want(t, "exchange", 200, "")
		foreign("a used code", w.sandbox, codeForm(code))
		foreign("a refresh token", w.sandbox, refreshForm(first.RefreshToken))
		foreign("an access token", w.live, refreshForm(first.AccessToken))
		second := w.token(w.live, refreshForm(first.RefreshToken)).want(t, "refresh", 200, "")
		w.clock.pass(time.Second)
		w.token(w.live, refreshForm(first.RefreshToken)).because(t, "a used token", verdict.Used)
		w.clock.pass(verdict.RefreshTokenTTL)
		w.token(w.live, refreshForm(second.RefreshToken)).because(t, "an old token", verdict.Expired)

		b = w.signedIn("person@example.com")
		code = w.approve(b, w.live, "5")
		third := w.token(w.live, codeForm(code)).want(t, "exchange", 200, "")
		w.clock.pass(time.Second)
		w.token(w.live, codeForm(code)).because(t, "a used code", verdict.Used)
		w.token(w.live, refreshForm(third.RefreshToken)).because(t, "a token of a revoked family", verdict.Used)

		fourth := w.token(w.live, codeForm(w.approve(b, w.live, "5"))).want(t, "exchange", 200, "")
		w.tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := w.store.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: fourth.ConnectionID})
			return err
		})
		w.token(w.live, refreshForm(fourth.RefreshToken)).because(t, "a revoked connection", verdict.ConnectionRevoked)
		foreign("a token of a revoked connection", w.sandbox, refreshForm(fourth.RefreshToken))
	})
}
