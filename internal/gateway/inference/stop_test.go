package inference

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
)

// stops are the ways to stop running calls, with the error code that they give.
var stops = []struct {
	name, code string
	stop       func(b *bundle, requestID string)
}{
	{"the call, here", "call_stopped", func(b *bundle, requestID string) {
		if err := b.StopCall(b.t.Context(), b.who.ConnectionID, requestID); err != nil {
			b.t.Error(err)
		}
	}},
	{"the call, by another node", "call_stopped", func(b *bundle, requestID string) {
		if err := store.InsertStop(b.t.Context(), b.DB, b.who.ConnectionID, requestID, b.clock()); err != nil {
			b.t.Error(err)
		}
		b.watchStops()
	}},
	{"the pause of the connection", "connection_frozen", func(b *bundle, _ string) {
		b.do(rules.Freeze{ConnectionID: b.who.ConnectionID, By: rules.FrozenByUser})
		b.watchStops()
	}},
	{"the operator's pause", "connection_frozen", func(b *bundle, _ string) {
		b.do(rules.Freeze{ConnectionID: b.who.ConnectionID, By: rules.FrozenByOperator, Reason: "abuse"})
		b.watchStops()
	}},
	{"the pause of everything", "connection_frozen", func(b *bundle, _ string) {
		b.do(rules.PauseAccount{AccountID: b.who.AccountID, By: rules.FrozenByUser})
		b.watchStops()
	}},
	{"the pause of everything, here", "connection_frozen", func(b *bundle, _ string) {
		b.PauseCalls([]string{b.who.ConnectionID})
	}},
	{"the user's revoke", "connection_revoked", func(b *bundle, _ string) {
		b.do(rules.Revoke{ConnectionID: b.who.ConnectionID, StopCalls: true})
		b.watchStops()
	}},
	{"the operator's suspension", "app_suspended", func(b *bundle, _ string) {
		if err := b.DB.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, _, err := b.Apps.Suspend(ctx, tx, b.who.App.ID, "operator", "its secret has leaked")
			return err
		}); err != nil {
			b.t.Error(err)
		}
		b.watchStops()
	}},
}

func (b *bundle) watchStops() {
	b.t.Helper()
	if err := b.WatchStops(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

// A stopped stream relays nothing more, ends with the error and its charge, and is charged for
// what it has delivered: as much as a stream that broke off there. Its key replays the same bytes.
func TestStopStream(t *testing.T) {
	t.Parallel()
	for _, s := range stops {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, e db.Engine) {
				f := &fakeProvider{
					chunks:  []provider.Chunk{{Frames: []byte(delta("Hello"))}, {Frames: []byte(delta(" there"))}},
					hangs:   true,
					hanging: make(chan struct{}, 8),
					ended:   errCut,
				}
				b := newBundle(t, e, f)
				key, another := id.NewUUID(), id.NewUUID()
				resp := b.open(t.Context(), key)
				<-f.hanging // both chunks are relayed
				s.stop(b, resp.Header.Get("X-Request-Id"))
				first := readRest(t, resp.Body)
				if !strings.Contains(first, `"code":"`+s.code+`"`) || !strings.Contains(first, partBilled) ||
					!strings.Contains(first, `"settlement":"estimated"`) ||
					!strings.HasSuffix(first, "data: [DONE]\n\n") {
					t.Errorf("the stopped stream is\n%s", first)
				}
				if s.code == "connection_frozen" { // otherwise its replay is 403, as every call (F-39)
					by := rules.FrozenByUser
					if strings.Contains(s.name, "operator") {
						by = rules.FrozenByOperator
					}
					b.do(rules.Resume{ConnectionID: b.who.ConnectionID, By: by})
				}
				for range 2 {
					if s.code == "connection_revoked" {
						break
					}
					if again, _, replayed := b.call(key, ""); again != first || !replayed {
						t.Errorf("replayed %t:\n%s\nfirst:\n%s", replayed, again, first)
					}
				}
				b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1 AND settlement = 'estimated'`, key)
				b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0`)
				b.audit()
				if s.code != "call_stopped" {
					return
				}
				f.hangs, b.Recorders = false, nil // it breaks off after the same chunks
				b.call(another, "")
				b.expectOne(`SELECT COUNT(*) FROM ledger a JOIN ledger b ON a.user_charge_mc = b.user_charge_mc
					AND a.usage = b.usage WHERE a.key = $1 AND b.key = $2 AND a.user_charge_mc > 0`, key, another)
			})
		})
	}
}

