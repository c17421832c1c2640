package ui

import (
	"net/http"
	"net/url"
	"strings"
)

// A List is a table of rows that can be filtered, searched by id, followed live, and read page by page: of calls,
// deliveries, entries. Every part of it is a link or a form, so that it works without scripts; assets/table.js adds
// keys and a drawer that shows a row beside the list.
type List struct {
	Path   string     // of the list
	Query  url.Values // the filters that are set, as links carry them
	Label  string     // what the rows are, such as Calls
	Empty  string     // in place of no rows
	Filter []ListFilter
	Search *ListSearch // nil = none
	Head   []ListColumn
	Rows   []ListRow
	Days   []ActivityDay // ledger rows that are folded by day, in place of Head and Rows

	Newest string // address of the first page; "" = this is it
	Older  string // address of the next page; "" = this is the last
	Queue  bool   // the oldest row is the first, so that the next page has newer ones
	Cut    string // how far a page with few rows has searched; "" = as far as there are rows
	CSV    string // address of the download; "" = none

	Sizes []Tab // choices for the number of rows of a page; nil = there is no choice

	CanFollow bool   // the list has a live tail
	Following bool   // it is on: this is the first page, and it polls
	Changing  bool   // a row of this page changes soon, so that it polls although it is not followed
	Part      string // address of the rows of this page alone, for the poll
}

// A ListFilter is one filter chip: choices that are links, a form for other values, or both.
type ListFilter struct {
	Name, Label string
	Chosen      string // the text of the value that is set; "" = not set
	Clear       string // address of the list without it
	Choices     []Tab
	Fields      []Field
	Path        string   // where the form of the fields goes
	Hidden      []Hidden // the other filters, in that form
	Problem     string
}

// Hidden is a value that a form carries along.
type Hidden struct{ Name, Value string }

// A ListSearch is the field in which an id is searched.
type ListSearch struct {
	Name, Label, Hint, Value, Problem string
	Path                              string
	Hidden                            []Hidden
}

// A ListColumn heads a column.
type ListColumn struct {
	Text  string
	Class string // of its head and cells: end (a number), first or second (its line on a phone), wide (not on a phone)
}

// A ListRow is one row. Its first cell heads it and is the link.
type ListRow struct {
	ID     string
	Href   string // the page of the row
	Drawer string // address of the same as a part, for the drawer; "" = none
	Cells  []ListCell
}

// A ListCell is one cell. Only Text is needed.
type ListCell struct {
	Text   string
	Sub    string // below it, smaller
	Title  string // its exact value
	Time   string // RFC 3339: Text is this time, written in UTC
	Dot    string // a dot before it: good, warn, bad or plain; "" = none
	Avatar string // an id, of which a short avatar is drawn; "" = none
	Href   string // Text is a link
	Code   bool   // Text is an id or a code

	// Monogram is the id of the app or account that Text names: its initials are drawn before it; "" = none.
	Monogram string
}

// pageSizes are the numbers of rows that a page can have.
var pageSizes = []string{"50", "25", "100"}

// ListPageSize returns the number of rows that a query asks for: 25, 50 or 100.
func ListPageSize(q url.Values) int {
	return map[string]int{"25": 25, "100": 100}[q.Get("limit")] + map[string]int{"": 50, "50": 50}[q.Get("limit")]
}

// NewList returns a list at a path, with the values of these names that a query has.
func NewList(path string, q url.Values, names ...string) List {
	t := List{Path: path, Query: url.Values{}}
	for _, name := range append([]string{"limit", "live"}, names...) {
		if v := q.Get(name); v != "" {
			t.Query.Set(name, v)
		}
	}
	if ListPageSize(t.Query) == 0 {
		t.Query.Del("limit")
	}
	for _, size := range []string{"25", "50", "100"} {
		value := strings.TrimPrefix(size, pageSizes[0])
		t.Sizes = append(t.Sizes, Tab{
			Href:    t.Link("limit", value),
			Text:    size,
			Current: t.Query.Get("limit") == value,
		})
	}
	return t
}

// Link returns the address of the list with other values: names and values in turn, "" = without it.
func (t *List) Link(change ...string) string { return t.linkTo(t.Path, change) }

