package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

func (c TopUp) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.NewBalances[c.AccountID] = c.Sandbox
}

func (c TopUp) apply(s *State, nowUS int64) (Result, error) {
	if c.AmountMC <= 0 || c.AmountMC > money.Max {
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: must be between 1 and %d", money.Max)
	}
	b := s.Balances[c.AccountID]
	if b == nil {
		b = &Balance{AccountID: c.AccountID, Sandbox: c.Sandbox}
	} else if b.Sandbox != c.Sandbox {
		return Result{}, apierr.InvalidRequest.Errorf("sandbox and real money never mix")
	}
	if b.AvailableMC > money.Max*1000 {
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: the balance is already too large")
	}
	s.Balances[c.AccountID] = b
	e := s.appendEntry(Entry{
		ID: id.New(id.Ledger, time.UnixMicro(nowUS)), AccountID: c.AccountID, Type: EntryTopUp, Status: "settled",
		AmountMC: c.AmountMC, AvailableDeltaMC: c.AmountMC, CreatedUS: nowUS,
	}, b, nil)
	return Result{Entry: e}, nil
}

func (c Connect) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.Disputes = true
	w.NewBalances[c.AccountID] = c.Sandbox // an account without a top-up can have free credit
	w.AppAccounts[AppAccount{c.AppID, c.AccountID}] = true
}

// apply reserves min(requested, available) for a new connection (contract §2, 1), or
// moves the cap of the live one.
func (c Connect) apply(s *State, nowUS int64) (Result, error) {
	b := s.Balances[c.AccountID]
	if b == nil {
		b = &Balance{AccountID: c.AccountID, Sandbox: c.Sandbox}
	}
	if b.Sandbox != c.Sandbox {
		return Result{}, apierr.InvalidRequest.Errorf("sandbox and real money never mix")
	}
	if c.MaxMC > 0 && c.RequestedMC > c.MaxMC {
		return Result{},
			apierr.InvalidRequest.Errorf("allocation_mc: the app's tier allows at most %s", c.MaxMC.Display())
	}
	if c.RequestedMC < 0 || c.RequestedMC > money.Max {
		return Result{}, apierr.InvalidRequest.Errorf("allocation_mc: must be between 0 and %d", money.Max)
	}
	if c.VelocityLimitMC != nil && *c.VelocityLimitMC < 0 {
		return Result{}, apierr.InvalidRequest.Errorf("velocity_limit_mc: must not be negative")
	}
	c.ApprovedUS = cmp.Or(c.ApprovedUS, nowUS)
	live := s.live[AppAccount{c.AppID, c.AccountID}]
	delta := min(c.RequestedMC, max(0, b.AvailableMC))
	if live != "" {
		conn := s.Connections[live]
		if c.ApprovedUS < conn.LimitsUS { // a later decision of the user holds
			c.KeepCap, c.KeepVelocity = true, true
		}
		if c.KeepCap {
			c.RequestedMC = conn.AllocationMC
		}
		delta = min(max(c.RequestedMC, conn.CommittedMC())-conn.AllocationMC, max(0, b.AvailableMC))
	}
	if live == "" || delta > 0 {
		if err := s.refuseDisputed(c.AccountID, live); err != nil {
			return Result{}, err
		}
	}
	s.Balances[c.AccountID] = b
	if live != "" {
		conn := s.Connections[live]
		before := *conn
		if !c.KeepVelocity {
			conn.VelocityLimitMC = c.VelocityLimitMC
		}
		conn.LimitsUS = max(conn.LimitsUS, c.ApprovedUS)
		conn.ApprovedUS = max(conn.ApprovedUS, c.ApprovedUS)
		s.Changes.Settings[live] = true
		r := s.moveAllocation(conn, b, EntryCap, delta, nowUS)
		s.reportLimits(&before, conn, nowUS)
		s.approveMetRequest(conn, nowUS)
		r.Connection = *conn
		return r, nil
	}
	conn := &Connection{
		ID: c.ConnectionID, AppID: c.AppID, AccountID: c.AccountID, VelocityLimitMC: c.VelocityLimitMC,
		Status: Active, FasterSpend: 1, CreatedUS: nowUS, Spent: limits.Series{Width: limits.SpendBucketWidth},
		LimitsUS: c.ApprovedUS, ApprovedUS: c.ApprovedUS,
	}
	s.Connections[conn.ID] = conn
	s.live[AppAccount{c.AppID, c.AccountID}] = conn.ID
	r := s.moveAllocation(conn, b, EntryConnect, delta, nowUS)
	s.emitConnectionEvent("connection.created", conn, nowUS)
	r.Connection = *conn
	return r, nil
}

