package voice

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/purserhq/purser/internal/testkit/apitest"
)

// appEventTypes are the events of contract §4.4, Control channel, service to app.
var appEventTypes = []string{
	"conversation.item.input_audio_transcription.completed", "conversation.item.input_audio_transcription.delta",
	"conversation.item.input_audio_transcription.failed", "svc.transcription.settled",
	"error", "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "response.created",
	"response.function_call_arguments.done",
	"response.output_audio_transcript.done", "response.output_text.done", "svc.response.settled",
	"svc.session.budget_checkpoint", "svc.session.config_reset",
	"svc.session.ended", "svc.session.ending", "svc.session.spend_warning", "svc.session.started",
}

// relayedToAll are those that only a session with relay all has.
var relayedToAll = []string{
	"conversation.item.added", "conversation.item.deleted", "conversation.item.done", "conversation.item.retrieved",
	"conversation.item.truncated", "input_audio_buffer.cleared", "input_audio_buffer.committed",
	"input_audio_buffer.timeout_triggered", "output_audio_buffer.cleared", "output_audio_buffer.started",
	"output_audio_buffer.stopped", "rate_limits.updated", "response.content_part.added",
	"response.content_part.done", "response.done", "response.function_call_arguments.delta",
	"response.output_audio.done", "response.output_audio_transcript.delta", "response.output_item.added",
	"response.output_item.done", "response.output_text.delta", "session.updated",
}

// seenTypes are those that control channels sent in this run.
var seenTypes = struct {
	sync.Mutex
	types map[string]bool
}{types: map[string]bool{}}

// recordEvent checks an event of a control channel against api/openapi.yaml, and records its type.
func recordEvent(t *testing.T, event []byte) {
	apitest.Event(t, event)
	var e struct{ Type string }
	if json.Unmarshal(event, &e) == nil {
		seenTypes.Lock()
		seenTypes.types[e.Type] = true
		seenTypes.Unlock()
	}
}

// TestMain turns red when a run of all tests never saw one of the events.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			os.Exit(code)
		}
	}
	for _, kind := range appEventTypes {
		if code == 0 && !seenTypes.types[kind] {
			fmt.Printf("FAIL: no test received %s on a control channel\n", kind)
			code = 1
		}
	}
	os.Exit(code)
}

// TestEventsOfTheContract: api/openapi.yaml has the events of the contract and those of relay all, and no others.
func TestEventsOfTheContract(t *testing.T) {
	t.Parallel()
	want := slices.Concat(appEventTypes, relayedToAll)
	slices.Sort(want)
	if got := apitest.Events(); !slices.Equal(got, want) {
		t.Errorf("openapi.yaml has %v", got)
	}
}
