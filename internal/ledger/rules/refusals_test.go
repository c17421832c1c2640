package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// TestExhausted: a call that the allocation does not cover is told whether it may fit when calls in flight end, is
// larger than what is left, or finds nothing left, and whether a higher cap would help.
func TestExhausted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		consumed, held, hold, tierCap money.MC
		reason                        string
		increase                      bool
	}{
		{0, 0, 1000, 0, "", false},
		{0, 0, 1001, 0, "too_large", true},
		{999, 0, 2, 0, "too_large", true},
		{1000, 0, 1, 0, "exhausted", true},
		{400, 600, 600, 0, "held_by_in_flight", false},
		{400, 600, 601, 0, "too_large", true},
		{400, 500, 600, 0, "held_by_in_flight", false},
		{0, 0, 500, 500, "", false},
		{0, 0, 501, 500, "too_large", false}, // under the highest cap of the tier, too
		{500, 0, 1, 500, "exhausted", false},
		{100, 400, 400, 500, "held_by_in_flight", false},
	} {
		s := newFunded()
		conn := s.Connections["C"]
		conn.ConsumedMC, conn.HeldMC = c.consumed, c.held
		hold := Hold{Call: callOf("k", c.hold), MaxCapMC: c.tierCap}
		_, err := applyTo(s, hold)
		e, _ := errors.AsType[*apierr.Error](err)
		if (err == nil) != (c.reason == "") || err != nil && (e == nil || e.Code != apierr.AllocationExhausted) {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if e != nil && (e.Details["reason"] != c.reason || e.NoIncrease == c.increase ||
			e.Final == (c.reason == "held_by_in_flight") || e.Details["held_mc"] != c.held ||
			e.Details["required_mc"] != c.hold) {
			t.Errorf("%+v: %+v, increase %t", c, e.Details, !e.NoIncrease)
		}
	}
}

// TestGuardrails: a feature's bound of a single call holds whoever pays, by what the call holds.
func TestGuardrails(t *testing.T) {
	t.Parallel()
	most := money.MC(50)
	for _, c := range []struct {
		hold, free money.MC // 0 = no free credit
		allowed    bool
	}{{50, 0, true}, {51, 0, false}, {100, 50, true}, {100, 51, false}} {
		hold := Hold{Call: callOf("k", c.hold), MaxHoldMC: &most}
		if c.free > 0 {
			hold.FreeCredit = &FreeCreditHold{Terms: "{}", HoldMC: c.free}
		}
		if s := newFunded(); !c.allowed {
			refused(t, s, hold, apierr.FeatureCostExceeded)
		} else if r := must(t, s, hold); r.Call.HoldMC != max(c.free, c.hold*money.MC(1-intOf(c.free > 0))) {
			t.Errorf("%+v: %+v", c, r.Call)
		}
	}
}

// TestTierCaps: a cap is raised up to what the app's tier allows; one that is above it already may stay or fall.
func TestTierCaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target, most money.MC
		allowed      bool
	}{
		{1001, 0, true}, {1500, 1500, true}, {1501, 1500, false}, {1000, 500, true}, {999, 500, true},
		{1001, 500, false},
	} {
		change := ChangeCap{ConnectionID: "C", TargetMC: c.target, MaxMC: c.most}
		if s := newFunded(); !c.allowed {
			refused(t, s, change, apierr.InvalidRequest)
		} else if r := must(t, s, change); r.Connection.AllocationMC != c.target || !s.Changes.Settings["C"] ||
			r.Connection.LimitsUS != fitTime.UnixMicro() {
			t.Errorf("%+v: %+v", c, r.Connection)
		}
	}
	s := newFunded()
	s.Balances["A"].AvailableMC = -5
	must(t, s, ChangeCap{ConnectionID: "C", TargetMC: 1000})
	s.Balances["A"].AvailableMC = 9
	must(t, s, ChangeCap{ConnectionID: "C", TargetMC: 1009})
	refused(t, s, ChangeCap{ConnectionID: "C", TargetMC: 1010}, apierr.InvalidRequest)
}

