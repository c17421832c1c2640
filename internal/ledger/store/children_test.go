package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestChildrenRaced lets two nodes pass on, hold, settle, release and end at once on one connection, and then revokes
// it while more come. What the connection keeps of its children is what they have, and no micro-cent is lost (I-34).
func TestChildrenRaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		nodes := []*bench{databaseBench(t, d, ""), databaseBench(t, d, "")}
		if d.Engine == db.SQLite { // one process
			nodes = nodes[:1]
		}
		const given = 20_000
		for _, c := range []rules.Command{
			rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: given},
			rules.Connect{ConnectionID: "C1", AppID: "app", AccountID: "A", Sandbox: true, RequestedMC: given},
		} {
			if _, err := nodes[0].do(c); err != nil {
				t.Fatal(err)
			}
		}
		var charged, refused, passed counted
		var wg sync.WaitGroup
		for n := range 16 {
			wg.Go(func() {
				random, b := rand.New(rand.NewPCG(uint64(n), 1)), nodes[n%len(nodes)]
				do := func(c rules.Command) (rules.Result, bool) {
					r, err := b.do(c)
					var e *apierr.Error
					if errors.As(err, &e) && e.Code.Status < 500 {
						refused.add(1)
						return r, false
					} else if err != nil {
						t.Errorf("%T: %v", c, err)
						return r, false
					}
					return r, true
				}
				for i := range 30 {
					// New names each few steps: what has ended is not made again, and most would soon be ended.
					child := func() string { return fmt.Sprint("chd_", i/5, "_", random.IntN(12)) }
					family := func() string { return fmt.Sprint("fam_", i/5, "_", random.IntN(6)) }
					if n == 0 && i == 24 {
						checkDelegated(t, d, "C1")
						do(rules.Revoke{ConnectionID: "C1"})
					}
					switch name := fmt.Sprint(n, "-", i); random.IntN(7) {
					case 0, 1:
						made := child()
						c := rules.Child{
							ID: made, ConnectionID: "C1", AmountMC: money.MC(1 + random.IntN(3000)), Key: made,
							TokenHash: made, ExpiresUS: epoch.Add(time.Hour).UnixMicro(),
							FamilyID: family(),
						}
						if random.IntN(2) == 0 {
							c.ParentID = child()
						}
						if _, ok := do(rules.Delegate{Child: c}); ok {
							passed.add(1)
						}
					case 2:
						do(rules.EndChild{ConnectionID: "C1", ChildID: child(), By: rules.EndedByApp})
					case 3:
						do(rules.EndFamily{ConnectionID: "C1", FamilyID: family()})
					default:
						h := rules.Hold{Claim: name, NodeID: "n", ChildID: child(), Call: rules.Call{
							ConnectionID: "C1", AccountID: "A", AppID: "app", RequestID: "req_" + name,
							Fingerprint: "f",
							Model:       "m", Terms: "{}", HoldMC: money.MC(1 + random.IntN(300)),
						}}
						h.Key = rules.ChildKey(h.ChildID, name)
						if random.IntN(2) == 0 {
							h.FreeCredit = &rules.FreeCreditHold{Terms: "{}", HoldMC: h.HoldMC, Limits: []limits.Limit{
								{Subject: "free/app", Unit: limits.Spend, Max: given},
							}}
						}
						held, ok := do(h)
						if !ok {
							continue
						}
						if random.IntN(3) == 0 {
							do(rules.Release{Call: held.Call, Attempt: held.Attempt})
							continue
						}
						amount := money.MC(random.IntN(400))
						r, _ := do(rules.Settle{
							Call: held.Call, Attempt: held.Attempt, Settlement: rules.Settled,
							Charge: rules.Amounts{
								ProviderCostMC: amount,
								UserChargeMC:   amount,
							}, Usage: rules.Usage{JSON: "{}"},
						})
						charged.add(r.Entry.ConsumedDeltaMC) // nothing of what free credit paid
					}
				}
			})
		}
		wg.Wait()
		conn, balance := checkDelegated(t, d, "C1"), nodes[0].read("A")
		if balance.AvailableMC != given-charged.sum || balance.ReservedMC != 0 || conn.ConsumedMC != charged.sum ||
			conn.DelegatedMC != 0 || conn.HeldMC != 0 {
			t.Errorf("charged %d: %+v, %+v", charged.sum, balance, conn)
		}
		t.Logf("%d charges, %d children, %d refusals", charged.n, passed.n, refused.n)
		if charged.n < 3 || passed.n < 3 || refused.n == 0 {
			t.Errorf("vacuous: %d charges, %d children, %d refusals", charged.n, passed.n, refused.n)
		}
	})
}

