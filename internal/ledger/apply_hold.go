package ledger

import (
	"errors"
	"time"

	"purser/internal/apierr"
	"purser/internal/id"
	"purser/internal/limits"
	"purser/internal/money"
)

func (c Hold) wants(w *wants) {
	w.connections[c.ConnectionID] = c.AccountID
	w.keys[c.key()] = true
	for _, l := range c.Limits {
		w.windows[l.Subject] = true
	}
}

// apply decides, in the order of 'Order of checks': the connection's state, what
// the key already did, the limits, the feature's guardrail, the money.
func (c Hold) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.spendable(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	if conn.AccountID != c.AccountID || conn.AppID != c.AppID {
		return Result{}, apierr.NotFound.Errorf("no such connection")
	}
	row := s.holds[c.key()]
	if found, err := s.recall(c, row); err != nil || found.RequestID != "" {
		found.Connection = *conn
		return found, err
	}
	now := time.UnixMicro(nowUS)
	if err := s.admit(c, conn, now); err != nil {
		return Result{}, err
	}
	if c.MaxCostMC != nil && c.HoldMC > *c.MaxCostMC {
		e := apierr.FeatureCostExceeded.On(c.ConnectionID, "this call may cost up to %s, and feature %q allows %s a call; lower max_tokens or shorten the input", c.HoldMC.Display(), c.Feature, c.MaxCostMC.Display())
		e.Details = map[string]any{"required_mc": c.HoldMC, "allowed_mc": *c.MaxCostMC}
		return Result{}, e
	}
	if remaining := conn.RemainingMC(); c.HoldMC > remaining {
		return Result{}, exhausted(conn, c.HoldMC)
	}
	// Nothing fails from here on.
	attempt := int64(1)
	if row != nil {
		attempt, c.RequestID = row.Attempt+1, row.RequestID
	}
	s.holds[c.key()] = &HoldRow{Call: c.Call, State: Open, Attempt: attempt, NodeID: c.NodeID, Claim: c.Claim, CreatedUS: nowUS}
	s.dirtyHolds[c.key()] = true
	conn.HeldMC += c.HoldMC
	s.dirtyConnections[conn.ID] = true
	for _, l := range c.Limits {
		if l.Unit == limits.Calls {
			w := s.windows[l.Subject].Add(now, 1, l.Window)
			s.windows[l.Subject], s.dirtyWindows[l.Subject], s.hard = &w, true, true
		}
	}
	return Result{Attempt: attempt, RequestID: c.RequestID, Connection: *conn}, nil
}

// recall answers what the key already did; a result without a request means
// nothing that binds. A hold of the same claim is our own, whose COMMIT was
// carried out although its answer was lost (F-02).
func (s *State) recall(c Hold, row *HoldRow) (Result, error) {
	if d, ok := s.done[c.key()]; ok {
		if d.fingerprint != c.Fingerprint {
			return Result{}, reused(c)
		}
		return Result{Outcome: Done, RequestID: id.Swap(d.id, id.Ledger, id.Request), Entry: Entry{ID: d.id, Fingerprint: d.fingerprint}}, nil
	}
	if row == nil {
		return Result{}, nil
	}
	if row.Fingerprint != c.Fingerprint {
		return Result{}, reused(c)
	}
	r := Result{Attempt: row.Attempt, RequestID: row.RequestID, NodeID: row.NodeID}
	switch {
	case row.State == Failed:
		return Result{}, nil
	case row.State == Pending:
		r.Outcome = Waiting
	case row.Claim != c.Claim:
		r.Outcome = Running
	}
	return r, nil
}

func reused(c Hold) error {
	return apierr.IdempotencyKeyReused.On(c.ConnectionID, "Idempotency-Key %s was used with a different request; use a fresh key", c.Key)
}

// admit checks the rolling windows, which count what is settled and what is held.
func (s *State) admit(c Hold, conn *Connection, now time.Time) error {
	for _, l := range c.Limits {
		if l.Unit != limits.Calls {
			continue
		}
		if wait := s.windows[l.Subject].Wait(now, l.Window, l.Max-1); wait > 0 {
			e := l.Code.On(c.ConnectionID, "%s allows %d calls per %s; try again in %s", l.What, l.Max, l.Window, roundUp(wait))
			e.RetryAfter = wait
			return e
		}
	}
	if limit := conn.VelocityLimitMC; limit != nil {
		free := *limit - conn.HeldMC - c.HoldMC
		if wait := conn.Spent.Wait(now, windowOfDay, int64(max(free, -1))); wait > 0 {
			e := apierr.DailyLimitReached.On(c.ConnectionID, "the user allows %s in 24 hours on this connection; this call needs up to %s", limit.Display(), c.HoldMC.Display())
			e.RetryAfter = wait
			return e
		}
	}
	return nil
}

