package session

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/purserhq/purser/internal/models/pricing"
)

// providerEvent is what the rules read of an event of the provider (OpenAI Realtime).
type providerEvent struct {
	Type       string          `json:"type"`
	ResponseID string          `json:"response_id"`
	Delta      string          `json:"delta"`
	Response   *responseObject `json:"response"`
	Session    *sessionObject  `json:"session"`
	Item       *itemObject     `json:"item"`
	Error      *errorObject    `json:"error"`

	AudioStartMS json.RawMessage `json:"audio_start_ms"` // of whatever JSON type
	AudioEndMS   json.RawMessage `json:"audio_end_ms"`
}

type responseObject struct {
	ID              string          `json:"id"`
	Status          string          `json:"status"`
	ConversationID  json.RawMessage `json:"conversation_id"`
	MaxOutputTokens json.RawMessage `json:"max_output_tokens"`
	Modalities      []string        `json:"output_modalities"`
	Audio           *audioObject    `json:"audio"`
	Usage           json.RawMessage `json:"usage"`
	StatusDetails   *struct {
		Error *errorObject `json:"error"`
	} `json:"status_details"`
}

// isOutOfBand reports whether the response belongs to no conversation.
func (r *responseObject) isOutOfBand() bool { return string(r.ConversationID) == "null" }

type sessionObject struct {
	Model           string          `json:"model"`
	Instructions    *string         `json:"instructions"`
	Modalities      []string        `json:"output_modalities"`
	Tools           json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage `json:"tool_choice"`
	MaxOutputTokens json.RawMessage `json:"max_output_tokens"`
	Audio           *audioObject    `json:"audio"`
}

type audioObject struct {
	Input  *audioInput `json:"input"`
	Output *struct {
		Voice json.RawMessage `json:"voice"`
	} `json:"output"`
}

type audioInput struct {
	Transcription json.RawMessage `json:"transcription"`
	TurnDetection *struct {
		Type           string `json:"type"`
		CreateResponse *bool  `json:"create_response"`
		IdleTimeoutMS  *int64 `json:"idle_timeout_ms"`
	} `json:"turn_detection"`
}

// audioInput returns the settings of the audio input, or nil.
func (s *sessionObject) audioInput() *audioInput {
	if s.Audio == nil {
		return nil
	}
	return s.Audio.Input
}

// hasVoice reports whether the event has a voice, of whatever JSON type.
func (s *sessionObject) hasVoice() bool {
	return s.Audio != nil && s.Audio.Output != nil && s.Audio.Output.Voice != nil
}

// voice returns the voice. It is a name only if it is a string; the provider also has objects.
func (s *sessionObject) voice() (name string, isName bool) {
	if !s.hasVoice() || json.Unmarshal(s.Audio.Output.Voice, &name) != nil {
		return "", false
	}
	return name, true
}

type itemObject struct {
	ID      string  `json:"id"`
	Type    string  `json:"type"`
	Role    string  `json:"role"`
	CallID  string  `json:"call_id"`
	Output  rawSize `json:"output"`
	Content rawSize `json:"content"`
}

// rawSize is the length of a value's JSON, in bytes. The rules need no more of it, and events wait for them.
type rawSize int

// UnmarshalJSON keeps the length.
func (n *rawSize) UnmarshalJSON(data []byte) error {
	*n = rawSize(len(data))
	return nil
}

type errorObject struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
	EventID string `json:"event_id"`
}

// ParseProviderEvent reads an event of the sideband. It is not ok if the data is malformed; such an
// event is to be ignored.
func ParseProviderEvent(data []byte) (e FromProvider, ok bool) {
	if json.Unmarshal(data, &e.content) != nil {
		return e, false
	}
	if slices.Contains(relayedTypes, e.content.Type) {
		e.Raw = data
	}
	return e, true
}

// readMilliseconds reads a time of the provider's audio; 0 = it is missing or no whole number.
func readMilliseconds(raw json.RawMessage) (ms int64) {
	if len(raw) == 0 || json.Unmarshal(raw, &ms) != nil {
		return 0
	}
	return ms
}

// usageObject is the usage of a response.
type usageObject struct {
	InputTokens  *int64 `json:"input_tokens"`
	OutputTokens *int64 `json:"output_tokens"`
	Input        struct {
		Text         int64 `json:"text_tokens"`
		Audio        int64 `json:"audio_tokens"`
		Image        int64 `json:"image_tokens"`
		Cached       int64 `json:"cached_tokens"`
		CachedDetail *struct {
			Text  int64 `json:"text_tokens"`
			Audio int64 `json:"audio_tokens"`
			Image int64 `json:"image_tokens"`
		} `json:"cached_tokens_details"`
	} `json:"input_token_details"`
	Output struct {
		Text  int64 `json:"text_tokens"`
		Audio int64 `json:"audio_tokens"`
	} `json:"output_token_details"`
}

// isInRange reports whether the counts are there and can be token counts.
func (u *usageObject) isInRange() bool {
	if u.InputTokens == nil || u.OutputTokens == nil {
		return false
	}
	for _, n := range []int64{
		*u.InputTokens, *u.OutputTokens, u.Input.Text, u.Input.Audio, u.Input.Image, u.Input.Cached,
		u.Output.Text, u.Output.Audio,
	} {
		if n < 0 || n > math.MaxInt32 {
			return false
		}
	}
	return true
}

// readUsage reads the usage of a response into disjoint token classes. It returns nil if the usage
// is missing or contradicts itself (decision 019).
func readUsage(raw json.RawMessage) *pricing.VoiceUsage {
	var u usageObject
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || !u.isInRange() {
		return nil
	}
	in, out := u.Input, u.Output
	v := pricing.VoiceUsage{
		TextInput:   in.Text,
		AudioInput:  in.Audio,
		ImageInput:  in.Image,
		TextOutput:  out.Text,
		AudioOutput: out.Audio,
	}
	v.TextInput += max(*u.InputTokens-in.Text-in.Audio-in.Image, 0) // tokens of no named class count as text
	v.TextOutput += max(*u.OutputTokens-out.Text-out.Audio, 0)
	if in.CachedDetail != nil {
		v.TextCached, v.AudioCached, v.ImageCached = in.CachedDetail.Text, in.CachedDetail.Audio, in.CachedDetail.Image
	} else { // only the sum is known: it counts as text, whose discount is the smallest
		v.TextCached = min(in.Cached, v.TextInput)
	}
	v.TextInput -= v.TextCached
	v.AudioInput -= v.AudioCached
	v.ImageInput -= v.ImageCached
	least := min(v.TextInput, v.AudioInput, v.ImageInput, v.TextCached, v.AudioCached, v.ImageCached)
	if least < 0 || v.Input() != *u.InputTokens || v.Output() != *u.OutputTokens {
		return nil
	}
	return &v
}
