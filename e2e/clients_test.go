package e2e

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/exchange"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A job is what a client does once. The Node clients read it as JSON (clients/jobs.mjs).
type job struct {
	API       string `json:"api"`
	BaseURL   string `json:"baseURL"`
	APIKey    string `json:"apiKey"`
	Bearer    bool   `json:"bearer"` // send the key as a bearer token where the SDK has another way
	Model     string `json:"model"`
	Stream    bool   `json:"stream"`
	Text      string `json:"text"`
	Image     string `json:"image"`     // data URL
	Tools     bool   `json:"tools"`     // offer weather and time
	Schema    bool   `json:"schema"`    // ask for an object with city and degrees
	MaxTokens int64  `json:"maxTokens"` // of output
	Rounds    int    `json:"rounds"`    // at most so many calls, each with the results of the tools before
	Once      bool   `json:"once"`      // do not try again what failed; otherwise the client does as it is wont to
}

// An outcome is the result of a job, as the client understood it.
type outcome struct {
	Text    string         `json:"text"`
	Finish  string         `json:"finish"` // stop, length, calls or refusal
	Calls   []toolCall     `json:"calls"`
	Rounds  int            `json:"rounds"`
	Object  map[string]any `json:"object"`
	Input   int64          `json:"input"` // tokens of all rounds
	Output  int64          `json:"output"`
	Charged []int64        `json:"charged"` // micro-cents, of each round, where the client shows the bill
	Error   *clientError   `json:"error"`
}

