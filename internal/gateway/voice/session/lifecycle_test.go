package session

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDeadlines: each time of contract §8 ends a session exactly when it has come, and not before.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	us := func(d time.Duration) int64 { return start.Add(d).UnixMicro() }
	pending := func(isUsed bool) func(*State) {
		return func(s *State) { s.Status, s.TicketUsed = Pending, isUsed }
	}
	lost := func(ends, isAttached bool) func(*State) {
		return func(s *State) { s.EndOnControlLost, s.ControlAttached, s.ControlLostUS = ends, isAttached, us(0) }
	}
	speaks := func(s *State) { s.LastActivityUS = us(time.Hour) } // it is not idle
	for name, c := range map[string]struct {
		state     func(*State)
		after     time.Duration
		want      string
		immediate bool
	}{
		"the longest session": {speaks, 15 * time.Minute, MaxDuration, true},
		"a ticket":            {pending(false), time.Minute, TicketExpired, true},
		"an offer":            {pending(true), time.Minute + AnswerTimeout, ProviderError, true},
		"the first sideband": {func(s *State) {
			s.SidebandAttached, s.EverAttached, s.SidebandLostUS = false, false, us(0)
		}, AttachTimeout + time.Second, SidebandLost, true},
		"another sideband": {func(s *State) { s.SidebandAttached, s.SidebandLostUS = false, us(0) },
			RedialTimeout + time.Second, SidebandLost, true},
		"a sideband that was never asked for": {
			func(s *State) { s.SidebandAttached = false }, 2 * time.Minute, IdleTimeout, false,
		},
		"silence":                  {nil, 2 * time.Minute, IdleTimeout, false},
		"a speech that has no end": {func(s *State) { s.SpeakingUS = us(0) }, 6 * time.Minute, IdleTimeout, false},
		"silence after a reply": {func(s *State) { s.Playback = &Playback{"resp_1", us(3 * time.Minute)} },
			3 * time.Minute, IdleTimeout, false},
		"silence of a long reply": {func(s *State) {
			s.Replies = []Reply{{ID: "resp_1", StartedUS: us(time.Minute), GiveUpUS: us(150 * time.Second)}}
		}, 150 * time.Second, IdleTimeout, false},
		"a control channel":                      {lost(true, false), ControlGrace, ControlLost, false},
		"a control channel that does not matter": {lost(false, false), 2 * time.Minute, IdleTimeout, false},
		"a control channel that is there":        {lost(true, true), 2 * time.Minute, IdleTimeout, false},
		"a control channel that never was there": {func(s *State) { s.EndOnControlLost = true }, 2 * time.Minute,
			IdleTimeout, false},
	} {
		s := at(start)
		if c.state != nil {
			c.state(&s)
		}
		end := start.Add(c.after)
		if early, _ := Step(s, Tick{}, end.Add(-time.Microsecond)); early.Ending != nil {
			t.Errorf("%s: it ends too early: %+v", name, early.Ending)
		}
		s, _ = Step(s, Tick{}, end)
		if s.Ending == nil || s.Ending.Reason != c.want || s.Ending.Immediate != c.immediate {
			t.Errorf("%s: %+v", name, s.Ending)
		}
	}
}

