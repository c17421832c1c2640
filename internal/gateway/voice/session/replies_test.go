package session

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// replyEvent is an event of the provider about a reply.
func replyEvent(kind string, r responseObject) Event {
	e := FromProvider{content: providerEvent{Type: kind, ResponseID: r.ID}}
	e.content.Response = &r
	return e
}

// settles returns the charges of actions.
func settles(actions []Action) (list []Settle) {
	for _, a := range actions {
		if charge, ok := a.(Settle); ok {
			list = append(list, charge)
		}
	}
	return list
}

// TestHoldAnswers: only the answer to the current hold counts, and only while it is waited for.
func TestHoldAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold  HoldPhase
		event Event
		want  HoldPhase
	}{
		"made":               {Requested, HoldMade{N: 7}, Held},
		"another made":       {Requested, HoldMade{N: 6}, Requested},
		"made unasked":       {NoHold, HoldMade{N: 7}, NoHold},
		"made too late":      {Releasing, HoldMade{N: 7}, Releasing},
		"released":           {Releasing, Released{7}, NoHold},
		"another released":   {Releasing, Released{6}, Releasing},
		"released unasked":   {Held, Released{7}, Held},
		"refused":            {Requested, HoldRefused{7, "allocation_exhausted"}, NoHold},
		"another refused":    {Requested, HoldRefused{6, "allocation_exhausted"}, Requested},
		"refused when it is": {Held, HoldRefused{7, "allocation_exhausted"}, Releasing}, // by the end that follows
	} {
		s := at(start)
		s.Hold, s.HoldN, s.LastN, s.HoldText, s.HoldAudio = c.hold, 7, 7, 1000, 1000
		s.Unsettled = []Settle{{N: 1}} // nothing is held meanwhile
		if s, _ = Step(s, c.event, start); s.Hold != c.want {
			t.Errorf("%s: %q, want %q", name, s.Hold, c.want)
		}
	}
}

// TestOutgrownHold: a hold is made again when the next reply may read more than it covers. Text may take the place of
// speech, and no speech that of text.
func TestOutgrownHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, audio int64 // that may be read
		want        bool
	}{
		{100, 50, false}, {120, 30, false}, {121, 30, true}, {101, 50, true}, {0, 60, true}, {0, 50, false},
		{140, 10, false},
	} {
		m := machine{State: at(start), nowUS: start.UnixMicro()}
		m.HoldText, m.HoldAudio = 100, 50
		m.Context = pricing.VoiceUsage{TextInput: c.text, AudioInput: c.audio - AudioInputPerSecond}
		if got := m.hasOutgrownHold(); got != c.want {
			t.Errorf("%d text and %d audio of 100 and 50: %t", c.text, c.audio, got)
		}
	}
}