type toolCall struct {
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

// A clientError is what a program sees of a failed call.
type clientError struct {
	Kind    string `json:"kind"`
	Status  int    `json:"status"` // 0 within a stream
	Code    string `json:"code"`
	Message string `json:"message"`
}

// A clientCase is one row of the matrix of clients: what is asked, and what must come.
type clientCase struct {
	name  string
	set   func(*job)
	wants func(job, outcome) bool
	free  bool // ends in an error and is not billed
	cut   bool // billed as an estimate when streamed; not billed when not
}

// clientCases returns the cases that every client must pass.
func clientCases(picture string) []clientCase {
	answered := func(_ job, o outcome) bool {
		return o.Error == nil && o.Finish == "stop" && strings.Contains(o.Text, "canned answer") && len(o.Calls) == 0
	}
	called := func(want ...toolCall) func(job, outcome) bool {
		return func(_ job, o outcome) bool {
			return o.Error == nil && o.Finish == "calls" && reflect.DeepEqual(o.Calls, want)
		}
	}
	rome, oslo := map[string]any{"city": "Rome"}, map[string]any{"city": "Oslo \"é😀\""}
	return []clientCase{
		{name: "text", set: func(j *job) { j.Text = "Hello, who are you?" }, wants: answered},
		{
			name: "tools",
			set: func(j *job) {
				j.Text, j.Tools = "!call weather {\"city\":\"Rome\"}\n!call weather {\"city\":\"Oslo \\\"é😀\\\"\"}",
					true
			},
			wants: called(toolCall{"weather", rome}, toolCall{"weather", oslo}),
		},
		{
			name: "tool round trip",
			set: func(j *job) {
				j.Text, j.Tools, j.Rounds = "!emu thinking\n!call weather {\"city\":\"Rome\"}\n!call time {}\n!step\n"+
					"!call weather {\"city\":\"Rome\"}", true, 4
			},
			wants: func(_ job, o outcome) bool {
				return o.Error == nil && o.Rounds == 3 && o.Finish == "stop" && len(o.Calls) == 3 &&
					o.Calls[1].Name == "time" && strings.Contains(o.Text, "The tools say") &&
					strings.Contains(o.Text, toolResult)
			},
		},
		{name: "image", set: func(j *job) { j.Text, j.Image = "What is this?", picture }, wants: answered},
		{
			name: "structured",
			set:  func(j *job) { j.Text, j.Schema = "What will the weather be?", true },
			wants: func(_ job, o outcome) bool {
				return o.Error == nil && reflect.DeepEqual(o.Object, map[string]any{"city": "a city", "degrees": 7.0})
			},
		},
		{
			name:  "refusal",
			set:   func(j *job) { j.Text = "!emu refusal\nSay it." },
			wants: func(_ job, o outcome) bool { return o.Error == nil && o.Finish == "refusal" },
		},
		{
			name:  "length",
			set:   func(j *job) { j.Text, j.MaxTokens = "!emu words=500\nSpeak.", 60 },
			wants: func(_ job, o outcome) bool { return o.Error == nil && o.Finish == "length" && o.Text != "" },
		},
		{
			name: "error before",
			set:  func(j *job) { j.Text, j.Once = "!emu status=500\nHello.", true },
			wants: func(_ job, o outcome) bool {
				return o.Error != nil && o.Error.Status == http.StatusBadGateway && o.Error.Message != ""
			},
			free: true,
		},
		{
			name: "error during",
			set:  func(j *job) { j.Text, j.Once = "!emu error=30 words=400\nSpeak.", true },
			wants: func(j job, o outcome) bool {
				return o.Error != nil && o.Error.Message != "" && j.Stream == (o.Text != "")
			},
			cut: true,
		},
	}
}

// A clientAPI is one API that a client program speaks.
type clientAPI struct {
	api, base string            // base is the path of the base URL
	bearer    bool              // sends the key as a bearer token
	cannot    map[string]string // the cases that this client cannot express, and why
	uncounted string            // why it sees of a stream how many tokens we counted, "" = it sees how many were read
	lists     bool              // it has the operation models
	counts    bool              // it has the operation count, for the tokens of a message
}

// A clientProgram is a client with its APIs.
type clientProgram struct {
	name    string
	run     func(*testing.T) func(job) outcome
	apis    []clientAPI
	library bool // it is no official SDK, and left to the long run
}

// clientPrograms are the official SDKs, and the two libraries that most apps are built with.
func clientPrograms() []clientProgram {
	return []clientProgram{
		{name: "openai.mjs", run: runNode("openai.mjs"), apis: []clientAPI{
			{api: "chat", base: "/v1"},
			{api: "chat", base: "/openai/v1", lists: true},
			{api: "responses", base: "/openai/v1"},
		}},
		{name: "anthropic.mjs", run: runNode("anthropic.mjs"), apis: []clientAPI{
			{api: "messages", base: "/anthropic", lists: true, counts: true},
			{api: "messages", base: "/anthropic", bearer: true},
		}},
		{name: "vercel.mjs", run: runNode("vercel.mjs"), library: true, apis: []clientAPI{
			{api: "compatible", base: "/v1"},
			{api: "chat", base: "/openai/v1"},
			{api: "responses", base: "/openai/v1"},
			{api: "messages", base: "/anthropic/v1"},
		}},
		{name: "langchain.mjs", run: runNode("langchain.mjs"), library: true, apis: []clientAPI{
			{
				api:    "chat",
				base:   "/openai/v1",
				cannot: map[string]string{"refusal": "it drops the member refusal of a message"},
			},
			{api: "responses", base: "/openai/v1"},
			{
				api:       "messages",
				base:      "/anthropic",
				uncounted: "it reads them in the first event, before Purser knows them",
				cannot: map[string]string{
					"structured": "of a stream it parses the text, and finds none beside a tool call",
				},
			},
		}},
		{name: "openai-go", run: runOpenAIGo, apis: []clientAPI{
			{api: "chat", base: "/openai/v1", lists: true},
			{api: "responses", base: "/openai/v1"},
		}},
		{name: "anthropic-go", run: runAnthropicGo, apis: []clientAPI{
			{api: "messages", base: "/anthropic", lists: true, counts: true},
		}},
	}
}

// runNode starts a program of the folder clients, and returns a function that gives it one job at a time.
func runNode(program string) func(*testing.T) func(job) outcome {
	return func(t *testing.T) func(job) outcome {
		t.Helper()
		installNode(t, "clients")
		ctx, cancel := context.WithCancel(t.Context())
		node := exec.CommandContext(ctx, supportedNode(t), program)
		node.Dir, node.Stderr = "clients", os.Stderr
		in, err := node.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := node.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := node.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cancel()
			_ = node.Wait() // it was killed
		})
		lines := bufio.NewReader(out)
		return func(j job) (o outcome) {
			t.Helper()
			err := json.NewEncoder(in).Encode(j)
			if err != nil {
				t.Fatalf("%s: %v", program, err)
			}
			line, err := lines.ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(line, &o)
			}
			if err != nil {
				t.Fatalf("%s: %v in %s", program, err, line)
			}
			return o
		}
	}
}

