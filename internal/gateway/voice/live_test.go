package voice

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// usage10 is a usage as the provider reports it: 20 tokens in, 5 of them cached, and 10 out.
const usage10 = `{"total_tokens":30,"input_tokens":20,"output_tokens":10,
	"input_token_details":{"text_tokens":12,"audio_tokens":8,"image_tokens":0,"cached_tokens":5,
		"cached_tokens_details":{"text_tokens":4,"audio_tokens":1,"image_tokens":0}},
	"output_token_details":{"text_tokens":3,"audio_tokens":7}}`

// createdEvent and doneEvent are events of the provider: the begin and the end of a reply.
func createdEvent(id string) string {
	return fmt.Sprintf(
		`{"type":"response.created","response":{"id":%q,"status":"in_progress","conversation_id":"conv_1",
			"output_modalities":["audio"],"max_output_tokens":1024}}`, id)
}

func doneEvent(id, status, usage string) string {
	return fmt.Sprintf(`{"type":"response.done","response":{"id":%q,"status":%q,"usage":%s}}`, id, status, usage)
}

// TestLiveSession goes through a live call: the offer, our own configuration, a
// reply that is billed by modality, and its end after the user has heard it.
func TestLiveSession(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		w.up.missing, w.up.stubborn = 2, 2 // too young at first (edge case 45), and hard to end
		o := w.open(`{"model":"gpt-realtime-2.1","voice":"marin","tools":[
			{"type":"function","function":{"name":"look","description":"Looks.","parameters":{"type":"object"}}}]}`)
		side := w.connect(o)
		if !strings.Contains(w.up.session, `"model":"gpt-realtime-2.1"`) ||
			!strings.Contains(w.up.session, `"name":"look"`) || w.up.lastOffer != sdpOffer {
			t.Errorf("session %s, offer %q", w.up.session, w.up.lastOffer)
		}
		control := w.dial(o.ControlURL, w.token)
		control.wait("svc.session.started")
		side.send(createdEvent("resp_1"))
		side.send(`{"type":"output_audio_buffer.started","response_id":"resp_1"}`)
		side.send(doneEvent("resp_1", "completed", usage10))
		side.send(doneEvent("resp_1", "completed", usage10)) // edge case 48: once
		settled := control.wait("svc.response.settled")
		// 8 text at 4.00, 4 cached text at 0.40, 7 audio at 32.00, 1 cached at 0.40, 3 text out at
		// 24.00, 7 audio out at 64.00 dollars a million: 3,200 + 160 + 22,400 + 40 + 7,200 + 44,800
		// micro-cents, 10 % margin, 5 % fee.
		if r := settled["receipt"].(map[string]any); r["provider_cost_mc"] != 77800.0 || r["dev_margin_mc"] != 7780.0 ||
			r["svc_fee_mc"] != 3890.0 {
			t.Errorf("receipt: %v", r)
		}
		status, _ := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"after_heard"}`, w.token)
		control.wait("svc.session.ending")
		if update := side.wait("session.update"); !strings.Contains(string(mustJSON(update)),
			`"create_response":false`) || status != 202 {
			t.Errorf("while the user hears the rest: %d %v", status, update)
		}
		if w.get(o.ID).Status != session.Live {
			t.Error("it did not wait until the reply was heard")
		}
		side.send(`{"type":"output_audio_buffer.stopped","response_id":"resp_1"}`)
		s := w.ended(o.ID, session.AppEnded)
		w.until("the call is hung up", w.up.gone)
		if s.ResponseCount != 1 || s.ChargedMC != 77800+7780+3890 {
			t.Errorf("ended: %s", mustJSON(s))
		}
		w.free()
	})
}

// TestTickets: one of two offers wins. A malformed offer does not use up the ticket (F-91).
func TestTickets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	offer := strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url)
	for _, bad := range []string{"", "hello", "v=0\r\nm=audio 9\r\n", "v=0\r\nm=application 9\r\n"} {
		if status, answer := w.call(w.nodes[0], "POST", offer, bad, o.Client.Ticket); status != 400 ||
			code(answer) != "invalid_request" {
			t.Errorf("offer %q: %d %v", bad, status, answer)
		}
	}
	if status, answer := w.call(w.nodes[0], "POST", offer, sdpOffer, "rtt_wrong"); status != 401 ||
		code(answer) != "invalid_ticket" {
		t.Errorf("wrong ticket: %d %v", status, answer)
	}
	w.connect(o)
	if status, answer := w.call(w.nodes[0], "POST", offer, sdpOffer, o.Client.Ticket); status != 401 ||
		code(answer) != "invalid_ticket" {
		t.Errorf("used ticket: %d %v", status, answer)
	}
	if status, _ := w.call(w.nodes[0], "GET", "/v1/realtime/sessions/"+o.ID, "", w.other); status != 404 {
		t.Errorf("another connection's session: %d", status)
	}
	if c := w.dial(o.ControlURL, w.other).closed(); c != 4004 {
		t.Errorf("another connection's control: %d", c)
	}
}

// TestUnsavedCall: a call whose id could not be saved is hung up, as often as it takes: no row names it.
func TestUnsavedCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	w.up.stubborn = 2
	w.exec(`CREATE TRIGGER no_call BEFORE UPDATE OF call_id ON realtime_sessions
		BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END`)
	o := w.open(mini)
	if status, answer := w.call(w.nodes[0], "POST", strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url), sdpOffer,
		o.Client.Ticket); status != 502 || code(answer) != "provider_error" {
		t.Errorf("offer: %d %v", status, answer)
	}
	w.until("the call is hung up", w.up.gone)
	w.up.mu.Lock()
	if len(w.up.call) != 1 || w.up.hangUps != 3 {
		t.Errorf("%d calls, %d hang-ups", len(w.up.call), w.up.hangUps)
	}
	w.up.mu.Unlock()
	if s := w.ended(o.ID, session.ProviderError); s.ChargedMC != 0 {
		t.Errorf("charged %s", s.ChargedDisplay)
	}
	w.free()
}

// TestUnsavedCallKeepsNoNode: a call whose id could not be saved, and whose hang-up the provider refuses, is left to
// the other nodes when the row of its ended session can name it. A node that stops does not wait for it.
func TestUnsavedCallKeepsNoNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	w.up.mu.Lock()
	w.up.stubborn = 1 << 30
	w.up.mu.Unlock()
	w.exec(`CREATE TRIGGER no_call BEFORE UPDATE OF call_id ON realtime_sessions WHEN OLD.status <> 'ended'
		BEGIN SELECT RAISE(ABORT, 'the disk is gone'); END`)
	o := w.open(mini)
	if status, answer := w.call(w.nodes[0], "POST", strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url), sdpOffer,
		o.Client.Ticket); status != 502 || code(answer) != "provider_error" {
		t.Errorf("offer: %d %v", status, answer)
	}
	w.ended(o.ID, session.ProviderError)
	w.until("the row names the call", func() bool { return w.toHangUp() == 1 })
	w.nodes[0].Stop(t.Context())
	w.up.mu.Lock()
	w.up.stubborn = 0
	w.up.mu.Unlock()
	w.until("another node has hung the call up", func() bool {
		w.pass(10 * time.Second)
		return w.up.gone() && w.toHangUp() == 0
	})
}

// TestAnswerWaitsForSideband: the browser gets the answer when the sideband is attached, because audio
// before that is not metered.
func TestAnswerWaitsForSideband(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	w.up.missing = 3
	o := w.open(mini)
	if status, answer := w.call(w.nodes[0], "POST", strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url), sdpOffer,
		o.Client.Ticket); status != 201 {
		t.Fatalf("offer: %d %v", status, answer)
	}
	w.up.mu.Lock()
	if w.up.missing != 0 {
		t.Errorf("the answer came with %d dials to go", w.up.missing)
	}
	w.up.mu.Unlock()
	w.sideband()
}

// TestSidebandLost: a sideband that drops is attached again, and the call goes on. If that fails, the
// session ends, and the reply in progress is estimated (F-85, F-88).
func TestSidebandLost(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		o := w.open(mini)
		side := w.connect(o)
		_ = side.ws.Close(1006-5, "dropped") // 1001
		side = w.sideband()
		side.send(createdEvent("resp_1"))
		side.send(`{"type":"response.output_audio_transcript.delta","response_id":"resp_1",
			"delta":"Hello, how are you doing today?"}`)
		side.send(`{"type":"output_audio_buffer.started","response_id":"resp_1"}`)
		control := w.dial(o.ControlURL, w.token)
		control.wait("svc.session.started")
		w.up.mu.Lock()
		w.up.noDial, w.up.stubborn = true, 3
		w.up.mu.Unlock()
		_ = side.ws.CloseNow()
		s := w.ended(o.ID, session.SidebandLost)
		if len(s.Receipts) != 1 || s.Receipts[0].UsageSource != "estimated" ||
			s.Receipts[0].UserChargeMC > s.Receipts[0].HoldAmountMC || s.ChargedMC == 0 {
			t.Errorf("receipts: %s", mustJSON(s.Receipts))
		}
		w.until("the call is hung up", w.up.gone)
		w.free()
	})
}

// TestBrowserLeaves: the provider closes the sideband, and no longer knows the call.
func TestBrowserLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(mini)
	w.leaves(w.connect(o))
	w.ended(o.ID, session.ClientClosed)
}

// leaves lets the browser hang up.
func (w *world) leaves(side *socket) {
	w.up.mu.Lock()
	for _, c := range w.up.call {
		c.gone = true
	}
	w.up.mu.Unlock()
	_ = side.ws.Close(1000, "")
}

// TestHalts ends sessions whose connection or app may no longer spend.
func TestHalts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		by, reason string
		halt       func(w *world)
	}{
		{"the user", session.ConnectionRevoked, func(w *world) { w.do(rules.Revoke{ConnectionID: w.conn}) }},
		{"the risk layer", session.ConnectionFrozen, func(w *world) {
			w.do(rules.Freeze{ConnectionID: w.conn, By: rules.FrozenByRisk})
		}},
		{"the developer", "app_suspended", func(w *world) { w.exec(`UPDATE apps SET suspended = 1`) }},
		{"the operator", "app_suspended", func(w *world) {
			w.exec(`UPDATE apps SET suspension_by = 'operator', suspension_reason = 'It is under review.',
				suspension_us = 1`)
		}},
	} {
		t.Run(test.by, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db.SQLite, "live", "full-live")
			o := w.open(mini)
			pending := w.open(mini)
			side := w.connect(o)
			side.send(createdEvent("resp_1"))
			w.until("the reply is known", func() bool { return strings.Contains(w.state(o.ID), "resp_1") })
			test.halt(w)
			side.wait("response.cancel")
			side.send(doneEvent("resp_1", "cancelled", usage10))
			w.endedRow(o.ID, test.reason)
			w.endedRow(pending.ID, test.reason)
			w.until("the call is hung up", w.up.gone)
			w.free()
		})
	}
}

// TestStopSession ends sessions that their user stops: a live and a pending one, at their node or by a row
// that another node has written. A stop of another connection's session, and a second one, change nothing.
func TestStopSession(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(w *world, connectionID, sessionID string) error{
		"here": func(w *world, connectionID, sessionID string) error {
			return w.nodes[0].StopSession(w.t.Context(), connectionID, sessionID)
		},
		"by another node": func(w *world, connectionID, sessionID string) error {
			return store.InsertStop(w.t.Context(), w.db, connectionID, sessionID, time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db.SQLite, "live", "full-live")
			o := w.open(mini)
			pending := w.open(mini)
			side := w.connect(o)
			side.send(createdEvent("resp_1"))
			w.until("the reply is known", func() bool { return strings.Contains(w.state(o.ID), "resp_1") })
			if list, err := w.nodes[0].ListRunning(t.Context(), w.account(o.ID), 10); err != nil || len(list) != 2 {
				t.Errorf("%d sessions are listed as running, %v", len(list), err)
			}
			for _, target := range [][2]string{
				{"conn_other", o.ID},
				{w.conn, o.ID},
				{w.conn, o.ID},
				{w.conn, pending.ID},
			} {
				if err := stop(w, target[0], target[1]); err != nil {
					t.Error(err)
				}
				if r, err := getRow(t.Context(), w.db, o.ID); target[0] != w.conn && r.Status != session.Live {
					t.Errorf("another connection has stopped it: %s, %v", r.Status, err)
				}
			}
			side.wait("response.cancel")
			side.send(doneEvent("resp_1", "cancelled", usage10))
			w.endedRow(o.ID, session.UserStopped)
			w.endedRow(pending.ID, session.UserStopped)
			w.until("the call is hung up", w.up.gone)
			w.free()
			if list, err := w.nodes[0].ListRunning(t.Context(), w.account(o.ID), 10); err != nil || len(list) != 0 {
				t.Errorf("%d sessions are listed as running, %v", len(list), err)
			}
		})
	}
}

// account returns the account of a session.
func (w *world) account(sessionID string) string {
	w.t.Helper()
	r, err := getRow(w.t.Context(), w.db, sessionID)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.AccountID
}

func (w *world) state(id string) (state string) {
	w.t.Helper()
	err := w.db.QueryRowContext(w.t.Context(), `SELECT state FROM realtime_sessions WHERE id = $1`, id).Scan(&state)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

// endedRow is ended for a session that its token may no longer read.
func (w *world) endedRow(id, reason string) {
	w.t.Helper()
	w.until("the session ends", func() bool {
		r, err := getRow(w.t.Context(), w.db, id)
		return err == nil && r.Status == session.Ended && *r.EndReason == reason
	})
}

// TestRevokedConnection: after a revoke no session of the connection starts, and no reply that its app asks
// for, before the watch has noticed it.
func TestRevokedConnection(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"offer", "mock socket", "response.create"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			mode, tier := "live", "full-live"
			if at == "mock socket" {
				mode, tier = "mock", "sandbox"
			}
			w := newWorld(t, db.SQLite, mode, tier)
			o := w.open(mini)
			switch at {
			case "offer":
				w.do(rules.Revoke{ConnectionID: w.conn})
				status, answer := w.call(w.nodes[0], "POST", strings.TrimPrefix(o.Client.OfferURL, w.nodes[0].url),
					sdpOffer, o.Client.Ticket)
				if status != 401 || code(answer) != "invalid_ticket" ||
					len(w.up.call) != 0 {
					t.Errorf("offer: %d %v, %d calls", status, answer, len(w.up.call))
				}
			case "mock socket":
				w.do(rules.Revoke{ConnectionID: w.conn})
				s := w.dial(o.Client.MockURL+"?ticket="+o.Client.Ticket, "")
				if c := s.closed(); c != 4001 && c != 4009 || len(s.kinds()) > 0 {
					t.Errorf("closed with %d after %v", c, s.kinds())
				}
			default:
				side := w.connect(o)
				control := w.dial(o.ControlURL, w.token)
				control.wait("svc.session.started")
				w.untilHeld()
				w.do(rules.Revoke{ConnectionID: w.conn})
				control.send(`{"type":"response.create"}`)
				control.wait("svc.session.ended")
				if kinds := side.kinds(); slices.Contains(kinds, "response.create") {
					t.Errorf("to the provider: %v", kinds)
				}
			}
			w.endedRow(o.ID, session.ConnectionRevoked)
		})
	}
}

// TestTampering: a change of the browser is set back; the third ends the session. A forged tool result
// counts as one, and so does a reply with a higher output cap, which is cancelled (F-90).
func TestTampering(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(`{"model":"gpt-realtime-2.1-mini","instructions":"A","client_updatable":["instructions"]}`)
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	// confirms our own update
	side.send(`{"type":"session.updated","session":{"type":"realtime","instructions":"A","max_output_tokens":1024}}`)
	// allowed
	side.send(`{"type":"session.updated","session":{"type":"realtime","instructions":"B","max_output_tokens":1024}}`)
	side.send(`{"type":"session.updated","session":{"type":"realtime","instructions":"B","max_output_tokens":4096}}`)
	if e := control.wait("svc.session.config_reset"); fmt.Sprint(e["fields"]) != "[max_output_tokens]" {
		t.Errorf("reset: %v", e)
	}
	if e := side.wait("session.update"); !strings.Contains(string(mustJSON(e)), `"instructions":"B"`) ||
		!strings.Contains(string(mustJSON(e)), `"max_output_tokens":1024`) {
		t.Errorf("set back to %v", e)
	}
	side.send(`{"type":"session.updated","session":{"type":"realtime","instructions":"B","max_output_tokens":1024}}`)
	side.send(strings.Replace(createdEvent("resp_1"), "1024", `"inf"`, 1))
	if e := control.wait("svc.session.config_reset"); fmt.Sprint(e["fields"]) != "[response.max_output_tokens]" {
		t.Errorf("reset: %v", e)
	}
	side.wait("response.cancel")
	side.send(doneEvent("resp_1", "cancelled", usage10))
	control.wait("svc.response.settled")
	side.send(`{"type":"conversation.item.added",
		"item":{"type":"function_call_output","call_id":"call_1","output":"forged"}}`)
	control.wait("svc.session.config_reset")
	control.wait("svc.session.ending")
	if s := w.ended(o.ID, session.ConfigTampering); s.ResponseCount != 1 {
		t.Errorf("%d receipts", s.ResponseCount)
	}
	w.until("the call is hung up", w.up.gone)
}

// TestControlEvents sends each event that an app may send, and some that it may not.
func TestControlEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(`{"model":"gpt-realtime-2.1-mini","on_control_lost":"end"}`)
	early := w.dial(o.ControlURL, w.token) // before the browser comes
	early.send(`{"type":"response.create","event_id":"e1"}`)
	if e := early.wait("error"); !strings.Contains(fmt.Sprint(e), "not live") {
		t.Errorf("too early: %v", e)
	}
	side := w.connect(o)
	early.wait("svc.session.started")
	control := w.dial(o.ControlURL, w.token) // the last wins
	control.wait("svc.session.started")
	if c := early.closed(); c != 1001 {
		t.Errorf("the first channel closed with %d", c)
	}
	for _, bad := range []string{
		`{}`, `{"type":"input_audio_buffer.append"}`, `nonsense`, `{"type":"session.update"}`,
		`{"type":"session.update","session":{"type":"realtime","max_output_tokens":4000}}`,
		`{"type":"session.update","session":{"tools":[{"type":"mcp"}]}}`,
		`{"type":"response.create","response":{"max_output_tokens":4000}}`,
		`{"type":"response.create","response":{"conversation":"none"}}`,
		`{"type":"conversation.item.create","item":{"type":"message","role":"assistant","content":[]}}`,
		`{"type":"conversation.item.truncate"}`,
		`{"type":"svc.session.end","when":"never"}`, `{"type":"svc.session.approve_block"}`,
		`{"type":"session.update","session":{"instructions":"` + strings.Repeat("x", maxInstructions+1) + `"}}`,
	} {
		control.send(bad)
		e := control.wait("error")
		if fmt.Sprint(e["error"].(map[string]any)["code"]) != "invalid_event" {
			t.Errorf("%.60s: %v", bad, e)
		}
	}
	control.send(`{"type":"session.update","session":{"type":"realtime","instructions":"New."}}`)
	if e := side.wait("session.update"); !strings.Contains(string(mustJSON(e)), "New.") {
		t.Errorf("update: %v", e)
	}
	control.send(`{"type":"conversation.item.create",
		"item":{"type":"function_call_output","call_id":"call_1","output":"42"}}`)
	side.wait("conversation.item.create")
	side.send(`{"type":"conversation.item.added",
		"item":{"type":"function_call_output","call_id":"call_1","output":"42"}}`)
	control.send(`{"type":"response.create","event_id":"mine","response":{"instructions":"Say it."}}`)
	if e := side.wait("response.create"); e["event_id"] != "mine" {
		t.Errorf("create: %v", e)
	}
	side.send(createdEvent("resp_1"))
	control.wait("response.created")
	control.send(`{"type":"conversation.item.truncate","item_id":"item_1","content_index":0,"audio_end_ms":700}`)
	side.wait("conversation.item.truncate")
	control.send(`{"type":"response.cancel","response_id":"resp_1"}`)
	side.wait("response.cancel")
	for _, relayed := range []string{
		"response.function_call_arguments.done", "response.output_audio_transcript.done", "response.output_text.done",
		"input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "error",
	} {
		side.send(`{"type":"` + relayed +
			`","error":{"type":"invalid_request_error","code":null,"message":"No."},"extra":{"kept":true}}`)
		if e := control.wait(relayed); e["extra"] == nil {
			t.Errorf("%s lost what it had: %v", relayed, e)
		}
	}
	side.send(doneEvent("resp_1", "cancelled", usage10))
	control.wait("svc.response.settled")
	_ = control.ws.Close(1000, "")
	w.until("the loss is known", func() bool { return !w.get(o.ID).Live.ControlAttached })
	w.pass(session.ControlGrace)
	w.ended(o.ID, session.ControlLost)
	w.until("the call is hung up", w.up.gone)
}

