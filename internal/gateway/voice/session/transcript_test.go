package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// TestTranscripts goes through short stories of a session that has what its user says written down: each transcript is
// held when the speech begins, and billed by itself, once.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	known := storyEvents()
	done := func(usage string) Event {
		e, _ := ParseProviderEvent([]byte(`{"type":"conversation.item.input_audio_transcription.completed",` +
			`"item_id":"item_1","transcript":"` + strings.Repeat("word ", 10) + `","usage":` + usage + `}`))
		return e
	}
	usage := `{"type":"tokens","input_tokens":30,"output_tokens":9,"total_tokens":39,` +
		`"input_token_details":{"text_tokens":2,"audio_tokens":28}}`
	charge := rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: 10}}
	for word, e := range map[string]Event{
		"speaks":     spoken("input_audio_buffer.speech_started", "item_1"),
		"spoke":      spoken("input_audio_buffer.speech_stopped", "item_1"),
		"written":    done(usage),
		"unmeasured": done("null"),
		"by seconds": done(`{"type":"duration","seconds":3}`),
		"absurd":     done(`{"input_tokens":2000000,"output_tokens":1}`),
		"unwritten":  spoken(transcriptFailed, "item_1"),
		"held 2":     HoldMade{N: 2},
		"no room 2":  HoldRefused{2, "allocation_exhausted"},
		"gone 2":     Released{2},
		"charged 2":  Settled{N: 2, ReplyID: "transcript/item_1", Entry: &charge},
		"charged 3":  Settled{N: 3, ReplyID: "transcript/item_1", Entry: &charge},
		"adopted":    Adopted{},
	} {
		known[word] = e
	}
	for _, test := range []struct{ name, events, want string }{
		{"held at the begin, billed at the end", "speaks, held 2, 3s, spoke, written, charged 2",
			"hold 2, settle 2, svc.transcription.settled"},
		{"the hold may come later", "speaks, 3s, spoke, written, held 2, charged 2",
			"hold 2, settle 2, svc.transcription.settled"},
		{"a late one waits for no reply", "speaks, held 2, 3s, spoke, created, done, charged, 30s, written, charged 2",
			"hold 2, settle 1, svc.response.settled, hold 3, settle 2, svc.transcription.settled"},
		{"a second event changes nothing", "speaks, held 2, 3s, spoke, written, written, charged 2, written",
			"hold 2, settle 2, svc.transcription.settled"},
		{"a failed one costs nothing", "speaks, held 2, 3s, spoke, unwritten, gone 2", "hold 2, release 2"},
		{"also before it is held", "speaks, unwritten, held 2, gone 2", "hold 2, release 2"},
		{"usage is missing: by the spoken seconds", "speaks, held 2, 3900ms, spoke, unmeasured",
			"hold 2, settle 2 estimated 30 in 10 out"},
		{"or is of seconds, which have no price", "speaks, held 2, 3900ms, spoke, by seconds",
			"hold 2, settle 2 estimated 30 in 10 out"},
		{"or cannot be", "speaks, held 2, 3900ms, spoke, absurd", "hold 2, settle 2 estimated 30 in 10 out"},
		{"it never comes", "speaks, held 2, 3s, spoke, 59s, 1s, gone 2", "hold 2, release 2"},
		{"what comes later still is free", "speaks, held 2, 3s, spoke, 60s, written, gone 2, written",
			"hold 2, release 2"},
		{"as is one that had failed", "speaks, held 2, 3s, spoke, unwritten, written, gone 2, written",
			"hold 2, release 2"},
		{"its hold is refused when it has come", "speaks, written, no room 2, charged 2",
			"hold 2, settle 2, svc.transcription.settled"},
		{"no room for its hold: it takes what is left", "speaks, no room 2, 3s, spoke, written, charged 3",
			"hold 2, settle 3, svc.transcription.settled"},
		{"and an estimate is free", "speaks, no room 2, 3s, spoke, unmeasured", "hold 2"},
		{"one whose speech was missed", "written, charged 2", "settle 2, svc.transcription.settled"},
		{"its end is missed with the sideband", "speaks, held 2, down, up, 119s, 1s, gone 2",
			"hold 2, attach again, unmetered 0s 0 audio, session.update, release 1, release 2"},
		{"or comes after it", "speaks, held 2, down, up, 3s, spoke, 59s, 1s, gone 2",
			"hold 2, attach again, unmetered 0s 0 audio, session.update, release 2"},
		{"the end releases what does not come", "speaks, held 2, 3s, spoke, end now, hung up, released, gone 2",
			"hold 2, svc.session.ending, session.update, hang up, release 1, release 2, finish app_ended"},
		{"another node charges it without the hold", "speaks, held 2, 3s, spoke, adopted",
			"hold 2, release 2, release 1, attach again"},
	} {
		now, s := start, at(start)
		s.Config.Transcription = &Transcription{Model: "w"}
		var got []string
		for word := range strings.SplitSeq(test.events, ", ") {
			e, ok := known[word]
			if !ok {
				d, err := time.ParseDuration(word)
				if err != nil {
					t.Fatalf("%s: %q is no event", test.name, word)
				}
				now, e = now.Add(d), Tick{}
			}
			var actions []Action
			s, actions = Step(s, e, now)
			for _, a := range actions {
				if c, ok := a.(Settle); ok && c.Transcript && c.Estimated {
					got = append(got, fmt.Sprintf("settle %d estimated %d in %d out", c.N, c.Usage.AudioInput,
						c.Usage.TextOutput))
					continue
				}
				if c, ok := a.(Settle); ok && c.Transcript &&
					(c.Usage != pricing.VoiceUsage{TextInput: 2, AudioInput: 28, TextOutput: 9} || c.Silent) {
					t.Errorf("%s: %+v", test.name, c)
				}
				got = append(got, describe(a)...)
			}
		}
		if line := strings.Join(got, ", "); line != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, line, test.want)
		}
	}
}

