package holds

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxDescription bounds the description, in characters. Users read it on their dashboard.
const maxDescription = 120

// A Handler serves /v1/holds.
type Handler struct {
	DB       *db.DB
	Ledger   *store.Writer
	NodeID   string
	Apps     *apps.Store
	Tokens   *oauth.Store
	Callers  *callers.Resolver
	Policies *policies.Book
	FreeRate *callers.FreeRate // of holds of sandbox apps; nil = none
	Rate     *web.Limiter      // of holds, by connection; nil = none
}

// Holds of a connection over time, and at once.
const (
	createPause = time.Second / 2
	createBurst = 2000
)

// NewRate returns a Handler's rate of holds: one of a micro-cent leaves the rows of any other.
func NewRate(now func() time.Time) *web.Limiter { return web.NewLimiter(createPause, createBurst, now) }

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("POST /v1/holds", h.create)
	rt.Handle("GET /v1/holds/{id}", h.get)
	rt.Handle("POST /v1/holds/{id}/capture", h.capture)
	rt.Handle("POST /v1/holds/{id}/release", h.release)
}

// createBody is the body of POST /v1/holds.
type createBody struct {
	AmountMC    web.Field[money.MC] `json:"amount_mc"`
	Description web.Field[string]   `json:"description"`
}

// create holds an amount. The key answers the same hold again.
func (h *Handler) create(w http.ResponseWriter, r *http.Request) error {
	who, err := h.Callers.ResolveAny(r)
	if err != nil {
		return err
	}
	who.Log(r.Context())
	if err := who.CheckAllowed(); err != nil {
		return err
	}
	refused := h.checkAllowed(r.Context(), who)
	order, err := readOrder(r)
	if refused == nil && err == nil {
		refused = who.CheckFeature(order.feature)
	}
	switch {
	case err != nil && refused != nil:
		return refused
	case err != nil:
		return err
	}
	if refused == nil {
		refused = h.checkRate(who)
	}
	var done rules.Result
	if refused == nil {
		done, refused = h.Ledger.Do(r.Context(), h.newHold(r, who, order))
	}
	if e, ok := errors.AsType[*apierr.Error](refused); ok && e.Code.Status <= 429 { // what allowed it may have changed
		done.RequestID, refused = h.requestOfKey(r.Context(), who, order, refused)
	}
	if refused != nil {
		return refused
	}
	out, _, err := h.find(r.Context(), done.RequestID)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// checkRate counts a hold, or refuses it. An app's own work costs nothing in the sandbox, in each provider mode.
func (h *Handler) checkRate(who *callers.Caller) error {
	if who.App.Tier == apps.Sandbox {
		if err := h.FreeRate.Check(who.App.OwnerID); err != nil {
			return err
		}
	}
	if h.Rate == nil {
		return nil
	}
	return h.Rate.Check(who.ConnectionID,
		"this connection makes holds faster than it may, which is two a second over time; slow down")
}

// An order is what a request to hold asks for.
type order struct {
	key, feature, description string
	amountMC                  money.MC
}

// fingerprint hashes what makes two requests the same: what was asked for, and none of the terms that are in force.
func (o *order) fingerprint() string {
	text, err := json.Marshal([]any{"holds", o.feature, o.amountMC, o.description})
	if err != nil {
		panic("holds: encode: " + err.Error())
	}
	return id.Hash(string(text))
}

func readOrder(r *http.Request) (o *order, err error) {
	o = &order{}
	if o.key, err = web.ReadIdempotencyKey(r); err != nil {
		return nil, err
	}
	if o.feature, err = readFeature(r); err != nil {
		return nil, err
	}
	var body createBody
	if err := web.ReadJSON(r, &body); err != nil {
		return nil, err
	}
	switch {
	case !body.AmountMC.Set || body.AmountMC.Null:
		return nil, apierr.InvalidRequest.Errorf("amount_mc: required")
	case body.AmountMC.Value < 1 || body.AmountMC.Value > money.Max:
		return nil, apierr.InvalidRequest.Errorf("amount_mc: must be between 1 and %d", money.Max)
	case !body.Description.Set || body.Description.Null:
		return nil, apierr.InvalidRequest.Errorf("description: required, what the user pays for")
	}
	o.amountMC, o.description = body.AmountMC.Value, body.Description.Value
	return o, apps.CheckText("description", o.description, maxDescription)
}

// requestOfKey returns the request that an order's key was used for, whatever the settings say now, or refused if it
// was used for no such hold. A connection that is paused or has ended answers that to a repeated key, too (decision
// 008). It compares what was asked for: fingerprints of earlier versions have the terms, too.
func (h *Handler) requestOfKey(ctx context.Context, who *callers.Caller, o *order, refused error) (string, error) {
	key := rules.Key{ConnectionID: who.ConnectionID, Key: rules.ChildKey(who.ChildID(), o.key)}
	requestID, err := store.RequestOfKey(ctx, h.DB, key)
	var out resource
	if err == nil {
		out, _, err = h.find(ctx, requestID)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", refused
	case err != nil:
		return "", err
	case out.AmountMC != o.amountMC || out.Description != o.description || slugOf(out.Feature) != o.feature:
		return "", refused
	}
	return requestID, h.checkStatus(ctx, who)
}

// checkStatus is CheckAllowed with the connection and the child as they are now. A caller is cached, and the answer to
// a repeated key must not depend on for how long.
func (h *Handler) checkStatus(ctx context.Context, who *callers.Caller) error {
	now := *who
	conn, err := store.GetConnection(ctx, h.DB, who.ConnectionID)
	if err != nil {
		return err
	}
	now.Status = conn.Status
	if who.Child != nil {
		child, err := store.GetChild(ctx, h.DB, who.ChildID())
		if err != nil {
			return err
		}
		now.Child = &child
	}
	return now.CheckAllowed()
}

func slugOf(feature *string) string {
	if feature == nil {
		return ""
	}
	return *feature
}

// newHold returns the command that holds an amount, within all limits that apply to calls.
func (h *Handler) newHold(r *http.Request, who *callers.Caller, o *order) rules.Hold {
	now, requestID := h.DB.Now(), web.RequestID(r.Context())
	p, feature := h.Policies.At(now), policy.ResolveFeature(who.Features, o.feature)
	terms := policy.WorkTerms{
		AmountMC:    o.amountMC,
		Description: o.description,
		Fee:         p.Fee,
		Mock:        who.App.Tier == apps.Sandbox && who.App.ProviderMode == apps.Mock,
	}
	demand := p.Demand(&policy.Call{
		Call: rules.Call{
			ConnectionID: who.ConnectionID,
			AccountID:    who.AccountID,
			AppID:        who.App.ID,
			Key:          rules.ChildKey(who.ChildID(), o.key),
			RequestID:    requestID,
			Fingerprint:  o.fingerprint(),
			Feature:      feature.Slug,
			FeatureLabel: feature.Label,
			Model:        policy.OwnWork,
			Terms:        terms.JSON(),
			HoldMC:       terms.AmountMC,
			PaidBy:       rules.PaidByWallet,
		},
		App:        &who.App,
		ChildID:    who.ChildID(),
		Guardrails: feature.Guardrails(),
	}, now)
	demand.NodeID, demand.Claim, demand.Pending = h.NodeID, requestID, policy.OwnWork
	return demand
}

// checkAllowed returns why a caller's app may not charge for work of its own, or nil.
func (h *Handler) checkAllowed(ctx context.Context, who *callers.Caller) error {
	if !who.App.OwnWork {
		return apierr.InvalidRequest.On(who.ConnectionID,
			"this app doesn't charge for its own work; switch own_work on in its settings")
	}
	allowed, err := h.Tokens.AllowsWork(ctx, who.App.ID, who.AccountID, who.ConnectionID)
	if err == nil && !allowed {
		err = apierr.InvalidRequest.On(who.ConnectionID,
			"the user has not allowed this connection to be charged for the app's own work; send them through the "+
				"authorization again")
	}
	return err
}

func readFeature(r *http.Request) (string, error) {
	values := r.Header.Values(web.FeatureHeader)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !features.SlugPattern.MatchString(values[0]) {
		return "", apierr.InvalidRequest.Errorf("X-Svc-Feature: must be one slug that matches %s", features.SlugPattern)
	}
	return values[0], nil
}

// A record is a hold as the database has it: its row, or the charge that it became.
type record struct {
	call    rules.Call
	attempt int64
	state   rules.HoldState // "" = charged
	entry   rules.Entry
}

// A resource is a hold as the API shows it.
type resource struct {
	ID            string    `json:"id"`
	Object        string    `json:"object"`
	Status        string    `json:"status"` // held, captured, released
	ConnectionID  string    `json:"connection_id"`
	Feature       *string   `json:"feature"`
	Description   string    `json:"description"`
	AmountMC      money.MC  `json:"amount_mc"`
	AmountDisplay string    `json:"amount_display"`
	CapturedMC    *money.MC `json:"captured_mc"`
	SvcFeeMC      *money.MC `json:"svc_fee_mc"`
	DevMarginMC   *money.MC `json:"dev_margin_mc"`
	RefundedMC    money.MC  `json:"refunded_mc"`
	CreatedAt     string    `json:"created_at"`
	ExpiresAt     *string   `json:"expires_at"`
}

// find returns a hold and how it is shown; sql.ErrNoRows if there is none. A call is no hold here.
func (h *Handler) find(ctx context.Context, requestID string) (out resource, found record, err error) {
	if !strings.HasPrefix(requestID, id.Request) {
		return out, found, sql.ErrNoRows
	}
	if found, err = h.read(ctx, requestID); err != nil {
		return out, found, err
	}
	terms, ok := policy.ParseWork(found.call.Terms)
	if !ok {
		return out, found, sql.ErrNoRows
	}
	return newResource(requestID, &found, &terms), found, nil
}

// read reads in the order in which a hold changes, so that it is found whatever happens meanwhile.
func (h *Handler) read(ctx context.Context, requestID string) (record, error) {
	pending, err := store.GetPendingCall(ctx, h.DB, requestID)
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return record{call: pending.Call, attempt: pending.Attempt, state: rules.Pending}, err
	}
	e, err := store.GetEntry(ctx, h.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
	if err == nil {
		return record{entry: e, call: rules.Call{
			ConnectionID: e.ConnectionID,
			AccountID:    e.AccountID,
			AppID:        e.AppID,
			Key:          e.Key,
			Feature:      e.Feature,
			Terms:        e.Terms,
			HoldMC:       e.HoldMC,
		}}, nil
	} else if !errors.Is(err, sql.ErrNoRows) {
		return record{}, err
	}
	row, err := store.HoldOfRequest(ctx, h.DB, requestID)
	return record{call: row.Call, attempt: row.Attempt, state: row.State}, err
}

func newResource(requestID string, f *record, terms *policy.WorkTerms) resource {
	out := resource{
		ID:            requestID,
		Object:        "hold",
		Status:        "released",
		ConnectionID:  f.call.ConnectionID,
		Feature:       rules.TextOrNull(f.call.Feature),
		Description:   terms.Description,
		AmountMC:      f.call.HoldMC,
		AmountDisplay: f.call.HoldMC.Display(),
		CreatedAt:     timestamp.Format(id.Time(requestID).UnixMicro()),
	}
	switch f.state {
	case "":
		e := &f.entry
		out.Status, out.RefundedMC = "captured", e.RefundedMC()
		out.CapturedMC, out.SvcFeeMC, out.DevMarginMC = &e.UserChargeMC, &e.SvcFeeMC, &e.DevMarginMC
	case rules.Pending:
		until := timestamp.Format(id.Time(requestID).Add(policy.WorkLifetime).UnixMicro())
		out.Status, out.ExpiresAt = "held", &until
	}
	return out
}

// require returns a hold that the request's credentials may change: an access token of its connection, or the
// credentials of its app, which work after the user has revoked the connection. To others it does not exist.
func (h *Handler) require(r *http.Request) (resource, record, *apps.App, error) {
	var app apps.App
	var connectionID, childID string
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Basic") {
		found, err := h.Apps.Authenticate(r.Context(), r)
		if err != nil {
			return resource{}, record{}, nil, err
		}
		app = found
	} else {
		who, err := h.Callers.ResolveAny(r)
		if err != nil {
			return resource{}, record{}, nil, err
		}
		who.Log(r.Context())
		app, connectionID, childID = who.App, who.ConnectionID, who.ChildID()
	}
	out, found, err := h.find(r.Context(), r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) || err == nil &&
		(found.call.AppID != app.ID || connectionID != "" && found.call.ConnectionID != connectionID ||
			childID != "" && rules.ChildOfKey(found.call.Key) != childID) {
		err = apierr.NotFound.Errorf("no such hold")
	}
	return out, found, &app, err
}

