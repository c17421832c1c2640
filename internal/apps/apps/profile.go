package apps

import (
	"context"
	"fmt"
	"net/mail"
	"net/url"
	"regexp"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
)

// A Profile says who stands behind an app (decision 090). Users see it on the consent screen. Every text may be "".
type Profile struct {
	DeveloperName    string
	WebsiteURL       string
	PrivacyPolicyURL string
	Support          string // an https URL or an e-mail address
	Domain           string // lower-case host name that the developer claims
	DomainVerifiedUS int64  // when the domain was proven to be the developer's; 0 = it was not
}

// VerifiedDomain returns the domain if it was verified, or "".
func (p Profile) VerifiedDomain() string {
	if p.DomainVerifiedUS == 0 {
		return ""
	}
	return p.Domain
}

// SupportURL returns the address of a link to the support, or "".
func (p Profile) SupportURL() string {
	if p.Support == "" || strings.HasPrefix(p.Support, "https://") {
		return p.Support
	}
	return "mailto:" + p.Support
}

// A ProfileChange is the part of a Change about the profile. null clears a member.
type ProfileChange struct {
	DeveloperName    web.Field[string] `json:"developer_name"`
	WebsiteURL       web.Field[string] `json:"website_url"`
	PrivacyPolicyURL web.Field[string] `json:"privacy_policy_url"`
	Support          web.Field[string] `json:"support"`
	Domain           web.Field[string] `json:"domain"`
}

// Bounds of the members.
const (
	maxProfileURL = 500
	maxEmail      = 254 // RFC 5321 §4.5.3.1
	maxDomain     = 253
)

// host is a host name with at least two labels (RFC 1123 §2.1). The last label begins with a letter, so it is no
// address. Names in other scripts are written as xn--.
var host = regexp.MustCompile(
	`^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$`)

// applyTo returns p with the change. Another domain must be verified again. Errors are 400 invalid_request.
func (c *ProfileChange) applyTo(p Profile) (Profile, error) {
	for _, m := range []struct {
		name  string
		field web.Field[string]
		value *string
		check func(member, text string) error
	}{
		{"developer_name", c.DeveloperName, &p.DeveloperName, checkName},
		{"website_url", c.WebsiteURL, &p.WebsiteURL, checkPageURL},
		{"privacy_policy_url", c.PrivacyPolicyURL, &p.PrivacyPolicyURL, checkPageURL},
		{"support", c.Support, &p.Support, checkSupport},
	} {
		if !m.field.Set {
			continue
		}
		if *m.value = m.field.Value; m.field.Null || *m.value == "" {
			*m.value = ""
		} else if err := m.check(m.name, *m.value); err != nil {
			return p, err
		}
	}
	if !c.Domain.Set {
		return p, p.checkDeveloperName(c)
	}
	domain := strings.ToLower(c.Domain.Value)
	if c.Domain.Null {
		domain = ""
	}
	if domain != "" && (len(domain) > maxDomain || !host.MatchString(domain)) {
		return p, apierr.InvalidRequest.Errorf("domain: must be a host name such as app.example.com, or null")
	}
	if domain != p.Domain {
		p.Domain, p.DomainVerifiedUS = domain, 0
	}
	return p, p.checkDeveloperName(c)
}

// checkDeveloperName refuses a name that holds the address of a site which was not proven to be the developer's: it
// stands where users read the verified domain.
func (p Profile) checkDeveloperName(c *ProfileChange) error {
	address := FindAddress(p.DeveloperName, p.VerifiedDomain())
	if !c.DeveloperName.Set && !c.Domain.Set || address == "" {
		return nil
	}
	return apierr.InvalidRequest.Errorf("developer_name: must not hold an address such as %s, unless it is the "+
		"verified domain of the app: save and verify the domain first", address)
}

// isPlain reports whether text is ASCII without spaces and without the given characters.
func isPlain(text, without string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(without, c)
	})
}

// checkPageURL checks the address of a page for users.
func checkPageURL(member, text string) error {
	u, err := url.Parse(text)
	if err != nil || !strings.HasPrefix(text, "https://") || u.User != nil || u.Hostname() == "" ||
		len(text) > maxProfileURL || !isPlain(text, "\\\"<>^`{|}") {
		return apierr.InvalidRequest.Errorf("%s: must be an https URL of at most %d plain ASCII characters, or null",
			member, maxProfileURL)
	}
	return nil
}

// checkSupport checks where users find support.
func checkSupport(member, text string) error {
	if strings.HasPrefix(text, "https://") {
		return checkPageURL(member, text)
	}
	a, err := mail.ParseAddress(text)
	if err != nil || a.Address != text || a.Name != "" || len(text) > maxEmail || !isPlain(text, `"<>()[],;:\?&%`) {
		return apierr.InvalidRequest.Errorf("%s: must be an email address or an https URL, or null", member)
	}
	return nil
}

// VerifyDomain records that the domain of an app was proven. The app may have another domain by now: then it returns
// 400 invalid_request.
func (s *Store) VerifyDomain(ctx context.Context, appID, domain string) error {
	_, err := s.updateLocked(ctx, appID, func(a App) (App, error) {
		if domain == "" || a.Profile.Domain != domain {
			return a, apierr.InvalidRequest.Errorf("domain: was changed meanwhile; check again")
		}
		a.Profile.DomainVerifiedUS = s.now().UnixMicro()
		return a, nil
	})
	if err != nil {
		return fmt.Errorf("apps: verify domain: %w", err)
	}
	return nil
}

// ProfileResource is a profile as the API shows it.
type ProfileResource struct {
	DeveloperName    *string `json:"developer_name"`
	WebsiteURL       *string `json:"website_url"`
	PrivacyPolicyURL *string `json:"privacy_policy_url"`
	Support          *string `json:"support"`
	Domain           *string `json:"domain"`
	DomainVerifiedAt *string `json:"domain_verified_at"`
}

// resource returns the profile as the API shows it.
func (p Profile) resource() ProfileResource {
	r := ProfileResource{
		DeveloperName:    orNull(p.DeveloperName),
		WebsiteURL:       orNull(p.WebsiteURL),
		PrivacyPolicyURL: orNull(p.PrivacyPolicyURL),
		Support:          orNull(p.Support),
		Domain:           orNull(p.Domain),
	}
	if p.DomainVerifiedUS != 0 {
		at := timestamp.Format(p.DomainVerifiedUS)
		r.DomainVerifiedAt = &at
	}
	return r
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
