package inference

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
)

// holdFor opens the hold of a call for another node, as if that node ran it.
func (b *bundle) holdFor(nodeID, key string, lives bool) rules.Result {
	b.t.Helper()
	lease := b.clock().Add(time.Hour)
	if !lives {
		lease = time.UnixMicro(1)
	}
	if _, err := b.DB.ExecContext(b.t.Context(), `INSERT INTO nodes (id, started_us, lease_us) VALUES ($1, 1, $2)`,
		nodeID, lease.UnixMicro()); err != nil {
		b.t.Fatal(err)
	}
	return b.hold(nodeID, key)
}

// hold opens the hold of a call that no node runs.
func (b *bundle) hold(nodeID, key string) rules.Result {
	b.t.Helper()
	hold := b.plan(plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody).Demand
	hold.Key, hold.RequestID, hold.Fingerprint = key, id.New(id.Request, b.clock()), "print"
	hold.NodeID, hold.Claim = nodeID, "claim of "+nodeID
	r, err := b.Ledger.Do(b.t.Context(), hold)
	if err != nil || r.Outcome != rules.Applied {
		b.t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// sweep ends a hold as the sweep does when the hold's node is dead.
func (b *bundle) sweep(k rules.Key) {
	b.t.Helper()
	row, err := store.GetHold(b.t.Context(), b.DB, k)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.endHold(b.t.Context(), row); err != nil {
		b.t.Fatal(err)
	}
}

// TestWaiterRunsTheCallOfADeadOwner: a request waits for the call of its key on another node.
// That node is dead, so its hold is released, and the waiter runs the call itself: 200 and one
// charge, under the same request id (F-03). If the node lives and its attempt failed, the waiter
// gets that failure.
func TestWaiterRunsTheCallOfADeadOwner(t *testing.T) {
	t.Parallel()
	for _, lives := range []bool{false, true} {
		t.Run(fmt.Sprintf("lives %t", lives), func(t *testing.T) {
			t.Parallel()
			f := &fakeProvider{
				chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 1}}},
				ended:  io.EOF,
			}
			b := newBundle(t, db.Postgres, f) // SQLite serves one process
			b.keepAlive = time.Millisecond
			key := id.NewUUID()
			held := b.holdFor("node_other", key, lives)
			resp := b.open(t.Context(), key) // the comments have begun it
			if got := resp.Header.Get("X-Request-Id"); got != held.RequestID {
				t.Errorf("the waiter is told %s, the call is %s", got, held.RequestID)
			}
			if lives {
				b.do(rules.Release{Call: held.Call, Attempt: held.Attempt})
			} else {
				b.sweep(rules.Key{ConnectionID: b.who.ConnectionID, Key: key})
			}
			body := readRest(t, resp.Body)
			if lives {
				if !strings.Contains(body, `data: {"error":{"code":"provider_error"`) ||
					!strings.HasSuffix(body, "data: [DONE]\n\n") {
					t.Errorf("a failure on another node is\n%s", body)
				}
				return
			}
			if !strings.Contains(body, "Hello") || !strings.Contains(body, `"svc_final":`) {
				t.Errorf("the waiter got\n%s", body)
			}
			b.expectOne(`SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND key = $1 AND settlement = 'settled'`, key)
			b.audit()
		})
	}
}

