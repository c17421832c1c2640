package rules

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// fitTime is the time of the holds of these tests.
var fitTime = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fitCase is a connection with random amounts, and a call with every limit at once.
type fitCase struct {
	conn     Connection
	counters map[string]Counter
	hold     Hold
}

func drawMC(t *rapid.T, name string, most int64) money.MC {
	return money.MC(rapid.Int64Range(0, most).Draw(t, name))
}

// drawFitCase draws the state and the call. Each limit is there in half of the cases.
func drawFitCase(t *rapid.T) fitCase {
	f := fitCase{counters: map[string]Counter{}}
	spent := limits.Series{Width: limits.SpendBucketWidth}.
		Add(fitTime.Add(-time.Hour), rapid.Int64Range(0, 60).Draw(t, "spent"), VelocityWindow)
	f.conn = Connection{
		ID:           "c",
		AppID:        "p",
		AccountID:    "A",
		Status:       Active,
		AllocationMC: 1 + drawMC(t, "allocation", 400),
		Spent:        spent,
		FasterSpend:  1,
	}
	f.conn.ConsumedMC = drawMC(t, "consumed", int64(f.conn.AllocationMC)-1)
	f.conn.HeldMC = drawMC(t, "held", int64(f.conn.AllocationMC-f.conn.ConsumedMC))
	if rapid.Bool().Draw(t, "velocity") {
		v := drawMC(t, "velocity limit", 400)
		f.conn.VelocityLimitMC = &v
	}
	limit := func(subject string, unit limits.Unit, window time.Duration, code apierr.Code, event string) limits.Limit {
		f.counters[subject] = Counter{
			Spent: limits.Series{Width: unit.BucketWidth(window)}.
				Add(fitTime, rapid.Int64Range(0, 60).Draw(t, subject+" spent"), max(window, time.Hour)),
			HeldMC: drawMC(t, subject+" held", 60),
		}
		return limits.Limit{
			Subject: subject,
			Unit:    unit,
			Window:  window,
			Max:     rapid.Int64Range(0, 400).Draw(t, subject+" max"),
			Code:    code,
			Owner:   "a limit",
			Event:   event,
		}
	}
	f.hold = Hold{
		Call:  Call{ConnectionID: "c", AccountID: "A", AppID: "p", Key: "k", RequestID: "req_1", Terms: "as it came"},
		Claim: "claim",
	}
	if rapid.Bool().Draw(t, "day") {
		f.hold.Limits = append(f.hold.Limits,
			limit("spend/p/A", limits.Spend, VelocityWindow, apierr.DailyLimitReached, ""))
	}
	if rapid.Bool().Draw(t, "app") {
		f.hold.Limits = append(f.hold.Limits,
			limit("spend/p", limits.Spend, VelocityWindow, apierr.AppSpendLimited, "app.spend_limit_reached"))
	}
	if rapid.Bool().Draw(t, "sandbox") {
		f.hold.Limits = append(f.hold.Limits,
			limit("live/dev", limits.Cost, VelocityWindow, apierr.SandboxLiveCostLimited, ""))
	}
	if rapid.Bool().Draw(t, "guardrail") {
		most := drawMC(t, "guardrail max", 400)
		f.hold.MaxHoldMC = &most
	}
	if rapid.Bool().Draw(t, "tier cap") {
		f.hold.MaxCapMC = 1 + drawMC(t, "tier max", 400)
	}
	if rapid.Bool().Draw(t, "risk") {
		f.hold.Risk = &limits.RiskThresholds{FloorMC: 1 + drawMC(t, "floor", 60), Warn: 5, Throttle: 10, Freeze: 20}
	}
	f.hold.HasProviderKey = rapid.Bool().Draw(t, "provider key")
	if rapid.Bool().Draw(t, "free") {
		pool, onApp, onAll := FreeCreditSubjects("p", "A", fitTime)
		f.hold.FreeCredit = &FreeCreditHold{Terms: "free, as it came", Limits: []limits.Limit{
			limit(pool, limits.Spend, 0, apierr.Code{}, ""),
			limit(onApp, limits.Spend, 0, apierr.Code{}, ""),
			limit(onAll, limits.Spend, 0, apierr.Code{}, ""),
		}}
	}
	input, price := drawMC(t, "input", 30), 1+drawMC(t, "price", 3)
	share := drawMC(t, "share", 100) // of margin and fee, in percent
	f.hold.Output = &OutputCap{
		MaxTokens: rapid.Int64Range(1, 200).Draw(t, "max tokens"),
		Price: func(n int64) (money.MC, money.MC, error) {
			cost := input + price*money.MC(n)/2 // two caps may have one price
			return cost + (cost*share+99)/100, cost, nil
		},
		Terms: func(n int64, paidBy string) string { return fmt.Sprint(n, " by ", paidBy) },
	}
	f.hold, _ = f.hold.withCap(f.hold.Output.MaxTokens)
	return f
}

