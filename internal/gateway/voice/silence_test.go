package voice

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// stall lets the database answer nothing that voice needs, until resume is called: on SQLite the one
// write connection is taken, on PostgreSQL the tables are locked.
func (w *world) stall() (resume func()) {
	w.t.Helper()
	conn, err := w.db.Conn(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if w.db.Engine == db.Postgres {
		for _, text := range []string{"BEGIN", "SET LOCAL idle_in_transaction_session_timeout = 0",
			"LOCK TABLE realtime_sessions, realtime_replies, holds, ledger, connections IN ACCESS EXCLUSIVE MODE"} {
			if _, err := conn.ExecContext(w.t.Context(), text); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	var once sync.Once
	resume = func() {
		once.Do(func() {
			if w.db.Engine == db.Postgres {
				if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
					w.t.Error(err)
				}
			}
			if err := conn.Close(); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.t.Cleanup(resume)
	return resume
}

// beginReply lets the provider begin a reply of a new session, and returns when its node knows that.
func (w *world) beginReply(o opened) (side, control *socket) {
	w.t.Helper()
	side = w.connect(o)
	control = w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	side.send(createdEvent("resp_1"))
	control.wait("response.created")
	w.until("the reply is known", func() bool { return strings.Contains(w.state(o.ID), "resp_1") })
	return side, control
}

// checkMuted waits until replies no longer begin by themselves.
func checkMuted(t *testing.T, side *socket) {
	t.Helper()
	for {
		if e := side.wait("session.update"); strings.Contains(string(mustJSON(e)), `"create_response":false`) {
			return
		}
	}
}

// TestSilentDatabase: a session whose database does not answer turns speech off, cancels the reply and
// hangs up. What it knows of the reply is charged, once, when the database answers again.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		o := w.open(mini)
		side, control := w.beginReply(o)
		resume := w.stall()
		w.nodes[0].node.maxSilence.Store(1)
		checkMuted(t, side)
		side.wait("response.cancel")
		if e := control.wait("svc.session.ending"); e["reason"] != session.Unavailable {
			t.Errorf("ending: %v", e)
		}
		side.send(doneEvent("resp_1", "cancelled", usage10))
		w.until("the call is hung up", w.up.gone)
		resume()
		if s := w.ended(o.ID, session.Unavailable); s.ResponseCount != 1 || s.Receipts[0].UsageSource != "provider" {
			t.Errorf("receipts: %s", mustJSON(s.Receipts))
		}
		control.wait("svc.session.ended")
		w.free()
	})
}

// TestUnheldReply: the receipt of a reply that began while none could be held says that nothing was held.
func TestUnheldReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	side, control := w.beginReply(o)
	resume := w.stall()
	side.send(doneEvent("resp_1", "completed", usage10))
	side.send(createdEvent("resp_2"))
	control.wait("response.created")
	side.send(doneEvent("resp_2", "completed", usage10))
	side.send(`{"type":"input_audio_buffer.speech_started"}`)
	control.wait("input_audio_buffer.speech_started") // the node knows of the end of the reply
	resume()
	control.wait("svc.response.settled")
	control.wait("svc.response.settled")
	s := w.get(o.ID)
	if len(s.Receipts) != 2 || s.Receipts[0].HoldAmountMC == 0 || s.Receipts[1].HoldAmountMC != 0 ||
		s.Receipts[1].UserChargeMC == 0 {
		t.Errorf("receipts: %s", mustJSON(s.Receipts))
	}
}

// TestEndDuringSilence: an end that the app asks for acts while the database does not answer.
func TestEndDuringSilence(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"control channel", "API"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db.SQLite, "live", "full-live")
			w.nodes[0].endTimeout = time.Second
			o := w.open(mini)
			side, control := w.beginReply(o)
			resume := w.stall()
			if way == "API" {
				if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end",
					`{"when":"immediate"}`, w.token); status != http.StatusAccepted {
					t.Errorf("end: %d %v", status, answer)
				}
			} else {
				control.send(`{"type":"svc.session.end","when":"immediate"}`)
			}
			side.wait("response.cancel")
			side.send(doneEvent("resp_1", "cancelled", usage10))
			w.until("the call is hung up", w.up.gone)
			resume()
			if s := w.ended(o.ID, session.AppEnded); s.ResponseCount != 1 {
				t.Errorf("%d receipts", s.ResponseCount)
			}
			w.free()
		})
	}
}

