package realtime

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/emulator/openai"
)

// A realtimeModel is a realtime model.
type realtimeModel struct {
	id, voice string
	output    int // tokens of a reply
	reasons   bool
	silenceMS int
}

// realtimeModels are the realtime models that are served.
func realtimeModels() []realtimeModel {
	list := []realtimeModel{
		{id: "gpt-realtime-2.1", voice: "marin", output: 32_000, reasons: true},
		{id: "gpt-realtime-2.1-mini", voice: "marin", output: 32_000, reasons: true},
		{id: "gpt-realtime-2", voice: "marin", output: 32_000, reasons: true},
		{id: "gpt-realtime-1.5", voice: "alloy", output: 4096},
		{id: "gpt-realtime", voice: "alloy", output: 4096, silenceMS: 200},
		{id: "gpt-realtime-mini", voice: "alloy", output: 4096},
	}
	for i := range list {
		if list[i].silenceMS == 0 {
			list[i].silenceMS = 500
		}
	}
	return list
}

// sessionSettings are the settings of a session that a client may set.
type sessionSettings struct {
	Type             string         `json:"type"`
	Model            string         `json:"model"`
	OutputModalities []string       `json:"output_modalities"`
	Instructions     string         `json:"instructions"`
	Tools            []functionTool `json:"tools"`
	ToolChoice       raw            `json:"tool_choice"`
	MaxOutputTokens  raw            `json:"max_output_tokens"`
	Tracing          raw            `json:"tracing"`
	Truncation       raw            `json:"truncation"`
	Prompt           raw            `json:"prompt"`
	Audio            audioSettings  `json:"audio"`
	Include          raw            `json:"include"`
	Parallel         *bool          `json:"parallel_tool_calls,omitzero"`
	Reasoning        raw            `json:"reasoning,omitzero"`
}

type audioSettings struct {
	Input  inputAudio  `json:"input"`
	Output outputAudio `json:"output"`
}

type inputAudio struct {
	Format         raw `json:"format"`
	Transcription  raw `json:"transcription"`
	NoiseReduction raw `json:"noise_reduction"`
	TurnDetection  raw `json:"turn_detection"`
}

type outputAudio struct {
	Format raw     `json:"format"`
	Voice  raw     `json:"voice"`
	Speed  float64 `json:"speed"`
}

type functionTool struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Parameters  raw    `json:"parameters"`
}

// A sessionObject is the session as events show it.
type sessionObject struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	ExpiresAt int64  `json:"expires_at"`
	sessionSettings
}

// maxSessionTime is how long a session may last.
const maxSessionTime = time.Hour

// defaults are the settings that a session has unless the client sets others.
func (m realtimeModel) defaults() sessionSettings {
	format := raw(`{"type":"audio/pcm","rate":24000}`)
	s := sessionSettings{
		Model:            m.id,
		OutputModalities: []string{"audio"},
		Tools:            []functionTool{},
		ToolChoice:       raw(`"auto"`),
		MaxOutputTokens:  raw(`"inf"`),
		Instructions: "Your knowledge cutoff is 2023-10. You are a helpful, witty, and friendly AI. Act like a " +
			"human, but remember that you aren't a human and that you can't do human things in the real world.",
		Tracing:    raw("null"),
		Truncation: raw(`"auto"`),
		Prompt:     raw("null"),
		Include:    raw("null"),
		Audio: audioSettings{
			Input: inputAudio{
				Format:         format,
				Transcription:  raw("null"),
				NoiseReduction: raw("null"),
				TurnDetection:  raw(`{"type":"server_vad"}`),
			},
			Output: outputAudio{Format: format, Voice: exchange.Encode(m.voice), Speed: 1},
		},
	}
	if m.reasons {
		on := true
		s.Parallel, s.Reasoning = &on, raw(`{"effort":"low"}`)
	}
	return s
}

// readSession makes the settings of a new call.
func readSession(body []byte) (s sessionSettings, m realtimeModel, f *exchange.Refusal) {
	var asked struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return s, m, openai.BadParam("invalid_json", "session", "We could not parse the session as JSON.")
	}
	models := realtimeModels()
	i := slices.IndexFunc(models, func(m realtimeModel) bool { return m.id == asked.Model })
	switch {
	case asked.Model == "":
		return s, m, openai.BadParam("missing_required_parameter", "session.model",
			"Missing required parameter: 'session.model'.")
	case i < 0:
		return s, m, &exchange.Refusal{
			Status:  http.StatusBadRequest,
			Code:    "model_not_found",
			Param:   "session.model",
			Message: "The model `" + asked.Model + "` does not exist or you do not have access to it.",
		}
	}
	m = models[i]
	s, f = m.defaults().withUpdate(body, m)
	return s, m, f
}

