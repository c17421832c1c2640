package privacy_test

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/stripeapi"
)

const closing = "/settings/data/close"

// farewell is the form that closes an account.
func farewell(email string) url.Values {
	return url.Values{"confirm": {email}, "present": {password}}
}

// files opens an export: file name → text.
func files(t *testing.T, a answer) map[string]string {
	t.Helper()
	if a.status != 200 || a.header.Get("Content-Type") != "application/zip" ||
		!strings.Contains(a.header.Get("Content-Disposition"), "attachment") {
		t.Fatalf("the export: %d %v", a.status, a.header)
	}
	z, err := zip.NewReader(bytes.NewReader([]byte(a.page)), int64(len(a.page)))
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(f.Name, "purser-data/")
		list[name] = string(text)
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(name, ".jsonl") && !json.Valid([]byte(line)) {
				t.Errorf("%s: no JSON: %s", name, line)
			}
		}
	}
	return list
}

// Everything of one's own is in the export, nothing of anybody else, and nothing
// that opens a door.
func TestExport(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		const export = "/settings/data/export"
		for range 3 {
			w.bill(w.Hold(w.conn, money.Cent))
		}
		w.Do(rules.RequestAllocation{
			RequestID:    "acr_1",
			ConnectionID: w.conn.ID,
			AppID:        w.app.ID,
			TargetMC:     4 * money.Dollar,
			MaxMC:        9 * money.Dollar,
			Reason:       "More pages.",
		})
		w.Do(rules.OpenPayment{PaymentID: "top_1", AccountID: w.ids["person"], AmountMC: 9 * money.Dollar})
		w.Do(rules.MarkPaymentPaid{PaymentID: "top_1", PaymentIntent: "pi_1", HoldUntilUS: 2_000_000_000_000_000})
		w.exec(`UPDATE apps SET test_allowlist = '["friend@example.org"]'`)
		for _, name := range []string{"person", "stranger"} {
			key := []byte("key of " + name)
			w.exec(`INSERT INTO passkeys (id, account_id, credential_id, public_key, name, transports, backup_eligible, counter, created_us, used_us) VALUES ($1, $2, $3, $3, 'My laptop', '', 0, 0, $4, 0)`, "pky_"+name, w.ids[name], key, w.Now().UnixMicro())
			w.exec(`INSERT INTO openid_logins (issuer, subject, account_id, email, created_us) VALUES ('https://login.example.com', $1, $2, $3, 0)`, name, w.ids[name], name+"@example.com")
			w.exec(`INSERT INTO auto_topups (account_id, customer, payment_method, brand, last4, expires, enabled, below_cents, add_cents, most_cents) VALUES ($1, $2, $3, 'Visa', '4242', '04/2030', 1, 500, 600, 5000)`, w.ids[name], "cus_"+name, "pm_"+name)
		}
		b := w.signedIn("person")
		b.get("/settings").want(t, 200, `href="/settings/data"`)
		b.get("/settings/data").want(t, 200, `action="/settings/data/export"`, closing)
		got := files(t, b.post(export, nil))
		rows := map[string]int{
			"account.jsonl":             1,
			"connections.jsonl":         1,
			"ledger.jsonl":              6,
			"top-ups.jsonl":             1,
			"allocation-requests.jsonl": 1,
			"notices.jsonl":             1,
			"security-events.jsonl":     2,
			"sessions.jsonl":            1,
			"apps.jsonl":                0,
			"test-accounts.jsonl":       0,
		}
		for name, n := range rows {
			if strings.Count(got[name], "\n") != n {
				t.Errorf("%s has not %d rows: %s", name, n, got[name])
			}
		}
		for name, says := range map[string]string{
			"README.txt":                "100,000,000 are a US dollar",
			"account.jsonl":             `"email":"person@example.com"`,
			"connections.jsonl":         `"app_name":"Reader"`,
			"ledger.jsonl":              `"user_charge_mc":1000000`,
			"ledger.jsonl ":             `"stripe_payment_intent":"pi_1","hold_until":"2033-05-18T03:33:20.000Z"`,
			"top-ups.jsonl":             `"what":"paid"`,
			"allocation-requests.jsonl": "More pages.",
			"security-events.jsonl":     "data-exported",
			"sessions.jsonl":            `"browser":"Go-http-client`,
		} {
			if !strings.Contains(got[strings.TrimSpace(name)], says) {
				t.Errorf("%s lacks %q: %s", name, says, got[name])
			}
		}
		if !strings.Contains(got["passkeys.jsonl"], `{"name":"My laptop","created_at":"2026-`) ||
			strings.Contains(got["passkeys.jsonl"], "last_used") || strings.Count(got["passkeys.jsonl"], "\n") != 1 {
			t.Errorf("passkeys: %s", got["passkeys.jsonl"])
		}
		if got["logins.jsonl"] != `{"provider":"https://login.example.com","email":"person@example.com","linked_at":"1970-01-01T00:00:00.000Z"}`+"\n" {
			t.Errorf("logins: %s", got["logins.jsonl"])
		}
		if !strings.Contains(got["auto-top-up.jsonl"],
			`{"on":true,"below_mc":500000000,"add_mc":600000000,"most_in_a_month_mc":5000000000,"card":"Visa ending in 4242"`) {
			t.Errorf("automatic top-ups: %s", got["auto-top-up.jsonl"])
		}
		hash, err := passwordHash()
		if err != nil {
			t.Fatal(err)
		}
		whole := fmt.Sprint(got)
		for _, secret := range []string{hash, "developer@", "stranger", "pm_", "key of",
			base64.StdEncoding.EncodeToString([]byte("key of person")), "tester@", "friend@", w.ids["developer"],
			`"hash"`, "secret"} {
			if strings.Contains(whole, secret) {
				t.Errorf("the export says %q", secret)
			}
		}
		theirs := fmt.Sprint(files(t, w.signedIn("developer").post(export, nil)))
		for _, foreign := range []string{"person@", w.ids["person"], w.conn.ID, "friend@"} {
			if strings.Contains(theirs, foreign) {
				t.Errorf("the developer's export says %q", foreign)
			}
		}
		if !strings.Contains(theirs, w.app.ID) || !strings.Contains(theirs, w.ids["tester"]) {
			t.Errorf("the developer's export lacks something: %s", theirs)
		}

		for _, forged := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example.com"}} {
			b.post(export, nil, forged...).want(t, 403)
		}
		b.get(export).want(t, 405)
		w.browser().post(export, nil).want(t, 303)
		files(t, b.post(export, nil))
		files(t, b.post(export, nil))
		if a := b.post(export, nil).want(t, 429,
			"just downloaded your data several times"); a.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %v", a.header)
		}
	})
}

