package nodes

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// hello is the rest of a body.
const hello = `"max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`

// repeatable are the requests that answer the same when they are repeated, besides those for tokens.
var repeatable = []struct{ path, body string }{
	{"/v1/holds", `{"amount_mc":1000,"description":"A search"}`},
	{"/v1/connection/children", `{"amount_mc":100000,"label":"Researcher"}`},
	{luna, `{` + hello},
	{"/v1/chat/completions", `{"model":"gpt-6-luna",` + hello},
	{"/openai/v1/chat/completions", `{"model":"gpt-6-luna",` + hello},
	{"/openai/v1/responses", `{"model":"gpt-6-luna","input":"hello"}`},
	{"/openai/v1/embeddings", `{"model":"text-embedding-3-small","input":"hello"}`},
	{"/anthropic/v1/messages", `{"model":"gpt-6-luna",` + hello},
	{"/google/v1beta/models/gpt-6-luna:generateContent", `{"contents":[{"parts":[{"text":"hello"}]}]}`},
}

// TestSettingsChangeNoAnswer repeats every request that may be repeated after fee, margin, mode and prices have
// changed, on another process: each answers the same, and nothing is held or billed again.
func TestSettingsChangeNoAnswer(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			p := restart(t, servertest.Start(t, dbtest.URL(t, e)), []string{
				`UPDATE apps SET own_work = 1`,
				`INSERT INTO work_consents (app_id, account_id, connection_id, created_us)
					SELECT app_id, account_id, id, 1 FROM connections`,
			})
			keys := map[string]string{}
			first := map[string]apitest.Answer{}
			ask := func(path, body string) apitest.Answer {
				t.Helper()
				a := apitest.Read(t, p.Call("POST", path, body, "Idempotency-Key: "+keys[path]))
				if a.Status != http.StatusOK {
					t.Fatalf("%s: %+v", path, a)
				}
				return a
			}
			for _, r := range repeatable {
				keys[r.path] = servertest.UUID()
				first[r.path] = ask(r.path, r.body)
			}
			refund := "/v1/requests/" + first[luna].Header.Get("X-Request-Id") + "/refund"
			app := func() apitest.Client {
				return apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
			}
			refunded := app().Do(t, "POST", refund, "")
			const rows = `SELECT (SELECT COUNT(*) FROM ledger) + (SELECT COUNT(*) FROM holds)
				+ (SELECT COUNT(*) FROM children)`
			before := dbtest.Number(t, p.DB, rows)

			var v struct{ From time.Time }
			operate(t, p, &v, "set", "fee_rate=0.10", "--reason", "New prices.")
			awaitFee(t, p, "0.1")
			p = restart(t, p, []string{`UPDATE apps SET dev_margin_ppm = 300000, provider_mode = 'live'`},
				"PURSER_PRICES="+dearPrices(t))
			for _, r := range repeatable {
				if again := ask(r.path, r.body); again.Body != first[r.path].Body {
					t.Errorf("%s: %s\nfirst %s", r.path, again.Body, first[r.path].Body)
				}
			}
			if again := app().Do(t, "POST", refund, ""); again.Body != refunded.Body {
				t.Errorf("refund: %v, first %v", again, refunded)
			}
			if now := dbtest.Number(t, p.DB, rows); now != before {
				t.Errorf("%d rows, before %d", now, before)
			}
			p.Verify()
		})
	}
}

// restart stops a node, changes its database, and starts another node on it.
func restart(t *testing.T, p *servertest.Process, statements []string, args ...string) *servertest.Process {
	t.Helper()
	if code := p.Stop(); code != 0 { // SQLite has one process at a time
		t.Fatalf("exit code %d", code)
	}
	d, err := db.Open(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		_, failed := d.ExecContext(t.Context(), s)
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	next := servertest.Start(t, p.DB, args...)
	next.App, next.Connection = p.App, p.Connection
	return next
}

// awaitFee waits until a fee is in force.
func awaitFee(t *testing.T, p *servertest.Process, fee string) {
	t.Helper()
	for range 600 {
		var list []struct {
			State    string
			Settings map[string]string
		}
		operate(t, p, &list, "settings")
		if list[0].State == "in_force" && list[0].Settings["fee_rate"] == fee {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("the fee %s does not begin", fee)
}

// dearPrices returns a file of the built-in models at higher prices.
func dearPrices(t *testing.T) (path string) {
	t.Helper()
	text, err := os.ReadFile("../../models/catalog/prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dear := regexp.MustCompile(`(input|output): "`).ReplaceAll(text, []byte(`$1: "1`))
	path = filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(path, dear, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