// withUpdate returns the settings changed by body.
func (s sessionSettings) withUpdate(body []byte, m realtimeModel) (sessionSettings, *exchange.Refusal) {
	var next sessionSettings
	if err := json.Unmarshal(exchange.Encode(s), &next); err != nil {
		panic(err) // it is our own
	}
	next.Type = ""
	pointer, unknown, err := exchange.DecodeStrict(body, &next)
	switch param := "session." + exchange.DottedPath(pointer); {
	case err == nil:
	case unknown:
		return s, openai.BadParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
	default:
		return s, openai.BadParam("invalid_type", param, "Invalid type for '%s'.", param)
	}
	next.mergeObjects(&s)
	if f := next.validate(m); f != nil {
		return s, f
	}
	return next, nil
}

// mergeObjects keeps the members of the objects of before that an update does not name. An object of another type
// replaces the one of before.
func (s *sessionSettings) mergeObjects(before *sessionSettings) {
	for _, v := range []struct{ was, is *raw }{
		{&before.Tracing, &s.Tracing},
		{&before.Truncation, &s.Truncation},
		{&before.Prompt, &s.Prompt},
		{&before.Reasoning, &s.Reasoning},
		{&before.Audio.Input.Format, &s.Audio.Input.Format},
		{&before.Audio.Input.Transcription, &s.Audio.Input.Transcription},
		{&before.Audio.Input.NoiseReduction, &s.Audio.Input.NoiseReduction},
		{&before.Audio.Input.TurnDetection, &s.Audio.Input.TurnDetection},
		{&before.Audio.Output.Format, &s.Audio.Output.Format},
	} {
		var was, is map[string]raw
		if json.Unmarshal(*v.was, &was) != nil || json.Unmarshal(*v.is, &is) != nil || was == nil || is == nil ||
			len(is["type"]) > 0 && len(was["type"]) > 0 && !bytes.Equal(is["type"], was["type"]) {
			continue
		}
		maps.Copy(was, is)
		*v.is = exchange.Encode(was)
	}
}

// validate refuses what the provider refuses, and fills in what it fills in.
func (s *sessionSettings) validate(m realtimeModel) *exchange.Refusal {
	switch {
	case s.Type == "":
		return openai.BadParam("missing_required_parameter", "session.type",
			"Missing required parameter: 'session.type'.")
	case s.Type != "realtime":
		return openai.BadParam("invalid_value", "session.type",
			"Invalid value: '%s'. Supported values are: 'realtime'.", s.Type)
	case s.Model != m.id:
		return openai.BadParam("invalid_model", "session.model", "The model of a session cannot be changed.")
	case len(s.OutputModalities) != 1 || s.OutputModalities[0] != "audio" && s.OutputModalities[0] != "text":
		return openai.BadParam("invalid_value", "session.output_modalities",
			"Invalid modalities: supported combinations are: ['text'] and ['audio'].")
	case !m.reasons && (s.Parallel != nil || len(s.Reasoning) > 0):
		return openai.BadParam("unsupported_parameter", "session.reasoning",
			"Unsupported parameter: reasoning models only.")
	case s.Audio.Output.Speed < 0.25 || s.Audio.Output.Speed > 1.5:
		return openai.BadParam("invalid_value", "session.audio.output.speed",
			"Invalid 'session.audio.output.speed': must be between 0.25 and 1.5.")
	}
	steered := newSteering()
	if _, _, err := steered.readText(s.Instructions); err != nil {
		return openai.BadParam("", "session.instructions", "%s", err.Error())
	}
	if f := checkMaxOutput(s.MaxOutputTokens, "session."); f != nil {
		return f
	}
	if f := checkVoice(s.Audio.Output.Voice, "session."); f != nil {
		return f
	}
	if _, f := readTools(s.Tools, s.ToolChoice, "session."); f != nil {
		return f
	}
	turns, f := m.readTurnDetection(s.Audio.Input.TurnDetection)
	if f == nil && turns != nil {
		s.Audio.Input.TurnDetection = exchange.Encode(turns)
	}
	return f
}

// maxOutputTokens is the most that max_output_tokens takes as a number.
const maxOutputTokens = 4096

// checkMaxOutput checks max_output_tokens.
func checkMaxOutput(value raw, where string) *exchange.Refusal {
	n := 0
	if string(value) == `"inf"` || json.Unmarshal(value, &n) == nil && n >= 1 && n <= maxOutputTokens {
		return nil
	}
	return openai.BadParam("invalid_value", where+"max_output_tokens",
		"Invalid '%smax_output_tokens': expected an integer between 1 and %d, or 'inf'.", where, maxOutputTokens)
}

// maxReplyTokens returns how many tokens a reply may have.
func (m realtimeModel) maxReplyTokens(limit raw) int {
	n := m.output
	if json.Unmarshal(limit, &n) != nil {
		return m.output
	}
	return n
}

