package voice

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// hears lets the app have transcripts, and its user allow them.
func (w *world) hears() {
	w.t.Helper()
	w.exec(`UPDATE apps SET transcripts = 1`)
	w.exec(`INSERT INTO transcript_consents (app_id, account_id, connection_id, created_us)
		VALUES ($1, 'wac_user', $2, 1)`, w.app, w.conn)
}

const transcribed = `{"model":"gpt-realtime-2.1","transcription":{"model":"gpt-4o-transcribe","language":"en"}%s}`

// writtenEvent is the transcript of an item of 30 tokens of audio, and 9 of text.
func writtenEvent(item, usage string) string {
	return fmt.Sprintf(`{"type":"conversation.item.input_audio_transcription.completed","item_id":%q,"content_index":0,
		"transcript":"Hello, how are you?","usage":%s}`, item, usage)
}

const (
	writtenUsage = `{"type":"tokens","total_tokens":39,"input_tokens":30,"output_tokens":9,
		"input_token_details":{"text_tokens":0,"audio_tokens":30}}`
	// 30 × 2.50 + 9 × 10.00 dollars a million, with a margin of 10 % and a fee of 5 %
	writtenMC = money.MC(30*250 + 9*1000 + 1650 + 825)
)

// spokeFor lets the user speak.
func spokeFor(side *socket, item string, seconds int) {
	side.send(fmt.Sprintf(`{"type":"input_audio_buffer.speech_started","audio_start_ms":0,"item_id":%q}`, item))
	side.send(fmt.Sprintf(`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":%d,"item_id":%q}`, 1000*seconds,
		item))
}

// TestTranscriptIsBilled: a transcript is a receipt of its own, also if it comes after the reply, and once. One that
// fails is free, and one without usage is estimated by the spoken seconds.
func TestTranscriptIsBilled(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		w.hears()
		o := w.open(fmt.Sprintf(transcribed, ""))
		side := w.connect(o)
		if !strings.Contains(w.up.session, `"transcription":{"model":"gpt-4o-transcribe","language":"en"}`) {
			t.Errorf("the provider's session: %s", w.up.session)
		}
		control := w.dial(o.ControlURL, w.token)
		control.wait("svc.session.started")
		spokeFor(side, "item_1", 3)
		side.send(createdEvent("resp_1"))
		side.send(doneEvent("resp_1", "completed", usage10))
		control.wait("svc.response.settled")
		side.send(`{"type":"conversation.item.input_audio_transcription.delta","item_id":"item_1","delta":"Hello"}`)
		control.wait("conversation.item.input_audio_transcription.delta")
		side.send(writtenEvent("item_1", writtenUsage)) // late
		c := control.wait("conversation.item.input_audio_transcription.completed")
		if c["transcript"] != "Hello, how are you?" {
			t.Errorf("%v", c)
		}
		first := control.wait("svc.transcription.settled")
		if r := first["receipt"].(map[string]any); first["item_id"] != "item_1" || r["kind"] != "transcription" ||
			r["user_charge_mc"] != float64(writtenMC) {
			t.Errorf("settled: %v", first)
		}
		side.send(writtenEvent("item_1", writtenUsage)) // twice
		spokeFor(side, "item_2", 2)
		side.send(writtenEvent("item_2", "null")) // without usage: 2 seconds
		control.wait("svc.transcription.settled")
		spokeFor(side, "item_3", 2)
		side.send(`{"type":"conversation.item.input_audio_transcription.failed","item_id":"item_3","error":{}}`)
		control.wait("conversation.item.input_audio_transcription.failed")
		w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
		s := w.ended(o.ID, session.AppEnded)
		var kinds []string
		for _, r := range s.Receipts {
			kinds = append(kinds, fmt.Sprint(r.Kind, " ", r.UsageSource, " ", r.InputTokens, " ", r.OutputTokens))
		}
		want := "reply provider 20 10, transcription provider 30 9, transcription estimated 20 3"
		if got := strings.Join(kinds, ", "); got != want || s.ResponseCount != 1 {
			t.Errorf("%d replies, receipts %s, want %s", s.ResponseCount, got, want)
		}
		w.free()
	})
}

// TestTranscriptsHaveACap: transcripts are charged up to max_cost_mc, and end the session there.
func TestTranscriptsHaveACap(t *testing.T) {
	t.Parallel()
	const most = money.MC(2_000_000)
	w := newWorld(t, db.SQLite, "live", "full-live")
	w.hears()
	o := w.open(fmt.Sprintf(transcribed, fmt.Sprintf(`,"max_cost_mc":%d`, most)))
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	for i := range 4 {
		item := fmt.Sprint("item_", i)
		spokeFor(side, item, 3)
		tell(side, writtenEvent(item, `{"input_tokens":3000,"output_tokens":0,
			"input_token_details":{"audio_tokens":3000}}`))
	}
	if s := w.ended(o.ID, session.MaxCost); s.ChargedMC != most || s.ResponseCount != 0 {
		t.Errorf("charged %d of %d, %d replies", s.ChargedMC, most, s.ResponseCount)
	}
	w.free()
}

