package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// refusal is one request that must be refused, as testdata/refusals.json has it.
// Unless it says otherwise it carries the seeded access token (auth: basic, wrong,
// operator or none), a fresh key and JSON. {app} and {connection} in its path are the seeded ones.
type refusal struct {
	Name, Method, Path string
	Status             int
	Code               string
	Says               string // part of the message: the member that is wrong
	Body               string
	Auth               string
	Headers            map[string]string
	Drop               string // a header to leave out
}

// TestRefusals sends rubbish to every endpoint: each answer is the envelope with
// the right status and code, names what is wrong, and leaves no trace in money,
// holds, rows or events.
func TestRefusals(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/refusals.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []refusal
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 130 {
		t.Errorf("only %d cases", len(cases))
	}
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		p := apptest.Start(t, apptest.URL(t, e)).Node
		before := traces(t, p)
		for _, c := range cases {
			c.checkAnswer(t, p)
		}
		if after := traces(t, p); after != before {
			t.Errorf("refusals have left a trace: %s, before %s", after, before)
		}
		p.Verify()
	})
}

func (c *refusal) checkAnswer(t *testing.T, p *nodetest.Node) {
	t.Helper()
	req, err := http.NewRequest(c.Method,
		p.BaseURL+strings.NewReplacer("{app}", p.App.ID, "{connection}", p.Connection.ID).Replace(c.Path),
		strings.NewReader(c.Body))
	if err != nil {
		t.Fatal(c.Name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id.NewUUID())
	switch c.Auth {
	case "", "bearer":
		req.Header.Set("Authorization", "Bearer "+p.Connection.AccessToken)
	case "basic":
		req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
	case "operator":
		req.Header.Set("Authorization", "Bearer "+operatorOf(t, p).Bearer)
	case "wrong":
		req.SetBasicAuth(p.App.ClientID, id.NewSecret())
	}
	for name, value := range c.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Del(c.Drop)
	resp, err := direct.RoundTrip(req)
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return
	}
	a := whole(t, resp)
	var envelope struct {
		Error struct {
			Code, Message, Type *string
			ConnectionID        *string `json:"connection_id"`
			IncreaseURL         *string `json:"increase_url"`
			ReviewURL           *string `json:"review_url"`
			DocURL              string  `json:"doc_url"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &envelope); err != nil || envelope.Error.Code == nil ||
		envelope.Error.Message == nil || envelope.Error.Type == nil {
		t.Errorf("%s: %d is no envelope: %s", c.Name, a.status, a.body)
		return
	}
	e := envelope.Error
	if a.status != c.Status || *e.Code != c.Code || !strings.Contains(*e.Message, c.Says) {
		t.Errorf("%s: got %d %s, want %d %s that says %q", c.Name, a.status, a.body, c.Status, c.Code, c.Says)
	}
	if calls := strings.HasPrefix(c.Path, "/v1/ai/") && (c.Auth == "" || c.Auth == "bearer"); calls &&
		c.Status == http.StatusBadRequest && (e.ConnectionID == nil || *e.ConnectionID != p.Connection.ID) {
		t.Errorf("%s: the error does not name the connection: %s", c.Name, a.body)
	}
	if want := p.BaseURL + "/docs/errors#" + c.Code; e.DocURL != want {
		t.Errorf("%s: doc_url is %q, want %q", c.Name, e.DocURL, want)
	}
	if strings.Contains(a.body, p.App.ClientSecret) || strings.Contains(a.body, p.Connection.AccessToken) {
		t.Errorf("%s: a secret stands in %s", c.Name, a.body)
	}
}

// direct follows no redirect.
var direct = &http.Transport{}

// traces is everything that a refusal must leave as it was.
func traces(t *testing.T, p *nodetest.Node) (out string) {
	t.Helper()
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, text := range []string{
		`SELECT COUNT(*) FROM holds`, `SELECT COUNT(*) FROM ledger`, `SELECT COUNT(*) FROM events`,
		`SELECT COUNT(*) FROM features`, `SELECT COUNT(*) FROM connections`, `SELECT COUNT(*) FROM provider_keys`,
		`SELECT COUNT(*) FROM allocation_requests`, `SELECT COUNT(*) FROM golive_requests`,
		`SELECT COUNT(*) FROM operator_log`, `SELECT COUNT(*) FROM accounts WHERE deactivated_us IS NULL`,
		`SELECT COUNT(*) FROM oauth_tokens WHERE revoked_us IS NULL`,
		`SELECT SUM(allocation_mc + 3 * consumed_mc + 7 * held_mc) FROM connections`,
		`SELECT SUM(available_mc + 3 * reserved_mc + seq) FROM balances`,
	} {
		var n int64
		if err := d.QueryRowContext(t.Context(), text).Scan(&n); err != nil {
			t.Fatal(text, err)
		}
		out += fmt.Sprintf("%d ", n)
	}
	return out
}