func checkVoice(value raw, where string) *exchange.Refusal {
	var name string
	voices := []string{"alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"}
	if value.Kind() == '{' || json.Unmarshal(value, &name) == nil && slices.Contains(voices, name) {
		return nil
	}
	return openai.BadParam("invalid_value", where+"audio.output.voice",
		"Invalid value: %s. Supported values are: 'alloy', 'ash', 'ballad', 'coral', 'echo', 'sage', 'shimmer', "+
			"'verse', 'marin', and 'cedar'.", value)
}

// readTools checks the tools and the choice among them.
func readTools(tools []functionTool, choice raw, where string) (*exchange.Prompt, *exchange.Refusal) {
	p := &exchange.Prompt{Parallel: true}
	for i, t := range tools {
		if t.Type != "function" {
			param := fmt.Sprintf("%stools[%d].type", where, i)
			return nil, openai.BadParam("invalid_value", param,
				"Invalid value: '%s'. The emulator knows only 'function'.", t.Type)
		}
		p.Tools = append(p.Tools, exchange.Tool{Name: t.Name, Schema: t.Parameters})
		p.Input.AddTexts(t.Description)
	}
	if f := openai.CheckTools(p.Tools, where+"tools[%d].name", &p.Input); f != nil {
		return nil, f
	}
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if choice.Kind() == '{' {
		if err := json.Unmarshal(choice, &named); err != nil {
			return nil, openai.BadParam("invalid_type", where+"tool_choice", "Invalid type for '%stool_choice'.", where)
		}
	}
	if word := string(choice); len(tools) == 0 && (word == `"auto"` || word == `"none"` || word == `"required"`) {
		p.Choice = "auto" // a session may have a choice and no tools
		return p, nil
	}
	return p, openai.ReadToolChoice(choice, named.Name, p)
}

// turnDetection say how the turns of the user are found; nil = they are not.
type turnDetection struct {
	Type            string   `json:"type"`
	Threshold       *float64 `json:"threshold,omitzero"`
	PrefixPaddingMS *int     `json:"prefix_padding_ms,omitzero"`
	SilenceMS       *int     `json:"silence_duration_ms,omitzero"`
	IdleMS          *int     `json:"idle_timeout_ms"`
	Eagerness       string   `json:"eagerness,omitzero"`
	Create          *bool    `json:"create_response"`
	Interrupt       *bool    `json:"interrupt_response"`
}

// readTurnDetection reads turn_detection, with the defaults filled in.
func (m realtimeModel) readTurnDetection(value raw) (*turnDetection, *exchange.Refusal) {
	const where = "session.audio.input.turn_detection"
	if value.Kind() == 'n' {
		return nil, nil
	}
	threshold, prefix, silence := 0.5, 300, m.silenceMS
	var t turnDetection
	if pointer, unknown, err := exchange.DecodeStrict(value, &t); err != nil {
		if unknown {
			return nil, openai.BadParam("unknown_parameter", where+"."+exchange.DottedPath(pointer),
				"Unknown parameter: '%s.%s'.", where, exchange.DottedPath(pointer))
		}
		return nil, openai.BadParam("invalid_type", where, "Invalid type for '%s'.", where)
	}
	server := t.Type == "server_vad"
	switch {
	case !server && t.Type != "semantic_vad":
		return nil, openai.BadParam("invalid_value", where+".type",
			"Invalid value: '%s'. Supported values are: 'server_vad' and 'semantic_vad'.", t.Type)
	case t.IdleMS != nil && (!server || *t.IdleMS < 5000 || *t.IdleMS > 30_000):
		return nil, openai.BadParam("invalid_value", where+".idle_timeout_ms",
			"Invalid '%s.idle_timeout_ms': must be between 5000 and 30000.", where)
	case t.SilenceMS != nil && *t.SilenceMS < 0:
		return nil, openai.BadParam("invalid_value", where+".silence_duration_ms", "Invalid '%s.silence_duration_ms'.",
			where)
	case server:
		t.Threshold, t.PrefixPaddingMS, t.SilenceMS = orDefault(t.Threshold, threshold),
			orDefault(t.PrefixPaddingMS, prefix), orDefault(t.SilenceMS, silence)
	case t.Eagerness == "":
		t.Eagerness = "auto"
	}
	t.Create, t.Interrupt = orDefault(t.Create, true), orDefault(t.Interrupt, true)
	return &t, nil
}

// orDefault is p, or a pointer to v.
func orDefault[T any](p *T, v T) *T {
	if p == nil {
		return &v
	}
	return p
}

// turnDetection are those of a session that has been checked.
func (c *call) turnDetection() *turnDetection {
	t, f := c.model.readTurnDetection(c.session.Audio.Input.TurnDetection)
	if f != nil {
		return nil
	}
	return t
}
