package rules

import (
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// A Waiver makes a call free whose answer is empty (decision 112): the user pays nothing, the app earns nothing, and
// the service's fee bears what the provider is paid. It applies while all such calls of the user on the app cost the
// service at most DayMC in 24 hours, and to calls that the wallet pays: free credit is the service's already.
type Waiver struct {
	DayMC money.MC
	Usage Usage // of the row if the call is free; it names WaivedEmpty
}

// WaivedEmpty is the member of a row's usage that says why its call was free.
const WaivedEmpty = `"waived":"empty_answer"`

// IsWaived reports whether a spend was free by a Waiver.
func (e *Entry) IsWaived() bool { return strings.Contains(e.Usage, WaivedEmpty) }

// waiverWindow is the time in which the calls are counted that were free.
const waiverWindow = 24 * time.Hour

// WaiverSubject is the counter of what the free calls of a user on an app have cost the service. It is not the
// connection's: a user who connects again gets no new day.
func WaiverSubject(appID, accountID string) string { return "waived/" + appID + "/" + accountID }

// isWaived reports whether the call is free by its waiver.
func (c *Settle) isWaived(s *State, now time.Time) bool {
	if c.Waiver == nil || c.PaidBy != PaidByWallet {
		return false
	}
	spent := s.Counters[WaiverSubject(c.AppID, c.AccountID)].Spent.Sum(now, waiverWindow)
	return spent+int64(c.Charge.ProviderCostMC) <= int64(c.Waiver.DayMC)
}

// waive returns the amounts of a call that is free.
func (a Amounts) waive() Amounts {
	return Amounts{ProviderCostMC: a.ProviderCostMC, SvcFeeMC: -a.ProviderCostMC}
}

// countWaiver counts what a free call has cost the service.
func (s *State) countWaiver(subject string, cost money.MC, now time.Time) {
	s.Counters[subject].Spent = s.Counters[subject].Spent.Add(now, int64(cost), waiverWindow)
	s.Changes.Counters[subject] = true
}
