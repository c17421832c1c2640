package voice

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/catalog"
)

// TestNamesAreBounded: each id that an app names is refused beyond its bound, and no refusal repeats it.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	for member, event := range map[string]string{
		"item.call_id": `{"type":"conversation.item.create",` +
			`"item":{"type":"function_call_output","call_id":"NAME","output":""}}`,
		"response_id": `{"type":"response.cancel","response_id":"NAME"}`,
		"item_id":     `{"type":"conversation.item.truncate","item_id":"NAME"}`,
		"event_id":    `{"type":"response.create","event_id":"NAME"}`,
		"event_id: ":  `{"event_id":"NAME","type":7}`,
	} {
		for length, want := range map[int]bool{session.MaxName: false, session.MaxName + 1: true, 250_000: true} {
			text := strings.Replace(event, "NAME", strings.Repeat("x", length), 1)
			e := parseControlEvent([]byte(text), &catalog.Model{})
			if got := strings.Contains(e.Problem, "at most 512 characters"); got != want ||
				got && !strings.HasPrefix(e.Problem, member) || len(e.EventID) > session.MaxName {
				t.Errorf("%s of %d: %.100q, event id of %d", member, length, e.Problem, len(e.EventID))
			}
		}
	}
}

// TestUnsentEventsAreBounded: an app that does not read loses its channel for the bytes of what waits for it, too. One
// event of any length may wait.
func TestUnsentEventsAreBounded(t *testing.T) {
	t.Parallel()
	c := controlChannel{writing: true} // nothing is sent
	c.queueEvent(make([]byte, maxEventBytes))
	if c.closed {
		t.Error("one event is refused")
	}
	c.queueEvent(make([]byte, 1))
	if !c.closed || len(c.queue) != 1 {
		t.Errorf("%d bytes wait, closed: %t", c.bytes, c.closed)
	}
}

// TestPendingEndsByControl: svc.session.end before the browser comes ends the session, as POST end does.
func TestPendingEndsByControl(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		w := newWorld(t, e, "mock", "sandbox")
		for _, event := range []string{
			`{"type":"svc.session.end","when":"immediate"}`, `{"type":"svc.session.end"}`,
		} {
			o := w.open(mini)
			control := w.dial(o.ControlURL, w.token)
			control.send(event)
			if e := control.wait("svc.session.ended"); e["reason"] != session.AppEnded {
				t.Errorf("%s: %v", event, e)
			}
			if c := control.closed(); c != 1000 {
				t.Errorf("%s: the channel closes with %d", event, c)
			}
			w.ended(o.ID, session.AppEnded)
			if c := w.dial(o.Client.MockURL+"?ticket="+o.Client.Ticket, "").closed(); c != 4009 {
				t.Errorf("%s: the browser's socket closes with %d", event, c)
			}
		}
		w.free()
	})
}

// statementLog records the statements of a world's database.
type statementLog struct {
	mu   sync.Mutex
	list []string
}

func (s *statementLog) note(query string, _ []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, query)
}

// take returns the statements since the last time that contain a word.
func (s *statementLog) take(word string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, query := range s.list {
		if strings.Contains(query, word) {
			n++
		}
	}
	s.list = nil
	return n
}

// TestEndIsFewStatements: a session's end, its resource and lists read the ledger as often after many replies as after
// none, and lists do not read states.
func TestEndIsFewStatements(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		var seen statementLog
		w := newTracedWorld(t, e, "mock", "sandbox", seen.note)
		o := w.open(`{"model":"gpt-realtime-2.1-mini","max_output_tokens":1}`)
		browser, control := w.speak(o), w.dial(o.ControlURL, w.token)
		const replies = 25
		for range replies {
			browser.send(`{"type":"response.create"}`)
			control.wait("svc.response.settled")
		}
		stored := w.nodes[0].Supervisor.Store
		seen.take("")
		s, err := stored.Get(t.Context(), Holder{ConnectionID: w.conn}, o.ID)
		if n := seen.take("ledger"); err != nil || n > 1 || len(s.Receipts) != replies {
			t.Errorf("a resource reads the ledger %d times, %d receipts, %v", n, len(s.Receipts), err)
		}
		list, err := stored.List(t.Context(), Filter{ConnectionID: w.conn, Limit: 10})
		if err != nil || len(list) != 1 || list[0].ResponseCount != replies || list[0].ChargedMC != s.ChargedMC {
			t.Errorf("list: %+v, %v", list, err)
		}
		seen.mu.Lock()
		for _, query := range seen.list {
			if strings.Contains(query, "realtime_sessions") && strings.Contains(query, " state") &&
				strings.HasPrefix(query, "SELECT id, connection_id") {
				t.Errorf("a list reads states: %s", query)
			}
		}
		seen.mu.Unlock()
		if n := seen.take("ledger"); n > 1 {
			t.Errorf("a list reads the ledger %d times", n)
		}
		control.send(`{"type":"svc.session.end","when":"immediate"}`)
		control.wait("svc.session.ended")
		if n := seen.take("ledger"); n > replies/2 { // the total, the receipts, the event, and the release of the hold
			t.Errorf("the end reads the ledger %d times", n)
		}
		if s := w.ended(o.ID, session.AppEnded); len(s.Receipts) != replies {
			t.Errorf("%d receipts", len(s.Receipts))
		}
		var state string
		err = w.db.QueryRowContext(t.Context(), `SELECT state FROM realtime_sessions WHERE id = $1`, o.ID).Scan(&state)
		var saved savedSession
		if err != nil || json.Unmarshal([]byte(state), &saved) != nil || saved.State.Config.Instructions != "" ||
			len(saved.State.BilledIDs) > 0 {
			t.Errorf("the state of an ended session: %s, %v", state, err)
		}
	})
}