func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	out, _, _, err := h.require(r)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// captureBody is the body of POST /v1/holds/{id}/capture, which may be empty.
type captureBody struct {
	AmountMC web.Field[money.MC] `json:"amount_mc"`
}

// capture charges what the work came to, at most what is held, and returns the rest. A repeated capture of the same
// amount answers the same charge.
func (h *Handler) capture(w http.ResponseWriter, r *http.Request) error {
	out, found, app, err := h.require(r)
	if err != nil {
		return err
	}
	var body captureBody
	if r.ContentLength != 0 {
		if err := web.ReadJSON(r, &body); err != nil {
			return err
		}
	}
	amount := out.AmountMC
	if body.AmountMC.Set && !body.AmountMC.Null {
		amount = body.AmountMC.Value
	}
	if amount < 1 || amount > out.AmountMC {
		return apierr.InvalidRequest.On(out.ConnectionID,
			"amount_mc: must be from 1 to the %d that are held; to charge nothing, release the hold", out.AmountMC)
	}
	if found.state == rules.Pending {
		if err := h.charge(r.Context(), &found, app, amount); err != nil {
			return err
		}
		if out, _, err = h.find(r.Context(), out.ID); err != nil {
			return err
		}
	}
	switch {
	case out.CapturedMC == nil:
		return apierr.InvalidRequest.On(out.ConnectionID,
			"this hold has ended: it was released, or its %d minutes are over", int(policy.WorkLifetime.Minutes()))
	case *out.CapturedMC != amount:
		return apierr.InvalidRequest.On(out.ConnectionID, "this hold was captured with %d", *out.CapturedMC)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// charge settles a hold. It changes nothing if the hold has ended meanwhile.
func (h *Handler) charge(ctx context.Context, f *record, app *apps.App, amount money.MC) error {
	terms, _ := policy.ParseWork(f.call.Terms)
	fee, err := terms.FeeOn(amount)
	if err != nil {
		return err
	}
	_, err = h.Ledger.Do(ctx, rules.Settle{
		Call:       f.call,
		Attempt:    f.attempt,
		Charge:     rules.Amounts{SvcFeeMC: fee, DevMarginMC: amount - fee, UserChargeMC: amount},
		Settlement: rules.Settled,
		Usage:      rules.Usage{JSON: policy.WorkUsage(amount)},
		Risk:       h.Policies.At(h.DB.Now()).RiskOf(app),
		Receipt:    receipts.JSON,
		Held:       true,
	})
	return err
}

// release gives the whole amount back. A repeated release answers the same.
func (h *Handler) release(w http.ResponseWriter, r *http.Request) error {
	out, found, _, err := h.require(r)
	if err != nil {
		return err
	}
	if found.state == rules.Pending {
		done, err := h.Ledger.Do(r.Context(), rules.Release{Call: found.call, Attempt: found.attempt, Pending: true})
		if err != nil {
			return err
		}
		if out.Status, out.ExpiresAt = "released", nil; done.Outcome != rules.Applied {
			if out, _, err = h.find(r.Context(), out.ID); err != nil {
				return err
			}
		}
	}
	if out.CapturedMC != nil {
		return apierr.InvalidRequest.On(out.ConnectionID, "this hold was captured; refund the charge instead")
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
