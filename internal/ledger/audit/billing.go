package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/go-json-experiment/json"
)

// terms are the price terms of a hold and its row: the prices and rates at the time of
// the hold, and the counts that bound it.
type terms struct {
	Rates struct {
		Book  string     `json:"book"`
		Steps [][5]int64 `json:"mc_per_million"` // above_input, input, cached, cache_write, output
		// Voice are the prices of a realtime model: audio input, cached, output, image input, cached.
		Voice *[5]int64 `json:"voice_mc_per_million"`
		// Embedding says that the model has no output, so that its price is 0.
		Embedding bool `json:"embedding"`
	} `json:"rates"`
	Margin int64 `json:"margin_ppm"`
	Fee    int64 `json:"fee_ppm"`
	Input  int64 `json:"input_tokens"`
	Max    int64 `json:"max_tokens"`
	Audio  int64 `json:"audio_tokens"` // of the input of a voice reply, in addition to text
	// CachedText and CachedAudio are input that a voice reply reads from the provider's cache, in addition.
	CachedText  int64 `json:"cached_text_tokens"`
	CachedAudio int64 `json:"cached_audio_tokens"`
	// Counted bounds what an estimate may be charged for, where more was held.
	Counted *int64 `json:"counted_tokens"`
	// Mock says that a canned response was billed.
	Mock bool `json:"mock"`
	// Pool is the counter of the free credit that pays; "" = the wallet pays.
	Pool string `json:"pool"`
	// Work says that the app charged for work of its own. It has no rates and no counts.
	Work *struct {
		Amount      int64  `json:"amount_mc"` // held
		Description string `json:"description"`
	} `json:"own_work"`
}

// usage is the usage of a call as its row has it.
type usage struct {
	Input      int64 `json:"input"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`
	// CacheSaved is what the provider's cache saved of the charge; nil = the cache was not used, or the row is older.
	CacheSaved *int64 `json:"cache_saved_mc"`
	// Of a voice reply:
	AudioInput  int64 `json:"audio_input"`
	AudioCached int64 `json:"audio_cached"`
	AudioOutput int64 `json:"audio_output"`
	ImageInput  int64 `json:"image_input"`
	ImageCached int64 `json:"image_cached"`
	// Bound is what lowered the charge of a voice reply: the rest of max_cost_mc, or the feature's bound of a call.
	Bound *int64 `json:"bound_mc"`
	// Captured is what an app asked for its own work.
	Captured *int64 `json:"captured_mc"`
	// Waived says why the call was free; "" = it was charged.
	Waived string `json:"waived"`
}

// billing is what the charge of one call is computed from.
type billing struct {
	terms
	usage
}

// parseBilling parses a spend row's terms and usage.
func parseBilling(termsText, usageText string) (*billing, error) {
	var b billing
	if err := parseTerms(termsText, &b.terms); err != nil {
		return nil, err
	}
	if err := unmarshalStrict(usageText, &b.usage); err != nil {
		return nil, fmt.Errorf("usage %q: %w", usageText, err)
	}
	if min(b.usage.Input, b.Cached, b.CacheWrite, b.Output, b.Reasoning, b.AudioInput, b.AudioCached, b.AudioOutput,
		b.ImageInput, b.ImageCached) < 0 || b.Reasoning > b.Output {
		return nil, fmt.Errorf("usage %q cannot be", usageText)
	}
	if work := b.Work != nil; work != (b.Captured != nil) ||
		work && (*b.Captured < 0 || b.usage != usage{Captured: b.Captured}) {
		return nil, fmt.Errorf("usage %q cannot be that of terms %q", usageText, termsText)
	}
	if b.Waived != "" && (b.Waived != "empty_answer" || b.Rates.Embedding ||
		b.Rates.Voice == nil && b.Output-b.Reasoning > maxEmptyTokens) { // checkWaived judges a voice reply
		return nil, fmt.Errorf("usage %q cannot be that of a free call", usageText)
	}
	return &b, nil
}

// maxEmptyTokens is the most that a provider counts for an answer without content.
const maxEmptyTokens = 16

