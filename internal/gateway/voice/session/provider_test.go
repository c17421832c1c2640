package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

// parsed is an event as the provider writes it.
func parsed(t *testing.T, text string) FromProvider {
	t.Helper()
	e, ok := ParseProviderEvent([]byte(text))
	if !ok {
		t.Fatalf("malformed: %s", text)
	}
	return e
}

// TestRealtimeSession: the provider's session is named its model only when it is created, and a voice if there is one.
func TestRealtimeSession(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		voice     string
		creation  bool
		has, lack string
	}{
		{"", false, `"create_response":true`, `"model"`}, {"", true, `"model":"m"`, `"output":{`},
		{"marin", false, `"output":{"voice":"marin"}`, `"model"`}, {"marin", true, `"voice":"marin"`, `"null"`},
	} {
		out := string(EncodeJSON(Config{Model: "m", Voice: c.voice, AutoReply: true}.RealtimeSession(c.creation)))
		if !strings.Contains(out, c.has) || strings.Contains(out, c.lack) {
			t.Errorf("%+v: %s", c, out)
		}
	}
}

// TestEqualSettings compares what the provider reports with what was set: members in any order, and its own defaults
// where nothing was set.
func TestEqualSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got, want string
		equal     bool
	}{
		{"", "", true}, {"null", "", true}, {`"auto"`, "", true}, {`"none"`, "", false}, {`"auto"`, `"none"`, false},
		{`"none"`, `"none"`, true}, {`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`{"a":1}`, `{"a":2}`, false},
		{"x", "x", true}, {"x", "y", false},
	} {
		if got := equalJSON(json.RawMessage(c.got), json.RawMessage(c.want)); got != c.equal {
			t.Errorf("%s and %s: %t", c.got, c.want, got)
		}
	}
	tool := `[{"type":"function","name":"f","parameters":{"a":1,"b":2}}]`
	for _, c := range []struct {
		got, want string
		equal     bool
	}{
		{tool, tool, true}, {`[]`, "", true}, {`[]`, `[]`, true}, {`null`, "", true}, {tool, "", false},
		{`[]`, tool, false},
		{`[{"parameters":{"b":2,"a":1},"name":"f","type":"function","strict":true}]`, tool, true},
		{`[{"type":"function","name":"g","parameters":{"a":1,"b":2}}]`, tool, false}, {`{}`, tool, false},
		{tool, `{}`, false},
	} {
		if got := equalTools(json.RawMessage(c.got), json.RawMessage(c.want)); got != c.equal {
			t.Errorf("tools %s and %s: %t", c.got, c.want, got)
		}
	}
}

// TestProviderEvents: an app gets some events as the provider wrote them. The end of the provider's session is the end
// of ours.
func TestProviderEvents(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct{ relayed, ends bool }{
		`{"type":"error","error":{"code":"session_expired"}}`: {true, true},
		`{"type":"error","error":{"code":"invalid_value"}}`:   {true, false},
		`{"type":"error"}`: {true, false},
		`{"type":"input_audio_buffer.speech_stopped"}`:         {true, false},
		`{"type":"response.output_audio_transcript.done"}`:     {true, false},
		`{"type":"session.updated"}`:                           {false, false},
		`{"type":"response.done"}`:                             {false, false},
		`{"type":"response.output_audio_transcript.delta"}`:    {false, false},
		`{"type":"input_audio_buffer.committed"}`:              {false, false},
		`{"type":"rate_limits.updated","error":{"code":"no"}}`: {false, false},
	} {
		s, actions := Step(at(start), parsed(t, text), start)
		isRelayed := slices.Contains(sent(actions), "app "+text)
		if isRelayed != c.relayed || (s.Ending != nil) != c.ends || c.ends && s.Ending.Reason != ProviderError {
			t.Errorf("%s: relayed %t, %+v", text, isRelayed, s.Ending)
		}
	}
}

// TestReportedText counts the text of a reply in progress, from which its estimate is made.
func TestReportedText(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Replies = []Reply{{ID: "a", StartedUS: start.UnixMicro()}}
	for _, kind := range []string{
		"response.output_audio_transcript.delta", "response.output_text.delta",
		"response.function_call_arguments.delta", "response.output_audio.delta",
	} {
		s, _ = Step(s, parsed(t, `{"type":"`+kind+`","response_id":"a","delta":"seven…"}`), start)
		s, _ = Step(s, parsed(t, `{"type":"`+kind+`","response_id":"other","delta":"seven…"}`), start)
	}
	if s.Replies[0].TextBytes != 3*int64(len("seven…")) {
		t.Errorf("%d bytes", s.Replies[0].TextBytes)
	}
}

// TestSpeech counts how long the user has spoken, by the longer of two clocks, and nothing of a speech without a begin.
func TestSpeech(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		began string // of the provider's clock; "" = its event was missed
		ended string
		wait  time.Duration // by our clock
		want  time.Duration
	}{
		{"1000", "3500", time.Second, 2500 * time.Millisecond},
		{"1000", "1500", time.Second, time.Second},
		{"1000", "99999999999", time.Second, 15 * time.Minute}, // no longer than a session
		{`"x"`, "null", 1500 * time.Microsecond, 2 * time.Millisecond},
		{"", "3500", time.Second, 0},
	} {
		s := at(start)
		if c.began != "" {
			began := `{"type":"input_audio_buffer.speech_started","audio_start_ms":` + c.began + `}`
			s, _ = Step(s, parsed(t, began), start)
		}
		now := start.Add(c.wait)
		s, _ = Step(s, parsed(t, `{"type":"input_audio_buffer.speech_stopped","audio_end_ms":`+c.ended+`}`), now)
		if s.UserSpeech != c.want || s.SpeakingUS != 0 || s.LastActivityUS != now.UnixMicro() {
			t.Errorf("%+v: %s, %+v", c, s.UserSpeech, s)
		}
	}
}

// TestEndWithoutSideband: without a sideband no more of a reply will be heard of: an end bills it and hangs up at once.
func TestEndWithoutSideband(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.SidebandAttached, s.SidebandLostUS = false, start.UnixMicro()
	s.Replies = []Reply{{ID: "a", StartedUS: start.UnixMicro(), AudioUS: start.UnixMicro(), Held: true}}
	s, actions := Step(s, EndRequested{}, start.Add(time.Second))
	heard := at(start)
	heard.Playback = &Playback{"resp_1", start.Add(time.Minute).UnixMicro()}
	for immediate, hangsUp := range map[bool]bool{false: false, true: true} {
		_, actions := Step(heard, EndRequested{immediate}, start)
		if slices.Contains(actions, Action(HangUp{})) != hangsUp {
			t.Errorf("an end, immediate %t, while a reply is heard: %s", immediate, sent(actions))
		}
	}
	if got := settles(actions); len(got) != 1 || got[0].Usage.AudioOutput != 20 || len(s.Replies) != 0 ||
		!slices.Contains(actions, Action(HangUp{})) {
		t.Errorf("%+v; %v", s, sent(actions))
	}
}

// TestItems counts what is added to a conversation, and deletes a tool result that the app has not sent.
func TestItems(t *testing.T) {
	t.Parallel()
	const content = `"content":[{"type":"input_text","text":"twenty more bytes.."}]`
	for name, c := range map[string]struct {
		item    string
		tokens  int64
		deleted bool
		known   int // tool results of the app that are still expected
	}{
		"of the user":   {`{"id":"i","type":"message","role":"user",` + content + `}`, 26 + 16, false, 1},
		"of the system": {`{"id":"i","type":"message","role":"system",` + content + `}`, 26 + 16, false, 1},
		"of the model":  {`{"id":"i","type":"message","role":"assistant",` + content + `}`, 0, false, 1},
		"a result of the app": {`{"id":"i","type":"function_call_output","call_id":"call_1","output":"{}"}`, 0, false,
			0},
		"a forged result": {`{"id":"i","type":"function_call_output","call_id":"call_2","output":"{\"a\":1}"}`, 5 + 16,
			true, 1},
		"nothing": {"null", 0, false, 1},
	} {
		s := at(start)
		s.ToolCallIDs = []string{"call_1"}
		s.Replies = []Reply{{ID: "a", StartedUS: start.UnixMicro()}}
		s, actions := Step(s, parsed(t, `{"type":"conversation.item.added","item":`+c.item+`}`), start)
		deleted := slices.Contains(sent(actions), `provider {"event_id":"`+ownID(s, "delete")+
			`","item_id":"i","type":"conversation.item.delete"}`)
		if s.AddedTextTokens != c.tokens || deleted != c.deleted || len(s.ToolCallIDs) != c.known ||
			(s.ConfigResets == 1) != c.deleted || (s.Replies[0].GiveUpUS > 0) != c.deleted {
			t.Errorf("%s: %d tokens, deleted %t; %+v", name, s.AddedTextTokens, deleted, s)
		}
	}
}

