package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/base/web"
)

// The PKCE pair of RFC 7636, appendix B. It is public, so it serves the sample
// link of dev and nothing else.
const (
	devVerifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	devChallenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	devState     = "from-the-home-page"
)

// Dev is the sample app of the development set-up: its redirect address is
// served here, at /dev/callback.
type Dev struct {
	BaseURL, AuthURL, DashboardURL string
	ClientID, ClientSecret         string
}

// RedirectURI is the address to register for the sample app.
func (d Dev) RedirectURI() string { return d.DashboardURL + "/dev/callback" }

// ConnectURL is an authorize address for the sample app, for Home.
func (d Dev) ConnectURL() string {
	return d.AuthURL + "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {d.ClientID}, "redirect_uri": {d.RedirectURI()}, "state": {devState},
		"code_challenge": {devChallenge}, "code_challenge_method": {"S256"}, "requested_allocation_mc": {"1000000000"},
	}.Encode()
}

// Mount serves /dev/callback. It is for the development set-up only: the page
// shows the secret of the sample app.
func (d Dev) Mount(rt *web.Router) {
	rt.HandlePage("GET /dev/callback", d.callback)
}

func (d Dev) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	c := Callback{
		Code: q.Get("code"), State: q.Get("state"), Issuer: q.Get("iss"),
		Denied: q.Get("error"), Description: q.Get("error_description"),
	}
	if c.Code != "" {
		c.Curl = d.curl(c.Code, c.State)
	}
	return Render(w, http.StatusOK, c)
}

// curl is the exchange of the code as a command. What came with the address is
// quoted for the shell, since it will be pasted there.
func (d Dev) curl(code, state string) string {
	verifier := "YOUR_CODE_VERIFIER"
	if state == devState {
		verifier = devVerifier
	}
	return fmt.Sprintf(
		"curl -s -u %s \\\n  -d grant_type=authorization_code \\\n  --data-urlencode %s \\\n  --data-urlencode %s \\\n  -d code_verifier=%s \\\n  %s/oauth/token",
		quote(d.ClientID+":"+d.ClientSecret), quote("code="+code), quote("redirect_uri="+d.RedirectURI()), verifier,
		d.BaseURL)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
