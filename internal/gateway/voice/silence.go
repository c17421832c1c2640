package voice

import (
	"sync"
	"time"
)

// maxSilence is how long the database may not answer before sessions end: their calls are hung up
// first, and their books are written when it answers again (decision 045).
const maxSilence = 10 * time.Second

// silence measures how long the database has not answered.
type silence struct {
	mu    sync.Mutex
	since time.Time // of the first request without an answer; zero = none waits
}

// begin notes that the database is asked.
func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
}

// end notes that the database has answered.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// restart begins the measure again if a request waits: the node stood still, and cannot know whether the database did.
func (s *silence) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		s.since = time.Now()
	}
}

// lasts reports whether the database has not answered for d.
func (s *silence) lasts(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero() && time.Since(s.since) >= d
}

// nodeLease is what a node knows of its leases on sessions.
type nodeLease struct {
	silence
	renewedUS int64 // begin of the last renewal; guarded by mu, as is steadyUS
	steadyUS  int64 // since when no renewal was late
}

// renewed notes that a renewal has succeeded, which began at a time.
func (l *nodeLease) renewed(begunUS int64) {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	if begunUS >= l.renewedUS+leaseTTL.Microseconds() {
		l.steadyUS = begunUS
	}
	l.renewedUS = begunUS
}

// isCurrent reports whether no other node can own this node's sessions.
func (l *nodeLease) isCurrent(nowUS int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return nowUS < l.renewedUS+leaseTTL.Microseconds()
}

// isSteady reports whether every renewal was in time for one whole lease. Only then a node judges
// another one dead: after an outage of the database the leases of all nodes are over.
func (l *nodeLease) isSteady(nowUS int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.steadyUS > 0 && nowUS < l.renewedUS+leaseTTL.Microseconds() && nowUS >= l.steadyUS+leaseTTL.Microseconds()
}
