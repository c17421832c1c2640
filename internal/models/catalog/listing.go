package catalog

import (
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// A Listing is an entry of GET /v1/models (spec §2, Model listing entry; the
// members from cached_input_cost_per_1k_usd on are additive, see decisions,
// Names and shapes). Costs are the provider's, in US dollars per 1,000 tokens.
type Listing struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
	Costs
	Voice           *VoiceCosts   `json:"voice"`
	LongContext     []LongContext `json:"long_context"`
	ContextWindow   int64         `json:"context_window"`
	MaxOutputTokens int64         `json:"max_output_tokens"`
	Capabilities    Capabilities  `json:"capabilities"`
	DeprecatedAt    *time.Time    `json:"deprecated_at"`
	RetiresAt       *time.Time    `json:"retires_at"`
	Replacement     *string       `json:"replacement"`
}

// Costs are decimals with six fractional digits, exact.
type Costs struct {
	Input      string `json:"input_cost_per_1k_usd"`
	Output     string `json:"output_cost_per_1k_usd"`
	Cached     string `json:"cached_input_cost_per_1k_usd"`
	CacheWrite string `json:"cache_write_cost_per_1k_usd"`
}

// VoiceCosts are those of a realtime model beside text.
type VoiceCosts struct {
	AudioInput  string `json:"audio_input_cost_per_1k_usd"`
	AudioCached string `json:"cached_audio_input_cost_per_1k_usd"`
	AudioOutput string `json:"audio_output_cost_per_1k_usd"`
	ImageInput  string `json:"image_input_cost_per_1k_usd"`
	ImageCached string `json:"cached_image_input_cost_per_1k_usd"`
}

// LongContext holds the costs of a whole request with more input tokens than
// AboveInputTokens.
type LongContext struct {
	AboveInputTokens int64 `json:"above_input_tokens"`
	Costs
}

// Capabilities are what an app can ask of a model.
type Capabilities struct {
	Vision           bool     `json:"vision"`
	Tools            bool     `json:"tools"`
	ForcedToolChoice bool     `json:"forced_tool_choice"`
	Temperature      bool     `json:"temperature"`
	Reasoning        bool     `json:"reasoning"`
	Realtime         bool     `json:"realtime"`
	ReasoningEfforts []string `json:"reasoning_efforts"`
}

func listing(m Model, r Rates) Listing {
	l := Listing{
		ID: m.ID, Provider: m.Provider,
		Costs:         costs(r.Steps[0]),
		LongContext:   []LongContext{},
		ContextWindow: m.ContextTokens, MaxOutputTokens: m.MaxOutputTokens,
		Capabilities: Capabilities{m.Vision, m.Tools, m.ForcedToolChoice, m.Temperature, m.Reasoning, m.Realtime, append([]string{}, m.Efforts...)},
		DeprecatedAt: m.DeprecatedAt, RetiresAt: m.RetiresAt,
	}
	if v := r.Voice; v != nil {
		l.Voice = &VoiceCosts{perThousand(v.AudioInput), perThousand(v.AudioCached), perThousand(v.AudioOutput), perThousand(v.ImageInput), perThousand(v.ImageCached)}
	}
	for _, s := range r.Steps[1:] {
		l.LongContext = append(l.LongContext, LongContext{s.AboveInput, costs(s)})
	}
	if m.Replacement != "" {
		l.Replacement = &m.Replacement
	}
	return l
}

func costs(s Step) Costs {
	return Costs{perThousand(s.Input), perThousand(s.Output), perThousand(s.Cached), perThousand(s.CacheWrite)}
}

// listingStep is the unit of the sixth digit of a price per thousand tokens, in
// micro-cents per million tokens. The book's prices are multiples of it.
const listingStep = 1000 * money.Dollar / 1_000_000

// perThousand writes a price per million tokens as dollars per thousand.
func perThousand(price money.MC) string {
	micro := price / listingStep
	return fmt.Sprintf("%d.%06d", micro/1_000_000, micro%1_000_000)
}
