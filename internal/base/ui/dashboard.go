package ui

import (
	"html/template"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/timestamp"
)

// A Person is who looks at a page about a connection, and on whose behalf.
type Person struct {
	Shell
	For  string // the test account that the page is about, for its developer; else ""
	Path string // of the page, to return to after switching accounts
}

// Funds is the money of a connection, as people read it.
type Funds struct {
	AppID     string
	App       string
	Sandbox   bool // the money is not real
	Status    string
	Why       string // why it is paused; "" = it is not
	Cap, Used string
	Held      string // "" = nothing
	Remaining string
	Logo      string // address of the app's logo; "" = it has none

	PausedSince Moment // zero = it is not paused, or the time is not known

	Work      string // held for the app's own work, which it can charge after a pause or a revocation; "" = nothing
	WorkUntil Moment // when the last of these holds ends
}

// NewMoment returns the Moment of a time in microseconds.
func NewMoment(us int64) Moment {
	return Moment{timestamp.Format(us), time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04") + " UTC"}
}

// Connections lists the apps that a user allows to spend.
type Connections struct {
	Person
	Live, Ended []ConnectionCard // those that the filter shows
	Reserved    Amount           // for all live connections
	LiveCount   int
	Tabs        []Tab  // the filter; none = there are no connections
	More        bool   // there are older ones
	Done        string // freeze or resume: what the user has just done; "" = nothing
}

// A ConnectionCard is one connection in a list.
type ConnectionCard struct {
	Funds
	ID            string
	From          string // the list that its buttons return to
	Request       string // id of the allocation request that waits; "" = none
	RequestTarget string
	Percent       int     // of the cap that is used
	Resumable     bool    // the user paused it
	Week          []int64 // micro-cents spent on each of the last 7 days, today last
	WeekSpent     Amount  // their sum
}

// Spark draws the week.
func (c ConnectionCard) Spark() template.HTML { return Sparkline(c.Week) }

// Open says whether the connection can still be used.
func (c ConnectionCard) Open() bool { return c.Status != "revoked" }

func (Connections) name() string       { return "dashboard/connections" }
func (Connections) title() string      { return "Connections" }
func (Connections) formAction() string { return "" }

// Approval is the page of an allocation request, where a person decides (contract §3,
// Allocation request).
type Approval struct {
	Person
	Funds
	ConnectionID string
	Status       string // pending, approved or denied
	Again        bool   // it was answered a second time, which changed nothing
	Reason       string // as the app gave it; "" = none
	Asked        string // when
	Decided      string // when; "" = not yet
	From, Target string // the cap when it was asked, and the one asked for
	Needs        string // what approving takes from the balance; "" = nothing
	Available    string
	Left         string // what would remain available
	Missing      string // what approving lacks; "" = nothing
	Change       []CapRow
	Errors       []Problem
}

func (Approval) name() string       { return "dashboard/approval" }
func (a Approval) title() string    { return a.App + " requested a higher spend cap" }
func (Approval) formAction() string { return "" }

// Increase is the page on which a person changes the cap and the daily limit of a
// connection (contract §7, increase_url).
type Increase struct {
	Person
	Funds
	ConnectionID         string
	Available            string
	Request              string // id of the allocation request that waits; "" = none
	RequestTarget        string
	SpendCap, DailyLimit string // as typed
	Shown                Shown
	CapHint              string
	Caps                 []Tab        // amounts to choose from; each leads to what it would change
	Change               []CapRow     // the cap now and, on a preview, with the amounts of the form
	Preview              []Difference // what saving the form would change; none = no preview
	Missing              string       // what the balance lacks for the amounts of the preview; "" = nothing
	Saved                bool
	Errors               []Problem
}

// A Difference is a figure before a change and after it.
type Difference struct{ Name, Before, After string }

// ErrorOf returns what is wrong with a field, or "".
func (p Increase) ErrorOf(field string) string {
	i := slices.IndexFunc(p.Errors, func(p Problem) bool { return p.Field == field })
	if i < 0 {
		return ""
	}
	return p.Errors[i].Text
}

// DailyHint is the hint of the field for the daily limit.
func (Increase) DailyHint() string { return "The most it can spend in any 24 hours." }

func (Increase) name() string       { return "dashboard/spend-cap" }
func (p Increase) title() string    { return "Spend cap of " + p.App }
func (Increase) formAction() string { return "" }

// Review is the page on which a person looks at what a connection spent, resumes
// it when it is paused, or ends it (contract §3; §7, review_url).
type Review struct {
	Person
	Funds
	ConnectionID string
	Today        string // spent in the last 24 hours
	BelowZero    string // how much the balance is below zero, so that it can't be resumed; "" = it is not
	Resumable    bool   // its user can end all that keeps it paused
	Causes       string // what keeps it paused, for the form to say
	Calls        []Spent
	Speeds       []Choice // none where speed was not the cause
	Done         string   // what was just done: resume or revoke; "" = nothing
	Errors       []Problem
}

// Spent is one call on a Review.
type Spent struct {
	When    string // RFC 3339
	Shown   string
	Model   string
	Feature string
	Charge  string
	Back    bool // it was refunded
	Free    bool // free credit paid it
}

func (Review) name() string       { return "dashboard/review" }
func (p Review) title() string    { return "Review " + p.App }
func (Review) formAction() string { return "" }
