package operator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const (
	person   = "person@example.com"
	password = apitest.Password
)

// invite invites an address and returns the id of its account and the path of the link.
func (b *bundle) invite(t *testing.T, email string) (accountID, path string) {
	t.Helper()
	a := b.api.Do(t, "POST", "/v1/operator/invitations", `{"email":"`+email+`"}`)
	var i struct {
		AccountID string `json:"account_id"`
		URL       string `json:"url"`
	}
	if err := json.Unmarshal([]byte(a.Body), &i); err != nil || a.Status != 200 {
		t.Fatalf("invite: %v, %v", a, err)
	}
	return i.AccountID, strings.TrimPrefix(i.URL, b.api.Base)
}

// join returns the id of an account that an invitation has opened, and a browser in which it is signed in.
func (b *bundle) join(t *testing.T, email string) (string, *apitest.Browser) {
	t.Helper()
	accountID, path := b.invite(t, email)
	browser := apitest.NewBrowser(t, b.api.Base)
	browser.Post(path, url.Values{"password": {password}}).Leads(t, "/")
	return accountID, browser
}

// do runs a command of the ledger.
func (b *bundle) do(t *testing.T, c rules.Command) rules.Result {
	t.Helper()
	money := store.NewWriter(b.d, func() time.Time { return time.UnixMicro(b.nowUS.Load()) })
	var r rules.Result
	err := b.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		r, err = money.DoTx(ctx, tx, c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An invitation opens an account without any email, once, and only as long as it is the newest and fresh.
func TestInvitationOpensAnAccount(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		ask := func(email string) apitest.Answer {
			return b.api.Do(t, "POST", "/v1/operator/invitations", `{"email":"`+email+`"}`)
		}
		want(t, "no address", ask("person"), 400, "email: must be an address")
		want(t, "a confirmed one", ask("Developer@example.com"), 400, "has an account already")
		accountID, first := b.invite(t, person)
		again, second := b.invite(t, "Person@Example.com")
		browser := apitest.NewBrowser(t, b.api.Base)
		if accountID != again || first == second {
			t.Errorf("invited as %s and %s by %s and %s", accountID, again, first, second)
		}
		browser.Get(first).Want(t, 404, "Ask for a new one")
		browser.Post(first, url.Values{"password": {password}}).Want(t, 404)
		browser.Get(second).Want(t, 200, person, "Choose a password").WantSecurityHeaders(t)
		browser.Post(second, url.Values{"password": {"short"}}).Want(t, 400, "at least 10")
		want(t, "not confirmed by opening it", b.api.Do(t, "GET", "/v1/operator/accounts/"+accountID, ""), 200,
			`"status":"unconfirmed"`)

		var won atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				p := apitest.NewBrowser(t, b.api.Base).Post(second, url.Values{"password": {password}})
				if p.Status == 303 {
					won.Add(1)
				} else if p.Status != 404 {
					t.Errorf("accepted at once: %d %s", p.Status, p.Body)
				}
			})
		}
		if all.Wait(); won.Load() != 1 {
			t.Errorf("the invitation was accepted %d times", won.Load())
		}
		want(t, "confirmed", b.api.Do(t, "GET", "/v1/operator/accounts/"+person, ""), 200, `"status":"active"`)
		browser.SignIn(person).Get("/settings").Want(t, 200)
		want(t, "invited twice", ask(person), 400, "has an account already")

		_, old := b.invite(t, "late@example.com")
		b.nowUS.Add((7 * 24 * time.Hour).Microseconds())
		browser.Get(old).Want(t, 404)
		if err := b.identity.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		log := b.api.Do(t, "GET", "/v1/operator/log?action=invite", "")
		if strings.Contains(log.Body, "@") || strings.Count(log.Body, `"id":"opl_`) != 3 {
			t.Errorf("the log: %v", log)
		}
	})
}

