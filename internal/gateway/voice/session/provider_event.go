package session

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/purserhq/purser/internal/models/pricing"
)

// providerEvent is what the rules read of an event of the provider (OpenAI Realtime). Each member is read by itself:
// one that has another JSON type than it is known for hides no other one.
type providerEvent struct {
	Type       string
	ResponseID string
	Delta      string
	Response   *responseObject
	Session    *sessionObject
	Item       *itemObject
	Error      *errorObject
	ItemID     string
	PreviousID json.RawMessage // the item before Item; null = there is none
	Transcript string
	Usage      json.RawMessage // of a transcript

	AudioStartMS json.RawMessage // of whatever JSON type
	AudioEndMS   json.RawMessage

	// Unreadable says that the event is of a type by which replies are billed, or the session is watched, and does not
	// say what it is about.
	Unreadable bool
}

// UnmarshalJSON reads the members one by one.
func (e *providerEvent) UnmarshalJSON(data []byte) error {
	var raw struct {
		Type         json.RawMessage `json:"type"`
		ResponseID   json.RawMessage `json:"response_id"`
		Delta        json.RawMessage `json:"delta"`
		Response     json.RawMessage `json:"response"`
		Session      json.RawMessage `json:"session"`
		Item         json.RawMessage `json:"item"`
		Error        json.RawMessage `json:"error"`
		ItemID       json.RawMessage `json:"item_id"`
		PreviousID   json.RawMessage `json:"previous_item_id"`
		Transcript   json.RawMessage `json:"transcript"`
		Usage        json.RawMessage `json:"usage"`
		AudioStartMS json.RawMessage `json:"audio_start_ms"`
		AudioEndMS   json.RawMessage `json:"audio_end_ms"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*e = providerEvent{
		Type:         readScalar(raw.Type),
		ResponseID:   readScalar(raw.ResponseID),
		Delta:        readScalar(raw.Delta),
		Response:     readObject[responseObject](raw.Response),
		Session:      readObject[sessionObject](raw.Session),
		Item:         readObject[itemObject](raw.Item),
		Error:        readObject[errorObject](raw.Error),
		ItemID:       readScalar(raw.ItemID),
		PreviousID:   raw.PreviousID,
		Transcript:   readScalar(raw.Transcript),
		Usage:        raw.Usage,
		AudioStartMS: raw.AudioStartMS,
		AudioEndMS:   raw.AudioEndMS,
	}
	if text, ok := readString(raw.Error); ok { // an error may be just its message
		e.Error = &errorObject{Message: text}
	}
	switch e.Type {
	case "response.created", "response.done":
		e.Unreadable = e.Response == nil || e.Response.ID == ""
	case "session.updated":
		e.Unreadable = e.Session == nil
	case transcriptCompleted:
		e.Unreadable = e.ItemID == ""
	}
	return nil
}

// readObject reads a member that is an object; nil = it is none, or missing.
func readObject[T any](raw json.RawMessage) *T {
	v := new(T)
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, v) != nil {
		return nil
	}
	return v
}

// readScalar reads a member as a string, also if it is a number; "" = it is neither.
func readScalar(raw json.RawMessage) string {
	if text, ok := readString(raw); ok {
		return text
	}
	var n json.Number
	if len(raw) == 0 || json.Unmarshal(raw, &n) != nil {
		return ""
	}
	return n.String()
}

type responseObject struct {
	ID              string
	Status          string
	ConversationID  json.RawMessage
	MaxOutputTokens json.RawMessage
	Modalities      []string // nil = the event has none that can be read
	Voice           json.RawMessage
	Usage           json.RawMessage
	Failure         *errorObject // of a reply that failed
}

// UnmarshalJSON reads the members one by one.
func (r *responseObject) UnmarshalJSON(data []byte) error {
	var raw struct {
		ID              json.RawMessage `json:"id"`
		Status          json.RawMessage `json:"status"`
		ConversationID  json.RawMessage `json:"conversation_id"`
		MaxOutputTokens json.RawMessage `json:"max_output_tokens"`
		Modalities      json.RawMessage `json:"output_modalities"`
		Audio           json.RawMessage `json:"audio"`
		Usage           json.RawMessage `json:"usage"`
		StatusDetails   json.RawMessage `json:"status_details"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*r = responseObject{
		ID:              readScalar(raw.ID),
		Status:          readScalar(raw.Status),
		ConversationID:  raw.ConversationID,
		MaxOutputTokens: raw.MaxOutputTokens,
		Usage:           raw.Usage,
	}
	if one, ok := readString(raw.Modalities); ok {
		r.Modalities = []string{one}
	} else if json.Unmarshal(raw.Modalities, &r.Modalities) != nil {
		r.Modalities = nil
	}
	type members = map[string]json.RawMessage
	if audio := readObject[members](raw.Audio); audio != nil {
		if output := readObject[members]((*audio)["output"]); output != nil {
			r.Voice = (*output)["voice"]
		}
	}
	if details := readObject[members](raw.StatusDetails); details != nil {
		r.Failure = readObject[errorObject]((*details)["error"])
	}
	return nil
}

// isOutOfBand reports whether the response belongs to no conversation.
func (r *responseObject) isOutOfBand() bool { return string(r.ConversationID) == "null" }

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
	if string(all["reasoning"]) == "null" { // of a model that does not think: there is nothing to compare
		delete(all, "reasoning")
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
	ID      string
	Type    string
	Role    string
	CallID  string
	Output  int // the length of its JSON, in bytes; the rules need no more of it
	Content int // the same
}

// UnmarshalJSON reads the members one by one.
func (i *itemObject) UnmarshalJSON(data []byte) error {
	var raw struct {
		ID      json.RawMessage `json:"id"`
		Type    json.RawMessage `json:"type"`
		Role    json.RawMessage `json:"role"`
		CallID  json.RawMessage `json:"call_id"`
		Output  json.RawMessage `json:"output"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*i = itemObject{
		ID:      readScalar(raw.ID),
		Type:    readScalar(raw.Type),
		Role:    readScalar(raw.Role),
		CallID:  readScalar(raw.CallID),
		Output:  len(raw.Output),
		Content: len(raw.Content),
	}
	return nil
}

type errorObject struct{ Type, Code, Message, Param, EventID string }

// UnmarshalJSON reads the members one by one.
func (e *errorObject) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	*e = errorObject{
		Type:    readScalar(raw["type"]),
		Code:    readScalar(raw["code"]),
		Message: readScalar(raw["message"]),
		Param:   readScalar(raw["param"]),
		EventID: readScalar(raw["event_id"]),
	}
	return nil
}

// meteredTypes are the events without which speech would be in no bill, or the session not be watched.
var meteredTypes = []string{"response.created", "response.done", "session.updated", transcriptCompleted}

// ParseProviderEvent reads an event of the sideband. It is not ok if the data is malformed and not known to be of
// meteredTypes; such an event is to be ignored.
func ParseProviderEvent(data []byte) (e FromProvider, ok bool) {
	if json.Unmarshal(data, &e.content) != nil {
		kind := typeOfMalformed(data)
		e.content = providerEvent{Type: kind, Unreadable: true}
		return e, slices.Contains(meteredTypes, kind)
	}
	if slices.Contains(relayedTypes, e.content.Type) {
		e.Raw = data
	}
	return e, true
}

// typeOfMalformed returns the type of an event that is not JSON as a whole; "" = it does not come before the fault.
func typeOfMalformed(data []byte) (kind string) {
	members := json.NewDecoder(bytes.NewReader(data))
	if open, err := members.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	for members.More() {
		name, err := members.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if members.Decode(&value) != nil {
			return ""
		}
		if name == "type" {
			return readScalar(value)
		}
	}
	return ""
}

// RelayAll lets the app get the event as the provider sent it, unless it is audio.
func (e *FromProvider) RelayAll(data []byte) {
	if !e.content.Unreadable && e.content.Type != "response.output_audio.delta" {
		e.Raw = data
	}
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
