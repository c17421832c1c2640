package inference

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const pendingModel = "gpt-5.6-terra"

// delta is one chunk of a stream with some words.
func delta(text string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", text)
}

const usageEvent = `data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}` + "\n\n"

var errCut = errors.New("connection reset")

// fake is a provider whose streams and records are given.
type fake struct {
	provider.Provider
	chunks  []provider.Chunk
	ended   error
	hang    bool // after the chunks, until the call is given up
	quit    chan struct{}
	started chan struct{} // a stream that hangs says here that it does
	heard   chan struct{} // Close waits for it; nil: it does not

	mu      sync.Mutex
	asked   []string // the records that were asked for
	record  *provider.Usage
	trouble error
}

func (f *fake) Name() string { return "openai" }

func (f *fake) Stream(ctx context.Context, _ *provider.Request) (provider.Stream, error) {
	return &fakeStream{ctx: ctx, fake: f}, nil
}

func (f *fake) Stored(_ context.Context, completion, request string) (*provider.Usage, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, completion+" "+request)
	return f.record, f.record != nil, f.trouble
}

type fakeStream struct {
	*fake
	ctx context.Context
	n   int
}

func (s *fakeStream) ID() string { return "chatcmpl-9" }

func (s *fakeStream) BodyEnded() bool { return s.heard == nil }

func (s *fakeStream) Close() error {
	if s.heard != nil {
		select {
		case <-s.heard:
		case <-s.quit:
		}
	}
	return nil
}

func (s *fakeStream) Next() (provider.Chunk, error) {
	if s.n++; s.n <= len(s.chunks) {
		return s.chunks[s.n-1], nil
	}
	if s.hang {
		s.started <- struct{}{}
		select {
		case <-s.ctx.Done():
			return provider.Chunk{}, context.Cause(s.ctx)
		case <-s.quit: // the test has failed
			return provider.Chunk{}, errCut
		}
	}
	return provider.Chunk{}, s.ended
}

func onEach(t *testing.T, f func(t *testing.T, e db.Engine)) {
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			f(t, e)
		})
	}
}

// desk is a handler with one connection, served over HTTP.
type desk struct {
	*Handler
	t   *testing.T
	db  string
	url string
	who *callers.Caller
	now time.Time
	mu  sync.Mutex
}

