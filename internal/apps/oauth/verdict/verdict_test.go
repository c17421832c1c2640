package verdict

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/money"
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

// Contract §4.1 and §5, rules 1 and 6; decision 032.
func TestAuthorizeRequests(t *testing.T) {
	t.Parallel()
	app := App{RedirectURIs: []string{callback, callback + "?tenant=1", "https://other.example.com/"}}
	page, ok := "page", "ok"
	for _, c := range []struct{ changes, want string }{
		{"", ok},
		{"unknown=1 +unknown=2 scope=everything", ok},
		{"redirect_uri=" + callback + "?tenant=1", ok},
		{"response_mode=query", ok},
		{"requested_allocation_mc=1", ok},
		{"requested_allocation_mc=99999999999999999999999", ok},
		{"requested_allocation_mc=" + strings.Repeat("9", 100), ok},
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
		_, refusal := CheckRequest(app, q)
		got := ok
		switch {
		case refusal != nil && refusal.Page != "":
			got = page
			if refusal.RedirectURI != "" || refusal.Code != "" {
				t.Errorf("%s: a page that also redirects: %+v", c.changes, refusal)
			}
		case refusal != nil:
			got = refusal.Code
			if refusal.RedirectURI != q.Get("redirect_uri") ||
				len(q["state"]) == 1 && refusal.State != q.Get("state") || refusal.Description == "" {
				t.Errorf("%s: %+v does not go back where it came from", c.changes, refusal)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.changes, got, c.want)
		}
	}
	app.Suspended = true
	if _, refusal := CheckRequest(app, request()); refusal == nil || refusal.Code != "unauthorized_client" {
		t.Errorf("suspended app: %+v, want unauthorized_client", refusal)
	}
	app.SuspendedByService = true // nobody is sent to it
	for _, q := range []url.Values{request(), request("-state"), request("response_type=token")} {
		if _, refusal := CheckRequest(app, q); refusal == nil || refusal.Page == "" || refusal.RedirectURI != "" {
			t.Errorf("app suspended by the service: %+v", refusal)
		}
	}
}

// TestApprovalsHold: what a user has approved holds until the approver's credentials change, or a connection to the app
// is revoked. What an older version stored says neither.
func TestApprovalsHold(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		epoch, revocations *int64 // when it was approved
		want               bool   // at epoch 3, after 2 revocations
	}{
		{n(3), n(2), true}, {n(2), n(2), false}, {n(4), n(2), false}, {n(3), n(1), false}, {n(3), n(3), false},
		{n(2), n(1), false}, {nil, n(2), true}, {nil, n(1), false}, {n(3), nil, true}, {n(2), nil, false},
		{nil, nil, true},
	} {
		if got := (Approval{ApproverEpoch: c.epoch, Revocations: c.revocations}).Holds(3, 2); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

func TestAuthorizeRequestIsRead(t *testing.T) {
	t.Parallel()
	app := App{RedirectURIs: []string{callback}}
	got, refusal := CheckRequest(app,
		request("requested_allocation_mc=99999999999999999999", "features=b, a,b,NO,-,"+strings.Repeat("x", 41)))
	want := Request{
		RedirectURI: callback,
		State:       "st",
		Challenge:   challenge,
		RequestedMC: money.Max,
		Features:    []string{"b", "a", "-"},
	}
	if refusal != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%+v, %s", refusal, cmp.Diff(want, got))
	}
	for value, want := range map[string]bool{
		"cid_1":                  true,
		"!~":                     true,
		strings.Repeat("a", 100): true,
		"":                       false,
		"a b":                    false,
		"a\x00":                  false,
		"a\x7f":                  false,
		"ü":                      false,
		strings.Repeat("a", 101): false,
	} {
		if id, ok := ReadClientID(url.Values{"client_id": {value}}); ok != want || want && id != value {
			t.Errorf("ReadClientID(%q) = %q, %t", value, id, ok)
		}
	}
	many := make([]string, 0, 22)
	for i := range cap(many) {
		many = append(many, fmt.Sprintf("%040d", i))
	}
	got, refusal = CheckRequest(app, request("features="+strings.Join(many, ",")))
	if refusal != nil || !slices.Equal(got.Features, many[:20]) {
		t.Errorf("%+v, %q", refusal, got.Features)
	}
	if _, ok := ReadClientID(url.Values{"client_id": {"a", "a"}}); ok {
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
		if got := RedirectLocation(redirectURI, map[string]string{
			"code":  "c/d",
			"state": "&x=\n",
			"error": "",
		}); got != want {
			t.Errorf("RedirectLocation(%q) = %q, want %q", redirectURI, got, want)
		}
	}
}

