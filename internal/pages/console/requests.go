package console

import (
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
)

// requestPages show the request log and the receipts of an app.
type requestPages struct {
	DB       *db.DB
	Features *features.Store
	Catalog  *catalog.Source
	Webhooks *webhooks.Store
	Refunds  *receipts.Refunder
	Now      func() time.Time
}

func (h requestPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/requests", access.requireApp(apps.View, h.showRequests))
	rt.HandlePage("GET "+appPath+"/requests.csv", access.requireApp(apps.View, access.inTurn(h.exportRequests)))
	rt.HandlePage("GET "+appPath+"/requests/{request}", access.requireApp(apps.View, h.showRequest))
	rt.HandlePage("GET "+appPath+"/requests/{request}/refund", access.requireApp(apps.RefundCalls, h.confirmRefund))
	rt.HandlePage("POST "+appPath+"/requests/{request}/refund", access.requireApp(apps.RefundCalls, h.refund))
}

// showRequests is GET /developer/apps/{id}/requests: the calls that pass the filters of the query, older than the id in
// it. With part=rows it is the rows alone, for the live tail.
func (h requestPages) showRequests(w http.ResponseWriter, r *http.Request, v visit) error {
	q, err := web.ReadQuery(r)
	if err != nil {
		return err
	}
	if target := v.requestPath(strings.TrimSpace(q.Get("find"))); target != "" {
		http.Redirect(w, r, target, http.StatusSeeOther)
		return nil
	}
	list, err := h.features(r, v)
	if err != nil {
		return err
	}
	page := ui.RequestLog{Console: v.newPage(r, "Requests", "/requests"), Table: h.newTable(q, v, list)}
	t := &page.Table
	filter, ok := h.readFilter(t)
	status := http.StatusOK
	before := q.Get("before")
	if !strings.HasPrefix(before, id.Request) {
		before = "" // no link of these pages
	}
	t.Finish(before == "", t.Link("part", "rows"))
	t.CSV = t.Download(v.path("/requests.csv"))
	if !ok || t.Search.Problem != "" {
		status, t.Following, t.Empty = http.StatusUnprocessableEntity, false, "Correct the filter to see calls."
		return ui.Render(w, status, page)
	}
	if t.Filtered() {
		t.Empty = "No calls match these filters."
	}
	log, err := receipts.ListLog(r.Context(), h.DB, v.app.ID, &filter,
		web.Page{Limit: ui.ListPageSize(t.Query), StartingAfter: before})
	if err != nil {
		return fmt.Errorf("console: requests: %w", err)
	}
	for i := range log.Rows {
		t.Rows = append(t.Rows, requestRow(&log.Rows[i], v, t))
	}
	if log.Next != "" {
		t.Older = t.Link("before", log.Next)
	}
	if log.IsCut {
		t.Cut = ui.Date(id.Time(log.Next).UnixMicro())
	}
	if q.Get("part") == "rows" {
		return ui.RenderPart(w, page, "rows")
	}
	return ui.Render(w, status, page)
}

// requestPath returns the address of the receipt of a request or ledger id; "" = it is neither.
func (v visit) requestPath(text string) string {
	if strings.HasPrefix(text, id.Ledger) {
		text = id.ReplacePrefix(text, id.Ledger, id.Request)
	}
	if !strings.HasPrefix(text, id.Request) || id.Time(text).IsZero() {
		return ""
	}
	return v.path("/requests/" + text)
}

func (h requestPages) features(r *http.Request, v visit) ([]features.Feature, error) {
	list, err := h.Features.ListAll(r.Context(), v.app.ID)
	if err != nil {
		return nil, fmt.Errorf("console: features: %w", err)
	}
	return list, nil
}

// statuses are the choices of the filter for the status of a call.
var statuses = []ui.Option{
	{ID: "", Text: "Any status"}, {ID: "settled", Text: "Settled"}, {ID: "estimated", Text: "Estimated"},
	{ID: "refund", Text: "Refund"}, {ID: "refused", Text: "Refused (4xx)"}, {ID: "failed", Text: "Failed (5xx)"},
}

