package rules

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

func (c Hold) addKeys(keys *RowKeys) {
	keys.Connections[c.ConnectionID] = c.AccountID
	if !c.DryRun {
		keys.Keys[c.key()] = true
	}
	addLimitKeys(keys, c.Limits)
	if c.ChildID != "" {
		keys.AddBudget(c.ChildID)
	}
	if c.FreeCredit != nil {
		addLimitKeys(keys, c.FreeCredit.Limits)
	}
}

func addLimitKeys(keys *RowKeys, list []limits.Limit) {
	for i := range list {
		l := &list[i]
		keys.Counters[l.Subject] = l.Unit.BucketWidth(l.Window)
	}
}

// apply checks in the order of decision 008: the connection's state, what the key
// already did, whether the allocation is spent, the limits, the feature's guardrail, the
// money. A call that does not fit may get a lower output cap. Then it opens the hold.
func (c Hold) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.callersConnection(&c)
	if err != nil {
		return Result{}, err
	}
	row := s.Holds[c.key()]
	if found, err := s.findAttempt(c, row); err != nil || found.RequestID != "" {
		found.Connection = *conn
		return found, err
	}
	if err := c.CheckExhausted(conn); err != nil {
		return Result{}, err
	}
	now := time.UnixMicro(nowUS)
	if err := s.checkCallRates(c, now); err != nil {
		return Result{}, err
	}
	a, err := s.choosePayer(&c, conn, now)
	if err != nil {
		a, err = s.lowerCap(&c, conn, now, a, err)
	}
	if c.DryRun {
		return Result{Call: c.Call, MaxTokens: c.maxTokens(), Connection: *conn}, err
	}
	if err != nil {
		if e := s.reportLimit(a.reached, &c, err, nowUS); e != nil {
			return Result{Attempt: 1, Refused: e, UseProviderKey: a.useProviderKey}, nil
		}
		return Result{}, err
	}
	r := s.openHold(&c, conn, row, nowUS)
	r.UseProviderKey = a.useProviderKey
	return r, nil
}

// CheckExhausted refuses every call on an exhausted connection, whoever would pay for it
// (contract §2, 6).
func (c Hold) CheckExhausted(conn *Connection) error {
	if conn.EffectiveStatus() != "exhausted" {
		return nil
	}
	return c.refuseExhausted(conn, conn.RemainingMC(), conn.HeldMC)
}

// callersConnection returns the connection if calls are allowed on it and it is the one
// of the call's account and app.
func (s *State) callersConnection(c *Hold) (*Connection, error) {
	conn, err := s.spendableConnection(c.ConnectionID)
	if err != nil {
		return nil, err
	}
	if conn.AccountID != c.AccountID || conn.AppID != c.AppID {
		return nil, apierr.NotFound.Errorf("no such connection")
	}
	return conn, s.callersChild(c)
}

// choosePayer lets free credit pay for the call if it covers the whole call, else the
// wallet. It sets the payer, its amounts and its reservations in c, and leaves the state as
// it is.
func (s *State) choosePayer(c *Hold, conn *Connection, now time.Time) (admission, error) {
	c.PaidBy, c.Reservations = PaidByWallet, nil
	if s.tryFreeCredit(c) {
		return admission{}, c.checkGuardrail()
	}
	return s.admitSpend(c, conn, now)
}

// openHold opens the hold of an admitted call. row is the key's failed attempt, or nil.
// It cannot fail, so the state changes as a whole.
func (s *State) openHold(c *Hold, conn *Connection, row *HoldRow, nowUS int64) Result {
	attempt := int64(1)
	if row != nil {
		attempt, c.RequestID = row.Attempt+1, row.RequestID
	}
	if c.PaidBy == PaidByWallet {
		conn.HeldMC += c.HoldMC
		if c.ChildID != "" {
			conn.ChildHeldMC += c.HoldMC
			s.Changes.Delegated[conn.ID] = true
		}
	}
	s.Changes.Connections[conn.ID] = true
	s.reserveCounters(c.Reservations)
	s.countCall(c.Limits, time.UnixMicro(nowUS))
	s.Holds[c.key()] = &HoldRow{
		Call:      c.Call,
		State:     Open,
		Attempt:   attempt,
		NodeID:    c.NodeID,
		Claim:     c.Claim,
		CreatedUS: nowUS,
	}
	s.Changes.Holds[c.key()] = true
	if c.Pending != "" {
		s.Holds[c.key()].State, s.Changes.MustSync = Pending, true
		s.Changes.Deferrals = append(s.Changes.Deferrals,
			Deferral{Key: c.key(), RequestID: c.RequestID, Provider: c.Pending, SinceUS: nowUS})
	}
	return Result{
		Call:       c.Call,
		MaxTokens:  c.maxTokens(),
		RequestID:  c.RequestID,
		Attempt:    attempt,
		Connection: *conn,
	}
}