// ownID is the event_id of an event of ours.
func ownID(s State, name string) string { return (&machine{State: s}).ownEventID(name) }

// TestOwnEventIDs: the ids of our own events follow from a secret of the session, so that no browser can name the next
// one, also if it has seen those before.
func TestOwnEventIDs(t *testing.T) {
	t.Parallel()
	a, b := at(start), at(start)
	a.EventKey, b.EventKey = "a", "b"
	id := ownID(a, "7")
	if id == ownID(b, "7") || id == ownID(a, "8") || strings.Contains(id, a.ID) || len(id) > 64 {
		t.Errorf("guessed: %s", id)
	}
	m := &machine{State: a}
	for other, want := range map[string]bool{
		id: true, ownID(a, "cancel"): true, ownID(b, "7"): false, "svc_7_": false, "svc_7": false, "svc_": false,
		"": false, "app": false, strings.Replace(id, "_7_", "_8_", 1): false, strings.TrimPrefix(id, "svc_"): false,
	} {
		if got := m.isOwnEventID(other); got != want {
			t.Errorf("%q: %t", other, got)
		}
	}
	// An error that names an update of ours is not the app's; one that names nothing of ours is.
	for _, c := range []struct {
		id    string
		isOwn bool
	}{{id, true}, {"svc_" + a.ID + "_7", false}} {
		e := parsed(t, `{"type":"error","error":{"message":"No.","event_id":"`+c.id+`"}}`)
		_, actions := Step(a, e, start)
		if told := len(sent(actions)) > 0; told == c.isOwn {
			t.Errorf("%s: %s", c.id, sent(actions))
		}
	}
}