// charges are the choices of the filter for the least charge, in dollars.
var charges = []ui.Option{
	{ID: "", Text: "Any charge"}, {ID: "0.001", Text: "$0.001 or more"}, {ID: "0.01", Text: "$0.01 or more"},
	{ID: "0.1", Text: "$0.10 or more"}, {ID: "1", Text: "$1 or more"},
}

// timeChoices are the choices of the filter for the time, and timeRanges how long they are.
var (
	timeChoices = []ui.Option{
		{ID: "", Text: "Any time"}, {ID: "1h", Text: "Last hour"}, {ID: "24h", Text: "Last 24 hours"},
		{ID: "7d", Text: "Last 7 days"}, {ID: "30d", Text: "Last 30 days"},
	}
	timeRanges = map[string]time.Duration{
		"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour,
	}
)

// newTable returns the request log without its rows.
func (h requestPages) newTable(q url.Values, v visit, list []features.Feature) ui.List {
	t := ui.NewList(v.path("/requests"), q,
		"status", "model", "feature", "connection", "charge", "range", "from", "to")
	t.Label, t.Empty = "Calls", "No calls yet."
	t.Search = &ui.ListSearch{
		Name:  "find",
		Label: "Find a request by its id",
		Hint:  "req_… or conn_…",
		Value: strings.TrimSpace(q.Get("find")),
	}
	if find := t.Search.Value; strings.HasPrefix(find, id.Connection) {
		t.Query.Set("connection", find)
		t.Search.Value = ""
	} else if find != "" {
		t.Search.Problem = "Enter the id of a request (req_…), a ledger entry (led_…) or a connection (conn_…)."
	}
	t.Head = []ui.ListColumn{
		{Text: "When (UTC)", Class: "second"}, {Text: "Status", Class: "first"}, {Text: "Model", Class: "first"},
		{Text: "Feature"}, {Text: "Connection"}, {Text: "Tokens in / out", Class: "end"},
		{Text: "First byte", Class: "end"}, {Text: "Duration", Class: "second end"},
		{Text: "Charge", Class: "first end"},
		{Text: "Margin", Class: "end"},
	}
	t.AddFilter("status", "Status", statuses)
	models := []ui.Option{{Text: "Any model"}}
	for _, m := range h.Catalog.Current().Offered(h.Now()) {
		models = append(models, ui.Option{ID: m.ID, Text: m.ID})
	}
	t.AddFilter("model", "Model", withChosen(models, t.Query.Get("model")))
	slugs := []ui.Option{{Text: "Any feature"}}
	for _, f := range list {
		slugs = append(slugs, ui.Option{ID: f.Slug, Text: f.Slug})
	}
	t.AddFilter("feature", "Feature", withChosen(slugs, t.Query.Get("feature")),
		ui.Field{ID: "feature", Label: "Label of a call, registered or not"})
	t.AddFilter("connection", "Connection", nil, ui.Field{ID: "connection", Label: "Connection id"})
	t.AddFilter("charge", "Charge", charges, ui.Field{ID: "charge", Label: "At least (US dollars)"})
	addRangeFilter(&t)
	return t
}

// withChosen adds a value that is set and no option yet.
func withChosen(options []ui.Option, chosen string) []ui.Option {
	for _, o := range options {
		if o.ID == chosen {
			return options
		}
	}
	return append(options, ui.Option{ID: chosen, Text: chosen})
}

