package oauth

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// has checks that a page says all of these.
func has(t *testing.T, page string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(page, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
}

// Contract §5, flow rule 2: what the consent screen shows.
func TestConsentPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.browser()
	path := authorizePath(w.live, "requested_allocation_mc=1234000000", "features=summaries,unknown,chat")
	resp := b.Get(path)
	next, err := url.Parse(resp.To)
	if err != nil || resp.Status != 303 || next.Path != "/sign-in" || next.Query().Get("next") != path {
		t.Fatalf("before signing in: %d to %v, want the sign-in page and back to %s", resp.Status, next, path)
	}
	page := b.Get(next.String()).Body
	has(t, page, `<label for="email">Email</label>`, `<label for="password">Password</label>`, `>Sign in</button>`,
		`href="#main"`)
	resp = b.Post("/sign-in", url.Values{
		"email":    {"person@example.com"},
		"password": {apitest.Password},
		"next":     {path},
	})
	if resp.To != path {
		t.Errorf("after signing in: %q", resp.To)
	}
	resp = b.Get(path)
	page = resp.Body
	has(t, page, "Live &lt;b&gt;App&lt;/b&gt;", "person@example.com", "Summaries", "Chat window", "$20.00",
		`value="12.34"`,
		`<label for="spend_cap">Spend cap (USD)</label>`,
		`<label for="daily_limit">Daily limit (USD, optional)</label>`,
		"Every offered model", "OpenAI, Anthropic, Google", "service fee of 5%", "15% for Live",
		"dashboard.example.com", "app.example.com",
		`value="approve"><span data-allow="Allow up to">Allow</span></button>`, `value="deny">Not now</button>`)
	scripts := regexp.MustCompile(
		`<script src="/assets/consent\.[0-9a-f]+\.js" integrity="sha256-[^"]+" defer></script>`)
	if strings.Count(page, "<script") != 1 || !scripts.MatchString(page) || strings.Contains(page, "style=") {
		t.Error("the page holds other scripts than its own, or inline style")
	}
	h := resp.Header
	policy := h.Get("Content-Security-Policy")
	if h.Get("X-Frame-Options") != "DENY" || !strings.Contains(policy, "frame-ancestors 'none'") ||
		!strings.Contains(policy, "default-src 'none'") ||
		!strings.HasSuffix(policy, "form-action 'self' https:") || h.Get("Cache-Control") != "no-store" ||
		h.Get("Referrer-Policy") != "same-origin" {
		t.Errorf("headers: %v", h)
	}
}

// F3: the consent screen lists the features that the app names, in its order, with their descriptions (contract §2,
// Feature), and all registered ones when it names none. A margin that differs from the app's is shown.
func TestConsentListsFeatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.exec(`UPDATE features SET description = 'answers your questions', dev_margin_ppm = 180000 WHERE slug = 'chat'`)
	w.exec(`UPDATE features SET description = 'Shortens <texts>.', dev_margin_ppm = 150000 WHERE slug = 'summaries'`)
	b := w.signedIn("person@example.com")
	const chat = `<strong>Chat window</strong> <span class="badge">18% for the app</span>` +
		`<span class="choice-detail">Answers your questions.</span></div></li>`
	const summaries = `<strong>Summaries</strong><span class="choice-detail">Shortens &lt;texts&gt;.</span></div></li>`
	page := b.Get(authorizePath(w.live, "features=summaries,unknown,chat")).Body
	has(t, page, "Used for", chat, summaries, "up to 18% for Live")
	if strings.Index(page, summaries) > strings.Index(page, chat) {
		t.Error("the features are not in the order of the request")
	}
	page = b.Get(authorizePath(w.live, "features=chat")).Body
	has(t, page, chat)
	lacks(t, page, "Summaries")
	for _, none := range []string{"-features", "features=", "features=unknown"} {
		has(t, b.Get(authorizePath(w.live, none)).Body, chat, summaries)
	}
	lacks(t, w.signedIn("developer@example.com").Get(authorizePath(w.sandbox)).Body, "Used for")

	for _, c := range "abcdefgh" {
		w.exec(`INSERT INTO features (app_id, slug, display_name, description, created_us)
			VALUES ($1, $2, $3, 'One of many.', 9)`, w.live.ID, "slug-"+string(c), "Feature "+string(c))
	}
	page = b.Get(authorizePath(w.live)).Body
	has(t, page, "<summary>4 more</summary>", "Feature a", "Feature h", "Summaries")
}

