package apps

// A Role is what an account may do with an app in the console (decision 088).
type Role string

// The roles. They are stored. NoRole means that the account is not a member of the app.
const (
	NoRole    Role = ""
	Viewer    Role = "viewer"
	Developer Role = "developer"
	Owner     Role = "owner"
)

// Roles are the roles that a member can have, from the strongest to the weakest.
var Roles = []Role{Owner, Developer, Viewer}

// An Action is something that pages of an app do. Each route of the console declares the one that it needs.
type Action int

// The actions. The zero value is none of them, and no role allows it.
const (
	_             Action = iota
	View                 // read the app's figures, calls, features, deliveries and members; leave the app
	RunCalls             // spend test money in the playground
	Configure            // change settings, features and webhook endpoints
	ManageSecret         // replace the client secret, and let the app do without one
	Disable              // disable and enable the app
	RequestReview        // ask for a review to go live
	ManageMembers        // invite, change and remove members
	RefundCalls          // give users the charge of a call back, from the developer's money
)

// Allows reports whether a role allows an action.
func Allows(r Role, a Action) bool {
	switch a {
	case View:
		return r == Viewer || r == Developer || r == Owner
	case RunCalls, Configure:
		return r == Developer || r == Owner
	case ManageSecret, Disable, RequestReview, ManageMembers, RefundCalls:
		return r == Owner
	default:
		return false
	}
}

// A Membership is an app with the role of an account in it.
type Membership struct {
	App
	Role Role
}
