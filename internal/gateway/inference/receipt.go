package inference

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
)

// Receipt is a call in words and numbers (decisions, Beyond the contract).
type Receipt struct {
	ID           string          `json:"id"`
	Object       string          `json:"object"`
	Status       string          `json:"status"` // settled, estimated, pending, refused, in_flight, failed
	ConnectionID string          `json:"connection_id"`
	CreatedAt    string          `json:"created_at"`
	Model        *string         `json:"model"`
	Feature      *string         `json:"feature"`
	Billed       bool            `json:"billed"`
	Charge       *Charge         `json:"charge"`
	Usage        json.RawMessage `json:"usage"`
	PriceVersion *string         `json:"price_version"` // the book that the unit prices stand in
	Lines        []Line          `json:"lines"`
	Error        *Refused        `json:"error"`
	Explanation  string          `json:"explanation"`
}

// Charge is what a call cost, and what had been held for it.
type Charge struct {
	HoldAmountMC      money.MC `json:"hold_amount_mc"`
	HoldAmountDisplay string   `json:"hold_amount_display"`
	ProviderCostMC    money.MC `json:"provider_cost_mc"`
	SvcFeeMC          money.MC `json:"svc_fee_mc"`
	DevMarginMC       money.MC `json:"dev_margin_mc"`
	UserChargeMC      money.MC `json:"user_charge_mc"`
	UserChargeDisplay string   `json:"user_charge_display"`
	RemainingMC       money.MC `json:"allocation_remaining_mc"`
	RemainingDisplay  string   `json:"allocation_remaining_display"`
	PaidBy            string   `json:"paid_by"`
}

// Line is one token class of the provider's cost; lines add up to it, but for
// the one rounding at the end.
type Line struct {
	Class             string `json:"class"`
	Tokens            int64  `json:"tokens"`
	UnitPriceUSDPer1M string `json:"unit_price_usd_per_1m"`
	CostMC            string `json:"cost_exact_mc"` // with its decimals: the sum is rounded once
}

// Refused is why a call was refused.
type Refused struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Status  int             `json:"status"`
	Details json.RawMessage `json:"details"`
}

