package nodes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// luna is where a model is called.
const luna = "/v1/ai/gpt-6-luna"

// booked is one call as its client knows it: a key, what was sent, and the
// first whole answer.
type booked struct {
	key, body string
	stream    bool
	as        string // access token; "" = the node's own
	path      string // "" = the model's own

	mu     sync.Mutex
	answer []byte   // the whole first 200; nil while there is none
	others [][]byte // what else clients got while an owner slept
	stored bool     // answer is what replays return
	parts  [][]byte // of its streams that broke: what had arrived
	node   *servertest.Process
}

// callBooks are the calls of all clients of a test, and how often what happened.
type callBooks struct {
	t      *testing.T
	refuse func(status int, code string) bool // which failures are true and allowed
	http   *http.Client
	rest   time.Duration // at most so long a client waits between two calls
	// ownersSleep: a stream may be billed by another node while its client still waits for it.
	ownersSleep bool
	calm        atomic.Bool // no owner sleeps any more

	mu     sync.Mutex
	calls  []*booked
	tokens []string // of children of the node's connection, which make a part of the calls

	inFlight                                            atomic.Int64
	answered, streamed, replayed, retried, broke, other atomic.Int64
}

func newBooks(t *testing.T, refuse func(status int, code string) bool) *callBooks {
	return &callBooks{
		t:      t,
		refuse: refuse,
		http:   &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
}

// scripts are the calls that clients make: fast and slow ones, whole and streamed.
var scripts = []struct {
	weight int
	stream bool
	text   string
}{
	{6, false, "!mock words=12"},
	{2, false, "!mock delay=400ms words=8"},
	{3, true, "!mock words=20 chunks=5"},
	{1, true, "!mock pace=60ms words=16 chunks=8"},
	{3, true, "!mock pace=120ms words=60 chunks=30"}, // longer than three checkpoints
}

func (b *callBooks) fresh() *booked {
	n := rand.IntN(15)
	for _, s := range scripts {
		if n -= s.weight; n < 0 {
			return b.addCallBy(b.pickToken(), s.stream, s.text)
		}
	}
	panic("the weights sum to 15")
}

// pickToken returns whose call comes next: of a child, or "", of the node's connection.
func (b *callBooks) pickToken() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := rand.IntN(len(b.tokens) + 2); n < len(b.tokens) {
		return b.tokens[n]
	}
	return ""
}

// addCall books a new call of the node's connection with a script for the mock provider.
func (b *callBooks) addCall(stream bool, script string) *booked {
	return b.addCallBy("", stream, script)
}

func (b *callBooks) addCallBy(token string, stream bool, script string) *booked {
	c := &booked{key: servertest.UUID(), stream: stream, as: token}
	c.body = fmt.Sprintf(`{"stream":%t,"max_tokens":100,"messages":[{"role":"user","content":"%s\n%s"}]}`, stream,
		c.key, script)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, c)
	return c
}

// addChildren passes a part of the node's connection on, and a part of that, whose tokens make calls from now on. It
// returns the address of the first.
func (b *callBooks) addChildren(p *servertest.Process) (path string) {
	b.t.Helper()
	token := p.Connection.AccessToken
	for _, amount := range []money.MC{8 * money.Dollar, 3 * money.Dollar} {
		a := apitest.Read(b.t, p.Call("POST", "/v1/connection/children", fmt.Sprintf(`{"amount_mc":%d}`, amount),
			"Authorization: Bearer "+token, "Idempotency-Key: "+servertest.UUID()))
		var child struct{ ID, Token string }
		if err := json.Unmarshal([]byte(a.Body), &child); err != nil || a.Status != 200 {
			b.t.Fatalf("a child: %+v, %v", a, err)
		}
		if token = child.Token; path == "" {
			path = "/v1/connection/children/" + child.ID
		}
		b.mu.Lock()
		b.tokens = append(b.tokens, token)
		b.mu.Unlock()
	}
	return path
}

