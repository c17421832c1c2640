package voice

import (
	"encoding/json"
	"fmt"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger"
	"github.com/purserhq/purser/internal/models/pricing"
)

// Session is a voice session as the API shows it (spec §2, Realtime session).
type Session struct {
	ID             string    `json:"id"`
	Status         Status    `json:"status"`
	Model          string    `json:"model"`
	Feature        *string   `json:"feature"`
	Mock           bool      `json:"mock"`
	CreatedAt      string    `json:"created_at"`
	StartedAt      *string   `json:"started_at"`
	EndedAt        *string   `json:"ended_at"`
	EndReason      *string   `json:"end_reason"`
	MaxDurationS   int64     `json:"max_duration_s"`
	MaxCostMC      *money.MC `json:"max_cost_mc"`
	ResponseCount  int64     `json:"response_count"`
	ChargedMC      money.MC  `json:"charged_mc"`
	ChargedDisplay string    `json:"charged_display"`
	Live           *LiveNow  `json:"live"`
	Receipts       []Receipt `json:"receipts"`

	ConnectionID string `json:"-"`
	AccountID    string `json:"-"`
	AppID        string `json:"-"`
}

// LiveNow is what is known of a session while it is live.
type LiveNow struct {
	ChargedMC       money.MC `json:"charged_mc"`
	ChargedDisplay  string   `json:"charged_display"`
	ResponseCount   int64    `json:"response_count"`
	Ending          bool     `json:"ending"`
	ControlAttached bool     `json:"control_attached"`
}

// Receipt is one billed reply (spec §2, Realtime receipt): its ledger row.
type Receipt struct {
	ID                string      `json:"id"`
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
}

// UsageDetail is what a reply used by modality; cached counts are parts of the
// input counts, as the provider tells them.
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

// receiptOf renders a reply's ledger row.
func receiptOf(e *ledger.Entry) Receipt {
	var u pricing.VoiceUsage
	_ = json.Unmarshal([]byte(e.Usage), &u) // written by usageJSON
	source := "provider"
	if e.Settlement == ledger.Estimated {
		source = "estimated"
	}
	return Receipt{
		ID: e.ID, CreatedAt: ledger.Timestamp(e.CreatedUS), UsageSource: source, InputTokens: u.Input(), OutputTokens: u.Output(),
		UsageDetail: UsageDetail{
			Input:  Modalities{u.TextInput + u.TextCached, u.AudioInput + u.AudioCached, u.ImageInput + u.ImageCached},
			Cached: Modalities{u.TextCached, u.AudioCached, u.ImageCached},
			Output: Modalities{TextTokens: u.TextOutput, AudioTokens: u.AudioOutput},
		},
		ProviderCostMC: e.ProviderCostMC, SvcFeeMC: e.SvcFeeMC, DevMarginMC: e.DevMarginMC,
		UserChargeMC: e.UserChargeMC, UserChargeDisplay: e.UserChargeMC.Display(), HoldAmountMC: e.HoldMC, PaidBy: e.PaidBy,
	}
}

// resource renders a row with its receipts. Without them, what an ended session came
// to is what its row says.
func (r *row) resource(receipts []Receipt) (Session, error) {
	s := Session{
		ID: r.ID, Status: r.Status, Model: r.Model, Mock: r.Mock, CreatedAt: ledger.Timestamp(r.CreatedUS), StartedAt: stamp(r.StartedUS), EndedAt: stamp(r.EndedUS),
		EndReason: r.EndReason, MaxDurationS: r.MaxDurationS, MaxCostMC: r.MaxCostMC, Receipts: receipts, ConnectionID: r.ConnectionID, AccountID: r.AccountID, AppID: r.AppID,
	}
	if r.Feature != "" {
		s.Feature = &r.Feature
	}
	for _, x := range receipts {
		s.ChargedMC += x.UserChargeMC
	}
	s.ResponseCount = int64(len(receipts))
	if receipts == nil && r.ChargedMC != nil {
		s.ChargedMC, s.ResponseCount = *r.ChargedMC, *r.Replies
	}
	s.ChargedDisplay = s.ChargedMC.Display()
	if r.Status == Live {
		var kept saved
		if err := json.Unmarshal([]byte(r.State), &kept); err != nil {
			return s, fmt.Errorf("voice: state of %s: %w", r.ID, err)
		}
		s.Live = &LiveNow{s.ChargedMC, s.ChargedDisplay, s.ResponseCount, kept.State.Ending != nil || r.EndAsked != "", kept.State.Controlled}
	}
	return s, nil
}

func stamp(us *int64) *string {
	if us == nil {
		return nil
	}
	t := ledger.Timestamp(*us)
	return &t
}
