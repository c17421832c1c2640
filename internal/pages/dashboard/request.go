package dashboard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

func requestPath(requestID string) string { return "/allocation-requests/" + requestID }

// asked returns an allocation request and the connection that it is about.
func (h *Handler) asked(ctx context.Context, a accounts.Account,
	requestID string) (rules.AllocationRequest, visit, error) {
	raise, err := store.GetAllocationRequest(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return rules.AllocationRequest{}, visit{}, ui.NotFound()
	} else if err != nil {
		return rules.AllocationRequest{}, visit{}, fmt.Errorf("dashboard: allocation request: %w", err)
	}
	v, err := h.visit(ctx, a, raise.ConnectionID, requestPath(raise.ID))
	return raise, v, err
}

// request is GET /allocation-requests/{id}. A superseded one leads to the newer.
func (h *Handler) request(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	raise, v, err := h.asked(r.Context(), a, r.PathValue("id"))
	if err != nil {
		return err
	}
	if raise.Status == rules.RequestSuperseded {
		return web.SeeOther(w, requestPath(raise.SupersededBy))
	}
	return ui.Render(w, http.StatusOK, v.approval(raise))
}

// decide is POST /allocation-requests/{id}: the user's answer.
func (h *Handler) decide(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	raise, v, err := h.asked(r.Context(), a, r.PathValue("id"))
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	decision := form.Get("decision")
	if decision != "approve" && decision != "deny" {
		return apierr.InvalidRequest.Errorf("decision: must be approve or deny")
	}
	done, err := h.Ledger.Do(r.Context(), rules.DecideAllocationRequest{
		RequestID: raise.ID, AccountID: v.conn.AccountID, Approve: decision == "approve", MaxMC: v.terms().MaxCapMC,
	})
	switch text := told(err); {
	case text != "": // it stays pending; the page shows the balance of now
		if raise, v, err = h.asked(r.Context(), a, raise.ID); err != nil {
			return err
		}
		page := v.approval(raise)
		page.Errors = []ui.Problem{{Field: "decision", Text: text}}
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	case err != nil:
		return err
	case done.AllocationRequest.Status == rules.RequestSuperseded:
		return web.SeeOther(w, requestPath(done.AllocationRequest.SupersededBy))
	case done.Outcome == rules.Done:
		page := v.approval(done.AllocationRequest)
		page.Again = true
		return ui.Render(w, http.StatusOK, page)
	}
	return web.SeeOther(w, requestPath(raise.ID))
}

// approval is the page of a request.
func (v visit) approval(r rules.AllocationRequest) ui.Approval {
	p := ui.Approval{
		Person:       v.Person,
		Funds:        funds(v.conn, v.app),
		ConnectionID: v.conn.ID,
		Status:       string(r.Status),
		Reason:       r.Reason,
		Asked:        ui.Date(r.CreatedUS),
		From:         ui.Dollars(r.CurrentMC),
		Target:       ui.Dollars(r.TargetMC),
		Available:    ui.Dollars(v.balance.AvailableMC),
	}
	if r.DecidedUS != nil {
		p.Decided = ui.Date(*r.DecidedUS)
	}
	if needs := r.TargetMC - v.conn.AllocationMC; needs > 0 {
		p.Needs, p.Left = ui.Dollars(needs), ui.Dollars(max(0, v.balance.AvailableMC-needs))
		if lacks := needs - v.balance.AvailableMC; lacks > 0 {
			p.Missing = ui.Dollars((lacks + money.Cent - 1) / money.Cent * money.Cent) // less would not do
		}
	}
	return p
}
