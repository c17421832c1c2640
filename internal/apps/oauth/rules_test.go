package oauth

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/accounts"
)

// The pair of RFC 7636, appendix B.
const (
	verifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	callback  = "https://app.example.com/callback"
)

// request is an authorize request in order, with changes: "name=value" sets,
// "+name=value" adds a second one, "-name" leaves out.
func request(changes ...string) url.Values {
	q := url.Values{
		"response_type": {"code"}, "client_id": {"cid_1"}, "redirect_uri": {callback}, "state": {"st"},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"},
	}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, "=")
		switch {
		case strings.HasPrefix(name, "-"):
			q.Del(name[1:])
		case strings.HasPrefix(name, "+"):
			q.Add(name[1:], value)
		default:
			q.Set(name, value)
		}
	}
	return q
}

// Spec §4.1 and §5, rules 1 and 6; decisions, OAuth.
func TestAuthorizeRequests(t *testing.T) {
	t.Parallel()
	app := apps.App{RedirectURIs: []string{callback, callback + "?tenant=1", "https://other.example.com/"}}
	page, ok := "page", "ok"
	for _, c := range []struct{ changes, want string }{
		{"", ok},
		{"unknown=1 +unknown=2 scope=everything", ok},
		{"redirect_uri=" + callback + "?tenant=1", ok},
		{"response_mode=query", ok},
		{"requested_allocation_mc=1", ok},
		{"requested_allocation_mc=99999999999999999999999", ok},
		{"features=chat,summaries", ok},
		{"features=NOT/A/SLUG,,", ok},
		{"state=" + strings.Repeat("s", 2048), ok},
		{"state=ünï-cödé", ok},

		// Nobody can be trusted with the answer: a page.
		{"-redirect_uri", page},
		{"redirect_uri=", page},
		{"+redirect_uri=" + callback, page},
		{"+redirect_uri=https://elsewhere.example.com/", page},
		{"redirect_uri=https://elsewhere.example.com/", page},
		{"redirect_uri=" + callback + "/", page},
		{"redirect_uri=" + callback + "?", page},
		{"redirect_uri=" + callback + "?tenant=2", page},
		{"redirect_uri=" + callback + "?tenant=1&x=y", page},
		{"redirect_uri=" + callback + "#f", page},
		{"redirect_uri=" + callback + "/../callback", page},
		{"redirect_uri=" + callback + "%2F", page},
		{"redirect_uri=https://APP.example.com/callback", page},
		{"redirect_uri=HTTPS://app.example.com/callback", page},
		{"redirect_uri=https://app.example.com:443/callback", page},
		{"redirect_uri=http://app.example.com/callback", page},
		{"redirect_uri=https://app.example.com@elsewhere.example.com/callback", page},
		{"redirect_uri=https://app.example.com.elsewhere.example.com/callback", page},
		{"redirect_uri=//app.example.com/callback", page},
		{"redirect_uri=javascript:alert(1)", page},
		{"redirect_uri=other", page},

		// Everything else goes back to the app.
		{"-response_type", "invalid_request"},
		{"response_type=", "invalid_request"},
		{"+response_type=code", "invalid_request"},
		{"response_type=token", "unsupported_response_type"},
		{"response_type=code+id_token", "unsupported_response_type"},
		{"response_type=Code", "unsupported_response_type"},
		{"response_mode=fragment", "invalid_request"},
		{"-state", "invalid_request"},
		{"state=", "invalid_request"},
		{"+state=again", "invalid_request"},
		{"state=" + strings.Repeat("s", 2049), "invalid_request"},
		{"state=\xff", "invalid_request"},
		{"-code_challenge", "invalid_request"},
		{"code_challenge=", "invalid_request"},
		{"code_challenge=" + challenge[:42], "invalid_request"},
		{"code_challenge=" + challenge + "A", "invalid_request"},
		{"code_challenge=" + challenge[:42] + "=", "invalid_request"},
		{"code_challenge=" + challenge[:42] + "+", "invalid_request"},
		{"+code_challenge=" + challenge, "invalid_request"},
		{"-code_challenge_method", "invalid_request"},
		{"code_challenge_method=plain", "invalid_request"},
		{"code_challenge_method=s256", "invalid_request"},
		{"+code_challenge_method=S256", "invalid_request"},
		{"requested_allocation_mc=", "invalid_request"},
		{"requested_allocation_mc=0", "invalid_request"},
		{"requested_allocation_mc=-1", "invalid_request"},
		{"requested_allocation_mc=1.5", "invalid_request"},
		{"requested_allocation_mc=1e9", "invalid_request"},
		{"requested_allocation_mc=$10", "invalid_request"},
		{"requested_allocation_mc=" + strings.Repeat("9", 101), "invalid_request"},
		{"+requested_allocation_mc=1 +requested_allocation_mc=2", "invalid_request"},
		{"+features=a +features=b", "invalid_request"},
	} {
		q := request(strings.Fields(c.changes)...)
		_, refusal := Check(app, q)
		got := ok
		switch {
		case refusal != nil && refusal.Page != "":
			got = page
			if refusal.RedirectURI != "" || refusal.Code != "" {
				t.Errorf("%s: a page that also redirects: %+v", c.changes, refusal)
			}
		case refusal != nil:
			got = refusal.Code
			if refusal.RedirectURI != q.Get("redirect_uri") || len(q["state"]) == 1 && refusal.State != q.Get("state") || refusal.Description == "" {
				t.Errorf("%s: %+v does not go back where it came from", c.changes, refusal)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.changes, got, c.want)
		}
	}
	app.Suspended = true
	if _, refusal := Check(app, request()); refusal == nil || refusal.Code != "unauthorized_client" {
		t.Errorf("suspended app: %+v, want unauthorized_client", refusal)
	}
}

