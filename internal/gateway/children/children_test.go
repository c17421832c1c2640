package children_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/children"
	"github.com/purserhq/purser/internal/gateway/holds"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A world is an app with a user, whose connection has $10. Its children spend on the app's own work.
type world struct {
	*testing.T
	*apitest.Books
	handler *children.Handler
	app     apps.App
	conn    rules.Connection
	tokens  *oauth.Store
	base    string
	token   string
	secret  string // of the app
	// Of TestWhatTokensStandOn: the refresh token of token's family, and its child.
	refresh, child string
}

func newWorld(t *testing.T, d *db.DB) *world {
	b := apitest.NewBooks(t, d)
	clients := apps.NewStore(d, b.Now, true)
	tokens := &oauth.Store{DB: d, Ledger: b.Ledger, Now: b.Now}
	w := &world{T: t, Books: b, tokens: tokens}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('wac_dev', 'developer@example.com', '', 1, 1), ('wac_user', 'user@example.com', '', 0, 1)`)
		if err != nil {
			return err
		}
		if w.app, w.secret, err = clients.Create(ctx, tx, apps.New{
			OwnerID:      "wac_dev",
			Name:         "Archive",
			RedirectURIs: []string{"https://app.example.com/callback"},
			Tier:         apps.FullLive,
			ProviderMode: apps.Live,
		}); err != nil {
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(), `UPDATE apps SET own_work = 1`); err != nil {
		t.Fatal(err)
	}
	w.Do(rules.TopUp{AccountID: "wac_user", AmountMC: 100 * money.Dollar})
	w.conn = w.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.Now()),
		AppID:        w.app.ID,
		AccountID:    "wac_user",
		RequestedMC:  10 * money.Dollar,
	}).Connection
	if _, err := d.ExecContext(t.Context(), `INSERT INTO work_consents (app_id, account_id, connection_id, created_us)
		VALUES ($1, 'wac_user', $2, 1)`, w.app.ID, w.conn.ID); err != nil {
		t.Fatal(err)
	}
	w.token = w.issue().AccessToken
	p := policy.Default
	p.Fee = 0
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{Dashboard: "https://purser.example"})
	rt.SetClock(b.Now)
	registry := features.NewStore(d, b.Now, nil)
	if _, err := registry.Create(t.Context(), w.app.ID, features.Change{
		Slug:        web.Field[string]{Set: true, Value: "search"},
		DisplayName: web.Field[string]{Set: true, Value: "Search"},
		Description: web.Field[string]{Set: true, Value: "Finds"},
	}); err != nil {
		t.Fatal(err)
	}
	resolver := callers.NewResolver(d, tokens, clients, registry, b.Now)
	box, err := seal.New([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	w.handler = &children.Handler{
		DB:      d,
		Ledger:  b.Ledger,
		Callers: resolver,
		Offered: func(model string) bool { return strings.HasPrefix(model, "gpt") },
		Box:     box,
		Rate:    children.NewRate(b.Now),
	}
	w.handler.Mount(rt)
	resolver.Mount(rt)
	(&holds.Handler{
		DB: d, Ledger: b.Ledger, NodeID: "node_0", Apps: clients, Tokens: tokens, Callers: resolver,
		Policies: policies.Fixed(p),
	}).Mount(rt)
	(&receipts.Handler{DB: d, Apps: clients, Callers: resolver}).Mount(rt)
	server := httptest.NewServer(rt)
	t.Cleanup(server.Close)
	w.base = server.URL
	return w
}

// issue returns tokens of another grant family of the connection.
func (w *world) issue() (issued oauth.TokenResponse) {
	w.Helper()
	err := w.DB.InTx(w.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		issued, err = w.tokens.IssueTokens(ctx, tx, w.conn.ID, w.app.ID, "")
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return issued
}

// do sends a request with a token, and decodes an answer 200.
func (w *world) do(token, method, path, body string, headers ...string) (child children.Resource, a apitest.Answer) {
	w.Helper()
	client := apitest.Client{Base: w.base, Bearer: token}
	a = client.Do(w.T, method, path, body, headers...)
	if a.Status == 200 && strings.HasPrefix(a.Body, "{") {
		if err := json.Unmarshal([]byte(a.Body), &child); err != nil {
			w.Fatal(err)
		}
	}
	return child, a
}

// byApp sends a request with the app's credentials.
func (w *world) byApp(method, path, body string) apitest.Answer {
	w.Helper()
	client := apitest.Client{Base: w.base, User: w.app.ClientID, Secret: w.secret}
	return client.Do(w.T, method, path, body)
}

// make passes an amount on by the holder of a token.
func (w *world) make(token string, amount money.MC, more string) children.Resource {
	w.Helper()
	c, a := w.do(token, "POST", "/v1/connection/children", fmt.Sprintf(`{"amount_mc":%d%s}`, amount, more),
		"Idempotency-Key", id.NewUUID())
	if a.Status != 200 {
		w.Fatalf("%d %s", a.Status, a.Body)
	}
	return c
}

// spend holds and captures, and returns the status of the hold and the request's id.
func (w *world) spend(token string, amount money.MC, headers ...string) (status int, requestID, body string) {
	w.Helper()
	held, a := w.do(token, "POST", "/v1/holds", fmt.Sprintf(`{"amount_mc":%d,"description":"A search"}`, amount),
		append(headers, "Idempotency-Key", id.NewUUID())...)
	if a.Status != 200 {
		return a.Status, "", a.Body
	}
	if _, a := w.do(token, "POST", "/v1/holds/"+held.ID+"/capture", ""); a.Status != 200 {
		w.Fatalf("capture: %d %s", a.Status, a.Body)
	}
	return 200, held.ID, ""
}

// TestRepeatedUnderOtherSettings repeats a request after the app may use neither its model nor its feature any more:
// the key answers the same child, and a new key is refused.
func TestRepeatedUnderOtherSettings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		const body = `{"amount_mc":100000000,"features":["search"],"models":["gpt-6-luna"]}`
		key := id.NewUUID()
		c, a := w.do(w.token, "POST", "/v1/connection/children", body, "Idempotency-Key", key)
		if a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		for _, change := range []string{
			`UPDATE apps SET allowed_models = '["gpt-6-sol"]', dev_margin_ppm = 500000, provider_mode = 'mock'`,
			`DELETE FROM features`,
		} {
			if _, err := d.ExecContext(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			w.Pass(3 * time.Second) // longer than callers are cached
			again, a := w.do(w.token, "POST", "/v1/connection/children", body, "Idempotency-Key", key)
			if again.ID != c.ID || again.Token != c.Token {
				t.Errorf("%s: %d %s", change, a.Status, a.Body)
			}
			_, a = w.do(w.token, "POST", "/v1/connection/children", body, "Idempotency-Key", id.NewUUID())
			if a.Status != 400 && a.Status != 403 {
				t.Errorf("%s: a new child: %d %s", change, a.Status, a.Body)
			}
		}
		if _, err := d.ExecContext(t.Context(), `UPDATE children SET sealed = NULL`); err != nil { // an older version's
			t.Fatal(err)
		}
		again, a := w.do(w.token, "POST", "/v1/connection/children", body, "Idempotency-Key", key)
		if again.ID != c.ID || again.Token != "" {
			t.Errorf("without a sealed token: %d %s", a.Status, a.Body)
		}
	})
}

// TestChildSpends gives a child $1 by its parent's token, and lets it spend, within its budget and no further, until
// its parent ends it.
func TestChildSpends(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		body, key := `{"amount_mc":100000000,"label":"Researcher","expires_in":3600}`, id.NewUUID()
		c, a := w.do(w.token, "POST", "/v1/connection/children", body, "Idempotency-Key", key)
		if a.Status != 200 || c.Status != "active" || c.Label != "Researcher" || c.RemainingMC != money.Dollar ||
			!strings.HasPrefix(c.Token, "cht_") {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		again, _ := w.do(w.token, "POST", "/v1/connection/children", body, "Idempotency-Key", key)
		if again.ID != c.ID || again.Token != c.Token {
			t.Errorf("again: %+v", again)
		}
		_, a = w.do(w.token, "POST", "/v1/connection/children", `{"amount_mc":1}`, "Idempotency-Key", key)
		if a.Status != 409 {
			t.Errorf("another body: %d %s", a.Status, a.Body)
		}
		status, requestID, _ := w.spend(c.Token, 60*money.Cent)
		if status != 200 {
			t.Fatal(status)
		}
		if status, _, body := w.spend(c.Token, 41*money.Cent); status != 402 {
			t.Errorf("beyond the budget: %d %s", status, body)
		}
		// Both see the call; the child's receipt names it.
		for _, token := range []string{c.Token, w.token} {
			if _, a := w.do(token, "GET", "/v1/requests/"+requestID, ""); !strings.Contains(
				a.Body,
				`"child_id":"`+c.ID,
			) {
				t.Errorf("receipt: %d %s", a.Status, a.Body)
			}
		}
		_, a = w.do(c.Token, "GET", "/v1/connection", "")
		for _, want := range []string{`"allocation_mc":100000000`, `"allocation_remaining_mc":40000000`, c.ID} {
			if !strings.Contains(a.Body, want) {
				t.Errorf("the child's connection lacks %s: %s", want, a.Body)
			}
		}
		if _, a := w.do(w.token, "GET", "/v1/connection", ""); !strings.Contains(
			a.Body,
			`"held_mc":40000000,"held_display":"$0.40","delegated_mc":40000000`,
		) ||
			!strings.Contains(a.Body, `"allocation_remaining_mc":900000000`) {
			t.Errorf("the connection: %s", a.Body)
		}
		ended, a := w.do(w.token, "POST", "/v1/connection/children/"+c.ID+"/end", "")
		if a.Status != 200 || ended.Status != "ended" || ended.ReturnedMC != 40*money.Cent || ended.Token != "" {
			t.Errorf("end: %d %s", a.Status, a.Body)
		}
		if status, _, body := w.spend(c.Token, 1); status != 403 || !strings.Contains(body, "connection_revoked") {
			t.Errorf("after the end: %d %s", status, body)
		}
		if _, a := w.do(c.Token, "GET", "/v1/connection", ""); !strings.Contains(a.Body, fmt.Sprintf(
			`"consumed_mc":%d,`, c.AmountMC-ended.ReturnedMC)) || !strings.Contains(a.Body, `"status":"revoked"`) {
			t.Errorf("the ended child's connection: %s", a.Body)
		}
		if conn := w.Is(w.conn); conn.DelegatedMC != 0 || conn.RemainingMC() != 940*money.Cent {
			t.Errorf("%+v", conn)
		}
	})
}

