package realtime

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/emulator/exchange"
)

// startLiveCall makes a call without media and listens to it.
func startLiveCall(t *testing.T, instructions, more string) (*voice, *wire, string) {
	t.Helper()
	v := startVoice(t, true)
	id := v.createCall("!emu fast=100 pace=1ms\n"+instructions, more)
	w, status := v.dialSideband(id)
	if w == nil {
		t.Fatalf("the sideband is refused: %d", status)
	}
	return v, w, id
}

func (v *voice) steer(id, body string) {
	v.Helper()
	if status, _, text := v.sendRequest("POST", "/emulator/realtime/"+id, "application/json",
		body); status != http.StatusOK {
		v.Fatalf("%s: %d %s", body, status, text)
	}
}

func (v *voice) hangup(id string) int {
	v.Helper()
	status, _, _ := v.sendRequest("POST", "/v1/realtime/calls/"+id+"/hangup", "", "")
	return status
}

func TestCallRefusesWhatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	v := startVoice(t, true)
	for name, c := range map[string]struct{ sdp, session, want string }{
		"no offer": {"hello", config("", ""), "invalid_offer"},
		"no audio": {"v=0\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n", config("", ""),
			"invalid_offer"},
		"no type": {cannedOffer, `{"model":"gpt-realtime-2.1"}`,
			"Missing required parameter: 'session.type'"},
		"no model":          {cannedOffer, `{"type":"realtime"}`, "Missing required parameter: 'session.model'"},
		"strange model":     {cannedOffer, `{"type":"realtime","model":"gpt-6-sol"}`, "model_not_found"},
		"unknown parameter": {cannedOffer, config("", `,"voice":"marin"`), "Unknown parameter: 'session.voice'"},
		"unknown below": {cannedOffer, config("", `,"audio":{"output":{"pitch":1}}`),
			"Unknown parameter: 'session.audio.output.pitch'"},
		"strange voice": {cannedOffer, config("", `,"audio":{"output":{"voice":"bass"}}`),
			"session.audio.output.voice"},
		"two modalities": {cannedOffer, config("", `,"output_modalities":["audio","text"]`),
			"session.output_modalities"},
		"too many tokens": {cannedOffer, config("", `,"max_output_tokens":4097`), "between 1 and 4096"},
		"chat's tool": {cannedOffer, config("", `,"tools":[{"type":"function","function":{"name":"f"}}]`),
			"session.tools[0].function"},
		"choice of no tool": {cannedOffer, config("", `,"tool_choice":{"type":"function","name":"f"}`),
			"no function named 'f'"},
		"idle, semantic": {cannedOffer,
			config("", `,"audio":{"input":{"turn_detection":{"type":"semantic_vad","idle_timeout_ms":5000}}}`),
			"idle_timeout_ms"},
		"unknown turns": {cannedOffer, config("", `,"audio":{"input":{"turn_detection":{"type":"vad"}}}`),
			"turn_detection.type"},
		"reasoning of 1.5": {cannedOffer,
			`{"type":"realtime","model":"gpt-realtime-1.5","reasoning":{"effort":"low"}}`, "reasoning models only"},
		"unknown steering":   {cannedOffer, config("!emu drpo=3", ""), "drpo"},
		"steering of no one": {cannedOffer, config("!browser@response.done#x {}", ""), "!browser@response.done#x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &voice{t, v.url}
			if status, _, text := v.offer(c.sdp, c.session); status != http.StatusBadRequest ||
				!strings.Contains(text, c.want) {
				t.Errorf("%d: %s", status, text)
			}
		})
	}
}

