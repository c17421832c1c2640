package rules

import (
	"encoding/json"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
)

// AllocationRequestStatus is the state of an allocation request (contract §3,
// Allocation request).
type AllocationRequestStatus string

// The states of contract §3. All but the first are final.
const (
	RequestPending    AllocationRequestStatus = "pending"
	RequestApproved   AllocationRequestStatus = "approved"
	RequestDenied     AllocationRequestStatus = "denied"
	RequestSuperseded AllocationRequestStatus = "superseded"
)

// AllocationRequest is an app's request for a higher allocation, which the user
// approves or denies (contract §2, Allocation request).
type AllocationRequest struct {
	ID, ConnectionID string
	Status           AllocationRequestStatus
	CurrentMC        money.MC // the allocation when the request was filed
	TargetMC         money.MC
	Reason           string // as the app gave it; "" = none
	SupersededBy     string // the newer request that took its place
	CreatedUS        int64
	DecidedUS        *int64 // when the user decided
}

// AllocationRequestResource is an allocation request as the API shows it.
type AllocationRequestResource struct {
	ID                       string                  `json:"id"`
	ConnectionID             string                  `json:"connection_id"`
	Status                   AllocationRequestStatus `json:"status"`
	CurrentAllocationMC      money.MC                `json:"current_allocation_mc"`
	CurrentAllocationDisplay string                  `json:"current_allocation_display"`
	TargetAllocationMC       money.MC                `json:"target_allocation_mc"`
	TargetAllocationDisplay  string                  `json:"target_allocation_display"`
	Reason                   *string                 `json:"reason"`
	SupersededBy             *string                 `json:"superseded_by"`
	CreatedAt                string                  `json:"created_at"`
	DecidedAt                *string                 `json:"decided_at"`
	// added where the dashboard's address is known
	ApprovalURL string `json:"approval_url,omitempty"`
}

// Resource returns the request in the contract's shape, without approval_url.
func (r AllocationRequest) Resource() AllocationRequestResource {
	out := AllocationRequestResource{
		ID:                       r.ID,
		ConnectionID:             r.ConnectionID,
		Status:                   r.Status,
		CurrentAllocationMC:      r.CurrentMC,
		CurrentAllocationDisplay: r.CurrentMC.Display(),
		TargetAllocationMC:       r.TargetMC,
		TargetAllocationDisplay:  r.TargetMC.Display(),
		Reason:                   TextOrNull(r.Reason),
		SupersededBy:             TextOrNull(r.SupersededBy),
		CreatedAt:                timestamp.Format(r.CreatedUS),
	}
	if r.DecidedUS != nil {
		out.DecidedAt = TextOrNull(timestamp.Format(*r.DecidedUS))
	}
	return out
}

// RequestAllocation files an app's request for a higher allocation. It supersedes the
// pending request of the connection.
type RequestAllocation struct {
	RequestID, ConnectionID string
	AppID                   string // the requesting app; a connection of another app is not found
	TargetMC                money.MC
	Reason                  string
	MaxMC                   money.MC // the highest cap that the app's tier allows
}

// DecideAllocationRequest is the user's decision on an allocation request. If the
// request is decided or superseded already, nothing changes, and the outcome is Done.
type DecideAllocationRequest struct {
	RequestID string
	AccountID string // the deciding user; a request of another account is not found
	Approve   bool
	MaxMC     money.MC // the highest cap of the app's tier at the time of the decision
}

// allocationRequests are those of a State. The zero value is ready to use.
type allocationRequests struct {
	byID    map[string]*AllocationRequest
	pending map[string]*AllocationRequest // by connection
}

func (s *allocationRequests) add(r *AllocationRequest) {
	if s.byID == nil {
		s.byID, s.pending = map[string]*AllocationRequest{}, map[string]*AllocationRequest{}
	}
	s.byID[r.ID] = r
	if r.Status == RequestPending {
		s.pending[r.ConnectionID] = r
	}
}

func (c RequestAllocation) addKeys(w *RowKeys) {
	w.Connections[c.ConnectionID] = ""
	w.PendingRequestsOf = append(w.PendingRequestsOf, c.ConnectionID)
}