func TestAuthorizeRequestIsRead(t *testing.T) {
	t.Parallel()
	app := apps.App{RedirectURIs: []string{callback}}
	got, refusal := Check(app, request("requested_allocation_mc=99999999999999999999", "features=b, a,b,NO,-,"+strings.Repeat("x", 41)))
	want := Request{RedirectURI: callback, State: "st", Challenge: challenge, RequestedMC: money.Max, Features: []string{"b", "a", "-"}}
	if refusal != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%+v, %s", refusal, cmp.Diff(want, got))
	}
	for value, want := range map[string]bool{"cid_1": true, "": false, "a b": false, "a\x00": false, "ü": false, strings.Repeat("a", 101): false} {
		if id, ok := ClientID(url.Values{"client_id": {value}}); ok != want || want && id != value {
			t.Errorf("ClientID(%q) = %q, %t", value, id, ok)
		}
	}
	if _, ok := ClientID(url.Values{"client_id": {"a", "a"}}); ok {
		t.Error("two client ids were taken for one")
	}
}

func TestLocation(t *testing.T) {
	t.Parallel()
	for redirectURI, want := range map[string]string{
		"https://a.example.com/cb":       "https://a.example.com/cb?code=c%2Fd&state=%26x%3D%0A",
		"https://a.example.com/cb?":      "https://a.example.com/cb?code=c%2Fd&state=%26x%3D%0A",
		"https://a.example.com/cb?x=%20": "https://a.example.com/cb?x=%20&code=c%2Fd&state=%26x%3D%0A",
		"https://a.example.com/cb?x&":    "https://a.example.com/cb?x&code=c%2Fd&state=%26x%3D%0A",
	} {
		if got := Location(redirectURI, map[string]string{"code": "c/d", "state": "&x=\n", "error": ""}); got != want {
			t.Errorf("Location(%q) = %q, want %q", redirectURI, got, want)
		}
	}
}

