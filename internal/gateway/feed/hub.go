package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/shares"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// Bounds of the streams, and of what one keeps in memory for a client that reads slowly. Beyond
// maxNotices the oldest are dropped: the balance still shows what is held.
const (
	maxStreamsPerConnection = 5
	maxStreams              = 2000 // of a node, which developers share
	maxNotices              = 256
)

// A Hub hands what happens to connections to the streams of this node. It reads the database for
// all of them.
type Hub struct {
	DB  *db.DB
	Now func() time.Time

	open    atomic.Int64 // streams: without any, Observe returns at once
	mu      sync.RWMutex
	topics  map[string]*topic // by connection id
	streams shares.Use        // by developer, who may have many apps, and many connections of each
	stopped chan struct{}     // closed when the node stops
	isEnded bool
}

// NewHub returns a Hub without streams.
func NewHub(d *db.DB, now func() time.Time) *Hub {
	return &Hub{DB: d, Now: now, topics: map[string]*topic{}, stopped: make(chan struct{})}
}

// A topic is a connection that has streams on this node.
type topic struct {
	streams map[*subscription]bool
	mark    store.ConnectionMark // as last polled
}

// A subscription is what a stream gets from the Hub.
type subscription struct {
	developerID string
	changed     chan struct{} // has an element if something may have changed

	mu      sync.Mutex
	notices []event // holds and releases
}

// subscribe opens a stream of a connection to an app of a developer, unless there are too many. Its caller must call
// unsubscribe.
func (h *Hub) subscribe(connectionID, developerID string) (*subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[connectionID]
	switch {
	case h.isEnded || h.streams.Check(developerID, 1, maxStreams) != nil:
		e := apierr.Unavailable.On(connectionID, "this node can take no more event streams; try again")
		e.RetryAfter = time.Second
		return nil, e
	case t != nil && len(t.streams) >= maxStreamsPerConnection:
		e := apierr.RateLimited.On(connectionID, "this connection has %d event streams already; close one",
			maxStreamsPerConnection)
		e.RetryAfter = keepAliveInterval
		return nil, e
	case t == nil:
		t = &topic{streams: map[*subscription]bool{}}
		h.topics[connectionID] = t
	}
	s := &subscription{developerID: developerID, changed: make(chan struct{}, 1)}
	t.streams[s] = true
	h.streams.Add(developerID, 1)
	h.open.Add(1)
	return s, nil
}

func (h *Hub) unsubscribe(connectionID string, s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[connectionID]
	delete(t.streams, s)
	if len(t.streams) == 0 {
		delete(h.topics, connectionID)
	}
	h.streams.Add(s.developerID, -1)
	h.open.Add(-1)
}

// Observe tells the streams of a connection that a command has been committed. It never blocks: the
// ledger's callers run it.
func (h *Hub) Observe(c rules.Command, r *rules.Result) {
	if h.open.Load() == 0 {
		return
	}
	switch c := c.(type) {
	case rules.Hold:
		if r.Outcome == rules.Applied {
			h.publish(c.ConnectionID, func() event { return holdEvent(&r.Call, h.Now()) })
		}
	case rules.Release:
		if r.Outcome == rules.Applied {
			h.publish(c.ConnectionID, func() event { return releaseEvent(&c.Call, h.Now()) })
		}
	case rules.Settle:
		h.publish(c.ConnectionID, nil)
	default:
		h.publish(r.Connection.ID, nil)
	}
}

// publish wakes the streams of a connection, with a notice if there is one.
func (h *Hub) publish(connectionID string, notice func() event) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	t := h.topics[connectionID]
	if t == nil {
		return
	}
	var e event
	if notice != nil {
		e = notice()
	}
	for s := range t.streams {
		if notice != nil {
			s.add(e)
		}
		s.wake()
	}
}

func (s *subscription) add(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notices) == maxNotices {
		s.notices = append(s.notices[:0], s.notices[1:]...)
	}
	s.notices = append(s.notices, e)
}

// takeNotices returns the notices since the last time.
func (s *subscription) takeNotices() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.notices
	s.notices = nil
	return list
}

func (s *subscription) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // it is awake
	}
}

// pollTimeout bounds one poll.
const pollTimeout = 5 * time.Second

// Poll wakes the streams of the connections that have changed in the database since the last poll:
// on other nodes, or in a transaction that Observe does not see. Call it once a second.
func (h *Hub) Poll(ctx context.Context) error {
	if h.open.Load() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	marks, err := store.ListConnectionMarks(ctx, h.DB, h.listTopics())
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for connectionID, mark := range marks {
		t := h.topics[connectionID]
		if t == nil || t.mark == mark {
			continue
		}
		t.mark = mark
		for s := range t.streams {
			s.wake()
		}
	}
	return nil
}

func (h *Hub) listTopics() (connectionIDs []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for connectionID := range h.topics {
		connectionIDs = append(connectionIDs, connectionID)
	}
	return connectionIDs
}

// Stop ends all streams, because the node stops.
func (h *Hub) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isEnded {
		h.isEnded = true
		close(h.stopped)
	}
}

func formatTime(t time.Time) string { return timestamp.Format(t.UnixMicro()) }
