// Package accounts holds accounts (contract §2), their passwords and roles, the sign-in sessions of
// browsers, and the security events of each account. It also serves the sign-in page.
package accounts

import (
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
)

// MaxTestAccounts is how many test accounts a developer may have (contract §8).
const MaxTestAccounts = 25

// An Account is a user's account, or a developer's test account, which stands for a user and whose
// money is not real.
type Account struct {
	ID          string
	Email       string // lower case
	Sandbox     bool   // a test account
	Developer   bool   // may own apps and test accounts
	Operator    bool   // may see the operator's pages
	OwnerID     string // the developer of a test account, else ""
	TesterID    string // the tester whose test account it is; "" = the developer's own
	Deactivated bool   // deleted, closed or suspended: cannot sign in or connect
	Closed      bool   // by its owner or an operator: only its id remains
	Notices     bool   // receives notices about the spend of its apps
	Unconfirmed bool   // has not confirmed its email: cannot sign in or spend
	TwoStep     bool   // a password alone does not sign in
	HasPassword bool   // false: signs in at an identity provider only
	Epoch       int64  // rises with each change that ends mailed links and pending steps
	CreatedUS   int64

	SessionEpoch    int64  // rises with each change that ends all sessions
	SuspendedUS     int64  // since when an operator has suspended it; 0 = not
	SuspendedReason string // given by the operator
}

// Shell returns the frame of the account's pages; section is the page's place in the navigation.
func (a Account) Shell(section string) ui.Shell {
	return ui.Shell{
		Email:       a.Email,
		Developer:   a.Developer,
		Operator:    a.Operator,
		TestAccount: a.Sandbox,
		Section:     section,
	}
}

// Lengths of passwords. The minimum relies on the throttle of sign-in; the maximum bounds what
// strangers can make us hash.
const (
	minPasswordRunes = 10
	maxPasswordBytes = 256
)

// NormalizeEmail returns an email in the spelling that is stored: trimmed and lower-case. The error
// is 400 invalid_request. Only ASCII is accepted, so that no two emails look the same.
func NormalizeEmail(s string) (string, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	local, domain, _ := strings.Cut(s, "@")
	if len(s) > 254 || !isValidLocal(local) || !isValidDomain(domain) {
		return "", apierr.InvalidRequest.Errorf("email: must be an address such as name@example.com")
	}
	return s, nil
}

// NormalizeNewEmail is NormalizeEmail for an address that an account is to get. It also refuses the top-level domain
// "invalid" (RFC 2606), where no person has an address and test accounts have theirs.
func NormalizeNewEmail(s string) (string, error) {
	email, err := NormalizeEmail(s)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(email, ".invalid") {
		return "", apierr.InvalidRequest.Errorf("email: must not be in a reserved domain")
	}
	return email, nil
}

// tombstone returns what a closed account has for an email. Nobody can take it, and nobody could before: an address has
// a domain of two labels or more.
func tombstone(accountID string) string { return strings.ToLower(accountID) + "@closed" }

// isValidLocal reports whether local, the part before the @, is dot-separated atoms of RFC 5322.
func isValidLocal(local string) bool {
	for atom := range strings.SplitSeq(local, ".") {
		if atom == "" || strings.Trim(atom, "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-/=?^_`{|}~") != "" {
			return false
		}
	}
	return len(local) <= 64
}

// isValidDomain reports whether domain, the part after the @, is a host name of at least two labels.
func isValidDomain(domain string) bool {
	labels := strings.Split(domain, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' ||
			strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return len(labels) >= 2
}

// validatePassword returns 400 invalid_request for a password that is too short, too long or not UTF-8.
func validatePassword(password string) error {
	if n := utf8.RuneCountInString(password); n < minPasswordRunes || len(password) > maxPasswordBytes ||
		!utf8.ValidString(password) {
		return apierr.InvalidRequest.Errorf("password: must have at least %d characters and at most %d bytes",
			minPasswordRunes, maxPasswordBytes)
	}
	return nil
}
