package rules

import (
	"cmp"
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

// applyTo applies a command to a state that has the counters which it names.
func applyTo(s *State, c Command) (Result, error) {
	keys := NewRowKeys()
	keys.Add(c)
	for subject, width := range keys.Counters {
		if s.Counters[subject] == nil {
			s.Counters[subject] = &Counter{Spent: limits.Series{Width: width}}
		}
	}
	return Apply(s, c, fitTime)
}

// must applies commands that succeed, and returns the last result.
func must(t *testing.T, s *State, commands ...Command) (r Result) {
	t.Helper()
	for _, c := range commands {
		var err error
		if r, err = applyTo(s, c); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	return r
}

// refused checks that a command is refused with a code, and leaves the state as it was.
func refused(t *testing.T, s *State, c Command, code apierr.Code) {
	t.Helper()
	before := s.digest()
	_, err := applyTo(s, c)
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != code || s.digest() != before {
		t.Errorf("%T is not refused as %s, or has changed something: %v", c, code.Name, err)
	}
}

// callOf is a call on the connection of newFunded.
func callOf(key string, holdMC money.MC) Call {
	return Call{
		ConnectionID: "C", AccountID: "A", AppID: "p", Key: key, RequestID: "req_" + key, Fingerprint: "f",
		HoldMC: holdMC,
	}
}

// TestWhatIsNotThere gives each command that needs a row the name of another one.
func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	none := callOf("k", 1)
	none.ConnectionID = "none"
	for _, c := range []Command{
		Hold{Call: none}, Settle{Call: none}, Defer{Call: none}, Release{Call: none},
		ChangeCap{ConnectionID: "none"}, SetVelocityLimit{ConnectionID: "none"}, Revoke{ConnectionID: "none"},
		Freeze{ConnectionID: "none", By: FrozenByUser}, Resume{ConnectionID: "none"}, EmitEvent{ConnectionID: "none"},
		RequestAllocation{ConnectionID: "none"}, DecideAllocationRequest{RequestID: "none", AccountID: "A"},
		Delegate{Child{ConnectionID: "none"}}, EndChild{ConnectionID: "C", ChildID: "none"},
		EndChild{ConnectionID: "none", ChildID: "none"}, EndFamily{ConnectionID: "none"},
		MarkPaymentPaid{PaymentID: "none"}, SettlePayment{"none"}, FailPayment{PaymentID: "none"},
		ReopenPayment{"none"},
		ReversePayment{PaymentID: "none"}, DisputePayment{PaymentID: "none"}, EndDispute{PaymentID: "none"},
		WithdrawGoodwill{GoodwillID: "none"}, Reverse{EntryID: "none", AccountID: "A", Reason: "test"},
		RefundCall{EntryID: "none", AccountID: "A", AppID: "p"},
		EndPayout{PayoutID: "none", AppID: "p", TransferID: "tr"},
		TakeDisputedMargin{Loss: Loss{AccountID: "none"}},
	} {
		refused(t, newFunded(), c, apierr.NotFound)
	}
}

// TestReceiptsFail: a call whose receipt cannot be made for its event is neither settled nor refunded.
func TestReceiptsFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := func(*Entry) (string, error) { return "", broken }
	s, call := newFunded(), callOf("k", 10)
	must(t, s, Hold{Call: call}, Defer{Call: call, Attempt: 1})
	settle := Settle{Call: call, Attempt: 1, Settlement: Settled, Charge: Amounts{UserChargeMC: 5, ProviderCostMC: 5}}
	for name, receipt := range map[string]func(*Entry) (string, error){"none": nil, "broken": fails} {
		settle.Receipt = receipt
		before := s.digest()
		if _, err := applyTo(s, settle); err == nil || errors.Is(err, broken) != (name == "broken") ||
			s.digest() != before {
			t.Errorf("settled with a receipt that is %s: %v", name, err)
		}
	}
	settle.Receipt = func(*Entry) (string, error) { return "{}", nil }
	row := must(t, s, settle).Entry
	if !slices.Equal(s.Changes.EndedDeferrals, []string{"req_k"}) {
		t.Errorf("these are no longer asked for: %q", s.Changes.EndedDeferrals)
	}
	for usage, want := range map[string]string{"": "broken", `{"cache_saved_mc":x}`: "usage of led_k"} {
		reverse := Reverse{EntryID: row.ID, AccountID: "A", Reason: "test"}
		if row.Usage = usage; usage == "" {
			reverse.Receipt = fails
		}
		s.AddOriginal(row, false)
		before := s.digest()
		if _, err := applyTo(s, reverse); err == nil || !strings.Contains(err.Error(), want) || s.digest() != before {
			t.Errorf("refunded with usage %q: %v", usage, err)
		}
	}
}

