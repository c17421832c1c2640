package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A testNode is a node with a clock that a test moves.
type testNode struct {
	*Node
	t    *testing.T
	time time.Time
}

func joinTestNode(t *testing.T, d *db.DB, id string) *testNode {
	t.Helper()
	n, err := JoinNode(t.Context(), d, id, 10*time.Second, d.Now)
	if err != nil {
		t.Fatal(err)
	}
	a := &testNode{Node: n, t: t, time: time.Now()}
	n.clock = func() time.Time { return a.time }
	n.renewedAt, n.steadyAt = a.time, a.time
	return a
}

// pass lets time pass, in which the lease is renewed every second.
func (n *testNode) pass(seconds int) {
	n.t.Helper()
	for range seconds {
		n.time = n.time.Add(time.Second)
		if err := n.RenewLease(n.t.Context()); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestLeaseDecides follows a node's lease of ten seconds: without a renewal for half of it the
// node makes no holds, and only after ten seconds of renewals it judges others. A database
// that was away for every node ends no node's calls.
func TestLeaseDecides(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	n := joinTestNode(t, d, "n")
	check := func(when string, fresh, judges bool) {
		t.Helper()
		if n.IsLeaseFresh() != fresh || n.CanJudge() != judges {
			t.Errorf("%s: fresh %t, can judge %t", when, n.IsLeaseFresh(), n.CanJudge())
		}
	}
	check("joined", true, false)
	n.pass(9)
	check("after 9 s", true, false)
	n.pass(1)
	check("after a whole lease", true, true)
	n.time = n.time.Add(5 * time.Second)
	check("half a lease without a renewal", false, false)
	n.pass(1)
	check("renewed after the gap", true, false)
	n.pass(10)
	check("a whole lease after the gap", true, true)
}

// TestDeletedNodeJoinsAgain deletes a node's row, as the purge does with nodes that were away
// for a day: the next renewal brings it back.
func TestDeletedNodeJoinsAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := joinTestNode(t, d, "n")
		ctx := t.Context()
		if _, err := d.ExecContext(ctx, `DELETE FROM nodes`); err != nil {
			t.Fatal(err)
		}
		n.pass(1)
		count := func() (rows int) {
			t.Helper()
			if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM nodes WHERE lease_us > $1`,
				d.Now().UnixMicro()).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		if count() != 1 {
			t.Error("the node has no lease")
		}
		if err := n.EndLease(ctx); err != nil {
			t.Fatal(err)
		}
		n.pass(1)
		if count() != 0 {
			t.Error("a node that has left renews its lease")
		}
		n.left = false // as a renewal saw it that was under way
		n.pass(1)
		if count() != 0 {
			t.Error("a renewal that was under way gives the lease back")
		}
	})
}

// TestNodesSettings compares four nodes: one that has another address than two others, and one that does not know the
// setting. A node that has left is not compared.
func TestNodesSettings(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	nodes := map[string]*testNode{}
	for nodeID, settings := range map[string]map[string]string{
		"a": {"base_url": "1", "oidc": "7"},
		"b": {"base_url": "2", "oidc": "7"},
		"c": {"base_url": "1", "oidc": "7"},
		"d": {"oidc": "7", "smtp": "9"},
		"e": nil,
	} {
		n := joinTestNode(t, d, nodeID)
		if settings != nil {
			if err := n.SetSettings(settings); err != nil {
				t.Fatal(err)
			}
		}
		n.pass(1)
		nodes[nodeID] = n
	}
	check := func(want ...SettingsDifference) {
		t.Helper()
		got, err := ListSettingsDifferences(t.Context(), d, d.Now().UnixMicro())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	check(SettingsDifference{"base_url", [][]string{{"a", "c"}, {"b"}}})
	if err := nodes["b"].EndLease(t.Context()); err != nil {
		t.Fatal(err)
	}
	check()
}

// TestOwnHoldsAreNotOrphans lets a node's lease end while its call runs: its own sweep does
// not find the hold, another node's does.
func TestOwnHoldsAreNotOrphans(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	w := startNodeWriter(t, d)
	ctx := t.Context()
	must(t)(w.Do(ctx, holdOf("key")))
	after := db.At(d.Now().Add(time.Hour))
	for _, tt := range []struct {
		nodeID string
		want   int
	}{{"node", 0}, {"another", 1}} {
		list, err := HoldsOfDeadNodes(ctx, d, tt.nodeID, after, 10)
		if err != nil || len(list) != tt.want {
			t.Errorf("the sweep of %s finds %d holds, %v", tt.nodeID, len(list), err)
		}
	}
}

// insertHold writes a hold of a key, with its request, state and time.
const insertHold = `INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id, claim,
	amount_mc, account_id, app_id, model, terms, created_us, paid_by, reservations)
	VALUES ('c', $1, $2, 'f', $3, 1, 'n', 'x', 1, 'a', 'p', 'm', '{}', $4, 'wallet', '')`

// TestDeleteExpiredObeysTheRetention stores a refusal, a failed call and a response of three days ago: each goes when
// its own retention is over, and not before. A key that was tried again since stays, and so does a hold.
func TestDeleteExpiredObeysTheRetention(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		n, err := JoinNode(ctx, d, "n", time.Minute, d.Now)
		if err != nil {
			t.Fatal(err)
		}
		const day = 24 * time.Hour
		past := d.Now().Add(-3 * day)
		for _, q := range []struct {
			text string
			args []any
		}{
			{`INSERT INTO refusals (request_id, connection_id, app_id, status, code, message, details, created_us)
				VALUES ($1, 'c', 'p', 429, 'rate_limited', 'x', '{}', $2)`,
				[]any{id.New(id.Request, past), past.UnixMicro()}},
			{`INSERT INTO stored_responses (request_id, encoding, body, created_us) VALUES ($1, 'raw', $2, $3)`,
				[]any{id.New(id.Request, past), []byte("{}"), past.UnixMicro()}},
			{`INSERT INTO connections (id, app_id, account_id, allocation_mc, consumed_mc, held_mc, status, spent,
				event_seq, created_us) VALUES ('c', 'p', 'a', 0, 0, 0, 'active', '', 0, 1)`, nil},
			{insertHold, []any{"failed", id.New(id.Request, past), "failed", past.UnixMicro()}},
			{insertHold, []any{"failed again", id.New(id.Request, past), "failed", d.Now().UnixMicro()}},
			{insertHold, []any{"pending", id.New(id.Request, past), "pending", past.UnixMicro()}},
		} {
			if _, err := d.ExecContext(ctx, q.text, q.args...); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			keep                       Retention
			refusals, responses, holds int
		}{
			{Retention{Responses: 4 * day, Refusals: 4 * day}, 1, 1, 3},
			{Retention{Responses: 4 * day, Refusals: 2 * day}, 0, 1, 2},
			{Retention{Responses: 2 * day, Refusals: 4 * day}, 0, 0, 2},
		} {
			if err := n.DeleteExpired(ctx, step.keep); err != nil {
				t.Fatal(err)
			}
			var refusals, responses, holds int
			if err := d.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM refusals), (SELECT COUNT(*) FROM
				stored_responses),
				(SELECT COUNT(*) FROM holds)`).Scan(&refusals, &responses, &holds); err != nil {
				t.Fatal(err)
			}
			if refusals != step.refusals || responses != step.responses || holds != step.holds {
				t.Errorf("with %v, %d refusals, %d responses and %d holds are left", step.keep, refusals, responses,
					holds)
			}
		}
	})
}