func TestVerifiers(t *testing.T) {
	t.Parallel()
	if !VerifierMatches(verifier, challenge) {
		t.Error("the example of RFC 7636 does not match")
	}
	for _, wrong := range []string{"", challenge, verifier + "A", verifier[:42], strings.ToLower(verifier),
		verifier + "=", strings.Repeat("a", 129)} {
		if VerifierMatches(wrong, challenge) {
			t.Errorf("%q matches", wrong)
		}
	}
	for length, want := range map[int]bool{42: false, 43: true, 128: true, 129: false} {
		text := strings.Repeat("a", length)
		sum := sha256.Sum256([]byte(text))
		if got := VerifierMatches(text, base64.RawURLEncoding.EncodeToString(sum[:])); got != want {
			t.Errorf("a verifier of %d characters matches its challenge: %t", length, got)
		}
	}
}

// Table of what becomes of a code: F-68, F-69, contract §5 rules 3 and 6; the reasons of decision 033.
func TestCodeVerdicts(t *testing.T) {
	t.Parallel()
	used := int64(100)
	fresh := Code{AppID: "app_1", RedirectURI: callback, Challenge: challenge, ExpiresUS: 200}
	with := func(change func(*Code)) Code { c := fresh; change(&c); return c }
	usedCode := with(func(c *Code) { c.UsedUS = &used })
	failed := func(n int64) Code { return with(func(c *Code) { c.Failures = n }) }
	for _, c := range []struct {
		what                  string
		code                  Code
		app, redirect, verify string
		arrived, now          int64
		want                  Verdict
		reason                Reason
	}{
		{"in order", fresh, "app_1", callback, verifier, 150, 150, Accept, ""},
		{"at its last moment", fresh, "app_1", callback, verifier, 199, 199, Accept, ""},
		{"expired", fresh, "app_1", callback, verifier, 199, 200, Reject, Expired},
		{"expired, another app", fresh, "app_2", callback, verifier, 199, 200, Reject, Unknown},
		{"another app", fresh, "app_2", callback, verifier, 150, 150, RejectAndCount, Unknown},
		{"another app, another address", fresh, "app_2", callback + "/", "", 150, 150, RejectAndCount, Unknown},
		{"another address", fresh, "app_1", callback + "/", verifier, 150, 150, RejectAndCount, RedirectURIMismatch},
		{"wrong verifier", fresh, "app_1", callback, verifier + "A", 150, 150, RejectAndCount, VerifierMismatch},
		{"the challenge as verifier", fresh, "app_1", callback, challenge, 150, 150, RejectAndCount, VerifierMismatch},
		{"after four failures", failed(4), "app_1", callback, verifier, 150, 150, Accept, ""},
		{"after five failures", failed(5), "app_1", callback, verifier, 150, 150, Reject, Used},
		{"after five failures, another app", failed(5), "app_2", callback, verifier, 150, 150, Reject, Unknown},
		{"used, by the same app", usedCode, "app_1", callback, verifier, 101, 150, RevokeFamily, Used},
		{"used, with a wrong verifier", usedCode, "app_1", callback, "", 101, 150, RevokeFamily, Used},
		{"used, after its end", usedCode, "app_1", callback, verifier, 900, 900, RevokeFamily, Used},
		{"used, by another app", usedCode, "app_2", callback, verifier, 101, 150, Reject, Unknown},
		{"used while on its way", usedCode, "app_1", callback, verifier, 100, 150, Reject, Used},
	} {
		got, reason := c.code.JudgeExchange(c.app, c.redirect, c.verify, c.arrived, c.now)
		if got != c.want || reason != c.reason {
			t.Errorf("%s: verdict %d %q, want %d %q", c.what, got, reason, c.want, c.reason)
		}
	}
}