// Spec §5, Sandbox; invariant I29.
func TestRoles(t *testing.T) {
	t.Parallel()
	listed := []string{"listed@example.com", "tester@example.com", "developer@example.com"}
	sandbox := apps.App{OwnerID: "wac_dev", Tier: apps.Sandbox, TestAllowlist: listed}
	live := apps.App{OwnerID: "wac_dev", Tier: apps.LimitedLive, TestAllowlist: listed}
	full := apps.App{OwnerID: "wac_dev", Tier: apps.FullLive}
	developer := accounts.Account{ID: "wac_dev", Developer: true, Email: "developer@example.com"}
	allowed := accounts.Account{ID: "wac_l", Email: "listed@example.com"}
	deleted := accounts.Account{ID: "wac_d", Sandbox: true, OwnerID: "wac_dev", Deactivated: true}
	tester := accounts.Account{ID: "wac_t", Sandbox: true, OwnerID: "wac_dev"}
	foreign := accounts.Account{ID: "wac_u", Sandbox: true, OwnerID: "wac_other", Email: "tester@example.com"}
	person := accounts.Account{ID: "wac_p"}
	operator := accounts.Account{ID: "wac_o", Operator: true, Developer: true}
	for _, c := range []struct {
		what string
		app  apps.App
		who  accounts.Account
		want Role
	}{
		{"the developer on a sandbox app", sandbox, developer, Chooser},
		{"a test account on its developer's sandbox app", sandbox, tester, Self},
		{"another developer's test account", sandbox, foreign, StrangerToSandbox},
		{"a deleted test account", sandbox, deleted, StrangerToSandbox},
		{"a person on the allow-list", sandbox, allowed, Tester},
		{"a person on the allow-list of an app that is live", live, allowed, Self},
		{"a person on a sandbox app", sandbox, person, StrangerToSandbox},
		{"an operator on a sandbox app", sandbox, operator, StrangerToSandbox},
		{"a person on a live app", live, person, Self},
		{"the developer on the own live app", live, developer, Self},
		{"a test account on a live app", live, tester, TestAccountOnLive},
		{"a foreign test account on a full-live app", full, foreign, TestAccountOnLive},
		{"a person on a full-live app", full, person, Self},
	} {
		if got := RoleOf(c.app, c.who); got != c.want {
			t.Errorf("%s: role %d, want %d", c.what, got, c.want)
		}
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	daily := 5 * money.Dollar
	for _, c := range []struct {
		cap, daily string
		want       Terms
		wrong      string // fields
	}{
		{"25", "", Terms{CapMC: 25 * money.Dollar}, ""},
		{" $1,250.50 ", "5.00", Terms{CapMC: 1250*money.Dollar + 50*money.Cent, VelocityMC: &daily}, ""},
		{"0.00000001", " ", Terms{CapMC: 1}, ""},
		{"2000", "", Terms{CapMC: 2000 * money.Dollar}, ""},
		{"", "", Terms{}, "spend_cap"},
		{"  ", "5", Terms{}, "spend_cap"},
		{"0", "", Terms{}, "spend_cap"},
		{"-5", "", Terms{}, "spend_cap"},
		{"ten", "", Terms{}, "spend_cap"},
		{"1e3", "", Terms{}, "spend_cap"},
		{"10 EUR", "", Terms{}, "spend_cap"},
		{"1,00", "", Terms{}, "spend_cap"},
		{"0.000000001", "", Terms{}, "spend_cap"},
		{"2000.01", "", Terms{}, "spend_cap"},
		{"99999999999999999999", "", Terms{}, "spend_cap"},
		{"25", "0", Terms{}, "daily_limit"},
		{"25", "-1", Terms{}, "daily_limit"},
		{"25", "some", Terms{}, "daily_limit"},
		{"no", "some", Terms{}, "spend_cap daily_limit"},
	} {
		got, problems := Form{Cap: c.cap, Daily: c.daily}.Terms(2000 * money.Dollar)
		var wrong []string
		for _, p := range problems {
			wrong = append(wrong, p.Field)
		}
		if strings.Join(wrong, " ") != c.wrong || c.wrong == "" && cmp.Diff(c.want, got) != "" {
			t.Errorf("cap %q, daily %q: wrong %q, want %q; %s", c.cap, c.daily, wrong, c.wrong, cmp.Diff(c.want, got))
		}
	}
}

func TestMoneyIsWrittenForPeople(t *testing.T) {
	t.Parallel()
	for mc, want := range map[money.MC]string{
		0:                                    "$0.00",
		1:                                    "$0.00000001",
		money.Cent - 1:                       "$0.00999999",
		money.Cent:                           "$0.01",
		10*money.Dollar - 1:                  "$9.99", // never more than there is
		999 * money.Dollar:                   "$999.00",
		1000 * money.Dollar:                  "$1,000.00",
		1234567*money.Dollar + 89*money.Cent: "$1,234,567.89",
	} {
		if got := dollars(mc); got != want {
			t.Errorf("dollars(%d) = %q, want %q", mc, got, want)
		}
	}
	if got := percent(150_000) + " " + percent(0) + " " + percent(12_345); got != "15% 0% 1.2345%" {
		t.Errorf("percent: %q", got)
	}
}

// Spec §8: limited-live connections get $10 by default and $25 at most.
func TestProposedCaps(t *testing.T) {
	t.Parallel()
	const d = money.Dollar
	limited, full := apps.App{Tier: apps.LimitedLive}, apps.App{Tier: apps.FullLive}
	for _, c := range []struct {
		app                      apps.App
		requested, current, want money.MC
	}{
		{limited, 0, 0, 10 * d},
		{limited, 5 * d, 0, 5 * d},
		{limited, 100 * d, 0, 25 * d},
		{limited, 0, 40 * d, 25 * d},
		{full, 0, 0, 10 * d},
		{full, 100 * d, 7 * d, 100 * d},
		{full, 0, 7 * d, 7 * d},
	} {
		if got := proposedCap(c.app, c.requested, c.current); got != c.want {
			t.Errorf("%s, asked %s, has %s: %s, want %s", c.app.Tier, c.requested.Display(), c.current.Display(), got.Display(), c.want.Display())
		}
	}
}

func TestVerifiers(t *testing.T) {
	t.Parallel()
	if !VerifierMatches(verifier, challenge) {
		t.Error("the example of RFC 7636 does not match")
	}
	for _, wrong := range []string{"", challenge, verifier + "A", verifier[:42], strings.ToLower(verifier), verifier + "=", strings.Repeat("a", 129)} {
		if VerifierMatches(wrong, challenge) {
			t.Errorf("%q matches", wrong)
		}
	}
}

// Table of what becomes of a code: F-68, F-69, spec §5 rules 3 and 6.
func TestCodeVerdicts(t *testing.T) {
	t.Parallel()
	used := int64(100)
	fresh := codeRow{AppID: "app_1", RedirectURI: callback, Challenge: challenge, ExpiresUS: 200}
	with := func(change func(*codeRow)) codeRow { c := fresh; change(&c); return c }
	for _, c := range []struct {
		what                  string
		code                  codeRow
		app, redirect, verify string
		arrived, now          int64
		want                  Verdict
	}{
		{"in order", fresh, "app_1", callback, verifier, 150, 150, Honour},
		{"at its last moment", fresh, "app_1", callback, verifier, 199, 199, Honour},
		{"expired", fresh, "app_1", callback, verifier, 199, 200, Refuse},
		{"another app", fresh, "app_2", callback, verifier, 150, 150, Count},
		{"another address", fresh, "app_1", callback + "/", verifier, 150, 150, Count},
		{"wrong verifier", fresh, "app_1", callback, verifier + "A", 150, 150, Count},
		{"the challenge as verifier", fresh, "app_1", callback, challenge, 150, 150, Count},
		{"after four failures", with(func(c *codeRow) { c.Failures = 4 }), "app_1", callback, verifier, 150, 150, Honour},
		{"after five failures", with(func(c *codeRow) { c.Failures = 5 }), "app_1", callback, verifier, 150, 150, Refuse},
		{"used, by the same app", with(func(c *codeRow) { c.UsedUS = &used }), "app_1", callback, verifier, 101, 150, Betrayed},
		{"used, with a wrong verifier", with(func(c *codeRow) { c.UsedUS = &used }), "app_1", callback, "", 101, 150, Betrayed},
		{"used, after its end", with(func(c *codeRow) { c.UsedUS = &used }), "app_1", callback, verifier, 900, 900, Betrayed},
		{"used, by another app", with(func(c *codeRow) { c.UsedUS = &used }), "app_2", callback, verifier, 101, 150, Refuse},
		{"used while on its way", with(func(c *codeRow) { c.UsedUS = &used }), "app_1", callback, verifier, 100, 150, Refuse},
	} {
		if got := c.code.verdict(c.app, c.redirect, c.verify, c.arrived, c.now); got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.what, got, c.want)
		}
	}
}