// TestLostCache: what each reply reads first is no longer what the last one has read, when an item was inserted before
// others, or one that it has read was truncated or deleted, whoever asked for that.
func TestLostCache(t *testing.T) {
	t.Parallel()
	added := func(id, after, role string) string {
		return `{"type":"conversation.item.added","previous_item_id":` + after + `,"item":{"id":"` + id +
			`","type":"message","role":"` + role + `"}}`
	}
	truncated := func(id string) string { return `{"type":"conversation.item.truncated","item_id":"` + id + `"}` }
	created := `{"type":"response.created","response":{"id":"resp_2"}}`
	talk := []string{added("u1", "null", "user"), added("a1", `"u1"`, "assistant"), added("u2", `"a1"`, "user")}
	for name, c := range map[string]struct {
		events []string
		want   int64
	}{
		"a talk":               {nil, 0},
		"an item at the end":   {[]string{added("x", `"u2"`, "user")}, 0},
		"before the first":     {[]string{added("x", "null", "user")}, 1},
		"in between":           {[]string{added("x", `"u1"`, "user")}, 1},
		"and the talk goes on": {[]string{added("x", `"u1"`, "user"), added("a2", `"u2"`, "assistant")}, 1},
		"twice": {[]string{added("x", `"u1"`, "user"), added("y", `"u1"`, "user"),
			added("a2", `"u2"`, "assistant")}, 2},
		"no place is told":            {[]string{`{"type":"conversation.item.added","item":{"id":"x"}}`}, 0},
		"what was just said is cut":   {[]string{truncated("a1")}, 0},
		"what was read is cut":        {[]string{truncated("u1")}, 1},
		"what the reply reads is cut": {[]string{created, truncated("a1")}, 1},
		"what the reply says is cut":  {[]string{created, added("a2", `"u2"`, "assistant"), truncated("a2")}, 0},
		"an item is deleted":          {[]string{`{"type":"conversation.item.deleted","item_id":"u1"}`}, 1},
		"the last is deleted": {[]string{`{"type":"conversation.item.deleted","item_id":"u2"}`,
			added("u3", `"a1"`, "user")}, 1},
	} {
		s := at(start)
		for _, e := range slices.Concat(talk, c.events) {
			s, _ = Step(s, parsed(t, e), start)
		}
		if s.BeginChanges != c.want {
			t.Errorf("%s: %d changes, want %d", name, s.BeginChanges, c.want)
		}
	}
	s := at(start)
	for _, e := range talk {
		s, _ = Step(s, parsed(t, e), start)
	}
	s, _ = Step(s, SidebandDown{}, start)
	s, _ = Step(s, SidebandUp{}, start)
	if s, _ = Step(s, parsed(t, added("u4", `"a3"`, "user")), start); s.BeginChanges != 0 {
		t.Errorf("what a lost sideband has missed counts as inserted: %d changes", s.BeginChanges)
	}
}