// Table of what becomes of a refresh token: F-70 … F-73; decision 035; the reasons of decision 033.
func TestRefreshVerdicts(t *testing.T) {
	t.Parallel()
	used := int64(100)
	fresh := Token{AppID: "app_1", ExpiresUS: 200}
	with := func(change func(*Token)) Token { r := fresh; change(&r); return r }
	once := with(func(r *Token) { r.UsedUS = &used })
	twice := with(func(r *Token) { r.UsedUS, r.SuccessorUsed = &used, true })
	ended := with(func(r *Token) { r.RevokedUS = &used })
	kept := with(func(r *Token) { r.UsedUS, r.AnswerKey = &used, "key_1" })
	over := with(func(r *Token) { r.UsedUS, r.AnswerKey, r.SuccessorUsed = &used, "key_1", true })
	for _, c := range []struct {
		what         string
		token        Token
		app, key     string
		revoked      bool
		arrived, now int64
		want         Verdict
		reason       Reason
	}{
		{"in order", fresh, "app_1", "", false, 150, 150, Accept, ""},
		{"of a frozen connection", fresh, "app_1", "", false, 150, 150, Accept, ""},
		{"of a revoked connection", fresh, "app_1", "", true, 150, 150, Reject, ConnectionRevoked},
		{"another app", fresh, "app_2", "", false, 150, 150, Reject, Unknown},
		{"another app's, of a revoked connection", fresh, "app_2", "", true, 150, 150, Reject, Unknown},
		{"expired", fresh, "app_1", "", false, 200, 200, Reject, Expired},
		{"expired, of a revoked connection", fresh, "app_1", "", true, 200, 200, Reject, ConnectionRevoked},
		{"revoked", ended, "app_1", "", false, 150, 150, Reject, Used},
		{"used, its successor not", once, "app_1", "", false, 150, 150, Reject, Used},
		{"used, its successor too", twice, "app_1", "", false, 150, 150, RevokeFamily, Used},
		{"used, its successor too, of a revoked connection", twice, "app_1", "", true, 150, 150, RevokeFamily,
			ConnectionRevoked},
		{"used long ago, its successor too", twice, "app_1", "", false, 900, 900, RevokeFamily, Used},
		{"used while on its way", twice, "app_1", "", false, 100, 150, Reject, Used},
		{"used, by another app", twice, "app_2", "", false, 150, 150, Reject, Unknown},
		{"used, revoked already", with(func(r *Token) { r.UsedUS, r.SuccessorUsed, r.RevokedUS = &used, true, &used }),
			"app_1", "", false, 150, 150, Reject, Used},

		{"in order, with a key", fresh, "app_1", "key_1", false, 150, 150, Accept, ""},
		{"answer kept, its key", kept, "app_1", "key_1", false, 150, 150, Replay, ""},
		{"answer kept, its key, on its way", kept, "app_1", "key_1", false, 100, 150, Replay, ""},
		{"answer kept, its key, long after", kept, "app_1", "key_1", false, 900, 900, Replay, ""},
		{"answer kept, another key", kept, "app_1", "key_2", false, 2_000_101, 2_000_150, RevokeFamily, Used},
		{"answer kept, another key, in a race", kept, "app_1", "key_2", false, 2_000_100, 2_000_150, Reject, Used},
		{"answer kept, another key, on its way", kept, "app_1", "key_2", false, 100, 150, Reject, Used},
		{"answer kept, no key", kept, "app_1", "", false, 150, 150, Reject, Used},
		{"answer kept, no key, long after", kept, "app_1", "", false, 2_000_101, 2_000_150, Reject, Used},
		{"answer kept, its key, after the race", kept, "app_1", "key_1", false, 2_000_101, 2_000_150, Replay, ""},
		{"answer kept, its key, another app", kept, "app_2", "key_1", false, 150, 150, Reject, Unknown},
		{"answer kept, another key, another app", kept, "app_2", "key_2", false, 150, 150, Reject, Unknown},
		{"answer kept, of a revoked connection", kept, "app_1", "key_1", true, 150, 150, Reject, ConnectionRevoked},
		{"answer kept, of a revoked family",
			with(func(r *Token) { r.UsedUS, r.AnswerKey, r.RevokedUS = &used, "key_1", &used }), "app_1",
			"key_1", false, 150, 150, Reject, Used},
		{"answer kept, successor used, its key", over, "app_1", "key_1", false, 150, 150, RevokeFamily, Used},
		{"answer kept, successor used, another key, in a race", over, "app_1", "key_2", false, 101, 150, RevokeFamily,
			Used},
		{"answer kept, successor used, its key, on its way", over, "app_1", "key_1", false, 100, 150, Reject, Used},
		{"exchanged without a key, then one", once, "app_1", "key_1", false, 150, 150, Reject, Used},
		{"exchanged without a key, then one, long after", once, "app_1", "key_1", false, 2_000_101, 2_000_150, Reject,
			Used},
	} {
		got, reason := c.token.JudgeRefresh(c.app, c.key, c.revoked, c.arrived, c.now)
		if got != c.want || reason != c.reason {
			t.Errorf("%s: verdict %d %q, want %d %q", c.what, got, reason, c.want, c.reason)
		}
	}
}
