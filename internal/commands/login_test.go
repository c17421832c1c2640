package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/id"
)

// fakeService answers as a service does, with tokens of a number that rises.
type fakeService struct {
	*httptest.Server
	polls, refreshes atomic.Int64
	// answer, if set, answers the n-th poll or refresh, counted from 1, and returns true.
	answer func(w http.ResponseWriter, r *http.Request, n int64) bool
}

func newFakeService(t *testing.T) *fakeService {
	t.Helper()
	f := &fakeService{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(service{
			Issuer:             f.URL,
			TokenEndpoint:      f.URL + "/oauth/token",
			DeviceEndpoint:     f.URL + "/oauth/device_authorization",
			RevocationEndpoint: f.URL + "/oauth/revoke",
		})
	})
	mux.HandleFunc("POST /oauth/device_authorization", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_id") != "cid_public" {
			refuse(w, 401, `{"error":"invalid_client","error_description":"x"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"device_code":"secret","user_code":"WDJB-MJHT","verification_uri":"%s/device",`+
			`"verification_uri_complete":"%s/device?user_code=WDJB-MJHT","expires_in":20,"interval":1}`, f.URL, f.URL)
	})
	mux.HandleFunc("POST /oauth/token", func(w http.ResponseWriter, r *http.Request) {
		n := f.refreshes.Load()
		if r.FormValue("grant_type") == "refresh_token" {
			n = f.refreshes.Add(1)
		} else {
			f.polls.Add(1)
		}
		if f.answer != nil && f.answer(w, r, max(n, f.polls.Load())) {
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"access-%d","refresh_token":"refresh-%d","expires_in":900}`, n, n)
	})
	mux.HandleFunc("POST /oauth/revoke", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func refuse(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// signedIn returns an environment with a login at the service whose access token ends at expires.
func (f *fakeService) signedIn(t *testing.T, expires time.Time) (environ []string, logins loginStore, l login) {
	t.Helper()
	environ = []string{"XDG_CONFIG_HOME=" + t.TempDir()}
	logins, err := newLoginStore(environ)
	if err != nil {
		t.Fatal(err)
	}
	l = login{
		Server:             f.URL,
		ClientID:           "cid_public",
		TokenEndpoint:      f.URL + "/oauth/token",
		RevocationEndpoint: f.URL + "/oauth/revoke",
		AccessToken:        "access-0",
		RefreshToken:       "refresh-0",
		ExpiresAt:          expires,
	}
	if _, err := logins.replace(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return environ, logins, l
}

// A login shows the code, polls, and keeps the tokens for their owner only; a logout deletes them.
func TestLogin(t *testing.T) {
	t.Parallel()
	f := newFakeService(t)
	f.answer = func(w http.ResponseWriter, r *http.Request, n int64) bool {
		switch n {
		case 1:
			refuse(w, 400, `{"error":"authorization_pending","error_description":"x"}`)
		case 2:
			refuse(w, 503, `{"error":"temporarily_unavailable","error_description":"x"}`)
		default:
			return false
		}
		return true
	}
	config := t.TempDir()
	environ := []string{"HOME=/nowhere", "XDG_CONFIG_HOME=" + config}
	code, out, stderr := command(environ, "login", "--server", f.URL+"/", "--client", "cid_public")
	if code != exitOK || stderr != "" || !strings.Contains(out, "WDJB-MJHT") ||
		!strings.Contains(out, f.URL+"/device?user_code=WDJB-MJHT") || !strings.Contains(out, "Signed in.") ||
		strings.Contains(out, "access-") || strings.Contains(out, "secret") {
		t.Errorf("login: %d\n%s%s", code, out, stderr)
	}
	files, err := filepath.Glob(config + "/purser/logins/*")
	if err != nil || len(files) != 2 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, path := range append(files, config+"/purser/logins") {
		want := os.FileMode(0o600)
		if info, err := os.Stat(path); err != nil {
			t.Error(err)
		} else if info.IsDir() && info.Mode().Perm() != 0o700 || !info.IsDir() && info.Mode() != want {
			t.Errorf("%s: mode %v", path, info.Mode())
		}
	}
	if code, out, stderr = command(environ, "token"); code != exitOK || out != "access-0\n" || stderr != "" {
		t.Errorf("token: %d %q %q", code, out, stderr)
	}
	if code, out, _ = command(environ, "logout", "--server", f.URL); code != exitOK ||
		!strings.Contains(out, "Signed out") {
		t.Errorf("logout: %d %q", code, out)
	}
	for _, args := range [][]string{{"token"}, {"logout"}} {
		if code, out, stderr = command(environ, args...); code != exitFailed || out != "" ||
			!strings.Contains(stderr, "not signed in; run purser login") {
			t.Errorf("%s after logout: %d %q %q", args, code, out, stderr)
		}
	}
}

// What ends a login before it began says why.
func TestLoginFails(t *testing.T) {
	t.Parallel()
	f := newFakeService(t)
	environ := []string{"HOME=" + t.TempDir()}
	for _, c := range []struct {
		name    string
		environ []string
		args    []string
		poll    string // answer to the poll
		code    int
		says    string
	}{
		{name: "no client", code: exitUsage, says: "--client"},
		{
			name: "http elsewhere",
			args: []string{"--client", "x", "--server", "http://purser.example.com"},
			code: exitUsage,
			says: "--server: must begin with https://",
		},
		{
			name: "no address",
			args: []string{"--client", "x", "--server", "purser.example.com"},
			code: exitUsage,
			says: "--server: must be an address such as",
		},
		{
			name: "unreachable",
			args: []string{"--client", "x", "--server", "http://127.0.0.1:1"},
			code: exitFailed,
			says: "can’t reach the service",
		},
		{
			name: "another address of the service",
			args: []string{"--client", "cid_public", "--server", strings.Replace(f.URL, "127.0.0.1", "localhost", 1)},
			code: exitUsage,
			says: "calls itself",
		},
		{
			name: "no public client",
			args: []string{"--client", "cid_other", "--server", f.URL},
			code: exitFailed,
			says: "cid_other is no public client of this service",
		},
		{
			name:    "no home",
			environ: []string{"XDG_CONFIG_HOME=relative"},
			args:    []string{"--client", "x"},
			code:    exitUsage,
			says:    "HOME or XDG_CONFIG_HOME: required",
		},
	} {
		if c.environ == nil {
			c.environ = environ
		}
		code, out, stderr := command(c.environ, append([]string{"login"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: %d %q %q", c.name, code, out, stderr)
		}
	}
	for poll, says := range map[string]string{
		`{"error":"access_denied","error_description":"x"}`:           "you denied the request",
		`{"error":"expired_token","error_description":"x"}`:           "the code has expired",
		`{"error":"invalid_grant","error_description":"it was used"}`: "invalid_grant: it was used",
	} {
		f.answer = func(w http.ResponseWriter, _ *http.Request, _ int64) bool { refuse(w, 400, poll); return true }
		code, _, stderr := command(environ, "login", "--client", "cid_public", "--server", f.URL)
		if code != exitFailed || !strings.Contains(stderr, says) {
			t.Errorf("%s: %d %q", poll, code, stderr)
		}
	}
}

// An access token that ends soon is refreshed, by the same key each time until the answer is stored.
func TestTokenRefreshes(t *testing.T) {
	t.Parallel()
	f := newFakeService(t)
	var keys []string
	f.answer = func(w http.ResponseWriter, r *http.Request, n int64) bool {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if n < 3 {
			refuse(w, 503, `{"error":{"code":"unavailable","message":"x"}}`)
		}
		return n < 3
	}
	environ, logins, l := f.signedIn(t, time.Now().Add(minValidity))
	if code, out, stderr := command(environ, "token"); code != exitOK || out != "access-3\n" || stderr != "" {
		t.Errorf("token: %d %q %q", code, out, stderr)
	}
	if len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("keys: %q", keys)
	}
	if _, ok := id.ParseUUID(keys[0]); !ok {
		t.Errorf("key %q", keys[0])
	}
	kept, err := logins.read(l.file())
	if err != nil || kept.RefreshToken != "refresh-3" || kept.RefreshKey != "" ||
		!kept.isFresh(time.Now().Add(12*time.Minute)) {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	if code, out, _ := command(environ, "token"); code != exitOK || out != "access-3\n" || f.refreshes.Load() != 3 {
		t.Errorf("again: %d %q after %d refreshes", code, out, f.refreshes.Load())
	}
}

// A process that ends within a refresh, or can't store its tokens, leaves the key in the file. The next one sends the
// same key with the same token, and refreshes once more if the response that comes again is old.
func TestTokenIsResumed(t *testing.T) {
	t.Parallel()
	f := newFakeService(t)
	environ, logins, l := f.signedIn(t, time.Now())
	path := filepath.Join(logins.folder, l.file())
	var keys, used []string
	var draft []byte
	f.answer = func(w http.ResponseWriter, r *http.Request, n int64) bool {
		keys, used = append(keys, r.Header.Get("Idempotency-Key")), append(used, r.FormValue("refresh_token"))
		switch n {
		case 1: // the new tokens can't be stored
			draft, _ = os.ReadFile(path)
			if err := errors.Join(os.Remove(path), os.MkdirAll(path+"/full", 0o700)); err != nil {
				t.Error(err)
			}
		case 2: // the same response, an hour later
			_, _ = w.Write([]byte(`{"access_token":"access-1","refresh_token":"refresh-1","expires_in":1}`))
			return true
		}
		return false
	}
	if code, out, stderr := command(environ, "token"); code != exitFailed || out != "" ||
		!strings.Contains(stderr, "nothing is lost") {
		t.Errorf("full: %d %q %q", code, out, stderr)
	}
	var kept login
	err := errors.Join(json.Unmarshal(draft, &kept), os.RemoveAll(path), os.WriteFile(path, draft, 0o600))
	if err != nil || kept.RefreshToken != "refresh-0" || kept.RefreshKey != keys[0] {
		t.Fatalf("the key %q was not stored before it was sent: %+v, %v", keys, kept, err)
	}
	if code, out, stderr := command(environ, "token"); code != exitOK || out != "access-3\n" || stderr != "" {
		t.Errorf("again: %d %q %q", code, out, stderr)
	}
	if len(keys) != 3 || keys[1] != keys[0] || keys[2] == keys[0] || used[1] != "refresh-0" || used[2] != "refresh-1" {
		t.Errorf("keys %q, tokens %q", keys, used)
	}

	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path+"/full", 0o700)); err != nil {
		t.Fatal(err)
	}
	l.ExpiresAt = time.Now()
	if _, err := logins.exchange(t.Context(), newOAuthClient(), l); err == nil || f.refreshes.Load() != 3 {
		t.Errorf("the key can't be stored: %d refreshes, %v", f.refreshes.Load(), err)
	}
}

// Why there is no token is said on standard error; standard output stays empty.
func TestTokenFails(t *testing.T) {
	t.Parallel()
	envelope := `{"error":{"code":"invalid_grant","message":"x","details":{"reason":%q}}}`
	for body, says := range map[string]string{
		fmt.Sprintf(envelope, "connection_revoked"): "the connection was revoked; run purser login",
		fmt.Sprintf(envelope, "app_suspended"):      "the app is suspended",
		fmt.Sprintf(envelope, "expired"):            "the login has expired",
		fmt.Sprintf(envelope, "used"):               "the login has ended; run purser login",
		"<html>":                                    "answered 400; is this the address",
	} {
		f := newFakeService(t)
		f.answer = func(w http.ResponseWriter, _ *http.Request, _ int64) bool { refuse(w, 400, body); return true }
		environ, logins, l := f.signedIn(t, time.Now())
		if code, out, stderr := command(environ, "token"); code != exitFailed || out != "" ||
			!strings.Contains(stderr, says) || f.refreshes.Load() != 1 {
			t.Errorf("%s: %d %q %q after %d tries", body, code, out, stderr, f.refreshes.Load())
		}
		if kept, err := logins.read(l.file()); err != nil || kept.RefreshToken != "refresh-0" {
			t.Errorf("%s: kept %+v, %v", body, kept, err)
		}
	}
	f := newFakeService(t)
	environ, logins, l := f.signedIn(t, time.Now())
	f.Close()
	if code, _, stderr := command(environ, "token"); code != exitFailed ||
		!strings.Contains(stderr, "can’t reach the service") {
		t.Errorf("unreachable: %d %q", code, stderr)
	}
	if code, _, stderr := command(environ, "logout"); code != exitFailed ||
		!strings.Contains(stderr, "deleted here, but were not revoked") {
		t.Errorf("logout, unreachable: %d %q", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(logins.folder, l.file())); !os.IsNotExist(err) {
		t.Errorf("the tokens stay: %v", err)
	}
}

// With several logins the flags choose; a broken file says which it is.
func TestSeveralLogins(t *testing.T) {
	t.Parallel()
	f := newFakeService(t)
	environ, logins, l := f.signedIn(t, time.Now().Add(time.Hour))
	l.ClientID, l.AccessToken = "cid_second", "access-second"
	if _, err := logins.replace(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := command(environ, "token"); code != exitUsage || out != "" ||
		!strings.Contains(stderr, "choose one by --server and --client") {
		t.Errorf("without flags: %d %q %q", code, out, stderr)
	}
	if code, out, _ := command(environ, "token", "--client", "cid_second"); code != exitOK || out != "access-second\n" {
		t.Errorf("by client: %d %q", code, out)
	}
	if code, _, stderr := command(environ, "token", "--server", "https://other.example.com"); code != exitFailed ||
		!strings.Contains(stderr, "not signed in") {
		t.Errorf("elsewhere: %d %q", code, stderr)
	}
	if err := os.WriteFile(filepath.Join(logins.folder, l.file()), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(environ, "token"); code != exitFailed || !strings.Contains(stderr, l.file()) {
		t.Errorf("a broken file: %d %q", code, stderr)
	}
}

// A process that holds the lock for too long is named, and the wait ends.
func TestLockedLogin(t *testing.T) {
	t.Parallel()
	f := newFakeService(t)
	_, logins, l := f.signedIn(t, time.Now())
	unlock, err := logins.lock(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := logins.refresh(ctx, newOAuthClient(), l); err == nil ||
		!strings.Contains(err.Error(), "another purser process") {
		t.Errorf("locked: %v", err)
	}
	unlock()
	if got, err := logins.refresh(t.Context(), newOAuthClient(), l); err != nil || got.AccessToken != "access-1" {
		t.Errorf("unlocked: %+v, %v", got, err)
	}
}