// apply applies a hold of the case to a state of its own.
func (f *fitCase) apply(h Hold) (*State, Result, error) {
	s := NewState()
	conn := f.conn
	s.Connections["c"] = &conn
	for subject, c := range f.counters {
		s.Counters[subject] = &c
	}
	r, err := Apply(s, h, fitTime)
	if err == nil && r.Refused != nil {
		err = r.Refused
	}
	return s, r, err
}

// plain returns the call as a client sends it that asks for a cap and wants no other.
func (f *fitCase) plain(maxTokens int64) Hold {
	h, _ := f.hold.withCap(maxTokens)
	h.Output.MinTokens = 0
	return h
}

// A call whose cap may be lowered is held as the same call with the largest max_tokens that all
// limits together admit would be: by the same payer, for the same amounts, in the same counters.
// One token more would be refused. Below the floor it is refused, and the refusal says how much
// fits. Without the switch nothing changes.
func TestFitIsTheLargestAdmittedCap(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for range 10 {
		rapid.Check(t, fitIsLargest(seen))
	}
	for _, path := range []string{"whole", "lowered, paid by wallet", "lowered, paid by free_credit", "refused"} {
		if seen[path] == 0 && !testing.Short() {
			t.Errorf("vacuous: no run took the path %q", path)
		}
	}
}

func fitIsLargest(seen map[string]int) func(*rapid.T) {
	return func(t *rapid.T) {
		f := drawFitCase(t)
		whole := f.hold.Output.MaxTokens
		largest := int64(0)
		for n := int64(1); n <= whole; n++ { // every cap, one by one
			if _, _, err := f.apply(f.plain(n)); err == nil {
				if largest != n-1 {
					t.Fatalf("%d tokens are admitted, %d are not", n, largest+1)
				}
				largest = n
			}
		}
		fit := f.plain(whole)
		fit.Output.MinTokens = rapid.Int64Range(1, 40).Draw(t, "min tokens")
		fit.Output.MinTokens = min(fit.Output.MinTokens, whole)
		_, plain, plainErr := f.apply(f.plain(whole))
		s, r, err := f.apply(fit)
		switch {
		case largest == whole:
			seen["whole"]++
			if err != nil || plainErr != nil || r.MaxTokens != whole || r.Call.Terms != plain.Call.Terms {
				t.Fatalf("the call fits: %+v, %v; plain %+v, %v", r, err, plain, plainErr)
			}
		case largest >= fit.Output.MinTokens:
			want, wanted, wantErr := f.apply(f.plain(largest))
			if err != nil || wantErr != nil || r.MaxTokens != largest || r.Call.HoldMC != wanted.Call.HoldMC ||
				r.Call.PaidBy != wanted.Call.PaidBy || r.UseProviderKey != wanted.UseProviderKey ||
				r.Call.Reservations.String() != wanted.Call.Reservations.String() ||
				r.Call.Terms != f.hold.Output.Terms(largest, r.Call.PaidBy) {
				t.Fatalf("%d tokens fit: %+v, %v; as a call of its own %+v, %v", largest, r, err, wanted, wantErr)
			}
			if got, want := *s.Connections["c"], *want.Connections["c"]; got.HeldMC != want.HeldMC {
				t.Fatalf("held %d, as a call of its own %d", got.HeldMC, want.HeldMC)
			}
			for subject := range f.counters {
				if s.Counters[subject].HeldMC != want.Counters[subject].HeldMC {
					t.Fatalf("%s holds %d, as a call of its own %d", subject, s.Counters[subject].HeldMC,
						want.Counters[subject].HeldMC)
				}
			}
			if len(s.Changes.Events) > 0 || s.Holds[fit.key()].Terms != r.Call.Terms {
				t.Fatalf("events %v, stored %+v", s.Changes.Events, s.Holds[fit.key()])
			}
			seen["lowered, paid by "+r.Call.PaidBy]++
		default:
			checkRefused(t, &f, fit, largest, err, plainErr, s)
			seen["refused"]++
		}
		checkPlain(t, &f, largest, plainErr)
		checkDryRun(t, &f, fit, r, err)
	}
}

