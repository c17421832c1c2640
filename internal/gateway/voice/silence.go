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

// nodeLease is what a node knows of its leases on sessions. mu guards the rest, too.
type nodeLease struct {
	silence
	renewedAt time.Time // when the last renewal began
	steadyAt  time.Time // since when no renewal was late, and the clock of leases has not stepped
	endUS     int64     // of the leases, as the last renewal has set it
}

// renewed notes that a renewal has succeeded, which began at a time, and until when the leases last. A step of their
// clock counts as a late renewal: for all nodes it seems to end the leases of others.
func (l *nodeLease) renewed(began time.Time, endUS int64) {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	passed := began.Sub(l.renewedAt)
	step := time.Duration(endUS-l.endUS)*time.Microsecond - passed
	if passed >= leaseTTL || l.endUS > 0 && step.Abs() > leaseTTL/2 {
		l.steadyAt = began
	}
	l.renewedAt, l.endUS = began, endUS
}

// isCurrent reports whether no other node can own this node's sessions.
func (l *nodeLease) isCurrent(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.renewedAt) < leaseTTL
}

// isSteady reports whether every renewal was in time for one whole lease. Only then a node judges
// another one dead: after an outage of the database the leases of all nodes are over.
func (l *nodeLease) isSteady(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.steadyAt.IsZero() && now.Sub(l.renewedAt) < leaseTTL && now.Sub(l.steadyAt) >= leaseTTL
}

// clockUS returns the clock of leases at a time, if it has not stepped since the last renewal; 0 = there was none.
func (l *nodeLease) clockUS(now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.endUS == 0 {
		return 0
	}
	return l.endUS + (now.Sub(l.renewedAt) - leaseTTL).Microseconds()
}
