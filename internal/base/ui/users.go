package ui

import "cmp"

// A Row is a line of a list of ledger rows.
type Row struct {
	ID          string
	Href        string // of its receipt
	Drawer      string // address of the receipt as a part, for the drawer; "" = none
	When, Shown string // RFC 3339, and as people read it
	What        string // Call, Refund, Top-up …
	App         string // "" = none
	Model       string
	Feature     string
	Note        string // "$5.00 set aside", "free credit"; "" = nothing
	Change      Amount // of what the account owns in all
	Moved       bool   // only from one pocket to the other: there is no change
}

// A Share is one line of a breakdown.
type Share struct {
	Name    string
	Spent   Amount
	Calls   string
	Percent int    // of the largest, for the meter
	Href    string // address of its activity; "" = none
}

// Shares is a breakdown of the spend.
type Shares struct {
	Title, Head string
	List        []Share
	More        int // smaller ones that are not shown
}

// A Concern is a connection that a person should look at.
type Concern struct{ App, Why, Badge, Href, Action string }

// A Pace says how long a balance lasts if it is spent as in the last days.
type Pace struct {
	Lasts string // "about 23 days"; "" = there is no basis for a figure
	Daily string // spend a day
	Days  int64  // that it is the mean of
}

// A Task is one step of the first use, which is done as soon as it has happened.
type Task struct {
	Text, Hint string
	Done       bool
	Link       *Link // where to do it; nil = elsewhere
}

// Dashboard is the overview of a signed-in user.
type Dashboard struct {
	Shell
	Available, Reserved, Spent Amount
	Compared                   string // with the period before: "12% less than …"; "" = nothing to compare
	Pace                       Pace
	AutoTopUp, AutoTopUpOff    string // what it does; why we turned it off; "" = it is off
	Open                       int    // connections
	Active                     int    // of these, those that may spend
	Cards                      []ConnectionCard
	Running                    []RunningCall
	Done                       string // pause, freeze or resume: what the user has just done; "" = nothing
	Period                     string // of what was spent: "30 days"
	Choices                    []Choices
	Chart                      Chart
	Summary                    []SummaryLine // of the month; none = nothing to compare
	Shares                     []Shares
	Concerns                   []Concern
	Recent                     []ActivityDay
	Tasks                      []Task // of a new user; none = all are done
	NewHere                    bool   // nothing has happened yet
	Sandbox                    bool   // a test account
}

// A SummaryLine is a sentence about the month's spend, and the link to what it is about.
type SummaryLine struct {
	Text string
	Link Link
}

func (Dashboard) name() string       { return "dashboard/overview" }
func (Dashboard) title() string      { return "Overview" }
func (Dashboard) formAction() string { return "" }
func (d Dashboard) live() bool       { return d.Active > 0 || len(d.Running) > 0 }

// A RunningCall is a call or a voice session that runs now.
type RunningCall struct {
	ID          string // req_… or rts_…
	StopPath    string // of the form that stops it
	App         string
	Model       string
	Feature     string
	Voice       bool
	When, Shown string // since when: RFC 3339, and as people read it
	Held        Amount
}

// Pause asks whether all connections shall be paused.
type Pause struct {
	Shell
	Apps    []string // that may spend now
	Running int      // calls
	Work    string   // held for the apps' own work; "" = nothing
}

func (Pause) name() string       { return "dashboard/pause" }
func (Pause) title() string      { return "Pause everything" }
func (Pause) formAction() string { return "" }

// An ActivityDay is what happened on one day, or the part of it that is on a page.
type ActivityDay struct {
	Day, Shown string // 2026-11-21, and as people read it
	// sums of the groups: of calls and refunds, and of all others; their Text is "" if there are none
	Spent, Added Amount
	Continues    bool // older rows of the day are on the next page
	Groups       []ActivityGroup
}

// An ActivityGroup is the calls of one app on one day, or one other row.
type ActivityGroup struct {
	What   string // "38 calls, 1 refund", "Top-up"
	App    string // "" = none
	Logo   string
	AppID  string
	Change Amount
	Rows   []Row // newest first
}

// Activity is the list of an account's ledger rows, folded by day and app.
type Activity struct {
	Shell
	List          List
	Statement     *Statement
	StatementHref string // of this month's statement
	Errors        []Problem
}

// A Statement sums up the spend of a month.
type Statement struct {
	Month          string // "November 2026"
	ByApp          []Share
	Spent          Amount // the sum of ByApp
	Calls          string
	Previous, Next *Link  // the months beside it; nil = none
	File           string // its address as a file, without .csv and .pdf; "" = none, of a month to come
}

