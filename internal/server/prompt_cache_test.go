package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/models/provider"
)

// agentTurns is how many calls an agent makes in one session.
const agentTurns = 45

// agentSession is the history of a coding agent: its system prompt, one task, then a call of a tool and a file for each
// turn. It is the same each time.
func agentSession() (system string, tools json.RawMessage, task string, file func(turn int) string) {
	system = strings.Repeat("You work on a program. Read before you write, and test what you have written.\n", 120)
	var list []map[string]any
	for _, name := range []string{"read_file", "write_file", "list_files", "search", "run"} {
		list = append(list, map[string]any{"type": "function", "function": map[string]any{
			"name":        name,
			"description": strings.Repeat("Acts on files of the work tree, below its root. ", 10),
			"parameters": json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},` +
				`"required":["path"]}`),
		}})
	}
	tools, err := json.Marshal(list)
	if err != nil {
		panic(err) // cannot happen
	}
	var b strings.Builder
	for turn := range agentTurns - 1 {
		if turn > 0 {
			b.WriteString("!step\n")
		}
		fmt.Fprintf(&b, "!call read_file {\"path\":\"part_%d.go\"}\n", turn)
	}
	return system, tools, b.String() + "Find the mistake.", func(turn int) string {
		return strings.Repeat(fmt.Sprintf("func part%d(n int) int { return n + %d }\n", turn, turn), 30)
	}
}

// sessionCost is what the calls of a session cost.
type sessionCost struct {
	charged  int64 // by the ledger, in micro-cents
	uncached int64 // by the prices of the model, if nothing had been cached
	cached   int64 // tokens that the provider's cache had
	saved    int64 // by the answers, in micro-cents
	calls    int
}

// runAgent runs a session at a model. members are added to each request.
func (n *node) runAgent(model, members string) (cost sessionCost) {
	n.t.Helper()
	prices, err := catalog.LoadBuiltin()
	if err != nil {
		n.t.Fatal(err)
	}
	_, rates, ok := prices.Find(model, time.Now())
	if !ok {
		n.t.Fatalf("%s has no price", model)
	}
	system, tools, task, file := agentSession()
	messages := []any{
		map[string]any{"role": "system", "content": system}, map[string]any{"role": "user", "content": task},
	}
	for turn := range agentTurns {
		history, err := json.Marshal(messages)
		if err != nil {
			n.t.Fatal(err)
		}
		key := id.NewUUID()
		body := fmt.Sprintf(`{"max_tokens":1000,"messages":%s,"tools":%s%s}`, history, tools, members)
		status, text := n.post("/v1/ai/"+model, key, body)
		for try := 0; status == http.StatusServiceUnavailable && try < 20; try++ { // the machine is busy
			status, text = n.post("/v1/ai/"+model, key, body)
		}
		var v struct {
			Choices []struct {
				Message json.RawMessage `json:"message"`
			} `json:"choices"`
			Usage json.RawMessage `json:"usage"`
			SVC   struct {
				Charge int64 `json:"user_charge_mc"`
				Hold   int64 `json:"hold_amount_mc"`
				Saved  int64 `json:"cache_saved_mc"`
			} `json:"svc"`
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil || status != http.StatusOK || len(v.Choices) != 1 {
			n.t.Fatalf("turn %d of %s: %d %v %s", turn, model, status, err, text)
		}
		if v.SVC.Charge > v.SVC.Hold {
			n.t.Errorf("turn %d of %s: charged %d, held %d", turn, model, v.SVC.Charge, v.SVC.Hold)
		}
		u := provider.ParseUsage(v.Usage)
		if u == nil {
			n.t.Fatalf("turn %d of %s: usage %s", turn, model, v.Usage)
		}
		plain := provider.Usage{Input: u.Input + u.Cached + u.CacheWrite, Output: u.Output}
		a, err := pricing.Charge(rates, plain, money.One/5, n.Config.Policy.Fee)
		if err != nil {
			n.t.Fatal(err)
		}
		if want := int64(a.UserChargeMC) - v.SVC.Charge; v.SVC.Saved != want {
			n.t.Errorf("turn %d of %s: the cache saved %d, want %d", turn, model, v.SVC.Saved, want)
		}
		cost.charged += v.SVC.Charge
		cost.cached += u.Cached
		cost.saved += v.SVC.Saved
		cost.uncached += int64(a.UserChargeMC)
		cost.calls++

		var m struct {
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		}
		err = json.Unmarshal(v.Choices[0].Message, &m)
		if goesOn := len(m.ToolCalls) == 1; err != nil || goesOn != (turn < agentTurns-1) {
			n.t.Fatalf("turn %d of %s: %v %s", turn, model, err, v.Choices[0].Message)
		}
		messages = append(messages, v.Choices[0].Message)
		for _, c := range m.ToolCalls {
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": file(turn)})
		}
	}
	return cost
}

// checkCacheTotals compares the day's totals of a model with a session, its only calls so far.
func (n *node) checkCacheTotals(model string, want sessionCost) {
	n.t.Helper()
	var cached, saved int64
	err := n.DB.QueryRowContext(n.t.Context(), `SELECT COALESCE(SUM(cached_tokens), 0), COALESCE(SUM(cache_saved_mc), 0)
		FROM daily_totals WHERE model = $1`, model).Scan(&cached, &saved)
	if err != nil || cached != want.cached || saved != want.saved || saved == 0 {
		n.t.Errorf("%s: the totals have %d cached tokens and %d saved, want %d and %d; %v", model, cached, saved,
			want.cached, want.saved, err)
	}
}

// post makes one call and returns its answer.
func (n *node) post(path, key, body string) (int, string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), "POST", n.base+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization":   {"Bearer " + n.seeded.Connection.AccessToken},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {key},
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestAgentSessionIsCached runs an agent's session of 45 calls with the cache rules of each provider: it costs at most
// 0.35 of what it costs without a cache, and no call costs more than its hold.
func TestAgentSessionIsCached(t *testing.T) {
	t.Parallel()
	n, _ := emulating(t, db.SQLite, time.Minute, time.Minute, emulator.New(emulator.Options{}))
	defer n.stop()
	for _, model := range []string{"claude-sonnet-5-5", "claude-haiku-5-5", "gpt-6.2-sol", "gemini-3.8-flash"} {
		cached := n.runAgent(model, "")
		t.Logf("%s: %d calls cost %d µ¢ with the cache, %d without: %.3f", model, cached.calls, cached.charged,
			cached.uncached, float64(cached.charged)/float64(cached.uncached))
		n.checkCacheTotals(model, cached)
		if cached.charged*100 > cached.uncached*35 {
			t.Errorf("%s: %d of %d is more than 0.35", model, cached.charged, cached.uncached)
		}
		if !strings.HasPrefix(model, "claude") {
			continue
		}
		plain := n.runAgent(model, `,"cache":false`)
		if plain.charged != plain.uncached || plain.charged != cached.uncached {
			t.Errorf("%s: without marks %d was charged, want %d", model, plain.charged, cached.uncached)
		}
	}
}
