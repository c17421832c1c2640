package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// This file is the machine's part about stopped connections. It keeps the causes of each connection by itself: sets of
// "cause/subject".

func (m *machine) cause(c *Connection, cause FreezeCause, subject string) {
	if m.causes[c.ID] == nil {
		m.causes[c.ID] = map[string]bool{}
	}
	m.causes[c.ID][string(cause)+"/"+subject] = true
}

// alive returns the connections of an account that are not revoked.
func (m *machine) alive(accountID string) (list []*Connection) {
	for _, id := range slices.Sorted(maps.Keys(m.s.Connections)) {
		if c := m.s.Connections[id]; c.AccountID == accountID && c.Status != Revoked {
			list = append(list, c)
		}
	}
	return list
}

func (m *machine) pauseAccount(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip("paused connections are dull")
	}
	accountID, events, stops := m.connection(t).AccountID, len(m.s.Changes.Events), len(m.s.Changes.Stops)
	if rapid.IntRange(0, 2).Draw(t, "lift") == 0 {
		if _, err := m.do(t, ResumeAccount{AccountID: accountID, Subject: Suspension}); err != nil {
			t.Fatal(err)
		}
		for _, c := range m.alive(accountID) {
			had := m.causes[c.ID]["operator/"+Suspension]
			switch delete(m.causes[c.ID], "operator/"+Suspension); {
			case had && m.settleCauses(c):
				m.forgive(c.ID)
			case had:
				m.seen["lifted in part"]++
			}
		}
		return
	}
	alive, active := m.alive(accountID), 0
	for _, c := range alive {
		active += int(intOf(c.Status == Active))
	}
	pause := PauseAccount{AccountID: accountID, By: FrozenByUser}
	if rapid.Bool().Draw(t, "suspended") {
		pause.By, pause.Subject = FrozenByOperator, Suspension
	}
	if _, err := m.do(t, pause); err != nil {
		t.Fatal(err)
	}
	frozen := 0
	for _, e := range m.s.Changes.Events[events:] {
		frozen += int(intOf(e.Type == "connection.frozen"))
	}
	if n := len(m.s.Changes.Stops) - stops; frozen != active || n != len(alive) {
		t.Fatalf("%d active of %d connections were paused by %d events and %d stops", active, len(alive), frozen, n)
	}
	for _, c := range alive {
		m.cause(c, pause.By, pause.Subject)
	}
	if active > 1 {
		m.seen["paused everything"]++
	}
}

func (m *machine) freeze(t *rapid.T) {
	c := m.connection(t)
	if rapid.Bool().Draw(t, "thaw") {
		m.resume(t, c)
		return
	}
	by := rapid.SampledFrom([]FreezeCause{"", FrozenByUser, FrozenByOperator, FrozenByRisk}).Draw(t, "by")
	f := Freeze{ConnectionID: c.ID, By: by}
	if by == FrozenByOperator {
		f.Subject = fmt.Sprint("o", rapid.IntRange(1, 2).Draw(t, "action"))
	}
	_, err := m.do(t, f)
	if bad := by == "" || c.Status == Revoked; (err != nil) != bad {
		t.Fatalf("%+v on %s: %v", f, c.Status, err)
	}
	if err == nil {
		m.cause(c, by, f.Subject)
	}
}

// resume resumes a connection as its user or as an operator.
func (m *machine) resume(t *rapid.T, c *Connection) {
	r := Resume{ConnectionID: c.ID, FasterSpend: rapid.Int64Range(-1, 4).Draw(t, "faster")}
	ends := map[string]bool{"user": true, "risk": true}
	if rapid.IntRange(0, 2).Draw(t, "operator") == 0 {
		r.By, r.DespiteDispute = FrozenByOperator, rapid.Bool().Draw(t, "despite")
		ends = map[string]bool{"risk": true, "operator": true, "payment": r.DespiteDispute}
	}
	before, was, had := c.Status, c.FasterSpend, len(m.causes[c.ID])
	left := maps.Clone(m.causes[c.ID])
	maps.DeleteFunc(left, func(cause string, _ bool) bool {
		kind, subject, _ := strings.Cut(cause, "/")
		return ends[kind] && subject != Suspension || subject == BelowZero
	})
	_, err := m.do(t, r)
	bad := r.FasterSpend < 0 || r.FasterSpend > 3 || before == Revoked || before == Frozen &&
		(len(left) == had || m.s.Balances[c.AccountID].AvailableMC < 0)
	switch want := max(r.FasterSpend, was*intOf(r.FasterSpend == 0 || before == Active)); {
	case (err != nil) != bad:
		t.Fatalf("%+v of %v, left %v: %v", r, m.causes[c.ID], left, err)
	case err != nil && before == Frozen && len(left) == had:
		m.seen["refused resume"]++
	case err != nil:
	case before == Active:
	case c.FasterSpend != want:
		t.Fatalf("faster %d of a connection at %d: %d", r.FasterSpend, was, c.FasterSpend)
	default:
		m.causes[c.ID] = left
		m.despite[c.ID] = m.despite[c.ID] || r.DespiteDispute
		if m.seen["resumed in part"] += int(intOf(len(left) > 0)); len(left) == 0 {
			m.forgive(c.ID)
		}
		m.seen["faster"] += int(intOf(r.FasterSpend > 1))
	}
}

