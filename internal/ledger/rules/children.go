package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// This file passes parts of a connection's allocation on (decision 107). What is passed on stays in the allocation of
// the connection and in the user's reserved balance, so no row of the ledger says so: only who may spend it changes.
// The budget of a child is a counter, which its calls reserve in the way of every limit.

// What bounds the children of a connection.
const (
	MaxChildDepth   = 4
	MaxLiveChildren = 100
)

// ChildEnd is why a child has ended.
type ChildEnd string

// The causes of an end.
const (
	EndedByApp     ChildEnd = "app"     // by a token of the connection or of a parent
	EndedByUser    ChildEnd = "user"    // on the dashboard
	EndedByExpiry  ChildEnd = "expired" // its time is over
	EndedByParent  ChildEnd = "parent"  // with its parent
	EndedByRevoked ChildEnd = "revoked" // with its connection, or with the grant family of the token that made it
)

// A Child is a part of a connection's allocation that can be spent by a token of its own.
type Child struct {
	ID, ConnectionID string
	ParentID         string // the child that gave the budget; "" = the connection itself
	FamilyID         string // the grant family of the token that made it; "" = none, as of a child's token
	Depth            int64  // 1 for children of the connection
	Label            string
	AmountMC         money.MC // as it was given
	Features, Models []string // the only ones that its calls may name; empty = all of the app
	Key, Fingerprint string   // of the request that made it; ChildKey of its parent
	TokenHash        string
	SealedToken      []byte // only written here: store.GetSealedToken reads it
	ExpiresUS        int64
	CreatedUS        int64
	EndedUS          *int64 // nil = it is live
	EndedBy          ChildEnd
	ReturnedMC       money.MC // what went back at its end, with that of the children that ended with it
}

// childPrefix begins the subjects of counters that are budgets of children.
const childPrefix = "child/"

// freeOfChildPrefix begins the subjects of counters of what free credit holds for calls of children.
const freeOfChildPrefix = "childfree/"

// ChildSubject is the counter that has a child's budget: it counts what is left, held amounts included, in place of
// what is spent. LimitReported says that the child has ended; then all that is left is held.
func ChildSubject(childID string) string { return childPrefix + childID }

// FreeOfChildSubject is the counter of what a child's calls hold that free credit pays. They use up the budget, too,
// but hold none of its money: all of it returns when the child ends, although they run. So it counts nothing that is
// spent.
func FreeOfChildSubject(childID string) string { return freeOfChildPrefix + childID }

// isBudget reports whether a counter is one of a child's budget.
func isBudget(subject string) bool {
	return strings.HasPrefix(subject, childPrefix) || strings.HasPrefix(subject, freeOfChildPrefix)
}

// AddBudget adds the counters of a child's budget.
func (k *RowKeys) AddBudget(childID string) {
	k.Counters[ChildSubject(childID)], k.Counters[FreeOfChildSubject(childID)] = 0, 0
}

// ChildKey returns the idempotency key of a child's call as its connection keeps it: the keys of the children of a
// connection are apart, and rows tell whose they are.
func ChildKey(childID, key string) string {
	if childID == "" {
		return key
	}
	return childID + "/" + key
}

// ChildOfKey returns the child whose call has the key of a hold or row; "" = the connection's own.
func ChildOfKey(key string) string {
	childID, _, found := strings.Cut(key, "/")
	if !found || !strings.HasPrefix(childID, id.Child) { // a voice reply's key has a slash, too
		return ""
	}
	return childID
}

// BudgetMC is what is left of a child's budget, held amounts included.
func (c *Counter) BudgetMC() money.MC { return money.MC(c.Spent.Sum(time.Time{}, 0)) }

// Delegate passes a part of what remains of a connection, or of one of its children, on to a new child. If the key has
// made a child of the same parent already, the outcome is Done.
type Delegate struct{ Child Child }

// EndChild ends a child and its own children. What they have neither spent nor held returns to the parent; what they
// hold returns to the connection when the calls end. If the child has ended already, the outcome is Done.
type EndChild struct {
	ConnectionID, ChildID string
	By                    ChildEnd
}

// EndFamily ends the children that tokens of a grant family have made, and all below them, because the family is
// revoked. What they have neither spent nor held returns to the connection. Without any the outcome is Done.
type EndFamily struct{ ConnectionID, FamilyID string }

// ChildKeys names the children that a command needs: the live ones of a connection, and the one that a request made, or
// the one of an id.
type ChildKeys struct{ ConnectionID, Key, ID string }

func (c Delegate) addKeys(w *RowKeys) {
	w.Connections[c.Child.ConnectionID] = ""
	w.Children = append(w.Children, ChildKeys{ConnectionID: c.Child.ConnectionID, Key: c.Child.Key})
	w.AddBudget(c.Child.ID)
}