// countCall counts a held call in the limits of calls. A limit of spend that has room for
// a tenth of it again may be reported again.
func (s *State) countCall(list []limits.Limit, now time.Time) {
	for i := range list {
		l := &list[i]
		counter := s.Counters[l.Subject]
		switch {
		case l.Unit == limits.Calls:
			counter.Spent = counter.Spent.Add(now, 1, l.Window)
			s.Changes.Counters[l.Subject] = true
		case counter.LimitReported &&
			counter.Spent.Sum(now, l.Window)+int64(counter.HeldMC) < l.Max-l.Max/10:
			counter.LimitReported = false
			s.Changes.Counters[l.Subject], s.Changes.MustSync = true, true // a hold in memory would forget it
		}
	}
}

// findAttempt returns the key's earlier attempt. A result without a request means that
// the key is free for a new attempt. A hold with the same claim is this hold: it was
// committed although its result was lost (F-02).
func (s *State) findAttempt(c Hold, row *HoldRow) (Result, error) {
	if d, ok := s.Billed[c.key()]; ok {
		if d.Fingerprint != c.Fingerprint {
			return Result{}, keyReused(c)
		}
		return Result{
			Outcome:   Done,
			RequestID: id.ReplacePrefix(d.EntryID, id.Ledger, id.Request),
			Entry:     Entry{ID: d.EntryID, Fingerprint: d.Fingerprint},
		}, nil
	}
	if row == nil {
		return Result{}, nil
	}
	if row.Fingerprint != c.Fingerprint {
		return Result{}, keyReused(c)
	}
	r := Result{Attempt: row.Attempt, RequestID: row.RequestID, NodeID: row.NodeID}
	switch {
	case row.State == Failed && c.Pending == "":
		return Result{}, nil
	case row.State != Open: // or a released hold of the app's own work, whose key is not for another one
		r.Outcome = Waiting
	case row.Claim != c.Claim:
		r.Outcome = Running
	default:
		r.Call, r.UseProviderKey = c.asHeld(row)
		if r.MaxTokens = c.maxTokens(); r.MaxTokens > 0 && row.HoldMC != c.heldBy(row.PaidBy) {
			r.MaxTokens = c.capOf(row)
			r.Call.Terms = c.Output.Terms(r.MaxTokens, row.PaidBy)
		}
	}
	return r, nil
}

// asHeld returns the call as the lost result described it. The row may lack the terms,
// so they are taken from the command.
func (c Hold) asHeld(row *HoldRow) (held Call, useProviderKey bool) {
	held = c.Call
	held.RequestID, held.HoldMC, held.PaidBy, held.Reservations = row.RequestID, row.HoldMC, row.PaidBy,
		row.Reservations
	if row.PaidBy == PaidByFreeCredit && c.FreeCredit != nil {
		held.Terms = c.FreeCredit.Terms
	}
	cost := func(n Reservation) bool { return n.Unit == limits.Cost }
	return held, c.HasProviderKey && row.PaidBy == PaidByWallet && !slices.ContainsFunc(row.Reservations, cost)
}

// heldBy returns the amount of the hold by who pays.
func (c *Hold) heldBy(payer string) money.MC {
	if payer == PaidByFreeCredit && c.FreeCredit != nil {
		return c.FreeCredit.HoldMC
	}
	return c.HoldMC
}

// keyReused is the error for a key that was used with another request.
func keyReused(c Hold) error {
	return apierr.IdempotencyKeyReused.On(c.ConnectionID,
		"Idempotency-Key %s was used with a different request; use a new key", c.Key)
}
