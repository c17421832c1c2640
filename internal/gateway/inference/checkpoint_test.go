package inference

import (
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// run enters streams of this node.
func (b *bundle) run(n int) (calls []*runningCall) {
	for range n {
		c, _ := b.calls.enter(rules.Key{ConnectionID: b.who.ConnectionID, Key: id.NewUUID()}, "print", "claim",
			b.who.App.ID)
		c.setAttempt(1, id.New(id.Request, b.clock()))
		calls = append(calls, c)
	}
	return calls
}

func (b *bundle) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.DB.ExecContext(b.t.Context(), query, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) count(query string, args ...any) (n int) {
	b.t.Helper()
	if err := b.DB.QueryRowContext(b.t.Context(), query, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestCheckpointsAfterAnOutage: many streams run while no checkpoint can be saved for many ticks. After that the first
// tick saves one row a stream in a few transactions, the second one the rest, and nothing of the streams that have
// ended. What is saved is what was sent, without a gap.
func TestCheckpointsAfterAnOutage(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		const streams, ended, ticks = 1100, 100, 10
		b := newBundle(t, e, &fakeProvider{})
		calls := b.run(streams)
		send := func(n int) {
			for _, c := range calls {
				c.appendFrames([]byte(delta(fmt.Sprintf("text %d of %s", n, c.requestID))))
			}
		}
		send(0)
		if err := b.Handler.SaveCheckpoints(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.exec(`ALTER TABLE checkpoints RENAME TO checkpoints_away`)
		for n := range ticks {
			send(1 + n)
			if err := b.Handler.SaveCheckpoints(t.Context()); err == nil {
				t.Fatal("saved into no table")
			}
		}
		b.exec(`ALTER TABLE checkpoints_away RENAME TO checkpoints`)
		for _, c := range calls[:ended] {
			b.calls.leave(c, nil)
		}
		for tick := 1; tick <= 3; tick++ {
			if err := b.Handler.SaveCheckpoints(t.Context()); err != nil {
				t.Fatal(err)
			}
			rows := min(1+tick, 3) * (streams - ended)
			if got := b.count(`SELECT COUNT(*) FROM checkpoints`) - ended; got != rows {
				t.Errorf("%d checkpoints of running streams after tick %d, want %d", got, tick, rows)
			}
		}
		if e == db.Postgres {
			if n := b.count(`SELECT COUNT(DISTINCT xmin::text) FROM checkpoints`); n > 9 {
				t.Errorf("%d transactions for three ticks of %d streams", n, streams)
			}
		}
		for _, c := range calls[ended:] {
			body, _, err := store.GetCheckpoints(t.Context(), b.DB, c.requestID, 1, 0)
			if sent, _ := c.frames(); err != nil || string(body) != string(sent) {
				t.Fatalf("saved\n%s\nsent\n%s\n%v", body, sent, err)
			}
		}
	})
}

// TestCheckpointIsSavedThoughItSeemedToFail: a checkpoint is in the database though its answer was lost. It is saved
// again under its number and with its end, and what was sent since then under the next one.
func TestCheckpointIsSavedThoughItSeemedToFail(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		b := newBundle(t, e, &fakeProvider{})
		c := b.run(1)[0]
		c.appendFrames([]byte(delta("first")))
		p, _ := c.checkpoint()
		if err := b.Node.SaveCheckpoints(t.Context(), []store.Checkpoint{p}); err != nil {
			t.Fatal(err)
		}
		c.appendFrames([]byte(delta("second")))
		for range 2 {
			if err := b.Handler.SaveCheckpoints(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		body, next, err := store.GetCheckpoints(t.Context(), b.DB, c.requestID, 1, 0)
		if sent, _ := c.frames(); err != nil || next != 2 || string(body) != string(sent) {
			t.Errorf("%d checkpoints: %s, %v", next, body, err)
		}
	})
}

// TestBadCheckpointStopsNoOther: the database refuses the checkpoint of one stream. Those of the others are saved.
func TestBadCheckpointStopsNoOther(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.Postgres, &fakeProvider{}) // SQLite adds no constraints
	calls := b.run(20)
	for _, c := range calls {
		c.appendFrames([]byte(delta("text")))
	}
	b.exec(`ALTER TABLE checkpoints ADD CHECK (request_id <> '` + calls[7].requestID + `')`)
	err := b.Handler.SaveCheckpoints(t.Context())
	if err == nil || !strings.Contains(err.Error(), calls[7].requestID) {
		t.Errorf("the error is %v", err)
	}
	if n := b.count(`SELECT COUNT(*) FROM checkpoints`); n != 19 {
		t.Errorf("%d checkpoints, want 19", n)
	}
}