// readFilter reads the filters of the table. It marks invalid ones, and reports whether there are none.
func (h requestPages) readFilter(t *ui.List) (f receipts.LogFilter, ok bool) {
	q := t.Query
	f = receipts.LogFilter{Model: q.Get("model"), Feature: q.Get("feature"), Connection: q.Get("connection")}
	ok = true
	problem := func(name, text string) {
		ok = false
		for i := range t.Filter {
			if t.Filter[i].Name == name {
				t.Filter[i].Problem = text
			}
		}
	}
	switch status := q.Get("status"); status {
	case "refused":
		f.Status, f.StatusFrom, f.StatusTo = receipts.StatusRefused, 400, 499
	case "failed":
		f.Status, f.StatusFrom, f.StatusTo = receipts.StatusRefused, 500, 599
	case "", receipts.StatusSettled, receipts.StatusEstimated, receipts.StatusRefund:
		f.Status = status
	default:
		problem("status", "Choose one of these.")
	}
	if text := q.Get("charge"); text != "" {
		var err error
		if f.MinChargeMC, err = money.Parse(text); err != nil || f.MinChargeMC < 0 {
			problem("charge", "Enter an amount such as 0.05.")
		}
	}
	var wrong string
	if f.Since, f.Until, wrong = readRange(q, h.Now()); wrong != "" {
		problem("range", wrong)
	}
	return f, ok
}

// addRangeFilter adds the filter for the time, which readRange reads.
func addRangeFilter(t *ui.List) {
	t.AddFilter("range", "Time", timeChoices, ui.Field{
		ID:    "from",
		Label: "From (UTC)",
		Hint:  "2026-11-21 or 2026-11-21T10:15",
	},
		ui.Field{ID: "to", Label: "Until (UTC)"})
}

// readRange reads the filter for the time; a zero time is no bound. problem says what is wrong with it; "" = nothing.
func readRange(q url.Values, now time.Time) (since, until time.Time, problem string) {
	if length := timeRanges[q.Get("range")]; length > 0 {
		since = now.Add(-length)
	} else if q.Get("range") != "" {
		problem = "Choose one of these."
	}
	for name, at := range map[string]*time.Time{"from": &since, "to": &until} {
		if text := q.Get(name); text != "" {
			var err error
			if *at, err = parseMoment(text); err != nil {
				problem = "Enter times such as 2026-11-21 or 2026-11-21T10:15."
			}
		}
	}
	return since, until, problem
}

// parseMoment reads a day or a minute in UTC, or a time with its zone.
func parseMoment(text string) (at time.Time, err error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", time.RFC3339} {
		if at, err = time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return at, err
}

// absent stands for a value that a call does not have.
const absent = "–"

// requestRow returns a row of the log.
func requestRow(l *receipts.LoggedRequest, v visit, t *ui.List) ui.ListRow {
	href, createdUS := v.path("/requests/"+l.ID), id.Time(l.ID).UnixMicro()
	status := ui.ListCell{Text: "Settled", Dot: "good"}
	switch {
	case l.Status == receipts.StatusRefund:
		status = ui.ListCell{Text: "Refund", Dot: "plain"}
	case l.Status == receipts.StatusRefused && *l.HTTPStatus >= 500:
		status = ui.ListCell{Text: "Failed", Dot: "bad", Sub: textOf(l.Code)}
	case l.Status == receipts.StatusRefused:
		status = ui.ListCell{Text: "Refused", Dot: "warn", Sub: textOf(l.Code)}
	case l.RefundedBy != nil:
		status = ui.ListCell{Text: "Refunded", Dot: "plain"}
	case l.Status == receipts.StatusEstimated:
		status = ui.ListCell{Text: "Estimated", Dot: "warn"}
	}
	if l.PaidBy != nil && *l.PaidBy == rules.PaidByFreeCredit {
		status.Sub = "free credit"
	}
	if reason := textOf(l.FinishReason); reason != absent && reason != "stop" && status.Sub == "" {
		status.Sub = reason
	}
	tokens := absent
	if l.InputTokens != nil {
		tokens = ui.Count(*l.InputTokens) + " / " + ui.Count(*l.OutputTokens)
	}
	charge, margin := ui.ListCell{Text: absent}, ui.ListCell{Text: absent}
	if l.Status != receipts.StatusRefused {
		charge = ui.ListCell{Text: ui.Price(l.UserChargeMC), Title: ui.Exact(l.UserChargeMC)}
		margin = ui.ListCell{Text: ui.Price(l.DevMarginMC), Title: ui.Exact(l.DevMarginMC)}
	}
	feature := ui.ListCell{Text: textOf(l.Feature)}
	if l.Unregistered {
		feature.Sub = "not registered"
	}
	return ui.ListRow{
		ID:     l.ID,
		Href:   href,
		Drawer: href + "?part=drawer",
		Cells: []ui.ListCell{
			{Text: formatTime(createdUS), Time: timestamp.Format(createdUS)},
			status,
			{Text: textOf(l.Model)},
			feature,
			{
				Text:   "…" + l.ConnectionID[max(len(l.ConnectionID)-6, 0):],
				Title:  l.ConnectionID,
				Avatar: l.ConnectionID,
				Href:   t.Link("connection", l.ConnectionID),
				Code:   true,
			},
			{Text: tokens},
			{Text: ui.Milliseconds(l.FirstByteMS)},
			{Text: ui.Milliseconds(l.DurationMS)},
			charge,
			margin,
		},
	}
}