// TestLapses: calls of a node may have been ended by others after it has stood still, or after its lease was over. A
// database that was away for less is neither.
func TestLapses(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	n := joinTestNode(t, d, "n")
	n.pass(1)
	before := n.Lapses()
	lapsed := func(when string, want bool) {
		t.Helper()
		if got := n.Lapses(); got != before != want {
			t.Errorf("%s: lapsed %t, want %t", when, got != before, want)
		}
		before = n.Lapses()
	}
	n.pass(3)
	lapsed("renewals", false)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	for range 9 {
		n.time = n.time.Add(time.Second)
		if n.RenewLease(away) == nil {
			t.Fatal("a renewal has succeeded without a database")
		}
	}
	lapsed("no renewal has succeeded for less than a lease", false)
	n.time = n.time.Add(6 * time.Second)
	lapsed("it stood still", true)
	n.pass(1)
	lapsed("the same, once it has renewed its lease", false)
	n.endUS -= 11 * time.Second.Microseconds() // the lease was over when the next renewal came
	n.pass(1)
	lapsed("a renewal after the end of the lease", true)
	n.pass(3)
	lapsed("renewals after that", false)
}

// TestStepOfTheDatabasesClock: the database's clock steps by an hour, so that all leases seem to have ended. A node
// finds no holds of dead nodes before its own renewal, and after that it judges others only when they have had a whole
// lease to renew theirs.
func TestStepOfTheDatabasesClock(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	w := startNodeWriter(t, d)
	ctx := t.Context()
	must(t)(w.Do(ctx, holdOf("key")))
	judge := joinTestNode(t, d, "judge")
	judge.pass(10)
	if !judge.CanJudge() {
		t.Fatal("the judge cannot judge")
	}
	if list, err := HoldsOfDeadNodes(ctx, d, "judge", db.At(d.Now().Add(time.Hour)), 10); err != nil || len(list) != 0 {
		t.Errorf("after the step %d holds are of dead nodes, %v", len(list), err)
	}
	judge.noteRenewal(judge.time.Add(time.Second), judge.endUS+time.Hour.Microseconds())
	if judge.CanJudge() {
		t.Error("the judge judges right after the step")
	}
}

