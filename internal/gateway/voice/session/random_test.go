package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// play is a session whose ledger, provider and app do anything in any order. It counts what they
// did.
type play struct {
	t        *rapid.T
	s        State
	now      time.Time
	waiting  []Action           // for the ledger, in their order
	holds    map[int64]money.MC // open holds, by reply
	lastHold int64
	chargeMC money.MC // sum of the ledger rows
	rows     int64
	settled  map[int64]money.MC // ledger rows, by reply
	adopted  bool
	done     map[string]bool // completed replies whose usage the provider reported
	billed   map[string]int
	spoken   map[int64]bool // the holds of transcripts, by number
	finished int
	hangUps  int
	hasCall  bool
}

// happenings are what a play draws from; a word that stands there more often is drawn more often.
var happenings = strings.Fields(`
	time time ledger ledger ledger ledger refuse ticket answered unanswered up up up down gone undialled control
	uncontrol speech speech silence silence transcript transcript untranscribed created created created started
	stopped cleared delta done done done cut failed item
	hungup silent may update app-create app-approve app-end end now halt stop adopt`)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newPlay(t *rapid.T) *play {
	p := &play{
		t:       t,
		now:     start,
		holds:   map[int64]money.MC{},
		settled: map[int64]money.MC{},
		done:    map[string]bool{},
		billed:  map[string]int{},
		spoken:  map[int64]bool{},
	}
	settings := Settings{
		ID:               "rts_1",
		MaxOutputTokens:  1024,
		ContextTokens:    32000,
		MaxDuration:      15 * time.Minute,
		IdleTimeout:      2 * time.Minute,
		Mock:             rapid.Bool().Draw(t, "mock"),
		EndOnControlLost: rapid.Bool().Draw(t, "end"),
	}
	if rapid.Bool().Draw(t, "bounded") {
		most, block := money.MC(900), money.MC(250)
		settings.MaxCostMC, settings.BudgetBlockMC, settings.ConfirmBlocks = &most, &block, true
	}
	p.s = State{
		Settings:        settings,
		Status:          Pending,
		CreatedUS:       start.UnixMicro(),
		TicketExpiresUS: start.Add(time.Minute).UnixMicro(),
		Config:          Config{Model: "m", MaxOutputTokens: 1024, AutoReply: true},
	}
	if rapid.Bool().Draw(t, "transcribed") {
		p.s.Config.Transcription = &Transcription{Model: "m"}
	}
	p.step(Tick{})
	return p
}

// step gives the session an event and checks what it asks for.
func (p *play) step(e Event) {
	was := p.s.Status
	next, todo := Step(p.s, e, p.now)
	p.s = next
	for i, a := range todo {
		switch a := a.(type) {
		case Persist:
			if i != 0 {
				p.t.Fatal("saved after another action")
			}
		case Hold:
			p.waiting = append(p.waiting, a)
			if a.N <= p.lastHold || min(a.Text, a.TextCached, a.Audio, a.AudioCached) < 0 {
				p.t.Fatalf("hold %+v after %d", a, p.lastHold)
			}
			p.lastHold = a.N
			p.spoken[a.N] = a.Transcript
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
			if p.hasCall && p.hangUps == 0 {
				p.t.Fatal("ended without hanging up")
			}
		}
	}
	if was == Ended && len(todo) > 0 {
		p.t.Fatalf("after the end: %v", todo)
	}
	replies := 0
	for n := range p.holds {
		if !p.spoken[n] {
			replies++
		}
	}
	if replies > 1 && !p.adopted {
		p.t.Fatalf("two holds of replies at once: %v", p.holds)
	}
}

// runLedger carries out the oldest command of the ledger.
func (p *play) runLedger(refuse bool) {
	if len(p.waiting) == 0 {
		return
	}
	a := p.waiting[0]
	p.waiting = p.waiting[1:]
	if e := p.answerLedger(a, refuse); e != nil {
		p.step(e)
	}
}

// answerLedger carries out a command as the ledger would, and returns its answer.
func (p *play) answerLedger(a Action, refuse bool) Event {
	switch a := a.(type) {
	case Hold:
		if refuse {
			return HoldRefused{a.N, "allocation_exhausted"}
		}
		p.holds[a.N] = 1000
		output := rapid.SampledFrom([]int64{0, 1024, 100}).Draw(p.t, "output")
		return HoldMade{N: a.N, AmountMC: 1000, MaxOutputTokens: output}
	case Settle:
		held, ok := p.holds[a.N]
		delete(p.holds, a.N)
		if _, was := p.settled[a.N]; !ok && a.Estimated && !was { // its hold was refused: nothing may be charged
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
			p.chargeMC += charge
			if !a.Transcript {
				p.rows++
			}
		}
		return Settled{
			N:       a.N,
			ReplyID: a.ReplyID,
			Entry:   &rules.Entry{ID: "led_1", Usage: "{}", Amounts: rules.Amounts{UserChargeMC: charge}},
		}
	case Release:
		if _, ok := p.holds[a.N]; !ok && !p.adopted {
			p.t.Fatalf("release of %d, which is not held: %v", a.N, p.holds)
		}
		delete(p.holds, a.N)
		return Released(a)
	}
	return nil
}

