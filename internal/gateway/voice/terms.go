package voice

import (
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

// billingTerms are how a session is billed. They are fixed at its creation, as the price terms of a
// call are at its hold, and saved with the session.
type billingTerms struct {
	ConnectionID    string
	AccountID       string
	AppID           string
	OwnerID         string // the app's developer
	Feature         string // the slug as sent; "" = none
	FeatureLabel    string // what analytics count the replies under
	Model           string
	Provider        string
	Rates           string // the snapshot of the model's rates
	Margin          money.PPM
	Fee             money.PPM
	MaxCostMC       *money.MC // the feature's guardrail of a call, here of a reply
	MaxOutputTokens int64     // of a reply
	DeveloperKey    bool      // the developer's provider key serves the session

	rates catalog.Rates // of Rates
}

// parseRates reads the rates after the terms were decoded.
func (t *billingTerms) parseRates() (err error) {
	t.rates, err = catalog.ParseSnapshot(t.Rates)
	return err
}

// replyKey returns the idempotency key of reply n. It is no UUID, so no client's key is equal to it.
func replyKey(sessionID string, n int64) string { return fmt.Sprintf("%s/%d", sessionID, n) }

// ledgerKey returns the ledger's key of reply n.
func (t *billingTerms) ledgerKey(sessionID string, n int64) rules.Key {
	return rules.Key{ConnectionID: t.ConnectionID, Key: replyKey(sessionID, n)}
}

// priceTerms renders what the charge of a reply is computed from.
func (t *billingTerms) priceTerms(h session.Hold, margin, fee money.PPM, pool string) string {
	return string(mustJSON(struct {
		Rates  json.RawMessage `json:"rates"`
		Margin int64           `json:"margin_ppm"`
		Fee    int64           `json:"fee_ppm"`
		Text   int64           `json:"input_tokens"`
		Audio  int64           `json:"audio_tokens"`
		Max    int64           `json:"max_tokens"`
		Pool   string          `json:"pool,omitempty"`
	}{json.RawMessage(t.Rates), int64(margin), int64(fee), h.TextTokens, h.AudioTokens, t.MaxOutputTokens, pool}))
}

// holdAmount returns the most that a reply may cost with these rates of margin and fee.
func (t *billingTerms) holdAmount(h session.Hold, margin, fee money.PPM) (money.MC, error) {
	return pricing.EstimateVoiceHold(t.rates, h.TextTokens, h.AudioTokens, t.MaxOutputTokens, margin, fee)
}

// ledgerCall returns the ledger's call of a reply.
func (t *billingTerms) ledgerCall(sessionID, requestID string, h session.Hold) (rules.Call, error) {
	key := replyKey(sessionID, h.N)
	c := rules.Call{
		ConnectionID: t.ConnectionID,
		AccountID:    t.AccountID,
		AppID:        t.AppID,
		Key:          key,
		RequestID:    requestID,
		Fingerprint:  id.Hash(key),
		Feature:      t.Feature,
		FeatureLabel: t.FeatureLabel,
		Model:        t.Model,
		Terms:        t.priceTerms(h, t.Margin, t.Fee, ""),
	}
	var err error
	c.HoldMC, err = t.holdAmount(h, t.Margin, t.Fee)
	return c, err
}

// settlement returns the ledger's command that charges a reply, by the terms of who pays for it.
func (t *billingTerms) settlement(c *rules.Call, s *session.Settle) (rules.Settle, error) {
	margin, fee := t.Margin, t.Fee
	if c.PaidBy == rules.PaidByFreeCredit {
		margin, fee = 0, 0
	}
	out := rules.Settle{
		Call:       *c,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage: rules.Usage{
			JSON:         string(mustJSON(s.Usage)),
			InputTokens:  s.Usage.Input(),
			OutputTokens: s.Usage.Output(),
		},
	}
	amounts, err := pricing.ChargeVoice(t.rates, s.Usage, margin, fee)
	if s.Estimated {
		out.Settlement = rules.Estimated
		amounts, err = pricing.ChargeVoiceEstimate(t.rates, s.Usage, margin, fee, c.HoldMC)
	}
	out.Charge = rules.Amounts(amounts)
	return out, err
}

// Policy is what the operator has set for the money of sessions.
type Policy struct {
	Free         tiers.FreeCredit
	Risk         limits.Risk
	SandboxDayMC money.MC
}

// riskOf returns the risk thresholds of an app's connections, or nil if their money is fake.
func (p *Policy) riskOf(app *apps.App) *limits.Risk {
	if app.Tier == "" || app.Tier == tiers.Sandbox || p.Risk.Warn <= 0 {
		return nil
	}
	return &p.Risk
}

// demand returns the hold of a reply with every limit that applies to it now, but for the feature's
// rate limit: contract §4.4 does not list rate_limited.
func (p *Policy) demand(
	t *billingTerms, app *apps.App, c rules.Call, h session.Hold, now time.Time,
) (rules.Hold, error) {
	d := rules.Hold{Call: c, Claim: c.Key, MaxCostMC: t.MaxCostMC}
	live := app.Tier != tiers.Sandbox
	if !live && app.ProviderMode == apps.Mock {
		return d, nil // fake money for canned responses
	}
	costMC, err := t.holdAmount(h, 0, 0)
	if err != nil {
		return d, err
	}
	if d.CostMC = costMC; !live {
		if !t.DeveloperKey {
			d.Limits = append(d.Limits, tiers.SandboxLimit(app.OwnerID, p.SandboxDayMC))
		}
		return d, nil
	}
	tier := tiers.Of(app.Tier)
	d.Limits = append(d.Limits, tier.Limits(app.ID)...)
	d.MaxCapMC = tier.MaxCapMC
	if p.Risk.Warn > 0 {
		d.Risk = &p.Risk
	}
	if p.Free.PoolMC > 0 {
		d.FreeCredit = p.freeCredit(t, h, costMC, now)
	}
	return d, nil
}

// freeCredit returns how free credit would pay for a reply: at cost, without margin and fee.
func (p *Policy) freeCredit(t *billingTerms, h session.Hold, costMC money.MC, now time.Time) *rules.FreeCreditHold {
	pool, onApp, onAll := rules.FreeCreditSubjects(t.AppID, t.AccountID, now)
	return &rules.FreeCreditHold{
		Terms:  t.priceTerms(h, 0, 0, pool),
		HoldMC: costMC,
		Limits: []limits.Limit{
			{Subject: pool, Unit: limits.Spend, Max: int64(p.Free.PoolMC)},
			{Subject: onApp, Unit: limits.Spend, Max: int64(p.Free.OnAppMC)},
			{Subject: onAll, Unit: limits.Spend, Max: int64(p.Free.OnAllMC)},
		},
	}
}