// TestClients runs the cases by every client at models of all three providers, whole and streamed, and recomputes each
// ledger row from what the emulated provider reported. In the long run it is the whole matrix; in the short run each
// official SDK sees each case once, at a model and in a form that rotate.
func TestClients(t *testing.T) {
	t.Parallel()
	picture := "data:image/png;base64," + base64.StdEncoding.EncodeToString(dot(t))
	forms := []struct {
		provider string
		stream   bool
	}{
		{"openai", true},
		{"anthropic", false},
		{"google", true},
		{"openai", false},
		{"anthropic", true},
		{"google", false},
	}
	eachEmulated(t, func(t *testing.T, w *emulatedNode) {
		offset := 0
		for _, program := range clientPrograms() {
			start := offset
			offset += len(program.apis)
			if program.library && !testkit.IsLong() {
				continue
			}
			t.Run(program.name, func(t *testing.T) { // one at a time: what the providers were asked is the client's
				run := program.run(t)
				for i, api := range program.apis {
					w.tryUnbilled(t, run, api)
					for k, c := range clientCases(picture) {
						if why := api.cannot[c.name]; why != "" {
							t.Logf("%s, %s: cannot be expressed: %s", api.api, c.name, why)
							continue
						}
						ran := forms
						if !testkit.IsLong() {
							n := (start + i + k) % len(forms)
							ran = forms[n : n+1]
						}
						for _, form := range ran {
							w.try(t, run, api, c, form.provider, form.stream)
						}
					}
				}
			})
		}
	})
}

// An emulatedNode is a node whose providers are emulated in this process.
type emulatedNode struct {
	*servertest.Process
	providers string                       // the emulator's URL
	prices    map[string]map[string]string // of each model, by name
	cases     int                          // tried so far
}

// eachEmulated runs f against a node with emulated providers, on SQLite, and in the long run on each engine.
func eachEmulated(t *testing.T, f func(*testing.T, *emulatedNode)) {
	t.Helper()
	engines := []db.Engine{db.SQLite, db.Postgres}
	if !testkit.IsLong() {
		engines = engines[:1]
	}
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			w := startEmulated(t, e)
			f(t, w)
			w.Verify()
		})
	}
}

// startEmulated starts a node whose providers are emulated in this process.
func startEmulated(t *testing.T, e db.Engine) *emulatedNode {
	t.Helper()
	emulated := emulator.New(emulator.Options{})
	s := httptest.NewServer(emulated)
	t.Cleanup(func() { emulated.Close(); s.Close() })
	flags := []string{"--providers=live", "PURSER_SANDBOX_DAY=1000"}
	for name, path := range map[string]string{"OPENAI": "/v1", "ANTHROPIC": "", "GOOGLE": ""} {
		flags = append(flags, "PURSER_PROVIDERS_"+name+"_BASE_URL="+s.URL+path,
			"PURSER_PROVIDERS_"+name+"_KEY=sk-emulated")
	}
	p := servertest.Start(t, servertest.URL(t, e), flags...)
	return &emulatedNode{Process: p, providers: s.URL, prices: offered(t, p)}
}

// tryUnbilled lists the models, asks for one of each provider, and counts a message, as far as the client does it.
func (w *emulatedNode) tryUnbilled(t *testing.T, run func(job) outcome, api clientAPI) {
	t.Helper()
	var offered []struct {
		Capabilities struct{ Realtime, Embeddings bool }
	}
	send(t, w.Process, "GET", "/v1/models", "", "", &offered)
	before, count := len(spends(t, w.Process, w.Connection.ID)), 0
	for _, m := range offered { // Anthropic's list is of the models that answer messages
		if c := m.Capabilities; api.api != "messages" || !c.Realtime && !c.Embeddings {
			count++
		}
	}
	for _, model := range models {
		j := job{
			BaseURL:   w.BaseURL + api.base,
			APIKey:    w.Connection.AccessToken,
			Model:     model,
			Text:      "Count the words of this message, please.",
			MaxTokens: 100,
		}
		if api.lists {
			j.API = "models"
			want := map[string]any{"count": float64(count), "listed": true, "id": model, "kind": "model"}
			if o := run(j); o.Error != nil || !reflect.DeepEqual(o.Object, want) {
				t.Errorf("%s lists %s, want %v", api.base, describe(o), want)
			}
		}
		if api.counts {
			j.API = "count"
			var estimate struct {
				InputTokens float64 `json:"input_tokens"`
			}
			send(t, w.Process, "POST", "/v1/estimate", fmt.Sprintf(`{"model":%q,"max_tokens":100,"messages":`+
				`[{"role":"user","content":%q}]}`, model, j.Text), "Bearer "+j.APIKey, &estimate)
			if o := run(j); o.Error != nil || estimate.InputTokens == 0 ||
				o.Object["counted"] != estimate.InputTokens {
				t.Errorf("%s counts %s, the estimate %v", api.base, describe(o), estimate.InputTokens)
			}
		}
	}
	if rows := spends(t, w.Process, w.Connection.ID); len(rows) != before {
		t.Errorf("%s: billed %+v", api.base, rows)
	}
}

