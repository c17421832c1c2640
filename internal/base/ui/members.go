package ui

// MemberList is the members of an app.
type MemberList struct {
	Console
	List        []MemberLine
	Invitations []InvitationLine
	Roles       []Fact // what each role may do
	CanLeave    bool
}

// MemberLine is one line of MemberList.
type MemberLine struct {
	ID, Email, Role string
	Inviter         string // email; "" = created the app
	Since           string
	You             bool
	Creator         bool // the app's own account, which stays an owner
}

// InvitationLine is an invitation of MemberList.
type InvitationLine struct {
	ID, Email, Role, Inviter, Until string
	Expired                         bool
}

func (MemberList) name() string { return "developer/members" }

// Invitation asks whether to become a member of an app.
type Invitation struct {
	Shell
	App, Logo, Inviter string
	Role, Does         string
	Until              string
	Action             string // where the form posts; "" = another account is signed in, or none
	Switch             string // where to go after signing in with the right account
	SignIn, SignUp     string // addresses; "" = an account is signed in
}

func (Invitation) name() string       { return "developer/invitation" }
func (Invitation) title() string      { return "Invitation" }
func (Invitation) formAction() string { return "" }
