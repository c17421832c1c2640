package ui

import (
	"net/url"
	"strconv"

	"github.com/purserhq/purser/internal/base/money"
)

// Report is a page of the operator: tiles and blocks under one head. All of the
// operator's pages are made of the same few parts.
type Report struct {
	Shell
	Sections []Tab // the operator's own navigation
	Back     *Link
	Heading  string
	Lead     string
	Badge    *Badge
	Viewer   bool   // looks, and can change nothing
	Done     string // what was just done; "" = nothing
	Errors   []Problem
	Banner   *Banner
	Queue    *Queue
	Strip    []StripItem
	Tiles    []Tile
	Blocks   []Block
}

func (Report) name() string       { return "operator/report" }
func (c Report) title() string    { return c.Heading }
func (Report) formAction() string { return "" }

func (c Report) shell() Shell {
	s := c.Shell
	s.pages = c.Sections
	return s
}

// scripts are those of charts and of lists, on a page with one.
func (c Report) scripts() (names []string) {
	for _, b := range c.Blocks {
		if len(b.Charts) > 0 && len(names) == 0 {
			names = append(names, chartScripts...)
		}
	}
	for _, b := range c.Blocks {
		if b.List != nil {
			return append(names, "table")
		}
	}
	return names
}

// Refill puts back what was typed into the forms, and what is wrong with it.
func (c *Report) Refill(form url.Values, problems []Problem) {
	c.Errors = problems
	typed := TypedFields(form)
	for i := range c.Blocks {
		f := c.Blocks[i].Form
		if f == nil {
			continue
		}
		for j := range f.Fields {
			if f.Shown == "" || typed.Has(f.Fields[j].ID) {
				f.Fields[j].Value = form.Get(f.Fields[j].ID)
			}
			for _, p := range problems {
				if p.Field == f.Fields[j].ID {
					f.Fields[j].Error = p.Text
				}
			}
		}
	}
}

// A Banner is one sentence over the page, in the color of its Tone.
type Banner struct {
	Tone, Text string
	Detail     string
	Link       *Link
}

// A Queue lists what needs a decision.
type Queue struct{ Tasks []QueueTask }

// A QueueTask is a kind of decision, with the first that wait.
type QueueTask struct {
	Count, Title string
	Href         string // of all that wait
	Tone         string
	Items        []QueueItem
}

// A QueueItem is one decision that waits.
type QueueItem struct{ Text, Href, Sub string }

// A StripItem is the present state of one part of the service.
type StripItem struct {
	Title, State string // operational, degraded or down
	Detail       string
	Href         string
}

// Tone is the color of the item's state.
func (i StripItem) Tone() string { return Tone(i.State) }

// Word is the item's state as people read it.
func (i StripItem) Word() string { return stateWord(i.State) }

// A Badge is a word that says how something stands: Tone is good, warn, bad or "".
type Badge struct{ Text, Tone string }

// A Tile is one large number.
type Tile struct {
	Label, Value string
	Exact        string // the same to the micro-cent; "" = it is exact
	Hint         string
	Href         string // where more stands
}

// A Block is a card: any of its parts may be missing.
type Block struct {
	ID            string // what a link leads to; "" = nothing
	Heading, Text string
	More          *Link
	Range         []Tab // choices of the period that it shows
	Facts         []Detail
	Charts        []Chart
	Table         *Table
	List          *List
	Timeline      *Timeline
	Source        string // as it is stored or was printed
	Folded        string // what opens the source; "" = it is open
	Form          *Ask
}

// A Timeline is what happened, day by day, newest first.
type Timeline struct {
	Label       string // what it lists, for screen readers
	Days        []TimelineDay
	First, Next string // addresses of the first and of the next page; "" = none
	Empty       string // in place of no days
}

// A TimelineDay has the events of a day.
type TimelineDay struct {
	Day    string
	Events []TimelineEvent
}

// A TimelineEvent is something that happened.
type TimelineEvent struct {
	What        Cell
	Of          []Cell // to whom and by whom
	Detail      string
	Dot         string // as in ListCell
	Amount      Amount
	Time, Shown string // RFC 3339, and in UTC; "" = it stands for the day
}

// A Detail is a name and what it is.
type Detail struct {
	Name string
	Cell
}

// A Cell is one thing in a table or a fact.
type Cell struct {
	Text  string
	Exact string // the same in full, for those who point at it
	Href  string
	Sub   string // small print
	When  string // the time that Text says, as RFC 3339
	Code  bool
	Tone  string // of a badge: good, warn, bad, plain; "" = no badge
	// Monogram is the id of the app or account that Text names: its initials are drawn before it; "" = none.
	Monogram string
}

// MoneyCell is a cell with a balance, a cap or a limit.
func MoneyCell(mc money.MC) Cell { return Cell{Text: Dollars(mc), Exact: mc.Display()} }

// TotalCell is a cell with a sum of charges.
func TotalCell(mc money.MC) Cell { return Cell{Text: Total(mc), Exact: mc.Display()} }

// PriceCell is a cell with an amount of a single call.
func PriceCell(mc money.MC) Cell { return Cell{Text: Price(mc), Exact: mc.Display()} }

// AmountCells are cells with these amounts.
func AmountCells(amounts ...Amount) (cells []Cell) {
	for _, a := range amounts {
		cells = append(cells, Cell{Text: a.Text, Exact: a.Exact})
	}
	return cells
}

// A Table is a list with heads.
type Table struct {
	Label string // what it lists, for those who do not see it
	Heads []Head
	Rows  [][]Cell
	Next  string // address of the rows that follow; "" = none
	First string // address of the first rows; "" = these are they
	Empty string // what is said when there is no row
}

// A Head is that of a column; numbers stand at its End.
type Head struct {
	Name string
	End  bool
}

// An Ask is a form.
type Ask struct {
	Search   bool // sends by GET, in one line
	Action   string
	Decision string // value of its hidden field "decision"; "" = none
	Fields   []Entry
	Shown    Shown // of a form that changes what its fields show; "" = another form
	Seen     *Seen // what its page showed of what the form ends; nil = another form
	Button   string
	Danger   bool
}

// Seen is what a page showed of what its form ends: only that is ended. It goes into a hidden field.
type Seen struct{ Name, Value string }

// An Entry is one of a form.
type Entry struct {
	ID, Label, Value, Hint, Error string
	Long                          bool
	Max                           int      // characters of a long one; 0 = 500
	Choices                       []Choice // of a select
}

// MaxLength returns the characters that a long entry may have.
func (e Entry) MaxLength() string { return strconv.Itoa(max(e.Max, 500)) }
