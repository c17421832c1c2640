package voice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// waitTimeout is how long a test waits for what must happen. It is far longer than that takes, because
// the machine may be busy.
const waitTimeout = 60 * time.Second

// clock is a clock that tests advance.
type clock struct {
	mu  sync.Mutex
	add time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.add)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add += d
}

// world is a database with an app, a connection with its access token, and the nodes that serve its
// voice sessions.
type world struct {
	*clock
	t     *testing.T
	url   string
	db    *db.DB
	book  *store.Writer
	app   string
	conn  string
	token string
	other string // the token of another connection
	nodes []*testNode
	base  string        // of the provider
	up    *fakeProvider // nil with the emulator
}

// testNode is one node.
type testNode struct {
	*Supervisor
	handler *Handler
	url     string
}

// newWorld makes a world with a fake provider. Mode is the app's provider mode.
func newWorld(t *testing.T, e db.Engine, mode, tier string) *world {
	t.Helper()
	up := newFakeProvider(t)
	w := newWorldAt(t, e, mode, tier, up.url)
	w.up = up
	return w
}

// newTracedWorld makes a world without a provider that calls f with each statement.
func newTracedWorld(t *testing.T, e db.Engine, mode, tier string, f func(query string, args []any)) *world {
	t.Helper()
	return makeWorld(t, e, mode, tier, "", f)
}

// newWorldAt makes a world whose provider is at base.
func newWorldAt(t *testing.T, e db.Engine, mode, tier, base string) *world {
	t.Helper()
	return makeWorld(t, e, mode, tier, base, nil)
}

