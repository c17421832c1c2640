package inference

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// readsBodies serves readBody for one developer with so many bytes for all calls.
func readsBodies(t *testing.T, bytes int64) (*callsInFlight, string) {
	t.Helper()
	var in callsInFlight
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := in.enter("", r.Header.Get("Developer"), r.Header.Get("User"), &Bounds{Bytes: bytes})
		if err == nil {
			defer s.leave()
			_, err = readBody(w, r, s)
		}
		if e, ok := errors.AsType[*apierr.Error](err); ok {
			w.WriteHeader(e.Code.Status)
			fmt.Fprint(w, e.Message)
		}
	}))
	t.Cleanup(server.Close)
	return &in, server.URL
}

// taken returns the bytes that are counted, when they have not changed for a moment.
func (c *callsInFlight) taken() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes.All()
}

// TestBodiesAreCounted: what is announced takes nothing, what has come is counted with its factor, a body that does not
// fit is refused before it is read, or while it is read, and all is given back. Another developer is served.
func TestBodiesAreCounted(t *testing.T) {
	t.Parallel()
	const bound = 64 << 20
	in, url := readsBodies(t, bound)
	open := func(developer string, announced int64) (*io.PipeWriter, <-chan string) {
		t.Helper()
		from, to := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, from)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = announced
		r.Header = http.Header{"Content-Type": {"application/json"}, "Developer": {developer}}
		got := make(chan string, 1)
		go func() {
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				got <- err.Error()
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			got <- resp.Status + " " + string(text)
		}()
		return to, got
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d bytes are counted", what, in.taken())
			}
		}
	}
	write := func(to *io.PipeWriter, n int) {
		t.Helper()
		if _, err := to.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	first, answer := open("first", 8<<20)
	write(first, 1)
	eventually("announced", func() bool { return in.taken() == callBytes })
	write(first, 4<<20)
	eventually("arrived", func() bool { return in.taken() >= bodyFactor*4<<20 })
	if n := in.taken(); n > bodyFactor*8<<20+bodyFactor {
		t.Errorf("%d bytes for 4 MiB", n)
	}
	_, refused := open("first", 12<<20) // 48 MiB, of 64 of which 16 to 32 are taken
	if text := <-refused; !strings.HasPrefix(text, "503 ") {
		t.Errorf("too large for now: %s", text)
	}
	second, answer2 := open("second", 2<<20)
	write(second, 2<<20)
	if text := <-answer2; !strings.HasPrefix(text, "200 ") {
		t.Errorf("another developer: %s", text)
	}
	write(first, 4<<20-1)
	if text := <-answer; !strings.HasPrefix(text, "200 ") {
		t.Errorf("the first: %s", text)
	}
	eventually("given back", func() bool { return in.taken() == 0 })
}

