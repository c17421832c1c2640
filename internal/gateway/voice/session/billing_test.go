package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// TestApprovalWindow: a budget block that the app does not approve in time ends the session at its next
// reply (contract §4.4, §8).
func TestApprovalWindow(t *testing.T) {
	t.Parallel()
	block := money.MC(250)
	approval := FromApp{AppEvent{Type: "svc.session.approve_block"}}
	for _, test := range []struct {
		name     string
		wait     time.Duration
		approved bool
		want     string // the end reason; "" = the session goes on
	}{
		{name: "within the window", wait: ApprovalWindow - time.Millisecond},
		{name: "after the window", wait: ApprovalWindow, want: BudgetNotApproved},
		{name: "approved", wait: ApprovalWindow, approved: true},
	} {
		s, now := at(start), start
		s.BudgetBlockMC, s.ConfirmBlocks = &block, true
		step := func(e Event) (actions []Action) {
			s, actions = Step(s, e, now)
			return actions
		}
		known := storyEvents()
		step(known["created"])
		step(known["done"])
		charge := &rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: block}}
		asked := slices.ContainsFunc(sent(step(Settled{N: 1, ReplyID: "resp_1", Entry: charge})), func(a string) bool {
			return strings.Contains(a, `"approval_required":true,"approve_by":"2026-11-21T12:00:30.000Z"}`)
		})
		if !asked || s.Blocks != 1 || s.ApproveByUS != start.Add(ApprovalWindow).UnixMicro() {
			t.Fatalf("%s: %d blocks, approve by %d", test.name, s.Blocks, s.ApproveByUS)
		}
		if test.approved {
			step(approval)
		}
		now = now.Add(test.wait)
		step(Tick{})
		if s.Ending != nil {
			t.Errorf("%s: it ends before the next reply: %+v", test.name, s.Ending)
		}
		step(known["another"])
		switch {
		case test.want == "" && s.Ending != nil:
			t.Errorf("%s: it ends: %+v", test.name, s.Ending)
		case test.want != "" && (s.Ending == nil || s.Ending.Reason != test.want || !s.Ending.Immediate):
			t.Errorf("%s: %+v", test.name, s.Ending)
		}
	}
}

// TestMaxCost settles replies up to max_cost_mc. Each is billed by the provider's usage, each hold has what is left,
// the app is warned once at four fifths, and the session ends when nothing is left.
func TestMaxCost(t *testing.T) {
	t.Parallel()
	most := money.MC(1000)
	usage := pricing.VoiceUsage{
		TextInput: 8, TextCached: 4, AudioInput: 7, AudioCached: 1, TextOutput: 3, AudioOutput: 7,
	}
	s := at(start)
	s.MaxCostMC = &most
	step := func(e Event) (actions []Action) {
		s, actions = Step(s, e, start)
		return actions
	}
	warnings := 0
	for i, c := range []struct {
		charge money.MC
		warned int // in all
		left   money.MC
	}{{799, 0, 201}, {1, 1, 200}, {199, 1, 1}, {1, 1, 0}} {
		n, replyID := int64(i+1), fmt.Sprint("resp_", i+1)
		for _, kind := range []string{"response.created", "response.done"} {
			e := provided(kind, replyID)
			e.content.Response = &responseObject{ID: replyID, Status: "completed", Usage: []byte(usage10)}
			for _, a := range step(e) {
				if got, ok := a.(Settle); ok && (got.N != n || got.Usage != usage || got.Estimated || got.Unheld) {
					t.Errorf("reply %d: %+v", n, got)
				}
			}
		}
		if len(s.Unsettled) != 1 {
			t.Fatalf("reply %d: %+v", n, s.Unsettled)
		}
		entry := &rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: c.charge}}
		held := false
		for _, a := range step(Settled{N: n, ReplyID: replyID, Entry: entry}) {
			switch a := a.(type) {
			case Hold:
				if held = true; a.BudgetMC == nil || *a.BudgetMC != c.left {
					t.Errorf("after reply %d: a hold of %v, want at most %d", n, a.BudgetMC, c.left)
				}
			case ToApp:
				if m, ok := a.Event.(spendWarningMessage); ok {
					if warnings++; m.Reason != "max_cost" {
						t.Errorf("%+v", m)
					}
				}
			}
		}
		if warnings != c.warned || held != (c.left > 0) || (s.Ending != nil) != (c.left == 0) {
			t.Errorf("after reply %d: %d warnings, held %t, ending %+v", n, warnings, held, s.Ending)
		}
		step(HoldMade{N: n + 1, AmountMC: 1000})
	}
	if s.Ending.Reason != MaxCost || s.Ending.Immediate {
		t.Errorf("%+v", s.Ending)
	}
}

