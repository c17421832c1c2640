package pricing

import (
	"fmt"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
)

// VoiceUsage is the usage of one reply of a realtime model, in disjoint token classes: cached tokens are in no other
// count. The ledger stores its JSON, which names text as the usage of other calls does.
type VoiceUsage struct {
	TextInput   int64 `json:"input"`
	TextCached  int64 `json:"cached"`
	AudioInput  int64 `json:"audio_input"`
	AudioCached int64 `json:"audio_cached"`
	ImageInput  int64 `json:"image_input"`
	ImageCached int64 `json:"image_cached"`
	TextOutput  int64 `json:"output"`
	AudioOutput int64 `json:"audio_output"`
}

// Input returns all input tokens, including cached ones.
func (u VoiceUsage) Input() int64 {
	return u.TextInput + u.TextCached + u.AudioInput + u.AudioCached + u.ImageInput + u.ImageCached
}

// Output returns all output tokens.
func (u VoiceUsage) Output() int64 { return u.TextOutput + u.AudioOutput }

// maxVoiceTokens is far above the usage of any reply, and keeps sums of counts small.
const maxVoiceTokens = 1 << 40

// VoiceInput is the most input that a reply is held for. Cached tokens are in no other count.
type VoiceInput struct{ Text, TextCached, Audio, AudioCached int64 }

// EstimateVoiceHold returns the hold of a reply with at most so much input and maxOutput tokens of output: 105 % of its
// charge if all output is of the more expensive class.
func EstimateVoiceHold(r catalog.Rates, in VoiceInput, maxOutput int64, margin, fee money.PPM) (money.MC, error) {
	if r.Voice == nil || len(r.Steps) != 1 {
		return 0, fmt.Errorf("%w: no voice rates", ErrInvalid)
	}
	text, voice := r.Steps[0], r.Voice
	cost, err := costOf(money.Up, product{in.Text, text.Input}, product{in.TextCached, text.Cached},
		product{in.Audio, voice.AudioInput}, product{in.AudioCached, voice.AudioCached},
		product{maxOutput, max(voice.AudioOutput, text.Output)})
	if err != nil {
		return 0, err
	}
	a, err := addShares(cost, margin, fee, money.HalfUp, money.Up)
	if err != nil {
		return 0, err
	}
	return money.Share(a.UserChargeMC, holdRate, money.Up)
}

// ChargeVoice returns the charge of a reply, rounded as by Charge.
func ChargeVoice(r catalog.Rates, u VoiceUsage, margin, fee money.PPM) (Amounts, error) {
	cost, err := voiceCostOf(r, u, money.Up)
	if err != nil {
		return Amounts{}, err
	}
	return addShares(cost, margin, fee, money.HalfUp, money.Up)
}

// ChargeVoiceEstimate returns the charge of a reply by our own count, rounded as by ChargeEstimate, and at most the
// hold.
func ChargeVoiceEstimate(r catalog.Rates, u VoiceUsage, margin, fee money.PPM, hold money.MC) (Amounts, error) {
	if err := checkNonNegative("hold", int64(hold)); err != nil {
		return Amounts{}, err
	}
	cost, err := voiceCostOf(r, u, money.Down)
	if err != nil {
		return Amounts{}, err
	}
	a, err := addShares(cost, margin, fee, money.Down, money.Down)
	if err != nil {
		return Amounts{}, err
	}
	return a.AtMost(hold), nil
}

func voiceCostOf(r catalog.Rates, u VoiceUsage, round money.Rounding) (money.MC, error) {
	if r.Voice == nil || len(r.Steps) != 1 {
		return 0, fmt.Errorf("%w: no voice rates", ErrInvalid)
	}
	text, voice := r.Steps[0], r.Voice
	return costOf(round,
		product{u.TextInput, text.Input}, product{u.TextCached, text.Cached}, product{u.TextOutput, text.Output},
		product{u.AudioInput, voice.AudioInput}, product{u.AudioCached, voice.AudioCached},
		product{u.AudioOutput, voice.AudioOutput},
		product{u.ImageInput, voice.ImageInput}, product{u.ImageCached, voice.ImageCached})
}

// VoiceUsable reports whether a reply's usage can be billed; otherwise it counts as missing, as for Usable.
func VoiceUsable(u VoiceUsage, maxOutput, contextTokens int64) bool {
	for _, n := range []int64{u.TextInput, u.TextCached, u.AudioInput, u.AudioCached, u.ImageInput, u.ImageCached,
		u.TextOutput, u.AudioOutput} {
		if n < 0 || n > maxVoiceTokens {
			return false
		}
	}
	return u.Input() <= contextTokens && u.Input()+u.Output() > 0 && u.Output()/2 <= maxOutput+outputSlack
}
