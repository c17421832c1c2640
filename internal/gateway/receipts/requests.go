package receipts

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/proofs"
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
	Unregistered bool    `json:"-"`           // the feature is not registered
	RefundOf     *string `json:"refund_of"`   // the request whose charge the refund reverses
	RefundedBy   *string `json:"refunded_by"` // the refund in this list
}

// The statuses of a row.
const (
	StatusSettled   = "settled"
	StatusEstimated = "estimated"
	StatusRefund    = "refund"
	StatusRefused   = "refused"
)

// A LogFilter chooses rows of the request log. The zero value chooses all.
type LogFilter struct {
	Status               string // of the row; "" = any
	StatusFrom, StatusTo int    // HTTP statuses, both included; 0, 0 = any. A refund has none.
	Model                string
	Feature              string
	Connection           string
	MinChargeMC          money.MC
	Since, Until         time.Time // when the call began; Until is not included; zero = no bound
}

// filterNames are the parameters that readFilter reads.
var filterNames = []string{"status", "model", "feature", "connection", "since", "until", "min_charge_mc"}

// readFilter reads the filters of the query. Errors are 400 invalid_request.
func readFilter(r *http.Request) (f LogFilter, err error) {
	q, err := web.ReadQuery(r)
	if err != nil {
		return f, err
	}
	f = LogFilter{Model: q.Get("model"), Feature: q.Get("feature"), Connection: q.Get("connection")}
	if q.Has("status") {
		if f.StatusFrom, f.StatusTo, err = parseStatus(q.Get("status")); err != nil {
			return f, err
		}
	}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if q.Has(name) {
			if *at, err = time.Parse(time.RFC3339, q.Get(name)); err != nil {
				return f, apierr.InvalidRequest.Errorf("%s: must be a time such as 2026-11-21T10:15:00Z", name)
			}
		}
	}
	if q.Has("min_charge_mc") {
		least, err := strconv.ParseInt(q.Get("min_charge_mc"), 10, 64)
		if err != nil || least < 0 || least > int64(money.Max) {
			return f, apierr.InvalidRequest.Errorf("min_charge_mc: must be a whole number of micro-cents")
		}
		f.MinChargeMC = money.MC(least)
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

// spends returns the part of the filter for ledger rows, and whether any can pass it.
func (f *LogFilter) spends(appID string) (store.CallFilter, bool) {
	c := f.common(appID, id.Ledger)
	c.MinChargeMC = f.MinChargeMC
	switch f.Status {
	case StatusSettled, StatusEstimated, StatusRefund:
		c.Kind = store.SpendKind(f.Status)
	case StatusRefused:
		return c, false
	}
	if f.StatusTo > 0 { // all calls that were billed were answered 200, and refunds have no status
		if f.StatusFrom > http.StatusOK || f.StatusTo < http.StatusOK || c.Kind == store.Refunds {
			return c, false
		}
		if c.Kind == store.AnySpend {
			c.Kind = store.Billed
		}
	}
	return c, true
}

// refusals returns the part of the filter for refused calls, and whether any can pass it.
func (f *LogFilter) refusals(appID string) (store.CallFilter, bool) {
	c := f.common(appID, id.Request)
	c.StatusFrom, c.StatusTo = f.StatusFrom, f.StatusTo
	return c, f.MinChargeMC == 0 && (f.Status == "" || f.Status == StatusRefused)
}

func (f *LogFilter) common(appID, prefix string) store.CallFilter {
	c := store.CallFilter{AppID: appID, Model: f.Model, Feature: f.Feature, ConnectionID: f.Connection}
	if !f.Since.IsZero() {
		c.FromID = id.Floor(prefix, f.Since)
	}
	return c
}

// listRequests answers GET /v1/apps/{id}/requests: what the console's request log shows, newest first.
func (h *Handler) listRequests(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.RequireOwn(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, id.Request, slices.Concat(filterNames, []string{"settled_after"})...)
	if err != nil {
		return err
	}
	if r.URL.Query().Has("settled_after") {
		return h.listSettled(w, r, app.ID, page)
	}
	f, err := readFilter(r)
	if err != nil {
		return err
	}
	log, err := ListLog(r.Context(), h.DB, app.ID, &f, page)
	if err != nil {
		return err
	}
	if log.Next != "" {
		web.LinkNext(w, r, log.Next)
	}
	return web.WriteJSON(w, http.StatusOK, log.Rows)
}

// listSettled answers with billed calls and refunds in the order of settlement, oldest first (decision 139). The header
// Svc-After has where a later request finds what is settled after them.
func (h *Handler) listSettled(w http.ResponseWriter, r *http.Request, appID string, page web.Page) error {
	q, err := web.ReadQuery(r)
	if err != nil {
		return err
	}
	for name := range q {
		if name != "settled_after" && name != "limit" {
			return apierr.InvalidRequest.Errorf("%s: not accepted with settled_after", name)
		}
	}
	limit := min(page.Limit, maxSettled)
	ids, next, err := h.Log.ListCalls(r.Context(), appID, q.Get("settled_after"), limit)
	if errors.Is(err, proofs.ErrUnknownCursor) {
		return apierr.InvalidRequest.Errorf("settled_after: not a place in the call log; if it was one, the service " +
			"was restored to an earlier moment: compare the calls that you have with this list, and go on with newest")
	} else if err != nil {
		return err
	}
	entries, err := store.ListEntries(r.Context(), h.DB, ids)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b rules.Entry) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	rows := make([]LoggedRequest, len(entries))
	for i := range entries {
		rows[i] = newBilledRow(&entries[i])
	}
	if len(ids) == limit {
		web.LinkTo(w, r, "settled_after", next)
	}
	web.SetAfter(w, next)
	return web.WriteJSON(w, http.StatusOK, rows)
}

