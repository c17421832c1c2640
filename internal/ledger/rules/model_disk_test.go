package rules

import (
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

// This file is the machine's disk. In half of the runs each command gets a State of its own, with the rows that it
// names and those that a store finds by them, and of what it changes only what it names is kept. So what a command
// forgets to name is lost, and an invariant fails. In the other half all commands are one batch on one State.

// load returns copies of the rows that a command names.
func (m *machine) load(keys *RowKeys) *State {
	s := NewState()
	m.findOriginals(s, keys)
	m.findAccounts(keys)
	m.findConnections(keys)
	m.loadRare(s, keys)
	for id := range keys.Accounts {
		if b := m.s.Balances[id]; b != nil {
			s.Balances[id] = copyOf(b)
		} else if sandbox, isNew := keys.NewBalances[id]; isNew {
			s.Balances[id] = &Balance{AccountID: id, Sandbox: sandbox}
		}
	}
	for id := range keys.Connections {
		if c := m.s.Connections[id]; c != nil {
			s.Connections[id] = copyOf(c)
		}
	}
	for k := range keys.Keys {
		if h := m.s.Holds[k]; h != nil { // what the rules ask for, and no more
			s.Holds[k] = &HoldRow{State: h.State, Attempt: h.Attempt, NodeID: h.NodeID, Claim: h.Claim, Call: Call{
				ConnectionID: h.ConnectionID, Key: h.Key, RequestID: h.RequestID, Fingerprint: h.Fingerprint,
				HoldMC: h.HoldMC, PaidBy: h.PaidBy, Reservations: h.Reservations,
			}}
		} else if billed, ok := m.s.Billed[k]; ok {
			s.Billed[k] = billed
		}
	}
	for subject, width := range keys.Counters {
		if m.s.Counters[subject] == nil {
			m.s.Counters[subject] = &Counter{Spent: limits.Series{Width: width}}
		}
		s.Counters[subject] = copyOf(m.s.Counters[subject])
	}
	s.FindLive(keys.AppAccounts)
	return s
}

func (m *machine) findOriginals(s *State, keys *RowKeys) {
	reversed := map[string]bool{}
	for i := range m.s.Changes.Entries {
		reversed[m.s.Changes.Entries[i].ReversalOf] = true
	}
	for _, e := range m.s.Changes.Entries {
		if keys.Entries[e.ID] {
			keys.AddOriginal(&e)
			s.AddOriginal(e, reversed[e.ID])
		}
	}
}

// findAccounts adds the accounts of what a command names alone.
func (m *machine) findAccounts(keys *RowKeys) {
	for _, id := range keys.AllocationRequests {
		if r := m.s.requests.byID[id]; r != nil {
			keys.Connections[r.ConnectionID] = ""
		}
	}
	for _, id := range keys.Payments {
		if p := m.s.payments.byID[id]; p != nil {
			keys.Accounts[p.AccountID] = true
		}
	}
	for _, id := range keys.Goodwill {
		if g := m.s.goodwill[id]; g != nil {
			keys.Accounts[g.AccountID] = true
		}
	}
	for id, accountID := range keys.Connections {
		if c := m.s.Connections[id]; c != nil && accountID == "" {
			keys.Accounts[c.AccountID] = true
		}
	}
}

// findConnections adds the connections of apps and accounts.
func (m *machine) findConnections(keys *RowKeys) {
	all := map[string]bool{keys.ConnectionsOf: true}
	for _, id := range keys.Payments {
		if p := m.s.payments.byID[id]; p != nil && keys.FreezesAccount {
			all[p.AccountID] = true
		}
	}
	for id, c := range m.s.Connections {
		isLive := keys.AppAccounts[AppAccount{c.AppID, c.AccountID}]
		if c.Status != Revoked && (isLive || all[c.AccountID]) {
			keys.Connections[id] = c.AccountID
		}
		if c.Status != Revoked && isLive {
			keys.PendingRequestsOf = append(keys.PendingRequestsOf, id)
		}
	}
}

// loadRare adds the rows that few commands name.
func (m *machine) loadRare(s *State, keys *RowKeys) {
	for _, r := range m.s.requests.byID {
		isPending := r.Status == RequestPending && slices.Contains(keys.PendingRequestsOf, r.ConnectionID)
		if isPending || slices.Contains(keys.AllocationRequests, r.ID) {
			s.AddAllocationRequest(copyOf(r))
		}
	}
	for _, p := range m.s.payments.byID {
		if slices.Contains(keys.Payments, p.ID) ||
			p.PaymentIntent != "" && slices.Contains(keys.PaymentIntents, p.PaymentIntent) {
			loaded := copyOf(p)
			loaded.Records = slices.Clone(p.Records)
			s.AddPayment(loaded)
		}
	}
	for _, id := range keys.Goodwill {
		if g := m.s.goodwill[id]; g != nil {
			loaded := copyOf(g)
			loaded.Records = slices.Clone(g.Records)
			s.AddGoodwill(loaded)
		}
	}
	addRefund := func(r *CallRefund) {
		if r != nil {
			s.AddCallRefund(copyOf(r))
		}
	}
	for entryID, appID := range keys.CallRefunds {
		addRefund(m.s.callRefunds.last[appID])
		addRefund(m.s.callRefunds.byEntry[entryID])
	}
	for _, k := range keys.Margins {
		if k.Subject != "" {
			for _, r := range m.s.margins.bySubject[k.AppID+"/"+k.Subject] {
				s.AddMarginRecord(&r)
			}
			addRefund(m.s.callRefunds.last[k.AppID])
		}
		if last := m.s.margins.last[k.AppID]; last != nil {
			s.AddMarginRecord(copyOf(last))
		}
	}
	for _, k := range keys.Children {
		for _, c := range m.s.children {
			if c.ConnectionID == k.ConnectionID && (c.EndedUS == nil || c.Key == k.Key || c.ID == k.ID) {
				s.AddChild(copyOf(c))
				keys.AddBudget(c.ID)
			}
		}
	}
	for id := range keys.Connections {
		if keys.Freezes {
			s.freezes[id] = slices.Clone(m.s.freezes[id])
		}
	}
	for _, d := range m.s.disputes {
		if keys.Disputes && keys.Accounts[d.AccountID] {
			s.AddOpenDispute(d)
		}
	}
}

// save keeps what a command has changed, as far as the State says so.
func (m *machine) save(t *rapid.T, s *State, keys *RowKeys, c Command) {
	if !s.Changes.MustSync && m.mustSync(s) {
		t.Fatalf("%T may be lost after it was answered: %+v", c, s.Changes)
	}
	for id := range s.Changes.Balances {
		if _, isNew := keys.NewBalances[id]; isNew && m.s.Balances[id] == nil {
			m.s.Balances[id] = &Balance{}
		}
		*m.s.Balances[id] = *s.Balances[id] // its row must be there
	}
	for id := range s.Changes.Connections {
		m.saveConnection(s, id)
	}
	for k := range s.Changes.Holds {
		switch h, old := s.Holds[k], m.s.Holds[k]; {
		case h == nil:
			m.s.Holds[k] = nil
		case old != nil && h.State != Open:
			old.State = h.State
		default:
			m.s.Holds[k] = copyOf(h)
		}
	}
	for subject := range s.Changes.Counters {
		*m.s.Counters[subject] = *s.Counters[subject]
	}
	m.saveRare(s)
	m.saveAppended(&s.Changes)
}

// mustSync reports whether a State has changed more than open holds, by which a store may answer before they are on the
// disk. Stops are none of its business: they are saved in the transaction of a caller.
func (m *machine) mustSync(s *State) bool {
	for k := range s.Changes.Holds {
		if h := s.Holds[k]; h == nil || h.State != Open {
			return true
		}
	}
	for subject := range s.Changes.Counters {
		if s.Counters[subject].LimitReported != m.s.Counters[subject].LimitReported {
			return true
		}
	}
	held := NewState().Changes
	held.Holds, held.Connections, held.Delegated = s.Changes.Holds, s.Changes.Connections, s.Changes.Delegated
	held.Counters, held.Stops = s.Changes.Counters, s.Changes.Stops
	return !reflect.DeepEqual(held, s.Changes)
}

func (m *machine) saveConnection(s *State, id string) {
	now, old := *s.Connections[id], m.s.Connections[id]
	if old == nil && s.Changes.Settings[id] {
		old = &Connection{}
		m.s.Connections[id] = old
	}
	if !s.Changes.Delegated[id] {
		now.DelegatedMC, now.ChildHeldMC = old.DelegatedMC, old.ChildHeldMC
	}
	if s.Changes.Settings[id] {
		*old = now
	} else {
		old.AllocationMC, old.ConsumedMC, old.Spent = now.AllocationMC, now.ConsumedMC, now.Spent
		old.HeldMC, old.DelegatedMC, old.ChildHeldMC = now.HeldMC, now.DelegatedMC, now.ChildHeldMC
	}
	switch p := (AppAccount{now.AppID, now.AccountID}); {
	case old.Status != Revoked:
		m.s.live[p] = id
	case m.s.live[p] == id:
		delete(m.s.live, p)
	}
}

func (m *machine) saveRare(s *State) {
	for _, r := range s.Changes.AllocationRequests {
		if old := m.s.requests.byID[r.ID]; old != nil {
			*old = *r
		}
		if pending := m.s.requests.pending[r.ConnectionID]; pending != nil && pending.ID == r.ID {
			delete(m.s.requests.pending, r.ConnectionID)
		}
		if m.s.requests.byID[r.ID] == nil || r.Status == RequestPending {
			m.s.requests.add(copyOf(r))
		}
	}
	for _, r := range s.Changes.PaymentRecords {
		p := m.s.payments.byID[r.PaymentID]
		if p == nil {
			p = &Payment{}
		}
		p.Fold(r)
		m.s.AddPayment(p)
	}
	for _, r := range s.Changes.GoodwillRecords {
		g := m.s.goodwill[r.GoodwillID]
		if g == nil {
			g = &Goodwill{}
		}
		g.Fold(r)
		m.s.AddGoodwill(g)
	}
	for _, r := range s.Changes.CallRefunds {
		m.s.AddCallRefund(&r)
	}
	for _, r := range s.Changes.MarginRecords {
		m.s.AddMarginRecord(&r)
	}
	for _, c := range s.Changes.Children {
		if old := m.s.children[c.ID]; old != nil {
			*old = *c
		} else {
			m.s.AddChild(copyOf(c))
		}
	}
	for _, f := range s.Changes.EndedFreezes {
		m.s.freezes[f.ConnectionID] = slices.DeleteFunc(m.s.freezes[f.ConnectionID], func(old FreezeRow) bool {
			return f.Cause == "" || f.Cause == old.Cause && f.Subject == old.Subject
		})
	}
	for _, f := range s.Changes.Freezes {
		if !slices.ContainsFunc(m.s.freezes[f.ConnectionID], func(old FreezeRow) bool {
			return f.Cause == old.Cause && f.Subject == old.Subject
		}) {
			m.s.AddFreeze(f)
		}
	}
	for _, d := range s.Changes.EndedDisputes {
		m.s.disputes = slices.DeleteFunc(m.s.disputes, func(old OpenDispute) bool {
			return old.DisputeID == d.DisputeID
		})
	}
	m.s.disputes = append(m.s.disputes, s.Changes.OpenedDisputes...)
}

// saveAppended appends the rows that are new.
func (m *machine) saveAppended(c *Changes) {
	for _, e := range c.Entries {
		if e.Key != "" {
			m.s.Billed[Key{e.ConnectionID, e.Key}] = BilledKey{e.ID, e.Fingerprint}
		}
	}
	to, from := reflect.ValueOf(&m.s.Changes).Elem(), reflect.ValueOf(c).Elem()
	for i := range from.NumField() {
		if from.Field(i).Kind() == reflect.Slice {
			to.Field(i).Set(reflect.AppendSlice(to.Field(i), from.Field(i)))
		}
	}
	for k, d := range c.DailyTotals {
		sum := m.s.Changes.DailyTotals[k]
		if sum == nil {
			sum = &DailyTotalsDelta{}
			m.s.Changes.DailyTotals[k] = sum
		}
		sum.AppID, sum.AccountID, sum.Calls = d.AppID, d.AccountID, sum.Calls+d.Calls
		sum.InputTokens += d.InputTokens
		sum.OutputTokens += d.OutputTokens
		sum.CachedTokens += d.CachedTokens
		sum.CacheSavedMC += d.CacheSavedMC
		sum.Amounts = sum.Amounts.plus(d.Amounts, 1)
	}
}

// plus returns the sum of amounts, of which the second may count several times, or negatively.
func (a Amounts) plus(b Amounts, times int64) Amounts {
	n := money.MC(times)
	return Amounts{
		ProviderCostMC: a.ProviderCostMC + n*b.ProviderCostMC,
		SvcFeeMC:       a.SvcFeeMC + n*b.SvcFeeMC,
		DevMarginMC:    a.DevMarginMC + n*b.DevMarginMC,
		UserChargeMC:   a.UserChargeMC + n*b.UserChargeMC,
	}
}

func copyOf[T any](row *T) *T {
	copied := *row
	return &copied
}
