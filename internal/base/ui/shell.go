package ui

// Shell is what pages of a signed-in user have around them: the navigation, and the way out. Embed it in the page's
// struct; accounts.Account makes one. A page whose shell has no Email is shown without it.
type Shell struct {
	Email               string // of the signed-in account; "" = not signed in
	Developer, Operator bool   // their pages are in the navigation
	TestAccount         bool   // its money is not real: there is nothing to top up
	Section             string // where the page belongs: a section of the navigation, or ""

	app    *ConsoleApp  // that the page is about; nil = none
	others []ConsoleApp // apps to switch to
	pages  []Tab        // of the app, of the developer or of the operator
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

// A NavGroup is a list of links of the navigation.
type NavGroup struct {
	Title  string       // "" = it needs none
	App    *ConsoleApp  // whose pages they are; nil = of no app
	Others []ConsoleApp // apps to switch to
	Links  []NavLink
}

// A NavLink is a Tab with its icon.
type NavLink struct {
	Tab
	Icon string
}

// navIcons are the icons of the navigation, by the path or the last part of it.
var navIcons = map[string]string{
	"/dashboard":               "layout-dashboard",
	"/connections":             "plug",
	"/activity":                "list",
	"/top-up":                  "wallet",
	"/settings":                "settings",
	"/developer":               "boxes",
	"/developer/test-accounts": "users",
	"/developer/keys":          "key-round",
	"/developer/payouts":       "credit-card",
	"/docs":                    "book-open",
	"/operator":                "shield-check",

	"Overview":   "gauge",
	"Analytics":  "chart-column",
	"Requests":   "scroll-text",
	"Features":   "puzzle",
	"Webhooks":   "webhook",
	"Playground": "message-square",
	"Go live":    "rocket",
	"Members":    "users",
	"Settings":   "settings",
	"Reviews":    "circle-check",
	"Apps":       "boxes",
	"Accounts":   "users",
	"Risk":       "triangle-alert",
	"Providers":  "server",
	"Prices":     "receipt",
	"Audit log":  "scroll-text",
	"Incidents":  "activity",
}

// Nav returns the navigation, group by group.
func (s Shell) Nav() []NavGroup {
	groups := []NavGroup{{Links: withIcons(s.own())}}
	if s.Developer {
		groups = append(groups, NavGroup{Title: "Developer", Links: withIcons(s.development())})
		if s.Section == Development && s.app != nil {
			groups = append(groups, NavGroup{App: s.app, Others: s.others, Links: withIcons(s.pages)})
		}
	}
	if s.Operator {
		g := NavGroup{Title: "Operator", Links: withIcons([]Tab{s.tab(Operations, "/operator", "Operator")})}
		if s.Section == Operations && len(s.pages) > 0 {
			g.Links = withIcons(s.pages)
		}
		groups = append(groups, g)
	}
	return groups
}

// Bar returns the links of the bar at the foot of a phone's screen.
func (s Shell) Bar() []NavLink { return withIcons(s.own()[:3]) }

// Flat returns one link for each section, for a page with a navigation of its own.
func (s Shell) Flat() []Tab {
	list := s.own()
	if s.Developer {
		list = append(list, s.tab(Development, "/developer", "Developer"), s.tab(Documentation, "/docs", "Docs"))
	}
	if s.Operator {
		list = append(list, s.tab(Operations, "/operator", "Operator"))
	}
	return list
}

// Sandbox reports whether the page is about money that is not real.
func (s Shell) Sandbox() bool { return s.TestAccount || s.app != nil && s.app.Tier == "sandbox" }

func (s Shell) tab(section, href, text string) Tab { return Tab{href, text, section == s.Section} }

// own returns the links to the user's own money and settings.
func (s Shell) own() []Tab {
	list := []Tab{s.tab(Overview, "/dashboard", "Overview"), s.tab(Connected, "/connections", "Connections"),
		s.tab(Activities, "/activity", "Activity")}
	if !s.TestAccount {
		list = append(list, s.tab(TopUp, "/top-up", "Top up"))
	}
	return append(list, s.tab(Settings, "/settings", "Settings"))
}

// development returns the links to what belongs to no single app.
func (s Shell) development() []Tab {
	docs := s.tab(Documentation, "/docs", "Docs")
	if s.Section != Development {
		return []Tab{{Href: "/developer", Text: "Developer"}, docs}
	}
	if s.app == nil && len(s.pages) > 0 {
		return append(s.pages[:len(s.pages):len(s.pages)], docs)
	}
	return []Tab{{Href: "/developer", Text: "Apps"}, {Href: "/developer/test-accounts", Text: "Test accounts"},
		{Href: "/developer/keys", Text: "Provider keys"}, {Href: "/developer/payouts", Text: "Payouts"}, docs}
}

func withIcons(tabs []Tab) []NavLink {
	list := make([]NavLink, len(tabs))
	for i, t := range tabs {
		icon := navIcons[t.Href]
		if icon == "" {
			icon = navIcons[t.Text]
		}
		if icon == "" {
			icon = "chevron-right"
		}
		list[i] = NavLink{t, icon}
	}
	return list
}

// shell tells Render that a page has one.
func (s Shell) shell() Shell { return s }
