package inference

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// waitAsked waits until the provider of the one call is being asked, and returns the call's id.
func (b *bundle) waitAsked() (requestID string) {
	b.t.Helper()
	b.eventually("the provider is asked", func() bool {
		for _, c := range b.calls.listCalls() {
			b.orphans.mu.Lock()
			asked := c.cut != nil
			b.orphans.mu.Unlock()
			c.mu.Lock()
			requestID = c.requestID
			c.mu.Unlock()
			return asked
		}
		return false
	})
	return requestID
}

// leave makes a call, and disconnects when its provider is asked.
func (b *bundle) leave(key string) {
	b.t.Helper()
	ctx, disconnect := context.WithCancel(b.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	b.waitAsked()
	disconnect()
	<-ended
	b.eventually("the call has ended", func() bool { return len(b.calls.listCalls()) == 0 })
}

// ends are the ways in which a call ends that has delivered nothing. After accepted ones the provider may charge for
// the input; of those that the user's side has ended, the user is charged for it when the day is used up.
var ends = []struct {
	name              string
	accepted, charged bool
	end               func(b *bundle, f *fakeProvider, key string) // makes the call, and ends it
}{
	{"its client leaves", true, true, func(b *bundle, _ *fakeProvider, key string) { b.leave(key) }},
	{"its user stops it", true, true, func(b *bundle, _ *fakeProvider, key string) {
		b.endAsked(key, stops[0].stop)
	}},
	{"its user pauses the connection", true, true, func(b *bundle, _ *fakeProvider, key string) {
		b.endAsked(key, stops[5].stop)
	}},
	{"the operator suspends the app", true, false, func(b *bundle, _ *fakeProvider, key string) {
		b.endAsked(key, stops[7].stop)
	}},
	{"the node stops", true, false, func(b *bundle, _ *fakeProvider, key string) {
		b.endAsked(key, func(b *bundle, _ string) { b.CutCalls() })
	}},
	{"the provider does not answer", true, false, func(b *bundle, f *fakeProvider, key string) {
		b.endAsked(key, func(*bundle, string) { f.silent <- &provider.Error{Kind: provider.Failed, Cause: errCut} })
	}},
	{"the stream breaks off", true, false, func(b *bundle, f *fakeProvider, key string) {
		b.endAsked(key, func(*bundle, string) { f.silent <- nil })
	}},
	{"the provider is busy", false, false, func(b *bundle, f *fakeProvider, key string) {
		b.endAsked(key, func(*bundle, string) { f.silent <- &provider.Error{Kind: provider.Failed, Status: 503} })
	}},
	{"the provider rejects it", false, false, func(b *bundle, f *fakeProvider, key string) {
		b.endAsked(key, func(*bundle, string) { f.silent <- &provider.Error{Kind: provider.Rejected} })
	}},
	{"the provider has not got it", false, false, func(b *bundle, f *fakeProvider, key string) {
		b.endAsked(key, func(*bundle, string) { f.silent <- &provider.Error{Kind: provider.Failed, Unsent: true} })
	}},
}

// endAsked makes a call, ends it when its provider is asked, and waits for its end.
func (b *bundle) endAsked(key string, end func(b *bundle, requestID string)) {
	b.t.Helper()
	ended := make(chan string, 1)
	go func() { ended <- b.status(key) }()
	end(b, b.waitAsked())
	<-ended
	b.eventually("the call has ended", func() bool { return len(b.calls.listCalls()) == 0 })
}

// TestUnbilledAttempts counts what a call has cost that delivers nothing, and charges its input only if the user's side
// has ended it and such calls have used up the amount of the day.
func TestUnbilledAttempts(t *testing.T) {
	t.Parallel()
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			for _, dayMC := range []money.MC{money.Dollar, 0} {
				f := &fakeProvider{silent: make(chan error), ended: errCut}
				b := newBundle(t, db.SQLite, f)
				b.Policies = policies.Fixed(policy.Policy{Fee: money.One / 20, UnbilledCallsDayMC: dayMC})
				b.orphans.silentTimeout = time.Millisecond
				key := id.NewUUID()
				end.end(b, f, key)
				charged := end.charged && dayMC == 0
				b.expectCount(charged, `SELECT COUNT(*) FROM ledger WHERE key = $1 AND settlement = 'estimated'
					AND user_charge_mc > 0 AND usage LIKE '%"output":0%'`, key)
				b.expectCount(end.accepted && !charged, `SELECT COUNT(*) FROM unbilled_attempts u
					JOIN holds h ON h.request_id = u.request_id
					WHERE h.key = $1 AND u.attempt = 1 AND u.provider_cost_mc > 0`, key)
				b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0`)
				b.audit()
			}
		})
	}
}

// TestUnbilledOutput: what a model may have generated while it sent nothing counts in what an unbilled attempt has
// cost, in a live app and in a sandbox, whether its client leaves or its provider is too slow.
// Nobody is charged for it.
func TestUnbilledOutput(t *testing.T) {
	t.Parallel()
	const silence = 200 * time.Millisecond
	for _, tier := range []string{"full-live", tiers.Sandbox} {
		for _, query := range []string{"", "?whole"} {
			f := &fakeProvider{silent: make(chan error)}
			b := newBundle(t, db.SQLite, f)
			set := policy.Policy{Fee: money.One / 20, SandboxDayMC: money.Dollar, SandboxTotalDayMC: money.Dollar}
			set.UnbilledCallsDayMC = money.Dollar
			b.Policies = policies.Fixed(set)
			b.who.App.Tier, b.who.App.OwnerID = tier, "wac_dev"
			b.url += query
			b.orphans.silentTimeout, b.orphans.timeout = silence, silence
			b.leave(id.NewUUID())
			b.endAsked(id.NewUUID(), func(*bundle, string) {
				<-time.After(silence)
				f.silent <- &provider.Error{Kind: provider.Failed, Cause: context.DeadlineExceeded}
			})
			p := b.plan(plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody)
			cost := func(output int64) money.MC {
				a, err := pricing.ChargeEstimate(p.Rates, p.CountedTokens, output, 0, 0, money.Dollar)
				if err != nil {
					t.Error(err)
				}
				return a.ProviderCostMC
			}
			least, most := cost(int64(silence/(time.Second/generatedPerSecond))), cost(100)
			var n int
			if err := b.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM unbilled_attempts
				WHERE provider_cost_mc BETWEEN $1 AND $2`, least, most).Scan(&n); err != nil || n != 2 {
				t.Errorf("%s%s: %d attempts cost %d to %d, %v", tier, query, n, least, most, err)
			}
			b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
			b.audit()
		}
	}
}

