package voice

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
)

// book is how a session is billed: fixed at its creation, like the prices of any
// call are at its hold.
type book struct {
	ConnectionID, AccountID, AppID, OwnerID string
	Feature, Bucket, Model, Provider        string
	Rates                                   string // snapshot
	Margin, Fee                             money.PPM
	MaxCostMC                               *money.MC // the feature's guardrail of one call, here: of one reply
	OwnKey                                  bool      // the developer's own key serves the call
	MaxOutput                               int64
	rates                                   catalog.Rates
}

// open reads the prices.
func (b *book) open() (err error) {
	b.rates, err = catalog.ParseSnapshot(b.Rates)
	return err
}

// keyOf names reply n of a session in the ledger. No client's key looks like it.
func keyOf(sessionID string, n int64) string { return fmt.Sprintf("%s/%d", sessionID, n) }

func entryOf(requestID string) string { return id.ReplacePrefix(requestID, id.Request, id.Ledger) }

// terms writes what the price of a reply is computed from (see package inference).
func (b *book) terms(margin, fee money.PPM, text, audio int64, pool string) string {
	t := struct {
		Rates  json.RawMessage `json:"rates"`
		Margin int64           `json:"margin_ppm"`
		Fee    int64           `json:"fee_ppm"`
		Text   int64           `json:"input_tokens"`
		Audio  int64           `json:"audio_tokens"`
		Max    int64           `json:"max_tokens"`
		Pool   string          `json:"pool,omitempty"`
	}{json.RawMessage(b.Rates), int64(margin), int64(fee), text, audio, b.MaxOutput, pool}
	return string(mustJSON(t))
}

// call names a reply for the ledger.
func (b *book) call(sessionID string, n int64, requestID string, text, audio int64) (rules.Call, error) {
	key := keyOf(sessionID, n)
	c := rules.Call{
		ConnectionID: b.ConnectionID, AccountID: b.AccountID, AppID: b.AppID, Key: key, RequestID: requestID, Fingerprint: id.Hash(key),
		Feature: b.Feature, FeatureLabel: b.Bucket, Model: b.Model, Terms: b.terms(b.Margin, b.Fee, text, audio, ""),
	}
	var err error
	c.HoldMC, err = pricing.EstimateVoiceHold(b.rates, text, audio, b.MaxOutput, b.Margin, b.Fee)
	return c, err
}

// demand is the hold of a reply, with every limit that there is for it now (see
// package inference), but the feature's rate_limit: spec §4.4 knows no rate_limited.
func (h *Handler) demand(b *book, app *apps.App, c rules.Call, text, audio int64, now time.Time) (rules.Hold, error) {
	d := rules.Hold{Call: c, NodeID: h.Node, Claim: c.Key, MaxCostMC: b.MaxCostMC}
	live := app.Tier != tiers.Sandbox
	if !live && app.ProviderMode == apps.Mock {
		return d, nil // fake money for canned answers
	}
	cost, err := pricing.EstimateVoiceHold(b.rates, text, audio, b.MaxOutput, 0, 0)
	if err != nil {
		return d, err
	}
	if d.CostMC = cost; !live {
		if !b.OwnKey {
			d.Limits = append(d.Limits, tiers.SandboxLimit(app.OwnerID, h.SandboxDayMC))
		}
		return d, nil
	}
	terms := tiers.Of(app.Tier)
	d.Limits = append(d.Limits, terms.Limits(app.ID)...)
	d.MaxCapMC = terms.MaxCapMC
	if h.Risk.Warn > 0 {
		d.Risk = &h.Risk
	}
	if h.Free.PoolMC > 0 {
		d.FreeCredit = h.free(b, text, audio, cost, now)
	}
	return d, nil
}

// charge prices what a reply used, by the terms of who pays.
func (b *book) charge(c *rules.Call, a session.Settle) (rules.Settle, error) {
	margin, fee := b.Margin, b.Fee
	if c.PaidBy == rules.PaidByFreeCredit {
		margin, fee = 0, 0
	}
	out := rules.Settle{Call: *c, Attempt: 1, Settlement: rules.Settled, Usage: rules.Usage{JSON: string(mustJSON(a.Usage)), InputTokens: a.Usage.Input(), OutputTokens: a.Usage.Output()}}
	amounts, err := pricing.ChargeVoice(b.rates, a.Usage, margin, fee)
	if a.Estimated {
		out.Settlement = rules.Estimated
		amounts, err = pricing.ChargeVoiceEstimate(b.rates, a.Usage, margin, fee, c.HoldMC)
	}
	out.Charge = rules.Amounts(amounts)
	return out, err
}

// app returns the session's app as it is now.
func (h *Handler) app(ctx context.Context, b *book) (apps.App, error) {
	return h.Apps.Get(ctx, b.AppID)
}

// free is how free credit would pay for a reply: at cost, without margin and fee.
func (h *Handler) free(b *book, text, audio int64, cost money.MC, now time.Time) *rules.FreeCreditHold {
	pool, onApp, onAll := rules.FreeCreditSubjects(b.AppID, b.AccountID, now)
	return &rules.FreeCreditHold{
		Terms: b.terms(0, 0, text, audio, pool), HoldMC: cost,
		Limits: []limits.Limit{
			{Subject: pool, Unit: limits.Spend, Max: int64(h.Free.PoolMC)}, {Subject: onApp, Unit: limits.Spend, Max: int64(h.Free.OnAppMC)},
			{Subject: onAll, Unit: limits.Spend, Max: int64(h.Free.OnAllMC)},
		},
	}
}
