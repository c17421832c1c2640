package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func init() { accounts.HashLightly() }

// A world is two developers with a sandbox app each, the first with a second one
// and a live app, and somebody with $20.
type world struct {
	t                           *testing.T
	d                           *db.DB
	people                      *accounts.Store
	ledger                      *store.Writer
	developer, other, person    accounts.Account
	first, second, live, theirs client
}

// A client sends requests as an app.
type client struct {
	apitest.Client
	apps.App
}

func newWorld(t *testing.T, d *db.DB) *world {
	t.Helper()
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	now := func() time.Time { return at }
	w := &world{t: t, d: d, people: accounts.NewStore(d, now), ledger: store.NewWriter(d, now)}
	clients := apps.NewStore(d, now, true)
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	(&sandbox.Handler{Store: sandbox.NewStore(d, w.people, w.ledger, now), Apps: clients}).Mount(rt)
	served := httptest.NewServer(rt)
	t.Cleanup(served.Close)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		for _, a := range []struct {
			at *accounts.Account
			accounts.NewAccount
		}{
			{&w.developer, accounts.NewAccount{Email: "developer@example.com", Developer: true}},
			{&w.other, accounts.NewAccount{Email: "other@example.com", Developer: true}},
			{&w.person, accounts.NewAccount{Email: "person@example.com"}},
		} {
			if *a.at, err = w.people.Create(ctx, tx, a.NewAccount); err != nil {
				return err
			}
		}
		for _, c := range []struct {
			at *client
			apps.New
		}{
			{&w.first, apps.New{OwnerID: w.developer.ID, Name: "First"}},
			{&w.second, apps.New{OwnerID: w.developer.ID, Name: "Second"}},
			{&w.live, apps.New{OwnerID: w.developer.ID, Name: "Live", Tier: apps.LimitedLive}},
			{&w.theirs, apps.New{OwnerID: w.other.ID, Name: "Theirs"}},
		} {
			var secret string
			if c.at.App, secret, err = clients.Create(ctx, tx, c.New); err != nil {
				return err
			}
			c.at.Client = apitest.Client{Base: served.URL, User: c.at.ClientID, Secret: secret}
		}
		_, err = w.ledger.DoTx(ctx, tx, rules.TopUp{AccountID: w.person.ID, AmountMC: 20 * money.Dollar})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// account is a test account as the API shows it.
type account struct {
	ID        string   `json:"wac_id"`
	Email     string   `json:"email"`
	Sandbox   bool     `json:"sandbox"`
	Available money.MC `json:"balance_available_mc"`
	Reserved  money.MC `json:"balance_reserved_mc"`
	Tester    *string  `json:"tester"`
	Password  string   `json:"password"`
}

// do sends a request about the app's test accounts and reads what came back.
func (w *world) do(c client, method, path, body string, status int, into any) apitest.Answer {
	w.t.Helper()
	got := c.Do(w.t, method, "/v1/apps/"+c.ID+"/test-accounts"+path, body)
	if got.Status != status {
		w.t.Fatalf("%s …/test-accounts%s: %v, want %d", method, path, got, status)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(got.Body), into); err != nil {
			w.t.Fatal(err)
		}
	}
	return got
}