func parseTerms(text string, t *terms) error {
	if err := unmarshalStrict(text, t); err != nil {
		return fmt.Errorf("terms %q: %w", text, err)
	}
	if w := t.Work; w != nil {
		if w.Amount <= 0 || t.Fee < 0 || len(t.Rates.Steps) > 0 || t.Margin|t.Input|t.Max|t.heldVoice() != 0 ||
			t.Counted != nil || t.Pool != "" {
			return fmt.Errorf("terms %q cannot be", text)
		}
		return nil
	}
	if len(t.Rates.Steps) == 0 || t.Rates.Steps[0][0] != 0 || min(t.Margin, t.Fee, t.Input, t.Max, t.Audio) < 0 ||
		min(t.CachedText, t.CachedAudio) < 0 || t.heldVoice() != 0 && t.Rates.Voice == nil ||
		t.Rates.Embedding != (t.Rates.Steps[0][4] == 0) || t.Rates.Embedding && t.Max != 0 {
		return fmt.Errorf("terms %q cannot be", text)
	}
	return nil
}

// heldVoice returns a number that is 0 if the terms have nothing that only those of voice replies have.
func (t *terms) heldVoice() int64 { return t.Audio | t.CachedText | t.CachedAudio }

// unmarshalStrict parses JSON and refuses unknown members, because one might be a price
// or a count that is missing in the sum.
func unmarshalStrict(text string, into any) error {
	return json.Unmarshal([]byte(text), into, json.RejectUnknownMembers(true))
}

// A roundingMode says how a fraction of a micro-cent is rounded.
type roundingMode int

const (
	roundDown roundingMode = iota
	roundHalfUp
	roundUp
)

// million is the number of tokens that a price is for, and of parts in a rate.
var million = big.NewInt(1_000_000)

// divideByMillion returns n ÷ million, rounded. n is not negative.
func divideByMillion(n *big.Int, round roundingMode) *big.Int {
	quotient, rest := new(big.Int).QuoRem(n, million, new(big.Int))
	if round == roundUp && rest.Sign() > 0 || round == roundHalfUp && rest.Int64()*2 >= 1_000_000 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient
}

// applyRate returns n × rate ÷ million, rounded.
func applyRate(n *big.Int, rate int64, round roundingMode) *big.Int {
	return divideByMillion(new(big.Int).Mul(n, big.NewInt(rate)), round)
}

// priceTokens returns Σ tokens × price ÷ million, rounded once. pairs alternates tokens
// and prices.
func priceTokens(round roundingMode, pairs ...int64) *big.Int {
	sum := new(big.Int)
	for i := 0; i < len(pairs); i += 2 {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(pairs[i]), big.NewInt(pairs[i+1])))
	}
	return divideByMillion(sum, round)
}

// computeHold returns 105 % of the highest charge that the counts allow: all input in its most expensive class, but
// for what a voice reply reads from the cache, and a long-context step from its threshold on (decision 019).
func (t *terms) computeHold() *big.Int {
	if t.Work != nil {
		return big.NewInt(t.Work.Amount)
	}
	var input, output int64
	for _, s := range t.Rates.Steps {
		if s[0] <= t.Input {
			input, output = max(input, s[1], s[3]), max(output, s[4])
		}
	}
	cost := priceTokens(roundUp, t.Input, input, t.Max, output)
	if v := t.Rates.Voice; v != nil { // any token of a reply may be audio
		cost = priceTokens(roundUp, t.Input, t.Rates.Steps[0][1], t.CachedText, t.Rates.Steps[0][2], t.Audio, v[0],
			t.CachedAudio, v[1], t.Max, max(output, v[2]))
	}
	dearest := new(big.Int).Add(cost, applyRate(cost, t.Margin, roundHalfUp))
	dearest.Add(dearest, applyRate(cost, t.Fee, roundUp))
	return applyRate(dearest, 1_050_000, roundUp)
}

