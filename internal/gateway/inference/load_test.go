package inference

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/catalog"
)

// TestCallsInFlightAreBounded: beyond the bound of a provider a call is 503 with Retry-After at
// once, and held for nothing; when one ends, there is room again. Followers of a call are not
// bounded by it.
func TestCallsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error), ended: io.EOF}
	b := newBundle(t, db.SQLite, f)
	b.keepAlive, b.Bounds.ProviderCalls = time.Millisecond, 2
	keys := []string{id.NewUUID(), id.NewUUID()}
	var open []*http.Response
	for _, key := range keys {
		open = append(open, b.open(t.Context(), key))
	}
	busy := b.open(t.Context(), id.NewUUID())
	if body := readRest(t, busy.Body); busy.StatusCode != 503 || busy.Header.Get("Retry-After") != "1" ||
		!strings.Contains(body, `"code":"unavailable"`) {
		t.Errorf("one call too many: %d %v %s", busy.StatusCode, busy.Header, body)
	}
	follower := b.open(t.Context(), keys[0])
	if line := readLine(t, bufio.NewReader(follower.Body)); line != ": waiting\n" {
		t.Errorf("a follower: %q", line)
	}
	f.silent <- nil
	b.eventually("one call has ended", func() bool { return len(b.calls.listCalls()) == 1 })
	again := b.open(t.Context(), id.NewUUID())
	if again.StatusCode != 200 {
		t.Errorf("there is room again: %d", again.StatusCode)
	}
	for range 2 {
		f.silent <- nil
	}
	for _, r := range append(open, again) {
		readRest(t, r.Body)
	}
	b.audit()
}

// TestBoundsOfANode counts calls of all kinds, and those of the mock by developer.
func TestBoundsOfANode(t *testing.T) {
	t.Parallel()
	var c callsInFlight
	refused := func(err error) bool {
		var e *apierr.Error
		return errors.As(err, &e) && e.Code == apierr.Unavailable && e.RetryAfter == time.Second
	}
	var last *seat
	for range 3 {
		var err error
		if last, err = c.enter("", "", "", &Bounds{Calls: 3}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.enter("", "", "", &Bounds{Calls: 3}); !refused(err) {
		t.Errorf("a fourth: %v", err)
	}
	last.leave()
	for _, bound := range []int{3, 0} {
		if _, err := c.enter("", "", "", &Bounds{Calls: bound}); err != nil {
			t.Errorf("no room after one has left, or where there is no bound: %v", err)
		}
	}
	h := &Handler{Config: Config{Bounds: Bounds{ProviderCalls: 7, MockCalls: 1}}}
	call := func(mode, owner string) *call {
		return &call{
			who:  &callers.Caller{App: apps.App{ProviderMode: mode, OwnerID: owner}},
			plan: &plan.Plan{Model: catalog.Model{Provider: "google"}},
		}
	}
	live := call("live", "wac_1")
	live.who.App.ID = "app_1"
	if key, app, bound := h.boundOf(live); key != "google" || app != "app_1" || bound != 7 {
		t.Errorf("live: %s %s %d", key, app, bound)
	}
	for i, owner := range []string{"wac_1", "wac_2", "wac_1"} {
		key, app, bound := h.boundOf(call(apps.Mock, owner))
		if err := c.enterKey(key, app, bound); refused(err) != (i == 2) {
			t.Errorf("%d, %s: %v", i, key, err)
		}
	}
	c.leaveKey("mock/wac_1", "")
	if len(c.byKey) != 1 || c.enterKey("mock/wac_1", "", 1) != nil {
		t.Errorf("left: %v", c.byKey)
	}
}

// TestAFloodLeavesRoom: one app fills its share with calls that do not end. Its next call is 503 with
// Retry-After at once, and the calls of another app are served.
func TestAFloodLeavesRoom(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error), ended: io.EOF}
	flood := newBundle(t, db.SQLite, f)
	flood.keepAlive, flood.Bounds.ProviderCalls = time.Millisecond, 18
	other := flood.secondApp()
	var open []*http.Response
	begin := func(b *bundle) {
		t.Helper()
		r := b.open(t.Context(), id.NewUUID())
		if open = append(open, r); r.StatusCode != 200 {
			t.Errorf("call %d: %d", len(open), r.StatusCode)
		}
	}
	for range 16 { // 8 of 9
		begin(flood)
	}
	refused := flood.open(t.Context(), id.NewUUID())
	if refused.StatusCode != 503 || refused.Header.Get("Retry-After") != "1" {
		t.Fatalf("beyond its share: %d %v", refused.StatusCode, refused.Header)
	}
	if body := readRest(t, refused.Body); !strings.Contains(body, `"code":"unavailable"`) ||
		!strings.Contains(body, "this app has its share") {
		t.Errorf("beyond its share: %s", body)
	}
	begin(other)
	begin(other)
	for range open {
		f.silent <- nil
	}
	for _, r := range open {
		readRest(t, r.Body)
	}
	flood.audit()
	if len(flood.inFlight.byKey) != 0 {
		t.Errorf("remembered: %v", flood.inFlight.byKey)
	}
}

