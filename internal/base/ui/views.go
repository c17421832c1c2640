package ui

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Problem is what is wrong with one field of a form.
type Problem struct {
	Field string // id of the field
	Text  string
}

// SignIn asks who the person is.
type SignIn struct {
	Passkeys
	Next     string // where to go afterwards, a path of ours
	Email    string
	Errors   []Problem
	Provider string // "Continue with", in place of the password; "" = there is none
}

// ErrorOf returns what is wrong with a field, or "".
func (s SignIn) ErrorOf(field string) string { return errorOf(s.Errors, field) }

func (SignIn) name() string       { return "account/sign-in" }
func (SignIn) title() string      { return "Sign in" }
func (SignIn) formAction() string { return "" }

// Consent is the page on which a user allows an app to spend (contract §5, flow
// rule 2). Amounts are written as people read them.
type Consent struct {
	Email      string // of the signed-in account
	AppID      string
	App        string
	Logo       string // address of the app's logo; "" = it has none
	Behind     Behind
	Sandbox    bool
	Public     bool // a public client: it runs on the user's device and has no secret to prove who it is
	OwnWork    bool // the app charges for work of its own, too
	Heard      bool // the app may have what the user says in voice sessions written down
	Purposes   []Purpose
	Choices    []Choice // test accounts, on a sandbox app's page for its developer
	Live       *Live    // the connection that exists already
	Asked      string   // the spend cap that the app asked for; "" = none
	Available  string   // "" when it depends on the choice
	OfYour     bool     // Asked is at most Available
	Amounts    []AmountChoice
	OwnAmount  bool   // the amount is none of Amounts
	SpendCap   string // as typed
	FreeCents  int64  // what is ready to use if the app may spend nothing; for the script. 0 = not known
	CapHint    string
	DailyLimit string // as typed
	DailyHint  string
	Models     []string // empty = every offered model
	Providers  string
	Price      string
	Rates      string // the margin rates that it shows, for the form to say
	Shown      Shown  // the limits of Live; "" = there is none
	Dashboard  string // host of the dashboard
	ReturnHost string // host of the redirect address; "" = the app is on another device
	ReturnTo   string // the redirect address
	UserCode   string // the code that the device shows; "" = the app is in this browser
	Action     string // path and query that the form posts to
	Errors     []Problem
}

// Behind says who stands behind an app, as its developer gave it. Every text may be "".
type Behind struct {
	Developer string
	Domain    string // verified; see package domains
	Website   string // URL
	Privacy   string // URL
	Support   string // URL, or mailto: URL
}

// Known reports whether there is something to show.
func (b Behind) Known() bool { return b != Behind{} }

// An AmountChoice is an amount to choose as the spend cap, with what follows from it.
type AmountChoice struct {
	Value  string // of the field: "5.00"
	Text   string // "$5"
	Full   string // "$5.00"
	Chosen bool
	Free   string // what stays ready to use; "" = not known
	All    string // the whole balance, where nothing stays free; "" otherwise
	Buys   string // "3,900": how many answers of the app's usual size it pays for; "" = not known
}

func (Consent) scripts() []string { return []string{"consent"} }

// A Purpose is a feature on the consent screen: what the app uses AI for.
type Purpose struct {
	Name, Description string
	Margin            string // rate of the developer, where it differs from the app's: "18%"
}

// shownPurposes is how many purposes the consent screen shows at once. The others are folded.
const shownPurposes = 6

// FirstPurposes returns the purposes that are shown at once.
func (c Consent) FirstPurposes() []Purpose { return c.Purposes[:min(shownPurposes, len(c.Purposes))] }

// MorePurposes returns the purposes that are folded.
func (c Consent) MorePurposes() []Purpose { return c.Purposes[min(shownPurposes, len(c.Purposes)):] }

// A Choice is a test account to connect as.
type Choice struct {
	ID, Name, Detail string
	Chosen           bool
}

// Live is what a person should know of a connection that exists already.
type Live struct {
	Cap, Used string
	Held      string // "" = nothing
	Frozen    bool
}

// ErrorOf returns what is wrong with a field, or "".
func (c Consent) ErrorOf(field string) string {
	i := slices.IndexFunc(c.Errors, func(p Problem) bool { return p.Field == field })
	if i < 0 {
		return ""
	}
	return c.Errors[i].Text
}

func (Consent) name() string    { return "oauth/consent" }
func (c Consent) title() string { return "Connect " + c.App }

// formAction lets the form lead to the app. Browsers hold every redirect that
// follows a form to this rule, also those at the app's own hosts behind the one
// that it registered, so only the scheme is said. The form itself posts to us.
func (c Consent) formAction() string {
	if c.ReturnTo == "" {
		return ""
	}
	if strings.HasPrefix(c.ReturnTo, "http:") { // on this device: a public client, or in development
		return "https: http:"
	}
	return "https:"
}

// ConnectDevice is the page on which a user types the code that a device shows (RFC 8628 §3.3).
type ConnectDevice struct {
	Email    string // of the signed-in account
	UserCode string // filled in
	Errors   []Problem
}

// ErrorOf returns what is wrong with a field, or "".
func (d ConnectDevice) ErrorOf(field string) string { return errorOf(d.Errors, field) }

// Action returns where a sign-in with another account leads back to.
func (d ConnectDevice) Action() string {
	if d.UserCode == "" || len(d.Errors) > 0 {
		return "/device"
	}
	return "/device?user_code=" + url.QueryEscape(d.UserCode)
}

func (ConnectDevice) name() string       { return "oauth/device" }
func (ConnectDevice) title() string      { return "Connect a device" }
func (ConnectDevice) formAction() string { return "" }

// Message is a page that only says something.
type Message struct {
	Heading, Text string
	Detail        string // small print, such as a request id
	Switch        string // offers to sign in with another account, and then to go here
	Link          *Link
}

// Link is the way on from a Message.
type Link struct{ Href, Text string }

func (Message) name() string       { return "site/message" }
func (m Message) title() string    { return m.Heading }
func (Message) formAction() string { return "" }

// Home is the front page of the dashboard address.
type Home struct {
	Shell
	BaseURL, AuthURL string
	Dev              bool
	ConnectURL       string     // dev: an authorize address for the sample app
	Prices           []PriceRow // of a few models
}

func (Home) name() string       { return "site/home" }
func (Home) title() string      { return "Home" }
func (Home) formAction() string { return "" }

// Callback stands in for an app's redirect address in development.
type Callback struct {
	Code, State, Issuer string
	Denied, Description string // error and error_description
	Curl                string
}

func (Callback) name() string       { return "dev/callback" }
func (Callback) title() string      { return "Callback" }
func (Callback) formAction() string { return "" }

// Sentence makes text a sentence: it begins with a capital letter and ends with a full stop. "" stays "".
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	c, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(c)) + EndSentence(text[n:])
}

// EndSentence adds a full stop to text unless it ends as a sentence does.
func EndSentence(text string) string {
	if strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}