// Table of what becomes of a refresh token: F-70 … F-73.
func TestRefreshVerdicts(t *testing.T) {
	t.Parallel()
	used := int64(100)
	fresh := tokenRow{AppID: "app_1", ExpiresUS: 200}
	with := func(change func(*tokenRow)) tokenRow { r := fresh; change(&r); return r }
	for _, c := range []struct {
		what         string
		token        tokenRow
		app          string
		connection   rules.ConnectionStatus
		arrived, now int64
		want         Verdict
	}{
		{"in order", fresh, "app_1", rules.Active, 150, 150, Honour},
		{"of a frozen connection", fresh, "app_1", rules.Frozen, 150, 150, Honour},
		{"of a revoked connection", fresh, "app_1", rules.Revoked, 150, 150, Refuse},
		{"another app", fresh, "app_2", rules.Active, 150, 150, Refuse},
		{"expired", fresh, "app_1", rules.Active, 200, 200, Refuse},
		{"revoked", with(func(r *tokenRow) { r.RevokedUS = &used }), "app_1", rules.Active, 150, 150, Refuse},
		{"used, its successor not", with(func(r *tokenRow) { r.UsedUS = &used }), "app_1", rules.Active, 150, 150, Refuse},
		{"used, its successor too", with(func(r *tokenRow) { r.UsedUS, r.SuccessorUsed = &used, true }), "app_1", rules.Active, 150, 150, Betrayed},
		{"used long ago, its successor too", with(func(r *tokenRow) { r.UsedUS, r.SuccessorUsed = &used, true }), "app_1", rules.Active, 900, 900, Betrayed},
		{"used while on its way", with(func(r *tokenRow) { r.UsedUS, r.SuccessorUsed = &used, true }), "app_1", rules.Active, 100, 150, Refuse},
		{"used, by another app", with(func(r *tokenRow) { r.UsedUS, r.SuccessorUsed = &used, true }), "app_2", rules.Active, 150, 150, Refuse},
		{"used, revoked already", with(func(r *tokenRow) { r.UsedUS, r.SuccessorUsed, r.RevokedUS = &used, true, &used }), "app_1", rules.Active, 150, 150, Refuse},
	} {
		if got := c.token.verdict(c.app, c.connection, c.arrived, c.now); got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.what, got, c.want)
		}
	}
}

