package voice

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// delegate makes a child of the connection for an hour, and returns it with its token.
func (w *world) delegate(amount money.MC, features ...string) (c rules.Child, token string) {
	w.t.Helper()
	token = "cht_" + id.NewSecret()
	now := w.now()
	c = w.do(rules.Delegate{Child: rules.Child{
		ID:           id.New(id.Child, now),
		ConnectionID: w.conn,
		AmountMC:     amount,
		Features:     features,
		Key:          id.NewUUID(),
		TokenHash:    id.Hash(token),
		SealedToken:  []byte("sealed"),
		ExpiresUS:    now.Add(time.Hour).UnixMicro(),
	}}).Child
	return c, token
}

// openAs creates a session by a token.
func (w *world) openAs(token, body string) (o opened) {
	w.t.Helper()
	status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, token)
	if status != 201 {
		w.t.Fatalf("%d %v", status, answer)
	}
	if err := json.Unmarshal(mustJSON(answer), &o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// left returns what is left of a child's budget, held amounts included.
func (w *world) left(childID string) store.ChildBudget {
	w.t.Helper()
	c, err := store.ReadChild(w.t.Context(), w.db, childID)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// TestChildSession talks by the token of a child: its replies are charged to it, only it and its connection see the
// session, and the session ends with the child.
func TestChildSession(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		child, token := w.delegate(money.Dollar)
		_, sibling := w.delegate(money.Dollar)
		o := w.openAs(token, mini)
		path := "/v1/realtime/sessions/" + o.ID
		if status, _ := w.call(w.nodes[0], "GET", path, "", sibling); status != 404 {
			t.Errorf("a sibling reads it: %d", status)
		}
		if status, _ := w.call(w.nodes[0], "POST", path+"/end", "", sibling); status != 404 {
			t.Errorf("a sibling ends it: %d", status)
		}
		if status, answer := w.call(w.nodes[0], "GET", "/v1/realtime/sessions", "", sibling); status != 200 ||
			!strings.HasPrefix(answer["text"].(string), "[]") {
			t.Errorf("a sibling lists it: %d %v", status, answer)
		}
		if c := w.dial(o.ControlURL, sibling).closed(); c != closeNotFound {
			t.Errorf("a sibling's control channel closed with %d", c)
		}
		control := w.dial(o.ControlURL, token)
		browser := w.speak(o)
		control.wait("svc.session.started")
		if status, _ := w.call(w.nodes[0], "POST", path+"/end", "", sibling); status != 404 {
			t.Errorf("a sibling ends it while it runs: %d", status)
		}
		var sum money.MC
		for range 2 {
			browser.send(`{"type":"response.create"}`)
			receipt := control.wait("svc.response.settled")["receipt"].(map[string]any)
			sum += money.MC(receipt["user_charge_mc"].(float64))
		}
		if c := w.left(child.ID); sum == 0 || c.LeftMC != money.Dollar-sum {
			t.Errorf("%d of the child are left, and %d were charged", c.LeftMC, sum)
		}
		if status, answer := w.call(w.nodes[0], "GET", path, "", token); status != 200 ||
			answer["child_id"] != child.ID {
			t.Errorf("the child reads it: %d %v", status, answer)
		}
		if list := w.list(""); len(list) != 1 || *list[0].ChildID != child.ID {
			t.Errorf("the connection lists %s", mustJSON(list))
		}
		w.do(rules.EndChild{ConnectionID: w.conn, ChildID: child.ID, By: rules.EndedByApp})
		if ended := control.wait("svc.session.ended"); ended["reason"] != session.ConnectionRevoked {
			t.Errorf("ended: %v", ended)
		}
		if s := w.ended(o.ID, session.ConnectionRevoked); s.ChargedMC < sum {
			t.Errorf("ended: %s", mustJSON(s))
		}
		w.nodes[0].handler.Callers.Forget("")
		if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, token); status != 403 ||
			code(answer) != "connection_revoked" {
			t.Errorf("another session: %d %v", status, answer)
		}
		w.until("nothing is held", func() bool { return w.left(child.ID).LeftMC == 0 })
		w.free()
	})
}