func (c ChangeCap) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = ""
	w.Disputes = true
	w.PendingRequestsOf = append(w.PendingRequestsOf, c.ConnectionID)
}

// apply moves the cap and reports it. A pending allocation request for no more than the new
// cap has what it asked for.
func (c ChangeCap) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	before := *conn
	r, err := s.moveCap(c, conn, nowUS)
	if err != nil {
		return Result{}, err
	}
	s.reportLimits(&before, conn, nowUS)
	s.approveMetRequest(conn, nowUS)
	r.Connection = *conn
	return r, nil
}

// reportLimits appends an event if the user has changed a limit of the connection, and another
// if the new cap is spent already.
func (s *State) reportLimits(before, conn *Connection, nowUS int64) {
	if conn.AllocationMC != before.AllocationMC || !equalLimits(conn.VelocityLimitMC, before.VelocityLimitMC) {
		s.emitConnectionEvent("connection.updated", conn, nowUS)
	}
	if before.EffectiveStatus() == "active" && conn.EffectiveStatus() == "exhausted" {
		s.emitConnectionEvent("connection.exhausted", conn, nowUS)
	}
}

func equalLimits(a, b *money.MC) bool { return a == b || a != nil && b != nil && *a == *b }

// moveCap lowers, but never below what is consumed and held, and raises as far
// as the available balance reaches in full (contract §2, 2).
func (s *State) moveCap(c ChangeCap, conn *Connection, nowUS int64) (Result, error) {
	if conn.Status == Revoked {
		return Result{}, apierr.ConnectionRevoked.On(c.ConnectionID, "a revoked connection has no spend cap")
	}
	if c.TargetMC < 0 || c.TargetMC > money.Max {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "allocation_mc: must be between 0 and %d", money.Max)
	}
	if c.MaxMC > 0 && c.TargetMC > max(c.MaxMC, conn.AllocationMC) {
		return Result{},
			apierr.InvalidRequest.On(c.ConnectionID, "The spend cap can be at most %s for this app.", c.MaxMC.Display())
	}
	b := s.Balances[conn.AccountID]
	delta := max(c.TargetMC, conn.CommittedMC()) - conn.AllocationMC
	if delta > 0 && delta > b.AvailableMC {
		return Result{},
			apierr.InvalidRequest.On(c.ConnectionID,
				"Raising the spend cap needs %s, but only %s is available. You’re short by %s.",
				delta.Display(), max(0, b.AvailableMC).Display(), (delta - b.AvailableMC).Display())
	}
	if delta > 0 {
		if err := s.refuseDisputed(conn.AccountID, conn.ID); err != nil {
			return Result{}, err
		}
	}
	conn.LimitsUS = nowUS
	s.Changes.Settings[conn.ID] = true
	return s.moveAllocation(conn, b, EntryCap, delta, nowUS), nil
}

func (c SetVelocityLimit) addKeys(w *RowKeys) { w.Connections[c.ConnectionID] = "" }

func (c SetVelocityLimit) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	switch {
	case err != nil:
		return Result{}, err
	case conn.Status == Revoked:
		return Result{}, cannotChangeRevoked(c.ConnectionID)
	case c.LimitMC != nil && *c.LimitMC < 0:
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "velocity_limit_mc: must not be negative")
	}
	before := *conn
	conn.VelocityLimitMC, conn.LimitsUS = c.LimitMC, nowUS
	s.Changes.Connections[conn.ID], s.Changes.Settings[conn.ID], s.Changes.MustSync = true, true, true
	s.reportLimits(&before, conn, nowUS)
	return Result{Connection: *conn}, nil
}

