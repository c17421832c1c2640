package inference

import (
	"bytes"
	"context"
	"encoding/json"

	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/models/tokens"
	"github.com/purserhq/purser/internal/testkit"
)

var (
	wholeMatrix = flag.Bool("matrix", false, "play every cell of the matrix of providers' answers")
	matrixSeed  = flag.Uint64("matrix-seed", 1, "of the cells that are played otherwise")
	matrixCell  = flag.String("matrix-cell", "", "play this cell alone")
)

// A way is how an answer ends.
type way int

const (
	ending   way = iota // the provider ends the body
	cuts                // the provider closes the connection
	silent              // the provider sends nothing more
	stopped             // the user stops the call
	left                // the client leaves, and the provider goes on
	orphaned            // the client leaves, and the rest is not awaited
	tooLong             // the time of the call is over
	restart             // the node stops
	crash               // the node dies
)

var wayNames = [...]string{"ends", "cuts", "silent", "stopped", "left", "orphaned", "too long", "restart", "crash"}

func (w way) String() string { return wayNames[w] }

// isOfProvider reports whether the provider ends the answer.
func (w way) isOfProvider() bool { return w <= silent }

// A cell is one call of the matrix.
type cell struct {
	dialect  *dialect
	content  string // of generations, or "vector"
	usage    string // of usageModes
	route    string
	streamed bool
	at       int    // events, or parts of a body
	place    string // what that is of the answer
	way      way
	big      *bigAnswer // nil = an answer of a few words
}

var routes = []string{"ai", "chat", "messages", "responses", "contents"}

func (c *cell) String() string {
	form, size := "whole", ""
	if c.streamed {
		form = "streamed"
	}
	if c.big != nil {
		size = c.big.name + "/"
	}
	return fmt.Sprintf("%s/%s/%susage %s/%s/%s/%d/%s", c.dialect.name, c.content, size, c.usage, c.route, form, c.at,
		c.way)
}

// shows reports whether the client is shown the reasoning: on the routes whose clients ask for it, and where a server
// sends it without being asked.
func (c *cell) shows() bool {
	return c.dialect.name == "chat" || c.route == "messages" || c.route == "responses" || c.route == "contents"
}

// write returns the answer, with a word that is in no other one.
func (c *cell) write(canary string, lie int) *answer {
	u := trueUsage
	if c.usage == lieUsage {
		u = lies[lie%len(lies)]
	}
	switch {
	case c.content == "vector":
		if u = (provider.Usage{Input: vectorInput}); c.usage == lieUsage {
			u = vectorLies[lie%len(vectorLies)]
		}
		return writeVector(c.dialect, c.usage, &u)
	case c.big != nil:
		return c.big.write(c, &u)
	}
	var pieces []piece
	for _, p := range generations[c.content] {
		pieces = append(pieces, piece{p.kind, strings.ReplaceAll(p.text, "CANARY", canary)})
	}
	return c.dialect.write(c.dialect, pieces, c.shows(), c.usage, &u)
}

// isBody reports whether the provider is asked for a whole body.
func (c *cell) isBody(a *answer) bool { return !c.streamed && a.body != "" }

// isComplete reports whether the provider has sent a complete answer.
func (c *cell) isComplete(a *answer) bool {
	if c.isBody(a) {
		return c.at == 2 && !c.big.isTooLong()
	}
	return c.at >= a.endedAt
}

// listCells returns all cells of the matrix.
func listCells() (cells []cell) {
	add := func(c cell) {
		a := c.write("", 0)
		last := len(a.events)
		if c.isBody(a) {
			last = 2
		}
		for c.at = range last + 1 {
			c.place = c.placeOf(a)
			for c.way = ending; c.way <= crash; c.way++ {
				cells = append(cells, c)
			}
		}
	}
	for _, d := range dialects {
		for _, usage := range usageModes {
			for _, content := range []string{"text", "reasoning", "calls"} {
				for _, route := range routes {
					if d.name == "chat" && (route == "responses" || route == "messages" && content == "reasoning" ||
						route == "contents" && content != "text") {
						continue // the Responses API serves it
					}
					for _, streamed := range []bool{true, false} {
						add(cell{dialect: d, content: content, usage: usage, route: route, streamed: streamed})
					}
				}
			}
			if d.name == "chat" || d.name == "google" {
				add(cell{dialect: d, content: "vector", usage: usage, route: "embeddings"})
			}
		}
	}
	return cells
}