// TestChildSessionIsBounded: the replies of a session cost no more than its child has, though the connection has more.
// A child with too little for a reply, or without the feature, opens none.
func TestChildSessionIsBounded(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		poor, token := w.delegate(1)
		status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, token)
		if status != 402 || code(answer) != "allocation_exhausted" {
			t.Errorf("of %s: %d %v", poor.AmountMC.Display(), status, answer)
		}
		_, narrow := w.delegate(money.Dollar, "search")
		if status, answer = w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, narrow); status != 400 {
			t.Errorf("without its feature: %d %v", status, answer)
		}
		const amount = 2 * money.Cent
		child, token := w.delegate(amount)
		o := w.openAs(token, mini)
		control := w.dial(o.ControlURL, token)
		browser := w.speak(o)
		control.wait("svc.session.started")
		for ended := false; !ended; {
			_ = browser.ws.Write(t.Context(), 1, []byte(`{"type":"response.create"}`)) // until the session closes it
			select {
			case <-browser.over:
				ended = true
			case <-time.After(50 * time.Millisecond):
			}
		}
		s := w.ended(o.ID, "allocation_exhausted")
		if s.ChargedMC < amount/2 || s.ChargedMC > amount {
			t.Errorf("%s were charged of %s", s.ChargedDisplay, amount.Display())
		}
		if c := w.left(child.ID); c.LeftMC != amount-s.ChargedMC || c.HeldMC != 0 {
			t.Errorf("%d are left, of which %d are held", c.LeftMC, c.HeldMC)
		}
		if c, err := store.GetConnection(t.Context(), w.db, w.conn); err != nil || c.RemainingMC() < 8*money.Dollar {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestChildSessionExpires: the sessions of a child end when its time is over, a live one and one without a browser.
func TestChildSessionExpires(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		child, token := w.delegate(money.Dollar)
		w.exec(`UPDATE children SET expires_us = $1`, w.now().Add(20*time.Second).UnixMicro())
		o := w.openAs(token, mini)
		pending := w.openAs(token, mini)
		w.connect(o)
		w.pass(21 * time.Second)
		w.endedRow(o.ID, session.ConnectionRevoked)
		w.endedRow(pending.ID, session.ConnectionRevoked)
		w.until("the call is hung up", w.up.gone)
		if c := w.left(child.ID); c.HeldMC != 0 || c.LeftMC != money.Dollar {
			t.Errorf("%d are left, of which %d are held", c.LeftMC, c.HeldMC)
		}
	})
}

// TestChildSessionMoves: another node adopts the session of a child from a dead node. What was said is charged to the
// child, held or not, and nothing else ends the hold of a reply.
func TestChildSessionMoves(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		child, token := w.delegate(money.Dollar)
		o := w.openAs(token, mini)
		side := w.connect(o)
		w.untilHeld()
		side.send(createdEvent("resp_1"))
		w.until("the reply is known", func() bool { return strings.Contains(w.state(o.ID), "resp_1") })
		later := db.At(w.now().Add(24 * time.Hour))
		orphans, err := store.HoldsOfDeadNodes(t.Context(), w.db, "node_other", later, 10)
		if err != nil || len(orphans) != 0 {
			t.Errorf("%v would be ended without their session, %v", orphans, err)
		}
		w.kill(w.nodes[0], o.ID)
		again := w.sideband()
		again.send(createdEvent("resp_2"))
		again.send(doneEvent("resp_2", "completed", usage10))
		again.send(createdEvent("resp_3"))
		again.send(doneEvent("resp_3", "completed", usage10))
		w.until("they are billed", func() bool { return w.get(o.ID).ResponseCount >= 2 })
		if status, _ := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", "", token); status != 202 {
			t.Errorf("end: %d", status)
		}
		s := w.ended(o.ID, session.AppEnded)
		w.until("nothing is held", func() bool { return w.left(child.ID).HeldMC == 0 })
		if c := w.left(child.ID); c.LeftMC != money.Dollar-s.ChargedMC {
			t.Errorf("%d are left, and %d were charged", c.LeftMC, s.ChargedMC)
		}
	})
}
