package ui

import "slices"

// Form is a page with one form, as those on which people sign up, choose a
// password and prove who they are.
type Form struct {
	Shell
	Passkeys      // offered as an alternative to the form
	Heading, Lead string
	Note          string // set off from the rest; "" = none
	Action        string // where it posts to
	Next          string // where to go afterwards, a path of ours; "" = the form has none
	Fields        []Input
	Button        string
	Danger        bool // the button takes something away
	Links         []Link
	Errors        []Problem
	Provider      string // "Continue with", in place of the form; "" = there is none
}

// Input is a labelled field of a Form.
type Input struct {
	Name, Label, Type, Complete string // Complete is the name of autocomplete
	Value, Hint                 string
	Code                        bool // digits and letters to be copied, not words
}

// ErrorOf returns what is wrong with a field, or "".
func (f Form) ErrorOf(field string) string { return errorOf(f.Errors, field) }

func errorOf(list []Problem, field string) string {
	i := slices.IndexFunc(list, func(p Problem) bool { return p.Field == field })
	if i < 0 {
		return ""
	}
	return list[i].Text
}

func (Form) name() string       { return "account/form" }
func (f Form) title() string    { return f.Heading }
func (Form) formAction() string { return "" }

// SettingsIndex is the page that leads to all settings.
type SettingsIndex struct {
	Shell
	TestAccount bool
	TwoStep     bool
	Notices     bool
	Saved       string // what was just done; "" = nothing
}

func (SettingsIndex) name() string       { return "account/settings" }
func (SettingsIndex) title() string      { return "Settings" }
func (SettingsIndex) formAction() string { return "" }

// Security is the page on which people see who can act for them.
type Security struct {
	Shell
	Passkeys
	Saved    string // what was just done; "" = nothing
	Password bool   // there is one
	Provider string // that may sign in as well; "" = none
	Linked   *Login // at the provider; nil = none
	TwoStep  bool
	App      bool // an authenticator app is set up
	Codes    int  // recovery codes that are left
	Keys     []Key
	Sessions []Device
	// MoreSessions says that Sessions are the ones that were used last.
	MoreSessions bool
	Events       []SecurityEvent
}

// Login is a linked login at an identity provider.
type Login struct {
	Email string // "" = not known
	Since string
}

// Passkeys is what a page that offers them knows. Embed it in the page's struct,
// and the page gets the script; what it offers stands in elements that the script
// shows, <… data-passkeys="here" hidden>: here, elsewhere (the page is at an
// address that they are not for) or never (the browser knows none).
type Passkeys struct {
	Party string // host name that they are for; "" = none can be made for these pages
	Home  string // origin at which they work
	First bool   // it is the first thing to try
}

// passkeys tells Render that a page offers them.
func (p Passkeys) passkeys() Passkeys { return p }

// Key is a passkey.
type Key struct{ ID, Name, Added, Used string }

// Passkey is the page on which a browser is asked to make or use one. The script
// asks it, fills in the form and sends it.
type Passkey struct {
	Shell
	Passkeys
	Heading, Lead  string
	Action, Next   string
	Options        string // for the browser, in JSON
	Create         bool   // make one; false = use one, which begins by itself
	Button, Cancel string
	Back           string // where Cancel leads
}

func (Passkey) name() string       { return "account/passkey" }
func (p Passkey) title() string    { return p.Heading }
func (Passkey) formAction() string { return "" }

// Device is a browser with a sign-in session.
type Device struct {
	ID, Name, Started, Seen string
	This                    bool
}

// SecurityEvent is one thing that happened.
type SecurityEvent struct {
	Text, When, Shown, Address, Device string
	Bad                                bool // a failed attempt
}

func (Security) name() string       { return "account/security" }
func (Security) title() string      { return "Security" }
func (Security) formAction() string { return "" }

// TwoStepSetup shows the seed of one-time codes to an authenticator app.
type TwoStepSetup struct {
	Shell
	Secret string // in groups of four
	Size   int    // of the QR code with its margin, in modules
	Path   string // of its dark modules, in the grammar of SVG
	Errors []Problem
}

func (TwoStepSetup) name() string       { return "account/two-step-setup" }
func (TwoStepSetup) title() string      { return "Set up two-step verification" }
func (TwoStepSetup) formAction() string { return "" }

// RecoveryCodes shows them this once.
type RecoveryCodes struct {
	Shell
	Codes []string
	Key   bool // for when a passkey is not there; false = for when the phone is not
}

func (RecoveryCodes) name() string       { return "account/recovery-codes" }
func (RecoveryCodes) title() string      { return "Recovery codes" }
func (RecoveryCodes) formAction() string { return "" }