// TestBoundContext: the next reply reads at most what the last one read and said, what was added, and the speech to
// come, within the model's context. What the last one read from the cache it reads from there, too.
func TestBoundContext(t *testing.T) {
	t.Parallel()
	m := machine{State: at(start), nowUS: start.Add(2 * time.Second).UnixMicro()}
	m.Context = pricing.VoiceUsage{
		TextInput: 1, TextCached: 2, TextOutput: 4, ImageInput: 8, ImageCached: 16, AudioInput: 100, AudioCached: 200,
		AudioOutput: 400,
	}
	m.AddedTextTokens, m.UserSpeech, m.SpeakingUS = 32, 3*time.Second, start.UnixMicro()
	within := pricing.VoiceInput{Text: 61, TextCached: 2, Audio: 660, AudioCached: 200}
	for context, want := range map[int64]pricing.VoiceInput{
		32_000: within, 923: within, 922: {Text: 62, Audio: 860}, 860: {Audio: 860}, 859: {Audio: 859}, 0: {Audio: 1},
	} {
		m.ContextTokens = context
		if got := m.boundContext(10 * time.Second); got != want {
			t.Errorf("context of %d: %+v, want %+v", context, got, want)
		}
	}
}

// TestEstimateIsBounded: a reply without usage is billed for all of the context as cached, and for no more than its
// output limit.
func TestEstimateIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r           Reply
		text, audio int64
	}{
		{Reply{AudioUS: start.Add(time.Second).UnixMicro(), SilentUS: start.UnixMicro()}, 0, 0},
		{Reply{AudioUS: start.UnixMicro(), TextBytes: 5 * 20}, 20, 80},
		{Reply{AudioUS: start.UnixMicro(), TextBytes: 5 * 21}, 21, 79},
		{Reply{AudioUS: start.UnixMicro(), TextBytes: 5 * 101}, 100, 0},
	} {
		m := machine{State: at(start), nowUS: start.Add(4 * time.Second).UnixMicro()}
		m.MaxOutputTokens = 100
		m.Context = pricing.VoiceUsage{
			TextInput: 1, TextCached: 2, TextOutput: 4, ImageInput: 8, ImageCached: 16, AudioInput: 32, AudioCached: 64,
			AudioOutput: 128,
		}
		want := pricing.VoiceUsage{TextCached: 3, AudioCached: 96, TextOutput: c.text, AudioOutput: c.audio}
		if got := m.estimateUsage(&c.r); got != want {
			t.Errorf("%+v: %+v, want %+v", c.r, got, want)
		}
	}
}

// TestUncoveredReply cancels a reply that began before its hold was made, if the hold covers less than it may say.
func TestUncoveredReply(t *testing.T) {
	t.Parallel()
	for covered, isCancelled := range map[int64]bool{0: false, 1024: false, 1023: true} {
		s, known := at(start), storyEvents()
		for _, e := range []Event{
			known["created"], known["done"], known["charged"], known["another"],
			HoldMade{N: 2, AmountMC: 1000, MaxOutputTokens: covered},
		} {
			s, _ = Step(s, e, start)
		}
		if len(s.Replies) != 1 || (s.Replies[0].GiveUpUS > 0) != isCancelled {
			t.Errorf("a hold of %d tokens: %+v", covered, s.Replies)
		}
	}
}

// TestCachedContext: what the last reply read from the cache is held at the price of the cache, until something changes
// what each reply reads first; a change during a reply counts for the one after it.
func TestCachedContext(t *testing.T) {
	t.Parallel()
	text, voice := "Be brief.", "sage"
	update := func(u ConfigUpdate) Event { return FromApp{AppEvent{Type: "session.update", Update: &u}} }
	browsers := provided("session.updated", "")
	browsers.content.Session = &sessionObject{Instructions: EncodeJSON(text)}
	reset := provided("session.updated", "")
	reset.content.Session = &sessionObject{Model: EncodeJSON("other")}
	changes := map[string]struct {
		event      Event
		stillThere bool
	}{
		"instructions":  {update(ConfigUpdate{Instructions: &text}), false},
		"tools":         {update(ConfigUpdate{Tools: json.RawMessage(`[]`)}), false},
		"voice":         {update(ConfigUpdate{Voice: &voice}), true},
		"of the reply":  {FromApp{AppEvent{Type: "response.create", Reply: &ReplyOptions{Instructions: &text}}}, false},
		"a plain reply": {FromApp{AppEvent{Type: "response.create", Reply: &ReplyOptions{}}}, true},
		"deleted":       {provided("conversation.item.deleted", ""), false},
		"the browser's": {browsers, false},
		"set back":      {reset, false},
	}
	known := storyEvents()
	for name, c := range changes {
		for _, during := range []bool{false, true} {
			s := at(start)
			s.ClientUpdatable, s.Updates = []string{"instructions"}, nil
			events := []Event{known["created"], known["done"], known["charged"], HoldMade{N: 2}, c.event}
			if during {
				events = []Event{known["created"], c.event, known["done"], known["charged"]}
			}
			for _, e := range events {
				s, _ = Step(s, e, start)
			}
			m := machine{State: s, nowUS: start.UnixMicro()}
			in := m.boundContext(0)
			if all := in.Text + in.TextCached - s.AddedTextTokens; all != 12+3 || in.Audio+in.AudioCached != 8+7+10 ||
				(in.TextCached == 4) != c.stillThere || (in.AudioCached == 1) != c.stillThere {
				t.Errorf("%s, during a reply: %t: %+v", name, during, in)
			}
		}
	}
}

