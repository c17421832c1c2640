package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// administer sends a request with the app's credentials, or with the operator's token
// to the operator's routes.
func administer(t *testing.T, p *servertest.Process, method, path, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.BaseURL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
	if strings.HasPrefix(path, "/v1/operator/") {
		token, err := os.ReadFile(p.OperatorFile)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var out map[string]any
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(text, &out) != nil {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return out
}

// goLive takes the sample app out of the sandbox, and returns its new callback.
func goLive(t *testing.T, p *servertest.Process) (callback string) {
	t.Helper()
	callback = "https://app.example.com/callback"
	app := "/v1/apps/" + p.App.ID
	administer(t, p, "PATCH", app,
		`{"redirect_uris":["`+callback+`"],"allowed_models":["gpt-6-luna","claude-haiku-5-5","`+model+`"]}`)
	asked := administer(t, p, "POST", app+"/go-live", "")
	administer(t, p, "POST", "/v1/operator/go-live/"+asked["id"].(string)+"/approve", "")
	return callback
}

// TestConsentOfLiveApp shows what the tier of a new live app allows (contract §8): $10
// are proposed and $25 are the most; who has put in nothing yet has free credit.
func TestConsentOfLiveApp(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package oauth proves what a tier allows")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	c := client(p)
	c.RedirectURL = goLive(t, p)
	b := newTab(t, p.BaseURL, "https://app.example.com")
	open := func(more ...oauth2.AuthCodeOption) {
		t.Helper()
		b.open(c.AuthCodeURL("s", append(more, oauth2.S256ChallengeOption(oauth2.GenerateVerifier()))...))
	}
	open()
	if status := b.signIn(p.TestAccount.Email, p.TestAccount.Password); status != http.StatusForbidden {
		t.Errorf("a test account at a live app: %d", status)
	}
	b.look("consent-live-test-account")
	b.press("button", "Use another account")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.unfold()
	b.says("Sample app", "At most $25.00", "gpt-6-luna")
	if v := b.cap(); v != "10.00" {
		t.Errorf("%q is proposed", v)
	}
	b.look("consent-live")
	b.fillCap("25.01")
	if status := b.pressFirst("Allow"); status != http.StatusUnprocessableEntity {
		t.Errorf("a cap of $25.01: %d", status)
	}
	if said := b.described("Spend cap (USD)"); !said.invalid || !strings.Contains(said.description, "at most $25.00") {
		t.Errorf("a cap of $25.01: %+v", said)
	}
	b.look("consent-live-slip")
	open(oauth2.SetAuthURLParam("requested_allocation_mc", "9000000000"))
	if v := b.cap(); v != "25.00" {
		t.Errorf("of $90 that were asked for %q is proposed", v)
	}
}
