package receipts

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// LoggedRequest is a row of an app's request log: a billed call, its refund, or a refused call.
type LoggedRequest struct {
	ID                string   `json:"id"`
	Object            string   `json:"object"`
	Status            string   `json:"status"`      // settled, estimated, refund or refused
	HTTPStatus        *int     `json:"http_status"` // null for a refund
	Code              *string  `json:"code"`        // of a refusal
	Message           *string  `json:"message"`
	ConnectionID      string   `json:"connection_id"`
	CreatedAt         string   `json:"created_at"`
	Model             *string  `json:"model"`
	Feature           *string  `json:"feature"`
	ProviderCostMC    money.MC `json:"provider_cost_mc"` // amounts of a refund are negative
	SvcFeeMC          money.MC `json:"svc_fee_mc"`
	DevMarginMC       money.MC `json:"dev_margin_mc"`
	UserChargeMC      money.MC `json:"user_charge_mc"`
	UserChargeDisplay string   `json:"user_charge_display"`
	PaidBy            *string  `json:"paid_by"`
	InputTokens       *int64   `json:"input_tokens"` // null for a refund and a refused call
	OutputTokens      *int64   `json:"output_tokens"`
	Delivery
	RefundOf   *string `json:"refund_of"`   // the request whose charge the refund reverses
	RefundedBy *string `json:"refunded_by"` // the refund in this list
}

// refund is the status of a row that reverses a charge.
const refund = "refund"

// scanLimit is the number of billed calls, and of refused ones, that a page with filters reads at most. A page
// may be shorter than its limit for that, and still have a next one.
const scanLimit = 1000

// requestFilter chooses rows of the request log. The zero value chooses all.
type requestFilter struct {
	statusFrom, statusTo int // HTTP statuses, both included; 0, 0 = any
	model                string
	feature              string
	connection           string
	since                time.Time
}

// readFilter reads the filters of the query. Errors are 400 invalid_request.
func readFilter(r *http.Request) (f requestFilter, err error) {
	q, err := web.ReadQuery(r)
	if err != nil {
		return f, err
	}
	f = requestFilter{model: q.Get("model"), feature: q.Get("feature"), connection: q.Get("connection")}
	if q.Has("status") {
		if f.statusFrom, f.statusTo, err = parseStatus(q.Get("status")); err != nil {
			return f, err
		}
	}
	if q.Has("since") {
		if f.since, err = time.Parse(time.RFC3339, q.Get("since")); err != nil {
			return f, apierr.InvalidRequest.Errorf("since: must be a time such as 2026-11-21T10:15:00Z")
		}
	}
	return f, nil
}

// parseStatus reads an HTTP status, such as 402, or a class of them, such as 4xx.
func parseStatus(text string) (from, to int, err error) {
	digits, isClass := strings.CutSuffix(text, "xx")
	n, err := strconv.Atoi(digits)
	switch {
	case err == nil && isClass && n >= 1 && n <= 5:
		return n * 100, n*100 + 99, nil
	case err == nil && !isClass && n >= 100 && n <= 599:
		return n, n, nil
	}
	return 0, 0, apierr.InvalidRequest.Errorf("status: must be an HTTP status such as 402, or a class such as 4xx")
}

// choosesAll reports whether a page needs no rows but its own.
func (f requestFilter) choosesAll() bool {
	return f.statusTo == 0 && f.model == "" && f.feature == "" && f.connection == ""
}

func (f requestFilter) chooses(l *LoggedRequest) bool {
	hasStatus := f.statusTo == 0 || l.HTTPStatus != nil && *l.HTTPStatus >= f.statusFrom && *l.HTTPStatus <= f.statusTo
	return hasStatus && equals(l.Model, f.model) && equals(l.Feature, f.feature) &&
		(f.connection == "" || l.ConnectionID == f.connection)
}

// equals reports whether a member has the wanted value; "" = any.
func equals(member *string, want string) bool { return want == "" || member != nil && *member == want }

// listRequests answers GET /v1/apps/{id}/requests: what the console's request log shows, newest first.
func (h *Handler) listRequests(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.RequireOwn(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r)
	if err != nil {
		return err
	}
	if page.StartingAfter != "" && !strings.HasPrefix(page.StartingAfter, id.Request) {
		return apierr.InvalidRequest.Errorf("starting_after: must be the id of a row of this list")
	}
	f, err := readFilter(r)
	if err != nil {
		return err
	}
	list, next, err := logOfApp(r.Context(), h.DB, app.ID, page, f)
	if err != nil {
		return err
	}
	if next != "" {
		web.LinkNext(w, r, next)
	}
	return web.WriteJSON(w, http.StatusOK, list)
}

