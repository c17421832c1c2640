package voice

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/pricing"
)

// TestTwoNodes: each node shows and ends the sessions of the other, and forwards their control channels.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	b := w.node()
	for _, n := range w.nodes {
		n.NodeURL = n.url
	}
	o := w.open(mini)
	path := "/v1/realtime/sessions/" + o.ID
	// opened before the session is live, and at the wrong node
	waiting := w.dial(strings.Replace(b.url, "http", "ws", 1)+path+"/control", w.token)
	waiting.send(`{"type":"session.update","event_id":"e1","session":{"instructions":"Be brief."}}`)
	side := w.connect(o)
	if e := fmt.Sprint(waiting.wait("error")); !strings.Contains(e, "event_id:e1") {
		t.Errorf("an update that waited at another node: %s", e)
	}
	if c := waiting.closed(); c != 1012 {
		t.Errorf("a channel at another node closed with %d", c)
	}
	control := w.dial(strings.Replace(b.url, "http", "ws", 1)+path+"/control", w.token)
	control.wait("svc.session.started")
	broken := w.nodes[0].findRunner(o.ID)
	broken.mu.Lock()
	_ = broken.control.ws.CloseNow() // as if its node died
	broken.mu.Unlock()
	if c := control.closed(); c != 1012 {
		t.Errorf("a forwarded channel whose node died closed with %d", c)
	}
	control = w.dial(strings.Replace(b.url, "http", "ws", 1)+path+"/control", w.token)
	control.wait("svc.session.started")
	side.send(createdEvent("resp_1"))
	side.send(doneEvent("resp_1", "completed", usage10))
	control.wait("svc.response.settled")
	if status, answer := w.call(b, "GET", path, "", w.token); status != 200 || answer["response_count"] != 1.0 ||
		answer["live"].(map[string]any)["control_attached"] != true {
		t.Errorf("at the other node: %d %v", status, answer)
	}
	if status, _ := w.call(b, "POST", path+"/end", `{"when":"immediate"}`, w.token); status != 202 {
		t.Errorf("end: %d", status)
	}
	control.wait("svc.session.ended")
	if c := control.closed(); c != 1000 {
		t.Errorf("a forwarded channel of an ended session closed with %d", c)
	}
	w.ended(o.ID, session.AppEnded)
	w.until("the call is hung up", w.up.gone)
}

// kill makes the session look like one of another, dead process.
func (w *world) kill(n *testNode, id string) {
	w.t.Helper()
	w.exec(`UPDATE realtime_sessions SET node_id = 'node_dead', lease_us = 0 WHERE id = $1`, id)
}

// TestDeadNode: another node adopts a dead node's session, attaches a sideband, and bills the reply in
// progress as an estimate (F-86).
func TestDeadNode(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		o := w.open(mini)
		side := w.connect(o)
		side.send(createdEvent("resp_1"))
		side.send(`{"type":"response.output_audio_transcript.delta","response_id":"resp_1",
			"delta":"Hello, how are you doing on this day?"}`)
		side.send(`{"type":"output_audio_buffer.started","response_id":"resp_1"}`)
		w.until("the reply is known", func() bool {
			state := w.state(o.ID)
			return !strings.Contains(state, `"AudioUS":0`) && strings.Contains(state, "resp_1")
		})
		w.kill(w.nodes[0], o.ID)
		again := w.sideband()
		side.closed() // the dead node's
		again.send(createdEvent("resp_2"))
		again.send(doneEvent("resp_2", "completed", usage10))
		w.until("both are billed", func() bool { return w.get(o.ID).ResponseCount == 2 })
		if s := w.get(o.ID); s.Receipts[0].UsageSource != "estimated" || s.Receipts[1].UsageSource != "provider" {
			t.Errorf("receipts: %s", mustJSON(s.Receipts))
		}
		if status, _ := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", "", w.token); status != 202 {
			t.Errorf("end: %d", status)
		}
		w.ended(o.ID, session.AppEnded)
		w.until("the call is hung up", w.up.gone)
		w.free()
	})
}