// TestRefundsOfCachedCalls takes from the totals of the day what the usage of a row says that the cache has saved.
func TestRefundsOfCachedCalls(t *testing.T) {
	t.Parallel()
	for usage, saved := range map[string]money.MC{
		"": 0, "{}": 0, `{"input_tokens":3}`: 0, `{"cache_saved_mc":7}`: 7, `{"cache_saved_mc":0}`: 0,
	} {
		s, call := newFunded(), callOf("k", 10)
		must(t, s, Hold{Call: call})
		row := must(t, s, Settle{
			Call: call, Attempt: 1, Settlement: Settled, Usage: Usage{JSON: usage, CacheSavedMC: saved},
			Charge: Amounts{ProviderCostMC: 5, SvcFeeMC: 1, DevMarginMC: 2, UserChargeMC: 8},
		}).Entry
		s.AddOriginal(row, false)
		back := must(t, s, Reverse{EntryID: row.ID, AccountID: "A", Reason: "test"}).Entry
		total := s.Changes.DailyTotals[DailyTotalsKey{"C", "2026-11-21", "", ""}]
		if back.ReservedDeltaMC != 8 || back.ConsumedDeltaMC != -8 || back.RemainingMC != 1000 ||
			*total != (DailyTotalsDelta{AppID: "p", AccountID: "A", Calls: 1}) {
			t.Errorf("usage %q: the day has %+v after the refund %+v", usage, *total, back)
		}
		refused(t, s, Reverse{EntryID: row.ID, AccountID: "A", Reason: "again"}, apierr.InvalidRequest)
	}
}

// TestBudgets charges calls that share a budget, or have a bound of their own: the user pays no more, the service's fee
// bears the rest, and the row names the bound that has lowered its charge.
func TestBudgets(t *testing.T) {
	t.Parallel()
	s, budget := newFunded(), &Budget{Subject: VoiceSubject("s"), MaxMC: 100}
	amount := func(mc money.MC) *money.MC { return &mc }
	for i, c := range []struct {
		budget            *Budget
		bound             *money.MC
		charge            money.MC
		usage             string
		charged           money.MC
		rowUsage          string
		counted, consumed money.MC
	}{
		{budget, nil, 64, "{}", 64, "{}", 64, 64},
		{budget, nil, 64, "{}", 36, `{"bound_mc":36}`, 100, 100},
		{budget, nil, 64, `{"n":1}`, 0, `{"n":1,"bound_mc":0}`, 100, 100},
		{&Budget{budget.Subject, 90}, nil, 64, "{}", 0, `{"bound_mc":0}`, 100, 100}, // lowered below what is spent
		{nil, amount(64), 64, "{}", 64, "{}", 100, 164},
		{nil, amount(63), 64, "{}", 63, `{"bound_mc":63}`, 100, 227},
		{nil, amount(773), 900, "{}", 773, "{}", 100, 1000}, // the allocation has no more
	} {
		call := callOf(fmt.Sprint(i), min(c.charge, 70))
		must(t, s, Hold{Call: call})
		charge := Amounts{ProviderCostMC: c.charge - 14, SvcFeeMC: 4, DevMarginMC: 10, UserChargeMC: c.charge}
		r := must(t, s, Settle{
			Call: call, Attempt: 1, Settlement: Settled, Charge: charge, Usage: Usage{JSON: c.usage}, Budget: c.budget,
			MaxChargeMC: c.bound,
		})
		short := c.charge - c.charged
		charge.UserChargeMC, charge.SvcFeeMC = c.charged, 4-short
		counted := money.MC(s.Counters[budget.Subject].Spent.Sum(time.Time{}, 0))
		if r.Entry.Amounts != charge || r.Shortfall != short || r.Entry.Usage != c.rowUsage || counted != c.counted ||
			s.Connections["C"].ConsumedMC != c.consumed || c.budget != nil && c.charged > 0 &&
			!s.Changes.Counters[budget.Subject] {
			t.Errorf("call %d: %+v; the budget has counted %d, consumed are %d", i, r.Entry, counted,
				s.Connections["C"].ConsumedMC)
		}
	}
}