// TestTranscriptHoldsHaveACap: what is held for transcripts is within max_cost_mc together with the hold of the reply,
// and what has been charged.
func TestTranscriptHoldsHaveACap(t *testing.T) {
	t.Parallel()
	const most = money.MC(3_000_000)
	w := newWorld(t, db.SQLite, "live", "full-live")
	w.hears()
	o := w.open(fmt.Sprintf(transcribed, fmt.Sprintf(`,"max_cost_mc":%d,"max_output_tokens":200`, most)))
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	spokeFor(side, "item_0", 3)
	side.send(writtenEvent("item_0", writtenUsage))
	control.wait("svc.transcription.settled")
	for i := range maxWaiting {
		side.send(fmt.Sprintf(`{"type":"input_audio_buffer.speech_started","item_id":"item_%d"}`, i+1))
	}
	side.send(createdEvent("resp_1"))
	side.send(doneEvent("resp_1", "completed", usage10))
	w.until("the next reply is held", func() bool {
		c, err := store.GetConnection(t.Context(), w.db, w.conn)
		if err == nil && c.HeldMC+c.ConsumedMC > most {
			t.Fatalf("%d held and %d charged, of %d", c.HeldMC, c.ConsumedMC, most)
		}
		saved, loadErr := w.nodes[0].loadSession(t.Context(), o.ID)
		return err == nil && loadErr == nil && saved.State.ReplyCount == 1 && saved.State.Hold != session.Requested
	})
}

// maxWaiting is how many transcripts a session waits for.
const maxWaiting = 8

// TestTranscriptShortfall: a transcript that costs more than is left of a bound ends the session, though the next reply
// is held for.
func TestTranscriptShortfall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bound, reason string }{
		{"feature", "feature_cost_exceeded"}, {"allocation", "allocation_exhausted"},
	} {
		w := newWorld(t, db.SQLite, "live", "full-live")
		w.hears()
		w.exec(`INSERT INTO features (app_id, slug, display_name, description, max_cost_per_call_mc, created_us)
			VALUES ($1, 'talk', 'Talk', 'Talks.', 5000000, 1)`, w.app)
		more := `,"max_output_tokens":64`
		if c.bound == "feature" {
			more += `,"feature":"talk"`
		}
		o := w.open(fmt.Sprintf(transcribed, more))
		side := w.connect(o)
		control := w.dial(o.ControlURL, w.token)
		control.wait("svc.session.started")
		if c.bound == "allocation" {
			var held money.MC
			w.until("the hold is made", func() bool {
				conn, err := store.GetConnection(t.Context(), w.db, w.conn)
				held = conn.HeldMC
				return err == nil && held > 0
			})
			w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: held + 1000})
		}
		side.send(writtenEvent("item_1", `{"input_tokens":60000,"output_tokens":0,
			"input_token_details":{"audio_tokens":60000}}`))
		s := w.ended(o.ID, c.reason)
		if len(s.Receipts) != 1 || s.Receipts[0].SvcFeeMC >= 0 {
			t.Errorf("%s: %+v", c.bound, s.Receipts)
		}
		w.free()
	}
}

// TestTranscriptFaults lets the provider's emulator write down late, not at all, twice, and without a usage.
func TestTranscriptFaults(t *testing.T) {
	t.Parallel()
	const written, unwritten = "conversation.item.input_audio_transcription.completed",
		"conversation.item.input_audio_transcription.failed"
	for _, c := range []struct {
		word, event string
		count       int // of the event
		want        string
	}{
		{"transcript_late=300ms", written, 1, "reply provider, transcription provider"},
		{"transcript_fails", unwritten, 1, "reply provider"},
		{"transcript_twice", written, 2, "reply provider, transcription provider"},
		{"transcript_no_usage", written, 1, "reply provider, transcription estimated"},
	} {
		t.Run(c.word, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, db.SQLite, "!emu "+c.word, `,"transcription":{"model":"gpt-4o-transcribe"}`)
			f.connect()
			f.steer(`{"do":"speak","ms":1200}`)
			f.until("it is written down, and the reply charged", func() bool {
				return f.control.count(c.event) == c.count && f.control.count("svc.response.settled") == 1 &&
					(f.control.count("svc.transcription.settled") == 1) == strings.Contains(c.want, "transcription")
			})
			f.end(session.AfterHeard)
			s := f.ended(f.o.ID, session.AppEnded)
			var got []string
			for _, r := range s.Receipts {
				got = append(got, r.Kind+" "+r.UsageSource)
				if r.UserChargeMC == 0 {
					t.Errorf("nothing is charged: %+v", r)
				}
			}
			slices.Sort(got)
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			f.free()
		})
	}
}

