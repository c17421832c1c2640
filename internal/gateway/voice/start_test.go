package voice

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// TestCallerLeavesAtAStart: a session that a node has claimed runs there, although the caller that started it leaves
// before, after or during the claim (F-86).
func TestCallerLeavesAtAStart(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		n := w.nodes[0]
		left, leave := context.WithCancel(t.Context())
		leave()
		o := w.open(mini)
		if _, err := n.startByTicket(left, o.ID, o.Client.Ticket); err != nil {
			t.Errorf("an offer whose browser has left: %v", err)
		}
		n.findRunner(o.ID).postEvent(session.EndRequested{Immediate: true})
		w.ended(o.ID, session.AppEnded)

		o = w.open(mini)
		side := w.connect(o)
		w.until("its start is saved", func() bool { return strings.Contains(w.state(o.ID), `"Status":"live"`) })
		w.untilHeld()
		b := w.otherNode()
		w.exec(`UPDATE realtime_sessions SET node_id = 'node_dead', lease_us = 0 WHERE id = $1`, o.ID)
		n.findRunner(o.ID).stopSession()
		side.closed()
		w.until("the session is adopted", func() bool {
			unlock, err := b.lockAdopting(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			if _, err := b.adopt(left, o.ID); err != nil {
				t.Fatalf("an adoption whose caller has left: %v", err)
			}
			return n.findRunner(o.ID) != nil || b.findRunner(o.ID) != nil
		})
		w.sideband()
		w.call(n, "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
		w.ended(o.ID, session.AppEnded)
		w.until("the calls are hung up", w.up.gone)
		w.free()
	})
}

// otherNode returns another node: a second one, or on SQLite, which has one process, the same.
func (w *world) otherNode() *testNode {
	if w.db.Engine == db.SQLite {
		return w.nodes[0]
	}
	return w.node()
}

// TestOwnedSessionRuns: a session that a node has claimed and whose start failed there, because the database did, runs
// soon after: one whose ticket is used ends, and a live call is watched again (F-86).
func TestOwnedSessionRuns(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		n := w.nodes[0]
		o := w.open(mini)
		w.exec(`UPDATE realtime_sessions SET node_id = $1, lease_us = $2, ticket_used_us = 1 WHERE id = $3`, n.NodeID,
			w.now().Add(leaseTTL).UnixMicro(), o.ID)
		w.ended(o.ID, session.ServerShutdown)

		o = w.open(mini)
		side := w.connect(o)
		w.until("its start is saved", func() bool { return strings.Contains(w.state(o.ID), `"Status":"live"`) })
		w.untilHeld()
		n.findRunner(o.ID).stopSession()
		side.closed()
		w.sideband()
		w.call(n, "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
		w.ended(o.ID, session.AppEnded)
		w.until("the calls are hung up", w.up.gone)
		w.free()
	})
}

// TestStartWhileStopping: a session that starts while its node begins to stop ends with the others.
func TestStartWhileStopping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	n := w.nodes[0]
	o := w.open(mini)
	saved, err := n.loadSession(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.exec(`UPDATE realtime_sessions SET node_id = $1, lease_us = $2 WHERE id = $3`, n.NodeID,
		w.now().Add(time.Hour).UnixMicro(), o.ID)
	setStopping := func(stopping bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.stopping = stopping
	}
	setStopping(true)
	n.startSession(saved)
	w.ended(o.ID, session.ServerShutdown)
	setStopping(false)
}
