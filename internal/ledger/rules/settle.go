package rules

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
)

func (c Settle) addKeys(keys *RowKeys) {
	keys.Accounts[c.AccountID] = true
	keys.Connections[c.ConnectionID] = c.AccountID
	keys.Keys[c.key()] = true
	c.Reservations.addKeys(keys)
	if c.Budget != nil {
		keys.Counters[c.Budget.Subject] = 0
	}
	if c.Waiver != nil {
		keys.Counters[WaiverSubject(c.AppID, c.AccountID)] = limits.Cost.BucketWidth(waiverWindow)
	}
}

// apply moves held to consumed. A settlement whose hold has expired still counts, as far
// as the allocation reaches, if no later attempt took the key (O-3). One whose key is
// billed already changes nothing: its COMMIT was answered and the answer lost, or a
// second node has asked for the same record.
func (c Settle) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row := s.Holds[c.key()]
	if billed, ok := s.Billed[c.key()]; ok {
		return Result{Outcome: Done, Entry: Entry{ID: billed.EntryID}, Connection: *conn}, nil
	}
	if row != nil && row.Attempt != c.Attempt {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	if c.Held && !row.HoldsMoney() {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	if c.PaidBy = cmp.Or(c.PaidBy, PaidByWallet); row != nil {
		c.PaidBy = row.PaidBy
	}
	now := time.UnixMicro(nowUS)
	waived := c.isWaived(s, now)
	if waived {
		c.Usage, c.Charge = c.Waiver.Usage, c.Charge.waive()
	}
	a := c.divideCharge(s, row, conn)
	e := c.newEntry(&a, conn, nowUS)
	pending, receipt := row.HoldsMoney() && row.State == Pending, ""
	if pending {
		if receipt, err = c.renderReceipt(&e); err != nil {
			return Result{}, err
		}
	}
	// Nothing fails from here on.
	conn.HeldMC -= a.held
	statusBefore, consumedBefore := conn.EffectiveStatus(), conn.ConsumedMC
	s.endChildHold(conn, c.Reservations, a.held, a.amounts.UserChargeMC)
	e = s.appendEntry(e, s.Balances[conn.AccountID], conn)
	s.Holds[c.key()] = nil
	s.Changes.Holds[c.key()] = true
	s.Billed[c.key()] = BilledKey{e.ID, c.Fingerprint}
	if waived {
		s.countWaiver(WaiverSubject(c.AppID, c.AccountID), a.amounts.ProviderCostMC, now)
	}
	s.countBudget(c.Budget, a.charged)
	if a.charged > 0 {
		conn.Spent = conn.Spent.Add(now, int64(a.charged), VelocityWindow)
	}
	s.releaseCounters(c.Reservations, row.HoldsMoney(), a.amounts, now)
	s.addToDailyTotals(&e, 1, 1, c.Usage)
	if pending {
		s.Changes.EndedDeferrals = append(s.Changes.EndedDeferrals, c.RequestID)
		s.emitRequestEvent("request.settled", conn, receipt, nowUS)
	} else if c.Response != nil {
		s.Changes.Responses = append(s.Changes.Responses, ResponseRow{c.RequestID, *c.Response, nowUS})
	}
	if statusBefore == "active" && conn.EffectiveStatus() == "exhausted" {
		s.emitConnectionEvent("connection.exhausted", conn, nowUS)
	}
	s.notifyThresholds(conn, consumedBefore, nowUS)
	s.applyRiskThresholds(c.Risk, conn, now)
	return Result{
		Call:        c.Call,
		Entry:       e,
		Connection:  *conn,
		HoldExpired: !row.HoldsMoney(),
		WasPending:  pending,
		Shortfall:   a.shortfall,
		Waived:      waived,
	}, nil
}

// divided is how a settlement divides the charge of a call.
type divided struct {
	amounts   Amounts
	held      money.MC // of the allocation, by the hold that ends
	charged   money.MC // to the allocation
	freed     money.MC // back to the available balance: a revoked connection keeps nothing
	shortfall money.MC // given up by the service fee
	remaining money.MC // of the allocation, or of the child's budget, after it
}

// divideCharge computes what the allocation pays and what returns to the user. Free
// credit pays at cost, and nothing of it is the user's (contract §8); but no more than what a live child has left of
// its budget.
func (c *Settle) divideCharge(s *State, row *HoldRow, conn *Connection) (d divided) {
	held, room := money.MC(0), conn.RemainingMC()
	if row.HoldsMoney() {
		held = row.HoldMC
	}
	childID := c.Reservations.child()
	isLiveChild := childID != "" && !s.Counters[ChildSubject(childID)].LimitReported
	if isLiveChild {
		room = s.childRemaining(childID)
	}
	if c.PaidBy == PaidByFreeCredit {
		d.amounts = Amounts{ProviderCostMC: c.Charge.ProviderCostMC, UserChargeMC: c.Charge.ProviderCostMC}
		if d.remaining = room; isLiveChild {
			d.amounts, d.shortfall = capCharge(d.amounts, held+room)
			d.remaining += held - d.amounts.UserChargeMC
		}
		return d
	}
	d.held = held
	most, bound := d.held+room, c.bound(s)
	d.amounts, d.shortfall = capCharge(c.Charge, min(most, bound))
	if d.shortfall > 0 && bound < most {
		c.Usage = c.Usage.withBound(bound)
	}
	d.charged = d.amounts.UserChargeMC
	if conn.Status == Revoked {
		d.freed = max(d.held-d.charged, 0)
	}
	d.remaining = room + d.held - d.charged - d.freed
	return d
}

// bound returns the most that the user may be charged whatever the allocation has.
func (c *Settle) bound(s *State) money.MC {
	most := money.Max
	if c.MaxChargeMC != nil {
		most = *c.MaxChargeMC
	}
	if c.Budget != nil {
		spent := s.Counters[c.Budget.Subject].Spent.Sum(time.Time{}, 0)
		most = min(most, max(c.Budget.MaxMC-money.MC(spent), 0))
	}
	return most
}

// withBound notes in the usage of a row which bound has lowered its charge, so that the audit can recompute it.
func (u Usage) withBound(bound money.MC) Usage {
	text := strings.TrimSuffix(u.JSON, "}")
	if text != "{" {
		text += ","
	}
	u.JSON = text + `"bound_mc":` + strconv.FormatInt(int64(bound), 10) + "}"
	return u
}

// countBudget counts a charge in the budget that its call shares with others.
func (s *State) countBudget(b *Budget, charged money.MC) {
	if b != nil && charged > 0 {
		counter := s.Counters[b.Subject]
		counter.Spent = counter.Spent.Add(time.Time{}, int64(charged), 0)
		s.Changes.Counters[b.Subject] = true
	}
}

// newEntry is the ledger row of the settlement.
func (c *Settle) newEntry(d *divided, conn *Connection, nowUS int64) Entry {
	return Entry{
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
		Amounts:           d.amounts,
		RemainingMC:       d.remaining,
		AvailableDeltaMC:  d.freed,
		ReservedDeltaMC:   -d.charged - d.freed,
		AllocationDeltaMC: -d.freed,
		ConsumedDeltaMC:   d.charged,
		CreatedUS:         nowUS,
		Delivery:          c.Delivery,
	}
}

// capCharge keeps a charge at most as high as the user and the app agreed to. The service fee takes
// the shortfall, and may become negative (decision 018).
func capCharge(a Amounts, most money.MC) (Amounts, money.MC) {
	shortfall := max(a.UserChargeMC-most, 0)
	a.UserChargeMC -= shortfall
	a.SvcFeeMC -= shortfall
	return a, shortfall
}

// renderReceipt returns the request as its GET returns it, for the event of a pending call.
func (c *Settle) renderReceipt(e *Entry) (string, error) {
	if c.Receipt == nil {
		return "", errors.New("ledger: a pending call is settled without a receipt for its event")
	}
	return c.Receipt(e)
}

// notifyThresholds queues a notice when consumption crosses 50, 80 or 100 % of the
// allocation.
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
			return // only the highest
		}
	}
}

// warningInterval is the least time between two risk warnings of a connection (contract §8).
const warningInterval = 10 * time.Minute

// applyRiskThresholds compares the spend of a connection after a settlement with its
// usual spend: beyond the first threshold the app gets a warning, beyond the last the
// connection is frozen until its user resumes it (contract §3). What a stopped connection's calls still spend may add
// this cause to the others.
func (s *State) applyRiskThresholds(risk *limits.RiskThresholds, conn *Connection, now time.Time) {
	if risk == nil || conn.Status == Revoked || conn.FrozenBy == FrozenByRisk {
		return
	}
	switch pace := risk.LevelOf(money.MC(conn.RiskSpend().Sum(now, limits.RiskWindow)),
		risk.UsualMC(conn.Spent, conn.FasterSpend, now)); {
	case pace == limits.AboveFreeze:
		s.addFreeze(conn, FreezeRow{Cause: FrozenByRisk}, now.UnixMicro())
	case conn.Status == Active && pace >= limits.AboveWarn &&
		now.UnixMicro() >= conn.WarnedUS+warningInterval.Microseconds():
		conn.WarnedUS = now.UnixMicro()
		s.emitConnectionEvent("connection.risk_warning", conn, now.UnixMicro())
	}
}
