package inference

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/models/provider"
)

// send makes a call in the background. Its answer is the status and the body.
func (b *bundle) send(ctx context.Context, key string) <-chan string {
	b.t.Helper()
	got := make(chan string, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- "error " + err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			text = append(text, " error "+err.Error()...)
		}
		got <- resp.Status + " " + string(text)
	}()
	return got
}

// awaitClients waits until a call of this node has n clients.
func (b *bundle) awaitClients(key string, n int) {
	b.t.Helper()
	b.eventually("clients of the call", func() bool {
		b.calls.mu.Lock()
		c := b.calls.calls[rules.Key{ConnectionID: b.who.ConnectionID, Key: key}]
		b.calls.mu.Unlock()
		return c != nil && c.work.Callers() == n
	})
}

// awaitAbandoned waits until the node has seen that the only client of its only call has left.
func (b *bundle) awaitAbandoned() {
	b.t.Helper()
	b.eventually("the call is abandoned", func() bool {
		calls := b.calls.listCalls()
		return len(calls) == 0 || calls[0].work.Cause() != nil
	})
}

func wholeStream() *fakeProvider {
	return &fakeProvider{
		chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 1}}},
		ended:  io.EOF,
	}
}

// Where a call can wait before its provider is asked. Each returns what lets it go on.
var waitingPlaces = map[string]func(b *bundle) (release func()){
	"the hold waits for the database": (*bundle).blockWrites,
	"holds are not accepted": func(b *bundle) func() {
		release := b.blockWrites() // the probe cannot succeed
		b.Ledger.Node = b.Node
		b.Ledger.RefuseHolds(context.DeadlineExceeded)
		return release
	},
}

// blockWrites takes the one connection that writes to SQLite, until release or the end of the test.
func (b *bundle) blockWrites() (release func()) {
	b.t.Helper()
	conn, err := b.DB.Conn(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	release = func() { _ = conn.Close() }
	b.t.Cleanup(release)
	return release
}

// TestLeaderLeaves: the first client of a key leaves before the provider is asked, wherever the call waits. Who joined
// gets the answer; a client that comes after all have left leads the next call; without any client nothing is billed
// (F-29, F-36).
func TestLeaderLeaves(t *testing.T) {
	t.Parallel()
	for place, block := range waitingPlaces {
		t.Run(place+", one joined", func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, db.SQLite, wholeStream())
			release, key := block(b), id.NewUUID()
			first, leave := context.WithCancel(t.Context())
			left := b.send(first, key)
			b.awaitClients(key, 1)
			joined := b.send(t.Context(), key)
			b.awaitClients(key, 2)
			leave()
			<-left
			b.awaitClients(key, 1)
			release()
			b.expectWhole(key, <-joined)
		})
		t.Run(place+", a retry", func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, db.SQLite, wholeStream())
			release, key := block(b), id.NewUUID()
			first, leave := context.WithCancel(t.Context())
			left := b.send(first, key)
			b.awaitClients(key, 1)
			leave()
			<-left
			retry := b.send(t.Context(), key)
			time.AfterFunc(50*time.Millisecond, release) // the retry mostly comes before, and may come after
			b.expectWhole(key, <-retry)
		})
		t.Run(place+", nobody", func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, db.SQLite, wholeStream())
			release, key := block(b), id.NewUUID()
			first, leave := context.WithCancel(t.Context())
			left := b.send(first, key)
			b.awaitClients(key, 1)
			leave()
			<-left
			b.awaitAbandoned()
			release()
			b.eventually("the call has ended", func() bool { return len(b.calls.listCalls()) == 0 })
			b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
			b.audit()
		})
	}
}

// expectWhole checks that an answer is the whole stream, billed once.
func (b *bundle) expectWhole(key, answer string) {
	b.t.Helper()
	if !strings.HasPrefix(answer, "200 ") || !strings.Contains(answer, "Hello") ||
		!strings.Contains(answer, `"svc_final":`) || !strings.HasSuffix(answer, "data: [DONE]\n\n") {
		b.t.Errorf("the answer is %s", answer)
	}
	b.expectOne(`SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND key = $1 AND settlement = 'settled'`, key)
	b.audit()
}

// TestLeaderOfRemoteCallLeaves: a key runs on another node. The first client that follows it here leaves, a second one
// stays, and the other node dies: the second one gets the answer of the attempt that this node makes (F-03, F-36).
func TestLeaderOfRemoteCallLeaves(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.Postgres, wholeStream()) // SQLite serves one process
	key := id.NewUUID()
	b.holdFor("node_other", key, false)
	first, leave := context.WithCancel(t.Context())
	left := b.send(first, key)
	b.awaitClients(key, 1)
	joined := b.send(t.Context(), key)
	b.awaitClients(key, 2)
	leave()
	<-left
	b.awaitClients(key, 1)
	b.sweep(rules.Key{ConnectionID: b.who.ConnectionID, Key: key})
	b.expectWhole(key, <-joined)
}

