package session

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// play is a session among a ledger, a provider and an app that do what they like,
// in any order, and keep account of it.
type play struct {
	t        *rapid.T
	s        State
	now      time.Time
	waiting  []Action           // for the ledger, in their order
	holds    map[int64]money.MC // open ones
	made     int64
	entries  money.MC // Σ of the rows
	rows     int64
	settled  map[int64]money.MC // rows, by reply
	adopted  bool
	done     map[string]bool // completed replies whose usage the provider told
	billed   map[string]int
	finished int
	hangUps  int
	call     bool
}

const usage10 = `{"total_tokens":30,"input_tokens":20,"output_tokens":10,"input_token_details":{"text_tokens":12,"audio_tokens":8,"image_tokens":0,"cached_tokens":5,"cached_tokens_details":{"text_tokens":4,"audio_tokens":1,"image_tokens":0}},"output_token_details":{"text_tokens":3,"audio_tokens":7}}`

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newPlay(t *rapid.T) *play {
	p := &play{t: t, now: start, holds: map[int64]money.MC{}, settled: map[int64]money.MC{}, done: map[string]bool{}, billed: map[string]int{}}
	settings := Settings{ID: "rts_1", MaxOutputTokens: 1024, ContextTokens: 32000, MaxDuration: 15 * time.Minute, IdleTimeout: 2 * time.Minute, Mock: rapid.Bool().Draw(t, "mock"), EndOnControlLost: rapid.Bool().Draw(t, "end")}
	if rapid.Bool().Draw(t, "bounded") {
		most, block := money.MC(900), money.MC(250)
		settings.MaxCostMC, settings.BudgetBlockMC, settings.ConfirmBlocks = &most, &block, true
	}
	p.s = State{Settings: settings, Status: Pending, CreatedUS: start.UnixMicro(), TicketExpiresUS: start.Add(time.Minute).UnixMicro(), Config: Config{Model: "m", MaxOutputTokens: 1024, AutoReply: true}}
	p.step(Tick{})
	return p
}

// step gives the session an event and looks at what it wants.
func (p *play) step(e Event) {
	was := p.s.Status
	next, todo := Step(p.s, e, p.now)
	p.s = next
	for i, a := range todo {
		switch a := a.(type) {
		case Persist:
			if i != 0 {
				p.t.Fatal("kept after something was done")
			}
		case Hold:
			p.waiting = append(p.waiting, a)
			if a.N <= p.made || a.TextTokens < 0 || a.AudioTokens < 0 {
				p.t.Fatalf("hold %+v after %d", a, p.made)
			}
			p.made = a.N
		case Settle:
			p.billed[a.ReplyID]++
			if p.billed[a.ReplyID] > 1 && !p.adopted {
				p.t.Fatalf("reply %s is billed twice", a.ReplyID)
			}
			if a.Estimated && a.Unheld {
				p.t.Fatalf("an estimate without a hold: %+v", a)
			}
			p.waiting = append(p.waiting, a)
		case Release:
			p.waiting = append(p.waiting, a)
		case HangUp:
			p.hangUps++
		case Finish:
			p.finished++
			if len(p.holds) > 0 || len(p.waiting) > 0 || len(p.s.Unsettled) > 0 {
				p.t.Fatalf("ended with holds %v, owing %v", p.holds, p.waiting)
			}
			if p.call && p.hangUps == 0 {
				p.t.Fatal("ended without hanging up")
			}
		}
	}
	if was == Ended && len(todo) > 0 {
		p.t.Fatalf("after the end: %v", todo)
	}
	if len(p.holds) > 1 && !p.adopted {
		p.t.Fatalf("two holds at once: %v", p.holds)
	}
}

// ledgerActs carries out the oldest thing that the ledger was asked for.
func (p *play) ledgerActs(refuse bool) {
	if len(p.waiting) == 0 {
		return
	}
	a := p.waiting[0]
	p.waiting = p.waiting[1:]
	if e := p.carryOut(a, refuse); e != nil {
		p.step(e)
	}
}

// carryOut does what the ledger would, and returns what it answers.
func (p *play) carryOut(a Action, refuse bool) Event {
	switch a := a.(type) {
	case Hold:
		if refuse {
			return HoldRefused{a.N, "allocation_exhausted"}
		}
		p.holds[a.N] = 1000
		return HoldMade{a.N, 1000}
	case Settle:
		held, ok := p.holds[a.N]
		delete(p.holds, a.N)
		if _, was := p.settled[a.N]; !ok && a.Estimated && !was { // the hold was refused meanwhile: nothing may be charged
			return Settled{N: a.N, ReplyID: a.ReplyID}
		}
		charge := money.MC(200)
		if a.Estimated {
			charge = min(charge, held)
		}
		if before, twice := p.settled[a.N]; twice {
			charge = before
		} else {
			p.settled[a.N] = charge
			p.entries += charge
			p.rows++
		}
		return Settled{N: a.N, ReplyID: a.ReplyID, Entry: &rules.Entry{ID: "led_1", Usage: "{}", Amounts: rules.Amounts{UserChargeMC: charge}}}
	case Release:
		if _, ok := p.holds[a.N]; !ok && !p.adopted {
			p.t.Fatalf("release of %d, which is not held: %v", a.N, p.holds)
		}
		delete(p.holds, a.N)
		return Released(a)
	}
	return nil
}

