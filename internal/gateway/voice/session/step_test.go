package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// usage10 is a usage as the provider reports it: 20 tokens in, 5 of them cached, and 10 out.
const usage10 = `{"total_tokens":30,"input_tokens":20,"output_tokens":10,
	"input_token_details":{"text_tokens":12,"audio_tokens":8,"image_tokens":0,"cached_tokens":5,
		"cached_tokens_details":{"text_tokens":4,"audio_tokens":1,"image_tokens":0}},
	"output_token_details":{"text_tokens":3,"audio_tokens":7}}`

// at is a live session whose hold is made.
func at(now time.Time) State {
	s := State{
		Settings: Settings{
			ID:              "rts_1",
			MaxOutputTokens: 1024,
			ContextTokens:   32000,
			MaxDuration:     15 * time.Minute,
			IdleTimeout:     2 * time.Minute,
		},
		Status:          Pending,
		CreatedUS:       now.UnixMicro(),
		TicketExpiresUS: now.Add(time.Minute).UnixMicro(),
		Config:          Config{Model: "m", MaxOutputTokens: 1024, AutoReply: true},
	}
	for _, e := range []Event{
		Tick{},
		HoldMade{N: 1, AmountMC: 1000},
		TicketUsed{},
		CallAnswered{"rtc_1"},
		SidebandUp{},
	} {
		s, _ = Step(s, e, now)
	}
	return s
}

// storyEvents returns the events of a story by the words for them. All are of reply resp_1, but for
// the last.
func storyEvents() map[string]Event {
	of := func(kind, status, usage string) FromProvider {
		e := provided(kind, "resp_1")
		e.content.Response = &responseObject{ID: "resp_1", Status: status, Usage: []byte(usage)}
		return e
	}
	second := provided("response.created", "resp_2")
	second.content.Response = &responseObject{ID: "resp_2"}
	return map[string]Event{
		"created": of("response.created", "completed", usage10),
		"playing": of("output_audio_buffer.started", "completed", usage10),
		"heard":   of("output_audio_buffer.stopped", "completed", usage10),
		"cut":     of("output_audio_buffer.cleared", "completed", usage10),
		"done":    of("response.done", "completed", usage10),
		"long": of("response.done", "completed", `{"input_tokens":100,"output_tokens":1,
			"input_token_details":{"audio_tokens":100},"output_token_details":{"audio_tokens":1}}`),
		"no usage":         of("response.done", "cancelled", "null"),
		"failed":           of("response.done", "failed", ""),
		"charged":          Settled{N: 1, ReplyID: "resp_1", Entry: &rules.Entry{Usage: "{}"}},
		"uncharged":        Settled{N: 1},
		"second uncharged": Settled{N: 2},
		"released":         Released{1},
		"refused":          HoldRefused{2, "allocation_exhausted"},
		"end":              EndRequested{},
		"end now":          EndRequested{Immediate: true},
		"hung up":          CallGone{},
		"silent":           DatabaseSilent{},
		"down":             SidebandDown{},
		"closed":           SidebandDown{Clean: true},
		"gone":             AttachFailed{Gone: true},
		"up":               SidebandUp{},
		"another":          second,
	}
}

