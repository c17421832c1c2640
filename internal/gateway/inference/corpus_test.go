package inference

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/images"
	"github.com/purserhq/purser/internal/testkit"
)

var corpusName = flag.String("corpus", "", "play the cases of the corpus with this in their names, by every route")

// A corpusAnswer is a line of what tools/corpus/corpus.py prints.
type corpusAnswer struct {
	Name    string
	Dialect string
	Model   string
	Events  []string
	Body    string // "" = there is none
	Want    corpusWant
	Whole   *corpusWant // of the body, if it differs
}

// A corpusWant is what must come of an answer.
type corpusWant struct {
	Failed                              bool
	Delivered                           bool // the client of a stream has something of what has failed
	Chat, Messages, Responses, Contents json.RawMessage
	Usage                               map[string]int64 // nil = it is estimated
	Bill                                corpusBill
	ChatBill                            *corpusBill `json:"chat_bill"` // of Chat Completions, if it differs
	Second                              []corpusSecond
}

type corpusBill struct{ Cost, Margin, Fee, Charge int64 }

func (w *corpusWant) view(route string) json.RawMessage {
	switch route {
	case "messages":
		return w.Messages
	case "responses":
		return w.Responses
	case "contents":
		return w.Contents
	}
	return w.Chat
}

const corpusProgram = "../../../tools/corpus/corpus.py"

