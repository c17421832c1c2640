package voice

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxUnwatched is how long a call may go without a sideband after any loss (F-85, F-86).
const maxUnwatched = 15 * time.Second

// faulty is a session whose call is at the emulator, which follows a script and the test's commands.
type faulty struct {
	*world
	at      string // the emulator
	o       opened
	call    string // the emulator's name of the call
	control *socket
}

// report is what the emulator reports of a call.
type report struct {
	ID          string
	State       string
	Replies     int
	Active      bool `json:"reply_active"`
	Playing     bool
	Sidebands   int
	Hangups     int
	Events      []struct{ From, Type string }
	UnwatchedMS int64 `json:"unwatched_ms"`
	Session     struct {
		MaxOutput json.RawMessage `json:"max_output_tokens"`
	}
}

// newFaulty makes a world with an emulator, and a session that waits for its browser.
func newFaulty(t *testing.T, e db.Engine, script, more string) *faulty {
	t.Helper()
	emu := emulator.New(emulator.Options{NoMedia: true})
	server := httptest.NewServer(emu)
	t.Cleanup(func() {
		emu.Close()
		server.CloseClientConnections()
		server.Close()
	})
	f := &faulty{world: newWorldAt(t, e, "live", "full-live", server.URL+"/v1"), at: server.URL + "/emulator/realtime"}
	f.hears()
	body := fmt.Sprintf(`{"model":"gpt-realtime-2.1-mini","instructions":%s%s}`,
		mustJSON("Be kind.\n!emu fast=20 pace=1ms audio=1s\n"+script), more)
	f.o = f.open(body)
	return f
}

// connect makes the browser's offer, and listens as the app.
func (f *faulty) connect() {
	f.t.Helper()
	f.control = f.dial(f.o.ControlURL, f.token)
	if status := f.offer(); status != http.StatusCreated {
		f.t.Fatalf("offer: %d", status)
	}
	f.control.wait("svc.session.started")
	f.call = f.calls()[0].ID
	f.watched(1)
}

// offer makes the browser's offer, and returns the HTTP status.
func (f *faulty) offer() int {
	req, err := http.NewRequestWithContext(f.t.Context(), "POST", f.o.Client.OfferURL, strings.NewReader(sdpOffer))
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+f.o.Client.Ticket)
	req.Header.Set("Content-Type", "application/sdp")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close() // it is not read
	return resp.StatusCode
}

// watched waits until the node's sideband was attached n times: each time the node sends its
// configuration.
func (f *faulty) watched(n int) {
	f.t.Helper()
	f.until("the call is watched", func() bool {
		set := 0
		for _, e := range f.report().Events {
			if e.From == "sideband" && e.Type == "session.update" {
				set++
			}
		}
		return set >= n
	})
}

func (f *faulty) ask(method, path, body string, into any) int {
	f.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, f.at+path, bytes.NewReader([]byte(body)))
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		f.t.Fatalf("%s %s: %d %v", method, path, resp.StatusCode, err)
	}
	return resp.StatusCode
}

func (f *faulty) calls() []report {
	f.t.Helper()
	var all struct{ Data []report }
	f.ask("GET", "", "", &all)
	return all.Data
}

func (f *faulty) report() (r report) {
	f.t.Helper()
	f.ask("GET", "/"+f.call, "", &r)
	return r
}

// steer makes something happen in the call.
func (f *faulty) steer(do string) {
	f.t.Helper()
	var r report
	if status := f.ask("POST", "/"+f.call, do, &r); status != http.StatusOK {
		f.t.Fatalf("%s: %d", do, status)
	}
}

// turn lets the user speak, and waits for the begin of the reply.
func (f *faulty) turn() {
	f.t.Helper()
	f.steer(`{"do":"speak","ms":1000,"fast":20}`)
	f.control.wait("response.created")
}

// replies lets the user speak n times, and waits for the charge of each reply.
func (f *faulty) replies(n int) {
	f.t.Helper()
	for range n {
		f.turn()
		f.control.wait("svc.response.settled")
		f.until("the reply was heard", func() bool { r := f.report(); return !r.Playing && !r.Active })
	}
}

