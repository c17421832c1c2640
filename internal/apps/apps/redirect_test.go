package apps

import (
	"errors"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

func TestRedirectURIRules(t *testing.T) {
	t.Parallel()
	const always, ofPublic, onlyInDev, never = "always", "of public clients and in dev", "only in dev", "never"
	long := "https://a.example/" + strings.Repeat("x", maxRedirectURIBytes)
	for _, c := range []struct{ uri, takes string }{
		{"https://app.example.com/callback", always},
		{"https://app.example.com", always},
		{"https://app.example.com/", always},
		{"https://App.Example.com/Callback", always},
		{"https://my_app.example.com/cb", always},
		{"https://localhost/cb", always},
		{"https://app.example.com:8443/cb", always},
		{"https://app.example.com/cb?tenant=a&x=%20", always},
		{"https://app.example.com/cb?next=https://b.example/", always},
		{"https://app.example.com/a.b/..c", always},
		{"https://app.example.com/%7Euser", always},
		{"https://192.0.2.1/cb", always},
		{"https://[2001:db8::1]/cb", always},
		{"https://[2001:db8::1]:8443/cb", always},
		{"https://xn--bcher-kva.example/cb", always},
		{long[:maxRedirectURIBytes], always},

		{"http://localhost/cb", onlyInDev},
		{"http://localhost:3000/cb", onlyInDev},
		{"http://127.0.0.2/cb", onlyInDev},
		{"http://[0:0:0:0:0:0:0:1]/cb", onlyInDev},
		{"http://127.0.0.1:3000/cb", ofPublic},
		{"http://127.0.0.1/cb", ofPublic},
		{"http://127.0.0.1", ofPublic},
		{"http://[::1]:3000/cb", ofPublic},
		{"http://[::1]/cb?x=1", ofPublic},

		{"", never},
		{long, never},
		{"http://app.example.com/cb", never},
		{"http://localhost.example.com/cb", never},
		{"http://127.0.0.1.example.com/cb", never},
		{"http://127.0.0.1@evil.example/cb", never},
		{"http://127.0.0.1:80@evil.example/cb", never},
		{"http://127.0.0.1:0/cb", never},
		{"http://127.0.0.1:/cb", never},
		{"http://127.1/cb", never},
		{"ftp://127.0.0.1/cb", never},
		{"http://2130706433/cb", never},
		{"http://0.0.0.0/cb", never},
		{"http://192.168.1.1/cb", never},
		{"http://[::ffff:192.0.2.1]/cb", never},
		{"HTTPS://app.example.com/cb", never},
		{"ftp://app.example.com/cb", never},
		{"custom://callback", never},
		{"com.example.app:/cb", never},
		{"javascript:alert(1)", never},
		{"javascript://app.example.com/%0aalert(1)", never},
		{"data:text/html,x", never},
		{"urn:ietf:wg:oauth:2.0:oob", never},
		{"//app.example.com/cb", never},
		{"/cb", never},
		{"app.example.com/cb", never},
		{"https:app.example.com/cb", never},
		{"https:/app.example.com/cb", never},
		{"https:///cb", never},
		{"https://", never},
		{"https://:443/cb", never},
		{"https://app.example.com/cb#", never},
		{"https://app.example.com/cb#here", never},
		{"https://app.example.com#here", never},
		{"https://user@app.example.com/cb", never},
		{"https://user:secret@app.example.com/cb", never},
		{"https://@app.example.com/cb", never},
		{"https://good.example@evil.example/cb", never},
		{"https://*.example.com/cb", never},
		{"https://app.example.com/*", never},
		{"https://app.example.com/cb?x=*", never},
		{"https://app.example.com\\@evil.example/cb", never},
		{"https:\\\\app.example.com\\cb", never},
		{" https://app.example.com/cb", never},
		{"https://app.example.com/cb ", never},
		{"https://app.example.com/c b", never},
		{"https://app.example.com/c\tb", never},
		{"https://app.example.com/cb\n", never},
		{"https://app.example.com/cb\x00", never},
		{"https://app.example.com/cb\x7f", never},
		{"https://bücher.example/cb", never},
		{"https://app.example.com/cb\u202e", never},
		{"https://app..example.com/cb", never},
		{"https://.example.com/cb", never},
		{"https://app.example.com./cb", never},
		{"https://app%2eexample.com/cb", never},
		{"https://app.example.com:/cb", never},
		{"https://app.example.com:0/cb", never},
		{"https://app.example.com:080/cb", never},
		{"https://app.example.com:65536/cb", never},
		{"https://app.example.com:x/cb", never},
		{"https://app.example.com/../cb", never},
		{"https://app.example.com/a/./cb", never},
		{"https://app.example.com/%2e%2e/cb", never},
		{"https://app.example.com/%zz", never},
		{"https://[::1/cb", never},
		{"https://[fe80::1%25eth0]/cb", never},
		{"https://app.example.com/<script>", never},
	} {
		for rules, want := range map[redirectRules]bool{
			{}:                        c.takes == always,
			{public: true}:            c.takes == always || c.takes == ofPublic,
			{dev: true}:               c.takes != never,
			{dev: true, public: true}: c.takes != never,
		} {
			if rule := findRedirectProblem(c.uri, rules); (rule == "") != want {
				t.Errorf("%q by %+v: taken %s, but the rule says %q", c.uri, rules, c.takes, rule)
			}
		}
	}
}

func TestRedirectURIListNamesTheWrongOne(t *testing.T) {
	t.Parallel()
	const a, b = "https://a.example/cb", "https://b.example/cb"
	for _, c := range []struct {
		uris []string
		want string
	}{
		{nil, ""},
		{[]string{a, b}, ""},
		{[]string{a, "http://b.example/cb"}, "redirect_uris[1]: must begin with https://"},
		{[]string{a, b, a}, "redirect_uris[2]: comes twice"},
		{strings.Split(strings.Repeat(a+" ", 51), " "), "redirect_uris: at most 50"},
	} {
		err := validateRedirectURIs(c.uris, redirectRules{})
		e, _ := errors.AsType[*apierr.Error](err)
		if c.want == "" && err != nil ||
			c.want != "" && (e == nil || e.Code != apierr.InvalidRequest || e.Message != c.want) {
			t.Errorf("%d URIs: %v; want %q", len(c.uris), err, c.want)
		}
	}
}

func TestTextForUsers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"Summaries", ""},
		{"Zusammenfassungen für Bücher 📚", ""},
		{"👩‍👩‍👧", ""},
		{"كتاب", ""},
		{strings.Repeat("ü", 80), ""},
		{strings.Repeat("ü", 81), "1 to 80"},
		{"", "1 to 80"},
		{" \u00a0\u200b", "1 to 80"},
		{"a\nb", "control"},
		{"a\x00b", "control"},
		{"a\u0085b", "control"},
		{"a\u2028b", "control"},
		{"a\u202eb", "direction"},
		{"a\u200fb", "direction"},
		{"a\u2066b", "direction"},
		{"a\u061cb", "direction"},
		{"a\xffb", "1 to 80"},
	} {
		err := CheckText("display_name", c.text, 80)
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), "display_name: must") ||
				!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v; want %q", c.text, err, c.want)
		}
	}
}