func (c EndChild) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = ""
	w.Children = append(w.Children, ChildKeys{ConnectionID: c.ConnectionID, ID: c.ChildID})
}

func (c EndFamily) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = ""
	w.Children = append(w.Children, ChildKeys{ConnectionID: c.ConnectionID})
}

// AddChild adds a child that a command may change.
func (s *State) AddChild(c *Child) {
	if s.children == nil {
		s.children = map[string]*Child{}
	}
	s.children[c.ID] = c
}

// liveChildren returns the live children of a connection, oldest first, so parents before their children.
func (s *State) liveChildren(connectionID string) (list []*Child) {
	for _, c := range s.children {
		if c.ConnectionID == connectionID && c.EndedUS == nil {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *Child) int {
		return cmp.Or(cmp.Compare(a.Depth, b.Depth), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func (c Delegate) apply(s *State, nowUS int64) (Result, error) {
	for _, old := range s.children {
		if c.Child.Key != "" && old.Key == c.Child.Key && old.ConnectionID == c.Child.ConnectionID {
			if old.Fingerprint != c.Child.Fingerprint {
				return Result{}, apierr.IdempotencyKeyReused.On(c.Child.ConnectionID,
					"Idempotency-Key %s was used with a different request; use a new key", c.Child.Key)
			}
			return Result{Outcome: Done, Child: *old}, nil
		}
	}
	conn, err := s.spendableConnection(c.Child.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	child := c.Child
	remaining, expires := conn.RemainingMC(), int64(0)
	var parent *Child
	if child.Depth = 1; child.ParentID != "" {
		parent = s.children[child.ParentID]
		if parent == nil || parent.ConnectionID != conn.ID || parent.EndedUS != nil || parent.ExpiresUS <= nowUS {
			return Result{}, childEnded(conn.ID)
		}
		child.Depth, expires = parent.Depth+1, parent.ExpiresUS
		remaining = s.childRemaining(parent.ID)
	}
	switch {
	case child.AmountMC < 1 || child.AmountMC > money.Max:
		return Result{}, apierr.InvalidRequest.On(conn.ID, "amount_mc: must be between 1 and %d", money.Max)
	case child.Depth > MaxChildDepth:
		return Result{}, apierr.InvalidRequest.On(conn.ID, "children of children go to depth %d", MaxChildDepth)
	case len(s.liveChildren(conn.ID)) >= MaxLiveChildren:
		return Result{}, apierr.InvalidRequest.On(conn.ID, "a connection has at most %d live children; end one first",
			MaxLiveChildren)
	case child.ExpiresUS <= nowUS || expires > 0 && child.ExpiresUS > expires:
		return Result{}, apierr.InvalidRequest.On(conn.ID,
			"expires_in: a child ends in the future, with its parent at last")
	case child.AmountMC > remaining:
		e := apierr.AllocationExhausted.On(conn.ID, "%s are asked for and %s remains", child.AmountMC.Display(),
			max(remaining, 0).Display())
		e.Details = map[string]any{"required_mc": child.AmountMC, "remaining_mc": max(remaining, 0)}
		e.NoIncrease = parent != nil
		return Result{}, e
	}
	// Nothing fails from here on.
	if parent != nil {
		s.addToBudget(conn, parent.ID, -child.AmountMC)
	}
	s.addToBudget(conn, child.ID, child.AmountMC)
	child.CreatedUS = nowUS
	s.AddChild(&child)
	s.Changes.Children = append(s.Changes.Children, &child)
	s.Changes.MustSync = true
	return Result{Connection: *conn, Child: child}, nil
}

func (c EndChild) apply(s *State, nowUS int64) (Result, error) {
	conn, child := s.Connections[c.ConnectionID], s.children[c.ChildID]
	if conn == nil || child == nil || child.ConnectionID != conn.ID {
		return Result{}, apierr.NotFound.Errorf("no such child")
	}
	if child.EndedUS != nil {
		return Result{Outcome: Done, Connection: *conn, Child: *child}, nil
	}
	// Nothing fails from here on.
	s.endTrees(conn, c.By, func(other *Child) bool { return other == child }, nowUS)
	if child.ParentID != "" {
		s.addToBudget(conn, child.ParentID, child.ReturnedMC)
	}
	return Result{Connection: *conn, Child: *child, ReleasedMC: child.ReturnedMC}, nil
}

func (c EndFamily) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	freed := s.endTrees(conn, EndedByRevoked, func(child *Child) bool {
		return c.FamilyID != "" && child.FamilyID == c.FamilyID
	}, nowUS)
	if freed == nil {
		return Result{Outcome: Done, Connection: *conn}, nil
	}
	r := Result{Connection: *conn}
	for _, child := range freed {
		if child.ParentID == "" {
			r.ReleasedMC += child.ReturnedMC
		}
	}
	return r, nil
}

// endTrees ends the live children of a connection that match, and all below them, and returns them.
func (s *State) endTrees(conn *Connection, by ChildEnd, match func(*Child) bool, nowUS int64) (list []*Child) {
	ending := map[string]bool{}
	for _, c := range s.liveChildren(conn.ID) { // parents come first
		switch {
		case ending[c.ParentID]:
			c.EndedBy = EndedByParent
		case match(c):
			c.EndedBy = by
		default:
			continue
		}
		ending[c.ID] = true
		list = append(list, c)
	}
	s.endChildren(conn, list, nowUS)
	return list
}

// endAllChildren ends the children of a connection that is revoked.
func (s *State) endAllChildren(conn *Connection, nowUS int64) {
	list := s.liveChildren(conn.ID)
	for _, c := range list {
		c.EndedBy = EndedByRevoked
	}
	s.endChildren(conn, list, nowUS)
}

// endChildren ends children, parents first, whose EndedBy says why, and reports each. What they have neither spent nor
// held is returned, and is then the connection's own. What free credit holds for them is none of it.
func (s *State) endChildren(conn *Connection, list []*Child, nowUS int64) {
	heldBelow := map[string]money.MC{} // by calls of the children that end with each
	for _, c := range list {
		counter := s.Counters[ChildSubject(c.ID)]
		c.EndedUS, c.ReturnedMC = &nowUS, counter.BudgetMC()-counter.HeldMC
		s.addToBudget(conn, c.ID, -c.ReturnedMC)
		counter.LimitReported = true
		s.Changes.Children = append(s.Changes.Children, c)
	}
	for _, c := range slices.Backward(list) {
		if i := slices.IndexFunc(list, func(p *Child) bool { return p.ID == c.ParentID }); i >= 0 {
			list[i].ReturnedMC += c.ReturnedMC
			heldBelow[c.ParentID] += s.Counters[ChildSubject(c.ID)].HeldMC + heldBelow[c.ID]
		}
	}
	for _, c := range list {
		s.emitChildEvent(conn, c.Ended(s.Counters[ChildSubject(c.ID)].HeldMC, heldBelow[c.ID]), nowUS)
	}
}

// addToBudget changes what is left of a child's budget. The connection has the sum of these.
func (s *State) addToBudget(conn *Connection, childID string, amount money.MC) {
	subject := ChildSubject(childID)
	counter := s.Counters[subject]
	counter.Spent = counter.Spent.Add(time.Time{}, int64(amount), 0)
	conn.DelegatedMC += amount
	s.Changes.Counters[subject], s.Changes.MustSync = true, true
	s.Changes.Connections[conn.ID], s.Changes.Delegated[conn.ID] = true, true
}

// childRemaining is what calls of a child can still hold, whoever pays for them.
func (s *State) childRemaining(childID string) money.MC {
	return s.Counters[ChildSubject(childID)].BudgetMC() - s.childHeld(childID)
}

// childHeld is what calls of a child hold, whoever pays for them.
func (s *State) childHeld(childID string) money.MC {
	return s.Counters[ChildSubject(childID)].HeldMC + s.Counters[FreeOfChildSubject(childID)].HeldMC
}

// callersChild returns why a call of a child may not be held, or nil.
func (s *State) callersChild(c *Hold) error {
	if c.ChildID != "" && s.Counters[ChildSubject(c.ChildID)].LimitReported {
		return childEnded(c.ConnectionID)
	}
	return nil
}

// childEnded is the error of a token whose child has ended.
func childEnded(connectionID string) error {
	return apierr.ConnectionRevoked.On(connectionID,
		"this part of the connection has ended; ask who gave it for another")
}

// child returns the child that the reservations of a call are of; "" = none.
func (c Reservations) child() string {
	for _, n := range c {
		for _, prefix := range [...]string{childPrefix, freeOfChildPrefix} {
			if childID, found := strings.CutPrefix(n.Subject, prefix); found {
				return childID
			}
		}
	}
	return ""
}

// endChildHold ends what a call of a child held of its connection and of its budget, of which the call has spent a
// part. Of a child that has ended, all that was held is the connection's own again. A call that free credit pays held
// no money; what it costs of a live child's budget is the connection's own again, and the child and those above it
// cannot spend it.
func (s *State) endChildHold(conn *Connection, list Reservations, held, charged money.MC) {
	childID := list.child()
	if childID == "" {
		return
	}
	conn.ChildHeldMC -= held
	s.Changes.Delegated[conn.ID] = true
	used := charged
	if s.Counters[ChildSubject(childID)].LimitReported {
		used = held
	}
	s.addToBudget(conn, childID, -used)
}