// told returns what has been told of connection C since: types of events with the cause that they show, and notices.
func told(s *State, events, notices int) (list []string) {
	for _, e := range s.Changes.Events[events:] {
		_, cause, _ := strings.Cut(e.Data, `"freeze":{"cause":"`)
		cause, _, _ = strings.Cut(cause, `"`)
		list = append(list, strings.TrimSuffix(e.Type+" "+cause, " "))
	}
	for _, n := range s.Changes.Notices[notices:] {
		list = append(list, n.Kind)
	}
	return list
}

// TestFreezesAreTold stops a connection for several causes, and ends them. The app hears of each change of what the
// connection shows, its user of a cause that somebody else has added, and nobody of what does not show.
func TestFreezesAreTold(t *testing.T) {
	t.Parallel()
	s := newFunded()
	s.AddPayment(&Payment{ID: "top_1", AccountID: "A", AmountMC: 1, Status: PaymentSettled})
	byOperator := func(subject, reason string) Freeze {
		return Freeze{ConnectionID: "C", By: FrozenByOperator, Subject: subject, Reason: reason}
	}
	const frozen, updated = "connection.frozen ", "connection.updated "
	var stored []FreezeRow
	for i, c := range []struct {
		command Command
		want    []string
		stops   int
	}{
		{Freeze{ConnectionID: "C", By: FrozenByUser}, []string{frozen + "user"}, 1},
		{Freeze{ConnectionID: "C", By: FrozenByUser}, nil, 2},
		{Freeze{ConnectionID: "C", By: FrozenByRisk}, []string{updated + "risk", NoticeFrozen}, 2},
		{Freeze{ConnectionID: "C", By: FrozenByUser}, nil, 3}, // weaker
		{DisputePayment{PaymentID: "top_1", DisputeID: "du"}, []string{updated + "payment", NoticeFrozenPayment}, 3},
		{byOperator("o1", "abuse"), []string{updated + "operator", NoticeFrozenOperator}, 4},
		{byOperator("o2", "spam"), nil, 5}, // as strong
		{Resume{ConnectionID: "C", By: FrozenByOperator}, []string{updated + "payment"}, 5},
		{Resume{ConnectionID: "C"}, nil, 5},
		{EndDispute{PaymentID: "top_1", DisputeID: "du"}, []string{"connection.resumed"}, 5},
		{Freeze{ConnectionID: "C", By: FrozenByRisk}, []string{frozen + "risk", NoticeFrozen}, 5},
		{byOperator("o1", "abuse"), []string{updated + "operator", NoticeFrozenOperator}, 6},
		{byOperator("o2", "spam"), nil, 7},
		{ResumeAccount{AccountID: "A", Subject: "o1"}, []string{updated + "operator"}, 7}, // the reason is another one
		{ResumeAccount{AccountID: "A", Subject: "o1"}, nil, 7},
		{Revoke{ConnectionID: "C", StopCalls: true}, []string{"connection.revoked"}, 8},
	} {
		events, notices := len(s.Changes.Events), len(s.Changes.Notices)
		s.Changes.EndedFreezes, s.Changes.Freezes = nil, nil
		must(t, s, c.command)
		for _, f := range s.Changes.EndedFreezes {
			stored = slices.DeleteFunc(stored, func(old FreezeRow) bool {
				return f.Cause == "" || f.Cause == old.Cause && f.Subject == old.Subject
			})
		}
		if stored = append(stored, s.Changes.Freezes...); !slices.Equal(stored, s.freezes["C"]) {
			t.Errorf("step %d, %T: stored are %+v of %+v", i, c.command, stored, s.freezes["C"])
		}
		if got := told(s, events, notices); !slices.Equal(got, c.want) || len(s.Changes.Stops) != c.stops {
			t.Errorf("step %d, %T: told %q, want %q; %d stops, want %d", i, c.command, got, c.want,
				len(s.Changes.Stops), c.stops)
		}
	}
	for _, c := range []Command{
		Freeze{ConnectionID: "C", By: FrozenByUser}, Resume{ConnectionID: "C"}, SetVelocityLimit{ConnectionID: "C"},
	} {
		refused(t, s, c, apierr.ConnectionRevoked)
	}
}

