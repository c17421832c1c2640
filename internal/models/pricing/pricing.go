// Package pricing has the money formulas (contract §1; contract §2, holds 3 and 4; decisions 016, 017): the hold, which
// is what a call may cost at most, and the charge, which is what it did cost. The formulas are pure, exact in
// integers, and round each number once, by the rule in its comment. A result above 63 bits is money.ErrOverflow.
package pricing

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/provider"
)

// Amounts are the parts of one charge (contract §2, svc block). It is always true that
// UserChargeMC = ProviderCostMC + SvcFeeMC + DevMarginMC.
type Amounts struct {
	ProviderCostMC money.MC
	SvcFeeMC       money.MC // negative only if AtMost reduced the charge
	DevMarginMC    money.MC
	UserChargeMC   money.MC
}

// ErrInvalid says that a count or a rate is outside the domain of a formula.
var ErrInvalid = errors.New("pricing: invalid argument")

// holdRate is a hold's share of the highest possible charge: 105 %, which includes the hold margin.
const holdRate = money.One + money.One/20

// EstimateHold returns the hold of a call with counted input tokens and at most maxOutputTokens of output: 105 % of the
// highest charge that they can cause, rounded up. It assumes that no input is read from the provider's cache, that all
// of it may be written there, and that a price step applies from its threshold on.
func EstimateHold(r catalog.Rates, inputTokens, maxOutputTokens int64, margin, fee money.PPM) (money.MC, error) {
	a, err := LargestCharge(r, inputTokens, maxOutputTokens, margin, fee)
	if err != nil {
		return 0, err
	}
	return money.Share(a.UserChargeMC, holdRate, money.Up)
}

// LargestCharge returns the highest charge that counted input tokens and at most maxOutputTokens of output can cause,
// from which EstimateHold makes the hold.
func LargestCharge(r catalog.Rates, inputTokens, maxOutputTokens int64, margin, fee money.PPM) (Amounts, error) {
	if len(r.Steps) == 0 {
		return Amounts{}, fmt.Errorf("%w: no rates", ErrInvalid)
	}
	dearest := DearestStep(r, inputTokens)
	cost, err := costOf(money.Up, product{inputTokens, max(dearest.Input, dearest.CacheWrite)},
		product{maxOutputTokens, dearest.Output})
	if err != nil {
		return Amounts{}, err
	}
	return addShares(cost, margin, fee, money.HalfUp, money.Up)
}

// DearestStep returns the highest price of each token class among the price steps that a call with counted input
// tokens can reach.
func DearestStep(r catalog.Rates, inputTokens int64) (dearest catalog.Step) {
	for _, s := range r.Steps {
		if s.AboveInput <= inputTokens {
			dearest.Input, dearest.Cached = max(dearest.Input, s.Input), max(dearest.Cached, s.Cached)
			dearest.CacheWrite, dearest.Output = max(dearest.CacheWrite, s.CacheWrite), max(dearest.Output, s.Output)
		}
	}
	return dearest
}

// Charge returns the charge of a call: the provider cost rounded up, the margin on it rounded half up, and the fee on
// it rounded up. The usage must be Usable.
func Charge(r catalog.Rates, u provider.Usage, margin, fee money.PPM) (Amounts, error) {
	step, err := stepFor(r, u)
	if err != nil {
		return Amounts{}, err
	}
	cost, err := costOf(money.Up, product{u.Input, step.Input}, product{u.Cached, step.Cached},
		product{u.CacheWrite, step.CacheWrite}, product{u.Output, step.Output})
	if err != nil {
		return Amounts{}, err
	}
	return addShares(cost, margin, fee, money.HalfUp, money.Up)
}

// CacheSaved returns what the provider's cache saved of a charge: the charge of the same call without a cache, minus
// its charge. It is negative if the call wrote more to the cache than its reads were worth.
func CacheSaved(r catalog.Rates, u provider.Usage, margin, fee money.PPM) (money.MC, error) {
	paid, err := Charge(r, u, margin, fee)
	if err != nil {
		return 0, err
	}
	u.Input, u.Cached, u.CacheWrite = u.Input+u.Cached+u.CacheWrite, 0, 0 // Charge has checked the sum
	full, err := Charge(r, u, margin, fee)
	return full.UserChargeMC - paid.UserChargeMC, err
}

// ChargeEstimate returns the charge by our own count of tokens, for a call without usable usage: every number is
// rounded down, and the charge is at most the hold (decision 019).
func ChargeEstimate(r catalog.Rates, inputTokens, outputTokens int64, margin, fee money.PPM,
	hold money.MC) (Amounts, error) {
	if err := checkNonNegative("hold", int64(hold)); err != nil {
		return Amounts{}, err
	}
	step, err := stepFor(r, provider.Usage{Input: inputTokens})
	if err != nil {
		return Amounts{}, err
	}
	cost, err := costOf(money.Down, product{inputTokens, step.Input}, product{outputTokens, step.Output})
	if err != nil {
		return Amounts{}, err
	}
	a, err := addShares(cost, margin, fee, money.Down, money.Down)
	if err != nil {
		return Amounts{}, err
	}
	return a.AtMost(hold), nil
}

