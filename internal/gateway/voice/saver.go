package voice

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/retry"
)

// saver saves the newest state of a session. It runs beside the session's loop, which never waits for
// the database.
type saver struct {
	store     *Store
	sessionID string
	log       *slog.Logger
	spawn     func(func())    // starts a goroutine that the node waits for
	abandoned context.Context // ends when the node no longer waits for its sessions
	lost      func()          // called when another node owns the session
	stopped   <-chan struct{} // closed when the session no longer runs on this node

	silence

	mu      sync.Mutex
	newest  savedSession
	wanted  int64         // version of newest
	saved   int64         // the newest version that is saved
	running bool          // a goroutine saves
	closed  bool          // the end of the session is written instead
	changed chan struct{} // closed when saved has changed; nil = no goroutine waits for that
}

// save asks for a state to be saved. States that were not saved yet are left out.
func (s *saver) save(state savedSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = state
	s.wanted++
	if !s.running {
		s.running = true
		s.spawn(s.run)
	}
}

// version returns the number of the newest state.
func (s *saver) version() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// wait waits until a version is saved. It returns false if the session has stopped on this node before.
func (s *saver) wait(version int64) bool {
	for {
		s.mu.Lock()
		if s.saved >= version {
			s.mu.Unlock()
			return true
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.stopped:
			return false
		}
	}
}

// run saves until the newest state is saved, or the session has stopped.
func (s *saver) run() {
	pauses := retry.Backoff{First: 20 * time.Millisecond, Max: time.Second}
	for {
		s.mu.Lock()
		state, version := s.newest, s.wanted
		if s.running = s.saved < version; !s.running {
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.begin()
		owned, err := s.store.saveState(&state)
		switch {
		case err == nil && owned:
			s.end()
			s.noteSaved(version)
			continue
		case err == nil:
			if !s.isClosed() {
				s.lost()
			}
			return
		}
		s.log.ErrorContext(s.abandoned, "voice session save failed", "session_id", s.sessionID, "error", err)
		select {
		case <-time.After(pauses.Next()):
		case <-s.stopped:
			return
		case <-s.abandoned.Done():
			return
		}
	}
}

func (s *saver) noteSaved(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = version
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// close notes that the end of the session is about to be written: after it the row refuses states.
func (s *saver) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *saver) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
