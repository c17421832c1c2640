package inference

import (
	"context"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
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