// checkRefused checks the refusal of a call whose lowest cap does not fit: it is that of the
// lowest cap, and says what fits. A refusal that no size avoids is that of the call as it came.
func checkRefused(t *rapid.T, f *fitCase, fit Hold, largest int64, err, plainErr error, s *State) {
	if err == nil {
		t.Fatalf("only %d tokens fit, and the call is held with %d or more", largest, fit.Output.MinTokens)
	}
	least := f.plain(fit.Output.MinTokens)
	_, _, leastErr := f.apply(least)
	if sizeRefusal(err) == nil {
		if err.Error() != plainErr.Error() {
			t.Fatalf("%v, without the switch %v", err, plainErr)
		}
		return
	}
	if leastErr == nil || err.Error() != leastErr.Error() {
		t.Fatalf("%v, with the lowest cap %v", err, leastErr)
	}
	if n := sizeRefusal(err).Details["max_tokens_that_fit"]; n != largest &&
		sizeRefusal(err).Details["reason"] != "exhausted" {
		t.Fatalf("%v says that %v tokens fit, not %d", err, n, largest)
	}
	if s.Connections["c"].HeldMC != f.conn.HeldMC || s.Holds[fit.key()] != nil {
		t.Fatal("a refusal has changed the state")
	}
}

// checkPlain checks that without the switch only a refusal's text knows of caps that fit.
func checkPlain(t *rapid.T, f *fitCase, largest int64, plainErr error) {
	bare := f.plain(f.hold.Output.MaxTokens)
	bare.Output = nil
	_, _, bareErr := f.apply(bare)
	if (plainErr == nil) != (bareErr == nil) || plainErr != nil && plainErr.Error() != bareErr.Error() {
		t.Fatalf("without the switch %v, without a cap %v", plainErr, bareErr)
	}
	if e := sizeRefusal(plainErr); e != nil && e.Details["max_tokens_that_fit"] != largest {
		t.Fatalf("%v says %v, and %d fit", e, e.Details, largest)
	}
}

// checkDryRun checks that a dry run decides the same, and leaves nothing behind.
func checkDryRun(t *rapid.T, f *fitCase, fit Hold, r Result, err error) {
	fit.DryRun = true
	s, dry, dryErr := f.apply(fit)
	if (err == nil) != (dryErr == nil) || err != nil && err.Error() != dryErr.Error() ||
		err == nil && (dry.MaxTokens != r.MaxTokens || dry.Call.HoldMC != r.Call.HoldMC ||
			dry.Call.PaidBy != r.Call.PaidBy) {
		t.Fatalf("a dry run says %+v, %v, and the hold is %+v, %v", dry, dryErr, r, err)
	}
	if len(s.Changes.Events) > 0 || len(s.Changes.Connections) > 0 || len(s.Changes.Counters) > 0 || len(s.Holds) > 0 ||
		s.Connections["c"].HeldMC != f.conn.HeldMC || s.Changes.MustSync {
		t.Fatalf("a dry run has changed %+v", s.Changes)
	}
	for subject, c := range f.counters {
		if got := s.Counters[subject]; got.HeldMC != c.HeldMC || got.LimitReported {
			t.Fatalf("a dry run has changed %s", subject)
		}
	}
}

