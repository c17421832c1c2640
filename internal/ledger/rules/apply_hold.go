package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

func (c Hold) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = c.AccountID
	w.Keys[c.key()] = true
	addLimitKeys(w, c.Limits)
	if c.FreeCredit != nil {
		addLimitKeys(w, c.FreeCredit.Limits)
	}
}

func addLimitKeys(w *RowKeys, list []limits.Limit) {
	for i := range list {
		if l := &list[i]; l.Subject != "" {
			w.Counters[l.Subject] = l.Unit.Width(l.Window)
		}
	}
}

// apply decides, in the order of 'Order of checks': the connection's state, what
// the key already did, the limits, the feature's guardrail, the money.
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
		if r.Refused, r.UseProviderKey, err = s.admitSpend(&c, conn, now); err != nil || r.Refused != nil {
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
	for i := range c.Limits {
		l := &c.Limits[i]
		w := s.Counters[l.Subject]
		switch {
		case l.Unit == limits.Calls:
			w.Spent = w.Spent.Add(now, 1, l.Window)
			s.Changes.Counters[l.Subject] = true
		case w != nil && w.LimitReported && w.Spent.Sum(now, l.Window)+int64(w.HeldMC) < l.Max-l.Max/10:
			w.LimitReported = false // it had room again: the next time is another crossing
		}
	}
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

// recall answers what the key already did; a result without a request means
// nothing that binds. A hold of the same claim is our own, whose COMMIT was
// carried out although its answer was lost (F-02).
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

// held is the call as an earlier answer of the same request would have said it is
// held: the store need not have kept the terms.
func (c Hold) asHeld(row *HoldRow) (held Call, own bool) {
	held = c.Call
	held.RequestID, held.HoldMC, held.PaidBy, held.Reservations = row.RequestID, row.HoldMC, row.PaidBy,
		row.Reservations
	if row.PaidBy == PaidByFreeCredit && c.FreeCredit != nil {
		held.Terms = c.FreeCredit.Terms
	}
	cost := func(n Reservation) bool { return n.Unit == limits.Cost }
	return held, c.HasProviderKey && row.PaidBy == PaidByWallet && !slices.ContainsFunc(row.Reservations, cost)
}

func keyReused(c Hold) error {
	return apierr.IdempotencyKeyReused.On(c.ConnectionID,
		"Idempotency-Key %s was used with a different request; use a new key", c.Key)
}

// admitCall checks how many calls there may be, whoever pays.
func (s *State) checkCallRates(c Hold, now time.Time) error {
	for i := range c.Limits {
		l := &c.Limits[i]
		if l.Unit != limits.Calls {
			continue
		}
		if wait := s.Counters[l.Subject].Spent.Wait(now, l.Window, l.Max-1); wait > 0 {
			e := l.Code.On(c.ConnectionID, "%s allows %d calls per %s; try again in %s", l.What, l.Max, l.Window,
				roundUpToSecond(wait))
			e.RetryAfter = wait
			return e
		}
	}
	return nil
}

// free lets free credit pay, if the whole call fits into each of its counters: a
// call is never paid by two (spec §2, 9).
func (s *State) tryFreeCredit(c *Hold) bool {
	if c.FreeCredit == nil {
		return false
	}
	var counts Reservations
	for _, l := range c.FreeCredit.Limits {
		w := s.Counters[l.Subject]
		if w.Spent.Sum(time.Time{}, 0)+int64(w.HeldMC+c.FreeCredit.HoldMC) > l.Max {
			return false
		}
		counts = append(counts, Reservation{l.Subject, limits.Spend, 0, c.FreeCredit.HoldMC})
	}
	c.PaidBy, c.Terms, c.HoldMC, c.Reservations = PaidByFreeCredit, c.FreeCredit.Terms, c.FreeCredit.HoldMC, counts
	return true
}

// admitSpend checks what the user's money may be spent on: pace, rolling windows,
// guardrail, allocation. Windows count what is settled and what is held. A refusal
// that must be remembered comes as the first result.
func (s *State) admitSpend(c *Hold, conn *Connection, now time.Time) (*apierr.Error, bool, error) {
	if err := s.checkRisk(c, conn, now); err != nil {
		return nil, false, err
	}
	if limit := conn.VelocityLimitMC; limit != nil {
		l := limits.Limit{Window: VelocityWindow, Max: int64(*limit), Code: apierr.DailyLimitReached, What: "the user"}
		if e := checkWindow(&l, conn.Spent, conn.HeldMC, c.HoldMC, c.ConnectionID, now); e != nil {
			return nil, false, e
		}
	}
	own := false
	for i := range c.Limits {
		l := &c.Limits[i]
		if l.Unit == limits.Calls {
			continue
		}
		if l.Subject == "" {
			if e := checkWindow(l, conn.Spent, conn.HeldMC, c.HoldMC, c.ConnectionID, now); e != nil {
				return nil, false, e
			}
			continue
		}
		need, w := c.HoldMC, s.Counters[l.Subject]
		if l.Unit == limits.Cost {
			need = c.CostMC
		}
		e := checkWindow(l, w.Spent, w.HeldMC, need, c.ConnectionID, now)
		switch {
		case e == nil:
			c.Reservations = append(c.Reservations, Reservation{l.Subject, l.Unit, l.Window, need})
		case l.Unit == limits.Cost && c.HasProviderKey:
			own = true
		case l.Event != "" && !w.LimitReported:
			w.LimitReported = true
			s.Changes.Counters[l.Subject] = true
			s.emitAppEvent(l.Event, c.AppID,
				fmt.Sprintf(`{"app":{"id":%q,"limit_mc":%d,"limit_display":%q,"window_s":%d}}`, c.AppID, l.Max,
					money.MC(l.Max).Display(), int64(l.Window/time.Second)), now.UnixMicro())
			return e, false, nil
		default:
			return nil, false, e
		}
	}
	if err := c.checkGuardrail(); err != nil {
		return nil, false, err
	}
	remaining := conn.RemainingMC()
	if c.MaxCapMC > 0 {
		remaining = min(remaining, c.MaxCapMC-conn.ConsumedMC-conn.HeldMC)
	}
	if c.HoldMC > remaining {
		return nil, false, allocationExhausted(conn, remaining, c.HoldMC)
	}
	return nil, own, nil
}

// pace refuses a call while its connection spends too fast; what is held counts,
// so that no crowd of calls can get past it. A connection whose settled spend is
// alarming is frozen when that is settled.
func (s *State) checkRisk(c *Hold, conn *Connection, now time.Time) error {
	if c.Risk == nil {
		return nil
	}
	usual := c.Risk.Usual(conn.Spent, conn.FasterSpend, now)
	if c.Risk.Of(money.MC(conn.Spent.Sum(now, limits.RiskWindow))+conn.HeldMC, usual) < limits.TooFast {
		return nil
	}
	e := apierr.RiskThrottled.On(c.ConnectionID, "this connection is spending much faster than usual; try again later")
	e.RetryAfter = max(conn.Spent.Wait(now, limits.RiskWindow, int64(usual)*c.Risk.Throttle), time.Second)
	return e
}

// over refuses what does not fit into a window. If only calls in flight are in the
// way, it may fit in a moment; else when enough old spend has left the window.
func checkWindow(l *limits.Limit, spent limits.Series, held, need money.MC, connectionID string, now time.Time) *apierr.Error {
	room := money.MC(l.Max) - need
	if spent.Sum(now, l.Window)+int64(held) <= int64(room) {
		return nil
	}
	e := l.Code.On(connectionID, "%s allows %s per %s; this call needs up to %s", l.What, money.MC(l.Max).Display(),
		formatWindow(l.Window), need.Display())
	if e.RetryAfter = spent.Wait(now, l.Window, int64(max(room, -1))); e.RetryAfter == 0 {
		e.RetryAfter = time.Second
	}
	return e
}

func formatWindow(d time.Duration) string {
	if d%time.Hour == 0 {
		return strconv.Itoa(int(d/time.Hour)) + " hours"
	}
	return d.String()
}

// guardrail is the feature's own bound of one call (spec §2, Feature).
func (c *Hold) checkGuardrail() error {
	if c.MaxCostMC == nil || c.HoldMC <= *c.MaxCostMC {
		return nil
	}
	e := apierr.FeatureCostExceeded.On(c.ConnectionID,
		"this call may cost up to %s, and feature %q allows %s a call; lower max_tokens or shorten the input",
		c.HoldMC.Display(), c.Feature, c.MaxCostMC.Display())
	e.Details = map[string]any{"required_mc": c.HoldMC, "allowed_mc": *c.MaxCostMC}
	return e
}

func roundUpToSecond(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// exhausted is the truthful 402: it says whether the money is spent, or only
// held by calls that may give it back.
func allocationExhausted(c *Connection, remaining, need money.MC) error {
	reason, say := "exhausted", "the allocation of this connection does not cover it"
	if need <= remaining+c.HeldMC {
		reason, say = "held_by_in_flight", "calls in flight hold the rest; it may fit when they end"
	}
	e := apierr.AllocationExhausted.On(c.ID, "this call may cost up to %s and %s remains: %s", need.Display(),
		max(remaining, 0).Display(), say)
	e.Details = map[string]any{
		"required_mc":  need,
		"remaining_mc": max(remaining, 0),
		"held_mc":      c.HeldMC,
		"reason":       reason,
	}
	return e
}

func (c Settle) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.Connections[c.ConnectionID] = c.AccountID
	w.Keys[c.key()] = true
	c.Reservations.addKeys(w)
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
	row := s.Holds[c.key()]
	if d, ok := s.Billed[c.key()]; ok {
		return Result{Outcome: Done, Entry: Entry{ID: d.EntryID}, Connection: *conn}, nil
	}
	if row != nil && row.Attempt != c.Attempt {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	held, pending, now := money.MC(0), row.HoldsMoney() && row.State == Pending, time.UnixMicro(nowUS)
	amounts, shortfall, freed, charged := c.Charge, money.MC(0), money.MC(0), money.MC(0)
	if c.PaidBy = cmp.Or(c.PaidBy, PaidByWallet); row != nil {
		c.PaidBy = row.PaidBy
	}
	if c.PaidBy == PaidByFreeCredit { // at cost, and nothing of it is the user's (spec §8)
		amounts = Amounts{ProviderCostMC: c.Charge.ProviderCostMC, UserChargeMC: c.Charge.ProviderCostMC}
	} else {
		if row.HoldsMoney() {
			held = row.HoldMC
		}
		amounts, shortfall = capCharge(c.Charge, held+conn.RemainingMC())
		if charged = amounts.UserChargeMC; conn.Status == Revoked {
			freed = max(held-charged, 0) // a revoked connection keeps nothing
		}
	}
	e := Entry{
		ID:                id.ReplacePrefix(c.RequestID, id.Request, id.Ledger),
		AccountID:         conn.AccountID,
		Type:              EntrySpend,
		Status:            "settled",
		ConnectionID:      conn.ID,
		AppID:             conn.AppID,
		Feature:           c.Feature,
		FeatureLabel:      c.FeatureLabel,
		Model:             c.Model,
		Key:               c.Key,
		Fingerprint:       c.Fingerprint,
		PaidBy:            c.PaidBy,
		Settlement:        c.Settlement,
		Terms:             c.Terms,
		Usage:             c.Usage.JSON,
		HoldMC:            c.HoldMC,
		Amounts:           amounts,
		RemainingMC:       conn.RemainingMC() + held - charged - freed,
		AvailableDeltaMC:  freed,
		ReservedDeltaMC:   -charged - freed,
		AllocationDeltaMC: -freed,
		ConsumedDeltaMC:   charged,
		CreatedUS:         nowUS,
	}
	receipt := ""
	if pending {
		if receipt, err = c.renderReceipt(&e); err != nil {
			return Result{}, err
		}
	}
	// Nothing fails from here on.
	conn.HeldMC -= held
	before, consumed := conn.EffectiveStatus(), conn.ConsumedMC
	e = s.appendEntry(e, s.Balances[conn.AccountID], conn)
	s.Holds[c.key()] = nil
	s.Changes.Holds[c.key()] = true
	s.Billed[c.key()] = BilledKey{e.ID, c.Fingerprint}
	if charged > 0 {
		conn.Spent = conn.Spent.Add(now, int64(charged), VelocityWindow)
	}
	s.releaseCounters(c.Reservations, row.HoldsMoney(), amounts, now)
	s.addToDailyTotals(&e, 1, 1, c.Usage)
	if pending {
		s.Changes.EndedDeferrals = append(s.Changes.EndedDeferrals, c.RequestID)
		s.emitRequestSettled(conn, receipt, nowUS)
	} else if c.Response != nil {
		s.Changes.Responses = append(s.Changes.Responses, ResponseRow{c.RequestID, *c.Response, nowUS})
	}
	if before == "active" && conn.EffectiveStatus() == "exhausted" {
		s.emitConnectionEvent("connection.exhausted", conn, nowUS)
	}
	s.notifyThresholds(conn, consumed, nowUS)
	s.applyRiskThresholds(c.Risk, conn, now)
	return Result{Call: c.Call, Entry: e, Connection: *conn, HoldExpired: !row.HoldsMoney(), Shortfall: shortfall}, nil
}

// milestone leaves word when half, most or all of an allocation is consumed.
func (s *State) notifyThresholds(conn *Connection, before money.MC, nowUS int64) {
	if conn.Status == Revoked || conn.AllocationMC <= 0 {
		return
	}
	part := func(consumed money.MC) int64 { return int64(consumed) / max(int64(conn.AllocationMC)/100, 1) }
	for _, m := range []struct {
		percent int64
		kind    string
	}{{100, NoticeAllocation100}, {80, NoticeAllocation80}, {50, NoticeAllocation50}} {
		if part(before) < m.percent && part(conn.ConsumedMC) >= m.percent {
			s.notifyUser(m.kind, conn, nowUS)
			return // the highest says it all
		}
	}
}

// warnEvery is the least time between two warnings of a connection (spec §8).
const warningInterval = 10 * time.Minute

// watch looks at how fast a connection spends, after a settlement: fast is told to
// the app, alarming freezes it until its user resumes it (spec §3).
func (s *State) applyRiskThresholds(risk *limits.Risk, conn *Connection, now time.Time) {
	if risk == nil || conn.Status != Active {
		return
	}
	switch pace := risk.Of(money.MC(conn.Spent.Sum(now, limits.RiskWindow)),
		risk.Usual(conn.Spent, conn.FasterSpend, now)); {
	case pace == limits.Alarming:
		conn.Status = Frozen
		s.emitConnectionEvent("connection.frozen", conn, now.UnixMicro())
		s.notifyUser(NoticeFrozen, conn, now.UnixMicro())
	case pace >= limits.Fast && now.UnixMicro() >= conn.WarnedUS+warningInterval.Microseconds():
		conn.WarnedUS = now.UnixMicro()
		s.emitConnectionEvent("connection.risk_warning", conn, now.UnixMicro())
	}
}

func (c Settle) renderReceipt(e *Entry) (string, error) {
	if c.Receipt == nil {
		return "", errors.New("ledger: a pending call is settled without a receipt to tell")
	}
	return c.Receipt(e)
}

func (c Defer) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = c.AccountID
	w.Keys[c.key()] = true
	c.Reservations.addKeys(w)
}

// apply keeps the money held, and remembers whom to ask. One that is repeated
// changes nothing; one that comes after its hold has ended is fenced.
func (c Defer) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.Holds[c.key()]
	if !row.HoldsMoney() || row.Attempt != c.Attempt {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	r := Result{RequestID: row.RequestID, Connection: *conn}
	if row.State == Pending {
		return r, nil
	}
	// Nothing fails from here on.
	pending := *row
	pending.State = Pending
	s.Holds[c.key()], s.Changes.Holds[c.key()] = &pending, true
	s.Changes.Connections[conn.ID], s.Changes.MustSync = true, true // on SQLite the hold may only now come to the file
	for _, n := range c.Reservations {
		s.Changes.Counters[n.Subject] = true // and what it holds with it
	}
	s.Changes.Deferrals = append(s.Changes.Deferrals, Deferral{c.key(), row.RequestID, c.Provider, c.RecordID, nowUS})
	if c.Response != nil {
		s.Changes.Responses = append(s.Changes.Responses, ResponseRow{row.RequestID, *c.Response, nowUS})
	}
	return r, nil
}

// within keeps a charge inside what the user agreed to: the service's fee takes
// the shortfall, and may become negative (decisions, Money).
func capCharge(a Amounts, most money.MC) (Amounts, money.MC) {
	shortfall := max(a.UserChargeMC-most, 0)
	a.UserChargeMC -= shortfall
	a.SvcFeeMC -= shortfall
	return a, shortfall
}

func (c Release) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.Connections[c.ConnectionID] = c.AccountID
	w.Keys[c.key()] = true
	c.Reservations.addKeys(w)
}