// A call that is stopped before it has delivered anything is not billed. The client gets the
// error with its own status, and the key may be tried again.
func TestStopBeforeOutput(t *testing.T) {
	t.Parallel()
	for _, s := range stops {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := &fakeProvider{
				silent: make(chan error),
				chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 1}}},
				ended:  io.EOF,
			}
			b := newBundle(t, db.SQLite, f)
			b.storesRefusals = true // which the next attempt of the key does not contradict
			key, ended := id.NewUUID(), make(chan string, 1)
			go func() { ended <- b.status(key) }()
			b.stopWhenHeld(s.stop)
			if got := <-ended; !strings.HasPrefix(got, "403 ") || !strings.Contains(got, `"code":"`+s.code+`"`) ||
				!strings.Contains(got, nothingBilled) || !strings.HasSuffix(got, "false") {
				t.Errorf("the client got %s", got)
			}
			b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
			b.audit()
			if s.code != "call_stopped" {
				return
			}
			go func() { f.silent <- nil }()
			b.watchStops() // what was read before stops no later attempt
			if body, _, replayed := b.call(key, ""); replayed || !strings.Contains(body, `"settlement":"settled"`) {
				t.Errorf("replayed %t: the next attempt got\n%s", replayed, body)
			}
			b.audit()
		})
	}
}

// status makes a call and returns the status, the body and x-should-retry of its response.
func (b *bundle) status(key string) string {
	req, err := http.NewRequest(http.MethodPost, b.url, nil)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body), resp.Header.Get("X-Should-Retry"))
}

// stopWhenHeld stops the one call when the provider may have been asked.
func (b *bundle) stopWhenHeld(stop func(b *bundle, requestID string)) {
	b.t.Helper()
	var requestID string
	b.eventually("the call runs", func() bool {
		for _, c := range b.calls.listCalls() {
			c.mu.Lock()
			requestID = c.requestID
			c.mu.Unlock()
		}
		return requestID != ""
	})
	stop(b, requestID)
}

// A chunk that was read from the provider before a stop, and not relayed, is dropped.
func TestStopDropsWhatWasNotRelayed(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		chunks: []provider.Chunk{
			{Frames: []byte(delta("Hello"))},
			{Frames: []byte(delta(" there")), Usage: &provider.Usage{Input: 9, Output: 2}},
		},
		ended:  io.EOF,
		paused: make(chan struct{}), // the second chunk comes whatever was cut
	}
	b := newBundle(t, db.SQLite, f)
	key := id.NewUUID()
	resp := b.open(t.Context(), key)
	in := bufio.NewReader(resp.Body)
	if line := readLine(t, in); !strings.Contains(line, "Hello") {
		t.Fatalf("%q", line)
	}
	for range 2 { // the second stop changes nothing
		if err := b.StopCall(t.Context(), b.who.ConnectionID, resp.Header.Get("X-Request-Id")); err != nil {
			t.Error(err)
		}
	}
	close(f.paused)
	rest := readRest(t, in)
	if strings.Contains(rest, "there") || !strings.Contains(rest, `"code":"call_stopped"`) {
		t.Errorf("after the stop:\n%s", rest)
	}
	b.do(rules.Freeze{ConnectionID: b.who.ConnectionID, By: rules.FrozenByUser}) // it has ended
	b.watchStops()
	b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1 AND settlement = 'estimated'`, key)
	b.audit()
}

// A stop and the natural end of a stream race: whichever wins, the key has one row, and its replay
// is what the client got.
func TestStopRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		chunks: []provider.Chunk{
			{Frames: []byte(delta("Hello"))},
			{Frames: []byte(delta(" there")), Usage: &provider.Usage{Input: 9, Output: 2}},
		},
		ended: io.EOF,
	}
	b := newBundle(t, db.SQLite, f)
	ends := map[string]int{}
	for n := range 60 {
		key := id.NewUUID()
		resp := b.open(t.Context(), key)
		paused := make(chan struct{})
		go func() {
			<-time.After(time.Duration(n%12) * 100 * time.Microsecond)
			b.PauseCalls([]string{b.who.ConnectionID})
			close(paused)
		}()
		first := readRest(t, resp.Body)
		<-paused // a late one would stop the next call
		if again, _, replayed := b.call(key, ""); again != first && resp.StatusCode == http.StatusOK {
			t.Errorf("replayed %t:\n%s\nfirst:\n%s", replayed, again, first)
		}
		switch {
		case resp.StatusCode != http.StatusOK:
			ends["released"]++
		case strings.Contains(first, `"settlement":"estimated"`) &&
			strings.Contains(first, `"code":"connection_frozen"`):
			ends["stopped"]++
		case strings.Contains(first, `"settlement":"settled"`) && !strings.Contains(first, `"error"`):
			ends["settled"]++
		default:
			t.Errorf("a stopped stream that ended is\n%s", first)
		}
		b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1`, key)
	}
	t.Logf("ends: %v", ends)
	b.audit()
}

