package voice

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider/openai"
)

// TestScrubbedErrors: what the provider says of an error names nothing of the operator's, as in the 502 of an offer.
// All else of the event is as it was.
func TestScrubbedErrors(t *testing.T) {
	t.Parallel()
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{
		id:    "rts_1",
		terms: &billingTerms{Provider: "openai"},
		node: &node{
			log:      slog.New(slog.DiscardHandler),
			provider: &Provider{MakeRefusal: openai.MakeRefusal},
			biller:   &biller{metrics: metrics.New(prices, nil)},
		},
	}
	const removed = "[removed]"
	for _, c := range []struct{ event, want string }{
		{`{"type":"session.updated","n":1.0}`, ""},
		{`{"type":"error", "error":{"message":"Invalid value: 'nova'.","event_id":"user_1"}}`, ""},
		{`{"type":"error","error":{"message":"Rate limit in organization org-AbCd1234","event_id":"e1"}}`, removed},
		{`{"type":"error","error":"see https://platform.openai.com/account"}`, removed},
		{`{"type":"error","error":{"code":"insufficient_quota","message":"No quota."}}`, "does not serve"},
		{`{"type":"response.done","response":{"status_details":{"error":{"message":"proj_12345678"}}}}`, removed},
		{`{"type":"response.done","response":{"id":"r","status_details":{"error":null}}}`, ""},
		{`{"type":"response.done","response":{"id":"r","status_details":"error"}}`, ""},
		{`{"type":"conversation.item.input_audio_transcription.failed","error":{"message":"sk-abcdefgh"}}`, removed},
		{`{"type":"error","error":{"message":7}}`, ""},
		{`{"type":"error","error`, ""},
	} {
		got := string(r.scrubErrors([]byte(c.event)))
		if c.want == "" && got != c.event || !strings.Contains(got, c.want) ||
			strings.Contains(got, "org-AbCd") || strings.Contains(got, "No quota") {
			t.Errorf("%s: %s", c.event, got)
		}
		if strings.Contains(c.event, "e1") != strings.Contains(got, "e1") {
			t.Errorf("%s: %s names another event", c.event, got)
		}
	}
}

// TestRemovedSpeech: an app that gets all events of the provider gets no speech by them, however it asks for it. The
// settings of audio are no speech.
func TestRemovedSpeech(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type":"session.updated","session":{"audio":{"output":{"voice":"marin"}}}}`: "",
		`{"type":"conversation.item.added","item":{"content":"audio"},"audio":1}`:     "",
		`{"type":"conversation.item.retrieved","item":{"id":"i","content":[{"type":"input_audio","transcript":"Hi",` +
			`"audio":"AAAA"}]}}`: `{"item":{"content":[{"transcript":"Hi","type":"input_audio"}],"id":"i"},` +
			`"type":"conversation.item.retrieved"}`,
	} {
		if want == "" {
			want = text
		}
		if got := string(removeSpeech([]byte(text))); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestProviderErrorsAreScrubbed: no error of the provider that goes to an app names the operator's account, as it came
// or in an event of ours.
func TestProviderErrorsAreScrubbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	side.send(`{"type":"error","error":{"type":"server_error","message":"No room for org-AbCd1234."}}`)
	side.send(createdEvent("resp_1"))
	side.send(`{"type":"response.done","response":{"id":"resp_1","status":"failed","usage":null,"status_details":` +
		`{"error":{"type":"server_error","code":"server_error","message":"No room for org-AbCd1234."}}}}`)
	for _, member := range []string{"message", "response_id"} {
		e := fmt.Sprint(control.wait("error"))
		if !strings.Contains(e, "No room for [removed]") || !strings.Contains(e, member) {
			t.Errorf("%s", e)
		}
	}
}