// TestFreezesOfOlderNodes: an older node resumes a connection and leaves its causes, which end with the next freeze.
func TestFreezesOfOlderNodes(t *testing.T) {
	t.Parallel()
	s := newFunded()
	s.AddFreeze(FreezeRow{ConnectionID: "C", Cause: FrozenByOperator, Subject: "old"})
	must(t, s, Freeze{ConnectionID: "C", By: FrozenByUser})
	if !slices.Equal(s.Changes.EndedFreezes, []FreezeRow{{ConnectionID: "C"}}) {
		t.Errorf("of the old causes these end: %+v", s.Changes.EndedFreezes)
	}
	if r := must(t, s, Resume{ConnectionID: "C"}); r.Connection.Status != Active {
		t.Errorf("%+v", r.Connection)
	}
	for cause, allowed := range map[FreezeCause]bool{
		"": true, FrozenByUser: true, FrozenByRisk: true, FrozenByPayment: false, FrozenByOperator: false,
	} { // it stops one, and keeps the cause with the connection alone
		s := newFunded()
		s.Connections["C"].Status, s.Connections["C"].FrozenBy = Frozen, cause
		if _, err := applyTo(s, Resume{ConnectionID: "C"}); (err == nil) != allowed {
			t.Errorf("frozen by %q: %v", cause, err)
		}
	}
}

// TestAccountsArePausedInOrder: the connections of an account are paused in the order of their ids, so that what is
// told of them comes in one order on every node.
func TestAccountsArePausedInOrder(t *testing.T) {
	t.Parallel()
	s, want := newFunded(), []string{"C"}
	for i := range 9 {
		id := fmt.Sprint("D", i)
		s.Connections[id] = &Connection{ID: id, AppID: id, AccountID: "A", Status: Active}
		want = append(want, id)
	}
	s.Connections["B"] = &Connection{ID: "B", AccountID: "B", Status: Active}
	s.Connections["R"] = &Connection{ID: "R", AccountID: "A", Status: Revoked}
	pause, keys := PauseAccount{AccountID: "A", By: FrozenByUser}, NewRowKeys()
	must(t, s, pause)
	var got []string
	for _, e := range s.Changes.Events {
		got = append(got, e.ConnectionID)
	}
	if keys.Add(pause); !slices.Equal(got, want) || !keys.Accounts["A"] || keys.ConnectionsOf != "A" {
		t.Errorf("paused %q, want %q; locked %v", got, want, keys.Accounts)
	}
}

// TestEstimatesOfReleases names what an estimate counts that takes the place of a release.
func TestEstimatesOfReleases(t *testing.T) {
	t.Parallel()
	keys := NewRowKeys()
	keys.Add(Release{Call: callOf("k", 1), Unbilled: &Unbilled{Estimate: &Settle{
		Call: callOf("k", 1), Budget: &Budget{Subject: "voice/s"},
	}}})
	_, hasBudget := keys.Counters["voice/s"]
	_, hasDay := keys.Counters[UnbilledSubject("p", "A")]
	if !hasBudget || !hasDay || !keys.Accounts["A"] {
		t.Errorf("%+v", keys)
	}
}

// TestFindLive: the live connection of a pair is found among others, and those that are revoked.
func TestFindLive(t *testing.T) {
	t.Parallel()
	s := NewState()
	for _, c := range []*Connection{
		{ID: "old", AppID: "p", AccountID: "A", Status: Revoked},
		{ID: "live", AppID: "p", AccountID: "A", Status: Frozen},
		{ID: "other", AppID: "q", AccountID: "A", Status: Active},
	} {
		s.Connections[c.ID] = c
	}
	s.FindLive(map[AppAccount]bool{{"p", "A"}: true, {"r", "A"}: true})
	if len(s.live) != 1 || s.live[AppAccount{"p", "A"}] != "live" {
		t.Errorf("%v", s.live)
	}
}

// TestAttempts: a call that is tried again keeps its request, and its attempts are numbered.
func TestAttempts(t *testing.T) {
	t.Parallel()
	s, call := newFunded(), callOf("k", 10)
	for attempt := int64(1); attempt < 4; attempt++ {
		call.RequestID = fmt.Sprint("req_", attempt)
		r := must(t, s, Hold{Call: call, Claim: call.RequestID})
		if r.Attempt != attempt || r.RequestID != "req_1" || r.Call.RequestID != "req_1" ||
			s.Connections["C"].HeldMC != 10 {
			t.Errorf("attempt %d: %+v", attempt, r)
		}
		for n := range attempt { // the late ones change nothing
			if r := must(t, s, Release{Call: r.Call, Attempt: n}); r.Outcome != Fenced {
				t.Errorf("attempt %d is released by %d: %+v", attempt, n, r)
			}
			if r := must(t, s, Settle{Call: r.Call, Attempt: n}); r.Outcome != Fenced {
				t.Errorf("attempt %d is settled by %d: %+v", attempt, n, r)
			}
		}
		must(t, s, Release{Call: r.Call, Attempt: attempt})
	}
	last := must(t, s, Hold{Call: call}).Call
	must(t, s, Settle{Call: last, Attempt: 4, Settlement: Settled, Charge: Amounts{UserChargeMC: 1}})
	for _, c := range []struct { // a release whose answer was lost, of what was charged instead
		unbilled *Unbilled
		want     Outcome
	}{{nil, Fenced}, {&Unbilled{}, Fenced}, {&Unbilled{Estimate: &Settle{Call: last}}, Done}} {
		if r := must(t, s, Release{Call: last, Attempt: 4, Unbilled: c.unbilled}); r.Outcome != c.want ||
			r.Estimated != (c.want == Done) {
			t.Errorf("released when it was billed: %+v", r)
		}
	}
	dry := Hold{Call: callOf("dry", 999), DryRun: true}
	before := s.digest()
	if r := must(t, s, dry); r.Attempt != 0 || s.digest() != before {
		t.Errorf("a dry run: %+v", r)
	}
	dry.HoldMC = 1000
	refused(t, s, dry, apierr.AllocationExhausted)
}

