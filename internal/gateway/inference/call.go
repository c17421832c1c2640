package inference

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxKept bounds the stream that is kept for replays (decisions, Idempotency).
const maxKept = 8 << 20

// firstKept is the room a stream is given at first: most answers need no more.
const firstKept = 8 << 10

// running is one call on this node, from before its hold until after its
// settlement. Its leader writes it; whoever sends the same key reads along.
type running struct {
	key         rules.Key
	fingerprint string
	claim       string // of its leader's hold

	mu      sync.Mutex
	changed chan struct{} // closed at the next change, if somebody waits for it
	sent    []byte        // a stream's frames so far
	tooLong bool          // sent passed maxKept and was dropped
	ended   bool
	err     error  // how it ended, if it was refused or failed
	result  result // how it ended, if it was billed

	// Guarded by drains.mu.
	clients  int           // that wait for it
	cut      func()        // ends the call at the provider; nil when it is not there
	drain    *list.Element // its place in drains, when nobody waits for it
	patience *time.Timer   // ends the drain

	attempt   int64
	requestID string
	saved     int   // bytes of sent that are checkpointed
	saves     int64 // checkpoints made
}

// result is a call that was answered: its ledger row, and what the provider said.
type result struct {
	entry rules.Entry
	body  []byte // the provider's JSON object, or a stream's frames
	usage []byte // a stream's usage-only frame, the last of body

	pending bool // the charge follows, and of entry there is only what names the call
}

// registry holds the calls that run on this node, so that copies of a request
// join without asking the database.
type registry struct {
	mu    sync.Mutex
	calls map[rules.Key]*running
}

// enter returns the running call of a key, and whether it is new: then the
// caller leads it and must leave it.
func (g *registry) enter(k rules.Key, fingerprint, claim string) (*running, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[k]; c != nil {
		return c, false
	}
	c := &running{key: k, fingerprint: fingerprint, claim: claim, clients: 1}
	g.calls[k] = c
	return c, true
}

// runs says whether the call that made this hold still runs here.
func (g *registry) runs(k rules.Key, claim string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[k]
	return c != nil && c.claim == claim
}

// leave ends a call: who waits learns how it ended, who comes later asks the database.
func (g *registry) leave(c *running, err error) {
	g.mu.Lock()
	delete(g.calls, c.key)
	g.mu.Unlock()
	c.mu.Lock()
	c.ended, c.err = true, err
	c.wake()
	c.mu.Unlock()
}

// streams returns the calls that have something to checkpoint.
func (g *registry) streams() (list []*running) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		list = append(list, c)
	}
	return list
}

// wake tells the readers that something changed. c.mu is held.
func (c *running) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// push adds frames of a stream for those who read along, and for replays.
func (c *running) push(frames []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tooLong || len(c.sent)+len(frames) > maxKept {
		c.tooLong, c.sent = true, nil
	} else {
		if c.sent == nil {
			c.sent = make([]byte, 0, max(len(frames), firstKept))
		}
		c.sent = append(c.sent, frames...)
	}
	c.wake()
}

// frames are those of a stream so far, and whether they were too many to keep.
func (c *running) frames() (sent []byte, tooLong bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent, c.tooLong
}

// settled stores how the call ended, before leave announces it.
func (c *running) settled(r result) {
	c.mu.Lock()
	c.result = r
	c.mu.Unlock()
}

// view is what a reader sees: the frames from pos on, and whether that is all.
type view struct {
	frames []byte
	ended  bool
	err    error
	result result
	lost   bool // the stream is too long to be read along
}

// read waits until there is more than pos bytes, or the end.
func (c *running) read(ctx context.Context, pos int) (view, error) {
	for {
		c.mu.Lock()
		if len(c.sent) > pos || c.ended || c.tooLong {
			v := view{ended: c.ended, err: c.err, result: c.result, lost: c.tooLong}
			if pos < len(c.sent) {
				v.frames = c.sent[pos:len(c.sent):len(c.sent)]
			}
			c.mu.Unlock()
			return v, nil
		}
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return view{}, ctx.Err()
		}
	}
}

// checkpoint returns what of a stream is not saved yet.
func (c *running) checkpoint() (store.Checkpoint, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.attempt == 0 || c.saved >= len(c.sent) {
		return store.Checkpoint{}, false
	}
	p := store.Checkpoint{RequestID: c.requestID, Attempt: c.attempt, N: c.saves, Body: c.sent[c.saved:len(c.sent):len(c.sent)]}
	c.saved, c.saves = len(c.sent), c.saves+1
	return p, true
}