// readCorpus returns the cases of one kind that the second program prints, and checks that what it wants is what was
// committed.
func readCorpus[T any](t *testing.T, kind string) (list []T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Dir(corpusProgram) + "/*.py")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range append(files, "testdata/corpus/prices.yaml") {
		if _, err := os.ReadFile(name); err != nil { // so that go test runs again when it has changed
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile("testdata/corpus/" + kind + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/usr/bin/python3", "-B", corpusProgram, "--print", kind)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	wanted, sent, _ := bytes.Cut(out, []byte("\n\n"))
	if !bytes.Equal(bytes.TrimSpace(wanted), bytes.TrimSpace(committed)) {
		t.Errorf("testdata/corpus/%s.jsonl is not what python3 tools/corpus/corpus.py writes", kind)
	}
	sents := bytes.Split(bytes.TrimSpace(sent), []byte("\n"))
	for i, line := range bytes.Split(bytes.TrimSpace(wanted), []byte("\n")) {
		var v T
		for _, text := range [][]byte{line, sents[i]} {
			if err := json.Unmarshal(text, &v); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
		}
		list = append(list, v)
	}
	return list
}

// A corpusRun plays cases on one node.
type corpusRun struct {
	*matrix
	node *bundle
}

func newCorpusRun(t *testing.T, e db.Engine) *corpusRun {
	t.Helper()
	m := newMatrix(t, e)
	book, err := catalog.Open("testdata/corpus/prices.yaml", m.Log)
	if err != nil {
		t.Fatal(err)
	}
	c := m.Config
	c.Catalog, c.Images = book, images.New(images.Config{})
	c.Policies = policies.Fixed(policy.Policy{
		Fee:                money.One / 20,
		UnbilledCallsDayMC: money.Dollar,
		EmptyAnswersDayMC:  money.Dollar,
	})
	b := &bundle{Handler: New(c), t: t, db: m.db, who: m.who, now: m.clock()}
	m.mount(b)
	return &corpusRun{matrix: m, node: b}
}

// ask makes a request of a route, and returns what was read.
func (r *corpusRun) ask(key, path, body string) *reading {
	r.t.Helper()
	q, err := http.NewRequest(http.MethodPost, r.node.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header = http.Header{
		"Authorization":   {"Bearer " + r.token},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {key},
	}
	got := readCall(r.t.Context(), q)
	<-got.ended
	return got
}

const chatTools = `"tools":[{"type":"function","function":{"name":"weather"}},` +
	`{"type":"function","function":{"name":"clock"}}]`

// corpusQuestion is the path and the body of a question that wants reasoning.
func corpusQuestion(route, model, prompt string, streamed bool) (path, body string) {
	switch route {
	case "ai", "chat":
		path = "/v1/ai/" + model
		body = `"messages":[{"role":"user","content":"` + prompt + `"}],"max_tokens":400,` + chatTools
		if route == "chat" {
			path, body = "/v1/chat/completions", `"model":"`+model+`",`+body
			if streamed {
				body += `,"stream_options":{"include_usage":true}`
			}
		}
	case "messages":
		path, body = "/anthropic/v1/messages", `"model":"`+model+`","messages":[{"role":"user","content":"`+prompt+
			`"}],"max_tokens":400,"thinking":{"type":"adaptive"},"tools":[{"name":"weather","input_schema":{"type":`+
			`"object"}},{"name":"clock","input_schema":{"type":"object"}}]`
	case "responses":
		path, body = "/openai/v1/responses", `"model":"`+model+`","input":"`+prompt+
			`","max_output_tokens":400,"reasoning":{"summary":"auto"},"tools":[{"type":"function","name":"weather"},`+
			`{"type":"function","name":"clock"}]`
	case "contents":
		path = "/google/v1beta/models/" + model + ":generateContent"
		if streamed {
			path = "/google/v1beta/models/" + model + ":streamGenerateContent?alt=sse"
		}
		return path, `{"contents":[{"role":"user","parts":[{"text":"` + prompt +
			`"}]}],"generationConfig":{"maxOutputTokens":400,"thinkingConfig":{"includeThoughts":true}},` +
			`"tools":[{"functionDeclarations":[{"name":"weather"},{"name":"clock"}]}]}`
	}
	return path, fmt.Sprintf(`{%s,"stream":%t}`, body, streamed)
}

// canPlay reports whether a provider can be asked for the answer in this form. OpenAI's Responses and Anthropic's
// Messages are always asked for as a stream.
func (a *corpusAnswer) canPlay(streamed bool) bool {
	return streamed || a.Body != "" || a.Dialect == "responses" || a.Dialect == "anthropic"
}

// play plays an answer for a client of a route.
func (r *corpusRun) play(a *corpusAnswer, route string, streamed bool) {
	r.t.Helper()
	r.played++
	mark, key := fmt.Sprintf("PLAY-%d", r.played), id.NewUUID()
	at := len(a.Events)
	if a.Body != "" && !streamed {
		at = 2 // all of it
	}
	r.stub.put(mark, &play{answer: &answer{events: a.Events, body: a.Body}, at: at, way: ending})
	defer r.stub.drop(mark)
	path, body := corpusQuestion(route, a.Model, mark+" What is it?", streamed)
	got := r.ask(key, path, body)
	want := &a.Want
	if !streamed && a.Body != "" && a.Whole != nil {
		want = a.Whole
	}
	fail := func(format string, args ...any) {
		r.t.Helper()
		r.t.Errorf("%s, %s, streamed %t: %s\nread %d %.700s", a.Name, route, streamed, fmt.Sprintf(format, args...),
			got.status, got.raw.String())
	}
	v, err := readView(route, got.raw.String(), streamed && got.status == http.StatusOK)
	switch {
	case err != nil:
		fail("%v", err)
		return
	case want.Failed && got.status == http.StatusOK && !v.failed:
		fail("it has not failed")
	case want.Failed:
		r.checkFailed(key, streamed && want.Delivered, fail)
		return
	case got.status != http.StatusOK || v.failed:
		fail("it has failed")
		return
	case !v.done:
		fail("it has no end")
	}
	if text, ok := equalViews(v, want.view(route)); !ok {
		fail("the view is %s", text)
	}
	r.checkBill(key, route, want, fail)
	if !streamed {
		r.playSecond(want.Second, route, mark, body, got.raw.String(), &v, fail)
	}
}

// checkBill compares the row of a call.
func (r *corpusRun) checkBill(key, route string, want *corpusWant, fail func(string, ...any)) {
	r.t.Helper()
	bill := want.Bill
	if want.ChatBill != nil && (route == "ai" || route == "chat") {
		bill = *want.ChatBill
	}
	settlement, usage, b, hold := r.row(key)
	switch {
	case settlement == "":
		fail("it is not charged")
	case want.Usage == nil:
		if settlement != "estimated" || b.Charge > hold {
			fail("it is %s, %+v of a hold of %d", settlement, b, hold)
		}
	case settlement != "settled" || b != bill:
		fail("it is %s, %+v, want %+v", settlement, b, bill)
	default:
		for class, n := range want.Usage {
			if got := usage.number(class); int64(got) != n {
				fail("%s is %d, want %d", class, got, n)
			}
		}
	}
}

// checkFailed checks that what was delivered is estimated, at most at its hold, and nothing else is charged.
func (r *corpusRun) checkFailed(key string, isDelivered bool, fail func(string, ...any)) {
	r.t.Helper()
	want := map[bool]string{true: "estimated"}[isDelivered]
	if settlement, _, b, hold := r.row(key); settlement != want || b.Charge > hold {
		fail("it is %q, %+v of a hold of %d, want %q", settlement, b, hold, want)
	}
}

// row returns the row of a call; its settlement is empty if there is none.
func (r *corpusRun) row(key string) (settlement string, usage object, b corpusBill, hold int64) {
	r.t.Helper()
	rows, err := r.DB.QueryContext(r.t.Context(), `SELECT settlement, usage, provider_cost_mc, dev_margin_mc,
		svc_fee_mc, user_charge_mc, hold_amount_mc FROM ledger WHERE type = 'spend' AND key = $1`, key)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return "", nil, b, 0
	}
	var text string
	err = rows.Scan(&settlement, &text, &b.Cost, &b.Margin, &b.Fee, &b.Charge, &hold)
	if err != nil || rows.Next() {
		r.t.Fatalf("two rows, or %v", err)
	}
	if usage, err = decode(text); err != nil {
		r.t.Fatal(err)
	}
	return settlement, usage, b, hold
}

// TestCorpusAnswers plays the answers of tools/corpus for the clients of each route: what they read, and what they are
// charged, is what a second program wants, which was written from the notes on the providers alone.
func TestCorpusAnswers(t *testing.T) {
	t.Parallel()
	list := readCorpus[corpusAnswer](t, "answers")
	for _, e := range corpusEngines() {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			r, n, every := newCorpusRun(t, e), 0, oneOf(4, e)
			for i := range list {
				if !strings.Contains(list[i].Name, *corpusName) {
					continue
				}
				for _, route := range routes {
					for _, streamed := range []bool{true, false} {
						if n++; list[i].canPlay(streamed) && n%every == i%every {
							r.play(&list[i], route, streamed)
						}
					}
				}
			}
			r.audit()
		})
	}
}

// oneOf says of how many plays one is made: of all in the long run on SQLite, and of usual ones otherwise.
func oneOf(usual int, e db.Engine) int {
	if testkit.IsLong() && e == db.SQLite || *corpusName != "" {
		return 1
	}
	return usual
}

// corpusEngines are the databases of the corpus: SQLite, and in the long run PostgreSQL for a sample.
func corpusEngines() []db.Engine {
	if testkit.IsLong() {
		return []db.Engine{db.SQLite, db.Postgres}
	}
	return []db.Engine{db.SQLite}
}