// ready takes away what keeps the person from closing: all but half a cent is spent.
func (w *world) ready() {
	w.t.Helper()
	w.bill(w.Hold(w.conn, 3*money.Dollar))
	w.Do(rules.Revoke{ConnectionID: w.conn.ID})
	c := w.connect(w.ids["person"], 2*money.Dollar)
	w.bill(w.Hold(c, 2*money.Dollar-money.Cent/2))
	w.conn = c
}

// Nothing is closed while something is under way, nor for whoever does not know
// the password or did not mean it, nor by a form of another site.
func TestWhatKeepsAnAccountOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		b, person := w.signedIn("person"), farewell("person@example.com")
		open := func(what string) {
			t.Helper()
			if n := w.count(`SELECT COUNT(*) FROM accounts WHERE closed_us IS NOT NULL`); n != 0 || w.changes != 0 {
				t.Fatalf("%s: closed", what)
			}
			if n := w.count(`SELECT COUNT(*) FROM connections WHERE id = $1 AND status <> 'revoked'`,
				w.conn.ID); n != 1 {
				t.Fatalf("%s: the connection has ended", what)
			}
		}
		b.get(closing).want(t, 200, "You still have $5.00: $2.00 ready to use and $3.00 reserved").lacks(t,
			"<form method=\"post\" action=\"/settings/data/close\"")
		b.post(closing, person).want(t, 409, "You still have $5.00")
		open("with money")

		w.ready()
		call := w.Hold(w.conn, money.Cent/4)
		b.get(closing).want(t, 200, "A call is still in progress")
		b.post(closing, person).want(t, 409, "A call is still in progress")
		open("with a call")
		w.bill(call)
		w.Do(rules.OpenPayment{PaymentID: "top_1", AccountID: w.ids["person"], AmountMC: 9 * money.Dollar})
		b.post(closing, person).want(t, 409, "A top-up of $9.00 is in progress")
		open("with a payment")
		w.Do(rules.FailPayment{PaymentID: "top_1", Reason: "expired"})

		b.get(closing+"?confirm=person@example.com&present="+url.QueryEscape(password)).want(t, 200, "Close my account",
			"person@example.com", "1 connection", "less than a cent")
		b.post(closing, farewell("stranger@example.com")).want(t, 422, "not your account’s email address")
		b.post(closing, url.Values{"present": {password}}).want(t, 422)
		b.post(closing, url.Values{"confirm": {"person@example.com"}, "present": {"wrong"}}).want(t, 401,
			"Incorrect password", `value="person@example.com"`).lacks(t, `value="wrong"`)
		for _, forged := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Origin", "https://evil.example.com"},
			{"Origin", "null"},
		} {
			b.post(closing, person, forged...).want(t, 403)
		}
		w.browser().post(closing, person).want(t, 303)
		w.signedIn("stranger").post(closing, person).want(t, 422) // whose session it is decides
		tester := w.signedIn("tester")
		tester.get("/settings/data").want(t, 200).lacks(t, closing)
		tester.get(closing).want(t, 404)
		tester.post(closing, farewell("tester@example.com")).want(t, 400)
		open("by others")
		for range 9 {
			b.post(closing, url.Values{"confirm": {"person@example.com"}, "present": {"wrong"}})
		}
		if a := b.post(closing, person).want(t, 429, "Too many failed attempts"); a.header.Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %v", a.header)
		}
		open("by guessing")
	})
}

