package oauth

import (
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
)

// usualCaps are the spend caps that the consent screen offers besides the proposed one.
var usualCaps = []money.MC{5 * money.Dollar, 10 * money.Dollar, 25 * money.Dollar}

// offeredCaps returns the caps to choose from in rising order: the proposed one, and of the usual ones those that the
// tier allows, that the balance covers and that are above what is spent already. own = nil says
// that the account depends on a choice.
func offeredCaps(proposedMC, maxMC money.MC, own *standing) []money.MC {
	caps := []money.MC{proposedMC}
	for _, mc := range usualCaps {
		if mc > maxMC || mc == proposedMC || own != nil && (mc < own.spentMC() || mc > own.after(mc).capMC) {
			continue
		}
		caps = append(caps, mc)
	}
	slices.Sort(caps)
	return caps
}

// spentMC returns what the existing connection has spent or holds, below which its cap cannot go.
func (s standing) spentMC() money.MC {
	if s.live == nil {
		return 0
	}
	return s.live.CommittedMC()
}

// An aftermath is what an approved spend cap leads to.
type aftermath struct {
	capMC   money.MC // as far as the balance covers it
	freeMC  money.MC // stays available; negative = the balance is below zero
	spendMC money.MC // what the app may still spend
}

// after returns what approval of a cap would lead to now. It follows rules.Connect: a new cap is at
// least what is spent, and money moves as far as the balance has it.
func (s standing) after(capMC money.MC) aftermath {
	available := max(0, s.balance.AvailableMC)
	if s.live == nil {
		given := min(capMC, available)
		return aftermath{given, s.balance.AvailableMC - given, given}
	}
	delta := min(max(capMC, s.spentMC())-s.live.AllocationMC, available)
	given := s.live.AllocationMC + delta
	return aftermath{given, s.balance.AvailableMC - delta, given - s.spentMC()}
}

// makeAmounts describes the caps to choose from. The amounts that it shows add up: with a cap in
// whole cents, what stays free and the cap are together what the page shows as the balance.
func makeAmounts(caps []money.MC, own *standing, size usage.CallSize) []ui.AmountChoice {
	var list []ui.AmountChoice
	for _, mc := range caps {
		c := ui.AmountChoice{
			Value: typed(mc),
			Text:  strings.TrimSuffix(dollars(mc), ".00"),
			Full:  dollars(mc),
		}
		spend := mc
		if own != nil {
			end := own.after(mc)
			spend = end.spendMC
			if own.live != nil || end.capMC < mc {
				c.Full = dollars(spend)
			}
			switch {
			case end.freeMC >= money.Cent:
				c.Free = ui.SplitDollars(end.freeMC, end.capMC)[0].Text
			case own.live == nil && end.capMC >= money.Cent:
				c.All = dollars(own.balance.AvailableMC)
			}
		}
		c.Buys = size.CountAnswers(spend)
		list = append(list, c)
	}
	return list
}