// placeOf says where the answer ends.
func (c *cell) placeOf(a *answer) string {
	switch {
	case c.at == 0:
		return "before"
	case c.isComplete(a) && (c.isBody(a) || c.at == len(a.events)):
		return "whole"
	case c.isComplete(a):
		return "complete"
	case !c.isBody(a) && a.said(c.at) == "":
		return "begun"
	}
	return "within"
}

// traits are the values of a cell in each dimension.
func (c *cell) traits() []string {
	form := "whole"
	if c.streamed {
		form = "streamed"
	}
	return []string{c.dialect.name, c.content, c.usage, c.route, form, c.place, c.way.String()}
}

// chooseCells returns cells that have each pair of traits that any cell has, and some more.
func chooseCells(cells []cell, seed uint64, more int) (chosen []cell) {
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	type pair struct {
		x, y int
		a, b string
	}
	seen := map[pair]bool{}
	for i := range cells {
		t, isNew := cells[i].traits(), more > 0 && i%(1+len(cells)/max(more, 1)) == 0
		for x := range t {
			for y := range x {
				key := pair{x, y, t[x], t[y]}
				isNew, seen[key] = isNew || !seen[key], true
			}
		}
		if isNew {
			chosen = append(chosen, cells[i])
		}
	}
	return chosen
}

// A matrix plays cells of one dialect.
type matrix struct {
	*bundle
	stub    *providerStub
	issuer  *oauth.Store
	otherID string  // the connection of another user of the app
	hasty   *bundle // the same node, whose providers may be silent for a moment only
	tries   *bundle // the same node, which tries again as a node does
	token   string
	other   string // the token of that user
	log     *lockedLog
	keys    []string
	played  int

	failures int // cells that have failed
}

// maxFailures is how many cells of a dialect may fail before the others are left out.
const maxFailures = 10

// A lockedLog is what a node has logged.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns what was logged since the last time.
func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// hastyIdle is for how long a provider of a cell may be silent that is to be silent.
const hastyIdle = 2 * time.Second

