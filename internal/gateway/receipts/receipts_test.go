package receipts

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestReceiptLines shows each class of tokens at its unit price: the lines add up
// to the provider's cost, rounded once, and the book they stand in is named.
func TestReceiptLines(t *testing.T) {
	t.Parallel()
	const rates = `{"book":"2026-11-21-0123abcd","mc_per_million":[[0,10000000,1000000,12500000,50000000],[272000,` +
		`20000000,2000000,25000000,75000000]]}`
	for _, tt := range []struct {
		name      string
		usage     provider.Usage
		estimated bool
		want      []Line
	}{
		{"all classes", provider.Usage{
			Input:      1000,
			Cached:     2000,
			CacheWrite: 30,
			Output:     7,
			Reasoning:  5,
		}, false, []Line{
			{"input", 1000, "0.10", "10000"}, {"cached", 2000, "0.01", "2000"}, {"cache_write", 30, "0.125", "375"},
			{"output", 7, "0.50", "350"}}},
		{"one token of each, with a fraction", provider.Usage{
			Input:      1,
			Cached:     1,
			CacheWrite: 1,
			Output:     1,
		}, false, []Line{
			{"input", 1, "0.10", "10"}, {"cached", 1, "0.01", "1"}, {"cache_write", 1, "0.125", "12.5"},
			{"output", 1, "0.50", "50"}}},
		{"exactly the threshold is short", provider.Usage{Input: 271_999, Cached: 1, Output: 1}, false, []Line{
			{"input", 271_999, "0.10", "2719990"}, {"cached", 1, "0.01", "1"}, {"output", 1, "0.50", "50"}}},
		{"one above is long, all of it", provider.Usage{Input: 271_999, Cached: 2, Output: 1}, false, []Line{
			{"input", 271_999, "0.20", "5439980"}, {"cached", 2, "0.02", "4"}, {"output", 1, "0.75", "75"}}},
		{"an estimate rounds down", provider.Usage{CacheWrite: 0, Input: 3, Output: 1}, true, []Line{
			{"input", 3, "0.10", "30"},
			{"output", 1, "0.50", "50"},
		}},
		{"nothing of an answer", provider.Usage{Input: 5}, false, []Line{{"input", 5, "0.10", "50"}}},
	} {
		r, err := catalog.ParseSnapshot(rates)
		if err != nil {
			t.Fatal(err)
		}
		u := tt.usage
		amounts, settlement, round := pricing.Amounts{}, rules.Settled, int64(1)
		if tt.estimated {
			settlement, round = rules.Estimated, 0
			amounts, err = pricing.ChargeEstimate(r, u.Input, u.Output, 0, money.One/20, money.Dollar)
		} else {
			amounts, err = pricing.Charge(r, u, 0, money.One/20)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := newEntryReceipt(&rules.Entry{
			ID:         "led_1",
			Model:      "m",
			Settlement: settlement,
			Amounts:    rules.Amounts(amounts),
			PaidBy:     "wallet",
			Usage:      EncodeUsage(u),
			Terms: fmt.Sprintf(`{"rates":%s,"margin_ppm":0,"fee_ppm":50000,"input_tokens":1,"max_tokens":1}`,
				rates),
		})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, got.Lines); d != "" || got.PriceVersion == nil ||
			*got.PriceVersion != "2026-11-21-0123abcd" {
			t.Errorf("%s: prices %v, lines\n%s", tt.name, got.PriceVersion, d)
		}
		sum := new(big.Rat)
		for _, l := range got.Lines {
			cost, ok := new(big.Rat).SetString(l.CostMC)
			price, ok2 := new(big.Rat).SetString(l.UnitPriceUSDPer1M)
			// $1 a million = 100 micro-cents a token
			if !ok || !ok2 || cost.Cmp(price.Mul(price, big.NewRat(l.Tokens*100, 1))) != 0 {
				t.Errorf("%s: %+v does not multiply", tt.name, l)
				continue
			}
			sum.Add(sum, cost)
		}
		whole := new(big.Int).Quo(sum.Num(), sum.Denom()).Int64()
		if !sum.IsInt() {
			whole += round
		}
		if whole != int64(amounts.ProviderCostMC) {
			t.Errorf("%s: the lines add up to %s, the cost is %d", tt.name, sum.FloatString(3), amounts.ProviderCostMC)
		}
	}
}