// TestStalledBody: a body that stops, or that comes more slowly than bodyPace in each wait, ends.
func TestStalledBody(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := pacedBody{
			from:    r.Body,
			control: http.NewResponseController(w),
			wait:    50 * time.Millisecond,
			ends:    time.Now().Add(time.Hour),
		}
		_, err := io.ReadAll(&b)
		got <- explainBody(err)
	}))
	defer server.Close()
	from, to := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, from)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 1 << 20
	go func() {
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	go func() { // a trickle, below the pace
		for {
			if _, err := to.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if e, ok := errors.AsType[*apierr.Error](<-got); !ok || e.Message != "body: did not arrive in time" {
		t.Errorf("%v", e)
	}
	_ = to.Close()
}

// TestMemoryOfACall: a planned request takes its text and the provider's body, an embedding its answer before the hold,
// and a call whose text was dropped no more than any call. What an accepted call takes is counted beyond the bound, and
// new calls are refused meanwhile.
func TestMemoryOfACall(t *testing.T) {
	t.Parallel()
	var in callsInFlight
	bounds := &Bounds{Bytes: 100 << 20}
	enter := func() *call {
		t.Helper()
		s, err := in.enter("app_1", "wac_1", "", bounds)
		if err != nil {
			t.Fatal(err)
		}
		return &call{seat: s, who: &callers.Caller{App: apps.App{OwnerID: "wac_1"}}, plan: &plan.Plan{}}
	}
	c := enter()
	c.plan.Request.Turns = []conversation.Turn{{Blocks: []conversation.Block{{Text: strings.Repeat("a", 8<<20)}}}}
	if err := errors.Join(c.seat.reserve(bodyFactor*8<<20, 0), c.countRequest()); err != nil {
		t.Fatal(err)
	}
	if n := in.taken(); n < requestFactor*8<<20 || n > requestFactor*9<<20 {
		t.Errorf("a call of 8 MiB that waits takes %d bytes", n)
	}
	kept := c.plan
	c.dropMessages()
	if n := in.taken(); n != callBytes || c.plan.Request.Turns != nil || kept.Request.Turns == nil {
		t.Errorf("a call of 8 MiB whose answer has begun takes %d bytes", n)
	}
	e := enter()
	e.plan.Request.Embedding = &provider.Embedding{Dimensions: 1000, Inputs: make([]provider.EmbeddingInput, 1000)}
	if err := e.countRequest(); err != nil || in.taken() < numberBytes*1_000_000 {
		t.Errorf("an embedding takes %d bytes, %v", in.taken(), err)
	}
	if err := enter().countRequest(); err != nil {
		t.Errorf("a small call: %v", err)
	}
	e.seat.countAnswer(200 << 20)
	if _, err := in.enter("app_1", "wac_1", "", bounds); err == nil {
		t.Error("a new call beyond the bound")
	}
	giveBack := e.seat.handOver()
	e.seat.leave()
	if in.taken() < 200<<20 {
		t.Error("an answer that is still to be stored is not counted")
	}
	giveBack()
	c.seat.leave()
	if n := in.taken(); n != callBytes {
		t.Errorf("%d bytes are left", n)
	}
}

// TestUsersShareTheMemory: one user of an app has at most half of what its developer may use for large requests, and
// leaves room for the requests of others; small ones are not refused for it. In the end nothing is counted.
func TestUsersShareTheMemory(t *testing.T) {
	t.Parallel()
	var in callsInFlight
	const size = 128 << 20 // of the largest body
	bounds := &Bounds{Bytes: 1 << 30}
	var all []*seat
	enter := func(user string) *seat {
		t.Helper()
		s, err := in.enter("app_1", "wac_dev", user, bounds)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
		return s
	}
	var err error
	for err == nil {
		s := enter("wac_greedy")
		if err = s.fits(size); err == nil {
			err = s.reserve(size, 0)
		}
	}
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.Unavailable || e.RetryAfter == 0 ||
		!strings.Contains(e.Message, "this user") {
		t.Errorf("the user beyond their share: %v", err)
	}
	if n := in.taken(); n < 3*size || n > bounds.Bytes/2 {
		t.Errorf("one user takes %d MiB", n>>20)
	}
	for _, user := range []string{"wac_2", "wac_3"} {
		if err := enter(user).reserve(size, 0); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	enter("wac_greedy")
	all[0].count(2*size, 0)
	giveBack := all[0].handOver()
	for _, s := range all {
		s.leave()
	}
	giveBack()
	if in.taken() != 0 || in.large.All() != 0 || in.large.Keys() != 0 || in.users.Keys() != 0 {
		t.Errorf("left: %+v", &in)
	}
}

// TestUsersShareTheCalls: one user of an app has half of its calls.
func TestUsersShareTheCalls(t *testing.T) {
	t.Parallel()
	var in callsInFlight
	n := 0
	var err error
	for ; err == nil; n++ {
		_, err = in.enter("app_1", "wac_dev", "wac_greedy", &Bounds{Calls: 90})
	}
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.Unavailable || n < 40 || n > 42 {
		t.Errorf("%d calls, %v", n, err)
	}
	if _, err := in.enter("app_1", "wac_dev", "wac_2", &Bounds{Calls: 90}); err != nil {
		t.Error(err)
	}
}

// TestEndOfAStreamIsCounted: at its end the frames of a stream are counted with their factor, of a short one, too.
func TestEndOfAStreamIsCounted(t *testing.T) {
	t.Parallel()
	frames := delta(strings.Repeat("Hello ", 20_000))
	b := newBundle(t, db.SQLite, &fakeProvider{
		chunks: []provider.Chunk{{Frames: []byte(frames), Usage: &provider.Usage{Input: 9, Output: 5}}},
		ended:  io.EOF,
	})
	s, err := b.inFlight.enter("", "", "", &b.Bounds)
	if err != nil {
		t.Fatal(err)
	}
	router := web.NewRouter(b.Log, web.Links{})
	router.Handle("POST /call", func(w http.ResponseWriter, r *http.Request) error {
		c := b.newCall(r)
		c.seat = s
		return b.runCall(w, r, c)
	})
	server := httptest.NewServer(router)
	b.url = server.URL + "/call"
	readRest(t, b.open(t.Context(), id.NewUUID()).Body)
	server.Close() // waits for the handler
	if want := answerFactor * int64(len(frames)); s.counted < want {
		t.Errorf("%d bytes are counted of %d", s.counted, want)
	}
}

// TestFollowersReadInPieces: one that comes late to a long stream does not unpack all of it at once, and gets all of it
// before its end.
func TestFollowersReadInPieces(t *testing.T) {
	t.Parallel()
	c := &runningCall{}
	var want strings.Builder
	for i := range 5000 {
		frame := delta(fmt.Sprint("text ", i))
		want.WriteString(frame)
		c.appendFrames([]byte(frame))
	}
	c.ended = true
	var got strings.Builder
	for {
		v, err := c.readOutput(t.Context(), got.Len())
		if err != nil {
			t.Fatal(err)
		}
		if len(v.frames) > 2*pieceBytes {
			t.Fatalf("%d bytes at once", len(v.frames))
		}
		if got.Write(v.frames); v.ended {
			break
		}
	}
	if got.String() != want.String() {
		t.Errorf("%d bytes, want %d", got.Len(), want.Len())
	}
}

// TestBodyBecomesASmallMultiple measures what the factors say: what is left of a body after it is planned.
func TestBodyBecomesASmallMultiple(t *testing.T) {
	const size = 16 << 20
	body := []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("a", size) +
		`"}]}],"max_tokens":5}`)
	before := liveBytes()
	request, err := plan.Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	if n := sumBytes(&request.Request); n < size || n > size+size/8 {
		t.Errorf("%d bytes are counted", n)
	}
	if grown := liveBytes() - before; grown > size+size/2 {
		t.Errorf("a parsed body of %d takes %d bytes more", size, grown)
	}
	runtime.KeepAlive(body)
	runtime.KeepAlive(request)
}

func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestReplayIsReserved: a stored answer is not unpacked if there is no memory for it; an accepted call's is.
func TestReplayIsReserved(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.SQLite, &fakeProvider{
		chunks: []provider.Chunk{{
			Frames: []byte(delta(strings.Repeat("Hello ", 100_000))),
			Usage:  &provider.Usage{Input: 9, Output: 5},
		}},
		ended: io.EOF,
	})
	key := id.NewUUID()
	readRest(t, b.open(t.Context(), key).Body)
	b.eventually("the call has ended", func() bool { return len(b.calls.listCalls()) == 0 })
	b.Bounds.Bytes = 1 << 20
	router := web.NewRouter(b.Log, web.Links{})
	router.Handle("POST /call", func(w http.ResponseWriter, r *http.Request) error {
		s, err := b.inFlight.enter("", "wac_dev", "", &b.Bounds)
		if err != nil {
			return err
		}
		defer s.leave()
		c := b.newCall(r)
		c.seat = s
		return b.runCall(w, r, c)
	})
	server := httptest.NewServer(router)
	defer server.Close()
	replay := func() (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/call", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, readRest(t, resp.Body)
	}
	if status, body := replay(); status != 503 || !strings.Contains(body, "no memory left") {
		t.Errorf("without memory: %d %.200s", status, body)
	}
	b.Bounds.Bytes = 64 << 20
	if status, body := replay(); status != 200 || !strings.Contains(body, "Hello Hello") {
		t.Errorf("with memory: %d %.200s", status, body)
	}
	if n := b.inFlight.taken(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
