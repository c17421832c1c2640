package voice

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// load reads a session to run it.
func (h *Handler) load(ctx context.Context, sessionID string) (s saved, err error) {
	rw, err := getRow(ctx, h.DB, sessionID)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(rw.State), &s); err != nil {
		return s, err
	}
	return s, s.Book.open()
}

// adopt runs a session that nobody runs; nil if somebody does. adopting is held.
func (h *Handler) adopt(ctx context.Context, sessionID string) (*running, error) {
	before, err := getRow(ctx, h.DB, sessionID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if ok, err := h.claim(ctx, sessionID); err != nil || !ok {
		return nil, err
	}
	s, err := h.load(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if rw, err := getRow(ctx, h.DB, sessionID); err == nil && rw.CallID != "" && s.State.CallID == "" {
		s.State.CallID = rw.CallID // the node before died between the provider's answer and this
	}
	asking := s.State.Hold == session.Requested
	r := h.start(s)
	if before.NodeID != "" {
		h.Log.WarnContext(ctx, "took over a dead node's voice session", "session_id", sessionID, "node_id", before.NodeID)
	}
	if before.NodeID != "" || asking { // whoever created it died before it knew of its hold, or after
		r.post(session.Adopted{})
	}
	if before.EndAsked != "" {
		r.post(session.EndRequested{Immediate: before.EndAsked == session.Immediate})
	}
	return r, nil
}

// Watch passes on what happened elsewhere to this node's sessions, and takes over
// what nobody runs. It is called once a second.
func (h *Handler) Watch(ctx context.Context) error {
	return errors.Join(h.look(ctx), h.takeOver(ctx), h.moved(ctx))
}

// suspended says of an app, a, that its developer or the service has switched it off.
const suspended = `(a.suspended = 1 OR a.suspension_by IS NOT NULL)`

// look tells sessions what their rows, connections and apps say.
func (h *Handler) look(ctx context.Context) (err error) {
	rows, err := h.DB.QueryContext(ctx, `SELECT s.id, COALESCE(s.end_asked, ''), c.status, CASE WHEN `+suspended+` THEN 1 ELSE 0 END FROM realtime_sessions s
		JOIN connections c ON c.id = s.connection_id JOIN apps a ON a.id = s.app_id
		WHERE s.status <> 'ended' AND s.node_id = $1 AND (s.end_asked IS NOT NULL OR c.status <> 'active' OR `+suspended+`)`, h.Node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var sessionID, asked, status string
		var off int64
		if err := rows.Scan(&sessionID, &asked, &status, &off); err != nil {
			return err
		}
		h.mu.Lock()
		s := h.sessions[sessionID]
		h.mu.Unlock()
		if s == nil {
			continue
		}
		switch {
		case status == string(rules.Revoked):
			s.post(session.Halt{Reason: session.ConnectionRevoked})
		case status == string(rules.Frozen):
			s.post(session.Halt{Reason: session.ConnectionFrozen})
		case off == 1:
			s.post(session.Halt{Reason: "app_suspended"})
		default:
			s.post(session.EndRequested{Immediate: asked == session.Immediate})
		}
	}
	return rows.Err()
}

// takeOver runs sessions that nobody runs and that need it: of dead nodes, with a
// ticket that has expired, asked to end, of a connection that is no longer active.
func (h *Handler) takeOver(ctx context.Context) error {
	h.mu.Lock()
	stopping := h.stopping
	h.mu.Unlock()
	if stopping {
		return nil
	}
	now := h.Now().UnixMicro()
	ids, err := db.QueryAll(ctx, h.DB, db.ScanColumn[string], `SELECT s.id FROM realtime_sessions s JOIN connections c ON c.id = s.connection_id JOIN apps a ON a.id = s.app_id
		WHERE s.status <> 'ended' AND (s.node_id IS NOT NULL AND s.lease_us <= $1
			OR s.node_id IS NULL AND (s.ticket_until_us <= $1 OR s.end_asked IS NOT NULL OR c.status <> 'active' OR `+suspended+`)) LIMIT 200`, now)
	if err != nil {
		return err
	}
	for _, sessionID := range ids {
		here, runsErr := h.runs(ctx, sessionID)
		if !here && runsErr == nil {
			h.adopting.Lock()
			_, runsErr = h.adopt(ctx, sessionID)
			h.adopting.Unlock()
		}
		err = errors.Join(err, runsErr)
	}
	return err
}

// runs says whether this node runs a session after all, though its lease was not
// renewed in time (the machine slept, or the database was away): nobody else has
// claimed it, and what it knows of its replies is better than what its row does.
func (h *Handler) runs(ctx context.Context, sessionID string) (bool, error) {
	h.mu.Lock()
	here := h.sessions[sessionID] != nil
	h.mu.Unlock()
	if !here {
		return false, nil
	}
	rw, err := getRow(ctx, h.DB, sessionID)
	return err == nil && rw.NodeID == h.Node, err
}

// HangUps repeats what did not work: a call of a session that has ended is hung up
// until the provider says that it is gone, by any node. It is called once a second, and
// by itself: nothing else waits for a provider that does not answer.
func (h *Handler) HangUps(ctx context.Context) error {
	ids, err := db.QueryAll(ctx, h.DB, db.ScanColumn[string], `SELECT id FROM realtime_sessions WHERE status = 'ended' AND hang_up = 1 LIMIT 100`)
	if err != nil {
		return err
	}
	for _, sessionID := range ids {
		rw, getErr := getRow(ctx, h.DB, sessionID)
		s, loadErr := h.load(ctx, sessionID)
		if err = errors.Join(err, getErr, loadErr); getErr != nil || loadErr != nil {
			continue
		}
		if rw.CallID != "" {
			calling, cancel := context.WithTimeout(ctx, patience)
			hangErr := h.hangUp(calling, &s.Book, rw.CallID)
			if cancel(); hangErr != nil {
				err = errors.Join(err, hangErr)
				continue
			}
		}
		err = errors.Join(err, h.hungUp(ctx, sessionID))
	}
	return err
}

// Stop ends this node's sessions, each after the user has heard what is being said,
// and waits for them until ctx ends; another node goes on with what is left then.
func (h *Handler) Stop(ctx context.Context) {
	h.mu.Lock()
	h.stopping = true
	var all []*running
	for _, s := range h.sessions {
		all = append(all, s)
	}
	for _, c := range h.waiting {
		c.end(false)
	}
	h.mu.Unlock()
	for _, s := range all {
		s.post(session.Shutdown{})
	}
	done := make(chan struct{})
	go func() {
		h.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	h.abandon()
}