// TestReplyOverrides: a reply that the browser has begun with other settings than the session's is cancelled, and told.
func TestReplyOverrides(t *testing.T) {
	t.Parallel()
	const voice, modalities = `"audio":{"output":{"voice":"cedar"}}`, `"output_modalities":["text"]`
	free := func(s *State) { s.ClientUpdatable = []string{"voice"} }
	unset := func(s *State) { s.Config.Voice = "" }
	unconfirmed := func(s *State) { s.Config.MaxOutputTokens = 500; s.Updates = []Update{{Kind: limitUpdate}} }
	for _, c := range []struct {
		reply string
		state func(*State)
		want  []string
	}{
		{`"output_modalities":["audio"],"max_output_tokens":1024,"audio":{"output":{"voice":"marin"}}`, nil, nil},
		{`"max_output_tokens":1025`, nil, []string{"response.max_output_tokens"}},
		{`"max_output_tokens":"inf"`, nil, []string{"response.max_output_tokens"}},
		{`"max_output_tokens":null`, nil, nil},
		{`"max_output_tokens":1024`, unconfirmed, nil},
		{`"max_output_tokens":1025`, unconfirmed, []string{"response.max_output_tokens"}},
		{`"max_output_tokens":501`, func(s *State) { s.Config.MaxOutputTokens = 500 },
			[]string{"response.max_output_tokens"}},
		{modalities, nil, []string{"response.output_modalities"}},
		{voice, nil, []string{"response.audio.output.voice"}},
		{voice, free, nil},
		{voice, unset, nil},
		{`"audio":{}`, nil, nil},
		{`"conversation_id":null`, nil, []string{"response.conversation"}},
		{`"conversation_id":null,` + modalities + "," + voice, nil,
			[]string{"response.conversation", "response.output_modalities", "response.audio.output.voice"}},
	} {
		s := at(start)
		s.Updates, s.Config.Voice = nil, "marin"
		if c.state != nil {
			c.state(&s)
		}
		s, actions := Step(s, parsed(t, `{"type":"response.created","response":{"id":"a",`+c.reply+`}}`), start)
		if got := resetFields(actions); !slices.Equal(got, c.want) || len(s.Replies) != 1 ||
			(s.Replies[0].GiveUpUS > 0) != (len(c.want) > 0) {
			t.Errorf("%s: %q, want %q; %+v", c.reply, got, c.want, s.Replies)
		}
	}
}

// TestConfirmations: while the provider has not confirmed our own changes, what it reports is older, and is compared
// with nothing.
func TestConfirmations(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Config.Instructions, s.ClientUpdatable = "Be kind.", []string{"instructions"}
	s.Updates = []Update{{Kind: restoreUpdate, SentUS: start.UnixMicro()}}
	rude, kind := `{"type":"session.updated","session":{"model":"other"}}`, `{"type":"session.updated","session":{}}`
	for i, c := range []struct {
		report   string
		resets   int64
		inFlight int
	}{{rude, 0, 1}, {kind, 0, 0}, {rude, 1, 1}, {rude, 1, 1}, {kind, 1, 0}, {rude, 2, 1}} {
		s, _ = Step(s, parsed(t, c.report), start)
		if s.ConfigResets != c.resets || len(s.Updates) != c.inFlight {
			t.Errorf("report %d: %d resets, in flight %+v", i, s.ConfigResets, s.Updates)
		}
	}
	s.Updates = nil
	adopted := `{"type":"session.updated","session":{"instructions":"` + strings.Repeat("x", MaxInstructions) + `"}}`
	s, actions := Step(s, parsed(t, adopted), start)
	if len(s.Config.Instructions) != MaxInstructions || s.AddedTextTokens != MaxInstructions/2 ||
		!slices.Contains(actions, Action(Persist{})) {
		t.Errorf("%d bytes of instructions, %d tokens, %v", len(s.Config.Instructions), s.AddedTextTokens, actions)
	}
	s.ClientUpdatable, s.Config.Voice, s.Hold = []string{"voice"}, "marin", NoHold
	s.Unsettled = []Settle{{N: 7}} // nothing is held for
	cedar := `{"type":"session.updated","session":{"audio":{"output":{"voice":"cedar"}}}}`
	s, actions = Step(s, parsed(t, cedar), start)
	if s.Config.Voice != "cedar" || !slices.Equal(sent(actions), []string{"Persist"}) || len(s.Updates) != 0 {
		t.Errorf("a voice: %q, %s, in flight %+v", s.Config.Voice, sent(actions), s.Updates)
	}
	if s, _ = Step(s, parsed(t, `{"type":"session.updated"}`), start); s.ConfigResets != 2 {
		t.Errorf("a report of nothing: %d resets", s.ConfigResets)
	}
}