func provided(kind, reply string) FromProvider {
	return FromProvider{content: providerEvent{Type: kind, ResponseID: reply, Delta: "some words"}, Raw: []byte(`{"type":"` + kind + `"}`)}
}

// happens draws something that happens.
func (p *play) happens() {
	reply := fmt.Sprintf("resp_%d", rapid.IntRange(1, 6).Draw(p.t, "reply"))
	switch rapid.SampledFrom(strings.Fields("time time ledger ledger ledger ledger refuse ticket answered unanswered up up up down gone undialled control uncontrol speech silence created created created started stopped cleared delta done done done cut failed item update app-create app-approve app-end end now halt stop adopt")).Draw(p.t, "what") {
	case "time":
		p.now = p.now.Add(time.Duration(rapid.SampledFrom([]int{10, 500, 2500, 11000, 31000, 200000}).Draw(p.t, "ms")) * time.Millisecond)
		p.step(Tick{})
	case "ledger":
		p.ledgerActs(false)
	case "refuse":
		p.ledgerActs(true)
	case "ticket":
		p.step(TicketUsed{})
	case "answered":
		if p.s.Status == Pending && p.s.TicketUsed {
			p.call = true
		}
		if p.s.TicketUsed {
			p.step(CallAnswered{"rtc_1"})
		}
	case "unanswered":
		if p.s.Status == Pending {
			p.step(CallRefused{})
		}
	case "up":
		p.step(SidebandUp{})
	case "down":
		p.step(SidebandDown{})
	case "gone":
		p.step(SidebandDown{Gone: true})
	case "undialled":
		p.step(AttachFailed{Gone: rapid.Bool().Draw(p.t, "gone")})
	case "control":
		p.step(ControlUp{})
	case "uncontrol":
		p.step(ControlDown{})
	case "speech":
		p.step(provided("input_audio_buffer.speech_started", ""))
	case "silence":
		p.step(provided("input_audio_buffer.speech_stopped", ""))
	case "created":
		e := provided("response.created", "")
		e.content.Response = &responseObject{ID: reply, ConversationID: []byte(rapid.SampledFrom([]string{`"conv"`, `"conv"`, `"conv"`, "null"}).Draw(p.t, "conversation"))}
		p.step(e)
	case "started":
		p.step(provided("output_audio_buffer.started", reply))
	case "stopped":
		p.step(provided("output_audio_buffer.stopped", reply))
	case "cleared":
		p.step(provided("output_audio_buffer.cleared", reply))
	case "delta":
		p.step(provided("response.output_audio_transcript.delta", reply))
	case "done":
		e := provided("response.done", "")
		e.content.Response = &responseObject{ID: reply, Status: "completed", Usage: []byte(usage10)}
		if p.s.Status == Live {
			p.done[reply] = true
		}
		p.step(e)
	case "cut", "failed":
		e := provided("response.done", "")
		e.content.Response = &responseObject{ID: reply, Status: rapid.SampledFrom([]string{"cancelled", "failed"}).Draw(p.t, "status"), Usage: []byte("null")}
		p.step(e)
	case "item":
		e := provided("conversation.item.added", "")
		e.content.Item = &itemObject{Type: "function_call_output", CallID: "call_1"}
		p.step(e)
	case "update":
		e := provided("session.updated", "")
		e.content.Session = &sessionObject{Model: "other"}
		p.step(e)
	case "app-create":
		p.step(FromApp{AppEvent{Type: "response.create", Reply: &ReplyOptions{}}})
	case "app-approve":
		p.step(FromApp{AppEvent{Type: "svc.session.approve_block"}})
	case "app-end":
		p.step(FromApp{AppEvent{Type: "svc.session.end"}})
	case "end":
		p.step(EndRequested{})
	case "now":
		p.step(EndRequested{Immediate: true})
	case "halt":
		p.step(Halt{ConnectionRevoked})
	case "stop":
		p.step(Shutdown{})
	case "adopt":
		p.adopt()
	}
}