// pickCall chooses what a client sends next: mostly a new call, else an old one
// again, gladly one whose stream broke or that was not answered.
func (b *callBooks) pickCall() *booked {
	if rand.IntN(3) > 0 {
		return b.fresh()
	}
	calls := b.snapshot()
	if len(calls) == 0 {
		return b.fresh()
	}
	old := calls[rand.IntN(len(calls))]
	for range 30 {
		c := calls[len(calls)-1-rand.IntN(min(len(calls), 100))]
		switch c.state() {
		case "broken":
			return c
		case "unanswered":
			old = c
		}
	}
	return old
}

func (c *booked) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.answer != nil:
		return "answered"
	case len(c.parts) > 0:
		return "broken"
	}
	return "unanswered"
}

// runClients runs clients until ctx ends. Each asks node for the node of its next call. They keep a processor busy, so
// that as many tests run them at a time as the machine has processors.
func (b *callBooks) runClients(ctx context.Context, clients int, node func() *servertest.Process) (wait func()) {
	release, err := testkit.TakeTurn("load")
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				if p := node(); p == nil || !b.sendCall(ctx, p, b.pickCall()) {
					pause(ctx, 10*time.Millisecond)
				}
				if b.rest > 0 {
					pause(ctx, rand.N(b.rest))
				}
			}
		})
	}
	return func() { wg.Wait(); release() }
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// sendCall makes a call, or a copy of one, and enters what comes back. It returns
// whether the node answered at all. The call runs on when ctx ends: its answer
// belongs in the books.
func (b *callBooks) sendCall(ctx context.Context, p *servertest.Process, c *booked) bool {
	req, err := request(context.WithoutCancel(ctx), p.Node, c)
	if err != nil {
		b.t.Error(err)
		return false
	}
	b.inFlight.Add(1)
	defer b.inFlight.Add(-1)
	resp, err := b.http.Do(req)
	if err != nil {
		b.broke.Add(1)
		return false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.broke.Add(1)
		if resp.StatusCode == http.StatusOK {
			c.broken(body)
		}
		return false
	}
	b.enter(p, c, resp, bytes.ReplaceAll(body, keepAliveComment, nil))
	return true
}

// keepAliveComment is what a stream sends in silence. It is no part of the answer: a replay is never silent.
var keepAliveComment = []byte(": waiting\n\n")

// request makes the HTTP request of a call.
func request(ctx context.Context, p *nodetest.Node, c *booked) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", p.BaseURL+cmp.Or(c.path, luna), strings.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // or Go's client repeats what has a key by itself, and hides it
	req.Header.Set("Authorization", "Bearer "+cmp.Or(c.as, p.Connection.AccessToken))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", c.key)
	return req, nil
}

// broken keeps what of a stream arrived.
func (c *booked) broken(part []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = append(c.parts, part)
}

// enter books an answer. A second one must have the bytes of the first.
func (b *callBooks) enter(p *servertest.Process, c *booked, resp *http.Response, body []byte) {
	b.t.Helper()
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(body, &e); err != nil || e.Error.Code == "" ||
			!b.refuse(resp.StatusCode, e.Error.Code) {
			b.t.Errorf("key %s: status %d, %v: %s", c.key, resp.StatusCode, err, body)
		}
		b.other.Add(1)
		return
	}
	if c.stream && !bytes.Contains(body, []byte(`"svc_final"`)) { // it ended in an error, inside the stream
		if !bytes.Contains(body, []byte(`data: {"error":`)) {
			b.t.Errorf("key %s: a stream without an end: %s", c.key, body)
		}
		b.other.Add(1)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer == nil {
		if len(c.parts) > 0 {
			b.retried.Add(1)
		}
		if !b.ownersSleep && bytes.Contains(body, []byte(`"settlement":"estimated"`)) &&
			!slices.ContainsFunc(c.parts, func(part []byte) bool { return bytes.HasPrefix(part, delivered(body)) }) {
			b.t.Errorf("key %s: billed as delivered\n%s\nbut this had been delivered\n%s", c.key, body,
				bytes.Join(c.parts, []byte("\n---\n")))
		}
		c.answer, c.node = body, p
		b.answered.Add(1)
		if c.stream {
			b.streamed.Add(1)
		}
		return
	}
	switch {
	case bytes.Equal(c.answer, body):
	case b.ownersSleep && !b.calm.Load() && isInterrupted(c.answer, body):
		c.others = append(c.others, body)
	case b.ownersSleep && b.calm.Load() && !c.stored && isInterrupted(c.answer, body): // body is a replay
		c.others = append(c.others, c.answer)
		c.answer, c.stored = body, true
	default:
		b.t.Errorf("key %s: answered\n%s\nand then\n%s", c.key, c.answer, body)
	}
	if c.node != p {
		b.replayed.Add(1)
	}
}