// TestBudget: each budget block is reported and must be approved; a warning comes before max_cost_mc,
// which ends the session; so does a hold that does not fit.
func TestBudget(t *testing.T) {
	t.Parallel()
	reply := money.MC(77800 + 7780 + 3890) // see TestLiveSession
	start := func(t *testing.T, more string) (*world, opened, *socket, *socket) {
		w := newWorld(t, db.SQLite, "live", "full-live")
		o := w.open(`{"model":"gpt-realtime-2.1",` + more + `}`)
		side := w.connect(o)
		control := w.dial(o.ControlURL, w.token)
		control.wait("svc.session.started")
		return w, o, side, control
	}
	say := func(side, control *socket, id string) {
		side.send(createdEvent(id))
		side.send(doneEvent(id, "completed", usage10))
		control.wait("svc.response.settled")
	}
	t.Run("max cost", func(t *testing.T) {
		t.Parallel()
		const shortest = 981_939 // micro-cents that the shortest reply may cost
		most := shortest + reply*3/2
		w, o, side, control := start(t, fmt.Sprintf(`"max_cost_mc":%d`, most))
		if !strings.Contains(w.up.session, `"max_output_tokens":`) || strings.Contains(w.up.session, "1024") {
			t.Errorf("the first reply is not limited: %s", w.up.session)
		}
		if e := control.wait("svc.session.spend_warning"); e["reason"] != "max_cost" || e["charged_mc"] != 0.0 {
			t.Errorf("warning before a reply that may be the last: %v", e)
		}
		say(side, control, "resp_1")
		say(side, control, "resp_2")
		control.wait("svc.session.ending")
		s := w.ended(o.ID, session.MaxCost)
		for _, r := range s.Receipts {
			if s.ChargedMC > most || r.HoldAmountMC > most {
				t.Errorf("charged %d, held %d of at most %d", s.ChargedMC, r.HoldAmountMC, most)
			}
		}
		w.free()
		status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions",
			fmt.Sprintf(`{"model":"gpt-realtime-2.1","max_cost_mc":%d}`, shortest-1), w.token)
		if status != 400 || !strings.Contains(string(mustJSON(answer)), "max_cost_mc") {
			t.Errorf("less than the shortest reply: %d %v", status, answer)
		}
	})
	t.Run("little left", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, db.SQLite, "live", "full-live")
		w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: 2_000_000})
		w.connect(w.open(`{"model":"gpt-realtime-2.1"}`))
		if strings.Contains(w.up.session, "1024") {
			t.Errorf("the reply is not limited to what the allocation covers: %s", w.up.session)
		}
	})
	t.Run("approved", func(t *testing.T) {
		t.Parallel()
		w, o, side, control := start(t, fmt.Sprintf(`"budget_block_mc":%d,"confirm_each_block":true`, reply))
		say(side, control, "resp_1")
		if e := control.wait("svc.session.budget_checkpoint"); e["approval_required"] != true || e["blocks"] != 1.0 {
			t.Errorf("checkpoint: %v", e)
		}
		control.send(`{"type":"svc.session.approve_block"}`)
		w.until("the approval is known", func() bool { return strings.Contains(w.state(o.ID), `"ApproveByUS":0`) })
		w.pass(session.ApprovalWindow + time.Second)
		say(side, control, "resp_2")
		control.wait("svc.session.budget_checkpoint")
		w.pass(session.ApprovalWindow + time.Second)
		w.until("it is barred", func() bool { return strings.Contains(w.state(o.ID), `"ApprovalMissed":true`) })
		side.send(createdEvent("resp_3"))
		side.wait("response.cancel")
		side.send(doneEvent("resp_3", "cancelled", "null"))
		w.ended(o.ID, session.BudgetNotApproved)
	})
	t.Run("hold", func(t *testing.T) {
		t.Parallel()
		w, o, side, control := start(t, `"max_output_tokens":64`) // which is not lowered
		var c rules.Connection
		w.until("the hold is made", func() bool {
			var err error
			c, err = store.GetConnection(t.Context(), w.db, w.conn)
			return err == nil && c.HeldMC > 0
		})
		w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: c.HeldMC}) // nothing else
		say(side, control, "resp_1")
		w.ended(o.ID, "allocation_exhausted")
		w.until("the call is hung up", w.up.gone)
	})
}

