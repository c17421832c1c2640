package usage

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves GET /v1/apps/{id}/usage (decision 091).
type Handler struct {
	DB   *db.DB
	Apps *apps.Store
	Now  func() time.Time
}

// Mount adds the route.
func (h *Handler) Mount(rt *web.Router) { rt.Handle("GET /v1/apps/{id}/usage", h.listUsage) }

// resource is a Row as the API shows it.
type resource struct {
	Object       string   `json:"object"`
	Start        string   `json:"start"` // first day of the bucket
	Group        *string  `json:"group"` // null with group_by none
	Calls        int64    `json:"calls"`
	RefusedCalls int64    `json:"refused_calls"`
	InputTokens  int64    `json:"input_tokens"`
	CachedTokens int64    `json:"cached_tokens"`
	OutputTokens int64    `json:"output_tokens"`
	ChargeMC     money.MC `json:"charge_mc"`
	MarginMC     money.MC `json:"margin_mc"`
	CostMC       money.MC `json:"cost_mc"`
}

// listUsage answers GET /v1/apps/{id}/usage.
func (h *Handler) listUsage(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Apps.RequireOwn(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, "", "from", "to", "interval", "group_by", "model", "feature", "connection", "after")
	if err != nil {
		return err
	}
	q, err := h.readQuery(r)
	if err != nil {
		return err
	}
	q.AppID, q.Sandbox, q.Limit = app.ID, app.Tier == apps.Sandbox, page.Limit+1
	list, err := List(r.Context(), h.DB, q)
	if err != nil {
		return err
	}
	more := len(list) > page.Limit
	list = list[:min(len(list), page.Limit)]
	out := make([]resource, len(list))
	for i, row := range list {
		out[i] = newResource(row, q.GroupBy)
	}
	if more {
		last := list[len(list)-1]
		web.LinkTo(w, r, "after", base64.RawURLEncoding.EncodeToString([]byte(last.Bucket+last.Group)))
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

func newResource(row Row, by Group) resource {
	out := resource{
		Object:       "usage",
		Start:        row.Bucket,
		Calls:        row.Calls,
		RefusedCalls: row.Refused,
		InputTokens:  row.Input,
		CachedTokens: row.Cached,
		OutputTokens: row.Output,
		ChargeMC:     row.ChargeMC,
		MarginMC:     row.MarginMC,
		CostMC:       row.CostMC,
	}
	if by != ByNone {
		out.Group = &row.Group
	}
	return out
}

// readQuery reads the period, the interval, the group and the filters. Errors are 400 invalid_request.
func (h *Handler) readQuery(r *http.Request) (q Query, err error) {
	values, err := web.ReadQuery(r)
	if err != nil {
		return q, err
	}
	today := h.Now().UTC().Truncate(24 * time.Hour)
	q = Query{
		From:       today.AddDate(0, 0, -29),
		To:         today,
		Interval:   Day,
		GroupBy:    ByNone,
		Model:      values.Get("model"),
		Feature:    values.Get("feature"),
		Connection: values.Get("connection"),
	}
	for name, at := range map[string]*time.Time{"from": &q.From, "to": &q.To} {
		if !values.Has(name) {
			continue
		}
		if *at, err = time.Parse(time.DateOnly, values.Get(name)); err != nil {
			return q, apierr.InvalidRequest.Errorf("%s: must be a day such as 2026-11-21", name)
		}
	}
	if values.Has("to") && !values.Has("from") {
		q.From = q.To.AddDate(0, 0, -29)
	}
	if days := int(q.To.Sub(q.From).Hours()/24) + 1; days < 1 || days > MaxDays {
		return q, apierr.InvalidRequest.Errorf("from, to: must be a period of 1 to %d days", MaxDays)
	}
	if values.Has("interval") {
		switch q.Interval = Interval(values.Get("interval")); q.Interval {
		case Day, Week, Month:
		default:
			return q, apierr.InvalidRequest.Errorf("interval: must be day, week or month")
		}
	}
	if values.Has("after") {
		last, err := base64.RawURLEncoding.DecodeString(values.Get("after"))
		if err != nil || len(last) < len(time.DateOnly) {
			return q, apierr.InvalidRequest.Errorf("after: must be that of the header Link")
		}
		at, err := time.Parse(time.DateOnly, string(last[:len(time.DateOnly)]))
		if err != nil || !utf8.Valid(last) || bytes.IndexByte(last, 0) >= 0 {
			return q, apierr.InvalidRequest.Errorf("after: must be that of the header Link")
		}
		q.AfterBucket, q.AfterGroup = FormatDay(at), string(last[len(time.DateOnly):])
		if at.After(q.From) { // no bucket holds a day before its first
			q.From = at
		}
	}
	if values.Has("group_by") {
		if q.GroupBy = Group(values.Get("group_by")); columns[q.GroupBy].called == "" {
			return q, apierr.InvalidRequest.Errorf("group_by: must be model, feature, connection or none")
		}
	}
	return q, nil
}
