package ledger

import (
	"encoding/json"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// RaiseStatus is where an allocation request stands (spec §3, Allocation request).
type RaiseStatus string

// The states of spec §3. All but the first are final.
const (
	RaisePending    RaiseStatus = "pending"
	RaiseApproved   RaiseStatus = "approved"
	RaiseDenied     RaiseStatus = "denied"
	RaiseSuperseded RaiseStatus = "superseded"
)

// Raise is one allocation request: an app asks for a higher cap, the user decides
// (spec §2, Allocation request).
type Raise struct {
	ID, ConnectionID string
	Status           RaiseStatus
	CurrentMC        money.MC // the cap when it was asked
	TargetMC         money.MC
	Reason           string // as the app gave it; "" = none
	SupersededBy     string // the newer request that took its place
	CreatedUS        int64
	DecidedUS        *int64 // when the user decided
}

// RaiseResource is an allocation request as the API shows it.
type RaiseResource struct {
	ID                       string      `json:"id"`
	ConnectionID             string      `json:"connection_id"`
	Status                   RaiseStatus `json:"status"`
	CurrentAllocationMC      money.MC    `json:"current_allocation_mc"`
	CurrentAllocationDisplay string      `json:"current_allocation_display"`
	TargetAllocationMC       money.MC    `json:"target_allocation_mc"`
	TargetAllocationDisplay  string      `json:"target_allocation_display"`
	Reason                   *string     `json:"reason"`
	SupersededBy             *string     `json:"superseded_by"`
	CreatedAt                string      `json:"created_at"`
	DecidedAt                *string     `json:"decided_at"`
	ApprovalURL              string      `json:"approval_url,omitempty"` // added by whoever knows the dashboard's address
}

// Resource returns the request in the contract's shape, without approval_url.
func (r Raise) Resource() RaiseResource {
	out := RaiseResource{
		ID: r.ID, ConnectionID: r.ConnectionID, Status: r.Status,
		CurrentAllocationMC: r.CurrentMC, CurrentAllocationDisplay: r.CurrentMC.Display(),
		TargetAllocationMC: r.TargetMC, TargetAllocationDisplay: r.TargetMC.Display(),
		Reason: orNull(r.Reason), SupersededBy: orNull(r.SupersededBy), CreatedAt: Timestamp(r.CreatedUS),
	}
	if r.DecidedUS != nil {
		out.DecidedAt = orNull(Timestamp(*r.DecidedUS))
	}
	return out
}

// AskRaise files an app's request for a higher cap. One that still waits for the
// user's answer gives way to it.
type AskRaise struct {
	RequestID, ConnectionID string
	AppID                   string // who asks; any other app's connection is not found
	TargetMC                money.MC
	Reason                  string
	MaxMC                   money.MC // the highest cap that the app's tier allows
}

// DecideRaise is the user's answer to an allocation request. Of one that is
// decided or superseded it changes nothing, and the outcome is Done.
type DecideRaise struct {
	RequestID string
	AccountID string // who answers; anybody else's request is not found
	Approve   bool
	MaxMC     money.MC // as for AskRaise, at the time of the answer
}

// raises are the allocation requests of a State. Its zero value is ready to use.
type raises struct {
	byID    map[string]*Raise
	pending map[string]*Raise // the one of each connection
	dirty   []*Raise          // in the order of their changes
}

func (s *raises) put(r *Raise) {
	if s.byID == nil {
		s.byID, s.pending = map[string]*Raise{}, map[string]*Raise{}
	}
	s.byID[r.ID] = r
	if r.Status == RaisePending {
		s.pending[r.ConnectionID] = r
	}
}

func (c AskRaise) wants(w *wants) {
	w.connections[c.ConnectionID] = ""
	w.raises.of = append(w.raises.of, c.ConnectionID)
}

func (c AskRaise) apply(s *State, nowUS int64) (Result, error) {
	conn, err := s.connection(c.ConnectionID)
	if err != nil {
		return Result{}, err
	}
	switch {
	case conn.AppID != c.AppID:
		return Result{}, apierr.NotFound.Errorf("no such connection")
	case conn.Status == Revoked:
		return Result{}, apierr.ConnectionRevoked.On(c.ConnectionID, "a revoked connection has no spend cap")
	case c.TargetMC <= conn.AllocationMC:
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "target_allocation_mc: must be more than the present allocation of %d", conn.AllocationMC)
	case c.TargetMC > c.MaxMC:
		return Result{}, apierr.InvalidRequest.On(c.ConnectionID, "target_allocation_mc: must be at most %d in the app's tier", c.MaxMC)
	}
	r := &Raise{
		ID: c.RequestID, ConnectionID: conn.ID, Status: RaisePending,
		CurrentMC: conn.AllocationMC, TargetMC: c.TargetMC, Reason: c.Reason, CreatedUS: nowUS,
	}
	if older := s.raises.pending[conn.ID]; older != nil {
		older.Status, older.SupersededBy = RaiseSuperseded, r.ID
		s.raises.dirty = append(s.raises.dirty, older)
	} else { // the user who has word of an older one is led on from there
		s.notifyRaise(conn, r, nowUS)
	}
	s.raises.put(r)
	s.raises.dirty = append(s.raises.dirty, r)
	s.tellRaise("allocation_change.requested", conn, r, nowUS)
	return Result{Connection: *conn, Raise: *r}, nil
}

