package ledger

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
	Spent  limits.Series // what is settled
	HeldMC money.MC      // what calls in flight may still add
	Told   bool          // the app was told that the limit is reached, and it still is
}

// Count is what a call in flight holds of a counter, and settles in it.
type Count struct {
	Subject string
	Unit    limits.Unit   // limits.Spend or limits.Cost
	Window  time.Duration // how long it is remembered; 0 = for ever
	HeldMC  money.MC
}

// Counts are all of a call's. They stand in its hold, so that whoever ends it
// knows what to give back.
type Counts []Count

var units = map[limits.Unit]byte{limits.Spend: 's', limits.Cost: 'c'}

// String writes them as "subject|unit|seconds|held subject|…".
func (c Counts) String() string {
	if len(c) == 0 {
		return ""
	}
	b := make([]byte, 0, 64*len(c))
	for i, n := range c {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(append(b, n.Subject...), '|', units[n.Unit], '|')
		b = strconv.AppendInt(b, int64(n.Window/time.Second), 10)
		b = strconv.AppendInt(append(b, '|'), int64(n.HeldMC), 10)
	}
	return string(b)
}

// ParseCounts reads what String wrote.
func ParseCounts(text string) (list Counts, err error) {
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
		list = append(list, Count{f[0], unit, time.Duration(seconds) * time.Second, money.MC(held)})
	}
	return list, nil
}

// wants adds the counters to what a batch needs.
func (c Counts) wants(w *wants) {
	for _, n := range c {
		w.windows[n.Subject] = n.Unit.Width(n.Window)
	}
}

// take holds them; each counter is loaded.
func (s *State) take(list Counts) {
	for _, n := range list {
		s.windows[n.Subject].HeldMC += n.HeldMC
		s.dirtyWindows[n.Subject] = true
	}
}

// give ends what they hold, and counts what the call did cost.
func (s *State) give(list Counts, held bool, a Amounts, now time.Time) {
	for _, n := range list {
		w := s.windows[n.Subject]
		if held {
			w.HeldMC -= n.HeldMC
		}
		spent := a.UserChargeMC
		if n.Unit == limits.Cost {
			spent = a.ProviderCostMC
		}
		if spent != 0 {
			w.Spent = w.Spent.Add(now, int64(spent), n.Window)
		}
		s.dirtyWindows[n.Subject] = true
	}
}

// FreeSubjects are the counters of free credit (spec §8): the app's pool of a
// month, what the user has used on the app, and on all apps.
func FreeSubjects(appID, accountID string, at time.Time) (pool, onApp, onAll string) {
	return "free/" + appID + "/" + at.UTC().Format("2006-01"), "free/" + appID + "/" + accountID, "free/" + accountID
}

// parts calls f with what a hold holds: of its connection, and of counters.
func (h *HoldRow) parts(f func(id string, amount money.MC)) {
	if h.PaidBy != FreeCredit {
		f(h.ConnectionID, h.HoldMC)
	}
	for _, n := range h.Counts {
		f(n.Subject, n.HeldMC)
	}
}
