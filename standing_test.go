package purser_test

import (
	"os"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/people/accounts"
)

// endings are the ways in which what a pending or derived thing stands on can end, in the order of the cells of
// standing.
var endings = []string{
	"another address", "another password", "another second step", "the user revokes the connection",
	"a token is revoked or used twice", "a connection is stopped", "the account is suspended", "the app is suspended",
	"a role is taken", "the account is closed", "its time is over",
}

// standingTests are the tests of standing, by the short names of its cells.
var standingTests = map[string][2]string{
	"account":    {"internal/people/identity/endings_test.go", "TestEndings"},
	"session":    {"internal/people/accounts/http_test.go", "TestSessionsExpire"},
	"role":       {"internal/pages/operatorpages/roles_test.go", "TestRoleIsGivenAndTaken"},
	"sign-up":    {"internal/people/identity/identity_test.go", "TestSignUp"},
	"reset":      {"internal/people/identity/identity_test.go", "TestReset"},
	"address":    {"internal/people/identity/links_test.go", "TestLinksEndWithTheAddress"},
	"newest":     {"internal/people/identity/links_test.go", "TestTheNewestAddressRequestCounts"},
	"set-up":     {"internal/people/identity/links_test.go", "TestSetupBelongsToItsBrowser"},
	"passkey":    {"internal/people/identity/passkeys_test.go", "TestPasskeyAttacks"},
	"provider":   {"internal/people/identity/openid_test.go", "TestTripsAreNotTransferable"},
	"invitation": {"internal/apps/members/members_test.go", "TestInvitation"},
	"inviter":    {"internal/apps/members/members_test.go", "TestInvitationEndsWithItsInviter"},
	"owner":      {"internal/apps/members/members_test.go", "TestRemoval"},
	"closing":    {"internal/pages/privacy/closing_test.go", "TestEachKindHasAWayOut"},
	"gone":       {"internal/pages/privacy/privacy_test.go", "TestClosedIsGone"},
	"guest":      {"internal/pages/operator/accounts_test.go", "TestInvitationOpensAnAccount"},
	"approval":   {"internal/apps/oauth/approval_test.go", "TestApprovalsEndWithWhatTheyStandOn"},
	"code":       {"internal/apps/oauth/verdict/verdict_test.go", "TestCodeVerdicts"},
	"refresh":    {"internal/apps/oauth/verdict/verdict_test.go", "TestRefreshVerdicts"},
	"poll":       {"internal/apps/oauth/device_test.go", "TestPolls"},
	"replay":     {"internal/apps/oauth/token_test.go", "TestReplayedCode"},
	"reuse":      {"internal/apps/oauth/approval_test.go", "TestReuseEndsChildren"},
	"dispute":    {"internal/apps/oauth/token_test.go", "TestNoConnectionInADispute"},
	"states":     {"internal/apps/oauth/token_test.go", "TestStatesDecideAboutTokens"},
	"tester":     {"internal/apps/oauth/token_test.go", "TestDeletedTestAccountsDoNotConnect"},
	"exchange":   {"internal/pages/privacy/exchange_test.go", "TestClosingBesideAnExchange"},
	"developer":  {"internal/pages/privacy/privacy_test.go", "TestDeveloperCloses"},
	"request":    {"internal/pages/dashboard/dashboard_test.go", "TestRequestOfARevokedConnection"},
	"foreign":    {"internal/pages/dashboard/dashboard_test.go", "TestForeignLinks"},
	"raise":      {"internal/ledger/rules/payment_test.go", "TestRaisesInADispute"},
	"charges":    {"internal/gateway/children/standing_test.go", "TestWhatTokensStandOn"},
	"family":     {"internal/gateway/children/children_test.go", "TestChildrenEndWithTheirFamily"},
	"child time": {"internal/gateway/children/children_test.go", "TestChildExpires"},
	"pause":      {"internal/pages/operator/accounts_test.go", "TestAccountIsSuspended"},
	"voice":      {"internal/gateway/voice/live_test.go", "TestHalts"},
	"control":    {"internal/gateway/voice/control_token_test.go", "TestControlEndsWithItsToken"},
	"silent":     {"internal/gateway/voice/control_token_test.go", "TestSilentControlEndsWithItsToken"},
	"offer":      {"internal/gateway/voice/live_test.go", "TestRevokedConnection"},
	"tickets":    {"internal/gateway/voice/live_test.go", "TestTickets"},
	"pending":    {"internal/gateway/voice/mock_test.go", "TestPendingEnds"},
	"feed":       {"internal/gateway/feed/feed_test.go", "TestEndsAndRefusals"},
	"feed end":   {"internal/gateway/feed/feed_test.go", "TestBacklogOfARevokedConnection"},
	"capture":    {"internal/gateway/holds/holds_test.go", "TestRevokedMeanwhile"},
	"ids":        {"internal/server/idor_test.go", "TestForeignIDsDoNotExist"},
}