// TestSteps goes through short stories: what happens to a live session whose hold is made, and the
// actions that follow. A duration is time that passes.
func TestSteps(t *testing.T) {
	t.Parallel()
	known := storyEvents()
	for _, test := range []struct{ name, events, want string }{
		{"a reply is settled, then the next is held", "created, done, charged",
			"settle 1, svc.response.settled, hold 2"},
		{"usage is missing and nothing was said: released", "created, no usage, released",
			"release 1, svc.response.settled, hold 2"},
		{"usage is missing and something was said: estimated", "created, playing, 1s, cut, no usage",
			"settle 1 estimated 20 audio"},
		{"and rounded down", "created, playing, 1049ms, cut, no usage", "settle 1 estimated 20 audio"},
		{"a failed reply costs nothing", "created, failed", "error, release 1, svc.response.settled"},
		{"the end of a reply whose begin was missed", "done", "settle 1"},
		{"a second done changes nothing", "created, done, done", "settle 1"},
		{"an end waits until the reply was heard", "created, playing, end, done, 100ms",
			"svc.session.ending, session.update, settle 1"},
		{"and goes on when it was", "created, playing, end, done, heard, uncharged, hung up",
			"svc.session.ending, session.update, settle 1, hang up, svc.response.settled, finish app_ended"},
		{"or was cut by the user's speech", "created, playing, end, cut, done",
			"svc.session.ending, session.update, settle 1, hang up"},
		{"or after the length of its audio and five seconds", "created, playing, end, done, 6s",
			"svc.session.ending, session.update, settle 1, hang up"},
		{"immediate cancels, and waits two seconds for the usage", "created, end now, 1s",
			"svc.session.ending, session.update, response.cancel"},
		{"also if another begins meanwhile", "created, end now, 1s, another, 1s",
			"svc.session.ending, session.update, response.cancel, release 1, svc.response.settled, " +
				"response.cancel, hang up"},
		{"and no longer", "created, playing, end now, 2s",
			"svc.session.ending, session.update, response.cancel, settle 1 estimated 40 audio, hang up"},
		{"without a next hold the last reply is heard to its end",
			"created, playing, done, charged, refused, 100ms, heard, hung up",
			"settle 1, svc.response.settled, hold 2, svc.session.ending, session.update, hang up, " +
				"finish allocation_exhausted"},
		{"and a reply that began before its hold was refused is cut", "created, done, charged, another, refused",
			"settle 1, svc.response.settled, hold 2, svc.session.ending, session.update, response.cancel"},
		{"idle timeout", "2m, released, hung up",
			"svc.session.ending, session.update, hang up, release 1, finish idle_timeout"},
		{"a lost sideband is attached again", "down, 2s, up",
			"attach again, unmetered 2s 0 audio, session.update"},
		{"within four seconds", "down, 4s, released",
			"attach again, svc.session.ending, hang up, release 1, unmetered 4s 0 audio, finish sideband_lost"},
		{"a silent database stops the call first", "created, playing, silent, done, uncharged, hung up",
			"svc.session.ending, session.update, response.cancel, settle 1, hang up, svc.response.settled, " +
				"finish unavailable"},
		{"a call that is not hung up is watched, and what is said there is billed",
			"end now, released, created, done, second uncharged, 5m, hung up",
			"svc.session.ending, session.update, hang up, release 1, response.cancel, settle 2, " +
				"svc.response.settled, finish app_ended"},
		{"also when its sideband is lost meanwhile", "end now, released, down, up, 5m, hung up",
			"svc.session.ending, session.update, hang up, release 1, attach again, unmetered 0s 0 audio, " +
				"session.update, finish app_ended"},
		{"unless it cannot be watched", "end now, released, down, 4s",
			"svc.session.ending, session.update, hang up, release 1, attach again, unmetered 4s 0 audio, " +
				"finish app_ended"},
		{"or is known to be gone", "end now, released, down, gone",
			"svc.session.ending, session.update, hang up, release 1, attach again, unmetered 0s 0 audio, " +
				"finish app_ended"},
		{"the first usage after a gap shows what was said in it", "down, 2s, up, long",
			"attach again, unmetered 2s 0 audio, session.update, unmetered 0s 90 audio, settle 1"},
		{"an end does not wait for a reply of which no event comes",
			"created, playing, 20s, end, 10s, hung up, uncharged",
			"svc.session.ending, session.update, settle 1 estimated 600 audio, hang up, svc.response.settled, " +
				"finish app_ended"},
		{"a call whose sideband broke and that is gone failed at the provider", "down, gone, released, hung up",
			"attach again, svc.session.ending, hang up, release 1, unmetered 0s 0 audio, finish provider_error"},
		{"a call whose sideband was closed and that is gone was left by the browser", "closed, gone, released, hung up",
			"attach again, svc.session.ending, hang up, release 1, finish client_closed"},
		{"a reply that begins after the end is cancelled", "end, created",
			"svc.session.ending, session.update, hang up, release 1, response.cancel"},
	} {
		now, s := start, at(start)
		var got []string
		for word := range strings.SplitSeq(test.events, ", ") {
			e, ok := known[word]
			if !ok {
				d, err := time.ParseDuration(word)
				if err != nil {
					t.Fatalf("%s: %q is no event", test.name, word)
				}
				now, e = now.Add(d), Tick{}
			}
			var actions []Action
			s, actions = Step(s, e, now)
			for _, a := range actions {
				got = append(got, describe(a)...)
			}
		}
		if line := strings.Join(got, ", "); line != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, line, test.want)
		}
	}
}