func newMatrix(t *testing.T, e db.Engine) *matrix {
	t.Helper()
	m := &matrix{
		bundle: newBundle(t, e, &fakeProvider{}),
		stub:   newProviderStub(t),
		log:    &lockedLog{},
		keys:   []string{"sk-proj-SecretKeyOfOperatorAAAA", "sk-proj-SecretKeyOfOperatorBBBB"},
	}
	m.issuer = &oauth.Store{DB: m.DB, Ledger: m.Ledger, Now: m.clock}
	m.Log = slog.New(slog.NewJSONHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m.Callers = callers.NewResolver(m.DB, m.issuer, m.Apps, features.NewStore(m.DB, m.clock, nil), m.clock)
	m.Recorders = nil
	m.Providers = m.newProviders(time.Hour, false)
	m.mount(m.bundle)
	m.hasty, m.tries = m.variant(hastyIdle, false), m.variant(time.Hour, true)
	other := rules.Connect{
		ConnectionID: id.New(id.Connection, m.now),
		AppID:        m.who.App.ID,
		AccountID:    id.New(id.Account, m.now),
		RequestedMC:  10 * money.Dollar,
	}
	m.do(rules.TopUp{AccountID: other.AccountID, AmountMC: 100 * money.Dollar})
	m.do(other)
	m.otherID = other.ConnectionID
	m.issueTokens()
	return m
}

// issueTokens issues the tokens of both users, which end in minutes.
func (m *matrix) issueTokens() {
	m.t.Helper()
	issue := func(ctx context.Context, tx *db.Tx, connectionID string) string {
		given, err := m.issuer.IssueTokens(ctx, tx, connectionID, m.who.App.ID, "")
		if err != nil {
			m.t.Error(err)
		}
		return given.AccessToken
	}
	if err := m.DB.InTx(m.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		m.token, m.other = issue(ctx, tx, m.who.ConnectionID), issue(ctx, tx, m.otherID)
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
}

// newProviders returns the providers at the stub, with two keys each.
func (m *matrix) newProviders(idle time.Duration, tries bool) map[string]provider.Provider {
	list := map[string]provider.Provider{}
	for _, make := range []func(key string) provider.Provider{
		func(key string) provider.Provider {
			return openai.New(m.stub.url+"/v1", key, openai.Timeouts(idle, idle))
		},
		func(key string) provider.Provider {
			return anthropic.New(m.stub.url, key, anthropic.Timeouts(idle, idle))
		},
		func(key string) provider.Provider {
			return google.New(m.stub.url, key, google.Timeouts(idle, idle))
		},
	} {
		var keys []upstream.Key
		for i, key := range m.keys {
			keys = append(keys, upstream.Key{ID: fmt.Sprint("key ", i), Provider: make(key)})
		}
		p := provider.Provider(upstream.NewPool(keys, m.clock, m.Log, m.reportAlarm))
		if tries {
			p = upstream.NewReliable(p, m.clock, m.Log, m.reportAlarm)
		}
		list[p.Name()] = p
	}
	return list
}

func (m *matrix) reportAlarm(name, alarm string, cause error) {
	m.Log.Error("provider alarm", "provider", name, "alarm", alarm, "error", cause)
}

// variant returns the node with other providers.
func (m *matrix) variant(idle time.Duration, tries bool) *bundle {
	c := m.Config
	c.Providers = m.newProviders(idle, tries)
	b := &bundle{Handler: New(c), t: m.t, db: m.db, who: m.who, now: m.clock()}
	m.mount(b)
	return b
}

// mount serves a node's routes.
func (m *matrix) mount(b *bundle) {
	router := web.NewRouter(m.Log, web.Links{})
	b.Mount(router)
	server := httptest.NewServer(router)
	m.t.Cleanup(server.Close)
	b.url = server.URL
}

// request makes a request of a route.
func (m *matrix) request(
	b *bundle, token, key, route, model, prompt string, streamed, tools bool, maxTokens int,
) *http.Request {
	m.t.Helper()
	method := "generateContent"
	if streamed {
		method = "streamGenerateContent?alt=sse"
	}
	path := map[string]string{
		"ai":         "/v1/ai/" + model,
		"chat":       "/v1/chat/completions",
		"messages":   "/anthropic/v1/messages",
		"contents":   "/google/v1beta/models/" + model + ":" + method,
		"responses":  "/openai/v1/responses",
		"embeddings": "/openai/v1/embeddings",
	}[route]
	messages := []map[string]string{{"role": "user", "content": prompt}}
	body := map[string]any{"messages": messages, "max_tokens": maxTokens, "stream": streamed}
	schema := map[string]string{"type": "object"}
	function := map[string]any{"name": "weather", "parameters": schema}
	list := []any{map[string]any{"type": "function", "function": function}}
	switch route {
	case "chat":
		if body["model"] = model; streamed {
			body["stream_options"] = map[string]bool{"include_usage": true}
		}
	case "messages":
		body["model"], list = model, []any{map[string]any{"name": "weather", "input_schema": schema}}
		if model != testModel {
			body["thinking"] = map[string]string{"type": "adaptive"}
		}
	case "responses":
		list = []any{map[string]any{"type": "function", "name": "weather", "parameters": schema}}
		body = map[string]any{"model": model, "input": prompt, "max_output_tokens": maxTokens, "stream": streamed}
		if model != testModel {
			body["reasoning"] = map[string]string{"summary": "auto"}
		}
	case "contents":
		config := map[string]any{"maxOutputTokens": maxTokens}
		if model != testModel {
			config["thinkingConfig"] = map[string]bool{"includeThoughts": true}
		}
		part := []map[string]string{{"text": prompt}}
		contents := []any{map[string]any{"role": "user", "parts": part}}
		body = map[string]any{"contents": contents, "generationConfig": config}
		list = []any{map[string]any{"functionDeclarations": []any{
			map[string]any{"name": "weather", "parametersJsonSchema": schema},
		}}}
	case "embeddings":
		body, tools = map[string]any{"model": model, "input": []string{prompt}}, false
	}
	if tools {
		body["tools"] = list
		if model == testModel { // otherwise the Responses API would serve it
			body["reasoning_effort"] = "none"
			if route == "messages" {
				delete(body, "reasoning_effort")
				body["thinking"] = map[string]string{"type": "disabled"}
			}
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, b.url+path, bytes.NewReader(text))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization":   {"Bearer " + token},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {key},
	}
	return r
}

// A played cell is its call and what came of it.
type playedCell struct {
	*cell
	m       *matrix
	node    *bundle
	answer  *answer
	got     *reading
	key     string
	mark    string   // in its prompt
	secrets []string // what is in no log
}

// begin begins the call of a cell.
func (m *matrix) begin(ctx context.Context, c *cell) (*playedCell, *play) {
	m.t.Helper()
	m.played++
	n := m.played
	prompt, canary := fmt.Sprintf("SecretPrompt%04dQ", n), fmt.Sprintf("SecretAnswer%04dQ", n)
	p := &playedCell{
		cell:    c,
		m:       m,
		node:    m.bundle,
		answer:  c.write(canary, n),
		key:     id.NewUUID(),
		mark:    fmt.Sprintf("PLAY-%d", n),
		secrets: append([]string{prompt, canary}, m.keys...),
	}
	if c.way == silent {
		p.node = m.hasty
	}
	planned := &play{answer: p.answer, at: c.at, way: c.way}
	m.stub.put(p.mark, planned)
	model, maxTokens := c.dialect.model, 400
	if c.content == "vector" {
		if model = "text-embedding-3-large"; c.dialect.name == "google" {
			model = "gemini-embedding-001"
		}
	}
	if c.big != nil {
		maxTokens = 60_000
	}
	r := m.request(p.node, m.token, p.key, c.route, model, p.mark+" "+prompt, c.streamed, c.dialect.name != "chat" ||
		c.content == "calls", maxTokens)
	p.got = readCall(ctx, r)
	return p, planned
}

// play plays a cell and checks it.
func (m *matrix) play(c *cell) {
	m.t.Helper()
	ctx, leave := context.WithCancel(m.t.Context())
	defer leave()
	p, planned := m.begin(ctx, c)
	defer m.stub.drop(p.mark)
	if !c.way.isOfProvider() {
		p.interrupt(planned, leave)
	}
	m.await(c.String()+": the call ends", func() bool {
		return p.got.hasEnded() && p.running() == nil && m.hasNoHolds()
	})
	p.check()
	p.checkLog(m.log.take(), 1)
	if c.way.isOfProvider() && !c.isComplete(p.answer) {
		m.checkOthers(m.bundle, c.String(), c.dialect.model)
	}
}

// hasNoHolds reports whether each call has ended for the ledger.
func (m *matrix) hasNoHolds() bool {
	m.t.Helper()
	return m.count(`SELECT COUNT(*) FROM connections WHERE held_mc <> 0`) == 0
}

// running returns the call while it runs.
func (p *playedCell) running() *runningCall {
	p.node.calls.mu.Lock()
	defer p.node.calls.mu.Unlock()
	return p.node.calls.calls[rules.Key{ConnectionID: p.m.who.ConnectionID, Key: p.key}]
}

// hasRead reports whether the client of a big answer has all that was sent. It parses what is long enough.
func (p *playedCell) hasRead() bool {
	bytes := len(p.answer.said(p.at))
	if p.dialect.name == "chat" { // its chunks are relayed as they are
		bytes = len(strings.Join(p.answer.events[:p.at], ""))
	}
	p.got.mu.Lock()
	read := p.got.raw.Len()
	p.got.mu.Unlock()
	return read >= bytes && p.got.message(p.route).said == p.answer.said(p.at)
}

// await waits for what only the machine delays.
func (m *matrix) await(what string, f func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !f(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("never: %s", what)
		}
	}
}

// relayed returns what the client has of what the provider has sent. Google's API has no part of a tool call, so that
// the last one waits for what follows it.
func (p *playedCell) relayed() string {
	said := p.answer.said(p.at)
	if p.route != "contents" || p.content != "calls" || p.isComplete(p.answer) {
		return said
	}
	for _, name := range []string{"clock", "weather"} {
		if i := strings.Index(said, name); i >= 0 {
			return said[:i]
		}
	}
	return said
}

// interrupt ends a call in one of the ways that are not the provider's, once all that the provider has sent is relayed.
func (p *playedCell) interrupt(planned *play, leave func()) {
	m := p.m
	m.await(p.String()+": it is sent", func() bool {
		select {
		case <-planned.sent:
			return true
		default:
			return p.got.hasEnded()
		}
	})
	var c *runningCall
	m.await(p.String()+": what was sent is relayed", func() bool {
		if c = p.running(); c == nil {
			return p.got.hasEnded() // it was complete
		}
		p.node.orphans.mu.Lock()
		watched := c.cut != nil
		p.node.orphans.mu.Unlock()
		if !p.streamed || !watched {
			return watched
		}
		if p.big != nil {
			return p.hasRead()
		}
		sent, _ := c.frames()
		return parseMessage(p.route, string(sent)).said == p.relayed()
	})
	if c == nil {
		close(planned.goOn)
		return
	}
	switch p.way {
	case stopped:
		if err := p.node.StopCall(m.t.Context(), m.who.ConnectionID, c.requestID); err != nil {
			m.t.Error(err)
		}
	case left, orphaned:
		leave()
		m.await(p.String()+": it is an orphan", func() bool {
			p.node.orphans.mu.Lock()
			defer p.node.orphans.mu.Unlock()
			return c.orphan != nil || c.cut == nil
		})
		if p.way == orphaned {
			p.node.orphans.cutCall(c)
		}
		close(planned.goOn)
	case tooLong:
		p.cut(c, failures.ErrTooLong)
	case restart:
		p.node.orphans.cutAll([]*runningCall{c})
	case crash:
		p.crash(c)
	}
}

func (p *playedCell) cut(c *runningCall, cause error) {
	p.node.orphans.mu.Lock()
	defer p.node.orphans.mu.Unlock()
	if c.cut != nil {
		c.cut(cause)
	}
}

// crash saves a checkpoint and has the sweep end the hold, as that of a call of a node that has died. Then the call
// ends, and changes nothing.
func (p *playedCell) crash(c *runningCall) {
	m := p.m
	if err := p.node.SaveCheckpoints(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	p.node.calls.mu.Lock()
	delete(p.node.calls.calls, c.key)
	p.node.calls.mu.Unlock()
	m.await(p.String()+": the hold is swept", func() bool {
		m.pass(time.Second) // on SQLite, the writer saves a hold by its own clock
		n, err := p.node.EndLostHolds(m.t.Context())
		if err != nil {
			m.t.Error(err)
		}
		return n > 0 || p.got.hasEnded()
	})
	m.issueTokens()
	p.cut(c, errNodeStops)
}

// A charge is the ledger row of a call.
type charge struct {
	settlement string
	charged    int64
	held       int64
	input      int64
	output     int64
}

// charge returns the row of the call; nil = it was not charged.
func (p *playedCell) charge() *charge {
	p.m.t.Helper()
	var r charge
	var usage string
	rows, err := p.m.DB.QueryContext(p.m.t.Context(),
		`SELECT settlement, user_charge_mc, hold_amount_mc, usage FROM ledger WHERE type = 'spend' AND key = $1`, p.key)
	if err != nil {
		p.m.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return nil
	}
	if err := rows.Scan(&r.settlement, &r.charged, &r.held, &usage); err != nil || rows.Next() {
		p.m.t.Fatalf("%s: two rows, or %v", p, err)
	}
	var u struct {
		Input, Cached, Output int64
		Written               int64 `json:"cache_write"`
	}
	if err := json.Unmarshal([]byte(usage), &u); err != nil {
		p.m.t.Fatal(err)
	}
	r.input, r.output = u.Input+u.Cached+u.Written, u.Output
	return &r
}

// check checks the charge, and whether the client was told that the answer is complete.
func (p *playedCell) check() {
	p.m.t.Helper()
	complete, row := p.isComplete(p.answer), p.charge()
	fail := func(format string, args ...any) {
		p.m.t.Helper()
		p.m.failures++
		p.m.t.Errorf("%s: %s\nthe row is %+v, the provider has sent\n%s\nthe client has %d %.2000s\n%v", p,
			fmt.Sprintf(format, args...), row, p.excerpt(), p.got.status, p.got.raw.String(), p.got.err)
	}
	said := ""
	switch {
	case p.isBody(p.answer) || !p.streamed:
		if complete && p.content != "vector" {
			said = p.answer.text()
		}
	default:
		said = p.relayed()
	}
	isTold := p.got.status == http.StatusOK && p.way != left && p.way != orphaned // that it is complete
	if p.streamed && p.way != left && p.way != orphaned {
		m := p.got.message(p.route)
		isTold = isTold && m.finished && !m.failed
		if isTold && !m.done {
			fail("the stream has no last event")
		}
		if !isTold && p.got.status == http.StatusOK && !m.failed {
			fail("the stream has no error")
		}
		if p.got.status == http.StatusOK && m.said != said {
			fail("the client has read %q, and was sent %q", m.said, said)
		}
	}
	if p.way.isOfProvider() && isTold != complete {
		fail("the client is told that it is complete: %t", isTold)
	}
	if isTold && !complete {
		fail("the client is told that it is complete")
	}
	p.checkCharge(row, said, fail)
}

// checkCharge checks the row of a call: it is charged by the provider's usage, or by what the client got.
func (p *playedCell) checkCharge(row *charge, said string, fail func(string, ...any)) {
	p.m.t.Helper()
	usage := p.answer.usage[min(p.at, len(p.answer.usage)-1)]
	complete := p.isComplete(p.answer)
	if p.way == left { // the rest was read
		complete, said, usage = true, p.answer.text(), p.answer.usage[len(p.answer.usage)-1]
	}
	if p.isBody(p.answer) && complete || p.content == "vector" {
		usage = p.usageOfBody()
	}
	believed := usage != nil && p.usage != lieUsage
	switch {
	case complete && (p.way.isOfProvider() || p.way == left):
		switch {
		case row == nil:
			fail("it is not charged")
		case believed && row.settlement != "settled":
			fail("it is not charged by the provider's usage")
		case believed && (row.input != usage.Input+usage.Cached+usage.CacheWrite || row.output != usage.Output):
			fail("it is not charged by the usage %+v", *usage)
		case !believed && row.settlement != "estimated":
			fail("it is charged by a usage that cannot be true, or never came")
		}
	case row == nil:
		if said != "" && p.streamed {
			fail("what was delivered is not charged")
		}
	case row.settlement == "settled" && !complete:
		fail("it is charged by a usage that is not that of a response")
	case row.settlement == "settled" && !believed:
		fail("it is charged by a usage that cannot be true, or never came")
	}
	if row == nil {
		return
	}
	if row.charged > row.held && p.content != "vector" { // its hold is for its input alone
		fail("it is charged above its hold")
	}
	if reported := believed && (p.dialect.name == "anthropic" || p.dialect.name == "google"); reported &&
		row.settlement == "estimated" && p.way != crash && row.input > trueUsage.Input+trueUsage.Cached {
		fail("it is charged for more input than the provider has reported")
	}
	want := tokensOf(said)
	if row.settlement == "estimated" && !p.isAbout(row.output, want) {
		fail("it is charged for %d tokens, and the client has %d", row.output, want)
	}
}

// usageOfBody returns the usage in a whole body.
func (p *playedCell) usageOfBody() *provider.Usage {
	if p.usage == noUsage {
		return nil
	}
	u := trueUsage
	if p.content == "vector" {
		u = provider.Usage{Input: vectorInput}
	}
	return &u
}

// tokensOf counts a text as a node does.
func tokensOf(text string) int64 {
	var c tokens.Counter
	c.Add(text)
	return c.Count()
}

// excerpt is what the provider has sent.
func (p *playedCell) excerpt() string {
	text := p.answer.body
	if !p.isBody(p.answer) {
		text = strings.Join(p.answer.events[:p.at], "")
	}
	return text[max(0, len(text)-3000):]
}

// maxLoggedBytes is the most that a node may log of a call.
const maxLoggedBytes = 5000

// checkLog checks that a log has no secret of the call, and is short.
func (p *playedCell) checkLog(text string, calls int) {
	p.m.t.Helper()
	if len(text) > maxLoggedBytes*calls {
		p.m.t.Errorf("%s: %d bytes of log\n%.3000s", p, len(text), text)
	}
	if secret := findSecret(text, p.secrets); secret != "" {
		p.m.t.Errorf("%s: the log has %s\n%.3000s", p, secret, text)
	}
	lied := p.usage == lieUsage && p.isComplete(p.answer) && p.way.isOfProvider() && p.charge() != nil
	lied = lied && (p.isBody(p.answer) || p.answer.usage[p.at] != nil) // it has come
	if lied && !strings.Contains(text, `"msg":"implausible usage"`) {
		p.m.t.Errorf("%s: no alarm in\n%s", p, text)
	}
}

// checkOthers checks that two calls of another user of the app succeed, one by each key.
func (m *matrix) checkOthers(node *bundle, after, model string) {
	m.t.Helper()
	m.stub.takeKeys()
	for n := range 2 {
		r := m.request(node, m.other, id.NewUUID(), "ai", model, "Hello", n == 0, false, 400)
		got := readCall(m.t.Context(), r)
		<-got.ended
		if got.status != http.StatusOK || strings.Contains(got.raw.String(), `"error"`) {
			m.t.Errorf("after %s: another user got %d %s", after, got.status, got.raw.String())
		}
	}
	if keys := m.stub.takeKeys(); len(keys) != 2 || keys[0] == keys[1] {
		m.t.Errorf("after %s: other calls go by the keys %q", after, keys)
	}
	m.log.take()
}

// playSilent plays cells whose provider falls silent, at the same time.
func (m *matrix) playSilent(cells []cell) {
	m.t.Helper()
	if len(cells) == 0 {
		return
	}
	var played []*playedCell
	for i := range cells {
		p, _ := m.begin(m.t.Context(), &cells[i])
		played = append(played, p)
	}
	m.await("the silent calls end", func() bool {
		return len(m.hasty.calls.listCalls()) == 0 && !slices.ContainsFunc(played, func(p *playedCell) bool {
			return !p.got.hasEnded()
		})
	})
	log := m.log.take()
	for _, p := range played {
		p.check()
		p.checkLog(log, len(played)+1)
	}
}

// TestProviders plays answers of providers that end at each place and in each way, on each route. Each is charged by
// the provider's usage, or by what the client got; the client is told that an answer is complete exactly if the
// provider said so; no text of users, answers or keys is logged; and other users notice nothing of a call that failed.
//
// Usually a sample is played that has each pair of a dialect, an answer, a usage, a route, a place and a way.
func TestProviders(t *testing.T) {
	t.Parallel()
	cells := listCells()
	all := len(cells)
	seed := *matrixSeed
	engines := []db.Engine{db.SQLite}
	switch {
	case *matrixCell != "":
		cells = slices.DeleteFunc(cells, func(c cell) bool { return c.String() != *matrixCell })
	case *wholeMatrix:
	case testkit.IsLong():
		seed, engines = rand.Uint64(), append(engines, db.Postgres)
		cells = chooseCells(cells, seed, 1000)
	default:
		cells = chooseCells(cells, seed, 200)
	}
	t.Logf("%d of %d cells, seed %d", len(cells), all, seed)
	for _, e := range engines {
		for _, d := range dialects {
			t.Run(string(e)+"/"+d.name, func(t *testing.T) {
				t.Parallel()
				m := newMatrix(t, e)
				var silents []cell
				for i := range cells {
					if cells[i].dialect == d && cells[i].way == silent {
						silents = append(silents, cells[i])
					}
				}
				for some := range slices.Chunk(silents, 200) {
					m.playSilent(some)
				}
				for i := range cells {
					if c := &cells[i]; c.dialect == d && c.way != silent && m.failures < maxFailures {
						m.play(c)
					}
				}
				m.audit()
			})
		}
	}
}
