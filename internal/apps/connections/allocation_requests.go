package connections

import (
	"database/sql"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// maxReasonRunes bounds the reason, which the user reads before the decision.
const maxReasonRunes = 500

// allocationRequestBody is the body of POST /v1/connections/{id}/allocation-requests (contract §4.5).
type allocationRequestBody struct {
	TargetMC web.Field[money.MC] `json:"target_allocation_mc"`
	Reason   web.Field[string]   `json:"reason"`
}

func (a allocationRequestBody) validate() error {
	if !a.TargetMC.Set || a.TargetMC.Null {
		return apierr.InvalidRequest.Errorf("target_allocation_mc: required")
	}
	if a.Reason.Value == "" { // absent, null or empty
		return nil
	}
	return apps.CheckText("reason", a.Reason.Value, maxReasonRunes)
}

// createAllocationRequest creates a request for a higher allocation. Only the user can approve it, on the page of
// approval_url.
func (h *Handler) createAllocationRequest(w http.ResponseWriter, r *http.Request) error {
	app, c, err := h.requireAppAndConnection(r)
	if err != nil {
		return err
	}
	switch {
	case app.Suspended:
		return apierr.AppSuspended.On(c.ID,
			"the app is suspended, and cannot request more until the suspension is lifted")
	case c.Status == rules.Revoked: // also before the body is read (decision 008)
		return apierr.ConnectionRevoked.On(c.ID, "a revoked connection has no spend cap")
	}
	var a allocationRequestBody
	if err := web.ReadJSON(r, &a); err != nil {
		return err
	}
	if err := a.validate(); err != nil {
		return err
	}
	done, err := h.Ledger.Do(r.Context(), rules.RequestAllocation{
		RequestID:    id.New(id.AllocationRequest, h.DB.Now()),
		ConnectionID: c.ID,
		AppID:        app.ID,
		TargetMC:     a.TargetMC.Value,
		Reason:       a.Reason.Value,
		MaxMC:        tiers.PolicyOf(app.Tier).MaxCapMC,
	})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, h.resource(done.AllocationRequest))
}

func (h *Handler) listAllocationRequests(w http.ResponseWriter, r *http.Request) error {
	_, c, err := h.requireAppAndConnection(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, id.AllocationRequest)
	if err != nil {
		return err
	}
	list, err := store.AllocationRequestsOfConnection(r.Context(), h.DB, c.ID, page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	out := make([]rules.AllocationRequestResource, len(list))
	for i, one := range list {
		out[i] = h.resource(one)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) getAllocationRequest(w http.ResponseWriter, r *http.Request) error {
	_, c, err := h.requireAppAndConnection(r)
	if err != nil {
		return err
	}
	one, err := store.GetAllocationRequest(r.Context(), h.DB, r.PathValue("requestId"))
	if errors.Is(err, sql.ErrNoRows) || err == nil && one.ConnectionID != c.ID {
		return apierr.NotFound.Errorf("no such allocation request")
	} else if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, h.resource(one))
}

// resource returns a request with the URL of the page where the user decides.
func (h *Handler) resource(r rules.AllocationRequest) rules.AllocationRequestResource {
	out := r.Resource()
	out.ApprovalURL = h.Links.Approval(r.ID)
	return out
}