func (c DecideRaise) wants(w *wants) { w.raises.ids = append(w.raises.ids, c.RequestID) }

func (c DecideRaise) apply(s *State, nowUS int64) (Result, error) {
	r := s.raises.byID[c.RequestID]
	if r == nil || s.connections[r.ConnectionID] == nil || s.connections[r.ConnectionID].AccountID != c.AccountID {
		return Result{}, apierr.NotFound.Errorf("no such allocation request")
	}
	conn := s.connections[r.ConnectionID]
	if r.Status != RaisePending {
		return Result{Outcome: Done, Connection: *conn, Raise: *r}, nil
	}
	status, event := RaiseDenied, "allocation_change.denied"
	if c.Approve {
		status, event = RaiseApproved, "allocation_change.approved"
		if conn.Status == Revoked {
			return Result{}, apierr.ConnectionRevoked.On(conn.ID, "This connection is revoked, so its spend cap can’t be raised.")
		}
		if r.TargetMC > conn.AllocationMC { // else the user has set it as high in the meantime
			if _, err := (ChangeCap{ConnectionID: conn.ID, TargetMC: r.TargetMC, MaxMC: c.MaxMC}).apply(s, nowUS); err != nil {
				return Result{}, err
			}
		}
	}
	r.Status, r.DecidedUS = status, &nowUS
	delete(s.raises.pending, conn.ID)
	s.raises.dirty = append(s.raises.dirty, r)
	s.tellRaise(event, conn, r, nowUS)
	return Result{Connection: *conn, Raise: *r}, nil
}

// tellRaise appends an event about an allocation request to the outbox.
func (s *State) tellRaise(kind string, c *Connection, r *Raise, now int64) {
	c.EventSeq++
	s.publish(kind, c, r.data(), now)
}

// notifyRaise leaves word for the user that an app asks for more.
func (s *State) notifyRaise(c *Connection, r *Raise, now int64) {
	s.notices = append(s.notices, Notice{
		ID: s.newID(id.Notice, time.UnixMicro(now)), Kind: AskedNotice, AccountID: c.AccountID, ConnectionID: c.ID, AppID: c.AppID, Data: r.data(), CreatedUS: now,
	})
	s.hard = true
}

// data is what events and notices say of a request.
func (r *Raise) data() string {
	data, err := json.Marshal(map[string]any{"allocation_request": r.Resource()})
	if err != nil {
		panic("ledger: an allocation request is always JSON: " + err.Error())
	}
	return string(data)
}