// describe names an action in words. Persist and relayed events are left out.
func describe(a Action) []string {
	switch a := a.(type) {
	case Hold:
		return []string{fmt.Sprintf("hold %d", a.N)}
	case Settle:
		line := fmt.Sprintf("settle %d", a.N)
		if a.Estimated {
			line += fmt.Sprintf(" estimated %d audio", a.Usage.AudioOutput)
		}
		return []string{line}
	case Release:
		return []string{fmt.Sprintf("release %d", a.N)}
	case ToProvider:
		if e, ok := a.Event.(map[string]any); ok {
			return []string{fmt.Sprint(e["type"])}
		}
	case ToApp:
		data, _ := json.Marshal(a.Event) // as it is sent to the app
		text := string(data)
		if strings.HasPrefix(text, `{"type":"error"`) {
			return []string{"error"}
		}
		if i := strings.Index(text, `"svc.`); i >= 0 {
			return []string{text[i+1 : i+1+strings.IndexByte(text[i+1:], '"')]}
		}
	case Unmetered:
		if a.Event != "" {
			return []string{"unreadable " + a.Event}
		}
		return []string{fmt.Sprintf("unmetered %s %d audio", a.Gap, a.AudioTokens)}
	case AttachSideband:
		return []string{"attach again"}
	case HangUp:
		return []string{"hang up"}
	case Finish:
		return []string{"finish " + a.Reason}
	}
	return nil
}

// TestEstimateUsage: an estimate is what the user certainly got, rounded down (decision 019).
func TestEstimateUsage(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) int64 { return start.Add(d).UnixMicro() }
	for _, test := range []struct {
		name                    string
		reply                   Reply
		maxOutput               int64
		wantAudio, wantText     int64
		contextText, wantCached int64
	}{
		{
			name:      "a second is 20 tokens",
			reply:     Reply{AudioUS: at(0), SilentUS: at(time.Second)},
			maxOutput: 1024,
			wantAudio: 20,
		},
		{
			name:      "a part of a token does not count",
			reply:     Reply{AudioUS: at(0), SilentUS: at(1049 * time.Millisecond), TextBytes: 14},
			maxOutput: 1024,
			wantAudio: 20,
			wantText:  2,
		},
		{
			name:      "until now, if the user still hears it",
			reply:     Reply{AudioUS: at(8 * time.Second)},
			maxOutput: 1024,
			wantAudio: 40,
		},
		{
			name:      "never later than now",
			reply:     Reply{AudioUS: at(8 * time.Second), SilentUS: at(time.Minute)},
			maxOutput: 1024,
			wantAudio: 40,
		},
		{name: "nothing was heard", maxOutput: 1024},
		{
			name:      "at most the output cap, text first",
			reply:     Reply{AudioUS: at(0), TextBytes: 50},
			maxOutput: 100,
			wantAudio: 90,
			wantText:  10,
		},
		{
			name:        "the context counts as cached",
			reply:       Reply{AudioUS: at(9 * time.Second)},
			maxOutput:   1024,
			wantAudio:   20,
			contextText: 300,
			wantCached:  300,
		},
	} {
		m := &machine{nowUS: at(10 * time.Second)}
		m.MaxOutputTokens, m.Context.TextInput = test.maxOutput, test.contextText
		want := pricing.VoiceUsage{AudioOutput: test.wantAudio, TextOutput: test.wantText, TextCached: test.wantCached}
		if got := m.estimateUsage(&test.reply); got != want {
			t.Errorf("%s: %+v, want %+v", test.name, got, want)
		}
	}
}