// TestBilledReplies: a reply is charged to the hold that it has, also one that is still asked for. A reply that has
// none is charged by its usage alone, and not by an estimate.
func TestBilledReplies(t *testing.T) {
	t.Parallel()
	usage := pricing.VoiceUsage{
		TextInput: 8, TextCached: 4, AudioInput: 7, AudioCached: 1, TextOutput: 3, AudioOutput: 7,
	}
	second := start.Add(time.Second).UnixMicro()
	for name, c := range map[string]struct {
		hold  HoldPhase
		reply Reply
		usage string
		want  *Settle
		after HoldPhase
	}{
		"held": {Held, Reply{Held: true, AudioUS: second}, usage10,
			&Settle{N: 7, Usage: usage, FirstAudioMS: 1000, DurationMS: 2000, Status: "completed"}, NoHold},
		"asked for": {Requested, Reply{Held: true}, usage10,
			&Settle{N: 7, Usage: usage, DurationMS: 2000, Status: "completed"}, NoHold},
		"without its hold": {Held, Reply{}, usage10,
			&Settle{N: 8, Usage: usage, Unheld: true, DurationMS: 2000, Status: "completed"}, Held},
		"its hold is released": {Releasing, Reply{Held: true}, usage10,
			&Settle{N: 8, Usage: usage, Unheld: true, DurationMS: 2000, Status: "completed"}, Releasing},
		"estimated": {Held, Reply{Held: true, AudioUS: second}, "null", &Settle{
			N: 7, Usage: pricing.VoiceUsage{AudioOutput: 20}, Estimated: true, FirstAudioMS: 1000, DurationMS: 2000,
			Status: "completed",
		}, NoHold},
		"estimated without a hold": {Held, Reply{AudioUS: second}, "null", nil, Held},
		"nothing of it":            {Held, Reply{Held: true}, "null", nil, Releasing},
	} {
		s := at(start)
		s.Hold, s.HoldN, s.LastN, s.HoldText, s.HoldAudio = c.hold, 7, 7, 1000, 1000
		s.Unsettled = []Settle{{N: 1}}
		c.reply.ID, c.reply.StartedUS, c.reply.EventUS = "resp_1", start.UnixMicro(), start.UnixMicro()
		s.Replies = []Reply{c.reply}
		done := replyEvent("response.done", responseObject{ID: "resp_1", Status: "completed", Usage: []byte(c.usage)})
		s, actions := Step(s, done, start.Add(2*time.Second))
		got, told := settles(actions), slices.ContainsFunc(sent(actions), func(a string) bool {
			return strings.Contains(a, `"svc.response.settled","session_id":"rts_1","response_id":"resp_1",`+
				`"receipt":null`)
		})
		if c.want != nil {
			c.want.ReplyID = "resp_1"
		}
		if c.want != nil && c.want.Estimated && s.AddedTextTokens != c.want.Usage.Output() {
			t.Errorf("%s: the next reply reads %d more", name, s.AddedTextTokens)
		}
		if s.Hold != c.after || (len(got) == 1) != (c.want != nil) || len(got) == 1 && got[0] != *c.want ||
			!slices.Contains(actions, Action(Persist{})) || told != (c.want == nil) || len(s.Unsettled) != 1+len(got) ||
			slices.Contains(s.BilledIDs, "resp_1") == told {
			t.Errorf("%s: %+v, want %+v; hold %q, %+v", name, got, c.want, s.Hold, s)
		}
	}
}

// TestReplyOfNothing: a reply of which nothing was heard has read its context, as when its browser hangs up at once. It
// is charged by our count, which is free as far as the ledger allows, unless the provider says that it has failed or
// cost nothing.
func TestReplyOfNothing(t *testing.T) {
	t.Parallel()
	ends := func(status, usage string) Event {
		return replyEvent("response.done", responseObject{ID: "resp_1", Status: status, Usage: []byte(usage)})
	}
	const zeros = `{"input_tokens":0,"output_tokens":0}`
	for name, c := range map[string]struct {
		end    Event
		unheld bool
		want   bool
	}{
		"hung up":           {SidebandDown{Gone: true}, false, true},
		"cancelled":         {ends("cancelled", "null"), false, true},
		"completed":         {ends("completed", "null"), false, true},
		"without a hold":    {ends("completed", "null"), true, false},
		"its end is missed": {replyEvent("response.created", responseObject{ID: "resp_2"}), false, false},
		"another node":      {Adopted{}, false, false},
		"failed":            {ends("failed", "null"), false, false},
		"failed for zeros":  {ends("failed", zeros), false, false},
		"zeros":             {ends("cancelled", zeros), false, false},
	} {
		s := at(start)
		s.Context = pricing.VoiceUsage{TextInput: 100, TextCached: 20, AudioInput: 30}
		s.Replies = []Reply{{ID: "resp_1", Held: !c.unheld, StartedUS: start.UnixMicro(), EventUS: start.UnixMicro()}}
		s, actions := Step(s, c.end, start.Add(time.Second))
		got := settles(actions)
		if (len(got) == 1) != c.want {
			t.Errorf("%s: %+v", name, got)
		} else if c.want && (!got[0].Silent || !got[0].Estimated || got[0].N != 1 ||
			got[0].Usage != pricing.VoiceUsage{TextCached: 120, AudioCached: 30}) {
			t.Errorf("%s: %+v", name, got[0])
		}
		if s.Hold == Held && s.HoldN == 1 && !c.unheld {
			t.Errorf("%s: still held", name)
		}
	}
}

