package voice

import (
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
)

// billingTerms are how a session is billed. They are fixed at its creation, as the price terms of a
// call are at its hold, and saved with the session.
type billingTerms struct {
	ConnectionID      string
	AccountID         string
	AppID             string
	OwnerID           string // the app's developer
	ChildID           string `json:",omitempty"` // the child that pays; "" = the connection itself
	Feature           string // the slug as sent; "" = none
	FeatureLabel      string // what analytics count the replies under
	Model             string
	Provider          string
	Rates             string    // the snapshot of the model's rates
	policy.Shares               // what the charge adds to the provider cost
	policy.Guardrails           // of the feature, for each reply
	MaxOutputTokens   int64     // of a reply
	DeveloperKey      bool      // the developer's provider key serves the session
	PlatformKey       string    // names the operator's key that serves it; "" = the first
	OwnKey            string    `json:",omitempty"` // names the developer's key that began it
	Mock              bool      // the voice is canned
	BudgetMC          *money.MC `json:",omitempty"` // max_cost_mc, of all replies; nil = no bound

	// What transcripts of the user's speech are billed by; "" = the session has none.
	TranscriptModel string `json:",omitempty"`
	TranscriptRates string `json:",omitempty"`

	rates           catalog.Rates // of Rates
	transcriptRates catalog.Rates // of TranscriptRates
}

// modelOf returns the model, its rates and their snapshot, by which a reply or a transcript is billed.
func (t *billingTerms) modelOf(isTranscript bool) (model string, rates *catalog.Rates, snapshot string) {
	if isTranscript {
		return t.TranscriptModel, &t.transcriptRates, t.TranscriptRates
	}
	return t.Model, &t.rates, t.Rates
}

// parseRates reads the rates after the terms were decoded.
func (t *billingTerms) parseRates() (err error) {
	if t.rates, err = catalog.ParseSnapshot(t.Rates); err == nil && t.TranscriptRates != "" {
		t.transcriptRates, err = catalog.ParseSnapshot(t.TranscriptRates)
	}
	return err
}

// replyKey returns the idempotency key of reply n. It is no UUID, so no client's key is equal to it.
func (t *billingTerms) replyKey(sessionID string, n int64) string {
	return rules.ChildKey(t.ChildID, fmt.Sprintf("%s/%d", sessionID, n))
}

// ledgerKey returns the ledger's key of reply n.
func (t *billingTerms) ledgerKey(sessionID string, n int64) rules.Key {
	return rules.Key{ConnectionID: t.ConnectionID, Key: t.replyKey(sessionID, n)}
}

// priceTerms returns what the charge of a reply is computed from, if the wallet pays.
func (t *billingTerms) priceTerms(h session.Hold) policy.Terms {
	_, _, snapshot := t.modelOf(h.Transcript)
	return policy.Terms{
		Shares:      t.Shares,
		Rates:       snapshot,
		InputTokens: h.Text,
		MaxTokens:   h.MaxOutputTokens,
		Voice:       true,
		AudioTokens: h.Audio,
		TextCached:  h.TextCached,
		AudioCached: h.AudioCached,
		Mock:        t.Mock,
	}
}

// holdAmount returns the most that a reply may cost with these rates of margin and fee.
func (t *billingTerms) holdAmount(h session.Hold, margin, fee money.PPM) (money.MC, error) {
	_, rates, _ := t.modelOf(h.Transcript)
	return pricing.EstimateVoiceHold(*rates, h.VoiceInput, h.MaxOutputTokens, margin, fee)
}

// smallestOutput is the output limit of the smallest reply that is worth a hold: about 3 s of speech.
const smallestOutput = 64

// fitOutput returns the highest output limit with which a reply costs at most budget. It returns 0 if not
// even the smallest reply does.
func (t *billingTerms) fitOutput(h session.Hold, budget money.MC) (int64, error) {
	fits := func(output int64) (bool, error) {
		h.MaxOutputTokens = output
		most, err := t.holdAmount(h, t.Margin, t.Fee)
		return most <= budget, err
	}
	least, most := min(smallestOutput, h.MaxOutputTokens), h.MaxOutputTokens
	if ok, err := fits(least); err != nil || !ok {
		return 0, err
	}
	for least < most { // least fits
		middle := least + (most-least+1)/2
		ok, err := fits(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			least = middle
		} else {
			most = middle - 1
		}
	}
	return least, nil
}

