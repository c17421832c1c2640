package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/server"
)

// Why a form that was shown to one account does no harm when another one has signed in since, in another tab. A form
// whose address has an id is of whose that is: TestForeignIDsDoNotExist asks each for another account's.
const (
	named    = "it names its account, and is refused for another one (decision 205)"
	password = "it needs the password, or a proof of now, of who is signed in"
	public   = "it is of no account"
	pending  = "it ends with the session that began it"
	operator = "the role is asked for at each request, and who did it is logged"
	own      = "it changes nothing but a setting of who is signed in, or makes a thing that can be deleted"
)

// formsOfAccounts says so for each form without an id in its address.
var formsOfAccounts = map[string]string{
	"POST /oauth/authorize": named, "POST /device": named, "POST /top-up": named, "POST /top-up/auto": named,
	"POST /top-up/auto/card": named, "POST /top-up/auto/card/remove": named, "POST /top-up/auto/off": named,
	"POST /top-up/refund": named, "POST /dashboard/pause": named,

	"POST /settings/data/close": password, "POST /settings/email": password, "POST /settings/passkeys/new": password,
	"POST /settings/password": password, "POST /settings/provider": password, "POST /settings/two-step": password,
	"POST /settings/provider/unlink": password, "POST /settings/two-step/codes": password,
	"POST /settings/two-step/off": password, "POST /developer/payouts": password,

	"POST /settings/passkeys/make": pending, "POST /settings/two-step/setup": pending,
	"POST /sign-in/passkey/answer": pending, "POST /sign-in/code": pending,

	"POST /sign-in": public, "POST /sign-in/passkey": public, "POST /sign-in/provider": public, "POST /sign-up": public,
	"POST /forgot": public, "POST /reference": public, "POST /stripe/events": public,

	"POST /operator/incidents": operator, "POST /operator/invitations": operator, "POST /operator/settings": operator,
	"POST /operator/verify": operator,

	"POST /developer/apps": own, "POST /developer/keys": own, "POST /developer/test-accounts": own,
	"POST /settings/developer": own, "POST /settings/notices": own, "POST /settings/data/export": own,
	"POST /settings/security/sessions": own, // ends a session of who is signed in, by its id
	"POST /sign-out":                   own,
}

// TestFormsAreOfWhoSawThem holds formsOfAccounts against the pages: a new form needs a row, and the template of one
// that is named has the field.
func TestFormsAreOfWhoSawThem(t *testing.T) {
	t.Parallel()
	templates := ""
	err := filepath.WalkDir("../base/ui/templates", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		templates += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, route := range server.Pages {
		method, path, _ := strings.Cut(route, " ")
		if method != "POST" || strings.Contains(path, "{") {
			continue
		}
		switch why := formsOfAccounts[route]; {
		case why == "":
			t.Errorf("%s: say in formsOfAccounts what it does for another account", route)
			continue
		case why == named && path != "/oauth/authorize": // its form is posted to the address of the page
			const field = `{{template "shown-to" $.Email}}`
			if n := strings.Count(templates, `action="`+path+`"`); n == 0 || n !=
				strings.Count(templates, `action="`+path+`">`+field)+
					strings.Count(templates, `action="`+path+`" novalidate>`+field) {
				t.Errorf("%s: %d forms, and not all of them name their account", route, n)
			}
		}
		seen++
	}
	if seen != len(formsOfAccounts) {
		t.Errorf("formsOfAccounts has %d rows for %d forms", len(formsOfAccounts), seen)
	}
}