// textOf returns a text that may be null.
func textOf(s *string) string {
	if s == nil || *s == "" {
		return absent
	}
	return *s
}

// Rows of a step of an export, and the most of one export.
const (
	exportStep = 1000
	exportMost = 100_000
)

// requestColumns are the columns of the export. Amounts are whole micro-cents: 100,000,000 are a US dollar.
const requestColumns = "id created_at status http_status code connection_id model feature input_tokens output_tokens " +
	"first_byte_ms duration_ms finish_reason provider_cost_mc svc_fee_mc dev_margin_mc user_charge_mc paid_by refund_of"

// exportRequests is GET /developer/apps/{id}/requests.csv: the rows of the list with its filters, newest first,
// streamed; at most exportMost.
func (h requestPages) exportRequests(w http.ResponseWriter, r *http.Request, v visit) error {
	q, err := web.ReadQuery(r)
	if err != nil {
		return err
	}
	t := h.newTable(q, v, nil)
	filter, ok := h.readFilter(&t)
	if !ok || t.Search.Problem != "" {
		return apierr.InvalidRequest.Errorf("The filters of this download are not valid.")
	}
	page := web.Page{Limit: exportStep}
	log, err := receipts.ListLog(r.Context(), h.DB, v.app.ID, &filter, page)
	if err != nil {
		return fmt.Errorf("console: export: %w", err)
	}
	ui.SetDownload(w, "purser-requests.csv")
	out := csv.NewWriter(w)
	if err := out.Write(strings.Fields(requestColumns)); err != nil {
		return err
	}
	for written := 0; ; {
		for i := range log.Rows {
			if err := out.Write(requestRecord(&log.Rows[i])); err != nil {
				return err
			}
		}
		written += len(log.Rows)
		if out.Flush(); log.Next == "" || written >= exportMost || out.Error() != nil {
			return out.Error()
		}
		page.StartingAfter = log.Next
		if log, err = receipts.ListLog(r.Context(), h.DB, v.app.ID, &filter, page); err != nil {
			return fmt.Errorf("console: export: %w", err)
		}
	}
}

func requestRecord(l *receipts.LoggedRequest) []string {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return ui.EscapeFormula(*s)
	}
	number := func(n *int64) string {
		if n == nil {
			return ""
		}
		return strconv.FormatInt(*n, 10)
	}
	status := ""
	if l.HTTPStatus != nil {
		status = strconv.Itoa(*l.HTTPStatus)
	}
	list := []string{
		l.ID, l.CreatedAt, l.Status, status, text(l.Code), l.ConnectionID, text(l.Model), text(l.Feature),
		number(l.InputTokens), number(l.OutputTokens), number(l.FirstByteMS), number(l.DurationMS),
		text(l.FinishReason),
	}
	for _, mc := range []money.MC{l.ProviderCostMC, l.SvcFeeMC, l.DevMarginMC, l.UserChargeMC} {
		list = append(list, strconv.FormatInt(int64(mc), 10))
	}
	return append(list, text(l.PaidBy), text(l.RefundOf))
}