// linkTo is Link for another path with the same query.
func (t *List) linkTo(path string, change []string) string {
	q := url.Values{}
	for name, v := range t.Query {
		q[name] = v
	}
	for i := 0; i+1 < len(change); i += 2 {
		if q.Del(change[i]); change[i+1] != "" {
			q.Set(change[i], change[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Download returns the address of the rows as a file.
func (t *List) Download(path string) string {
	return t.linkTo(path, []string{"live", "", "limit", ""})
}

// hidden returns the query without some names, as fields of a form.
func (t *List) hidden(without ...string) (list []Hidden) {
	for _, f := range t.Filter {
		for _, name := range f.names() {
			list = t.appendHidden(list, name, without)
		}
	}
	return t.appendHidden(list, "limit", without)
}

func (t *List) appendHidden(list []Hidden, name string, without []string) []Hidden {
	for _, w := range without {
		if w == name {
			return list
		}
	}
	if v := t.Query.Get(name); v != "" {
		list = append(list, Hidden{name, v})
	}
	return list
}

// names returns the names of the query that a filter sets.
func (f *ListFilter) names() []string {
	names := []string{f.Name}
	for _, field := range f.Fields {
		if field.ID != f.Name {
			names = append(names, field.ID)
		}
	}
	return names
}

// AddFilter adds a filter chip. Options are its choices; one without an id stands for no filter. Fields are those of
// its form; each is named by its id.
func (t *List) AddFilter(name, label string, options []Option, fields ...Field) *ListFilter {
	f := ListFilter{Name: name, Label: label, Fields: fields, Path: t.Path}
	without := []string{}
	for _, n := range f.names() {
		without = append(without, n, "")
	}
	f.Clear = t.Link(without...)
	for _, o := range options {
		current := t.Query.Get(name) == o.ID
		f.Choices = append(f.Choices, Tab{Href: t.Link(append(without, name, o.ID)...), Text: o.Text, Current: current})
		if current && o.ID != "" {
			f.Chosen = o.Text
		}
	}
	for i := range f.Fields {
		f.Fields[i].Value = t.Query.Get(f.Fields[i].ID)
		if f.Chosen == "" && f.Fields[i].Value != "" {
			f.Chosen = f.Fields[i].Value
		}
	}
	t.Filter = append(t.Filter, f)
	return &t.Filter[len(t.Filter)-1]
}

// Finish fills in what depends on all filters. first says that this is the first page; rows is the path that answers
// with the rows alone, "" = the list cannot be followed.
func (t *List) Finish(first bool, rows string) {
	for i := range t.Filter {
		t.Filter[i].Hidden = t.hidden(t.Filter[i].names()...)
	}
	if t.Search != nil {
		t.Search.Path, t.Search.Hidden = t.Path, t.hidden(t.Search.Name)
	}
	if !first {
		t.Newest = t.Link()
	}
	t.CanFollow = rows != "" && first
	t.Following = t.CanFollow && t.Query.Get("live") != ""
	t.Part = rows
}

// LiveSwitch returns the address that switches the live tail on or off.
func (t List) LiveSwitch() string {
	if t.Following {
		return t.Link("live", "")
	}
	return t.Link("live", "1")
}

// Filtered reports whether a filter is set.
func (t List) Filtered() bool {
	for _, f := range t.Filter {
		if f.Chosen != "" {
			return true
		}
	}
	return false
}

// IsInvalid reports whether a filter or the search has a problem.
func (t List) IsInvalid() bool {
	for _, f := range t.Filter {
		if f.Problem != "" {
			return true
		}
	}
	return t.Search != nil && t.Search.Problem != ""
}

// AllRows returns the address without any filter.
func (t List) AllRows() string {
	q := url.Values{}
	if v := t.Query.Get("limit"); v != "" {
		q.Set("limit", v)
	}
	if len(q) == 0 {
		return t.Path
	}
	return t.Path + "?" + q.Encode()
}

// avatarTints is the number of tints of avatars of ids.
const avatarTints = 6

// AvatarText returns the last two characters of the id: ids of one day begin alike.
func (c ListCell) AvatarText() string { return strings.ToUpper(c.Avatar[max(len(c.Avatar)-2, 0):]) }

// AvatarTint returns the class of the avatar's tint, by its id.
func (c ListCell) AvatarTint() string {
	sum := 0
	for i := range len(c.Avatar) {
		sum += int(c.Avatar[i])
	}
	return "tint-" + string(rune('0'+sum%avatarTints))
}

// SetDownload sets the headers of a CSV file that a browser saves by this name.
func SetDownload(w http.ResponseWriter, name string) {
	setPageHeaders(w.Header())
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// EscapeFormula prefixes text that a spreadsheet would take for a formula with an apostrophe: apps choose some of the
// texts in a CSV file.
func EscapeFormula(text string) string {
	if trimmed := strings.TrimLeft(text, " \t\r\n\u00a0\ufeff"); trimmed != "" &&
		strings.ContainsAny(trimmed[:1], "=+-@|%") || strings.HasPrefix(trimmed, "＝") ||
		strings.HasPrefix(trimmed, "＋") || strings.HasPrefix(trimmed, "－") || strings.HasPrefix(trimmed, "＠") {
		return "'" + text
	}
	return text
}

// A TimelineStep is one step of a timeline.
type TimelineStep struct {
	Name, Detail string
	Href         string // of the name; "" = no link
	After        string // since the first step, such as +412 ms; "" = not known
	Time         string // RFC 3339; "" = not known
	Shown        string // the same in UTC
	Dot          string // as in ListCell
}
