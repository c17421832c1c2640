package session

import (
	"encoding/json"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// What a receipt is for.
const (
	KindReply         = "reply"
	KindTranscription = "transcription" // of what the user said
)

// Receipt is one billed reply (contract §2, Realtime receipt), or transcript: its ledger row.
type Receipt struct {
	ID                string      `json:"id"`
	Kind              string      `json:"kind"` // KindReply or KindTranscription
	CreatedAt         string      `json:"created_at"`
	UsageSource       string      `json:"usage_source"`
	InputTokens       int64       `json:"input_tokens"`
	OutputTokens      int64       `json:"output_tokens"`
	UsageDetail       UsageDetail `json:"usage_detail"`
	ProviderCostMC    money.MC    `json:"provider_cost_mc"`
	SvcFeeMC          money.MC    `json:"svc_fee_mc"`
	DevMarginMC       money.MC    `json:"dev_margin_mc"`
	UserChargeMC      money.MC    `json:"user_charge_mc"`
	UserChargeDisplay string      `json:"user_charge_display"`
	HoldAmountMC      money.MC    `json:"hold_amount_mc"`
	PaidBy            string      `json:"paid_by"`
	Waived            string      `json:"waived,omitempty"` // why the reply was free: empty_answer
}

// UsageDetail is the usage of a reply by modality. The cached counts are part of the input counts.
type UsageDetail struct {
	Input  Modalities `json:"input"`
	Cached Modalities `json:"cached"`
	Output Modalities `json:"output"`
}

// Modalities are token counts.
type Modalities struct {
	TextTokens  int64 `json:"text_tokens"`
	AudioTokens int64 `json:"audio_tokens"`
	ImageTokens int64 `json:"image_tokens"`
}

// NewReceipt renders the ledger row of a reply or a transcript.
func NewReceipt(e *rules.Entry, kind string) Receipt {
	var u pricing.VoiceUsage
	_ = json.Unmarshal([]byte(e.Usage), &u) // a voice row holds the JSON of VoiceUsage
	source := "provider"
	if e.Settlement == rules.Estimated {
		source = "estimated"
	}
	waived := ""
	if e.IsWaived() {
		waived = "empty_answer"
	}
	return Receipt{
		ID:           e.ID,
		Kind:         kind,
		CreatedAt:    timestamp.Format(e.CreatedUS),
		UsageSource:  source,
		InputTokens:  u.Input(),
		OutputTokens: u.Output(),
		UsageDetail: UsageDetail{
			Input:  Modalities{u.TextInput + u.TextCached, u.AudioInput + u.AudioCached, u.ImageInput + u.ImageCached},
			Cached: Modalities{u.TextCached, u.AudioCached, u.ImageCached},
			Output: Modalities{TextTokens: u.TextOutput, AudioTokens: u.AudioOutput},
		},
		ProviderCostMC:    e.ProviderCostMC,
		SvcFeeMC:          e.SvcFeeMC,
		DevMarginMC:       e.DevMarginMC,
		UserChargeMC:      e.UserChargeMC,
		UserChargeDisplay: e.UserChargeMC.Display(),
		HoldAmountMC:      e.HoldMC,
		PaidBy:            e.PaidBy,
		Waived:            waived,
	}
}