// TestLeaseFollowsTheDatabasesClock: the clock of a node is an hour behind or ahead. Its lease ends by the database's
// clock, and so it is judged.
func TestLeaseFollowsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		d := dbtest.Open(t, db.Postgres)
		n, err := JoinNode(t.Context(), d, "n", time.Minute, func() time.Time { return d.Now().Add(off) })
		if err != nil {
			t.Fatal(err)
		}
		var restUS int64
		now := d.Moment()
		if err := d.QueryRowContext(t.Context(), `SELECT lease_us - `+now.SQL("$2")+` FROM nodes WHERE id = $1`, n.ID,
			now.Arg()).Scan(&restUS); err != nil {
			t.Fatal(err)
		}
		if rest := time.Duration(restUS) * time.Microsecond; rest > time.Minute || rest < -10*time.Minute {
			t.Errorf("with a clock that is off by %v the lease lasts for %v", off, rest)
		}
		if alive, err := IsNodeAlive(t.Context(), d, n.ID, d.Moment().Add(-10*time.Minute)); err != nil || !alive {
			t.Errorf("with a clock that is off by %v the node is dead, %v", off, err)
		}
	}
}

// TestPurgeLeavesLockedConnections: a failed key whose connection another transaction has locked, to try the key again,
// stays for the next purge, which is not held up.
func TestPurgeLeavesLockedConnections(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	w := startNodeWriter(t, d)
	ctx := t.Context()
	hold := holdOf("key")
	hold.RequestID = id.New(id.Request, d.Now())
	r := must(t)(w.Do(ctx, hold))
	must(t)(w.Do(ctx, rules.Release{Call: r.Call, Attempt: r.Attempt}))
	n, err := JoinNode(ctx, d, "purger", time.Minute, d.Now)
	if err != nil {
		t.Fatal(err)
	}
	left := func() (holds int) {
		if err := n.deleteFailedHolds(ctx, d.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM holds`).Scan(&holds); err != nil {
			t.Error(err)
		}
		return holds
	}
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT 1 FROM connections FOR UPDATE`)
		if got := left(); got != 1 {
			t.Errorf("%d holds are left of a locked connection", got)
		}
		return err
	})
	if got := left(); err != nil || got != 0 {
		t.Errorf("%d holds are left, %v", got, err)
	}
}
