package oauth

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
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
	return s.live.ConsumedMC + s.live.HeldMC
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
func makeAmounts(caps []money.MC, own *standing, size usualSize) []ui.AmountChoice {
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
		c.Buys = size.countAnswers(spend)
		list = append(list, c)
	}
	return list
}

// The basis of an app's usual size: the calls of so many days, at least so many calls, and of a
// large app only the newest daily totals.
const (
	sizeDays  = 30
	sizeCalls = 20
	sizeRows  = 5000
)

// A usualSize is the sum of an app's recent calls; its quotient is the average charge.
type usualSize struct {
	calls    int64
	chargeMC money.MC
}

// loadUsualSize returns the usual size of the app's calls.
func (h *Handler) loadUsualSize(ctx context.Context, appID string) (usualSize, error) {
	since := h.Store.Now().UTC().AddDate(0, 0, 1-sizeDays).Format(time.DateOnly)
	calls, chargeMC, err := store.SumRecentCalls(ctx, h.Store.DB, appID, since, sizeRows)
	if err != nil {
		return usualSize{}, fmt.Errorf("oauth: usual size of calls: %w", err)
	}
	return usualSize{calls, chargeMC}, nil
}

// countAnswers returns for how many calls of the usual size an amount pays, rounded down to two
// digits: "3,900". It is "" if the app has too few calls to say, or for less than one.
func (s usualSize) countAnswers(amountMC money.MC) string {
	if s.calls < sizeCalls || s.chargeMC <= 0 || amountMC <= 0 {
		return ""
	}
	n := new(big.Int).Mul(big.NewInt(int64(amountMC)), big.NewInt(s.calls))
	n.Quo(n, big.NewInt(int64(s.chargeMC)))
	if !n.IsInt64() || n.Sign() == 0 {
		return ""
	}
	count, unit := n.Int64(), int64(1)
	for count/unit >= 100 {
		unit *= 10
	}
	return ui.Count(count / unit * unit)
}