// AtMost returns the amounts with a user charge of at most limit. The fee bears the shortfall and may become negative,
// because the provider must be paid and the app keeps its margin (decision 018).
func (a Amounts) AtMost(limit money.MC) Amounts {
	if a.UserChargeMC > limit {
		a.SvcFeeMC -= a.UserChargeMC - limit
		a.UserChargeMC = limit
	}
	return a
}

// Usable reports whether a provider's usage can be billed; otherwise it counts as missing. Usage is unusable if a count
// is negative, if all are zero, if its parts contradict each other, if the input is more than the request can have (see
// MaxInput), or if the output is far above the requested maximum.
func Usable(u provider.Usage, maxOutputTokens, maxInputTokens int64) bool {
	input := u.Input
	for _, n := range []int64{u.Cached, u.CacheWrite} {
		if input < 0 || n < 0 || input > maxInputTokens-n {
			return false
		}
		input += n
	}
	return input+u.Output > 0 && 0 <= u.Reasoning && u.Reasoning <= u.Output &&
		u.Output/2 <= maxOutputTokens+outputSlack
}

// MaxInput returns the most input tokens that a provider's report of a request is believed for: inputFactor times what
// was counted for it, and inputOverhead for what providers add, such as their instructions for tools; at most
// contextTokens. The factor is far above the differences of tokenizers, which stay below 2.
func MaxInput(counted, contextTokens int64) int64 {
	if counted < 0 || counted > (contextTokens-inputOverhead)/inputFactor {
		return contextTokens
	}
	return counted*inputFactor + inputOverhead
}

const (
	inputFactor   = 4
	inputOverhead = 2000
)

// outputSlack raises the bound of twice the maximum for small maxima, which providers exceed by a few tokens.
const outputSlack = 32

// product is a number of tokens at a price per million tokens.
type product struct {
	tokens int64
	price  money.MC
}

// costOf returns Σ tokens × price ÷ 1,000,000, summed in 128 bits and rounded once.
func costOf(round money.Rounding, products ...product) (money.MC, error) {
	var hi, lo uint64
	for _, p := range products {
		if err := errors.Join(checkNonNegative("tokens", p.tokens),
			checkNonNegative("price", int64(p.price))); err != nil {
			return 0, err
		}
		h, l := bits.Mul64(uint64(p.tokens), uint64(p.price))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry // prices are below 2^50, so eight products are far below 2^128
	}
	if hi >= catalog.PerMillion {
		return 0, money.ErrOverflow
	}
	quotient, rest := bits.Div64(hi, lo, catalog.PerMillion)
	if round == money.Up && rest > 0 && quotient <= math.MaxInt64 {
		quotient++
	}
	if quotient > math.MaxInt64 {
		return 0, money.ErrOverflow
	}
	return money.MC(quotient), nil
}

// addShares adds margin and fee to a provider cost.
func addShares(cost money.MC, margin, fee money.PPM, marginRound, feeRound money.Rounding) (Amounts, error) {
	if err := errors.Join(checkNonNegative("margin", int64(margin)), checkNonNegative("fee", int64(fee))); err != nil {
		return Amounts{}, err
	}
	m, err := money.Share(cost, margin, marginRound)
	if err != nil {
		return Amounts{}, err
	}
	f, err := money.Share(cost, fee, feeRound)
	if err != nil {
		return Amounts{}, err
	}
	if m > math.MaxInt64-cost || f > math.MaxInt64-cost-m {
		return Amounts{}, money.ErrOverflow
	}
	return Amounts{ProviderCostMC: cost, SvcFeeMC: f, DevMarginMC: m, UserChargeMC: cost + m + f}, nil
}

// stepFor returns the price step of a usage, by all its input.
func stepFor(r catalog.Rates, u provider.Usage) (catalog.Step, error) {
	if len(r.Steps) == 0 {
		return catalog.Step{}, fmt.Errorf("%w: no rates", ErrInvalid)
	}
	input := u.Input
	for _, n := range []int64{u.Cached, u.CacheWrite} {
		if n < 0 || input < 0 || input > math.MaxInt64-n {
			return catalog.Step{},
				fmt.Errorf("%w: %d, %d and %d input tokens", ErrInvalid, u.Input, u.Cached, u.CacheWrite)
		}
		input += n
	}
	return r.At(input), nil
}

func checkNonNegative(what string, n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: %s %d", ErrInvalid, what, n)
	}
	return nil
}
