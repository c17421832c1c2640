package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// raiseCommand reads a line of a script: ask C r target, approve r A, deny r A;
// most= is the tier's limit.
func raiseCommand(t *testing.T, f []string) rules.Command {
	t.Helper()
	num := func(s string) money.MC {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(f, err)
		}
		return money.MC(n)
	}
	app, most := "app1", money.MC(1_000_000)
	for _, w := range f {
		switch name, v, _ := strings.Cut(w, "="); name {
		case "app":
			app = v
		case "most":
			most = num(v)
		}
	}
	if f[0] == "ask" {
		return rules.RequestAllocation{
			RequestID:    f[2],
			ConnectionID: f[1],
			AppID:        app,
			TargetMC:     num(f[3]),
			Reason:       "more",
			MaxMC:        most,
		}
	}
	return rules.DecideAllocationRequest{RequestID: f[1], AccountID: f[2], Approve: f[0] == "approve", MaxMC: most}
}

// prefixRaise keeps the scripts of one database apart.
func prefixRaise(c rules.Command, p string) rules.Command {
	switch c := c.(type) {
	case rules.RequestAllocation:
		c.RequestID, c.ConnectionID, c.AppID = p+c.RequestID, p+c.ConnectionID, p+c.AppID
		return c
	case rules.DecideAllocationRequest:
		c.RequestID, c.AccountID = p+c.RequestID, p+c.AccountID
		return c
	}
	return c
}

// toldRaise says what came of such a line.
func toldRaise(r rules.Result, bal rules.Balance) string {
	own := func(s string) string { return s[strings.LastIndex(s, "-")+1:] }
	s := fmt.Sprintf("%s by=%s current=%d target=%d", r.AllocationRequest.Status, own(r.AllocationRequest.SupersededBy),
		r.AllocationRequest.CurrentMC, r.AllocationRequest.TargetMC)
	if r.Outcome == rules.Done {
		s = "done " + s
	}
	return s + fmt.Sprintf(" allocation=%d available=%d reserved=%d", r.Connection.AllocationMC, bal.AvailableMC,
		bal.ReservedMC)
}

// Of 64 requests at once one is pending, each other one leads to a newer one, and
// of 64 answers one counts.
func TestRacedRaises(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := NewWriter(d, d.Now)
		ctx := t.Context()
		do := func(c rules.Command) rules.Result {
			t.Helper()
			r, err := w.Do(ctx, c)
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			return r
		}
		do(rules.TopUp{AccountID: "wac_race", AmountMC: 1000})
		do(rules.Connect{ConnectionID: "conn_race", AppID: "app_race", AccountID: "wac_race", RequestedMC: 100})
		race(64, func(i int) {
			if _, err := w.Do(ctx, rules.RequestAllocation{
				RequestID:    id.New(id.AllocationRequest, d.Now()),
				ConnectionID: "conn_race",
				AppID:        "app_race",
				TargetMC:     money.MC(101 + i),
				MaxMC:        1000,
			}); err != nil {
				t.Error(err)
			}
		})
		list, err := AllocationRequestsOfConnection(ctx, d, "conn_race", "", 100)
		if err != nil || len(list) != 64 {
			t.Fatalf("%d requests, %v", len(list), err)
		}
		pending := checkRaises(t, list)
		if len(pending) != 1 {
			t.Fatalf("%d are pending", len(pending))
		}
		counted := make([]bool, 64)
		race(64, func(i int) {
			r, err := w.Do(ctx, rules.DecideAllocationRequest{
				RequestID: pending[0].ID,
				AccountID: "wac_race",
				Approve:   i%2 == 0,
				MaxMC:     1000,
			})
			if err != nil {
				t.Error(err)
			}
			counted[i] = r.Outcome == rules.Applied
		})
		winner := slices.Index(counted, true)
		if winner < 0 || slices.Contains(counted[winner+1:], true) {
			t.Fatalf("answers that counted: %v", counted)
		}
		after, err := GetAllocationRequest(ctx, d, pending[0].ID)
		c, err2 := GetConnection(ctx, d, "conn_race")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		status, allocation := rules.RequestDenied, money.MC(100)
		if winner%2 == 0 {
			status, allocation = rules.RequestApproved, pending[0].TargetMC
		}
		if after.Status != status || c.AllocationMC != allocation {
			t.Errorf("answer %d counted; the request is %s and the cap %d", winner, after.Status, c.AllocationMC)
		}
		var notices int
		if err := d.QueryRowContext(ctx,
			`SELECT COUNT(*) FROM notices WHERE connection_id = 'conn_race' AND kind = 'allocation_request'`).Scan(
			&notices); err != nil || notices != 1 {
			t.Errorf("the user is told %d times (%v), want once: each link leads to the newest", notices, err)
		}
		if n := raiseEvents(t, d); n != 65 {
			t.Errorf("%d events, want one for each request and one for the answer", n)
		}
	})
}

func race(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func raiseEvents(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.QueryRowContext(t.Context(),
		`SELECT COUNT(*) FROM events WHERE connection_id = 'conn_race' AND type LIKE 'allocation_change.%'`).Scan(
		&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// checkRaises follows each superseded request to the one that was not, and
// returns those that are pending.
func checkRaises(t interface{ Fatalf(string, ...any) },
	list []rules.AllocationRequest) (pending []rules.AllocationRequest) {
	byID := map[string]rules.AllocationRequest{}
	for _, r := range list {
		byID[r.ID] = r
	}
	for _, r := range list {
		if r.Status == rules.RequestPending {
			pending = append(pending, r)
		}
		for hops := 0; r.Status == rules.RequestSuperseded; hops++ {
			next, ok := byID[r.SupersededBy]
			if !ok || next.ConnectionID != r.ConnectionID || hops > len(list) {
				t.Fatalf("%+v leads nowhere", r)
			}
			r = next
		}
	}
	return pending
}

// A change that the caller's transaction forgets leaves no request behind.
func TestForgottenRaise(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := NewWriter(d, d.Now)
		for _, c := range []rules.Command{
			rules.TopUp{AccountID: "wac_1", AmountMC: 1000},
			rules.Connect{ConnectionID: "conn_1", AppID: "app_1", AccountID: "wac_1", RequestedMC: 100},
		} {
			if _, err := w.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		ask := rules.RequestAllocation{
			RequestID:    "acr_1",
			ConnectionID: "conn_1",
			AppID:        "app_1",
			TargetMC:     200,
			MaxMC:        1000,
		}
		forgotten := errors.New("forgotten")
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := w.DoTx(ctx, tx, ask); err != nil {
				return err
			}
			return forgotten
		})
		if !errors.Is(err, forgotten) {
			t.Fatal(err)
		}
		if list, err := AllocationRequestsOfConnection(t.Context(), d, "conn_1", "", 10); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		if r, err := w.Do(t.Context(), ask); err != nil || r.AllocationRequest.Status != rules.RequestPending ||
			r.Connection.EventSeq != 2 {
			t.Errorf("asked again: %+v, %v", r, err)
		}
	})
}
