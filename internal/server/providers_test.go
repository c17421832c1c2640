package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// This file holds the faults of providers (F-12 to F-28) and of their
// clients (F-30…F-35), run through the server and the emulator. Elsewhere:
//
//	F-16  the rule of each provider for cumulative usage: its adapter's stream_test.go and usage_test.go
//	F-17, F-18, F-28  silence and new prices in mid-call: silence_test.go; the time-outs: openai/openai_test.go
//	F-21  line ends, BOM, every split, what follows [DONE]: provider/sse_test.go and each stream_test.go
//	F-24  no choices, gzip, 32 MiB and more: each adapter's tests
//	F-26  a late answer is fenced: nodes_test.go, ledger/model_test.go
//	F-34  broken and half-sent requests: raw_test.go

// vendor is one of the three providers as its API spells it.
type vendor struct {
	name, model     string
	in, out, totals string // members of its usage; totals "" = there is none
	quota           string // steering: the account is out of quota

	// How calls end where the dialects differ: an error in place of a whole answer
	// or of one that is streamed to us anyway, an error at once with 200, a page
	// with 200, and a call that the model could not spell.
	within, instead ends
	page, spelled   [2]ends
}

var vendors = []vendor{
	{name: "openai",
		model:   "gpt-6-luna",
		in:      "prompt_tokens",
		out:     "completion_tokens",
		totals:  "total_tokens",
		quota:   "status=429 code=insufficient_quota",
		within:  gives,
		instead: gives,
		page:    [2]ends{dies, gives},
		spelled: [2]ends{settles, settles}},
	{name: "anthropic",
		model:   "claude-haiku-4-5",
		in:      "input_tokens",
		out:     "output_tokens",
		quota:   "status=402 code=billing_error",
		within:  dies,
		instead: gives,
		page:    [2]ends{gives, gives},
		spelled: [2]ends{settles, settles}},
	{
		name:    "google",
		model:   "gemini-3.8-flash",
		in:      "promptTokenCount",
		out:     "candidatesTokenCount",
		totals:  "totalTokenCount",
		quota:   "status=429 daily",
		within:  gives,
		instead: gives,
		page:    [2]ends{dies, gives},
		spelled: [2]ends{dies, breaks},
	}, // Google says so itself
}

// usage is steering to report these numbers, as they are.
func (v *vendor) usage(in, out, totals string) string {
	s := fmt.Sprintf(`usage_raw={%q:%s,%q:%s`, v.in, in, v.out, out)
	if v.totals != "" {
		s += fmt.Sprintf(`,%q:%s`, v.totals, totals)
	}
	return s + "} words=20"
}

// emulated is a node with live calls to an emulator, and one client of it that
// keeps one connection.
type emulated struct {
	*nodetest.Node
	t     *testing.T
	url   string // of the emulator
	http  *http.Client
	dials atomic.Int64
}

// eachEmulated runs f on an engine, and on each in the long run.
func eachEmulated(t *testing.T, f func(*testing.T, *emulated)) {
	t.Helper()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		n := startEmulated(t, e)
		f(t, n)
		n.released()
		n.Verify()
	})
}

var emulatorAt = regexp.MustCompile(`"msg":"emulator started","emulator":"providers","url":"([^"]+)"`)

