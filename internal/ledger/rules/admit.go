package rules

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// This file checks whether a call may be held, and who pays for it.

// checkCallRates checks the limits of calls, which bind paid and free calls.
func (s *State) checkCallRates(c Hold, now time.Time) error {
	for i := range c.Limits {
		l := &c.Limits[i]
		if l.Unit != limits.Calls {
			continue
		}
		if wait := s.Counters[l.Subject].Spent.RetryAfter(now, l.Window, l.Max-1); wait > 0 {
			e := l.Code.On(c.ConnectionID, "%s allows %d calls in %s; try again in %s", l.Owner, l.Max,
				formatWindow(l.Window), formatWait(wait))
			e.RetryAfter = wait
			return e
		}
	}
	return nil
}

// tryFreeCredit lets free credit pay if the whole call fits into each of its counters, and into the budget of its
// child: a call is paid by free credit or by the wallet, never by both (contract §2, 9).
func (s *State) tryFreeCredit(c *Hold) bool {
	if c.FreeCredit == nil || c.ChildID != "" && c.FreeCredit.HoldMC > s.childRemaining(c.ChildID) {
		return false
	}
	var reservations Reservations
	for _, l := range c.FreeCredit.Limits {
		counter := s.Counters[l.Subject]
		used := counter.Spent.Sum(time.Time{}, 0) + int64(counter.HeldMC+c.FreeCredit.HoldMC)
		if counter.LimitReported || used > l.Max { // the first: see EndFreeCredit
			return false
		}
		reservations = append(reservations, Reservation{l.Subject, limits.Spend, 0, c.FreeCredit.HoldMC})
	}
	if c.ChildID != "" {
		reservations = append(reservations,
			Reservation{FreeOfChildSubject(c.ChildID), limits.Spend, 0, c.FreeCredit.HoldMC})
	}
	c.PaidBy, c.Terms, c.HoldMC, c.Reservations = PaidByFreeCredit, c.FreeCredit.Terms, c.FreeCredit.HoldMC,
		reservations
	return true
}

// admission is what admitSpend has decided besides an error.
type admission struct {
	useProviderKey bool          // the developer's provider key serves the call: a limit of cost is reached
	reached        *limits.Limit // the limit that refuses the call, if the app gets an event about it
}

// admitSpend checks whether the wallet may pay for the call: risk, windows, guardrail,
// allocation. Windows count what is settled and what is held. It reserves in c what the
// call holds of counters.
func (s *State) admitSpend(c *Hold, conn *Connection, now time.Time) (admission, error) {
	if err := s.checkRisk(c, conn, now); err != nil {
		return admission{}, err
	}
	if err := checkVelocityLimit(c, conn, now); err != nil {
		return admission{}, err
	}
	var a admission
	for i := range c.Limits {
		switch l := &c.Limits[i]; {
		case l.Unit == limits.Calls: // see checkCallRates
		default:
			useProviderKey, e := s.checkCounter(c, l, now)
			if e != nil {
				a.reached = l
				return a, e
			}
			a.useProviderKey = a.useProviderKey || useProviderKey
		}
	}
	if err := c.checkGuardrail(); err != nil {
		return admission{}, err
	}
	if err := s.checkAllocation(c, conn); err != nil {
		return admission{}, err
	}
	return a, nil
}

// checkVelocityLimit checks the user's own limit of the connection (contract §2).
func checkVelocityLimit(c *Hold, conn *Connection, now time.Time) error {
	if conn.VelocityLimitMC == nil {
		return nil
	}
	l := limits.Limit{
		Window: VelocityWindow,
		Max:    int64(*conn.VelocityLimitMC),
		Code:   apierr.DailyLimitReached,
		Owner:  "the user",
	}
	if e := checkWindow(&l, conn.Spent, conn.HeldMC, c.HoldMC, c.ConnectionID, now); e != nil {
		return e
	}
	return nil
}

// checkCounter checks a limit that has a counter, and reserves in c what the call holds of it.
// A limit of cost does not refuse a call that the developer's provider key can serve.
func (s *State) checkCounter(c *Hold, l *limits.Limit, now time.Time) (useProviderKey bool, refusal *apierr.Error) {
	need, counter := c.HoldMC, s.Counters[l.Subject]
	if l.Unit == limits.Cost {
		need = c.CostMC
	}
	e := checkWindow(l, counter.Spent, counter.HeldMC, need, c.ConnectionID, now)
	switch {
	case e == nil:
		c.Reservations = append(c.Reservations, Reservation{l.Subject, l.Unit, l.Window, need})
		return false, nil
	case l.Unit == limits.Cost && c.HasProviderKey:
		return true, nil
	}
	return false, e
}

// reportLimit reports the first refusal after a limit had room to the app by an event, and
// returns the refusal, which must be saved with the event. It returns nil if there is nothing to
// report.
func (s *State) reportLimit(l *limits.Limit, c *Hold, refusal error, nowUS int64) *apierr.Error {
	var e *apierr.Error
	if l == nil || l.Event == "" || s.Counters[l.Subject].LimitReported || !errors.As(refusal, &e) {
		return nil
	}
	s.Counters[l.Subject].LimitReported = true
	s.Changes.Counters[l.Subject] = true
	data := fmt.Sprintf(`{"app":{"id":%q,"limit_mc":%d,"limit_display":%q,"window_s":%d}}`,
		c.AppID, l.Max, money.MC(l.Max).Display(), int64(l.Window/time.Second))
	s.emitAppEvent(l.Event, c.AppID, data, nowUS)
	return e
}

