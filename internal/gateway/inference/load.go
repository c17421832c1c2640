package inference

import (
	"errors"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/shares"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds are how many calls may be in flight on a node, and what memory they may take; 0 = no bound. Without them, a
// provider that answers slowly would take the memory and the sockets of the node (decision 051). Apps share the first
// two, and developers the memory (decision 100). The users of an app share its calls, and the memory for large requests
// and answers of its developer.
type Bounds struct {
	Calls         int   // in all
	ProviderCalls int   // of one provider
	MockCalls     int   // of the mock, for all apps of one developer: mock calls cost nothing
	Bytes         int64 // of requests and answers (decision 131)
}

// checkFreeRate counts a call of the mock, or refuses it.
func (h *Handler) checkFreeRate(app *apps.App) error {
	if app.ProviderMode != apps.Mock {
		return nil
	}
	return h.FreeRate.Check(app.OwnerID)
}

// How many remote images are fetched for a user on an app that no call has paid for: those of estimates, and of calls
// that are refused afterwards.
const (
	imageInterval = time.Second // of one, over time
	imageBurst    = 100
)

// checkImageRate counts the remote images of a request, before they are fetched, or refuses the call. Images of a call
// that is held are given back.
func (h *Handler) checkImageRate(c *call, request *provider.Request) error {
	n := images.CountRemote(request)
	if n == 0 {
		return nil
	}
	if wait, ok := h.imageRate.Peek(imageKey(c)); !ok {
		e := apierr.RateLimited.Errorf("too many remote images were fetched for this user's estimates and refused " +
			"calls; slow down, or send images as data: URLs")
		e.RetryAfter = max(wait, time.Second)
		return e
	}
	h.chargeImages(c, n)
	return nil
}

// chargeImages counts n remote images of a call, or gives them back if n is negative.
func (h *Handler) chargeImages(c *call, n int) {
	if n != 0 {
		h.imageRate.Charge(imageKey(c), n)
		c.remoteImages += n
	}
}

func imageKey(c *call) string { return c.who.App.ID + "/" + c.who.AccountID }

// callsInFlight counts the calls of a node, and their bytes, against its bounds. It remembers nothing of calls that
// have left.
type callsInFlight struct {
	mu    sync.Mutex
	node  shares.Use             // calls, by app
	users shares.Use             // calls, by app and user
	byKey map[string]*shares.Use // calls, by provider; the mock's by developer
	bytes shares.Use             // by developer
	large shares.Use             // bytes beyond callBytes of each call, by developer and user
}

// enter counts a call of a user on an app and the bytes that each call takes, or refuses it. Its caller must call leave
// of the seat.
func (c *callsInFlight) enter(app, developer, user string, b *Bounds) (*seat, error) {
	s := &seat{in: c, app: app, developer: developer, bound: b.Bytes, counted: callBytes}
	if user != "" {
		s.appUser, s.developerUser = app+"/"+user, developer+"/"+user
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.node.Check(app, 1, int64(b.Calls))
	if err == nil {
		err = c.node.CheckPart(app, &c.users, s.appUser, 1, int64(b.Calls))
	}
	if err != nil {
		return nil, errBusy(err, tooManyCalls)
	}
	if err := c.bytes.Take(developer, callBytes, b.Bytes); err != nil {
		return nil, errNoMemory(err)
	}
	c.node.Add(app, 1)
	c.users.Add(s.appUser, 1)
	return s, nil
}

// checkBytes refuses more bytes of a call, beyond callBytes, which would be too many for its developer or for its user.
// c.mu is held.
func (c *callsInFlight) checkBytes(s *seat, more int64) error {
	err := c.bytes.Check(s.developer, more, s.bound)
	if err == nil {
		err = c.bytes.CheckPart(s.developer, &c.large, s.developerUser, more, s.bound)
	}
	if err != nil {
		return errNoMemory(err)
	}
	return nil
}

// addBytes counts more bytes of a call beyond callBytes, or fewer. c.mu is held.
func (c *callsInFlight) addBytes(s *seat, more int64) {
	c.bytes.Add(s.developer, more)
	c.large.Add(s.developerUser, more)
}

// giveBack counts no bytes of a call any more. c.mu is held.
func (c *callsInFlight) giveBack(s *seat) {
	c.addBytes(s, callBytes-s.counted)
	c.bytes.Add(s.developer, -callBytes)
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
	switch {
	case errors.Is(cause, shares.ErrShare):
		full = "this app has its share of the calls that the service can handle; try again in a moment"
	case errors.Is(cause, shares.ErrPart):
		full = "this user has their share of the calls that the service can handle for the app; try again in a moment"
	}
	return errLater(full)
}

func errNoMemory(cause error) error {
	switch {
	case errors.Is(cause, shares.ErrShare):
		return errLater("the apps of this developer have their share of the service's memory; try again in a moment")
	case errors.Is(cause, shares.ErrPart):
		return errLater("this user has their share of the service's memory for the apps of this developer; " +
			"try again in a moment")
	}
	return errLater("the service has no memory left for this call; try again in a moment, or send a smaller request")
}

func errLater(message string) error {
	e := apierr.Unavailable.Errorf("%s", message)
	e.RetryAfter = time.Second
	return e
}

// TakeMemory counts bytes of the memory of this node for a developer besides those of calls, or refuses them with 503.
func (h *Handler) TakeMemory(developerID string, bytes int64) error {
	h.inFlight.mu.Lock()
	defer h.inFlight.mu.Unlock()
	if err := h.inFlight.bytes.Take(developerID, bytes, h.Bounds.Bytes); err != nil {
		return errNoMemory(err)
	}
	return nil
}

// CountMemory counts such bytes whatever is left, and gives them back if they are negative.
func (h *Handler) CountMemory(developerID string, bytes int64) {
	h.inFlight.mu.Lock()
	defer h.inFlight.mu.Unlock()
	h.inFlight.bytes.Add(developerID, bytes)
}

// MemoryUsed returns how many bytes calls and voice sessions take of the memory of this node.
func (h *Handler) MemoryUsed() int64 {
	h.inFlight.mu.Lock()
	defer h.inFlight.mu.Unlock()
	return h.inFlight.bytes.All()
}

// boundOf returns what a call counts under besides its node, the app whose share of it counts, and
// the bound. The mock's is one developer's own: their apps share nothing.
func (h *Handler) boundOf(c *call) (key, app string, bound int) {
	if app := &c.who.App; app.ProviderMode == apps.Mock {
		return "mock/" + app.OwnerID, "", h.Bounds.MockCalls
	}
	return c.plan.Model.Provider, c.who.App.ID, h.Bounds.ProviderCalls
}