// dispute opens or ends a dispute of an account.
func (m *machine) dispute(t *rapid.T) {
	if rapid.IntRange(0, 1).Draw(t, "seldom") > 0 {
		t.Skip("an account whose payments are disputed is dull")
	}
	accountID := rapid.SampledFrom([]string{"A", "B"}).Draw(t, "account")
	paymentID, disputeID := "top_"+accountID, fmt.Sprint("du_", accountID, rapid.IntRange(1, 3).Draw(t, "dispute"))
	if m.s.payments.byID[paymentID] == nil {
		m.s.AddPayment(&Payment{ID: paymentID, AccountID: accountID, AmountMC: 1, Status: PaymentSettled})
	}
	if m.s.Balances[accountID] == nil {
		t.Skip("no money yet")
	}
	open := m.disputes[disputeID] != ""
	if rapid.IntRange(0, 2).Draw(t, "end") > 0 {
		r, err := m.do(t, EndDispute{PaymentID: paymentID, DisputeID: disputeID})
		if err != nil || (r.Outcome == Applied) != open {
			t.Fatalf("a dispute that was open %t ends: %v, %v", open, r.Outcome, err)
		}
		delete(m.disputes, disputeID)
		for _, c := range m.alive(accountID) {
			had := m.causes[c.ID]["payment/"+disputeID]
			if delete(m.causes[c.ID], "payment/"+disputeID); had && m.settleCauses(c) {
				m.seen["won"]++
				m.forgive(c.ID)
			}
		}
		return
	}
	known := m.s.payments.byID[paymentID].HasDispute(disputeID)
	r, err := m.do(t, DisputePayment{PaymentID: paymentID, DisputeID: disputeID})
	if err != nil || (r.Outcome == Applied) == known {
		t.Fatalf("a dispute that was known %t: %v, %v", known, r.Outcome, err)
	}
	if known {
		return
	}
	m.disputes[disputeID] = accountID
	for _, c := range m.alive(accountID) {
		delete(m.despite, c.ID)
		m.cause(c, FrozenByPayment, disputeID)
	}
}

// spendsNoMore checks that while an account had an open dispute a command has given its apps nothing more to spend.
// Where an operator has ended the pause of the dispute, the user may end the user's own.
func (m *machine) spendsNoMore(t *rapid.T, before map[string]Connection, disputed map[string]bool, c Command) {
	resume, ok := c.(Resume)
	byOperator := ok && resume.By == FrozenByOperator
	for id, now := range m.s.Connections {
		was, there := before[id]
		if !disputed[now.AccountID] {
			continue
		}
		resumed := now.Status == Active && was.Status != Active && !byOperator && !m.despite[id]
		if !there || now.AllocationMC > was.AllocationMC || resumed {
			if _, ended := c.(EndDispute); !ended {
				t.Fatalf("in a dispute %T made of %+v %+v", c, was, now)
			}
		}
	}
}

// copyConnections returns the connections as they are, and the accounts that have an open dispute.
func (m *machine) copyConnections() (map[string]Connection, map[string]bool) {
	list, disputed := map[string]Connection{}, map[string]bool{}
	for id, c := range m.s.Connections {
		list[id] = *c
	}
	for _, accountID := range m.disputes {
		disputed[accountID] = true
	}
	return list, disputed
}

// checkCauses checks that each connection has the causes that the machine has noted, and shows the strongest.
func (m *machine) checkCauses(t *rapid.T) {
	for _, c := range m.s.Connections {
		var strength int
		found := map[string]bool{}
		for _, f := range m.s.freezes[c.ID] {
			found[string(f.Cause)+"/"+f.Subject] = true
			strength = max(strength, f.Cause.strength()+1)
		}
		if c.Status == Revoked {
			delete(m.causes, c.ID)
		}
		if found["risk/"] { // a settlement may add it
			m.cause(c, FrozenByRisk, "")
		}
		if (c.Status == Frozen) != (len(found) > 0) || c.FrozenBy.strength()+1 != strength ||
			len(found) != len(m.causes[c.ID]) || !maps.Equal(found, m.causes[c.ID]) && len(found) > 0 {
			t.Fatalf("I37: %s is %s by %q, with %v, and should have %v", c.ID, c.Status, c.FrozenBy, found,
				m.causes[c.ID])
		}
		m.seen["several causes"] += int(intOf(len(found) > 1))
	}
}
