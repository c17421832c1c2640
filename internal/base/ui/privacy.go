package ui

// YourData is the page on which people take their data with them, or go.
type YourData struct {
	Shell
	Errors []Problem
}

func (YourData) name() string       { return "account/your-data" }
func (YourData) title() string      { return "Your data" }
func (YourData) formAction() string { return "" }

// CloseAccount asks once more before an account is closed, or says what must
// happen first.
type CloseAccount struct {
	Shell
	Obstacles    []Obstacle // with one, there is no form
	Notes        []Obstacle // what ends or goes on besides
	Connections  int        // that would end
	Apps         int        // that would be switched off
	TestAccounts int        // that would be deleted
	Kept         string     // how long responses to calls are kept
	Rest         string     // less than a cent, which cannot be paid out; "" = nothing
	Password     bool       // is asked for: the account has one
	MayReturn    bool       // everybody may sign up
	Seen         string     // what the page shows, for its form
	Typed        string     // the address, as typed before
	Errors       []Problem
}

// Obstacle is what must happen before an account can be closed.
type Obstacle struct {
	Text string
	Link *Link
}

// ErrorOf returns what is wrong with a field, or "".
func (c CloseAccount) ErrorOf(field string) string { return errorOf(c.Errors, field) }

func (CloseAccount) name() string       { return "account/close-account" }
func (CloseAccount) title() string      { return "Close your account" }
func (CloseAccount) formAction() string { return "" }