// Without a request, the cap is the tier's default; with one, at most its limit.
func TestConsentPageProposesACap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person@example.com")
	page := b.Get(authorizePath(w.live)).Body
	has(t, page, `value="10.00"`, "At most $25.00")
	page = b.Get(authorizePath(w.live, "requested_allocation_mc=999999999999")).Body
	has(t, page, `value="25.00"`)
	b.Post(authorizePath(w.live), approval("25.01")).Want(t, http.StatusUnprocessableEntity, "at most $25.00")
}

// A form that is wrong comes back with what was typed, and says what is wrong
// beside each field.
func TestConsentFormComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	resp := w.signedIn("person@example.com").Post(authorizePath(w.live), approval(`te"n`, "daily_limit", "-4"))
	page := resp.Body
	if resp.Status != http.StatusUnprocessableEntity {
		t.Errorf("status %d", resp.Status)
	}
	has(t, page, `role="alert"`, `value="te&#34;n"`, `value="-4"`, `href="#spend_cap"`, `href="#daily_limit"`,
		`aria-describedby="spend_cap-hint spend_cap-error" aria-invalid="true"`,
		`<p class="error" id="daily_limit-error">Enter a daily limit`)
	if n := w.count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
		t.Errorf("%d codes", n)
	}
}

// What one account was shown is not approved for another one that has signed in since, in another tab.
func TestConsentIsOfItsAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	shown := w.signedIn("person@example.com").Get(authorizePath(w.live)).Found(t, `name="signed_in_as" value="([^"]+)"`)
	if shown != "person@example.com" {
		t.Errorf("the form is of %q", shown)
	}
	other := w.signedIn("developer@example.com")
	other.Post(authorizePath(w.live), approval("5", "signed_in_as", shown)).Want(t, 400, "signed in as developer@")
	if n := w.count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
		t.Errorf("%d codes", n)
	}
	w.signedIn("person@example.com").Post(authorizePath(w.live), approval("5", "signed_in_as", shown)).Want(t, 302)
}

// Contract §4.1 and §5, rule 4: the answers that the app gets.
func TestAnswersToTheApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person@example.com")
	state := "a b&c=d/ü"
	for _, c := range []struct {
		path string
		form url.Values // nil = GET
		want map[string]string
	}{
		{authorizePath(w.live, "state="+state), approval("5"), map[string]string{
			"code":  "?",
			"state": state,
			"iss":   issuer,
		}},
		{authorizePath(w.live, "state="+state), url.Values{"decision": {"deny"}}, map[string]string{
			"error":             "access_denied",
			"error_description": "?",
			"state":             state,
			"iss":               issuer,
		}},
		{authorizePath(w.live, "state="+state, "code_challenge_method=plain"), nil, map[string]string{
			"error":             "invalid_request",
			"error_description": "?",
			"state":             state,
			"iss":               issuer,
		}},
		{authorizePath(w.live, "state="+state, "response_type=token"), nil, map[string]string{
			"error":             "unsupported_response_type",
			"error_description": "?",
			"state":             state,
			"iss":               issuer,
		}},
		{authorizePath(w.live, "-state"), nil, map[string]string{
			"error":             "invalid_request",
			"error_description": "?",
			"iss":               issuer,
		}},
		{authorizePath(w.live, "-code_challenge"), approval("5"), map[string]string{
			"error":             "invalid_request",
			"error_description": "?",
			"state":             "st",
			"iss":               issuer,
		}},
	} {
		resp := b.Get(c.path)
		if c.form != nil {
			resp = b.Post(c.path, c.form)
		}
		to, err := url.Parse(resp.To)
		if err != nil || resp.Status != http.StatusFound || !strings.HasPrefix(to.String(), callback+"?") {
			t.Errorf("%s: %d to %v, want 302 to the app\n%s", c.path, resp.Status, to, resp.Body)
			continue
		}
		q := to.Query()
		for name, want := range c.want {
			if got := q.Get(name); len(q[name]) != 1 || want != "?" && got != want {
				t.Errorf("%s: %s=%q, want %q", c.path, name, got, want)
			}
		}
		if len(q) != len(c.want) {
			t.Errorf("%s: answered %v, want %v", c.path, q, c.want)
		}
	}
	resp := b.Post(authorizePath(w.live), url.Values{"decision": {"perhaps"}})
	if resp.Status != http.StatusBadRequest {
		t.Errorf("no decision: %d", resp.Status)
	}
}

