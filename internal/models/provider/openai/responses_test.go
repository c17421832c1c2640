package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// A reasoning item, a text, and two calls whose arguments come in pieces, one of
// them split within an escape.
const responsesSample = "event: response.created\n" +
	`data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}` + "\n\n" +
	`data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}` + "\n\n" +
	`data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}}` + "\n\n" +
	`data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","content":[]}}` +
	"\n\n" +
	`data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"Hé ","obfuscation":"x"}` + "\n\n" +
	`data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"😀"}` + "\n\n" +
	`data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message"}}` + "\n\n" +
	`data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"weather","arguments":""}}` + "\n\n" +
	`data: {"type":"response.function_call_arguments.delta","item_id":"fc_1","delta":"{\"city\":\"R\\u"}` + "\n\n" +
	`data: {"type":"response.function_call_arguments.delta","item_id":"fc_1","delta":"00f6me\"}"}` + "\n\n" +
	`data: {"type":"response.output_item.added","output_index":3,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"time","arguments":""}}` + "\n\n" +
	`data: {"type":"response.something.new","x":1}` + "\n\n" +
	`data: {"type":"response.completed","response":{"status":"completed","usage":` + responsesUsageSample + `}}` +
	"\n\n"

const responsesUsageSample = `{"input_tokens":30,"input_tokens_details":{"cached_tokens":10,"cache_write_tokens":4},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":39}`

var responsesUsageWant = provider.Usage{Input: 16, Cached: 10, CacheWrite: 4, Output: 9, Reasoning: 5}

func toolRequest(stream bool) *provider.Request {
	r := request(stream)
	r.Model, r.Facts.Responses = "gpt-6.2-sol", true
	r.Tools = []provider.Tool{{Name: "weather", Parameters: []byte(`{"type":"object"}`)}, {Name: "time"}}
	return r
}

// said is what an answer says, in Chat's shape, streamed or whole.
type said struct {
	content, refusal, finish string
	calls                    []string
	extra                    string
	usage                    *provider.Usage
	err                      error
}

type chatMessage struct {
	Content   string `json:"content"`
	Refusal   string `json:"refusal"`
	ToolCalls []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
		Extra json.RawMessage `json:"extra_content"`
	} `json:"tool_calls"`
}

func (s *said) take(m chatMessage, finish *string) {
	s.content, s.refusal = s.content+m.Content, s.refusal+m.Refusal
	for i, c := range m.ToolCalls {
		n := max(c.Index, i)
		if n == len(s.calls) {
			s.calls = append(s.calls, c.ID+" "+c.Function.Name+" ")
		}
		s.calls[n] += c.Function.Arguments
		s.extra += string(c.Extra)
	}
	if finish != nil {
		s.finish += *finish
	}
}

func hearStream(t *testing.T, c *Client) (s said) {
	t.Helper()
	up, err := c.Stream(t.Context(), toolRequest(true))
	if err != nil {
		return said{err: err}
	}
	defer up.Close()
	for {
		chunk, err := up.Next()
		if err != nil {
			s.err = err
			return s
		}
		for _, frame := range strings.Split(strings.TrimSuffix(string(chunk.Frames), "\n\n"), "\n\n") {
			if frame == "" {
				continue
			}
			var v struct {
				Choices []struct {
					Delta  chatMessage `json:"delta"`
					Finish *string     `json:"finish_reason"`
				} `json:"choices"`
			}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(frame, "data: ")), &v); err != nil ||
				len(v.Choices) != 1 {
				t.Fatalf("%v in %q", err, frame)
			}
			s.take(v.Choices[0].Delta, v.Choices[0].Finish)
		}
		if chunk.Usage != nil {
			s.usage = chunk.Usage
			want := *chunk.Usage
			want.SumDiffers = false // the frame is ours, and its sum does not
			if kind, u := provider.Classify(bytes.TrimPrefix(bytes.TrimSpace(chunk.UsageFrame),
				[]byte("data: "))); kind != provider.UsageOnly || *u != want {
				t.Errorf("usage frame %s", chunk.UsageFrame)
			}
		}
	}
}