// follow runs a stream on another node, which waits after its first text, and follows it here.
func (b *bundle) follow(key string) (owner, follower <-chan string) {
	b.t.Helper()
	other := b.secondNode()
	owner = other.send(b.t.Context(), key)
	b.eventually("the other node runs the call", func() bool {
		calls := other.calls.listCalls()
		if len(calls) == 0 {
			return false
		}
		frames, _ := calls[0].frames()
		return len(frames) > 0
	})
	return owner, b.send(b.t.Context(), key)
}

// TestFollowerOutlivesFailedReads: the database does not answer who follows a call of another node for a while. The
// follower gets the answer, as the other node's own client does (F-37).
func TestFollowerOutlivesFailedReads(t *testing.T) {
	t.Parallel()
	f := wholeStream()
	f.chunks = append([]provider.Chunk{{Frames: []byte(delta("Oh. "))}}, f.chunks...)
	f.paused = make(chan struct{})
	b := newBundle(t, db.Postgres, f) // SQLite serves one process
	var reads atomic.Int64
	b.DB.Fail(func(query string, _ []any) bool {
		return strings.Contains(query, "FROM checkpoints") && reads.Add(1) <= 5
	})
	key := id.NewUUID()
	owner, follower := b.follow(key)
	b.eventually("five reads have failed", func() bool { return reads.Load() > 5 })
	close(f.paused)
	first := <-owner
	b.expectWhole(key, first)
	if second := <-follower; second != first {
		t.Errorf("the follower got\n%s\nthe owner's client\n%s", second, first)
	}
}

// TestFollowerWithoutDatabase: the database does not answer who follows a call at all. The follower is told to retry,
// and the call goes on.
func TestFollowerWithoutDatabase(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("begun %t", begun), func(t *testing.T) {
			t.Parallel()
			f := wholeStream()
			f.chunks = append([]provider.Chunk{{Frames: []byte(delta("Oh. "))}}, f.chunks...)
			f.paused = make(chan struct{})
			b := newBundle(t, db.Postgres, f)
			b.pollPatience = 10 * time.Millisecond
			if begun {
				b.keepAlive = time.Millisecond
			}
			b.DB.Fail(func(query string, _ []any) bool { return strings.Contains(query, "FROM checkpoints") })
			key := id.NewUUID()
			owner, follower := b.follow(key)
			want := map[bool]string{false: "503 ", true: "200 "}[begun]
			if got := <-follower; !strings.HasPrefix(got, want) || !strings.Contains(got, `"code":"unavailable"`) {
				t.Errorf("the follower got\n%s", got)
			}
			close(f.paused)
			if got := <-owner; !strings.Contains(got, "Hello") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
				t.Errorf("the owner's client got\n%s", got)
			}
		})
	}
}

// TestFollowersOutwaitTheOwner: a node may take longer for a call and its settlement than the call itself may.
func TestFollowersOutwaitTheOwner(t *testing.T) {
	t.Parallel()
	if followTime < maxCallDuration+maxSettleDuration+20*time.Second { // a dead owner is noticed within 15 s
		t.Errorf("a call is followed for %s only", followTime)
	}
}

// dialSlowly asks for a call by a socket that has no room, and returns it; nobody reads.
func dialSlowly(t *testing.T, target, key string) net.Conn {
	t.Helper()
	at := strings.TrimPrefix(target, "http://")
	host, path, _ := strings.Cut(at, "/")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nIdempotency-Key: %s\r\n\r\n",
		path, key); err != nil {
		t.Fatal(err)
	}
	return conn
}

// serveNarrow serves the calls by sockets that have no room.
func (b *bundle) serveNarrow() {
	b.t.Helper()
	router := web.NewRouter(b.Log, web.Links{})
	router.Handle("POST /call", b.serve)
	server := httptest.NewUnstartedServer(router)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		return ctx
	}
	server.Start()
	b.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b.url = server.URL + "/call"
}