// TestSilentRepliesAreFree: a reply that failed or said nothing costs the user nothing, also if its usage has input, as
// long as the service bears that (decision 112). Beyond that it is charged.
func TestSilentRepliesAreFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(`{"model":"gpt-realtime-2.1"}`)
	side := w.connect(o)
	control := w.dial(o.ControlURL, w.token)
	control.wait("svc.session.started")
	const silent = `{"input_tokens":100,"output_tokens":0,"input_token_details":{"text_tokens":100}}`
	const costMC = 100 * 400 // of text; the world's service bears 100,000 a day
	for i, c := range []struct {
		status string
		free   bool
	}{{"completed", true}, {"failed", true}, {"incomplete", false}} {
		id := fmt.Sprint("resp_", i)
		side.send(createdEvent(id))
		side.send(doneEvent(id, c.status, silent))
		receipt, _ := control.wait("svc.response.settled")["receipt"].(map[string]any)
		isFree := receipt["waived"] == "empty_answer" && receipt["user_charge_mc"] == 0.0
		if isFree != c.free || receipt["provider_cost_mc"] != float64(costMC) {
			t.Errorf("%s: %v", c.status, receipt)
		}
	}
	control.send(`{"type":"svc.session.end","when":"immediate"}`)
	s := w.ended(o.ID, session.AppEnded)
	if len(s.Receipts) != 3 || s.Receipts[0].Waived != "empty_answer" || s.Receipts[2].Waived != "" ||
		s.ChargedMC != s.Receipts[2].UserChargeMC {
		t.Errorf("%+v", s)
	}
	w.verify()
}

