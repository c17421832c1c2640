package inference

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/shared"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxStoredResponse is the most bytes of a response that are stored for replays, and
// that followers can read (decision 027).
const maxStoredResponse = 8 << 20

// A runningCall is one call on this node, from before its hold until after its
// settlement. Its leader writes it, and followers with the same key read it. It belongs to
// all of them: the leader runs it on the context of work, so that it ends for no client
// that leaves while another one waits.
type runningCall struct {
	work        *shared.Work
	key         rules.Key
	fingerprint string
	claim       string // of the leader's hold
	appID       string

	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil = no follower waits for it
	out     *sse          // of the leader's client, while its request lasts; nil = no stream
	sent    streamFrames  // of a stream, so far
	tooLong bool          // sent passed maxStoredResponse and was dropped
	left    bool          // it is about to end
	ended   bool
	err     error  // how it ended, if it was refused or failed
	result  result // how it ended, if it was billed or is pending
	late    error  // what clients get while the settlement is repeated in the background

	attempt   int64 // 0 = no hold yet
	requestID string
	saved     int   // bytes of sent that are in checkpoints
	saves     int64 // checkpoints saved

	deliveredTokens int64 // output so far of a stream that is tooLong
	savedTokens     int64 // deliveredTokens in the last checkpoint

	saving       bool  // a checkpoint is not saved yet
	savingEnd    int   // where in sent it ends
	savingTokens int64 // deliveredTokens in it

	stopped atomic.Pointer[stoppedError] // why nothing more is relayed; nil = it was not stopped

	// Guarded by orphanedCalls.mu.
	silent  bool          // a stream of which the provider has sent nothing yet
	cut     func(error)   // ends the upstream request, for this cause; nil = there is none
	orphan  *list.Element // its place in orphanedCalls; nil = it has clients
	timeout *time.Timer   // cuts the orphan
}

// A result is how a call ended that was billed or is pending: its ledger row and the
// provider's response.
type result struct {
	entry rules.Entry
	body  []byte // a JSON object, or the frames of a stream
	usage []byte // the frame of a stream that has only usage, the last of body

	pending bool // the charge is not known yet: entry has only what names the call
	differs bool // clients of this node got more than is stored for replays
}

// A registry holds the calls that run on this node, so that a request with the same key
// attaches to its call without asking the database.
type registry struct {
	mu    sync.Mutex
	calls map[rules.Key]*runningCall
}

// enter returns the running call of a key. With leads it is a new one, which its leader
// must end with leave.
func (g *registry) enter(k rules.Key, fingerprint, claim, appID string) (c *runningCall, leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[k]; c != nil {
		return c, false
	}
	c = &runningCall{work: shared.NewWork(), key: k, fingerprint: fingerprint, claim: claim, appID: appID}
	g.calls[k] = c
	return c, true
}

// leave removes a call and announces to its followers how it ended. After the first time it changes nothing: the key
// may be another call's.
func (g *registry) leave(c *runningCall, err error) {
	c.mu.Lock()
	left := c.left
	c.left = true
	c.mu.Unlock()
	if left {
		return
	}
	g.mu.Lock()
	delete(g.calls, c.key)
	g.mu.Unlock()
	c.mu.Lock()
	c.ended, c.err = true, err
	c.wakeFollowers()
	c.mu.Unlock()
}

// isRunning reports whether the call that made a hold still runs here.
func (g *registry) isRunning(k rules.Key, claim string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[k]
	return c != nil && c.claim == claim
}

// findKey returns the key of a call that runs here with this fingerprint; "" = none.
func (g *registry) findKey(connectionID, fingerprint string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, c := range g.calls {
		if k.ConnectionID == connectionID && c.fingerprint == fingerprint {
			return k.Key
		}
	}
	return ""
}

// listCalls returns all calls.
func (g *registry) listCalls() (calls []*runningCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		calls = append(calls, c)
	}
	return calls
}

// wakeFollowers announces a change. c.mu is held.
func (c *runningCall) wakeFollowers() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// setLeader notes where the leader writes a stream; nil = nowhere.
func (c *runningCall) setLeader(out *sse) {
	c.mu.Lock()
	c.out = out
	c.mu.Unlock()
}

// hurryLeader lets the leader not wait for long until its client takes what is being written, because another client
// waits now for what follows. A client that does not take it is gone, and gets the answer by its key (decision 211).
func (c *runningCall) hurryLeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out != nil {
		c.out.hurry()
	}
}

// setAttempt notes the hold of the call.
func (c *runningCall) setAttempt(number int64, requestID string) {
	c.mu.Lock()
	c.attempt, c.requestID = number, requestID
	c.wakeFollowers()
	c.mu.Unlock()
}

