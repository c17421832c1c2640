// Package accounts holds accounts (contract §2), their passwords and roles, the sign-in sessions of
// browsers, and the security events of each account. It also serves the sign-in page.
package accounts

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

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
	s = strings.TrimSpace(s)
	if strings.ContainsFunc(s, func(c rune) bool { return c > unicode.MaxASCII }) {
		return "", apierr.InvalidRequest.Errorf("email: must be an address such as name@example.com")
	}
	s = strings.ToLower(s) // of ASCII: other letters, such as the Kelvin sign, become ASCII in lower case
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

// validatePassword returns 400 invalid_request for a password that is too short, too long, not UTF-8, or one that
// everybody tries.
func validatePassword(password string) error {
	plain := normalizePassword(password)
	if n := utf8.RuneCountInString(plain); n < minPasswordRunes || len(password) > maxPasswordBytes ||
		!utf8.ValidString(password) {
		return apierr.InvalidRequest.Errorf("password: must have at least %d characters and at most %d bytes",
			minPasswordRunes, maxPasswordBytes)
	}
	if isCommonPassword(plain) {
		return apierr.InvalidRequest.Errorf("password: is one that many people use; choose another")
	}
	return nil
}

// normalizePassword returns a password in the spelling that is hashed (RFC 8265 §4.2.2): keyboards and systems write
// the same letter in different ways.
func normalizePassword(password string) string { return norm.NFKC.String(password) }

// isCommonPassword reports whether a password is made of up to three characters, is a run of digits or letters of a
// keyboard, or heads the lists of passwords that were stolen. It has at least minPasswordRunes characters.
func isCommonPassword(password string) bool {
	password = strings.ToLower(password)
	kinds := map[rune]bool{}
	for _, c := range password {
		kinds[c] = true
	}
	if len(kinds) <= 3 {
		return true
	}
	for _, run := range []string{"01234567890123456789", "abcdefghijklmnopqrstuvwxyz", "qwertyuiop[]", "asdfghjkl;'"} {
		if strings.Contains(run, password) || strings.Contains(reverse(run), password) {
			return true
		}
	}
	return slices.Contains(commonPasswords, password)
}

// commonPasswords are others of the most frequent passwords of ten characters and more.
var commonPasswords = []string{
	"12345678910", "1234512345", "1234554321", "123456789a", "123456789q", "a123456789", "q123456789", "abc123456789",
	"1q2w3e4r5t", "1q2w3e4r5t6y", "q1w2e3r4t5", "1qaz2wsx3edc", "qwerty12345", "qwerty123456", "qwertyuiop123",
	"zxcvbnm123", "asdfghjkl123", "password12", "password123", "password1234", "password12345", "password123456",
	"passwordpassword", "iloveyou12", "iloveyou123", "welcome123", "welcome1234", "letmein123", "football123",
	"princess123", "sunshine123", "administrator",
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}
