package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// postWithKey sends a request with a token and a key of its own, and decodes the answer.
func postWithKey(t *testing.T, address, token, body string, answer any) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", servertest.UUID())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return resp.StatusCode
}

// TestChildren gives an agent $1 of a connection, which gives another a part of it; the user sees both on the
// connection's page and stops them by one button.
func TestChildren(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, "")
	children, call := p.BaseURL+"/v1/connection/children", p.BaseURL+"/v1/ai/"+model
	var agent, helper struct{ ID, Token string }
	if status := postWithKey(t, children, p.Connection.AccessToken, `{"amount_mc":100000000,"label":"Researcher"}`,
		&agent); status != 200 {
		t.Fatal(status)
	}
	if status := postWithKey(t, children, agent.Token, `{"amount_mc":20000000,"label":"Reader <b>"}`,
		&helper); status != 200 {
		t.Fatal(status)
	}
	const hello = `{"max_tokens":10,"messages":[{"role":"user","content":"Hello"}]}`
	var answer struct {
		Output string
		Error  struct{ Code string }
	}
	for _, token := range []string{agent.Token, helper.Token} {
		if status := postWithKey(t, call, token, hello, &answer); status != 200 {
			t.Fatalf("%d %+v", status, answer)
		}
	}
	b := newTab(t, p.BaseURL)
	b.open(p.DashboardURL + "/connections/" + p.Connection.ID)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	b.says("Passed on", "Researcher", "Reader <b>", "$1.00", "$0.20")
	b.look("connection-children")
	stop := b.named("button", "Stop Researcher")
	run(b, chromedp.WaitVisible(stop, as("button", stop)))
	b.press("button", stop)
	if text := b.text(); strings.Contains(text, "Passed on") {
		t.Errorf("both are stopped, and the page says\n%s", text)
	}
	for _, token := range []string{agent.Token, helper.Token} {
		status := postWithKey(t, call, token, hello, &answer)
		if status != 403 || answer.Error.Code != "connection_revoked" {
			t.Errorf("after the stop: %d %+v", status, answer)
		}
	}
	if code, _ := refused(t, p); code != "" {
		t.Errorf("the connection itself: %s", code)
	}
}