// A suspension signs its owner out and keeps him out, pauses what is active, and says why; lifting it resumes only what
// it has paused itself.
func TestAccountIsSuspended(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		accountID, browser := b.join(t, person)
		path := "/v1/operator/accounts/" + url.PathEscape(person)
		b.exec(t, `INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
			VALUES ('app_two', 'wac_dev', 'Two', 'cid_two', '', '[]', '[]', 'limited-live', 'live', '[]', 0, 1)`)
		b.do(t, rules.TopUp{AccountID: accountID, AmountMC: 1_000_000_000})
		b.do(t, rules.Connect{ConnectionID: "conn_1", AppID: b.app.ID, AccountID: accountID, RequestedMC: 500_000_000})
		b.do(t, rules.Connect{ConnectionID: "conn_2", AppID: "app_two", AccountID: accountID, RequestedMC: 1})
		b.do(t, rules.Freeze{ConnectionID: "conn_2", By: rules.FrozenByUser})

		browser.Get("/settings").Want(t, 200)
		want(t, "no reason", b.api.Do(t, "POST", path+"/suspend", `{}`), 400, "reason: required")
		want(t, "lift", b.api.Do(t, "POST", path+"/lift", ""), 400, "is not suspended")
		want(t, "suspend", b.api.Do(t, "POST", path+"/suspend", `{"reason":"Stolen card."}`), 200,
			`"status":"suspended","sandbox":false,"developer":false,"two_step":false,"suspension":{"reason":"Stolen card."`)
		want(t, "twice", b.api.Do(t, "POST", path+"/suspend", `{"reason":"x"}`), 400, "suspended already")
		browser.Get("/settings").Leads(t, "/sign-in?next=%2Fsettings")
		in := url.Values{"email": {person}, "password": {password}}
		browser.Post("/sign-in", in).Want(t, 401, "This account is suspended")
		in.Set("password", "another password")
		browser.Post("/sign-in", in).Want(t, 401, "Incorrect email or password").Lacks(t, "suspended")
		browser.Post("/forgot", url.Values{"email": {person}}).Want(t, 200)
		shown := b.api.Do(t, "GET", path, "")
		want(t, "paused", shown, 200, `"freeze":{"cause":"operator","reason":null}`)
		if strings.Contains(shown.Body, `"cause":"user"`) {
			t.Errorf("the user's own pause is the weaker cause: %v", shown)
		}
		want(t, "the balance stays", shown, 200,
			`"available_mc":499999999,"available_display":"$4.99999999","reserved_mc":500000001`)
		var subjects string
		if err := d.QueryRowContext(t.Context(), `SELECT COALESCE(MAX(subject), '') FROM mails WHERE account_id = $1
			AND subject LIKE '%suspended'`, accountID).Scan(&subjects); err != nil || subjects == "" {
			t.Errorf("the mail: %q, %v", subjects, err)
		}

		want(t, "lift", b.api.Do(t, "POST", path+"/lift", ""), 200, `"status":"active"`)
		shown = b.api.Do(t, "GET", path, "")
		want(t, "resumed", shown, 200, `"status":"active","freeze":null`)
		want(t, "the user's own pause stays", shown, 200, `"freeze":{"cause":"user","reason":null}`)
		in.Set("password", password)
		browser.Post("/sign-in", in).Leads(t, "/")
		want(t, "the app's suspension is another", b.api.Do(t, "POST", "/v1/operator/accounts/"+b.app.ID+"/suspend",
			`{"reason":"x"}`), 404, "no such account")
	})
}

