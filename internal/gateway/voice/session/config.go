package session

import (
	"bytes"
	"encoding/json"
)

// Config is what the provider's session must be set to. The app may change it; of the browser's
// changes only those that the app allowed are kept.
type Config struct {
	Model           string
	Instructions    string
	Voice           string          // "" = the model's default
	Tools           json.RawMessage // an array of flat function tools
	ToolChoice      json.RawMessage
	MaxOutputTokens int64
	AutoReply       bool // the provider begins a reply when the user has stopped speaking

	Transcription *Transcription `json:",omitempty"` // nil = what the user says is not written down
}

// RealtimeSession renders the provider's session object (OpenAI Realtime). Only at the creation of
// the call it names the model: the provider refuses to change that later.
func (c Config) RealtimeSession(creation bool) map[string]any {
	out := map[string]any{
		"type":              "realtime",
		"instructions":      c.Instructions,
		"output_modalities": []string{"audio"},
		"max_output_tokens": c.MaxOutputTokens,
		"tools":             c.Tools,
		"tool_choice":       c.ToolChoice,
	}
	input := map[string]any{"transcription": nil, "turn_detection": c.turnDetection()}
	if c.Transcription != nil {
		input["transcription"] = c.Transcription
	}
	audio := map[string]any{"input": input}
	if c.Voice != "" {
		audio["output"] = map[string]any{"voice": c.Voice}
	}
	out["audio"] = audio
	if creation {
		out["model"] = c.Model
	}
	return out
}

// turnDetection renders how the provider finds the turns of the user.
func (c Config) turnDetection() map[string]any {
	return map[string]any{
		"type":                "server_vad",
		"threshold":           0.5,
		"prefix_padding_ms":   300,
		"silence_duration_ms": 500,
		"idle_timeout_ms":     nil, // or the model speaks by itself
		"create_response":     c.AutoReply,
		"interrupt_response":  true,
	}
}

// EncodeJSON renders a value that always marshals, with < and & as they are: json.Marshal makes six bytes of each.
func EncodeJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// equalJSON compares two values regardless of the order of their members. If want is absent, got
// may be absent, null or "auto", which is the provider's default.
func equalJSON(got, want json.RawMessage) bool {
	if len(want) == 0 {
		return len(got) == 0 || string(got) == "null" || string(got) == `"auto"`
	}
	return bytes.Equal(canonicalJSON(got), canonicalJSON(want))
}

// canonicalJSON sorts the members of raw. It returns what is not JSON unchanged.
func canonicalJSON(raw json.RawMessage) []byte {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	b, _ := json.Marshal(v) // it was decoded from JSON
	return b
}

// equalTools compares tools by type, name, description and parameters: the provider may add other
// members.
func equalTools(got, want json.RawMessage) bool {
	type tool struct {
		Type, Name, Description string
		Parameters              any
	}
	var a, b []tool
	if json.Unmarshal(got, &a) != nil || len(want) > 0 && json.Unmarshal(want, &b) != nil {
		return false
	}
	x, _ := json.Marshal(a) // both were decoded from JSON
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y) || len(a) == 0 && len(b) == 0
}