// TestConnectAgain: who connects again moves the limits of the live connection, but for those that stay as they were
// shown, and those that its user has decided on since.
func TestConnectAgain(t *testing.T) {
	t.Parallel()
	amount := func(mc money.MC) *money.MC { return &mc }
	for name, c := range map[string]struct {
		keepCap, keepVelocity bool
		approved              time.Duration // after the user's last decision
		cap, velocity         money.MC
	}{
		"both moved":              {false, false, time.Second, 500, 7},
		"the cap stays":           {true, false, time.Second, 1000, 7},
		"the daily limit stays":   {false, true, time.Second, 500, 3},
		"approved at the time":    {false, false, 0, 500, 7},
		"decided on since, later": {false, false, -time.Second, 1000, 3},
	} {
		s := newFunded()
		conn, decided := s.Connections["C"], fitTime.Add(-time.Hour)
		conn.VelocityLimitMC, conn.LimitsUS, conn.ApprovedUS = amount(3), decided.UnixMicro(), 5
		r := must(t, s, Connect{
			ConnectionID: "N", AppID: "p", AccountID: "A", RequestedMC: 500, VelocityLimitMC: amount(7),
			KeepCap: c.keepCap, KeepVelocity: c.keepVelocity, ApprovedUS: decided.Add(c.approved).UnixMicro(),
		}).Connection
		if r.ID != "C" || r.AllocationMC != c.cap || *r.VelocityLimitMC != c.velocity || s.Connections["N"] != nil ||
			r.LimitsUS != decided.Add(max(c.approved, 0)).UnixMicro() || !s.Changes.Settings["C"] ||
			r.ApprovedUS != decided.Add(c.approved).UnixMicro() {
			t.Errorf("%s: %+v, %d", name, r, *r.VelocityLimitMC)
		}
	}
}

// TestFasterSpend: a user who resumes allows one to three times the usual pace; 0 leaves it.
func TestFasterSpend(t *testing.T) {
	t.Parallel()
	for faster, want := range map[int64]int64{-1: 0, 0: 2, 1: 1, 3: 3, 4: 0} {
		s := newFunded()
		s.Connections["C"].FasterSpend = 2
		must(t, s, Freeze{ConnectionID: "C", By: FrozenByUser},
			Freeze{ConnectionID: "C", By: FrozenByOperator, Subject: "o"})
		s.Changes = NewState().Changes
		resume := Resume{ConnectionID: "C", FasterSpend: faster}
		if want == 0 {
			refused(t, s, resume, apierr.InvalidRequest)
		} else if r := must(t, s, resume); r.Connection.FasterSpend != want || r.Connection.Status != Frozen ||
			s.Changes.Settings["C"] != (faster > 0) {
			t.Errorf("%d: %+v, settings %v", faster, r.Connection, s.Changes.Settings)
		}
	}
}

