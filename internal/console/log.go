package console

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"purser/internal/id"
	"purser/internal/ledger"
	"purser/internal/ui"
)

// logged is how many calls a page of the request log has.
const logged = 50

// requests is GET /developer/apps/{id}/requests: billed calls, or refused ones.
// A page begins behind the last id of the one before it.
func (h *Handler) requests(w http.ResponseWriter, r *http.Request, v visit) error {
	q := r.URL.Query()
	page := ui.RequestLog{Console: v.page(r, "Requests", "/requests"), Refused: q.Get("show") == "refused"}
	page.Kinds = []ui.Tab{
		{Href: v.path("/requests"), Text: "Billed", Current: !page.Refused},
		{Href: v.path("/requests?show=refused"), Text: "Refused", Current: page.Refused},
	}
	before := q.Get("before")
	if !strings.HasPrefix(before, id.Request) {
		before = "" // nobody's link of ours
	}
	var err error
	older := v.path("/requests?before=")
	if page.Refused {
		older = v.path("/requests?show=refused&before=")
		page.List, err = h.refusedCalls(r, v, before)
	} else {
		page.List, err = h.billedCalls(r, v, before)
	}
	if err != nil {
		return fmt.Errorf("console: requests: %w", err)
	}
	if len(page.List) > logged {
		page.List = page.List[:logged]
		page.Older = older + page.List[logged-1].ID
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h *Handler) billedCalls(r *http.Request, v visit, before string) (list []ui.LoggedCall, err error) {
	if before != "" {
		before = id.Swap(before, id.Request, id.Ledger)
	}
	rows, err := ledger.EntriesOfApp(r.Context(), h.DB, v.app.ID, before, logged+1)
	for _, e := range rows {
		c := ui.LoggedCall{
			ID: id.Swap(e.ID, id.Ledger, id.Request), When: ledger.Timestamp(e.CreatedUS), Shown: short(e.CreatedUS), Model: e.Model, Feature: shownFeature(e),
			Connection: e.ConnectionID, Charge: ui.Dollars(e.UserChargeMC), Margin: ui.Dollars(e.DevMarginMC),
		}
		switch {
		case e.ReversalOf != "":
			c.State = "refund"
		case e.PaidBy == ledger.FreeCredit:
			c.State = "free credit"
		case e.Settlement == ledger.Estimated:
			c.State = "estimated"
		}
		list = append(list, c)
	}
	return list, err
}

func shownFeature(e ledger.Entry) string {
	if e.Feature != "" && e.Bucket != e.Feature {
		return e.Feature + " (not registered)"
	}
	return e.Feature
}

func (h *Handler) refusedCalls(r *http.Request, v visit, before string) (list []ui.LoggedCall, err error) {
	rows, err := ledger.RefusalsOfApp(r.Context(), h.DB, v.app.ID, before, logged+1)
	for _, f := range rows {
		list = append(list, ui.LoggedCall{ID: f.RequestID, When: ledger.Timestamp(f.CreatedUS), Shown: short(f.CreatedUS), Model: f.Model, Feature: f.Feature, Connection: f.ConnectionID, Code: f.Code})
	}
	return list, err
}

// request is GET /developer/apps/{id}/requests/{request}: one call in words and
// numbers. Who paid it is not told: an app knows connections, not people.
func (h *Handler) request(w http.ResponseWriter, r *http.Request, v visit) error {
	requestID := r.PathValue("request")
	if !strings.HasPrefix(requestID, id.Request) {
		return missing()
	}
	e, err := ledger.GetEntry(r.Context(), h.DB, id.Swap(requestID, id.Request, id.Ledger))
	if err == nil && e.AppID == v.app.ID && e.Type == ledger.Spend {
		return ui.Render(w, http.StatusOK, billed(v.page(r, "Receipt", "/requests"), requestID, e))
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("console: receipt: %w", err)
	}
	f, err := ledger.GetRefusal(r.Context(), h.DB, requestID)
	if err == nil && f.AppID != v.app.ID {
		err = sql.ErrNoRows
	}
	if err != nil {
		return gone(err)
	}
	return ui.Render(w, http.StatusOK, refusal(v.page(r, "Receipt", "/requests"), f))
}

// billed explains a charge or its refund.
func billed(c ui.Console, requestID string, e ledger.Entry) ui.CallPage {
	p := ui.CallPage{Console: c, ID: requestID}
	how := "from the usage that the provider reported"
	if e.Settlement == ledger.Estimated {
		how = "from our own count, rounded down, because the provider reported none"
	}
	p.Says = fmt.Sprintf("The user was charged %s for this call, %s.", e.UserChargeMC.Display(), how)
	if e.ReversalOf != "" {
		p.Says = "This is the refund of an earlier call, and what it takes back from your margin."
	}
	p.Money = []ui.Fact{
		{Name: "Provider’s cost", Value: e.ProviderCostMC.Display()}, {Name: "Service fee", Value: e.SvcFeeMC.Display()}, {Name: "Your margin", Value: e.DevMarginMC.Display()},
		{Name: "The user’s charge", Value: e.UserChargeMC.Display()},
	}
	p.Facts = []ui.Fact{
		{Name: "Request", Value: requestID}, {Name: "When", Value: date(e.CreatedUS)}, {Name: "Model", Value: e.Model}, {Name: "Feature", Value: orNone(shownFeature(e))},
		{Name: "Connection", Value: e.ConnectionID}, {Name: "Idempotency key", Value: orNone(e.Key)}, {Name: "Held before it ran", Value: e.HoldMC.Display()},
		{Name: "Left of the cap after it", Value: e.RemainingMC.Display()},
	}
	if e.ReversalOf != "" {
		p.Facts = append(p.Facts, ui.Fact{Name: "Refund of", Value: id.Swap(e.ReversalOf, id.Ledger, id.Request)}, ui.Fact{Name: "Reason", Value: orNone(e.Reason)})
	}
	var usage struct {
		Input, Cached, Output, Reasoning int64
		CacheWrite                       int64 `json:"cache_write"`
	}
	if err := json.Unmarshal([]byte(e.Usage), &usage); err == nil {
		for _, u := range []struct {
			name string
			n    int64
		}{{"Input", usage.Input}, {"Cached input", usage.Cached}, {"Written to the cache", usage.CacheWrite}, {"Output", usage.Output}, {"Of the output, reasoning", usage.Reasoning}} {
			if u.n > 0 {
				p.Usage = append(p.Usage, ui.Fact{Name: u.name, Value: count(u.n)})
			}
		}
	}
	return p
}

// refusal explains why a call was refused.
func refusal(c ui.Console, f ledger.Refusal) ui.CallPage {
	p := ui.CallPage{Console: c, ID: f.RequestID, Says: "The call was refused, and nothing was billed: " + ended(f.Message)}
	p.Facts = []ui.Fact{
		{Name: "Code", Value: fmt.Sprintf("%d %s", f.Status, f.Code)}, {Name: "Request", Value: f.RequestID}, {Name: "When", Value: date(f.CreatedUS)}, {Name: "Model", Value: orNone(f.Model)},
		{Name: "Feature", Value: orNone(f.Feature)}, {Name: "Connection", Value: orNone(f.ConnectionID)},
	}
	if f.Details != "" && f.Details != "{}" {
		p.JSON = indented([]byte(f.Details))
	}
	return p
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
