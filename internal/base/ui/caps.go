package ui

import "github.com/purserhq/purser/internal/base/money"

// A CapRow is a spend cap in a picture of what changes: its bar is as long as the cap, and filled as far as it is used.
// Used, Held and Left add up to Cap.
type CapRow struct {
	Name       string
	Cap, Used  string
	Held, Left string // Held: "" = nothing
	Buys       string // "3,900": for how many answers of the app's usual size Left pays; "" = not known
	Width      int    // of the bar, of 100
	UsedWidth  int    // of its filled part, of 100
}

// A CapState is the spend cap of a connection and what of it is used.
type CapState struct {
	Name               string
	CapMC, UsedMC      money.MC
	HeldMC, ScaleMaxMC money.MC // ScaleMaxMC: the cap of the longest bar
}

// NewCapRow returns the row of a state.
func NewCapRow(s CapState) CapRow {
	parts := SplitDollars(s.CapMC-s.UsedMC-s.HeldMC, s.HeldMC, s.UsedMC)
	r := CapRow{
		Name: s.Name,
		Cap:  Dollars(s.CapMC),
		Used: parts[2].Text,
		Left: parts[0].Text,
	}
	if s.HeldMC > 0 {
		r.Held = parts[1].Text
	}
	if s.ScaleMaxMC > 0 {
		unit := max(1, s.ScaleMaxMC/100)
		r.Width = int(min(100, s.CapMC/unit))
		r.UsedWidth = int(min(100, (s.UsedMC+s.HeldMC)/unit))
	}
	return r
}
