package oauth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A device is an app that was given its codes.
type device struct {
	w   *world
	app client
	deviceAuthorization
}

// startDevice asks for the codes of a device.
func (w *world) startDevice(app client, more ...string) *device {
	w.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	d := &device{w: w, app: app}
	o := w.post("/oauth/device_authorization", app, form)
	if err := json.Unmarshal([]byte(o.Body), &d.deviceAuthorization); err != nil || o.Status != 200 {
		w.t.Fatalf("device authorization: %d %s", o.Status, o.Body)
	}
	return d
}

func (d *device) form() url.Values {
	return url.Values{"grant_type": {deviceGrant}, "device_code": {d.DeviceCode}}
}

// poll asks for tokens. Errors of devices have the form of RFC 6749.
func (d *device) poll(headers ...string) outcome {
	d.w.t.Helper()
	return d.w.token(d.app, d.form(), headers...)
}

// decide submits the consent screen.
func (d *device) decide(b *apitest.Browser, form url.Values) apitest.Page {
	form.Set("user_code", d.UserCode)
	return b.Post("/device", form)
}

// refused checks the RFC error of an outcome.
func (o outcome) refused(t *testing.T, what string, status int, name string) outcome {
	t.Helper()
	var e struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.Unmarshal([]byte(o.Body), &e); err != nil || o.Status != status || e.Error != name ||
		e.Description == "" {
		t.Errorf("%s: %d %s, want %d %s", what, o.Status, o.Body, status, name)
	}
	return o
}

// RFC 8628 from the device's request to its refreshed tokens, for a public and a confidential client.
func TestDeviceFlow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		for _, app := range []client{w.public, w.live} {
			dev := w.startDevice(app, "requested_allocation_mc", "700000000", "features", "summaries")
			if !regexp.MustCompile(`^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$`).MatchString(dev.UserCode) ||
				len(dev.DeviceCode) != 43 || dev.ExpiresIn != 600 || dev.Interval != 5 ||
				dev.VerificationURI != issuer+"/device" ||
				dev.VerificationURIComplete != issuer+"/device?user_code="+dev.UserCode {
				t.Errorf("codes: %+v", dev.deviceAuthorization)
			}
			dev.poll().refused(t, "before the user", 400, "authorization_pending")
			path := strings.TrimPrefix(dev.VerificationURIComplete, issuer)
			w.browser().Get(path).Leads(t, "/sign-in?next="+url.QueryEscape(path))
			b.Get(path).Want(t, 200, `value="`+dev.UserCode+`"`, "Only continue if you started this yourself")
			typed := strings.ToLower(strings.ReplaceAll(dev.UserCode, "-", " "))
			page := b.Post("/device", url.Values{"user_code": {typed}}).Want(t, 200, `value="7.00"`, dev.UserCode,
				"Allow this only if you started it yourself", "$", "person@example.com",
				"Your device continues by itself")
			if public := app.secret == ""; public != strings.Contains(page.Body, "On your own device.") {
				t.Errorf("public %t: %s", public, page.Body)
			}
			if app.secret != "" {
				has(t, page.Body, "Summaries")
				lacks(t, page.Body, "Chat window")
			}
			if csp := page.Header.Get("Content-Security-Policy"); !strings.HasSuffix(csp, "form-action 'self'") {
				t.Errorf("policy %s", csp)
			}
			dev.decide(b, approval("a lot")).Want(t, http.StatusUnprocessableEntity, `value="a lot"`, dev.UserCode)
			w.clock.pass(5 * time.Second)
			dev.poll().refused(t, "after a wrong amount", 400, "authorization_pending")
			dev.decide(b, approval("6.50", "daily_limit", "2")).Want(t, 200, "Approved", "Go back to")
			if n := w.count(`SELECT COUNT(*) FROM connections WHERE app_id = $1`, app.ID); n != 0 {
				t.Errorf("consent alone made %d connections", n)
			}
			o := dev.poll().want(t, "tokens", 200, "")
			conn, err := store.GetConnection(t.Context(), d, o.ConnectionID)
			if err != nil || conn.AllocationMC != 650*money.Cent || conn.VelocityLimitMC == nil ||
				*conn.VelocityLimitMC != 2*money.Dollar || conn.AppID != app.ID || *o.AllocationMC != 650*money.Cent {
				t.Errorf("connection: %+v, %v", conn, err)
			}
			if n := w.count(`SELECT COUNT(*) FROM events WHERE type = 'connection.created' AND connection_id = $1`,
				o.ConnectionID); n != 1 {
				t.Errorf("%d events", n)
			}
			w.token(app, refreshForm(o.RefreshToken)).want(t, "refresh", 200, "")
		}
	})
}