// Spec §4.1, POST /oauth/token: what its form and headers must hold.
func TestTokenRequests(t *testing.T) {
	t.Parallel()
	const uuid = "4f1c2b3a-0d9e-4f7a-8b6c-5d4e3f2a1b0c"
	code := "grant_type=authorization_code&code=c&redirect_uri=r&code_verifier=v"
	refresh := "grant_type=refresh_token&refresh_token=t"
	for _, c := range []struct{ form, key, want string }{
		{code, "", ""},
		{refresh, "", ""},
		{code + "&scope=x&unknown=1", "", ""},
		{code + "&client_id=cid_1", "", ""},
		{refresh + "&code=ignored&redirect_uri=", "", ""},
		{code, uuid, ""},
		{code, strings.ToUpper(uuid), ""},
		{"", "", "invalid_request"},
		{"grant_type=", "", "invalid_request"},
		{"code=c&redirect_uri=r&code_verifier=v", "", "invalid_request"},
		{"grant_type=password&username=u&password=p", "", "unsupported_grant_type"},
		{"grant_type=client_credentials", "", "unsupported_grant_type"},
		{"grant_type=implicit", "", "unsupported_grant_type"},
		{"grant_type=Refresh_Token&refresh_token=t", "", "unsupported_grant_type"},
		{"grant_type=authorization_code&redirect_uri=r&code_verifier=v", "", "invalid_request"},
		{"grant_type=authorization_code&code=&redirect_uri=r&code_verifier=v", "", "invalid_request"},
		{"grant_type=authorization_code&code=c&code_verifier=v", "", "invalid_request"},
		{"grant_type=authorization_code&code=c&redirect_uri=r", "", "invalid_request"},
		{"grant_type=authorization_code&refresh_token=t", "", "invalid_request"},
		{"grant_type=refresh_token", "", "invalid_request"},
		{"grant_type=refresh_token&code=c&redirect_uri=r&code_verifier=v", "", "invalid_request"},
		{code + "&client_id=cid_2", "", "invalid_request"},
		{code + "&client_id=", "", "invalid_request"},
		{code + "&client_secret=s", "", "invalid_request"},
		{code, "not a uuid", "invalid_request"},
		{code, strings.ReplaceAll(uuid, "-", ""), "invalid_request"},
		{code, "{" + uuid + "}", "invalid_request"},
		{code, uuid[:35] + "g", "invalid_request"},
	} {
		form, err := url.ParseQuery(c.form)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		if c.key != "" {
			h.Set("Idempotency-Key", c.key)
		}
		req, err := ReadTokenRequest("cid_1", h, form, time.UnixMicro(1))
		if got := codeOf(err); got != c.want {
			t.Errorf("%s (key %q): %q, want %q", c.form, c.key, got, c.want)
		}
		if err == nil && (req.Key != strings.ToLower(c.key) || req.ArrivedUS != 1 || req.Code+req.RefreshToken == "") {
			t.Errorf("%s: read as %+v", c.form, req)
		}
	}
}

// codeOf is the name of an error's code, "" for nil.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return e.Code.Name
	}
	return err.Error()
}

// What is kept for a retry tells nothing to whoever only has the table.
func TestSealedAnswers(t *testing.T) {
	t.Parallel()
	sealed, err := seal("credential", "key", []byte("the answer"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open("credential", "key", sealed); err != nil || string(got) != "the answer" {
		t.Errorf("open: %q, %v", got, err)
	}
	for _, c := range [][3]string{
		{"another", "key", sealed}, {"credential", "another", sealed}, {"credential", "key", sealed[:len(sealed)-4]}, {"credential", "key", "%"}, {"credential", "key", ""},
	} {
		if got, err := open(c[0], c[1], c[2]); err == nil {
			t.Errorf("open(%q, %q, …) = %q", c[0], c[1], got)
		}
	}
	again, err := seal("credential", "key", []byte("the answer"))
	if err != nil || again == sealed {
		t.Errorf("sealing twice gives the same text (%v)", err)
	}
}
