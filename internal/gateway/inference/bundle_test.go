package inference

import (
	"bufio"
	"bytes"
	"cmp"
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
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

const testModel = "gpt-5.6-terra"

// delta returns one chunk of a stream with some text.
func delta(text string) string {
	return fmt.Sprintf(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m",`+
		`"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`+"\n\n", text)
}

const usageEvent = `data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m","choices":[],` +
	`"usage":{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}}` + "\n\n"

var errCut = errors.New("connection reset")

// A fakeProvider is a provider whose streams and records are given.
type fakeProvider struct {
	provider.Provider
	chunks  []provider.Chunk
	ended   error
	silent  chan error    // Stream returns what it receives, or is cut; nil: Stream does not wait
	hangs   bool          // after the chunks, until the call is cut
	hanging chan struct{} // receives when a stream hangs
	paused  chan struct{} // the second chunk waits until it is closed; nil: it does not wait
	closing chan struct{} // Close waits until it is closed; nil: it does not wait
	quit    chan struct{} // closed at the end of the test

	whole *provider.Response // of Complete; nil: it fails

	mu     sync.Mutex
	asked  []string // the records that were asked for
	record *provider.Usage
	err    error // of asking for records
}

func (f *fakeProvider) Name() string { return "openai" }

func (f *fakeProvider) Stream(ctx context.Context, _ *provider.Request) (provider.Stream, error) {
	if f.silent != nil {
		select {
		case err := <-f.silent:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-f.quit: // the test has failed
			return nil, errCut
		}
	}
	return &fakeStream{ctx: ctx, fakeProvider: f}, nil
}

// Complete waits as Stream does.
func (f *fakeProvider) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if f.whole != nil {
		return f.whole, nil
	}
	_, err := f.Stream(ctx, r)
	return nil, cmp.Or(err, errCut)
}

func (f *fakeProvider) GetStoredUsage(_ context.Context, responseID, requestID string) (*provider.Usage, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, responseID+" "+requestID)
	return f.record, f.record != nil, f.err
}

type fakeStream struct {
	*fakeProvider
	ctx context.Context
	n   int
}

func (s *fakeStream) ID() string { return "chatcmpl-9" }

func (s *fakeStream) BodyEnded() bool { return s.closing == nil }

func (s *fakeStream) Close() error {
	if s.closing != nil {
		select {
		case <-s.closing:
		case <-s.quit:
		}
	}
	return nil
}

