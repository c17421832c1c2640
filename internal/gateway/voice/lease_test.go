package voice

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// TestNoOrdersAfterTheLease: a node that stood still for longer than its lease gives the provider no order before it
// knows that the session is still its own. One whose database does not answer goes on, so that it can end the call.
func TestNoOrdersAfterTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	o := w.open(mini)
	w.connect(o)
	w.until("its start is saved", func() bool { return strings.Contains(w.state(o.ID), `"Status":"live"`) })
	saved, err := w.nodes[0].loadSession(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	saved.State.Updates, saved.State.SidebandAttached, saved.State.EverAttached = nil, true, true
	changed := []byte(`{"type":"session.updated","session":{"instructions":"As another node has set it."}}`)
	for _, test := range []struct {
		name string
		wake func(n *node, r *runner) // what ends the wait
		want string                   // in the first order; "" = none is given
	}{
		{
			name: "the lease is renewed",
			wake: func(n *node, _ *runner) { n.lease.renewed(w.now(), w.now().UnixMicro()) },
			want: "session.update",
		},
		{name: "another node owns it", wake: func(_ *node, r *runner) { r.stopSession() }},
		{
			name: "the database is silent",
			wake: func(n *node, _ *runner) {
				n.lease.mu.Lock()
				defer n.lease.mu.Unlock()
				n.lease.since = time.Now().Add(-renewTimeout)
			},
			want: "session.update",
		},
	} {
		n := w.wokenNode()
		r := newRunner(n, saved)
		woken, sent := make(chan struct{}), make(chan string, 64)
		r.connectProvider(&providerLink{close: func() {}, send: func(event []byte) error {
			select {
			case <-woken:
			default:
				t.Errorf("%s: sent before: %s", test.name, event)
			}
			sent <- string(event)
			return nil
		}})
		r.postProviderEvent(changed)
		over := make(chan struct{})
		go func() {
			defer close(over)
			r.run()
		}()
		w.until("the event is read", func() bool { return len(r.events) == 0 })
		close(woken)
		test.wake(n, r)
		if test.want != "" {
			if order := <-sent; !strings.Contains(order, test.want) {
				t.Errorf("%s: %s", test.name, order)
			}
			r.stopSession()
		}
		<-over
		if test.want == "" && len(sent) > 0 {
			t.Errorf("%s: sent %s", test.name, <-sent)
		}
		n.abandon()
	}
	w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
	w.ended(o.ID, session.AppEnded)
}

// wokenNode is the first node as one that has stood still for longer than its lease.
func (w *world) wokenNode() *node {
	shared := w.nodes[0].node
	n := &node{store: shared.store, provider: shared.provider, biller: shared.biller, log: shared.log}
	n.abandoned, n.abandon = context.WithCancel(w.t.Context())
	n.maxSilence.Store(int64(maxSilence))
	return n
}

// TestStandstillIsNoSilence: a renewal that was on its way while the node stood still says nothing of the database.
func TestStandstillIsNoSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	saved, err := w.nodes[0].loadSession(t.Context(), w.open(mini).ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		turned time.Duration // ago
		want   bool
	}{{time.Minute, false}, {0, true}} {
		n := w.wokenNode()
		r := newRunner(n, saved)
		r.stopSession()
		n.lease.since, r.turnedAt = time.Now().Add(-time.Minute), time.Now().Add(-test.turned)
		if got := r.awaitLease(); got != test.want {
			t.Errorf("its loop turned %s ago: it may give orders: %t", test.turned, got)
		}
	}
}

// TestForwardedChannelMoves: a control channel that is relayed to a node is closed, so that the app connects again,
// when another node has taken the session over. The relay pings the node, which may have lost its network.
func TestForwardedChannelMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	frozen := newFrozenNode(t)
	o := w.open(mini)
	w.exec(`UPDATE realtime_sessions SET node_id = 'node_frozen', node_url = $1, lease_us = $2 WHERE id = $3`,
		frozen.url, w.now().Add(time.Hour).UnixMicro(), o.ID)
	control := w.dial(o.ControlURL, w.token)
	select {
	case <-frozen.pinged:
	case <-time.After(waitTimeout):
		t.Error("the node is not pinged")
	}
	w.exec(`UPDATE realtime_sessions SET node_id = 'node_other' WHERE id = $1`, o.ID)
	if c := control.closed(); c != websocket.StatusServiceRestart {
		t.Errorf("closed with %d", c)
	}
	w.exec(`UPDATE realtime_sessions SET node_id = NULL, lease_us = 0 WHERE id = $1`, o.ID)
	w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
	w.ended(o.ID, session.AppEnded)
}