// TestUnbilledCallsAreRefused: when the unbilled attempts of a user on an app have cost too much, the next calls are
// 429 with Retry-After, and leave nothing; used keys are answered, and so is another user. After the wait there is room
// again.
func TestUnbilledCallsAreRefused(t *testing.T) {
	t.Parallel()
	for _, dayMC := range []money.MC{money.Dollar, 0} { // 0: each is charged for its input
		f := &fakeProvider{
			silent: make(chan error),
			chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 5}}},
			ended:  io.EOF,
		}
		b := newBundle(t, db.SQLite, f)
		b.Policies = policies.Fixed(policy.Policy{Fee: money.One / 20, UnbilledCallsDayMC: dayMC})
		other := b.secondApp()
		b.unbilledRate = web.NewLimiter(time.Hour, 1, b.clock)
		b.orphans.silentTimeout, b.storesRefusals = 100*time.Millisecond, true
		serve := func(b *bundle, key string) string {
			ended := make(chan string, 1)
			go func() { ended <- b.status(key) }()
			f.silent <- nil
			return <-ended
		}
		used, refused := id.NewUUID(), id.NewUUID()
		if got := serve(b, used); !strings.HasPrefix(got, "200 ") {
			t.Fatal(got)
		}
		b.leave(id.NewUUID())
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		resp := b.open(soon, refused)
		if body := readRest(t, resp.Body); resp.StatusCode != 429 || !strings.Contains(body, `"code":"rate_limited"`) ||
			resp.Header.Get("Retry-After") == "" {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
		}
		cancel()
		b.expectCount(false, `SELECT COUNT(*) FROM refusals WHERE code = 'rate_limited'`)
		if _, _, replayed := b.call(used, ""); !replayed {
			t.Error("a used key is not answered")
		}
		if got := serve(other, id.NewUUID()); !strings.HasPrefix(got, "200 ") {
			t.Errorf("another user: %s", got)
		}
		b.pass(2 * time.Hour)
		if got := serve(b, refused); !strings.HasPrefix(got, "200 ") {
			t.Errorf("after the wait: %s", got)
		}
		b.audit()
	}
}