// Whoever has no password closes by having signed in just now.
func TestClosingWithoutPassword(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.ready()
		forget := `UPDATE accounts SET password_hash = '' WHERE id = $1`
		b, confirmed := w.signedIn("person"), url.Values{"confirm": {"person@example.com"}}
		w.exec(forget, w.ids["person"])
		b.get(closing).want(t, 200, "Close my account").lacks(t, `type="password"`)
		w.Pass(10 * time.Minute)
		b.get(closing).want(t, 401, "Sign in again", `name="next" value="`+closing+`"`)
		b.post(closing, confirmed).want(t, 401, "Sign in again")
		if n := w.count(`SELECT COUNT(*) FROM accounts WHERE closed_us IS NOT NULL`); n != 0 {
			t.Fatal("closed by an old session")
		}
		hash, err := passwordHash()
		if err != nil {
			t.Fatal(err)
		}
		w.exec(`UPDATE accounts SET password_hash = $2 WHERE id = $1`, w.ids["person"], hash)
		b = w.signedIn("person")
		w.exec(forget, w.ids["person"])
		b.post(closing, url.Values{"confirm": {"stranger@example.com"}}).want(t, 422)
		b.post(closing, confirmed).want(t, 200, "Your account is closed")
	})
}

// columns of all tables, as text to search in.
func (w *world) columns() (list [][2]string) {
	w.t.Helper()
	text := `SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'`
	if w.d.Engine == db.Postgres {
		text = `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()
			AND NOT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = quote_ident(table_name)::regclass)`
	}
	rows, err := w.d.QueryContext(w.t.Context(), text)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var c [2]string
		if err := rows.Scan(&c[0], &c[1]); err != nil {
			w.t.Fatal(err)
		}
		list = append(list, c)
	}
	if err := rows.Err(); err != nil || len(list) < 200 {
		w.t.Fatalf("%d columns: %v", len(list), err)
	}
	return list
}

// kept are the tables that may name a closed account by its id, and why; every
// other table that has such a column must be empty of it. Whoever adds a table has
// to say here which it is.
var kept = map[string]string{
	"accounts":           "the tombstone",
	"balances":           "the books",
	"ledger":             "the books",
	"payment_records":    "the books",
	"connections":        "the books",
	"holds":              "the books",
	"daily_totals":       "the books",
	"checkouts":          "what was asked of Stripe",
	"settlements":        "the books",
	"paying_cards":       "hashes: free credit is given once for each card",
	"oauth_codes":        "hashes that work for ten minutes",
	"oauth_device_codes": "hashes that work for ten minutes",
	"notices":            "amounts, no person",
	"mails":              "the last one, for 30 days",
	"security_events":    "that it was closed",
}

