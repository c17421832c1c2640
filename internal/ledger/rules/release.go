package rules

import (
	"time"

	"github.com/purserhq/purser/internal/base/id"
)

func (c Release) addKeys(keys *RowKeys) {
	keys.Accounts[c.AccountID] = true
	keys.Connections[c.ConnectionID] = c.AccountID
	keys.Keys[c.key()] = true
	c.Reservations.addKeys(keys)
	c.Unbilled.addKeys(keys, &c.Call)
}

// apply ends the hold without a charge. A release of anything but this open attempt
// changes nothing: a pending call was delivered, and will be billed. For an app's own work
// the pending hold is released, too. An attempt that its client has ended is charged by its
// estimate once the day of such attempts is used up.
func (c Release) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	row, now := s.Holds[c.key()], time.UnixMicro(nowUS)
	if _, ok := s.Billed[c.key()]; ok && c.Unbilled != nil && c.Unbilled.Estimate != nil {
		return Result{Outcome: Done, Estimated: true, Connection: *conn}, nil // the answer to our own COMMIT was lost
	}
	pending := c.Pending && row != nil && row.State == Pending
	if row == nil || row.Attempt != c.Attempt || row.State != Open && !pending {
		return Result{Outcome: Fenced, Connection: *conn}, nil
	}
	if c.Unbilled.isCharged(s, &c.Call, now) {
		r, err := c.Unbilled.Estimate.apply(s, nowUS)
		r.Estimated = err == nil
		return r, err
	}
	// Nothing fails from here on.
	cost := Amounts{}
	if c.Unbilled != nil {
		cost.ProviderCostMC = c.Unbilled.CostMC
	}
	failed := *row
	failed.State = Failed
	s.Holds[c.key()], s.Changes.Holds[c.key()] = &failed, true
	if pending {
		s.Changes.EndedDeferrals = append(s.Changes.EndedDeferrals, row.RequestID)
	}
	s.releaseCounters(c.Reservations, true, cost, now)
	s.countUnbilled(c.Unbilled, c.Call, row, nowUS)
	if row.PaidBy != PaidByFreeCredit {
		conn.HeldMC -= row.HoldMC
		s.endChildHold(conn, c.Reservations, row.HoldMC, 0)
	}
	s.Changes.Connections[conn.ID], s.Changes.MustSync = true, true
	r := Result{RequestID: row.RequestID}
	if conn.Status == Revoked && row.PaidBy != PaidByFreeCredit {
		r.Entry = s.appendEntry(Entry{
			ID:                id.New(id.Ledger, now),
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
