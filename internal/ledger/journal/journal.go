// Package journal writes the ledger as accountants keep books: each row as postings whose debits and credits are equal
// (decision 105). It is pure.
package journal

import (
	"fmt"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// An Account is one of the books' accounts.
type Account string

// The accounts, of which docs/operate/journal.md says what they are.
const (
	Cash       Account = "cash"               // paid in by users, at the payment processor
	Users      Account = "users' balances"    // owed to users, also what apps may spend of it
	Providers  Account = "owed to providers"  // for calls, until their bills are paid
	Developers Account = "developers' margin" // owed to developers
	Fee        Account = "service fee"        // earned
	FreeCredit Account = "free credit"        // given away as calls
	Goodwill   Account = "goodwill"           // given away as money
	Refunds    Account = "refunded calls"     // paid to providers for calls that users got back
	Disputes   Account = "disputed margin"    // what developers gave back of payments that users disputed
	Rounding   Account = "rounding"           // between micro-cents and cents
)

// accounts are those of rows in the order of reports.
var accounts = []Account{Cash, Users, Providers, Developers, Fee, FreeCredit, Goodwill, Refunds, Disputes}

// A Posting is an amount on an account: a debit if it is positive, a credit if it is negative.
type Posting struct {
	Account  Account
	AmountMC money.MC
}

// A Cause says of a row what stands beside the ledger.
type Cause struct {
	Goodwill bool      // it gives a goodwill credit, or takes one back
	MarginMC *money.MC // of a refund by an app: what the app's margin pays for it; nil = it is none
}

// Post returns the postings of a ledger row, which add up to nothing; none if the row moves no money into or out of a
// user's balance. The error names a row that contradicts itself.
func Post(e *rules.Entry, c Cause) ([]Posting, error) {
	all := postings(e, c)
	var list []Posting
	var sum, users money.MC
	for _, p := range all {
		sum += p.AmountMC
		if p.Account == Users {
			users += p.AmountMC
		}
		if p.AmountMC != 0 {
			list = append(list, p)
		}
	}
	if moved := e.AvailableDeltaMC + e.ReservedDeltaMC; sum != 0 || users != -moved {
		return nil, fmt.Errorf("journal: row %s moves %d, and its postings %d of a sum of %d", e.ID, moved, -users, sum)
	}
	return list, nil
}

func postings(e *rules.Entry, c Cause) []Posting {
	source := Cash
	if c.Goodwill {
		source = Goodwill
	}
	a, margin := e.Amounts, e.DevMarginMC
	if c.MarginMC != nil {
		margin = *c.MarginMC
	}
	switch {
	case e.Type == rules.EntrySpend && e.PaidBy == rules.PaidByFreeCredit:
		return []Posting{{FreeCredit, a.UserChargeMC}, {Providers, -a.ProviderCostMC}, {Fee, -a.SvcFeeMC}}
	case e.Type == rules.EntrySpend && e.Status == "reversed":
		return []Posting{{Users, -a.UserChargeMC}, {Refunds, a.UserChargeMC - a.SvcFeeMC - margin},
			{Developers, margin}, {Fee, a.SvcFeeMC}}
	case e.Type == rules.EntrySpend:
		return []Posting{{Users, a.UserChargeMC}, {Providers, -a.ProviderCostMC}, {Developers, -a.DevMarginMC},
			{Fee, -a.SvcFeeMC}}
	case e.Type == rules.EntryTopUp && e.AvailableDeltaMC != 0:
		if e.Status == "settled" && e.AmountMC < 0 { // a developer pays for the refund of a call
			source = Refunds
		}
		return []Posting{{source, e.AvailableDeltaMC}, {Users, -e.AvailableDeltaMC}}
	}
	return nil
}

// PostMargin returns the postings of what happened to an app's margin besides its calls (decision 110), which add up to
// nothing; none if it moves no money. A payout is booked when it leaves the margin, before Stripe has it.
func PostMargin(r *rules.MarginRecord) []Posting {
	source := Cash
	if r.IsDispute() {
		source = Disputes
	}
	if r.AmountMC == 0 {
		return nil
	}
	return []Posting{{Developers, r.AmountMC}, {source, -r.AmountMC}}
}

// DescribeMargin says what a record is, for the journal's text column.
func DescribeMargin(r *rules.MarginRecord) string {
	switch {
	case r.IsDispute() && r.AmountMC > 0:
		return "margin of a disputed payment"
	case r.IsDispute():
		return "margin of a payment no longer disputed"
	case r.AmountMC < 0:
		return "payout failed: " + r.Detail
	}
	return "payout to the developer"
}

// Describe says what a row is, for the journal's text column.
func Describe(e *rules.Entry, c Cause) string {
	switch {
	case c.MarginMC != nil:
		return "refund by the app of call " + e.ReversalOf
	case e.Type == rules.EntrySpend && e.Status == "reversed":
		return "refund of call " + e.ReversalOf
	case e.Type == rules.EntrySpend && e.PaidBy == rules.PaidByFreeCredit:
		return "call paid by free credit"
	case e.Type == rules.EntrySpend:
		return "call"
	case c.Goodwill && e.Status == "reversed":
		return "goodwill credit withdrawn"
	case c.Goodwill:
		return "goodwill credit"
	case e.Status == "reversed" && e.AvailableDeltaMC > 0:
		return "money of a top-up came back: " + e.Reason
	case e.Status == "reversed":
		return "top-up paid back: " + e.Reason
	case e.AmountMC < 0:
		return "developer pays: " + e.Reason
	}
	return "top-up"
}

// Totals are the debits and credits of accounts.
type Totals map[Account]*Total

// A Total is what an account was debited and credited, both positive.
type Total struct{ DebitMC, CreditMC money.MC }

// Add adds postings.
func (t Totals) Add(list []Posting) {
	for _, p := range list {
		if t[p.Account] == nil {
			t[p.Account] = &Total{}
		}
		if p.AmountMC > 0 {
			t[p.Account].DebitMC += p.AmountMC
		} else {
			t[p.Account].CreditMC -= p.AmountMC
		}
	}
}

// A Line is an account of an entry in whole cents, beside its exact sums.
type Line struct {
	Account Account
	Total
	RoundedMC money.MC // a debit if it is positive, whole cents
}

// Lines returns the totals as one entry in whole cents: the balance of each account, rounded half away from zero, and
// the difference on the account for it, so that they add up to nothing.
func (t Totals) Lines() (list []Line) {
	var sum money.MC
	for _, account := range accounts {
		total := t[account]
		if total == nil {
			continue
		}
		cents := roundToCents(total.DebitMC - total.CreditMC)
		list = append(list, Line{account, *total, cents})
		sum += cents
	}
	if sum != 0 {
		list = append(list, Line{Account: Rounding, RoundedMC: -sum})
	}
	return list
}

func roundToCents(mc money.MC) money.MC {
	if mc < 0 {
		return -roundToCents(-mc)
	}
	return (mc + money.Cent/2) / money.Cent * money.Cent
}
