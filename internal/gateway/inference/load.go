package inference

import (
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
)

// Bounds are how many calls may be in flight on a node; 0 = no bound. Without them, a provider
// that answers slowly would take the memory and the sockets of the node (decision 051).
type Bounds struct {
	Calls         int // in all
	ProviderCalls int // of one provider
	MockCalls     int // of the mock, for all apps of one developer: mock calls cost nothing
}

// callsInFlight counts the calls of a node against its bounds.
type callsInFlight struct {
	mu    sync.Mutex
	all   int
	byKey map[string]int // by provider; the mock's by developer
}

// enter counts a call, or refuses it. Its caller must call leave.
func (c *callsInFlight) enter(bound int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bound > 0 && c.all >= bound {
		return errTooManyCalls()
	}
	c.all++
	return nil
}

func (c *callsInFlight) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
}

// enterKey counts a call of a provider or of a developer's mock, or refuses it. Its caller must
// call leaveKey.
func (c *callsInFlight) enterKey(key string, bound int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bound > 0 && c.byKey[key] >= bound {
		return errBusy("too many calls are waiting for this provider; try again in a moment")
	}
	if c.byKey == nil {
		c.byKey = map[string]int{}
	}
	c.byKey[key]++
	return nil
}

func (c *callsInFlight) leaveKey(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key]--; c.byKey[key] == 0 {
		delete(c.byKey, key)
	}
}

// errTooManyCalls is the refusal of a node that has as many calls as it may have.
func errTooManyCalls() error {
	return errBusy("the service is handling as many calls as it can; try again in a moment")
}

func errBusy(message string) error {
	e := apierr.Unavailable.Errorf("%s", message)
	e.RetryAfter = time.Second
	return e
}

// boundOf returns what a call counts under besides its node, and the bound of that.
func (h *Handler) boundOf(c *call) (key string, bound int) {
	if app := &c.who.App; app.ProviderMode == apps.Mock {
		return "mock/" + app.OwnerID, h.Bounds.MockCalls
	}
	return c.plan.Model.Provider, h.Bounds.ProviderCalls
}