func newDesk(t *testing.T, e db.Engine, f *fake) *desk {
	t.Helper()
	s := &desk{t: t, db: dbtest.URL(t, e), now: time.Now()}
	d, err := db.Open(t.Context(), s.db)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	book, err := catalog.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.now
	}
	s.Handler = &Handler{DB: d, Catalog: book, Apps: apps.NewStore(d, clock, true), Providers: map[string]provider.Provider{"openai": f}, Fee: money.One / 20, Now: clock, Log: log}
	s.Ledger = store.NewWriter(d, clock)
	s.Records = map[string]Recorder{"openai": f}
	s.calls.calls, s.drains.most, s.drains.patience = map[rules.Key]*running{}, mostDrains, drainPatience
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Ledger.Run(ctx) }()
	if s.Node, err = store.JoinNode(ctx, d, id.New(id.Node, s.now), time.Minute, clock); err != nil {
		t.Fatal(err)
	}
	s.who = &callers.Caller{ConnectionID: id.New(id.Connection, s.now), AccountID: id.New(id.Account, s.now), App: apps.App{ID: id.New(id.App, s.now), ProviderMode: "live", Tier: "full-live", DevMargin: money.One / 10}}
	for _, text := range []string{
		`INSERT INTO accounts (id, email, password_hash, developer, created_us) VALUES ('wac_dev', 'developer@example.com', '', 1, 1)`,
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier, provider_mode, test_allowlist, dev_margin_ppm, created_us)
			VALUES ('` + s.who.App.ID + `', 'wac_dev', 'App', 'cid_1', '', '[]', '[]', 'full-live', 'live', '[]', 100000, 1)`,
	} {
		if _, err := d.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	s.do(rules.TopUp{AccountID: s.who.AccountID, AmountMC: 100 * money.Dollar})
	s.do(rules.Connect{ConnectionID: s.who.ConnectionID, AppID: s.who.App.ID, AccountID: s.who.AccountID, RequestedMC: 10 * money.Dollar})
	router := web.NewRouter(log, web.Links{})
	router.Handle("POST /call", func(w http.ResponseWriter, r *http.Request) error {
		rt := route{path: "ai/" + pendingModel, model: pendingModel}
		body := `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100,"stream":true}`
		if r.URL.Query().Has("chat") {
			rt, body = route{path: "chat/completions", chat: true}, strings.Replace(body, "{", `{"model":"`+pendingModel+`","stream_options":{"include_usage":true},`, 1)
		}
		p, err := parse([]byte(body))
		if err != nil {
			return err
		}
		q, err := newPlan(p, rt, "", &s.who.App, nil, book.Current(), nil, s.Fee, clock())
		if err != nil {
			return err
		}
		return s.run(w, r, s.who, q, r.Header.Get("Idempotency-Key"), "print")
	})
	server := httptest.NewServer(router)
	s.url = server.URL + "/call"
	f.quit = make(chan struct{})
	t.Cleanup(func() {
		close(f.quit)
		server.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *desk) do(c rules.Command) {
	s.t.Helper()
	if _, err := s.Ledger.Do(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *desk) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// call makes a call and returns its body and request.
func (s *desk) call(key, query string) (body, requestID string, replayed bool) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%d %s %v", resp.StatusCode, b, err)
	}
	return string(b), resp.Header.Get("X-Request-Id"), resp.Header.Get("Idempotent-Replayed") == "true"
}

// verify audits the database and counts what the SELECT finds.
func (s *desk) verify(wants string, args ...any) {
	s.t.Helper()
	var n int
	if err := s.DB.QueryRowContext(s.t.Context(), wants, args...).Scan(&n); err != nil || n != 1 {
		s.t.Errorf("%s: %d, %v", wants, n, err)
	}
}

const pendingEnd = `data: {"svc_final":{"usage":null,"svc":null,"settlement":"pending"}}` + "\n\n" + "data: [DONE]\n\n"

// TestPendingStream cuts a stream of a provider that keeps a record: the call stays
// pending, a retry gets the same, and when the record is there it is billed exactly,
// told once, and replayed with its charge.
func TestPendingStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		query      string
		ended      error
		record     *provider.Usage
		trouble    error
		after      time.Duration // when it is resolved
		settlement string
		output     int64
	}{
		{name: "cut, and the record comes", ended: errCut, record: &provider.Usage{Input: 9, Output: 5}, after: 6 * time.Second, settlement: "settled", output: 5},
		{name: "cut on the drop-in route", query: "?chat", ended: errCut, record: &provider.Usage{Input: 9, Output: 5}, after: 6 * time.Second, settlement: "settled", output: 5},
		{name: "whole, without usage", ended: io.EOF, record: &provider.Usage{Input: 9, Output: 5}, after: 6 * time.Second, settlement: "settled", output: 5},
		{name: "the record never comes", ended: errCut, after: 11 * time.Minute, settlement: "estimated", output: 2},
		{name: "the record can never be read", ended: errCut, trouble: errCut, after: 11 * time.Minute, settlement: "estimated", output: 2},
		{name: "the record is absurd", ended: errCut, record: &provider.Usage{Input: 9, Output: 5000}, after: 6 * time.Second, settlement: "estimated", output: 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, e db.Engine) {
				f := &fake{chunks: []provider.Chunk{{Frames: []byte(delta("Hello"))}, {Frames: []byte(delta(" there"))}}, ended: tt.ended}
				s := newDesk(t, e, f)
				key := id.NewUUID()
				body, request, _ := s.call(key, tt.query)
				end := pendingEnd
				if tt.query != "" {
					end = fmt.Sprintf(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":%d,"model":"%s","choices":[],"usage":null,`, id.Time(request).Unix(), pendingModel) + strings.TrimPrefix(pendingEnd, "data: {")
				}
				broke := ""
				if tt.ended == errCut {
					broke = string(brokeOff(true))
				}
				frames := delta("Hello") + delta(" there")
				if body != frames+broke+end {
					t.Fatalf("the stream is\n%s", body)
				}
				again, request2, replayed := s.call(key, tt.query)
				if again != frames+broke+end || request2 != request || !replayed {
					t.Errorf("a retry got %s, replayed %t:\n%s", request2, replayed, again)
				}
				s.receipt(request, "pending", false)
				s.verify(`SELECT COUNT(*) FROM holds h JOIN connections c ON c.held_mc = h.amount_mc WHERE h.state = 'pending' AND h.request_id = $1`, request)
				if n, err := s.Resolve(t.Context()); n != 0 || err != nil {
					t.Errorf("resolved %d before anything can be known, %v", n, err)
				}
				f.mu.Lock()
				f.record, f.trouble = tt.record, tt.trouble
				f.mu.Unlock()
				s.pass(tt.after)
				if n, err := s.Resolve(t.Context()); n != 1 || err != nil {
					t.Fatalf("resolved %d, %v", n, err)
				}
				if n, err := s.Resolve(t.Context()); n != 0 || err != nil {
					t.Errorf("resolved %d again, %v", n, err)
				}
				if len(f.asked) != 1 || f.asked[0] != "chatcmpl-9 "+request {
					t.Errorf("asked for %q", f.asked)
				}
				r := s.receipt(request, tt.settlement, true)
				s.verify(`SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND key = $1 AND settlement = $2`, key, tt.settlement)
				s.verify(`SELECT COUNT(*) FROM connections WHERE held_mc = 0 AND consumed_mc = (SELECT user_charge_mc FROM ledger WHERE type = 'spend')`)
				var data string
				if err := s.DB.QueryRowContext(t.Context(), `SELECT data FROM events WHERE type = 'request.settled' AND connection_id = $1`, s.who.ConnectionID).Scan(&data); err != nil {
					t.Fatal(err)
				}
				if told := `{"request":` + r + `}`; data != told {
					t.Errorf("told\n%s, the receipt is\n%s", data, told)
				}
				end, _, replayed = s.call(key, tt.query)
				if !replayed || !strings.HasPrefix(end, frames) || !strings.Contains(end, `"settlement":"`+tt.settlement+`"}}`) || !strings.Contains(end, fmt.Sprintf(`"completion_tokens":%d,`, tt.output)) {
					t.Errorf("after it was settled a retry got, replayed %t,\n%s", replayed, end)
				}
				s.audit()
			})
		})
	}
}