// TestEndElsewhereDuringSilence: a request to end a session that does not run here is refused in time
// while the database does not answer, also while another request waits for the same lock.
func TestEndElsewhereDuringSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	w.nodes[0].endTimeout = 100 * time.Millisecond
	resume := w.stall()
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`,
				w.token)
			if status != http.StatusServiceUnavailable {
				t.Errorf("end: %d %v", status, answer)
			}
		})
	}
	calls.Wait()
	resume()
}

// TestLostSession: a node that loses its session to another one gives the ledger what it has heard. A
// reply that both have heard is charged once.
func TestLostSession(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		o := w.open(mini)
		w.beginReply(o)
		w.untilHeld()
		saved, err := w.nodes[0].loadSession(t.Context(), o.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.kill(w.nodes[0], o.ID)
		side := w.sideband() // of the node that has taken it over
		w.until("it is saved", func() bool { return strings.Contains(w.state(o.ID), `"EverAttached":true`) })
		slow := newRunner(w.nodes[0].node, saved) // as the node that had it
		for _, event := range []string{
			doneEvent("resp_1", "completed", usage10),
			createdEvent("resp_2"), doneEvent("resp_2", "completed", usage10),
		} {
			slow.postProviderEvent([]byte(event))
		}
		slow.stopSession()
		slow.run()
		w.until("they are charged", func() bool { return w.get(o.ID).ResponseCount == 2 })
		control := w.dial(o.ControlURL, w.token)
		for _, id := range []string{"resp_1", "resp_2", "resp_3"} {
			side.send(createdEvent(id))
			side.send(doneEvent(id, "completed", usage10))
			control.wait("svc.response.settled")
		}
		w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", "", w.token)
		if s := w.ended(o.ID, session.AppEnded); s.ResponseCount != 3 {
			t.Errorf("receipts: %s", mustJSON(s.Receipts))
		}
		w.free()
	})
}

// untilHeld waits until a hold is in the database: on SQLite it is in memory first.
func (w *world) untilHeld() {
	w.t.Helper()
	w.until("the hold is in the database", func() bool {
		var n int
		err := w.db.QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM holds WHERE state = 'open'`).Scan(&n)
		return err == nil && n > 0
	})
}

// TestOutageMovesNoSession: after an outage that ended the leases of all nodes, no node claims the
// sessions of another one for one whole lease.
func TestOutageMovesNoSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	o := w.open(mini)
	w.connect(o)
	b := w.node()
	w.pass(leaseTTL + time.Second) // nobody has renewed
	w.exec(`UPDATE realtime_sessions SET lease_us = $2, node_id = 'node_late' WHERE id = $1`, o.ID, w.now().UnixMicro())
	if err := b.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := getRow(t.Context(), w.db, o.ID)
	if err != nil || r.NodeID != "node_late" {
		t.Errorf("claimed by %s, %v", r.NodeID, err)
	}
	for range 2 { // renewals go on
		w.pass(leaseTTL - time.Second)
		if err := b.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.until("it is claimed then", func() bool {
		r, err := getRow(t.Context(), w.db, o.ID)
		return err == nil && r.NodeID != "node_late"
	})
}