// TestNodesNeverReplayDifferentAnswers: while a node runs a stream, it is taken for dead, and
// the sweep bills what its checkpoints have. Both the client of that node and a replay are told
// that the response was interrupted, and the key is billed once.
func TestNodesNeverReplayDifferentAnswers(t *testing.T) {
	t.Parallel()
	for _, settlement := range []string{"estimated", "settled"} {
		t.Run(settlement, func(t *testing.T) {
			t.Parallel()
			f := &fakeProvider{
				chunks: []provider.Chunk{
					{Frames: []byte(delta("Hello"))},
					{Frames: []byte(delta(" there")), Usage: &provider.Usage{Input: 9, Output: 2}},
				},
				ended:  io.EOF,
				paused: make(chan struct{}),
			}
			b := newBundle(t, db.Postgres, f) // SQLite serves one process
			if settlement == "estimated" {    // otherwise the sweep leaves the call pending, and the node settles it
				b.Recorders = nil
			}
			key := id.NewUUID()
			resp := b.open(t.Context(), key)
			var c *runningCall
			b.eventually("the first text is there", func() bool {
				c = b.calls.listCalls()[0]
				frames, _ := c.frames()
				return len(frames) > 0
			})
			p, ok := c.checkpoint()
			if !ok {
				t.Fatal("no checkpoint")
			}
			if err := b.Node.SaveCheckpoints(t.Context(), []store.Checkpoint{p}); err != nil {
				t.Fatal(err)
			}
			b.sweep(c.key)
			close(f.paused)
			first := readRest(t, resp.Body)
			again, _, replayed := b.call(key, "")
			for what, body := range map[string]string{"the client": first, "a replay": again} {
				if !strings.Contains(body, "Hello") || !strings.Contains(body, `"code":"unavailable"`) ||
					!strings.Contains(body, "interrupted") ||
					!strings.Contains(body, `"settlement":"`+settlement+`"`) ||
					!strings.HasSuffix(body, "data: [DONE]\n\n") {
					t.Errorf("%s got\n%s", what, body)
				}
			}
			if !replayed || strings.Contains(again, "there") || !strings.Contains(first, "there") {
				t.Errorf("vacuous:\n%s\n%s", first, again)
			}
			b.expectOne(`SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND key = $1 AND settlement = $2`,
				key, settlement)
			b.audit()
		})
	}
}

// TestStreamOfANodeThatSlept: a node sleeps longer than its lease while it runs a stream, and another one ends the
// call. When it wakes, it relays nothing more: its client gets what the replay of the key has, and its end.
func TestStreamOfANodeThatSlept(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"billed", "pending", "released", "taken over", "its own again"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			f := &fakeProvider{
				chunks: []provider.Chunk{
					{Frames: []byte(delta("Hello"))},
					{Frames: []byte(delta(" there")), Usage: &provider.Usage{Input: 9, Output: 2}},
				},
				ended:  io.EOF,
				paused: make(chan struct{}),
			}
			b := newBundle(t, db.Postgres, f) // SQLite serves one process
			if state != "pending" {
				b.Recorders = nil
			}
			node, err := store.JoinNode(t.Context(), b.DB, id.New(id.Node, b.clock()), time.Second, b.clock)
			if err != nil {
				t.Fatal(err)
			}
			b.Node = node
			key := id.NewUUID()
			resp := b.open(t.Context(), key)
			var c *runningCall
			b.eventually("the first text is there", func() bool {
				c = b.calls.listCalls()[0]
				frames, _ := c.frames()
				return len(frames) > 0
			})
			row, err := store.GetHold(t.Context(), b.DB, c.key)
			if err != nil {
				t.Fatal(err)
			}
			switch state {
			case "billed", "pending":
				p, _ := c.checkpoint()
				if err := b.Node.SaveCheckpoints(t.Context(), []store.Checkpoint{p}); err != nil {
					t.Fatal(err)
				}
				b.sweep(c.key)
			case "released":
				b.sweep(c.key)
			case "taken over":
				b.sweep(c.key)
				b.hold("node_other", key)
			}
			b.eventually("the lease is over", func() bool { return b.Node.LeaseAge() > b.Node.Lease })
			close(f.paused)
			first := readRest(t, resp.Body)
			if strings.Contains(first, "there") != (state == "its own again") {
				t.Errorf("after the sleep the client got\n%s", first)
			}
			if state == "taken over" {
				if !strings.Contains(first, `"code":"provider_error"`) ||
					!strings.HasSuffix(first, "data: [DONE]\n\n") {
					t.Errorf("the client got\n%s", first)
				}
				b.do(rules.Release{Call: row.Call, Attempt: row.Attempt + 1})
				return
			}
			again, _, replayed := b.call(key, "")
			if again != first || !replayed {
				t.Errorf("the client got\n%s\nthe replay, %t, is\n%s", first, replayed, again)
			}
			if state != "its own again" &&
				(strings.Count(first, `"error"`) != 1 || !strings.Contains(first, "interrupted")) {
				t.Errorf("the end is\n%s", first)
			}
			b.audit()
		})
	}
}