// TestRequestsSupersede: a newer request takes the place of one that is pending, of which the user was told.
func TestRequestsSupersede(t *testing.T) {
	t.Parallel()
	s := newFunded()
	ask := func(id string, mc money.MC) RequestAllocation {
		return RequestAllocation{RequestID: id, ConnectionID: "C", AppID: "p", TargetMC: mc, MaxMC: 5000}
	}
	must(t, s, ask("r1", 2000), ask("r2", 3000))
	first, second := s.requests.byID["r1"], s.requests.byID["r2"]
	if first.Status != RequestSuperseded || first.SupersededBy != "r2" || second.Status != RequestPending ||
		second.CurrentMC != 1000 || len(s.Changes.Notices) != 1 || len(s.Changes.AllocationRequests) != 3 {
		t.Errorf("%+v, %+v, %d notices", first, second, len(s.Changes.Notices))
	}
	decide := DecideAllocationRequest{RequestID: "r2", AccountID: "B", Approve: true, MaxMC: 5000}
	refused(t, s, decide, apierr.NotFound)
	decide.AccountID = "A"
	if r := must(t, s, decide); r.Connection.AllocationMC != 3000 || r.AllocationRequest.Status != RequestApproved {
		t.Errorf("%+v", r)
	}
	if r := must(t, s, DecideAllocationRequest{RequestID: "r1", AccountID: "A", Approve: true}); r.Outcome != Done {
		t.Errorf("a superseded one: %+v", r)
	}
	must(t, s, ask("r4", 4000))
	s.Connections["C"].Status = Revoked // as no command leaves it: it denies the request
	refused(t, s, DecideAllocationRequest{RequestID: "r4", AccountID: "A", Approve: true, MaxMC: 5000},
		apierr.ConnectionRevoked)
	s.Connections["C"].Status = Active
	refused(t, s, ask("r3", 3000), apierr.InvalidRequest)
	refused(t, s, ask("r3", 5001), apierr.InvalidRequest)
	other := ask("r3", 4000)
	other.AppID = "q"
	refused(t, s, other, apierr.NotFound)
}

// TestWhoPausesAccounts: its user without a word, the operator with a reason, nobody else.
func TestWhoPausesAccounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		by      FreezeCause
		reason  string
		allowed bool
	}{
		{FrozenByUser, "", true}, {FrozenByUser, "why", false}, {FrozenByOperator, "", true},
		{FrozenByOperator, "why", true}, {FrozenByRisk, "", false}, {FrozenByPayment, "why", false}, {"", "", false},
	} {
		s := newFunded()
		_, err := applyTo(s, PauseAccount{AccountID: "A", By: c.by, Reason: c.reason})
		if (err == nil) != c.allowed || (s.Connections["C"].Status == Frozen) != c.allowed ||
			c.allowed && s.Connections["C"].FrozenReason != c.reason {
			t.Errorf("%q with %q: %v, %+v", c.by, c.reason, err, s.Connections["C"])
		}
	}
}