// TestReadUsage reads usages as the provider reports them (provider notes D.7; edge case 48).
func TestReadUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		usage string
		want  *pricing.VoiceUsage // nil = unusable
	}{
		{usage10, &pricing.VoiceUsage{
			TextInput:   8,
			TextCached:  4,
			AudioInput:  7,
			AudioCached: 1,
			TextOutput:  3,
			AudioOutput: 7,
		}},
		{`{"input_tokens":140,"output_tokens":114,"input_token_details":{"text_tokens":89,"audio_tokens":51},
			"output_token_details":{"text_tokens":54,"audio_tokens":60,"reasoning_tokens":27}}`, &pricing.VoiceUsage{
			TextInput:   89,
			AudioInput:  51,
			TextOutput:  54,
			AudioOutput: 60,
		}},
		{`{"input_tokens":5,"output_tokens":2}`, &pricing.VoiceUsage{TextInput: 5, TextOutput: 2}},
		{`{"input_tokens":5,"output_tokens":2,"input_token_details":{"text_tokens":5,"cached_tokens":3}}`,
			&pricing.VoiceUsage{TextInput: 2, TextCached: 3, TextOutput: 2}},
		{`{"input_tokens":35,"output_tokens":0,"input_token_details":{"text_tokens":10,"audio_tokens":5,
			"image_tokens":16,"cached_tokens_details":{"text_tokens":1,"audio_tokens":2,"image_tokens":7}}}`,
			&pricing.VoiceUsage{
				TextInput:   13,
				TextCached:  1,
				AudioInput:  3,
				AudioCached: 2,
				ImageInput:  9,
				ImageCached: 7,
			}},
		{`{"input_tokens":2147483647,"output_tokens":0}`, &pricing.VoiceUsage{TextInput: 2147483647}},
		{`{"input_tokens":2147483648,"output_tokens":0}`, nil},
		{`{"input_tokens":5}`, nil},
		{`{"output_tokens":5}`, nil},
		{`null`, nil},
		{``, nil},
		{`{}`, nil},
		{`{"input_tokens":-1,"output_tokens":2}`, nil},
		{`{"input_tokens":1.5,"output_tokens":2}`, nil},
		{`{"input_tokens":5,"output_tokens":2,"input_token_details":{"text_tokens":9}}`, nil},
		{`{"input_tokens":5,"output_tokens":2,
			"input_token_details":{"text_tokens":5,"cached_tokens_details":{"text_tokens":6}}}`, nil},
		{`{"input_tokens":99999999999,"output_tokens":1}`, nil},
	} {
		got := readUsage([]byte(test.usage))
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s: %+v", test.usage, got)
		}
	}
}

// TestAdoptedOffer: a session whose node died between the offer and its answer ended with that node.
func TestAdoptedOffer(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Status, s.CallID = Pending, ""
	if s, _ = Step(s, Adopted{}, start); s.Ending == nil || s.Ending.Reason != ServerShutdown {
		t.Errorf("%+v", s.Ending)
	}
}

// TestAdoptedHold: the hold of the next reply belongs to the dead node, and is released.
func TestAdoptedHold(t *testing.T) {
	t.Parallel()
	if _, todo := Step(at(start), Adopted{}, start); !slices.Contains(todo, Action(Release{1})) {
		t.Errorf("%+v", todo)
	}
}

