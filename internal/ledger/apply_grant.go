package ledger

import (
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

func (c TopUp) wants(w *wants) {
	w.accounts[c.AccountID] = true
	w.opens[c.AccountID] = c.Sandbox
}

func (c TopUp) apply(s *State, nowUS int64) (Result, error) {
	if c.AmountMC <= 0 || c.AmountMC > money.Max {
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: must be between 1 and %d", money.Max)
	}
	b := s.balances[c.AccountID]
	if b == nil {
		b = &Balance{AccountID: c.AccountID, Sandbox: c.Sandbox}
	} else if b.Sandbox != c.Sandbox {
		return Result{}, apierr.InvalidRequest.Errorf("sandbox and real money never mix")
	}
	if b.AvailableMC > money.Max*1000 {
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: the balance is already too large")
	}
	s.balances[c.AccountID] = b
	e := s.write(Entry{
		ID: s.newID(id.Ledger, time.UnixMicro(nowUS)), AccountID: c.AccountID, Type: Topup, Status: "settled",
		AmountMC: c.AmountMC, Available: c.AmountMC, CreatedUS: nowUS,
	}, b, nil)
	return Result{Entry: e}, nil
}

func (c Connect) wants(w *wants) {
	w.accounts[c.AccountID] = true
	w.opens[c.AccountID] = c.Sandbox // who has put nothing in yet can have free credit
	w.pairs[pair{c.AppID, c.AccountID}] = true
}

// apply reserves min(requested, available) for a new connection (spec §2, 1), or
// moves the cap of the live one.
func (c Connect) apply(s *State, nowUS int64) (Result, error) {
	b := s.balances[c.AccountID]
	if b == nil {
		b = &Balance{AccountID: c.AccountID, Sandbox: c.Sandbox}
	}
	if b.Sandbox != c.Sandbox {
		return Result{}, apierr.InvalidRequest.Errorf("sandbox and real money never mix")
	}
	if c.MaxMC > 0 && c.RequestedMC > c.MaxMC {
		return Result{}, apierr.InvalidRequest.Errorf("allocation_mc: the app's tier allows at most %s", c.MaxMC.Display())
	}
	if c.RequestedMC < 0 || c.RequestedMC > money.Max {
		return Result{}, apierr.InvalidRequest.Errorf("allocation_mc: must be between 0 and %d", money.Max)
	}
	if c.VelocityMC != nil && *c.VelocityMC < 0 {
		return Result{}, apierr.InvalidRequest.Errorf("velocity_limit_mc: must not be negative")
	}
	s.balances[c.AccountID] = b
	if live := s.live[pair{c.AppID, c.AccountID}]; live != "" {
		conn := s.connections[live]
		conn.VelocityLimitMC = c.VelocityMC
		s.dirtyConnections[live], s.deep[live] = true, true
		target := max(c.RequestedMC, conn.ConsumedMC+conn.HeldMC)
		delta := min(target-conn.AllocationMC, max(0, b.AvailableMC))
		return s.move(conn, b, Cap, delta, nowUS), nil
	}
	conn := &Connection{
		ID: c.ConnectionID, AppID: c.AppID, AccountID: c.AccountID, VelocityLimitMC: c.VelocityMC,
		Status: Active, Faster: 1, CreatedUS: nowUS, Spent: limits.Series{Width: limits.SpendWidth},
	}
	s.connections[conn.ID] = conn
	s.live[pair{c.AppID, c.AccountID}] = conn.ID
	s.dirtyConnections[conn.ID] = true
	r := s.move(conn, b, Connected, min(c.RequestedMC, max(0, b.AvailableMC)), nowUS)
	s.tell("connection.created", conn, nowUS)
	r.Connection = *conn
	return r, nil
}

func (c ChangeCap) wants(w *wants) { w.connections[c.ConnectionID] = "" }

// apply lowers at once, never below what is consumed and held, and raises as far
// as the available balance reaches in full (spec §2, 2).
func (c ChangeCap) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	if conn.Status == Revoked {
		return Result{}, apierr.ConnectionRevoked.On(c.ConnectionID, "a revoked connection has no spend cap")
	}
	if c.TargetMC < 0 || c.TargetMC > money.Max {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "allocation_mc: must be between 0 and %d", money.Max)
	}
	if c.MaxMC > 0 && c.TargetMC > max(c.MaxMC, conn.AllocationMC) {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "The spend cap can be at most %s for this app.", c.MaxMC.Display())
	}
	b := s.balances[conn.AccountID]
	delta := max(c.TargetMC, conn.ConsumedMC+conn.HeldMC) - conn.AllocationMC
	if delta > 0 && delta > b.AvailableMC {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "Raising the spend cap needs %s, but only %s is available. You’re short by %s.",
			delta.Display(), max(0, b.AvailableMC).Display(), (delta - b.AvailableMC).Display())
	}
	return s.move(conn, b, Cap, delta, nowUS), nil
}

func (c SetVelocity) wants(w *wants) { w.connections[c.ConnectionID] = "" }

func (c SetVelocity) apply(s *State, _ int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	switch {
	case err != nil:
		return Result{}, err
	case conn.Status == Revoked:
		return Result{}, apierr.ConnectionRevoked.On(c.ConnectionID, "this connection is revoked for good")
	case c.LimitMC != nil && *c.LimitMC < 0:
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "velocity_limit_mc: must not be negative")
	}
	conn.VelocityLimitMC = c.LimitMC
	s.dirtyConnections[conn.ID], s.deep[conn.ID], s.hard = true, true, true
	return Result{Connection: *conn}, nil
}

