package session

import "time"

// Step is the rules of a session: from what the session is and what happened follow what it becomes
// and what is to be done. It does nothing itself, and knows the time only as an argument.
func Step(s State, e Event, now time.Time) (State, []Action) {
	m := &machine{State: s.clone(), nowUS: now.UnixMicro()}
	if m.Status != Ended {
		m.handleEvent(e)
		m.applyReplyDeadlines()
		m.applyUpdateDeadlines()
		if t, ok := e.(Tick); ok && !t.LeaseOver {
			m.applyDeadlines()
		}
		m.advance()
	}
	if m.mustPersist {
		m.actions = append([]Action{Persist{}}, m.actions...)
	}
	return m.State, m.actions
}

// handleEvent applies an event. Tick has no rule: time passes with every event.
func (m *machine) handleEvent(e Event) {
	switch e := e.(type) {
	case TicketUsed:
		m.TicketUsed, m.mustPersist = true, true
	case CallAnswered:
		m.callAnswered(e.CallID)
	case CallRefused:
		m.addActions(ToApp{Event: newCallRefusal(&e)})
		m.beginEnd(ProviderError, true)
	case Adopted:
		m.adopted(e.SinceUS)
	case SidebandUp:
		m.sidebandUp()
	case SidebandDown:
		m.sidebandDown(e)
	case CallGone:
		m.callHungUp()
	case AttachFailed:
		m.attachFailed(e.Gone)
	case ControlUp:
		m.controlUp()
	case ControlDown:
		m.controlDown()
	case FromApp:
		m.handleAppEvent(&e.AppEvent)
	case FromProvider:
		m.handleProviderEvent(&e)
	case HoldMade:
		m.holdMade(e)
	case HoldRefused:
		m.holdRefused(e)
	case Settled:
		m.replySettled(&e)
	case Released:
		m.holdReleased(e)
	case MaySpend:
		m.maySpend()
	case Halt:
		m.beginEnd(e.Reason, true)
	case DatabaseSilent:
		m.beginEnd(Unavailable, true)
	case Shutdown:
		m.shutDown()
	case EndRequested:
		m.beginEnd(AppEnded, e.Immediate)
	}
}