// maxSettled bounds the rows of a page in the order of settlement.
const maxSettled = 100

// A Log is a page of an app's request log.
type Log struct {
	Rows  []LoggedRequest
	Next  string // the id after which the next page begins; "" = there is none
	IsCut bool   // the page ended because it may read no more rows: Next is as far as it searched
}

// ListLog returns a page of an app's request log, newest first. With filters it reads a bounded number of rows: it may
// have fewer than the page's limit, and still a next page.
func ListLog(ctx context.Context, q db.Queryer, appID string, f *LogFilter, page web.Page) (Log, error) {
	before := page.StartingAfter
	if !f.Until.IsZero() {
		if end := id.Floor(id.Request, f.Until); before == "" || end < before {
			before = end
		}
	}
	log, limit := Log{Rows: []LoggedRequest{}}, page.Limit+1
	var sources [2][]LoggedRequest
	searchedTo := "" // rows from this id on are known
	if c, any := f.spends(appID); any {
		beforeEntry := before
		if before != "" {
			beforeEntry = id.ReplacePrefix(before, id.Request, id.Ledger)
		}
		list, last, err := store.BrowseSpends(ctx, q, c, beforeEntry, limit)
		if err != nil {
			return log, err
		}
		for i := range list {
			sources[0] = append(sources[0], newBilledRow(&list[i]))
		}
		if last != "" {
			last = id.ReplacePrefix(last, id.Ledger, id.Request)
		}
		searchedTo = knownTo(sources[0], limit, last)
	}
	if c, any := f.refusals(appID); any {
		list, last, err := store.BrowseRefusals(ctx, q, c, before, limit)
		if err != nil {
			return log, err
		}
		for i := range list {
			sources[1] = append(sources[1], newRefusedRow(&list[i]))
		}
		searchedTo = max(searchedTo, knownTo(sources[1], limit, last))
	}
	log.Rows = mergeLog(sources[0], sources[1], searchedTo)
	switch {
	case len(log.Rows) > page.Limit:
		log.Rows = log.Rows[:page.Limit]
		log.Next = log.Rows[page.Limit-1].ID
	case searchedTo != "":
		log.Next, log.IsCut = searchedTo, true
	}
	return log, nil
}

// knownTo returns the id from which on a source has given all rows that pass: that of its last row if it is full, or
// else how far it searched; "" = it has given all.
func knownTo(rows []LoggedRequest, limit int, searchedTo string) string {
	if len(rows) == limit {
		return rows[limit-1].ID
	}
	return searchedTo
}

// mergeLog merges billed and refused calls, newest first, without those older than an id.
func mergeLog(billed, refused []LoggedRequest, oldest string) []LoggedRequest {
	all := make([]LoggedRequest, 0, len(billed)+len(refused))
	for len(billed) > 0 || len(refused) > 0 {
		from := &refused
		if len(refused) == 0 || len(billed) > 0 && billed[0].ID > refused[0].ID {
			from = &billed
		}
		if (*from)[0].ID < oldest {
			break
		}
		all, *from = append(all, (*from)[0]), (*from)[1:]
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
		Unregistered:   e.Feature != "" && e.FeatureLabel != e.Feature,
	}
	if e.ReversalOf != "" { // negative, so that the column adds up to what was paid
		l.Status, l.HTTPStatus = StatusRefund, nil
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
		Status:            StatusRefused,
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
