package apps

import (
	"slices"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/people/accounts"
)

// MaxTesters is the largest number of testers of an app.
const MaxTesters = 100

// NormalizeAllowlist normalizes the emails of a test allowlist and removes duplicates. It keeps the order. It does not
// check whether an email has an account, because that would reveal accounts. Errors are 400 invalid_request.
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

// MayTest reports whether an account is a tester of the app.
func (a *App) MayTest(person accounts.Account) bool {
	return !person.Sandbox && slices.Contains(a.TestAllowlist, person.Email)
}