// A closed account is as if it had never been: to sign-in, to sessions, to mail
// and in every table; the books stay, and are clean.
func TestClosedIsGone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.ready()
		person := w.ids["person"]
		b, elsewhere := w.signedIn("person"), w.signedIn("person")
		w.browser().post("/sign-in", url.Values{"email": {"person@example.com"}, "password": {"wrong"}}).want(t, 401)
		b.post("/forgot", url.Values{"email": {"person@example.com"}}).want(t, 200)
		w.exec(`INSERT INTO totp_seeds (account_id, sealed, active, last_step) VALUES ($1, $2, 0, 0)`, person,
			[]byte("x"))
		w.exec(`INSERT INTO recovery_codes (account_id, code_hash) VALUES ($1, 'x')`, person)
		w.exec(`INSERT INTO passkeys (id, account_id, credential_id, public_key, name, transports, backup_eligible, counter, created_us, used_us) VALUES ('pky_x', $1, $2, $2, 'x', '', 0, 0, 1, 0)`, person, []byte("x"))
		w.exec(`INSERT INTO passkey_challenges (holder, kind, account_id, epoch, name, options, session, expires_us) VALUES ('x', 'add', $1, 0, '', '', '', 1)`, person)
		w.exec(`INSERT INTO openid_logins (issuer, subject, account_id, email, created_us) VALUES ('https://id.example.com', '1', $1, '', 1)`, person)
		w.exec(`INSERT INTO openid_attempts (state_hash, browser_hash, account_id, epoch, next, expires_us) VALUES ('s', 'b', $1, 0, '/', 1)`, person)
		w.exec(`INSERT INTO auto_topups (account_id, customer, payment_method, last4, enabled, below_cents, add_cents, most_cents) VALUES ($1, 'cus_1', 'pm_1', '4242', 1, 500, 500, 5000)`, person)
		w.exec(`UPDATE apps SET test_allowlist = '["friend@example.org","person@example.com"]'`)
		w.exec(`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ('wac_squatter', $1, '', 1)`,
			strings.ToLower(person)+"@closed.invalid") // from before this domain was refused
		rows, found := w.count(`SELECT COUNT(*) FROM ledger WHERE account_id = $1`, person), w.found()
		page := b.post(closing, farewell(" Person@Example.com ")).want(t, 200, "Your account is closed")
		if !strings.Contains(page.header.Get("Set-Cookie"), "purser=;") || w.changes != 1 {
			t.Errorf("the cookie stays, or nobody was told: %v", page.header)
		}
		for _, gone := range []*browser{b, elsewhere} {
			gone.get("/settings").want(t, 303)
			gone.post(closing, farewell("person@example.com")).want(t, 303)
		}
		traces := regexp.MustCompile(`(?i)person@example`)
		for _, c := range w.columns() {
			if n := w.count(`SELECT COUNT(*) FROM ` + c[0] + ` WHERE LOWER(CAST(` + c[1] +
				` AS TEXT)) LIKE '%person@example%'`); n != 0 && c != [2]string{"mails", "recipient"} {
				t.Errorf("%s.%s still knows the address", c[0], c[1])
			}
			if strings.HasSuffix(c[1], "account_id") || c[1] == "owner_id" || c[1] == "tester_id" ||
				c[1] == "asked_by" {
				if n := w.count(`SELECT COUNT(*) FROM `+c[0]+` WHERE `+c[1]+` = $1`, person); n != 0 &&
					kept[c[0]] == "" {
					t.Errorf("%s.%s still names the account", c[0], c[1])
				}
			}
		}
		var to, subject string
		if err := w.d.QueryRowContext(t.Context(), `SELECT recipient, subject FROM mails`).Scan(&to,
			&subject); err != nil || !traces.MatchString(to) || subject != "Your account is closed" {
			t.Errorf("the last mail: %q to %q, %v", subject, to, err)
		}
		if n := w.count(`SELECT COUNT(*) FROM security_events WHERE account_id = $1 AND (kind <> 'account-closed' OR address <> '')`, person); n != 0 {
			t.Errorf("%d events are left", n)
		}
		// the connection's end
		if n := w.count(`SELECT COUNT(*) FROM ledger WHERE account_id = $1`, person); n != rows+1 {
			t.Errorf("%d rows of the ledger, before there were %d", n, rows)
		}
		if after := w.found(); after != found || !strings.Contains(found, "terms") {
			t.Errorf("the books, before:\n%safter:\n%s", found, after)
		}

		if n := w.count(`SELECT COUNT(*) FROM card_removals WHERE payment_method = 'pm_1'`); n != 1 {
			t.Errorf("Stripe is told %d times to forget the card", n)
		}
		unknown := w.browser().post("/sign-in",
			url.Values{"email": {"nobody@example.com"}, "password": {password}}).want(t, 401)
		same := w.browser().post("/sign-in",
			url.Values{"email": {"person@example.com"}, "password": {password}}).want(t, 401)
		if strings.ReplaceAll(same.page, "person@", "nobody@") != unknown.page {
			t.Error("a closed account does not look like an unknown one")
		}
		if n := w.count(`SELECT COUNT(*) FROM apps WHERE test_allowlist = '["friend@example.org"]'`); n == 0 {
			t.Error("the other tester is gone")
		}
		tombstone := strings.ToLower(person) + "@closed"
		w.browser().post("/sign-in", url.Values{"email": {tombstone}, "password": {password}}).want(t, 401)
		w.browser().post("/forgot", url.Values{"email": {tombstone}}).want(t, 400)
		w.browser().post("/sign-up", url.Values{"email": {tombstone}, "password": {password}}).want(t, 400)
		if n := w.count(`SELECT COUNT(*) FROM mails`); n != 1 {
			t.Errorf("%d mails: the tombstone gets some", n)
		}
		w.Pass(time.Hour)
		w.browser().post("/sign-up", url.Values{"email": {"person@example.com"}, "password": {password}}).want(t, 200)
		if n := w.count(`SELECT COUNT(*) FROM accounts WHERE email = 'person@example.com' AND id <> $1 AND unconfirmed = 1`, person); n != 1 {
			t.Errorf("%d new accounts have the address", n)
		}
	})
}

