package voice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// usageMC3M is the usage of a reply that costs the user about 3,000,000 mc.
const usageMC3M = `{"input_tokens":600,"output_tokens":200,"input_token_details":{"text_tokens":300,"audio_tokens":300},
	"output_token_details":{"text_tokens":20,"audio_tokens":180}}`

// TestGrownContext: what grows after a hold is never charged beyond max_cost_mc, on one node or two (F-117). The ledger
// verification of each world finds nothing.
func TestGrownContext(t *testing.T) {
	t.Parallel()
	const most = money.MC(6_000_000)
	body := fmt.Sprintf(`{"model":"gpt-realtime-2.1","max_output_tokens":200,"max_cost_mc":%d}`, most)
	aside := func(id string) string {
		return strings.Replace(createdEvent(id), `"conv_1"`, "null", 1)
	}
	eachEngine(t, func(t *testing.T, e db.Engine) {
		t.Run("replies outside the conversation", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e, "live", "full-live")
			o := w.open(body)
			side := w.connect(o)
			control := w.dial(o.ControlURL, w.token)
			control.wait("svc.session.started")
			for i := range 8 {
				side.send(aside(fmt.Sprint("resp_", i)))
			}
			for i := range 8 { // too late to stop them
				side.send(doneEvent(fmt.Sprint("resp_", i), "completed", usageMC3M))
			}
			control.wait("svc.session.ended")
			if s := w.ended(o.ID, session.ConfigTampering); s.ChargedMC != most || s.ResponseCount != 8 {
				t.Errorf("charged %d of %d in %d replies", s.ChargedMC, most, s.ResponseCount)
			}
			w.free()
		})
		t.Run("three minutes of speech", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e, "live", "full-live")
			o := w.open(body)
			side := w.connect(o)
			side.send(`{"type":"input_audio_buffer.speech_started","audio_start_ms":0}`)
			side.send(`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":180000}`)
			side.send(createdEvent("resp_1"))
			side.wait("response.cancel") // not even the shortest reply fits
			side.send(doneEvent("resp_1", "completed", `{"input_tokens":1950,"output_tokens":60,
				"input_token_details":{"text_tokens":150,"audio_tokens":1800},
				"output_token_details":{"text_tokens":10,"audio_tokens":50}}`))
			if s := w.ended(o.ID, session.MaxCost); s.ChargedMC != most {
				t.Errorf("charged %d of %d", s.ChargedMC, most)
			}
			w.free()
		})
		t.Run("two nodes", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e, "live", "full-live")
			o := w.open(body)
			w.beginReply(o)
			w.untilHeld()
			saved, err := w.nodes[0].loadSession(t.Context(), o.ID)
			if err != nil {
				t.Fatal(err)
			}
			w.kill(w.nodes[0], o.ID)
			side := w.sideband() // of the node that has taken it over
			slow := newRunner(w.nodes[0].node, saved)
			for _, id := range []string{"resp_1", "resp_2", "resp_3"} {
				slow.postProviderEvent([]byte(createdEvent(id)))
				slow.postProviderEvent([]byte(doneEvent(id, "completed", usageMC3M)))
			}
			slow.stopSession()
			slow.run()
			for _, id := range []string{"resp_4", "resp_5"} {
				side.send(createdEvent(id))
				side.send(doneEvent(id, "completed", usageMC3M))
			}
			w.until("they are charged", func() bool { return w.get(o.ID).ResponseCount == 5 })
			w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
			w.until("the session ends", func() bool { return w.get(o.ID).Status == session.Ended })
			if s := w.get(o.ID); s.ChargedMC != most {
				t.Errorf("charged %d of %d in %d replies", s.ChargedMC, most, s.ResponseCount)
			}
			w.free()
		})
	})
}
