package receipts

import (
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
)

// Line is one token class of the provider cost. The lines add up to the cost, which is
// rounded once, after the sum.
type Line struct {
	Class             string `json:"class"`
	Tokens            int64  `json:"tokens"`
	UnitPriceUSDPer1M string `json:"unit_price_usd_per_1m"`
	CostMC            string `json:"cost_exact_mc"` // with its decimals
}

// NewLine returns the line of a token class at its price per million tokens.
func NewLine(class string, tokens int64, price money.MC) Line {
	return Line{
		Class:             class,
		Tokens:            tokens,
		UnitPriceUSDPer1M: strings.TrimPrefix(price.Display(), "$"),
		CostMC:            exactCost(tokens, int64(price)),
	}
}

// loadRates reads the rates by which a call was held from its price terms.
func loadRates(e *rules.Entry) (catalog.Rates, error) {
	t, err := policy.ParseTerms(e.Terms)
	if err != nil {
		return catalog.Rates{}, fmt.Errorf("receipt of %s: %w", e.ID, err)
	}
	return catalog.ParseSnapshot(t.Rates)
}

// splitCost splits the provider cost of a call by token class.
func splitCost(e *rules.Entry, rates catalog.Rates) ([]Line, error) {
	u, err := decodeUsage(e)
	if err != nil {
		return nil, err
	}
	text := rates.At(u.Input + u.Cached + u.CacheWrite)
	voice := rates.Voice
	if voice == nil {
		voice = &catalog.Voice{}
	}
	lines := []Line{}
	for _, c := range []struct {
		class  string
		tokens int64
		price  money.MC
	}{
		{"input", u.Input, text.Input},
		{"cached", u.Cached, text.Cached},
		{"cache_write", u.CacheWrite, text.CacheWrite},
		{"output", u.Output, text.Output},
		{"audio_input", u.AudioInput, voice.AudioInput},
		{"audio_cached", u.AudioCached, voice.AudioCached},
		{"audio_output", u.AudioOutput, voice.AudioOutput},
		{"image_input", u.ImageInput, voice.ImageInput},
		{"image_cached", u.ImageCached, voice.ImageCached},
	} {
		if c.tokens > 0 {
			lines = append(lines, NewLine(c.class, c.tokens, c.price))
		}
	}
	return lines, nil
}

// exactCost writes tokens × price ÷ 1,000,000 in micro-cents, with its decimals.
func exactCost(tokens, price int64) string {
	whole, _ := money.MulDiv(tokens, price, 1_000_000, money.Down) // fits: both come from a settled row
	rest := (tokens % 1_000_000) * (price % 1_000_000) % 1_000_000
	s := fmt.Sprintf("%d.%06d", whole, rest)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
