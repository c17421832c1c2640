package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// An answerFault is what becomes of one answer of a provider.
type answerFault string

const (
	refused answerFault = "refused" // by a status, or with a text that is no JSON; nothing is done
	silent  answerFault = "silent"  // nothing is done, and no answer comes
	late    answerFault = "late"    // it comes with a pause in its middle
	cut     answerFault = "cut"     // it ends in its middle
	lost    answerFault = "lost"    // nothing of it comes
)

var answerFaults = []answerFault{refused, refused, refused, cut, cut, cut, lost, lost, late, silent}

// refusals are statuses of providers. The last is an answer that is no JSON.
var refusals = []int{400, 401, 429, 500, 503, 529, 200}

// providers stand before the emulated ones, and keep a book of what they were asked and what they used.
type providers struct {
	emulator http.Handler
	clock    *wallClock
	waits    func(context.Context, time.Duration)

	mu     sync.Mutex
	faults map[string][]answerFault // of the next requests that have a text
	number int                      // chooses how they happen
	book   []*asked
}

// An asked is a request that has reached a provider.
type asked struct {
	name       string // by which the provider knows the call
	at         time.Time
	fault      answerFault
	used       *usage // what the answer reports; nil = nothing was done
	isStream   bool
	isWhole    bool // the product has all of the answer
	mayBeWhole bool // it has the usage of a stream, which comes with its end or before
	isDoubtful bool // a fault of the product's own machine may have kept it from billing the answer
}

// A usage counts tokens: of the input with what was cached, and of the output with reasoning.
type usage struct{ Input, Output int64 }

// arm lets faults happen to the next requests that have a text.
func (p *providers) arm(text string, number int, faults []answerFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.number = map[string][]answerFault{text: faults}, number
}

// note writes a request down, with its fault.
func (p *providers) note(name string, body []byte) (a *asked, number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a = &asked{name: name, at: p.clock.steady()}
	for text, list := range p.faults {
		if bytes.Contains(body, []byte(text)) && len(list) > 0 {
			a.fault, p.faults[text] = list[0], list[1:]
		}
	}
	p.book = append(p.book, a)
	return a, p.number
}

// list returns the book from the n-th request on.
func (p *providers) list(n int) []*asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*asked{}, p.book[n:]...)
}

// longestCall is longer than a call takes.
const longestCall = 12 * time.Minute

// doubt notes that the answers of calls that may have run since may not be billed.
func (p *providers) doubt(since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.book {
		a.isDoubtful = a.isDoubtful || a.at.After(since.Add(-longestCall))
	}
}

func (p *providers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Header.Get("X-Client-Request-Id")
	if name == "" { // no call that is billed by its answer
		p.emulator.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a, number := p.note(name, body)
	switch a.fault {
	case refused:
		refuse(w, refusals[number%len(refusals)], number, body)
		return
	case silent:
		p.waits(r.Context(), longestCall) // for longer than who asked
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	p.emulator.ServeHTTP(answer, r)
	text := answer.Body.Bytes()
	if answer.Code == http.StatusOK {
		used := usageOf(text)
		p.mu.Lock()
		a.used, a.isStream = &used, !strings.HasPrefix(answer.Header().Get("Content-Type"), "application/json")
		p.mu.Unlock()
	}
	maps.Copy(w.Header(), answer.Header())
	at := number % max(1, len(text)) // where it breaks off, or pauses
	switch a.fault {
	case lost:
		panic(http.ErrAbortHandler)
	case cut:
		p.mu.Lock()
		a.mayBeWhole = a.isStream && usageOf(text[:at]) == *a.used
		p.mu.Unlock()
		w.WriteHeader(answer.Code)
		_ = send(w, text[:at]) // whether it comes does not matter
		panic(http.ErrAbortHandler)
	case late:
		w.WriteHeader(answer.Code)
		if send(w, text[:at]) != nil {
			return
		}
		p.waits(r.Context(), time.Duration(1+number%200)*time.Second)
		text = text[at:]
	default:
		w.WriteHeader(answer.Code)
	}
	if send(w, text) == nil {
		p.mu.Lock()
		a.isWhole = answer.Code == http.StatusOK
		p.mu.Unlock()
	}
}

// send sends a text, and returns when who asked has it.
func send(w http.ResponseWriter, text []byte) error {
	for part := range bytes.SplitAfterSeq(text, []byte("\n\n")) {
		if _, err := w.Write(part); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
	return nil
}

// refuse refuses a request, and repeats what was said in it, as providers may.
func refuse(w http.ResponseWriter, status, number int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", []string{"1", "70"}[number/7%2])
	}
	w.WriteHeader(status)
	text := `{"type":"error","error":{"type":"api_error","status":"UNAVAILABLE","message":"a fault of the world"}}`
	if bytes.Contains(body, []byte(canaryPrompt)) {
		text = strings.Replace(text, "of the world", "of the world: '"+canaryPrompt+"'", 1)
	}
	if status == http.StatusOK {
		text = "<html>it works</html>"
	}
	_, _ = io.WriteString(w, text) // who asked may have left
}

// usageOf reads what an answer reports, in any dialect: of several reports the largest counts.
func usageOf(text []byte) (u usage) {
	for line := range strings.Lines(string(text)) {
		var v any
		if json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "data: ")), &v) == nil {
			u.add(v)
		}
	}
	var v any
	if json.Unmarshal(text, &v) == nil { // one that has several lines
		u.add(v)
	}
	return u
}

