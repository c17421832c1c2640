package rules

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// newFunded returns a state in which account A has enough for any amount, and connection C of app p an allocation of
// 1000.
func newFunded() *State {
	s := NewState()
	s.Balances["A"] = &Balance{AccountID: "A", AvailableMC: 3 * money.Max, ReservedMC: 1000}
	s.Connections["C"] = &Connection{ID: "C", AppID: "p", AccountID: "A", Status: Active, AllocationMC: 1000}
	s.live[AppAccount{"p", "A"}] = "C"
	return s
}

// TestAmountsOfCommands gives every command that takes an amount of somebody's choice those at the ends of its range.
func TestAmountsOfCommands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command  func(amount money.MC) Command
		low, top money.MC
	}{
		"top-up": {func(mc money.MC) Command { return TopUp{AccountID: "A", AmountMC: mc} }, 1, money.Max},
		"payment": {func(mc money.MC) Command {
			return OpenPayment{PaymentID: "top_1", AccountID: "A", AmountMC: mc}
		}, 1, money.Max},
		"goodwill": {func(mc money.MC) Command {
			return GiveGoodwill{GoodwillID: "g", AccountID: "A", AmountMC: mc, Reason: "sorry"}
		}, 1, money.Max},
		"new connection": {func(mc money.MC) Command {
			return Connect{ConnectionID: "new", AppID: "q", AccountID: "A", RequestedMC: mc}
		}, 0, money.Max},
		"connected again": {func(mc money.MC) Command {
			return Connect{ConnectionID: "new", AppID: "p", AccountID: "A", RequestedMC: mc}
		}, 0, money.Max},
		"daily limit of a connection": {func(mc money.MC) Command {
			return Connect{ConnectionID: "new", AppID: "q", AccountID: "A", VelocityLimitMC: &mc}
		}, 0, math.MaxInt64},
		"cap": {func(mc money.MC) Command { return ChangeCap{ConnectionID: "C", TargetMC: mc} }, 0, money.Max},
		"daily limit": {func(mc money.MC) Command {
			return SetVelocityLimit{ConnectionID: "C", LimitMC: &mc}
		}, 0, math.MaxInt64},
		"requested cap": {func(mc money.MC) Command {
			return RequestAllocation{ConnectionID: "C", AppID: "p", TargetMC: mc, MaxMC: money.Max}
		}, 1001, money.Max},
		"child": {func(mc money.MC) Command {
			return Delegate{Child{
				ID: "chd_1", ConnectionID: "C", AmountMC: mc, Key: "k", ExpiresUS: fitTime.Add(time.Hour).UnixMicro(),
			}}
		}, 1, 1000},
	} {
		for _, mc := range []money.MC{-1, 0, 1, c.low - 1, c.low, c.top, c.top + 1, money.Max + 1} {
			command, s := c.command(mc), newFunded()
			keys := NewRowKeys()
			keys.Add(command)
			for subject, width := range keys.Counters {
				s.Counters[subject] = &Counter{Spent: limits.Series{Width: width}}
			}
			_, err := Apply(s, command, fitTime)
			if allowed := c.low <= mc && mc <= c.top; allowed != (err == nil) {
				t.Errorf("%s of %d: %v", name, mc, err)
			} else if e, ok := errors.AsType[*apierr.Error](err); err != nil && (!ok || e.Code.Status/100 != 4) {
				t.Errorf("%s of %d: %v", name, mc, err)
			}
		}
	}
}

// TestHoldOfAnother holds on a connection in the name of another account or app, as only a fault of a caller does: the
// connection is not there.
func TestHoldOfAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		account, app string
		found        bool
	}{{"A", "p", true}, {"B", "p", false}, {"A", "q", false}, {"B", "q", false}} {
		s := newFunded()
		call := Call{ConnectionID: "C", AccountID: c.account, AppID: c.app, Key: "k", RequestID: "req_1", HoldMC: 10}
		_, err := Apply(s, Hold{Call: call, Claim: "claim"}, fitTime)
		e, _ := errors.AsType[*apierr.Error](err)
		if c.found != (err == nil) || !c.found && (e == nil || e.Code != apierr.NotFound) {
			t.Errorf("account %s, app %s: %v", c.account, c.app, err)
		}
		if held := s.Connections["C"].HeldMC; !c.found && held != 0 {
			t.Errorf("account %s, app %s: %d are held", c.account, c.app, held)
		}
	}
}

// TestThresholdNotices spends an allocation of 1000 in steps: its user is told once for each threshold that is crossed,
// of several at once for the highest alone, and not for a revoked connection.
func TestThresholdNotices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after money.MC
		revoked       bool
		want          []string
	}{
		{0, 499, false, nil},
		{499, 500, false, []string{NoticeAllocation50}},
		{500, 799, false, nil},
		{799, 800, false, []string{NoticeAllocation80}},
		{800, 999, false, nil},
		{999, 1000, false, []string{NoticeAllocation100}},
		{1000, 1000, false, nil},
		{0, 800, false, []string{NoticeAllocation80}},
		{0, 1000, false, []string{NoticeAllocation100}},
		{499, 1000, true, nil},
	} {
		s := newFunded()
		conn := s.Connections["C"]
		conn.ConsumedMC = c.after
		if c.revoked {
			conn.Status = Revoked
		}
		s.notifyThresholds(conn, c.before, fitTime.UnixMicro())
		var got []string
		for _, n := range s.Changes.Notices {
			got = append(got, n.Kind)
			if n.AccountID != "A" || n.ConnectionID != "C" || n.AppID != "p" || !s.Changes.MustSync {
				t.Errorf("%+v, must sync: %t", n, s.Changes.MustSync)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", fmt.Sprint(c.before, " to ", c.after, ", revoked: ", c.revoked), got, c.want)
		}
	}
}

// TestSettlementsNotify crosses each threshold by settlements, which tell it once.
func TestSettlementsNotify(t *testing.T) {
	t.Parallel()
	s := newFunded()
	for i, mc := range []money.MC{499, 1, 299, 1, 199, 1} {
		call := Call{
			ConnectionID: "C", AccountID: "A", AppID: "p", Key: fmt.Sprint(i), RequestID: fmt.Sprint("req_", i),
			HoldMC: mc,
		}
		if _, err := Apply(s, Hold{Call: call, Claim: "claim"}, fitTime); err != nil {
			t.Fatal(err)
		}
		_, err := Apply(s, Settle{
			Call: call, Attempt: 1, Settlement: Settled, Usage: Usage{JSON: "{}"},
			Charge: Amounts{ProviderCostMC: mc, UserChargeMC: mc},
		}, fitTime)
		if want := (i + 1) / 2; err != nil || len(s.Changes.Notices) != want {
			t.Errorf("after %d calls: %d notices, want %d; %v", i+1, len(s.Changes.Notices), want, err)
		}
	}
}