// TestLockedSessionEndsNoOtherLease: the lease of a session is renewed although the row of another one stays locked.
func TestLockedSessionEndsNoOtherLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	n := w.nodes[0]
	first, second := w.open(mini), w.open(mini)
	w.connect(first)
	w.connect(second)
	err := w.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		const lock = `SELECT id FROM realtime_sessions WHERE id = $1 FOR UPDATE`
		if _, err := tx.ExecContext(ctx, lock, second.ID); err != nil {
			return err
		}
		before, err := getRow(ctx, w.db, first.ID)
		if err != nil {
			return err
		}
		w.pass(time.Second)
		w.until("the other lease is renewed", func() bool {
			r, err := getRow(ctx, w.db, first.ID)
			return err == nil && r.LeaseUS > before.LeaseUS
		})
		if n.findRunner(first.ID) == nil {
			t.Error("the session is lost")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// frozenNode is a node that takes control channels and sends nothing.
type frozenNode struct {
	url    string
	pinged chan struct{}
}

func newFrozenNode(t *testing.T) *frozenNode {
	f := &frozenNode{pinged: make(chan struct{}, 1)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool {
			select {
			case f.pinged <- struct{}{}:
			default:
			}
			return true
		}})
		if err != nil {
			return
		}
		_, _, _ = ws.Read(context.Background()) // until the relay ends
	}))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// TestSessionLeasesFollowTheDatabasesClock: the clock of a node is an hour behind or ahead, as the machine's may be
// before the first sample. The leases of its sessions last by the database's clock.
func TestSessionLeasesFollowTheDatabasesClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	o := w.open(mini)
	w.connect(o)
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		s := &Store{DB: w.db, NodeID: "node_off", Now: func() time.Time { return w.db.Now().Add(off) }}
		for claimed := false; !claimed; { // the owner may renew the lease in between
			w.exec(`UPDATE realtime_sessions SET lease_us = 0 WHERE id = $1`, o.ID)
			var err error
			if claimed, err = s.claim(t.Context(), o.ID, false, 1); err != nil {
				t.Fatal(err)
			}
		}
		for _, renews := range []bool{false, true} {
			if renews {
				if _, _, err := s.renewLeases(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var restUS int64
			now := w.db.Moment()
			if err := w.db.QueryRowContext(t.Context(), `SELECT lease_us - `+now.SQL("$2")+` FROM realtime_sessions
				WHERE id = $1 AND node_id = 'node_off'`, o.ID, now.Arg()).Scan(&restUS); err != nil {
				t.Fatal(err)
			}
			if rest := time.Duration(restUS) * time.Microsecond; rest > leaseTTL || rest < leaseTTL-10*time.Minute {
				t.Errorf("with a clock that is off by %v the lease lasts for %v", off, rest)
			}
		}
	}
}

// TestStepOfTheSessionsClock: when the clock of leases steps forward, those of all nodes seem to be over. A node claims
// none before it has renewed its own for a whole lease since then.
func TestStepOfTheSessionsClock(t *testing.T) {
	t.Parallel()
	var l nodeLease
	at, endUS := time.Unix(1_800_000_000, 0), int64(1_800_000_005_000_000)
	renew := func(after, step time.Duration) {
		at, endUS = at.Add(after), endUS+(after+step).Microseconds()
		l.renewed(at, endUS)
	}
	renew(0, 0)
	for range 6 {
		renew(time.Second, 0)
	}
	if !l.isSteady(at) || l.clockUS(at.Add(time.Second)) != endUS-4_000_000 {
		t.Fatalf("before the step: steady %t, clock %d", l.isSteady(at), l.clockUS(at))
	}
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		renew(time.Second, step)
		if l.isSteady(at) || !l.isCurrent(at) {
			t.Errorf("right after a step of %s it judges: %t, orders: %t", step, l.isSteady(at), l.isCurrent(at))
		}
		for range 6 {
			renew(time.Second, 0)
		}
		if !l.isSteady(at) {
			t.Errorf("a lease after a step of %s it judges none", step)
		}
	}
}

// TestStepEndsNoLease: between two renewals the database's clock has stepped by an hour. The lease of another node
// looks as if it were over, and is not claimed.
func TestStepEndsNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.Postgres, "live", "full-live")
	o := w.open(mini)
	w.connect(o)
	before := w.now().UnixMicro()
	w.exec(`UPDATE realtime_sessions SET node_id = 'node_b', lease_us = $2 WHERE id = $1`, o.ID, before+1_000_000)
	stepped := &Store{
		DB:     w.db,
		NodeID: "node_a",
		Now:    w.now,
		clock:  func() time.Time { return w.now().Add(time.Hour) },
	}
	if list, err := stepped.listUnowned(t.Context(), before, true); err != nil || len(list) != 0 {
		t.Errorf("sessions of a living node: %v, %v", list, err)
	}
	if ok, err := stepped.claim(t.Context(), o.ID, false, before); err != nil || ok {
		t.Errorf("claimed: %t, %v", ok, err)
	}
	if list, err := stepped.listUnowned(t.Context(), before+3600_000_000, true); err != nil || len(list) != 1 {
		t.Errorf("an hour later: %v, %v", list, err)
	}
}