// TestChildrenSeeTheirOwn: a child sees and ends what is below it, and not its parents, siblings and their calls.
func TestChildrenSeeTheirOwn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		a := w.make(w.token, 2*money.Dollar, "")
		b := w.make(a.Token, money.Dollar, "")
		other := w.make(w.token, money.Dollar, "")
		_, theirs, _ := w.spend(other.Token, 5)
		if b.ParentID == nil || *b.ParentID != a.ID || b.Depth != 2 {
			t.Errorf("%+v", b)
		}
		for _, hidden := range []struct{ token, method, path string }{
			{b.Token, "GET", "/v1/connection/children/" + a.ID},
			{b.Token, "POST", "/v1/connection/children/" + a.ID + "/end"},
			{a.Token, "GET", "/v1/connection/children/" + other.ID},
			{a.Token, "GET", "/v1/requests/" + theirs},
			{a.Token, "GET", "/v1/holds/" + theirs},
		} {
			if _, got := w.do(hidden.token, hidden.method, hidden.path, ""); got.Status != 404 {
				t.Errorf("%+v: %d %s", hidden, got.Status, got.Body)
			}
		}
		if _, got := w.do(w.token, "GET", "/v1/connection/children?limit=many", ""); got.Status != 400 {
			t.Errorf("an odd limit: %d %s", got.Status, got.Body)
		}
		all := other.ID + " " + b.ID + " " + a.ID
		for token, want := range map[string]string{w.token: all, a.Token: b.ID, b.Token: ""} {
			_, got := w.do(token, "GET", "/v1/connection/children", "")
			var list []children.Resource
			if err := json.Unmarshal([]byte(got.Body), &list); err != nil {
				t.Fatal(got.Body)
			}
			var ids []string
			for _, c := range list {
				ids = append(ids, c.ID)
			}
			if strings.Join(ids, " ") != want {
				t.Errorf("list: %q, want %q", ids, want)
			}
		}
		if _, page := w.do(w.token, "GET", "/v1/connection/children?limit=2", ""); !strings.Contains(
			page.Header.Get("Link"), b.ID) {
			t.Errorf("%v", page.Header)
		}
		// What b has goes to a, and with a to the connection.
		if got, _ := w.do(a.Token, "POST", "/v1/connection/children/"+b.ID+"/end", ""); got.ReturnedMC != money.Dollar {
			t.Errorf("%+v", got)
		}
		w.make(a.Token, money.Dollar, "")
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		w.Pass(3 * time.Second) // the cache of callers
		for _, token := range []string{a.Token, other.Token} {
			if status, _, body := w.spend(token, 1); status != 403 {
				t.Errorf("after the revocation: %d %s", status, body)
			}
		}
		if c := w.Is(w.conn); c.AllocationMC != 5 || c.DelegatedMC != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestChildrenEndWithTheirFamily: when an app revokes a grant family, the children that its tokens have made end, with