// ledgerCall returns the ledger's call of a reply.
func (t *billingTerms) ledgerCall(sessionID, requestID string, h session.Hold) (rules.Call, error) {
	key, terms := t.replyKey(sessionID, h.N), t.priceTerms(h)
	model, _, _ := t.modelOf(h.Transcript)
	c := rules.Call{
		ConnectionID: t.ConnectionID,
		AccountID:    t.AccountID,
		AppID:        t.AppID,
		Key:          key,
		RequestID:    requestID,
		Fingerprint:  id.Hash(key),
		Feature:      t.Feature,
		FeatureLabel: t.FeatureLabel,
		Model:        model,
		Terms:        terms.JSON(),
	}
	if t.ChildID != "" { // a hold replaces it; a reply that was not held is charged to the child by it
		c.Reservations = rules.Reservations{{Subject: rules.ChildSubject(t.ChildID), Unit: limits.Spend}}
	}
	var err error
	c.HoldMC, err = t.holdAmount(h, t.Margin, t.Fee)
	return c, err
}

// finishReasons are the finish reasons of replies, by their status at the provider.
var finishReasons = map[string]string{
	"completed":  "stop",
	"incomplete": "length",
	"cancelled":  "cancelled",
	"failed":     "failed",
}

// settlement returns the ledger's command that charges a reply, by the terms of who pays for it. The charge is at most
// what the feature allows for a call, and what is left of max_cost_mc. A reply that failed or said nothing is free
// while that costs the service at most freeDayMC in a day.
func (t *billingTerms) settlement(
	sessionID string, c *rules.Call, s *session.Settle, freeDayMC money.MC,
) (rules.Settle, error) {
	shares := t.PaidBy(c.PaidBy)
	_, rates, _ := t.modelOf(s.Transcript)
	out := rules.Settle{
		Call:       *c,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage: rules.Usage{
			JSON:         string(mustJSON(s.Usage)),
			InputTokens:  s.Usage.Input(),
			OutputTokens: s.Usage.Output(),
		},
		Delivery: rules.Delivery{
			FirstByteMS:  max(s.FirstAudioMS, 0),
			DurationMS:   max(s.DurationMS, 0),
			FinishReason: finishReasons[s.Status],
		},
		MaxChargeMC: t.MaxCostPerCallMC,
	}
	if t.BudgetMC != nil {
		out.Budget = &rules.Budget{Subject: rules.VoiceSubject(sessionID), MaxMC: *t.BudgetMC}
	}
	amounts, err := pricing.ChargeVoice(*rates, s.Usage, shares.Margin, shares.Fee)
	if s.Estimated {
		out.Settlement = rules.Estimated
		amounts, err = pricing.ChargeVoiceEstimate(*rates, s.Usage, shares.Margin, shares.Fee, c.HoldMC)
	}
	out.Charge = rules.Amounts(amounts)
	if s.Silent && freeDayMC > 0 {
		free := out.Usage
		free.JSON = strings.TrimSuffix(free.JSON, "}") + "," + rules.WaivedEmpty + "}"
		out.Waiver = &rules.Waiver{DayMC: freeDayMC, Usage: free}
	}
	return out, err
}

// exhaustedBy returns the end reason of a session whose charge is lower than what was used: which bound it has reached.
func (t *billingTerms) exhaustedBy(e *rules.Entry) string {
	switch {
	case t.MaxCostPerCallMC != nil && e.UserChargeMC == *t.MaxCostPerCallMC:
		return apierr.FeatureCostExceeded.Name
	case e.RemainingMC == 0:
		return apierr.AllocationExhausted.Name
	}
	return session.MaxCost
}

// demand returns the hold of a reply with every limit that applies to it now.
func (t *billingTerms) demand(
	p *policy.Policy, app *apps.App, c rules.Call, h session.Hold, now time.Time,
) (rules.Hold, error) {
	costMC, err := t.holdAmount(h, 0, 0)
	if err != nil {
		return rules.Hold{}, err
	}
	d := p.Demand(&policy.Call{
		Call:          c,
		PriceTerms:    t.priceTerms(h),
		CostMC:        costMC,
		App:           app,
		ChildID:       t.ChildID,
		Guardrails:    t.Guardrails,
		DeveloperPays: t.DeveloperKey,
	}, now)
	d.Claim = c.Key
	return d, nil
}