// setRequestID notes the id of a call that another attempt has answered or answers.
func (c *runningCall) setRequestID(requestID string) {
	c.mu.Lock()
	c.requestID = requestID
	c.wakeFollowers()
	c.mu.Unlock()
}

// waitRequestID waits until the request id of the call is known, and returns it; "" = the
// call has ended without one.
func (c *runningCall) waitRequestID(ctx context.Context) (string, error) {
	for {
		c.mu.Lock()
		if c.requestID != "" || c.ended {
			defer c.mu.Unlock()
			return c.requestID, nil
		}
		changed := c.nextChange()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// waitEnd waits until the call has ended.
func (c *runningCall) waitEnd(ctx context.Context) error {
	for {
		c.mu.Lock()
		if c.ended {
			c.mu.Unlock()
			return nil
		}
		changed := c.nextChange()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nextChange returns a channel that is closed at the next change. c.mu is held.
func (c *runningCall) nextChange() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// appendFrames adds frames of a stream, for followers and for replays. It returns the frames that are not kept: all so
// far when the stream gets too long, and after that each new one.
func (c *runningCall) appendFrames(frames []byte) (dropped []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.wakeFollowers()
	if !c.tooLong && c.sent.size()+len(frames) <= maxStoredResponse {
		c.sent.append(frames)
		return nil
	}
	dropped = append(c.sent.from(0), frames...)
	c.tooLong, c.sent = true, streamFrames{}
	return dropped
}

// setDeliveredTokens notes how much output a stream that is too long has delivered, for the next checkpoint.
func (c *runningCall) setDeliveredTokens(n int64) {
	c.mu.Lock()
	c.deliveredTokens = n
	c.mu.Unlock()
}

// frames returns those of a stream so far, to which the leader may append when no frames follow: followers read only
// sent. With tooLong there were too many to keep.
func (c *runningCall) frames() (sent []byte, tooLong bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.whole(), c.tooLong
}

// setResult notes how the call ended, before leave announces it.
func (c *runningCall) setResult(r result) {
	c.mu.Lock()
	c.result = r
	c.mu.Unlock()
}

// settleLater notes that the settlement is repeated in the background, and what clients get
// meanwhile. The leader does not end the call.
func (c *runningCall) settleLater(err error) {
	c.mu.Lock()
	c.late = err
	c.wakeFollowers()
	c.mu.Unlock()
}

// settlesLater reports whether settleLater was called.
func (c *runningCall) settlesLater() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late != nil
}

// A view is what a follower reads of a call.
type view struct {
	frames  []byte // that it has not read yet
	ended   bool
	err     error
	result  result
	tooLong bool // the stream is too long to be followed
}

// readOutput waits until the call has more than pos bytes, or has ended, or ctx ends.
func (c *runningCall) readOutput(ctx context.Context, pos int) (view, error) {
	for {
		c.mu.Lock()
		if sent := c.sent; sent.size() > pos || c.ended || c.tooLong || c.late != nil {
			v := view{ended: c.ended, err: c.err, result: c.result, tooLong: c.tooLong}
			if c.late != nil && !c.ended { // its end for now
				v.ended, v.err = true, c.late
			}
			c.mu.Unlock()
			if pos < sent.size() {
				v.frames = sent.part(pos)
				v.ended = v.ended && pos+len(v.frames) == sent.size() // otherwise the rest comes first
			}
			return v, nil
		}
		changed := c.nextChange()
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return view{}, ctx.Err()
		}
	}
}

// checkpoint returns the next checkpoint of a stream that runs, if there is one: what is in
// none yet, or again the one that was not saved. That one keeps its end, because it may be in
// the database though its COMMIT seemed to fail. A stream that is too long has no frames in it,
// but how much output was delivered.
func (c *runningCall) checkpoint() (store.Checkpoint, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.attempt == 0 || c.saved >= c.sent.size() && c.savedTokens == c.deliveredTokens {
		return store.Checkpoint{}, false
	}
	if !c.saving || c.tooLong {
		c.saving, c.savingEnd, c.savingTokens = true, c.sent.size(), c.deliveredTokens
	}
	p := store.Checkpoint{
		RequestID:       c.requestID,
		Attempt:         c.attempt,
		N:               c.saves,
		Body:            []byte{},
		DeliveredTokens: c.savingTokens,
	}
	if !c.tooLong {
		p.Body = c.sent.from(c.saved)[:c.savingEnd-c.saved]
	}
	return p, true
}

// noteSaved notes that the checkpoint was saved that checkpoint returned.
func (c *runningCall) noteSaved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.savedTokens, c.saves, c.saving = c.savingEnd, c.savingTokens, c.saves+1, false
}
