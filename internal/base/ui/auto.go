package ui

// TopUpAuto is the page on which a person has their balance topped up automatically.
type TopUpAuto struct {
	Shell
	Off       bool       // payments are not set up on this server
	Done      string     // what they just did, in words
	Card      *SavedCard // nil: none is saved, so that one is asked for
	On        bool
	Since     string // when they switched it on
	WentOff   string // why we switched it off, in words; "" = we did not
	Waits     string // why nothing is charged at the moment; "" = it would be
	Summary   string // what happens while it is on
	Below     Field
	Add, Most Field
	Shown     Shown // of these fields, and that it is on
	Month     AutoMonth
	Attempts  []AutoAttempt
	Token     string // of the form that saves a card: one attempt, however often it is sent
	First     Field  // the amount that is paid while the card is saved
	Agree     string // what is wrong with the consent
	Errors    []Problem
}

func (TopUpAuto) name() string       { return "topups/automatic" }
func (TopUpAuto) title() string      { return "Automatic top-up" }
func (TopUpAuto) formAction() string { return "" } // the handler adds where people pay

// A SavedCard is what we know of a card.
type SavedCard struct{ Name, Expires string }

// An AutoMonth is what automatic top-ups took of a calendar month.
type AutoMonth struct {
	Name             string // November 2026
	Used, Most, Left string
	Percent          int64
}

// An AutoAttempt is one automatic top-up.
type AutoAttempt struct {
	Payment
	Why string // why it failed, or ""
}
