package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/testkit"
)

// delegate makes a child of a connection or of another child, or sends the request for one again.
func (m *machine) delegate(t *rapid.T) {
	conn := m.connection(t)
	m.n++
	c := Delegate{Child{
		ID:           fmt.Sprint("chd_", m.n),
		ConnectionID: conn.ID,
		AmountMC:     money.MC(rapid.Int64Range(-1, 300).Draw(t, "amount")),
		Key:          fmt.Sprint("make", m.n),
		Fingerprint:  "f",
		ExpiresUS:    m.now.Add(time.Hour).UnixMicro(),
	}}
	remaining := conn.RemainingMC()
	if list := m.s.liveChildren(conn.ID); len(list) > 0 && rapid.Bool().Draw(t, "child of a child") {
		parent := rapid.SampledFrom(list).Draw(t, "parent")
		c.Child.ParentID, c.Child.ExpiresUS = parent.ID, parent.ExpiresUS
		remaining = m.s.childRemaining(parent.ID)
	}
	c.Child.Key = ChildKey(c.Child.ParentID, c.Child.Key)
	for _, id := range slices.Sorted(maps.Keys(m.s.children)) {
		if old := m.s.children[id]; old.ConnectionID == conn.ID && rapid.IntRange(0, 5).Draw(t, "send again") == 0 {
			c.Child.Key, c.Child.ParentID = old.Key, old.ParentID
		}
	}
	again := false
	for _, old := range m.s.children {
		again = again || old.Key == c.Child.Key && old.ConnectionID == conn.ID
	}
	r, err := m.do(t, c)
	switch {
	case again:
		if m.seen["delegated again"]++; err != nil || r.Outcome != Done {
			t.Fatalf("%+v again: %+v, %v", c, r, err)
		}
	case err == nil && c.Child.AmountMC > remaining:
		t.Fatalf("I34: %+v is more than the %d that remained", c, remaining)
	case err == nil && c.Child.ParentID != "":
		m.seen["delegated by a child"]++
	case err == nil:
		m.seen["delegated"]++
	}
}

func (m *machine) endChild(t *rapid.T) {
	conn := m.connection(t)
	list := m.s.liveChildren(conn.ID)
	if len(list) == 0 {
		t.Skip("no child yet")
	}
	child := rapid.SampledFrom(list).Draw(t, "child")
	if m.s.Counters[ChildSubject(child.ID)].HeldMC > 0 {
		m.seen["child held"]++
	}
	before := conn.RemainingMC()
	if child.ParentID != "" {
		before = m.s.childRemaining(child.ParentID)
	}
	r, err := m.do(t, EndChild{ConnectionID: conn.ID, ChildID: child.ID, By: EndedByApp})
	after := conn.RemainingMC()
	if child.ParentID != "" {
		after = m.s.childRemaining(child.ParentID)
	}
	if m.seen["child ended"]++; err != nil || after-before != r.ReleasedMC || r.ReleasedMC < 0 {
		t.Fatalf("I34: the end of %+v: %+v, %v; its parent had %d and has %d", child, r, err, before, after)
	}
}

// children checks I34: what each live child has left is what it was given, less what its calls were charged, whoever
// paid, and what it has passed on; what an ended one has left is what its calls still hold; and the connection has the
// sum.
func (m *machine) children(t *rapid.T) {
	if err := errors.Join(checkChildren(m.s), checkChildEvents(m.s)); err != nil {
		t.Fatal(err)
	}
	for _, c := range m.s.children {
		if c.EndedBy == EndedByRevoked {
			m.seen["children revoked"]++
		}
	}
}

