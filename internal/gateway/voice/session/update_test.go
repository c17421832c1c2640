package session

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// standIn is the provider's half of a session: an update merges objects, and is answered, as OpenAI does it.
type standIn struct {
	t       *testing.T
	s       State
	now     time.Time
	session map[string]any
	refuses string // an update that has this text is refused; "" = none is
	param   string // that the refusal names
	keeps   string // the member that no update of ours changes; "" = none
	silent  bool   // nothing is answered
	app     []string
	updates []string // that have come
}

// newStandIn is a live session whose provider has answered all.
func newStandIn(t *testing.T) *standIn {
	p := &standIn{t: t, s: at(start), now: start}
	p.s.Updates, p.s.Config.Instructions = nil, "Be kind."
	p.s.Config.Voice, p.s.Config.Tools, p.s.Config.ToolChoice = "marin", []byte(`[]`), []byte(`"auto"`)
	p.session = decoded(t, string(EncodeJSON(p.s.Config.RealtimeSession(true))))
	return p
}

func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func merged(old, change map[string]any) map[string]any {
	out := maps.Clone(old)
	for k, v := range change {
		into, ok := out[k].(map[string]any)
		if from, both := v.(map[string]any); ok && both && !isOtherType(into, from) {
			v = merged(into, from)
		}
		out[k] = v
	}
	return out
}

// step gives the session an event, and then, one after the other, the answers to what it sends.
func (p *standIn) step(e Event) {
	p.t.Helper()
	for waiting := []Event{e}; len(waiting) > 0; waiting = waiting[1:] {
		var actions []Action
		p.s, actions = Step(p.s, waiting[0], p.now)
		for _, a := range actions {
			switch a := a.(type) {
			case ToApp:
				p.app = append(p.app, string(EncodeJSON(a.Event)))
			case ToProvider:
				if answer := p.receive(decoded(p.t, string(EncodeJSON(a.Event)))); answer != "" {
					waiting = append(waiting, parsed(p.t, answer))
				}
			}
		}
	}
}

// receive takes an event as the provider, and returns its answer.
func (p *standIn) receive(event map[string]any) (answer string) {
	if event["type"] != "session.update" {
		return ""
	}
	text := string(EncodeJSON(event["session"]))
	p.updates = append(p.updates, text)
	switch {
	case p.silent:
		return ""
	case p.refuses != "" && strings.Contains(text, p.refuses):
		return `{"type":"error","error":{"type":"invalid_request_error","code":"invalid_value","message":"No.",` +
			`"param":"` + p.param + `","event_id":"` + event["event_id"].(string) + `"}}`
	case p.keeps != "":
		change := event["session"].(map[string]any)
		delete(change, p.keeps)
		text = string(EncodeJSON(change))
	}
	return p.setSession(text)
}

// setSession changes the provider's session, and returns its report.
func (p *standIn) setSession(change string) string {
	p.session = merged(p.session, decoded(p.t, change))
	return `{"type":"session.updated","session":` + string(EncodeJSON(p.session)) + `}`
}

// change is an update of the browser.
func (p *standIn) change(session string) {
	p.t.Helper()
	p.step(parsed(p.t, p.setSession(session)))
}

// update asks for a change as the app.
func (p *standIn) update(eventID string, u ConfigUpdate) {
	p.t.Helper()
	p.step(FromApp{AppEvent{Type: "session.update", EventID: eventID, Update: &u}})
}

// appHears reports whether the app was told something that has these words, and forgets it.
func (p *standIn) appHears(words ...string) bool {
	i := slices.IndexFunc(p.app, func(e string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e, w) })
	})
	if i >= 0 {
		p.app = slices.Delete(p.app, i, i+1)
	}
	return i >= 0
}

// isNoticed reports whether a change of the browser is told and set back.
func (p *standIn) isNoticed() bool {
	p.change(`{"instructions":"Be evil.","max_output_tokens":4096}`)
	return p.appHears("config_reset", "instructions", "max_output_tokens") &&
		p.session["instructions"] == p.s.Config.Instructions &&
		p.session["max_output_tokens"] == float64(p.s.Config.MaxOutputTokens)
}

