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
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
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

// Contract §5, Sandbox; invariant I-29.
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
		want verdict.Role
	}{
		{"the developer on a sandbox app", sandbox, developer, verdict.Chooser},
		{"a test account on its developer's sandbox app", sandbox, tester, verdict.Self},
		{"another developer's test account", sandbox, foreign, verdict.StrangerToSandbox},
		{"a deleted test account", sandbox, deleted, verdict.StrangerToSandbox},
		{"a person on the allow-list", sandbox, allowed, verdict.Tester},
		{"a person on the allow-list of an app that is live", live, allowed, verdict.Self},
		{"a person on a sandbox app", sandbox, person, verdict.StrangerToSandbox},
		{"an operator on a sandbox app", sandbox, operator, verdict.StrangerToSandbox},
		{"a person on a live app", live, person, verdict.Self},
		{"the developer on the own live app", live, developer, verdict.Self},
		{"a test account on a live app", live, tester, verdict.TestAccountOnLive},
		{"a foreign test account on a full-live app", full, foreign, verdict.TestAccountOnLive},
		{"a person on a full-live app", full, person, verdict.Self},
	} {
		if got := decideRole(c.app, c.who); got != c.want {
			t.Errorf("%s: role %d, want %d", c.what, got, c.want)
		}
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	daily := 5 * money.Dollar
	for _, c := range []struct {
		cap, daily string
		want       consentValues
		wrong      string // fields
	}{
		{"25", "", consentValues{CapMC: 25 * money.Dollar}, ""},
		{" $1,250.50 ", "5.00", consentValues{CapMC: 1250*money.Dollar + 50*money.Cent, VelocityMC: &daily}, ""},
		{"0.00000001", " ", consentValues{CapMC: 1}, ""},
		{"2000", "", consentValues{CapMC: 2000 * money.Dollar}, ""},
		{"", "", consentValues{}, "spend_cap"},
		{"  ", "5", consentValues{}, "spend_cap"},
		{"0", "", consentValues{}, "spend_cap"},
		{"-5", "", consentValues{}, "spend_cap"},
		{"ten", "", consentValues{}, "spend_cap"},
		{"1e3", "", consentValues{}, "spend_cap"},
		{"10 EUR", "", consentValues{}, "spend_cap"},
		{"1,00", "", consentValues{}, "spend_cap"},
		{"0.000000001", "", consentValues{}, "spend_cap"},
		{"2000.01", "", consentValues{}, "spend_cap"},
		{"99999999999999999999", "", consentValues{}, "spend_cap"},
		{"25", "0", consentValues{}, "daily_limit"},
		{"25", "-1", consentValues{}, "daily_limit"},
		{"25", "some", consentValues{}, "daily_limit"},
		{"no", "some", consentValues{}, "spend_cap daily_limit"},
	} {
		got, problems := consentForm{Cap: c.cap, Daily: c.daily}.parse(2000 * money.Dollar)
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
		1:                                    "$0.00",
		money.Cent - 1:                       "$0.00",
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

// Contract §8: limited-live connections get $10 by default and $25 at most.
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
			t.Errorf("%s, asked %s, has %s: %s, want %s", c.app.Tier, c.requested.Display(), c.current.Display(),
				got.Display(), c.want.Display())
		}
	}
}

// Contract §4.1, POST /oauth/token: what its form and headers must hold.
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
		req, err := readTokenRequest("cid_1", h, form, time.UnixMicro(1))
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

// A stored response cannot be read with the table alone.
func TestSealedAnswers(t *testing.T) {
	t.Parallel()
	sealed, err := sealResponse("credential", "key", []byte("the answer"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := openResponse("credential", "key", sealed); err != nil || string(got) != "the answer" {
		t.Errorf("open: %q, %v", got, err)
	}
	for _, c := range [][3]string{
		{"another", "key", sealed}, {"credential", "another", sealed}, {"credential", "key", sealed[:len(sealed)-4]},
		{"credential", "key", "%"}, {"credential", "key", ""},
	} {
		if got, err := openResponse(c[0], c[1], c[2]); err == nil {
			t.Errorf("open(%q, %q, …) = %q", c[0], c[1], got)
		}
	}
	again, err := sealResponse("credential", "key", []byte("the answer"))
	if err != nil || again == sealed {
		t.Errorf("sealing twice gives the same text (%v)", err)
	}
}
