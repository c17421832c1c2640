package console

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// isRefundable reports whether the app can refund a billed call, as far as its row says.
func (h requestPages) isRefundable(e *rules.Entry) bool {
	return e.ReversedBy == "" && e.PaidBy == rules.PaidByWallet && !e.IsWaived() &&
		h.Now().Sub(time.UnixMicro(e.CreatedUS)) <= rules.MaxRefundAge
}

// confirmRefund is GET /developer/apps/{id}/requests/{request}/refund.
func (h requestPages) confirmRefund(w http.ResponseWriter, r *http.Request, v visit) error {
	page, e, err := h.newRefundPage(r, v)
	if err != nil {
		return err
	}
	if !h.isRefundable(&e) {
		return web.SeeOther(w, page.Back.Href)
	}
	return ui.Render(w, http.StatusOK, page)
}

// newRefundPage returns the page that asks whether to refund a call, and the call's row.
func (h requestPages) newRefundPage(r *http.Request, v visit) (p ui.Confirm, e rules.Entry, err error) {
	requestID := r.PathValue("request")
	if !strings.HasPrefix(requestID, id.Request) {
		return p, e, ui.NotFound()
	}
	e, err = store.GetEntry(r.Context(), h.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
	if errors.Is(err, sql.ErrNoRows) || err == nil && (e.AppID != v.app.ID || e.Type != rules.EntrySpend ||
		e.ReversalOf != "") {
		return p, e, ui.NotFound()
	} else if err != nil {
		return p, e, fmt.Errorf("console: refund: %w", err)
	}
	lead := fmt.Sprintf("The user gets %s back, and you pay it: from the margin that the app has earned, and then "+
		"from the developer’s balance. This can’t be undone.", ui.Exact(e.UserChargeMC))
	if v.app.Tier == "sandbox" {
		lead = fmt.Sprintf("The test account gets %s back. No real money moves.", ui.Exact(e.UserChargeMC))
	}
	return ui.Confirm{
		Console: v.newPage(r, "Refund this call?", "/requests"),
		Lead:    lead,
		Facts:   append([]ui.Fact{{Name: "Request", Value: requestID}}, amountFacts(&e)...),
		Action:  v.path("/requests/" + requestID + "/refund"),
		Button:  "Refund " + ui.Exact(e.UserChargeMC),
		Back:    ui.Link{Href: v.path("/requests/" + requestID), Text: "Cancel"},
	}, e, nil
}

// refund is POST /developer/apps/{id}/requests/{request}/refund.
func (h requestPages) refund(w http.ResponseWriter, r *http.Request, v visit) error {
	page, e, err := h.newRefundPage(r, v)
	if err != nil {
		return err
	}
	_, err = h.Refunds.Refund(r.Context(), &v.app, e.RequestID(), receipts.DefaultRefundReason)
	if refused, ok := errors.AsType[*apierr.Error](err); ok && refused.Code == apierr.InvalidRequest {
		page.Errors = []ui.Problem{{Field: "form", Text: ui.EndSentence(ui.Sentence(refused.Message))}}
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	} else if err != nil {
		return err
	}
	return web.SeeOther(w, page.Back.Href)
}