// TestSharesOfApps: however calls come and go, an app that floods never has the slots that another
// one needs; who was alone shrinks as its calls end, until all who want more than there is have the
// same. In the end nothing is remembered of them.
func TestSharesOfApps(t *testing.T) {
	t.Parallel()
	const bound = 100
	var c callsInFlight
	rng := rand.New(rand.NewPCG(1, 2))
	calls := map[string]int{}
	seats := map[string]*seat{} // one of each app: they are alike
	begin := func(app string) (err error) {
		s, err := c.enter(app, "", "", &Bounds{Calls: bound})
		if err == nil {
			seats[app] = s
			calls[app]++
		}
		return err
	}
	fill := func(app string) {
		for begin(app) == nil {
		}
	}
	end := func(app string) {
		seats[app].leave()
		calls[app]--
	}
	fill("flood")
	if calls["flood"] != 89 {
		t.Errorf("alone: %d calls", calls["flood"])
	}
	for range 10_000 {
		fill("flood")
		if n := calls["small"]; n > 0 && rng.IntN(2) == 0 {
			end("small")
		} else if n < 9 {
			if err := begin("small"); err != nil {
				t.Fatalf("%v: %v", calls, err)
			}
		}
		for range rng.IntN(3) {
			end("flood")
		}
	}
	flooders := []string{"flood", "second", "third"}
	for range 10_000 { // each call is as long as any other
		n := rng.IntN(calls["flood"] + calls["second"] + calls["third"])
		for _, app := range flooders {
			if n -= calls[app]; n < 0 {
				end(app)
				break
			}
		}
		for _, i := range rng.Perm(3) {
			fill(flooders[i])
		}
	}
	for _, app := range flooders {
		if calls[app] < 25 || calls[app] > 36 {
			t.Errorf("shares of three that flood: %v", calls)
		}
	}
	for app, n := range calls {
		for range n {
			end(app)
		}
	}
	if c.node.All() != 0 || c.node.Keys() != 0 {
		t.Errorf("remembered: %+v", c.node)
	}
}

// BenchmarkCallsInFlight is what the bounds cost a call.
func BenchmarkCallsInFlight(b *testing.B) {
	var c callsInFlight
	list := make([]string, 64)
	bounds := Bounds{Calls: 10_000, Bytes: 8 << 30}
	for i := range list {
		list[i] = id.New(id.App, time.UnixMicro(int64(i)))
		_, err := c.enter(list[i], list[i], list[i], &bounds)
		if err = errors.Join(err, c.enterKey("openai", list[i], 6_000)); err != nil {
			b.Fatal(err)
		}
	}
	b.RunParallel(func(p *testing.PB) {
		for i := 0; p.Next(); i++ {
			app := list[i%len(list)]
			if s, err := c.enter(app, app, app, &bounds); err == nil {
				if c.enterKey("openai", app, 6_000) == nil {
					c.leaveKey("openai", app)
				}
				s.leave()
			}
		}
	})
}

// TestAProviderWithoutAKeyIsNotCalled: the call is refused before anything is held, and says so.
func TestAProviderWithoutAKeyIsNotCalled(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.SQLite, &fakeProvider{})
	b.Providers = nil
	resp := b.open(t.Context(), id.NewUUID())
	body := readRest(t, resp.Body)
	if resp.StatusCode != 400 || resp.Header.Get("X-Should-Retry") != "false" ||
		!strings.Contains(body, `has no key for openai`) || !strings.Contains(body, `"kind":"not_configured"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	b.expectOne(`SELECT 1 + COUNT(*) FROM holds`)
}
