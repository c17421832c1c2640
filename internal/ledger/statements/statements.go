// Package statements sums up an account's month: what its balance was, what moved it, and what it came to (decision
// 111). It is pure.
package statements

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// A Kind is why money came or went.
type Kind string

// The kinds, in the order of a statement.
const (
	TopUps            Kind = "top_ups"
	Goodwill          Kind = "goodwill_credits"
	Calls             Kind = "calls"
	CallRefunds       Kind = "refunded_calls"
	PaidRefunds       Kind = "refunds_paid" // by a developer, for calls of the app
	ReturnedToCard    Kind = "returned_to_card"
	PaymentsReversed  Kind = "payments_reversed"
	GoodwillWithdrawn Kind = "goodwill_withdrawn"
)

var kinds = []Kind{TopUps, Goodwill, Calls, CallRefunds, PaidRefunds, ReturnedToCard, PaymentsReversed,
	GoodwillWithdrawn}

// A Group is ledger rows of an account that are alike, and what they moved into its balance, available and reserved
// together: a negative amount went out.
type Group struct {
	Type     rules.EntryType
	Status   string
	Reason   string // of reversed top-ups
	PaidBy   string
	AppID    string
	Goodwill bool
	Negative bool // a settled top-up of a negative amount
	Rows     int64
	MovedMC  money.MC
}

// A Line is one amount of a statement.
type Line struct {
	Kind     Kind
	AppID    string // of Calls and CallRefunds
	Rows     int64
	AmountMC money.MC // what went out is negative
}

// A Statement is an account's month. Opening, lines and closing add up to the micro-cent.
type Statement struct {
	OpeningMC, ClosingMC money.MC
	Lines                []Line
	FreeCalls            int64 // calls that free credit paid, which move nothing
}

// Make returns the statement of a month from the balance before it and its rows. The error names rows that it cannot
// place.
func Make(openingMC money.MC, groups []Group) (Statement, error) {
	type place struct {
		kind  Kind
		appID string
	}
	s, lines := Statement{OpeningMC: openingMC, ClosingMC: openingMC}, map[place]*Line{}
	for i := range groups {
		g := &groups[i]
		s.ClosingMC += g.MovedMC
		if g.Type == rules.EntrySpend && g.PaidBy == rules.PaidByFreeCredit {
			s.FreeCalls += g.Rows
			continue
		}
		kind, known := g.kind()
		switch {
		case !known && g.MovedMC != 0:
			return Statement{}, fmt.Errorf("statements: %d rows %s %s moved %d", g.Rows, g.Type, g.Status, g.MovedMC)
		case !known:
			continue // between available and reserved
		}
		at := place{kind: kind}
		if g.Type == rules.EntrySpend {
			at.appID = g.AppID
		}
		if lines[at] == nil {
			lines[at] = &Line{Kind: kind, AppID: at.appID}
		}
		lines[at].Rows += g.Rows
		lines[at].AmountMC += g.MovedMC
	}
	for _, line := range lines {
		s.Lines = append(s.Lines, *line)
	}
	slices.SortFunc(s.Lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
			cmp.Compare(a.AmountMC, b.AmountMC), cmp.Compare(a.AppID, b.AppID))
	})
	return s, nil
}

// kind returns what the rows of a group are; false for rows that only move money within the balance, or none.
func (g *Group) kind() (Kind, bool) {
	switch {
	case g.Type == rules.EntrySpend && g.Status == "reversed":
		return CallRefunds, true
	case g.Type == rules.EntrySpend:
		return Calls, true
	case g.Type != rules.EntryTopUp || g.Status == "pending":
		return "", false
	case g.Goodwill && g.Status == "reversed":
		return GoodwillWithdrawn, true
	case g.Goodwill:
		return Goodwill, true
	case g.Status == "reversed" && g.Reason == string(ReturnedToCard):
		return ReturnedToCard, true
	case g.Status == "reversed":
		return PaymentsReversed, true
	case g.Negative:
		return PaidRefunds, true
	}
	return TopUps, true
}