// TestTranscriptsAreBounded: a browser may end a speech as often as it likes, so that none is held for. Each transcript
// leaves a row, and so their number ends the session as that of replies does.
func TestTranscriptsAreBounded(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Config.Transcription, s.Numbers = &Transcription{Model: "w"}, MaxReplies-2
	for i := range 2 {
		if s.Ending != nil {
			t.Fatalf("ended after %d transcripts: %+v", i, s.Ending)
		}
		e, _ := ParseProviderEvent(fmt.Appendf(nil, `{"type":"conversation.item.input_audio_transcription.completed",`+
			`"item_id":"item_%d","usage":{"input_tokens":9,"output_tokens":1}}`, i))
		s, _ = Step(s, e, start)
	}
	if s.Ending == nil || s.Ending.Reason != RateLimited || len(s.Unsettled) != 2 {
		t.Errorf("%+v, %d charges", s.Ending, len(s.Unsettled))
	}
}

// TestTranscriptsAreOff: without a transcription nothing is held for, relayed or billed. A transcript that comes all
// the same counts as tampering, once: a browser has switched it on, which somebody has to pay.
func TestTranscriptsAreOff(t *testing.T) {
	t.Parallel()
	s := at(start)
	for _, raw := range []string{
		`{"type":"input_audio_buffer.speech_started","item_id":"item_1"}`,
		`{"type":"conversation.item.input_audio_transcription.completed","item_id":"item_1","transcript":"Hello",` +
			`"usage":{"input_tokens":9,"output_tokens":1}}`,
	} {
		e, _ := ParseProviderEvent([]byte(raw))
		var actions []Action
		s, actions = Step(s, e, start)
		for _, a := range actions {
			if words := describe(a); len(words) > 0 && words[0] != "svc.session.config_reset" {
				t.Errorf("%s: %v", raw, words)
			}
			if app, ok := a.(ToApp); ok && strings.Contains(fmt.Sprintf("%s", app.Event), "Hello") {
				t.Errorf("relayed: %s", app.Event)
			}
		}
	}
	if s.ConfigResets != 1 {
		t.Errorf("%d attempts", s.ConfigResets)
	}
	for i, want := range []int64{1, 2, 3, 3} { // the first is told twice, and after the third the session ends
		e, _ := ParseProviderEvent(fmt.Appendf(nil, `{"type":"conversation.item.input_audio_transcription.completed",`+
			`"item_id":"item_%d"}`, i+1))
		if s, _ = Step(s, e, start); s.ConfigResets != want {
			t.Errorf("item_%d: %d attempts, want %d", i+1, s.ConfigResets, want)
		}
	}
	if s.Ending == nil || s.Ending.Reason != ConfigTampering {
		t.Errorf("%+v", s.Ending)
	}
}

// TestTranscriptBudget: a transcript counts in what is left of max_cost_mc, and ends the session when nothing is.
func TestTranscriptBudget(t *testing.T) {
	t.Parallel()
	most := money.MC(1000)
	s := at(start)
	s.MaxCostMC, s.Config.Transcription = &most, &Transcription{Model: "w"}
	s, actions := Step(s, spoken("input_audio_buffer.speech_started", "item_1"), start)
	var held *money.MC
	for _, a := range actions {
		if h, ok := a.(Hold); ok {
			held = h.BudgetMC
		}
	}
	if held == nil || *held != most {
		t.Errorf("held within %v", held)
	}
	e, _ := ParseProviderEvent([]byte(`{"type":"conversation.item.input_audio_transcription.completed",` +
		`"item_id":"item_1","usage":{"input_tokens":9,"output_tokens":1}}`))
	s, _ = Step(s, e, start)
	charge := &rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: most}}
	s, _ = Step(s, Settled{N: 2, ReplyID: "transcript/item_1", Entry: charge}, start)
	if s.ChargedMC != most || s.ReplyCount != 0 || s.Ending == nil || s.Ending.Reason != MaxCost {
		t.Errorf("charged %d in %d replies, %+v", s.ChargedMC, s.ReplyCount, s.Ending)
	}
	s = at(start) // the rest of an allocation
	s.Unsettled = []Settle{{N: 2, ReplyID: "transcript/item_1", Transcript: true}}
	s, _ = Step(s, Settled{N: 2, ReplyID: "transcript/item_1", Entry: charge, Exhausted: "allocation_exhausted"}, start)
	if s.Ending == nil || s.Ending.Reason != "allocation_exhausted" {
		t.Errorf("a transcript that cost more than was left: %+v", s.Ending)
	}
}