// A developer goes when no user allows their apps to spend any more; the apps are off
// for good, and their keys and test accounts gone.
func TestDeveloperCloses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		b, developer := w.signedIn("developer"), farewell("developer@example.com")
		b.post(closing, developer).want(t, 409, "over 1 connection.")
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		found := w.found()
		const secrets = `SELECT COUNT(*) FROM apps WHERE secret_hash = 'known'`
		w.exec(`UPDATE apps SET secret_hash = 'known' WHERE id = $1`, w.app.ID)
		w.exec(`INSERT INTO provider_keys (account_id, provider, sealed, last4, created_us, tested_us) VALUES ($1, 'openai', $2, 'abcd', 1, 1)`, w.ids["developer"], []byte("x"))
		w.exec(`UPDATE accounts SET operator = 1 WHERE id = $1`, w.ids["developer"])
		other := w.hook(w.newApp("person").ID)
		w.hook(w.app.ID)
		w.exec(`UPDATE apps SET developer_name = 'Jane Doe', support = 'jane@doe.example', domain = 'doe.example',
			website_url = 'https://doe.example/', privacy_policy_url = 'https://doe.example/p', domain_verified_us = 1
			WHERE id = $1`, w.app.ID)
		w.exec(`INSERT INTO golive_requests (id, app_id, from_tier, to_tier, status, created_us, reviewed)
			VALUES ('glr_1', $1, 'limited-live', 'full-live', 'pending', 1, '{"name":"Doe"}')`, w.app.ID)
		b.get(closing).want(t, 200, "1 test account and your provider keys", "1 app of yours, with its webhooks",
			"No apps are connected")
		b.post(closing, developer).want(t, 200)
		app, err := w.apps.Get(t.Context(), w.app.ID)
		if err != nil || app.Suspension == nil || app.Suspension.By != "operator" {
			t.Errorf("the app: %+v, %v", app, err)
		}
		for text, want := range map[string]int{
			secrets: 0,
			`SELECT COUNT(*) FROM apps WHERE developer_name || support || website_url LIKE '%doe%'`:               0,
			`SELECT COUNT(*) FROM apps WHERE privacy_policy_url || domain LIKE '%doe%'`:                           0,
			`SELECT COUNT(*) FROM provider_keys`:                                                                  0,
			`SELECT COUNT(*) FROM golive_requests WHERE status = 'pending' OR reviewed <> ''`:                     0,
			`SELECT COUNT(*) FROM webhooks WHERE deleted_us IS NULL OR url <> ''`:                                 1,
			`SELECT COUNT(*) FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id WHERE w.deleted_us IS NULL`: 1,
			`SELECT COUNT(*) FROM accounts WHERE operator = 1 OR developer = 1`:                                   0,
			`SELECT COUNT(*) FROM accounts WHERE deactivated_us IS NOT NULL`:                                      1,
		} {
			if n := w.count(text); n != want {
				t.Errorf("%s: %d, want %d", text, n, want)
			}
		}
		if _, err := w.webhooks.Get(t.Context(), other.AppID, other.ID); err != nil {
			t.Errorf("somebody else's endpoint: %v", err)
		}
		w.signedIn("person").get("/settings").want(t, 200)
		if after := w.found(); after+found != "" {
			t.Errorf("the books, before:\n%safter:\n%s", found, after)
		}
	})
}