// RFC 8628 §3.5: what a poll is told, and that all but tokens is no answer in the envelope.
func TestPolls(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")

		dev := w.startDevice(w.public)
		dev.poll().refused(t, "the first", 400, "authorization_pending")
		w.clock.pass(4 * time.Second)
		dev.poll().refused(t, "a second early", 400, "authorization_pending")
		w.clock.pass(3 * time.Second)
		has(t, dev.poll().refused(t, "too early", 400, "slow_down").Body, "10 seconds")
		w.clock.pass(5 * time.Second)
		has(t, dev.poll().refused(t, "at the old interval", 400, "slow_down").Body, "15 seconds")
		w.clock.pass(15 * time.Second)
		dev.poll().refused(t, "at the new interval", 400, "authorization_pending")
		dev.decide(b, approval("1")).Want(t, 200, "Approved")
		first := dev.poll().want(t, "tokens, however soon", 200, "")
		w.clock.pass(time.Second)
		has(t, dev.poll().refused(t, "again", 400, "invalid_grant").Body, `"reason":"used"`)
		if w.alive(first.AccessToken) {
			t.Error("the tokens of a code that came twice still work")
		}

		denied := w.startDevice(w.public)
		denied.decide(b, url.Values{"decision": {"deny"}}).Want(t, 200, "Denied")
		denied.poll().refused(t, "denied", 400, "access_denied")
		denied.decide(b, approval("1")).Want(t, http.StatusUnprocessableEntity, "already used")
		denied.poll().refused(t, "denied for good", 400, "access_denied")

		late, approved := w.startDevice(w.public), w.startDevice(w.public)
		approved.decide(b, approval("1")).Want(t, 200, "Approved")
		w.clock.pass(10 * time.Minute)
		late.decide(b, approval("1")).Want(t, http.StatusUnprocessableEntity, "isn’t valid")
		late.poll().refused(t, "expired", 400, "expired_token")
		approved.poll().refused(t, "approved and expired", 400, "expired_token")

		w.token(w.public, url.Values{"grant_type": {deviceGrant}}).refused(t, "no code", 400, "invalid_request")
		has(t, w.token(w.public, url.Values{"grant_type": {deviceGrant}, "device_code": {"x"}}).
			refused(t, "unknown", 400, "invalid_grant").Body, `"reason":"unknown"`)
		other := w.startDevice(w.live)
		has(t, w.token(w.public, other.form()).refused(t, "another's", 400, "invalid_grant").Body, `"reason":"unknown"`)
		w.token(client{App: w.live.App}, other.form()).refused(t, "without the secret", 401, "invalid_client")
		w.token(client{w.live.App, "wrong"}, other.form()).refused(t, "a wrong secret", 401, "invalid_client")
		other.poll("Idempotency-Key", "x").refused(t, "a wrong key", 400, "invalid_request")
	})
}

// The request of a device is refused in the form of RFC 6749.
func TestDeviceRequestsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	const path = "/oauth/device_authorization"
	w.post(path, client{App: w.live.App}, url.Values{}).refused(t, "without the secret", 401, "invalid_client")
	w.post(path, client{}, url.Values{}).refused(t, "without a client", 401, "invalid_client")
	w.post(path, w.public, url.Values{"requested_allocation_mc": {"-1"}}).refused(t, "amount", 400, "invalid_request")
	w.post(path, w.live, url.Values{"client_id": {"x"}}).refused(t, "another client", 400, "invalid_request")
	w.exec(`UPDATE apps SET suspended = 1 WHERE id = $1`, w.live.ID)
	has(t, w.post(path, w.live, url.Values{}).refused(t, "suspended", 400, "invalid_grant").Body, "app_suspended")
	for range 60 {
		w.startDevice(w.public, "scope", "ignored")
	}
	w.post(path, w.public, url.Values{}).refused(t, "too many", 429, "slow_down")
}