func (c Revoke) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = ""
	w.PendingRequestsOf = append(w.PendingRequestsOf, c.ConnectionID)
	w.Children = append(w.Children, ChildKeys{ConnectionID: c.ConnectionID})
}

// apply returns the unspent and unheld part; each open hold's rest
// returns when it resolves. It denies the pending allocation request. Revoking twice changes
// nothing.
func (c Revoke) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	if conn.Status == Revoked {
		return Result{Connection: *conn}, nil
	}
	s.endAllChildren(conn, nowUS)
	freed := conn.RemainingMC()
	conn.Status, conn.RevokedUS, conn.FrozenBy, conn.FrozenReason = Revoked, &nowUS, "", ""
	delete(s.freezes, conn.ID)
	s.Changes.EndedFreezes = append(s.Changes.EndedFreezes, FreezeRow{ConnectionID: conn.ID})
	delete(s.live, AppAccount{conn.AppID, conn.AccountID})
	if c.StopCalls {
		s.stopCalls(conn.ID, StoppedByRevoke, nowUS)
	}
	r := s.moveAllocation(conn, s.Balances[conn.AccountID], EntryRevoke, -freed, nowUS)
	s.emitConnectionEvent("connection.revoked", conn, nowUS)
	if request := s.requests.pending[conn.ID]; request != nil {
		s.decideRequest(conn, request, RequestDenied, nowUS)
	}
	r.ReleasedMC, r.Connection = freed, *conn
	return r, nil
}

// cannotChangeRevoked is the error for a change of a revoked connection.
func cannotChangeRevoked(connectionID string) error {
	return apierr.ConnectionRevoked.On(connectionID, "this connection is revoked, and cannot be changed")
}

// moveAllocation moves delta from available to reserved, or back if delta is negative.
func (s *State) moveAllocation(conn *Connection, b *Balance, kind EntryType, delta money.MC, nowUS int64) Result {
	e := s.appendEntry(Entry{
		ID: id.New(id.Ledger, time.UnixMicro(nowUS)), AccountID: conn.AccountID, Type: kind, Status: "settled",
		ConnectionID: conn.ID, AppID: conn.AppID,
		AvailableDeltaMC: -delta, ReservedDeltaMC: delta, AllocationDeltaMC: delta, CreatedUS: nowUS,
	}, b, conn)
	return Result{Entry: e, Connection: *conn}
}

func (c Reverse) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.Entries[c.EntryID] = true
}

// AddOriginal adds the rows that the reversal of e changes.
func (k *RowKeys) AddOriginal(e *Entry) {
	k.Accounts[e.AccountID] = true
	if e.ConnectionID == "" {
		return
	}
	k.Connections[e.ConnectionID] = e.AccountID
	for _, subject := range tiers.SpendSubjects(e.AppID, e.AccountID) {
		k.Counters[subject] = limits.Spend.BucketWidth(tiers.DailyWindow)
	}
}

