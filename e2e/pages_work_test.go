package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A workHold is what the API says of a hold.
type workHold struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	CapturedMC int64  `json:"captured_mc"`
}

// TestOwnWork is the way of a user whose app begins to charge for its own work: what was allowed before does not cover
// it, the consent screen says so, a hold is captured, and the user finds it in the activity with its receipt.
func TestOwnWork(t *testing.T) {
	testkit.Long(t, "axe sees its pages; packages oauth, holds and dashboard prove it over HTTP")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	b := newTab(t, p.BaseURL)
	hold := func(token string) (h workHold, status int) {
		resp := p.Call("POST", "/v1/holds", `{"amount_mc": 20000000, "description": "Search of <12> archives"}`,
			"Authorization: Bearer "+token)
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
			t.Fatal(err)
		}
		return h, resp.StatusCode
	}
	address, verifier := link(p, "work")
	b.open(address)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	if text := b.text(); strings.Contains(text, "Its own work, too.") {
		t.Errorf("the consent screen of an app without own work says:\n%s", text)
	}
	manage(t, p, "PATCH", "/v1/apps/"+p.App.ID, `{"own_work": true}`, nil)
	if _, status := hold(p.Connection.AccessToken); status != http.StatusBadRequest {
		t.Errorf("a hold before the user has allowed it: %d", status)
	}
	if status := b.open(address); status != http.StatusOK {
		t.Fatalf("the consent screen: %d", status)
	}
	b.says("Its own work, too.", "can also charge for work that it does itself", "on your dashboard")
	for _, v := range b.axe() {
		t.Errorf("consent: %+v", v)
	}
	b.pressFirst("Allow")
	token, err := client(p).Exchange(t.Context(), b.landed(p, "work").Get("code"), oauth2.VerifierOption(verifier))
	if err != nil {
		t.Fatal(err)
	}
	held, status := hold(token.AccessToken)
	if status != http.StatusOK || held.Status != "held" {
		t.Fatalf("hold: %d %+v", status, held)
	}
	b.open(p.DashboardURL + "/requests/" + held.ID)
	b.says("Up to $0.20 is held", "“Search of <12> archives”")
	var captured workHold
	if status := send(t, p, "POST", "/v1/holds/"+held.ID+"/capture", `{"amount_mc": 10000000}`,
		"Bearer "+token.AccessToken, &captured); status != http.StatusOK || captured.CapturedMC != 10_000_000 {
		t.Fatalf("capture: %d %+v", status, captured)
	}
	b.open(p.DashboardURL + "/")
	b.press("link", "Activity")
	b.says("Search of <12> archives", "−$0.10")
	b.open(p.DashboardURL + "/requests/" + held.ID)
	b.says("charged $0.10 for its own work: “Search of <12> archives”", "No provider was paid", "Service fee")
	for _, v := range b.axe() {
		t.Errorf("receipt: %+v", v)
	}
	p.Verify()
}
