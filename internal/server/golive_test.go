package server_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// operatorOf returns a client with the operator's token of a development node.
func operatorOf(t *testing.T, p *nodetest.Node) apitest.Client {
	t.Helper()
	info, err := os.Stat(p.OperatorFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the operator's token: %v, %v", info, err)
	}
	token, err := os.ReadFile(p.OperatorFile)
	if err != nil {
		t.Fatal(err)
	}
	return apitest.Client{Base: p.BaseURL, Bearer: string(token)}
}

func wants(t *testing.T, what string, got apitest.Answer, status int, code, says string) apitest.Answer {
	t.Helper()
	if got.Status != status || got.Code != code || !strings.Contains(got.Body, says) {
		t.Errorf("%s: %v; want %d %s that says %q", what, got, status, code, says)
	}
	return got
}

func memberOf(t *testing.T, a apitest.Answer, name string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil {
		t.Fatalf("%v: %v", err, a)
	}
	text, _ := v[name].(string)
	return text
}

// TestAppGoesLive takes the sample app out of the sandbox: request, approval, and
// then a real account connects and is served, suspended and served again.
func TestAppGoesLive(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		target := apptest.URL(t, e)
		p := apptest.Start(t, target)
		promote(t, p.Node)
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		// Starting again must not give the live app a test account, nor the mock provider.
		code, verifier := realConsent(t, target, p.Node)
		p = apptest.Start(t, target, apptest.Emulated)
		if p.Connection.ID != "" {
			t.Errorf("a live app was seeded with connection %s of a test account", p.Connection.ID)
		}
		tokens := tokenRequest(t, p.Node, url.Values{
			"grant_type":    {"authorization_code"},
			"code":          {code},
			"redirect_uri":  {publicCallback},
			"code_verifier": {verifier},
		})
		wants(t, "a real account connects", tokens, 200, "", `"allocation_mc":1000000000`)
		p.Connection.AccessToken = memberOf(t, tokens, "access_token")
		suspendAndLift(t, p.Node, memberOf(t, tokens, "refresh_token"))
		reverseAndFreeze(t, p.Node, memberOf(t, tokens, "connection_id"))
		p.Verify()
	})
}

const publicCallback = "https://app.example.com/callback"