// apply refunds a spend by a new row: to the connection's reserved pool, or to
// available if the connection is revoked (contract §2, 7). The charge leaves the windows of
// spend that it has filled; the provider's cost stays in those of cost, because it was paid.
func (c Reverse) apply(s *State, nowUS int64) (Result, error) {
	o := s.originals[c.EntryID]
	if o == nil || o.AccountID != c.AccountID {
		return Result{}, apierr.NotFound.Errorf("no such ledger row")
	}
	if o.Type != EntrySpend || o.Status != "settled" || o.reversed {
		return Result{}, apierr.InvalidRequest.Errorf("only a settled spend can be reversed, and only once")
	}
	if o.PaidBy == PaidByFreeCredit {
		return Result{}, apierr.InvalidRequest.Errorf("this call was paid by free credit; there is nothing to refund")
	}
	if o.IsWaived() {
		return Result{}, apierr.InvalidRequest.Errorf("this call was free; there is nothing to refund")
	}
	if c.Reason == "" {
		return Result{}, apierr.InvalidRequest.Errorf("reason: required")
	}
	conn, err := s.connection(o.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	refunded, receipt := o.Entry, ""
	refunded.ReversedBy = id.New(id.Ledger, time.UnixMicro(nowUS))
	if c.Receipt != nil {
		if receipt, err = c.Receipt(&refunded); err != nil {
			return Result{}, err
		}
	}
	saved, err := storedCacheSaved(&o.Entry)
	if err != nil {
		return Result{}, err
	}
	// Nothing fails from here on.
	o.reversed = true
	back, statusBefore := o.UserChargeMC, conn.EffectiveStatus()
	e := Entry{
		ID:              refunded.ReversedBy,
		AccountID:       o.AccountID,
		Type:            EntrySpend,
		Status:          "reversed",
		ReversalOf:      o.ID,
		Reason:          c.Reason,
		ConnectionID:    o.ConnectionID,
		AppID:           o.AppID,
		Feature:         o.Feature,
		FeatureLabel:    o.FeatureLabel,
		Model:           o.Model,
		PaidBy:          o.PaidBy,
		HoldMC:          o.HoldMC,
		Amounts:         o.Amounts,
		ReservedDeltaMC: back,
		ConsumedDeltaMC: -back,
		CreatedUS:       nowUS,
	}
	if conn.Status == Revoked {
		e.AvailableDeltaMC, e.ReservedDeltaMC, e.AllocationDeltaMC = back, 0, -back
	}
	e.RemainingMC = conn.RemainingMC() + e.AllocationDeltaMC - e.ConsumedDeltaMC
	e = s.appendEntry(e, s.Balances[o.AccountID], conn)
	s.addToDailyTotals(&e, 0, -1, Usage{CacheSavedMC: saved})
	s.removeFromWindows(&o.Entry, conn)
	if receipt != "" {
		s.emitRequestEvent("request.refunded", conn, receipt, nowUS)
	}
	if statusBefore == "exhausted" && conn.EffectiveStatus() == "active" {
		s.emitConnectionEvent("connection.updated", conn, nowUS)
	}
	return Result{Entry: e, Connection: *conn}, nil
}

// storedCacheSaved returns what the daily totals counted as saved by a spend. Rows without the member were not counted.
func storedCacheSaved(e *Entry) (money.MC, error) {
	if !strings.Contains(e.Usage, `"cache_saved_mc"`) {
		return 0, nil
	}
	var u struct {
		CacheSavedMC money.MC `json:"cache_saved_mc"`
	}
	if err := json.Unmarshal([]byte(e.Usage), &u); err != nil {
		return 0, fmt.Errorf("ledger: usage of %s: %w", e.ID, err)
	}
	return u.CacheSavedMC, nil
}

// removeFromWindows takes a refunded charge out of the windows of its connection, of its app and of
// the user on the app. No call of a test account was ever counted in the last two: only live apps
// have such windows.
func (s *State) removeFromWindows(e *Entry, conn *Connection) {
	at, charged := time.UnixMicro(e.CreatedUS), int64(e.UserChargeMC)
	conn.Spent = conn.Spent.Remove(at, charged)
	for _, subject := range tiers.SpendSubjects(e.AppID, e.AccountID) {
		if counter := s.Counters[subject]; counter != nil && !s.Balances[e.AccountID].Sandbox {
			counter.Spent = counter.Spent.Remove(at, charged)
			s.Changes.Counters[subject] = true
		}
	}
}

func (c EmitEvent) addKeys(w *RowKeys) { w.Connections[c.ConnectionID] = "" }

func (c EmitEvent) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	conn.EventSeq++
	s.appendEvent(c.Type, conn, c.Data, nowUS)
	return Result{Connection: *conn}, nil
}

func (c EmitAppEvent) addKeys(*RowKeys) {}

func (c EmitAppEvent) apply(s *State, nowUS int64) (Result, error) {
	s.emitAppEvent(c.Type, c.AppID, c.Data, nowUS)
	return Result{}, nil
}

func (c RecordRefusal) addKeys(*RowKeys) {}

func (c RecordRefusal) apply(s *State, nowUS int64) (Result, error) {
	c.CreatedUS = nowUS
	s.Changes.Refusals, s.Changes.MustSync = append(s.Changes.Refusals, c.Refusal), true
	return Result{}, nil
}