// TestAnswers: the provider's answer makes a pending session live, once. One that has ended meanwhile is hung up.
func TestAnswers(t *testing.T) {
	t.Parallel()
	pending := at(start)
	pending.Status, pending.CallID, pending.StartedUS, pending.EverAttached = Pending, "", 0, false
	pending.SidebandAttached = false
	started := `app {"type":"svc.session.started","session_id":"rts_1","model":"m","mock":false,` +
		`"started_at":"2026-11-21T12:00:00.000Z"}`
	for name, c := range map[string]struct {
		state  func(*State)
		event  Event
		want   []string
		status Status
		callID string
	}{
		"answered": {nil, CallAnswered{"rtc_2"}, []string{"Persist", "AttachSideband"}, Live, "rtc_2"},
		"a mocked answer": {func(s *State) { s.Mock = true }, CallAnswered{"rtc_2"}, []string{"Persist"}, Live,
			"rtc_2"},
		"while the app listens": {func(s *State) { s.ControlAttached = true }, CallAnswered{"rtc_2"},
			[]string{"Persist", "AttachSideband", started}, Live, "rtc_2"},
		"after the end": {func(s *State) { s.Ending = &Ending{Reason: AppEnded, Immediate: true, HungUp: true} },
			CallAnswered{"rtc_2"}, []string{"Persist", "HangUp", "Release"}, Pending, "rtc_2"},
		"again": {func(s *State) {
			s.Status, s.CallID, s.SidebandAttached, s.StartedUS = Live, "rtc_1", true, start.UnixMicro()
		}, CallAnswered{"rtc_2"}, nil, Live, "rtc_1"},
		"refused": {nil, CallRefused{"busy", map[string]any{"retry": true}}, []string{"Persist",
			`app {"type":"error","error":{"type":"provider_error","code":"provider_error","message":"busy",` +
				`"event_id":null,"details":{"retry":true}}}`, "HangUp", "Release"}, Pending, ""},
		"a sideband before the answer": {nil, SidebandUp{}, nil, Pending, ""},
		"an event before the answer":   {nil, storyEvents()["created"], nil, Pending, ""},
		"the app listens":              {nil, ControlUp{}, []string{"Persist"}, Pending, ""},
		"the app listens later": {func(s *State) {
			s.Status, s.SidebandAttached, s.StartedUS, s.ControlLostUS = Live, true, start.UnixMicro(), 1
		}, ControlUp{}, []string{"Persist", started}, Live, ""},
		"the app listens no more": {func(s *State) { s.ControlAttached = true }, ControlDown{}, []string{"Persist"},
			Pending, ""},
	} {
		s := pending
		if c.state != nil {
			c.state(&s)
		}
		next, actions := Step(s, c.event, start)
		if got := sent(actions); !slices.Equal(got, c.want) || next.Status != c.status || next.CallID != c.callID {
			t.Errorf("%s:\n got %s\nwant %s, %s %s", name, got, c.want, next.Status, next.CallID)
		}
		_, up := c.event.(ControlUp)
		_, down := c.event.(ControlDown)
		if up && (!next.ControlAttached || next.ControlLostUS != 0) ||
			down && (next.ControlAttached || next.ControlLostUS != start.UnixMicro()) {
			t.Errorf("%s: attached %t, lost at %d", name, next.ControlAttached, next.ControlLostUS)
		}
	}
}

// TestAdoption: a node that takes a session over watches the call again, and reports from when on nobody did. It leaves
// room for the numbers that the dead node could not save.
func TestAdoption(t *testing.T) {
	t.Parallel()
	now := start.Add(3 * time.Second)
	us := func(d time.Duration) int64 { return start.Add(d).UnixMicro() }
	heard := us(time.Second)
	for name, c := range map[string]struct {
		state     func(*State)
		since     int64
		want      string // the actions, without what is sent
		unwatched int64
		reason    string // of the end; "" = it goes on
	}{
		"a live one":       {nil, heard, "Release AttachSideband", heard, ""},
		"heard just now":   {nil, 0, "Release AttachSideband", now.UnixMicro(), ""},
		"heard later":      {nil, us(time.Hour), "Release AttachSideband", now.UnixMicro(), ""},
		"heard before":     {nil, us(-time.Hour), "Release AttachSideband", us(0), ""},
		"an unwatched one": {func(s *State) { s.UnwatchedUS = us(1) }, heard, "Release AttachSideband", us(1), ""},
		"one that nobody has watched": {func(s *State) { s.EverAttached = false }, heard,
			"Release AttachSideband", 0, ""},
		"one that is hung up": {func(s *State) {
			s.Ending = &Ending{Reason: AppEnded, Immediate: true, HungUp: true, DeadlineUS: us(0)}
		}, heard, "Release AttachSideband HangUp", heard, AppEnded},
		"a mock":              {func(s *State) { s.Mock = true }, heard, "Release HangUp", 0, SidebandLost},
		"an offer":            {func(s *State) { s.Status = Pending }, heard, "Release HangUp", 0, ServerShutdown},
		"a ticket":            {func(s *State) { s.Status, s.TicketUsed = Pending, false }, heard, "Release", 0, ""},
		"a hold is asked for": {func(s *State) { s.Hold = Requested }, heard, "Release AttachSideband", heard, ""},
		"without hold":        {func(s *State) { s.Hold = NoHold }, heard, "AttachSideband Hold", heard, ""},
	} {
		s := at(start)
		if c.state != nil {
			c.state(&s)
		}
		s.Spending = Checking
		next, actions := Step(s, Adopted{c.since}, now)
		got := slices.DeleteFunc(sent(actions), func(a string) bool {
			return a == "Persist" || strings.Contains(a, " ")
		})
		reason := ""
		if next.Ending != nil {
			reason = next.Ending.Reason
		}
		if strings.Join(got, " ") != c.want || reason != c.reason || next.UnwatchedUS != c.unwatched ||
			next.SidebandAttached || next.Spending != NotChecked || next.LastN < s.LastN+adoptedNumbers ||
			next.Status == Live && reason == "" && next.SidebandLostUS != now.UnixMicro() {
			t.Errorf("%s:\n got %s\nwant %s; %+v", name, got, c.want, next)
		}
	}
	for name, c := range map[string]struct {
		ends       bool
		lost, want int64
	}{"it matters": {true, 0, now.UnixMicro()}, "lost before": {true, us(0), us(0)}, "no matter": {false, 0, 0}} {
		s := at(start)
		s.EndOnControlLost, s.ControlLostUS, s.ControlAttached = c.ends, c.lost, true
		if s, _ = Step(s, Adopted{}, now); s.ControlAttached || s.ControlLostUS != c.want {
			t.Errorf("the control channel, %s: %t, %d", name, s.ControlAttached, s.ControlLostUS)
		}
	}
}