func (c Revoke) wants(w *wants) { w.connections[c.ConnectionID] = "" }

// apply returns the unspent and unheld part at once; each open hold's rest
// returns when it resolves. Revoking twice changes nothing.
func (c Revoke) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	if conn.Status == Revoked {
		return Result{Connection: *conn}, nil
	}
	freed := conn.RemainingMC()
	conn.Status, conn.RevokedUS = Revoked, &nowUS
	delete(s.live, pair{conn.AppID, conn.AccountID})
	s.dirtyConnections[conn.ID] = true
	r := s.move(conn, s.balances[conn.AccountID], Revoking, -freed, nowUS)
	s.tell("connection.revoked", conn, nowUS)
	r.ReleasedMC, r.Connection = freed, *conn
	return r, nil
}

func (c Freeze) wants(w *wants) { w.connections[c.ConnectionID] = "" }
func (c Resume) wants(w *wants) { w.connections[c.ConnectionID] = "" }

func (c Freeze) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err == nil && conn.Status == Active && !c.ByUser {
		defer func() { s.notify(FrozenNotice, conn, nowUS) }()
	}
	return s.turn(c.ConnectionID, Active, Frozen, "connection.frozen", nowUS)
}

func (c Resume) apply(s *State, nowUS int64) (Result, error) {
	if c.Faster < 0 || c.Faster > 3 {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "faster: must be from 1 to 3")
	}
	conn, err := s.connection(c.ConnectionID)
	if err == nil && conn.Status == Frozen && s.balances[conn.AccountID].AvailableMC < 0 {
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "A payment was reversed and your balance is %s below zero. Top up first.", (-s.balances[conn.AccountID].AvailableMC).Display())
	}
	if err == nil && conn.Status == Frozen && c.Faster > 0 {
		conn.Faster = c.Faster
	}
	return s.turn(c.ConnectionID, Frozen, Active, "connection.resumed", nowUS)
}

// turn moves a connection between active and frozen; already there is no change.
func (s *State) turn(connectionID string, from, to Status, event string, nowUS int64) (Result, error) {
	conn, err := s.connection(connectionID)
	if err != nil {
		return Result{}, err
	}
	switch conn.Status {
	case Revoked:
		return Result{}, apierr.ConnectionRevoked.On(connectionID, "this connection is revoked for good")
	case from:
		conn.Status = to
		s.tell(event, conn, nowUS)
	}
	return Result{Connection: *conn}, nil
}

// move shifts delta from available to reserved, or back when it is negative.
func (s *State) move(conn *Connection, b *Balance, kind EntryType, delta money.MC, nowUS int64) Result {
	e := s.write(Entry{
		ID: s.newID(id.Ledger, time.UnixMicro(nowUS)), AccountID: conn.AccountID, Type: kind, Status: "settled",
		ConnectionID: conn.ID, AppID: conn.AppID,
		Available: -delta, Reserved: delta, Allocation: delta, CreatedUS: nowUS,
	}, b, conn)
	return Result{Entry: e, Connection: *conn}
}

func (c Reverse) wants(w *wants) {
	w.accounts[c.AccountID] = true
	w.entries[c.EntryID] = true
}

// apply refunds a spend by a new row: to the connection's reserved pool, or to
// available if the connection is revoked (spec §2, 7).
func (c Reverse) apply(s *State, nowUS int64) (Result, error) {
	o := s.originals[c.EntryID]
	if o == nil || o.AccountID != c.AccountID {
		return Result{}, apierr.NotFound.Errorf("no such ledger row")
	}
	if o.Type != Spend || o.Status != "settled" || o.reversed {
		return Result{}, apierr.InvalidRequest.Errorf("only a settled spend can be reversed, and only once")
	}
	if o.PaidBy == FreeCredit {
		return Result{}, apierr.InvalidRequest.Errorf("this call was paid by free credit; there is nothing to refund")
	}
	if c.Reason == "" {
		return Result{}, apierr.InvalidRequest.Errorf("reason: required")
	}
	conn, err := s.connection(o.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	// Nothing fails from here on.
	o.reversed = true
	back := o.UserChargeMC
	e := Entry{
		ID: s.newID(id.Ledger, time.UnixMicro(nowUS)), AccountID: o.AccountID, Type: Spend, Status: "reversed", ReversalOf: o.ID, Reason: c.Reason,
		ConnectionID: o.ConnectionID, AppID: o.AppID, Feature: o.Feature, Bucket: o.Bucket, Model: o.Model, PaidBy: o.PaidBy, HoldMC: o.HoldMC, Amounts: o.Amounts,
		Reserved: back, Consumed: -back, CreatedUS: nowUS,
	}
	if conn.Status == Revoked {
		e.Available, e.Reserved, e.Allocation = back, 0, -back
	}
	e.RemainingMC = conn.RemainingMC() + e.Allocation - e.Consumed
	e = s.write(e, s.balances[o.AccountID], conn)
	s.count(&e, 0, -1, Usage{})
	return Result{Entry: e, Connection: *conn}, nil
}

func (c Tell) wants(w *wants) { w.connections[c.ConnectionID] = "" }

func (c Tell) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	conn.EventSeq++
	s.publish(c.Kind, conn, c.Data, nowUS)
	return Result{Connection: *conn}, nil
}

func (c Refuse) wants(*wants) {}

func (c Refuse) apply(s *State, nowUS int64) (Result, error) {
	c.CreatedUS = nowUS
	s.refusals, s.hard = append(s.refusals, c.Refusal), true
	return Result{}, nil
}