// checkAllocation checks that the hold fits into what remains of the allocation, or of the child's budget, and of what
// the app's tier lets the connection spend of it. It reserves in c what a child's call holds of its budget.
func (s *State) checkAllocation(c *Hold, conn *Connection) error {
	remaining, held := conn.RemainingMC(), conn.HeldMC-conn.ChildHeldMC
	if c.ChildID != "" {
		remaining, held = s.childRemaining(c.ChildID), s.childHeld(c.ChildID)
	}
	if c.MaxCapMC > 0 {
		remaining = min(remaining, c.MaxCapMC-conn.ConsumedMC-conn.HeldMC)
	}
	if c.HoldMC > remaining {
		return c.refuseExhausted(conn, remaining, held)
	}
	if c.ChildID != "" {
		c.Reservations = append(c.Reservations, Reservation{ChildSubject(c.ChildID), limits.Spend, 0, c.HoldMC})
	}
	return nil
}

// checkRisk refuses a call while its connection spends too fast (contract §3). What other calls
// hold counts, so that many calls at the same time cannot pass the threshold. What this one would
// hold does not (decision 025). The freeze threshold is checked at settlement.
func (s *State) checkRisk(c *Hold, conn *Connection, now time.Time) error {
	if c.Risk == nil {
		return nil
	}
	usual, spent := c.Risk.UsualMC(conn.Spent, conn.FasterSpend, now), conn.RiskSpend()
	sum := money.MC(spent.Sum(now, limits.RiskWindow))
	if c.Risk.LevelOf(sum+conn.HeldMC, usual) < limits.AboveThrottle {
		return nil
	}
	allowed := usual * money.MC(c.Risk.Throttle)
	e := apierr.RiskThrottled.On(c.ConnectionID, "this connection is spending much faster than usual: %s in %s, of "+
		"which %s are held by calls in flight; from %s on calls wait", (sum + conn.HeldMC).Display(),
		formatWindow(limits.RiskWindow), conn.HeldMC.Display(), allowed.Display())
	e.Details = map[string]any{"spent_mc": sum, "held_mc": conn.HeldMC, "allowed_mc": allowed}
	e.RetryAfter = max(spent.RetryAfter(now, limits.RiskWindow, int64(usual)*c.Risk.Throttle), time.Second)
	return e
}

// checkWindow refuses what does not fit into a window. Retry-After is the time until
// enough settled spend has left the window, or a second if only holds are in the way. A
// call that alone is larger than the window gets none (decision 013).
func checkWindow(
	l *limits.Limit, spent limits.Series, held, need money.MC, connectionID string, now time.Time,
) *apierr.Error {
	room := money.MC(l.Max) - need
	if spent.Sum(now, l.Window)+int64(held) <= int64(room) {
		return nil
	}
	e := l.Code.On(connectionID, "%s allows %s per %s; this call needs up to %s", l.Owner, money.MC(l.Max).Display(),
		formatWindow(l.Window), need.Display())
	e.Details = map[string]any{"required_mc": need, "allowed_mc": money.MC(l.Max)}
	if room < 0 { // the call alone is larger than the window: waiting does not help
		e.Final = true
		return e
	}
	if e.RetryAfter = spent.RetryAfter(now, l.Window, int64(room)); e.RetryAfter == 0 {
		e.RetryAfter = time.Second
	}
	return e
}

// formatWindow writes the length of a window for an error message, in the largest unit that
// measures it exactly.
func formatWindow(d time.Duration) string {
	n, unit := int64(d/time.Second), "second"
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		n, unit = int64(d/time.Hour), "hour"
	case d > time.Minute && d%time.Minute == 0:
		n, unit = int64(d/time.Minute), "minute"
	}
	if n == 1 {
		return "1 " + unit
	}
	return strconv.FormatInt(n, 10) + " " + unit + "s"
}

// checkGuardrail checks the feature's bound on a single call (contract §2, Feature).
func (c *Hold) checkGuardrail() error {
	if c.MaxHoldMC == nil || c.HoldMC <= *c.MaxHoldMC {
		return nil
	}
	e := apierr.FeatureCostExceeded.On(c.ConnectionID,
		"this call may cost up to %s, and feature %q allows %s a call; lower max_tokens or shorten the input",
		c.HoldMC.Display(), c.Feature, c.MaxHoldMC.Display())
	e.Details = map[string]any{"required_mc": c.HoldMC, "allowed_mc": *c.MaxHoldMC}
	return e
}

// refuseExhausted is the 402. It says whether the allocation is spent, or too small for this
// call, or only held by calls that may be released. It has an increase_url unless the call may
// fit without a higher cap, or does not fit under the highest cap that the app's tier allows.
func (c *Hold) refuseExhausted(conn *Connection, remaining, held money.MC) error {
	reason, say := "exhausted", "the allocation of this connection does not cover it"
	switch {
	case c.HoldMC <= remaining+held:
		reason, say = "held_by_in_flight", "calls in flight hold the rest; it may fit when they end"
	case remaining+held > 0:
		reason, say = "too_large", "this call needs more than that; lower max_tokens, or request a higher cap"
	}
	e := apierr.AllocationExhausted.On(conn.ID, "this call may cost up to %s and %s remains: %s", c.HoldMC.Display(),
		max(remaining, 0).Display(), say)
	e.NoIncrease = reason == "held_by_in_flight" || c.ChildID != "" ||
		c.MaxCapMC > 0 && conn.ConsumedMC+c.HoldMC > c.MaxCapMC
	e.Details = map[string]any{
		"required_mc":  c.HoldMC,
		"remaining_mc": max(remaining, 0),
		"held_mc":      held,
		"reason":       reason,
	}
	e.Final = reason != "held_by_in_flight"
	return e
}

// formatWait writes a wait for an error message, rounded up to a second.
func formatWait(d time.Duration) string {
	return formatWindow((d + time.Second - 1).Truncate(time.Second))
}
