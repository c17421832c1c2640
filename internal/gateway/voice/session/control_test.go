package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// sent returns what actions send, as JSON with its receiver: "app …" or "provider …". Others are named by type.
func sent(actions []Action) (list []string) {
	for _, a := range actions {
		switch a := a.(type) {
		case ToProvider:
			list = append(list, "provider "+string(EncodeJSON(a.Event)))
		case ToApp:
			list = append(list, "app "+string(EncodeJSON(a.Event)))
		default:
			list = append(list, strings.TrimPrefix(fmt.Sprintf("%T", a), "session."))
		}
	}
	return list
}

// appOutputOf is appOutput of a state.
func (s State) appOutputOf() int64 { return (&machine{State: s}).appOutput() }

// refusal is what an app gets for its event "ev".
func refusal(problem string) string {
	return `app {"type":"error","error":{"type":"invalid_request_error","code":"invalid_event","message":"` + problem +
		`","event_id":"ev"}}`
}

func ref[T any](v T) *T { return &v }

// TestAppEvents: what an app may send is done or passed on as it says, and what it may not changes nothing.
func TestAppEvents(t *testing.T) {
	t.Parallel()
	result := Item{Type: "function_call_output", CallID: "call_1", Output: "{}"}
	message := Item{Type: "message", Role: "user", Content: []ContentPart{{"input_text", "Hi"}}}
	ending := `app {"type":"svc.session.ending","session_id":"rts_1","reason":"app_ended"}`
	for name, c := range map[string]struct {
		state func(*State)
		event AppEvent
		want  []string // without what sets the provider's session
		check func(before, after State) bool
	}{
		"a message": {
			event: AppEvent{Type: "conversation.item.create", Item: &message, ItemBytes: 100},
			want: []string{`provider {"event_id":"ev","item":{"type":"message","role":"user","content":` +
				`[{"type":"input_text","text":"Hi"}]},"type":"conversation.item.create"}`},
			check: func(_, after State) bool { return after.AddedTextTokens == 66 && len(after.ToolCallIDs) == 0 },
		},
		"a message at its place": {
			event: AppEvent{
				Type:  "conversation.item.create",
				After: "item_1",
				Item:  &Item{ID: "mine", Status: "completed", Type: "message", Role: "user"},
			},
			want: []string{`provider {"event_id":"ev","item":{"id":"mine","status":"completed","type":"message",` +
				`"role":"user"},"previous_item_id":"item_1","type":"conversation.item.create"}`},
			check: func(before, after State) bool { return after.BeginChanges == before.BeginChanges+1 },
		},
		"a result of a tool": {
			event: AppEvent{Type: "conversation.item.create", Item: &result, ItemBytes: 10},
			want: []string{`provider {"event_id":"ev","item":{"type":"function_call_output","call_id":"call_1",` +
				`"output":"{}"},"type":"conversation.item.create"}`},
			check: func(_, after State) bool {
				return after.AddedTextTokens == 21 && slices.Equal(after.ToolCallIDs, []string{"call_1"})
			},
		},
		"a cancel": {
			event: AppEvent{Type: "response.cancel"},
			want:  []string{`provider {"event_id":"ev","type":"response.cancel"}`},
		},
		"a cancel of a reply": {
			event: AppEvent{Type: "response.cancel", ResponseID: "resp_1"},
			want:  []string{`provider {"event_id":"ev","response_id":"resp_1","type":"response.cancel"}`},
		},
		"a truncation": {
			event: AppEvent{Type: "conversation.item.truncate", ItemID: "item_1", AudioEndMS: 7},
			want: []string{`provider {"audio_end_ms":7,"content_index":0,"event_id":"ev","item_id":"item_1",` +
				`"type":"conversation.item.truncate"}`},
		},
		"an update": {
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{
				Instructions: ref("Be brief."), Voice: ref("cedar"), Tools: []byte(`[{"type":"function"}]`),
				ToolChoice: []byte(`"none"`), MaxOutputTokens: ref(int64(100)),
			}},
			want: []string{"Persist"},
			check: func(before, after State) bool { // until the provider has confirmed it
				c := after.Config
				return c.Instructions == "" && c.Voice == "" && c.Tools == nil && c.ToolChoice == nil &&
					c.MaxOutputTokens == 100 && after.appOutputOf() == 100 && after.AddedTextTokens == 4+10 &&
					len(after.Updates) == len(before.Updates)+2
			},
		},
		"an update of nothing": {
			state: func(s *State) { s.Config.Tools, s.Config.ToolChoice = []byte(`[]`), []byte(`"auto"`) },
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{}},
			want:  []string{"Persist"},
			check: func(before, after State) bool {
				after.Updates, after.LastUpdate = before.Updates, before.LastUpdate
				return string(EncodeJSON(before)) == string(EncodeJSON(after))
			},
		},
		"an update above the hold": {
			state: func(s *State) { s.HoldOutput, s.Config.MaxOutputTokens = 50, 50 },
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{MaxOutputTokens: ref(int64(100))}},
			want:  []string{"Persist"},
			check: func(_, after State) bool {
				return after.appOutputOf() == 100 && after.Config.MaxOutputTokens == 50
			},
		},
		"the highest cap": {
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{MaxOutputTokens: ref(int64(1024))}},
			want:  []string{"Persist"},
		},
		"more than the highest cap": {
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{MaxOutputTokens: ref(int64(1025))}},
			want: []string{refusal("session.max_output_tokens: must be from 1 to 1024, what the session was created " +
				"with")},
		},
		"the lowest cap": {
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{MaxOutputTokens: ref(int64(1))}},
			want:  []string{"Persist"},
		},
		"no output": {
			event: AppEvent{Type: "session.update", Update: &ConfigUpdate{MaxOutputTokens: ref(int64(0))}},
			want: []string{refusal("session.max_output_tokens: must be from 1 to 1024, what the session was created " +
				"with")},
		},
		"an approval": {
			state: func(s *State) { s.ApproveByUS = start.Add(time.Second).UnixMicro() },
			event: AppEvent{Type: "svc.session.approve_block"},
			want:  []string{"Persist"},
			check: func(_, after State) bool { return after.ApproveByUS == 0 && !after.ApprovalMissed },
		},
		"an approval of nothing": {
			event: AppEvent{Type: "svc.session.approve_block"},
			want:  []string{refusal("there is no block to approve")},
		},
		"an event with a problem": {
			event: AppEvent{Type: "response.cancel", Problem: "type: unknown"},
			want:  []string{refusal("type: unknown")},
		},
		"an end with a problem": {
			event: AppEvent{Type: "svc.session.end", Problem: "when: unknown"},
			want:  []string{refusal("when: unknown")},
		},
		"an event of a session that is not live": {
			state: func(s *State) { s.Status = Pending },
			event: AppEvent{Type: "response.cancel"},
			want:  []string{refusal("the session is not live yet")},
		},
		"an event of a session that ends": {
			state: func(s *State) {
				s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro()}}
				late := start.Add(time.Hour).UnixMicro()
				s.Ending = &Ending{Reason: AppEnded, BegunUS: start.UnixMicro(), DeadlineUS: late}
			},
			event: AppEvent{Type: "response.cancel"},
			want:  []string{refusal("the session is ending")},
		},
		"an end when all is heard": {
			state: func(s *State) { s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro()}} },
			event: AppEvent{Type: "svc.session.end"},
			want:  []string{"Persist", ending},
			check: func(_, after State) bool { return after.Ending.Reason == AppEnded && !after.Ending.Immediate },
		},
		"an end at once": {
			state: func(s *State) { s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro()}} },
			event: AppEvent{Type: "svc.session.end", Immediate: true},
			want: []string{"Persist", ending,
				`provider {"event_id":"` + ownID(at(start), "cancel") +
					`","response_id":"resp_1","type":"response.cancel"}`},
			check: func(_, after State) bool {
				return after.Ending.Immediate && after.Replies[0].GiveUpUS == start.Add(CancelWait).UnixMicro()
			},
		},
	} {
		before := at(start)
		if c.state != nil {
			c.state(&before)
		}
		c.event.EventID = "ev"
		after, actions := Step(before, FromApp{c.event}, start)
		got := slices.DeleteFunc(sent(actions), func(a string) bool {
			return strings.Contains(a, `"type":"session.update"`)
		})
		if !slices.Equal(got, c.want) || c.check != nil && !c.check(before, after) {
			t.Errorf("%s:\n got %s\nwant %s\nfrom %+v\n  to %+v", name, got, c.want, before, after)
		}
		isRefused := len(got) == 1 && strings.HasPrefix(got[0], `app {"type":"error"`)
		if isRefused && string(EncodeJSON(before)) != string(EncodeJSON(after)) {
			t.Errorf("%s is refused, and changes %+v to %+v", name, before, after)
		}
	}
}

