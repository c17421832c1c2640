package world

import "github.com/purserhq/purser/internal/testkit/bank"

// leaveStep lets who asks in the next step leave in the middle: a connection to the product ends after some bytes of
// the request or of the answer.
const leaveStep = "leave-in-the-middle"

func (w *world) leaves(s bank.Step) error {
	w.leaving = &leaving{host: w.host(purserHost), after: s.C % 3, bytes: 1 + s.B*s.B/200}
	return nil
}

// hasLeft ends the fault, and reports whether somebody has left.
func (w *world) hasLeft() bool {
	l := w.Network.leave(nil)
	if l == nil || !l.isHit {
		return false
	}
	w.api.drawn["met: "+leaveStep]++
	return true
}