// receipt answers GET /v1/requests/{id}, to the connection itself or to its app.
func (h *Handler) receipt(w http.ResponseWriter, r *http.Request) error {
	sees, err := h.viewer(r)
	if err != nil {
		return err
	}
	requestID := r.PathValue("id")
	if !strings.HasPrefix(requestID, "req_") {
		return apierr.NotFound.Errorf("no such request")
	}
	out, appID, err := FindReceipt(r.Context(), h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !sees(out.ConnectionID, appID) {
		return apierr.NotFound.Errorf("no such request")
	} else if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// viewer returns what the request's credential may see.
func (h *Handler) viewer(r *http.Request) (func(connectionID, appID string) bool, error) {
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Basic") {
		app, err := h.Apps.Authenticate(r.Context(), r)
		return func(_, appID string) bool { return appID == app.ID }, err
	}
	who, err := h.Callers.Resolve(r)
	if err != nil {
		return nil, err
	}
	return func(connectionID, _ string) bool { return connectionID == who.ConnectionID }, nil
}

// FindReceipt returns the receipt of a request and the id of its app, or
// sql.ErrNoRows. Whoever asks decides who may see it.
func FindReceipt(ctx context.Context, d db.Queryer, requestID string) (*Receipt, string, error) {
	entry, err := store.GetEntry(ctx, d, "led_"+strings.TrimPrefix(requestID, "req_"))
	if err == nil && entry.Type == rules.EntrySpend && entry.Status == "settled" {
		out, err := billed(&entry)
		return out, entry.AppID, err
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, "", err
	}
	hold, err := store.HoldOfRequest(ctx, d, requestID)
	if err == nil {
		return unbilled(&hold), hold.AppID, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, "", err
	}
	refusal, err := store.GetRefusal(ctx, d, requestID)
	if err != nil {
		return nil, "", err
	}
	return refusedReceipt(&refusal), refusal.AppID, nil
}

func billed(e *rules.Entry) (*Receipt, error) {
	usage, err := appendUsage(nil, e)
	if err != nil {
		return nil, err
	}
	out := &Receipt{
		ID: e.RequestID(), Object: "request", Status: string(e.Settlement), ConnectionID: e.ConnectionID, CreatedAt: timestamp.Format(e.CreatedUS),
		Model: &e.Model, Billed: true, Usage: usage,
		Charge: &Charge{
			HoldAmountMC: e.HoldMC, HoldAmountDisplay: e.HoldMC.Display(), ProviderCostMC: e.ProviderCostMC, SvcFeeMC: e.SvcFeeMC, DevMarginMC: e.DevMarginMC,
			UserChargeMC: e.UserChargeMC, UserChargeDisplay: e.UserChargeMC.Display(), RemainingMC: e.RemainingMC, RemainingDisplay: e.RemainingMC.Display(), PaidBy: e.PaidBy,
		},
	}
	if e.Feature != "" {
		out.Feature = &e.Feature
	}
	rates, err := ratesOf(e)
	if err != nil {
		return nil, err
	}
	out.PriceVersion = &rates.PriceList
	if out.Lines, err = lines(e, rates); err != nil {
		return nil, err
	}
	how := "from the usage reported by the provider"
	if e.Settlement == rules.Estimated {
		how = "estimated, because the provider reported no usable usage; estimates are rounded down and never exceed the hold"
	}
	out.Explanation = fmt.Sprintf("%s was charged %s: %s of provider cost, %s of app margin and %s of service fee, %s. %s had been held.",
		e.Model, e.UserChargeMC.Display(), e.ProviderCostMC.Display(), e.DevMarginMC.Display(), e.SvcFeeMC.Display(), how, e.HoldMC.Display())
	return out, nil
}

// receiptText is the receipt of a billed call as request.settled carries it.
func receiptText(e *rules.Entry) (string, error) {
	r, err := billed(e)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(r)
	return string(b), err
}

// ratesOf reads the prices of the hold.
func ratesOf(e *rules.Entry) (catalog.Rates, error) {
	var t struct {
		Rates json.RawMessage `json:"rates"`
	}
	if err := json.Unmarshal([]byte(e.Terms), &t); err != nil {
		return catalog.Rates{}, fmt.Errorf("receipt of %s: %w", e.ID, err)
	}
	return catalog.ParseSnapshot(string(t.Rates))
}

// lines splits the provider's cost by token class, at the prices of the hold.
func lines(e *rules.Entry, rates catalog.Rates) ([]Line, error) {
	u, err := usageOf(e)
	if err != nil {
		return nil, err
	}
	p := rates.At(u.Input + u.Cached + u.CacheWrite)
	voice := rates.Voice
	if voice == nil {
		voice = &catalog.Voice{}
	}
	out := []Line{}
	for _, c := range []struct {
		class string
		n     int64
		price money.MC
	}{{"input", u.Input, p.Input}, {"cached", u.Cached, p.Cached}, {"cache_write", u.CacheWrite, p.CacheWrite}, {"output", u.Output, p.Output},
		{"audio_input", u.AudioInput, voice.AudioInput}, {"audio_cached", u.AudioCached, voice.AudioCached}, {"audio_output", u.AudioOutput, voice.AudioOutput},
		{"image_input", u.ImageInput, voice.ImageInput}, {"image_cached", u.ImageCached, voice.ImageCached}} {
		if c.n > 0 {
			out = append(out, Line{c.class, c.n, strings.TrimPrefix(c.price.Display(), "$"), exactMC(c.n, int64(c.price))})
		}
	}
	return out, nil
}

// exactMC writes tokens × price ÷ 1,000,000 with its decimals.
func exactMC(n, price int64) string {
	whole, _ := money.MulDiv(n, price, 1_000_000, money.Down) // bounded: both come from a settled row
	rest := (n % 1_000_000) * (price % 1_000_000) % 1_000_000
	s := fmt.Sprintf("%d.%06d", whole, rest)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func unbilled(h *rules.HoldRow) *Receipt {
	out := &Receipt{ID: h.RequestID, Object: "request", Status: "in_flight", Lines: []Line{}, ConnectionID: h.ConnectionID, CreatedAt: timestamp.Format(h.CreatedUS), Model: &h.Model}
	if h.Feature != "" {
		out.Feature = &h.Feature
	}
	out.Explanation = fmt.Sprintf("The call is in progress. Up to %s is held for it.", h.HoldMC.Display())
	switch h.State {
	case rules.Pending:
		out.Status = "pending"
		out.Explanation = fmt.Sprintf("The call was delivered, but its usage is not known yet. Up to %s stays held until the provider reports it. The event request.settled carries the charge.", h.HoldMC.Display())
	case rules.Failed:
		out.Status, out.Explanation = "failed", "The provider failed. Nothing was billed. You can retry with the same Idempotency-Key."
	}
	return out
}

func refusedReceipt(r *rules.Refusal) *Receipt {
	out := &Receipt{
		ID: r.RequestID, Object: "request", Status: "refused", Lines: []Line{}, ConnectionID: r.ConnectionID, CreatedAt: timestamp.Format(r.CreatedUS),
		Error:       &Refused{r.Code, r.Message, r.Status, json.RawMessage(r.Details)},
		Explanation: fmt.Sprintf("The call was refused with %d %s, and nothing was billed: %s.", r.Status, r.Code, strings.TrimSuffix(r.Message, ".")),
	}
	if r.Model != "" {
		out.Model = &r.Model
	}
	if r.Feature != "" {
		out.Feature = &r.Feature
	}
	return out
}

func detailsJSON(e *apierr.Error) string {
	if e.Details == nil {
		return "{}"
	}
	b, err := json.Marshal(e.Details)
	if err != nil {
		return "{}"
	}
	return string(b)
}
