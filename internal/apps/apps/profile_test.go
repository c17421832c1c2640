package apps

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/web"
)

// What stands behind an app is checked before users see it, and another domain loses the badge.
func TestProfileChange(t *testing.T) {
	t.Parallel()
	set := func(v string) web.Field[string] { return web.Field[string]{Set: true, Value: v} }
	was := Profile{Domain: "a.example.com", DomainVerifiedUS: 7, WebsiteURL: "https://a.example.com/"}
	for _, c := range []struct {
		name   string
		change ProfileChange
		ok     bool
	}{
		{"a name", ProfileChange{DeveloperName: set("Example <b>")}, true},
		{"a name that turns the text", ProfileChange{DeveloperName: set("a\u202eb")}, false},
		{"a name with a badge", ProfileChange{DeveloperName: set("OpenAI ✓")}, false},
		{"a name with the address of others", ProfileChange{DeveloperName: set("OpenAI openai.com")}, false},
		{"a name with a mailbox", ProfileChange{DeveloperName: set("help@bank.example")}, false},
		{"a name with the verified domain", ProfileChange{DeveloperName: set("Example (A.example.com) Inc.")}, true},
		{"that name with another domain",
			ProfileChange{DeveloperName: set("A.example.com"), Domain: set("b.example.com")}, false},
		{"a name with initials", ProfileChange{DeveloperName: set("A. B. Example & Co. B.V.")}, true},
		{"a long name", ProfileChange{DeveloperName: set(strings.Repeat("x", 81))}, false},
		{"a site", ProfileChange{WebsiteURL: set("https://example.com/a?b=c#d")}, true},
		{"http", ProfileChange{WebsiteURL: set("http://example.com/")}, false},
		{"a script", ProfileChange{PrivacyPolicyURL: set("javascript:alert(1)")}, false},
		{"a user", ProfileChange{PrivacyPolicyURL: set("https://bank.example.com@evil.example.com/")}, false},
		{"quotes", ProfileChange{PrivacyPolicyURL: set(`https://example.com/"onclick="`)}, false},
		{"another script of letters", ProfileChange{WebsiteURL: set("https://exаmple.com/")}, false},
		{"an address", ProfileChange{Support: set("help@example.com")}, true},
		{"a page", ProfileChange{Support: set("https://example.com/help")}, true},
		{"headers of a mail", ProfileChange{Support: set("help@example.com?bcc=x@example.com")}, false},
		{"a name and address", ProfileChange{Support: set("Help <help@example.com>")}, false},
		{"a domain", ProfileChange{Domain: set("App.Example.COM")}, true},
		{"a port", ProfileChange{Domain: set("example.com:8443")}, false},
		{"a path", ProfileChange{Domain: set("example.com/x")}, false},
		{"an IP address", ProfileChange{Domain: set("127.0.0.1")}, false},
		{"an IPv6 address", ProfileChange{Domain: set("[::1]")}, false},
		{"a number", ProfileChange{Domain: set("0x7f.1")}, false},
		{"a machine", ProfileChange{Domain: set("localhost")}, false},
		{"a root", ProfileChange{Domain: set("example.com.")}, false},
		{"homographs", ProfileChange{Domain: set("exаmple.com")}, false},
	} {
		if _, err := c.change.applyTo(was); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	same := ProfileChange{Domain: set("A.example.com")}
	if p, err := same.applyTo(was); err != nil || p != was || p.VerifiedDomain() != "a.example.com" {
		t.Errorf("the same domain: %+v, %v", p, err)
	}
	other := ProfileChange{Domain: set("b.example.com")}
	if p, err := other.applyTo(was); err != nil || p.VerifiedDomain() != "" || p.Domain != "b.example.com" {
		t.Errorf("another domain: %+v, %v", p, err)
	}
	none := ProfileChange{Domain: web.Field[string]{Set: true, Null: true}, WebsiteURL: set("")}
	if p, err := none.applyTo(was); err != nil || p != (Profile{}) {
		t.Errorf("cleared: %+v, %v", p, err)
	}
	if got := (Profile{Support: "help@example.com"}).SupportURL(); got != "mailto:help@example.com" {
		t.Errorf("support: %s", got)
	}
}
