package rules

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/limits"
)

func (c Hold) addKeys(keys *RowKeys) {
	keys.Connections[c.ConnectionID] = c.AccountID
	keys.Keys[c.key()] = true
	addLimitKeys(keys, c.Limits)
	if c.FreeCredit != nil {
		addLimitKeys(keys, c.FreeCredit.Limits)
	}
}

func addLimitKeys(keys *RowKeys, list []limits.Limit) {
	for i := range list {
		if l := &list[i]; l.Subject != "" {
			keys.Counters[l.Subject] = l.Unit.BucketWidth(l.Window)
		}
	}
}

// apply checks in the order of decision 008: the connection's state, what the key
// already did, the limits, the feature's guardrail, the money.
func (c Hold) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.spendableConnection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	if conn.AccountID != c.AccountID || conn.AppID != c.AppID {
		return Result{}, apierr.NotFound.Errorf("no such connection")
	}
	row := s.Holds[c.key()]
	if found, err := s.findAttempt(c, row); err != nil || found.RequestID != "" {
		found.Connection = *conn
		return found, err
	}
	now := time.UnixMicro(nowUS)
	if err := s.checkCallRates(c, now); err != nil {
		return Result{}, err
	}
	r := Result{Attempt: 1}
	if c.PaidBy, c.Reservations = PaidByWallet, nil; !s.tryFreeCredit(&c) {
		a, err := s.admitSpend(&c, conn, now)
		if r.Refused, r.UseProviderKey = a.refusal, a.useProviderKey; err != nil || r.Refused != nil {
			return r, err
		}
	} else if err := c.checkGuardrail(); err != nil {
		return Result{}, err
	}
	// Nothing fails from here on.
	if row != nil {
		r.Attempt, c.RequestID = row.Attempt+1, row.RequestID
	}
	if c.PaidBy == PaidByWallet {
		conn.HeldMC += c.HoldMC
	}
	s.Changes.Connections[conn.ID] = true
	s.reserveCounters(c.Reservations)
	s.countCall(c.Limits, now)
	s.Holds[c.key()] = &HoldRow{
		Call:      c.Call,
		State:     Open,
		Attempt:   r.Attempt,
		NodeID:    c.NodeID,
		Claim:     c.Claim,
		CreatedUS: nowUS,
	}
	s.Changes.Holds[c.key()] = true
	r.Call, r.RequestID, r.Connection = c.Call, c.RequestID, *conn
	return r, nil
}

// countCall counts a held call in the limits of calls, and makes ready to report a
// limit of spend again that has room for a tenth of it.
func (s *State) countCall(list []limits.Limit, now time.Time) {
	for i := range list {
		l := &list[i]
		counter := s.Counters[l.Subject]
		switch {
		case l.Unit == limits.Calls:
			counter.Spent = counter.Spent.Add(now, 1, l.Window)
			s.Changes.Counters[l.Subject] = true
		case counter != nil && counter.LimitReported &&
			counter.Spent.Sum(now, l.Window)+int64(counter.HeldMC) < l.Max-l.Max/10:
			counter.LimitReported = false
		}
	}
}

// findAttempt returns what the key already did. A result without a request means that
// the key is free for a new attempt. A hold of the same claim is this one, which was
// committed although its answer was lost (F-02).
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
	case row.State == Failed:
		return Result{}, nil
	case row.State == Pending:
		r.Outcome = Waiting
	case row.Claim != c.Claim:
		r.Outcome = Running
	default:
		r.Call, r.UseProviderKey = c.asHeld(row)
	}
	return r, nil
}

// asHeld returns the call as the lost answer described it. The store may have left the
// terms out of the row, so they are taken from the command.
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

// keyReused is the error for a key that was used with another request.
func keyReused(c Hold) error {
	return apierr.IdempotencyKeyReused.On(c.ConnectionID,
		"Idempotency-Key %s was used with a different request; use a new key", c.Key)
}
