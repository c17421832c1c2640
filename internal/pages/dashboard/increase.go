package dashboard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Names of the form's fields.
const (
	fieldCap   = "spend_cap"
	fieldDaily = "daily_limit"
)

// A Form is the submitted form.
type Form struct{ Cap, Daily string }

// Limits are the amounts of the form.
type Limits struct {
	CapMC      money.MC
	VelocityMC *money.MC // spend per 24 hours; nil = no limit
}

// Parse reads the amounts, and returns a problem for each invalid field. A cap of zero is valid: it returns all unused
// money.
func (f Form) Parse() (t Limits, problems []ui.Problem) {
	var problem string
	if t.CapMC, problem = ui.ReadCap(f.Cap); problem != "" {
		problems = append(problems, ui.Problem{Field: fieldCap, Text: problem})
	}
	if t.VelocityMC, problem = ui.ReadDailyLimit(f.Daily); problem != "" {
		problems = append(problems, ui.Problem{Field: fieldDaily, Text: problem})
	}
	return t, problems
}

func increasePath(connectionID string) string { return "/connections/" + connectionID + "/increase" }

// showIncrease is GET /connections/{id}/increase.
func (h *Handler) showIncrease(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.increasePage(r, a)
	if err != nil {
		return err
	}
	page.Saved = r.URL.Query().Get("saved") != ""
	return ui.Render(w, http.StatusOK, page)
}

// saveLimits is POST /connections/{id}/increase. A lower cap takes effect immediately; it can't go below what is used
// and held (contract §2, 2).
func (h *Handler) saveLimits(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	connectionID := r.PathValue("id")
	v, err := h.loadVisit(r.Context(), a, connectionID, increasePath(connectionID))
	if err != nil {
		return err
	}
	body, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	form := Form{Cap: body.Get(fieldCap), Daily: body.Get(fieldDaily)}
	limits, problems := form.Parse()
	if len(problems) == 0 {
		err = h.changeLimits(r.Context(), v, limits)
		text := refusalText(err)
		if err == nil {
			return web.SeeOther(w, increasePath(v.conn.ID)+"?"+url.Values{"saved": {"1"}}.Encode())
		} else if text == "" {
			return err
		}
		problems = []ui.Problem{{Field: fieldCap, Text: text}}
	}
	page, err := h.increasePage(r, a)
	if err != nil {
		return err
	}
	page.SpendCap, page.DailyLimit, page.Errors = form.Cap, form.Daily, problems
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// changeLimits changes both limits, or none. It writes no ledger row for an unchanged cap.
func (h *Handler) changeLimits(ctx context.Context, v visit, limits Limits) error {
	return h.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if limits.CapMC != v.conn.AllocationMC {
			c := rules.ChangeCap{ConnectionID: v.conn.ID, TargetMC: limits.CapMC, MaxMC: v.policy().MaxCapMC}
			if _, err := h.Ledger.DoTx(ctx, tx, c); err != nil {
				return err
			}
		}
		_, err := h.Ledger.DoTx(ctx, tx, rules.SetVelocityLimit{ConnectionID: v.conn.ID, LimitMC: limits.VelocityMC})
		return err
	})
}

// increasePage builds the page from current data.
func (h *Handler) increasePage(r *http.Request, a accounts.Account) (ui.Increase, error) {
	connectionID := r.PathValue("id")
	v, err := h.loadVisit(r.Context(), a, connectionID, increasePath(connectionID))
	if err != nil {
		return ui.Increase{}, err
	}
	p := ui.Increase{
		Person:       v.Person,
		Funds:        v.funds(),
		ConnectionID: v.conn.ID,
		Available:    ui.Dollars(v.balance.AvailableMC),
		SpendCap:     ui.Typed(v.conn.AllocationMC),
		CapHint:      "In total, including what is already used.",
	}
	if least := v.conn.ConsumedMC + v.conn.HeldMC; least > 0 {
		p.CapHint += " It can’t go below what is used and held, " + ui.Dollars(least) + "."
	}
	if v.app.Tier == apps.LimitedLive {
		p.CapHint += " At most " + ui.Dollars(v.policy().MaxCapMC) + " while the app is new."
	}
	if v.conn.VelocityLimitMC != nil {
		p.DailyLimit = ui.Typed(*v.conn.VelocityLimitMC)
	}
	request, err := store.PendingRequestOfConnection(r.Context(), h.DB, v.conn.ID)
	if err == nil {
		p.Request, p.RequestTarget = request.ID, ui.Dollars(request.TargetMC)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return ui.Increase{}, fmt.Errorf("dashboard: allocation request: %w", err)
	}
	return p, nil
}