// TestHeldByFreeCreditAgain sends a hold again whose answer was lost: it comes with the terms and the amount of who
// pays.
func TestHeldByFreeCreditAgain(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]*FreeCreditHold{
		PaidByWallet: nil, PaidByFreeCredit: {Terms: "free", HoldMC: 4},
	} {
		s := newFunded()
		hold := Hold{Call: callOf("k", 10), Claim: "claim", FreeCredit: free}
		hold.Terms = "wallet"
		first := must(t, s, hold)
		row := s.Holds[hold.key()]
		row.Terms = "" // the row may lack them
		hold.RequestID = "req_other"
		again := must(t, s, hold)
		if first.Call.PaidBy != name || again.Call.PaidBy != name || again.Call.Terms != first.Call.Terms ||
			again.Call.HoldMC != first.Call.HoldMC || again.RequestID != "req_k" || again.Call.RequestID != "req_k" ||
			again.Attempt != 1 {
			t.Errorf("%s: held as %+v, and then as %+v", name, first, again)
		}
		hold.Claim = "another"
		if r := must(t, s, hold); r.Outcome != Running {
			t.Errorf("%s: another claim: %+v", name, r)
		}
	}
}

// TestLimitsAreReportedAgain: a limit that an app was told of is told again once a tenth of it was free.
func TestLimitsAreReportedAgain(t *testing.T) {
	t.Parallel()
	limit := limits.Limit{
		Subject: "spend/p", Unit: limits.Spend, Window: VelocityWindow, Max: 100, Code: apierr.AppSpendLimited,
		Event: "app.spend_limit_reached",
	}
	for _, c := range []struct {
		spent, held, hold money.MC // the last one is held now
		reported          bool
	}{
		{80, 5, 5, true}, {80, 4, 5, false}, {0, 85, 5, true}, {0, 84, 5, false}, {85, 0, 5, true}, {84, 0, 5, false},
	} {
		s := newFunded()
		s.Counters[limit.Subject] = &Counter{LimitReported: true, HeldMC: c.held}
		s.Counters[limit.Subject].Spent = limits.Series{Width: limits.SpendBucketWidth}.Add(fitTime, int64(c.spent),
			VelocityWindow)
		must(t, s, Hold{Call: callOf("k", c.hold), Limits: []limits.Limit{limit}})
		if got := s.Counters[limit.Subject].LimitReported; got != c.reported || s.Changes.MustSync == c.reported {
			t.Errorf("%+v: reported %t, must sync %t", c, got, s.Changes.MustSync)
		}
	}
}

// TestParentsOfChildren: only a live child of the same connection passes on, and no longer than it lives.
func TestParentsOfChildren(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) int64 { return fitTime.Add(d).UnixMicro() }
	child := func(id, parent string, expires time.Duration) Delegate {
		return Delegate{Child{
			ID: id, ConnectionID: "C", ParentID: parent, FamilyID: "fam_" + id, AmountMC: 10, ExpiresUS: at(expires),
		}}
	}
	s := newFunded()
	s.Connections["D"] = &Connection{ID: "D", AppID: "q", AccountID: "A", Status: Active, AllocationMC: 1000}
	other := child("chd_other", "", time.Hour)
	other.Child.ConnectionID = "D"
	if made := must(t, s, child("chd_1", "", time.Hour)).Child; made.CreatedUS != at(0) || made.Depth != 1 {
		t.Errorf("%+v", made)
	}
	must(t, s, other, child("chd_ended", "", time.Hour),
		EndChild{ConnectionID: "C", ChildID: "chd_ended", By: EndedByApp})
	over := must(t, s, child("chd_over", "", time.Minute)).Child
	s.children[over.ID].ExpiresUS = at(0)
	for _, parent := range []string{"chd_other", "chd_ended", "chd_over", "chd_none"} {
		refused(t, s, child("chd_2", parent, time.Hour), apierr.ConnectionRevoked)
	}
	refused(t, s, child("chd_2", "chd_1", time.Hour+time.Microsecond), apierr.InvalidRequest)
	refused(t, s, child("chd_2", "chd_1", 0), apierr.InvalidRequest)
	for i, parent := range []string{"chd_1", "chd_2", "chd_3"} {
		must(t, s, child(fmt.Sprint("chd_", i+2), parent, time.Hour))
	}
	refused(t, s, child("chd_5", "chd_4", time.Hour), apierr.InvalidRequest) // too deep

	if r := must(t, s, EndFamily{ConnectionID: "C", FamilyID: "fam_none"}); r.Outcome != Done || r.ReleasedMC != 0 {
		t.Errorf("the end of no child: %+v", r)
	}
	if r := must(t, s, EndFamily{ConnectionID: "C"}); r.Outcome != Done {
		t.Errorf("the end of no family: %+v", r)
	}
	r := must(t, s, EndFamily{ConnectionID: "C", FamilyID: "fam_chd_1"})
	if r.Outcome != Applied || r.ReleasedMC != 10 || s.children["chd_4"].EndedBy != EndedByParent ||
		s.children["chd_over"].EndedUS != nil || s.children["chd_other"].EndedUS != nil {
		t.Errorf("%+v", r)
	}
	for i := len(s.liveChildren("C")); i < MaxLiveChildren; i++ {
		must(t, s, child(fmt.Sprint("chd_of_many_", i), "", time.Hour))
	}
	refused(t, s, child("chd_too_many", "", time.Hour), apierr.InvalidRequest)
}