// TestStopAfterAHangUp: what stops the session while its sideband is away, after the browser has hung up at once, finds
// the reply as the end of the call would.
func TestStopAfterAHangUp(t *testing.T) {
	t.Parallel()
	for _, stop := range []Event{Halt{Reason: "connection_revoked"}, EndRequested{Immediate: true}} {
		s := at(start)
		s.Context = pricing.VoiceUsage{TextInput: 100}
		s.Replies = []Reply{{ID: "resp_1", Held: true, StartedUS: start.UnixMicro(), EventUS: start.UnixMicro()}}
		s, lost := Step(s, SidebandDown{Clean: true}, start.Add(time.Second))
		_, actions := Step(s, stop, start.Add(1100*time.Millisecond))
		if got := settles(append(lost, actions...)); len(got) != 1 || !got[0].Silent || got[0].Usage.TextCached != 100 {
			t.Errorf("%T: %+v", stop, got)
		}
	}
}

// TestSettledReplies: a charge is told with its receipt and what is left, counted, and compared with the bounds of the
// session: the app is warned of fast spend, and of each budget block once.
func TestSettledReplies(t *testing.T) {
	t.Parallel()
	block, s := money.MC(250), at(start)
	s.BudgetBlockMC = &block
	charged := int64(0)
	for i, c := range []struct {
		charge money.MC
		fast   bool
		want   []string
	}{
		{249, false, nil},
		{1, false, []string{`"svc.session.budget_checkpoint","session_id":"rts_1","charged_mc":250,` +
			`"charged_display":"$0.0000025","budget_block_mc":250,"blocks":1,"approval_required":false,` +
			`"approve_by":null}`}},
		{100, true, []string{`"svc.session.spend_warning","session_id":"rts_1","reason":"pace","charged_mc":350,` +
			`"charged_display":"$0.0000035","max_cost_mc":null}`}},
		{400, false, []string{`"svc.session.budget_checkpoint","session_id":"rts_1","charged_mc":750,` +
			`"charged_display":"$0.0000075","budget_block_mc":250,"blocks":3,"approval_required":false,` +
			`"approve_by":null}`}},
	} {
		n := int64(100 + i)
		s.Unsettled = []Settle{{N: n, ReplyID: "resp_1"}}
		entry := rules.Entry{
			ID: "led_1", Usage: `{}`, HoldMC: 9, RemainingMC: 77, PaidBy: rules.PaidByWallet,
			Amounts: rules.Amounts{ProviderCostMC: 3, SvcFeeMC: 2, DevMarginMC: 1, UserChargeMC: c.charge},
		}
		var actions []Action
		s, actions = Step(s, Settled{N: n, ReplyID: "resp_1", Entry: &entry, FastSpend: c.fast}, start)
		charged += int64(c.charge)
		if actions[0] != (Persist{}) {
			t.Errorf("charge %d is not saved: %v", i, actions)
		}
		got := slices.DeleteFunc(sent(actions), func(a string) bool { return !strings.HasPrefix(a, "app ") })
		if len(got) != 1+len(c.want) || !strings.Contains(got[0], `"receipt":{"id":"led_1",`) ||
			!strings.Contains(got[0], `"allocation_remaining_mc":77}`) || int64(s.ChargedMC) != charged ||
			s.ReplyCount != int64(i+1) || len(s.Unsettled) != 0 {
			t.Errorf("charge %d: %s", i, got)
			continue
		}
		for j, want := range c.want {
			if !strings.HasSuffix(got[1+j], want) {
				t.Errorf("charge %d: %s, want …%s", i, got[1+j], want)
			}
		}
	}
	was := s.ChargedMC
	ending := s
	ending.Ending, ending.Unsettled = &Ending{Reason: AppEnded, HungUp: true}, []Settle{{N: 9}}
	more := &rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: 900}}
	_, actions := Step(ending, Settled{N: 9, Entry: more, FastSpend: true}, start)
	text := strings.Join(sent(actions), " ")
	if strings.Contains(text, "warning") || strings.Contains(text, "checkpoint") {
		t.Errorf("a session that ends is warned: %s", sent(actions))
	}
	again := &rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: 9}}
	if s, _ = Step(s, Settled{N: 103, Entry: again}, start); was != s.ChargedMC {
		t.Error("a charge is counted twice")
	}
}

