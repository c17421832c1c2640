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

// loadRequest loads an allocation request and its connection.
func (h *Handler) loadRequest(ctx context.Context, a accounts.Account,
	requestID string) (rules.AllocationRequest, visit, error) {
	request, err := store.GetAllocationRequest(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return rules.AllocationRequest{}, visit{}, ui.NotFound()
	} else if err != nil {
		return rules.AllocationRequest{}, visit{}, fmt.Errorf("dashboard: allocation request: %w", err)
	}
	v, err := h.loadCapVisit(ctx, a, request.ConnectionID, requestPath(request.ID))
	return request, v, err
}

// leadToStanding redirects from a superseded request to the newest one of its connection that is not, by a single
// redirect however many there were in between (contract §3): browsers stop after 20. Without one it shows the page.
func (h *Handler) leadToStanding(w http.ResponseWriter, r *http.Request, v visit,
	superseded rules.AllocationRequest) error {
	standing, err := store.StandingRequestOfConnection(r.Context(), h.DB, superseded.ConnectionID)
	if errors.Is(err, sql.ErrNoRows) {
		return ui.Render(w, http.StatusOK, v.approvalPage(superseded))
	} else if err != nil {
		return fmt.Errorf("dashboard: standing allocation request: %w", err)
	}
	return web.SeeOther(w, requestPath(standing.ID))
}

// showRequest is GET /allocation-requests/{id}. A superseded request redirects to the newest one.
func (h *Handler) showRequest(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	request, v, err := h.loadRequest(r.Context(), a, r.PathValue("id"))
	if err != nil {
		return err
	}
	if request.Status == rules.RequestSuperseded {
		return h.leadToStanding(w, r, v, request)
	}
	return ui.Render(w, http.StatusOK, v.approvalPage(request))
}

// decideRequest is POST /allocation-requests/{id}: the user's answer.
func (h *Handler) decideRequest(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	request, v, err := h.loadRequest(r.Context(), a, r.PathValue("id"))
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
		RequestID: request.ID, AccountID: v.conn.AccountID, Approve: decision == "approve", MaxMC: v.policy().MaxCapMC,
	})
	switch text := refusalText(err); {
	case text != "": // it stays pending; show the current balance
		if request, v, err = h.loadRequest(r.Context(), a, request.ID); err != nil {
			return err
		}
		page := v.approvalPage(request)
		page.Errors = []ui.Problem{{Field: "decision", Text: text}}
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	case err != nil:
		return err
	case done.AllocationRequest.Status == rules.RequestSuperseded:
		return h.leadToStanding(w, r, v, done.AllocationRequest)
	case done.Outcome == rules.Done:
		page := v.approvalPage(done.AllocationRequest)
		page.Again = true
		return ui.Render(w, http.StatusOK, page)
	}
	return web.SeeOther(w, requestPath(request.ID))
}

// approvalPage returns the page of a request.
func (v visit) approvalPage(r rules.AllocationRequest) ui.Approval {
	p := ui.Approval{
		Person:       v.Person,
		Funds:        v.funds(),
		ConnectionID: v.conn.ID,
		Status:       string(r.Status),
		Reason:       r.Reason,
		Asked:        ui.Date(r.CreatedUS),
		From:         ui.Dollars(r.CurrentMC),
		Target:       ui.Dollars(r.TargetMC),
		Available:    ui.Dollars(v.balance.AvailableMC),
	}
	p.Change = v.capChange("With this request", r.TargetMC)
	if r.DecidedUS != nil {
		p.Decided = ui.Date(*r.DecidedUS)
	}
	if needs := r.TargetMC - v.conn.AllocationMC; needs > 0 {
		p.Needs, p.Left = ui.Dollars(needs), ui.Dollars(max(0, v.balance.AvailableMC-needs))
		if lacks := needs - v.balance.AvailableMC; lacks > 0 {
			p.Missing = ui.Dollars((lacks + money.Cent - 1) / money.Cent * money.Cent) // rounded up to cents
		}
	}
	return p
}

// capChange pictures the spend cap now, and with another cap, each with what is left of it pays for.
func (v visit) capChange(after string, targetMC money.MC) []ui.CapRow {
	now := ui.CapState{
		Name:       "Now",
		CapMC:      v.conn.AllocationMC,
		UsedMC:     v.conn.ConsumedMC,
		HeldMC:     v.conn.SetAsideMC(),
		ScaleMaxMC: max(v.conn.AllocationMC, targetMC),
	}
	then := now
	then.Name, then.CapMC = after, max(targetMC, now.UsedMC+now.HeldMC)
	rows := make([]ui.CapRow, 0, 2)
	for _, s := range []ui.CapState{now, then} {
		row := ui.NewCapRow(s)
		row.Buys = v.size.CountAnswers(s.CapMC - s.UsedMC - s.HeldMC)
		rows = append(rows, row)
	}
	return rows
}
