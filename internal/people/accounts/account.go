// Package accounts holds people: who they are, how they prove it and the browser
// sessions that remember it (spec §2, Account). It also serves the sign-in page.
package accounts

import (
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
)

// MaxTestAccounts is how many test accounts a developer may have (spec §8).
const MaxTestAccounts = 25

// An Account is a person, or a developer's test account, which plays one with
// money that is not real.
type Account struct {
	ID          string
	Email       string // lower case
	Sandbox     bool   // a test account
	Developer   bool   // may own apps and test accounts
	Operator    bool   // may see the operator's pages
	OwnerID     string // the developer of a test account, else ""
	TesterID    string // the allow-listed person whose test account it is; "" = the developer's own
	Deactivated bool   // a test account that is no longer used, or a person's that was closed: nobody signs in or connects as it
	Notices     bool   // wants mail about what apps use up
	Unconfirmed bool   // never proved its address: nobody signs in or spends as it
	TwoStep     bool   // a password alone does not sign in
	HasPassword bool   // else it signs in at a provider only
	Epoch       int64  // rises when all its sessions and links are to end
	CreatedUS   int64
}

// Shell is what the account's pages have around them; section is where the page
// belongs in the navigation.
func (a Account) Shell(section string) ui.Shell {
	return ui.Shell{Email: a.Email, Developer: a.Developer, Operator: a.Operator, TestAccount: a.Sandbox, Section: section}
}

// Lengths of passwords. The lower one leans on the throttle of sign-in, the upper
// one bounds what is hashed for strangers.
const (
	minPasswordRunes = 10
	maxPasswordBytes = 256
)

// NormalEmail returns the one spelling under which an address is kept: trimmed,
// lower case. The error is 400 invalid_request. Only ASCII is taken, so that no
// two addresses look the same.
func NormalEmail(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	local, domain, _ := strings.Cut(s, "@")
	if len(s) > 254 || !validLocal(local) || !validDomain(domain) {
		return "", apierr.InvalidRequest.Errorf("email: must be an address such as name@example.com")
	}
	return s, nil
}

// validLocal checks the part before the @: dot-separated atoms of RFC 5322.
func validLocal(local string) bool {
	for atom := range strings.SplitSeq(local, ".") {
		if atom == "" || strings.Trim(atom, "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-/=?^_`{|}~") != "" {
			return false
		}
	}
	return len(local) <= 64
}

// validDomain checks the part behind the @: at least two labels of a host name.
func validDomain(domain string) bool {
	labels := strings.Split(domain, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return len(labels) >= 2
}

// checkPassword refuses passwords that are too short, too long or no text.
func checkPassword(password string) error {
	if n := utf8.RuneCountInString(password); n < minPasswordRunes || len(password) > maxPasswordBytes || !utf8.ValidString(password) {
		return apierr.InvalidRequest.Errorf("password: must have at least %d characters and at most %d bytes", minPasswordRunes, maxPasswordBytes)
	}
	return nil
}
