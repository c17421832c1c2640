package catalog

import (
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// A Listing is an entry of GET /v1/models (contract §2, Model listing entry; the members from
// cached_input_cost_per_1k_usd on are additive, see decision 003). Costs are the provider's, in US dollars per 1,000
// tokens.
type Listing struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
	Costs
	Voice           *VoiceCosts   `json:"voice"`
	LongContext     []LongContext `json:"long_context"`
	ContextWindow   int64         `json:"context_window"`
	MaxOutputTokens int64         `json:"max_output_tokens"`
	PriceConfidence string        `json:"price_confidence"` // published or assumed
	Capabilities    Capabilities  `json:"capabilities"`
	Dimensions      *Dimensions   `json:"dimensions"` // of an embedding model; otherwise null
	DeprecatedAt    *time.Time    `json:"deprecated_at"`
	RetiresAt       *time.Time    `json:"retires_at"`
	Replacement     *string       `json:"replacement"`
}

// Costs are exact decimals with six fractional digits.
type Costs struct {
	Input      string `json:"input_cost_per_1k_usd"`
	Output     string `json:"output_cost_per_1k_usd"`
	Cached     string `json:"cached_input_cost_per_1k_usd"`
	CacheWrite string `json:"cache_write_cost_per_1k_usd"`
}

// VoiceCosts are the costs of a realtime model other than for text.
type VoiceCosts struct {
	AudioInput  string `json:"audio_input_cost_per_1k_usd"`
	AudioCached string `json:"cached_audio_input_cost_per_1k_usd"`
	AudioOutput string `json:"audio_output_cost_per_1k_usd"`
	ImageInput  string `json:"image_input_cost_per_1k_usd"`
	ImageCached string `json:"cached_image_input_cost_per_1k_usd"`
}

// LongContext has the costs of a request with more input tokens than AboveInputTokens, for all its tokens.
type LongContext struct {
	AboveInputTokens int64 `json:"above_input_tokens"`
	Costs
}

// Dimensions are how many numbers an embedding may have. Max is the default.
type Dimensions struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// Capabilities are the request members that a model supports.
type Capabilities struct {
	Vision           bool     `json:"vision"`
	Tools            bool     `json:"tools"`
	ForcedToolChoice bool     `json:"forced_tool_choice"`
	Temperature      bool     `json:"temperature"`
	Reasoning        bool     `json:"reasoning"`
	Realtime         bool     `json:"realtime"`
	Embeddings       bool     `json:"embeddings"`
	ReasoningEfforts []string `json:"reasoning_efforts"`
	ResponseFormats  []string `json:"response_formats"` // of response_format.type, besides text
}

// responseFormats returns the types of response_format that the model's provider takes.
func (m Model) responseFormats() []string {
	switch {
	case m.Realtime, m.Embedding:
		return []string{}
	case m.Provider == "anthropic":
		return []string{"json_schema"}
	}
	return []string{"json_object", "json_schema"}
}

// How sure the price list is of a price. An assumed one, or a part of it, was not read on a page of the provider.
const (
	pricePublished = "published"
	priceAssumed   = "assumed"
)

func newListing(m Model, r Rates) Listing {
	l := Listing{
		ID:              m.ID,
		Provider:        m.Provider,
		Costs:           costs(r.Steps[0]),
		LongContext:     []LongContext{},
		ContextWindow:   m.ContextTokens,
		MaxOutputTokens: m.MaxOutputTokens,
		PriceConfidence: pricePublished,
		Capabilities: Capabilities{
			Vision:           m.Vision,
			Tools:            m.Tools,
			ForcedToolChoice: m.ForcedToolChoice,
			Temperature:      m.Temperature,
			Reasoning:        m.Reasoning,
			Realtime:         m.Realtime,
			Embeddings:       m.Embedding,
			ReasoningEfforts: append([]string{}, m.Efforts...),
			ResponseFormats:  m.responseFormats(),
		},
		DeprecatedAt: m.DeprecatedAt,
		RetiresAt:    m.RetiresAt,
	}
	if m.PriceAssumed {
		l.PriceConfidence = priceAssumed
	}
	if v := r.Voice; v != nil {
		l.Voice = &VoiceCosts{perThousand(v.AudioInput), perThousand(v.AudioCached), perThousand(v.AudioOutput),
			perThousand(v.ImageInput), perThousand(v.ImageCached)}
	}
	if m.Embedding {
		l.Dimensions = &Dimensions{m.MinDimensions, m.MaxDimensions}
	}
	for _, s := range r.Steps[1:] {
		l.LongContext = append(l.LongContext, LongContext{s.AboveInput, costs(s)})
	}
	if m.Replacement != "" {
		l.Replacement = &m.Replacement
	}
	return l
}

// IsPriceAssumed reports whether a part of the price was not read at the provider.
func (l *Listing) IsPriceAssumed() bool { return l.PriceConfidence == priceAssumed }

func costs(s Step) Costs {
	return Costs{perThousand(s.Input), perThousand(s.Output), perThousand(s.Cached), perThousand(s.CacheWrite)}
}

// listingStep is the unit of the sixth digit of a price per thousand tokens, in
// micro-cents per million tokens. All prices are multiples of it.
const listingStep = 1000 * money.Dollar / 1_000_000

// perThousand formats a price per million tokens as dollars per thousand.
func perThousand(price money.MC) string {
	micro := price / listingStep
	return fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
}
