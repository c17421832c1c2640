package emulator

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// A voiceModel is a realtime model.
type voiceModel struct {
	id, voice string
	output    int // tokens of a reply
	reasons   bool
	silenceMS int
}

// voiceModels are the realtime models that are served.
func voiceModels() []voiceModel {
	list := []voiceModel{
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

// voiceSettings are what a client may set of a session.
type voiceSettings struct {
	Type             string      `json:"type"`
	Model            string      `json:"model"`
	OutputModalities []string    `json:"output_modalities"`
	Instructions     string      `json:"instructions"`
	Tools            []voiceTool `json:"tools"`
	ToolChoice       raw         `json:"tool_choice"`
	MaxOutputTokens  raw         `json:"max_output_tokens"`
	Tracing          raw         `json:"tracing"`
	Truncation       raw         `json:"truncation"`
	Prompt           raw         `json:"prompt"`
	Audio            voiceAudio  `json:"audio"`
	Include          raw         `json:"include"`
	Parallel         *bool       `json:"parallel_tool_calls,omitzero"`
	Reasoning        raw         `json:"reasoning,omitzero"`
}

type voiceAudio struct {
	Input  voiceInput  `json:"input"`
	Output voiceOutput `json:"output"`
}

type voiceInput struct {
	Format         raw `json:"format"`
	Transcription  raw `json:"transcription"`
	NoiseReduction raw `json:"noise_reduction"`
	TurnDetection  raw `json:"turn_detection"`
}

type voiceOutput struct {
	Format raw     `json:"format"`
	Voice  raw     `json:"voice"`
	Speed  float64 `json:"speed"`
}

type voiceTool struct {
	Type        string `json:"type"`
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Parameters  raw    `json:"parameters"`
}

// A voiceSession is the session as events show it.
type voiceSession struct {
	Object    string `json:"object"`
	ID        string `json:"id"`
	ExpiresAt int64  `json:"expires_at"`
	voiceSettings
}

// maxVoiceSession is how long a session may last.
const maxVoiceSession = time.Hour

// defaults are the settings of a session of which nothing is said.
func (m voiceModel) defaults() voiceSettings {
	format := raw(`{"type":"audio/pcm","rate":24000}`)
	s := voiceSettings{
		Model: m.id, OutputModalities: []string{"audio"}, Tools: []voiceTool{}, ToolChoice: raw(`"auto"`), MaxOutputTokens: raw(`"inf"`),
		Instructions: "Your knowledge cutoff is 2023-10. You are a helpful, witty, and friendly AI. Act like a human, but remember that you aren't a human and that you can't do human things in the real world.",
		Tracing:      raw("null"), Truncation: raw(`"auto"`), Prompt: raw("null"), Include: raw("null"),
		Audio: voiceAudio{
			Input:  voiceInput{Format: format, Transcription: raw("null"), NoiseReduction: raw("null"), TurnDetection: raw(`{"type":"server_vad"}`)},
			Output: voiceOutput{Format: format, Voice: encode(m.voice), Speed: 1},
		},
	}
	if m.reasons {
		on := true
		s.Parallel, s.Reasoning = &on, raw(`{"effort":"low"}`)
	}
	return s
}

// readSession makes the settings of a new call.
func readSession(body []byte) (s voiceSettings, m voiceModel, f *refusal) {
	var asked struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return s, m, badParam("invalid_json", "session", "We could not parse the session as JSON.")
	}
	models := voiceModels()
	i := slices.IndexFunc(models, func(m voiceModel) bool { return m.id == asked.Model })
	switch {
	case asked.Model == "":
		return s, m, badParam("missing_required_parameter", "session.model", "Missing required parameter: 'session.model'.")
	case i < 0:
		return s, m, &refusal{status: http.StatusBadRequest, code: "model_not_found", param: "session.model", message: "The model `" + asked.Model + "` does not exist or you do not have access to it."}
	}
	m = models[i]
	s, f = m.defaults().updated(body, m)
	return s, m, f
}

// updated is the settings with what body sets.
func (s voiceSettings) updated(body []byte, m voiceModel) (voiceSettings, *refusal) {
	var next voiceSettings
	if err := json.Unmarshal(encode(s), &next); err != nil {
		panic(err) // it is our own
	}
	next.Type = ""
	pointer, unknown, err := strict(body, &next)
	switch param := "session." + dotted(pointer); {
	case err == nil:
	case unknown:
		return s, badParam("unknown_parameter", param, "Unknown parameter: '%s'.", param)
	default:
		return s, badParam("invalid_type", param, "Invalid type for '%s'.", param)
	}
	if f := next.check(m); f != nil {
		return s, f
	}
	return next, nil
}

// check refuses what the provider refuses, and fills in what it fills in.
func (s *voiceSettings) check(m voiceModel) *refusal {
	switch {
	case s.Type == "":
		return badParam("missing_required_parameter", "session.type", "Missing required parameter: 'session.type'.")
	case s.Type != "realtime":
		return badParam("invalid_value", "session.type", "Invalid value: '%s'. Supported values are: 'realtime'.", s.Type)
	case s.Model != m.id:
		return badParam("invalid_model", "session.model", "The model of a session cannot be changed.")
	case len(s.OutputModalities) != 1 || s.OutputModalities[0] != "audio" && s.OutputModalities[0] != "text":
		return badParam("invalid_value", "session.output_modalities", "Invalid modalities: supported combinations are: ['text'] and ['audio'].")
	case !m.reasons && (s.Parallel != nil || len(s.Reasoning) > 0):
		return badParam("unsupported_parameter", "session.reasoning", "Unsupported parameter: reasoning models only.")
	case s.Audio.Output.Speed < 0.25 || s.Audio.Output.Speed > 1.5:
		return badParam("invalid_value", "session.audio.output.speed", "Invalid 'session.audio.output.speed': must be between 0.25 and 1.5.")
	}
	steered := newVoiceScript()
	if _, _, err := steered.read(s.Instructions); err != nil {
		return badParam("", "session.instructions", "%s", err.Error())
	}
	if f := voiceLimit(s.MaxOutputTokens, "session."); f != nil {
		return f
	}
	if f := knownVoice(s.Audio.Output.Voice, "session."); f != nil {
		return f
	}
	if _, f := voicePrompt(s.Tools, s.ToolChoice, "session."); f != nil {
		return f
	}
	turns, f := m.turns(s.Audio.Input.TurnDetection)
	if f == nil && turns != nil {
		s.Audio.Input.TurnDetection = encode(turns)
	}
	return f
}

// maxVoiceOutput is the most that max_output_tokens takes as a number.
const maxVoiceOutput = 4096

// voiceLimit checks max_output_tokens.
func voiceLimit(value raw, where string) *refusal {
	n := 0
	if string(value) == `"inf"` || json.Unmarshal(value, &n) == nil && n >= 1 && n <= maxVoiceOutput {
		return nil
	}
	return badParam("invalid_value", where+"max_output_tokens", "Invalid '%smax_output_tokens': expected an integer between 1 and %d, or 'inf'.", where, maxVoiceOutput)
}

// tokens is how many tokens a reply may have.
func (m voiceModel) tokens(limit raw) int {
	n := m.output
	if json.Unmarshal(limit, &n) != nil {
		return m.output
	}
	return n
}

func knownVoice(value raw, where string) *refusal {
	var name string
	voices := []string{"alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar"}
	if value.Kind() == '{' || json.Unmarshal(value, &name) == nil && slices.Contains(voices, name) {
		return nil
	}
	return badParam("invalid_value", where+"audio.output.voice", "Invalid value: %s. Supported values are: 'alloy', 'ash', 'ballad', 'coral', 'echo', 'sage', 'shimmer', 'verse', 'marin', and 'cedar'.", value)
}

// voicePrompt checks the tools and the choice among them.
func voicePrompt(tools []voiceTool, choice raw, where string) (*prompt, *refusal) {
	p := &prompt{parallel: true}
	for i, t := range tools {
		if t.Type != "function" {
			param := fmt.Sprintf("%stools[%d].type", where, i)
			return nil, badParam("invalid_value", param, "Invalid value: '%s'. The emulator knows only 'function'.", t.Type)
		}
		p.tools = append(p.tools, tool{name: t.Name, schema: t.Parameters})
		p.input.add(t.Description)
	}
	if f := openAITools(p.tools, where+"tools[%d].name", &p.input); f != nil {
		return nil, f
	}
	var named struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if choice.Kind() == '{' {
		if err := json.Unmarshal(choice, &named); err != nil {
			return nil, badParam("invalid_type", where+"tool_choice", "Invalid type for '%stool_choice'.", where)
		}
	}
	if word := string(choice); len(tools) == 0 && (word == `"auto"` || word == `"none"` || word == `"required"`) {
		p.choice = "auto" // a session may have a choice and no tools
		return p, nil
	}
	return p, openAIChoice(choice, named.Name, p)
}

// voiceTurns say how the turns of the user are found; nil = they are not.
type voiceTurns struct {
	Type            string   `json:"type"`
	Threshold       *float64 `json:"threshold,omitzero"`
	PrefixPaddingMS *int     `json:"prefix_padding_ms,omitzero"`
	SilenceMS       *int     `json:"silence_duration_ms,omitzero"`
	IdleMS          *int     `json:"idle_timeout_ms"`
	Eagerness       string   `json:"eagerness,omitzero"`
	Create          *bool    `json:"create_response"`
	Interrupt       *bool    `json:"interrupt_response"`
}

// turns reads turn_detection, with the defaults filled in.
func (m voiceModel) turns(value raw) (*voiceTurns, *refusal) {
	const where = "session.audio.input.turn_detection"
	if value.Kind() == 'n' {
		return nil, nil
	}
	threshold, prefix, silence := 0.5, 300, m.silenceMS
	var t voiceTurns
	if pointer, unknown, err := strict(value, &t); err != nil {
		if unknown {
			return nil, badParam("unknown_parameter", where+"."+dotted(pointer), "Unknown parameter: '%s.%s'.", where, dotted(pointer))
		}
		return nil, badParam("invalid_type", where, "Invalid type for '%s'.", where)
	}
	server := t.Type == "server_vad"
	switch {
	case !server && t.Type != "semantic_vad":
		return nil, badParam("invalid_value", where+".type", "Invalid value: '%s'. Supported values are: 'server_vad' and 'semantic_vad'.", t.Type)
	case t.IdleMS != nil && (!server || *t.IdleMS < 5000 || *t.IdleMS > 30_000):
		return nil, badParam("invalid_value", where+".idle_timeout_ms", "Invalid '%s.idle_timeout_ms': must be between 5000 and 30000.", where)
	case t.SilenceMS != nil && *t.SilenceMS < 0:
		return nil, badParam("invalid_value", where+".silence_duration_ms", "Invalid '%s.silence_duration_ms'.", where)
	case server:
		t.Threshold, t.PrefixPaddingMS, t.SilenceMS = or(t.Threshold, threshold), or(t.PrefixPaddingMS, prefix), or(t.SilenceMS, silence)
	case t.Eagerness == "":
		t.Eagerness = "auto"
	}
	t.Create, t.Interrupt = or(t.Create, true), or(t.Interrupt, true)
	return &t, nil
}

// or is p, or a pointer to v.
func or[T any](p *T, v T) *T {
	if p == nil {
		return &v
	}
	return p
}

// turns are those of a session that has been checked.
func (c *voiceCall) turns() *voiceTurns {
	t, f := c.model.turns(c.session.Audio.Input.TurnDetection)
	if f != nil {
		return nil
	}
	return t
}
