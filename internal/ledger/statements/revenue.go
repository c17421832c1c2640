package statements

import (
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// AppRevenue is what an app has earned in a month with real money, and what became of it (decision 113).
type AppRevenue struct {
	AppID string

	// OpeningMC is the margin that the app had earned before the month, without what was taken of it.
	OpeningMC money.MC
	Calls     int64         // billed in the month, later refunded ones included
	Charged   rules.Amounts // for them, to users or to free credit
	Refunds   int64         // of calls, in the month
	Refunded  rules.Amounts // what they had cost

	RefundsPaidMC money.MC // of refunds, by margin of other calls; below zero: the developer's balance paid more
	Payouts       int64    // begun in the month
	PaidOutMC     money.MC // by payouts, without what failed ones gave back
	DisputedMC    money.MC // for disputed payments; below zero: it came back
}

// ClosingMC is the margin that is left at the end of the month.
func (a *AppRevenue) ClosingMC() money.MC {
	return a.OpeningMC + a.Charged.DevMarginMC - a.Refunded.DevMarginMC - a.RefundsPaidMC - a.PaidOutMC - a.DisputedMC
}

// IsEmpty reports whether there is nothing to say of the app.
func (a *AppRevenue) IsEmpty() bool { return *a == AppRevenue{AppID: a.AppID} }