// all below them, and their money is the connection's again. A token that was revoked makes no child, though it is
// cached.
func TestChildrenEndWithTheirFamily(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		stolen, kept := w.issue(), w.issue()
		a := w.make(stolen.AccessToken, 5*money.Dollar, `,"expires_in":2592000`)
		b := w.make(a.Token, 2*money.Dollar, "")
		other := w.make(kept.AccessToken, money.Dollar, "")
		if status, _, body := w.spend(b.Token, 50*money.Cent); status != 200 {
			t.Fatalf("before: %d %s", status, body)
		}
		if err := w.tokens.RevokeToken(t.Context(), w.app.ID, stolen.RefreshToken); err != nil {
			t.Fatal(err)
		}
		_, made := w.do(stolen.AccessToken, "POST", "/v1/connection/children", `{"amount_mc":1}`,
			"Idempotency-Key", id.NewUUID())
		if made.Status != 401 { // the caller is still cached
			t.Errorf("another child: %d %s", made.Status, made.Body)
		}
		w.Pass(3 * time.Second) // the cache of callers
		if status, _, body := w.spend(a.Token, 1); status != 401 {
			t.Errorf("after the revocation: %d %s", status, body)
		}
		if status, _, body := w.spend(b.Token, 1); status != 403 || !strings.Contains(body, "connection_revoked") {
			t.Errorf("below, after the revocation: %d %s", status, body)
		}
		if status, _, body := w.spend(other.Token, 1); status != 200 {
			t.Errorf("of another family: %d %s", status, body)
		}
		if c := w.Is(w.conn); c.DelegatedMC != money.Dollar-1 || c.RemainingMC() != 850*money.Cent {
			t.Errorf("%+v", c)
		}
		ended, got := w.do(kept.AccessToken, "GET", "/v1/connection/children/"+a.ID, "")
		if ended.Status != "ended" || ended.EndedBy == nil || *ended.EndedBy != "revoked" {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	})
}