func (w *world) connect(app apps.App, accountID string) string {
	w.t.Helper()
	var r rules.Result
	err := w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		r, err = w.ledger.DoTx(ctx, tx, rules.Connect{
			ConnectionID: id.New(id.Connection, time.Now()),
			AppID:        app.ID,
			AccountID:    accountID,
			Sandbox:      true,
			RequestedMC:  5 * money.Dollar,
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Connection.ID
}

func (w *world) count(text string, args ...any) (n int64) {
	w.t.Helper()
	if err := w.d.QueryRowContext(w.t.Context(), text, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// The life of a test account: every app of its developer has it, its password is
// shown once and works, it is funded, and when it is deleted it is connected to
// no other app or account, and its ledger rows stay.
func TestLifeOfATestAccount(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		var made, funded account
		var list []account
		created := w.do(w.first, "POST", "", "", 200, &made)
		if !made.Sandbox || made.Available != 1000*money.Dollar || len(made.Password) < 20 || made.Tester != nil ||
			!strings.HasSuffix(made.Email, "@test.invalid") || created.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("created %+v, %v", made, created.Header)
		}
		if got := w.do(w.second, "GET", "", "", 200, &list); len(list) != 1 || list[0].ID != made.ID ||
			strings.Contains(got.Body, made.Password) {
			t.Errorf("the developer's other app lists %v", got)
		}
		if a, err := w.people.SignIn(t.Context(), accounts.Client{Address: "192.0.2.1"}, made.Email,
			made.Password); err != nil || a.ID != made.ID || !a.Sandbox || a.OwnerID != w.developer.ID {
			t.Errorf("signed in as %+v, %v", a, err)
		}
		if w.do(w.second, "POST", "/"+made.ID+"/fund", `{"amount_mc":7}`, 200,
			&funded); funded.Available != 1000*money.Dollar+7 || funded.Password != "" {
			t.Errorf("funded: %+v", funded)
		}
		if n := w.count(`SELECT COUNT(*) FROM balances WHERE account_id = $1 AND sandbox = 1`, made.ID); n != 1 {
			t.Error("the balance is not marked as sandbox")
		}
		live := []string{w.connect(w.first.App, made.ID), w.connect(w.second.App, made.ID)}
		rows := w.count(`SELECT COUNT(*) FROM ledger WHERE account_id = $1`, made.ID)

		w.do(w.second, "DELETE", "/"+made.ID, "", 204, nil)
		for _, c := range live {
			if conn, err := store.GetConnection(t.Context(), d, c); err != nil || conn.Status != rules.Revoked {
				t.Errorf("after it was deleted: %+v, %v", conn, err)
			}
		}
		if b, err := store.GetBalance(t.Context(), d, made.ID); err != nil || b.AvailableMC != 1000*money.Dollar+7 ||
			b.ReservedMC != 0 {
			t.Errorf("its balance: %+v, %v", b, err)
		}
		if n := w.count(`SELECT COUNT(*) FROM ledger WHERE account_id = $1`, made.ID); n != rows+2 {
			t.Errorf("%d rows of the ledger, want the %d and two revocations", n, rows)
		}
		if _, err := w.people.SignIn(t.Context(), accounts.Client{Address: "192.0.2.1"}, made.Email,
			made.Password); err == nil {
			t.Error("a deleted test account signs in")
		}
		if w.do(w.first, "GET", "", "", 200, &list); len(list) != 0 {
			t.Errorf("listed: %v", list)
		}
		w.do(w.first, "DELETE", "/"+made.ID, "", 404, nil)
		w.do(w.first, "POST", "/"+made.ID+"/fund", `{"amount_mc":7}`, 404, nil)
	})
}

// Contract §8: at most 25, also when 64 are asked for at once; one that is deleted
// makes room for one.
func TestTestAccountsAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		results := make([]apitest.Answer, 64)
		var wg sync.WaitGroup
		for i := range results {
			c := []client{w.first, w.second}[i%2]
			wg.Go(func() {
				for results[i].Status == 0 || results[i].Status == 503 { // they wait for each other's locks
					results[i] = c.Do(t, "POST", "/v1/apps/"+c.ID+"/test-accounts", "")
				}
			})
		}
		wg.Wait()
		made := 0
		for _, r := range results {
			if r.Status == 200 {
				made++
			} else if r.Code != "invalid_request" || !strings.Contains(r.Message, "at most 25") {
				t.Errorf("refused with %v", r)
			}
		}
		var list []account
		if w.do(w.first, "GET", "", "", 200, &list); made != 25 || len(list) != 25 {
			t.Fatalf("%d made, %d listed", made, len(list))
		}
		if n := w.count(`SELECT COUNT(*) FROM balances WHERE sandbox = 1`); n != 25 {
			t.Errorf("%d balances", n)
		}
		w.do(w.theirs, "POST", "", "", 200, nil) // the other developer has 25 too
		w.do(w.first, "POST", "", "", 400, nil)
		w.do(w.first, "DELETE", "/"+list[7].ID, "", 204, nil)
		w.do(w.second, "POST", "", "", 200, nil)
		w.do(w.first, "POST", "", "", 400, nil)
	})
}

