package ui

// Search is the page of what a search found.
type Search struct {
	Shell
	Query   string
	Results []Found
}

func (Search) name() string       { return "palette/search" }
func (Search) title() string      { return "Search" }
func (Search) formAction() string { return "" }

// A Found is a page that a search found.
type Found struct {
	Href, Text string
	Detail     string // what it is, or the id that was searched; "" = nothing more
	Icon       string
}