// TestIntentsPayOnce: an intent pays for one top-up, and a top-up is paid by one intent.
func TestIntentsPayOnce(t *testing.T) {
	t.Parallel()
	s := newFunded()
	pay := func(payment, intent string) MarkPaymentPaid {
		return MarkPaymentPaid{PaymentID: payment, PaymentIntent: intent}
	}
	must(t, s, OpenPayment{PaymentID: "top_1", AccountID: "A", AmountMC: 5},
		OpenPayment{PaymentID: "top_2", AccountID: "A", AmountMC: 5}, pay("top_1", "pi_1"))
	refused(t, s, pay("top_2", "pi_1"), apierr.InvalidRequest)
	refused(t, s, pay("top_1", "pi_2"), apierr.InvalidRequest)
	refused(t, s, pay("top_2", ""), apierr.InvalidRequest)
	refused(t, s, OpenPayment{PaymentID: "top_1", AccountID: "A", AmountMC: 6}, apierr.InvalidRequest)
	refused(t, s, OpenPayment{PaymentID: "top_1", AccountID: "B", AmountMC: 5}, apierr.InvalidRequest)
	if r := must(t, s, pay("top_1", "pi_1")); r.Outcome != Done {
		t.Errorf("paid again: %+v", r)
	}
	loaded := newFunded() // as a store loads a payment that is paid
	p := *s.payments.byID["top_1"]
	loaded.AddPayment(&p)
	must(t, loaded, OpenPayment{PaymentID: "top_2", AccountID: "A", AmountMC: 5})
	refused(t, loaded, pay("top_2", "pi_1"), apierr.InvalidRequest)
}

// TestFullBalances: a balance may reach a thousand times the largest amount, and then takes no more.
func TestFullBalances(t *testing.T) {
	t.Parallel()
	for available, allowed := range map[money.MC]bool{money.Max * 1000: true, money.Max*1000 + 1: false} {
		for _, c := range []Command{
			TopUp{AccountID: "A", AmountMC: 1},
			GiveGoodwill{GoodwillID: "g", AccountID: "A", AmountMC: 1, Reason: "sorry"},
		} {
			s := newFunded()
			refused(t, s, GiveGoodwill{AccountID: "A", AmountMC: 1, Reason: "sorry"}, apierr.InvalidRequest)
			s.Balances["A"].AvailableMC = available
			if _, err := applyTo(s, c); (err == nil) != allowed {
				t.Errorf("%T with %d: %v", c, available, err)
			}
		}
	}
}

// TestFoundPayouts: a transfer that Stripe has, and the books have not, is of whole cents.
func TestFoundPayouts(t *testing.T) {
	t.Parallel()
	for amount, allowed := range map[money.MC]bool{
		-money.Cent: false, 0: false, 1: false, money.Cent - 1: false, money.Cent: true, money.Cent + 1: false,
		2 * money.Cent: true,
	} {
		s := newFunded()
		found := RecordPayout{PayoutID: "po", AppID: "p", DeveloperID: "A", TransferID: "tr", AmountMC: amount}
		r, err := applyTo(s, found)
		if want := (Payout{
			ID: "po", AppID: "p", DeveloperID: "A", AmountMC: amount, Status: marginPaid, TransferID: "tr",
			CreatedUS: fitTime.UnixMicro(), EndedUS: fitTime.UnixMicro(),
		}); (err == nil) != allowed || err == nil && (r.Payout != want || s.lastMargin("p").TakenMC != amount) {
			t.Errorf("%d: %+v, %v", amount, r.Payout, err)
		}
		found.TransferID = ""
		refused(t, s, found, apierr.InvalidRequest)
	}
	s := newFunded()
	find := func(transfer string) RecordPayout {
		return RecordPayout{PayoutID: "po", AppID: "p", DeveloperID: "A", TransferID: transfer, AmountMC: money.Cent}
	}
	returned := EndPayout{PayoutID: "po", AppID: "p", DeveloperID: "A", TransferID: "tr_1", Failure: "returned"}
	for i, want := range []Outcome{Applied, Done, Done, Applied} { // the one that came back is not new, another is
		transfer := "tr_1"
		if i == 3 {
			transfer = "tr_2"
		}
		if r := must(t, s, find(transfer)); r.Outcome != want {
			t.Errorf("%s: %+v", transfer, r)
		}
		if i == 1 {
			must(t, s, returned)
		}
	}
}