// apply gives the hold back. A release of anything but this open attempt does
// nothing: what is pending was delivered, and will be billed.
func (c Release) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.Holds[c.key()]
	if row == nil || row.Attempt != c.Attempt || row.State != Open {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	// Nothing fails from here on.
	failed := *row
	failed.State = Failed
	s.Holds[c.key()], s.Changes.Holds[c.key()] = &failed, true
	s.releaseCounters(c.Reservations, true, Amounts{}, time.UnixMicro(nowUS))
	if row.PaidBy != PaidByFreeCredit {
		conn.HeldMC -= row.HoldMC
	}
	s.Changes.Connections[conn.ID], s.Changes.MustSync = true, true
	r := Result{RequestID: row.RequestID}
	if conn.Status == Revoked && row.PaidBy != PaidByFreeCredit {
		r.Entry = s.appendEntry(Entry{
			ID:                id.New(id.Ledger, time.UnixMicro(nowUS)),
			AccountID:         conn.AccountID,
			Type:              EntryRelease,
			Status:            "settled",
			ConnectionID:      conn.ID,
			AppID:             conn.AppID,
			AvailableDeltaMC:  row.HoldMC,
			ReservedDeltaMC:   -row.HoldMC,
			AllocationDeltaMC: -row.HoldMC,
			CreatedUS:         nowUS,
		}, s.Balances[conn.AccountID], conn)
		r.ReleasedMC = row.HoldMC
	}
	r.Connection = *conn
	return r, nil
}
