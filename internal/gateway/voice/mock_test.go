package voice

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

const mini = `{"model":"gpt-realtime-2.1-mini","instructions":"You are brief."}`

func eachEngine(t *testing.T, f func(t *testing.T, e db.Engine)) {
	t.Helper()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(t, e)
		})
	}
}

// TestMockTruncates: the mock cuts off what a reply has said, and refuses every truncation that the provider refuses,
// by the same error.
func TestMockTruncates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	browser := w.speak(w.open(mini))
	browser.send(`{"type":"conversation.item.create",
		"item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}}`)
	user := browser.wait("conversation.item.added")["item"].(map[string]any)["id"].(string)
	browser.send(`{"type":"response.create"}`)
	said := browser.wait("conversation.item.added")["item"].(map[string]any)["id"].(string)
	browser.wait("response.done")
	for _, tt := range []struct{ members, code, message string }{
		{`"content_index":0,"audio_end_ms":1`, "missing_required_parameter", "'item_id'"},
		{`"item_id":"SAID","audio_end_ms":1`, "missing_required_parameter", "'content_index'"},
		{`"item_id":"SAID","content_index":0`, "missing_required_parameter", "'audio_end_ms'"},
		{`"item_id":"item_none","content_index":0,"audio_end_ms":1`, "item_truncate_invalid_item_id", "item_none"},
		{`"item_id":"USER","content_index":0,"audio_end_ms":1`, "item_truncate_invalid_item_id", user},
		{`"item_id":"SAID","content_index":1,"audio_end_ms":1`, "invalid_value", "content_index"},
		{`"item_id":"SAID","content_index":0,"audio_end_ms":-1`, "invalid_value", "audio_end_ms"},
		{`"item_id":"SAID","content_index":0,"audio_end_ms":1201`, "invalid_value", "Audio content of 1200ms"},
		{`"item_id":"SAID","content_index":0,"audio_end_ms":700`, "", ""},
		{`"item_id":"SAID","content_index":0,"audio_end_ms":701`, "invalid_value", "Audio content of 700ms"},
		{`"item_id":"SAID","content_index":0,"audio_end_ms":0`, "", ""},
	} {
		members := strings.NewReplacer("SAID", said, "USER", user).Replace(tt.members)
		browser.send(`{"type":"conversation.item.truncate","event_id":"mine",` + members + `}`)
		if tt.code == "" {
			if e := browser.wait("conversation.item.truncated"); e["item_id"] != said || e["audio_end_ms"] == nil {
				t.Errorf("%s: %v", members, e)
			}
			continue
		}
		e := browser.wait("error")["error"].(map[string]any)
		if e["code"] != tt.code || e["event_id"] != "mine" || !strings.Contains(e["message"].(string), tt.message) {
			t.Errorf("%s: %v", members, e)
		}
	}
}

// TestMockSession talks with the mock voice: three replies, each held, billed and reported on the control
// channel, and the end after the user has heard the last one.
func TestMockSession(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		o := w.open(mini)
		if s := w.get(o.ID); s.Status != session.Pending || s.StartedAt != nil || s.Live != nil {
			t.Errorf("pending: %+v", s)
		}
		control := w.dial(o.ControlURL, w.token)
		browser := w.speak(o)
		control.wait("svc.session.started")
		var sum float64
		for range 3 {
			browser.send(`{"type":"conversation.item.create",
				"item":{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello you"}]}}`)
			browser.send(`{"type":"response.create"}`)
			control.wait("response.created")
			e := control.wait("svc.response.settled")
			receipt := e["receipt"].(map[string]any)
			if receipt["usage_source"] != "provider" || receipt["output_tokens"].(float64) < 20 {
				t.Errorf("receipt: %v", receipt)
			}
			if sum += receipt["user_charge_mc"].(float64); e["charged_mc"] != sum {
				t.Errorf("charged %v, receipts %v", e["charged_mc"], sum)
			}
		}
		if s := w.get(o.ID); s.Status != session.Live || s.Live == nil || s.Live.ResponseCount != 3 ||
			!s.Live.ControlAttached || s.Live.Ending || len(s.Receipts) != 3 {
			t.Errorf("live: %s", mustJSON(s))
		}
		if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", "",
			w.token); status != 202 || answer["ending"] != true {
			t.Errorf("end: %d %v", status, answer)
		}
		control.wait("svc.session.ending")
		if e := control.wait("svc.session.ended"); e["reason"] != session.AppEnded || e["charged_mc"] != sum {
			t.Errorf("ended: %v", e)
		}
		if code := control.closed(); code != 1000 {
			t.Errorf("control closed with %d", code)
		}
		if code := browser.closed(); code != 1000 {
			t.Errorf("browser closed with %d", code)
		}
		s := w.ended(o.ID, session.AppEnded)
		w.free()
		if s.ChargedMC != money.MC(sum) || s.ResponseCount != 3 {
			t.Errorf("ended: %s", mustJSON(s))
		}
	})
}

