package inference

import (
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
)

// Bounds are how many calls may be in flight on a node; 0 = no bound. Without them, a provider
// that answers slowly would take the memory and the sockets of the node (decision 051). Apps share
// the first two (decision 100).
type Bounds struct {
	Calls         int // in all
	ProviderCalls int // of one provider
	MockCalls     int // of the mock, for all apps of one developer: mock calls cost nothing
}

// appShare is how many calls an app may have in flight for each slot of a bound that is free. So one
// app alone leaves a ninth of the slots to apps that come later, and k apps that want more than there
// is settle at 8/(1+8k) each: equal shares, without a list of who is active and without a clock
// (decision 100).
const appShare = 8

// slots counts the calls under one bound, and those of each app that has any.
type slots struct {
	all   int
	byApp map[string]int
}

// enter counts a call of an app, or refuses it with the words of full if there is no slot at all.
// Without an app, calls share nothing.
func (s *slots) enter(app string, bound int, full string) error {
	if free := bound - s.all; bound > 0 {
		if free <= 0 {
			return errBusy(full)
		}
		if app != "" && s.byApp[app] >= appShare*free {
			return errBusy("this app has its share of the calls that the service can handle; try again in a moment")
		}
	}
	s.all++
	if app != "" {
		if s.byApp == nil {
			s.byApp = map[string]int{}
		}
		s.byApp[app]++
	}
	return nil
}

func (s *slots) leave(app string) {
	s.all--
	if app == "" {
		return
	}
	if s.byApp[app]--; s.byApp[app] == 0 {
		delete(s.byApp, app)
	}
}

// callsInFlight counts the calls of a node against its bounds. It remembers nothing of calls that
// have left.
type callsInFlight struct {
	mu    sync.Mutex
	node  slots
	byKey map[string]*slots // by provider; the mock's by developer
}

// enter counts a call of an app, or refuses it. Its caller must call leave.
func (c *callsInFlight) enter(app string, bound int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node.enter(app, bound, tooManyCalls)
}

func (c *callsInFlight) leave(app string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.node.leave(app)
}

// enterKey counts a call under a key of boundOf, or refuses it. Its caller must call leaveKey with
// the same key and app.
func (c *callsInFlight) enterKey(key, app string, bound int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byKey[key]
	if s == nil {
		s = &slots{}
	}
	if err := s.enter(app, bound, "too many calls are waiting for this provider; try again in a moment"); err != nil {
		return err
	}
	if c.byKey == nil {
		c.byKey = map[string]*slots{}
	}
	c.byKey[key] = s
	return nil
}

func (c *callsInFlight) leaveKey(key, app string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byKey[key]
	if s.leave(app); s.all == 0 {
		delete(c.byKey, key)
	}
}

// tooManyCalls are the words of a node that has as many calls as it may have.
const tooManyCalls = "the service is handling as many calls as it can; try again in a moment"

func errBusy(message string) error {
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