// Freezes by risk and by a payment, and a revoke by the app, let running calls finish, and so does
// a stop of another connection or of another call. A resumed connection's calls are not stopped by
// the pause before.
func TestStopLeavesOthers(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		chunks:  []provider.Chunk{{Frames: []byte(delta("Hello"))}},
		hangs:   true,
		hanging: make(chan struct{}, 8),
	}
	b := newBundle(t, db.SQLite, f)
	b.do(rules.Freeze{ConnectionID: b.who.ConnectionID, By: rules.FrozenByUser})
	b.do(rules.Resume{ConnectionID: b.who.ConnectionID})
	b.watchStops()
	key := id.NewUUID()
	resp := b.open(t.Context(), key)
	<-f.hanging
	requestID := resp.Header.Get("X-Request-Id")
	b.watchStops()
	for _, other := range [][2]string{
		{b.who.ConnectionID, "req_other"}, {"conn_other", requestID}, {b.who.ConnectionID, ""},
	} {
		if other[1] != "" {
			if err := b.StopCall(t.Context(), other[0], other[1]); err != nil {
				t.Error(err)
			}
		}
	}
	b.do(rules.Freeze{ConnectionID: b.who.ConnectionID, By: rules.FrozenByRisk})
	b.do(rules.Resume{ConnectionID: b.who.ConnectionID})
	b.do(rules.Freeze{ConnectionID: b.who.ConnectionID, By: rules.FrozenByPayment})
	b.do(rules.Revoke{ConnectionID: b.who.ConnectionID})
	b.watchStops()
	for _, c := range b.calls.listCalls() {
		if stop := c.stopped.Load(); stop != nil {
			t.Errorf("stopped: %v", stop)
		}
	}
	b.CutCalls()
	if body := readRest(t, resp.Body); !strings.Contains(body, "broke off") {
		t.Errorf("the call ended with\n%s", body)
	}
	b.eventually("it is billed", func() bool { return b.billed(key) || len(b.calls.listCalls()) == 0 })
}

// TestSuspensionStopsWhatBeginsAfterIt: the operator's suspension ends also calls that begin at a node which does not
// know it yet, because it has cached their callers. A call that begins after the suspension was lifted goes on, also
// if it begins while the node reads.
func TestSuspensionStopsWhatBeginsAfterIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		f := &fakeProvider{
			chunks:  []provider.Chunk{{Frames: []byte(delta("Hello"))}},
			hangs:   true,
			hanging: make(chan struct{}, 8),
		}
		b := newBundle(t, e, f)
		var onRead func()
		b.DB.Trace(func(query string, _ []any) {
			if strings.Contains(query, "suspension_by = 'operator'") && onRead != nil {
				onRead()
			}
		})
		inTx := func(do func(ctx context.Context, tx *db.Tx) error) {
			t.Helper()
			if err := b.DB.InTx(t.Context(), do); err != nil {
				t.Fatal(err)
			}
		}
		inTx(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := b.Apps.Suspend(ctx, tx, b.who.App.ID, "operator", "its secret has leaked")
			return err
		})
		for range 3 { // the node's caller is the one of before
			b.watchStops()
			b.pass(time.Second / 2)
			late := b.open(t.Context(), id.NewUUID())
			<-f.hanging
			b.watchStops()
			if body := readRest(t, late.Body); !strings.Contains(body, `"code":"app_suspended"`) {
				t.Errorf("a call that began after the suspension ended with\n%s", body)
			}
		}
		var racing *http.Response
		onRead = func() { // it is read that the app is suspended, and then the suspension ends, and a call begins
			onRead = nil
			racing = b.open(t.Context(), id.NewUUID())
			<-f.hanging
		}
		b.watchStops()
		inTx(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := b.Apps.Lift(ctx, tx, b.who.App.ID)
			return err
		})
		after := b.open(t.Context(), id.NewUUID())
		<-f.hanging
		b.watchStops()
		for _, c := range b.calls.listCalls() {
			if stop := c.stopped.Load(); stop != nil {
				t.Errorf("stopped after the lift: %v", stop)
			}
		}
		b.CutCalls()
		for _, resp := range []*http.Response{racing, after} {
			if body := readRest(t, resp.Body); !strings.Contains(body, "broke off") {
				t.Errorf("the call ended with\n%s", body)
			}
		}
		b.eventually("they have ended", func() bool { return len(b.calls.listCalls()) == 0 })
	})
}

