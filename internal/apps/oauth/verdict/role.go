package verdict

// A Role is how a signed-in account may connect to an app.
type Role int

// The roles. Sandbox apps connect to test accounts of their developer and live apps to real accounts;
// the two never mix (contract §5; I-29).
const (
	Self              Role = iota // connects as the account itself
	Chooser                       // the developer of a sandbox app: chooses a test account
	Tester                        // on the test allowlist of a sandbox app: has one test account
	StrangerToSandbox             // none of these: may not connect to the sandbox app
	TestAccountOnLive             // a test account: may not connect to a live app
)

// UsesTestAccount reports whether an account in this role connects as a test account.
func (r Role) UsesTestAccount() bool { return r == Chooser || r == Tester }

// A Standing is the relation of an account to an app.
type Standing struct {
	SandboxApp     bool
	TestAccount    bool
	OwnTestAccount bool // a test account in use, of the app's developer
	AppOwner       bool
	AllowedTester  bool // on the app's test allowlist
}

// DecideRole returns the role of an account in the standing s.
func DecideRole(s Standing) Role {
	switch {
	case !s.SandboxApp && s.TestAccount:
		return TestAccountOnLive
	case !s.SandboxApp, s.OwnTestAccount:
		return Self
	case s.AppOwner:
		return Chooser
	case s.AllowedTester:
		return Tester
	}
	return StrangerToSandbox
}