// fakeMemory is the memory of a node.
type fakeMemory struct {
	mu    sync.Mutex
	bound int64
	used  map[string]int64
}

func (f *fakeMemory) TakeMemory(developerID string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.used[developerID]+bytes > f.bound {
		return apierr.Unavailable.Errorf("the service has no memory left")
	}
	f.used[developerID] += bytes
	return nil
}

func (f *fakeMemory) CountMemory(developerID string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used[developerID] += bytes
}

func (f *fakeMemory) usedBy(developerID string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used[developerID]
}

// TestSocketsTakeMemory: sessions and control channels count in the memory of the developer, long messages as they
// arrive. What does not fit is refused and costs no ticket, and all is given back.
func TestSocketsTakeMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	memory := &fakeMemory{bound: 2*sessionBytes + messageFactor*128<<10, used: map[string]int64{}}
	w.nodes[0].node.memory = memory
	first, second := w.open(mini), w.open(mini)
	control := w.dial(first.ControlURL, w.token)
	browser := w.speak(first)
	control.wait("svc.session.started")
	if n := memory.usedBy("wac_dev"); n != 2*sessionBytes {
		t.Errorf("a session and its channel take %d", n)
	}
	text := func(bytes int) string {
		return `{"type":"conversation.item.create","item":{"type":"message","role":"user",` +
			`"content":[{"type":"input_text","text":"` + strings.Repeat("x", bytes) + `"}]}}`
	}
	browser.send(text(100 << 10))
	browser.wait("conversation.item.added")
	control.send(text(200 << 10))
	if c := control.closed(); c != websocket.StatusTryAgainLater {
		t.Errorf("a message without room closes the channel with %d", c)
	}
	w.until("the channel and the message are given back", func() bool {
		return memory.usedBy("wac_dev") == sessionBytes
	})
	memory.mu.Lock()
	memory.bound = sessionBytes
	memory.mu.Unlock()
	_, resp, err := websocket.Dial(t.Context(), second.ControlURL,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + w.token}}})
	if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("another channel: %v, %v", resp, err)
	}
	if c := w.dial(second.Client.MockURL+"?ticket="+second.Client.Ticket, "").closed(); c != 1013 {
		t.Errorf("another session closes with %d", c)
	}
	memory.mu.Lock()
	memory.bound = 100 * sessionBytes
	memory.mu.Unlock()
	w.speak(second)                  // its ticket was not spent
	browser.send(text(maxMockBytes)) // hardly longer, so that all of it is read before the socket closes
	if c := browser.closed(); c != websocket.StatusMessageTooBig {
		t.Errorf("a message that is too long closes the socket with %d", c)
	}
	w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+second.ID+"/end", `{"when":"immediate"}`, w.token)
	w.ended(first.ID, session.ClientClosed)
	w.ended(second.ID, session.AppEnded)
	w.until("all is given back", func() bool { return memory.usedBy("wac_dev") == 0 })
}

// TestMockRate: sessions and replies of the mock, which cost nothing, count as its calls do.
func TestMockRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite, "mock", "sandbox")
	start := time.Now()
	w.nodes[0].node.freeRate = callers.NewFreeRate(1, 3, func() time.Time { return start })
	o := w.open(mini)
	browser, control := w.speak(o), w.dial(o.ControlURL, w.token)
	for range 2 {
		browser.send(`{"type":"response.create"}`)
		control.wait("svc.response.settled")
	}
	browser.send(`{"type":"response.create"}`)
	if e := browser.wait("error"); !strings.Contains(string(mustJSON(e)), "rate_limit_exceeded") {
		t.Errorf("a reply too many: %v", e)
	}
	if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", mini, w.token); status != 429 ||
		code(answer) != "rate_limited" {
		t.Errorf("a session too many: %d %v", status, answer)
	}
}