// Nobody is sent to an address that is not the app's, signed in or not, by GET or
// POST.
func TestNoOpenRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, b := range []*apitest.Browser{w.browser(), w.signedIn("person@example.com")} {
		for _, path := range []string{
			"/oauth/authorize",
			"/oauth/authorize?%zz",
			"/oauth/authorize?a;b",
			authorizePath(w.live, "client_id=cid_unknown"),
			authorizePath(w.live, "client_id=a\x00b"),
			authorizePath(w.live, "-client_id"),
			authorizePath(w.live, "+client_id=x"),
			authorizePath(w.live, "-redirect_uri"),
			authorizePath(w.live, "redirect_uri=https://elsewhere.example.com/"),
			authorizePath(w.live, "redirect_uri=http://127.0.0.1:9/cb"), // the other app's
			authorizePath(w.live, "+redirect_uri=https://elsewhere.example.com/"),
			authorizePath(w.live, "redirect_uri="+callback+"/", "-state"),
			authorizePath(w.live, "redirect_uri="+callback+"\n"),
		} {
			get := b.Get(path)
			post := b.Post(path, url.Values{"decision": {"deny"}})
			if get.Status != 400 || post.Status != 400 || get.To+post.To != "" {
				t.Errorf("%s: %d and %d, to %q, want a page", path, get.Status, post.Status, get.To)
			}
			if strings.Contains(get.Body, "elsewhere") {
				t.Errorf("%s: the page repeats the address", path)
			}
		}
	}
}

// A consent that another site sends is refused; the session cookie alone is not
// enough.
func TestForeignConsentIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person@example.com")
	for _, foreign := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://elsewhere.example.com"},
		{"Origin", "null"},
	} {
		if resp := b.Post(authorizePath(w.live), approval("5"), foreign...); resp.Status != http.StatusForbidden {
			t.Errorf("%v: %d, want 403", foreign, resp.Status)
		}
	}
	if resp := w.browser().Post(authorizePath(w.live), approval("5")); resp.Status != http.StatusSeeOther {
		t.Errorf("without a session: %d, want the sign-in page", resp.Status)
	}
	if n := w.count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
		t.Errorf("%d codes", n)
	}
	if resp := b.Post(authorizePath(w.live), approval("5"), "Sec-Fetch-Site", "same-origin", "Origin",
		w.URL); resp.Status != http.StatusFound {
		t.Errorf("the page's own form: %d", resp.Status)
	}
}