// computeCost returns the provider cost: each token class at its price, by the step that
// all input together reaches.
func (b *billing) computeCost(round roundingMode) *big.Int {
	if b.Work != nil {
		return new(big.Int) // no provider is paid
	}
	all := new(big.Int).Add(big.NewInt(b.usage.Input), new(big.Int).Add(big.NewInt(b.Cached), big.NewInt(b.CacheWrite)))
	step := b.Rates.Steps[0]
	for _, s := range b.Rates.Steps[1:] {
		if all.Cmp(big.NewInt(s[0])) > 0 {
			step = s
		}
	}
	voice := [5]int64{}
	if b.Rates.Voice != nil {
		voice = *b.Rates.Voice
	}
	return priceTokens(round, b.usage.Input, step[1], b.Cached, step[2], b.CacheWrite, step[3], b.Output, step[4],
		b.AudioInput, voice[0], b.AudioCached, voice[1], b.AudioOutput, voice[2], b.ImageInput, voice[3], b.ImageCached,
		voice[4])
}

func describeDifference(name string, got int64, want *big.Int) string {
	if want.Cmp(big.NewInt(got)) == 0 {
		return ""
	}
	return fmt.Sprintf("%s is %d, should be %v", name, got, want)
}

// checkProviderCost recomputes the provider cost. An estimate is rounded down in the
// user's favour.
func checkProviderCost(f *accountTotals, r *ledgerRow) string {
	if f.billingErr != nil {
		return f.billingErr.Error()
	}
	round := roundUp
	if r.settlement == "estimated" {
		round = roundDown
	}
	return describeDifference("provider_cost_mc", r.cost, f.billing.computeCost(round))
}

// checkCacheSaved recomputes what the provider's cache saved: the charge of the same call without a cache, minus the
// charge by its usage.
func checkCacheSaved(f *accountTotals, r *ledgerRow) string {
	if f.billingErr != nil || f.billing.CacheSaved == nil {
		return "" // checkProviderCost reports the error
	}
	full := *f.billing
	full.usage.Input, full.Cached, full.CacheWrite = full.usage.Input+full.Cached+full.CacheWrite, 0, 0
	saved := full.computeCharge()
	return describeDifference("cache_saved_mc", *f.billing.CacheSaved, saved.Sub(saved, f.billing.computeCharge()))
}

// computeCharge returns the charge by usage that the provider has reported, before any bound.
func (b *billing) computeCharge() *big.Int {
	cost := b.computeCost(roundUp)
	charge := new(big.Int).Add(cost, applyRate(cost, b.Margin, roundHalfUp))
	return charge.Add(charge, applyRate(cost, b.Fee, roundUp))
}

// checkMarginAndFee recomputes margin and fee. The fee may be lower only if the charge
// reached its bound: for an estimate its hold, otherwise the whole remaining allocation, or
// for a voice reply what the app has set.
func checkMarginAndFee(f *accountTotals, r *ledgerRow) string {
	if f.billingErr != nil {
		return "" // checkProviderCost reports it
	}
	if f.billing.Work != nil {
		return checkOwnWork(f.billing, r)
	}
	if f.billing.Waived != "" {
		return checkWaived(f.billing, r)
	}
	marginRound, feeRound := roundHalfUp, roundUp
	estimated := r.settlement == "estimated"
	if estimated {
		marginRound, feeRound = roundDown, roundDown
	}
	cost := big.NewInt(r.cost)
	margin := applyRate(cost, f.billing.Margin, marginRound)
	if wrong := describeDifference("dev_margin_mc", r.margin, margin); wrong != "" {
		return wrong
	}
	if estimated && r.charge > r.hold && r.paidBy != "free_credit" { // which has no fee to lower
		return fmt.Sprintf("user_charge_mc is %d, an estimate may be at most its hold, %d", r.charge, r.hold)
	}
	fee := applyRate(cost, f.billing.Fee, feeRound)
	capped := r.remaining == 0 || estimated && r.charge == r.hold
	if bound := f.billing.Bound; bound != nil {
		if f.billing.Rates.Voice == nil || r.charge != *bound {
			return fmt.Sprintf("user_charge_mc is %d, lowered to a bound of %d", r.charge, *bound)
		}
		capped = true
	}
	if capped && fee.Cmp(big.NewInt(r.fee)) > 0 {
		return ""
	}
	return describeDifference("svc_fee_mc", r.fee, fee)
}

