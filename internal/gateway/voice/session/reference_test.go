package session

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fullSession is a session as OpenAI reports it, besides what Config has.
const fullSession = `{"type":"realtime","object":"realtime.session","id":"sess_1","expires_at":1790000000,
	"tracing":null,"truncation":"auto","prompt":null,"include":null,"reasoning":{"effort":"low"},
	"parallel_tool_calls":true,
	"audio":{"input":{"format":{"type":"audio/pcm","rate":24000},"noise_reduction":null},
		"output":{"format":{"type":"audio/pcm","rate":24000},"speed":1}}}`

// newFullStandIn is a session whose first report is known.
func newFullStandIn(t *testing.T) *standIn {
	p := newStandIn(t)
	p.session = merged(p.session, decoded(t, fullSession))
	p.change(`{}`)
	if len(p.s.Reference) == 0 || len(p.app) > 0 {
		t.Fatalf("no reference: %s, %v", p.s.Reference, p.app)
	}
	return p
}

// TestEverythingIsSetBack: whatever the browser changes of the session is told by its path and set back. Only what
// changes the words or their amount counts to the three that end it.
func TestEverythingIsSetBack(t *testing.T) {
	t.Parallel()
	const turns = "audio.input.turn_detection"
	for _, c := range []struct {
		change string
		fields string // as they are told
		counts bool
	}{
		{`{"instructions":"Be evil."}`, "instructions", true},
		{`{"tools":[{"type":"function","name":"f"}]}`, "tools", true},
		{`{"tool_choice":"none"}`, "tool_choice", true},
		{`{"max_output_tokens":"inf"}`, "max_output_tokens", true},
		{`{"reasoning":{"effort":"xhigh"}}`, "reasoning.effort", true},
		{`{"prompt":{"id":"pmpt_1","variables":{"a":"b"}}}`, "prompt", true},
		{`{"output_modalities":["text"]}`, "output_modalities", false},
		{`{"tracing":"auto"}`, "tracing", false},
		{`{"tracing":{"workflow_name":"w"}}`, "tracing", false},
		{`{"truncation":{"type":"retention_ratio","retention_ratio":0.5}}`, "truncation", false},
		{`{"truncation":"disabled"}`, "truncation", false},
		{`{"include":["item.input_audio_transcription.logprobs"]}`, "include", false},
		{`{"parallel_tool_calls":false}`, "parallel_tool_calls", false},
		{`{"audio":{"output":{"speed":1.5}}}`, "audio.output.speed", false},
		{`{"audio":{"output":{"voice":"cedar"}}}`, "audio.output.voice", false},
		{`{"audio":{"output":{"format":{"type":"audio/pcmu"}}}}`, "audio.output.format", false},
		{`{"audio":{"input":{"noise_reduction":{"type":"far_field"}}}}`, "audio.input.noise_reduction", false},
		{`{"audio":{"input":{"transcription":{"model":"whisper-1"}}}}`, "audio.input.transcription", false},
		{`{"audio":{"input":{"turn_detection":{"threshold":0.9}}}}`, turns + ".threshold", false},
		{`{"audio":{"input":{"turn_detection":{"silence_duration_ms":9000}}}}`, turns + ".silence_duration_ms", false},
		{`{"audio":{"input":{"turn_detection":{"interrupt_response":false,"create_response":false}}}}`,
			turns + ".create_response," + turns + ".interrupt_response", false},
		{`{"audio":{"input":{"turn_detection":{"idle_timeout_ms":5000}}}}`, turns + ".idle_timeout_ms", false},
		{`{"audio":{"input":{"turn_detection":{"type":"semantic_vad","eagerness":"low"}}}}`, turns, false},
		{`{"audio":{"input":{"turn_detection":null}}}`, turns, false},
		{`{"audio":{"input":{"turn_detection":{"new_member":1}}}}`, turns + ".new_member", false},
		{`{"new_member":{"a":1}}`, "new_member", false},
		{`{"tracing":"auto","instructions":"Be evil."}`, "instructions,tracing", true},
	} {
		p := newFullStandIn(t)
		before := p.session
		for i := range 4 {
			if p.change(c.change); c.counts {
				break
			}
			if p.s.Ending != nil || p.s.ConfigResets > 0 {
				t.Errorf("%s, time %d: %d resets, ending %+v", c.change, i, p.s.ConfigResets, p.s.Ending)
			}
		}
		told := fmt.Sprintf(`"fields":["%s"]`, strings.ReplaceAll(c.fields, ",", `","`))
		if !p.appHears("config_reset", told) || (p.s.ConfigResets == 1) != c.counts || len(p.s.Updates) > 0 {
			t.Errorf("%s: told %v, %d resets, in flight %+v", c.change, p.app, p.s.ConfigResets, p.s.Updates)
		}
		if left := compareMembers("", before, p.session, true); len(left) > 0 {
			t.Errorf("%s: %v is not set back: %v", c.change, left, p.updates)
		}
		if p.app = nil; !p.isNoticed() || len(p.s.Updates) > 0 {
			t.Errorf("%s: another change is not noticed: %v", c.change, p.app)
		}
	}
}

