package audit

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/go-json-experiment/json"
)

// terms is how a hold and its row say what a call is priced by: the prices and
// rates as they were at the hold, and the counts that bound it.
type terms struct {
	Rates struct {
		Book  string     `json:"book"`
		Steps [][5]int64 `json:"mc_per_million"` // above_input, input, cached, cache_write, output
		// Voice are the prices of a realtime model: audio input, cached, output, image input, cached.
		Voice *[5]int64 `json:"voice_mc_per_million"`
	} `json:"rates"`
	Margin int64 `json:"margin_ppm"`
	Fee    int64 `json:"fee_ppm"`
	Input  int64 `json:"input_tokens"`
	Max    int64 `json:"max_tokens"`
	Audio  int64 `json:"audio_tokens"` // of the input of a voice reply, beside text
	// Counted is what an estimate may be charged for, where more was held.
	Counted *int64 `json:"counted_tokens"`
	// Pool is the counter of free credit that pays, "" if the wallet does.
	Pool string `json:"pool"`
}

// usage is how a row says what a call consumed.
type usage struct {
	Input      int64 `json:"input"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`
	// Of a voice reply:
	AudioInput  int64 `json:"audio_input"`
	AudioCached int64 `json:"audio_cached"`
	AudioOutput int64 `json:"audio_output"`
	ImageInput  int64 `json:"image_input"`
	ImageCached int64 `json:"image_cached"`
}

// billing is what the charge of one call is computed from.
type billing struct {
	terms
	usage
}

// readBilling reads a spend row's terms and usage.
func readBilling(termsText, usageText string) (*billing, error) {
	var b billing
	if err := readTerms(termsText, &b.terms); err != nil {
		return nil, err
	}
	if err := strictly(usageText, &b.usage); err != nil {
		return nil, fmt.Errorf("usage %q: %w", usageText, err)
	}
	if min(b.usage.Input, b.Cached, b.CacheWrite, b.Output, b.Reasoning, b.AudioInput, b.AudioCached, b.AudioOutput,
		b.ImageInput, b.ImageCached) < 0 || b.Reasoning > b.Output {
		return nil, fmt.Errorf("usage %q cannot be", usageText)
	}
	return &b, nil
}

func readTerms(text string, t *terms) error {
	if err := strictly(text, t); err != nil {
		return fmt.Errorf("terms %q: %w", text, err)
	}
	if len(t.Rates.Steps) == 0 || t.Rates.Steps[0][0] != 0 || min(t.Margin, t.Fee, t.Input, t.Max, t.Audio) < 0 ||
		t.Audio > 0 && t.Rates.Voice == nil {
		return fmt.Errorf("terms %q cannot be", text)
	}
	return nil
}

// strictly reads JSON in which every member is known: one that is not might be
// a price or a count that is missing in the sum.
func strictly(text string, into any) error {
	return json.Unmarshal([]byte(text), into, json.RejectUnknownMembers(true))
}

// rounding is what becomes of a fraction of a micro-cent.
type rounding int

const (
	down rounding = iota
	halfUp
	up
)

// million is both the tokens that a price is for, and the parts of a rate.
var million = big.NewInt(1_000_000)

// divide returns n ÷ million, rounded. n is not negative.
func divide(n *big.Int, round rounding) *big.Int {
	quotient, rest := new(big.Int).QuoRem(n, million, new(big.Int))
	if round == up && rest.Sign() > 0 || round == halfUp && rest.Int64()*2 >= 1_000_000 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient
}

// share returns rate parts per million of n, rounded.
func share(n *big.Int, rate int64, round rounding) *big.Int {
	return divide(new(big.Int).Mul(n, big.NewInt(rate)), round)
}

// priced returns Σ tokens × price ÷ million, rounded once. It takes pairs.
func priced(round rounding, pairs ...int64) *big.Int {
	sum := new(big.Int)
	for i := 0; i < len(pairs); i += 2 {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(pairs[i]), big.NewInt(pairs[i+1])))
	}
	return divide(sum, round)
}

// hold is 105 % of the dearest charge that the counts can lead to: all input at
// its dearest class, a long-context step from its threshold on (decision 019).
func (t *terms) hold() *big.Int {
	var input, output int64
	for _, s := range t.Rates.Steps {
		if s[0] <= t.Input {
			input, output = max(input, s[1], s[3]), max(output, s[4])
		}
	}
	cost := priced(up, t.Input, input, t.Max, output)
	if v := t.Rates.Voice; v != nil { // of a reply, any token may be spoken
		cost = priced(up, t.Input, t.Rates.Steps[0][1], t.Audio, v[0], t.Max, max(output, v[2]))
	}
	dearest := new(big.Int).Add(cost, share(cost, t.Margin, halfUp))
	dearest.Add(dearest, share(cost, t.Fee, up))
	return share(dearest, 1_050_000, up)
}

