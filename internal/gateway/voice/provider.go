package voice

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/models/pricing"
)

// providerEvent is what is read of the provider's events (OpenAI Realtime).
type providerEvent struct {
	Type       string           `json:"type"`
	ResponseID string           `json:"response_id"`
	Delta      string           `json:"delta"`
	Response   *responseObject  `json:"response"`
	Session    *sessionObject   `json:"session"`
	Item       *itemObject      `json:"item"`
	Error      *providerFailure `json:"error"`
}

type responseObject struct {
	ID             string          `json:"id"`
	Status         string          `json:"status"`
	ConversationID json.RawMessage `json:"conversation_id"`
	MaxOutput      json.RawMessage `json:"max_output_tokens"`
	Modalities     []string        `json:"output_modalities"`
	Audio          *audioObject    `json:"audio"`
	Usage          json.RawMessage `json:"usage"`
}

type sessionObject struct {
	Model        string          `json:"model"`
	Instructions *string         `json:"instructions"`
	Modalities   []string        `json:"output_modalities"`
	Tools        json.RawMessage `json:"tools"`
	ToolChoice   json.RawMessage `json:"tool_choice"`
	MaxOutput    json.RawMessage `json:"max_output_tokens"`
	Audio        *audioObject    `json:"audio"`
}

type audioObject struct {
	Input *struct {
		Transcription json.RawMessage `json:"transcription"`
		Turn          *struct {
			Type   string `json:"type"`
			Create *bool  `json:"create_response"`
			IdleMS *int64 `json:"idle_timeout_ms"`
		} `json:"turn_detection"`
	} `json:"input"`
	Output *struct {
		Voice json.RawMessage `json:"voice"`
	} `json:"output"`
}

type itemObject struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	CallID  string          `json:"call_id"`
	Output  string          `json:"output"`
	Content json.RawMessage `json:"content"`
}

type providerFailure struct {
	Type    string `json:"type"`
	Code    string `json:"code"`
	EventID string `json:"event_id"`
}

// relayed are the provider's events that the app gets as they are (spec §4.4).
var relayed = []string{
	"response.function_call_arguments.done", "response.output_audio_transcript.done", "response.output_text.done",
	"input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "response.created", "error",
}