// TestRefusedResumes: who may not end what keeps a connection stopped is told why.
func TestRefusedResumes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cause   FreezeCause
		subject string
		resume  Resume
		want    string // a part of the text; "" = it is resumed
	}{
		{FrozenByUser, "", Resume{}, ""},
		{FrozenByUser, "", Resume{By: FrozenByOperator}, "only the user resumes it"},
		{FrozenByRisk, "", Resume{}, ""},
		{FrozenByRisk, "", Resume{By: FrozenByOperator}, ""},
		{FrozenByPayment, BelowZero, Resume{}, ""},
		{FrozenByPayment, BelowZero, Resume{By: FrozenByOperator}, ""},
		{FrozenByPayment, "du", Resume{}, "until your bank has decided"},
		{FrozenByPayment, "du", Resume{DespiteDispute: true}, "until your bank has decided"},
		{FrozenByPayment, "du", Resume{By: FrozenByOperator}, "is disputed (du)"},
		{FrozenByPayment, "du", Resume{By: FrozenByOperator, DespiteDispute: true}, ""},
		{FrozenByOperator, "o", Resume{}, "contact support"},
		{FrozenByOperator, "o", Resume{By: FrozenByOperator}, ""},
		{FrozenByOperator, Suspension, Resume{}, "contact support"},
		{FrozenByOperator, Suspension, Resume{By: FrozenByOperator}, "lifting the suspension"},
		{FrozenByRisk, "", Resume{OnlyFrozenBy: FrozenByUser}, "paused for another reason"},
		{FrozenByRisk, "", Resume{OnlyFrozenBy: FrozenByRisk}, ""},
		{FrozenByUser, "", Resume{Shown: []string{"risk::5"}}, "has changed since"},
		{FrozenByUser, "", Resume{Shown: []string{fmt.Sprint("user::", fitTime.UnixMicro())}}, ""},
	} {
		s := newFunded()
		s.addFreeze(s.Connections["C"], FreezeRow{Cause: c.cause, Subject: c.subject}, fitTime.UnixMicro())
		c.resume.ConnectionID = "C"
		before := s.digest()
		r, err := applyTo(s, c.resume)
		if (err == nil) != (c.want == "") || err == nil && r.Connection.Status != Active ||
			err != nil && (!strings.Contains(err.Error(), c.want) || s.digest() != before) {
			t.Errorf("%s %s by %+v: %v, %s", c.cause, c.subject, c.resume, err, r.Connection.Status)
		}
	}
	s := newFunded()
	must(t, s, Freeze{ConnectionID: "C", By: FrozenByUser})
	s.Balances["A"].AvailableMC = -1
	refused(t, s, Resume{ConnectionID: "C"}, apierr.InvalidRequest)
}

// TestRiskPace: a settlement that takes the spend of ten minutes over a threshold warns the app, once in that time, and
// stops the connection beyond the last. Fake money is never too fast.
func TestRiskPace(t *testing.T) {
	t.Parallel()
	frozen := []string{"connection.frozen risk", NoticeFrozen}
	updated := []string{"connection.updated risk", NoticeFrozen}
	risk := &limits.RiskThresholds{FloorMC: 10, Warn: 5, Throttle: 10, Freeze: 20}
	for name, c := range map[string]struct {
		risk   *limits.RiskThresholds
		status ConnectionStatus
		warned time.Duration // ago; 0 = never
		charge money.MC
		want   []string
		frozen FreezeCause
	}{
		"usual":                 {risk, Active, 0, 49, nil, ""},
		"fast":                  {risk, Active, 0, 51, []string{"connection.risk_warning"}, ""},
		"fast, warned just now": {risk, Active, warningInterval - time.Microsecond, 51, nil, ""},
		"fast, warned before":   {risk, Active, warningInterval, 51, []string{"connection.risk_warning"}, ""},
		"too fast":              {risk, Active, 0, 201, frozen, FrozenByRisk},
		"fake money":            {nil, Active, 0, 201, nil, ""},
		"fast, and paused":      {risk, Frozen, 0, 51, nil, FrozenByUser},
		"too fast, and paused":  {risk, Frozen, 0, 201, updated, FrozenByRisk},
		"too fast, and revoked": {risk, Revoked, 0, 201, nil, ""},
		"as fast as is allowed": {risk, Active, 0, 199, []string{"connection.risk_warning"}, ""},
	} {
		s, call := newFunded(), callOf("k", c.charge)
		conn := s.Connections["C"]
		conn.Spent.Width, conn.FasterSpend = limits.SpendBucketWidth, 1
		must(t, s, Hold{Call: call})
		if conn.Status = c.status; c.status == Frozen {
			conn.FrozenBy = FrozenByUser
		}
		if c.warned > 0 {
			conn.WarnedUS = fitTime.Add(-c.warned).UnixMicro()
		}
		must(t, s, Settle{
			Call: call, Attempt: 1, Settlement: Settled, Risk: c.risk,
			Charge: Amounts{ProviderCostMC: c.charge, UserChargeMC: c.charge},
		})
		if got := told(s, 0, 0); !slices.Equal(got, c.want) || conn.FrozenBy != c.frozen {
			t.Errorf("%s: told %q, want %q; frozen by %q", name, got, c.want, conn.FrozenBy)
		}
	}
}

