package session

import (
	"slices"
	"testing"
)

// resetFields returns the fields that a step reported as set back.
func resetFields(actions []Action) (fields []string) {
	for _, a := range actions {
		if m, ok := a.(ToApp); ok {
			if reset, ok := m.Event.(configResetMessage); ok {
				fields = append(fields, reset.Fields...)
			}
		}
	}
	return fields
}

// TestCheckConfig: of what the provider reports of its session, each field that differs from the
// configuration is set back, unless the browser may change it (contract §4.4; provider notes D.9).
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Updates = nil
	s.Config = Config{
		Model:           "m",
		Instructions:    "Be kind.",
		Voice:           "marin",
		Tools:           []byte(`[{"type":"function","name":"look","parameters":{"type":"object"}}]`),
		ToolChoice:      []byte(`{"type":"function","name":"look"}`),
		MaxOutputTokens: 1024,
		AutoReply:       true,
	}
	for _, test := range []struct {
		session   string
		updatable []string
		want      []string
		adopted   bool // a change is kept
	}{
		{session: `{}`},
		{session: `{"model":"m","instructions":"Be kind.","output_modalities":["audio"],"max_output_tokens":1024,
			"tools":[{"parameters":{"type":"object"},"name":"look","type":"function","extra":1}],
			"tool_choice":{"name":"look","type":"function"},
			"audio":{"input":{"transcription":null,"turn_detection":{"type":"server_vad","create_response":true}},
				"output":{"voice":"marin"}}}`},
		{session: `{"model":"other"}`, want: []string{"model"}},
		{session: `{"instructions":"Be rude."}`, want: []string{"instructions"}},
		{session: `{"instructions":"Be rude."}`, updatable: []string{"voice"}, want: []string{"instructions"}},
		{session: `{"instructions":"Be rude."}`, updatable: []string{"instructions"}, adopted: true},
		{session: `{"output_modalities":["text"]}`, want: []string{"output_modalities"}},
		{session: `{"model":1}`, want: []string{"model"}},
		{session: `{"instructions":1,"output_modalities":"audio","tools":1,"audio":1}`,
			want: []string{"instructions", "output_modalities", "tools", "audio"}},
		{session: `{"tracing":"auto","prompt":{"id":"p"},"include":["x"],"truncation":"disabled",
			"audio":{"input":{"noise_reduction":{"type":"near_field"}},"output":{"speed":1.5}}}`, want: []string{
			"audio.input.noise_reduction", "audio.output.speed", "include", "prompt", "tracing", "truncation",
		}},
		{session: `{"tools":[]}`, want: []string{"tools"}},
		{session: `{"tool_choice":"auto"}`, want: []string{"tool_choice"}},
		{session: `{"max_output_tokens":1025}`, want: []string{"max_output_tokens"}},
		{session: `{"max_output_tokens":"inf"}`, want: []string{"max_output_tokens"}},
		{session: `{"audio":{"output":{"voice":"cedar"}}}`, want: []string{"audio.output.voice"}},
		{session: `{"audio":{"output":{"voice":{"id":"v"}}}}`, want: []string{"audio.output.voice"}},
		{session: `{"audio":{"output":{"voice":"cedar"}}}`, updatable: []string{"voice"}, adopted: true},
		{session: `{"audio":{"input":{"transcription":{"model":"w"}}}}`, want: []string{"audio.input.transcription"}},
		{
			session: `{"audio":{"input":{"turn_detection":{"create_response":false}}}}`,
			want:    []string{"audio.input.turn_detection.create_response"},
		},
		{
			session: `{"audio":{"input":{"turn_detection":{"idle_timeout_ms":5000}}}}`,
			want:    []string{"audio.input.turn_detection.idle_timeout_ms"},
		},
		{
			session: `{"model":"other","instructions":"B","max_output_tokens":1,
				"audio":{"output":{"voice":"cedar"}}}`,
			updatable: []string{"voice"},
			want:      []string{"model", "instructions", "max_output_tokens"},
			adopted:   true,
		},
	} {
		s.ClientUpdatable = test.updatable
		e, ok := ParseProviderEvent([]byte(`{"type":"session.updated","session":` + test.session + `}`))
		if !ok {
			t.Fatalf("%s: malformed", test.session)
		}
		next, actions := Step(s, e, start)
		if got := resetFields(actions); !slices.Equal(got, test.want) {
			t.Errorf("%s: set back %v, want %v", test.session, got, test.want)
		}
		c := next.Config
		if adopted := c.Voice == "cedar" || c.Instructions == "Be rude."; adopted != test.adopted {
			t.Errorf("%s: voice %q, instructions %q", test.session, c.Voice, c.Instructions)
		}
	}
}

// TestDefaultVoice: the voice that the provider chose is the session's from then on.
func TestDefaultVoice(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Updates = nil
	for _, test := range []struct{ voice, want string }{{"marin", ""}, {"marin", ""}, {"cedar", voiceField}} {
		e, _ := ParseProviderEvent([]byte(
			`{"type":"session.updated","session":{"audio":{"output":{"voice":"` + test.voice + `"}}}}`))
		var actions []Action
		s, actions = Step(s, e, start)
		if got := slices.Contains(resetFields(actions), voiceField); got != (test.want != "") {
			t.Errorf("%s: set back %t", test.voice, got)
		}
	}
	if s.Config.Voice != "marin" {
		t.Errorf("the voice is %q", s.Config.Voice)
	}
}