// TestDeadlinesWaitForEvents: only a Tick ends a session by its own times, and only while no other
// node can own it. An event that waited while the node stood still comes before.
func TestDeadlinesWaitForEvents(t *testing.T) {
	t.Parallel()
	late := start.Add(time.Hour)
	spoken := provided("input_audio_buffer.speech_started", "")
	for _, test := range []struct {
		name  string
		event Event
		want  string // the end reason; "" = the session goes on
	}{
		{name: "an event of the provider", event: spoken},
		{name: "an answer of the ledger", event: Released{9}},
		{name: "a tick of a node whose lease is over", event: Tick{LeaseOver: true}},
		{name: "a tick", event: Tick{}, want: MaxDuration},
	} {
		s, _ := Step(at(start), test.event, late)
		if ends := s.Ending != nil; ends != (test.want != "") || ends && s.Ending.Reason != test.want {
			t.Errorf("%s: %+v", test.name, s.Ending)
		}
	}
}

// TestFailedReply: the app hears that a reply failed, with the provider's code, and that it costs nothing.
func TestFailedReply(t *testing.T) {
	t.Parallel()
	s := at(start)
	e, ok := ParseProviderEvent([]byte(`{"type":"response.done","response":{"id":"resp_1","status":"failed",
		"status_details":{"type":"failed","error":{"type":"server_error","code":"server_error","message":"No."}}}}`))
	if !ok {
		t.Fatal("malformed")
	}
	_, actions := Step(s, e, start)
	var got []string
	for _, a := range actions {
		if app, ok := a.(ToApp); ok {
			data, _ := json.Marshal(app.Event) // as it is sent to the app
			got = append(got, string(data))
		}
	}
	want := []string{
		`{"type":"error","response_id":"resp_1","error":{"type":"provider_error","code":"server_error",` +
			`"message":"No.","event_id":null}}`,
		`{"type":"svc.response.settled","session_id":"rts_1","response_id":"resp_1","receipt":null,"charged_mc":0,` +
			`"charged_display":"$0.00","response_count":0,"allocation_remaining_mc":null}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestOutputLimit: a reply is limited to what its hold covers, also one that the app has queued. A reply
// that began before the provider had the limit is cancelled, and is no tampering.
func TestOutputLimit(t *testing.T) {
	t.Parallel()
	known := storyEvents()
	s := at(start)
	step := func(e Event) (words []string) {
		var actions []Action
		s, actions = Step(s, e, start)
		for _, a := range actions {
			words = append(words, describe(a)...)
		}
		return words
	}
	done := known["done"].(FromProvider)
	step(known["created"])
	step(done)
	step(known["charged"])
	most := int64(800)
	step(FromApp{AppEvent{Type: "response.create", Reply: &ReplyOptions{MaxOutputTokens: &most}}})
	step(HoldMade{N: 2, AmountMC: 10, MaxOutputTokens: 200})
	if s.Config.MaxOutputTokens != 200 {
		t.Errorf("the session's limit is %d", s.Config.MaxOutputTokens)
	}
	var sent string
	var actions []Action
	s, actions = Step(s, MaySpend{}, start)
	for _, a := range actions {
		if p, ok := a.(ToProvider); ok {
			data, _ := json.Marshal(p.Event) // as it is sent to the provider
			sent = string(data)
		}
	}
	if sent != `{"type":"response.create","response":{"max_output_tokens":200}}` {
		t.Errorf("sent %s", sent)
	}
	raced := known["another"].(FromProvider)
	raced.content.Response.MaxOutputTokens = []byte("1024")
	if got := step(raced); !slices.Equal(got, []string{"response.cancel"}) || s.ConfigResets != 0 {
		t.Errorf("a reply with the old limit: %v, %d resets", got, s.ConfigResets)
	}
}