// readUsage reads a reply's usage into disjoint classes; nil if it is missing or
// cannot be true (decisions, Money).
func readUsage(raw json.RawMessage) *pricing.VoiceUsage {
	var u struct {
		Input  *int64 `json:"input_tokens"`
		Output *int64 `json:"output_tokens"`
		In     struct {
			Text   int64 `json:"text_tokens"`
			Audio  int64 `json:"audio_tokens"`
			Image  int64 `json:"image_tokens"`
			Cached int64 `json:"cached_tokens"`
			By     *struct {
				Text  int64 `json:"text_tokens"`
				Audio int64 `json:"audio_tokens"`
				Image int64 `json:"image_tokens"`
			} `json:"cached_tokens_details"`
		} `json:"input_token_details"`
		Out struct {
			Text  int64 `json:"text_tokens"`
			Audio int64 `json:"audio_tokens"`
		} `json:"output_token_details"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &u) != nil || u.Input == nil || u.Output == nil {
		return nil
	}
	in, out := u.In, u.Out
	for _, n := range []int64{*u.Input, *u.Output, in.Text, in.Audio, in.Image, in.Cached, out.Text, out.Audio} {
		if n < 0 || n > math.MaxInt32 {
			return nil
		}
	}
	v := pricing.VoiceUsage{TextInput: in.Text, AudioInput: in.Audio, ImageInput: in.Image, TextOutput: out.Text, AudioOutput: out.Audio}
	v.TextInput += max(*u.Input-in.Text-in.Audio-in.Image, 0) // what has no name is text
	v.TextOutput += max(*u.Output-out.Text-out.Audio, 0)
	switch {
	case in.By != nil:
		v.TextCached, v.AudioCached, v.ImageCached = in.By.Text, in.By.Audio, in.By.Image
	default: // only a sum: text first, which is the cheapest to lose
		v.TextCached = min(in.Cached, v.TextInput)
	}
	v.TextInput, v.AudioInput, v.ImageInput = v.TextInput-v.TextCached, v.AudioInput-v.AudioCached, v.ImageInput-v.ImageCached
	if min(v.TextInput, v.AudioInput, v.ImageInput, v.TextCached, v.AudioCached, v.ImageCached) < 0 || v.Input() != *u.Input || v.Output() != *u.Output {
		return nil
	}
	return &v
}

// fromProvider is what the provider says about the call.
func (m *machine) fromProvider(e providerEvent, raw json.RawMessage) {
	if m.Status != Live {
		return
	}
	if slices.Contains(relayed, e.Type) {
		m.do(Control{raw})
	}
	switch e.Type {
	case "session.updated":
		m.updated(e.Session)
	case "input_audio_buffer.speech_started":
		m.ActUS, m.TalkUS = m.now, m.now
	case "input_audio_buffer.speech_stopped":
		if m.TalkUS > 0 {
			m.Heard += time.Duration(m.now-m.TalkUS) * time.Microsecond
		}
		m.ActUS, m.TalkUS = m.now, 0
	case "response.created":
		m.created(e.Response)
	case "response.output_audio_transcript.delta", "response.output_text.delta", "response.function_call_arguments.delta":
		if r := m.reply(e.ResponseID); r != nil {
			r.TextBytes += int64(len(e.Delta))
		}
	case "output_audio_buffer.started":
		if r := m.reply(e.ResponseID); r != nil && r.AudioUS == 0 {
			r.AudioUS, m.keep = m.now, true
		}
	case "output_audio_buffer.stopped", "output_audio_buffer.cleared":
		m.heard(e.ResponseID)
	case "response.done":
		m.done(e.Response)
	case "conversation.item.added":
		m.added(e.Item)
	case "error":
		if e.Error != nil && e.Error.Code == "session_expired" {
			m.end(ProviderError, true)
		}
	}
}

func (m *machine) reply(id string) *Reply {
	for i := range m.Replies {
		if m.Replies[i].ID == id {
			return &m.Replies[i]
		}
	}
	return nil
}

// created is the start of a reply, whoever asked for it: the user by speaking, the
// app, or the browser by itself. It takes the hold that was made for the next one.
func (m *machine) created(r *responseObject) {
	if r == nil || r.ID == "" || m.reply(r.ID) != nil || slices.Contains(m.Billed, r.ID) {
		return
	}
	aside := string(r.ConversationID) == "null"
	if !aside { // the conversation has one reply at a time: the end of the last was missed
		for i := 0; i < len(m.Replies); {
			if m.Replies[i].Held {
				m.bill(i, nil, "")
				continue
			}
			i++
		}
	}
	taken := slices.ContainsFunc(m.Replies, func(r Reply) bool { return r.Held })
	m.Replies = append(m.Replies, Reply{ID: r.ID, StartedUS: m.now, Held: !taken && (m.Hold == Held || m.Hold == Asking)})
	m.ActUS, m.keep = m.now, true
	last := &m.Replies[len(m.Replies)-1]
	if wrong := m.overrides(r, aside); len(wrong) > 0 {
		m.cancel(last)
		m.tampered(wrong)
		return
	}
	switch {
	case m.Barred:
		m.end(BudgetNotApproved, true)
	case m.Ending != nil:
		m.cancel(last)
	}
}

// overrides lists what a reply has other than the session (wire, D.9).
func (m *machine) overrides(r *responseObject, aside bool) (list []string) {
	if aside {
		list = append(list, "response.conversation")
	}
	if len(r.MaxOutput) > 0 && !m.within(r.MaxOutput) {
		list = append(list, "response.max_output_tokens")
	}
	if r.Modalities != nil && !slices.Equal(r.Modalities, []string{"audio"}) {
		list = append(list, "response.output_modalities")
	}
	if a := r.Audio; a != nil && a.Output != nil && m.Config.Voice != "" && !slices.Contains(m.Updatable, "voice") && !sameJSON(a.Output.Voice, quote(m.Config.Voice)) {
		list = append(list, "response.audio.output.voice")
	}
	return list
}

// within says whether a bound of output is not above the session's.
func (m *machine) within(raw json.RawMessage) bool {
	var n int64
	if string(raw) == "null" {
		return true
	}
	return json.Unmarshal(raw, &n) == nil && n <= m.Config.MaxOutput
}

// heard is the end of what the user hears of a reply.
func (m *machine) heard(id string) {
	if r := m.reply(id); r != nil && r.CutUS == 0 {
		r.CutUS = m.now
	}
	if m.Playing != nil && m.Playing.ID == id {
		m.Playing = nil
	}
	m.ActUS = m.now
}

// done is the end of a reply. A second one of the same reply is nothing (F-32); one
// whose start was missed is billed all the same.
func (m *machine) done(r *responseObject) {
	if r == nil || r.ID == "" || slices.Contains(m.Billed, r.ID) {
		return
	}
	if m.reply(r.ID) == nil {
		m.created(&responseObject{ID: r.ID})
	}
	i := slices.IndexFunc(m.Replies, func(x Reply) bool { return x.ID == r.ID })
	if i < 0 {
		return
	}
	was, usage := m.Replies[i], readUsage(r.Usage)
	m.ActUS = m.now
	if r.Status == "failed" {
		m.Failures++
	} else {
		m.Failures = 0
	}
	if usage != nil && usage.AudioOutput > 0 && was.AudioUS > 0 && was.CutUS == 0 {
		rest := was.AudioUS + usage.AudioOutput*1e6/audioOutPerS - m.now
		m.Playing = &Playing{r.ID, m.in(time.Duration(max(rest, 0))*time.Microsecond + hearSlack)}
	}
	m.bill(i, usage, r.Status)
	if m.Failures >= maxFailures {
		m.end(ProviderError, true)
	}
}

// added is something new in the conversation. The result of a tool that the app
// did not send is forged by the browser.
func (m *machine) added(i *itemObject) {
	if i == nil {
		return
	}
	if i.Type == "function_call_output" {
		if at := slices.Index(m.Outputs, i.CallID); at >= 0 {
			m.Outputs = slices.Delete(m.Outputs, at, at+1)
			return
		}
		m.Grown += int64(len(i.Output))/2 + 16
		m.cancelAll()
		m.tampered([]string{"conversation.item"})
		return
	}
	if i.Role == "user" || i.Role == "system" {
		m.Grown += int64(len(i.Content))/2 + 16
	}
}

// updated compares how the call is set with what it must be set to. What the
// browser may change is taken over; anything else is set back (spec §4.4).
func (m *machine) updated(s *sessionObject) {
	if m.Updates > 0 {
		m.Updates--
	}
	if s == nil || m.Updates > 0 { // an answer to ours is still to come
		return
	}
	c := &m.Config
	var wrong []string
	check := func(name string, same bool, adopt func()) {
		switch {
		case same:
		case adopt != nil && slices.Contains(m.Updatable, name):
			adopt()
			m.keep = true
		default:
			wrong = append(wrong, name)
		}
	}
	check("model", s.Model == "" || s.Model == c.Model, nil)
	check("instructions", s.Instructions == nil || *s.Instructions == c.Instructions, func() {
		m.Grown += int64(len(*s.Instructions)) / 2
		c.Instructions = *s.Instructions
	})
	check("output_modalities", s.Modalities == nil || slices.Equal(s.Modalities, []string{"audio"}), nil)
	check("tools", s.Tools == nil || sameTools(s.Tools, c.Tools), nil)
	check("tool_choice", s.ToolChoice == nil || sameJSON(s.ToolChoice, c.ToolChoice), nil)
	var limit int64
	check("max_output_tokens", s.MaxOutput == nil || json.Unmarshal(s.MaxOutput, &limit) == nil && limit == c.MaxOutput, nil)
	if a := s.Audio; a != nil && a.Output != nil && a.Output.Voice != nil {
		var voice string
		named := json.Unmarshal(a.Output.Voice, &voice) == nil
		if c.Voice == "" && named { // the model's own, as it says now
			c.Voice = voice
		}
		check("voice", named && voice == c.Voice, func() { c.Voice = voice })
	}
	if a := s.Audio; a != nil && a.Input != nil {
		check("transcription", a.Input.Transcription == nil || string(a.Input.Transcription) == "null", nil)
		if t := a.Input.Turn; t != nil {
			check("turn_detection", (t.Create == nil || *t.Create == c.Speaks) && t.IdleMS == nil, nil)
		}
	}
	if len(wrong) > 0 {
		m.tampered(wrong)
	}
}

// tampered sets the call back, tells the app, and ends the session when it is too
// much.
func (m *machine) tampered(fields []string) {
	m.Resets++
	m.keep = true
	m.do(Control{reset{Type: "svc.session.config_reset", ID: m.ID, Fields: fields, Resets: m.Resets}})
	if m.Resets >= maxResets {
		m.end(ConfigTampering, true)
		return
	}
	m.restore()
}

// restore sends the whole configuration.
func (m *machine) restore() {
	if !m.Watched {
		return
	}
	m.Updates++
	m.do(Upstream{map[string]any{"type": "session.update", "session": m.Config.session(false)}})
}

// session is the provider's session object. At creation it names the model.
func (c Config) session(creation bool) map[string]any {
	out := map[string]any{
		"type": "realtime", "instructions": c.Instructions, "output_modalities": []string{"audio"}, "max_output_tokens": c.MaxOutput,
		"tools": c.Tools, "tool_choice": c.ToolChoice,
		"audio": map[string]any{
			"input": map[string]any{"transcription": nil, "turn_detection": map[string]any{
				"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500, "create_response": c.Speaks, "interrupt_response": true,
			}},
		},
	}
	if creation {
		out["model"] = c.Model
	}
	if c.Voice != "" {
		out["audio"].(map[string]any)["output"] = map[string]any{"voice": c.Voice}
	}
	return out
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string is always JSON
	return b
}

// sameJSON compares two values, whatever the order of their members.
func sameJSON(a, b json.RawMessage) bool {
	if len(b) == 0 {
		return len(a) == 0 || string(a) == "null" || string(a) == `"auto"`
	}
	return bytes.Equal(canonical(a), canonical(b))
}

func canonical(raw json.RawMessage) []byte {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	b, _ := json.Marshal(v) // it was JSON before
	return b
}

// sameTools compares tools by what they are called and take; a provider may add
// members of its own.
func sameTools(a, b json.RawMessage) bool {
	type tool struct {
		Type, Name, Description string
		Parameters              any
	}
	var x, y []tool
	if json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return bytes.Equal(mustJSON(x), mustJSON(y)) || len(x) == 0 && len(y) == 0
}

func mustJSON(v any) []byte {
	b, _ := json.Marshal(v) // of decoded JSON
	return b
}
