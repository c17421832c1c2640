package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// raiseCommand reads a line of a script: ask C r target, approve r A, deny r A;
// most= is the tier's limit.
func raiseCommand(t *testing.T, f []string) Command {
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
		return AskRaise{RequestID: f[2], ConnectionID: f[1], AppID: app, TargetMC: num(f[3]), Reason: "more", MaxMC: most}
	}
	return DecideRaise{RequestID: f[1], AccountID: f[2], Approve: f[0] == "approve", MaxMC: most}
}

// prefixRaise keeps the scripts of one database apart.
func prefixRaise(c Command, p string) Command {
	switch c := c.(type) {
	case AskRaise:
		c.RequestID, c.ConnectionID, c.AppID = p+c.RequestID, p+c.ConnectionID, p+c.AppID
		return c
	case DecideRaise:
		c.RequestID, c.AccountID = p+c.RequestID, p+c.AccountID
		return c
	}
	return c
}

// toldRaise says what came of such a line.
func toldRaise(r Result, bal Balance) string {
	own := func(s string) string { return s[strings.LastIndex(s, "-")+1:] }
	s := fmt.Sprintf("%s by=%s current=%d target=%d", r.Raise.Status, own(r.Raise.SupersededBy), r.Raise.CurrentMC, r.Raise.TargetMC)
	if r.Outcome == Done {
		s = "done " + s
	}
	return s + fmt.Sprintf(" allocation=%d available=%d reserved=%d", r.Connection.AllocationMC, bal.AvailableMC, bal.ReservedMC)
}

