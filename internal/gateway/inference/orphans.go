package inference

import (
	"container/list"
	"errors"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// orphanedCalls are the calls of this node whose clients have all disconnected. Each is
// read to its end, so that it is charged exactly and a retry gets the whole response
// (decision 029). Their number and their time are bounded: a call is cut after timeout;
// where there are more than max, the oldest is cut. A cut call is charged for what it
// has delivered. A follower that attaches to a call takes it off the list. A stream of
// which the provider has sent nothing is worth less: it is cut after silentTimeout, so that
// it holds no money and no socket of a provider that hangs.
type orphanedCalls struct {
	mu            sync.Mutex
	calls         list.List // of *runningCall; the one that was orphaned first is in front
	max           int
	timeout       time.Duration
	silentTimeout time.Duration
}

// Bounds of the orphaned calls of a node.
const (
	maxOrphans          = 1000
	orphanTimeout       = 5 * time.Minute
	silentOrphanTimeout = 10 * time.Second
)

// Why an orphaned call was cut, and why all calls of a node are.
var (
	errOrphanCut = errors.New("the client has disconnected, and the rest of the response is not awaited")
	errNodeStops = errors.New("the node stops, and the rest of the response is not awaited")
)

// watchCall lets a call be cut: once it has no client, or when it is stopped. silent says
// that it is a stream. From here on the call goes on without clients. If it has none already,
// watchCall returns false: its provider must not be asked (F-29).
func (o *orphanedCalls) watchCall(c *runningCall, cut func(cause error), silent bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.work.Keep() {
		return false
	}
	c.cut, c.silent = cut, silent
	if stop := c.stopped.Load(); stop != nil {
		cut(stop)
	}
	return true
}

// markBegun notes that the provider has begun a stream.
func (o *orphanedCalls) markBegun(c *runningCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.silent = false
	if c.orphan != nil {
		c.timeout.Reset(o.timeout)
	}
}

// unwatch ends watch.
func (o *orphanedCalls) unwatch(c *runningCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remove(c)
	c.cut = nil
}

// addClient counts one more client of a call. It returns false if all clients have left
// before the provider was asked: then the call is about to end, without a result.
func (o *orphanedCalls) addClient(c *runningCall) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.work.Join() {
		return false
	}
	o.remove(c)
	return true
}

// removeClient counts one client less. A call without clients is an orphan, or ends if its
// provider was not asked yet.
func (o *orphanedCalls) removeClient(c *runningCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.work.Leave() || c.cut == nil {
		return
	}
	c.orphan = o.calls.PushBack(c)
	timeout := o.timeout
	if c.silent {
		timeout = o.silentTimeout
	}
	c.timeout = time.AfterFunc(timeout, func() { o.cutCall(c) })
	if o.calls.Len() > o.max {
		oldest := o.calls.Front().Value.(*runningCall)
		o.remove(oldest)
		oldest.cut(errOrphanCut)
	}
}

// cutCall ends a call if it is still an orphan.
func (o *orphanedCalls) cutCall(c *runningCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.orphan != nil {
		o.remove(c)
		c.cut(errOrphanCut)
	}
}

// cutAll cuts every call that is watched, and ends the others that have not asked a provider.
func (o *orphanedCalls) cutAll(calls []*runningCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range calls {
		if c.cut != nil {
			o.remove(c)
			c.cut(errNodeStops)
		} else {
			c.work.End(apierr.Unavailable.On(c.key.ConnectionID,
				"the service is restarting; retry with the same Idempotency-Key"))
		}
	}
}

// remove takes a call off the list if it is there. o.mu is held.
func (o *orphanedCalls) remove(c *runningCall) {
	if c.orphan != nil {
		o.calls.Remove(c.orphan)
		c.timeout.Stop()
		c.orphan = nil
	}
}

// CutCalls ends the upstream requests of all calls, because the node stops. A stream is
// charged as an estimate of what it has delivered; other calls are not billed. Who follows a
// call of another node is told to retry.
func (h *Handler) CutCalls() { h.orphans.cutAll(h.calls.listCalls()) }