// TestChildExpires: a child's token ends with its time, to the second, and the job returns its money.
func TestChildExpires(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		c := w.make(w.token, money.Dollar, `,"expires_in":60`)
		below := w.make(c.Token, 5, `,"expires_in":3600`)
		if below.ExpiresAt != c.ExpiresAt {
			t.Errorf("%+v outlives its parent %+v", below, c)
		}
		if err := w.handler.ExpireDue(t.Context()); err != nil || w.Is(w.conn).DelegatedMC != money.Dollar {
			t.Errorf("%v: ended before its time: %+v", err, w.Is(w.conn))
		}
		expires, err := time.Parse(time.RFC3339, c.ExpiresAt)
		if err != nil {
			t.Fatal(err)
		}
		w.Pass(expires.Sub(w.Now()) + time.Second)
		if status, _, body := w.spend(c.Token, 1); status != 403 {
			t.Errorf("after its time: %d %s", status, body)
		}
		if err := w.handler.ExpireDue(t.Context()); err != nil || w.Is(w.conn).DelegatedMC != 0 {
			t.Errorf("%v: %+v", err, w.Is(w.conn))
		}
	})
}

// TestChildMayDoNoMore: features and models of a child are among its parent's, and its token opens calls alone.
func TestChildMayDoNoMore(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		c := w.make(w.token, money.Dollar, `,"features":["search"],"models":["gpt-a","gpt-b"]`)
		if status, _, body := w.spend(c.Token, 1); status != 400 || !strings.Contains(body, "X-Svc-Feature") {
			t.Errorf("without its feature: %d %s", status, body)
		}
		if status, _, body := w.spend(c.Token, 1, web.FeatureHeader, "search"); status != 200 {
			t.Errorf("with its feature: %d %s", status, body)
		}
		if below := w.make(c.Token, 1, `,"models":["gpt-b"]`); strings.Join(below.Models, " ") != "gpt-b" ||
			strings.Join(below.Features, " ") != "search" {
			t.Errorf("%+v", below)
		}
		for body, want := range map[string]int{
			`{"amount_mc":1,"models":["gpt-c"]}`:   403,
			`{"amount_mc":1,"models":["claude"]}`:  400,
			`{"amount_mc":1,"features":["other"]}`: 400,
			`{"amount_mc":0}`:                      400,
			`{"amount_mc":-1}`:                     400,
			`{}`:                                   400,
			`{"amount_mc":1,"expires_in":59}`:      400,
			`{"amount_mc":1,"label":"` + strings.Repeat("x", 61) + `"}`: 400,
			`{"amount_mc":100000000}`:                                   402,
			`{"amount_mc":1,"unknown":1}`:                               400,
		} {
			_, a := w.do(c.Token, "POST", "/v1/connection/children", body, "Idempotency-Key", id.NewUUID())
			if a.Status != want {
				t.Errorf("%s: %d %s", body, a.Status, a.Body)
			}
		}
		if _, a := w.do(c.Token, "POST", "/v1/connection/children", `{"amount_mc":1}`); a.Status != 400 {
			t.Errorf("without a key: %d", a.Status)
		}
		if _, a := w.do("cht_unknown", "GET", "/v1/connection", ""); a.Status != 401 {
			t.Errorf("an unknown token: %d", a.Status)
		}
		if _, a := w.do(c.Token, "GET", "/v1/connection/summary", ""); a.Status != 401 {
			t.Errorf("the summary: %d %s", a.Status, a.Body)
		}
	})
}

