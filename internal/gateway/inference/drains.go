package inference

import (
	"container/list"
	"errors"
	"sync"
	"time"
)

// drains are the calls of this node whose clients have all gone. Each is read on to
// its end, so that it is billed exactly and a retry gets all of it, but not for
// ever and not without number: a drain ends after patience, and where there are too
// many the oldest ends, which has had the most of its time and is the likeliest to
// hang. What it has read is then billed as a cut stream's is (decisions,
// Idempotency). A copy of the request that joins takes the call off the list.
type drains struct {
	mu       sync.Mutex
	running  list.List // of *running; in front the one that was left first
	most     int
	patience time.Duration
}

// Bounds of a node's drains.
const (
	mostDrains    = 1000
	drainPatience = 5 * time.Minute
)

// errDrained is why a drain ended before its call.
var errDrained = errors.New("the client has gone, and the answer was not waited for any longer")

// begin lets a call be cut once nobody waits for it.
func (d *drains) begin(c *running, cut func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.cut = cut
}

// end is the end of a call.
func (d *drains) end(c *running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(c)
	c.cut = nil
}

// join says that one more client waits for a call.
func (d *drains) join(c *running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.clients++
	d.remove(c)
}

// leave says that one client has gone.
func (d *drains) leave(c *running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.clients--; c.clients > 0 || c.cut == nil {
		return
	}
	c.drain = d.running.PushBack(c)
	c.patience = time.AfterFunc(d.patience, func() { d.give(c) })
	if d.running.Len() > d.most {
		oldest := d.running.Front().Value.(*running)
		d.remove(oldest)
		oldest.cut()
	}
}

// give up a call that is still drained.
func (d *drains) give(c *running) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.drain != nil {
		d.remove(c)
		c.cut()
	}
}

// remove takes a call off the list if it is there. d.mu is held.
func (d *drains) remove(c *running) {
	if c.drain != nil {
		d.running.Remove(c.drain)
		c.patience.Stop()
		c.drain = nil
	}
}