func (s *fakeStream) Next() (provider.Chunk, error) {
	if s.n++; s.n == 2 && s.paused != nil {
		select {
		case <-s.paused:
		case <-s.quit:
		}
	}
	if s.n <= len(s.chunks) {
		return s.chunks[s.n-1], nil
	}
	if s.hangs {
		s.hanging <- struct{}{}
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

// A bundle is a handler with one connection, served over HTTP.
type bundle struct {
	*Handler
	t   *testing.T
	db  string
	url string
	who *callers.Caller
	now time.Time
	mu  sync.Mutex

	storesRefusals bool
}

func newBundle(t *testing.T, e db.Engine, f *fakeProvider) *bundle {
	t.Helper()
	b := &bundle{t: t, db: dbtest.URL(t, e), now: time.Now()}
	d, err := db.Open(t.Context(), b.db)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	log := slog.New(slog.DiscardHandler)
	book, err := catalog.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	ledger := apitest.StartLedger(t, d, b.clock)
	node, err := store.JoinNode(t.Context(), d, id.New(id.Node, b.now), time.Minute, b.clock)
	if err != nil {
		t.Fatal(err)
	}
	b.Handler = New(Config{
		DB:        d,
		Ledger:    ledger,
		Node:      node,
		Apps:      apps.NewStore(d, b.clock, true),
		Catalog:   book,
		Policies:  policies.Fixed(policy.Policy{Fee: money.One / 20, UnbilledCallsDayMC: money.Dollar}),
		Providers: map[string]provider.Provider{"openai": f},
		Recorders: map[string]Recorder{"openai": f},
		Now:       b.clock,
		Log:       log,
	})
	b.connect()
	router := web.NewRouter(log, web.Links{})
	router.Handle("POST /call", b.serve)
	server := httptest.NewServer(router)
	b.url = server.URL + "/call"
	f.quit = make(chan struct{})
	t.Cleanup(func() {
		close(f.quit)
		server.Close()
	})
	return b
}

// secondNode returns another node on the same database, with the same connection and provider.
func (b *bundle) secondNode() *bundle {
	b.t.Helper()
	d, err := db.Open(b.t.Context(), b.db)
	if err != nil {
		b.t.Fatal(err)
	}
	d.RelaxLimits(12)
	b.t.Cleanup(func() { _ = d.Close() })
	c := b.Config
	c.DB, c.Ledger = d, apitest.StartLedger(b.t, d, b.clock)
	if c.Node, err = store.JoinNode(b.t.Context(), d, id.New(id.Node, b.clock()), time.Minute, b.clock); err != nil {
		b.t.Fatal(err)
	}
	other := &bundle{Handler: New(c), t: b.t, db: b.db, who: b.who, now: b.clock()}
	other.keepAlive = b.keepAlive
	router := web.NewRouter(c.Log, web.Links{})
	router.Handle("POST /call", other.serve)
	server := httptest.NewServer(router)
	b.t.Cleanup(server.Close)
	other.url = server.URL + "/call"
	return other
}

// secondApp returns the same node for a user of another app.
func (b *bundle) secondApp() *bundle {
	b.t.Helper()
	other := &bundle{Handler: b.Handler, t: b.t, db: b.db, now: b.clock()}
	other.connect()
	router := web.NewRouter(b.Log, web.Links{})
	router.Handle("POST /call", other.serve)
	server := httptest.NewServer(router)
	b.t.Cleanup(server.Close)
	other.url = server.URL + "/call"
	return other
}

// connect makes an app and a connection to it.
func (b *bundle) connect() {
	b.t.Helper()
	b.who = &callers.Caller{
		ConnectionID: id.New(id.Connection, b.now),
		AccountID:    id.New(id.Account, b.now),
		App: apps.App{
			ID:           id.New(id.App, b.now),
			ProviderMode: "live",
			Tier:         "full-live",
			DevMargin:    money.One / 10,
		},
	}
	for _, text := range []string{
		`INSERT INTO accounts (id, email, password_hash, developer, created_us)
			VALUES ('wac_dev', 'developer@example.com', '', 1, 1) ON CONFLICT DO NOTHING`,
		`INSERT INTO accounts (id, email, password_hash, created_us)
			VALUES ('` + b.who.AccountID + `', '` + b.who.AccountID + `@example.com', '', 1)`,
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier,
			provider_mode,
			test_allowlist, dev_margin_ppm, created_us)
			VALUES ('` + b.who.App.ID +
			`', 'wac_dev', 'App', 'cid_` + b.who.App.ID + `', '', '[]', '[]', 'full-live', 'live', '[]', 100000, 1)`,
	} {
		if _, err := b.DB.ExecContext(b.t.Context(), text); err != nil {
			b.t.Fatal(err)
		}
	}
	b.do(rules.TopUp{AccountID: b.who.AccountID, AmountMC: 100 * money.Dollar})
	b.do(rules.Connect{
		ConnectionID: b.who.ConnectionID,
		AppID:        b.who.App.ID,
		AccountID:    b.who.AccountID,
		RequestedMC:  10 * money.Dollar,
	})
}

const testBody = `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":100,"stream":true}`

// serve runs a call of the one connection, on the route of the model or, by ?chat, on
// the OpenAI-compatible one, by ?whole without a stream, and by ?stop with a stop sequence. Its plan must be the same
// afterwards.
func (b *bundle) serve(w http.ResponseWriter, r *http.Request) error {
	c := b.newCall(r)
	before := fmt.Sprintf("%+v", *c.plan)
	defer func() {
		if after := fmt.Sprintf("%+v", *c.plan); after != before {
			b.t.Errorf("the plan has changed from\n%s to\n%s", before, after)
		}
	}()
	err := b.runCall(w, r, c)
	if err != nil && b.storesRefusals && !c.unstored { // as infer does
		b.storeRefusal(r, c, err)
	}
	return err
}

func (b *bundle) newCall(r *http.Request) *call {
	route, body := plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody
	if r.URL.Query().Has("chat") {
		route = plan.Route{Path: "chat/completions", Chat: true}
		body = strings.Replace(body, "{", `{"model":"`+testModel+`","stream_options":{"include_usage":true},`, 1)
	}
	if r.URL.Query().Has("whole") {
		body = strings.Replace(body, `,"stream":true`, "", 1)
	}
	if r.URL.Query().Has("stop") {
		body = strings.Replace(body, "{", `{"stop":"END","reasoning_effort":"none",`, 1)
	}
	return &call{
		who:         b.who,
		key:         rules.Key{ConnectionID: b.who.ConnectionID, Key: r.Header.Get("Idempotency-Key")},
		fingerprint: "print",
		claim:       web.RequestID(r.Context()),
		plan:        b.plan(route, body),
	}
}

func (b *bundle) plan(route plan.Route, body string) *plan.Plan {
	request, err := plan.Parse([]byte(body))
	if err != nil {
		b.t.Error(err)
		return nil
	}
	planned, err := plan.New(&plan.Input{
		Request: request,
		Route:   route,
		Caller:  b.who,
		Catalog: b.Catalog.Current(),
		Policy:  b.Policies.At(b.clock()),
		Now:     b.clock(),
	})
	if err != nil {
		b.t.Error(err)
	}
	return planned
}

func (b *bundle) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bundle) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bundle) do(c rules.Command) {
	b.t.Helper()
	if _, err := b.Ledger.Do(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
}

// call makes a call and returns the body and the request id of its response.
func (b *bundle) call(key, query string) (body, requestID string, replayed bool) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+query, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		b.t.Fatalf("%d %s %v", resp.StatusCode, text, err)
	}
	return string(text), resp.Header.Get("X-Request-Id"), resp.Header.Get("Idempotent-Replayed") == "true"
}