// adopt is what a new node finds: what the dead one asked of the ledger was done or
// never will be; holds that it made are there.
func (p *play) adopt() {
	if !p.s.TicketUsed || p.s.Status == Ended {
		return
	}
	p.adopted = true
	for _, a := range p.waiting { // some were carried out, and nobody learned of it
		if rapid.Bool().Draw(p.t, "done") {
			p.carryOut(a, false)
		}
	}
	p.waiting = nil
	p.step(Adopted{})
}

// TestRandomOrders lets everything happen in any order: whatever does, every session
// ends, gives back what it holds, bills each completed reply once, and an estimate
// only within a hold.
func TestRandomOrders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		for range rapid.IntRange(5, 120).Draw(t, "steps") {
			p.happens()
			if !p.adopted && (p.s.ChargedMC != p.entries || p.s.ReplyCount != p.rows) {
				t.Fatalf("charged %d in %d, rows %d in %d", p.s.ChargedMC, p.s.ReplyCount, p.entries, p.rows)
			}
		}
		for range 200 { // time passes, the ledger answers
			for len(p.waiting) > 0 {
				p.ledgerActs(false)
			}
			p.now = p.now.Add(20 * time.Second)
			p.step(Tick{})
		}
		if p.s.Status != Ended || p.finished != 1 || p.s.EndReason == "" {
			t.Fatalf("not ended: %s, finished %d times, %+v", p.s.Status, p.finished, p.s)
		}
		if len(p.holds) > 0 {
			t.Fatalf("held at the end: %v", p.holds)
		}
		for reply := range p.done {
			if p.billed[reply] != 1 && !p.adopted || p.billed[reply] == 0 {
				t.Fatalf("completed reply %s is billed %d times", reply, p.billed[reply])
			}
		}
		if p.s.ChargedMC != p.entries {
			t.Fatalf("charged %d, rows %d", p.s.ChargedMC, p.entries)
		}
	})
}

// at is a live session whose hold is made.
func at(now time.Time) State {
	s := State{Settings: Settings{ID: "rts_1", MaxOutputTokens: 1024, ContextTokens: 32000, MaxDuration: 15 * time.Minute, IdleTimeout: 2 * time.Minute}, Status: Pending, CreatedUS: now.UnixMicro(),
		TicketExpiresUS: now.Add(time.Minute).UnixMicro(), Config: Config{Model: "m", MaxOutputTokens: 1024, AutoReply: true}}
	for _, e := range []Event{Tick{}, HoldMade{1, 1000}, TicketUsed{}, CallAnswered{"rtc_1"}, SidebandUp{}} {
		s, _ = Step(s, e, now)
	}
	return s
}

