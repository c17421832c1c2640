package receipts

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestCacheSaved computes from a ledger row what the provider's cache saved: with the margin and the fee, which depend
// on the provider cost too.
func TestCacheSaved(t *testing.T) {
	t.Parallel()
	// Micro-cents per million tokens: input 100 a token, cached 10, written 125, output 500; above 1,000 tokens double.
	const rates = `{"book":"2026-11-21-0123abcd","mc_per_million":[[0,100000000,10000000,125000000,500000000],` +
		`[1000,200000000,20000000,250000000,750000000]]}`
	const terms = `{"rates":` + rates + `,"margin_ppm":200000,"fee_ppm":50000,"input_tokens":9,"max_tokens":9}`
	for _, tt := range []struct {
		name  string
		usage provider.Usage
		terms string
		want  money.MC
		used  bool
		says  string
	}{
		{name: "no cache", usage: provider.Usage{Input: 1000, Output: 5}, terms: terms},
		{
			name:  "a read",
			usage: provider.Usage{Input: 10, Cached: 500, Output: 5},
			terms: terms,
			want:  500 * 90 * 125 / 100,
			used:  true,
			says:  " The provider's cache saved $0.0005625.",
		},
		{
			name:  "a write alone costs more",
			usage: provider.Usage{Input: 10, CacheWrite: 400, Output: 5},
			terms: terms,
			want:  -400 * 25 * 125 / 100,
			used:  true,
			says:  " Writing to the provider's cache cost $0.000125 more.",
		},
		{
			name:  "both, in the step of long requests",
			usage: provider.Usage{Input: 1, Cached: 900, CacheWrite: 100},
			terms: terms,
			want:  (900*180 - 100*50) * 125 / 100,
			used:  true,
			says:  " The provider's cache saved $0.0019625.",
		},
		{
			name:  "free credit pays the provider cost alone",
			usage: provider.Usage{Cached: 500},
			terms: strings.NewReplacer("200000,", "0,", `"fee_ppm":50000`, `"fee_ppm":0`).Replace(terms),
			want:  500 * 90,
			used:  true,
			says:  " The provider's cache saved $0.00045.",
		},
	} {
		e := &rules.Entry{ID: "led_1", Usage: EncodeUsage(tt.usage), Terms: tt.terms}
		if got, used := CacheSaved(e); got != tt.want || used != tt.used {
			t.Errorf("%s: %d %v, want %d %v", tt.name, got, used, tt.want, tt.used)
		}
		if got := explainCache(e); got != tt.says {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.says)
		}
	}
	const stored = `{"input":1,"cached":2,"cache_write":3,"output":4,"reasoning":0,"cache_saved_mc":-5}`
	if got := EncodeCachedUsage(provider.Usage{Input: 1, Cached: 2, CacheWrite: 3, Output: 4}, -5); got != stored {
		t.Errorf("encoded %s, want %s", got, stored)
	}
	for _, usage := range []string{"", "{}", "not JSON"} {
		if got, used := CacheSaved(&rules.Entry{Usage: usage, Terms: terms}); used {
			t.Errorf("usage %q: %d", usage, got)
		}
	}
}