// begin starts a call whose stream hangs after its first text, and returns what
// disconnects its client.
func (b *bundle) begin(key string) (disconnect func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "Hello") {
		b.t.Fatalf("%q, %v", line, err)
	}
	return func() {
		cancel()
		_ = resp.Body.Close()
	}
}

func (b *bundle) eventually(what string, f func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !f(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("never: %s", what)
		}
	}
}

// expectOne checks that a query counts 1.
func (b *bundle) expectOne(query string, args ...any) {
	b.t.Helper()
	var n int
	if err := b.DB.QueryRowContext(b.t.Context(), query, args...).Scan(&n); err != nil || n != 1 {
		b.t.Errorf("%s: %d, %v", query, n, err)
	}
}

// receipt checks a request's status, and returns its receipt as request.settled has it.
func (b *bundle) receipt(requestID, status string, billed bool) string {
	b.t.Helper()
	r, _, err := receipts.Find(b.t.Context(), b.DB, requestID)
	if err != nil {
		b.t.Fatal(err)
	}
	if r.Status != status || r.Billed != billed || (r.Charge != nil) != billed {
		b.t.Errorf("the receipt of %s: %+v, want %s, billed %t", requestID, r, status, billed)
	}
	text, err := json.Marshal(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// audit verifies the ledger.
func (b *bundle) audit() {
	b.t.Helper()
	var out bytes.Buffer
	if n, err := audit.VerifyAndPrint(b.t.Context(), b.db, &out, b.Now()); n != 0 || err != nil {
		b.t.Errorf("%d findings, %v\n%s", n, err, out.String())
	}
}
