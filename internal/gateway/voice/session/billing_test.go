package session

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
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
		step(Settled{N: 1, ReplyID: "resp_1", Entry: charge})
		if s.Blocks != 1 || s.ApproveByUS != start.Add(ApprovalWindow).UnixMicro() {
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