// TestPausesEndApart: an operator pauses what its user has paused, twice, once with the words of the suspension; each
// pause ends by itself. In an open dispute an operator resumes only for a reason.
func TestPausesEndApart(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		accountID, _ := b.join(t, person)
		account, conn := "/v1/operator/accounts/"+accountID, "/v1/operator/connections/conn_1"
		b.do(t, rules.TopUp{AccountID: accountID, AmountMC: 1_000_000_000})
		b.do(t, rules.Connect{ConnectionID: "conn_1", AppID: b.app.ID, AccountID: accountID, RequestedMC: 500_000_000})
		b.do(t, rules.Freeze{ConnectionID: "conn_1", By: rules.FrozenByUser})
		byOperator := `"freeze":{"cause":"operator","reason":"fraud"}`
		want(t, "freeze", b.api.Do(t, "POST", conn+"/freeze", `{"reason":"fraud"}`), 200, byOperator)
		want(t, "freeze again", b.api.Do(t, "POST", conn+"/freeze", `{"reason":"more"}`), 200, byOperator)
		want(t, "suspend", b.api.Do(t, "POST", account+"/suspend", `{"reason":"fraud"}`), 200, "suspended")
		want(t, "lift", b.api.Do(t, "POST", account+"/lift", ""), 200, `"active"`)
		want(t, "still paused", b.api.Do(t, "GET", account, ""), 200, `"freeze":{"cause":"operator"`)
		want(t, "resume", b.api.Do(t, "POST", conn+"/resume", ""), 200, `"freeze":{"cause":"user","reason":null}`)
		want(t, "the user's", b.api.Do(t, "POST", conn+"/resume", `{"reason":"x"}`), 400, "its user has paused")
		b.do(t, rules.Resume{ConnectionID: "conn_1"})
		want(t, "active", b.api.Do(t, "POST", conn+"/resume", ""), 400, "is active already")

		b.do(t, rules.OpenPayment{PaymentID: "top_1", AccountID: accountID, AmountMC: 1})
		b.do(t, rules.DisputePayment{PaymentID: "top_1", DisputeID: "du_1"})
		want(t, "disputed", b.api.Do(t, "POST", conn+"/resume", ""), 400, "du_1")
		want(t, "for a reason", b.api.Do(t, "POST", conn+"/resume", `{"reason":"The bank agrees."}`), 200, `"active"`)
	})
}

// Support signs an account out, and removes lost second factors; the log keeps no address.
func TestSupportHelpsASignIn(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		accountID, browser := b.join(t, person)
		path := "/v1/operator/accounts/" + accountID
		browser.Get("/settings").Want(t, 200)
		want(t, "sign out", b.api.Do(t, "POST", path+"/sign-out", `{"reason":"Lost a laptop."}`), 200,
			`"status":"active"`)
		browser.Get("/settings").Leads(t, "/sign-in?next=%2Fsettings")
		want(t, "no second factor", b.api.Do(t, "POST", path+"/reset-two-step", `{"reason":"x"}`), 400,
			"no two-step verification")

		grant := func(want int) {
			t.Helper()
			answer := b.api.Do(t, "POST", "/v1/operator/roles", `{"email":"`+person+`","role":"operator"}`)
			if answer.Status != want {
				t.Errorf("grant: %d, want %d", answer.Status, want)
			}
		}
		grant(400) // who knows the password alone could add a second step
		b.exec(t, `UPDATE accounts SET two_step = 1 WHERE id = '`+accountID+`'`)
		grant(200)
		b.exec(t, `INSERT INTO totp_seeds (account_id, sealed, active, last_step) VALUES ('`+accountID+`', 'x', 1, 0)`)
		b.exec(t, `INSERT INTO recovery_codes (account_id, code_hash) VALUES ('`+accountID+`', 'x')`)
		in := url.Values{"email": {person}, "password": {password}}
		browser.Post("/sign-in", in).Leads(t, "/sign-in/code?next=%2F")
		want(t, "reset", b.api.Do(t, "POST", path+"/reset-two-step", `{"reason":"Lost the phone."}`), 200,
			`"two_step":false`)
		want(t, "no role", b.api.Do(t, "GET", path, ""), 200, `"role":"none"`)
		grant(400)
		browser.Get("/settings").Leads(t, "/sign-in?next=%2Fsettings")
		browser.Post("/sign-in", in).Leads(t, "/")
		browser.Get("/settings/security").Want(t, 200, "Two-step verification turned off by support",
			"Signed out everywhere by support")
		var left int
		if err := d.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM totp_seeds) +
			(SELECT COUNT(*) FROM recovery_codes)`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d factors are left: %v", left, err)
		}
		b.exec(t, `INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us) VALUES ('wac_test', 'test@example.com', '', 1, 'wac_dev', 1)`)
		want(t, "a test account", b.api.Do(t, "POST", "/v1/operator/accounts/wac_test/sign-out", `{"reason":"x"}`), 400,
			"belongs to its developer")
		log := b.api.Do(t, "GET", "/v1/operator/log?subject="+accountID, "")
		if strings.Contains(log.Body, "@") || strings.Count(log.Body, `"id":"opl_`) != 4 {
			t.Errorf("the log: %v", log)
		}
	})
}