// expectCount checks that a query counts 1 or, otherwise, 0.
func (b *bundle) expectCount(one bool, query string, args ...any) {
	b.t.Helper()
	var n int
	err := b.DB.QueryRowContext(b.t.Context(), query, args...).Scan(&n)
	if err != nil || n != map[bool]int{true: 1}[one] {
		b.t.Errorf("%s: %d, %v, want one: %t", query, n, err, one)
	}
}

// The key of a call that was charged for its input replays why, and asks no provider again.
func TestReplayOfChargedInput(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error)}
	b := newBundle(t, db.SQLite, f)
	b.Policies = policies.Fixed(policy.Policy{Fee: money.One / 20})
	b.orphans.silentTimeout, b.storesRefusals = time.Millisecond, true
	left, stopped := id.NewUUID(), id.NewUUID()
	b.leave(left)
	ended := make(chan string, 1)
	go func() { ended <- b.status(stopped) }()
	if err := b.StopCall(t.Context(), b.who.ConnectionID, b.waitAsked()); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; !strings.HasPrefix(got, "403 ") || !strings.Contains(got, inputBilled) {
		t.Errorf("the client of the stopped call got %s", got)
	}
	for _, key := range []string{left, stopped} {
		body, requestID, replayed := b.call(key, "")
		if !replayed || !strings.Contains(body, `"code":"call_stopped"`) || !strings.Contains(body, inputBilled) ||
			!strings.Contains(body, `"settlement":"estimated"`) || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("replayed %t:\n%s", replayed, body)
		}
		b.receipt(requestID, "estimated", true)
	}
	b.audit()
}

// What a sandbox's calls cost that are left uses up what live models may cost it in a day. They are never charged.
func TestUnbilledAttemptsOfSandbox(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error)}
	b := newBundle(t, db.SQLite, f)
	b.who.App.Tier, b.who.App.OwnerID = tiers.Sandbox, "wac_dev"
	route := plan.Route{Path: "ai/" + testModel, Model: testModel}
	set := policy.Policy{Fee: money.One / 20, SandboxDayMC: money.Dollar, SandboxTotalDayMC: money.Dollar}
	b.Policies = policies.Fixed(set)
	set.SandboxDayMC = b.plan(route, testBody).Demand.CostMC // for one call at a time
	b.Policies = policies.Fixed(set)
	b.orphans.silentTimeout = time.Millisecond
	b.leave(id.NewUUID())
	b.expectOne(`SELECT COUNT(*) FROM unbilled_attempts WHERE provider_cost_mc > 0`)
	if got := b.status(id.NewUUID()); !strings.HasPrefix(got, "429 ") ||
		!strings.Contains(got, `"code":"sandbox_live_cost_limited"`) {
		t.Errorf("the next call got %s", got)
	}
	b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
	b.audit()
}

// What a call may have cost that was lost with its node counts, too, and so does that of an app whose developer's key
// has not served it.
func TestUnbilledAttemptsOfLostCalls(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.Postgres, &fakeProvider{}) // each hold is in the database at once
	for _, tt := range []struct {
		name    string
		change  string
		counted bool
	}{
		{"live", "tier = 'full-live', provider_mode = 'live'", true},
		{"mock", "tier = 'sandbox', provider_mode = 'mock'", false},
		{"the developer's own key", "tier = 'sandbox', provider_mode = 'live'", false},
	} {
		if _, err := b.DB.ExecContext(t.Context(), `UPDATE apps SET `+tt.change+` WHERE id = $1`,
			b.who.App.ID); err != nil {
			t.Fatal(err)
		}
		hold := b.plan(plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody).Demand
		hold.Key, hold.RequestID, hold.Fingerprint = id.NewUUID(), id.New(id.Request, b.clock()), "print"
		hold.NodeID, hold.Claim = b.Node.ID, hold.RequestID
		b.do(hold)
		b.Apps = apps.NewStore(b.DB, b.clock, true)
		b.eventually("the hold is ended", func() bool {
			n, err := b.EndLostHolds(t.Context())
			if err != nil {
				t.Error(err)
			}
			return n > 0
		})
		b.expectCount(tt.counted, `SELECT COUNT(*) FROM unbilled_attempts WHERE request_id = $1`, hold.RequestID)
	}
}
