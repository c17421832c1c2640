package inference

import (
	"errors"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/shares"
	"github.com/purserhq/purser/internal/base/web"
)

// Bounds are how many calls may be in flight on a node, and what memory they may take; 0 = no bound. Without them, a
// provider that answers slowly would take the memory and the sockets of the node (decision 051). Apps share the first
// two, and developers the memory (decision 100).
type Bounds struct {
	Calls         int   // in all
	ProviderCalls int   // of one provider
	MockCalls     int   // of the mock, for all apps of one developer: mock calls cost nothing
	Bytes         int64 // of requests and answers (decision 131)

	// MockRate is how many calls of the mock a developer may make in a second, and MockBurst how many at once: each
	// leaves a ledger row, and costs nothing. 0 = as many as they want.
	MockRate, MockBurst int
}

func newMockRate(c *Config) *web.Limiter {
	if c.Bounds.MockRate == 0 {
		return nil
	}
	return web.NewLimiter(time.Second/time.Duration(c.Bounds.MockRate), c.Bounds.MockBurst, c.Now)
}

// checkMockRate counts a call of the mock, or refuses it.
func (h *Handler) checkMockRate(app *apps.App) error {
	if h.mockRate == nil || app.ProviderMode != apps.Mock {
		return nil
	}
	wait, ok := h.mockRate.Allow(app.OwnerID)
	if ok {
		return nil
	}
	e := apierr.RateLimited.Errorf("your apps call the mock more often than it allows, which is %d calls a second "+
		"over time; slow down", h.Bounds.MockRate)
	e.RetryAfter = max(wait, time.Second)
	return e
}

// callsInFlight counts the calls of a node, and their bytes, against its bounds. It remembers nothing of calls that
// have left.
type callsInFlight struct {
	mu    sync.Mutex
	node  shares.Use             // calls, by app
	byKey map[string]*shares.Use // calls, by provider; the mock's by developer
	bytes shares.Use             // by developer
}

// enter counts a call of an app and the bytes that each call takes, or refuses it. Its caller must call leave of the
// seat.
func (c *callsInFlight) enter(app, developer string, b *Bounds) (*seat, error) {
	s := &seat{in: c, app: app, developer: developer, bound: b.Bytes, counted: callBytes}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.node.Check(app, 1, int64(b.Calls)); err != nil {
		return nil, errBusy(err, tooManyCalls)
	}
	if err := c.bytes.Take(developer, callBytes, b.Bytes); err != nil {
		return nil, errNoMemory(err)
	}
	c.node.Add(app, 1)
	return s, nil
}

// enterKey counts a call under a key of boundOf, or refuses it. Its caller must call leaveKey with
// the same key and app.
func (c *callsInFlight) enterKey(key, app string, bound int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byKey[key]
	if s == nil {
		s = &shares.Use{}
	}
	if err := s.Take(app, 1, int64(bound)); err != nil {
		return errBusy(err, "too many calls are waiting for this provider; try again in a moment")
	}
	if c.byKey == nil {
		c.byKey = map[string]*shares.Use{}
	}
	c.byKey[key] = s
	return nil
}

func (c *callsInFlight) leaveKey(key, app string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byKey[key]
	if s.Add(app, -1); s.All() == 0 {
		delete(c.byKey, key)
	}
}

// tooManyCalls are the words of a node that has as many calls as it may have.
const tooManyCalls = "the service is handling as many calls as it can; try again in a moment"

// errBusy refuses a call that shares refuses, with the words of full if the bound is used up.
func errBusy(cause error, full string) error {
	if errors.Is(cause, shares.ErrShare) {
		full = "this app has its share of the calls that the service can handle; try again in a moment"
	}
	return errLater(full)
}

func errNoMemory(cause error) error {
	if errors.Is(cause, shares.ErrShare) {
		return errLater("the apps of this developer have their share of the service's memory; try again in a moment")
	}
	return errLater("the service has no memory left for this call; try again in a moment, or send a smaller request")
}

func errLater(message string) error {
	e := apierr.Unavailable.Errorf("%s", message)
	e.RetryAfter = time.Second
	return e
}

// boundOf returns what a call counts under besides its node, the app whose share of it counts, and
// the bound. The mock's is one developer's own: their apps share nothing.
func (h *Handler) boundOf(c *call) (key, app string, bound int) {
	if app := &c.who.App; app.ProviderMode == apps.Mock {
		return "mock/" + app.OwnerID, "", h.Bounds.MockCalls
	}
	return c.plan.Model.Provider, c.who.App.ID, h.Bounds.ProviderCalls
}
