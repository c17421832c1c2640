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

// toldTypes are the events of spec §4.4, Control channel, service to app.
var toldTypes = []string{
	"error", "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "response.created", "response.function_call_arguments.done",
	"response.output_audio_transcript.done", "response.output_text.done", "svc.response.settled", "svc.session.budget_checkpoint", "svc.session.config_reset",
	"svc.session.ended", "svc.session.ending", "svc.session.spend_warning", "svc.session.started",
}

// seen are those that a control channel told in this run.
var seen = struct {
	sync.Mutex
	types map[string]bool
}{types: map[string]bool{}}

// told checks an event that a control channel told against api/openapi.yaml, and
// remembers that it was.
func told(t *testing.T, event []byte) {
	apitest.Event(t, event)
	var e struct{ Type string }
	if json.Unmarshal(event, &e) == nil {
		seen.Lock()
		seen.types[e.Type] = true
		seen.Unlock()
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
	for _, kind := range toldTypes {
		if code == 0 && !seen.types[kind] {
			fmt.Printf("FAIL: no test was told %s on a control channel\n", kind)
			code = 1
		}
	}
	os.Exit(code)
}

// TestEventsOfTheContract: api/openapi.yaml has the events of the specification, and no
// others.
func TestEventsOfTheContract(t *testing.T) {
	t.Parallel()
	if got := apitest.Events(); !slices.Equal(got, toldTypes) {
		t.Errorf("openapi.yaml has %v", got)
	}
}
