package voice

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// watchTimeout bounds one watch: the next one has fresh connections.
const watchTimeout = 5 * time.Second

// Watch passes on to this node's sessions what happened elsewhere, and adopts sessions without a
// node. Call it once a second.
func (s *Supervisor) Watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	return errors.Join(s.postChanges(ctx), s.takeOver(ctx), s.closeMovedControls(ctx), s.closeMovedForwards(ctx))
}

// postChanges ends this node's sessions as their rows, connections and apps say.
func (s *Supervisor) postChanges(ctx context.Context) error {
	changes, err := s.listChanges(ctx)
	if err != nil {
		return err
	}
	for _, c := range changes {
		r := s.findRunner(c.SessionID)
		if r == nil {
			continue
		}
		if reason := c.haltReason(); reason != "" {
			r.postEvent(session.Halt{Reason: reason})
		} else {
			r.postEvent(session.EndRequested{Immediate: c.EndRequested == session.Immediate})
		}
	}
	return nil
}

// haltReason returns why the session must end immediately; "" = it need not.
func (c *sessionChange) haltReason() string {
	switch {
	case c.ConnectionStatus == rules.Revoked, c.ChildEnded:
		return session.ConnectionRevoked // as to calls by the child's token
	case c.ConnectionStatus == rules.Frozen:
		return session.ConnectionFrozen
	case c.AppSuspended:
		return "app_suspended"
	case c.Stopped:
		return session.UserStopped
	}
	return ""
}

// takeOver adopts the sessions that no node owns and that need one, and runs those of this node
// without a runner. It adopts those of dead nodes only if this node has renewed its own leases without
// a gap: a database that was away for all nodes ended the leases of all. On SQLite no
// other process uses the database, so every other node is dead.
func (s *Supervisor) takeOver(ctx context.Context) error {
	if s.isStopping() {
		return nil
	}
	isAlone := s.DB.Engine == db.SQLite
	if isAlone && !s.foreignLeasesEnded.Load() {
		if err := s.endForeignLeases(ctx); err != nil {
			return err
		}
		s.foreignLeasesEnded.Store(true)
	}
	sessionIDs, err := s.listUnowned(ctx, s.knownUS(), isAlone || s.node.lease.isSteady(s.passing()))
	if err != nil {
		return err
	}
	for _, sessionID := range sessionIDs {
		err = errors.Join(err, s.adoptUnlessRunning(ctx, sessionID))
	}
	return errors.Join(err, s.runOwned(ctx))
}

func (s *Supervisor) adoptUnlessRunning(ctx context.Context, sessionID string) error {
	running, err := s.isRunningHere(ctx, sessionID)
	if err != nil || running {
		return err
	}
	unlock, err := s.lockAdopting(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.adopt(ctx, sessionID)
	return err
}

// runOwned runs the sessions of this node that have no runner: the database failed between their claim and their start.
// Their leases are renewed like all others, so no other node looks for them.
func (s *Supervisor) runOwned(ctx context.Context) error {
	sessionIDs, err := s.listOwned(ctx)
	for _, sessionID := range sessionIDs { // a session counts as starting before its ticket makes it owned
		if !s.hasRunner(sessionID) {
			err = errors.Join(err, s.runOwnedSession(ctx, sessionID))
		}
	}
	return err
}

func (s *Supervisor) runOwnedSession(ctx context.Context, sessionID string) error {
	unlock, err := s.lockAdopting(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.hasRunner(sessionID) {
		return nil
	}
	_, err = s.claimAndRun(ctx, sessionID, true)
	return err
}

// isRunningHere reports whether this node runs a session though its lease is over: the machine was
// suspended, or the database was away. No other node has claimed it, and its runner knows more of the
// replies than its row.
func (s *Supervisor) isRunningHere(ctx context.Context, sessionID string) (bool, error) {
	if s.findRunner(sessionID) == nil {
		return false, nil
	}
	r, err := getRow(ctx, s.DB, sessionID)
	return err == nil && r.NodeID == s.NodeID, err
}

// closeMovedControls closes the control channels that wait here for a session that another node runs,
// or that has ended. The app connects again, and is forwarded.
func (s *Supervisor) closeMovedControls(ctx context.Context) error {
	for _, sessionID := range s.listWaiting() {
		r, err := getRow(ctx, s.DB, sessionID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		ended := err != nil || r.Status == session.Ended
		if !ended && (r.NodeID == "" || r.NodeID == s.NodeID) {
			continue
		}
		s.mu.Lock()
		c := s.waiting[sessionID]
		delete(s.waiting, sessionID)
		if c != nil && !ended {
			c.refuseEarly()
		}
		s.mu.Unlock()
		if c != nil {
			c.closeAfter(ended)
		}
	}
	return nil
}

// closeMovedForwards ends the relays of control channels to a node that no longer owns the session: it may have stopped
// without closing them. The app connects again.
func (s *Supervisor) closeMovedForwards(ctx context.Context) error {
	s.mu.Lock()
	forwards := slices.Collect(maps.Keys(s.forwards))
	s.mu.Unlock()
	for _, f := range forwards {
		nodeID, err := s.ownerOf(ctx, f.sessionID)
		if err != nil {
			return err
		}
		if nodeID != f.nodeID {
			_ = f.node.CloseNow() // the relay notices
		}
	}
	return nil
}

// listWaiting returns the sessions that control channels wait for.
func (s *Supervisor) listWaiting() (sessionIDs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sessionID := range s.waiting {
		sessionIDs = append(sessionIDs, sessionID)
	}
	return sessionIDs
}

// HangUps repeats hang-ups that failed, of any node: the call of an ended session is hung up until the
// provider has no such call. Each try puts the next one off, so that calls which cannot be hung up keep
// no other waiting. Call it once a second from a job that does nothing else: the provider may not answer.
func (s *Supervisor) HangUps(ctx context.Context) error {
	sessionIDs, err := s.listCallsToHangUp(ctx, s.Now().UnixMicro())
	if err != nil {
		return err
	}
	var calls errgroup.Group // without a context: the failure of one ends no other
	calls.SetLimit(maxHangUps)
	for _, sessionID := range sessionIDs {
		calls.Go(func() error { return s.hangUpEnded(ctx, sessionID) })
	}
	return calls.Wait()
}

// maxHangUps is how many calls are hung up at once: a provider that does not answer delays no others.
const maxHangUps = 32

func (s *Supervisor) hangUpEnded(ctx context.Context, sessionID string) error {
	r, err := getRow(ctx, s.DB, sessionID)
	if err != nil {
		return err
	}
	now := s.Now()
	mine, err := s.postponeHangUp(ctx, sessionID, now, hangUpPause(now.Sub(r.endedAt())))
	if err != nil || !mine {
		return err
	}
	saved, err := s.loadSession(ctx, sessionID) // once it is put off: of what cannot be read there may be hundreds
	if err != nil {
		return err
	}
	return s.node.endCall(ctx, &r, &saved)
}

// hangUpPause returns how long after a try a call is hung up again, by how long its session has ended. In the first
// minutes that is within the 15 s of F-85; later the provider has refused it many times.
func hangUpPause(ended time.Duration) time.Duration {
	if ended < 2*lateBrowser {
		return min(max(ended/10, time.Second), 10*time.Second)
	}
	return min(ended/60, 10*time.Minute)
}
