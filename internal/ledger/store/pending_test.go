package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestPending leaves calls pending in a real database: the file has their holds and
// what they hold, their answers are what was delivered, each is claimed by one node
// at a time, and a settlement tells the app and leaves nothing behind.
func TestPending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		w := writers(t, d, 1)[0]
		must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
		must(t)(w.Do(ctx, rules.Connect{
			Sandbox:      true,
			ConnectionID: "C",
			AppID:        "app",
			AccountID:    "A",
			RequestedMC:  100_000,
		}))
		now := time.Now()
		var nodes []*Node
		for i := range 2 {
			n, err := JoinNode(ctx, d, fmt.Sprint("node", i), time.Minute, func() time.Time { return now })
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		const calls = 20
		for i := range calls {
			c := callOf("C", "A", "app", fmt.Sprint("k", i), 100)
			must(t)(w.Do(ctx, rules.Hold{Call: c, NodeID: "node0", Claim: c.RequestID}))
			must(t)(w.Do(ctx, rules.Defer{
				Call:     c,
				Attempt:  1,
				Provider: "openai",
				RecordID: fmt.Sprint("chatcmpl-", i),
				Response: &rules.StoredResponse{Encoding: "raw", Body: []byte("delivered")},
			}))
		}
		var held, holds, sum int64
		if err := d.QueryRowContext(ctx,
			`SELECT held_mc, (SELECT COUNT(*) FROM holds WHERE state = 'pending'), (SELECT SUM(amount_mc) FROM `+
				`holds) FROM connections`).Scan(&held, &holds, &sum); err != nil {
			t.Fatal(err)
		}
		if held != calls*100 || holds != calls || sum != held {
			t.Errorf("%d held, %d pending holds of %d", held, holds, sum)
		}
		if list, err := nodes[0].ClaimPendingCalls(ctx, time.Minute, calls); err != nil || len(list) != 0 {
			t.Fatalf("claimed before the provider can know: %+v, %v", list, err)
		}
		list, err := HoldsOfDeadNodes(ctx, d, "", db.At(now.Add(time.Hour)), calls)
		if err != nil || len(list) != 0 {
			t.Errorf("a lease ends pending holds: %+v, %v", list, err)
		}
		now = now.Add(time.Minute)
		claimed := claimAll(t, nodes, 3)
		if len(claimed) != calls {
			t.Fatalf("%d of %d calls were claimed", len(claimed), calls)
		}
		if err := nodes[1].PostponePendingCall(ctx, claimed[0].RequestID, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		now = now.Add(6 * time.Second)
		again, err := nodes[0].ClaimPendingCalls(ctx, time.Minute, calls)
		if err != nil || len(again) != 1 || again[0].RequestID != claimed[0].RequestID || again[0].Tries != 2 ||
			again[0].RecordID != claimed[0].RecordID {
			t.Fatalf("of all calls only %s may be asked for again: %+v, %v", claimed[0].RequestID, again, err)
		}
		for _, c := range claimed {
			settle := rules.Settle{
				Call:       c.Call,
				Attempt:    c.Attempt,
				Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
				Settlement: rules.Settled,
				Usage:      rules.Usage{JSON: "{}"},
				Response:   &rules.StoredResponse{Encoding: "raw", Body: []byte("other")},
				Receipt: func(e *rules.Entry) (string, error) {
					return fmt.Sprintf(`{"id":%q,"n":%d}`, e.RequestID(), e.UserChargeMC), nil
				},
			}
			if r := must(t)(w.Do(ctx, settle)); r.Outcome != rules.Applied || r.HoldExpired || r.Entry.HoldMC != 100 {
				t.Errorf("a pending call was settled as %+v", r)
			}
			if r := must(t)(w.Do(ctx, settle)); r.Outcome != rules.Done {
				t.Errorf("a second settlement answered %+v", r)
			}
			if a, err := GetStoredResponse(ctx, d, c.RequestID); err != nil || string(a.Body) != "delivered" {
				t.Errorf("the answer of %s is %q, %v", c.RequestID, a.Body, err)
			}
			var events int
			if err := d.QueryRowContext(ctx,
				`SELECT COUNT(*) FROM events WHERE type = 'request.settled' AND app_id = 'app' AND data = $1`,
				fmt.Sprintf(`{"request":{"id":%q,"n":7}}`, c.RequestID)).Scan(&events); err != nil || events != 1 {
				t.Errorf("%s was told %d times, %v", c.RequestID, events, err)
			}
		}
		balanced(t, d)
		var left int
		if err := d.QueryRowContext(ctx,
			`SELECT (SELECT COUNT(*) FROM holds) + (SELECT COUNT(*) FROM deferrals)`).Scan(&left); err != nil ||
			left != 0 {
			t.Errorf("%d rows are left, %v", left, err)
		}
	})
}

// claimAll lets all nodes claim at once, a few at a time, until nothing is due.
func claimAll(t *testing.T, nodes []*Node, limit int) (all []PendingCall) {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, n := range nodes {
		group.Go(func() {
			for {
				list, err := n.ClaimPendingCalls(t.Context(), time.Minute, limit)
				if err != nil {
					t.Error(err)
				}
				if len(list) == 0 {
					return
				}
				mu.Lock()
				all = append(all, list...)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.RequestID] || c.State != rules.Pending || c.Provider != "openai" || c.HoldMC != 100 || c.Tries != 1 {
			t.Errorf("claimed %+v", c)
		}
		seen[c.RequestID] = true
	}
	return all
}

// TestPendingOutlivesItsProcess leaves a call pending and starts again: the hold is
// there, so the key is not tried again, and money is held for it.
func TestPendingOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		url := dbtest.URL(t, e)
		c := callOf("C", "A", "app", "k", 100)
		run := func(f func(ctx context.Context, d *db.DB, w *Writer)) {
			d, err := db.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			d.RelaxLimits(12)
			w := NewWriter(d, time.Now)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			f(ctx, d, w)
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		run(func(ctx context.Context, _ *db.DB, w *Writer) {
			must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
			must(t)(w.Do(ctx, rules.Connect{
				Sandbox:      true,
				ConnectionID: "C",
				AppID:        "app",
				AccountID:    "A",
				RequestedMC:  1000,
			}))
			must(t)(w.Do(ctx, rules.Hold{Call: c, NodeID: "node0", Claim: "1"}))
			must(t)(w.Do(ctx, rules.Defer{Call: c, Attempt: 1, Provider: "openai"}))
		})
		run(func(ctx context.Context, d *db.DB, w *Writer) {
			if r := must(t)(w.Do(ctx, rules.Hold{Call: c, NodeID: "node1", Claim: "2"})); r.Outcome != rules.Waiting ||
				r.RequestID != c.RequestID {
				t.Errorf("the key answers %+v", r)
			}
			if conn, err := GetConnection(ctx, d, "C"); err != nil || conn.HeldMC != 100 ||
				conn.RemainingMC() != money.MC(900) {
				t.Errorf("%+v, %v", conn, err)
			}
		})
	}
}
