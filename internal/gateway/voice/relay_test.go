package voice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/catalog"
)

// TestRelayAll: with relay all an app gets every event of the provider as it is, but audio, and without it those of the
// contract.
func TestRelayAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	events := []string{
		createdEvent("resp_1"),
		`{"type":"response.output_audio.delta","response_id":"resp_1","delta":"AAAA"}`,
		`{"type":"conversation.item.added","previous_item_id":null,"item":{"id":"item_1","type":"message",` +
			`"role":"assistant","content":[]}}`,
		`{"type":"response.output_audio_transcript.delta","response_id":"resp_1","delta":"Hi", "obfuscation":"x"}`,
		doneEvent("resp_1", "completed", usage10),
		`{"type":"rate_limits.updated","rate_limits":[]}`,
		`{"item":{"content":[{"audio":"AAAA","type":"input_audio"}]},"type":"conversation.item.retrieved"}`,
		`{"type":"response.something_new","odd":{"a":[1]}}`,
		`{"type":"input_audio_buffer.speech_started","item_id":"item_2"}`,
	}
	for relay, want := range map[string][]string{
		"all":    slices.Delete(slices.Clone(events), 1, 2),
		"listed": {events[0], events[8]},
	} {
		for i := range want {
			want[i] = strings.Replace(want[i], `"audio":"AAAA",`, "", 1)
		}
		o := w.open(fmt.Sprintf(`{"model":"gpt-realtime-2.1-mini","relay":%q}`, relay))
		side := w.connect(o)
		var mu sync.Mutex
		var got []string
		control := listenAs(t, w.dialSocket(o.ControlURL, w.token), func(event []byte) {
			if !strings.Contains(string(event), "something_new") && !strings.Contains(string(event), "retrieved") {
				recordEvent(t, event)
			}
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(string(event), `"svc.`) {
				got = append(got, string(event))
			}
		})
		control.wait("svc.session.started")
		for _, e := range events {
			side.send(e)
		}
		control.wait("input_audio_buffer.speech_started")
		mu.Lock()
		for i, e := range want {
			var b bytes.Buffer
			if err := json.Compact(&b, []byte(e)); err != nil {
				t.Fatal(err)
			}
			want[i] = b.String()
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %s", relay, strings.Join(got, "\n"))
		}
		mu.Unlock()
	}
}

// TestUpdateOfALibrary: what OpenAI's client library sends when it is connected is taken, also before the browser is.
// What it says of model, modalities and audio is so, or is Purser's to decide.
func TestUpdateOfALibrary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	control := w.dial(o.ControlURL, w.token)
	control.send(`{"type":"session.update","session":{"type":"realtime","instructions":"Help to cook.",` +
		libraryMembers + `,"tools":[{"type":"function","name":"set_timer","description":"",` +
		`"parameters":{"type":"object"}}]}}`)
	control.send(`{"type":"response.create"}`)
	control.wait("error") // the update before it is kept, and no error
	side := w.connect(o)
	control.wait("svc.session.started")
	update := string(mustJSON(side.wait("session.update")))
	if !strings.Contains(update, "Help to cook.") || !strings.Contains(update, "set_timer") ||
		strings.Contains(update, "gpt-4o-mini-transcribe") || strings.Contains(update, "semantic_vad") {
		t.Errorf("the update: %s", update)
	}
	if slices.Contains(side.kinds(), "error") {
		t.Error("an error")
	}
}

// TestUpdateOfAClosedChannel: an update that waits for the session to be live is refused when another channel takes the
// place of its own.
func TestUpdateOfAClosedChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	control := w.dial(o.ControlURL, w.token)
	control.send(`{"type":"session.update","event_id":"e1","session":{"instructions":"Help to cook."}}`)
	control.send(`{"type":"response.create","event_id":"e2"}`)
	control.wait("error") // the update before it is kept
	w.dial(o.ControlURL, w.token)
	if e := fmt.Sprint(control.wait("error")); !strings.Contains(e, "event_id:e1") {
		t.Errorf("the update: %s", e)
	}
	if c := control.closed(); c != 1001 {
		t.Errorf("closed with %d", c)
	}
}

// libraryMembers are those of @openai/agents-realtime 0.20.0 that say nothing of the app's own.
const libraryMembers = `"model":"gpt-realtime-2.1-mini","output_modalities":["audio"],"audio":{"input":{` +
	`"format":{"type":"audio/pcm","rate":24000},"noise_reduction":null,"transcription":{"model":` +
	`"gpt-4o-mini-transcribe"},"turn_detection":{"type":"semantic_vad"}},"output":{"format":{"type":"audio/pcm",` +
	`"rate":24000},"speed":1}}`

// TestUpdateMembers: a session.update may have the provider's members if they say what is so or change nothing that
// counts. What cannot be had is refused by its name, as is what nobody knows.
func TestUpdateMembers(t *testing.T) {
	t.Parallel()
	m := &catalog.Model{ID: "gpt-realtime-2.1-mini"}
	for members, want := range map[string]string{
		libraryMembers:                     "",
		`"tracing":"auto"`:                 "",
		`"prompt":null,"reasoning":null`:   "",
		`"parallel_tool_calls":true`:       "",
		`"model":"gpt-realtime-2"`:         "session.model: is gpt-realtime-2.1-mini, and stays",
		`"output_modalities":["text"]`:     `session.output_modalities: must be ["audio"]`,
		`"prompt":{"id":"pmpt_1"}`:         "session.prompt: cannot be set; write instructions",
		`"reasoning":{"effort":"high"}`:    "session.reasoning: cannot be set",
		`"audio":{"output":{"speed":1.5}}`: "session.audio.output.speed: must be 1",
		`"type":"transcription"`:           "session.type: must be realtime",
		`"modalities":["audio"]`:           "session.modalities: is not a member that this request takes",
		`"audio":{"output":{"volume":1}}`:  "session.audio.output.volume: is not a member that this request takes",
	} {
		e := parseControlEvent([]byte(`{"type":"session.update","session":{`+members+`}}`), m)
		if e.Problem != want {
			t.Errorf("%s: %q", members, e.Problem)
		}
	}
}