// TestSteps goes through short stories: what happens, and the actions that follow.
func TestSteps(t *testing.T) {
	t.Parallel()
	reply := func(kind string) FromProvider {
		e := provided(kind, "resp_1")
		e.content.Response = &responseObject{ID: "resp_1", Status: "completed", Usage: []byte(usage10)}
		return e
	}
	lost := reply("response.done")
	lost.content.Response = &responseObject{ID: "resp_1", Status: "cancelled", Usage: []byte("null")}
	failed := reply("response.done")
	failed.content.Response = &responseObject{ID: "resp_1", Status: "failed"}
	beside := provided("response.created", "resp_2")
	beside.content.Response = &responseObject{ID: "resp_2"}
	paid := Settled{N: 1, ReplyID: "resp_1", Entry: &rules.Entry{Usage: "{}"}}
	for _, test := range []struct {
		name   string
		events []any // Event, or time.Duration
		want   string
	}{
		{"a reply is settled, then the next is held for", []any{reply("response.created"), reply("response.done"), Settled{N: 1, ReplyID: "resp_1", Entry: &rules.Entry{Usage: "{}"}}}, "settle 1, control svc.response.settled, hold 2"},
		{"usage is missing and nothing was said: released", []any{reply("response.created"), lost, Released{1}}, "release 1, hold 2"},
		{"usage is missing and something was said: estimated", []any{reply("response.created"), reply("output_audio_buffer.started"), time.Second, reply("output_audio_buffer.cleared"), lost}, "settle 1 estimated 20 audio"},
		{"a failed reply costs nothing", []any{reply("response.created"), failed}, "release 1"},
		{"the end of a reply whose start was missed", []any{reply("response.done")}, "settle 1"},
		{"a second done is nothing", []any{reply("response.created"), reply("response.done"), reply("response.done")}, "settle 1"},
		{"an end waits until the reply was heard", []any{reply("response.created"), reply("output_audio_buffer.started"), EndRequested{}, reply("response.done"), time.Second / 10}, "control svc.session.ending, session.update, settle 1"},
		{"and goes on when it was", []any{reply("response.created"), reply("output_audio_buffer.started"), EndRequested{}, reply("response.done"), reply("output_audio_buffer.stopped"), Settled{N: 1}}, "control svc.session.ending, session.update, settle 1, hang up, finish app_ended"},
		{"or was cut by the user's speech", []any{reply("response.created"), reply("output_audio_buffer.started"), EndRequested{}, reply("output_audio_buffer.cleared"), reply("response.done")}, "control svc.session.ending, session.update, settle 1, hang up"},
		{"or nobody says so", []any{reply("response.created"), reply("output_audio_buffer.started"), EndRequested{}, reply("response.done"), 6 * time.Second}, "control svc.session.ending, session.update, settle 1, hang up"},
		{"immediate cancels, and waits two seconds for the usage", []any{reply("response.created"), EndRequested{Immediate: true}, time.Second}, "control svc.session.ending, response.cancel"},
		{"and no longer", []any{reply("response.created"), reply("output_audio_buffer.started"), EndRequested{Immediate: true}, 2 * time.Second}, "control svc.session.ending, response.cancel, settle 1 estimated 40 audio, hang up"},
		{"without a next hold the last reply is heard to its end", []any{reply("response.created"), reply("output_audio_buffer.started"), reply("response.done"), paid, HoldRefused{2, "allocation_exhausted"}, time.Second / 10, reply("output_audio_buffer.stopped")},
			"settle 1, control svc.response.settled, hold 2, control svc.session.ending, session.update, hang up, finish allocation_exhausted"},
		{"and a reply that was faster than its hold is cut", []any{reply("response.created"), reply("response.done"), paid, beside, HoldRefused{2, "allocation_exhausted"}},
			"settle 1, control svc.response.settled, hold 2, control svc.session.ending, response.cancel"},
		{"nobody speaks", []any{2 * time.Minute, Released{1}}, "control svc.session.ending, session.update, hang up, release 1, finish idle_timeout"},
		{"a lost sideband is dialled again", []any{SidebandDown{}, 2 * time.Second, SidebandUp{}}, "dial again, session.update"},
		{"and not for ever", []any{SidebandDown{}, 4 * time.Second, Released{1}}, "dial again, control svc.session.ending, hang up, release 1, finish sideband_lost"},
		{"what comes with an end is cancelled and not let run", []any{EndRequested{}, reply("response.created")}, "control svc.session.ending, session.update, hang up, release 1, response.cancel"},
	} {
		now, s := start, at(start)
		var got []string
		for _, e := range test.events {
			if d, ok := e.(time.Duration); ok {
				now, e = now.Add(d), Tick{}
			}
			var todo []Action
			s, todo = Step(s, e.(Event), now)
			for _, a := range todo {
				got = append(got, said(a)...)
			}
		}
		if line := strings.Join(got, ", "); line != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, line, test.want)
		}
	}
}

// said names an action in words; what goes without saying is left out.
func said(a Action) []string {
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
		data, _ := json.Marshal(a.Event) // it is rendered as JSON for the app, too
		text := string(data)
		if i := strings.Index(text, `"svc.`); i >= 0 {
			return []string{"control " + text[i+1:i+1+strings.IndexByte(text[i+1:], '"')]}
		}
	case AttachSideband:
		return []string{"dial again"}
	case HangUp:
		return []string{"hang up"}
	case Finish:
		return []string{"finish " + a.Reason}
	}
	return nil
}

// TestReadUsage reads what providers say a reply used (provider notes D.7; edge case 48).
func TestReadUsage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*pricing.VoiceUsage{
		usage10: {TextInput: 8, TextCached: 4, AudioInput: 7, AudioCached: 1, TextOutput: 3, AudioOutput: 7},
		`{"input_tokens":140,"output_tokens":114,"input_token_details":{"text_tokens":89,"audio_tokens":51},"output_token_details":{"text_tokens":54,"audio_tokens":60,"reasoning_tokens":27}}`: {TextInput: 89, AudioInput: 51, TextOutput: 54, AudioOutput: 60},
		`{"input_tokens":5,"output_tokens":2}`: {TextInput: 5, TextOutput: 2},
		`{"input_tokens":5,"output_tokens":2,"input_token_details":{"text_tokens":5,"cached_tokens":3}}`: {TextInput: 2, TextCached: 3, TextOutput: 2},
		`null`: nil, ``: nil, `{}`: nil, `{"input_tokens":-1,"output_tokens":2}`: nil, `{"input_tokens":1.5,"output_tokens":2}`: nil, `{"input_tokens":5,"output_tokens":2,"input_token_details":{"text_tokens":9}}`: nil,
		`{"input_tokens":5,"output_tokens":2,"input_token_details":{"text_tokens":5,"cached_tokens_details":{"text_tokens":6}}}`: nil, `{"input_tokens":99999999999,"output_tokens":1}`: nil,
	} {
		got := readUsage([]byte(text))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
