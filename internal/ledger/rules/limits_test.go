package rules

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// TestThrottle: calls wait while what is spent and held in ten minutes is above the second threshold, until enough of
// it is older.
func TestThrottle(t *testing.T) {
	t.Parallel()
	risk := &limits.RiskThresholds{FloorMC: 10, Warn: 5, Throttle: 10, Freeze: 20}
	for _, c := range []struct {
		spent, held money.MC // the first a minute ago
		wait        time.Duration
	}{{100, 0, 0}, {101, 0, 9 * time.Minute}, {60, 40, 0}, {60, 41, time.Second}, {0, 101, time.Second}} {
		s := newFunded()
		conn := s.Connections["C"]
		conn.FasterSpend, conn.HeldMC = 1, c.held
		conn.Spent = limits.Series{Width: time.Minute}.Add(fitTime.Add(-2*time.Minute), int64(c.spent), VelocityWindow)
		_, err := applyTo(s, Hold{Call: callOf("k", 1), Risk: risk})
		e, _ := errors.AsType[*apierr.Error](err)
		if (err != nil) != (c.wait > 0) || e != nil && (e.Code != apierr.RiskThrottled || e.RetryAfter != c.wait) {
			t.Errorf("%d spent, %d held: %v, %+v", c.spent, c.held, err, e)
		}
		if _, err := applyTo(newFunded(), Hold{Call: callOf("k", 1)}); err != nil {
			t.Errorf("fake money: %v", err)
		}
	}
}

// TestFreeCreditOfChildren: free credit pays for a call of a child that its budget covers, and no further.
func TestFreeCreditOfChildren(t *testing.T) {
	t.Parallel()
	for free, want := range map[money.MC]string{10: PaidByFreeCredit, 11: PaidByWallet} {
		s := newFunded()
		must(t, s, Delegate{Child{
			ID: "chd_1", ConnectionID: "C", AmountMC: 10, ExpiresUS: fitTime.Add(time.Hour).UnixMicro(),
		}})
		credit := &FreeCreditHold{Terms: "{}", HoldMC: free}
		hold := Hold{Call: callOf("chd_1/k", 10), ChildID: "chd_1", FreeCredit: credit}
		if r := must(t, s, hold); r.Call.PaidBy != want {
			t.Errorf("%d of 10: %+v", free, r.Call)
		}
	}
}

// TestWindows: what does not fit into a window waits until enough has left it, or for a second if calls in flight alone
// are in the way. A call that by itself is larger than the window is refused for good.
func TestWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spent, held, need money.MC // of 10; the first 23 hours ago
		wait              time.Duration
		final, allowed    bool
	}{
		{0, 0, 10, 0, false, true}, {0, 0, 11, 0, true, false}, {1, 0, 10, time.Hour, false, false},
		{4, 5, 1, 0, false, true}, {4, 5, 2, time.Second, false, false}, {9, 0, 2, time.Hour, false, false},
		{0, 1, 10, time.Second, false, false},
		{1, 9, 1, time.Second, false, false},
	} {
		s := newFunded()
		at := fitTime.Add(-23*time.Hour - time.Minute)
		spent := limits.Series{Width: time.Minute}.Add(at, int64(c.spent), VelocityWindow)
		s.Counters["spend/p"] = &Counter{Spent: spent, HeldMC: c.held}
		_, err := applyTo(s, Hold{Call: callOf("k", c.need), Limits: []limits.Limit{{
			Subject: "spend/p", Unit: limits.Spend, Window: VelocityWindow, Max: 10, Code: apierr.DailyLimitReached,
		}}})
		e, _ := errors.AsType[*apierr.Error](err)
		if (err == nil) != c.allowed || e != nil && (e.RetryAfter != c.wait || e.Final != c.final) {
			t.Errorf("%+v: %v, %+v", c, err, e)
		}
	}
}

// TestProviderKeys: beyond a limit of cost the developer's own key serves the call, which then holds nothing of it.
// Beyond a limit of spend it does not.
func TestProviderKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit         limits.Unit
		max          int64
		hasKey       bool
		allowed, own bool
	}{
		{limits.Cost, 5, true, true, false}, {limits.Cost, 4, true, true, true}, {limits.Cost, 4, false, false, false},
		{limits.Spend, 9, true, false, false}, {limits.Spend, 10, true, true, false},
	} {
		limit := limits.Limit{Subject: "live/dev", Unit: c.unit, Window: VelocityWindow, Max: c.max,
			Code: apierr.SandboxLiveCostLimited}
		s := newFunded()
		r, err := applyTo(s, Hold{
			Call: callOf("k", 10), CostMC: 5, HasProviderKey: c.hasKey, Limits: []limits.Limit{limit},
		})
		if c.allowed { // its answer was lost
			again := must(t, s, Hold{Call: callOf("k", 10), CostMC: 5, HasProviderKey: c.hasKey})
			if again.UseProviderKey != (c.own || c.hasKey && c.unit == limits.Spend) {
				t.Errorf("%+v, again: %+v", c, again)
			}
		}
		held := s.Counters["live/dev"].HeldMC
		if (err == nil) != c.allowed || r.UseProviderKey != c.own || (held > 0) != (c.allowed && !c.own) {
			t.Errorf("%+v: %v, %+v, held %d", c, err, r, held)
		}
	}
}