// TestSidebands: a sideband that is attached again sets the session anew, and gives replies whose end may have been
// missed some time. One that is lost with its call ends the session.
func TestSidebands(t *testing.T) {
	t.Parallel()
	now := start.Add(time.Second)
	lost := func(s *State) { s.SidebandAttached, s.SidebandLostUS = false, start.UnixMicro() }
	never := func(s *State) { lost(s); s.EverAttached = false }
	reply := func(s *State, giveUp time.Duration) {
		lost(s)
		s.Replies = []Reply{{ID: "a", StartedUS: start.UnixMicro(), EventUS: now.UnixMicro()}}
		if giveUp > 0 {
			s.Replies[0].GiveUpUS = start.Add(giveUp).UnixMicro()
		}
	}
	giveUp := func(s State) time.Duration {
		if len(s.Replies) == 0 {
			return 0
		}
		return time.Duration(s.Replies[0].GiveUpUS-now.UnixMicro()) * time.Microsecond
	}
	for name, c := range map[string]struct {
		state  func(*State)
		event  Event
		sets   bool // the provider's session
		giveUp time.Duration
		reason string
	}{
		"again":             {lost, SidebandUp{}, true, 0, ""},
		"again, mocked":     {func(s *State) { lost(s); s.Mock = true }, SidebandUp{}, true, 0, ""},
		"first":             {never, SidebandUp{}, true, 0, ""},
		"first, mocked":     {func(s *State) { never(s); s.Mock = true }, SidebandUp{}, false, 0, ""},
		"in a reply":        {func(s *State) { reply(s, 0) }, SidebandUp{}, true, missedDoneWait, ""},
		"in an ending one":  {func(s *State) { reply(s, 3*time.Second) }, SidebandUp{}, true, 2 * time.Second, ""},
		"in one that waits": {func(s *State) { reply(s, time.Minute) }, SidebandUp{}, true, missedDoneWait, ""},
		"in an end": {func(s *State) {
			reply(s, time.Minute)
			late := start.Add(time.Hour).UnixMicro()
			s.Ending = &Ending{Reason: AppEnded, Immediate: true, BegunUS: now.UnixMicro(), DeadlineUS: late}
		}, SidebandUp{}, true, CancelWait, AppEnded},
		"lost":                      {nil, SidebandDown{}, false, 0, ""},
		"lost with it":              {nil, SidebandDown{Gone: true}, false, 0, ClientClosed},
		"lost, mocked":              {func(s *State) { s.Mock = true }, SidebandDown{}, false, 0, ClientClosed},
		"lost twice":                {lost, SidebandDown{Gone: true}, false, 0, ""},
		"not attached":              {lost, AttachFailed{}, false, 0, SidebandLost},
		"not attached, gone":        {lost, AttachFailed{Gone: true}, false, 0, ProviderError},
		"never attached, gone":      {never, AttachFailed{Gone: true}, false, 0, SidebandLost},
		"attached meanwhile":        {nil, AttachFailed{}, false, 0, ""},
		"not live":                  {func(s *State) { lost(s); s.Status = Pending }, AttachFailed{}, false, 0, ""},
		"hung up, of one that runs": {nil, CallGone{}, false, 0, ""},
	} {
		s := at(start)
		if c.state != nil {
			c.state(&s)
		}
		s, actions := Step(s, c.event, now)
		reason := ""
		if s.Ending != nil {
			reason = s.Ending.Reason
		}
		sets := slices.ContainsFunc(sent(actions), func(a string) bool {
			return strings.HasPrefix(a, "provider ") && strings.Contains(a, `"type":"session.update"`)
		})
		if sets != c.sets || giveUp(s) != c.giveUp || reason != c.reason {
			t.Errorf("%s: sets %t, gives up in %s, %q; %+v", name, sets, giveUp(s), reason, s)
		}
	}
}

