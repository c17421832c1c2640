package console

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// requestsPerPage is the number of calls on a page of the request log.
const requestsPerPage = 50

// requestPages show the request log and the receipts of an app.
type requestPages struct {
	DB *db.DB
}

func (h requestPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/requests", access.requireApp(apps.View, h.showRequests))
	rt.HandlePage("GET "+appPath+"/requests/{request}", access.requireApp(apps.View, h.showRequest))
}

// showRequests is GET /developer/apps/{id}/requests: billed calls, or refused ones,
// older than the id in the query.
func (h requestPages) showRequests(w http.ResponseWriter, r *http.Request, v visit) error {
	q := r.URL.Query()
	page := ui.RequestLog{Console: v.newPage(r, "Requests", "/requests"), Refused: q.Get("show") == "refused"}
	page.Kinds = []ui.Tab{
		{Href: v.path("/requests"), Text: "Billed", Current: !page.Refused},
		{Href: v.path("/requests?show=refused"), Text: "Refused", Current: page.Refused},
	}
	before := q.Get("before")
	if !strings.HasPrefix(before, id.Request) {
		before = "" // no link of these pages
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
	if len(page.List) > requestsPerPage {
		page.List = page.List[:requestsPerPage]
		page.Older = older + page.List[requestsPerPage-1].ID
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h requestPages) billedCalls(r *http.Request, v visit, before string) (list []ui.LoggedCall, err error) {
	if before != "" {
		before = id.ReplacePrefix(before, id.Request, id.Ledger)
	}
	rows, err := store.EntriesOfApp(r.Context(), h.DB, v.app.ID, before, requestsPerPage+1)
	for _, e := range rows {
		c := ui.LoggedCall{
			ID:         id.ReplacePrefix(e.ID, id.Ledger, id.Request),
			When:       timestamp.Format(e.CreatedUS),
			Shown:      formatTime(e.CreatedUS),
			Model:      e.Model,
			Feature:    describeFeature(e),
			Connection: e.ConnectionID,
			Charge:     ui.Price(e.UserChargeMC),
			Margin:     ui.Price(e.DevMarginMC),
		}
		switch {
		case e.ReversalOf != "": // so that the columns add up to what was paid
			c.State, c.Charge, c.Margin = "refund", ui.Price(-e.UserChargeMC), ui.Price(-e.DevMarginMC)
		case e.ReversedBy != "":
			c.State = "refunded"
		case e.PaidBy == rules.PaidByFreeCredit:
			c.State = "free credit"
		case e.Settlement == rules.Estimated:
			c.State = "estimated"
		}
		list = append(list, c)
	}
	return list, err
}

func describeFeature(e rules.Entry) string {
	if e.Feature != "" && e.FeatureLabel != e.Feature {
		return e.Feature + " (not registered)"
	}
	return e.Feature
}

func (h requestPages) refusedCalls(r *http.Request, v visit, before string) (list []ui.LoggedCall, err error) {
	rows, err := store.RefusalsOfApp(r.Context(), h.DB, v.app.ID, before, requestsPerPage+1)
	for _, f := range rows {
		list = append(list, ui.LoggedCall{
			ID:         f.RequestID,
			When:       timestamp.Format(f.CreatedUS),
			Shown:      formatTime(f.CreatedUS),
			Model:      f.Model,
			Feature:    f.Feature,
			Connection: f.ConnectionID,
			Code:       f.Code,
		})
	}
	return list, err
}

// showRequest is GET /developer/apps/{id}/requests/{request}: the receipt of one call. It does not show
// the user: apps know connections, not accounts.
func (h requestPages) showRequest(w http.ResponseWriter, r *http.Request, v visit) error {
	requestID, page := r.PathValue("request"), v.newPage(r, "Receipt", "/requests")
	if !strings.HasPrefix(requestID, id.Request) {
		return ui.NotFound()
	}
	e, err := store.GetEntry(r.Context(), h.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
	if err == nil && e.AppID == v.app.ID && e.ReversalOf != "" {
		return ui.Render(w, http.StatusOK, refundPage(page, requestID, &e))
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("console: refund: %w", err)
	}
	found, appID, err := receipts.Find(r.Context(), h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && appID != v.app.ID {
		return ui.NotFound()
	} else if err != nil {
		return fmt.Errorf("console: receipt: %w", err)
	}
	switch {
	case found.Charge != nil:
		return ui.Render(w, http.StatusOK, billedPage(page, found, &e))
	case found.Error != nil:
		return ui.Render(w, http.StatusOK, refusalPage(page, found))
	}
	return ui.Render(w, http.StatusOK, ui.CallPage{
		Console: page,
		ID:      requestID,
		Says:    found.Explanation,
		Facts:   callFacts(found),
	})
}

// billedPage explains a charge, token class by token class at its unit price.
func billedPage(c ui.Console, found *receipts.Receipt, e *rules.Entry) ui.CallPage {
	p := ui.CallPage{Console: c, ID: found.ID}
	how := "from the usage reported by the provider, at the prices in effect when it started"
	if e.Settlement == rules.Estimated {
		how = "estimated and rounded down, because the provider reported no usage"
	}
	p.Says = fmt.Sprintf("The user was charged %s for this call, %s.", e.UserChargeMC.Display(), how)
	if e.PaidBy == rules.PaidByFreeCredit {
		p.Says += " It was paid by free credit."
	}
	for _, l := range found.Lines {
		p.Lines = append(p.Lines, ui.TokenLine(l.Class, l.Tokens, l.UnitPriceUSDPer1M, l.CostMC))
	}
	if e.ReversedBy != "" {
		p.Badge = "Refunded"
		p.Says += fmt.Sprintf(" %s of it was refunded later, and your margin on it was reversed.",
			e.RefundedMC().Display())
		p.Links = []ui.Link{{Href: callPath(c, e.ReversedBy), Text: "View refund"}}
	}
	p.Money = amountFacts(e)
	p.Facts = append(callFacts(found), ui.Fact{Name: "Idempotency key", Value: orNone(e.Key)},
		ui.Fact{Name: "Authorized", Value: e.HoldMC.Display()},
		ui.Fact{Name: "Remaining spend cap", Value: e.RemainingMC.Display()})
	if found.PriceVersion != nil {
		p.Facts = append(p.Facts, ui.Fact{Name: "Prices", Value: *found.PriceVersion})
	}
	var usage struct {
		Details struct {
			Reasoning int64 `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	if err := json.Unmarshal(found.Usage, &usage); err == nil && usage.Details.Reasoning > 0 {
		p.Facts = append(p.Facts,
			ui.Fact{Name: "Reasoning tokens in the output", Value: ui.Count(usage.Details.Reasoning) + " tokens"})
	}
	return p
}

// amountFacts returns the parts of a charge, or of its refund, which takes them back.
func amountFacts(e *rules.Entry) []ui.Fact {
	show := func(mc money.MC) string {
		if e.ReversalOf != "" {
			mc = -mc
		}
		if mc < 0 {
			return "−" + (-mc).Display()
		}
		return mc.Display()
	}
	return []ui.Fact{
		{Name: "Provider cost", Value: show(e.ProviderCostMC)},
		{Name: "Service fee", Value: show(e.SvcFeeMC)},
		{Name: "Your margin", Value: show(e.DevMarginMC)},
		{Name: "Charge", Value: show(e.UserChargeMC)},
	}
}

// callPath returns the address of the receipt of a ledger row.
func callPath(c ui.Console, entryID string) string {
	return "/developer/apps/" + c.App.ID + "/requests/" + id.ReplacePrefix(entryID, id.Ledger, id.Request)
}

// refundPage explains the reversal of a charge.
func refundPage(c ui.Console, requestID string, e *rules.Entry) ui.CallPage {
	return ui.CallPage{
		Console: c,
		ID:      requestID,
		Badge:   "Refund",
		Says:    "This is the refund of an earlier call. Your margin on it was reversed.",
		Links:   []ui.Link{{Href: callPath(c, e.ReversalOf), Text: "View refunded call"}},
		Money:   amountFacts(e),
		Facts: []ui.Fact{
			{Name: "Request", Value: requestID}, {Name: "When", Value: ui.Date(e.CreatedUS)},
			{Name: "Model", Value: e.Model}, {Name: "Feature", Value: orNone(describeFeature(*e))},
			{Name: "Connection", Value: e.ConnectionID},
			{Name: "Refund of", Value: id.ReplacePrefix(e.ReversalOf, id.Ledger, id.Request)},
			{Name: "Reason", Value: orNone(e.Reason)},
		},
	}
}

// refusalPage explains why a call was refused.
func refusalPage(c ui.Console, found *receipts.Receipt) ui.CallPage {
	p := ui.CallPage{
		Console: c,
		ID:      found.ID,
		Says:    "The call was refused, and nothing was billed: " + ui.EndSentence(found.Error.Message),
	}
	p.Facts = append([]ui.Fact{{Name: "Code", Value: fmt.Sprintf("%d %s", found.Error.Status, found.Error.Code)}},
		callFacts(found)...)
	if details := string(found.Error.Details); details != "" && details != "{}" {
		p.JSON = indentJSON(found.Error.Details)
	}
	return p
}

// callFacts returns the details that every call has, whatever its outcome.
func callFacts(found *receipts.Receipt) []ui.Fact {
	orAbsent := func(s *string) string {
		if s == nil {
			return "none"
		}
		return orNone(*s)
	}
	when := found.CreatedAt
	if at, err := time.Parse(time.RFC3339, when); err == nil {
		when = ui.Date(at.UnixMicro())
	}
	return []ui.Fact{
		{Name: "Request", Value: found.ID}, {Name: "When", Value: when}, {Name: "Model", Value: orAbsent(found.Model)},
		{Name: "Feature", Value: orAbsent(found.Feature)},
		{Name: "Connection", Value: orNone(found.ConnectionID)},
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
