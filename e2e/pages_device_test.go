package e2e

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// publicClient is the sample app that runs on users' devices. The library finds out by itself how to authenticate.
func publicClient(p *servertest.Process) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.PublicApp.ClientID,
		Endpoint: oauth2.Endpoint{
			AuthURL:       p.AuthURL + "/oauth/authorize",
			DeviceAuthURL: p.BaseURL + "/oauth/device_authorization",
			TokenURL:      p.BaseURL + "/oauth/token",
		},
	}
}

// TestDeviceFlow connects a command line by golang.org/x/oauth2, and its user in a browser: a wrong
// code, the right one, the consent screen. Then the user denies, and a code expires.
func TestDeviceFlow(t *testing.T) {
	testkit.Long(t, "package oauth proves it over HTTP, and TestSDKConformance by each SDK")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		config := publicClient(p)
		b := newTab(t, p.BaseURL)
		start := func() *oauth2.DeviceAuthResponse {
			device, err := config.DeviceAuth(soon(t), oauth2.SetAuthURLParam("requested_allocation_mc", "700000000"))
			if err != nil {
				t.Fatal(err)
			}
			return device
		}
		type result struct {
			token *oauth2.Token
			err   error
		}
		poll := func(device *oauth2.DeviceAuthResponse) chan result {
			done := make(chan result, 1)
			go func() {
				token, err := config.DeviceAccessToken(soon(t), device)
				done <- result{token, err}
			}()
			return done
		}

		device := start()
		got := poll(device)
		if status := b.open(device.VerificationURI); status != http.StatusOK || b.at().Path != "/sign-in" {
			t.Fatalf("the address leads to %d %s", status, b.at())
		}
		if b.signIn(p.TestAccount.Email, p.TestAccount.Password); b.at().Path != "/device" {
			t.Fatalf("signing in leads to %s", b.at())
		}
		b.says("Only continue if you started this yourself")
		b.fill("Code", "wdjb mjht")
		if status := b.press("button", "Continue"); status != http.StatusUnprocessableEntity ||
			b.value("Code") != "wdjb mjht" || !b.described("Code").invalid {
			t.Errorf("a wrong code: %d, and the form keeps %q", status, b.value("Code"))
		}
		b.says("This code isn’t valid")
		b.fill("Code", device.UserCode)
		if status := b.press("button", "Continue"); status != http.StatusOK {
			t.Errorf("the code leads to %d", status)
		}
		b.unfold()
		b.says("Sample command line", device.UserCode, "Allow this only if you started it yourself",
			"On your own device.", p.TestAccount.Email, "Every offered model", "To revoke")
		if v := b.cap(); v != "7.00" {
			t.Errorf("the cap is pre-filled with %q", v)
		}
		b.fillCap("6")
		b.pressFirst("Allow")
		b.says("Approved", "Go back to Sample command line")
		first := <-got
		if first.err != nil {
			t.Fatal(first.err)
		}
		if _, err := ask(t, p, first.token.AccessToken, model, "Hello"); err != nil {
			t.Error(err)
		}
		var c struct {
			Allocation int64 `json:"allocation_mc"`
		}
		if send(t, p, "GET", "/v1/connection", "", "Bearer "+first.token.AccessToken, &c); c.Allocation != 600_000_000 {
			t.Errorf("the connection is %+v", c)
		}
		old := &oauth2.Token{RefreshToken: first.token.RefreshToken}
		if _, err := config.TokenSource(t.Context(), old).Token(); err != nil {
			t.Errorf("refreshed: %v", err)
		}

		denied := start()
		got = poll(denied)
		b.open(denied.VerificationURIComplete)
		if v := b.value("Code"); v != denied.UserCode {
			t.Errorf("the link fills in %q", v)
		}
		b.press("button", "Continue")
		b.says("Already connected", "$6.00")
		b.press("button", "Not now")
		b.says("Denied", "Nothing was shared or charged")
		if end := <-got; errorCode(end.err) != "access_denied" {
			t.Errorf("denied: %v", end.err)
		}

		late := start()
		write(t, p, `UPDATE oauth_device_codes SET expires_us = 1 WHERE decided_us IS NULL`)
		got = poll(late)
		b.open(late.VerificationURIComplete)
		b.press("button", "Continue")
		b.says("This code isn’t valid")
		if end := <-got; errorCode(end.err) != "expired_token" {
			t.Errorf("expired: %v", end.err)
		}
	})
}

// errorCode returns the error that the library has read from the answer.
func errorCode(err error) string {
	if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return failed.ErrorCode
	}
	return ""
}

// TestLoopbackRedirect connects a desktop app in a browser on the same machine (RFC 8252): the app
// listens on a free port of the loopback address, which is registered without one.
func TestLoopbackRedirect(t *testing.T) {
	testkit.Long(t, "package oauth proves it over HTTP")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		config := publicClient(p)
		back := make(chan url.Values, 1)
		config.RedirectURL = serveLoopback(t, "/callback", func(q url.Values) { back <- q })
		verifier := oauth2.GenerateVerifier()
		b := newTab(t, p.BaseURL, strings.TrimSuffix(config.RedirectURL, "/callback"))
		b.open(config.AuthCodeURL("state", oauth2.S256ChallengeOption(verifier)))
		b.signIn(p.TestAccount.Email, p.TestAccount.Password)
		b.says("On your own device.", "You’ll return to 127.0.0.1:")
		b.pressFirst("Allow")
		q := <-back
		token, err := config.Exchange(t.Context(), q.Get("code"), oauth2.VerifierOption(verifier))
		if err != nil || q.Get("state") != "state" || q.Get("iss") != p.AuthURL {
			t.Fatalf("exchanged with %v: %v", q, err)
		}
		if _, err := ask(t, p, token.AccessToken, model, "Hello"); err != nil {
			t.Error(err)
		}
	})
}

// serveLoopback serves a path on a free port of 127.0.0.1 and returns its address.
func serveLoopback(t *testing.T, path string, visited func(url.Values)) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("You can close this page."))
		visited(r.URL.Query())
	})
	s := httptest.NewServer(mux) // on 127.0.0.1
	t.Cleanup(s.Close)
	return s.URL + path
}
