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
	Audio           *replyAudio     `json:"audio"`
	Usage           json.RawMessage `json:"usage"`
	StatusDetails   *struct {
		Error *errorObject `json:"error"`
	} `json:"status_details"`
}

// isOutOfBand reports whether the response belongs to no conversation.
func (r *responseObject) isOutOfBand() bool { return string(r.ConversationID) == "null" }

type replyAudio struct {
	Output *struct {
		Voice json.RawMessage `json:"voice"`
	} `json:"output"`
}

// sessionObject is the provider's session, each member of whatever JSON type. Nil = the event does not have it.
type sessionObject struct {
	Model           json.RawMessage
	Instructions    json.RawMessage
	Modalities      json.RawMessage
	Tools           json.RawMessage
	ToolChoice      json.RawMessage
	MaxOutputTokens json.RawMessage
	Voice           json.RawMessage
	Rest            map[string]any // all others, but ids and times
}

// UnmarshalJSON reads the members one by one.
func (s *sessionObject) UnmarshalJSON(data []byte) error {
	var all, audio, output map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, name := range []string{"id", "object", "type", "expires_at", "client_secret"} {
		delete(all, name)
	}
	for name, to := range map[string]*json.RawMessage{
		"model":             &s.Model,
		"instructions":      &s.Instructions,
		"output_modalities": &s.Modalities,
		"tools":             &s.Tools,
		"tool_choice":       &s.ToolChoice,
		"max_output_tokens": &s.MaxOutputTokens,
	} {
		*to = all[name]
		delete(all, name)
	}
	if json.Unmarshal(all["audio"], &audio) == nil && json.Unmarshal(audio["output"], &output) == nil {
		s.Voice = output["voice"]
		delete(output, "voice")
		audio["output"] = EncodeJSON(output)
		all["audio"] = EncodeJSON(audio)
	}
	return json.Unmarshal(EncodeJSON(all), &s.Rest)
}

// isString reports whether a member is that string.
func isString(raw json.RawMessage, want string) bool {
	got, ok := readString(raw)
	return ok && got == want
}

// readString reads a member that is a string.
func readString(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, true
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
	Param   string `json:"param"`
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