func (Activity) name() string { return "dashboard/activity" }
func (a Activity) title() string {
	if a.Statement != nil {
		return "Statement for " + a.Statement.Month
	}
	return "Activity"
}
func (Activity) formAction() string { return "" }
func (a Activity) live() bool       { return len(a.List.Days) > 0 } // the drawer loads receipts
func (Activity) scripts() []string  { return []string{"table"} }

// Receipt explains a ledger row, or a call that has none.
type Receipt struct {
	Shell
	Path        string // of the page
	For         string // the test account that it is about, for its developer; else ""
	Heading     string
	Badge       string // good, warn, bad or ""
	Status      string
	Explanation []string // in words, a paragraph each
	ID          string
	When        string
	App         string
	Connection  string // its id; "" = none
	Model       string
	Feature     string
	Lines       []ReceiptLine
	Sum         []Step
	Facts       []Fact
	Links       []Link
}

// ReceiptLine is one token class: so many tokens at a price.
type ReceiptLine struct{ Class, Tokens, Price, Cost string }

// classes are what people call the kinds of tokens.
var classes = map[string]string{
	"input":       "Input",
	"cached":      "Input from the provider’s cache",
	"cache_write": "Input written to its cache",
	"output":      "Output",
}

// TokenLine writes a line of a receipt: the price is in dollars for a million
// tokens, the cost in micro-cents with its decimals.
func TokenLine(class string, tokens int64, price, cost string) ReceiptLine {
	return ReceiptLine{
		Class:  cmp.Or(classes[class], class),
		Tokens: Count(tokens),
		Price:  "$" + price,
		Cost:   cost + " µ¢",
	}
}

// A Step leads from the provider's cost to the total.
type Step struct {
	Name, Why string
	Amount    Amount
	Total     bool
}

func (Receipt) name() string       { return "dashboard/receipt" }
func (r Receipt) title() string    { return r.Heading }
func (Receipt) formAction() string { return "" }

// Connection is the page of one connection.
type Connection struct {
	Person
	Funds
	ConnectionID  string
	Percent       int       // of the cap that is used
	Exact         [4]Amount // cap, used, held, remaining
	Daily, Today  string    // Daily: "" = no limit
	Since         string
	Calls         string // held now: "2 calls"
	Request       string
	RequestTarget string
	Choices       []Choices // of the chart's period
	Chart         Chart
	Rows          []Row
	Voices        []VoiceSession
	Done          string // freeze or resume: what the user has just done; "" = nothing
	Resumable     bool   // the user paused it
	Children      []Child
	WorkHolds     []WorkHold
	Raised        []Raise // margin rates that the app has raised lately
}

// WorkHold is what an app holds for work of its own.
type WorkHold struct {
	ID, Description string
	Amount          Amount
	Until           Moment
}

// Raise is a rate that has risen.
type Raise struct{ Name, Before, After, On string }

// Child is a part of a connection's budget that the app has passed on.
type Child struct {
	ID, Label         string
	Depth             int    // 1 for those that the connection itself gave
	Given, Left, Held Amount // Held: no text = nothing
	Expires           Moment
}

func (Connection) name() string       { return "dashboard/connection" }
func (c Connection) title() string    { return c.App }
func (Connection) formAction() string { return "" }
func (c Connection) live() bool       { return c.Status != "revoked" }

// Revoke asks whether a connection shall end.
type Revoke struct {
	Person
	Funds
	ConnectionID string
	Before       [2]Amount // ready to use, and what remains of the cap: the balance without what is held
	After        Amount    // ready to use once the connection has ended
}

func (Revoke) name() string       { return "dashboard/revoke" }
func (r Revoke) title() string    { return "Revoke " + r.App }
func (Revoke) formAction() string { return "" }

// Proof is the page on which the browser checks that an entry is in the public log.
type Proof struct {
	Shell
	Path     string // of the page
	For      string // the test account that it is about, for its developer; else ""
	Entry    string // what the entry is
	When     string
	ID       string
	Back     string // the entry's page
	NotYet   bool   // the log has not got the entry
	File     string // where the proof is
	Key      string // the log's
	Position int64  // of the leaf
}

func (Proof) name() string       { return "dashboard/proof" }
func (Proof) title() string      { return "Prove this entry" }
func (Proof) formAction() string { return "" }
func (Proof) scripts() []string  { return []string{"prove"} }