// checkOwnWork checks the charge for an app's own work: what the app asked for, at most what was held, of which the fee
// is a part.
func checkOwnWork(b *billing, r *ledgerRow) string {
	if r.charge != *b.Captured || r.charge > r.hold {
		return fmt.Sprintf("user_charge_mc is %d, the app asked for %d of the %d held", r.charge, *b.Captured, r.hold)
	}
	fee := applyRate(big.NewInt(r.charge), b.Fee, roundUp)
	if wrong := describeDifference("svc_fee_mc", r.fee, fee); wrong != "" {
		return wrong
	}
	return describeDifference("dev_margin_mc", r.margin, new(big.Int).Sub(big.NewInt(r.charge), fee))
}

// checkWaived checks a call that was free: the service's fee bears the provider cost. The usage is the provider's, but
// for a voice reply that said nothing. One that said something has failed.
func checkWaived(b *billing, r *ledgerRow) string {
	mayBeEstimated, isEmpty := false, true
	if b.Rates.Voice != nil {
		mayBeEstimated = b.Output+b.AudioOutput == 0
		isEmpty = mayBeEstimated || r.finishReason == "failed"
	}
	if r.charge != 0 || r.margin != 0 || r.fee != -r.cost || r.settlement != "settled" && !mayBeEstimated ||
		r.paidBy != "wallet" || !isEmpty {
		return fmt.Sprintf("a free call is %s by %s with user_charge_mc=%d dev_margin_mc=%d svc_fee_mc=%d, "+
			"provider_cost_mc=%d, finish_reason=%q", r.settlement, r.paidBy, r.charge, r.margin, r.fee, r.cost,
			r.finishReason)
	}
	return ""
}

// checkMockCharge checks that a canned response costs no more than its hold: the same counter
// counts on both sides.
func checkMockCharge(_ *accountTotals, r *ledgerRow) string {
	if r.charge > r.hold {
		return fmt.Sprintf("user_charge_mc is %d, the hold of a mock call was %d", r.charge, r.hold)
	}
	return ""
}

// checkHoldAmount recomputes the hold of a billed call.
func checkHoldAmount(f *accountTotals, r *ledgerRow) string {
	if f.billingErr != nil {
		return "" // checkProviderCost reports it
	}
	return describeDifference("hold_amount_mc", r.hold, f.billing.computeHold())
}

// checkHolds recomputes the holds of calls in flight and of failed attempts.
func checkHolds(ctx context.Context, a *verification, v *checkResult) (err error) {
	rows, err := a.QueryContext(ctx, `SELECT request_id, connection_id, amount_mc, terms FROM holds`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var request, connection, text string
		var amount int64
		if err := rows.Scan(&request, &connection, &amount, &text); err != nil {
			return err
		}
		v.checked++
		var t terms
		if err := parseTerms(text, &t); err != nil {
			v.addFinding("request=%s connection=%s: %v", request, connection, err)
		} else if wrong := describeDifference("amount_mc", amount, t.computeHold()); wrong != "" {
			v.addFinding("request=%s connection=%s: %s", request, connection, wrong)
		}
	}
	return rows.Err()
}

// A settledEvent is the data of an event request.settled, as far as the ledger row has
// the same values.
type settledEvent struct {
	Request struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		Charge struct {
			ProviderCost int64 `json:"provider_cost_mc"`
			UserCharge   int64 `json:"user_charge_mc"`
		} `json:"charge"`
	} `json:"request"`
}

