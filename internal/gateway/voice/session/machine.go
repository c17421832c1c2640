package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

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

// ownEventID returns the event_id of an event that no app has sent. An error that names it is not the app's. It cannot
// be guessed: a browser that names the id of an update in a wrong event of its own would make the provider refuse it.
func (m *machine) ownEventID(name string) string {
	mac := hmac.New(sha256.New, []byte(m.EventKey))
	mac.Write([]byte(name))
	return ownEventPrefix + name + "_" + hex.EncodeToString(mac.Sum(nil)[:12])
}

const ownEventPrefix = "svc_"

// isOwnEventID reports whether an event_id is one of ownEventID.
func (m *machine) isOwnEventID(id string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(id, ownEventPrefix), "_")
	return id == m.ownEventID(name)
}
