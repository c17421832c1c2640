package voice

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// TestLateBrowser: the provider finds a call only when its browser has connected. A session that ends before goes on
// hanging the call up for minutes, so that a browser that comes late is hung up, and gives up when none comes.
func TestLateBrowser(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		for _, comes := range []bool{true, false} {
			w := newWorld(t, e, "live", "full-live")
			w.up.late = true
			o := w.open(mini)
			if status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/offer", sdpOffer,
				o.Client.Ticket); status != 201 {
				t.Fatalf("offer: %d %v", status, answer)
			}
			w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
			w.ended(o.ID, session.AppEnded)
			w.free()
			before := w.hangUps()
			w.pass(10 * time.Second) // and the pause after the last try
			w.until("it is hung up again", func() bool { return w.hangUps() > before })
			if n := w.toHangUp(); n != 1 {
				t.Errorf("%d calls to hang up while the browser may come", n)
			}
			if comes {
				w.up.mu.Lock()
				w.up.late = false
				w.up.mu.Unlock()
				w.pass(15 * time.Second) // of F-85
				w.until("the call is hung up", w.up.gone)
			} else {
				w.pass(lateBrowser + time.Minute)
			}
			w.until("no call is to be hung up", func() bool { return w.toHangUp() == 0 })
		}
	})
}

// hangUps returns how often the provider was asked to hang up.
func (w *world) hangUps() int {
	w.up.mu.Lock()
	defer w.up.mu.Unlock()
	return w.up.hangUps
}

// toHangUp returns how many calls of ended sessions are to be hung up.
func (w *world) toHangUp() (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(),
		`SELECT COUNT(*) FROM realtime_sessions WHERE status = 'ended' AND hang_up = 1`).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestHangUpPause: a call is hung up within 15 s for minutes, and then seldom.
func TestHangUpPause(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ ended, want time.Duration }{
		{0, time.Second},
		{time.Minute, 6 * time.Second},
		{lateBrowser, 10 * time.Second},
		{2*lateBrowser - 1, 10 * time.Second},
		{2 * lateBrowser, 10 * time.Second},
		{time.Hour, time.Minute},
		{100 * time.Hour, 10 * time.Minute},
	} {
		if got := hangUpPause(test.ended); got != test.want {
			t.Errorf("%s after the end: %s, want %s", test.ended, got, test.want)
		}
	}
}

// TestRefusedCallsKeepNoOtherWaiting: a call is hung up although a hundred others, which ended before, are refused each
// time, or cannot be read.
func TestRefusedCallsKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, e db.Engine) {
		state := map[db.Engine]string{db.SQLite: "state", db.Postgres: "CASE WHEN n = 150 THEN state ELSE '?' END"}[e]
		w := newWorld(t, e, "live", "full-live")
		asked := make(chan string, 1)
		w.up.mu.Lock()
		w.up.stubborn = 1 << 30
		w.up.hanging = func(call string) {
			if call == "rtc_150" {
				select {
				case asked <- call:
				default:
				}
			}
		}
		w.up.mu.Unlock()
		w.exec(`INSERT INTO realtime_sessions (id, connection_id, account_id, app_id, model, mock, status, ticket_hash,
				ticket_until_us, lease_us, own_key, hang_up, state, max_duration_s, created_us, ended_us, end_reason,
				charged_mc, response_count, call_id)
			SELECT id || '_' || n, connection_id, account_id, app_id, model, mock, 'ended', ticket_hash, 0, 0, 0, 1,
				`+state+`, 30, 1, $2, 'app_ended', 0, 0, 'rtc_' || n
			FROM realtime_sessions, (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 150)
				SELECT n FROM c) AS numbers
			WHERE id = $1`, w.open(mini).ID, w.now().Add(-time.Hour).UnixMicro())
		select {
		case <-asked:
		case <-time.After(waitTimeout):
			t.Error("the last call is not hung up")
		}
		w.exec(`DELETE FROM realtime_sessions WHERE status = 'ended'`) // they have no events
	})
}
