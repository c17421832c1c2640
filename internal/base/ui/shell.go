package ui

// Shell is what pages of somebody who is signed in have around them: who it is,
// the navigation, and the way out. Embed it in the page's struct; accounts.Account
// makes one. A page whose shell has no Email is shown without it.
type Shell struct {
	Email               string // of the signed-in account; "" = not signed in
	Developer, Operator bool   // their pages stand in the navigation
	TestAccount         bool   // its money is not real: there is nothing to top up
	Section             string // where the page belongs: a Section of the navigation, or ""
}

// Sections of the navigation.
const (
	Overview    = "overview"
	Connected   = "connections"
	Activities  = "activity"
	TopUp       = "top-up"
	Settings    = "settings"
	Development = "developer"
	Operations  = "operator"

	Documentation = "docs"
)

// A Tab is a link of a navigation.
type Tab struct {
	Href, Text string
	Current    bool // the page belongs to it
}

// Nav is the navigation.
func (s Shell) Nav() []Tab {
	tab := func(section, href, text string) Tab { return Tab{href, text, section == s.Section} }
	list := []Tab{tab(Overview, "/dashboard", "Overview"), tab(Connected, "/connections", "Connections"),
		tab(Activities, "/activity", "Activity")}
	if !s.TestAccount {
		list = append(list, tab(TopUp, "/top-up", "Top up"))
	}
	list = append(list, tab(Settings, "/settings", "Settings"))
	if s.Developer {
		list = append(list, tab(Development, "/developer", "Developer"), tab(Documentation, "/docs", "Docs"))
	}
	if s.Operator {
		list = append(list, tab(Operations, "/operator", "Operator"))
	}
	return list
}

// shell tells Render that a page has one.
func (s Shell) shell() Shell { return s }