func hearWhole(t *testing.T, c *Client) said {
	t.Helper()
	a, err := c.Complete(t.Context(), toolRequest(false))
	if err != nil {
		return said{err: err}
	}
	var v struct {
		Choices []struct {
			Message chatMessage `json:"message"`
			Finish  *string     `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(a.Body, &v); err != nil || len(v.Choices) != 1 {
		t.Fatalf("%v in %s", err, a.Body)
	}
	s := said{usage: a.Usage, err: io.EOF}
	s.take(v.Choices[0].Message, v.Choices[0].Finish)
	return s
}

// TestEdge02CallsAreCountedByThemselves: reasoning and messages have places in
// the output, but no index among the calls. However the bytes are split, the same
// is said, streamed and whole.
func TestEdge02CallsAreCountedByThemselves(t *testing.T) {
	t.Parallel()
	want := said{
		content: "Hé 😀", finish: "tool_calls", calls: []string{`call_1 weather {"city":"R\u00f6me"}`, "call_2 time {}"},
		extra: `{"openai":{"reasoning":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA"}]}}`,
		usage: &responsesUsageWant, err: io.EOF,
	}
	check := func(how string, r func() io.Reader) {
		c := served(func(context.Context) io.Reader { return r() })
		if got := hearStream(t, c); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s, streamed: %+v", how, got)
		}
		if got := hearWhole(t, c); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s, whole: %+v", how, got)
		}
	}
	check("one byte at a time", func() io.Reader { return iotest.OneByteReader(strings.NewReader(responsesSample)) })
	for i := range len(responsesSample) {
		check("split", func() io.Reader {
			return io.MultiReader(strings.NewReader(responsesSample[:i]), strings.NewReader(responsesSample[i:]))
		})
	}
}

func TestResponsesEndings(t *testing.T) {
	t.Parallel()
	begun := responsesSample[:strings.Index(responsesSample,
		`data: {"type":"response.output_item.added","output_index":2`)]
	for what, c := range map[string]struct {
		events string
		finish string
		begun  bool // an error comes after something was said
		fails  bool
		retry  bool
	}{
		"too long": {begun +
			`data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},"usage":` + responsesUsageSample + "}}\n\n", "length", false, false, false},
		"filtered": {begun +
			`data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"},"usage":null}}` + "\n\n", "content_filter", false, false, false},
		"unknown events": {`data: {"type":"response.new.delta","delta":{"x":1},"item_id":[],"response":7}` + "\n\n" +
			begun + `data: {"type":"response.new","code":{},"summary_index":"1","item":3}` + "\n\n" +
			`data: {"type":"response.output_item.added","item":{"id":7,"type":"new","content":3}}` + "\n\n" +
			`data: {"type":"response.output_item.done","item":{"id":"n","type":{},"arguments":{}}}` + "\n\n" +
			`data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}` +
			"\n\n", "length", false, false, false},
		"an unknown end": {begun +
			`data: {"type":"response.incomplete","response":{"incomplete_details":{"reason":"new"}}}` + "\n\n", "stop",
			false, false, false},
		"cut":            {begun, "", true, true, false},
		"failed at once": {`data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"m"}}}` + "\n\n", "", false, true, true},
		"error at once":  {"event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}\n\n", "", false, true, true},
		"its own error": {`data: {"type":"response.failed","response":{"error":{"code":"invalid_prompt"}}}` +
			"\n\n", "", false, true, false},
		"failed later": {begun + `data: {"type":"response.failed","response":{"error":{"code":"server_error"}}}` +
			"\n\n", "", true, true, false},
		"garbage": {begun + "data: {\n\n", "", true, true, false},
		"nothing": {"", "", false, true, true},
		"a call of no name": {`data: {"type":"response.output_item.added","item":{"id":"f","type":"function_call"}}` +
			"\n\n", "", true, true, false},
		"a piece that is a number": {begun + `data: {"type":"response.output_text.delta","delta":7}` + "\n\n", "", true,
			true, false},
		"strange arguments": {begun +
			`data: {"type":"response.function_call_arguments.delta","item_id":"no","delta":"{}"}` + "\n\n", "", true,
			true, false},
	} {
		client := served(func(context.Context) io.Reader { return strings.NewReader(c.events) })
		stream, whole := hearStream(t, client), hearWhole(t, client)
		for how, s := range map[string]said{"streamed": stream, "whole": whole} {
			if !c.fails {
				if !errors.Is(s.err, io.EOF) || s.finish != c.finish || s.content != "Hé 😀" {
					t.Errorf("%s, %s: %+v", what, how, s)
				}
				continue
			}
			if s.err == nil || errors.Is(s.err, io.EOF) && !errors.Is(s.err, io.ErrUnexpectedEOF) && c.events != "" {
				t.Errorf("%s, %s: no error: %+v", what, how, s)
			}
			var e *provider.Error
			if got := errors.As(s.err, &e) && e.Retry; got != c.retry {
				t.Errorf("%s, %s: retry %v: %v", what, how, got, s.err)
			}
		}
		if c.fails && c.begun != (stream.content != "" || what == "a call of no name") {
			t.Errorf("%s: delivered %q", what, stream.content)
		}
	}
}

// TestResponsesRequests holds what goes out in a table (provider notes A.10).
func TestResponsesRequests(t *testing.T) {
	t.Parallel()
	strict := true
	r := toolRequest(true)
	r.Tools[1].Strict, r.ToolChoice = &strict, provider.ToolChoice{Mode: "function", Name: "time"}
	r.ReasoningEffort, r.ResponseFormat = "low",
		[]byte(`{"type":"json_schema","json_schema":{"name":"n","schema":{"a":1},"strict":true}}`)
	r.Turns = []conversation.Turn{
		conversation.Say("system", "Be brief."),
		{Role: "user", Blocks: []conversation.Block{
			{Text: "See"},
			{Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: "data:image/png;base64,AA"}},
		}},
		{Role: "assistant", Blocks: []conversation.Block{
			{Text: "Let me look."},
			{Kind: conversation.CallBlock, ID: "c1", Name: "weather", Arguments: `{"x":1}`, Extra: []byte(
				`{"openai":{"reasoning":[{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"g","evil":1},{"type":"message"}]},"google":{"thought_signature":"s"}}`)},
			{
				Kind:      conversation.CallBlock,
				ID:        "c2",
				Name:      "time",
				Arguments: `not JSON`,
				Extra:     []byte(`{"openai":[]}`),
			},
		}},
		{Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: "c1", Blocks: []conversation.Block{{Text: "fine"}}},
		}},
		{Role: "tool", Blocks: []conversation.Block{
			{Kind: conversation.ResultBlock, ID: "c2", Blocks: []conversation.Block{{Text: "no"}, {Text: "on"}}},
		}},
	}
	got, err := encodeResponses(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"gpt-6.2-sol","input":[` +
		`{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief."}]},` +
		`{"type":"message","role":"user","content":[{"type":"input_text","text":"See"},{"type":"input_image","image_url":"data:image/png;base64,AA","detail":"auto"}]},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me look."}]},` +
		`{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"g"},` +
		`{"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"x\":1}"},` +
		`{"type":"function_call","call_id":"c2","name":"time","arguments":"not JSON"},` +
		`{"type":"function_call_output","call_id":"c1","output":"fine"},` +
		`{"type":"function_call_output","call_id":"c2","output":"noon"}],` +
		`"max_output_tokens":100,"store":false,"include":["reasoning.encrypted_content"],"service_tier":"default","stream":true,"reasoning":{"effort":"low"},` +
		`"tools":[{"type":"function","name":"weather","parameters":{"type":"object"},"strict":false},{"type":"function","name":"time","parameters":{"type":"object","properties":{}},"strict":true}],` +
		`"tool_choice":{"type":"function","name":"time"},"text":{"format":{"type":"json_schema","name":"n","schema":{"a":1},"strict":true}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A client of this API leaves strict out where it means the default, which is true as far as the schema allows.
	r.FromResponses = true
	if got, err = encodeResponses(r); err != nil || string(got) != strings.Replace(want, `,"strict":false`, "", 1) {
		t.Errorf("for a client of the Responses API: %s, %v", got, err)
	}
}

func TestResponsesUsage(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]*provider.Usage{
		responsesUsageSample:                                                                  &responsesUsageWant,
		`{"input_tokens":1,"output_tokens":0}`:                                                {Input: 1},
		`{"input_tokens":1,"output_tokens":0,"input_tokens_details":null}`:                    {Input: 1},
		`{"input_tokens":1,"output_tokens":0,"input_tokens_details":{"cached_tokens":2}}`:     nil,
		`{"input_tokens":1,"output_tokens":1,"output_tokens_details":{"reasoning_tokens":2}}`: nil,
		`{"input_tokens":1,"output_tokens":0,"total_tokens":null}`:                            {Input: 1},
		`{"input_tokens":-1,"output_tokens":0}`:                                               nil,
		`{"input_tokens":1.5,"output_tokens":0}`:                                              nil,
		`{"input_tokens":1}`:                                                                  nil,
		`null`:                                                                                nil,
		``:                                                                                    nil,
		`[]`:                                                                                  nil,
		`{"input_tokens":9007199254740993,"output_tokens":0}`:                                 nil,
		`{"input_tokens":1,"output_tokens":0,"total_tokens":2}`: {
			Input:      1,
			SumDiffers: true,
		},
		`{"input_tokens":1,"output_tokens":0,"total_tokens":"1"}`: {
			Input:      1,
			SumDiffers: true,
		},
	} {
		if got := readUsage([]byte(raw)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", raw, got)
		}
	}
}

// TestResponsesErrorsInStream shows that an error inside a stream means what it means by its status, nested, flat, and
// in a failed response. After a part of the answer has arrived it is not tried again.
func TestResponsesErrorsInStream(t *testing.T) {
	t.Parallel()
	const begun = `data: {"type":"response.output_text.delta","delta":"a"}` + "\n\n"
	for code, want := range map[string]provider.Error{
		"insufficient_quota":   {Status: 429, Alarm: "the account is out of quota", OutOfQuota: true},
		"rate_limit_exceeded":  {Status: 429, Retry: true},
		"server_error":         {Status: 503, Retry: true},
		"server_is_overloaded": {Status: 503, Retry: true},
		"invalid_prompt":       {Status: 400, Kind: provider.Rejected},
		"account_deactivated":  {Status: 403, Alarm: "the account is disabled", KeyRefused: true},
		"invalid_api_key":      {Status: 401, Alarm: "the key is refused", KeyRefused: true},
		"model_not_found":      {Status: 404, Alarm: "the model or address is unknown"},
		"something_new":        {Status: 200},
	} {
		members := fmt.Sprintf(`"code":%q,"message":"m","param":null`, code)
		for shape, event := range map[string]string{
			"nested": `{"type":"error","sequence_number":2,"error":{"type":"` + code + `",` + members + `}}`,
			"flat":   `{"type":"error",` + members + `,"sequence_number":2}`,
			"failed": `{"type":"response.failed","response":{"status":"failed","error":{` + members + `}}}`,
		} {
			for _, before := range []string{"", begun} {
				text := before + "data: " + event + "\n\n"
				c := served(func(context.Context) io.Reader { return strings.NewReader(text) })
				want := want
				if before != "" {
					want.Kind, want.Retry = provider.Failed, false
				}
				for how, err := range map[string]error{"streamed": hearStream(t, c).err, "whole": hearWhole(t, c).err} {
					e, ok := errors.AsType[*provider.Error](err)
					if !ok {
						t.Fatalf("%s, %s, %s: %v", code, shape, how, err)
					}
					got := provider.Error{Status: e.Status, Kind: e.Kind, Retry: e.Retry, Alarm: e.Alarm,
						OutOfQuota: e.OutOfQuota, KeyRefused: e.KeyRefused}
					if got != want {
						t.Errorf("%s, %s, %s, after %q: %+v, want %+v", code, shape, how, before, got, want)
					}
				}
			}
		}
	}
}

// TestResponsesNextKey asks with the next key when the account of the first is out of quota inside a stream.
func TestResponsesNextKey(t *testing.T) {
	t.Parallel()
	var keys []upstream.Key
	for id, text := range map[string]string{
		"empty": `data: {"type":"error","error":{"code":"insufficient_quota","message":"m"}}` + "\n\n",
		"full":  responsesSample,
	} {
		keys = append(keys, upstream.Key{
			ID:       id,
			Provider: served(func(context.Context) io.Reader { return strings.NewReader(text) }),
		})
	}
	var alarms []string
	pool := upstream.NewPool(keys, time.Now, slog.New(slog.DiscardHandler),
		func(_, alarm string, _ error) { alarms = append(alarms, alarm) })
	r := toolRequest(true)
	for range 3 {
		s, err := pool.Stream(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	}
	if len(alarms) != 1 || alarms[0] != "the account is out of quota" {
		t.Errorf("alarms: %q", alarms)
	}
}

func TestResponsesRefusedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/responses" {
			t.Errorf("asked at %s", r.URL.Path)
		}
		answers(400, `{"error":{"message":"no such thing","code":null}}`)(w, r)
	})
	for _, err := range []error{hearStream(t, c).err, hearWhole(t, c).err} {
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != provider.Rejected || e.Status != 400 {
			t.Errorf("%v", err)
		}
	}
}

// FuzzResponses: whatever comes, chunks and body are valid, and the end is told.
func FuzzResponses(f *testing.F) {
	f.Add([]byte(responsesSample))
	f.Add([]byte(strings.ReplaceAll(responsesSample, "\n", "\r\n")))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := served(func(context.Context) io.Reader { return bytes.NewReader(text) })
		if s := hearStream(t, c); s.err == nil {
			t.Errorf("no end: %+v", s)
		}
		hearWhole(t, c)
	})
}

// FuzzResponsesRequest: what goes out is JSON, whatever an app brings back.
func FuzzResponsesRequest(f *testing.F) {
	f.Add("text", `{"openai":{"reasoning":[{"type":"reasoning","encrypted_content":"g","summary":[]}]}}`,
		`{"type":"json_schema","json_schema":{"name":"n"}}`)
	f.Fuzz(func(t *testing.T, text, extra, format string) {
		r := toolRequest(true)
		r.Turns[0].Blocks[0].Text = text
		r.Turns = append(r.Turns,
			conversation.Turn{Role: "assistant", Blocks: []conversation.Block{
				{Kind: conversation.CallBlock, ID: text, Name: "f", Arguments: text, Extra: []byte(extra)},
			}})
		if json.Valid([]byte(format)) && strings.HasPrefix(format, "{") {
			r.ResponseFormat = []byte(format)
		}
		if got, err := encodeResponses(r); err == nil && !json.Valid(got) {
			t.Errorf("%s", got)
		}
	})
}

// TestResponsesThatCameInOnePiece: text and arguments that no part has brought are taken from the event that ends their
// item, or from the one that ends the response, and none is taken twice.
func TestResponsesThatCameInOnePiece(t *testing.T) {
	t.Parallel()
	const (
		message = `{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hé "},` +
			`{"type":"output_text","text":"😀"}]}`
		aCall = `{"id":"fc_1","type":"function_call","call_id":"call_1","name":"weather","arguments":"`
		call  = aCall + `{\"city\":\"Röme\"}"}`
		added = `data: {"type":"response.output_item.added","item":` + aCall + `"}}` + "\n\n"

		pieces  = `data: {"type":"response.output_text.delta","item_id":"msg_1","delta":"Hé 😀"}` + "\n\n"
		unnamed = `data: {"type":"response.output_text.delta","delta":"Hé 😀"}` + "\n\n"
		args    = `data: {"type":"response.function_call_arguments.delta","item_id":"fc_1",` +
			`"delta":"{\"city\":\"Röme\"}"}` + "\n\n"
		whole = `{"status":"completed","output":[{"id":"rs_1","type":"reasoning","summary":[]},` + message + `,` +
			call + `],"usage":` + responsesUsageSample + `}`
		end = `data: {"type":"response.completed","response":` + whole + "}\n\n"
	)
	done := func(item string) string {
		return `data: {"type":"response.output_item.done","item":` + item + "}\n\n"
	}
	for what, events := range map[string]string{
		"at the end of the items":    done(message) + done(call) + end,
		"the call was announced":     done(message) + added + done(call) + end,
		"at the end of the response": end,
		"the text in pieces":         pieces + done(message) + end,
		"pieces of no item":          unnamed + done(message) + added + end,
		"all in pieces":              pieces + done(message) + added + args + done(call) + end,
		"whole":                      whole,
	} {
		client := served(func(context.Context) io.Reader { return strings.NewReader(events) })
		if what == "whole" {
			client = serve(t, answers(200, whole, "Content-Type", "application/json"))
		}
		for how, s := range map[string]said{"streamed": hearStream(t, client), "whole": hearWhole(t, client)} {
			if s.content != "Hé 😀" || len(s.calls) != 1 || s.calls[0] != `call_1 weather {"city":"Röme"}` ||
				s.finish != "tool_calls" || s.usage == nil || *s.usage != responsesUsageWant ||
				!errors.Is(s.err, io.EOF) {
				t.Errorf("%s, %s: %+v", what, how, s)
			}
		}
	}
	for body, kind := range map[string]provider.Kind{
		`{"error":{"message":"too long","type":"invalid_request_error","code":"invalid_value"}}`: provider.Rejected,

		`{"object":"list"}`: provider.Failed,
		`nonsense`:          provider.Failed,
	} {
		client := serve(t, answers(200, body, "Content-Type", "application/json"))
		if e, ok := errors.AsType[*provider.Error](hearStream(t, client).err); !ok || e.Kind != kind {
			t.Errorf("%s: %+v", body, e)
		}
	}
}