// Nothing but the developer's own test accounts is found, and nothing else
// changes: not another developer's, not a person, not the developer.
func TestForeignTestAccountsAreNotFound(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		var foreign account
		w.do(w.theirs, "POST", "", "", 200, &foreign)
		connected := w.connect(w.theirs.App, foreign.ID)
		sum := func() string {
			return fmt.Sprint(w.count(`SELECT SUM(available_mc + 3 * reserved_mc + 7 * seq)
				FROM balances`), w.count(`SELECT COUNT(*) FROM accounts WHERE deactivated_us IS NULL`),
				w.count(`SELECT COUNT(*) FROM connections WHERE status = 'active' AND id = $1`, connected))
		}
		before, answers := sum(), map[string]bool{}
		for _, target := range []string{foreign.ID, w.person.ID, w.developer.ID, w.other.ID, "wac_none", "%00",
			"%2e%2e"} {
			for method, path := range map[string]string{"DELETE": "/" + target, "POST": "/" + target + "/fund"} {
				got := w.first.Do(t, method, "/v1/apps/"+w.first.ID+"/test-accounts"+path,
					map[string]string{"POST": `{"amount_mc":5}`}[method])
				if got.Status != 404 && !strings.HasPrefix(target, "%") || got.Status < 400 {
					t.Errorf("%s %s: %v", method, path, got)
				}
				if got.Status == 404 && strings.HasPrefix(target, "wac_") {
					answers[got.Body] = true
				}
			}
		}
		if len(answers) != 1 {
			t.Errorf("what does not exist and what is another's are told apart: %v", answers)
		}
		if after := sum(); after != before {
			t.Errorf("something changed: %s, was %s", after, before)
		}
		for _, method := range []string{"GET", "POST"} {
			if got := w.first.Do(t, method, "/v1/apps/"+w.second.ID+"/test-accounts", ""); got.Status != 404 {
				t.Errorf("%s with another app's id: %v", method, got)
			}
			if got := w.live.Do(t, method, "/v1/apps/"+w.live.ID+"/test-accounts", ""); got.Code != "invalid_request" ||
				!strings.Contains(got.Message, "the app is live") {
				t.Errorf("%s of a live app: %v", method, got)
			}
		}
	})
}

// What may be added to a test account: from one micro-cent to what Purser takes
// from anywhere, and no more in all than sums can hold.
func TestFundingIsBounded(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		var made account
		w.do(w.first, "POST", "", "", 200, &made)
		fund := func(amount string, status int) {
			w.do(w.first, "POST", "/"+made.ID+"/fund", `{"amount_mc":`+amount+`}`, status, &made)
		}
		for _, wrong := range []string{"0", "-1", "1.5", "1e3", `"5"`, "null", "true", "[]", "{}",
			"9223372036854775808", fmt.Sprint(money.Max + 1)} {
			fund(wrong, 400)
		}
		fund("1", 200)
		fund(fmt.Sprint(money.Max), 200)
		if want := 1000*money.Dollar + 1 + money.Max; made.Available != want {
			t.Errorf("available %d, want %d", made.Available, want)
		}
	})
}

// Passwords take a core for a while: whoever makes and deletes accounts in a loop
// is slowed down.
func TestHasteIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for range 100 {
		var made account
		w.do(w.first, "POST", "", "", 200, &made)
		w.do(w.first, "DELETE", "/"+made.ID, "", 204, nil)
	}
	if got := w.second.Do(t, "POST", "/v1/apps/"+w.second.ID+"/test-accounts", ""); got.Status != 429 ||
		got.Code != "rate_limited" || got.Header.Get("Retry-After") != "1" {
		t.Errorf("%v, Retry-After %q", got, got.Header.Get("Retry-After"))
	}
	w.do(w.theirs, "POST", "", "", 200, nil)
}