// Contract §5, Sandbox: who can connect to what.
func TestSandboxPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, c := range []struct {
		who    string
		app    client
		status int
		says   string
	}{
		{"tester@example.com", w.sandbox, 200, "no real money is used"},
		{"developer@example.com", w.sandbox, 200, "Connect as"},
		{"person@example.com", w.sandbox, 403, "is in testing"},
		{"tester@example.com", w.live, 403, "Live apps accept real accounts only"},
		{"person@example.com", w.live, 200, `You have <span class="num">$20.00</span>`},
	} {
		b := w.signedIn(c.who)
		resp := b.Get(authorizePath(c.app))
		page := resp.Body
		if resp.Status != c.status {
			t.Errorf("%s on %s: %d, want %d", c.who, c.app.Name, resp.Status, c.status)
		}
		has(t, page, c.says, "Use another account")
		if c.status == 403 {
			if resp := b.Post(authorizePath(c.app), approval("5")); resp.Status != 403 {
				t.Errorf("%s on %s: approving is answered %d", c.who, c.app.Name, resp.Status)
			}
		}
	}
	if n := w.count(`SELECT COUNT(*) FROM oauth_codes`); n != 0 {
		t.Errorf("%d codes", n)
	}
}

// The developer of a sandbox app connects as a test account: one that exists, or
// a new one with $1,000.
func TestDeveloperChoosesTestAccount(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer@example.com")
		page := b.Get(authorizePath(w.sandbox)).Body
		has(t, page, "tester@example.com", "$1,000.00 available", `value="`+w.tester.ID+`" checked`,
			"New test account")

		o := w.token(w.sandbox, codeForm(w.approve(b, w.sandbox, "5", "test_account", w.tester.ID))).want(t,
			"as the tester", 200, "")
		if w.accountOf(o.ConnectionID) != w.tester.ID {
			t.Error("connected as somebody else")
		}
		page = b.Get(authorizePath(w.sandbox)).Body
		has(t, page, "connected, $0.00 of $5.00 used")

		o = w.token(w.sandbox, codeForm(w.approve(b, w.sandbox, "7", "test_account", "new"))).want(t, "as a new one",
			200, "")
		made, err := w.people.Get(t.Context(), w.accountOf(o.ConnectionID))
		if err != nil || !made.Sandbox || made.OwnerID != w.sandbox.OwnerID ||
			!strings.HasSuffix(made.Email, "@test.invalid") {
			t.Errorf("new test account: %+v, %v", made, err)
		}
		if balance, err := store.GetBalance(t.Context(), d, made.ID); err != nil ||
			balance.AvailableMC != 993*money.Dollar || !balance.Sandbox {
			t.Errorf("its balance: %+v, %v", balance, err)
		}
		for _, wrong := range []string{"", "wac_unknown", w.sandbox.OwnerID} {
			resp := b.Post(authorizePath(w.sandbox), approval("5", "test_account", wrong))
			page := resp.Body
			if resp.Status != http.StatusUnprocessableEntity {
				t.Errorf("as %q: %d", wrong, resp.Status)
			}
			has(t, page, "Choose the test account")
		}
		for w.count(`SELECT COUNT(*) FROM accounts WHERE owner_id IS NOT NULL`) < accounts.MaxTestAccounts {
			w.approve(b, w.sandbox, "1", "test_account", "new")
		}
		page = b.Get(authorizePath(w.sandbox)).Body
		if strings.Contains(page, "New test account") {
			t.Error("the page offers a 26th test account")
		}
		if resp := b.Post(authorizePath(w.sandbox),
			approval("1", "test_account", "new")); resp.Status != http.StatusBadRequest {
			t.Errorf("a 26th test account: %d", resp.Status)
		}
	})
}

