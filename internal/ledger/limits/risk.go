package limits

import (
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// Risk says how fast spend must be to be unusual: multiples of what the connection
// spends as a rule (decision 025). The operator sets it.
type Risk struct {
	FloorMC  money.MC // the least that counts as usual
	Warn     int64    // beyond it, the app is told
	Throttle int64    // beyond it, calls wait
	Freeze   int64    // beyond it, the connection is paused until its user resumes it
}

// DefaultRisk is what holds unless the operator says otherwise.
var DefaultRisk = Risk{FloorMC: money.Dollar, Warn: 5, Throttle: 10, Freeze: 20}

// RiskWindow is over which spend is looked at.
const RiskWindow = 10 * time.Minute

// Pace is how fast a connection spends.
type Pace int

// The paces, in rising order.
const (
	Ordinary Pace = iota
	Fast
	TooFast
	Alarming
)

// Usual is what a connection with spend s spends in the window as a rule, times
// what its user allows.
func (r Risk) Usual(s Series, faster int64, now time.Time) money.MC {
	return max(r.FloorMC, money.MC(s.Usual(now, RiskWindow))) * money.MC(max(faster, 1))
}

// Of returns the pace of spentMC within the window, where usual is the rule.
func (r Risk) Of(spentMC, usual money.MC) Pace {
	switch {
	case spentMC > usual*money.MC(r.Freeze):
		return Alarming
	case spentMC > usual*money.MC(r.Throttle):
		return TooFast
	case spentMC > usual*money.MC(r.Warn):
		return Fast
	}
	return Ordinary
}
