package ui

import "slices"

// Form is a page with one form, as those on which people sign up, choose a
// password and prove who they are.
type Form struct {
	Shell
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

func (Form) name() string       { return "form" }
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

func (SettingsIndex) name() string       { return "settings" }
func (SettingsIndex) title() string      { return "Settings" }
func (SettingsIndex) formAction() string { return "" }

// Security is the page on which people see who can act for them.
type Security struct {
	Shell
	Saved    string // what was just done; "" = nothing
	Password bool   // there is one
	Provider string // that may sign in as well; "" = none
	Linked   *Login // at the provider; nil = none
	TwoStep  bool
	Codes    int // recovery codes that are left
	Sessions []Device
	Events   []SecurityEvent
}

// Login is who somebody is at a provider.
type Login struct {
	Email string // "" = not known
	Since string
}

// Device is a browser in which somebody is signed in.
type Device struct {
	ID, Name, Started, Seen string
	This                    bool
}

// SecurityEvent is one thing that happened.
type SecurityEvent struct {
	Text, When, Shown, Address, Device string
	Bad                                bool // somebody failed at something
}

func (Security) name() string       { return "security" }
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

func (TwoStepSetup) name() string       { return "two-step-setup" }
func (TwoStepSetup) title() string      { return "Set up two-step sign-in" }
func (TwoStepSetup) formAction() string { return "" }

// RecoveryCodes shows them this once.
type RecoveryCodes struct {
	Shell
	Codes []string
}

func (RecoveryCodes) name() string       { return "recovery-codes" }
func (RecoveryCodes) title() string      { return "Recovery codes" }
func (RecoveryCodes) formAction() string { return "" }