// A user code that is wrong says so and counts; after ten of them an account, and after thirty an address, waits.
func TestUserCodeTries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	dev := w.startDevice(w.public)
	b := w.signedIn("person@example.com")
	b.Get("/device?user_code=%3Cscript%3E").Want(t, 200, `value=""`)
	for _, wrong := range []string{"", "x", "WDJB-MJHT", "<b>", "0000-0000"} {
		page := b.Post("/device", url.Values{"user_code": {wrong}}).Want(t, http.StatusUnprocessableEntity,
			"isn’t valid",
			`aria-invalid="true"`)
		lacks(t, page.Body, "<b>")
	}
	for range 5 {
		b.Post("/device", url.Values{"user_code": {"WDJB-MJHT"}, "decision": {"approve"}}).Want(t, 422)
	}
	page := dev.decide(b, approval("1")).Want(t, http.StatusTooManyRequests, "Too many wrong codes")
	if page.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	w.clock.pass(time.Minute)
	dev.decide(b, url.Values{"decision": {"perhaps"}}).Want(t, http.StatusBadRequest)
	dev.decide(b, approval("1")).Want(t, 200, "Approved")
	dev.decide(b, approval("1")).Want(t, http.StatusUnprocessableEntity, "already used")

	// Without a session the form leads to the sign-in page and back.
	again := w.startDevice(w.public)
	w.browser().Post("/device", url.Values{"user_code": {again.UserCode}, "decision": {"approve"}}).
		Leads(t, "/sign-in?next="+url.QueryEscape("/device?user_code="+again.UserCode))
	// A form of another site is refused.
	b.Post("/device", url.Values{"user_code": {again.UserCode}, "decision": {"approve"}, "spend_cap": {"1"}},
		"Sec-Fetch-Site", "cross-site").Want(t, http.StatusForbidden)
	again.poll().refused(t, "another site's form", 400, "authorization_pending")
	w.exec(`UPDATE apps SET suspended = 1 WHERE id = $1`, w.public.ID)
	again.decide(b, approval("1")).Want(t, http.StatusUnprocessableEntity, "is suspended")

	w.clock.pass(time.Hour)
	guess, last := url.Values{"user_code": {"WDJB-MJHT"}}, b
	for i := range 4 {
		email := fmt.Sprintf("guesser%d@example.com", i)
		w.exec(`INSERT INTO accounts (id, email, password_hash, created_us) SELECT $1, $1, password_hash, 1
			FROM accounts WHERE email = 'person@example.com'`, email)
		last = w.signedIn(email)
		for range 10 * (1 - i/3) { // the last one has tried none
			last.Post("/device", guess).Want(t, http.StatusUnprocessableEntity)
		}
	}
	last.Post("/device", guess).Want(t, http.StatusTooManyRequests)
	w.clock.pass(20 * time.Second)
	last.Post("/device", guess).Want(t, http.StatusUnprocessableEntity)
}

// TestTokensOfABrokenDatabase: no error of the database is an answer with tokens, or one that ends what the app has.
func TestTokensOfABrokenDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, table := range []string{"oauth_codes", "oauth_device_codes", "apps"} {
		dev := w.startDevice(w.public)
		w.exec(`ALTER TABLE ` + table + ` RENAME TO broken`)
		for _, form := range []url.Values{
			{"grant_type": {"authorization_code"}, "code": {"x"}, "redirect_uri": {"x"}, "code_verifier": {"x"}},
			dev.form(),
		} {
			isOther := (form.Get("code") == "x") != (table == "oauth_codes") && table != "apps"
			if got := w.token(w.public, form); !isOther && (got.Status != http.StatusInternalServerError ||
				strings.Contains(got.Body, "token")) {
				t.Errorf("%s, %s: %d %s", table, form.Get("grant_type"), got.Status, got.Body)
			}
		}
		w.exec(`ALTER TABLE broken RENAME TO ` + table)
	}
}