// cost is what the provider takes: each token class at its price, by the step
// that all input together reaches.
func (b *billing) cost(round rounding) *big.Int {
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
	return priced(round, b.usage.Input, step[1], b.Cached, step[2], b.CacheWrite, step[3], b.Output, step[4],
		b.AudioInput, voice[0], b.AudioCached, voice[1], b.AudioOutput, voice[2], b.ImageInput, voice[3], b.ImageCached,
		voice[4])
}

func differs(name string, got int64, want *big.Int) string {
	if want.Cmp(big.NewInt(got)) == 0 {
		return ""
	}
	return fmt.Sprintf("%s is %d, should be %v", name, got, want)
}

// wrongCost recomputes what the provider takes. Our own count, an estimate, is
// rounded down in the user's favour.
func wrongCost(f *fold, r *row) string {
	if f.unread != nil {
		return f.unread.Error()
	}
	round := up
	if r.settlement == "estimated" {
		round = down
	}
	return differs("provider_cost_mc", r.cost, f.billing.cost(round))
}

// wrongShares recomputes margin and fee. The fee is lower only where the charge
// met what the user had agreed to: for an estimate its hold, else all that was
// left, so that nothing remains.
func wrongShares(f *fold, r *row) string {
	if f.unread != nil {
		return "" // told by wrongCost
	}
	marginRound, feeRound := halfUp, up
	estimated := r.settlement == "estimated"
	if estimated {
		marginRound, feeRound = down, down
	}
	cost := big.NewInt(r.cost)
	if wrong := differs("dev_margin_mc", r.margin, share(cost, f.billing.Margin, marginRound)); wrong != "" {
		return wrong
	}
	if estimated && r.charge > r.hold && r.paidBy != "free_credit" { // which has no fee to lower
		return fmt.Sprintf("user_charge_mc is %d, an estimate may be at most its hold, %d", r.charge, r.hold)
	}
	fee := share(cost, f.billing.Fee, feeRound)
	capped := r.remaining == 0 || estimated && r.charge == r.hold
	if capped && fee.Cmp(big.NewInt(r.fee)) > 0 {
		return ""
	}
	return differs("svc_fee_mc", r.fee, fee)
}

// wrongHold recomputes the hold of a billed call.
func wrongHold(f *fold, r *row) string {
	if f.unread != nil {
		return "" // told by wrongCost
	}
	return differs("hold_amount_mc", r.hold, f.billing.hold())
}

// wrongHolds recomputes the holds of calls in flight and of failed attempts.
func wrongHolds(ctx context.Context, a *audit, v *verdict) (err error) {
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
		if err := readTerms(text, &t); err != nil {
			v.fail("request=%s connection=%s: %v", request, connection, err)
		} else if wrong := differs("amount_mc", amount, t.hold()); wrong != "" {
			v.fail("request=%s connection=%s: %s", request, connection, wrong)
		}
	}
	return rows.Err()
}

// told is what the app was told about a request that was pending: of its receipt,
// what the row says too.
type told struct {
	Request struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		Charge struct {
			ProviderCost int64 `json:"provider_cost_mc"`
			UserCharge   int64 `json:"user_charge_mc"`
		} `json:"charge"`
	} `json:"request"`
}

// wrongReceipts compares each request.settled with the row that it tells of. A
// sample that a developer asked for tells of nothing.
func wrongReceipts(ctx context.Context, a *audit, v *verdict) (err error) {
	rows, err := a.QueryContext(ctx,
		`SELECT id, COALESCE(connection_id, ''), data FROM events WHERE type = 'request.settled' AND test = 0 ORDER BY id`)
	if err != nil {
		return err
	}
	list := map[string]told{} // of one event each; there are few
	for rows.Next() {
		var event, connection, data string
		if err := rows.Scan(&event, &connection, &data); err != nil {
			return errors.Join(err, rows.Close())
		}
		v.checked++
		var t told
		if err := json.Unmarshal([]byte(data), &t); err != nil || t.Request.ID == "" {
			v.fail("event=%s connection=%s: not a request: %v", event, connection, err)
		} else if _, twice := list[t.Request.ID]; twice {
			v.fail("event=%s connection=%s request=%s: told before", event, connection, t.Request.ID)
		} else {
			list[t.Request.ID] = t
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for request, t := range list {
		var settlement string
		var cost, charge int64
		err := a.QueryRowContext(ctx,
			`SELECT COALESCE(MAX(settlement), ''), COALESCE(MAX(provider_cost_mc), 0), COALESCE(MAX(user_charge_mc), 0) FROM ledger WHERE id = 'led_' || substr($1, 5) AND status = 'settled'`, request).
			Scan(&settlement, &cost, &charge)
		if err != nil {
			return err
		}
		if c := t.Request.Charge; t.Request.Status != settlement || c.ProviderCost != cost || c.UserCharge != charge {
			v.fail("request=%s: told %s, cost %d, charge %d; the row says %q, %d, %d", request, t.Request.Status,
				c.ProviderCost, c.UserCharge, settlement, cost, charge)
		}
	}
	return nil
}