// cutReply lets the user hear a part of a reply that does not end by itself.
func (f *faulty) cutReply() {
	f.t.Helper()
	f.turn()
	f.until("the reply is heard", func() bool {
		s, err := f.nodes[0].loadSession(f.t.Context(), f.o.ID)
		return err == nil && len(s.State.Replies) == 1 && s.State.Replies[0].AudioUS > 0
	})
}

// end asks for the end.
func (f *faulty) end(when string) {
	f.t.Helper()
	if status, answer := f.world.call(f.nodes[0], "POST", "/v1/realtime/sessions/"+f.o.ID+"/end", `{"when":"`+when+`"}`,
		f.token); status != http.StatusAccepted {
		f.t.Errorf("end: %d %v", status, answer)
	}
}

// browser sends an event on the data channel.
func (f *faulty) browser(event string) {
	f.t.Helper()
	f.steer(`{"do":"browser","event":` + event + `}`)
}

// tamper raises the output cap n times, each time after it was set back.
func (f *faulty) tamper(n int) {
	f.t.Helper()
	for range n {
		f.until("it is as it was", func() bool { return string(f.report().Session.MaxOutput) == "1024" })
		f.browser(`{"type":"session.update","session":{"type":"realtime","max_output_tokens":4096}}`)
		f.control.wait("svc.session.config_reset")
	}
}

// allocateOnlyHold leaves nothing of the allocation but the hold that is made.
func (f *faulty) allocateOnlyHold() {
	f.t.Helper()
	var c rules.Connection
	f.until("the hold is made", func() bool {
		var err error
		c, err = store.GetConnection(f.t.Context(), f.db, f.conn)
		return err == nil && c.HeldMC > 0
	})
	f.do(rules.ChangeCap{ConnectionID: f.conn, TargetMC: c.ConsumedMC + c.HeldMC})
}

// receipts are how many receipts a session must have.
type receipts struct {
	settled, estimated int
	cancelled          int // settled if the provider reported the usage in time, else estimated
	raced              int // perhaps there, perhaps not
}

// checks proves what must hold at every end: receipts, sums, holds and hang-ups.
func (f *faulty) checks(reason string, want receipts) {
	f.t.Helper()
	s := f.ended(f.o.ID, reason)
	var sum money.MC
	got := map[string]int{}
	for _, r := range s.Receipts {
		sum += r.UserChargeMC
		got[r.UsageSource]++
		if r.UsageSource == "estimated" && (r.UserChargeMC > r.HoldAmountMC || r.UserChargeMC == 0 && r.Waived == "") {
			f.t.Errorf("an estimate of %s, held %s", r.UserChargeMC.Display(), r.HoldAmountMC.Display())
		}
	}
	least := want.settled + want.estimated + want.cancelled
	if n := int(s.ResponseCount); got["provider"] < want.settled || got["estimated"] < want.estimated || n < least ||
		n > least+want.raced || n != len(s.Receipts) {
		f.t.Errorf("%d receipts, %v, want %+v", n, got, want)
	}
	var rows money.MC
	if err := f.db.QueryRowContext(f.t.Context(),
		`SELECT COALESCE(SUM(user_charge_mc), 0) FROM ledger WHERE key LIKE $1`, f.o.ID+"/%").Scan(&rows); err != nil ||
		rows != sum || s.ChargedMC != sum {
		f.t.Errorf("charged %d, receipts %d, ledger %d, %v", s.ChargedMC, sum, rows, err)
	}
	f.free()
	f.until("no call is left", func() bool {
		for _, c := range f.calls() {
			if c.State != "ended" {
				return false
			}
		}
		return true
	})
	for _, c := range f.calls() {
		if f.t.Logf("unwatched at most %d ms", c.UnwatchedMS); c.UnwatchedMS > maxUnwatched.Milliseconds() {
			f.t.Errorf("%d ms were unwatched", c.UnwatchedMS)
		}
	}
}