func startEmulated(t *testing.T, e db.Engine) *emulated {
	t.Helper()
	n := &emulated{
		Node: apptest.Start(t, apptest.URL(t, e), apptest.Emulated).Node,
		t:    t,
	}
	testkit.Eventually(t, testkit.Patience, "the emulator's address", func() bool {
		m := emulatorAt.FindStringSubmatch(n.Log())
		if m != nil {
			n.url = m[1]
		}
		return m != nil
	})
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		n.dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	n.http = &http.Client{Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(n.http.CloseIdleConnections)
	return n
}

// question is a call's body that steers the emulator by one line.
func question(script string, stream bool) string {
	b, err := json.Marshal("!emu " + script + "\nWhat is new?")
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"stream":%t,"max_tokens":400,"messages":[{"role":"user","content":%s}]}`, stream, b)
}

func (n *emulated) request(ctx context.Context, model, body, key string) *http.Request {
	n.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", n.BaseURL+"/v1/ai/"+model, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization":   {"Bearer " + n.Connection.AccessToken},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {key},
	}
	return req
}

// askModel sends a call and returns its checked answer.
func (n *emulated) askModel(model, body, key string) answer {
	n.t.Helper()
	resp, err := n.http.Do(n.request(n.t.Context(), model, body, key))
	if err != nil {
		n.t.Fatal(err)
	}
	return whole(n.t, resp)
}

// try is one request that reached the emulator.
type try struct {
	Time   time.Time
	Header http.Header
	Status int
	End    string
}

// tries are the requests of one call that reached the emulator.
func (n *emulated) tries(requestID string) (list []try) {
	n.t.Helper()
	resp, err := http.Get(n.url + "/emulator/requests")
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct{ Data []try }
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		n.t.Fatal(err)
	}
	for _, r := range all.Data {
		if requestID == "" || r.Header.Get("X-Client-Request-Id") == upstream.HashRequestID(requestID) {
			list = append(list, r)
		}
	}
	return list
}

// forget empties the emulator's list.
func (n *emulated) forget() {
	n.t.Helper()
	req, err := http.NewRequest("DELETE", n.url+"/emulator/requests", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// headroom is what the connection says of itself.
func (n *emulated) headroom() (held, consumed int64) {
	n.t.Helper()
	var c struct {
		Held     *int64 `json:"held_mc"`
		Consumed int64  `json:"consumed_mc"`
	}
	if a := whole(n.t, n.Call("GET", "/v1/connection", "")); json.Unmarshal([]byte(a.body), &c) != nil ||
		c.Held == nil {
		n.t.Fatalf("%+v", a)
	}
	return *c.Held, c.Consumed
}

// released waits until nothing is held.
func (n *emulated) released() {
	n.t.Helper()
	testkit.Eventually(n.t, testkit.Patience, "nothing held", func() bool { held, _ := n.headroom(); return held == 0 })
}

// alarms counts the lines for the operator.
func (n *emulated) alarms() int { return strings.Count(n.Log(), `"msg":"provider alarm"`) }

// spendRow is the one spend row of a key.
func (n *emulated) spendRow(key string) calltest.Bill {
	n.t.Helper()
	list := calltest.Spends(n.t, n.DB)[key]
	if len(list) != 1 {
		n.t.Errorf("key %s has %d rows", key, len(list))
		return calltest.Bill{}
	}
	return list[0]
}

// ends is how a call ends.
type ends struct {
	status     int
	settlement string // "" = not billed
	broken     bool   // an error stands in the stream
	tries      int
	alarm      bool
	after      string // Retry-After of the answer
}

var (
	settles   = ends{status: 200, settlement: "settled", tries: 1}
	estimates = ends{status: 200, settlement: "estimated", tries: 1}
	breaks    = ends{status: 200, settlement: "estimated", broken: true, tries: 1}
	dies      = ends{status: 502, tries: 1}
	gives     = ends{status: 502, tries: 3} // up, after three tries
	recovers  = ends{status: 200, settlement: "settled", tries: 2}
	rejects   = ends{status: 400, tries: 1}
	refused   = ends{status: 502, tries: 1, alarm: true}
)

// fault is one case: what the emulator does, and how a call ends of it, whole
// and streamed.
type fault struct {
	name, script  string
	whole, stream ends
	bill          func(calltest.Bill) bool // what else must be true of its row
}

func newFault(name, script string, e ends) fault {
	return fault{name: name, script: script, whole: e, stream: e}
}

func withAfter(e ends, after string) ends { e.after = after; return e }

func withOneTry(e ends) ends { e.tries = 1; return e }

// faults of a provider, by id.
func (v *vendor) faults() []fault {
	overrun := func(b calltest.Bill) bool { return b.ChargeMC > b.HoldMC*105/100 }
	under := func(b calltest.Bill) bool { return b.ChargeMC > 0 && b.ChargeMC*10 < b.HoldMC }
	list := []fault{
		newFault("F-12 no usage", "no_usage words=40", estimates),
		newFault("F-13 negative", v.usage("-5", "10", "5"), estimates),
		newFault("F-13 negative output", v.usage("5", "-10", "-5"), estimates),
		newFault("F-13 fraction", v.usage("5.5", "10", "15.5"), estimates),
		newFault("F-13 string", v.usage(`"5"`, "10", "15"), estimates),
		newFault("F-13 null", v.usage("null", "null", "null"), estimates),
		newFault("F-13 above 2^53", v.usage("9007199254740993", "10", "9007199254741003"), estimates),
		newFault("F-13 above 2^64", v.usage("99999999999999999999999", "10", "10"), estimates),
		newFault("F-13 above the window", v.usage("2000000", "10", "2000010"), estimates),
		newFault("F-13 far above the cap", v.usage("10", "5000", "5010"), estimates),
		newFault("F-13 nothing at all", v.usage("0", "0", "0"), estimates),
		{"F-14 above the hold", "usage=2000,0,0,800 words=20", settles, settles, overrun},
		{"F-15 far below the hold", "usage=3,0,0,2 words=20", settles, settles, under},
		newFault("F-16 cached, written, reasoning", "usage=1000,200,100,50,10 words=20", settles),
		newFault("F-19 reset before the headers", "cut=0", gives),
		newFault("F-19 reset at first", "cut=0 fails=1", recovers),
		{"F-20 reset within", "cut=1500 words=200", dies, breaks, nil},
		{"F-20 ended within", "end=5 words=200", dies, breaks, nil},
		{"F-20 error within", "error=5 words=200", v.within, breaks, nil},
		{"F-21 no JSON within", "garbage=5 words=200", dies, breaks, nil},
		newFault("F-21 byte by byte", "split words=20", settles),
		newFault("F-21 a line of a megabyte", "huge words=20", settles),
		newFault("F-22 busy, and says how long", "status=429 retry_after=30", withAfter(withOneTry(gives), "30")),
		newFault("F-22 busy at first", "status=429 fails=1", recovers),
		newFault("F-22 500", "status=500", gives),
		newFault("F-22 503 at first", "status=503 fails=1", recovers),
		newFault("F-22 529", "status=529", gives),
		newFault("F-22 says not to try again", "status=503 should_retry=false", dies),
		newFault("F-22 401", "status=401", refused),
		newFault("F-22 403", "status=403", refused),
		newFault("F-22 404", "status=404", refused),
		newFault("F-22 out of quota", v.quota, refused),
		newFault("F-23 400", "status=400", rejects),
		newFault("F-23 413", "status=413", rejects),
		newFault("F-24 an error with 200", "error=0", v.instead),
		{"F-24 a page with 200", "html status=200", v.page[0], v.page[1], nil},
		newFault("F-24 a page with 502", "html", gives),
		newFault("F-25 redirect", "redirect", dies),
		newFault("F-27 unknown reason", "stop=strange words=20", settles),
		{"F-27 broken call", "malformed_call words=20", v.spelled[0], v.spelled[1], nil},
	}
	return list
}

// TestProviderFaults runs every fault at every provider, whole and streamed, and
// after each a call that is well.
func TestProviderFaults(t *testing.T) {
	t.Parallel()
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			eachEmulated(t, func(t *testing.T, n *emulated) {
				for _, f := range v.faults() {
					var charged []int64
					for _, stream := range []bool{false, true} {
						where := fmt.Sprintf("%s, stream %t", f.name, stream)
						want := f.whole
						if stream {
							want = f.stream
						}
						if b := n.fault(where, &v, f.script, stream, want); want.settlement != "" {
							if charged = append(charged, b.ChargeMC); f.bill != nil && !f.bill(b) {
								t.Errorf("%s: %+v", where, b)
							}
						}
						if a := n.askModel(v.model, question("words=5", stream), servertest.UUID()); a.status != 200 {
							t.Errorf("after %s: %+v", where, a)
						}
					}
					if len(charged) == 2 && charged[0] != charged[1] {
						t.Errorf("%s costs %d whole and %d streamed", f.name, charged[0], charged[1])
					}
				}
				if d := n.dials.Load(); d > 9 { // a client may dial once more before it has put the connection back
					t.Errorf("%d connections: an error costs the client its connection", d)
				}
				if n.alarms() == 0 {
					t.Error("vacuous: no alarm")
				}
			})
		})
	}
}

// fault makes one call that goes wrong, and checks all that it leaves behind.
func (n *emulated) fault(where string, v *vendor, script string, stream bool, want ends) calltest.Bill {
	n.t.Helper()
	n.forget()
	key, alarms := servertest.UUID(), n.alarms()
	_, before := n.headroom()
	a := n.askModel(v.model, question(script, stream), key)
	if a.status != want.status || a.header.Get("Retry-After") != want.after {
		n.t.Errorf("%s: %+v", where, a)
	}
	if got := len(n.tries(a.header.Get("X-Request-Id"))); got != want.tries {
		n.t.Errorf("%s: %d tries", where, got)
	}
	if (n.alarms() > alarms) != want.alarm {
		n.t.Errorf("%s: %d alarms", where, n.alarms()-alarms)
	}
	if strings.Contains(a.body, "emulated-key") || want.status == 502 && strings.Contains(a.body, "emulator") {
		n.t.Errorf("%s: what is ours alone is shown: %s", where, a.body)
	}
	if strings.Contains(a.body, `data: {"error":`) != want.broken {
		n.t.Errorf("%s: an error within: %s", where, a.body)
	}
	held, after := n.headroom()
	if held != 0 {
		n.t.Errorf("%s: %d held afterwards", where, held)
	}
	if want.settlement == "" {
		n.unbilled(where, v, script, stream, want, key)
		return calltest.Bill{}
	}
	row := n.billed(where, v, a, question(script, stream), key, want)
	if after-before != row.ChargeMC {
		n.t.Errorf("%s: %d consumed, charged %d", where, after-before, row.ChargeMC)
	}
	return row
}

// unbilled checks a call that failed: an envelope, no row, and another try with
// the same key.
func (n *emulated) unbilled(where string, v *vendor, script string, stream bool, want ends, key string) {
	n.t.Helper()
	if rows := calltest.Spends(n.t, n.DB)[key]; len(rows) > 0 {
		n.t.Errorf("%s: billed %+v", where, rows)
	}
	code := map[int]string{400: "invalid_request", 502: "provider_error"}[want.status]
	again := n.askModel(v.model, question(script, stream), key)
	again.wantAnswer(n.t, want.status, code)
	if tries := len(n.tries("")); tries != 2*want.tries {
		n.t.Errorf("%s: %d tries after asking again", where, tries)
	}
	if again.header.Get("Idempotent-Replayed") != "" {
		n.t.Errorf("%s: a failure is replayed", where)
	}
	n.askModel(v.model, question("other "+script, stream), key).wantAnswer(n.t, 409, "idempotency_key_reused")
}

// billed checks a call that was charged: its row is what was answered, adds up,
// and is what the key gets for ever.
func (n *emulated) billed(where string, v *vendor, a answer, body, key string, want ends) calltest.Bill {
	n.t.Helper()
	row := n.spendRow(key)
	var said calltest.Bill
	b, err := json.Marshal(a.billing(n.t))
	if err != nil || json.Unmarshal(b, &said) != nil || said != row || row.Settlement != want.settlement {
		n.t.Errorf("%s: answered %+v, the ledger has %+v", where, said, row)
	}
	if row.CostMC <= 0 || row.ChargeMC != row.CostMC+row.FeeMC+row.MarginMC ||
		row.Settlement == "estimated" && row.ChargeMC > row.HoldMC {
		n.t.Errorf("%s: row %+v", where, row)
	}
	if strings.Contains(body, `"stream":true`) && !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		n.t.Errorf("%s: the stream has no end: %s", where, a.body)
	}
	again := n.askModel(v.model, body, key)
	if again.body != a.body || again.header.Get("Idempotent-Replayed") != "true" || again.status != a.status {
		i := 0
		for i < min(len(a.body), len(again.body)) && a.body[i] == again.body[i] {
			i++
		}
		n.t.Errorf("%s: replayed %d %v …%.500s\nfirst …%.500s", where, again.status, again.header, again.body[i:],
			a.body[i:])
	}
	if tries := len(n.tries("")); tries != want.tries {
		n.t.Errorf("%s: %d tries after a replay", where, tries)
	}
	return row
}

// TestRetryAfter: tries wait as long as the provider says, in each of its forms.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		for _, v := range vendors {
			for script, least := range map[string]time.Duration{
				"retry_after=1":      time.Second,
				"retry_after=0.7":    700 * time.Millisecond,
				"retry_after_ms=800": 800 * time.Millisecond,
				"retry_after_date=2": 900 * time.Millisecond, // a date has whole seconds
			} {
				a := n.askModel(v.model, question("status=429 fails=1 "+script, true), servertest.UUID())
				tries := n.tries(a.header.Get("X-Request-Id"))
				if a.status != 200 || len(tries) != 2 {
					t.Errorf("%s, %s: %d tries, %+v", v.name, script, len(tries), a)
				} else if d := tries[1].Time.Sub(tries[0].Time); d < least || d > least+4*time.Second {
					t.Errorf("%s, %s: waited %s", v.name, script, d)
				}
			}
			for script, most := range map[string]int{
				"retry_after=40":       40,
				"retry_after=39.2":     40,
				"retry_after_ms=39500": 40,
				"retry_after_date=40":  40,
			} {
				a := n.askModel(v.model, question("status=503 "+script, false), servertest.UUID())
				a.wantAnswer(t, 502, "provider_error")
				if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after > most ||
					after < most-2 {
					t.Errorf("%s, %s: the app is told %q", v.name, script, a.header.Get("Retry-After"))
				}
				if tries := len(n.tries(a.header.Get("X-Request-Id"))); tries != 1 {
					t.Errorf("%s, %s: %d tries of a provider that wants to be left alone", v.name, script, tries)
				}
			}
		}
	})
}

// TestCircuit: a provider that fails many times in a row, for ten seconds, is left alone for a
// while, holds nothing then, does not touch the others, and is found when it is back.
func TestCircuit(t *testing.T) {
	t.Parallel()
	eachEmulated(t, func(t *testing.T, n *emulated) {
		fail := func(model string, stream bool) {
			n.askModel(model, question("status=503 should_retry=false", stream), servertest.UUID()).
				wantAnswer(t, 502, "provider_error")
		}
		dead := vendors[:len(vendors)-1]
		for i, v := range dead {
			for range 20 {
				fail(v.model, i%2 == 0)
			}
		}
		<-time.After(10 * time.Second)
		for i, v := range dead {
			fail(v.model, i%2 == 0)
			n.forget()
			begun := time.Now()
			a := n.askModel(v.model, question("words=5", false), servertest.UUID())
			a.wantAnswer(t, 502, "provider_error")
			if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 1 || after > 5 {
				t.Errorf("%s: the app is told to come after %q", v.name, a.header.Get("Retry-After"))
			}
			if held, _ := n.headroom(); held != 0 || len(n.tries("")) != 0 || time.Since(begun) > 3*time.Second {
				t.Errorf("%s is dead: %d held, %d tries, %s", v.name, held, len(n.tries("")), time.Since(begun))
			}
			for _, other := range vendors[len(dead):] {
				if a := n.askModel(other.model, question("words=5", true), servertest.UUID()); a.status != 200 {
					t.Errorf("%s is dead, and %s: %+v", v.name, other.name, a)
				}
			}
		}
		for _, v := range dead {
			testkit.Eventually(t, testkit.Patience, v.name+" is back", func() bool {
				return n.askModel(v.model, question("words=5", true), servertest.UUID()).status == 200
			})
			for range 3 {
				if a := n.askModel(v.model, question("words=5", false), servertest.UUID()); a.status != 200 {
					t.Errorf("%s is back: %+v", v.name, a)
				}
			}
		}
	})
}

// running waits until the emulator has a call that it has not answered.
func (n *emulated) running() {
	n.t.Helper()
	testkit.Eventually(n.t, testkit.Patience, "the call is at the provider", func() bool {
		list := n.tries("")
		return len(list) == 1 && list[0].Status == 0
	})
}

// checkAbandoned asks for what a client has not got, and checks that it was asked of the
// provider and billed once, exactly.
func (n *emulated) checkAbandoned(where string, v *vendor, script string, stream bool, key string) {
	n.t.Helper()
	a := n.askModel(v.model, question(script, stream), key)
	row := n.spendRow(key)
	if a.status != 200 || row.Settlement != "settled" || stream && !strings.HasSuffix(a.body, "data: [DONE]\n\n") ||
		strings.Contains(a.body, `data: {"error":`) {
		n.t.Errorf("%s: %+v, row %+v", where, a, row)
	}
	if tries := n.tries(""); len(tries) != 1 || tries[0].End != "whole" {
		n.t.Errorf("%s: tries %+v", where, tries)
	}
	exact := n.askModel(v.model, question(script, stream), servertest.UUID())
	if want := exact.billing(n.t)["user_charge_mc"]; want != float64(row.ChargeMC) {
		n.t.Errorf("%s: charged %d, a client that stays %v", where, row.ChargeMC, want)
	}
	n.released()
}

// TestClientFaults: whatever the client does, its call is settled once.
func TestClientFaults(t *testing.T) {
	t.Parallel()
	for _, v := range vendors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			eachEmulated(t, func(t *testing.T, n *emulated) {
				const slow, paced = "delay=2s words=30", "pace=20ms words=30"
				for _, leave := range []struct {
					name   string
					script string
					stream bool
					how    func(*net.TCPConn) error
				}{
					{"F-30 closes before a whole answer", slow, false, (*net.TCPConn).Close},
					{"F-30 closes before a stream", slow, true, (*net.TCPConn).Close},
					{"F-31 closes within a stream", paced, true, (*net.TCPConn).Close},
					{"F-35 resets before a whole answer", slow, false, reset},
					{"F-35 resets within a stream", paced, true, reset},
				} {
					n.forget()
					key := servertest.UUID()
					conn := n.sendRaw(v.model, question(leave.script, leave.stream), key)
					n.running()
					if leave.script == paced {
						if _, err := conn.Read(make([]byte, 1)); err != nil {
							t.Fatal(err)
						}
					}
					if err := leave.how(conn); err != nil {
						t.Fatal(err)
					}
					n.checkAbandoned(v.name+", "+leave.name, &v, leave.script, leave.stream, key)
				}
				for _, stream := range []bool{false, true} {
					n.checkHalfClosed(&v, stream)
					n.lastByte(&v, stream)
				}
				n.abortedUpload()
			})
		})
	}
}

// reset closes a connection as a crash does.
func reset(c *net.TCPConn) error {
	if err := c.SetLinger(0); err != nil {
		return err
	}
	return c.Close()
}

// sendRaw writes a call to a connection of its own.
func (n *emulated) sendRaw(model, body, key string) *net.TCPConn {
	n.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.BaseURL, "http://"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() }) // it may be closed already
	if err := n.request(n.t.Context(), model, body, key).Write(conn); err != nil {
		n.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// checkHalfClosed: a client that has closed its own half gets its answer (F-35).
func (n *emulated) checkHalfClosed(v *vendor, stream bool) {
	n.t.Helper()
	n.forget()
	key, script := servertest.UUID(), "delay=400ms words=20"
	conn := n.sendRaw(v.model, question(script, stream), key)
	n.running()
	if err := conn.CloseWrite(); err != nil {
		n.t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200") ||
		!strings.Contains(string(got), `"user_charge_mc"`) {
		n.t.Errorf("%s, stream %t, half closed: %v %s", v.name, stream, err, got)
	}
	n.checkAbandoned(v.name+", half closed", v, script, stream, key)
}

// lastByte: who closes after the last byte has had a success (F-33).
func (n *emulated) lastByte(v *vendor, stream bool) {
	n.t.Helper()
	n.forget()
	key := servertest.UUID()
	req := n.request(n.t.Context(), v.model, question("words=20", stream), key)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		n.t.Error(err)
	}
	apitest.Check(n.t, req, resp, body)
	var line string
	testkit.Eventually(n.t, testkit.Patience, "the call's log line", func() bool {
		for l := range strings.Lines(n.Log()) {
			if strings.Contains(l, resp.Header.Get("X-Request-Id")) && strings.Contains(l, `"status":200`) {
				line = l
			}
		}
		return line != ""
	})
	if strings.Contains(line, "client_gone") {
		n.t.Errorf("%s, stream %t: a success is told as a client that has gone: %s", v.name, stream, line)
	}
	n.checkAbandoned(v.name+", closed after the last byte", v, "words=20", stream, key)
}

// abortedUpload: a body that does not arrive leaves nothing (F-34).
func (n *emulated) abortedUpload() {
	n.t.Helper()
	n.forget()
	before := traces(n.t, n.Node)
	for _, how := range []func(*net.TCPConn) error{(*net.TCPConn).Close, (*net.TCPConn).CloseWrite, reset} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.BaseURL, "http://"))
		if err != nil {
			n.t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn,
			"%sHost: purser\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\n%sContent-Length: 5000\r\n\r\n%s",
			line, n.Connection.AccessToken, servertest.UUID(), typed, hello); err != nil {
			n.t.Fatal(err)
		}
		if err := how(conn.(*net.TCPConn)); err != nil {
			n.t.Fatal(err)
		}
		if a := n.askModel("gpt-6-luna", `{}`, servertest.UUID()); a.status != 400 { // it is alive
			n.t.Errorf("%+v", a)
		}
	}
	if after := traces(n.t, n.Node); after != before || len(n.tries("")) != 0 {
		n.t.Errorf("aborted uploads have left a trace: %s, before %s", after, before)
	}
}

// TestSlowReader: a client that reads nothing is waited for so long, then its
// call goes on without it; one that comes back before gets all (F-32).
func TestSlowReader(t *testing.T) {
	t.Parallel()
	n := startEmulated(t, db.SQLite)
	body := strings.Replace(question("words=14000", true), `"max_tokens":400`, `"max_tokens":60000`, 1)
	key := servertest.UUID()
	d := net.Dialer{}
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(n.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if err := n.request(t.Context(), "gpt-6-luna", body, key).Write(conn); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the call is settled without its client", func() bool {
		return len(calltest.Spends(t, n.DB)[key]) == 1
	})
	if row := n.spendRow(key); row.Settlement != "settled" {
		t.Errorf("row %+v", row)
	}
	n.released()
	n.Verify()
}