func describeFeature(e rules.Entry) string {
	if e.Feature != "" && e.FeatureLabel != e.Feature {
		return e.Feature + " (not registered)"
	}
	return e.Feature
}

// showRequest is GET /developer/apps/{id}/requests/{request}: the receipt of one call. It does not show
// the user: apps know connections, not accounts. With part=drawer it is the part beside the list.
func (h requestPages) showRequest(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.newReceipt(r, v)
	if err != nil {
		return err
	}
	if r.URL.Query().Get("part") == "drawer" {
		return ui.RenderPart(w, page, "drawer")
	}
	return ui.Render(w, http.StatusOK, page)
}

func (h requestPages) newReceipt(r *http.Request, v visit) (p ui.CallPage, err error) {
	requestID, page := r.PathValue("request"), v.newPage(r, "Receipt", "/requests")
	if !strings.HasPrefix(requestID, id.Request) {
		return p, ui.NotFound()
	}
	e, err := store.GetEntry(r.Context(), h.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
	if err == nil && e.AppID == v.app.ID && e.ReversalOf != "" {
		return refundPage(page, requestID, &e), nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return p, fmt.Errorf("console: refund: %w", err)
	}
	found, appID, err := receipts.Find(r.Context(), h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && appID != v.app.ID {
		return p, ui.NotFound()
	} else if err != nil {
		return p, fmt.Errorf("console: receipt: %w", err)
	}
	switch {
	case found.Charge != nil:
		p = billedPage(page, found, &e)
		if v.can(apps.RefundCalls) && h.isRefundable(&e) {
			refund := ui.Link{Href: v.path("/requests/" + requestID + "/refund"), Text: "Refund this call"}
			p.Links = append(p.Links, refund)
		}
	case found.Error != nil:
		p = refusalPage(page, found)
	default:
		p = ui.CallPage{Console: page, ID: requestID, Says: found.Explanation, Facts: callFacts(found)}
	}
	p.Steps = callSteps(found)
	more, err := h.webhookSteps(r.Context(), v, found, &e)
	p.Steps = append(p.Steps, more...)
	return p, err
}

// webhookSteps returns the events that the settlement of a call and its refund caused, with what came of each delivery.
// Most calls cause none: their charge is in the response. e is the call's ledger row.
func (h requestPages) webhookSteps(ctx context.Context, v visit, found *receipts.Receipt,
	e *rules.Entry) (steps []ui.TimelineStep, err error) {
	rows := []*rules.Entry{}
	if found.Charge != nil {
		rows = append(rows, e)
	}
	if found.ReversedBy != nil {
		refund, err := store.GetEntry(ctx, h.DB, *found.ReversedBy)
		if err != nil {
			return nil, fmt.Errorf("console: refund of %s: %w", found.ID, err)
		}
		rows = append(rows, &refund)
	}
	for _, row := range rows {
		traces, err := h.Webhooks.ListCallTraces(ctx, row)
		if err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		for _, t := range traces {
			steps = append(steps, traceSteps(v, &t)...)
		}
	}
	return steps, nil
}

// traceSteps returns a step for each delivery of an event, or one for an event without any.
func traceSteps(v visit, t *webhooks.Trace) (steps []ui.TimelineStep) {
	if len(t.Deliveries) == 0 {
		return []ui.TimelineStep{{
			Name:   "Event without a delivery",
			Detail: t.Type,
			Time:   timestamp.Format(t.CreatedUS),
			Shown:  formatTime(t.CreatedUS),
		}}
	}
	for _, d := range t.Deliveries {
		s := ui.TimelineStep{
			Name:   "Webhook pending",
			Detail: t.Type,
			Href:   v.path("/webhooks/" + d.EndpointID + "/deliveries/" + d.ID),
			Dot:    "warn",
		}
		at := d.NextUS
		switch d.Status {
		case webhooks.Delivered:
			s.Name, s.Dot, at = "Webhook delivered", "good", d.DeliveredUS
		case webhooks.Failed:
			s.Name, s.Dot = "Webhook failed", "bad"
		default:
			if d.Attempts > 0 {
				s.Name = "Webhook retry"
			}
		}
		if d.Attempts > 1 {
			s.Detail += fmt.Sprintf(", %d attempts", d.Attempts)
		}
		if at != nil {
			s.Time, s.Shown = timestamp.Format(*at), formatTime(*at)
		}
		steps = append(steps, s)
	}
	return steps
}

// callSteps returns when what happened to a call: held, first byte, complete, settled; or refused.
func callSteps(found *receipts.Receipt) (steps []ui.TimelineStep) {
	after := func(ms *int64) string {
		if ms == nil {
			return ""
		}
		return "+" + ui.Milliseconds(ms)
	}
	moment := func(s ui.TimelineStep, at time.Time) ui.TimelineStep {
		s.Time, s.Shown = timestamp.Format(at.UnixMicro()), formatTime(at.UnixMicro())
		return s
	}
	steps = append(steps, moment(ui.TimelineStep{Name: "Received"}, id.Time(found.ID)))
	if found.Error != nil {
		return append(steps, ui.TimelineStep{
			Name:   "Refused",
			Detail: fmt.Sprintf("%d %s", found.Error.Status, found.Error.Code),
			After:  after(found.DurationMS),
			Dot:    "bad",
		})
	}
	if found.Charge != nil {
		steps = append(steps, ui.TimelineStep{
			Name:   "Held",
			Detail: ui.Exact(found.Charge.HoldAmountMC),
			After:  "+0 ms",
		})
	}
	if found.FirstByteMS != nil {
		steps = append(steps, ui.TimelineStep{Name: "First byte", After: after(found.FirstByteMS)})
	}
	if found.DurationMS != nil {
		s := ui.TimelineStep{Name: "Response complete", After: after(found.DurationMS)}
		if found.FinishReason != nil {
			s.Detail = "finish reason: " + *found.FinishReason
		}
		steps = append(steps, s)
	}
	if at, err := time.Parse(time.RFC3339, found.CreatedAt); err == nil && found.Charge != nil {
		s := ui.TimelineStep{Name: "Settled", Detail: ui.Exact(found.Charge.UserChargeMC) + " charged", Dot: "good"}
		if found.Status == receipts.StatusEstimated {
			s.Name, s.Dot = "Settled as an estimate", "warn"
		}
		steps = append(steps, moment(s, at))
	}
	if found.ReversedBy != nil {
		steps = append(steps, ui.TimelineStep{Name: "Refunded", Detail: ui.Exact(found.RefundedMC)})
	}
	return steps
}

// billedPage explains a charge, token class by token class at its unit price.
func billedPage(c ui.Console, found *receipts.Receipt, e *rules.Entry) ui.CallPage {
	p := ui.CallPage{Console: c, ID: found.ID}
	how := "from the usage reported by the provider, at the prices in effect when it started"
	if e.Settlement == rules.Estimated {
		how = "estimated and rounded down, because the provider reported no usage"
	}
	p.Says = fmt.Sprintf("The user was charged %s for this call, %s.", e.UserChargeMC.Display(), how)
	if found.OwnWork != nil {
		p.Says = fmt.Sprintf("The user was charged %s for your own work: “%s”.", e.UserChargeMC.Display(),
			*found.OwnWork)
	}
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
		{Name: "First byte", Value: ui.Milliseconds(found.FirstByteMS)},
		{Name: "Duration", Value: ui.Milliseconds(found.DurationMS)},
		{Name: "Finish reason", Value: textOf(found.FinishReason)},
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