// TestEmittedEvents: what is told besides the money has its number on a connection, and none of an app as a whole.
func TestEmittedEvents(t *testing.T) {
	t.Parallel()
	s := newFunded()
	s.Connections["C"].EventSeq = 4
	keys := NewRowKeys()
	if keys.Add(EmitEvent{ConnectionID: "C"}); len(keys.Connections) != 1 {
		t.Errorf("loaded are %v", keys.Connections)
	}
	must(t, s, EmitEvent{ConnectionID: "C", Type: "session.ended", Data: "{}"},
		EmitAppEvent{AppID: "q", Type: "app.suspended", Data: `{"a":1}`})
	if e := s.Changes.Events; len(e) != 2 || e[0].Seq != 5 || e[0].AppID != "p" || e[0].ConnectionID != "C" ||
		e[0].Type != "session.ended" || e[1].Seq != 0 || e[1].ConnectionID != "" || e[1].AppID != "q" ||
		e[1].Type != "app.suspended" || e[1].Data != `{"a":1}` || s.Connections["C"].EventSeq != 5 ||
		!s.Changes.Settings["C"] || !s.Changes.MustSync {
		t.Errorf("%+v", e)
	}
	for _, c := range []Command{EmitAppEvent{AppID: "q"}, RecordRefusal{Refusal{RequestID: "req_1"}}} {
		s := newFunded()
		if must(t, s, c); !s.Changes.MustSync {
			t.Errorf("%T may be lost after it was answered", c)
		}
		if r := s.Changes.Refusals; len(r) == 1 &&
			(r[0].RequestID != "req_1" || r[0].CreatedUS != fitTime.UnixMicro()) {
			t.Errorf("%+v", r)
		}
	}
}

// TestEndedTrees: the end of a tree of children tells of each what came back, what calls still hold, its own and those
// below it, and what is spent.
func TestEndedTrees(t *testing.T) {
	t.Parallel()
	s, parent := newFunded(), ""
	for i, amount := range []money.MC{400, 300, 200} {
		id := fmt.Sprint("chd_", i)
		must(t, s, Delegate{Child{
			ID: id, ConnectionID: "C", ParentID: parent, AmountMC: amount,
			ExpiresUS: fitTime.Add(time.Hour).UnixMicro(),
		}})
		for j, mc := range []money.MC{7, money.MC(10 * (i + 1))} { // one is settled, one runs
			call := callOf(ChildKey(id, fmt.Sprint(j)), mc)
			call.RequestID = fmt.Sprint("req_", i, j)
			if call = must(t, s, Hold{Call: call, ChildID: id}).Call; j == 0 {
				must(t, s, Settle{
					Call: call, Attempt: 1, Settlement: Settled, Charge: Amounts{ProviderCostMC: 5, UserChargeMC: 5},
				})
			}
		}
		parent = id
	}
	events := len(s.Changes.Events)
	end := EndChild{ConnectionID: "C", ChildID: "chd_0", By: EndedByUser}
	if r := must(t, s, end); r.ReleasedMC != 400-15-60 || r.Connection.DelegatedMC != 60 ||
		r.Connection.ChildHeldMC != 60 {
		t.Errorf("%+v", r)
	}
	for i, want := range []string{
		`"held_mc":10,`, `"returned_mc":325,"spent_mc":15,`, `"ended_by":"user"`,
		`"held_mc":20,`, `"returned_mc":240,"spent_mc":10,`, `"ended_by":"parent"`,
		`"held_mc":30,`, `"returned_mc":165,"spent_mc":5,`, `"ended_by":"parent"`,
	} {
		if e := s.Changes.Events[events:]; len(e) != 3 || !strings.Contains(e[i/3].Data, want) {
			t.Errorf("event %d of %d has no %s: %s", i/3, len(e), want, e[i/3].Data)
		}
	}
	if r := must(t, s, end); r.Outcome != Done || r.ReleasedMC != 0 || len(s.Changes.Events) != events+3 {
		t.Errorf("ended again: %+v", r)
	}
}
