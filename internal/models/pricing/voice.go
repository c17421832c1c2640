package pricing

import (
	"fmt"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
)

// VoiceUsage is what one reply of a realtime model used, in disjoint classes: what
// came from the provider's cache is in no other count. Its JSON is kept in
// the ledger; text is named as in the usage of other calls.
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

// Input is all input, cached or not.
func (u VoiceUsage) Input() int64 {
	return u.TextInput + u.TextCached + u.AudioInput + u.AudioCached + u.ImageInput + u.ImageCached
}

// Output is all output.
func (u VoiceUsage) Output() int64 { return u.TextOutput + u.AudioOutput }

// maxVoiceTokens is far above what a reply can use, and keeps sums of counts small.
const maxVoiceTokens = 1 << 40

// VoiceEstimate returns the hold of a reply that reads at most so many tokens of
// text and of audio, and says at most maxOutput tokens: 105 % of its charge if
// nothing comes from the cache and every token said is of the dearer kind.
func VoiceEstimate(r catalog.Rates, textInput, audioInput, maxOutput int64, margin, fee money.PPM) (money.MC, error) {
	if r.Voice == nil || len(r.Steps) != 1 {
		return 0, fmt.Errorf("%w: no voice rates", ErrInvalid)
	}
	cost, err := costOf(money.Up, product{textInput, r.Steps[0].Input}, product{audioInput, r.Voice.AudioInput},
		product{maxOutput, max(r.Voice.AudioOutput, r.Steps[0].Output)})
	if err != nil {
		return 0, err
	}
	a, err := amounts(cost, margin, fee, money.HalfUp, money.Up)
	if err != nil {
		return 0, err
	}
	return money.Share(a.UserChargeMC, holdRate, money.Up)
}

// VoiceCharge returns what a reply did cost, by the roundings of Charge.
func VoiceCharge(r catalog.Rates, u VoiceUsage, margin, fee money.PPM) (Amounts, error) {
	cost, err := voiceCost(r, u, money.Up)
	if err != nil {
		return Amounts{}, err
	}
	return amounts(cost, margin, fee, money.HalfUp, money.Up)
}

// VoiceEstimated returns the charge on our own count, by the roundings of
// Estimated, and at most the hold.
func VoiceEstimated(r catalog.Rates, u VoiceUsage, margin, fee money.PPM, hold money.MC) (Amounts, error) {
	if err := nonNegative("hold", int64(hold)); err != nil {
		return Amounts{}, err
	}
	cost, err := voiceCost(r, u, money.Down)
	if err != nil {
		return Amounts{}, err
	}
	a, err := amounts(cost, margin, fee, money.Down, money.Down)
	if err != nil {
		return Amounts{}, err
	}
	return a.AtMost(hold), nil
}

func voiceCost(r catalog.Rates, u VoiceUsage, round money.Rounding) (money.MC, error) {
	if r.Voice == nil || len(r.Steps) != 1 {
		return 0, fmt.Errorf("%w: no voice rates", ErrInvalid)
	}
	text, voice := r.Steps[0], r.Voice
	return costOf(round,
		product{u.TextInput, text.Input}, product{u.TextCached, text.Cached}, product{u.TextOutput, text.Output},
		product{u.AudioInput, voice.AudioInput}, product{u.AudioCached, voice.AudioCached}, product{u.AudioOutput, voice.AudioOutput},
		product{u.ImageInput, voice.ImageInput}, product{u.ImageCached, voice.ImageCached})
}

// VoiceUsable says whether a reply's usage can be billed; if not it counts as
// missing, as Usable says.
func VoiceUsable(u VoiceUsage, maxOutput, contextTokens int64) bool {
	for _, n := range []int64{u.TextInput, u.TextCached, u.AudioInput, u.AudioCached, u.ImageInput, u.ImageCached, u.TextOutput, u.AudioOutput} {
		if n < 0 || n > maxVoiceTokens {
			return false
		}
	}
	return u.Input() <= contextTokens && u.Input()+u.Output() > 0 && u.Output()/2 <= maxOutput+outputSlack
}
