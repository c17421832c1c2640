package shapes_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
)

// A said is an answer as letters, one a block: t is a text, p a text with a phase, r a thought, c a tool call.
type said string

// deltas returns the answer of a provider, each text and each call in two pieces.
func (s said) deltas(origin conversation.Origin) (list []conversation.Delta) {
	add := func(d conversation.Delta) { list = append(list, d) }
	add(conversation.Delta{Kind: conversation.Begin})
	end := conversation.Delta{Kind: conversation.End}
	for i, letter := range s {
		switch letter {
		case 't', 'p':
			d := conversation.Delta{Kind: conversation.Text, Block: i, Text: []byte(`a \"é\ud83d\ude00\n`)}
			if letter == 'p' {
				d.Phase = []byte("commentary")
			}
			add(d)
			d.Text = fmt.Appendf(nil, "%d.", i)
			add(d)
		case 'r':
			d := conversation.Delta{Kind: conversation.Thought, Block: i, Origin: origin}
			if origin == conversation.Anthropic {
				d.Opaque = fmt.Appendf(nil, `{"type":"thinking","thinking":"Hm.","signature":"s%d"}`, i)
			} else {
				d.Opaque = fmt.Appendf(nil, `{"type":"reasoning","id":"rs_%d","summary":[],"encrypted_content":"g%d"}`,
					i, i)
			}
			add(d)
		case 'c':
			d := conversation.Delta{
				Kind: conversation.Call, Block: i,
				ID: fmt.Appendf(nil, "c%d", i), Name: []byte("f"), Text: []byte(`{\"`),
			}
			if origin == conversation.Google {
				d.Opaque, d.Origin = fmt.Appendf(nil, `"c2ln%d"`, i), origin
			}
			add(d)
			add(conversation.Delta{Kind: conversation.Arguments, Block: i, Text: []byte(`n\":1}`)})
			end.Reason = conversation.Called
		}
	}
	add(end)
	return list
}

// results are what the next request has behind the answer: the results of its calls, or a question.
func (s said) results(result func(id string) string, question string) string {
	var all []string
	for i, letter := range s {
		if letter == 'c' {
			all = append(all, result(fmt.Sprintf("c%d", i)))
		}
	}
	if len(all) == 0 {
		return question
	}
	return strings.Join(all, ",")
}

// A way is how a client asks, and sends the answer back as it came.
type way func(t testing.TB, s said, origin conversation.Origin) *plan.Request

const question = `{"role":"user","content":"q"}`

// byChat is a client of Chat Completions.
func byChat(stream bool) way {
	return func(t testing.TB, s said, origin conversation.Origin) *plan.Request {
		r := &provider.Request{ID: "req_1", Model: "m"}
		var message map[string]json.RawMessage
		if stream {
			w := completions.NewStream(nil, r, time.Unix(0, 0))
			for _, d := range s.deltas(origin) {
				w.Write(&d)
			}
			message = joinChunks(t, string(w.Frames()))
		} else {
			w := completions.NewWhole(nil, r, time.Unix(0, 0))
			for _, d := range s.deltas(origin) {
				w.Write(&d)
			}
			var body struct {
				Choices []struct{ Message map[string]json.RawMessage }
			}
			if err := json.Unmarshal(w.AppendBody(nil, nil), &body); err != nil {
				t.Fatal(err)
			}
			message = body.Choices[0].Message
		}
		answer, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Parse([]byte(`{"messages":[` + question + `,` + string(answer) + `,` +
			s.results(func(id string) string {
				return `{"role":"tool","tool_call_id":"` + id + `","content":"x"}`
			}, question) + `]}`))
		if err != nil {
			t.Fatalf("%s: %v in %s", s, err, answer)
		}
		return p
	}
}