// TestReachedLimitsAreReported: the first call that an app's limit refuses emits an event, which is kept although the
// call is refused.
func TestReachedLimitsAreReported(t *testing.T) {
	t.Parallel()
	hold := Hold{Call: callOf("k", 11), Limits: []limits.Limit{{
		Subject: "spend/p", Unit: limits.Spend, Window: VelocityWindow, Max: 10, Code: apierr.AppSpendLimited,
		Event: "app.spend_limit_reached",
	}}}
	s := newFunded()
	if r := must(t, s, hold); r.Refused == nil || r.Refused.Code != apierr.AppSpendLimited ||
		len(s.Changes.Events) != 1 || !s.Counters["spend/p"].LimitReported || !s.Changes.MustSync {
		t.Errorf("%+v, %+v", r, s.Changes)
	}
	refused(t, s, hold, apierr.AppSpendLimited)
	hold.Limits[0].Event = ""
	refused(t, newFunded(), hold, apierr.AppSpendLimited)
}

// TestHeldAmounts says what a hold holds: of its connection if the wallet pays, of what its connection has for
// children, and of counters.
func TestHeldAmounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		paidBy, subject string
		want            map[string]money.MC
	}{
		"wallet": {PaidByWallet, "spend/p", map[string]money.MC{"C": 10, "spend/p": 3}},
		"free":   {PaidByFreeCredit, "free/A", map[string]money.MC{"free/A": 3}},
		"child": {PaidByWallet, ChildSubject("d"),
			map[string]money.MC{"C": 10, ChildHeldOf("C"): 10, ChildSubject("d"): 3}},
		"child free": {PaidByFreeCredit, FreeOfChildSubject("d"), map[string]money.MC{FreeOfChildSubject("d"): 3}},
	} {
		h, got := HoldRow{Call: callOf("k", 10)}, map[string]money.MC{}
		h.PaidBy, h.Reservations = c.paidBy, Reservations{{c.subject, limits.Spend, 0, 3}}
		if h.EachHeldAmount(func(id string, mc money.MC) { got[id] += mc }); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestDisputedShares takes of an app's margin the difference to what was taken before, payments of earlier versions
// included, and gives back what was not lost.
func TestDisputedShares(t *testing.T) {
	t.Parallel()
	s := newFunded()
	s.AddMarginRecord(&MarginRecord{
		AppID: "p", N: 1, Kind: marginDisputed, Subject: "top_old", AmountMC: 2, TakenMC: 2,
	})
	for i, c := range []struct{ total, takes money.MC }{{5, 3}, {5, 0}, {8, 3}, {2, -6}, {0, -2}, {10, 10}} {
		records := len(s.Changes.MarginRecords)
		s.Changes.MustSync = false
		must(t, s, TakeDisputedMargin{
			Loss: Loss{AccountID: "A", LossMC: 10}, Payments: []string{"top_old"},
			Shares: []DisputedShare{{AppID: "p", DeveloperID: "D", TotalMC: c.total}},
		})
		var takes money.MC
		for _, r := range s.Changes.MarginRecords[records:] {
			takes += r.AmountMC
		}
		if !s.Changes.MustSync || len(s.Changes.Losses) != i+1 || takes != c.takes ||
			s.lastMargin("p").TakenMC != c.total {
			t.Errorf("share %d: takes %d, want %d; taken %d", i, takes, c.takes, s.lastMargin("p").TakenMC)
		}
	}
	for _, total := range []money.MC{-1, 11} {
		refused(t, s, TakeDisputedMargin{
			Loss: Loss{AccountID: "A", LossMC: 10}, Shares: []DisputedShare{{AppID: "p", TotalMC: total}},
		}, apierr.InvalidRequest)
	}
}

// TestKeysOfFreezes: a page that has shown causes names them, so that no later one ends with them.
func TestKeysOfFreezes(t *testing.T) {
	t.Parallel()
	list := []FreezeRow{
		{Cause: FrozenByUser, SinceUS: 5}, {Cause: FrozenByPayment, Subject: "du", SinceUS: 6}, {SinceUS: 7},
	}
	if text := JoinKeys(list); text != "user::5,payment:du:6,risk::7" ||
		!slices.Equal(SplitKeys(text), []string{"user::5", "payment:du:6", "risk::7"}) {
		t.Errorf("%q", text)
	}
	if none := SplitKeys(JoinKeys(nil)); none == nil || slices.Contains(none, list[0].Key()) {
		t.Errorf("%q", none)
	}
}