// Lists are found by what an operator has at hand, and paged.
func TestOperatorLists(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		accountID, _ := b.join(t, person)
		b.nowUS.Add(1000)
		b.join(t, "second@example.com")
		b.do(t, rules.TopUp{AccountID: accountID, AmountMC: 1_000_000_000})
		c := b.do(t, rules.Connect{
			ConnectionID: "conn_1",
			AppID:        b.app.ID,
			AccountID:    accountID,
			RequestedMC:  500_000_000,
		}).Connection
		books := apitest.NewBooks(t, d)
		books.Terms = `{"rates":{"book":"2026-11-01","mc_per_million":[[0,100000,10000,100000,200000]]},` +
			`"margin_ppm":0,"fee_ppm":0,"input_tokens":1,"max_tokens":1}`
		var last rules.Entry
		for range 3 {
			last = books.Spend(c, 1000)
		}
		get := func(path string) apitest.Answer { return b.api.Do(t, "GET", "/v1/operator/"+path, "") }
		for _, text := range []string{person, accountID, "conn_1", last.ID, last.RequestID(),
			b.ids.Identify(accountID)} {
			want(t, text, get("accounts?search="+url.QueryEscape(text)), 200, `[{"id":"`+accountID+`"`)
			want(t, text, get("accounts/"+url.PathEscape(text)), 200, `{"id":"`+accountID+`"`)
		}
		for _, text := range []string{"nobody@example.com", "wac_x", "conn_x", "req_x", "r", b.ids.Identify("x")} {
			want(t, text, get("accounts?search="+text), 200, "[]")
			want(t, text, get("accounts/"+text), 404, "no such account")
		}
		page := get("accounts?limit=1&starting_after=wac_cccccccccccccccccccccccccc")
		want(t, "newest", page, 200, `"email":"second@example.com"`)
		if link := page.Header.Get("Link"); !strings.Contains(link, "starting_after=wac_") {
			t.Errorf("Link %q", link)
		}
		want(t, "apps", get("apps?search=Read"), 200, `"name":"Reader"`)
		want(t, "no app", get("apps?search=Writer"), 200, "[]")
		want(t, "connections", get("connections?account="+person+"&app="+b.app.ID+"&status=active"), 200,
			`[{"id":"conn_1"`)
		want(t, "frozen", get("connections?status=frozen"), 200, "[]")
		want(t, "exhausted", get("connections?status=exhausted"), 400, "status: must be")
		for _, of := range []string{"account=" + person, "app=" + b.app.ID} {
			first := get("charges?limit=2&" + of)
			want(t, of, first, 200, `[{"id":"`+last.ID+`"`)
			if n := strings.Count(first.Body, `"id":"led_`); n != 2 {
				t.Errorf("%s: %d of 2 rows", of, n)
			}
			_, link, _ := strings.Cut(first.Header.Get("Link"), "<")
			link, _, _ = strings.Cut(link, ">")
			rest := b.api.Do(t, "GET", link, "")
			if n := strings.Count(rest.Body, `"id":"led_`); n != 1 || rest.Header.Get("Link") != "" {
				t.Errorf("%s: %d rows on the second page: %v", of, n, rest)
			}
		}
		want(t, "of what?", get("charges"), 400, "give an account or an app")
		want(t, "another's row", get("charges?account=second@example.com&limit=2&starting_after="+last.ID), 400,
			"starting_after")
		want(t, "a row", get("ledger/"+last.RequestID()), 200, `"user_charge_mc":1000`)
		want(t, "no row", get("ledger/req_x"), 404, "no such ledger row")
		want(t, "reverse by request", b.api.Do(t, "POST", "/v1/operator/ledger/"+last.RequestID()+"/reverse",
			`{"reason":"provider_error"}`), 200, `"reversal_of":"`+last.ID+`"`)
		want(t, "log of a row", get("log?subject="+last.ID+"&action=reverse"), 200, `"action":"reverse"`)
		want(t, "log of nothing", get("log?actor=10.0.0.1"), 200, "[]")
	})
}