// TestClosingAsksAboutThePayee does not close the account of a developer whom Stripe could pay when it was last asked,
// and can no longer pay: afterwards nobody could sign in to mend it.
func TestClosingAsksAboutThePayee(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		answer := `{"id":"acct_1","object":"account","details_submitted":true,"payouts_enabled":false}`
		stripe := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, answer)
		}))
		t.Cleanup(stripe.Close)
		w.payouts.Stripe = stripeapi.NewClient("sk_test_key", stripe.URL, nil, 0)
		w.payouts.Config.Every, w.payouts.Config.MinimumMC = time.Hour, money.Cent
		w.Spend(w.conn, money.Dollar) // of which the margin is $0.25
		w.exec(`INSERT INTO payees (account_id, stripe_id, created_us, enabled) VALUES ($1, 'acct_1', 1, 1)`,
			w.ids["developer"])
		developer := w.signedIn("developer")
		developer.get(closing).want(t, 200).lacks(t, "Say whom we pay it to")
		developer.post(closing, farewell("developer@example.com")).want(t, 409, "Say whom we pay it to first")
	})
}

// TestExportOfADeveloper has what the apps earned, whom Stripe pays, and what was paid.
func TestExportOfADeveloper(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.Spend(w.conn, money.Dollar) // of which the margin is $0.25
		w.exec(`INSERT INTO payees (account_id, stripe_id, created_us) VALUES ($1, 'acct_1', 1)`, w.ids["developer"])
		m, err := store.ReadMaturedMargin(t.Context(), w.d, w.app.ID, w.Now().Add(48*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		w.Do(rules.BeginPayout{
			PayoutID: "po_1", AppID: w.app.ID, DeveloperID: w.ids["developer"], Margin: m, MinimumMC: money.Cent,
		})
		got := files(t, w.signedIn("developer").post("/settings/data/export", nil))
		for name, says := range map[string]string{
			"margins.jsonl": `"earned_mc":25000000,"paid_mc":25000000,"disputed_mc":0,"unpaid_mc":0}`,
			"payee.jsonl":   `{"stripe_account":"acct_1","details_submitted":false,"can_be_paid":false}`,
			"payouts.jsonl": `{"id":"po_1","app_id":"` + w.app.ID + `","amount_mc":25000000,"status":"begun",`,
		} {
			if !strings.Contains(got[name], says) || strings.Count(got[name], "\n") != 1 {
				t.Errorf("%s lacks %s: %s", name, says, got[name])
			}
		}
		theirs := files(t, w.signedIn("person").post("/settings/data/export", nil))
		if theirs["margins.jsonl"]+theirs["payee.jsonl"]+theirs["payouts.jsonl"] != "" {
			t.Errorf("the export of a user has margins: %v", theirs)
		}
	})
}

// TestClosingFormIsStale refuses a form whose page did not show the margin that closing lets lapse, and says what has
// changed. The page that says so closes the account.
func TestClosingFormIsStale(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		developer, form := w.signedIn("developer"), farewell("developer@example.com")
		developer.get(closing).want(t, 200, "Close my account").lacks(t, `name="seen"`)
		seen := regexp.MustCompile(`name="seen" value="([^"]+)"`)
		for _, amount := range []string{"$0.25", "$0.50"} {
			c := w.connect(w.ids["person"], money.Dollar)
			w.Spend(c, money.Dollar) // of which the margin is $0.25
			w.Do(rules.Revoke{ConnectionID: c.ID})
			page := developer.post(closing, form).want(t, 409, "This has changed since you opened the page",
				"Your apps earned "+amount+" that is not paid yet", "Close my account")
			if n := w.count(`SELECT COUNT(*) FROM accounts WHERE closed_us IS NOT NULL`); n != 0 {
				t.Fatal("closed by a stale form")
			}
			shown := seen.FindStringSubmatch(page.page)
			if shown == nil {
				t.Fatalf("the form carries nothing:\n%s", page.page)
			}
			form.Set("seen", shown[1])
		}
		developer.post(closing, form).want(t, 200, "Your account is closed")
	})
}