type counted struct {
	mu  sync.Mutex
	n   int
	sum money.MC
}

func (c *counted) add(amount money.MC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.sum += amount
}

// checkDelegated compares a connection with the budgets of its children, in one snapshot.
func checkDelegated(t *testing.T, d *db.DB, connectionID string) (conn rules.Connection) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		if conn, err = LockConnection(ctx, tx, connectionID); err != nil {
			return err
		}
		list, err := ListChildren(ctx, tx, connectionID, "", "", 1000)
		var left, held money.MC
		for _, c := range list {
			left, held = left+c.LeftMC, held+c.HeldMC
			if c.RemainingMC() < 0 || c.EndedUS != nil && c.LeftMC != c.HeldMC {
				t.Errorf("%+v", c)
			}
		}
		if conn.DelegatedMC != left || conn.ChildHeldMC != held || conn.RemainingMC() < 0 {
			t.Errorf("children have %d and hold %d: %+v", left, held, conn)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return conn
}

// TestChildHoldIsSaved holds by a child's budget, and reads it before and after the hold is in the file.
func TestChildHoldIsSaved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := databaseBench(t, d, "")
		call := rules.Call{
			ConnectionID: "C1",
			AccountID:    "A",
			AppID:        "app",
			Key:          "chd_a/k",
			RequestID:    "req_k",
			HoldMC:       70,
		}
		for _, c := range []rules.Command{
			rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 500},
			rules.Connect{ConnectionID: "C1", AppID: "app", AccountID: "A", Sandbox: true, RequestedMC: 300},
			rules.Delegate{Child: rules.Child{ID: "chd_a", ConnectionID: "C1", AmountMC: 200, TokenHash: "t",
				ExpiresUS: epoch.Add(time.Hour).UnixMicro(), Models: []string{"m"}}},
			rules.Hold{Claim: "k", NodeID: "n", ChildID: "chd_a", Call: call},
		} {
			if _, err := b.do(c); err != nil {
				t.Fatal(err)
			}
		}
		look := func(q db.Queryer) {
			t.Helper()
			c, err := ReadChild(t.Context(), q, "chd_a")
			conn, err2 := GetConnection(t.Context(), q, "C1")
			if err != nil || err2 != nil || c.LeftMC != 200 || c.HeldMC != 70 || c.RemainingMC() != 130 ||
				len(c.Models) != 1 || conn.HeldMC != 70 || conn.ChildHeldMC != 70 || conn.DelegatedMC != 200 ||
				conn.RemainingMC() != 100 {
				t.Errorf("%+v, %+v, %v, %v", c, conn, err, err2)
			}
		}
		look(d)
		// What another call saves leaves the hold out: it is not in the file, and a crash would lose it.
		other := call
		other.Key, other.RequestID = "own", "req_own"
		for _, c := range []rules.Command{
			rules.Hold{Claim: "own", NodeID: "n", Call: other},
			rules.Settle{Call: other, Attempt: 1, Settlement: rules.Settled, Usage: rules.Usage{JSON: "{}"}},
		} {
			if _, err := b.do(c); err != nil {
				t.Fatal(err)
			}
		}
		var held, childHeld, rows money.MC
		err := d.QueryRowContext(t.Context(), `SELECT c.held_mc, c.child_held_mc,
				(SELECT COALESCE(SUM(amount_mc), 0) FROM holds WHERE state = 'open') FROM connections c`).
			Scan(&held, &childHeld, &rows)
		if err != nil || held != rows || childHeld != rows {
			t.Errorf("held %d, by children %d, holds %d: %v", held, childHeld, rows, err)
		}
		look(d)
		if _, err := b.do(rules.SetVelocityLimit{ConnectionID: "C1"}); err != nil { // saves all holds
			t.Fatal(err)
		}
		checkDelegated(t, d, "C1")
		look(d)
	})
}