func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	_, w, _ := startLiveCall(t, "!emu pace=1h", "")
	for _, c := range []struct{ event, code, message string }{
		{`{`, "invalid_json", ""},
		{`{"type":"session.update"}`, "missing_required_parameter", "'session'"},
		{`{"type":"session.update","session":{"instructions":"x"}}`, "missing_required_parameter", "'session.type'"},
		{`{"type":"session.update","session":{"type":"realtime","model":"gpt-realtime"}}`, "invalid_model", ""},
		{`{"type":"response.explode"}`, "invalid_value", "response.explode"},
		{`{"type":"response.cancel"}`, "response_cancel_not_active", ""},
		{`{"type":"input_audio_buffer.append","audio":"AAAA"}`, "invalid_event", ""},
		{`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":"a","output":"b"}}`,
			"invalid_tool_call_id", ""},
		{`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[{"type":"output_text",` +
			`"text":"b"}]}}`, "invalid_value", "input_text"},
		{`{"type":"conversation.item.truncate","item_id":"a","content_index":0,"audio_end_ms":1}`,
			"item_truncate_invalid_item_id", ""},
		{`{"type":"conversation.item.truncate","content_index":0,"audio_end_ms":1}`,
			"missing_required_parameter", "'item_id'"},
		{`{"type":"conversation.item.truncate","item_id":"a","audio_end_ms":1}`,
			"missing_required_parameter", "'content_index'"},
		{`{"type":"conversation.item.truncate","item_id":"a","content_index":0}`,
			"missing_required_parameter", "'audio_end_ms'"},
		{`{"type":"conversation.item.delete","item_id":"a"}`, "item_delete_invalid_item_id", ""},
		{`{"type":"response.create","response":{"conversation":"mine"}}`, "invalid_value", "'none'"},
		{`{"type":"response.create","response":{"max_output_tokens":0}}`, "invalid_value", "max_output_tokens"},
	} {
		event := strings.Replace(c.event, `{"type"`, `{"event_id":"mine","type"`, 1)
		w.sendEvent(event)
		got, kinds := w.until("error")
		if got.Error.Code != c.code || !strings.Contains(got.Error.Message, c.message) || len(kinds) != 1 ||
			event != "{" && (got.Error.EventID == nil || *got.Error.EventID != "mine") {
			t.Errorf("%s: %s %+v", event, kinds, got.Error)
		}
	}
	w.sendEvent(respond, respond)
	if got, _ := w.until("error"); got.Error.Code != "conversation_already_has_active_response" {
		t.Errorf("%+v", got.Error)
	}
}

func TestVoiceCannotChangeAfterAudio(t *testing.T) {
	t.Parallel()
	_, w, _ := startLiveCall(t, "", "")
	cedar := `{"type":"session.update","session":{"type":"realtime","audio":{"output":{"voice":"cedar"}}}}`
	w.sendEvent(cedar)
	if updated, _ := w.until("session.updated"); string(updated.Session.Audio.Output.Voice) != `"cedar"` ||
		updated.Session.Audio.Output.Speed != 1 {
		t.Errorf("%+v", updated.Session.Audio.Output)
	}
	w.sendEvent(respond)
	w.until("output_audio_buffer.started")
	w.sendEvent(strings.Replace(cedar, "cedar", "ash", 1))
	if got, _ := w.until("error"); got.Error.Code != "cannot_update_voice" {
		t.Errorf("%+v", got.Error)
	}
}

// TestUsageGrows: each reply reads all that was said, most of it from the cache.
func TestUsageGrows(t *testing.T) {
	t.Parallel()
	v, w, id := startLiveCall(t, "Be kind. "+strings.Repeat("Very kind. ", 40)+"\n!emu audio=2s", "")
	var replies []*voiceUsage
	for range 3 {
		v.steer(id, `{"do":"speak","ms":3000,"fast":30}`)
		w.until("input_audio_buffer.speech_stopped")
		done, _ := w.until("response.done")
		w.until("output_audio_buffer.stopped")
		replies = append(replies, done.Response.Usage)
	}
	for i, u := range replies {
		if u.In.Audio < 30*(i+1)+40*i || u.Out.Audio != 40 || u.Out.Reasoning != exchange.ReasoningTokens ||
			u.Output != u.Out.Text+40 || u.Out.Text <= exchange.ReasoningTokens {
			t.Errorf("%d: %+v", i+1, u)
		}
		if i == 0 && u.In.Cached != 0 ||
			i > 0 && (u.In.Parts.Text < 64 || u.In.Parts.Text > u.In.Text || u.In.Parts.Audio%64 != 0 ||
				u.In.Parts.Audio > u.In.Audio) {
			t.Errorf("%d: %+v", i+1, u)
		}
	}
	if replies[2].In.Parts.Audio < 128 {
		t.Errorf("audio is not cached: %+v", replies[2])
	}
}