// isInterrupted reports whether a stream that a client got may differ from the stored one: one of them
// says that it was interrupted (F-09), and both have the same bill.
func isInterrupted(first, second []byte) bool {
	says := func(body []byte) bool { return bytes.Contains(body, []byte(`data: {"error":{"code":"unavailable"`)) }
	_, bill, _ := bytes.Cut(first, []byte(`data: {"svc_final"`))
	_, otherBill, _ := bytes.Cut(second, []byte(`data: {"svc_final"`))
	return (says(first) || says(second)) && bytes.Equal(bill, otherBill)
}

// checkOthers checks that a client which got another stream than the stored one got the same bill, and
// that one of them says that it was interrupted.
func (b *callBooks) checkOthers() {
	b.t.Helper()
	for _, c := range b.snapshot() {
		for _, body := range c.others {
			if !bytes.Equal(c.answer, body) && !isInterrupted(c.answer, body) {
				b.t.Errorf("key %s: a client got\n%s\nand a replay is\n%s", c.key, body, c.answer)
			}
		}
	}
}

// delivered is the part of a stream before its bill.
func delivered(body []byte) []byte {
	body, _, _ = bytes.Cut(body, []byte(`data: {"svc_final"`))
	part, interrupted, said := bytes.Cut(body, []byte(`data: {"error":{"code":"unavailable",`))
	if said && !bytes.Contains(interrupted, []byte("the service was interrupted")) {
		return body
	}
	return part
}

// snapshot returns the calls so far.
func (b *callBooks) snapshot() []*booked {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*booked(nil), b.calls...)
}

// compareLedger compares the books with the ledger: an answered call has exactly one
// row, which says what was answered; any other key has at most one.
func (b *callBooks) compareLedger(database string) (estimated int) {
	b.t.Helper()
	type answered struct {
		call *booked
		bill calltest.Bill
	}
	var want []answered
	known := map[string]bool{}
	for _, c := range b.snapshot() {
		known[c.key] = true
		c.mu.Lock()
		if c.answer != nil {
			v, err := calltest.ReadBill(c.answer)
			if err != nil {
				b.t.Errorf("key %s: %v in %s", c.key, err, c.answer)
			}
			want = append(want, answered{c, v})
		}
		c.mu.Unlock()
	}
	rows := calltest.Spends(b.t, database)
	for key, list := range rows {
		if len(list) > 1 {
			b.t.Errorf("key %s was billed %d times", key, len(list))
		}
		for _, r := range list {
			if r.Settlement == "estimated" {
				estimated++
			}
		}
	}
	for _, w := range want {
		if list := rows[w.call.key]; len(list) != 1 || list[0] != w.bill {
			b.t.Errorf("key %s was answered %+v; its rows say %+v", w.call.key, w.bill, list)
		}
	}
	return estimated
}

// replayAll sends every answered call once more: the bytes must be the same.
func (b *callBooks) replayAll(p *servertest.Process) {
	calls := b.snapshot()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := i; n < len(calls); n += 4 {
				if calls[n].state() == "answered" && !b.sendCall(b.t.Context(), p, calls[n]) {
					b.t.Errorf("key %s: not answered", calls[n].key)
				}
			}
		})
	}
	wg.Wait()
}

const (
	openHolds = `SELECT COUNT(*) FROM holds WHERE state = 'open'`
	orphans   = `SELECT COUNT(*) FROM holds LEFT JOIN nodes ON nodes.id = holds.node_id WHERE state = 'open' AND ` +
		`(nodes.id IS NULL OR nodes.lease_us <= $1)`
)
