package inference

import (
	"bufio"
	"errors"
	"io"
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
	for range 3 {
		if err := c.enter(3); err != nil {
			t.Error(err)
		}
	}
	if err := c.enter(3); !refused(err) {
		t.Errorf("a fourth: %v", err)
	}
	c.leave()
	if c.enter(3) != nil || c.enter(0) != nil {
		t.Error("no room after one has left, or where there is no bound")
	}
	h := &Handler{Config: Config{Bounds: Bounds{ProviderCalls: 7, MockCalls: 1}}}
	call := func(mode, owner string) *call {
		return &call{
			who:  &callers.Caller{App: apps.App{ProviderMode: mode, OwnerID: owner}},
			plan: &plan.Plan{Model: catalog.Model{Provider: "google"}},
		}
	}
	if key, bound := h.boundOf(call("live", "wac_1")); key != "google" || bound != 7 {
		t.Errorf("live: %s %d", key, bound)
	}
	for i, owner := range []string{"wac_1", "wac_2", "wac_1"} {
		key, bound := h.boundOf(call(apps.Mock, owner))
		if err := c.enterKey(key, bound); refused(err) != (i == 2) {
			t.Errorf("%d, %s: %v", i, key, err)
		}
	}
	c.leaveKey("mock/wac_1")
	if len(c.byKey) != 1 || c.enterKey("mock/wac_1", 1) != nil {
		t.Errorf("left: %v", c.byKey)
	}
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