// TestSpeechCutsAReply: while it is made, and while it is heard.
func TestSpeechCutsAReply(t *testing.T) {
	t.Parallel()
	v := startVoice(t, true)
	id := v.createCall("!emu words=100 pace=20s delay=1ms", "")
	w, _ := v.dialSideband(id)
	w.sendEvent(hello, respond)
	w.until("response.output_item.added")
	v.steer(id, `{"do":"speech_start"}`)
	done, kinds := w.until("response.done")
	if r := done.Response; r.Status != "cancelled" || r.Details.Reason != "turn_detected" || r.Usage == nil ||
		r.Usage.In.Text == 0 || !slices.Contains(kinds, "input_audio_buffer.speech_started") {
		t.Errorf("%s %+v", kinds, done.Response)
	}
	v.steer(id, `{"do":"browser","event":{"type":"session.update","session":{"type":"realtime","instructions":"!emu `+
		`words=1000 pace=1ms"}}}`)
	v.steer(id, `{"do":"speech_stop"}`)
	played, _ := w.until("output_audio_buffer.started")
	w.until("response.done")
	v.steer(id, `{"do":"speech_start"}`)
	cleared, kinds := w.until("output_audio_buffer.cleared")
	truncated, _ := w.until("conversation.item.truncated")
	if cleared.ResponseID != played.ResponseID || truncated.AudioEndMS > 200_000 ||
		slices.Contains(kinds, "output_audio_buffer.stopped") {
		t.Errorf("%s %+v %+v", kinds, cleared, truncated)
	}
}

func TestReplyIsCancelled(t *testing.T) {
	t.Parallel()
	_, w, _ := startLiveCall(t, "!emu words=100 delay=1ms pace=20s", "")
	w.sendEvent(respond)
	w.until("response.content_part.added")
	w.sendEvent(`{"type":"response.cancel"}`, `{"type":"output_audio_buffer.clear"}`)
	done, kinds := w.until("response.done")
	if done.Response.Status != "cancelled" || done.Response.Details.Reason != "client_cancelled" ||
		!slices.Contains(kinds, "response.output_item.done") {
		t.Errorf("%s %+v", kinds, done.Response)
	}
}

func TestToolsAreCalled(t *testing.T) {
	t.Parallel()
	tools := `,"tools":[{"type":"function","name":"weather","description":"tells","parameters":{"type":"object",` +
		`"properties":{"city":{"type":"string"}},"required":["city"]}}]`
	_, w, _ := startLiveCall(t, "!call weather\n!call weather {\"city\":\"Rome 🙂\"}", tools)
	w.sendEvent(hello, respond)
	var calls []anyEvent
	for {
		ev, err := w.readEvent()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "response.output_item.done" {
			calls = append(calls, ev)
		}
		if strings.HasPrefix(ev.Type, "output_audio_buffer") {
			t.Error("there is nothing to hear, but", ev.Type)
		}
		if ev.Type == "response.done" {
			break
		}
	}
	if len(calls) != 2 || calls[0].Item.Type != "function_call" || calls[0].Item.CallID == calls[1].Item.CallID {
		t.Fatalf("%+v", calls)
	}
	for _, c := range calls {
		w.sendEvent(fmt.Sprintf(
			`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":%q,"output":"sunny"}}`,
			c.Item.CallID))
	}
	w.sendEvent(respond)
	var said string
	for {
		ev, err := w.readEvent()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "response.output_audio_transcript.delta" {
			said += ev.Delta
		}
		if ev.Type == "response.done" {
			break
		}
	}
	if !strings.HasPrefix(said, "The tools say: sunny; sunny.") {
		t.Error(said)
	}
}

func TestOverridesAreSeen(t *testing.T) {
	t.Parallel()
	_, w, _ := startLiveCall(t, "", "")
	w.sendEvent(`{"type":"response.create","response":{"max_output_tokens":50,"conversation":"none",` +
		`"instructions":"!emu words=500","input":[]}}`)
	created, _ := w.until("response.created")
	done, kinds := w.until("response.done")
	if created.Response.ConversationID != nil || string(created.Response.MaxOutput) != "50" ||
		slices.Contains(kinds, "conversation.item.added") {
		t.Errorf("%s %+v", kinds, created.Response)
	}
	if r := done.Response; r.Status != "incomplete" || r.Details.Reason != "max_output_tokens" || r.Usage.Output > 50 {
		t.Errorf("%+v %+v", r, r.Usage)
	}
}