// Why an ending does not touch a thing.
const (
	none     = "–none: it is of an account, and of no connection, token or app"
	signIn   = "–signIn: a connection is no sign-in. It goes on, and ends on its own page (decision 117)"
	noRole   = "–noRole: no role gives it"
	noEnd    = "–noEnd: it has no time: it is decided, or ends with the connection"
	ofOthers = "–ofOthers: it is of the invited address, which has no account that works yet"
	appOnly  = "–appOnly: it is of an app, and of no user's connection"
	readOnly = "–readOnly: what was charged can always be read by whose it is"
	noSignIn = "–noSignIn: only its account could decide, and can't sign in"
	sees     = "–sees: an operator decides it, and sees the app and its developer as they are"
	shows    = "–shows: it spends nothing, and shows what happens"
	ofUser   = "–ofUser: it is between the app and its user, whatever tokens the app has"
	unused   = "–unused: what it changes can't be used while the app is suspended"
)

// standing says for each thing that is pending or derived, and for each of endings, which test shows that it ends, or
// goes on as it should; "–" begins a reason why the ending does not touch it. A new kind of link, token, step or
// request gets a row (decision 117).
var standing = map[string][]string{
	string(accounts.SignInSession): {"account", "account", "account", none, none, none, "account", none, "role",
		"account", "session"},
	string(accounts.SignUpLink): {"account", "account", "account", none, none, none, "account", none, noRole,
		"account", "sign-up"},
	string(accounts.ResetLink): {"address", "account", "account", none, none, none, "account", none, noRole,
		"account", "reset"},
	string(accounts.AddressLink): {"newest", "account", "account", none, none, none, "account", none, noRole,
		"account", "address"},
	string(accounts.FactorSetUp): {"account", "account", "account", none, none, none, "account", none, noRole,
		"account", "set-up"},
	string(accounts.PasskeyRequest): {"account", "account", "account", none, none, none, "account", none, noRole,
		"account", "passkey"},
	string(accounts.LoginRequest): {"account", "account", "account", none, none, none, "account", none, noRole,
		"account", "provider"},
	string(accounts.AppInvitation): {"inviter", "inviter", "inviter", appOnly, appOnly, appOnly, "inviter", appOnly,
		"owner", "inviter", "invitation"},
	string(accounts.AppApproval): {"approval", "approval", "approval", "approval", "replay", "dispute", "approval",
		"states", "tester", "exchange", "code"},
	"a device code": {"approval", "approval", "approval", "approval", "reuse", "dispute", "approval", "states",
		"tester", "exchange", "poll"},
	"an invitation by the operator": {ofOthers, ofOthers, ofOthers, none, none, none, ofOthers, none, noRole, ofOthers,
		"guest"},
	"a request to go live": {appOnly, appOnly, appOnly, appOnly, appOnly, appOnly, sees, sees, sees, "developer",
		noEnd},
	"a change of a live app that waits for a review": {appOnly, appOnly, appOnly, appOnly, appOnly, appOnly, sees, sees,
		sees, "developer", noEnd},
	"an allocation request": {signIn, signIn, signIn, "request", ofUser, "raise", noSignIn, unused, "foreign", "gone",
		noEnd},
	"an access token": {signIn, signIn, signIn, "charges", "charges", "charges", "charges", "charges", noRole,
		"gone", "charges"},
	"a refresh token": {signIn, signIn, signIn, "states", "reuse", "states", "pause", "states", noRole, "gone",
		"refresh"},
	"a child": {signIn, signIn, signIn, "charges", "family", "charges", "charges", "charges", noRole, "gone",
		"child time"},
	"what is held for an app's own work": {signIn, signIn, signIn, "capture", "charges", "charges", "charges",
		"charges", noRole, "closing", "charges"},
	"a voice session": {signIn, signIn, signIn, "voice", "control", "voice", "voice", "voice", noRole, "gone",
		"pending"},
	"a voice ticket": {signIn, signIn, signIn, "offer", "tickets", "voice", "voice", "voice", noRole, "gone",
		"pending"},
	"a control channel": {signIn, signIn, signIn, "offer", "control", "voice", "voice", "voice", noRole, "gone",
		"silent"},
	"an event stream": {signIn, signIn, signIn, "feed end", "feed", shows, shows, shows, noRole, "feed end", "feed"},
	"the page of a receipt": {readOnly, readOnly, readOnly, readOnly, readOnly, readOnly, "account", readOnly,
		"foreign", "gone", readOnly},
	"a receipt in the API": {readOnly, readOnly, readOnly, readOnly, "charges", "charges", "charges", "charges",
		noRole, "ids", "charges"},
}

// TestEachThingEndsWithWhatItStandsOn holds standing against the tests and against the things of an account.
func TestEachThingEndsWithWhatItStandsOn(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for thing, cells := range standing {
		if len(cells) != len(endings) {
			t.Errorf("%s has %d cells, and there are %d endings", thing, len(cells), len(endings))
		}
		for i, cell := range cells {
			if used[cell] = true; !strings.HasPrefix(cell, "–") && standingTests[cell] == [2]string{} {
				t.Errorf("%s, %s: there is no test %q", thing, endings[i], cell)
			}
		}
	}
	for thing := range accounts.Endings {
		if standing[string(thing)] == nil {
			t.Errorf("standing has no row for %s", thing)
		}
	}
	for name, where := range standingTests {
		text, err := os.ReadFile(where[0])
		if err != nil || !strings.Contains(string(text), "\nfunc "+where[1]+"(t *testing.T)") {
			t.Errorf("%s: %s has no %s: %v", name, where[0], where[1], err)
		}
		if !used[name] {
			t.Errorf("no cell needs the test %q", name)
		}
	}
}