func promote(t *testing.T, p *nodetest.Node) {
	t.Helper()
	app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	operator, path := operatorOf(t, p), "/v1/apps/"+p.App.ID
	wants(t, "not ready", app.Do(t, "POST", path+"/go-live", ""), 400, "invalid_request",
		`"missing":["redirect_uri","allowed_models"]`)
	wants(t, "patch",
		app.Do(t, "PATCH", path,
			`{"redirect_uris":["`+publicCallback+`"],"allowed_models":["gpt-6-luna","gpt-6-astra"]}`), 200, "",
		publicCallback)
	wants(t, "status", app.Do(t, "GET", path+"/go-live", ""), 200, "", `"ready":true`)
	asked := wants(t, "ask", app.Do(t, "POST", path+"/go-live", ""), 200, "", `"status":"pending"`)
	request := memberOf(t, asked, "id")
	wants(t, "ask twice", app.Do(t, "POST", path+"/go-live", ""), 400, "invalid_request", request)
	wants(t, "queue", operator.Do(t, "GET", "/v1/operator/go-live", ""), 200, "", request)
	wants(t, "refuse", operator.Do(t, "POST", "/v1/operator/go-live/"+request+"/refuse", `{"reason":"Say more."}`), 200,
		"", `"status":"refused","reason":"Say more."`)
	wants(t, "still in the sandbox", app.Do(t, "GET", path, ""), 200, "", `"tier":"sandbox"`)
	whole(t, p.Call("POST", luna, prompt("before"))).billing(t)

	request = memberOf(t, wants(t, "ask again", app.Do(t, "POST", path+"/go-live", ""), 200, "", "pending"), "id")
	approved := wants(t, "approve", operator.Do(t, "POST", "/v1/operator/go-live/"+request+"/approve", ""), 200, "",
		`"tier":"limited-live"`)
	if !strings.Contains(approved.Body, `"provider_mode":"live"`) ||
		!strings.Contains(approved.Body, `"max_cap_mc":2500000000`) {
		t.Errorf("approved: %s", approved.Body)
	}
	wants(t, "approve twice", operator.Do(t, "POST", "/v1/operator/go-live/"+request+"/approve", ""), 400,
		"invalid_request", "approved already")
	whole(t, p.Call("POST", luna, prompt("after"))).wantAnswer(t, 403, "connection_revoked")
	wants(t, "full-live", app.Do(t, "POST", path+"/go-live", ""), 400, "invalid_request", "not open yet")
	wants(t, "back to mock", app.Do(t, "PATCH", path, `{"provider_mode":"mock"}`), 400, "invalid_request",
		"provider_mode: is always live")
	if left := dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM connections WHERE status <> 'revoked'`); left != 0 {
		t.Errorf("%d connections of test accounts are left", left)
	}
	p.Verify()
}

// realConsent lets a real account with a balance approve the app, while no node runs.
func realConsent(t *testing.T, target string, p *nodetest.Node) (code, verifier string) {
	t.Helper()
	d := dbtest.OpenURL(t, target)
	verifier = strings.Repeat("v", 43)
	sum := sha256.Sum256([]byte(verifier))
	money := store.NewWriter(d, d.Now)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		person, err := accounts.NewStore(d, d.Now).Create(ctx, tx,
			accounts.NewAccount{Email: "person@example.com", Password: "a long password"})
		if err != nil {
			return err
		}
		if _, err := money.DoTx(ctx, tx, rules.TopUp{AccountID: person.ID, AmountMC: 50 * dollar}); err != nil {
			return err
		}
		store := &oauth.Store{DB: d, Ledger: money, Now: d.Now}
		code, err = store.CreateCode(ctx, tx, oauth.Consent{
			AppID:       p.App.ID,
			AccountID:   person.ID,
			RedirectURI: publicCallback,
			Challenge:   base64.RawURLEncoding.EncodeToString(sum[:]),
			CapMC:       10 * dollar,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return code, verifier
}

const dollar = money.Dollar

func tokenRequest(t *testing.T, p *nodetest.Node, form url.Values) apitest.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", p.BaseURL+"/oauth/token",
		strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
	resp, err := direct.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	a := whole(t, resp)
	out := apitest.Answer{Status: a.status, Body: a.body}
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		t.Fatal(err)
	}
	out.Code, out.Message = e.Error.Code, e.Error.Message
	return out
}

// suspendAndLift switches the app off in each way: nothing works, all is kept,
// and the same tokens work once it is lifted (contract §3, App tier; §7).
func suspendAndLift(t *testing.T, p *nodetest.Node, refresh string) {
	t.Helper()
	app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	operator, path := operatorOf(t, p), "/v1/apps/"+p.App.ID
	if a := whole(t, p.Call("POST", luna, prompt("hello"))); !strings.Contains(a.body, `"paid_by":"free_credit"`) {
		t.Errorf("free credit did not pay: %+v", a)
	}
	off := func(what, authorize string) {
		t.Helper()
		whole(t, p.Call("POST", luna, prompt("while "+what))).wantAnswer(t, 403, "app_suspended")
		wants(t, what+", refresh",
			tokenRequest(t, p, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}}), 400,
			"invalid_grant", `"reason":"app_suspended"`)
		q := url.Values{
			"response_type":         {"code"},
			"client_id":             {p.App.ClientID},
			"redirect_uri":          {publicCallback},
			"state":                 {"s"},
			"code_challenge":        {strings.Repeat("c", 43)},
			"code_challenge_method": {"S256"},
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", p.AuthURL+"/oauth/authorize?"+q.Encode(),
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := direct.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(resp.Header.Get("Location")+string(page), authorize) {
			t.Errorf("%s, authorize: %d to %q: %s", what, resp.StatusCode, resp.Header.Get("Location"), page)
		}
	}
	on := func(what string) {
		t.Helper()
		whole(t, p.Call("POST", luna, prompt("after "+what))).billing(t)
		again := wants(t, what+", refresh",
			tokenRequest(t, p, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}}), 200, "",
			"refresh_token")
		refresh = memberOf(t, again, "refresh_token")
	}
	wants(t, "switch off", app.Do(t, "PATCH", path, `{"suspended":true}`), 200, "", `"by":"developer"`)
	off("switched off", "error=unauthorized_client")
	wants(t, "both",
		operator.Do(t, "POST", "/v1/operator/apps/"+p.App.ID+"/suspend", `{"reason":"Its secret has leaked."}`), 200,
		"", `"by":"operator","reason":"Its secret has leaked."`)
	wants(t, "not the developer's to lift", app.Do(t, "PATCH", path, `{"suspended":false}`), 403, "app_suspended",
		"Its secret has leaked.")
	wants(t, "suspend twice", operator.Do(t, "POST", "/v1/operator/apps/"+p.App.ID+"/suspend", `{"reason":"x"}`), 400,
		"invalid_request", "suspended already")
	wants(t, "the list", operator.Do(t, "GET", "/v1/operator/suspended-apps", ""), 200, "", p.App.ID)
	wants(t, "lifted, but off", operator.Do(t, "POST", "/v1/operator/apps/"+p.App.ID+"/lift", ""), 200, "",
		`"by":"developer"`)
	off("still switched off", "error=unauthorized_client")
	wants(t, "switch on", app.Do(t, "PATCH", path, `{"suspended":false}`), 200, "",
		`"suspended":false,"suspension":null`)
	on("switched on")

	wants(t, "suspend", operator.Do(t, "POST", "/v1/operator/apps/"+p.App.ID+"/suspend", `{"reason":"Again."}`), 200,
		"", `"suspended":true`)
	off("suspended", "is suspended and can’t accept new connections")
	wants(t, "lift", operator.Do(t, "POST", "/v1/operator/apps/"+p.App.ID+"/lift", ""), 200, "", `"suspended":false`)
	on("lifted")
	wants(t, "lift twice", operator.Do(t, "POST", "/v1/operator/apps/"+p.App.ID+"/lift", ""), 400, "invalid_request",
		"has not suspended")
	wants(t, "nothing is suspended", operator.Do(t, "GET", "/v1/operator/suspended-apps", ""), 200, "", "[]")
}

// reverseAndFreeze does what the operator may do to money, by the command line.
func reverseAndFreeze(t *testing.T, p *nodetest.Node, connectionID string) {
	t.Helper()
	run := func(want string, args ...string) {
		t.Helper()
		cmd := exec.Command(servertest.Binary(t),
			append([]string{"operator", "--url", p.BaseURL, "--token-file", p.OperatorFile}, args...)...)
		out, err := cmd.CombinedOutput()
		if failed := strings.HasPrefix(string(out), "purser: "); failed != (err != nil) ||
			!strings.Contains(string(out), want) {
			t.Errorf("purser operator %v: %v\n%s\nwant %q", args, err, out, want)
		}
	}
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// This may cost more than a user's free credit on one app: the wallet pays.
	costly := whole(t,
		p.Call("POST", "/v1/ai/gpt-6-astra", `{"max_tokens":45000,"messages":[{"role":"user","content":"hello"}]}`))
	if !strings.Contains(costly.body, `"paid_by":"wallet"`) {
		t.Errorf("the wallet did not pay: %+v", costly)
	}
	var row string
	var charged int64
	if err := d.QueryRowContext(t.Context(),
		`SELECT id, user_charge_mc FROM ledger WHERE type = 'spend' AND connection_id = $1 ORDER BY seq DESC LIMIT 1`,
		connectionID).Scan(&row, &charged); err != nil {
		t.Fatal(err)
	}
	consumed := dbtest.Number(t, p.DB, `SELECT consumed_mc FROM connections WHERE status = 'active'`)
	run(`"reversal_of": "`+row+`"`, "reverse", row, "--reason", "provider_error")
	run("only once", "reverse", row, "--reason", "provider_error")
	now := dbtest.Number(t, p.DB, `SELECT consumed_mc FROM connections WHERE status = 'active'`)
	if consumed-now != charged {
		t.Errorf("%v consumed after a reversal of %d, %v before", now, charged, consumed)
	}
	// The app learns that its call was refunded.
	reversal := textOf(t, p.DB, `SELECT id FROM ledger WHERE reversal_of = '`+row+`'`)
	refunded := fmt.Sprintf(`"refunded_mc":%d,"reversed_by":%q`, charged, reversal)
	request := id.ReplacePrefix(row, id.Ledger, id.Request)
	app := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	wants(t, "receipt of a refunded call", app.Do(t, "GET", "/v1/requests/"+request, ""), 200, "", refunded)
	event := textOf(t, p.DB, `SELECT data FROM events WHERE type = 'request.refunded'`)
	if !strings.Contains(event, request) || !strings.Contains(event, refunded) {
		t.Errorf("event request.refunded has the data %s, want %s and %s", event, request, refunded)
	}
	run(`"status": "frozen"`, "freeze", connectionID, "--reason", "Asked for by its user.")
	event = textOf(t, p.DB, `SELECT data FROM events WHERE type = 'connection.frozen'`)
	if want := `"freeze":{"cause":"operator","reason":"Asked for by its user."}`; !strings.Contains(event, want) {
		t.Errorf("event connection.frozen has the data %s, want %s", event, want)
	}
	whole(t, p.Call("POST", luna, prompt("frozen"))).wantAnswer(t, 403, "connection_frozen")
	run(`"status": "frozen"`, "freeze", connectionID, "--reason", "x") // a second cause
	run(`"status": "active"`, "resume", connectionID)
	whole(t, p.Call("POST", luna, prompt("resumed"))).billing(t)
	run("no such connection", "freeze", "conn_absent", "--reason", "x")
	run("no such ledger row", "reverse", "led_absent", "--reason", "x")
	run(`"action": "resume"`, "log")
	run("[]", "requests")
	run("[]", "suspended")
	run(`"tier": "limited-live"`, "app", p.App.ID)
	run("no such app", "lift", "app_absent")
}
