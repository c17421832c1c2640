package purser_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A limiter says of a limit in a node's memory who can use it up, and whom it refuses then. Where those are not the
// same, a test shows that whoever needs it has a share, or passes.
type limiter struct {
	file, code     string // code is the beginning of the line that makes it
	fills, refuses string
	test           [2]string // where the two differ
}

const (
	client  = "the client's network"
	account = "the account itself"
	app     = "the app itself"
	maker   = "the developer itself"
	anybody = "anybody"
)

var (
	signInShares = [2]string{"internal/people/accounts/limits_test.go", "TestSignInLimits"}
	mailShares   = [2]string{"internal/people/identity/shares_test.go", "TestStrangersUseUpNoMails"}
	codeShares   = [2]string{"internal/people/identity/shares_test.go", "TestStrangersUseUpNoCodes"}
	inviteShares = [2]string{"internal/apps/members/members_test.go", "TestInvitationsHaveShares"}
)

var limiters = []limiter{
	{"internal/people/accounts/limits.go", "pairs:", client, client, [2]string{}},
	{"internal/people/accounts/limits.go", "networks:", client, client, [2]string{}},
	{"internal/people/accounts/limits.go", "accounts:", anybody, "who signs in from an unknown network", signInShares},
	{"internal/people/accounts/limits.go", "correct:", account, account, [2]string{}},
	{"internal/people/identity/openid.go", "startLimiter:", client, client, [2]string{}},
	{"internal/people/identity/store.go", "mailRequests:", client, client, [2]string{}},
	{"internal/people/identity/store.go", "mailShares:", client, client, [2]string{}},
	{"internal/people/identity/store.go", "mailsPerAddress:", anybody, "who asks from an unknown network", mailShares},
	{"internal/people/identity/store.go", "codeFailures:", client, client, [2]string{}},
	{"internal/people/identity/store.go", "codesPerAccount:", "who has the password",
		"who signs in from an unknown network", codeShares},
	{"internal/people/identity/store.go", "passkeyStarts:", client, client, [2]string{}},
	{"internal/apps/members/store.go", "sent:", account, account, [2]string{}},
	{"internal/apps/members/store.go", "shares:", client, client, [2]string{}},
	{"internal/apps/members/store.go", "received:", "many accounts on many networks", "all who invite one address",
		inviteShares},
	{"internal/apps/apps/store.go", "management:", app, app, [2]string{}}, // counts after the secret was right
	{"internal/apps/apps/store.go", "token:", app, app, [2]string{}},      // of a public client by its users' networks
	{"internal/apps/apps/store.go", "failures:", client, client, [2]string{}},
	{"internal/apps/oauth/device_http.go", "starts:", client, client, [2]string{}},
	{"internal/apps/oauth/device_http.go", "accountTries:", account, account, [2]string{}},
	{"internal/apps/oauth/device_http.go", "addressTries:", client, client, [2]string{}},
	{"internal/apps/sandbox/store.go", "made:", maker, maker, [2]string{}},
	{"internal/apps/providerkeys/store.go", "tests:", maker, maker, [2]string{}},
	{"internal/apps/webhooks/store.go", "samples:", maker, maker, [2]string{}},
	{"internal/apps/webhooks/store.go", "again:", maker, maker, [2]string{}},
	{"internal/gateway/callers/free_rate.go", "limiter:", maker, maker, [2]string{}},
	{"internal/gateway/children/http.go", "func NewRate", app, app, [2]string{}},
	{"internal/gateway/holds/http.go", "func NewRate", app, app, [2]string{}},
	{"internal/gateway/inference/http.go", "refusals:", app, app, [2]string{}},
	{"internal/gateway/inference/http.go", "imageRate:", account, account, [2]string{}}, // on one app
	{"internal/gateway/inference/unbilled.go", "return", account, account, [2]string{}}, // on one app
	{"internal/gateway/inference/stored.go", "return", app, app, [2]string{}},
	{"internal/pages/console/http.go", "settingsPages", app, app, [2]string{}},
	{"internal/pages/operator/operator.go", "h.failures", client, client, [2]string{}},
	{"internal/pages/privacy/http.go", "h.exports", account, account, [2]string{}},
}

var newLimiter = regexp.MustCompile(`(?m)^[ \t]*(.*\bweb\.NewLimiter\()`)

// TestNobodyUsesUpWhatOthersNeed holds limiters against the code: a new limit needs a row, and one that others can use
// up a test.
func TestNobodyUsesUpWhatOthersNeed(t *testing.T) {
	t.Parallel()
	rows := map[string]int{} // limits in a file
	for _, l := range limiters {
		rows[l.file]++
		text := readText(t, l.file)
		found := false
		for _, m := range newLimiter.FindAllStringSubmatch(text, -1) {
			found = found || strings.HasPrefix(m[1], l.code)
		}
		if !found {
			t.Errorf("%s makes no limit in a line that begins with %q", l.file, l.code)
		}
		if l.fills == l.refuses {
			continue
		}
		if code, err := os.ReadFile(l.test[0]); err != nil || !strings.Contains(string(code), "\nfunc "+l.test[1]+"(") {
			t.Errorf("%s %s: %s can refuse %s, and no test shows their share: %v", l.file, l.code, l.fills, l.refuses,
				l.test)
		}
	}
	for _, folder := range []string{"internal"} {
		for _, name := range textFiles(t, folder) {
			if name = filepath.ToSlash(name); filepath.Ext(name) != ".go" {
				continue
			}
			if n := len(newLimiter.FindAllString(readText(t, name), -1)); n != rows[name] {
				t.Errorf("%s makes %d limits, and limiters has %d", name, n, rows[name])
			}
		}
	}
}