// TestFaults proves the failure modes F-85 to F-93 with the provider's emulator on real sockets.
func TestFaults(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		name         string
		script, more string
		do           func(f *faulty)
		reason       string
		want         receipts
	}{
		{"dropped between replies", "", "", func(f *faulty) {
			f.replies(1)
			f.steer(`{"do":"drop"}`)
			f.watched(2)
			f.replies(1)
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{settled: 2}},
		{"dropped within a reply", "!emu hang=3", "", func(f *faulty) {
			f.cutReply()
			f.steer(`{"do":"drop","code":1011}`)
			f.watched(2)
			f.end(session.Immediate)
		}, session.AppEnded, receipts{cancelled: 1}},
		{"dead, though it is open", "!emu hang=0 mute=7", "", func(f *faulty) {
			f.turn() // the last that this sideband tells
			f.watched(2)
			f.end(session.Immediate)
		}, session.AppEnded,
			receipts{raced: 1}}, // a reply whose cancel is confirmed too late is not billed
		{"lost for the rest of the call", "!emu hang=3 down=forever", "", func(f *faulty) {
			f.cutReply()
			f.steer(`{"do":"drop"}`)
		}, session.SidebandLost, receipts{estimated: 1}},
		{"lost, and hang-ups refused", "!emu hang=3 down=forever hangup_fails=2 hangup_status=503", "",
			func(f *faulty) {
				f.cutReply()
				f.steer(`{"do":"drop"}`)
			}, session.SidebandLost, receipts{estimated: 1}},
		{"not found at first", "!emu not_found=2", "", func(f *faulty) {
			f.replies(1)
			if got := f.control.kinds(); slices.Contains(got, "error") {
				f.t.Errorf("the provider refused an event of ours: %v", got)
			}
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{settled: 1}},
		{"hang-ups refused", "!emu hangup_fails=3", "", func(f *faulty) {
			f.replies(1)
			f.end(session.Immediate)
		}, session.AppEnded, receipts{settled: 1}},
		{"answers of hang-ups lost", "!emu hangup_lost=2", "", func(f *faulty) {
			f.replies(1)
			f.end(session.Immediate)
		}, session.AppEnded, receipts{settled: 1}},
		{"usage missing", "!emu only=2 no_usage", "", func(f *faulty) {
			f.replies(3)
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{settled: 2, estimated: 1}},
		{"usage that cannot be", `!emu usage_raw={"input_tokens":-1,"output_tokens":5}`, "", func(f *faulty) {
			f.replies(1)
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{estimated: 1}},
		{"done twice", "!emu duplicate unknown garbage", "", func(f *faulty) {
			f.replies(2)
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{settled: 2}},
		{"never done", "!emu only=1 no_done", "", func(f *faulty) {
			f.turn()
			f.until("the reply was heard", func() bool { r := f.report(); return !r.Playing && !r.Active })
			f.turn()
			f.control.wait("svc.response.settled")
			f.control.wait("svc.response.settled")
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{settled: 1, estimated: 1}},
		{"failed replies", "!emu fail=server_error", "", func(f *faulty) {
			for range session.MaxFailures {
				f.turn()
				f.until("the reply has failed", func() bool { return !f.report().Active })
			}
		}, session.ProviderError, receipts{}},
		{"browser lost, without a sign of it", "!emu vanish=1", "", func(f *faulty) {
			f.replies(1)
			f.pass(2*time.Minute + time.Second)
		}, session.IdleTimeout, receipts{settled: 1}},
		{"browser lost, the sideband stands", "!emu vanish=1 leave_gone", "", func(f *faulty) {
			f.turn()
			f.control.wait("svc.response.settled")
			f.pass(2*time.Minute + time.Second)
		}, session.IdleTimeout, receipts{settled: 1}},
		{"browser leaves within a reply", "!emu hang=3 leave_close", "", func(f *faulty) {
			f.cutReply()
			f.steer(`{"do":"vanish"}`)
		}, session.ClientClosed, receipts{estimated: 1}},
		{"expired within a reply", "!emu hang=3", "", func(f *faulty) {
			f.cutReply()
			f.steer(`{"do":"expire"}`)
		}, session.ProviderError, receipts{estimated: 1}},
		{"settings changed", "", "", func(f *faulty) {
			f.replies(1)
			f.tamper(session.MaxConfigResets)
		}, session.ConfigTampering, receipts{settled: 1}},
		{"settings changed once", "", "", func(f *faulty) {
			f.tamper(1)
			f.until("it is set back", func() bool { return string(f.report().Session.MaxOutput) == "1024" })
			f.replies(1)
			f.end(session.AfterHeard)
		}, session.AppEnded, receipts{settled: 1}},
		{"a reply without a hold", "!emu only=2 hang=3\n!browser@response.done {\"type\":\"response.create\"}",
			`,"max_output_tokens":64`,
			func(f *faulty) {
				f.allocateOnlyHold()
				f.turn() // the browser's own reply comes before its hold was refused, or after
			}, "allocation_exhausted", receipts{settled: 1, raced: 1}},
		{"the ticket raced", "", "", func(f *faulty) {
			statuses := make(chan int)
			for range 8 {
				go func() { statuses <- f.offer() }()
			}
			won := 0
			for range 8 {
				switch status := <-statuses; status {
				case http.StatusCreated:
					won++
				case http.StatusUnauthorized:
				default:
					f.t.Errorf("offer: %d", status)
				}
			}
			if calls := f.calls(); won != 1 || len(calls) != 1 {
				f.t.Errorf("%d offers won, %d calls", won, len(calls))
			}
			f.end(session.Immediate)
		}, session.AppEnded, receipts{}},
		{"the ticket never used", "", "", func(f *faulty) {
			f.pass(ticketTTL + time.Second)
			f.ended(f.o.ID, session.TicketExpired)
			if status, calls := f.offer(), f.calls(); status != http.StatusUnauthorized || len(calls) != 0 {
				f.t.Errorf("a late offer: %d, %d calls", status, len(calls))
			}
			f.open(mini) // there is a place again
			f.open(mini)
			f.pass(ticketTTL + time.Second)
			f.until("nothing is held", func() bool {
				c, err := store.GetConnection(f.t.Context(), f.db, f.conn)
				return err == nil && c.HeldMC == 0
			})
		}, session.TicketExpired, receipts{}},
		{"the control channel lost", "", `,"on_control_lost":"end"`, func(f *faulty) {
			f.replies(1)
			_ = f.control.ws.CloseNow() // as a crash does
			f.until("the loss is known", func() bool { return !f.get(f.o.ID).Live.ControlAttached })
			f.pass(session.ControlGrace)
		}, session.ControlLost, receipts{settled: 1}},
		{"shut down", "", "", func(f *faulty) {
			f.replies(1)
			f.turn()
			f.nodes[0].Stop(context.Background())
		}, session.ServerShutdown, receipts{settled: 2}},
		{"shut down within a reply without end", "!emu hang=3 deaf", "", func(f *faulty) {
			f.cutReply()
			go f.nodes[0].Stop(context.Background())
			f.control.wait("svc.session.ending")
			f.pass(session.ShutdownGrace)
			f.until("it is cancelled", func() bool {
				return strings.Contains(f.state(f.o.ID), `"Immediate":true`) || f.get(f.o.ID).Status == session.Ended
			})
			f.pass(session.CancelWait)
		}, session.ServerShutdown, receipts{estimated: 1}},
		{"max_cost_mc", "", `,"max_cost_mc":303500`, func(f *faulty) {
			f.turn()
		}, session.MaxCost, receipts{settled: 1}},
		{"max_duration_s", "!emu hang=3", `,"max_duration_s":30`, func(f *faulty) {
			f.cutReply()
			f.pass(30 * time.Second)
		}, session.MaxDuration, receipts{cancelled: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, e db.Engine) {
				f := newFaulty(t, e, c.script, c.more)
				if !strings.HasPrefix(c.name, "the ticket") {
					f.connect()
				}
				c.do(f)
				f.checks(c.reason, c.want)
			}
			if c.want.estimated+c.want.cancelled+c.want.raced > 0 { // where our own count may decide what is charged
				eachEngine(t, run)
			} else {
				run(t, []db.Engine{db.SQLite, db.Postgres}[i%2])
			}
		})
	}
}