// TestHungUpRepliesAreCounted: a reply whose browser hangs up as soon as it begins has read the context, and nobody
// reports its usage. It is free as long as the service bears that, and charged beyond, as an estimate.
func TestHungUpRepliesAreCounted(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "live", "full-live")
		body := fmt.Sprintf(`{"model":"gpt-realtime-2.1","instructions":%q}`, strings.Repeat("word ", 1500))
		for i, waived := range []string{"empty_answer", ""} { // the world's service bears 100,000 a day
			o := w.open(body)
			side := w.connect(o)
			control := w.dial(o.ControlURL, w.token)
			control.wait("svc.session.started")
			side.send(createdEvent("resp_1"))
			control.wait("response.created")
			w.leaves(side)
			s := w.ended(o.ID, session.ClientClosed)
			if len(s.Receipts) != 1 {
				t.Fatalf("session %d: %+v", i, s.Receipts)
			}
			r := s.Receipts[0]
			if r.Waived != waived || r.UsageSource != "estimated" || (r.UserChargeMC == 0) != (waived != "") ||
				r.ProviderCostMC < 60_000 || r.UserChargeMC > r.HoldAmountMC || s.ChargedMC != r.UserChargeMC {
				t.Errorf("session %d: %+v", i, r)
			}
			w.free()
		}
	})
}

