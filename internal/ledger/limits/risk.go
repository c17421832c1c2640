package limits

import (
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// RiskThresholds says how fast spend must be to be unusual: multiples of what the connection
// spends as a rule (decision 025). The operator sets it.
type RiskThresholds struct {
	FloorMC  money.MC // the lowest usual spend in the window
	Warn     int64    // beyond it, the app gets a warning event
	Throttle int64    // beyond it, calls wait
	Freeze   int64    // beyond it, the connection is paused until its user resumes it
}

// DefaultRiskThresholds applies unless the operator sets others. The floor is low enough for
// each threshold to take effect in the limited-live tier, where a connection spends at most $5
// a day.
var DefaultRiskThresholds = RiskThresholds{FloorMC: money.Dollar / 5, Warn: 5, Throttle: 10, Freeze: 20}

// RiskWindow is the window of spend that is compared.
const RiskWindow = 10 * time.Minute

// RiskLevel is how fast a connection spends.
type RiskLevel int

// The paces, in rising order.
const (
	BelowWarn RiskLevel = iota
	AboveWarn
	AboveThrottle
	AboveFreeze
)

// UsualMC is what a connection with spend s spends in the window as a rule, times
// what its user allows.
func (r RiskThresholds) UsualMC(s Series, faster int64, now time.Time) money.MC {
	return max(r.FloorMC, money.MC(s.Median(now, RiskWindow))) * money.MC(max(faster, 1))
}

// LevelOf returns the level of spentMC within the window, compared with the usual spend.
func (r RiskThresholds) LevelOf(spentMC, usual money.MC) RiskLevel {
	switch {
	case spentMC > usual*money.MC(r.Freeze):
		return AboveFreeze
	case spentMC > usual*money.MC(r.Throttle):
		return AboveThrottle
	case spentMC > usual*money.MC(r.Warn):
		return AboveWarn
	}
	return BelowWarn
}