// TestMissedApproval: after a block that was not approved no hold waits for another reply, and the one in progress
// keeps its own.
func TestMissedApproval(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replies []Reply
		want    HoldPhase
	}{"silence": {nil, Releasing}, "a reply": {[]Reply{{ID: "a", StartedUS: start.UnixMicro(), Held: true}}, Held}} {
		s := at(start)
		s.Replies, s.ApproveByUS = c.replies, start.Add(time.Second).UnixMicro()
		if early, _ := Step(s, Tick{}, start.Add(time.Second-time.Microsecond)); early.ApprovalMissed {
			t.Errorf("%s: missed too early", name)
		}
		if s, _ = Step(s, Tick{}, start.Add(time.Second)); !s.ApprovalMissed || s.ApproveByUS != 0 || s.Hold != c.want {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestLongReplies: a reply that does not end is billed by our own count after two minutes.
func TestLongReplies(t *testing.T) {
	t.Parallel()
	s, _ := Step(at(start), storyEvents()["created"], start)
	if s, _ = Step(s, Tick{}, start.Add(MaxReply-time.Microsecond)); len(s.Replies) != 1 {
		t.Errorf("given up too early: %+v", s)
	}
	if s, _ = Step(s, Tick{}, start.Add(MaxReply)); len(s.Replies) != 0 {
		t.Errorf("%+v", s.Replies)
	}
}

// TestTolerantReading: a member of another JSON type hides nothing else of an event, and an event of which nothing can
// be read is an alarm. No change of a type makes speech free without one.
func TestTolerantReading(t *testing.T) {
	t.Parallel()
	usage := `"usage":` + usage10
	done := func(response string) string {
		return `{"type":"response.done","event_id":7,"response":` + response + `}`
	}
	for want, texts := range map[string][]string{
		"settle 1": {
			done(`{"id":"resp_1","status":"completed",` + usage + `}`),
			done(`{"id":"resp_1","status":"completed","status_details":"unimplemented",` + usage + `}`),
			done(`{"id":"resp_1","status_details":{"error":"none"},"output_modalities":"audio",` + usage + `}`),
			done(`{"id":"resp_1","output_modalities":{"a":1},"output":7,"conversation_id":1,` + usage + `}`),
			done(`{"id":"resp_1","status":7,"audio":"marin","metadata":[],` + usage + `}`),
			done(`{"id":"resp_1",` + usage + `},"delta":{},"item":"x","error":[],"session":1`),
			done(`{"id":7,"status":"completed",` + usage + `}`),
		},
		"unreadable response.done": {
			done(`{"id":null,"status":"completed",` + usage + `}`),
			done(`{"status":"completed",` + usage + `}`),
			done(`"resp_1"`),
			`{"type":"response.done"}`,
			`{"type":"response.done","response":{"id":"resp_1","status":"compl`,
		},
		"unreadable response.created": {
			`{"event_id":"e","type":"response.created","response":[}`,
			`{"type":"response.created","response":{"id":{}}}`,
		},
		"unreadable session.updated": {`{"type":"session.updated","session":[]}`},
		"error": {
			`{"type":"error","error":"none"}`,
			`{"type":"error","error":{"code":0,"message":{}}}`,
		},
		"": {
			`{"type":"response.created","response":{"id":"a","output_modalities":"audio","max_output_tokens":"1024"}}`,
			`{"type":"response.weather.done","response":[]}`,
			`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":""}`,
		},
	} {
		for _, text := range texts {
			if got := describeAll(t, text); got != want {
				t.Errorf("%s:\n got %s\nwant %s", text, got, want)
			}
		}
	}
	for _, text := range []string{
		"", "7", `{"type":"oops`, `[`, `{"type":{}}x`, `{"type":"response.output_text.delta",`,
	} {
		if _, ok := ParseProviderEvent([]byte(text)); ok {
			t.Errorf("%s is not dropped", text)
		}
	}
}

// describeAll names the actions that follow an event.
func describeAll(t *testing.T, text string) string {
	t.Helper()
	s := at(start)
	s.Config.Voice = "marin"
	var got []string
	for _, a := range second(Step(s, parsed(t, text), start)) {
		got = append(got, describe(a)...)
	}
	return strings.Join(got, ", ")
}