// TestUpdateBeforeLive: an update that comes before the call is live waits for the sideband.
func TestUpdateBeforeLive(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Status, s.SidebandAttached = Pending, false
	update := AppEvent{Type: "session.update", Update: &ConfigUpdate{Instructions: ref("New.")}}
	next, actions := Step(s, FromApp{update}, start)
	waits := next.Updates[len(next.Updates)-1]
	if got := sent(actions); waits.Change == nil || *waits.Change.Instructions != "New." || waits.SentUS != 0 ||
		!slices.Equal(got, []string{"Persist"}) {
		t.Errorf("%+v, %s", waits, got)
	}
	for _, e := range []AppEvent{{Type: "response.create", Reply: &ReplyOptions{}}, {Type: "response.cancel"}} {
		if _, actions := Step(s, FromApp{e}, start); !strings.Contains(sent(actions)[0], "not live yet") {
			t.Errorf("%s: %s", e.Type, sent(actions))
		}
	}
}

// TestEventsBeforeLive: while no node runs a session, its app can only end it.
func TestEventsBeforeLive(t *testing.T) {
	t.Parallel()
	for kind, allowed := range map[string]bool{
		"svc.session.end": true, "response.create": false, "session.update": false,
	} {
		if got := RefusalBeforeLive(&AppEvent{Type: kind}); (got == nil) != allowed {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	if RefusalBeforeLive(&AppEvent{Type: "svc.session.end", Problem: "when: unknown"}) == nil {
		t.Error("an end with a problem is taken")
	}
}

// TestQueuedReplies: a reply that the app asks for begins when nothing is in its way: its hold is made, no other reply
// is in progress, and the connection may spend. Its output is limited to what the session has and its hold covers.
func TestQueuedReplies(t *testing.T) {
	t.Parallel()
	ask := func(o ReplyOptions) Event {
		return FromApp{AppEvent{Type: "response.create", EventID: "ev", Reply: &o}}
	}
	limit := func(n int64) Event { return ask(ReplyOptions{MaxOutputTokens: &n}) }
	begins := func(options string) string {
		return `provider {"event_id":"ev","response":` + options + `,"type":"response.create"}`
	}
	lowered := `provider {"type":"response.create","event_id":"ev","response":{"max_output_tokens":50}}`
	tooMuch := refusal("response.max_output_tokens: must be from 1 to 100, what the session has")
	unwatched := func(s *State) { s.SidebandAttached = false }
	busy := func(s *State) { s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro(), Held: true}} }
	for name, c := range map[string]struct {
		state  func(*State)
		events []Event
		want   []string
		added  int64 // tokens of text
	}{
		"a reply": {nil, []Event{ask(ReplyOptions{}), MaySpend{}},
			[]string{"CheckSpending", begins("{}")}, 0},
		"not allowed yet":   {nil, []Event{ask(ReplyOptions{}), Tick{}}, []string{"CheckSpending"}, 0},
		"allowed unasked":   {nil, []Event{MaySpend{}, ask(ReplyOptions{})}, []string{"CheckSpending"}, 0},
		"behind a reply":    {busy, []Event{ask(ReplyOptions{}), MaySpend{}}, nil, 0},
		"without a hold":    {func(s *State) { s.Hold = Requested }, []Event{ask(ReplyOptions{}), MaySpend{}}, nil, 0},
		"without a watcher": {unwatched, []Event{ask(ReplyOptions{}), MaySpend{}}, nil, 0},
		"another one": {nil, []Event{ask(ReplyOptions{}), ask(ReplyOptions{})},
			[]string{"CheckSpending", refusal("another response.create waits for its turn")}, 0},
		"with instructions": {nil, []Event{ask(ReplyOptions{Instructions: ref("Be brief.")}), MaySpend{}},
			[]string{"CheckSpending", begins(`{"instructions":"Be brief."}`)}, 4},
		"the most": {func(s *State) { s.AppOutput = 100 }, []Event{limit(100), MaySpend{}},
			[]string{"CheckSpending", begins(`{"max_output_tokens":100}`)}, 0},
		"the least": {func(s *State) { s.AppOutput = 100 }, []Event{limit(1), MaySpend{}},
			[]string{"CheckSpending", begins(`{"max_output_tokens":1}`)}, 0},
		"too much": {func(s *State) { s.AppOutput = 100 }, []Event{limit(101)}, []string{tooMuch}, 0},
		"nothing":  {func(s *State) { s.AppOutput = 100 }, []Event{limit(0)}, []string{tooMuch}, 0},
		"lowered": {func(s *State) { s.Config.MaxOutputTokens = 50 }, []Event{limit(51), MaySpend{}},
			[]string{"CheckSpending", lowered}, 0},
		"not lowered": {func(s *State) { s.Config.MaxOutputTokens = 50 }, []Event{limit(50), MaySpend{}},
			[]string{"CheckSpending", begins(`{"max_output_tokens":50}`)}, 0},
	} {
		s := at(start)
		if c.state != nil {
			c.state(&s)
		}
		var got []string
		for _, e := range c.events {
			var actions []Action
			s, actions = Step(s, e, start)
			got = append(got, sent(actions)...)
		}
		if !slices.Equal(got, c.want) || s.AddedTextTokens != c.added {
			t.Errorf("%s:\n got %s\nwant %s\nadded %d", name, got, c.want, s.AddedTextTokens)
		}
	}
	s := at(start)
	s.ApprovalMissed = true
	if s, _ = Step(s, ask(ReplyOptions{}), start); s.Ending == nil || s.Ending.Reason != BudgetNotApproved {
		t.Errorf("after a block that was not approved: %+v", s.Ending)
	}
}

// TestRetrievals: an app may retrieve some items at once, and then one a second.
func TestRetrievals(t *testing.T) {
	t.Parallel()
	s, now := at(start), start
	s.Updates = nil // that would be given up meanwhile
	for i, c := range []struct {
		count   int
		pause   time.Duration
		refused int
	}{{maxRetrievals + 2, 0, 2}, {2, 1500 * time.Millisecond, 1}, {maxRetrievals + 1, time.Hour, 1}} {
		now = now.Add(c.pause)
		refused := 0
		for range c.count {
			var actions []Action
			s, actions = Step(s, FromApp{AppEvent{Type: "conversation.item.retrieve", ItemID: "item_1"}}, now)
			for _, a := range sent(actions) {
				if strings.HasPrefix(a, `app {"type":"error"`) {
					refused++
				}
				if strings.HasPrefix(a, "provider ") && !strings.Contains(a, `"item_id":"item_1"`) {
					t.Errorf("%s", a)
				}
			}
		}
		if refused != c.refused {
			t.Errorf("%d: %d refused, want %d", i, refused, c.refused)
		}
	}
}
