package calltest

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

	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// TestAccount is one as the API shows it when it is made.
type TestAccount struct {
	ID        string `json:"wac_id"`
	Email     string `json:"email"`
	Password  string `json:"password"`
	Available int64  `json:"balance_available_mc"`
	Reserved  int64  `json:"balance_reserved_mc"`
}

// Connect signs in on the pages as somebody, consents to a cap with what more
// says, and exchanges the code: the whole of contract §5.
func Connect(t testing.TB, p *nodetest.Node, email, password, amount string,
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
