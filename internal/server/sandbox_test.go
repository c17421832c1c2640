package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// A developer makes a test account over the API, connects as it on the pages,
// calls a model with money that is not real, and deletes it: from then on its
// token is refused, and the books still hold.
func TestTestAccountsEndToEnd(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
		at := "/v1/apps/" + p.App.ID + "/test-accounts"
		var a calltest.TestAccount
		made := c.Do(t, "POST", at, "")
		if err := json.Unmarshal([]byte(made.Body), &a); err != nil || made.Status != http.StatusOK {
			t.Fatal(made, err)
		}
		token, connectionID := calltest.Connect(t, p, a.Email, a.Password, "2.50")
		call := func() *http.Response {
			return p.Call("POST", luna, prompt("Hello"), "Authorization: Bearer "+token)
		}
		if got := whole(t, call()); got.status != http.StatusOK {
			t.Fatalf("a call: %d %s", got.status, got.body)
		}
		var funded calltest.TestAccount
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
		_, other := calltest.Connect(t, p, p.Developer.Email, p.Developer.Password, "1", "test_account", "new")
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
	token, _ := calltest.Connect(t, n.Node, n.Developer.Email, n.Developer.Password, "5", "test_account", "new")
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