// TestRepliesGoWrong: what the words of steering make of a reply.
func TestRepliesGoWrong(t *testing.T) {
	t.Parallel()
	for words, check := range map[string]func(done anyEvent, kinds []string) bool{
		"fail=rate_limit_exceeded": func(done anyEvent, _ []string) bool {
			return done.Response.Status == "failed" && done.Response.Details.Error.Code == "rate_limit_exceeded" &&
				done.Response.Usage.Total == 0
		},
		"incomplete=content_filter": func(done anyEvent, _ []string) bool {
			return done.Response.Status == "incomplete" && done.Response.Details.Reason == "content_filter"
		},
		"no_usage":              func(done anyEvent, _ []string) bool { return done.Response.Usage == nil },
		"omit_usage":            func(done anyEvent, _ []string) bool { return done.Response.Usage == nil },
		"usage=1,2,3,4,5,6,7":   func(done anyEvent, _ []string) bool { return done.Response.Usage.Total == 14 },
		`usage_raw={"total":1}`: func(done anyEvent, _ []string) bool { return done.Response.Usage.Total == 0 },
		"duplicate":             func(done anyEvent, kinds []string) bool { return times(kinds, "response.done") == 2 },
		"no_done":               func(_ anyEvent, kinds []string) bool { return times(kinds, "response.done") == 0 },
		"no_stopped": func(_ anyEvent, kinds []string) bool {
			return times(kinds, "output_audio_buffer.stopped") == 0
		},
		"unknown": func(_ anyEvent, kinds []string) bool {
			return times(kinds, "response.weather_report.delta") == 1
		},
		"only=2 no_usage": func(done anyEvent, _ []string) bool { return done.Response.Usage != nil },
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			v, w, id := startLiveCall(t, "!emu audio=100ms "+words, "")
			w.sendEvent(hello, respond)
			var done anyEvent
			var kinds []string
			for { // to the end of the reply, and of its playback where there is one
				ev, err := w.readEvent()
				if err != nil {
					t.Fatal(err)
				}
				if ev.Type == "response.done" {
					done = ev
				}
				if kinds = append(kinds, ev.Type); ev.Type == "rate_limits.updated" {
					break
				}
			}
			for r := v.getReport(id); r.Playing; r = v.getReport(id) {
			}
			v.steer(id, `{"do":"emit","event":{"type":"end"}}`)
			_, after := w.until("end")
			if !check(done, append(kinds, after...)) {
				t.Errorf("%s %+v %+v", kinds, done.Response, done.Response.Usage)
			}
		})
	}
}

