package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// Counter is what a limit remembers of its subject: one row of windows.
type Counter struct {
	Spent         limits.Series // what is settled
	HeldMC        money.MC      // what calls in flight may still add
	LimitReported bool          // the app has an event that the limit is reached, and it still is
}

// Reservation is what a hold reserves in one counter. Settlement counts the real cost
// there.
type Reservation struct {
	Subject  string
	Unit     limits.Unit   // limits.Spend or limits.Cost
	Window   time.Duration // how long it is counted; 0 = without end
	AmountMC money.MC
}

// Reservations are those of one call. The hold stores them, so that settle and release
// reverse exactly what was reserved.
type Reservations []Reservation

var unitCodes = map[limits.Unit]byte{limits.Spend: 's', limits.Cost: 'c'}

// String writes them as "subject|unit|seconds|held subject|…".
func (c Reservations) String() string {
	if len(c) == 0 {
		return ""
	}
	b := make([]byte, 0, 64*len(c))
	for i, n := range c {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(append(b, n.Subject...), '|', unitCodes[n.Unit], '|')
		b = strconv.AppendInt(b, int64(n.Window/time.Second), 10)
		b = strconv.AppendInt(append(b, '|'), int64(n.AmountMC), 10)
	}
	return string(b)
}

// ParseReservations reads what String wrote.
func ParseReservations(text string) (list Reservations, err error) {
	for word := range strings.FieldsSeq(text) {
		f := strings.Split(word, "|")
		if len(f) != 4 || f[1] != "s" && f[1] != "c" {
			return nil, fmt.Errorf("ledger: bad count %q", word)
		}
		seconds, err1 := strconv.ParseInt(f[2], 10, 64)
		held, err2 := strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("ledger: bad count %q", word)
		}
		unit := limits.Spend
		if f[1] == "c" {
			unit = limits.Cost
		}
		list = append(list, Reservation{f[0], unit, time.Duration(seconds) * time.Second, money.MC(held)})
	}
	return list, nil
}

// addKeys adds the counters to the rows that a batch needs.
func (c Reservations) addKeys(w *RowKeys) {
	for _, n := range c {
		w.Counters[n.Subject] = n.Unit.BucketWidth(n.Window)
	}
	if childID := c.child(); childID != "" { // what the call may spend depends on both of its counters
		w.AddBudget(childID)
	}
}

// reserveCounters adds the reservations to their counters, which must be loaded.
func (s *State) reserveCounters(list Reservations) {
	for _, n := range list {
		s.Counters[n.Subject].HeldMC += n.AmountMC
		s.Changes.Counters[n.Subject] = true
	}
}

// releaseCounters ends the reservations, and counts what the call cost.
func (s *State) releaseCounters(list Reservations, held bool, a Amounts, now time.Time) {
	for _, n := range list {
		w := s.Counters[n.Subject]
		if held {
			w.HeldMC -= n.AmountMC
		}
		spent := a.UserChargeMC
		if n.Unit == limits.Cost {
			spent = a.ProviderCostMC
		}
		if spent != 0 && !isBudget(n.Subject) { // see endChildHold
			w.Spent = w.Spent.Add(now, int64(spent), n.Window)
		}
		s.Changes.Counters[n.Subject] = true
	}
}

// FreeCreditSubjects are the counters of free credit (contract §8): the app's pool of
// a month, the user's usage on the app, and the user's usage on all apps.
func FreeCreditSubjects(appID, accountID string, at time.Time) (pool, onApp, onAll string) {
	return "free/" + appID + "/" + at.UTC().Format("2006-01"), "free/" + appID + "/" + accountID,
		freeCreditOf(accountID)
}

// ChildHeldOf names what calls of children hold of a connection (Connection.ChildHeldMC) among the subjects of
// EachHeldAmount.
func ChildHeldOf(connectionID string) string { return "children/" + connectionID }

// EachHeldAmount calls f with each amount that the hold holds: of its connection, and
// of counters.
func (h *HoldRow) EachHeldAmount(f func(id string, amount money.MC)) {
	if h.PaidBy != PaidByFreeCredit {
		f(h.ConnectionID, h.HoldMC)
		if h.Reservations.child() != "" {
			f(ChildHeldOf(h.ConnectionID), h.HoldMC)
		}
	}
	for _, n := range h.Reservations {
		f(n.Subject, n.AmountMC)
	}
}