// logOfApp returns a page of an app's request log, and the id after which the next page begins; "" = there is none.
func logOfApp(ctx context.Context, q db.Queryer, appID string, page web.Page, f requestFilter) (list []LoggedRequest,
	next string, err error) {
	limit := scanLimit
	if f.choosesAll() {
		limit = page.Limit + 1
	}
	before := page.StartingAfter
	if before != "" {
		before = id.ReplacePrefix(before, id.Request, id.Ledger)
	}
	billed, err := store.EntriesOfApp(ctx, q, appID, before, limit)
	if err != nil {
		return nil, "", err
	}
	refused, err := store.RefusalsOfApp(ctx, q, appID, page.StartingAfter, limit)
	if err != nil {
		return nil, "", err
	}
	all := mergeLog(billed, refused, limit)
	isCut := len(billed) == limit || len(refused) == limit
	oldest := ""
	if !f.since.IsZero() {
		oldest = id.Floor(id.Request, f.since)
	}
	list = []LoggedRequest{}
	for i := range all {
		if all[i].ID < oldest {
			return list, "", nil
		}
		if !f.chooses(&all[i]) {
			continue
		}
		if len(list) == page.Limit {
			return list, list[len(list)-1].ID, nil
		}
		list = append(list, all[i])
	}
	if isCut {
		next = all[len(all)-1].ID
	}
	return list, next, nil
}

// mergeLog merges billed and refused calls, newest first. A list of limit rows may go on in the database: the result
// ends where the first such list ends, so that it has no gap.
func mergeLog(billed []rules.Entry, refused []rules.Refusal, limit int) []LoggedRequest {
	all := make([]LoggedRequest, 0, len(billed)+len(refused))
	moreBilled, moreRefused := len(billed) == limit, len(refused) == limit
	for len(billed) > 0 || len(refused) > 0 {
		if len(refused) == 0 || len(billed) > 0 && requestIDOf(&billed[0]) > refused[0].RequestID {
			all, billed = append(all, newBilledRow(&billed[0])), billed[1:]
			if moreBilled && len(billed) == 0 {
				break
			}
			continue
		}
		all, refused = append(all, newRefusedRow(&refused[0])), refused[1:]
		if moreRefused && len(refused) == 0 {
			break
		}
	}
	return all
}

// requestIDOf returns the id of a spend row in the request log. A refund has one too.
func requestIDOf(e *rules.Entry) string { return id.ReplacePrefix(e.ID, id.Ledger, id.Request) }

func newBilledRow(e *rules.Entry) LoggedRequest {
	ok := http.StatusOK
	l := LoggedRequest{
		ID:             requestIDOf(e),
		Object:         "logged_request",
		Status:         string(e.Settlement),
		HTTPStatus:     &ok,
		ConnectionID:   e.ConnectionID,
		CreatedAt:      timestamp.Format(e.CreatedUS),
		Model:          rules.TextOrNull(e.Model),
		Feature:        rules.TextOrNull(e.Feature),
		ProviderCostMC: e.ProviderCostMC,
		SvcFeeMC:       e.SvcFeeMC,
		DevMarginMC:    e.DevMarginMC,
		UserChargeMC:   e.UserChargeMC,
		PaidBy:         rules.TextOrNull(e.PaidBy),
		Delivery:       newDelivery(&e.Delivery),
	}
	if e.ReversalOf != "" { // negative, so that the column adds up to what was paid
		l.Status, l.HTTPStatus = refund, nil
		l.ProviderCostMC, l.SvcFeeMC = -l.ProviderCostMC, -l.SvcFeeMC
		l.DevMarginMC, l.UserChargeMC = -l.DevMarginMC, -l.UserChargeMC
		l.RefundOf = rules.TextOrNull(id.ReplacePrefix(e.ReversalOf, id.Ledger, id.Request))
	} else {
		l.InputTokens, l.OutputTokens = tokensOf(e)
	}
	if e.ReversedBy != "" {
		l.RefundedBy = rules.TextOrNull(id.ReplacePrefix(e.ReversedBy, id.Ledger, id.Request))
	}
	l.UserChargeDisplay = l.UserChargeMC.Display()
	return l
}

func newRefusedRow(f *rules.Refusal) LoggedRequest {
	return LoggedRequest{
		ID:                f.RequestID,
		Object:            "logged_request",
		Status:            "refused",
		HTTPStatus:        &f.Status,
		Code:              rules.TextOrNull(f.Code),
		Message:           rules.TextOrNull(f.Message),
		ConnectionID:      f.ConnectionID,
		CreatedAt:         timestamp.Format(f.CreatedUS),
		Model:             rules.TextOrNull(f.Model),
		Feature:           rules.TextOrNull(f.Feature),
		UserChargeDisplay: money.MC(0).Display(),
		Delivery:          Delivery{DurationMS: knownMS(f.DurationMS)},
	}
}