// TestTimes ends sessions at max_duration_s and at the idle timeout.
func TestTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "live", "full-live")
	o := w.open(`{"model":"gpt-realtime-2.1-mini","max_duration_s":30}`)
	w.connect(o)
	w.pass(31 * time.Second)
	w.ended(o.ID, session.MaxDuration)
	o = w.open(mini)
	w.connect(o)
	w.pass(2*time.Minute + time.Second)
	w.ended(o.ID, session.IdleTimeout)
	w.until("the calls are hung up", w.up.gone)
}

// TestCreation refuses malformed and unaffordable sessions, of which no row is left.
func TestCreation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	for body, want := range map[string]string{
		`{}`:                      "model",
		`{"model":"gpt-6-luna"}`:  "realtime",
		`{"model":"nothing"}`:     "offered",
		`{"feature":"none-such"}`: "feature",
		`{"feature":"NO"}`:        "feature",
		`{"model":"gpt-realtime-2","max_duration_s":29}`:          "max_duration_s",
		`{"model":"gpt-realtime-2","max_duration_s":3541}`:        "max_duration_s",
		`{"model":"gpt-realtime-2","max_output_tokens":0}`:        "max_output_tokens",
		`{"model":"gpt-realtime-2","max_cost_mc":0}`:              "max_cost_mc",
		`{"model":"gpt-realtime-2","confirm_each_block":true}`:    "budget_block_mc",
		`{"model":"gpt-realtime-2","client_updatable":["tools"]}`: "client_updatable[0]",
		`{"model":"gpt-realtime-2","on_control_lost":"stop"}`:     "on_control_lost",
		`{"model":"gpt-realtime-2","relay":"some"}`:               "relay",
		`{"model":"gpt-realtime-2","on_control_lost":""}`:         "on_control_lost",
		`{"model":"gpt-realtime-2","max_cost":1000000}`:           "max_cost: is not a member of this request",
		`{"model":"gpt-realtime-2","maxCostMc":1000000}`:          "send max_cost_mc",
		`{"model":"gpt-realtime-2","max_tokens":100}`:             "send max_output_tokens",
		`{"model":"gpt-realtime-2","max_duration":60}`:            "send max_duration_s",
		`{"model":"gpt-realtime-2","budget_block":1000000}`:       "send budget_block_mc",
		`{"model":"gpt-realtime-2","confirm_blocks":true}`:        "send confirm_each_block",
		`{"model":"gpt-realtime-2","voice":"a b"}`:                "voice",
		`{"model":"gpt-realtime-2","voice":"nova"}`:               "its voices are alloy, ash, ",
		`{"model":"gpt-realtime-2","tools":[{"type":"mcp"}]}`:     "tools[0]",
		`{"model":"gpt-realtime-2","tool_choice":"always"}`:       "tool_choice",
		`[]`:          "body",
		`{"model":1}`: "model",
	} {
		status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, w.token)
		if status != 400 || code(answer) != "invalid_request" || !strings.Contains(string(mustJSON(answer)), want) {
			t.Errorf("%s: %d %s", body, status, mustJSON(answer))
		}
	}
	w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: 100})
	if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, w.token); status != 402 ||
		code(answer) != "allocation_exhausted" {
		t.Errorf("a hold that does not fit: %d %v", status, answer)
	}
	var n int
	if err := w.db.QueryRowContext(t.Context(),
		`SELECT (SELECT COUNT(*) FROM realtime_sessions) + (SELECT COUNT(*) FROM realtime_replies)`).Scan(
		&n); err != nil || n != 0 {
		t.Errorf("%d rows are left, %v", n, err)
	}
	w.exec(`UPDATE apps SET allowed_models = '["gpt-realtime-2"]'`)
	w.nodes[0].handler.Callers.Forget("")
	if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, w.token); status != 403 ||
		code(answer) != "model_not_allowed" {
		t.Errorf("not allowed: %d %v", status, answer)
	}
}
