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

// A Form is the submitted form. What was not typed in it is not changed.
type Form struct {
	Cap, Daily       string
	HasCap, HasDaily bool // it was typed
}

// readForm reads the submitted form, or the query of a preview.
func readForm(form url.Values) Form {
	typed := ui.TypedFields(form)
	return Form{
		Cap:      typed.Get(fieldCap),
		Daily:    typed.Get(fieldDaily),
		HasCap:   typed.Has(fieldCap),
		HasDaily: typed.Has(fieldDaily),
	}
}

// Limits are the amounts of the form.
type Limits struct {
	CapMC      money.MC
	VelocityMC *money.MC // spend per 24 hours; nil = no limit
}

// Parse reads the amounts that were typed, and returns a problem for each invalid field. The others are those of now. A
// cap of zero is valid: it returns all unused money.
func (f Form) Parse(now Limits) (t Limits, problems []ui.Problem) {
	t = now
	var problem string
	if f.HasCap {
		if t.CapMC, problem = ui.ReadCap(f.Cap); problem != "" {
			problems = append(problems, ui.Problem{Field: fieldCap, Text: problem})
		}
	}
	if f.HasDaily {
		if t.VelocityMC, problem = ui.ReadDailyLimit(f.Daily); problem != "" {
			problems = append(problems, ui.Problem{Field: fieldDaily, Text: problem})
		}
	}
	return t, problems
}

func increasePath(connectionID string) string { return "/connections/" + connectionID + "/increase" }

// capSteps are the amounts by which the page offers to raise a cap.
var capSteps = []money.MC{5 * money.Dollar, 10 * money.Dollar, 25 * money.Dollar}

// showIncrease is GET /connections/{id}/increase. With amounts in the query it shows what they would change.
func (h *Handler) showIncrease(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	var form *Form // nil = no preview
	if q := r.URL.Query(); q.Has(fieldCap) {
		typed := readForm(q)
		form = &typed
	}
	page, err := h.increasePage(r, a, form)
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
	form := readForm(body)
	limits, problems := form.Parse(v.limits())
	if len(problems) == 0 {
		err = h.changeLimits(r.Context(), v, form, limits)
		text := refusalText(err)
		if err == nil {
			return web.SeeOther(w, increasePath(v.conn.ID)+"?"+url.Values{"saved": {"1"}}.Encode())
		} else if text == "" {
			return err
		}
		problems = []ui.Problem{{Field: fieldCap, Text: text}}
	}
	page, err := h.increasePage(r, a, &form)
	if err != nil {
		return err
	}
	page.Errors = problems
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// limits are those of the connection.
func (v visit) limits() Limits { return Limits{v.conn.AllocationMC, v.conn.VelocityLimitMC} }

// changeLimits changes the limits that were typed, or none. It writes no ledger row for an unchanged cap.
func (h *Handler) changeLimits(ctx context.Context, v visit, form Form, limits Limits) error {
	return h.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if form.HasCap && limits.CapMC != v.conn.AllocationMC {
			c := rules.ChangeCap{ConnectionID: v.conn.ID, TargetMC: limits.CapMC, MaxMC: v.policy().MaxCapMC}
			if _, err := h.Ledger.DoTx(ctx, tx, c); err != nil {
				return err
			}
		}
		if !form.HasDaily {
			return nil
		}
		_, err := h.Ledger.DoTx(ctx, tx, rules.SetVelocityLimit{ConnectionID: v.conn.ID, LimitMC: limits.VelocityMC})
		return err
	})
}

// offeredCaps returns links that preview other caps: what is used, and the current cap raised as far as the balance and
// the tier allow.
func (v visit) offeredCaps() (caps []ui.Tab) {
	link := func(text string, capMC money.MC) {
		query := url.Values{fieldCap: {ui.Typed(capMC)}}
		caps = append(caps, ui.Tab{Text: text, Href: increasePath(v.conn.ID) + "?" + query.Encode()})
	}
	if least := v.leastCap(); least < v.conn.AllocationMC {
		link("Only what is used", least)
	}
	for _, step := range capSteps {
		if capMC := v.conn.AllocationMC + step; step <= v.balance.AvailableMC && capMC <= v.policy().MaxCapMC {
			link(ui.Dollars(capMC), capMC)
		}
	}
	return caps
}