// People on an app's test allow-list connect as one test account of their own,
// and neither see nor get any other.
func TestAllowListedTesterHasOneTestAccount(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.exec(`INSERT INTO accounts (id, email, password_hash, created_us) SELECT 'wac_second', 'second@example.com',
				password_hash, 1 FROM accounts WHERE email = 'person@example.com'`)
		w.exec(`UPDATE apps SET test_allowlist = '["person@example.com","second@example.com"]'
			WHERE id = $1`, w.sandbox.ID)
		b := w.signedIn("person@example.com")
		page := b.Get(authorizePath(w.sandbox)).Body
		has(t, page, "Connect as", "New test account", "no real money is used")
		lacks(t, page, "tester@example.com", w.tester.ID)
		for _, wrong := range []string{"", w.tester.ID, w.sandbox.OwnerID} {
			if resp := b.Post(authorizePath(w.sandbox),
				approval("5", "test_account", wrong)); resp.Status != http.StatusUnprocessableEntity {
				t.Errorf("as %q: %d", wrong, resp.Status)
			}
		}
		o := w.token(w.sandbox, codeForm(w.approve(b, w.sandbox, "5", "test_account", "new"))).want(t, "as a new one",
			200, "")
		made, err := w.people.Get(t.Context(), w.accountOf(o.ConnectionID))
		if err != nil || !made.Sandbox || made.OwnerID != w.sandbox.OwnerID || made.TesterID == "" ||
			made.TesterID == "wac_second" {
			t.Errorf("new test account: %+v, %v", made, err)
		}
		page = b.Get(authorizePath(w.sandbox)).Body
		has(t, page, made.Email, "connected, $0.00 of $5.00 used")
		lacks(t, page, "New test account", "tester@example.com")
		if resp := b.Post(authorizePath(w.sandbox),
			approval("5", "test_account", "new")); resp.Status != http.StatusBadRequest {
			t.Errorf("a second one: %d", resp.Status)
		}
		again := w.token(w.sandbox, codeForm(w.approve(b, w.sandbox, "9", "test_account", made.ID))).want(t, "again",
			200, "")
		if again.ConnectionID != o.ConnectionID || *again.AllocationMC != 9*money.Dollar {
			t.Errorf("again: %+v", again.TokenResponse)
		}
		second := w.signedIn("second@example.com")
		page = second.Get(authorizePath(w.sandbox)).Body
		lacks(t, page, made.Email)
		if resp := second.Post(authorizePath(w.sandbox),
			approval("5", "test_account", made.ID)); resp.Status != http.StatusUnprocessableEntity {
			t.Errorf("as another tester's: %d", resp.Status)
		}
		page = w.signedIn("developer@example.com").Get(authorizePath(w.sandbox)).Body
		has(t, page, made.Email, "tester@example.com")
		if b, err := store.GetBalance(t.Context(), d, made.TesterID); err != nil || b.AvailableMC != 20*money.Dollar ||
			b.Seq != 1 {
			t.Errorf("the tester's real balance: %+v, %v", b, err)
		}
		for w.count(`SELECT COUNT(*) FROM accounts WHERE owner_id IS NOT NULL`) < accounts.MaxTestAccounts {
			w.approve(w.signedIn("developer@example.com"), w.sandbox, "1", "test_account", "new")
		}
		resp := second.Get(authorizePath(w.sandbox))
		page = resp.Body
		has(t, page, "has reached the limit of test accounts")
		if post := second.Post(authorizePath(w.sandbox), approval("5", "test_account", "new")); resp.Status != 403 ||
			post.Status != 403 {
			t.Errorf("no room: %d and %d", resp.Status, post.Status)
		}
		w.approve(b, w.sandbox, "2", "test_account", made.ID) // who has one keeps it
		w.exec(`UPDATE apps SET test_allowlist = '[]' WHERE id = $1`, w.sandbox.ID)
		if resp := b.Get(authorizePath(w.sandbox)); resp.Status != 403 ||
			!strings.Contains(resp.Body, "is in testing") {
			t.Errorf("off the list: %d", resp.Status)
		}
	})
}

func lacks(t *testing.T, page string, unwanted ...string) {
	t.Helper()
	for _, s := range unwanted {
		if strings.Contains(page, s) {
			t.Errorf("the page shows %q", s)
		}
	}
}