// TestThirdTampering: the third change that counts ends the session, and those that do not count come to no end.
func TestThirdTampering(t *testing.T) {
	t.Parallel()
	p := newFullStandIn(t)
	for range 5 {
		p.change(`{"tracing":"auto"}`)
	}
	for i, change := range []string{
		`{"prompt":{"id":"a"}}`, `{"reasoning":{"effort":"high"}}`, `{"tool_choice":"required"}`,
	} {
		if p.s.Ending != nil || p.s.ConfigResets != int64(i) {
			t.Errorf("before %s: %d resets, %+v", change, p.s.ConfigResets, p.s.Ending)
		}
		p.change(change)
	}
	if p.s.Ending == nil || p.s.Ending.Reason != ConfigTampering || p.s.ConfigResets != MaxConfigResets ||
		p.session["tool_choice"] != "auto" || strings.Count(strings.Join(p.app, ""), "tool_choice") != 1 {
		t.Errorf("%d resets, %+v, %v", p.s.ConfigResets, p.s.Ending, p.app)
	}
}

// TestRestoringIsRefused: what the provider refuses to set back is left, so that all else is set back. What counts as
// tampering is never left.
func TestRestoringIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuses, param string
		change         string
		left           []string
		reason         string
	}{
		"a member, named": {`"tracing":null`, "session.tracing", `{"tracing":"auto","instructions":"Be evil."}`,
			[]string{"tracing"}, ""},
		"a member, not named": {`"tracing":null`, "", `{"tracing":"auto","instructions":"Be evil."}`,
			[]string{"tracing"}, ""},
		"one that was not changed": {
			`"format"`, "session.audio.output.format", `{"instructions":"Be evil."}`, nil, "",
		},
		"one that was not changed and is not named": {`"format"`, "", `{"instructions":"Be evil."}`, nil, ""},
		"reasoning": {`"reasoning"`, "session.reasoning.effort", `{"reasoning":{"effort":"xhigh"}}`,
			nil, ConfigTampering},
		"all": {`"instructions":"Be kind."`, "", `{"instructions":"Be evil."}`, nil, ProviderError},
	} {
		p := newFullStandIn(t)
		before := p.session
		p.refuses, p.param = c.refuses, c.param
		p.change(c.change)
		left := compareMembers("", before, p.session, true)
		reason := ""
		if p.s.Ending != nil {
			reason = p.s.Ending.Reason
		}
		if reason != c.reason || reason == "" && (len(p.s.Updates) > 0 || !slices.Equal(left, c.left)) {
			t.Errorf("%s: left %v, %q, in flight %+v, sent %v", name, left, reason, p.s.Updates, p.updates)
		}
		if isTold := p.appHears(`"error"`); isTold {
			t.Errorf("%s: the app is told of our update", name)
		}
		if c.reason == "" && (!p.isNoticed() || p.s.ConfigResets != 2) {
			t.Errorf("%s: another change is not noticed: %d resets, %v", name, p.s.ConfigResets, p.updates)
		}
	}
}

// TestRestoringIsIgnored: what the provider confirms and does not set back is left after a while, unless it counts as
// tampering: then it ends the session.
func TestRestoringIsIgnored(t *testing.T) {
	t.Parallel()
	for change, c := range map[string]struct {
		keeps  string // which member stays as the browser has set it
		reason string
	}{
		`{"tracing":"auto"}`:               {"tracing", ""},
		`{"reasoning":{"effort":"xhigh"}}`: {"reasoning", ConfigTampering},
	} {
		p := newFullStandIn(t)
		p.keeps = c.keeps
		p.change(change)
		for range 10 {
			p.now = p.now.Add(updateTimeout)
			p.step(Tick{})
		}
		reason := ""
		if p.s.Ending != nil {
			reason = p.s.Ending.Reason
		}
		if reason != c.reason || reason == "" && (len(p.s.Updates) > 0 || len(p.updates) > 1 || !p.isNoticed()) {
			t.Errorf("%s: %q, in flight %+v, sent %v", change, reason, p.s.Updates, p.updates)
		}
	}
}