// joinChunks joins the deltas of a stream into a message, as clients do.
func joinChunks(t testing.TB, frames string) map[string]json.RawMessage {
	type call struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
		Extra json.RawMessage `json:"extra_content,omitempty"`
	}
	var content string
	var calls []call
	extra := map[string]json.RawMessage{}
	for frame := range strings.SplitSeq(strings.TrimSpace(frames), "\n\n") {
		var c struct {
			Choices []struct {
				Delta struct {
					Content string
					Extra   map[string]json.RawMessage `json:"extra_content"`
					Calls   []struct {
						Index int
						call
					} `json:"tool_calls"`
				}
			}
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(frame, "data: ")), &c); err != nil {
			t.Fatalf("%v in %s", err, frame)
		}
		d := &c.Choices[0].Delta
		content += d.Content
		for name, value := range d.Extra {
			extra[name] = value
		}
		for _, piece := range d.Calls {
			if piece.Index == len(calls) {
				calls = append(calls, piece.call)
			} else {
				calls[piece.Index].Function.Arguments += piece.Function.Arguments
			}
		}
	}
	message := map[string]json.RawMessage{"role": []byte(`"assistant"`)}
	for name, value := range map[string]any{"content": content, "tool_calls": calls, "extra_content": extra} {
		if b, err := json.Marshal(value); err == nil && string(b) != "null" && string(b) != "{}" {
			message[name] = b
		}
	}
	return message
}

// writeSaid returns what a shape makes of the answer.
func writeSaid(s said, origin conversation.Origin, c shapes.Call, stream bool) []byte {
	w := c.NewWriter(shapes.Head{RequestID: "req_1", Model: "m", Stream: stream})
	var out []byte
	for _, d := range s.deltas(origin) {
		if w.Write(&d); stream {
			out = append(out, w.Take()...)
		}
	}
	return shapes.WithoutBill(append(out, w.End()...))
}

