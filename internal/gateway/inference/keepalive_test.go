package inference

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/models/provider"
)

// open sends a call and returns its response, whose body is read to its end by the caller.
func (b *bundle) open(ctx context.Context, key string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// readLine returns the next line that is not empty.
func readLine(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		if line != "\n" {
			return line
		}
	}
}

func readRest(t *testing.T, in io.Reader) string {
	t.Helper()
	rest, err := io.ReadAll(in)
	if err != nil {
		t.Error(err)
	}
	return string(rest)
}

// TestSilentStreamsAreKeptOpen: a stream whose provider is silent gets its status and comments,
// again and again, the leader's and a follower's alike. A failure after that is an error event
// and [DONE], with the id of the connection. Both carry the request id of the call.
func TestSilentStreamsAreKeptOpen(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error), hanging: make(chan struct{}, 8)}
	b := newBundle(t, db.SQLite, f)
	b.keepAlive = time.Millisecond
	key := id.NewUUID()
	leader := b.open(t.Context(), key)
	follower := b.open(t.Context(), key)
	var ends []string
	ins := []*bufio.Reader{bufio.NewReader(leader.Body), bufio.NewReader(follower.Body)}
	for _, in := range ins {
		for range 3 {
			if line := readLine(t, in); line != ": waiting\n" {
				t.Fatalf("a silent stream says %q", line)
			}
		}
	}
	requestID := leader.Header.Get("X-Request-Id")
	if follower.Header.Get("X-Request-Id") != requestID || follower.Header.Get("Idempotent-Replayed") != "true" ||
		leader.StatusCode != 200 || follower.StatusCode != 200 {
		t.Errorf("leader %v, follower %v", leader.Header, follower.Header)
	}
	if requestID == "" {
		t.Error("a stream names no request")
	}
	f.silent <- &provider.Error{Message: "the provider failed", Status: 529, Retry: true}
	for _, in := range ins {
		rest := strings.ReplaceAll(readRest(t, in), ": waiting\n\n", "")
		rest = strings.TrimLeft(rest, "\n")
		ends = append(ends, rest)
		if !strings.HasPrefix(rest, `data: {"error":{"code":"provider_error",`) ||
			!strings.Contains(rest, `"connection_id":"`+b.who.ConnectionID+`"`) ||
			!strings.Contains(rest, `"details":{"kind":"overloaded","provider":"openai","retry":true,`+
				`"upstream_status":529}`) ||
			!strings.HasSuffix(rest, "}\n\ndata: [DONE]\n\n") {
			t.Errorf("a failure after the comments is\n%s", rest)
		}
	}
	if ends[0] != ends[1] {
		t.Errorf("the follower got another end:\n%s\n%s", ends[1], ends[0])
	}
	b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
	b.audit()
}

// TestCommentsAreNotReplayed: a comment belongs to a connection, not to the response: what the
// key replays is byte for byte the frames of the first answer.
func TestCommentsAreNotReplayed(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		silent: make(chan error),
		chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 1}}},
		ended:  io.EOF,
	}
	b := newBundle(t, db.SQLite, f)
	b.keepAlive = time.Millisecond
	key := id.NewUUID()
	in := bufio.NewReader(b.open(t.Context(), key).Body)
	if line := readLine(t, in); line != ": waiting\n" {
		t.Fatalf("a silent stream says %q", line)
	}
	f.silent <- nil
	first := strings.TrimLeft(strings.ReplaceAll(readRest(t, in), ": waiting\n\n", ""), "\n")
	b.keepAlive = time.Minute
	again, _, replayed := b.call(key, "")
	if again != first || !replayed || !strings.Contains(first, `"svc_final":`) {
		t.Errorf("replayed %t:\n%s\nfirst:\n%s", replayed, again, first)
	}
}

// TestSilentOrphanIsFreed: a client that leaves a stream of which the provider has sent nothing
// frees its money. One that has begun is read on.
func TestSilentOrphanIsFreed(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error)}
	b := newBundle(t, db.SQLite, f)
	b.keepAlive, b.orphans.silentTimeout = time.Millisecond, time.Millisecond
	ctx, leave := context.WithCancel(t.Context())
	resp := b.open(ctx, id.NewUUID())
	if line := readLine(t, bufio.NewReader(resp.Body)); line != ": waiting\n" {
		t.Fatalf("a silent stream says %q", line)
	}
	if n := len(b.calls.listCalls()); n != 1 {
		t.Errorf("%d calls run", n)
	}
	leave()
	b.eventually("the call has ended", func() bool { return len(b.calls.listCalls()) == 0 })
	b.expectOne(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = 0`)
	b.audit()
}