// TestPendingEnds ends sessions whose ticket was not used: their hold is released, and they count no
// longer (F-92).
func TestPendingEnds(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		first, second := w.open(mini), w.open(mini)
		if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, w.token); status != 429 ||
			code(answer) != "too_many_sessions" ||
			!strings.Contains(string(mustJSON(answer)), `"sessions":["`+first.ID+`","`+second.ID+`"]`) {
			t.Errorf("a third: %d %v", status, answer)
		}
		if list := w.list(""); len(list) != 2 || list[0].ID != second.ID || list[1].ID != first.ID {
			t.Errorf("listed: %s", mustJSON(list))
		}
		if list := w.list("?starting_after=" + second.ID); len(list) != 1 || list[0].ID != first.ID {
			t.Errorf("the next page: %s", mustJSON(list))
		}
		if list := w.list("?limit=1"); len(list) != 1 || list[0].ID != second.ID {
			t.Errorf("the first page: %s", mustJSON(list))
		}
		if status, _ := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+first.ID+"/end", `{"when":"immediate"}`,
			w.token); status != 202 {
			t.Errorf("end: %d", status)
		}
		if s := w.get(first.ID); s.Status != session.Ended || *s.EndReason != session.AppEnded {
			t.Errorf("when the answer came: %s", mustJSON(s))
		}
		third := w.open(mini)
		w.pass(ticketTTL + 1)
		w.ended(second.ID, session.TicketExpired)
		w.ended(third.ID, session.TicketExpired)
		w.free()
		if c := w.dial(first.ControlURL, w.token).closed(); c != 4009 {
			t.Errorf("control of an ended session: %d", c)
		}
		if c := w.dial(second.Client.MockURL+"?ticket="+second.Client.Ticket, "").closed(); c != 4009 {
			t.Errorf("mock of an ended session: %d", c)
		}
	})
}

// TestExhaustedRefusesVoice: an exhausted connection opens no session, neither on free credit nor where
// another refusal would be 429 (decision 008).
func TestExhaustedRefusesVoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", tiers.LimitedLive)
	w.nodes[0].handler.Policies.At(w.now()).Free = tiers.DefaultFreeCredit
	refused := func(when string) {
		t.Helper()
		w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: 0})
		status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, w.token)
		if status != 402 || code(answer) != "allocation_exhausted" {
			t.Errorf("%s: %d %v", when, status, answer)
		}
	}
	refused("on free credit")
	w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: money.Dollar})
	first, second := w.open(mini), w.open(mini)
	w.free() // free credit holds for them, so the cap can be lowered to nothing
	refused("beyond two sessions")
	w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: money.Dollar})
	for _, o := range []opened{first, second} {
		w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
		w.ended(o.ID, session.AppEnded)
	}
}

// TestStartedOnce: a control channel hears once that its session is live, whether it was opened before.
func TestStartedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	for range 5 {
		o := w.open(mini)
		control := w.dial(o.ControlURL, w.token)
		control.send(`{"type":"response.create"}`)
		control.wait("error") // it is attached, and the session not live
		w.speak(o)
		control.wait("svc.session.started")
		control.send(`{"type":"svc.session.end","when":"immediate"}`)
		control.wait("svc.session.ended")
		if kinds := control.kinds(); len(kinds) != 4 {
			t.Errorf("events: %v", kinds)
		}
		n := 0
		for _, e := range control.got {
			if e["type"] == "svc.session.started" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("started %d times", n)
		}
	}
}

// TestEndDuringTakeOver ends pending sessions while the watch adopts those that are to end: each has
// ended when the answer comes, whichever of the two is quicker.
func TestEndDuringTakeOver(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		w.nodes[0].endTimeout = time.Minute // the watch below leaves a slow machine little
		ctx, stop := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() {
			for ctx.Err() == nil {
				if err := w.nodes[0].takeOver(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
		for range 10 {
			o := w.open(mini)
			if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end",
				`{"when":"immediate"}`, w.token); status != 202 {
				t.Errorf("end: %d %v", status, answer)
			}
			if s := w.get(o.ID); s.Status != session.Ended {
				t.Errorf("when the answer came: %s", mustJSON(s))
			}
		}
		stop()
		watch.Wait()
	})
}

// code returns the code of an error envelope.
func code(answer map[string]any) string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(mustJSON(answer), &e)
	return e.Error.Code
}

// list reads a list of the connection's sessions.
func (w *world) list(query string) (list []Session) {
	w.t.Helper()
	status, answer := w.call(w.nodes[0], "GET", "/v1/realtime/sessions"+query, "", w.token)
	if status != http.StatusOK {
		w.t.Fatalf("%d %v", status, answer)
	}
	if err := json.Unmarshal([]byte(answer["text"].(string)), &list); err != nil {
		w.t.Fatal(err)
	}
	return list
}