// F-74: consenting again tells what is there, moves the cap and keeps the id.
func TestConsentingAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		first := w.token(w.live, codeForm(w.approve(b, w.live, "12", "daily_limit", "3"))).want(t, "exchange", 200, "")
		page := b.Get(authorizePath(w.live)).Body
		has(t, page, "Already connected", "$12.00", `value="12.00"`, `value="3.00"`)
		both := []string{w.approve(b, w.live, "4"), w.approve(b, w.live, "15")}
		second := w.token(w.live, codeForm(both[0])).want(t, "lowering", 200, "")
		third := w.token(w.live, codeForm(both[1])).want(t, "raising", 200, "")
		if second.ConnectionID != first.ConnectionID || third.ConnectionID != first.ConnectionID ||
			*second.AllocationMC != 4*money.Dollar || *third.AllocationMC != 15*money.Dollar {
			t.Errorf("again: %+v, then %+v", second.TokenResponse, third.TokenResponse)
		}
		conn, err := store.GetConnection(t.Context(), d, first.ConnectionID)
		if err != nil || conn.VelocityLimitMC != nil {
			t.Errorf("the daily limit stayed: %+v, %v", conn, err)
		}
		balance, err := store.GetBalance(t.Context(), d, conn.AccountID)
		if err != nil || balance.ReservedMC != 15*money.Dollar || balance.AvailableMC != 5*money.Dollar {
			t.Errorf("balance: %+v, %v", balance, err)
		}
	})
}

// An account without a balance sees that, and connects with an allocation of 0: free
// credit may pay for the first calls.
func TestNoBalanceYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.exec(`DELETE FROM balances WHERE sandbox = 0`)
	person := w.signedIn("person@example.com")
	page := person.Get(authorizePath(w.live)).Body
	has(t, page, "Your balance is empty")
	if resp := person.Post(authorizePath(w.live), approval("5")); resp.Status != http.StatusFound {
		t.Errorf("status %d: %s", resp.Status, resp.Body)
	}
}

// TestConsentNeedsItsWords: a user allows an app to charge for work of its own, or to have what the user says written
// down, by a consent screen that said so, in the browser and for a device, and not by one that did not, even if the app
// has switched it on meanwhile. Each consent holds for its own connection, until the next one.
func TestConsentNeedsItsWords(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]struct {
		table, words string
		allows       func(*Store, context.Context, string, string, string) (bool, error)
	}{
		"own_work":    {"work_consents", "Its own work, too", (*Store).AllowsWork},
		"transcripts": {"transcript_consents", "What you say, in writing", (*Store).AllowsTranscripts},
	} {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			w := newWorld(t, d)
			b := w.signedIn("person@example.com")
			var last TokenResponse
			want := func(what string, allowed bool, code outcome) {
				t.Helper()
				last = code.want(t, what, 200, "").TokenResponse
				got, err := c.allows(w.store, t.Context(), w.live.ID, w.accountOf(last.ConnectionID), last.ConnectionID)
				if err != nil || got != allowed {
					t.Errorf("%s, %s: allowed %t, %v", field, what, got, err)
				}
			}
			exchange := func(more ...string) outcome {
				return w.token(w.live, codeForm(w.approve(b, w.live, "5", more...)))
			}
			lacks(t, b.Get(authorizePath(w.live)).Body, c.words, field)
			w.exec(`UPDATE apps SET ` + field + ` = 1`)
			want("the page that was open did not say it", false, exchange())
			has(t, b.Get(authorizePath(w.live)).Body, c.words, `name="`+field+`" value="1"`)
			b.Post(authorizePath(w.live), url.Values{"decision": {"deny"}, field: {"1"}})
			if w.count(`SELECT COUNT(*) FROM `+c.table) != 0 {
				t.Error("a user who declined has allowed it")
			}
			code := w.approve(b, w.live, "5", field, "1")
			want("before the exchange of a code that says it", false, exchange())
			want("the code that says it", true, w.token(w.live, codeForm(code)))
			want("again", true, exchange(field, "1"))
			want("a later screen that did not say it", false, exchange())
			want("once more", true, exchange(field, "1"))
			w.tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := w.store.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: last.ConnectionID})
				return err
			})
			want("another connection, whose screen did not say it", false, exchange())
			dev := w.startDevice(w.live)
			dev.decide(b, approval("5", field, "1")).Want(t, 200, "Approved")
			want("a device", true, dev.poll())
		})
	}
}