// TestExpiredLease: a node whose lease has expired goes on with its session as long as no other node has
// claimed it. The reply in progress is charged by its usage.
func TestExpiredLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	side := w.connect(o)
	side.send(createdEvent("resp_1"))
	w.until("the reply is known", func() bool { return strings.Contains(w.state(o.ID), "resp_1") })
	w.pass(leaseTTL + time.Second)
	w.exec(`UPDATE realtime_sessions SET lease_us = 0`)
	if err := w.nodes[0].takeOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	side.send(doneEvent("resp_1", "completed", usage10))
	w.until("it is billed", func() bool { return w.get(o.ID).ResponseCount == 1 })
	if s := w.get(o.ID); s.Receipts[0].UsageSource != "provider" {
		t.Errorf("receipts: %s", mustJSON(s.Receipts))
	}
	w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", "", w.token)
	w.ended(o.ID, session.AppEnded)
}

// TestLateHold: a hold that is made after another node has adopted the session is released by the node
// that made it.
func TestLateHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	s, err := w.nodes[0].loadSession(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	before, err := store.GetConnection(t.Context(), w.db, w.conn)
	if err != nil {
		t.Fatal(err)
	}
	slept := newRunner(w.nodes[0].node, s)
	slept.stopSession()
	hold := session.Hold{N: 2, VoiceInput: pricing.VoiceInput{Text: 100, Audio: 100}, MaxOutputTokens: 100}
	slept.billing.queue = []ledgerAction{{Action: hold}}
	slept.billing.runQueue()
	if c, err := store.GetConnection(t.Context(), w.db, w.conn); err != nil || before.HeldMC == 0 ||
		c.HeldMC != before.HeldMC {
		t.Errorf("held %s, before %s, %v", c.HeldMC.Display(), before.HeldMC.Display(), err)
	}
}

// TestLateCharge: a node that was asleep charges a reply after another node has ended the session. The session's
// totals count it.
func TestLateCharge(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		o := w.open(mini)
		saved, err := w.nodes[0].loadSession(t.Context(), o.ID)
		if err != nil {
			t.Fatal(err)
		}
		slept := newRunner(w.nodes[0].node, saved)
		slept.stopSession()
		w.connect(o)
		if status, _ := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", "", w.token); status != 202 {
			t.Fatalf("end: %d", status)
		}
		w.ended(o.ID, session.AppEnded)
		w.free()
		settle := session.Settle{
			N:       7,
			ReplyID: "resp_late",
			Usage:   pricing.VoiceUsage{TextInput: 20, TextOutput: 10},
			Unheld:  true,
		}
		slept.billing.queue = []ledgerAction{{Action: settle}}
		slept.billing.runQueue()
		if s := w.get(o.ID); s.ResponseCount != 1 {
			t.Errorf("%d receipts", s.ResponseCount)
		}
		w.verify()
	})
}

// TestShutdown: a node that stops ends its sessions, each after the user has heard the current reply
// (F-93).
func TestShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	side.send(createdEvent("resp_1"))
	control.wait("response.created")
	stopped := make(chan struct{})
	go func() {
		w.nodes[0].Stop(context.Background())
		close(stopped)
	}()
	control.wait("svc.session.ending")
	if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, w.token); status != 503 {
		t.Errorf("a new session while it stops: %d %v", status, answer)
	}
	side.send(doneEvent("resp_1", "completed", usage10))
	<-stopped
	if s := w.ended(o.ID, session.ServerShutdown); s.ResponseCount != 1 {
		t.Errorf("%d receipts", s.ResponseCount)
	}
	control.wait("svc.session.ended")
	w.until("the call is hung up", w.up.gone)
	w.free()
}

// TestDeadCreator: if a node dies, or loses its database, while it makes the first hold, the session's
// row does not know of the hold. The session ends with its ticket, and the hold is released (F-92).
func TestDeadCreator(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{true, false} {
		for _, e := range []db.Engine{db.SQLite, db.Postgres} {
			if held && e == db.SQLite {
				continue // a hold of a moment is in memory alone there, and died with its node
			}
			t.Run(fmt.Sprintf("%s/held=%t", e, held), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, e, "live", "full-live")
				o := w.open(mini)
				s, err := w.nodes[0].loadSession(t.Context(), o.ID)
				if err != nil {
					t.Fatal(err)
				}
				if !held {
					w.do(rules.Release{Call: *s.FirstCall, Attempt: 1})
				}
				s.State.Hold, s.FirstCall = session.Requested, nil // as the row was before
				w.exec(`UPDATE realtime_sessions SET state = $1 WHERE id = $2`, string(mustJSON(s)), o.ID)
				w.pass(ticketTTL + time.Second)
				w.ended(o.ID, session.TicketExpired)
				w.free()
			})
		}
	}
}
