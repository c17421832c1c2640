package oauth

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Decision 065: a public client exchanges its code, refreshes and revokes by its client_id and the verifier.
func TestPublicClient(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		code := w.approve(b, w.public, "5")
		stolen := codeForm(code)
		stolen.Set("code_verifier", verifier+"A")
		w.token(w.public, stolen).because(t, "without the verifier", verdict.VerifierMismatch)
		first := w.token(w.public, codeForm(code)).want(t, "exchange", 200, "")
		second := w.token(w.public, refreshForm(first.RefreshToken)).want(t, "refresh", 200, "")
		if second.AccessToken == first.AccessToken || second.RefreshToken == first.RefreshToken {
			t.Error("a refresh gave the same tokens")
		}
		third := w.token(w.public, refreshForm(second.RefreshToken)).want(t, "refresh", 200, "")
		w.clock.pass(time.Second)
		w.token(w.public, refreshForm(first.RefreshToken)).because(t, "a token that came twice", verdict.Used)
		if w.alive(third.AccessToken) {
			t.Error("the family of a token that came twice still works")
		}

		again := w.token(w.public, codeForm(w.approve(b, w.public, "5"))).want(t, "another", 200, "")
		w.post("/oauth/revoke", w.public, url.Values{"token": {again.RefreshToken}}).want(t, "revoke", 200, "")
		if w.alive(again.AccessToken) {
			t.Error("a revoked token works")
		}
	})
}

// A client_id without a secret opens nothing to a confidential client, and a public one sends no wrong credentials.
func TestClientIDAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	code := w.approve(w.signedIn("person@example.com"), w.live, "5")
	none := w.token(client{}, codeForm(code)).want(t, "no client", 401, "unauthorized")
	unknown := client{}
	unknown.ClientID = "cid_unknown"
	for what, c := range map[string]client{"a confidential client": {App: w.live.App}, "an unknown client": unknown} {
		if got := w.token(c, codeForm(code)).want(t, what, 401, "unauthorized"); got.Body != none.Body {
			t.Errorf("%s: %s, without one %s", what, got.Body, none.Body)
		}
	}
	inBody := codeForm(code)
	inBody.Set("client_secret", w.live.secret)
	w.token(client{App: w.live.App}, inBody).want(t, "the secret in the body", 401, "unauthorized")
	w.token(client{App: w.public.App}, inBody).want(t, "a secret of a public client in the body", 401, "unauthorized")
	w.token(client{w.public.App, "wrong"}, codeForm(code)).want(t, "wrong credentials", 401, "unauthorized")
	w.token(w.public, codeForm(code)).because(t, "another client's code", verdict.Unknown)
	w.token(w.live, codeForm(code)).want(t, "its own client", 200, "")
}

// RFC 8252 §7.3: a public client returns to a loopback address with any port.
func TestLoopbackRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person@example.com")
	const back = "http://127.0.0.1:53682/cb"
	path := authorizePath(w.public, "redirect_uri="+back)
	page := b.Get(path).Want(t, http.StatusOK, "On your own device.", "127.0.0.1:53682")
	has(t, page.Header.Get("Content-Security-Policy"), "form-action 'self' https: http:")
	p := b.Post(path, approval("5"))
	to, err := url.Parse(p.To)
	if err != nil || p.Status != http.StatusFound || to.Host != "127.0.0.1:53682" || to.Query().Get("code") == "" {
		t.Fatalf("approved: %d to %q", p.Status, p.To)
	}
	form := codeForm(to.Query().Get("code"))
	form.Set("redirect_uri", "http://127.0.0.1:53683/cb")
	w.token(w.public, form).because(t, "another port than that of the request", verdict.RedirectURIMismatch)
	form.Set("redirect_uri", back)
	w.token(w.public, form).want(t, "exchange", 200, "")
	b.Get(authorizePath(w.sandbox, "redirect_uri=http://127.0.0.1:10/cb")).Want(t, http.StatusBadRequest)
	b.Get(authorizePath(w.live)).Want(t, http.StatusOK).Lacks(t, "On your own device.")
}

// The devices of a public client share its client_id, so one address must not use up the requests of the others.
func TestPublicClientLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	var last outcome
	for range 101 {
		last = w.token(w.public, refreshForm("unknown"))
	}
	last.want(t, "the request after the burst", 429, "rate_limited")
	w.token(client{w.public.App, "wrong"}, refreshForm("unknown")).want(t, "credentials", 401, "unauthorized")
}
