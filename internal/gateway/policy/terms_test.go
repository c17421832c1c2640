package policy

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/ledger/rules"
)

const testRates = `{"book":"2026-11-21-0123abcd","mc_per_million":[[0,10,1,12,50]]}`

// TestTermsAreStoredOnce shows the stored form of price terms, which holds of earlier
// versions have too, and reads it back.
func TestTermsAreStoredOnce(t *testing.T) {
	t.Parallel()
	shares := Shares{Margin: 200_000, Fee: 50_000}
	for _, tt := range []struct {
		name     string
		terms    Terms
		want     string
		estimate int64 // input tokens of an estimated charge
	}{
		{
			name:     "a text call",
			terms:    Terms{Shares: shares, Rates: testRates, InputTokens: 8, MaxTokens: 100},
			want:     `"margin_ppm":200000,"fee_ppm":50000,"input_tokens":8,"max_tokens":100}`,
			estimate: 8,
		},
		{
			name:     "held for more input than was counted",
			terms:    Terms{Shares: shares, Rates: testRates, InputTokens: 10, CountedTokens: 8, MaxTokens: 100},
			want:     `"margin_ppm":200000,"fee_ppm":50000,"input_tokens":10,"max_tokens":100,"counted_tokens":8}`,
			estimate: 8,
		},
		{
			name:     "paid by free credit",
			terms:    Terms{Rates: testRates, InputTokens: 8, MaxTokens: 100, Pool: "free/app_1/2026-11"},
			want:     `"margin_ppm":0,"fee_ppm":0,"input_tokens":8,"max_tokens":100,"pool":"free/app_1/2026-11"}`,
			estimate: 8,
		},
		{
			name:     "a canned response",
			terms:    Terms{Shares: shares, Rates: testRates, InputTokens: 8, MaxTokens: 100, Mock: true},
			want:     `"margin_ppm":200000,"fee_ppm":50000,"input_tokens":8,"max_tokens":100,"mock":true}`,
			estimate: 8,
		},
		{
			name:     "a voice reply without audio",
			terms:    Terms{Shares: shares, Rates: testRates, InputTokens: 8, MaxTokens: 100, Voice: true},
			want:     `"margin_ppm":200000,"fee_ppm":50000,"input_tokens":8,"audio_tokens":0,"max_tokens":100}`,
			estimate: 8,
		},
		{
			name: "a voice reply that reads from the cache",
			terms: Terms{
				Shares: shares, Rates: testRates, InputTokens: 8, MaxTokens: 100, Voice: true,
				AudioTokens: 7, TextCached: 6, AudioCached: 5,
			},
			want: `"margin_ppm":200000,"fee_ppm":50000,"input_tokens":8,"audio_tokens":7,"cached_text_tokens":6,` +
				`"cached_audio_tokens":5,"max_tokens":100}`,
			estimate: 8,
		},
	} {
		text := tt.terms.JSON()
		if want := `{"rates":` + testRates + "," + tt.want; text != want || !json.Valid([]byte(text)) {
			t.Errorf("%s: stored as\n%s, want\n%s", tt.name, text, want)
		}
		read, err := ParseTerms(text)
		if d := cmp.Diff(tt.terms, read); err != nil || d != "" {
			t.Errorf("%s: read back: %v\n%s", tt.name, err, d)
		}
		if got := read.EstimateTokens(); got != tt.estimate {
			t.Errorf("%s: an estimate charges %d input tokens, want %d", tt.name, got, tt.estimate)
		}
	}
	// The count is stored only where the hold is made for more.
	fewer := Terms{Rates: testRates, InputTokens: 7, CountedTokens: 8, MaxTokens: 100}
	if read, err := ParseTerms(fewer.JSON()); err != nil || read.CountedTokens != 0 || read.EstimateTokens() != 7 {
		t.Errorf("held for less input than was counted: %+v, %v", read, err)
	}
}

// TestFreeCreditPaysTheCost: free credit pays neither margin nor fee.
func TestFreeCreditPaysTheCost(t *testing.T) {
	t.Parallel()
	s := Shares{Margin: 200_000, Fee: 50_000}
	if got := s.PaidBy(rules.PaidByFreeCredit); got != (Shares{}) {
		t.Errorf("by free credit: %+v", got)
	}
	if got := s.PaidBy(rules.PaidByWallet); got != s {
		t.Errorf("by the wallet: %+v", got)
	}
}
