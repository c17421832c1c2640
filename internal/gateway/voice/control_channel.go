package voice

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
)

const (
	maxEarly            = 4       // updates that may wait for the session to run
	maxUnsent           = 256     // events that may wait for an app to read them
	maxUnsentBytes      = 1 << 20 // of these events, unless one alone is longer
	controlWriteTimeout = 5 * time.Second
)

// controlChannel is what the service sends on an app's control channel. It is closed if the app does
// not read its events in time.
type controlChannel struct {
	ws     *websocket.Conn
	memory *socketMemory // only its reader uses it, as it does model
	model  catalog.Model // of the session

	early []session.AppEvent // updates that wait for the session to run here; the supervisor's lock guards them

	mu      sync.Mutex
	queue   [][]byte
	bytes   int  // of the queue
	held    bool // the queue waits
	writing bool // a goroutine sends the queue, or nothing can be sent any more
	closed  bool // nothing more is accepted
	code    websocket.StatusCode
	reason  string
}

// queueEvent queues an event.
func (c *controlChannel) queueEvent(event []byte) {
	c.mu.Lock()
	full := len(c.queue) >= maxUnsent || len(c.queue) > 0 && c.bytes+len(event) > maxUnsentBytes
	if !full && !c.closed {
		c.queue, c.bytes = append(c.queue, event), c.bytes+len(event)
		c.startWriting()
	}
	c.mu.Unlock()
	if full {
		c.close(websocket.StatusPolicyViolation, "the events are not read")
	}
}

// hold keeps back what is sent from now on, until release.
func (c *controlChannel) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = !c.closed
}

// release sends what was kept back.
func (c *controlChannel) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.held = false
		c.startWriting()
	}
}

// refuseEarly refuses the updates that wait, because the channel closes before the session runs here. No other
// goroutine may add any: the supervisor's lock is held.
func (c *controlChannel) refuseEarly() {
	for i := range c.early {
		c.queueEvent(mustJSON(session.NewRefusal(&c.early[i],
			"the channel closes before the session is live; send it again on the next one")))
	}
	c.early = nil
}

// closeAfter closes the channel after what is queued, because the session has ended or, if not, is
// another node's.
func (c *controlChannel) closeAfter(sessionEnded bool) {
	if sessionEnded {
		c.close(websocket.StatusNormalClosure, "the session has ended")
	} else {
		c.close(websocket.StatusServiceRestart, connectAgain)
	}
}

// closeReplaced closes the channel because the app opened another one.
func (c *controlChannel) closeReplaced() {
	c.close(websocket.StatusGoingAway, "another control channel was opened")
}

// closeRevoked closes the channel because the token that opened it was revoked.
func (c *controlChannel) closeRevoked() {
	c.close(websocket.StatusPolicyViolation, "the access token was revoked")
}

// close closes the channel after what is queued. The first close decides the code.
func (c *controlChannel) close(code websocket.StatusCode, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed, c.held, c.code, c.reason = true, false, code, reason
		c.startWriting()
	}
}

// startWriting starts the goroutine that sends the queue, unless it runs. c.mu is held.
func (c *controlChannel) startWriting() {
	if !c.writing && !c.held {
		c.writing = true
		go c.sendQueue()
	}
}

// sendQueue sends the queue until it is empty, and then closes a closed channel's socket.
func (c *controlChannel) sendQueue() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 || c.held {
			closed := c.closed
			c.writing = closed // after the close nothing more is written
			if len(c.queue) == 0 {
				c.queue = nil
			}
			c.mu.Unlock()
			if closed {
				_ = c.ws.Close(c.code, c.reason) // the socket is gone in any case
			}
			return
		}
		event := c.queue[0]
		c.queue, c.bytes = c.queue[1:], c.bytes-len(event)
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), controlWriteTimeout)
		err := c.ws.Write(ctx, websocket.MessageText, event)
		cancel()
		if err != nil {
			_ = c.ws.CloseNow() // its reader notices; writing stays true, as nothing can be sent
			return
		}
	}
}
