package apps

import (
	"slices"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/people/accounts"
)

// MaxTesters is how many people may test an app beside its developer.
const MaxTesters = 100

// NormalizeAllowlist returns e-mails as they are kept in a test allow-list: each in
// its one spelling, once, in the order given. Whether somebody has the address is
// not looked up, for the answer would tell strangers who has an account. Errors
// are 400 invalid_request.
func NormalizeAllowlist(emails []string) ([]string, error) {
	var list []string
	for i, e := range emails {
		email, err := accounts.NormalizeEmail(e)
		if err != nil {
			return nil, apierr.InvalidRequest.Errorf("test_allowlist[%d]: must be an address such as name@example.com",
				i)
		}
		if !slices.Contains(list, email) {
			list = append(list, email)
		}
		if len(list) > MaxTesters {
			return nil, apierr.InvalidRequest.Errorf("test_allowlist: must have at most %d addresses", MaxTesters)
		}
	}
	return list, nil
}

// MayTest reports whether a is a person on the app's test allow-list.
func (a *App) MayTest(person accounts.Account) bool {
	return !person.Sandbox && slices.Contains(a.TestAllowlist, person.Email)
}