// TestAddUnsaved adds what holds in memory hold, of children only where a part is passed on.
func TestAddUnsaved(t *testing.T) {
	t.Parallel()
	unsaved := map[string]money.MC{"C": 5, ChildHeldOf("C"): 3, "D": 100, ChildHeldOf("D"): 100}
	for delegated, childHeld := range map[money.MC]money.MC{0: 1, 10: 4} {
		c := Connection{ID: "C", HeldMC: 2, ChildHeldMC: 1, DelegatedMC: delegated}
		if c.AddUnsaved(unsaved); c.HeldMC != 7 || c.ChildHeldMC != childHeld {
			t.Errorf("%d delegated: %+v", delegated, c)
		}
	}
}

// TestGoldenRow holds the bytes that the chain covers: rows that are stored must have the same hash in every version.
func TestGoldenRow(t *testing.T) {
	t.Parallel()
	e := Entry{
		ID: "led_1", AccountID: "wac_1", Seq: 7, Type: EntrySpend, Status: "reversed", ReversalOf: "led_0",
		Reason: "why|n", ConnectionID: "conn_1", AppID: "app_1", Feature: "chat", FeatureLabel: "chat", Model: "m",
		Key: "k", Fingerprint: "f", PaidBy: PaidByWallet, Settlement: Settled, Terms: "{}",
		Usage: `{"input_tokens":1}`, HoldMC: 9, RemainingMC: 3, AmountMC: 8,
		Amounts:          Amounts{ProviderCostMC: 4, SvcFeeMC: -1, DevMarginMC: 2, UserChargeMC: 5},
		AvailableDeltaMC: 10, ReservedDeltaMC: -11, AllocationDeltaMC: 12, ConsumedDeltaMC: 13,
		CreatedUS: 1_800_000_000_000_000,
	}
	topUp := Entry{
		ID: "led_2", AccountID: "wac_1", Seq: 8, Type: EntryTopUp, Status: "settled", AmountMC: 8, CreatedUS: 1,
	}
	for name, c := range map[string]struct {
		head string
		row  Entry
		hash string
	}{
		"a spend":         {"", e, "PdcHuSYoK9wN4jAtTPZHf56zHJId9kKcXRsVEf4Q7ig"},
		"after another":   {"head", e, "xpPK4RR8ZUexdmEnyPB6FLXF3CXhxA6MnuL7v8AANgU"},
		"a top-up, short": {"head", topUp, "q6RFJMdjDo1oy2b4LbDcKxcD6oxsvSay_esNMEy49Dc"},
	} {
		if got := chainHash(c.head, &c.row); got != c.hash {
			t.Errorf("%s: %s, want %s", name, got, c.hash)
		}
	}
	if got, want := e.KeyHash(), Integer(int64(950850891846423284)); got != want {
		t.Errorf("the hash of the key is %+v, want %+v", got, want)
	}
	if got := topUp.KeyHash(); got != (Column{}) {
		t.Errorf("a row without a key has the hash %+v", got)
	}
	spend, funded := e.Resource(), topUp.Resource()
	if *spend.UserChargeMC != 5 || *spend.HoldAmountMC != 9 || spend.AmountMC != nil || spend.RefundedMC != nil ||
		*funded.AmountMC != 8 || *funded.AmountDisplay != money.MC(8).Display() || funded.UserChargeMC != nil ||
		funded.Feature != nil || *spend.Feature != "chat" {
		t.Errorf("%+v, %+v", spend, funded)
	}
	delivery := Delivery{DurationMS: 3}
	if got := delivery.Columns(); got != [3]Column{{}, Integer(int64(3)), {}} {
		t.Errorf("what is not known of a delivery: %+v", got)
	}
	daily := money.MC(7)
	if r := (Connection{VelocityLimitMC: &daily}).Resource(); *r.VelocityLimitDisplay != daily.Display() {
		t.Errorf("%+v", r)
	}
	dispute, payout := MarginRecord{Kind: marginDisputed}, MarginRecord{Kind: marginPaid}
	if !dispute.IsDispute() || payout.IsDispute() || cmp.Compare(e.RequestID(), "req_0") != 0 {
		t.Error("records of disputes are those of payouts")
	}
}