// TestNotPending shows what is billed at once, or not at all, where a record is kept.
func TestNotPending(t *testing.T) {
	t.Parallel()
	usage := &provider.Usage{Input: 9, Output: 5}
	for _, tt := range []struct {
		name   string
		chunks []provider.Chunk
		ended  error
		keeps  bool
		want   string
	}{
		{"the usage came", []provider.Chunk{{Frames: []byte(delta("Hello"))}, {UsageFrame: []byte(usageEvent), Usage: usage}}, io.EOF, true, "settled"},
		{"cut behind the usage", []provider.Chunk{{Frames: []byte(delta("Hello"))}, {UsageFrame: []byte(usageEvent), Usage: usage}}, errCut, true, "settled"},
		{"nobody keeps a record", []provider.Chunk{{Frames: []byte(delta("Hello"))}}, errCut, false, "estimated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newDesk(t, db.SQLite, &fake{chunks: tt.chunks, ended: tt.ended})
			if !tt.keeps {
				s.Records = nil
			}
			_, request, _ := s.call(id.NewUUID(), "")
			s.receipt(request, tt.want, true)
			s.verify(`SELECT 1 - COUNT(*) FROM events WHERE type = 'request.settled'`)
			s.audit()
		})
	}
}

// TestPendingAfterACrash sweeps the hold of a node that died within a stream: it is
// asked for by the id that its chunks carry, less often each time, and settled when the record comes.
func TestPendingAfterACrash(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		f := &fake{}
		s := newDesk(t, e, f)
		p, err := parse([]byte(`{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		q, err := newPlan(p, route{path: "ai/" + pendingModel, model: pendingModel}, "", &s.who.App, nil, s.Catalog.Current(), nil, s.Fee, s.Now())
		if err != nil {
			t.Fatal(err)
		}
		request := id.New(id.Request, s.Now())
		s.do(rules.Hold{Call: q.call(s.who, id.NewUUID(), request, "print"), NodeID: s.Node.ID, Claim: request})
		if err := s.Node.SaveCheckpoints(t.Context(), []store.Checkpoint{{RequestID: request, Attempt: 1, Body: []byte(delta("Hello"))}}); err != nil {
			t.Fatal(err)
		}
		swept := 0
		for deadline := time.Now().Add(10 * time.Second); swept == 0 && time.Now().Before(deadline); { // on SQLite a hold comes to the file by the writer's tick
			s.pass(time.Second)
			if swept, err = s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Millisecond)
		}
		s.receipt(request, "pending", false)
		asks := 0
		for seconds := range 200 { // at 5, 20, 80, 140, 200 s
			if _, err := s.Resolve(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(f.asked) > asks {
				asks = len(f.asked)
				t.Logf("asked after %d s for %s", seconds, f.asked[asks-1])
			}
			s.pass(time.Second)
		}
		if asks != 4 || f.asked[0] != "chatcmpl-9 "+request {
			t.Errorf("asked for %q", f.asked)
		}
		f.record = &provider.Usage{Input: 9, Output: 1}
		s.pass(time.Minute)
		if n, err := s.Resolve(t.Context()); n != 1 || err != nil {
			t.Errorf("resolved %d, %v", n, err)
		}
		s.receipt(request, "settled", true)
		s.audit()
	})
}

// receipt checks a request's status, and returns its receipt as it is told.
func (s *desk) receipt(requestID, status string, billed bool) string {
	s.t.Helper()
	r, _, err := FindReceipt(s.t.Context(), s.DB, requestID)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Status != status || r.Billed != billed || (r.Charge != nil) != billed {
		s.t.Errorf("the receipt of %s: %+v, want %s, billed %t", requestID, r, status, billed)
	}
	b, err := json.Marshal(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

func (s *desk) audit() {
	s.t.Helper()
	var out bytes.Buffer
	if n, err := audit.Run(s.t.Context(), s.db, &out, s.Now()); n != 0 || err != nil {
		s.t.Errorf("%d findings, %v\n%s", n, err, out.String())
	}
}

// begin starts a call whose stream hangs after its first words, and returns how to leave it.
func (s *desk) begin(key string) (leave func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", s.url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "Hello") {
		s.t.Fatalf("%q, %v", line, err)
	}
	return func() {
		cancel()
		_ = resp.Body.Close()
	}
}

func (s *desk) eventually(what string, f func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !f(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("never: %s", what)
		}
	}
}

func (s *desk) drained() int {
	s.drains.mu.Lock()
	defer s.drains.mu.Unlock()
	return s.drains.running.Len()
}

func (s *desk) billed(key string) bool {
	var n int
	if err := s.DB.QueryRowContext(s.t.Context(), `SELECT COUNT(*) FROM ledger WHERE key = $1 AND settlement = 'estimated'`, key).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n == 1
}

// TestDrains bounds the calls whose clients have gone: where one is too many the
// oldest ends and is billed for what it has read; the others go on until their
// time is over; and one that a copy has joined is nobody's drain.
func TestDrains(t *testing.T) {
	t.Parallel()
	f := &fake{chunks: []provider.Chunk{{Frames: []byte(delta("Hello"))}}, hang: true, started: make(chan struct{}, 8)}
	s := newDesk(t, db.SQLite, f)
	s.Records, s.drains.most = nil, 2
	var keys []string
	leave := map[string]func(){}
	for range 4 {
		key := id.NewUUID()
		keys, leave[key] = append(keys, key), s.begin(key)
		<-f.started
	}
	if n := s.drained(); n != 0 {
		t.Fatalf("%d drains of calls whose clients are there", n)
	}
	leave[keys[0]]()
	s.eventually("the first drain", func() bool { return s.drained() == 1 })
	back := s.begin(keys[0]) // a copy reads along
	s.eventually("a joined call is no drain", func() bool { return s.drained() == 0 })
	for n, key := range keys[1:3] {
		leave[key]()
		s.eventually("drains", func() bool { return s.drained() == n+1 })
	}
	leave[keys[3]]()
	s.eventually("the oldest is cut and billed", func() bool { return s.billed(keys[1]) })
	if s.drained() != 2 || s.billed(keys[0]) || s.billed(keys[2]) || s.billed(keys[3]) {
		t.Errorf("%d drains; billed %t %t %t", s.drained(), s.billed(keys[0]), s.billed(keys[2]), s.billed(keys[3]))
	}
	s.drains.mu.Lock()
	s.drains.patience, s.drains.most = time.Millisecond, 3
	s.drains.mu.Unlock()
	back()
	s.eventually("one that was joined drains when the copy has gone, and its time is short", func() bool { return s.billed(keys[0]) })
	for _, key := range keys[2:] {
		s.calls.mu.Lock()
		c := s.calls.calls[rules.Key{ConnectionID: s.who.ConnectionID, Key: key}]
		s.calls.mu.Unlock()
		s.drains.give(c)
		s.eventually("the others", func() bool { return s.billed(key) })
	}
	s.eventually("no drain", func() bool { return s.drained() == 0 })
	s.audit()
}