// spoken is an event of an item of the user's speech.
func spoken(kind, item string) FromProvider {
	e := provided(kind, "")
	e.content.ItemID = item
	return e
}

func provided(kind, reply string) FromProvider {
	return FromProvider{content: providerEvent{
		Type:       kind,
		ResponseID: reply,
		Delta:      "some words",
	}, Raw: []byte(`{"type":"` + kind + `"}`)}
}

// happens draws an event.
func (p *play) happens() {
	reply := fmt.Sprintf("resp_%d", rapid.IntRange(1, 6).Draw(p.t, "reply"))
	switch rapid.SampledFrom(happenings).Draw(p.t, "what") {
	case "time":
		ms := rapid.SampledFrom([]int{10, 500, 2500, 11000, 31000, 200000}).Draw(p.t, "ms")
		p.now = p.now.Add(time.Duration(ms) * time.Millisecond)
		p.step(Tick{})
	case "ledger":
		p.runLedger(false)
	case "refuse":
		p.runLedger(true)
	case "ticket":
		p.step(TicketUsed{})
	case "answered":
		if p.s.Status == Pending && p.s.TicketUsed {
			p.hasCall = true
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
	case "hungup":
		if p.hangUps > 0 {
			p.step(CallGone{})
		}
	case "may":
		p.step(MaySpend{})
	case "silent":
		if rapid.IntRange(0, 9).Draw(p.t, "rarely") == 0 {
			p.step(DatabaseSilent{})
		}
	case "undialled":
		p.step(AttachFailed{Gone: rapid.Bool().Draw(p.t, "gone")})
	case "control":
		p.step(ControlUp{})
	case "uncontrol":
		p.step(ControlDown{})
	case "speech":
		p.step(spoken("input_audio_buffer.speech_started", reply))
	case "silence":
		p.step(spoken("input_audio_buffer.speech_stopped", reply))
	case "transcript":
		e := spoken(transcriptCompleted, reply)
		usages := []string{usage10, "null", `{"type":"duration","seconds":2}`}
		e.content.Usage = []byte(rapid.SampledFrom(usages).Draw(p.t, "usage"))
		if string(e.content.Usage) == usage10 {
			e.content.Usage = []byte(`{"input_tokens":12,"output_tokens":3,
				"input_token_details":{"audio_tokens":12}}`)
			if p.s.Status == Live && p.s.Config.Transcription != nil {
				p.done[transcriptID+reply] = true
			}
		}
		p.step(e)
	case "untranscribed":
		p.step(spoken(transcriptFailed, reply))
	case "created":
		e := provided("response.created", "")
		e.content.Response = &responseObject{
			ID: reply,
			ConversationID: []byte(rapid.SampledFrom([]string{`"conv"`, `"conv"`, `"conv"`, "null"}).Draw(p.t,
				"conversation")),
		}
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
		e.content.Response = &responseObject{
			ID:     reply,
			Status: rapid.SampledFrom([]string{"cancelled", "failed"}).Draw(p.t, "status"),
			Usage:  []byte("null"),
		}
		p.step(e)
	case "item":
		e := provided("conversation.item.added", "")
		e.content.Item = &itemObject{Type: "function_call_output", CallID: "call_1"}
		p.step(e)
	case "update":
		e := provided("session.updated", "")
		e.content.Session = &sessionObject{Model: []byte(`"other"`)}
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

// adopt lets another node take over: each command of the dead node was carried out or never will be,
// and its holds are there.
func (p *play) adopt() {
	if !p.s.TicketUsed || p.s.Status == Ended {
		return
	}
	p.adopted = true
	for _, a := range p.waiting { // some were carried out, but the answer was lost
		if rapid.Bool().Draw(p.t, "done") {
			p.answerLedger(a, false)
		}
	}
	p.waiting = nil
	p.step(Adopted{})
}

// TestRandomOrders: in any order of events every session ends, releases its holds, bills each completed reply and each
// completed transcript once, and bills an estimate only within a hold.
func TestRandomOrders(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		for range rapid.IntRange(5, 120).Draw(t, "steps") {
			p.happens()
			if !p.adopted && (p.s.ChargedMC != p.chargeMC || p.s.ReplyCount != p.rows) {
				t.Fatalf("charged %d in %d, rows %d in %d", p.s.ChargedMC, p.s.ReplyCount, p.chargeMC, p.rows)
			}
		}
		for range 200 { // time passes, the ledger answers
			for len(p.waiting) > 0 {
				p.runLedger(false)
			}
			p.now = p.now.Add(20 * time.Second)
			p.step(Tick{})
			if p.hangUps > 0 && p.s.Status != Ended {
				p.step(CallGone{})
			}
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
		if p.s.ChargedMC != p.chargeMC {
			t.Fatalf("charged %d, rows %d", p.s.ChargedMC, p.chargeMC)
		}
	})
}