func roundUp(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// exhausted is the truthful 402: it says whether the money is spent, or only
// held by calls that may give it back.
func exhausted(c *Connection, need money.MC) error {
	reason, say := "exhausted", "the allocation of this connection does not cover it"
	if need <= c.RemainingMC()+c.HeldMC {
		reason, say = "held_by_in_flight", "calls in flight hold the rest; it may fit when they end"
	}
	e := apierr.AllocationExhausted.On(c.ID, "this call may cost up to %s and %s remains: %s", need.Display(), c.RemainingMC().Display(), say)
	e.Details = map[string]any{"required_mc": need, "remaining_mc": c.RemainingMC(), "held_mc": c.HeldMC, "reason": reason}
	return e
}

func (c Settle) wants(w *wants) {
	w.accounts[c.AccountID] = true
	w.connections[c.ConnectionID] = c.AccountID
	w.keys[c.key()] = true
}

// apply moves held to consumed. A settlement whose hold expired still counts, if
// no later attempt took the key, as far as the allocation reaches (O3); one
// whose key is already in the ledger changes nothing (a lost COMMIT, or a second
// node that asked for the same record).
func (c Settle) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.holds[c.key()]
	if d, ok := s.done[c.key()]; ok {
		return Result{Outcome: Done, Entry: Entry{ID: d.id}, Connection: *conn}, nil
	}
	if row != nil && row.Attempt != c.Attempt {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	held, pending := money.MC(0), false
	if row.holds() {
		held, pending = row.HoldMC, row.State == Pending
	}
	amounts, shortfall := within(c.Charge, held+conn.RemainingMC())
	freed := money.MC(0)
	if conn.Status == Revoked {
		freed = max(held-amounts.UserChargeMC, 0) // a revoked connection keeps nothing
	}
	e := Entry{
		ID: id.Swap(c.RequestID, id.Request, id.Ledger), AccountID: conn.AccountID, Type: Spend, Status: "settled",
		ConnectionID: conn.ID, AppID: conn.AppID, Feature: c.Feature, Bucket: c.Bucket, Model: c.Model, Key: c.Key, Fingerprint: c.Fingerprint,
		PaidBy: "wallet", Settlement: c.Settlement, Terms: c.Terms, Usage: c.Usage.JSON, HoldMC: c.HoldMC, Amounts: amounts,
		RemainingMC: conn.RemainingMC() + held - amounts.UserChargeMC - freed,
		Available:   freed, Reserved: -amounts.UserChargeMC - freed, Allocation: -freed, Consumed: amounts.UserChargeMC,
		CreatedUS: nowUS,
	}
	receipt := ""
	if pending {
		if receipt, err = c.receipt(&e); err != nil {
			return Result{}, err
		}
	}
	// Nothing fails from here on.
	conn.HeldMC -= held
	before := conn.Shown()
	e = s.write(e, s.balances[conn.AccountID], conn)
	s.holds[c.key()] = nil
	s.dirtyHolds[c.key()] = true
	s.done[c.key()] = doneRow{e.ID, c.Fingerprint}
	conn.Spent = conn.Spent.Add(time.UnixMicro(nowUS), int64(amounts.UserChargeMC), windowOfDay)
	s.count(&e, 1, 1, c.Usage)
	if pending {
		s.resolved = append(s.resolved, c.RequestID)
		s.tellRequest(conn, receipt, nowUS)
	} else if c.Answer != nil {
		s.answers = append(s.answers, answerRow{c.RequestID, *c.Answer, nowUS})
	}
	if before == "active" && conn.Shown() == "exhausted" {
		s.tell("connection.exhausted", conn, nowUS)
	}
	return Result{Entry: e, Connection: *conn, Late: held == 0, Shortfall: shortfall}, nil
}

func (c Settle) receipt(e *Entry) (string, error) {
	if c.Receipt == nil {
		return "", errors.New("ledger: a pending call is settled without a receipt to tell")
	}
	return c.Receipt(e)
}

func (c Defer) wants(w *wants) {
	w.connections[c.ConnectionID] = c.AccountID
	w.keys[c.key()] = true
}

// firstAsk is how long a provider may take to store what it has answered.
const firstAsk = 5 * time.Second

// apply keeps the money held, and remembers whom to ask. One that is repeated
// changes nothing; one that comes after its hold has ended is fenced.
func (c Defer) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.holds[c.key()]
	if !row.holds() || row.Attempt != c.Attempt {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	r := Result{RequestID: row.RequestID, Connection: *conn}
	if row.State == Pending {
		return r, nil
	}
	// Nothing fails from here on.
	pending := *row
	pending.State = Pending
	s.holds[c.key()], s.dirtyHolds[c.key()] = &pending, true
	s.dirtyConnections[conn.ID], s.hard = true, true // on SQLite the hold may only now come to the file
	s.deferred = append(s.deferred, deferredRow{c.key(), row.RequestID, c.Provider, c.Record, nowUS})
	if c.Answer != nil {
		s.answers = append(s.answers, answerRow{row.RequestID, *c.Answer, nowUS})
	}
	return r, nil
}

// within keeps a charge inside what the user agreed to: the service's fee takes
// the shortfall, and may become negative (decisions, Money).
func within(a Amounts, most money.MC) (Amounts, money.MC) {
	shortfall := max(a.UserChargeMC-most, 0)
	a.UserChargeMC -= shortfall
	a.SvcFeeMC -= shortfall
	return a, shortfall
}

func (c Release) wants(w *wants) {
	w.accounts[c.AccountID] = true
	w.connections[c.ConnectionID] = c.AccountID
	w.keys[c.key()] = true
}

// apply gives the hold back. A release of anything but this open attempt does
// nothing: what is pending was delivered, and will be billed.
func (c Release) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.holds[c.key()]
	if row == nil || row.Attempt != c.Attempt || row.State != Open {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	// Nothing fails from here on.
	failed := *row
	failed.State = Failed
	s.holds[c.key()], s.dirtyHolds[c.key()] = &failed, true
	conn.HeldMC -= row.HoldMC
	s.dirtyConnections[conn.ID], s.hard = true, true
	r := Result{RequestID: row.RequestID}
	if conn.Status == Revoked {
		r.Entry = s.write(Entry{
			ID: s.newID(id.Ledger, time.UnixMicro(nowUS)), AccountID: conn.AccountID, Type: Released, Status: "settled",
			ConnectionID: conn.ID, AppID: conn.AppID, Available: row.HoldMC, Reserved: -row.HoldMC, Allocation: -row.HoldMC, CreatedUS: nowUS,
		}, s.balances[conn.AccountID], conn)
		r.ReleasedMC = row.HoldMC
	}
	r.Connection = *conn
	return r, nil
}