// Goodwill credits an account once for each id, tells the user why, and is taken back as far as it is there.
func TestGoodwillCredit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		accountID, browser := b.join(t, person)
		path := "/v1/operator/accounts/" + url.PathEscape(person)
		credit := func(body string) apitest.Answer { return b.api.Do(t, "POST", path+"/goodwill", body) }
		for body, says := range map[string]string{
			`{"reason":"Sorry."}`:                                  "amount_mc: required",
			`{"amount_mc":5}`:                                      "reason: required",
			`{"amount_mc":0,"reason":"Sorry."}`:                    "amount_mc: must be from 1",
			`{"amount_mc":-5,"reason":"Sorry."}`:                   "amount_mc: must be from 1",
			`{"amount_mc":100000000001,"reason":"Sorry."}`:         "amount_mc: must be from 1",
			`{"amount_mc":5,"reason":" "}`:                         "1 to 500",
			`{"id":"gwc_1","amount_mc":5,"reason":"Sorry."}`:       "id: must be gwc_",
			`{"amount_mc":5,"reason":"Sorry.","account_id":"wac"}`: "not a member",
		} {
			want(t, body, credit(body), 400, says)
		}
		const once = `{"id":"gwc_06f2k8m3q5t7w9y1b3d5f7h9j1","amount_mc":500000000,"reason":"Sorry for the outage."}`
		var all sync.WaitGroup
		bodies := make([]string, 4)
		for i := range bodies {
			all.Go(func() {
				a := credit(once)
				want(t, "credit", a, 200, `"status":"settled","reversal_of":null,"reason":"Sorry for the outage."`)
				bodies[i] = a.Body
			})
		}
		all.Wait()
		for _, body := range bodies[1:] {
			if body != bodies[0] {
				t.Errorf("the same credit is %s and %s", bodies[0], body)
			}
		}
		want(t, "another with its id", credit(strings.Replace(once, "500000000", "6", 1)), 400,
			"another goodwill credit")
		want(t, "once", b.api.Do(t, "GET", path, ""), 200, `"available_mc":500000000`)
		want(t, "a second one", credit(`{"amount_mc":1,"reason":"And for the delay."}`), 200, `"amount_mc":1`)
		browser.Get("/settings").Want(t, 200)
		var mails int
		if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM mails WHERE account_id = $1
			AND subject = 'We added $5.00 to your balance' AND text LIKE '%Sorry for the outage.%'`,
			accountID).Scan(&mails); err != nil || mails != 1 {
			t.Errorf("%d mails: %v", mails, err)
		}

		var row struct{ ID string }
		if err := json.Unmarshal([]byte(bodies[0]), &row); err != nil {
			t.Fatal(err)
		}
		b.do(t, rules.Connect{ConnectionID: "conn_1", AppID: b.app.ID, AccountID: accountID, RequestedMC: 200_000_001})
		reverse := func() apitest.Answer {
			return b.api.Do(t, "POST", "/v1/operator/ledger/"+row.ID+"/reverse", `{"reason":"Given by mistake."}`)
		}
		exec := func(statement string, args ...any) {
			if _, err := d.ExecContext(t.Context(), statement, args...); err != nil {
				t.Fatal(err)
			}
		}
		exec(`INSERT INTO refunds (id, payment_id, account_id, cents, total_cents, state, error, next_us, created_us,
			by_user) VALUES ('rfd_1', 'top_1', $1, 100, 100, 'open', '', 0, 1, 0)`, accountID)
		want(t, "what goes to a card", reverse(), 400, "a refund of $1.00 of top-up top_1 has begun")
		exec(`DELETE FROM refunds`)
		want(t, "what is there", reverse(), 200, `"amount_mc":300000000`)
		want(t, "nothing is there", reverse(), 400, "nothing of it is available")
		b.do(t, rules.Revoke{ConnectionID: "conn_1"})
		want(t, "the rest", reverse(), 200, `"amount_mc":200000000`)
		want(t, "all is back", reverse(), 400, "withdrawn already")
		want(t, "the other stays", b.api.Do(t, "GET", path, ""), 200, `"available_mc":1,`)
		b.do(t, rules.TopUp{AccountID: accountID, AmountMC: 7})
		var plain string
		if err := d.QueryRowContext(t.Context(), `SELECT id FROM ledger WHERE amount_mc = 7`).Scan(&plain); err != nil {
			t.Fatal(err)
		}
		want(t, "a payment", b.api.Do(t, "POST", "/v1/operator/ledger/"+plain+"/reverse", `{"reason":"x"}`), 400,
			"only a charge or a goodwill credit")
		log := b.api.Do(t, "GET", "/v1/operator/log?action=goodwill", "")
		if n := strings.Count(log.Body, `"id":"opl_`); n != 2 {
			t.Errorf("%d entries: %v", n, log)
		}
	})
}