// TestAdoptedReplies: what was in progress on a dead node is billed for what was heard until now, as is what that node
// has asked the ledger for.
func TestAdoptedReplies(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Unsettled = []Settle{{N: 9, ReplyID: "resp_0"}}
	for name, c := range map[string]struct {
		silent time.Duration // when the user no longer heard it; 0 = it is heard
		audio  int64
	}{"heard": {0, 40}, "cut on the dead node": {time.Second, 20}} {
		s := s
		s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro(), AudioUS: start.UnixMicro(), Held: true}}
		if c.silent > 0 {
			s.Replies[0].SilentUS = start.Add(c.silent).UnixMicro()
		}
		s, actions := Step(s, Adopted{}, start.Add(2*time.Second))
		var got []Settle
		for _, a := range actions {
			if charge, ok := a.(Settle); ok {
				got = append(got, charge)
			}
		}
		if len(got) != 2 || got[0].ReplyID != "resp_0" || got[1].ReplyID != "resp_1" || !got[1].Estimated ||
			got[1].Usage.AudioOutput != c.audio || len(s.Replies) != 0 || len(s.Unsettled) != 2 {
			t.Errorf("%s: %+v; %+v", name, got, s)
		}
	}
}

// TestShutdown: a node that stops lets the user hear the reply, but not for long.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s, _ := Step(at(start), storyEvents()["created"], start)
	s, _ = Step(s, Shutdown{}, start)
	if s.Ending == nil || s.Ending.Reason != ServerShutdown || s.Ending.Immediate ||
		s.Ending.DeadlineUS != start.Add(ShutdownGrace).UnixMicro() || s.Config.AutoReply {
		t.Errorf("%+v", s.Ending)
	}
	s = at(start)
	s.Ending = &Ending{Reason: AppEnded, BegunUS: start.UnixMicro(), DeadlineUS: start.Add(time.Second).UnixMicro()}
	s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro()}}
	if s, _ = Step(s, Shutdown{}, start); s.Ending.Reason != AppEnded ||
		s.Ending.DeadlineUS != start.Add(time.Second).UnixMicro() {
		t.Errorf("an end that had begun: %+v", s.Ending)
	}
}

// TestStepsChangeNothing: a step returns another state, and leaves the one that it was given as it was.
func TestStepsChangeNothing(t *testing.T) {
	t.Parallel()
	s := at(start)
	s.Replies = []Reply{{ID: "resp_1", StartedUS: start.UnixMicro()}, {ID: "resp_2", StartedUS: start.UnixMicro()}}
	s.ToolCallIDs, s.BilledIDs = []string{"call_1", "call_2"}, append(make([]string, 0, 9), "resp_0")
	s.Unsettled = []Settle{{N: 7}, {N: 8}}
	s.Playback = &Playback{"resp_0", start.UnixMicro()}
	s.Ending = &Ending{Reason: AppEnded, BegunUS: start.UnixMicro(), DeadlineUS: start.Add(time.Hour).UnixMicro()}
	before := string(EncodeJSON(s))
	item := provided("conversation.item.added", "")
	item.content.Item = &itemObject{Type: "function_call_output", CallID: "call_1"}
	for _, e := range []Event{
		EndRequested{Immediate: true}, item, Settled{N: 7}, storyEvents()["done"], CallGone{}, Adopted{}, Shutdown{},
	} {
		Step(s, e, start.Add(time.Minute))
		if after := string(EncodeJSON(s)); after != before || s.BilledIDs[:2][1] != "" {
			t.Errorf("%T has changed the state before:\n%s\n%s", e, before, after)
		}
	}
}

// TestStartedIsSavedFirst: the app may read what svc.session.started says.
func TestStartedIsSavedFirst(t *testing.T) {
	t.Parallel()
	pending := at(start)
	pending.Status, pending.ControlAttached = Pending, true
	for name, actions := range map[string][]Action{
		"the call is answered": second(Step(pending, CallAnswered{"rtc_1"}, start)),
		"a channel opens":      second(Step(at(start), ControlUp{}, start)),
	} {
		i := slices.IndexFunc(actions, func(a Action) bool {
			app, ok := a.(ToApp)
			return ok && strings.Contains(string(EncodeJSON(app.Event)), "svc.session.started")
		})
		if i < 0 || !actions[i].(ToApp).Saved || actions[0] != Action(Persist{}) {
			t.Errorf("%s: %+v", name, actions)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }
