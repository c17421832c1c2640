package session

import "time"

// machine is one step in progress: the state as far as the step has changed it, and what the step
// asks for.
type machine struct {
	State
	nowUS       int64
	actions     []Action
	mustPersist bool // the step changed something that another node would need
}

// addActions asks for actions.
func (m *machine) addActions(actions ...Action) { m.actions = append(m.actions, actions...) }

// after returns the time d from now.
func (m *machine) after(d time.Duration) int64 { return m.nowUS + d.Microseconds() }

// isDue reports whether a time has come; the time 0 never comes.
func (m *machine) isDue(us int64) bool { return us > 0 && m.nowUS >= us }

// findReply returns the reply in progress with that id, or nil.
func (m *machine) findReply(id string) *Reply {
	for i := range m.Replies {
		if m.Replies[i].ID == id {
			return &m.Replies[i]
		}
	}
	return nil
}

// sendConfig sets the provider's session to Config, if the sideband is there.
func (m *machine) sendConfig() {
	if !m.SidebandAttached {
		return
	}
	m.PendingUpdates++
	m.addActions(ToProvider{map[string]any{"type": "session.update", "session": m.Config.RealtimeSession(false)}})
}