func (u *usage) add(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			u.add(e)
		}
	case map[string]any:
		sum := func(names ...string) (n int64) {
			for _, name := range names {
				f, _ := v[name].(float64)
				n += int64(f)
			}
			return n
		}
		u.Input = max(u.Input, sum("prompt_tokens"), sum("promptTokenCount", "toolUsePromptTokenCount"),
			sum("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
		u.Output = max(u.Output, sum("completion_tokens"), sum("output_tokens"),
			sum("candidatesTokenCount", "thoughtsTokenCount"))
		for _, e := range v {
			u.add(e)
		}
	}
}

// An asker is the actor of apps whose providers have faults: it repeats what it has no answer for, by the same key.
type asker struct {
	*world
	asked int
	open  *openCall // has no answer yet; nil = there is none
}

// An openCall is one that an app repeats until it has an answer.
type openCall struct {
	path, body, end, key, token string
	from                        int // of the providers' book, when it began
}

// routes are what it asks, and how an answer that is complete ends.
var routes = []struct{ path, body, end string }{
	{"/v1/chat/completions", `{"model":%q,"max_tokens":200,"messages":[{"role":"user","content":%q}]}`, ""},
	{"/v1/chat/completions", `{"model":%q,"max_tokens":200,"stream":true,"stream_options":{"include_usage":true},` +
		`"messages":[{"role":"user","content":%q}]}`, "data: [DONE]\n\n"},
	{"/anthropic/v1/messages", `{"model":%q,"max_tokens":200,"messages":[{"role":"user","content":%q}]}`, ""},
	{"/anthropic/v1/messages", `{"model":%q,"max_tokens":200,"stream":true,"messages":[{"role":"user","content":%q}]}`,
		`"type":"message_stop"}` + "\n\n"},
	{"/openai/v1/responses", `{"model":%q,"max_output_tokens":200,"input":%q}`, ""},
}

var askedModels = []string{"gpt-6-luna", "claude-haiku-4-5", "gemini-2.5-flash-lite", "gpt-4o-mini", "claude-sonnet-5"}

// connect lets somebody who can pay for a call connect, after a gift of the operator's if nobody can.
func (k *asker) connect(s bank.Step) error {
	person, err := k.api.rich(1)
	if err != nil {
		return err
	}
	b, err := store.GetBalance(context.Background(), k.Server.DB, k.money.People[person])
	if err == nil && b.AvailableMC < 2*money.Dollar {
		err = k.money.Play(bank.Step{Do: "goodwill", A: 2 * s.A, B: 999})
	} else if err == nil && k.since(k.api.connected) < 10*time.Minute {
		return nil
	}
	if err != nil {
		return err
	}
	return k.api.connect(bank.Step{A: 1, B: s.B, C: s.C})
}

// ask sends a call, of which up to three answers of the provider have faults. Who gets no answer asks again, now or in
// the next step of this kind: the process may have ended.
func (k *asker) ask(s bank.Step) error {
	if k.open != nil {
		return k.finish()
	}
	if err := k.connect(s); err != nil || len(k.api.tokens) == 0 {
		return err
	}
	k.asked++
	text := fmt.Sprintf("canary %d of the history", k.asked)
	var faults []answerFault
	for i := range s.C % 4 {
		faults = append(faults, answerFaults[(s.A+s.B*i)%len(answerFaults)])
	}
	k.providers.arm(text, s.B, faults)
	route := routes[s.A%len(routes)]
	k.open = &openCall{path: route.path, body: fmt.Sprintf(route.body, askedModels[s.B%len(askedModels)], text),
		end: route.end, key: id.NewUUID(), token: k.api.token(0), from: len(k.providers.list(0))}
	return k.finish()
}

// finish asks until there is an answer. It is complete exactly if that of the provider has come.
func (k *asker) finish() error {
	c := k.open
	for range 3 {
		from := len(k.providers.list(0))
		a, err := k.send(context.Background(), nil, "POST", c.path, c.body, "Authorization", "Bearer "+c.token,
			"Content-Type", "application/json", "Idempotency-Key", c.key)
		if err != nil {
			return err
		}
		if isOurFault(a.Status) {
			return fmt.Errorf("%s is answered by %d: %s", c.path, a.Status, a.Body)
		}
		complete := a.Status == http.StatusOK && strings.HasSuffix(a.Body, c.end) &&
			!strings.Contains(a.Body, `"error":{`)
		k.api.drawn[fmt.Sprintf("an ask: %d, complete %t", a.Status, complete)]++
		may := slices.ContainsFunc(k.providers.list(c.from), func(a *asked) bool { return a.isWhole || a.mayBeWhole })
		whole := slices.ContainsFunc(k.providers.list(from), func(a *asked) bool { return a.isWhole })
		if complete && !may || whole && !complete {
			return fmt.Errorf("%s with %s: the answer is complete: %t, that of the provider: %t: %s", c.path, c.body,
				complete, whole, a.Body)
		}
		if a.Status == http.StatusUnauthorized { // the token has expired
			k.api.connected = time.Time{}
		}
		if a.Status < 500 {
			k.open = nil
			return nil
		}
		k.Pass(10 * time.Second)
	}
	k.open = nil
	return nil
}