func times(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

func TestAHungReplyIsCancelled(t *testing.T) {
	t.Parallel()
	_, w, _ := startLiveCall(t, "!emu hang=3", "")
	w.sendEvent(respond)
	w.until("response.output_audio_transcript.delta")
	w.sendEvent(`{"type":"response.cancel"}`)
	if done, _ := w.until("response.done"); done.Response.Status != "cancelled" || done.Response.Usage.Out.Audio == 0 {
		t.Errorf("%+v", done.Response)
	}
	_, w, _ = startLiveCall(t, "!emu hang=0 deaf", "")
	w.sendEvent(respond, `{"type":"response.cancel"}`, `{"type":"response.cancel","response_id":"other"}`)
	if got, kinds := w.until("error"); len(kinds) != 2 || got.Error.Code != "response_cancel_not_active" {
		t.Errorf("%s %+v", kinds, got.Error)
	}
}

func TestSidebandIsNotFoundAtFirst(t *testing.T) {
	t.Parallel()
	v := startVoice(t, true)
	id := v.createCall("!emu not_found=2", "")
	for _, want := range []int{404, 404, 101} {
		if _, status := v.dialSideband(id); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
	if r := v.getReport(id); r.Dials != 3 || r.RefusedDials != 2 || r.Sidebands != 1 {
		t.Errorf("%+v", r)
	}
	if _, status := v.dialSideband(v.createCall("!emu fresh=1h", "")); status != 404 {
		t.Errorf("a fresh call: %d", status)
	}
}

// TestSidebandIsDropped: so many times, and the call goes on.
func TestSidebandIsDropped(t *testing.T) {
	t.Parallel()
	v, w, id := startLiveCall(t, "!emu drop=response.created drops=2 drop_code=1000 audio=3s", "")
	for i, want := range []websocket.StatusCode{1000, 1000, -1} {
		w.sendEvent(respond)
		var err error
		for ev := (anyEvent{}); err == nil && ev.Type != "output_audio_buffer.stopped"; {
			ev, err = w.readEvent()
		}
		if got := websocket.CloseStatus(err); got != want || (err == nil) != (i == 2) {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
		for r := v.getReport(id); r.Active || r.Playing; r = v.getReport(id) { // it goes on
		}
		if i < 2 {
			w, _ = v.dialSideband(id)
		}
	}
	r := v.getReport(id)
	if r.Drops != 2 || r.Replies != 3 || len(r.Unwatched) != 3 || r.Unwatched[1].AudioOutMS != 3000 ||
		r.UnwatchedLoud != 3000 || r.State != "live" {
		t.Errorf("%+v", r)
	}
	if code := v.hangup(id); code != 200 {
		t.Error(code)
	}

	v, w, id = startLiveCall(t, "!emu drop=0 drops=2", "")
	for i := range 3 {
		if i > 0 {
			w, _ = v.dialSideband(id)
		}
		// it may be gone already
		_ = w.conn.Write(w.ctx, websocket.MessageText, []byte(`{"type":"input_audio_buffer.clear"}`))
		if _, err := w.readEvent(); (err == nil) != (i == 2) {
			t.Errorf("%d: %v", i, err)
		}
	}

	v, w, id = startLiveCall(t, "!emu drop=1 down=forever", "")
	w.sendEvent(hello)
	if ev, err := w.readEvent(); err != nil || ev.Type != "conversation.item.added" {
		t.Errorf("%s %v", ev.Type, err)
	}
	if _, err := w.readEvent(); err == nil || websocket.CloseStatus(err) != -1 {
		t.Errorf("a broken connection: %v", err)
	}
	if _, status := v.dialSideband(id); status != 503 {
		t.Errorf("dialled again: %d", status)
	}
}

func TestBrowserSendsEvents(t *testing.T) {
	t.Parallel()
	_, w, _ := startLiveCall(t,
		"!browser {\"type\":\"session.update\",\"session\":{\"type\":\"realtime\",\"max_output_tokens\":4096}}\n"+
			"!browser@session.updated {\"type\":\"response.create\"}", "")
	updated, _ := w.until("session.updated")
	if string(updated.Session.MaxOutputTokens) != "4096" {
		t.Errorf("%+v", updated.Session)
	}
	w.until("response.done")

	v, w, id := startLiveCall(t,
		"!emu private\n!browser "+
			"{\"type\":\"session.update\",\"session\":{\"type\":\"realtime\",\"instructions\":\"x\"}}", "")
	for v.getReport(id).Session.Instructions != "x" {
	}
	w.sendEvent(hello)
	if _, kinds := w.until("conversation.item.added"); len(kinds) != 1 {
		t.Errorf("it was to be private: %s", kinds)
	}
}

func TestBrowserIsLost(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]struct {
		state  string
		hangup int
		silent bool
	}{"": {"live", 200, true}, "leave_close": {"ended", 404, false}, "leave_gone": {"ended", 404, true}} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			v, w, id := startLiveCall(t, "!emu vanish=1 audio=1h "+words, "")
			w.sendEvent(respond)
			w.until("rate_limits.updated")
			r := v.getReport(id)
			if r.State != want.state || r.Browser != "gone" || r.AudioOutMS > 3_500_000 {
				t.Errorf("%+v", r)
			}
			if !want.silent {
				if _, err := w.readEvent(); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
					t.Error(err)
				}
			}
			if code := v.hangup(id); code != want.hangup {
				t.Error(code)
			}
		})
	}
}

func TestSessionExpires(t *testing.T) {
	t.Parallel()
	v := startVoice(t, true)
	id := v.createCall("!emu expire=1ms", "")
	for r := v.getReport(id); r.State == "live"; r = v.getReport(id) {
	}
	if r := v.getReport(id); r.End != "expired" || r.Session.ExpiresAt > r.Created.Unix() {
		t.Errorf("%+v", r)
	}
	v, w, id := startLiveCall(t, "", "")
	v.steer(id, `{"do":"expire"}`)
	if got, _ := w.until("error"); got.Error.Code != "session_expired" {
		t.Errorf("%+v", got.Error)
	}
	if _, err := w.readEvent(); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Error(err)
	}
	if code := v.hangup(id); code != 404 {
		t.Error(code)
	}
}

