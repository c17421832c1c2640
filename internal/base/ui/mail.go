package ui

// Outbox lists the mail of the development set-up, which sends none.
type Outbox struct{ Mails []OutboxRow }

// OutboxRow is a mail in the list.
type OutboxRow struct{ Href, To, Subject, Created string }

func (Outbox) name() string       { return "dev/outbox" }
func (Outbox) title() string      { return "Outbox" }
func (Outbox) formAction() string { return "" }

// OutboxMail is one mail of the development set-up.
type OutboxMail struct {
	To, Subject, Created, Text string
	HTML                       string // its source; "" = none
	Unsubscribe                string // "" = it has no such link
	Links                      []string
	Path                       string // of this page
	View                       string // the chosen tab: html, text or source
}

// Tabs are the ways to look at the mail.
func (m OutboxMail) Tabs() []Tab {
	var tabs []Tab
	if m.HTML != "" {
		tabs = append(tabs, Tab{m.Path, "HTML", m.View == "html"})
	}
	tabs = append(tabs, Tab{m.Path + "?view=text", "Text", m.View == "text"})
	if m.HTML != "" {
		tabs = append(tabs, Tab{m.Path + "?view=source", "Source", m.View == "source"})
	}
	return tabs
}

// frames has the page show another one of ours inside.
func (m OutboxMail) frames() bool { return m.View == "html" }

func (OutboxMail) name() string       { return "dev/outbox-mail" }
func (m OutboxMail) title() string    { return m.Subject }
func (OutboxMail) formAction() string { return "" }

// Notices is the page on which a person says which mail they want.
type Notices struct {
	Shell
	On          bool
	Shown       Shown
	Saved       bool // they just said so
	TestAccount bool // gets no mail at all
}

func (Notices) name() string       { return "account/notices" }
func (Notices) title() string      { return "Email notices" }
func (Notices) formAction() string { return "" }

// Unsubscribe is where the link in a mail leads; nothing happens before its button.
type Unsubscribe struct {
	Action string
}

func (Unsubscribe) name() string       { return "account/unsubscribe" }
func (Unsubscribe) title() string      { return "Unsubscribe" }
func (Unsubscribe) formAction() string { return "" }
