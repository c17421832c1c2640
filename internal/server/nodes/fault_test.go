package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestDatabaseConnectionsCut ends the node's database connections under load,
// again and again (F-52, F-55): every answered call is exact, a call that could
// not be made is 503 and never a 402 or 429 that is not true, and nothing stays held.
func TestDatabaseConnectionsCut(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	b := newBooks(t, func(status int, code string) bool { return status == 503 && code == "unavailable" })
	ctx, stop := context.WithCancel(t.Context())
	wait := b.runClients(ctx, 24, func() *servertest.Process { return p })
	defer func() { stop(); wait() }()
	d := dbtest.OpenURL(t, p.DB+"&application_name=saboteur")
	const enough = 100
	cut, pause := int64(0), 200
	for began := time.Now(); time.Since(began) < 20*time.Second || cut < enough || b.answered.Load() < enough; {
		if time.Since(began) > testkit.Patience {
			t.Fatalf("vacuous: %d connections cut, %d calls answered", cut, b.answered.Load())
		}
		var n int64
		answered := b.answered.Load()
		if err := d.QueryRowContext(t.Context(),
			`SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND `+
				`application_name = 'purser'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		cut += n
		<-time.After(time.Duration(40+rand.IntN(pause)) * time.Millisecond) // any moment of a call
		// On a slow machine calls need more time to get between two cuts.
		if b.answered.Load() == answered {
			pause = min(pause+pause/10, 10_000)
		}
	}
	stop()
	wait()
	testkit.Eventually(t, testkit.Patience, "end of the last holds", func() bool {
		return dbtest.Number(t, p.DB, openHolds) == 0
	})
	b.replayAll(p)
	b.compareLedger(p.DB)
	for _, c := range b.snapshot() {
		if c.state() != "answered" { // its key is still good
			if r := ask(p.Node, c); r.status != 200 {
				t.Errorf("key %s, after the faults: %+v", c.key, r)
			}
		}
	}
	p.Verify()
	t.Logf("%d connections cut; %d calls, %d answered, %d told 503, %d cut", cut, len(b.snapshot()), b.answered.Load(),
		b.other.Load(), b.broke.Load())
}

// fails is a trigger that makes every statement on a table fail.
func fails(t *testing.T, d *db.DB, event, table string) (undo func()) {
	t.Helper()
	run := func(text string) {
		if _, err := d.ExecContext(context.Background(), text); err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE OR REPLACE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ` +
		`''sabotage''; END'`)
	run(fmt.Sprintf(`CREATE TRIGGER sabotage BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION sabotage()`, event, table))
	return func() { run(`DROP TRIGGER sabotage ON ` + table) }
}

// TestStatementFails makes each statement of a hold, a settlement and a release
// fail: the caller gets an envelope, nothing is half done, and a retry with the
// same key succeeds once the fault is gone (F-51, F-54).
func TestStatementFails(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres), shortLease)
	d := dbtest.OpenURL(t, p.DB)
	b := newBooks(t, nil)
	for _, f := range []struct {
		event, table, script string
		stream               bool
		rows                 int
	}{
		{"INSERT", "holds", "", false, 1}, {"UPDATE", "connections", "", false, 1}, // a hold
		// a settlement
		{"DELETE", "holds", "", false, 1}, {"INSERT", "ledger", "", false, 1}, {"UPDATE", "balances", "", false, 1},
		{"INSERT", "stored_responses", "", false, 1}, {"INSERT OR UPDATE", "daily_totals", "", false, 1},
		{"INSERT", "ledger", "", true, 1}, {"INSERT", "stored_responses", "", true, 1},
		{"UPDATE", "holds", "status=502", false, 0}, // a release
	} {
		what := fmt.Sprintf("%s of %s, stream %t", f.event, f.table, f.stream)
		c := b.addCall(f.stream, "!mock words=5 "+f.script)
		undo := fails(t, d, f.event, f.table)
		r := ask(p.Node, c)
		undo()
		inside := f.stream && r.status == 200 && strings.Contains(r.body, `data: {"error":`) // the stream had begun
		if !inside && (r.status != 500 && r.status != 502 || r.errorCode() == "") {
			t.Errorf("%s failed: %+v", what, r)
		}
		testkit.Eventually(t, testkit.Patience, "the key works again after a failed "+what, func() bool {
			r = ask(p.Node, c)
			return r.status == 200 || f.rows == 0 && r.status == 502
		})
		if rows := calltest.Spends(t, p.DB)[c.key]; len(rows) != f.rows {
			t.Errorf("after a failed %s: %+v", what, rows)
		}
		testkit.Eventually(t, testkit.Patience, "nothing is held after a failed "+what, func() bool {
			return dbtest.Number(t, p.DB, openHolds) == 0
		})
	}
	p.Verify()
}

// TestCheckpointFails lets checkpoints of a stream fail for a while: who follows
// the stream on another node still gets all of it, in order.
func TestCheckpointFails(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	d := dbtest.OpenURL(t, a.DB)
	c := newBooks(t, nil).addCall(true, "!mock pace=100ms words=80 chunks=50")
	owner := asking(a.Node, c)
	testkit.Eventually(t, testkit.Patience, "a checkpoint", func() bool {
		return dbtest.Number(t, a.DB, `SELECT COUNT(*) FROM checkpoints`) > 0
	})
	follower := asking(b.Node, c)
	undo := fails(t, d, "INSERT", "checkpoints")
	testkit.Eventually(t, testkit.Patience, "a checkpoint that failed", func() bool {
		return strings.Contains(a.Log(), `"job":"save checkpoints of streams"`)
	})
	undo()
	if want, r := <-owner, <-follower; r.status != 200 || r.body != want.body {
		t.Errorf("the follower got\n%+v\nthe owner's client\n%+v", r, want)
	}
	a.Verify()
}