// checkSettledEvents compares each event request.settled with its ledger row. Sample
// events have no row and are left out.
func checkSettledEvents(ctx context.Context, a *verification, v *checkResult) (err error) {
	list := map[string]settledEvent{} // by request; there are few
	err = a.forEachRow(ctx, `SELECT id, COALESCE(connection_id, ''), data FROM {events} AS told
		WHERE type = 'request.settled' AND test = 0 ORDER BY id`, func(scan func(...any) error) error {
		var event, connection, data string
		if err := scan(&event, &connection, &data); err != nil {
			return err
		}
		v.checked++
		var t settledEvent
		if err := json.Unmarshal([]byte(data), &t); err != nil || t.Request.ID == "" {
			v.addFinding("event=%s connection=%s: not a request: %v", event, connection, err)
		} else if _, twice := list[t.Request.ID]; twice {
			v.addFinding("event=%s connection=%s request=%s: reported before", event, connection, t.Request.ID)
		} else {
			list[t.Request.ID] = t
		}
		return nil
	})
	if err != nil {
		return err
	}
	for request, t := range list {
		var settlement string
		var cost, charge int64
		var account sql.NullString
		var seq sql.NullInt64
		err := a.QueryRowContext(ctx, `SELECT COALESCE(MAX(settlement), ''), COALESCE(MAX(provider_cost_mc), 0),
				COALESCE(MAX(user_charge_mc), 0), MAX(account_id), MAX(seq)
			FROM ledger WHERE id = 'led_' || substr($1, 5) AND status = 'settled'`, request).
			Scan(&settlement, &cost, &charge, &account, &seq)
		if err != nil {
			return err
		}
		if a.wasVerified(account.String, seq.Int64) {
			v.addFinding("request=%s: the event is newer than its row", request)
		}
		if c := t.Request.Charge; t.Request.Status != settlement || c.ProviderCost != cost || c.UserCharge != charge {
			v.addFinding("request=%s: the event says %s, cost %d, charge %d; the row says %q, %d, %d", request,
				t.Request.Status,
				c.ProviderCost, c.UserCharge, settlement, cost, charge)
		}
	}
	return nil
}

// A refundEvent is the data of an event request.refunded, as far as the ledger rows have the
// same values.
type refundEvent struct {
	Request struct {
		ID         string `json:"id"`
		RefundedMC int64  `json:"refunded_mc"`
		ReversedBy string `json:"reversed_by"`
	} `json:"request"`
}

// checkRefundEvents compares each event request.refunded with the row that refunded the call.
func checkRefundEvents(ctx context.Context, a *verification, v *checkResult) error {
	reported := map[string]bool{} // by the row of the refund; there are few
	var events []refundEvent
	err := a.forEachRow(ctx, `SELECT id, COALESCE(connection_id, ''), data FROM {events} AS told
		WHERE type = 'request.refunded' AND test = 0 ORDER BY id`, func(scan func(...any) error) error {
		var event, connection, data string
		if err := scan(&event, &connection, &data); err != nil {
			return err
		}
		v.checked++
		var t refundEvent
		if err := json.Unmarshal([]byte(data), &t); err != nil || t.Request.ReversedBy == "" {
			v.addFinding("event=%s connection=%s: not a refunded request: %v", event, connection, err)
		} else if reported[t.Request.ReversedBy] {
			v.addFinding("event=%s connection=%s entry=%s: reported before", event, connection, t.Request.ReversedBy)
		} else {
			reported[t.Request.ReversedBy] = true
			events = append(events, t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range events {
		var original string
		var charge int64
		var account sql.NullString
		var seq sql.NullInt64
		err := a.QueryRowContext(ctx,
			`SELECT COALESCE(MAX(reversal_of), ''), COALESCE(MAX(user_charge_mc), 0), MAX(account_id), MAX(seq)
			FROM ledger WHERE id = $1 AND type = 'spend' AND status = 'reversed'`, t.Request.ReversedBy).
			Scan(&original, &charge, &account, &seq)
		if err != nil {
			return err
		}
		if a.wasVerified(account.String, seq.Int64) {
			v.addFinding("request=%s entry=%s: the event is newer than its row", t.Request.ID, t.Request.ReversedBy)
		}
		if want := "led_" + strings.TrimPrefix(t.Request.ID, "req_"); original != want ||
			charge != t.Request.RefundedMC {
			v.addFinding("request=%s entry=%s: the event says %d, the row refunds %d of %q", t.Request.ID,
				t.Request.ReversedBy, t.Request.RefundedMC, charge, original)
		}
	}
	return nil
}
