package policy

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Shares are the rates of what a charge adds to the provider cost.
type Shares struct {
	Margin money.PPM // the developer's
	Fee    money.PPM // the service's
}

// PaidBy returns the shares of a call by who pays for it. Free credit pays the provider
// cost alone (contract §8).
func (s Shares) PaidBy(payer string) Shares {
	if payer == rules.PaidByFreeCredit {
		return Shares{}
	}
	return s
}

// Terms are the price terms that a hold stores: what the charge is computed from,
// whatever changes before the call is settled (F-28).
type Terms struct {
	Shares
	Rates         string // the snapshot of catalog.Rates, JSON
	InputTokens   int64  // for which the hold is made; of voice the text
	CountedTokens int64  // our own count of them where it is less; 0 = the same
	MaxTokens     int64  // the output cap
	Voice         bool   // AudioTokens are part of the terms
	AudioTokens   int64
	TextCached    int64 // with AudioCached: what voice reads from the provider's cache, in no other count
	AudioCached   int64
	Mock          bool   // the response is canned
	Pool          string // the free pool that would pay; "" = the wallet
}

// JSON returns the terms as they are stored.
func (t *Terms) JSON() string {
	b := make([]byte, 0, 384)
	b = append(append(b, `{"rates":`...), t.Rates...)
	b = strconv.AppendInt(append(b, `,"margin_ppm":`...), int64(t.Margin), 10)
	b = strconv.AppendInt(append(b, `,"fee_ppm":`...), int64(t.Fee), 10)
	b = strconv.AppendInt(append(b, `,"input_tokens":`...), t.InputTokens, 10)
	if t.Voice {
		b = strconv.AppendInt(append(b, `,"audio_tokens":`...), t.AudioTokens, 10)
	}
	if t.TextCached > 0 || t.AudioCached > 0 {
		b = strconv.AppendInt(append(b, `,"cached_text_tokens":`...), t.TextCached, 10)
		b = strconv.AppendInt(append(b, `,"cached_audio_tokens":`...), t.AudioCached, 10)
	}
	b = strconv.AppendInt(append(b, maxTokensMember...), t.MaxTokens, 10)
	if 0 < t.CountedTokens && t.CountedTokens < t.InputTokens {
		b = strconv.AppendInt(append(b, `,"counted_tokens":`...), t.CountedTokens, 10)
	}
	if t.Mock {
		b = append(b, `,"mock":true`...)
	}
	if t.Pool != "" {
		b = append(append(append(b, `,"pool":"`...), t.Pool...), '"') // ids and a month need no JSON escapes
	}
	return string(append(b, '}'))
}

// withPool returns the terms of the same call if the free credit of a pool pays for it.
func (t *Terms) withPool(pool string) Terms {
	free := *t
	free.Shares, free.Pool = t.PaidBy(rules.PaidByFreeCredit), pool
	return free
}

// maxTokensMember begins the member max_tokens of stored terms.
const maxTokensMember = `,"max_tokens":`

// MaxTokens returns the output cap of stored terms; 0 = they have none. It reads only that member,
// because every answer shows it.
func MaxTokens(terms string) (n int64) {
	i := strings.LastIndex(terms, maxTokensMember)
	if i < 0 {
		return 0
	}
	for _, c := range []byte(terms[i+len(maxTokensMember):]) {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int64(c-'0')
	}
	return n
}

// ParseTerms reads what JSON wrote.
func ParseTerms(text string) (Terms, error) {
	var t struct {
		Rates       json.RawMessage `json:"rates"`
		Margin      money.PPM       `json:"margin_ppm"`
		Fee         money.PPM       `json:"fee_ppm"`
		Input       int64           `json:"input_tokens"`
		Audio       *int64          `json:"audio_tokens"`
		TextCached  int64           `json:"cached_text_tokens"`
		AudioCached int64           `json:"cached_audio_tokens"`
		Max         int64           `json:"max_tokens"`
		Counted     int64           `json:"counted_tokens"`
		Mock        bool            `json:"mock"`
		Pool        string          `json:"pool"`
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return Terms{}, err
	}
	out := Terms{
		Shares:        Shares{Margin: t.Margin, Fee: t.Fee},
		Rates:         string(t.Rates),
		InputTokens:   t.Input,
		CountedTokens: t.Counted,
		MaxTokens:     t.Max,
		TextCached:    t.TextCached,
		AudioCached:   t.AudioCached,
		Mock:          t.Mock,
		Pool:          t.Pool,
	}
	if t.Audio != nil {
		out.Voice, out.AudioTokens = true, *t.Audio
	}
	return out, nil
}

// EstimateTokens returns the input tokens of an estimated charge: never more than were
// counted.
func (t *Terms) EstimateTokens() int64 {
	if 0 < t.CountedTokens && t.CountedTokens < t.InputTokens {
		return t.CountedTokens
	}
	return t.InputTokens
}