func TestHangUpIsRefused(t *testing.T) {
	t.Parallel()
	v := startVoice(t, true)
	for words, want := range map[string][]int{
		"hangup_fails=2": {500, 500, 200, 404},
		"hangup_fails=1 hangup_status=503 hangup_gone": {503, 404, 404},
		"hangup_lost=2": {0, 0, 404},
	} {
		id := v.createCall("!emu "+words, "")
		for i, code := range want {
			if got := v.hangup(id); got != code {
				t.Errorf("%s: %d is %d, want %d", words, i+1, got, code)
			}
		}
		if r := v.getReport(id); r.State != "ended" || r.Hangups != len(want) {
			t.Errorf("%s: %+v", words, r)
		}
	}
}

// TestTurnsByScript: a call without media that talks by itself, for load.
func TestTurnsByScript(t *testing.T) {
	t.Parallel()
	v, w, id := startLiveCall(t, "!emu turns=3 speech=2s every=1s audio=1s", "")
	for range 3 {
		w.until("input_audio_buffer.speech_started")
		w.until("response.done")
		w.until("output_audio_buffer.stopped")
	}
	if r := v.getReport(id); r.Replies != 3 || r.AudioOutMS != 3000 || r.AudioInMS < 6000 {
		t.Errorf("%+v", r)
	}
	var err error
	for err == nil { // all is said
		_, err = w.readEvent()
	}
	if websocket.CloseStatus(err) != websocket.StatusNormalClosure || v.getReport(id).End != "browser" {
		t.Errorf("the user does not hang up: %v, %+v", err, v.getReport(id))
	}
}

// TestAMuteSidebandDoesNotAnswerPings: a connection that is dead, but open.
func TestAMuteSidebandDoesNotAnswerPings(t *testing.T) {
	t.Parallel()
	v, w, id := startLiveCall(t, "!emu mute=2", "")
	w.sendEvent(hello, hello)
	w.until("conversation.item.done")
	if r := v.getReport(id); r.Sidebands != 1 || r.Events[len(r.Events)-1].From != "provider" {
		t.Errorf("%+v", r)
	}
	ponged := make(chan error, 1)
	go func() { ponged <- w.conn.Ping(w.ctx) }()
	go func() { _, _, _ = w.conn.Read(w.ctx) }()
	v.steer(id, `{"do":"close","code":1000}`)
	if err := <-ponged; err == nil {
		t.Error("it answered")
	}
}

// TestTurnsAsTheSessionWants: found but not answered, or not found at all; and
// written down, which is an account of its own.
func TestTurnsAsTheSessionWants(t *testing.T) {
	t.Parallel()
	turns := func(value, more string) string {
		return `{"type":"session.update","session":{"type":"realtime","audio":{"input":{"turn_detection":` + value +
			more + `}}}}`
	}
	v, w, id := startLiveCall(t, "", "")
	w.sendEvent(turns(`{"type":"semantic_vad","create_response":false,"interrupt_response":true}`,
		`,"transcription":{"model":"gpt-realtime-whisper"}`))
	w.until("session.updated")
	v.steer(id, `{"do":"speak","text":"Hello","ms":1500,"fast":100}`)
	heard, _ := w.until("conversation.item.added")
	if part := string(heard.Item.Content); part != `[{"type":"input_audio","transcript":null}]` {
		t.Errorf("the user's item has %s", part)
	}
	if written, kinds := w.until(
		"conversation.item.input_audio_transcription.completed"); written.Transcript != "Hello" ||
		written.Usage.Type != "duration" || written.Usage.Seconds < 2 || slices.Contains(kinds, "response.created") {
		t.Errorf("%s %+v", kinds, written)
	}
	w.sendEvent(turns("null", ""))
	w.until("session.updated")
	// there is nothing: it is told so, not the sideband
	v.steer(id, `{"do":"browser","event":{"type":"input_audio_buffer.commit"}}`)
	before := v.getReport(id).AudioInMS
	v.steer(id, `{"do":"speak","ms":1500,"fast":100}`)
	for v.getReport(id).AudioInMS < before+1000 {
	}
	v.steer(id, `{"do":"browser","event":{"type":"input_audio_buffer.commit"}}`)
	if _, kinds := w.until("input_audio_buffer.committed"); len(kinds) != 1 {
		t.Errorf("%s", kinds)
	}
	w.sendEvent(`{"type":"input_audio_buffer.commit"}`)
	if got, _ := w.until("error"); got.Error.Code != "invalid_event" {
		t.Errorf("%+v", got.Error)
	}
}

