package rules

import (
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// Unbilled is what an attempt has cost the operator that a provider may have accepted and that nobody is billed for
// (decision 133). It counts in the limits of cost that the hold has reserved, and in the day of its user on its app.
type Unbilled struct {
	CostMC money.MC // the provider cost of the input, and of what may have been generated
	DayMC  money.MC // what such attempts of the user on the app may cost in 24 hours before Estimate is charged

	// Estimate charges the attempt instead of releasing its hold, once the day is used up. nil = it is never charged,
	// because its client did not end it.
	Estimate *Settle
}

// An UnbilledAttempt is a row of unbilled_attempts.
type UnbilledAttempt struct {
	Call
	Attempt   int64
	CostMC    money.MC
	CreatedUS int64
}

// unbilledWindow is the time in which unbilled attempts are counted.
const unbilledWindow = 24 * time.Hour

// UnbilledSubject is the counter of what the unbilled attempts of a user on an app have cost. It is not the
// connection's: a user who connects again gets no new day.
func UnbilledSubject(appID, accountID string) string { return "unbilled/" + appID + "/" + accountID }

// addKeys adds the counter of the call's user, and what its estimate needs.
func (u *Unbilled) addKeys(keys *RowKeys, call *Call) {
	if u == nil {
		return
	}
	keys.Counters[UnbilledSubject(call.AppID, call.AccountID)] = limits.Cost.BucketWidth(unbilledWindow)
	if u.Estimate != nil {
		u.Estimate.addKeys(keys)
	}
}

// isCharged reports whether the attempt is charged by its estimate.
func (u *Unbilled) isCharged(s *State, call *Call, now time.Time) bool {
	if u == nil || u.Estimate == nil {
		return false
	}
	spent := s.Counters[UnbilledSubject(call.AppID, call.AccountID)].Spent.Sum(now, unbilledWindow)
	return spent+int64(u.CostMC) > int64(u.DayMC)
}

// countUnbilled counts what an attempt has cost, and appends its row.
func (s *State) countUnbilled(u *Unbilled, call Call, row *HoldRow, nowUS int64) {
	if u == nil || u.CostMC <= 0 {
		return
	}
	call.RequestID = row.RequestID
	subject := UnbilledSubject(call.AppID, call.AccountID)
	c := s.Counters[subject]
	c.Spent = c.Spent.Add(time.UnixMicro(nowUS), int64(u.CostMC), unbilledWindow)
	s.Changes.Counters[subject] = true
	s.Changes.Unbilled = append(s.Changes.Unbilled, UnbilledAttempt{call, row.Attempt, u.CostMC, nowUS})
}
