package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// testAccount is one as the API shows it when it is made.
type testAccount struct {
	ID        string `json:"wac_id"`
	Email     string `json:"email"`
	Password  string `json:"password"`
	Available int64  `json:"balance_available_mc"`
	Reserved  int64  `json:"balance_reserved_mc"`
}

// connectAs signs in on the pages as somebody, consents to a cap with what more
// says, and exchanges the code: the whole of contract §5.
func connectAs(t *testing.T, p *nodetest.Node, email, password, amount string,
	more ...string) (accessToken, connectionID string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{
		Jar:           jar,
		Transport:     apitest.Transport(t, nil),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	post := func(path string, form url.Values, want int) *http.Response {
		t.Helper()
		resp, err := browser.PostForm(p.AuthURL+path, form)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if page, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %d, %v\n%s", path, resp.StatusCode, err, page)
		}
		return resp
	}
	const verifier = "a-verifier-of-at-least-forty-three-characters"
	challenge := sha256.Sum256([]byte(verifier))
	post("/sign-in", url.Values{"email": {email}, "password": {password}, "next": {"/"}}, http.StatusSeeOther)
	form := url.Values{"decision": {"approve"}, "spend_cap": {amount}, "daily_limit": {""}}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	resp := post("/oauth/authorize?"+url.Values{
		"response_type": {"code"}, "client_id": {p.App.ClientID}, "redirect_uri": {p.App.RedirectURI}, "state": {"st"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}.Encode(), form, http.StatusFound)
	back, err := resp.Location()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.BaseURL+"/oauth/token", strings.NewReader(url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {back.Query().Get("code")},
		"redirect_uri":  {p.App.RedirectURI},
		"code_verifier": {verifier},
	}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
	exchanged, err := apitest.Transport(t, nil).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer exchanged.Body.Close()
	var tokens struct {
		AccessToken  string `json:"access_token"`
		ConnectionID string `json:"connection_id"`
	}
	if err := json.NewDecoder(exchanged.Body).Decode(&tokens); err != nil || exchanged.StatusCode != http.StatusOK {
		t.Fatalf("exchange: %d, %v", exchanged.StatusCode, err)
	}
	return tokens.AccessToken, tokens.ConnectionID
}

// A developer makes a test account over the API, connects as it on the pages,
// calls a model with money that is not real, and deletes it: from then on its
// token is refused, and the books still hold.
func TestTestAccountsEndToEnd(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
		at := "/v1/apps/" + p.App.ID + "/test-accounts"
		var a testAccount
		made := c.Do(t, "POST", at, "")
		if err := json.Unmarshal([]byte(made.Body), &a); err != nil || made.Status != http.StatusOK {
			t.Fatal(made, err)
		}
		token, connectionID := connectAs(t, p, a.Email, a.Password, "2.50")
		call := func() *http.Response {
			return p.Call("POST", luna, prompt("Hello"), "Authorization: Bearer "+token)
		}
		if got := whole(t, call()); got.status != http.StatusOK {
			t.Fatalf("a call: %d %s", got.status, got.body)
		}
		var funded testAccount
		if got := c.Do(t, "POST", at+"/"+a.ID+"/fund", `{"amount_mc":100000000}`); json.Unmarshal([]byte(got.Body),
			&funded) != nil ||
			funded.Available != a.Available-250_000_000+100_000_000 || funded.Reserved >= 250_000_000 ||
			funded.Reserved < 249_000_000 {
			t.Errorf("funded: %v", got)
		}
		if got := c.Do(t, "DELETE", at+"/"+a.ID, ""); got.Status != http.StatusNoContent {
			t.Errorf("deleted: %v", got)
		}
		if got := whole(t, call()); got.status != http.StatusForbidden ||
			!strings.Contains(got.body, "connection_revoked") {
			t.Errorf("a call after it was deleted: %d %s", got.status, got.body)
		}
		if got := c.Do(t, "GET", "/v1/connections/"+connectionID, ""); !strings.Contains(got.Body,
			`"status":"revoked"`) || !strings.Contains(got.Body, `"type":"spend"`) {
			t.Errorf("its connection: %v", got)
		}
		_, other := connectAs(t, p, p.Developer.Email, p.Developer.Password, "1", "test_account", "new")
		// the seeded one and the new one
		if got := c.Do(t, "GET", at, ""); strings.Count(got.Body, "wac_id") != 2 || other == connectionID {
			t.Errorf("listed: %v", got)
		}
	})
}

// With providers=emulator a sandbox app in live mode reaches the emulated
// provider, also as a test account of today.
func TestSandboxLiveModeReachesTheEmulator(t *testing.T) {
	t.Parallel()
	n := startEmulated(t, db.SQLite)
	token, _ := connectAs(t, n.Node, n.Developer.Email, n.Developer.Password, "5", "test_account", "new")
	for _, v := range vendors {
		if got := whole(t,
			n.Call("POST", "/v1/ai/"+v.model, prompt("What is new, "+v.name+"?"),
				"Authorization: Bearer "+token)); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", v.name, got.status, got.body)
		}
		resp, err := http.Get(n.url + "/emulator/requests")
		if err != nil {
			t.Fatal(err)
		}
		seen, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read
		if err != nil || !strings.Contains(string(seen), "What is new, "+v.name+"?") {
			t.Errorf("%s: the emulator was not asked: %v %s", v.name, err, seen)
		}
	}
	n.Verify()
}