// TestMaxCostOfHolds: a hold that max_cost_mc has lowered warns the app once, and not while the session ends.
func TestMaxCostOfHolds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		atMax, warned, ends bool
		want                int
	}{
		"lowered": {true, false, false, 1}, "not lowered": {false, false, false, 0}, "warned": {true, true, false, 0},
		"ending": {true, false, true, 0},
	} {
		s := at(start)
		s.Hold, s.CostWarned = Requested, c.warned
		if c.ends {
			s.Ending = &Ending{Reason: AppEnded, HungUp: true, Immediate: true}
		}
		s, actions := Step(s, HoldMade{N: s.HoldN, NearMaxCost: c.atMax}, start)
		n := 0
		for _, a := range sent(actions) {
			n += strings.Count(a, `"reason":"max_cost"`)
		}
		if n != c.want || s.CostWarned != (c.warned || c.want > 0) {
			t.Errorf("%s: %d warnings, %t", name, n, s.CostWarned)
		}
	}
}

// TestUnheardSpeech: what the first usage after a gap has more of speech than is known was said in the gap.
func TestUnheardSpeech(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ input, cached, more int64 }{{100, 20, 5}, {95, 20, 0}, {96, 20, 1}, {10, 0, 0}} {
		s := at(start)
		s.Unheard, s.AddedTextTokens, s.UserSpeech = true, 10, 4500*time.Millisecond
		s.Context = pricing.VoiceUsage{AudioInput: 20, AudioCached: 15, AudioOutput: 20}
		m := machine{State: s, nowUS: start.UnixMicro()}
		usage := pricing.VoiceUsage{AudioInput: c.input, AudioCached: c.cached}
		m.readContext(&Reply{Speech: time.Second, AddedText: 4}, &usage)
		var more int64
		for _, a := range m.actions {
			more += a.(Unmetered).AudioTokens
		}
		if more != c.more || (len(m.actions) > 0) != (more > 0) || m.Unheard || m.AddedTextTokens != 6 ||
			m.UserSpeech != 3500*time.Millisecond || m.Context.AudioInput != c.input {
			t.Errorf("%d and %d: %d more, %+v", c.input, c.cached, more, m.State)
		}
		m = machine{State: s, nowUS: start.UnixMicro()}
		if m.readContext(&Reply{OutOfBand: true}, &usage); m.Context != s.Context || !m.Unheard {
			t.Errorf("an aside changes the context: %+v", m.State)
		}
	}
}

// TestReceipts renders a row: the cached counts are part of the input counts.
func TestReceipts(t *testing.T) {
	t.Parallel()
	r := NewReceipt(&rules.Entry{Settlement: rules.Estimated, Usage: string(EncodeJSON(pricing.VoiceUsage{
		TextInput: 1, TextCached: 2, AudioInput: 4, AudioCached: 8, ImageInput: 16, ImageCached: 32, TextOutput: 64,
		AudioOutput: 128,
	}))}, KindReply)
	if r.UsageDetail != (UsageDetail{
		Input: Modalities{3, 12, 48}, Cached: Modalities{2, 8, 32},
		Output: Modalities{TextTokens: 64, AudioTokens: 128},
	}) || r.InputTokens != 63 || r.OutputTokens != 192 || r.UsageSource != "estimated" {
		t.Errorf("%+v", r)
	}
	if r := NewReceipt(&rules.Entry{Settlement: rules.Settled, Usage: "{}"}, KindReply); r.UsageSource != "provider" {
		t.Errorf("%+v", r)
	}
}