// TestNobodyWaitsForAnothersSocket: the first client of a key does not read. Who joins gets the answer long before the
// write to the first one is given up (decision 211).
func TestNobodyWaitsForAnothersSocket(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 10_000)
	stream := &fakeProvider{ended: io.EOF}
	for range 40 {
		stream.chunks = append(stream.chunks, provider.Chunk{Frames: []byte(delta(long))})
	}
	stream.chunks = append(stream.chunks, wholeStream().chunks...)
	whole := &fakeProvider{whole: &provider.Response{
		Body: []byte(`{"id":"chatcmpl-9","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,` +
			`"message":{"role":"assistant","content":"Hello ` + strings.Repeat(long, 100) + `"},` +
			`"finish_reason":"stop"}]}`),
		Usage: &provider.Usage{Input: 9, Output: 1},
	}}
	for name, f := range map[string]*fakeProvider{"": stream, "?whole": whole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, db.SQLite, f)
			b.serveNarrow()
			b.url += name
			key := id.NewUUID()
			dialSlowly(t, b.url, key)
			if name == "" {
				b.awaitClients(key, 1)
			}
			for _, what := range []string{"who joins", "who asks again beside a replay that nobody reads"} {
				select {
				case got := <-b.send(t.Context(), key):
					if !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "Hello") ||
						len(got) < 100*len(long)/3 {
						t.Errorf("%s gets %d bytes, which begin with %.200s", what, len(got), got)
					}
				case <-time.After(frameTimeout / 2):
					t.Errorf("%s waits for the first client", what)
				}
				// The replay is being written once its first byte is there.
				if _, err := dialSlowly(t, b.url, key).Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestRetryRunsTheLostHoldOfItsOwnNode: a hold of this node that no call leads is released while a retry of its key
// waits. The retry runs the call: it is no failure of another node.
func TestRetryRunsTheLostHoldOfItsOwnNode(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.Postgres, wholeStream()) // on SQLite a hold of a moment is in memory
	key := id.NewUUID()
	b.hold(b.Node.ID, key)
	retry := b.send(t.Context(), key)
	b.awaitClients(key, 1)
	b.sweep(rules.Key{ConnectionID: b.who.ConnectionID, Key: key})
	b.expectWhole(key, <-retry)
}

// TestFollowerOfAStoppingNode: a node that stops ends the clients that follow another node's call with an error that
// they can act on, also within a stream.
func TestFollowerOfAStoppingNode(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.Postgres, wholeStream())
	b.keepAlive = time.Millisecond
	key := id.NewUUID()
	b.holdFor("node_other", key, true)
	resp := b.open(t.Context(), key) // the comments have begun it
	b.awaitClients(key, 1)
	b.CutCalls()
	if body := readRest(t, resp.Body); !strings.Contains(body, `"code":"unavailable"`) ||
		!strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the end is\n%s", body)
	}
	if _, err := store.GetHold(t.Context(), b.DB, rules.Key{ConnectionID: b.who.ConnectionID, Key: key}); err != nil {
		t.Errorf("the other node's hold: %v", err)
	}
}

// TestLeaderLeavesWhileAnImageLoads: as TestLeaderLeaves, where the call waits for the server of an image.
func TestLeaderLeavesWhileAnImageLoads(t *testing.T) {
	t.Parallel()
	for _, joins := range []bool{true, false} {
		t.Run(fmt.Sprintf("joins %t", joins), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, db.SQLite, wholeStream())
			b.Images = images.New(images.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			asked, release := make(chan struct{}, 8), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				select {
				case <-release:
					_ = png.Encode(w, image.NewGray(image.Rect(0, 0, 8, 8)))
				case <-r.Context().Done():
				}
			}))
			t.Cleanup(server.Close)
			b.serveImage(server.URL + "/a.png")
			key := id.NewUUID()
			first, leave := context.WithCancel(t.Context())
			left := b.send(first, key)
			<-asked
			var second <-chan string
			if joins {
				second = b.send(t.Context(), key)
				b.awaitClients(key, 2)
			}
			leave()
			<-left
			if !joins { // the server is asked again, because the first request ended with its client
				b.awaitAbandoned() // a call that comes before the node sees that joins the first one
				second = b.send(t.Context(), key)
				<-asked
			}
			close(release)
			b.expectWhole(key, <-second)
		})
	}
}

// serveImage lets send make calls with an image.
func (b *bundle) serveImage(url string) {
	b.t.Helper()
	body := strings.Replace(testBody, `"Hello"`,
		`[{"type":"text","text":"Hello"},{"type":"image_url","image_url":{"url":"`+url+`"}}]`, 1)
	router := web.NewRouter(b.Log, web.Links{})
	router.Handle("POST /image", func(w http.ResponseWriter, r *http.Request) error {
		c := &call{
			who:         b.who,
			key:         rules.Key{ConnectionID: b.who.ConnectionID, Key: r.Header.Get("Idempotency-Key")},
			fingerprint: "print",
			claim:       web.RequestID(r.Context()),
		}
		c.input = plan.Input{
			Route:   plan.Route{Path: "ai/" + testModel, Model: testModel},
			Caller:  b.who,
			Catalog: b.Catalog.Current(),
			Policy:  b.Policies.At(b.clock()),
			Now:     b.clock(),
		}
		var err error
		if c.input.Request, err = plan.Parse([]byte(body)); err != nil {
			return err
		}
		if c.plan, err = plan.New(&c.input); err != nil {
			return err
		}
		return b.runCall(w, r, c)
	})
	server := httptest.NewServer(router)
	b.t.Cleanup(server.Close)
	b.url = server.URL + "/image"
}