// try runs one case by one client, and compares what it understood, what the provider reported, and the ledger.
func (w *emulatedNode) try(t *testing.T, run func(job) outcome, api clientAPI, c clientCase, provider string,
	stream bool) {
	t.Helper()
	w.cases++
	where := fmt.Sprintf("%s%s, %s, %s, stream %v", api.api, api.base, provider, c.name, stream)
	j := job{
		API:       api.api,
		BaseURL:   w.BaseURL + api.base,
		APIKey:    w.Connection.AccessToken,
		Bearer:    api.bearer,
		Model:     models[provider],
		Stream:    stream,
		MaxTokens: 2000,
		Rounds:    1,
	}
	c.set(&j)
	j.Text = fmt.Sprintf("Case %d.\n%s", w.cases, j.Text) // no two requests are the same
	w.forgetExchanges(t)
	before := len(spends(t, w.Process, w.Connection.ID))
	o := run(j)
	settled(t, w.Process, w.Connection.AccessToken)
	if !c.wants(j, o) {
		t.Errorf("%s: %s", where, describe(o))
	}
	rows := spends(t, w.Process, w.Connection.ID)
	rows = rows[:len(rows)-before]
	switch {
	case c.free || c.cut && !stream:
		if len(rows) != 0 {
			t.Errorf("%s: billed %+v", where, rows)
		}
	case c.cut:
		if len(rows) != 1 || rows[0].Settlement != rules.Estimated || rows[0].UserChargeMC <= 0 ||
			rows[0].UserChargeMC > rows[0].HoldMC {
			t.Errorf("%s: rows %+v", where, rows)
		}
	default:
		w.checkRows(t, where, j, o, rows, stream && api.uncounted != "")
	}
}

// checkRows holds the rows of a case, newest first, against the provider's record and what the client was told.
func (w *emulatedNode) checkRows(t *testing.T, where string, j job, o outcome, rows []rules.Entry,
	uncounted bool) {
	t.Helper()
	used := w.listUsage(t)
	if len(rows) != len(used) || len(rows) == 0 {
		t.Errorf("%s: %d rows of %d answers", where, len(rows), len(used))
		return
	}
	var input, output int64
	for i, u := range used {
		row := rows[len(rows)-1-i]
		checkCharge(t, where, w.prices[j.Model], countClasses(u), row)
		if row.Model != j.Model || row.UserChargeMC > row.HoldMC {
			t.Errorf("%s: row %+v", where, row)
		}
		if len(o.Charged) > i && o.Charged[i] != int64(row.UserChargeMC) {
			t.Errorf("%s: the client is told %d, the ledger has %d", where, o.Charged[i], row.UserChargeMC)
		}
		input, output = input+int64(u.Input), output+int64(u.Output)
	}
	if uncounted && o.Input > 0 {
		input = o.Input
	}
	if o.Input != input || o.Output != output {
		t.Errorf("%s: the client counts %d and %d tokens, the provider %d and %d", where, o.Input, o.Output, input,
			output)
	}
}

// countClasses returns the tokens that an emulated provider reported, by the names of their listed prices.
func countClasses(u exchange.Usage) map[string]int64 {
	return map[string]int64{
		"input_cost_per_1k_usd":        int64(u.Input - u.Cached - u.Written),
		"cached_input_cost_per_1k_usd": int64(u.Cached),
		"cache_write_cost_per_1k_usd":  int64(u.Written),
		"output_cost_per_1k_usd":       int64(u.Output),
	}
}

// describe is what a failed case shows.
func describe(o outcome) string {
	if len(o.Text) > 300 {
		o.Text = o.Text[:300]
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// listUsage returns what the emulated providers reported since forgetExchanges, oldest first.
func (w *emulatedNode) listUsage(t *testing.T) (used []exchange.Usage) {
	t.Helper()
	for _, x := range w.listExchanges(t) {
		if x.Status == http.StatusOK && x.Usage != nil {
			used = append(used, *x.Usage)
		}
	}
	return used
}

// listExchanges returns what the emulated providers were asked since forgetExchanges.
func (w *emulatedNode) listExchanges(t *testing.T) []exchange.Record {
	t.Helper()
	resp, err := http.Get(w.providers + "/emulator/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return read[struct{ Data []exchange.Record }](t, string(text)).Data
}

func (w *emulatedNode) forgetExchanges(t *testing.T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.providers+"/emulator/requests", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // it has none
}