// TestRateOfChildren makes and ends children for nothing: a connection has a rate, and the sandbox apps of a developer
// have that of all that is free.
func TestRateOfChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.handler.Rate = web.NewLimiter(time.Minute, 2, w.Now)
	ask := func(key string) (children.Resource, apitest.Answer) {
		t.Helper()
		return w.do(w.token, "POST", "/v1/connection/children", `{"amount_mc":1}`, "Idempotency-Key", key)
	}
	try := func(want int) {
		t.Helper()
		c, a := ask(id.NewUUID())
		if a.Status != want || want == 429 && a.Header.Get("Retry-After") == "" {
			t.Fatalf("%d %s, want %d", a.Status, a.Body, want)
		}
		if want == 200 {
			w.do(w.token, "POST", "/v1/connection/children/"+c.ID+"/end", "")
		}
	}
	key := id.NewUUID()
	made, _ := ask(key)
	try(200)
	try(429)
	if again, a := ask(key); a.Status != 200 || again.ID != made.ID {
		t.Errorf("the key of a child that was made: %d %s", a.Status, a.Body)
	}
	w.Pass(time.Minute)
	try(200)
	w.handler.Rate = children.NewRate(w.Now)
	w.handler.FreeRate = callers.NewFreeRate(1, 1, w.Now)
	try(200) // a live app pays for its calls
	try(200)
	if _, err := w.DB.ExecContext(t.Context(), `UPDATE apps SET tier = 'sandbox'`); err != nil {
		t.Fatal(err)
	}
	w.Pass(3 * time.Second) // the cache of callers
	try(200)
	try(429)
}

// TestEndDropsItsOwnCallers: the end of a child is seen at once by its token, and by those of children below it.
func TestEndDropsItsOwnCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	a := w.make(w.token, money.Dollar, "")
	b := w.make(a.Token, 50*money.Cent, "")
	for _, token := range []string{a.Token, b.Token} {
		if _, got := w.do(token, "GET", "/v1/connection", ""); got.Status != 200 {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
	}
	if _, got := w.do(w.token, "POST", "/v1/connection/children/"+a.ID+"/end", ""); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	for _, token := range []string{a.Token, b.Token} {
		_, got := w.do(token, "POST", "/v1/connection/children", `{"amount_mc":1}`, "Idempotency-Key", id.NewUUID())
		if got.Status != 403 {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
}