func (c RequestAllocation) apply(s *State, nowUS int64) (Result, error) {
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
		return Result{},
			apierr.InvalidRequest.On(c.ConnectionID,
				"target_allocation_mc: must be more than the present allocation of %d", conn.AllocationMC)
	case c.TargetMC > c.MaxMC:
		return Result{},
			apierr.InvalidRequest.On(c.ConnectionID, "target_allocation_mc: must be at most %d in the app's tier",
				c.MaxMC)
	}
	r := &AllocationRequest{
		ID: c.RequestID, ConnectionID: conn.ID, Status: RequestPending,
		CurrentMC: conn.AllocationMC, TargetMC: c.TargetMC, Reason: c.Reason, CreatedUS: nowUS,
	}
	if older := s.requests.pending[conn.ID]; older != nil {
		older.Status, older.SupersededBy = RequestSuperseded, r.ID
		s.Changes.AllocationRequests = append(s.Changes.AllocationRequests, older)
	} else { // the notice of an older request leads to this one
		s.notifyAllocationRequest(conn, r, nowUS)
	}
	s.requests.add(r)
	s.Changes.AllocationRequests = append(s.Changes.AllocationRequests, r)
	s.emitAllocationRequestEvent("allocation_change.requested", conn, r, nowUS)
	return Result{Connection: *conn, AllocationRequest: *r}, nil
}

func (c DecideAllocationRequest) addKeys(w *RowKeys) {
	w.AllocationRequests = append(w.AllocationRequests, c.RequestID)
	w.Disputes = true
}

func (c DecideAllocationRequest) apply(s *State, nowUS int64) (Result, error) {
	r := s.requests.byID[c.RequestID]
	if r == nil || s.Connections[r.ConnectionID] == nil || s.Connections[r.ConnectionID].AccountID != c.AccountID {
		return Result{}, apierr.NotFound.Errorf("no such allocation request")
	}
	conn := s.Connections[r.ConnectionID]
	if r.Status != RequestPending {
		return Result{Outcome: Done, Connection: *conn, AllocationRequest: *r}, nil
	}
	status := RequestDenied
	if c.Approve {
		status = RequestApproved
		if conn.Status == Revoked {
			return Result{},
				apierr.ConnectionRevoked.On(conn.ID, "This connection is revoked, so its spend cap can’t be raised.")
		}
		if r.TargetMC > conn.AllocationMC { // else the cap was raised before requests ended with that
			raise := ChangeCap{ConnectionID: conn.ID, TargetMC: r.TargetMC, MaxMC: c.MaxMC}
			if _, err := s.moveCap(raise, conn, nowUS); err != nil {
				return Result{}, err
			}
		}
	}
	s.decideRequest(conn, r, status, nowUS)
	return Result{Connection: *conn, AllocationRequest: *r}, nil
}

// approveMetRequest approves the pending request of a connection whose user has raised the cap
// to what the request asks for, or more.
func (s *State) approveMetRequest(conn *Connection, nowUS int64) {
	if r := s.requests.pending[conn.ID]; r != nil && r.TargetMC <= conn.AllocationMC {
		s.decideRequest(conn, r, RequestApproved, nowUS)
	}
}

// decideRequest ends a pending request, and reports it to the app.
func (s *State) decideRequest(conn *Connection, r *AllocationRequest, status AllocationRequestStatus, nowUS int64) {
	r.Status, r.DecidedUS = status, &nowUS
	delete(s.requests.pending, conn.ID)
	s.Changes.AllocationRequests = append(s.Changes.AllocationRequests, r)
	s.emitAllocationRequestEvent("allocation_change."+string(status), conn, r, nowUS)
}

// emitAllocationRequestEvent appends an event about an allocation request to the
// outbox.
func (s *State) emitAllocationRequestEvent(kind string, c *Connection, r *AllocationRequest, now int64) {
	c.EventSeq++
	s.appendEvent(kind, c, r.eventData(), now)
}

// notifyAllocationRequest queues a notice to the user that an app requests a higher
// allocation.
func (s *State) notifyAllocationRequest(c *Connection, r *AllocationRequest, now int64) {
	s.Changes.Notices = append(s.Changes.Notices, Notice{
		ID:           id.New(id.Notice, time.UnixMicro(now)),
		Kind:         NoticeAllocationRequest,
		AccountID:    c.AccountID,
		ConnectionID: c.ID,
		AppID:        c.AppID,
		Data:         r.eventData(),
		CreatedUS:    now,
	})
	s.Changes.MustSync = true
}

// eventData is the allocation request as events and notices carry it.
func (r *AllocationRequest) eventData() string {
	data, err := json.Marshal(map[string]any{"allocation_request": r.Resource()})
	if err != nil {
		panic("ledger: an allocation request is always JSON: " + err.Error())
	}
	return string(data)
}