// makeWorld makes a world. trace is nil or called with each statement.
func makeWorld(t *testing.T, e db.Engine, mode, tier, base string, trace func(query string, args []any)) *world {
	t.Helper()
	w := &world{clock: &clock{}, t: t, url: dbtest.URL(t, e), base: base}
	d, err := db.Open(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	if trace != nil {
		d.Trace(trace)
	}
	w.db = d
	now := w.now()
	w.app, w.conn = id.New(id.App, now), id.New(id.Connection, now)
	sandbox := tier == tiers.Sandbox
	var owner *string // of test accounts
	if sandbox {
		developer := "wac_dev"
		owner = &developer
	}
	w.exec(`INSERT INTO accounts (id, email, password_hash, developer, created_us)
		VALUES ('wac_dev', 'developer@example.com', '', 1, 1)`)
	w.exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
		VALUES ('wac_user', 'user@example.com', '', $1, $2, 1), ('wac_other', 'other@example.com', '', $1, $2, 1)`,
		db.BoolInt(sandbox), owner)
	w.exec(`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier,
			provider_mode, test_allowlist, dev_margin_ppm, created_us)
		VALUES ($1, 'wac_dev', 'App', 'cid_1', '', '[]', '[]', $2, $3, '[]', 100000, 1)`, w.app, tier, mode)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	w.book = apitest.StartLedger(t, d, w.now)
	tokens := &oauth.Store{DB: d, Ledger: w.book, Now: w.now}
	other := id.New(id.Connection, now)
	for account, conn := range map[string]string{"wac_user": w.conn, "wac_other": other} {
		w.do(rules.TopUp{AccountID: account, Sandbox: sandbox, AmountMC: 100 * money.Dollar})
		w.do(rules.Connect{
			ConnectionID: conn,
			AppID:        w.app,
			AccountID:    account,
			Sandbox:      sandbox,
			RequestedMC:  10 * money.Dollar,
		})
	}
	for conn, token := range map[string]*string{w.conn: &w.token, other: &w.other} {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			issued, err := tokens.IssueTokens(ctx, tx, conn, w.app, "")
			*token = issued.AccessToken
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.node()
	return w
}

// node adds a node.
func (w *world) node() *testNode {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(&testLog{w.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	prices, err := catalog.Open("", log)
	if err != nil {
		w.t.Fatal(err)
	}
	registry := apps.NewStore(w.db, w.now, true)
	offered := func(string) bool { return true }
	member, err := store.JoinNode(w.t.Context(), w.db, id.New(id.Node, w.now()), time.Hour, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	tokens := &oauth.Store{DB: w.db, Ledger: w.book, Now: w.now}
	book := policies.Fixed(policy.Policy{Fee: money.One / 20, Risk: limits.DefaultRiskThresholds,
		SandboxDayMC: money.Dollar, SandboxTotalDayMC: money.Max, EmptyAnswersDayMC: 100_000})
	supervisor := NewSupervisor(Options{
		DB:       w.db,
		Ledger:   w.book,
		NodeID:   member.ID,
		Apps:     registry,
		Policies: book,
		Provider: Provider{BaseURL: w.base, PlatformKeys: []string{"sk-test"}, MakeRefusal: openai.MakeRefusal},
		Metrics:  metrics.New(prices, nil),
		Now:      w.now,
		Log:      log,
	})
	supervisor.clock = w.now
	lease := &supervisor.node.lease
	lease.renewedAt, lease.steadyAt, lease.endUS = w.now(), time.Unix(1, 0), w.now().Add(leaseTTL).UnixMicro()
	n := &testNode{Supervisor: supervisor, handler: &Handler{
		Supervisor:  supervisor,
		Tokens:      tokens,
		Callers:     callers.NewResolver(w.db, tokens, registry, features.NewStore(w.db, w.now, offered), w.now),
		Catalog:     prices,
		Policies:    book,
		IdleTimeout: 2 * time.Minute,
		Now:         w.now,
	}}
	router := web.NewRouter(log, web.Links{Dashboard: "https://dash.example"})
	n.handler.Mount(router)
	server := httptest.NewServer(router)
	n.url, n.handler.PublicURL = server.URL, server.URL
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if err := errors.Join(n.Renew(ctx), n.Watch(ctx), n.HangUps(ctx)); err != nil && ctx.Err() == nil {
				w.t.Log("watch:", err)
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	w.t.Cleanup(func() {
		stop()
		watching.Wait()
		last, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		n.Stop(last)
		server.Close()
		w.verify()
	})
	w.nodes = append(w.nodes, n)
	return n
}

// testLog writes log lines to a test.
type testLog struct{ t *testing.T }

func (l *testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (w *world) do(c rules.Command) rules.Result {
	w.t.Helper()
	r, err := w.book.Do(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) exec(text string, args ...any) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), text, args...); err != nil {
		w.t.Fatal(err)
	}
}

// verify runs the ledger verification.
func (w *world) verify() {
	w.t.Helper()
	var out bytes.Buffer
	if findings, err := audit.VerifyAndPrint(context.Background(), w.url, &out, w.now()); err != nil || findings > 0 {
		w.t.Errorf("ledger verify: %d findings, %v\n%s", findings, err, out.String())
	}
}

// call makes a request and checks its answer against api/openapi.yaml.
func (w *world) call(n *testNode, method, path, body, token string) (int, map[string]any) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/offer") {
		req.Header.Set("Content-Type", "application/sdp")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	apitest.Check(w.t, req, resp, b)
	var out map[string]any
	if json.Unmarshal(b, &out) != nil {
		out = map[string]any{"text": string(b)}
	}
	return resp.StatusCode, out
}

// opened is the response to the creation of a session.
type opened struct {
	ID     string `json:"id"`
	Client struct {
		Ticket   string `json:"ticket"`
		OfferURL string `json:"offer_url"`
		MockURL  string `json:"mock_url"`
	} `json:"client"`
	ControlURL string `json:"control_url"`
}

// open creates a session.
func (w *world) open(body string) opened {
	w.t.Helper()
	status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, w.token)
	if status != 201 {
		w.t.Fatalf("%d %v", status, answer)
	}
	var o opened
	if err := json.Unmarshal(mustJSON(answer), &o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// get reads a session.
func (w *world) get(id string) Session {
	w.t.Helper()
	status, answer := w.call(w.nodes[0], "GET", "/v1/realtime/sessions/"+id, "", w.token)
	if status != 200 {
		w.t.Fatalf("%d %v", status, answer)
	}
	var s Session
	if err := json.Unmarshal(mustJSON(answer), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// until waits until f is true.
func (w *world) until(what string, f func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(waitTimeout); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s", what)
		}
	}
}

// ended waits for the end of a session, and checks its reason.
func (w *world) ended(id, reason string) Session {
	w.t.Helper()
	var s Session
	w.until("the session ends", func() bool { s = w.get(id); return s.Status == session.Ended })
	if *s.EndReason != reason {
		w.t.Errorf("ended by %s, want %s", *s.EndReason, reason)
	}
	var n int
	if err := w.db.QueryRowContext(w.t.Context(),
		`SELECT COUNT(*) FROM events WHERE type = 'realtime_session.ended' AND data LIKE $1`,
		"%"+id+"%").Scan(&n); err != nil || n != 1 {
		w.t.Errorf("%d webhooks of the end, %v", n, err)
	}
	return s
}

// free checks that nothing is held.
func (w *world) free() {
	w.t.Helper()
	if c, err := store.GetConnection(w.t.Context(), w.db, w.conn); err != nil || c.HeldMC != 0 {
		w.t.Errorf("still held: %s, %v", c.HeldMC.Display(), err)
	}
}

// socket is a WebSocket whose events are read as they come.
type socket struct {
	t    *testing.T
	ws   *websocket.Conn
	mu   sync.Mutex
	got  []map[string]any
	next int
	more chan struct{}
	over chan struct{}
	code websocket.StatusCode
}

func (w *world) dialSocket(url, token string) *websocket.Conn {
	w.t.Helper()
	ws, _, err := websocket.Dial(w.t.Context(), url,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return ws
}

func (w *world) dial(url, token string) *socket {
	w.t.Helper()
	ws := w.dialSocket(url, token)
	if strings.HasSuffix(url, "/control") {
		return listenAs(w.t, ws, func(event []byte) { recordEvent(w.t, event) })
	}
	return listenTo(w.t, ws)
}

func listenTo(t *testing.T, ws *websocket.Conn) *socket {
	return listenAs(t, ws, func([]byte) {})
}

// listenAs reads the events of ws, and gives each to look.
func listenAs(t *testing.T, ws *websocket.Conn, look func(event []byte)) *socket {
	s := &socket{t: t, ws: ws, more: make(chan struct{}, 1), over: make(chan struct{})}
	ws.SetReadLimit(maxEventBytes)
	t.Cleanup(func() {
		_ = ws.CloseNow()
		<-s.over
	})
	go func() {
		defer close(s.over)
		for {
			_, data, err := ws.Read(context.Background())
			if err != nil {
				s.code = websocket.CloseStatus(err)
				return
			}
			look(data)
			var e map[string]any
			if json.Unmarshal(data, &e) != nil {
				continue
			}
			s.mu.Lock()
			s.got = append(s.got, e)
			s.mu.Unlock()
			select {
			case s.more <- struct{}{}:
			default:
			}
		}
	}()
	return s
}

func (s *socket) send(event string) {
	s.t.Helper()
	if err := s.ws.Write(s.t.Context(), websocket.MessageText, []byte(event)); err != nil {
		s.t.Fatal(err)
	}
}

// wait returns the next event of a type, and skips the others.
func (s *socket) wait(kind string) map[string]any {
	s.t.Helper()
	deadline := time.After(waitTimeout)
	for {
		s.mu.Lock()
		for s.next < len(s.got) {
			e := s.got[s.next]
			s.next++
			if e["type"] == kind {
				s.mu.Unlock()
				return e
			}
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-s.over:
			s.mu.Lock()
			rest := s.next < len(s.got)
			s.mu.Unlock()
			if !rest {
				s.t.Fatalf("closed with %d before %s; got %v", s.code, kind, s.kinds())
			}
		case <-deadline:
			s.t.Fatalf("no %s; got %v", kind, s.kinds())
		}
	}
}

// count returns how many events of a type have come.
func (s *socket) count(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		if e["type"] == kind {
			n++
		}
	}
	return n
}

// closed waits for the end of the socket and returns its code.
func (s *socket) closed() websocket.StatusCode {
	s.t.Helper()
	select {
	case <-s.over:
	case <-time.After(waitTimeout):
		s.t.Fatal("the socket stays open")
	}
	return s.code
}

// kinds are the types of all events so far.
func (s *socket) kinds() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		list = append(list, fmt.Sprint(e["type"]))
	}
	return slices.Compact(list)
}

// speak connects to the mock voice.
func (w *world) speak(o opened) *socket {
	w.t.Helper()
	s := w.dial(o.Client.MockURL+"?ticket="+o.Client.Ticket, "")
	s.wait("session.created")
	return s
}