// Of 64 requests at once one is pending, each other one leads to a newer one, and
// of 64 answers one counts.
func TestRacedRaises(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := New(d, d.Now)
		ctx := t.Context()
		do := func(c Command) Result {
			t.Helper()
			r, err := w.Do(ctx, c)
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			return r
		}
		do(TopUp{AccountID: "wac_race", AmountMC: 1000})
		do(Connect{ConnectionID: "conn_race", AppID: "app_race", AccountID: "wac_race", RequestedMC: 100})
		race(64, func(i int) {
			if _, err := w.Do(ctx, AskRaise{RequestID: id.New(id.AllocationRequest, d.Now()), ConnectionID: "conn_race", AppID: "app_race", TargetMC: money.MC(101 + i), MaxMC: 1000}); err != nil {
				t.Error(err)
			}
		})
		list, err := RaisesOfConnection(ctx, d, "conn_race", "", 100)
		if err != nil || len(list) != 64 {
			t.Fatalf("%d requests, %v", len(list), err)
		}
		pending := checkRaises(t, list)
		if len(pending) != 1 {
			t.Fatalf("%d are pending", len(pending))
		}
		counted := make([]bool, 64)
		race(64, func(i int) {
			r, err := w.Do(ctx, DecideRaise{RequestID: pending[0].ID, AccountID: "wac_race", Approve: i%2 == 0, MaxMC: 1000})
			if err != nil {
				t.Error(err)
			}
			counted[i] = r.Outcome == Applied
		})
		winner := slices.Index(counted, true)
		if winner < 0 || slices.Contains(counted[winner+1:], true) {
			t.Fatalf("answers that counted: %v", counted)
		}
		after, err := GetRaise(ctx, d, pending[0].ID)
		c, err2 := GetConnection(ctx, d, "conn_race")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		status, allocation := RaiseDenied, money.MC(100)
		if winner%2 == 0 {
			status, allocation = RaiseApproved, pending[0].TargetMC
		}
		if after.Status != status || c.AllocationMC != allocation {
			t.Errorf("answer %d counted; the request is %s and the cap %d", winner, after.Status, c.AllocationMC)
		}
		var notices int
		if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM notices WHERE connection_id = 'conn_race' AND kind = 'allocation_request'`).Scan(&notices); err != nil || notices != 1 {
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
	if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM events WHERE connection_id = 'conn_race' AND type LIKE 'allocation_change.%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// checkRaises follows each superseded request to the one that was not, and
// returns those that are pending.
func checkRaises(t interface{ Fatalf(string, ...any) }, list []Raise) (pending []Raise) {
	byID := map[string]Raise{}
	for _, r := range list {
		byID[r.ID] = r
	}
	for _, r := range list {
		if r.Status == RaisePending {
			pending = append(pending, r)
		}
		for hops := 0; r.Status == RaiseSuperseded; hops++ {
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
		w := New(d, d.Now)
		for _, c := range []Command{TopUp{AccountID: "wac_1", AmountMC: 1000}, Connect{ConnectionID: "conn_1", AppID: "app_1", AccountID: "wac_1", RequestedMC: 100}} {
			if _, err := w.Do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		ask := AskRaise{RequestID: "acr_1", ConnectionID: "conn_1", AppID: "app_1", TargetMC: 200, MaxMC: 1000}
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
		if list, err := RaisesOfConnection(t.Context(), d, "conn_1", "", 10); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		if r, err := w.Do(t.Context(), ask); err != nil || r.Raise.Status != RaisePending || r.Connection.EventSeq != 2 {
			t.Errorf("asked again: %+v, %v", r, err)
		}
	})
}

// ask files a request in the model; decide answers one, also a second time.
func (m *machine) ask(t *rapid.T) {
	c := m.connection(t)
	m.n++
	r, err := m.do(t, AskRaise{
		RequestID: fmt.Sprint("r", m.n), ConnectionID: c.ID, AppID: c.AppID,
		TargetMC: money.MC(rapid.Int64Range(0, 900).Draw(t, "target")), MaxMC: 800,
	})
	if err == nil && r.Raise.TargetMC <= r.Connection.AllocationMC {
		t.Fatalf("asked for %+v on %+v", r.Raise, r.Connection)
	}
}

func (m *machine) decide(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.s.raises.byID))
	if len(ids) == 0 {
		t.Skip("no request yet")
	}
	before := *m.s.raises.byID[rapid.SampledFrom(ids).Draw(t, "request")]
	c := *m.s.connections[before.ConnectionID]
	approve := rapid.Bool().Draw(t, "approve")
	r, err := m.do(t, DecideRaise{RequestID: before.ID, AccountID: c.AccountID, Approve: approve, MaxMC: 800})
	var refused *apierr.Error
	after := *m.s.connections[before.ConnectionID]
	switch {
	case errors.As(err, &refused):
		m.seen["refused raise"]++
		if *m.s.raises.byID[before.ID] != before {
			t.Fatalf("refused, and %+v is %+v", before, *m.s.raises.byID[before.ID])
		}
	case r.Outcome == Done:
		m.seen["decided twice"]++
		if before.Status == RaisePending || after.AllocationMC != c.AllocationMC || after.EventSeq != c.EventSeq {
			t.Fatalf("answered %+v again: %+v", before, r)
		}
	case approve:
		m.seen["approved"]++
		if want := max(c.AllocationMC, before.TargetMC); before.Status != RaisePending || after.AllocationMC != want {
			t.Fatalf("approved %+v, and the cap is %d", before, after.AllocationMC)
		}
	case before.Status != RaisePending || after.AllocationMC != c.AllocationMC:
		t.Fatalf("denied %+v, and the cap is %d", before, after.AllocationMC)
	}
}

// requests checks that at most one request of a connection is pending.
func (m *machine) requests(t *rapid.T) {
	var list []Raise
	for _, r := range m.s.raises.byID {
		list = append(list, *r)
	}
	count := map[string]int{}
	for _, r := range checkRaises(t, list) {
		if count[r.ConnectionID]++; count[r.ConnectionID] > 1 || m.s.raises.pending[r.ConnectionID].ID != r.ID {
			t.Fatalf("I9: two requests of %s are pending", r.ConnectionID)
		}
	}
}