// TestReference: the first session that is as it must be is the reference; it is bounded, saved, and forgotten at the
// end. What the browser had changed before the first report is set back, too.
func TestReference(t *testing.T) {
	t.Parallel()
	p := newStandIn(t)
	p.session = merged(p.session, decoded(t, fullSession))
	p.change(`{"tracing":"auto","audio":{"input":{"transcription":{"model":"whisper-1"},
		"turn_detection":{"idle_timeout_ms":5000}}}}`)
	if !p.appHears("config_reset", `"audio.input.transcription"`, `"audio.input.turn_detection.idle_timeout_ms"`,
		`"tracing"`) || p.session["tracing"] != nil {
		t.Errorf("before the first report: %v, %v", p.app, p.session)
	}
	rest := decoded(t, string(p.s.Reference))
	if rest["tracing"] != nil || !reflect.DeepEqual(rest["reasoning"], map[string]any{"effort": "low"}) ||
		rest["id"] != nil || rest["expires_at"] != nil || rest["instructions"] != nil {
		t.Errorf("the reference is %s", p.s.Reference)
	}
	p.change(`{"id":"sess_2","expires_at":1}`)
	if len(p.app) > 0 {
		t.Errorf("an id counts: %v", p.app)
	}
	p.s.Unrestorable = []string{"tracing"}
	if p.s.Forget(); p.s.Reference != nil || p.s.Unrestorable != nil {
		t.Errorf("after the end: %+v", p.s)
	}
	p = newStandIn(t)
	p.session = merged(p.session, decoded(t, fullSession))
	p.change(`{"new_member":"` + strings.Repeat("x", maxReference) + `"}`)
	if len(p.s.Reference) > 0 {
		t.Errorf("a reference of %d bytes", len(p.s.Reference))
	}
}

// TestReasoningBeforeTheFirstReport: a browser that has made the model think harder before the sideband was attached is
// noticed. A model that does not think is not told how much.
func TestReasoningBeforeTheFirstReport(t *testing.T) {
	t.Parallel()
	p := newStandIn(t)
	p.session = merged(p.session, decoded(t, fullSession))
	p.change(`{"reasoning":{"effort":"xhigh"}}`)
	if !p.appHears("config_reset", `"fields":["reasoning.effort"],"resets":1`) || len(p.s.Updates) > 0 ||
		!reflect.DeepEqual(p.session["reasoning"], map[string]any{"effort": "low"}) || len(p.s.Reference) == 0 {
		t.Errorf("%v, %v, in flight %+v", p.app, p.session["reasoning"], p.s.Updates)
	}
	for _, shown := range []string{`{}`, `{"reasoning":null}`} {
		p := newStandIn(t)
		p.session, p.refuses = merged(p.session, decoded(t, shown)), `"reasoning"`
		p.change(`{"tracing":"auto"}`)
		if !p.appHears("config_reset", `"fields":["tracing"],"resets":0`) || p.session["tracing"] != nil ||
			len(p.s.Updates) > 0 || len(p.updates) != 1 {
			t.Errorf("%s: %v, %v, in flight %+v", shown, p.app, p.updates, p.s.Updates)
		}
	}
}

// TestUpdatableWhileSetBack: what the browser may change is not set back together with what it may not.
func TestUpdatableWhileSetBack(t *testing.T) {
	t.Parallel()
	p := newFullStandIn(t)
	p.s.ClientUpdatable = []string{"voice", "instructions"}
	p.change(`{"instructions":"Mine.","tracing":"auto","audio":{"output":{"voice":"cedar"}}}`)
	if !p.appHears("config_reset", `"fields":["tracing"]`) || p.session["instructions"] != "Mine." ||
		p.s.Config.Instructions != "Mine." || p.s.Config.Voice != "cedar" {
		t.Errorf("%v, %v", p.app, p.session)
	}
}

// TestHeardVoiceIsNotSetBack: the provider would refuse it, and with it all else. It is told, and the session's then.
func TestHeardVoiceIsNotSetBack(t *testing.T) {
	t.Parallel()
	p := newFullStandIn(t)
	p.s.AudioHeard, p.refuses = true, `"voice"`
	p.change(`{"audio":{"output":{"voice":"cedar"}},"tool_choice":"none"}`)
	if !p.appHears("config_reset", voiceField) || len(p.app) > 0 || p.s.Config.Voice != "cedar" ||
		p.session["tool_choice"] != "auto" {
		t.Errorf("%v, %+v", p.app, p.s.Config)
	}
}

// TestChangesMeanwhile: what the browser changes while a restoration is on its way is set back by it, and told.
func TestChangesMeanwhile(t *testing.T) {
	t.Parallel()
	p := newFullStandIn(t)
	p.silent = true
	for _, change := range []string{
		`{"instructions":"Be evil."}`, `{"tool_choice":"none"}`, `{"tool_choice":"none","truncation":"disabled"}`,
	} {
		p.change(change)
	}
	if p.silent = false; len(p.updates) != 1 || !p.appHears(`"fields":["instructions"],"resets":1`) {
		t.Fatalf("%v, %v", p.updates, p.app)
	}
	p.change(p.updates[0]) // which is answered now
	if !p.appHears(`"fields":["tool_choice","truncation"],"resets":2`) || len(p.app) > 0 || len(p.s.Updates) > 0 ||
		p.session["truncation"] != "auto" {
		t.Errorf("%v, in flight %+v", p.app, p.s.Updates)
	}
}