func checkChildren(s *State) error {
	left, delegated, childHeld := map[string]money.MC{}, map[string]money.MC{}, map[string]money.MC{}
	for _, c := range s.children {
		left[c.ID] += c.AmountMC
		if c.ParentID != "" {
			if left[c.ParentID] -= c.AmountMC; c.EndedUS != nil && c.EndedBy != EndedByParent {
				left[c.ParentID] += c.ReturnedMC
			}
		}
		delegated[c.ConnectionID] += s.Counters[ChildSubject(c.ID)].BudgetMC()
	}
	for i := range s.Changes.Entries {
		e := &s.Changes.Entries[i]
		if e.Status == "settled" && e.Type == EntrySpend {
			left[ChildOfKey(e.Key)] -= e.UserChargeMC
		}
	}
	held, freeHeld := map[string]money.MC{}, map[string]money.MC{}
	for k, h := range s.Holds {
		switch childID := ChildOfKey(k.Key); {
		case childID == "" || !h.HoldsMoney():
		case h.PaidBy == PaidByFreeCredit:
			freeHeld[childID] += h.HoldMC
		default:
			held[childID] += h.HoldMC
			childHeld[k.ConnectionID] += h.HoldMC
		}
	}
	for _, c := range s.children {
		budget := s.Counters[ChildSubject(c.ID)].BudgetMC()
		switch {
		case c.EndedUS == nil && (budget != left[c.ID] || budget < held[c.ID]+freeHeld[c.ID]):
			return fmt.Errorf("I34: %+v has %d, by its rows %d, and holds %d and %d of free credit", c, budget,
				left[c.ID], held[c.ID], freeHeld[c.ID])
		case c.EndedUS != nil && budget != held[c.ID]:
			return fmt.Errorf("I34: %+v has ended with %d and holds %d", c, budget, held[c.ID])
		case s.Connections[c.ConnectionID].Status == Revoked && c.EndedUS == nil:
			return fmt.Errorf("I34: %+v of a revoked connection", c)
		}
	}
	for _, c := range s.Connections {
		if c.DelegatedMC != delegated[c.ID] || c.ChildHeldMC != childHeld[c.ID] || c.RemainingMC() < 0 {
			return fmt.Errorf("I34: %+v, its children have %d and hold %d", c, delegated[c.ID], childHeld[c.ID])
		}
	}
	return nil
}

// checkChildEvents checks that the end of each child is reported once, with what came back.
func checkChildEvents(s *State) error {
	told := map[string]bool{}
	for _, e := range s.Changes.Events {
		if e.Type != "connection.child_ended" {
			continue
		}
		var data struct{ Child EndedChild }
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			return err
		}
		c := s.children[data.Child.ID]
		if c == nil || c.EndedUS == nil || *c.EndedUS != e.CreatedUS || told[c.ID] ||
			e.ConnectionID != c.ConnectionID || data.Child.Status != "ended" ||
			*data.Child.EndedBy != string(c.EndedBy) ||
			data.Child.AmountMC != c.AmountMC || data.Child.ReturnedMC != c.ReturnedMC || data.Child.SpentMC < 0 ||
			data.Child.SpentMC+c.ReturnedMC+data.Child.HeldMC > c.AmountMC {
			return fmt.Errorf("I28: %+v has ended with the event %s", c, e.Data)
		}
		told[c.ID] = true
	}
	for _, c := range s.children {
		if told[c.ID] != (c.EndedUS != nil) {
			return fmt.Errorf("I28: %+v: its end is told: %v", c, told[c.ID])
		}
	}
	return nil
}

// checkSpent checks that the events of children that passed nothing on say what their calls were charged until then.
func checkSpent(s *State, from int) error {
	for _, e := range s.Changes.Events[from:] {
		var data struct{ Child EndedChild }
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			return err
		}
		spent := data.Child.SpentMC
		for i := range s.Changes.Entries {
			if n := &s.Changes.Entries[i]; ChildOfKey(n.Key) == data.Child.ID {
				spent -= n.UserChargeMC
			}
		}
		isParent := false
		for _, c := range s.children {
			isParent = isParent || c.ParentID == data.Child.ID
		}
		if e.Type == "connection.child_ended" && !isParent && spent != 0 {
			return fmt.Errorf("I28: %s, and %d were not spent", e.Data, spent)
		}
	}
	return nil
}

// TestTrees makes random trees of children that spend, pass on and end, and checks that no micro-cent is lost or made.
func TestTrees(t *testing.T) {
	t.Parallel()
	growTrees(t, 2_000)
}

func TestMillionTrees(t *testing.T) {
	testkit.Long(t, "a million random trees; TestTrees makes two thousand")
	t.Parallel()
	growTrees(t, 1_000_000)
}