// byMessages is a client of Anthropic's API.
func byMessages(stream bool) way {
	return func(t testing.TB, s said, origin conversation.Origin) *plan.Request {
		const begin = `{"model":"m","max_tokens":5,"thinking":{"type":"adaptive"},"messages":[` + question
		c, err := messages.Parse([]byte(begin + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		out := writeSaid(s, origin, c, stream)
		var message struct{ Content json.RawMessage }
		if stream {
			message.Content = joinEvents(t, out)
		} else if err := json.Unmarshal(out, &message); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		next := `{"role":"user","content":[` + s.results(func(id string) string {
			return `{"type":"tool_result","tool_use_id":"` + id + `","content":"x"}`
		}, `{"type":"text","text":"q"}`) + `]}`
		c, err = messages.Parse([]byte(begin + `,{"role":"assistant","content":` + string(message.Content) + `},` +
			next + `]}`))
		if err != nil {
			t.Fatalf("%s: %v in %s", s, err, message.Content)
		}
		return c.Request()
	}
}

// joinEvents joins the events of a message into its content, as Anthropic's clients do.
func joinEvents(t testing.TB, out []byte) json.RawMessage {
	var blocks []map[string]any
	for _, line := range strings.Split(string(out), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		var e struct {
			Type  string
			Index int
			Block map[string]any `json:"content_block"`
			Delta map[string]any
		}
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		switch e.Type {
		case "content_block_start":
			blocks = append(blocks, e.Block)
		case "content_block_delta":
			for from, to := range map[string]string{
				"text": "text", "thinking": "thinking", "signature": "signature", "partial_json": "input",
			} {
				if piece, ok := e.Delta[from].(string); ok {
					before, _ := blocks[e.Index][to].(string)
					blocks[e.Index][to] = before + piece
				}
			}
		}
	}
	for _, b := range blocks {
		if input, ok := b["input"].(string); ok {
			b["input"] = json.RawMessage(input)
		}
	}
	content, err := json.Marshal(blocks)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// byResponses is a client of the Responses API.
func byResponses(stream bool) way {
	return func(t testing.TB, s said, origin conversation.Origin) *plan.Request {
		const begin = `{"model":"m","include":["reasoning.encrypted_content"],"input":[` + question
		c, err := responses.Parse([]byte(begin + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		out := writeSaid(s, origin, c, stream)
		if stream {
			_, last, _ := strings.Cut(string(out), "event: response.completed\ndata: ")
			var event struct{ Response json.RawMessage }
			if err := json.Unmarshal([]byte(strings.TrimSpace(last)), &event); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			out = event.Response
		}
		var response struct{ Output []json.RawMessage }
		if err := json.Unmarshal(out, &response); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		var items []string
		for _, item := range response.Output {
			items = append(items, string(item))
		}
		c, err = responses.Parse([]byte(begin + `,` + strings.Join(items, ",") + `,` +
			s.results(func(id string) string {
				return `{"type":"function_call_output","call_id":"` + id + `","output":"x"}`
			}, question) + `]}`))
		if err != nil {
			t.Fatalf("%s: %v in %s", s, err, out)
		}
		return c.Request()
	}
}

// sent returns the blocks of the answer in the provider's next request, a letter and what tells it from others each.
func sent(t testing.TB, origin conversation.Origin, r *plan.Request) string {
	q := r.Request
	q.Model, q.MaxTokens = "m", 100
	var body []byte
	var err error
	switch origin {
	case conversation.Anthropic:
		q.Facts.Thinking = "always"
		body, err = anthropic.Encode(&q)
	case conversation.Google:
		q.Facts.Thinking = "level"
		body, err = google.Encode(&q)
	default:
		q.Facts.Responses = true
		capture := roundTripper(func(r *http.Request) (*http.Response, error) {
			body, err = io.ReadAll(r.Body)
			return &http.Response{StatusCode: 400, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})
		_, _ = openai.New("http://provider.test", "k", openai.Transport(capture)).Complete(t.Context(), &q) // refused
	}
	if err != nil {
		t.Fatal(err)
	}
	return describeSent(t, body)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// describeSent writes the blocks of the model's turn in a body of any provider.
func describeSent(t testing.TB, body []byte) string {
	type block struct {
		Type, Text, Signature, ID, Role, Phase string
		Encrypted                              string `json:"encrypted_content"`
		Call                                   string `json:"call_id"`
		Thought                                string `json:"thoughtSignature"`
		Function                               *struct{ ID string }
		FunctionCall                           *struct{ Args struct{ N int } }
		Content                                json.RawMessage
	}
	var request struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Contents []struct {
			Role  string
			Parts []block
		}
		Input []block
	}
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var blocks []block
	for _, m := range request.Messages {
		if m.Role == "assistant" {
			if err := json.Unmarshal(m.Content, &blocks); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range request.Contents {
		if c.Role == "model" {
			blocks = c.Parts
		}
	}
	for _, item := range request.Input {
		if item.Role != "user" && item.Type != "function_call_output" {
			blocks = append(blocks, item)
		}
	}
	text := func(s string) string { return strings.TrimSuffix(s[strings.LastIndexByte(s, '\n')+1:], ".") }
	var out strings.Builder
	for _, b := range blocks {
		var parts []block
		if len(b.Content) > 0 && json.Unmarshal(b.Content, &parts) != nil {
			t.Fatalf("%s", b.Content)
		}
		switch {
		case b.Type == "thinking":
			out.WriteString("r" + strings.TrimPrefix(b.Signature, "s"))
		case b.Type == "reasoning":
			out.WriteString("r" + strings.TrimPrefix(b.Encrypted, "g"))
		case b.FunctionCall != nil:
			out.WriteString("c" + strings.TrimPrefix(b.Thought, "c2ln"))
		case b.Type == "tool_use":
			out.WriteString("c" + strings.TrimPrefix(b.ID, "c"))
		case b.Type == "function_call":
			out.WriteString("c" + strings.TrimPrefix(b.Call, "c"))
		case b.Phase != "":
			out.WriteString("p" + text(parts[0].Text))
		case len(parts) == 1:
			out.WriteString("t" + text(parts[0].Text))
		default:
			out.WriteString("t" + text(b.Text))
		}
	}
	return out.String()
}

// expected is what should be sent, with the letters that are left out.
func (s said) expected(dropped string, phases bool) string {
	var out strings.Builder
	for i, letter := range s {
		switch {
		case letter == 'r' && strings.Contains(dropped, "r") && !strings.Contains(string(s[i:]), "c"):
			continue // Chat Completions returns a thought with a call only
		case letter == 'r' && strings.Trim(string(s[i:]), "r") == "":
			continue // nothing follows it
		case letter == 'p' && !phases:
			letter = 't'
		}
		fmt.Fprintf(&out, "%c%d", letter, i)
	}
	return out.String()
}

// byContents is a client of Google's API. Of a stream it keeps the content of each chunk.
func byContents(stream bool) way {
	return func(t testing.TB, s said, origin conversation.Origin) *plan.Request {
		const first = `{"role":"user","parts":[{"text":"q"}]}`
		const tools = `"tools":[{"functionDeclarations":[{"name":"f"}]}]`
		c, err := contents.Parse([]byte(`{"contents":[`+first+`],`+tools+`}`), "m", stream)
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		out := writeSaid(s, origin, c, stream)
		for chunk := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n\n") {
			var answer struct {
				Candidates []struct{ Content json.RawMessage }
			}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(chunk, "data: ")), &answer); err != nil {
				t.Fatalf("%v in %s", err, chunk)
			}
			kept = append(kept, string(answer.Candidates[0].Content))
		}
		next := `{"role":"user","parts":[` + s.results(func(id string) string {
			return `{"functionResponse":{"id":"` + id + `","name":"f","response":{"output":"x"}}}`
		}, `{"text":"q"}`) + `]}`
		c, err = contents.Parse([]byte(`{"contents":[`+first+`,`+strings.Join(kept, ",")+`,`+next+`],`+tools+`}`), "m",
			stream)
		if err != nil {
			t.Fatalf("%s: %v in %s", s, err, kept)
		}
		return c.Request()
	}
}

var ways = map[string]way{
	"chat": byChat(false), "chat, streamed": byChat(true),
	"messages": byMessages(false), "messages, streamed": byMessages(true),
	"responses": byResponses(false), "responses, streamed": byResponses(true),
	"contents": byContents(false), "contents, streamed": byContents(true),
}

// TestRoundTrips is the rule: what Purser answered, a client sends back as it came, and the provider gets the same
// blocks in the same order.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for origin, answers := range map[conversation.Origin][]said{
		conversation.Anthropic: {
			"t", "rt", "c", "rc", "rtc", "rtcc", "rcrc", "rtrc", "rtcrtc", "rtcrc", "tcrc", "ctc", "ct", "rct", "trc",
			"tt", "rtrt", "rrtc", "rcrctrc",
		},
		conversation.OpenAI: {
			"t", "rt", "c", "rc", "rtc", "trc", "rpc", "rprc", "rprpc", "pt", "rprt", "rcrc", "rcprc", "rrc", "ctc",
			"tt",
		},
		conversation.Google: {"t", "c", "cc", "tc", "tcc", "tct", "ctc", "ct"},
	} {
		for name, ask := range ways {
			for _, s := range answers {
				dropped := ""
				if strings.HasPrefix(name, "chat") {
					dropped = "r"
				}
				phases := strings.HasPrefix(name, "responses") || strings.HasPrefix(name, "contents") ||
					strings.HasPrefix(name, "chat") && strings.ContainsAny(string(s), "c") || s == "pt" || s == "rprt"
				if strings.HasPrefix(name, "messages") {
					phases = false // its blocks have none
				}
				want := s.expected(dropped, phases)
				if origin == conversation.Anthropic {
					want = s.expectedOfClaude(dropped)
				}
				if got := sent(t, origin, ask(t, s, origin)); got != want {
					t.Errorf("%s by %s of %d: the provider gets %q, want %q", s, name, origin, got, want)
				}
			}
		}
	}
}

// expectedOfClaude is expected; Anthropic takes thinking at the end, too.
func (s said) expectedOfClaude(dropped string) string {
	if dropped != "" {
		return s.expected(dropped, false)
	}
	var out strings.Builder
	for i, letter := range strings.ReplaceAll(string(s), "p", "t") {
		fmt.Fprintf(&out, "%c%d", letter, i)
	}
	return out.String()
}

// FuzzRoundTrips: any sequence of blocks comes back as the same blocks, where the client's API can express it.
func FuzzRoundTrips(f *testing.F) {
	f.Add("rtcrtc", byte(1))
	f.Add("prtctt", byte(2))
	f.Fuzz(func(t *testing.T, text string, which byte) {
		s := said(strings.Map(func(r rune) rune {
			if strings.ContainsRune("tprc", r) {
				return r
			}
			return -1
		}, text))
		origin := []conversation.Origin{conversation.Anthropic, conversation.OpenAI}[which&1]
		if len(s) == 0 || len(s) > 40 || strings.Trim(string(s), "r") == "" {
			return
		}
		for name, ask := range ways {
			chat := strings.HasPrefix(name, "chat")
			dropped := ""
			if chat {
				dropped = "r"
			}
			want := s.expected(dropped, strings.HasPrefix(name, "responses") || strings.HasPrefix(name, "contents"))
			if origin == conversation.Anthropic {
				want = s.expectedOfClaude(dropped)
			}
			got := sent(t, origin, ask(t, s, origin))
			if chat { // which may have phases
				got = strings.ReplaceAll(got, "p", "t")
			}
			if got != want {
				t.Errorf("%s by %s: the provider gets %q, want %q", s, name, got, want)
			}
		}
	})
}