// The walls of the sandbox hold for devices: who may connect to which app, and as whom (contract §5; I-29).
func TestDeviceRoles(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		dev := w.startDevice(w.sandbox)
		dev.decide(w.signedIn("person@example.com"), approval("1")).Want(t, http.StatusForbidden, "is in testing")
		w.startDevice(w.public).decide(w.signedIn("tester@example.com"), approval("1")).
			Want(t, http.StatusForbidden, "This is a test account")
		developer := w.signedIn("developer@example.com")
		dev.decide(developer, approval("1")).Want(t, http.StatusUnprocessableEntity, "Choose the test account")
		before := w.count(`SELECT COUNT(*) FROM accounts WHERE sandbox = 1`)
		dev.decide(developer, approval("1", "test_account", newAccount)).Want(t, 200, "Approved")
		dev.decide(developer, approval("1", "test_account", newAccount)).Want(t, 422, "already used")
		if n := w.count(`SELECT COUNT(*) FROM accounts WHERE sandbox = 1`); n != before+1 {
			t.Errorf("%d test accounts, were %d", n, before)
		}
		o := dev.poll().want(t, "the new test account", 200, "")
		conn, err := store.GetConnection(t.Context(), d, o.ConnectionID)
		if err != nil || conn.AccountID == w.tester.ID {
			t.Errorf("connected as %s, %v", conn.AccountID, err)
		}
		own := w.startDevice(w.sandbox)
		own.decide(w.signedIn("tester@example.com"), approval("1")).Want(t, 200, "Approved")
		// The app goes live before the device polls.
		w.exec(`UPDATE apps SET tier = 'limited-live', provider_mode = 'live' WHERE id = $1`, w.sandbox.ID)
		has(t, own.poll().refused(t, "live by now", 400, "invalid_grant").Body, "connection_revoked")
		if n := w.count(`SELECT COUNT(*) FROM connections WHERE account_id = $1`, w.tester.ID); n != 0 {
			t.Errorf("a test account has %d connections to a live app", n)
		}
	})
}

// Of parallel polls one wins, and of parallel decisions too; the money is reserved once.
func TestParallelPolls(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		dev := w.startDevice(w.public)
		var wg sync.WaitGroup
		var mu sync.Mutex
		pages := map[int]int{}
		for i := range 8 {
			wg.Go(func() {
				form := approval("5")
				if i%2 == 1 {
					form = url.Values{"decision": {"deny"}}
				}
				page := dev.decide(b, form)
				mu.Lock()
				defer mu.Unlock()
				pages[page.Status]++
			})
		}
		wg.Wait()
		if pages[200] != 1 || pages[422] != 7 {
			t.Errorf("decisions: %v", pages)
		}

		dev = w.startDevice(w.public)
		dev.decide(b, approval("5")).Want(t, 200, "Approved")
		won := 0
		for range 12 {
			wg.Go(func() {
				o := dev.poll()
				mu.Lock()
				defer mu.Unlock()
				if o.Status == 200 {
					won++
				}
			})
		}
		wg.Wait()
		connections := w.count(`SELECT COUNT(*) FROM connections`)
		reserved := w.count(`SELECT reserved_mc FROM balances WHERE account_id IN
			(SELECT account_id FROM connections)`)
		if won != 1 || connections != 1 || reserved != int(5*money.Dollar) {
			t.Errorf("%d winners, %d connections, %d reserved", won, connections, reserved)
		}
	})
}

// A poll whose answer was lost is answered again with the same tokens (decision 035).
func TestLostPoll(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		dev := w.startDevice(w.public)
		dev.poll("Idempotency-Key", key1).refused(t, "pending", 400, "authorization_pending")
		dev.decide(w.signedIn("person@example.com"), approval("5")).Want(t, 200, "Approved")
		first := dev.poll("Idempotency-Key", key1).want(t, "tokens", 200, "")
		w.clock.pass(59 * time.Second)
		again := dev.poll("Idempotency-Key", key1).want(t, "again", 200, "")
		if !again.Replayed || again.Body != first.Body {
			t.Errorf("replayed %t: %s, was %s", again.Replayed, again.Body, first.Body)
		}
		w.clock.pass(8 * time.Minute)
		again = dev.poll("Idempotency-Key", key1).want(t, "when the user has approved long ago", 200, "")
		if again.ExpiresIn != 361 || again.AccessToken != first.AccessToken {
			t.Errorf("after 539 of 900 s: %d s", again.ExpiresIn)
		}
		if !w.alive(first.AccessToken) {
			t.Error("the token does not work")
		}
	})
}

// Device codes are stored as hashes, and purged a day after their end.
func TestDeviceCodesAtRest(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		dev := w.startDevice(w.public)
		letters, _ := verdict.ReadUserCode(dev.UserCode)
		for _, secret := range []string{dev.DeviceCode, dev.UserCode, letters} {
			if w.count(`SELECT COUNT(*) FROM oauth_device_codes WHERE hash = $1 OR user_code_hash = $1`, secret) != 0 {
				t.Errorf("%q is stored", secret)
			}
		}
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{0, 1}, {24 * time.Hour, 1}, {10 * time.Minute, 0}} {
			w.clock.pass(step.wait)
			if err := w.store.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := w.count(`SELECT COUNT(*) FROM oauth_device_codes`); n != step.want {
				t.Errorf("after another %s: %d codes, want %d", step.wait, n, step.want)
			}
		}
	})
}