func growTrees(t *testing.T, trees int) {
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for range trees {
		if err := growTree(random); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d trees", trees)
}

// withFreeCredit lets free credit pay for a call if it covers it, at half of what the wallet would hold.
func withFreeCredit(h Hold, now time.Time) Hold {
	pool, onApp, onAll := FreeCreditSubjects(h.AppID, h.AccountID, now)
	h.FreeCredit = &FreeCreditHold{Terms: "{}", HoldMC: h.HoldMC/2 + 1}
	for _, subject := range []string{pool, onApp, onAll} {
		h.FreeCredit.Limits = append(h.FreeCredit.Limits, limits.Limit{Subject: subject, Unit: limits.Spend, Max: 3000})
	}
	return h
}

// growTree runs a tree of children from its root to its revocation.
func growTree(random *rand.Rand) error {
	s, now := NewState(), time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	const given = 10_000
	s.Balances["a"] = &Balance{AccountID: "a", ReservedMC: given}
	conn := &Connection{ID: "c", AppID: "p", AccountID: "a", AllocationMC: given, Status: Active, FasterSpend: 1}
	s.Connections["c"] = conn
	type call struct {
		Call
		attempt int64
	}
	var calls []call
	var charged money.MC
	for i := range 10 + random.IntN(20) {
		keys, now := NewRowKeys(), now.Add(time.Duration(i)*time.Second)
		live := s.liveChildren("c")
		pick := func() string {
			if len(live) == 0 || random.IntN(3) == 0 {
				return ""
			}
			return live[random.IntN(len(live))].ID
		}
		var command Command
		end := -1
		switch n := random.IntN(11); {
		case n < 3:
			command = Delegate{Child{ID: fmt.Sprint("chd_", i), ConnectionID: "c", ParentID: pick(),
				FamilyID: fmt.Sprint("fam_", random.IntN(3)), AmountMC: money.MC(1 + random.IntN(4000)),
				ExpiresUS: now.Add(time.Hour).UnixMicro() - int64(i)}}
		case n < 6:
			child := pick()
			command = Hold{
				Claim:   fmt.Sprint(i),
				ChildID: child,
				Call: Call{ConnectionID: "c", AccountID: "a", AppID: "p",
					Key: ChildKey(
						child,
						fmt.Sprint(i),
					), RequestID: fmt.Sprint("req_", i), HoldMC: money.MC(1 + random.IntN(900))},
			}
			if random.IntN(2) == 0 {
				command = withFreeCredit(command.(Hold), now)
			}
		case n < 9 && len(calls) > 0:
			end = random.IntN(len(calls))
			c := calls[end]
			if command = (Release{Call: c.Call, Attempt: c.attempt}); n < 8 {
				amount := money.MC(random.IntN(1000)) // now and then more than the hold
				command = Settle{Call: c.Call, Attempt: c.attempt,
					Charge: Amounts{ProviderCostMC: amount, UserChargeMC: amount}, Settlement: Settled}
			}
		case n == 10:
			command = EndFamily{ConnectionID: "c", FamilyID: fmt.Sprint("fam_", random.IntN(3))}
		default:
			command = EndChild{ConnectionID: "c", ChildID: pick(), By: EndedByApp}
		}
		keys.Add(command)
		for subject := range keys.Counters {
			if s.Counters[subject] == nil {
				s.Counters[subject] = &Counter{}
			}
		}
		events := len(s.Changes.Events)
		r, err := Apply(s, command, now)
		var refused *apierr.Error
		switch {
		case errors.As(err, &refused):
		case err != nil:
			return err
		case end >= 0:
			calls = slices.Delete(calls, end, end+1)
			charged += r.Entry.ConsumedDeltaMC
		case r.RequestID != "":
			calls = append(calls, call{r.Call, r.Attempt})
		}
		if err := errors.Join(checkChildren(s), checkSpent(s, events)); err != nil {
			return fmt.Errorf("after %+v: %w", command, err)
		}
	}
	keys := NewRowKeys()
	keys.Add(Revoke{ConnectionID: "c"})
	events := len(s.Changes.Events)
	r, err := Apply(s, Revoke{ConnectionID: "c"}, now.Add(time.Hour))
	if err := errors.Join(err, checkChildEvents(s), checkSpent(s, events)); err != nil {
		return err
	}
	back := r.ReleasedMC
	for _, c := range calls {
		r, err := Apply(s, Release{Call: c.Call, Attempt: c.attempt}, now.Add(time.Hour))
		if err != nil {
			return err
		}
		back += r.ReleasedMC
	}
	if b := s.Balances["a"]; back+charged != given || b.AvailableMC != back || b.ReservedMC != 0 ||
		conn.DelegatedMC != 0 {
		return fmt.Errorf("I34: %d came back and %d were charged of %d: %+v, %+v", back, charged, given, b, conn)
	}
	return checkChildren(s)
}