// TestEventsAreDated: an event counts as of when the node received it, however late the rules get it.
func TestEventsAreDated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	w.connect(o)
	w.until("its start is saved", func() bool { return strings.Contains(w.state(o.ID), `"Status":"live"`) })
	saved, err := w.nodes[0].loadSession(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(w.nodes[0].node, saved)
	r.postEvent(session.SidebandUp{})
	before := w.now().UnixMicro()
	r.postProviderEvent([]byte(`{"type":"input_audio_buffer.speech_started"}`))
	w.pass(2*time.Minute + time.Second)
	r.tick() // an event waits, which came earlier
	if r.state.Ending != nil {
		t.Errorf("it ends: %+v", r.state.Ending)
	}
	r.step(<-r.events)
	r.step(<-r.events)
	if got := r.state.LastActivityUS; got < before || got > before+time.Minute.Microseconds() || r.state.Ending != nil {
		t.Errorf("spoken at %d, received at %d, %+v", got, before, r.state.Ending)
	}
	r.stopSession()
}

// TestSQLiteAdoptsAtStart: on SQLite a node adopts the sessions of the process before it at once,
// whatever their leases say.
func TestSQLiteAdoptsAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	w.connect(o)
	// A call whose start is not saved ends at adoption: whether the provider took the offer is not known.
	w.until("its start is saved", func() bool { return strings.Contains(w.state(o.ID), `"Status":"live"`) })
	w.untilHeld()
	w.exec(`UPDATE realtime_sessions SET node_id = 'node_dead', lease_us = $1`, w.now().Add(time.Hour).UnixMicro())
	w.node()
	w.sideband()
}

// TestRefusedHangUps: a call whose hang-up is refused stays watched and muted, and what is said there
// is billed, until the provider takes the hang-up.
func TestRefusedHangUps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	w.up.mu.Lock()
	w.up.stubborn = 1 << 30
	w.up.mu.Unlock()
	control.send(`{"type":"svc.session.end","when":"immediate"}`)
	checkMuted(t, side)
	w.until("a hang-up is refused", func() bool {
		w.up.mu.Lock()
		defer w.up.mu.Unlock()
		return w.up.hangUps > 0
	})
	side.send(createdEvent("resp_1")) // the browser's own
	side.wait("response.cancel")
	side.send(doneEvent("resp_1", "cancelled", usage10))
	control.wait("svc.response.settled")
	if s := w.get(o.ID); s.Status != session.Live || !s.Live.Ending {
		t.Errorf("while the call goes on: %s", mustJSON(s))
	}
	w.up.mu.Lock()
	w.up.stubborn = 0
	w.up.mu.Unlock()
	control.wait("svc.session.ended")
	if s := w.ended(o.ID, session.AppEnded); s.ResponseCount != 1 || !w.up.gone() {
		t.Errorf("ended: %s", mustJSON(s))
	}
	w.free()
}

// TestHangUpsInParallel: a provider that does not answer one hang-up delays no other.
func TestHangUpsInParallel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	asked, answer := make(chan string), make(chan struct{})
	w.up.mu.Lock()
	w.up.hanging = func(call string) {
		select {
		case asked <- call:
			<-answer
		case <-answer:
		}
	}
	w.up.mu.Unlock()
	w.exec(`INSERT INTO realtime_sessions (id, connection_id, account_id, app_id, model, mock, status, ticket_hash,
			ticket_until_us, lease_us, own_key, hang_up, state, max_duration_s, created_us, ended_us, end_reason,
			charged_mc, response_count, call_id)
		SELECT id || '_' || n, connection_id, account_id, app_id, model, mock, 'ended', ticket_hash, 0, 0, 0, 1, state,
			30, 1, 1, 'app_ended', 0, 0, 'rtc_' || n
		FROM realtime_sessions, (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3) AS numbers
		WHERE id = $1`, w.open(mini).ID)
	seen := map[string]bool{}
	for len(seen) < 3 { // none of them is answered yet
		seen[<-asked] = true
	}
	close(answer)
	w.exec(`DELETE FROM realtime_sessions WHERE status = 'ended'`) // they have no events
}