// TestFailuresInARow: three replies in a row that the provider fails end the session.
func TestFailuresInARow(t *testing.T) {
	t.Parallel()
	for story, ends := range map[string]bool{"fff": true, "ffcff": false, "ffcfff": true, "ff": false} {
		s := at(start)
		for i, c := range story {
			status := map[rune]string{'f': "failed", 'c': "completed"}[c]
			ended := responseObject{ID: "resp_" + string(rune('a'+i)), Status: status}
			s, _ = Step(s, replyEvent("response.done", ended), start)
		}
		if (s.Ending != nil) != ends || ends && (s.Ending.Reason != ProviderError || !s.Ending.Immediate) {
			t.Errorf("%s: %d failures, %+v", story, s.Failures, s.Ending)
		}
	}
}

// TestBegunReplies: a reply begins once, and takes the hold from one whose end was missed; an aside does not.
func TestBegunReplies(t *testing.T) {
	t.Parallel()
	begins := func(id string) Event { return replyEvent("response.created", responseObject{ID: id}) }
	heard := replyEvent("output_audio_buffer.started", responseObject{ID: "a"})
	aside := replyEvent("response.created", responseObject{ID: "aside", ConversationID: []byte("null")})
	nothing := func(kind string) Event { return FromProvider{content: providerEvent{Type: kind}} }
	for name, c := range map[string]struct {
		events []Event
		want   []string // replies in progress; "*" = with the hold
		billed []string
	}{
		"one":                {[]Event{begins("a")}, []string{"a*"}, nil},
		"twice":              {[]Event{begins("a"), begins("a")}, []string{"a*"}, nil},
		"without an id":      {[]Event{begins("")}, nil, nil},
		"of nothing":         {[]Event{nothing("response.created")}, nil, nil},
		"ended already":      {[]Event{doneOf("a"), begins("a")}, nil, []string{"a"}},
		"end of nothing":     {[]Event{nothing("response.done")}, nil, nil},
		"end without an id":  {[]Event{doneOf("")}, nil, nil},
		"ended twice":        {[]Event{doneOf("a"), doneOf("a")}, nil, []string{"a"}},
		"another":            {[]Event{begins("a"), heard, Tick{}, begins("b")}, []string{"b"}, []string{"a"}},
		"an aside beside it": {[]Event{begins("a"), aside}, []string{"a*", "aside"}, nil},
		"another beside an aside": {
			[]Event{begins("a"), aside, heard, Tick{}, begins("b")}, []string{"aside", "b"}, []string{"a"},
		},
		"after a held aside": {[]Event{aside, begins("b")}, []string{"b"}, nil},
	} {
		s, now := at(start), start
		checks := 0
		var billed []string
		for _, e := range c.events {
			now = now.Add(500 * time.Millisecond)
			var actions []Action
			s, actions = Step(s, e, now)
			if slices.Contains(actions, Action(CheckSpending{})) {
				checks++
			}
			for _, charge := range settles(actions) {
				billed = append(billed, charge.ReplyID)
			}
		}
		var got []string
		for _, r := range s.Replies {
			got = append(got, r.ID+strings.Repeat("*", map[bool]int{true: 1}[r.Held]))
		}
		if checks < len(c.want) {
			t.Errorf("%s: it was asked %d times whether the connection may spend", name, checks)
		}
		if name == "one" && s.LastActivityUS != now.UnixMicro() {
			t.Errorf("the session is idle since %d", s.LastActivityUS)
		}
		if !slices.Equal(got, c.want) || !slices.Equal(billed, c.billed) {
			t.Errorf("%s: %q, billed %q; want %q, %q", name, got, billed, c.want, c.billed)
		}
	}
}