// A call that is stopped while its hold is made asks no provider.
func TestStopWhileHeld(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error)} // whoever asks it waits for ever
	b := newBundle(t, db.SQLite, f)
	k := rules.Key{ConnectionID: b.who.ConnectionID, Key: id.NewUUID()}
	running, _ := b.calls.enter(k, "print", "claim", b.who.App.ID)
	b.PauseCalls([]string{b.who.ConnectionID})
	c := &call{who: b.who, key: k, claim: id.New(id.Request, b.clock())}
	c.plan = b.plan(plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody)
	hold := c.plan.Demand
	hold.Key, hold.RequestID, hold.NodeID, hold.Claim = k.Key, c.claim, b.Node.ID, c.claim
	held, err := b.Ledger.Do(t.Context(), hold)
	if err != nil {
		t.Fatal(err)
	}
	err = b.newAttempt(c, running, &held, nil).execute(t.Context(), discard{})
	var stop *stoppedError
	if !errors.As(err, &stop) || stop.cause != rules.StoppedByPause {
		t.Errorf("%v", err)
	}
	b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
	b.audit()
}

type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// Two nodes: the user's page is on one, the call on the other, and a copy of it follows on the
// first. Both clients get the same end, and the key replays it on either.
func TestStopOnAnotherNode(t *testing.T) {
	t.Parallel()
	for _, output := range []bool{true, false} {
		t.Run(fmt.Sprintf("output %t", output), func(t *testing.T) {
			t.Parallel()
			f := &fakeProvider{
				chunks:  []provider.Chunk{{Frames: []byte(delta("Hello"))}},
				hangs:   true,
				hanging: make(chan struct{}, 8),
			}
			if !output {
				f.silent = make(chan error)
			}
			b := newBundle(t, db.Postgres, f) // SQLite serves one process
			b.keepAlive = time.Millisecond
			other := b.secondNode()
			key := id.NewUUID()
			owner := b.open(t.Context(), key)
			requestID := owner.Header.Get("X-Request-Id")
			b.eventually("the call is held", func() bool {
				_, err := store.HoldOfRequest(t.Context(), b.DB, requestID)
				return err == nil
			})
			follower := other.open(t.Context(), key)
			if output {
				<-f.hanging
			}
			if err := other.StopCall(t.Context(), b.who.ConnectionID, requestID); err != nil {
				t.Fatal(err)
			}
			b.watchStops()
			strip := func(text string) string {
				return strings.TrimLeft(strings.ReplaceAll(text, ": waiting\n\n", ""), "\n")
			}
			first, second := strip(readRest(t, owner.Body)), strip(readRest(t, follower.Body))
			if first != second || !strings.Contains(first, `"code":"call_stopped"`) {
				t.Errorf("the owner's client got\n%s\nthe follower\n%s", first, second)
			}
			if !output {
				b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
				b.audit()
				return
			}
			for _, node := range []*bundle{b, other} {
				node.keepAlive = time.Minute
				if again, _, replayed := node.call(key, ""); again != first || !replayed {
					t.Errorf("replayed %t:\n%s\nfirst\n%s", replayed, again, first)
				}
			}
			b.audit()
		})
	}
}

// While the database takes no writes, a stop at the call's node ends what is relayed. The call is
// settled when the database is back.
func TestStopWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		chunks:  []provider.Chunk{{Frames: []byte(delta("Hello"))}},
		hangs:   true,
		hanging: make(chan struct{}, 8),
	}
	b := newBundle(t, db.SQLite, f)
	key := id.NewUUID()
	resp := b.open(t.Context(), key)
	<-f.hanging
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no statement runs with it
	if err := b.StopCall(ctx, b.who.ConnectionID, resp.Header.Get("X-Request-Id")); err != nil {
		t.Errorf("a call that runs here: %v", err)
	}
	if err := b.StopCall(ctx, b.who.ConnectionID, "req_elsewhere"); err == nil {
		t.Error("a stop that was not saved is no stop of a call elsewhere")
	}
	if body := readRest(t, resp.Body); !strings.Contains(body, `"code":"call_stopped"`) {
		t.Errorf("the stream is\n%s", body)
	}
	b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1 AND settlement = 'estimated'`, key)
	b.audit()
}

// What the stored error frame says is the envelope of the contract.
func TestStoppedErrorIsAnEnvelope(t *testing.T) {
	t.Parallel()
	for cause, code := range map[rules.StopCause]string{
		rules.StoppedByUser:       "call_stopped",
		rules.StoppedByPause:      "connection_frozen",
		rules.StoppedByRevoke:     "connection_revoked",
		rules.StoppedBySuspension: "app_suspended",
	} {
		e := (&stoppedError{cause}).apiError("conn_1", partBilled)
		if e.Code.Name != code || e.Code.Status != http.StatusForbidden || !e.Code.Final || e.ConnectionID != "conn_1" {
			t.Errorf("%s: %+v", cause, e)
		}
		frame, ok := strings.CutPrefix(string(errorFrame(e, web.Links{})), "data: ")
		if !ok || !json.Valid([]byte(strings.TrimSpace(frame))) {
			t.Errorf("%s: %q", cause, frame)
		}
	}
}