// TestUpdatesHaveAnAnswer: an update of the app is in force when the provider has confirmed it. A refused one changes
// nothing, is told to the app under its own name, and whatever becomes of updates, the browser's changes are noticed.
func TestUpdatesHaveAnAnswer(t *testing.T) {
	t.Parallel()
	noTool := ConfigUpdate{ToolChoice: []byte(`{"type":"function","name":"zzz"}`)}
	saved := func(p *standIn) { // and read by another node
		var s State
		if err := json.Unmarshal(EncodeJSON(p.s), &s); err != nil {
			p.t.Fatal(err)
		}
		p.s = s
	}
	attachAgain := func(p *standIn) {
		p.step(SidebandDown{})
		p.now = p.now.Add(time.Second)
		p.step(SidebandUp{})
	}
	for name, c := range map[string]struct {
		does func(p *standIn) bool
		want string // the instructions
	}{
		"confirmed": {func(p *standIn) bool {
			p.update("mine", ConfigUpdate{Instructions: ref("Be brief.")})
			return len(p.app) == 0 && p.session["instructions"] == "Be brief."
		}, "Be brief."},
		"refused": {func(p *standIn) bool {
			p.refuses = "zzz"
			p.update("mine", noTool)
			return p.appHears(`"error"`, `"code":"invalid_value"`, `"event_id":"mine"`) && len(p.app) == 0
		}, "Be kind."},
		"refused four times": {func(p *standIn) bool {
			p.refuses = "zzz"
			for range 4 {
				p.update("mine", noTool)
			}
			return len(p.app) == 4
		}, "Be kind."},
		"the next one after a refused one": {func(p *standIn) bool {
			p.refuses = "zzz"
			p.update("mine", noTool)
			p.update("next", ConfigUpdate{Instructions: ref("Be brief.")})
			return p.appHears(`"mine"`) && len(p.app) == 0
		}, "Be brief."},
		"the limit of a refused one": {func(p *standIn) bool {
			p.refuses = "zzz"
			refused := noTool
			refused.MaxOutputTokens = ref(int64(100))
			p.update("mine", refused)
			return p.appHears(`"mine"`) && p.session["max_output_tokens"] == 1024.0 && p.s.appOutputOf() == 1024
		}, "Be kind."},
		"a limit of ours after a refused one": {func(p *standIn) bool {
			p.refuses = "zzz"
			p.update("mine", noTool)
			p.s.Hold, p.s.HoldN = Requested, 7
			p.step(HoldMade{N: 7, AmountMC: 1, MaxOutputTokens: 90})
			return p.session["max_output_tokens"] == 90.0 && p.appHears(`"mine"`)
		}, "Be kind."},
		"muting while one is in flight that will be refused": {func(p *standIn) bool {
			p.refuses, p.silent = "zzz", true
			p.update("mine", noTool)
			p.step(EndRequested{})
			return !strings.Contains(p.updates[len(p.updates)-1], "zzz") &&
				strings.Contains(p.updates[len(p.updates)-1], `"create_response":false`)
		}, "Be kind."},
		"two in flight, the first one refused": {func(p *standIn) bool {
			p.silent = true
			p.update("first", noTool)
			p.update("second", ConfigUpdate{Instructions: ref("Be brief.")})
			first := p.s.Updates[0].ID
			p.silent = false
			p.step(parsed(p.t, `{"type":"error","error":{"message":"No.","event_id":"`+first+`"}}`))
			if p.s.Config.Instructions != "Be kind." || !p.appHears(`"first"`) {
				return false
			}
			p.change(`{"instructions":"Be brief."}`) // the answer to the second
			return len(p.app) == 0
		}, "Be brief."},
		"two in flight, the second one refused": {func(p *standIn) bool {
			p.silent = true
			p.update("first", ConfigUpdate{Instructions: ref("Be brief.")})
			p.update("second", noTool)
			second := p.s.Updates[1].ID
			p.silent = false
			p.session["instructions"] = "Be brief."
			p.step(parsed(p.t, `{"type":"error","error":{"message":"No.","event_id":"`+second+`"}}`))
			return p.appHears(`"second"`) && len(p.app) == 0
		}, "Be brief."},
		"never answered": {func(p *standIn) bool {
			p.silent = true
			p.update("mine", ConfigUpdate{Instructions: ref("Be brief.")})
			p.silent = false
			p.now = p.now.Add(updateTimeout)
			p.step(Tick{})
			return p.appHears(`"mine"`, "did not answer")
		}, "Be kind."},
		"a sideband that breaks before the answer": {func(p *standIn) bool {
			p.silent = true
			p.update("mine", ConfigUpdate{Instructions: ref("Be brief.")})
			p.silent = false
			attachAgain(p)
			return len(p.app) == 0 && p.session["instructions"] == "Be brief."
		}, "Be brief."},
		"asked for without a sideband": {func(p *standIn) bool {
			p.step(SidebandDown{})
			p.update("mine", ConfigUpdate{Instructions: ref("Be brief.")})
			p.now = p.now.Add(time.Second)
			p.step(SidebandUp{})
			return len(p.app) == 0 && p.session["instructions"] == "Be brief."
		}, "Be brief."},
		"another node goes on": {func(p *standIn) bool {
			p.silent = true
			p.update("mine", ConfigUpdate{Tools: []byte(`[{"type":"function","name":"f"}]`)})
			p.silent = false
			saved(p)
			p.step(Adopted{})
			p.step(SidebandUp{})
			return len(p.app) == 0 && string(p.s.Config.ToolChoice) == `"auto"` &&
				strings.Contains(string(p.s.Config.Tools), `"f"`)
		}, "Be kind."},
		"the state of a node of before": {func(p *standIn) bool {
			var s State
			old := strings.Replace(string(EncodeJSON(p.s)), `{"ID"`, `{"PendingUpdates":3,"ID"`, 1)
			if err := json.Unmarshal([]byte(old), &s); err != nil || old == string(EncodeJSON(p.s)) {
				return false
			}
			p.s = s
			return true
		}, "Be kind."},
		"a voice before the model speaks": {func(p *standIn) bool {
			p.update("mine", ConfigUpdate{Voice: ref("cedar")})
			return len(p.app) == 0 && p.s.Config.Voice == "cedar"
		}, "Be kind."},
		"another voice after it has spoken": {func(p *standIn) bool {
			p.s.AudioHeard = true
			p.update("mine", ConfigUpdate{Voice: ref("cedar"), Instructions: ref("Be brief.")})
			return p.appHears(`"code":"cannot_update_voice"`, `"event_id":"mine"`) && len(p.updates) == 0
		}, "Be kind."},
		"the same voice after it has spoken": {func(p *standIn) bool {
			p.s.AudioHeard, p.refuses = true, `"voice"`
			p.update("mine", ConfigUpdate{Voice: ref("marin"), Instructions: ref("Be brief.")})
			return len(p.app) == 0
		}, "Be brief."},
		"what ours cause is not told": {func(p *standIn) bool {
			p.step(parsed(p.t, `{"type":"error","error":{"code":"response_cancel_not_active","event_id":"`+
				(&machine{State: p.s}).ownEventID("cancel")+`"}}`))
			return len(p.app) == 0
		}, "Be kind."},
	} {
		p := newStandIn(t)
		if !c.does(p) || p.s.Config.Instructions != c.want {
			t.Errorf("%s: the app heard %v, instructions %q, updates %v", name, p.app, p.s.Config.Instructions,
				p.updates)
			continue
		}
		if p.silent {
			continue
		}
		if len(p.s.Updates) > 0 || !p.isNoticed() || len(p.s.Updates) > 0 {
			t.Errorf("%s: a change of the browser is not noticed: %v, in flight %+v", name, p.app, p.s.Updates)
		}
	}
}