// A limit of calls, a spent allocation and a state that allows no calls are refused whatever the
// cap is, and name none that fits; so is a connection that spends too fast, unless free credit covers
// a smaller call. A call that is refused for its size reports the app's limit
// once, and one that is lowered does not report it.
func TestFitLeavesOtherRefusals(t *testing.T) {
	t.Parallel()
	newCase := func() *fitCase {
		f := &fitCase{
			conn: Connection{ID: "c", AppID: "p", AccountID: "A", Status: Active, AllocationMC: 1000},
			counters: map[string]Counter{
				"spend/p": {Spent: limits.Series{Width: limits.SpendBucketWidth}},
				"rate/c":  {Spent: limits.Series{Width: limits.CallsBucketWidth}.Add(fitTime, 1, time.Minute)},
			},
		}
		f.hold = Hold{
			Call: Call{ConnectionID: "c", AccountID: "A", AppID: "p", Key: "k", RequestID: "req_1"},
			Output: &OutputCap{
				MaxTokens: 5000,
				MinTokens: 10,
				Price:     func(n int64) (money.MC, money.MC, error) { return money.MC(n), money.MC(n), nil },
				Terms:     func(n int64, _ string) string { return fmt.Sprint(n) },
			},
		}
		f.hold, _ = f.hold.withCap(5000)
		return f
	}
	refused := func(f *fitCase) (*State, *apierr.Error) {
		s, _, err := f.apply(f.hold)
		var e *apierr.Error
		if !errors.As(err, &e) {
			t.Fatalf("not refused: %v", err)
		}
		return s, e
	}
	f := newCase()
	f.hold.Limits = []limits.Limit{{Subject: "rate/c", Window: time.Minute, Max: 1, Code: apierr.RateLimited}}
	if _, e := refused(f); e.Code != apierr.RateLimited || e.Details != nil {
		t.Errorf("a limit of calls: %+v", e)
	}
	f = newCase()
	f.conn.ConsumedMC = 1000
	if _, e := refused(f); e.Code != apierr.AllocationExhausted || e.Details["reason"] != "exhausted" {
		t.Errorf("a spent allocation: %+v", e)
	}
	f = newCase()
	f.conn.HeldMC = 500
	f.hold.Risk = &limits.RiskThresholds{FloorMC: 1, Warn: 5, Throttle: 10, Freeze: 20}
	if _, e := refused(f); e.Code != apierr.RiskThrottled || e.Details["spent_mc"] != money.MC(0) ||
		e.Details["held_mc"] != money.MC(500) || e.Details["allowed_mc"] != money.MC(10) || len(e.Details) != 3 {
		t.Errorf("a connection that spends too fast: %+v", e)
	}
	f.hold.FreeCredit = &FreeCreditHold{HoldMC: 5000, Limits: []limits.Limit{{Subject: "spend/p", Max: 40}}}
	if _, r, err := f.apply(f.hold); err != nil || r.MaxTokens != 40 || r.Call.PaidBy != PaidByFreeCredit {
		t.Errorf("lowered to its free credit: %+v, %v", r, err)
	}
	f = newCase()
	f.conn.Status = Frozen
	if _, e := refused(f); e.Code != apierr.ConnectionFrozen {
		t.Errorf("a frozen connection: %+v", e)
	}
	f = newCase()
	app := limits.Limit{
		Subject: "spend/p",
		Unit:    limits.Spend,
		Window:  VelocityWindow,
		Max:     9,
		Code:    apierr.AppSpendLimited,
		Event:   "app.spend_limit_reached",
	}
	f.hold.Limits = []limits.Limit{app}
	if s, e := refused(f); e.Details["max_tokens_that_fit"] != int64(9) || len(s.Changes.Events) != 1 ||
		!s.Counters["spend/p"].LimitReported {
		t.Errorf("an app's limit: %+v, %+v", e, s.Changes.Events)
	}
	f.hold.Limits[0].Max = 10
	if s, r, err := f.apply(f.hold); err != nil || r.MaxTokens != 10 || len(s.Changes.Events) != 0 {
		t.Errorf("lowered to an app's limit: %+v, %v, %+v", r, err, s.Changes.Events)
	}
}