// leastCap returns the lowest cap: what is used and held, rounded up to the cent and at most the current cap.
func (v visit) leastCap() money.MC {
	least := (v.conn.CommittedMC() + money.Cent - 1) / money.Cent * money.Cent
	return min(least, v.conn.AllocationMC)
}

// fillPreview shows what saving the form would change.
func (v visit) fillPreview(p *ui.Increase, form Form) {
	if form.HasCap {
		p.SpendCap = form.Cap
	}
	if form.HasDaily {
		p.DailyLimit = form.Daily
	}
	limits, problems := form.Parse(v.limits())
	if len(problems) == 0 && limits.CapMC > max(v.policy().MaxCapMC, v.conn.AllocationMC) {
		problems = []ui.Problem{{
			Field: fieldCap,
			Text:  "The cap can be at most " + ui.Dollars(v.policy().MaxCapMC) + ".",
		}}
	}
	if p.Errors = problems; len(problems) > 0 {
		return
	}
	for i := range p.Caps {
		p.Caps[i].Current = p.Caps[i].Href == increasePath(v.conn.ID)+"?"+url.Values{fieldCap: {p.SpendCap}}.Encode()
	}
	limits.CapMC = max(limits.CapMC, v.conn.CommittedMC()) // as rules.ChangeCap does
	p.Change = v.capChange("After saving", limits.CapMC)
	delta := limits.CapMC - v.conn.AllocationMC
	if lacks := delta - v.balance.AvailableMC; delta > 0 && lacks > 0 {
		p.Missing = ui.Dollars((lacks + money.Cent - 1) / money.Cent * money.Cent) // rounded up to cents
		return
	}
	p.Preview = []ui.Difference{
		{Name: "Ready to use", Before: p.Available, After: ui.Dollars(v.balance.AvailableMC - delta)},
	}
	if before, after := describeLimit(v.conn.VelocityLimitMC), describeLimit(limits.VelocityMC); before != after {
		p.Preview = append(p.Preview, ui.Difference{Name: "Daily limit", Before: before, After: after})
	}
}

// describeLimit writes a daily limit.
func describeLimit(limitMC *money.MC) string {
	if limitMC == nil {
		return "None"
	}
	return ui.Dollars(*limitMC)
}

// increasePage builds the page from current data. With a form it holds the form's amounts and what they would change.
func (h *Handler) increasePage(r *http.Request, a accounts.Account, form *Form) (ui.Increase, error) {
	connectionID := r.PathValue("id")
	v, err := h.loadCapVisit(r.Context(), a, connectionID, increasePath(connectionID))
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
		Caps:         v.offeredCaps(),
		Change:       v.capChange("", v.conn.AllocationMC)[:1],
	}
	if least := v.leastCap(); least > 0 {
		p.CapHint += " It can’t go below what is used and held, " + ui.Dollars(least) + "."
	}
	if v.app.Tier == apps.LimitedLive {
		p.CapHint += " At most " + ui.Dollars(v.policy().MaxCapMC) + " while the app is new."
	}
	if v.conn.VelocityLimitMC != nil {
		p.DailyLimit = ui.Typed(*v.conn.VelocityLimitMC)
	}
	p.Shown = ui.ShownFields([]ui.Field{{ID: fieldCap, Value: p.SpendCap}, {ID: fieldDaily, Value: p.DailyLimit}})
	if form != nil {
		v.fillPreview(&p, *form)
	}
	request, err := store.PendingRequestOfConnection(r.Context(), h.DB, v.conn.ID)
	if err == nil {
		p.Request, p.RequestTarget = request.ID, ui.Dollars(request.TargetMC)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return ui.Increase{}, fmt.Errorf("dashboard: allocation request: %w", err)
	}
	return p, nil
}