// TestHeardVoice: the voice is fixed when the model has begun to speak.
func TestHeardVoice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		event string
		want  bool
	}{
		{`{"type":"output_audio_buffer.started","response_id":"a"}`, true},
		{`{"type":"response.output_audio_transcript.delta","response_id":"a","delta":"Hi"}`, true},
		{`{"type":"response.done","response":{"id":"a","status":"completed","usage":` + usage10 + `}}`, true},
		{`{"type":"response.done","response":{"id":"a","status":"completed",
			"usage":{"input_tokens":5,"output_tokens":2}}}`, false},
		{`{"type":"response.output_text.delta","response_id":"a","delta":"Hi"}`, false},
	} {
		if s, _ := Step(at(start), parsed(t, c.event), start); s.AudioHeard != c.want {
			t.Errorf("%s: %t", c.event, s.AudioHeard)
		}
	}
}

// TestUnansweredUpdatesAreBounded: an app cannot fill the state with updates that the provider does not answer.
func TestUnansweredUpdatesAreBounded(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", MaxInstructions)
	for name, u := range map[string]ConfigUpdate{
		"many":  {},
		"large": {Instructions: &large},
	} {
		p := newStandIn(t)
		p.silent = true
		for range 100 {
			p.update("mine", u)
		}
		if n := len(p.s.Updates); n > maxAppUpdates || len(EncodeJSON(p.s)) > maxAppUpdateBytes+MaxInstructions ||
			len(p.app) != 100-n {
			t.Errorf("%s: %d in flight, %d bytes, %d refused", name, n, len(EncodeJSON(p.s)), len(p.app))
		}
	}
}
