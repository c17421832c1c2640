// Package pricing holds the money formulas (spec §1; spec §2, holds 3 and 4;
// decisions, Money): what a call may cost at most, which is its hold, and what
// it did cost. The formulas are pure, exact in integers, and each number is
// rounded once, by the rule that stands at it. A result that does not fit 63
// bits is money.ErrOverflow.
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

// Amounts are the parts of one charge (spec §2, svc block). Always
// UserChargeMC = ProviderCostMC + SvcFeeMC + DevMarginMC.
type Amounts struct {
	ProviderCostMC money.MC
	SvcFeeMC       money.MC // negative only where AtMost cut the charge
	DevMarginMC    money.MC
	UserChargeMC   money.MC
}

// ErrInvalid says that a count or a rate is outside of what a formula is for.
var ErrInvalid = errors.New("pricing: invalid argument")

// holdRate is the share of the dearest charge that a hold takes: 105 %.
const holdRate = money.One + money.One/20

// Estimate returns the hold of a call with so many counted input tokens and at
// most maxOutputTokens of output: 105 % of the dearest charge that they can
// lead to, rounded up. No input is taken to come from the cache, all of it may
// be written to it, and a price step counts from its threshold on.
func Estimate(r catalog.Rates, inputTokens, maxOutputTokens int64, margin, fee money.PPM) (money.MC, error) {
	if len(r.Steps) == 0 {
		return 0, fmt.Errorf("%w: no rates", ErrInvalid)
	}
	var input, output money.MC
	for _, s := range r.Steps {
		if s.AboveInput <= inputTokens {
			input = max(input, s.Input, s.CacheWrite)
			output = max(output, s.Output)
		}
	}
	cost, err := costOf(money.Up, product{inputTokens, input}, product{maxOutputTokens, output})
	if err != nil {
		return 0, err
	}
	a, err := amounts(cost, margin, fee, money.HalfUp, money.Up)
	if err != nil {
		return 0, err
	}
	return money.Share(a.UserChargeMC, holdRate, money.Up)
}

// Charge returns what a call did cost: the provider's cost rounded up, the
// app's margin on it rounded half up, and the fee on it rounded up. The usage
// must have passed Usable.
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
	return amounts(cost, margin, fee, money.HalfUp, money.Up)
}

// Estimated returns the charge on our own count of tokens, where the provider's
// is missing: every number rounded down, and at most the hold.
func Estimated(r catalog.Rates, inputTokens, outputTokens int64, margin, fee money.PPM, hold money.MC) (Amounts, error) {
	if err := nonNegative("hold", int64(hold)); err != nil {
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
	a, err := amounts(cost, margin, fee, money.Down, money.Down)
	if err != nil {
		return Amounts{}, err
	}
	return a.AtMost(hold), nil
}

// AtMost returns the amounts with a user charge of at most limit. The fee takes
// the shortfall and may become negative: the provider has to be paid, and the
// app gets its margin (decisions, Money).
func (a Amounts) AtMost(limit money.MC) Amounts {
	if a.UserChargeMC > limit {
		a.SvcFeeMC -= a.UserChargeMC - limit
		a.UserChargeMC = limit
	}
	return a
}

// Usable says whether a provider's usage can be billed; if not it counts as
// missing. Usage is unusable when a count is negative, when all are zero, when
// its parts contradict each other, when the input does not fit the model's
// context, or when the output is far above the cap that was sent.
func Usable(u provider.Usage, maxOutputTokens, contextTokens int64) bool {
	input := u.Input
	for _, n := range []int64{u.Cached, u.CacheWrite} {
		if input < 0 || n < 0 || input > contextTokens-n {
			return false
		}
		input += n
	}
	return input >= 0 && input <= contextTokens && input+u.Output > 0 &&
		0 <= u.Reasoning && u.Reasoning <= u.Output && u.Output/2 <= maxOutputTokens+outputSlack
}

// outputSlack widens the bound of twice the cap for tiny caps, which providers
// pass by a few tokens.
const outputSlack = 32

// product is a number of tokens at a price per million of them.
type product struct {
	tokens int64
	price  money.MC
}

// costOf returns Σ tokens × price ÷ 1,000,000, summed in 128 bits and rounded once.
func costOf(round money.Rounding, products ...product) (money.MC, error) {
	var hi, lo uint64
	for _, p := range products {
		if err := errors.Join(nonNegative("tokens", p.tokens), nonNegative("price", int64(p.price))); err != nil {
			return 0, err
		}
		h, l := bits.Mul64(uint64(p.tokens), uint64(p.price))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry // no price is above 2^50, so eight products stay far below 2^128
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

// amounts adds margin and fee to a cost.
func amounts(cost money.MC, margin, fee money.PPM, marginRound, feeRound money.Rounding) (Amounts, error) {
	if err := errors.Join(nonNegative("margin", int64(margin)), nonNegative("fee", int64(fee))); err != nil {
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
			return catalog.Step{}, fmt.Errorf("%w: %d, %d and %d input tokens", ErrInvalid, u.Input, u.Cached, u.CacheWrite)
		}
		input += n
	}
	return r.At(input), nil
}

func nonNegative(what string, n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: %s %d", ErrInvalid, what, n)
	}
	return nil
}
