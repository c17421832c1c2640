package nodes

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestDev walks the skeleton: start, call, replay, stop, start again on the same
// data, and verify.
func TestDev(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			url := dbtest.URL(t, e)
			p := servertest.Start(t, url)
			key := "Idempotency-Key: " + servertest.UUID()
			const body = `{"max_tokens":50,"messages":[{"role":"user","content":"Hello"}]}`
			first := readBody(t, p.Call("POST", "/v1/ai/gpt-6-luna", body, key))
			p.Signal(syscall.SIGHUP) // it has no file of prices to read again, and goes on
			if again := readBody(t, p.Call("POST", "/v1/ai/gpt-6-luna", body, key)); again != first ||
				!strings.Contains(first, `"svc":{`) {
				t.Errorf("replayed\n%s\nwant\n%s", again, first)
			}
			app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
			if a := app.Do(t, "POST", "/v1/apps/"+p.App.ID+"/test-accounts", ""); a.Status != http.StatusOK {
				t.Errorf("test account: %v", a)
			}
			if code := p.Stop(); code != 0 {
				t.Errorf("stopped with %d: %s", code, p.Log())
			}
			// 64 MiB and a pass, whatever tests use.
			if n := dbtest.Number(t, url, `SELECT COUNT(*) FROM accounts
				WHERE password_hash LIKE '$argon2id$v=19$m=65536,t=1,p=1$%'`); n != 1 {
				t.Errorf("%d accounts have a hash as in production", n)
			}
			q := servertest.Start(t, url)
			p.App.RedirectURI = q.App.RedirectURI // the port has moved
			if q.Connection.ID != p.Connection.ID || q.App != p.App ||
				q.Connection.AccessToken == p.Connection.AccessToken {
				t.Errorf("started again as %+v, was %+v", q.Data, p.Data)
			}
			if again := readBody(t, q.Call("POST", "/v1/ai/gpt-6-luna", body, key)); again != first {
				t.Errorf("after a restart\n%s\nwant\n%s", again, first)
			}
			q.Verify()
		})
	}
}

func readBody(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, b)
	}
	return string(b)
}