// Closing an account returns what is left of its payments, takes goodwill back, and erases who it was.
func TestOperatorClosesAnAccount(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			testClosing(t, dbtest.URL(t, e))
		})
	}
}

func testClosing(t *testing.T, target string) {
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	b := newBundle(t, d, token)
	accountID, browser := b.join(t, person)
	path := "/v1/operator/accounts/" + accountID
	closeAccount := func() apitest.Answer {
		return b.api.Do(t, "POST", path+"/close", `{"reason":"Asked for by its user."}`)
	}
	pay := func(amount, how string) {
		t.Helper()
		form := url.Values{"amount": {amount}}
		form.Set("token", browser.Get("/top-up").Found(t, `name="token" value="([^"]+)"`))
		to := browser.Post("/top-up", form).To
		session := to[strings.LastIndexByte(to, '/')+1:]
		if how == "" {
			return
		}
		if err := b.stripe.Steer(session, how, url.Values{}); err != nil {
			t.Fatal(err)
		}
		b.nowUS.Add((2 * time.Hour).Microseconds())
		if err := b.topups.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pay("20", "pay")
	b.do(t, rules.GiveGoodwill{GoodwillID: "gwc_x", AccountID: accountID, AmountMC: 300_000_001, Reason: "Sorry."})
	b.do(t, rules.Connect{ConnectionID: "conn_1", AppID: b.app.ID, AccountID: accountID, RequestedMC: 900_000_000})
	pay("10", "") // a checkout that was left

	b.exec(t, `UPDATE accounts SET operator = 1 WHERE id = '`+accountID+`'`)
	want(t, "an operator", closeAccount(), 400, "take its role first")
	b.exec(t, `UPDATE accounts SET operator = 0 WHERE id = '`+accountID+`'`)
	if err := b.stripe.Steer("", "down", url.Values{"down": {"9"}}); err != nil {
		t.Fatal(err)
	}
	want(t, "without Stripe", closeAccount(), 503, "Stripe")
	want(t, "it waits", b.api.Do(t, "GET", path, ""), 200, `"status":"suspended"`)
	b.exec(t, `INSERT INTO refunds (id, payment_id, account_id, cents, total_cents, state, next_us, created_us)
		SELECT 'rfd_1', id, account_id, 2000, 2000, 'open', 0, 0 FROM checkouts WHERE cents = 2000`)
	lifted := b.api.Do(t, "POST", path+"/lift", "")
	want(t, "lifted while its refund may be made", lifted, 400, "a refund of $20.00 of top-up top_")
	if err := b.stripe.Steer("", "down", url.Values{"down": {"0"}}); err != nil {
		t.Fatal(err)
	}
	closed := closeAccount()
	want(t, "closed", closed, 200, `"status":"closed"`)
	want(t, "refunded", closed, 200, `"refunded_mc":2000000000,"refunded_display":"$20.00"`)
	want(t, "goodwill", closed, 200, `"withdrawn_mc":300000001,"withdrawn_display":"$3.00000001","rest_mc":0`)
	want(t, "again", closeAccount(), 400, "the account is closed")
	shown := b.api.Do(t, "GET", path, "")
	want(t, "a tombstone", shown, 200, `"available_mc":0,"available_display":"$0.00","reserved_mc":0`)
	if strings.Contains(shown.Body, person) {
		t.Errorf("its address is still there: %v", shown)
	}
	browser.Get("/settings").Leads(t, "/sign-in?next=%2Fsettings")
	b.join(t, person) // the address is free again
	log := b.api.Do(t, "GET", "/v1/operator/log?subject="+accountID, "")
	want(t, "log", log, 200, `"action":"close"`)
	want(t, "log", log, 200, `"action":"suspend"`)
	var out bytes.Buffer
	if n, err := audit.VerifyAndPrint(t.Context(), target, &out, time.UnixMicro(b.nowUS.Load())); n != 0 || err != nil {
		t.Errorf("%d findings, %v:\n%s", n, err, out.String())
	}
}

// TestClosingKeepsWhatWasPaid closes no account whose user has money that a card did not take back: it is not withdrawn
// with the goodwill, nor said to be refunded. Once the operator has settled it, the account is closed.
func TestClosingKeepsWhatWasPaid(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		accountID, browser := b.join(t, person)
		steer := func(who, do string, with url.Values) {
			t.Helper()
			if err := b.stripe.Steer(who, do, with); err != nil {
				t.Fatal(err)
			}
		}
		form := url.Values{"amount": {"20"}}
		form.Set("token", browser.Get("/top-up").Found(t, `name="token" value="([^"]+)"`))
		to := browser.Post("/top-up", form).To
		steer(to[strings.LastIndexByte(to, '/')+1:], "pay", url.Values{})
		b.nowUS.Add((2 * time.Hour).Microseconds())
		if err := b.topups.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.do(t, rules.GiveGoodwill{
			GoodwillID: "gwc_x", AccountID: accountID, AmountMC: 5 * money.Dollar, Reason: "Sorry.",
		})
		steer("", "refunds", url.Values{"status": {"pending"}})
		form = url.Values{"amount": {"20"}, "present": {password}}
		form.Set("token", browser.Get("/top-up/refund").Found(t, `name="token" value="([^"]+)"`))
		browser.Post("/top-up/refund", form).Leads(t, "/top-up/refund?done=1")
		steer("", "refunds", url.Values{"status": {"failed"}})

		path := "/v1/operator/accounts/" + accountID
		for range 2 { // the first time it hears that the refund has failed
			closed := b.api.Do(t, "POST", path+"/close", `{"reason":"Asked for by its user."}`)
			want(t, "paid", closed, 400, "$20.00 that the user paid cannot be refunded to a payment")
			shown := b.api.Do(t, "GET", path, "")
			want(t, "it waits", shown, 200, `"status":"suspended"`)
			want(t, "it waits", shown, 200, `"available_display":"$25.00"`)
		}
		settled := b.api.Do(t, "POST", path+"/settle", `{"amount_mc":2000000000,"reason":"Paid by bank transfer."}`)
		want(t, "settled", settled, 200, `"status":"suspended"`)
		closed := b.api.Do(t, "POST", path+"/close", `{"reason":"Asked for by its user."}`)
		want(t, "closed", closed, 200, `"refunded_mc":0,`)
		want(t, "closed", closed, 200, `"withdrawn_display":"$5.00"`)
	})
}