// TestApprovalWindowDoesNotMove: blocks that are crossed while an approval is awaited give no more time for it. One
// approval is for all of them, and none helps when the time is over.
func TestApprovalWindowDoesNotMove(t *testing.T) {
	t.Parallel()
	for approves, want := range map[bool]string{false: BudgetNotApproved, true: ""} {
		block := money.MC(250)
		s, now := at(start), start
		s.BudgetBlockMC, s.ConfirmBlocks = &block, true
		step := func(e Event) (told string) {
			var actions []Action
			s, actions = Step(s, e, now)
			return strings.Join(sent(actions), "\n")
		}
		for n := range int64(3) { // a lively conversation: a reply each 14 s, each of more than a block
			replyID := fmt.Sprint("resp_", n)
			for _, kind := range []string{"response.created", "response.done"} {
				e := provided(kind, replyID)
				e.content.Response = &responseObject{ID: replyID, Status: "completed", Usage: []byte(usage10)}
				step(e)
			}
			entry := &rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: block + 1}}
			told := step(Settled{N: s.Unsettled[0].N, ReplyID: replyID, Entry: entry})
			step(HoldMade{N: s.HoldN, AmountMC: 1000})
			if !strings.Contains(told, `"approval_required":true,"approve_by":"2026-11-21T12:00:30.000Z"`) {
				t.Errorf("reply %d: %s", n, told)
			}
			now = now.Add(14 * time.Second)
			if n == 1 && approves {
				step(FromApp{AppEvent{Type: "svc.session.approve_block"}})
				break
			}
			step(Tick{})
		}
		now = start.Add(ApprovalWindow)
		step(Tick{})
		if s.ApprovalMissed == approves {
			t.Errorf("approved %t: missed %t", approves, s.ApprovalMissed)
		}
		next := provided("response.created", "resp_9")
		next.content.Response = &responseObject{ID: "resp_9"}
		step(next)
		reason := ""
		if s.Ending != nil {
			reason = s.Ending.Reason
		}
		if reason != want {
			t.Errorf("approved %t: it ends with %q", approves, reason)
		}
	}
}

// TestSilentReplies: a reply that failed or said nothing is free as far as the ledger allows, and the context that the
// next hold covers does not shrink by the usage of a failed one.
func TestSilentReplies(t *testing.T) {
	t.Parallel()
	input := func(output string) string {
		return `{"input_tokens":500,"output_tokens":` + output + `,"input_token_details":{"text_tokens":500}}`
	}
	for _, c := range []struct {
		status, usage   string
		settled, silent bool
		context         int64
	}{
		{"completed", input("1"), true, false, 500 + 1},
		{"completed", input("0"), true, true, 500},
		{"incomplete", input("0"), true, true, 500},
		{"cancelled", input("0"), true, true, 500},
		{"failed", input("0"), true, true, 700},
		{"failed", input("3"), true, true, 703},
		{"failed", "null", false, false, 700},
		{"completed", `{"input_tokens":0,"output_tokens":0}`, false, false, 700},
	} {
		s := at(start)
		s.Context.TextInput = 700
		for _, kind := range []string{"response.created", "response.done"} {
			e := provided(kind, "resp_1")
			e.content.Response = &responseObject{ID: "resp_1", Status: c.status, Usage: []byte(c.usage)}
			s, _ = Step(s, e, start)
		}
		in := (&machine{State: s, nowUS: start.UnixMicro()}).boundContext(0)
		text := in.Text + in.TextCached
		if len(s.Unsettled) == 1 != c.settled || c.settled && s.Unsettled[0].Silent != c.silent || text != c.context {
			t.Errorf("%s, %s: %+v, %d tokens are read next", c.status, c.usage, s.Unsettled, text)
		}
	}
}