// TestTranscriptsNeedConsent: transcripts are refused unless the app has them and its user has allowed them on this
// connection, and only by a model of transcription.
func TestTranscriptsNeedConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	body := fmt.Sprintf(transcribed, "")
	refused := func(body, why string) {
		t.Helper()
		status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, w.token)
		if status != 400 || !strings.Contains(string(mustJSON(answer)), why) {
			t.Errorf("%d %v, want %s", status, answer, why)
		}
	}
	refused(body, "switch transcripts on")
	w.exec(`UPDATE apps SET transcripts = 1`)
	w.until("the node knows it", func() bool {
		_, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, w.token)
		return strings.Contains(string(mustJSON(answer)), "has not allowed transcripts")
	})
	w.exec(`INSERT INTO transcript_consents (app_id, account_id, connection_id, created_us)
		VALUES ($1, 'wac_user', 'conn_earlier', 1)`, w.app)
	refused(body, "has not allowed transcripts")
	w.exec(`UPDATE transcript_consents SET connection_id = $1`, w.conn)
	refused(strings.Replace(body, "gpt-4o-transcribe", "gpt-realtime-2.1", 1),
		"gpt-4o-transcribe or gpt-4o-mini-transcribe")
	refused(strings.Replace(body, `"en"`, `"English"`, 1), "transcription.language")
	refused(strings.Replace(body, `"language":"en"`, `"prompt":"`+strings.Repeat("a", maxTranscriptPrompt+1)+`"`, 1),
		"transcription.prompt")
	refused(`{"model":"gpt-4o-transcribe"}`, "not a realtime model")
	w.open(body)
	w.exec(`UPDATE apps SET allowed_models = '["gpt-realtime-2.1"]'`)
	w.until("the model is not among those that the app allows", func() bool {
		status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, w.token)
		return status == 403 && strings.Contains(string(mustJSON(answer)), `\"gpt-4o-transcribe\" is not among`)
	})
}

// soundOf returns milliseconds of PCM16 at 24 kHz, each sample of this amplitude.
func soundOf(ms int, amplitude int16) string {
	pcm := make([]byte, 0, 48*ms)
	for range 24 * ms {
		pcm = binary.LittleEndian.AppendUint16(pcm, uint16(amplitude))
	}
	return base64.StdEncoding.EncodeToString(pcm)
}

// TestMockTranscript: the mock voice writes down that somebody spoke, at most a minute of it.
func TestMockTranscript(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	w.hears()
	o := w.open(fmt.Sprintf(transcribed, ""))
	control := w.dial(o.ControlURL, w.token)
	browser := w.speak(o)
	control.wait("svc.session.started")
	browser.send(`{"type":"input_audio_buffer.append","audio":"` + soundOf(1000, 9000) + `"}`)
	browser.send(`{"type":"input_audio_buffer.append","audio":"` + soundOf(600, 0) + `"}`)
	e := control.wait("svc.transcription.settled")
	if r := e["receipt"].(map[string]any); r["input_tokens"] != 10.0 || r["usage_source"] != "provider" {
		t.Errorf("%v", e)
	}
	control.wait("svc.response.settled")
	w.pass(time.Second)
	w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
	w.ended(o.ID, session.AppEnded)
	w.free()
}

// TestMockTranscriptRate: transcripts of the mock leave rows and cost nothing, so they count as its replies do.
func TestMockTranscriptRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	w.hears()
	start := time.Now()
	w.nodes[0].node.freeRate = callers.NewFreeRate(1, 2, func() time.Time { return start })
	o := w.open(fmt.Sprintf(transcribed, ""))
	browser := w.speak(o)
	for range 3 {
		browser.send(`{"type":"input_audio_buffer.append","audio":"` + soundOf(1000, 9000) + `"}`)
		browser.send(`{"type":"input_audio_buffer.commit"}`)
	}
	browser.send(`{"type":"input_audio_buffer.clear"}`)
	browser.wait("input_audio_buffer.cleared")
	const written = "conversation.item.input_audio_transcription."
	if done, failed := browser.count(written+"completed"), browser.count(written+"failed"); done != 1 || failed != 2 {
		t.Errorf("%d transcripts, %d failed", done, failed)
	}
}