// FuzzVoiceEvents looks for events that bring a call down.
func FuzzVoiceEvents(f *testing.F) {
	for _, e := range []string{
		hello, respond, `{"type":"response.cancel"}`, `{"type":"output_audio_buffer.clear"}`,
		`{"type":"input_audio_buffer.commit"}`, `{"type":"input_audio_buffer.clear"}`,
		`{"type":"session.update","session":{"type":"realtime","instructions":"!emu usage=1,2,3,4,5,6 ` +
			`calls=2","tools":[{"type":"function","name":"f"}],"tool_choice":"required","output_modalities":["text"]}}`,
		`{"type":"session.update","session":{"type":"realtime","max_output_tokens":1,` +
			`"audio":{"input":{"transcription":{},"turn_detection":{"type":"server_vad","idle_timeout_ms":5000}}}}}`,
		`{"type":"response.create","response":{"input":[{"type":"item_reference","id":"a"},{"type":"function_call",` +
			`"call_id":"a","name":"f","arguments":"{}"}],"conversation":"none","tools":[],` +
			`"tool_choice":{"type":"function","name":"f"}}}`,
		`{"type":"conversation.item.create","previous_item_id":"root","item":{"id":"a","type":"message",` +
			`"role":"assistant","content":[{"type":"output_audio","audio":"AAAA","transcript":"x"}]}}`,
		`{"type":"conversation.item.truncate","item_id":"a","content_index":0,"audio_end_ms":0}`,
		`{"type":"conversation.item.retrieve","item_id":"a"}`, `{"type":"conversation.item.delete","item_id":"a"}`,
	} {
		f.Add(e, e)
		f.Add(hello, e)
		f.Add(e, respond)
	}
	e := New(exchange.New(nil, 0), true)
	r := httptest.NewRequestWithContext(f.Context(), "POST", "/v1/realtime/calls", nil)
	f.Fuzz(func(t *testing.T, one, two string) {
		c, refused := e.newCall(r, cannedOffer, []byte(config("", "")))
		if refused != nil {
			t.Fatal(refused)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, text := range []string{one, two} {
			c.receiveEvent([]byte(text), nil)
			for c.reply != nil && len(c.reply.steps) > 0 { // at once, and not by its timers
				c.reply.steps[0]()
				c.reply.steps = c.reply.steps[1:]
			}
			c.startTalking(text, 1)
			if c.reply != nil {
				c.endReply(c.reply)
			}
			c.stopTalking()
			if c.reply != nil {
				c.cutReply("client_cancelled")
			}
		}
		c.beginIdleReply()
		c.finishCall("closed", 1000)
	})
}

// TestUpdatesMergeObjects: an update of one member of an object keeps its other members. An object of another type
// replaces it, and null clears it.
func TestUpdatesMergeObjects(t *testing.T) {
	t.Parallel()
	turns := func(value string) string { return `"audio":{"input":{"turn_detection":` + value + `}}` }
	server := func(silence, idle string) string {
		return `{"create_response":true,"idle_timeout_ms":` + idle + `,"interrupt_response":true,` +
			`"prefix_padding_ms":300,"silence_duration_ms":` + silence + `,"threshold":0.5,"type":"server_vad"}`
	}
	s, m, f := readSession([]byte(`{"type":"realtime","model":"gpt-realtime-2.1"}`))
	if f != nil {
		t.Fatal(f)
	}
	for _, c := range []struct{ update, turns, reasoning string }{
		{turns(`{"silence_duration_ms":900}`), server("900", "null"), `{"effort":"low"}`},
		{turns(`{"idle_timeout_ms":5000}`), server("900", "5000"), `{"effort":"low"}`},
		{turns(`{"threshold":0.5}`), server("900", "5000"), `{"effort":"low"}`},
		{turns(`{"type":"server_vad","idle_timeout_ms":null}`), server("900", "null"), `{"effort":"low"}`},
		{turns(`null`) + `,"reasoning":{"effort":"high"}`, "null", `{"effort":"high"}`},
	} {
		if s, f = s.withUpdate([]byte(`{"type":"realtime",`+c.update+`}`), m); f != nil {
			t.Fatalf("%s: %v", c.update, f)
		}
		if got := s.Audio.Input.TurnDetection; canonical(got) != canonical(raw(c.turns)) ||
			string(s.Reasoning) != c.reasoning {
			t.Errorf("%s: turns %s, reasoning %s", c.update, got, s.Reasoning)
		}
	}
}

// canonical sorts the members of a value.
func canonical(value raw) string {
	value = value.Clone()
	_ = value.Canonicalize()
	return string(value)
}
