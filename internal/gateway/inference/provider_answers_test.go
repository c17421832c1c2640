package inference

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// This file writes the answers of the matrix of providers, in each dialect.

// A piece is a part of what a model generates.
type piece struct{ kind, text string }

const (
	reasoningPiece = "reasoning"
	textPiece      = "text"
	namePiece      = "name" // begins a tool call
	argumentsPiece = "arguments"
)

// generations are what models generate, by name. CANARY stands for a word of each answer.
var generations = map[string][]piece{
	"text": {
		{textPiece, "Größe CANARY "}, {textPiece, "世界 \"two\"\n"}, {textPiece, "three CANARY."},
	},
	"reasoning": {
		{reasoningPiece, "**I think** CANARY "}, {reasoningPiece, "and think,\n"}, {reasoningPiece, "so: "},
		{textPiece, "Yes, CANARY "}, {textPiece, "it is."},
	},
	"calls": {
		{textPiece, "Let me see. "},
		{namePiece, "weather"}, {argumentsPiece, `{"city":"Kö`}, {argumentsPiece, `ln CANARY"}`},
		{namePiece, "clock"}, {argumentsPiece, `{"zone":"CET"}`},
	},
}

// An answer is what a provider sends for a request.
type answer struct {
	events  []string          // of a stream, each whole
	spoken  strings.Builder   // what the client has of it: as it is counted
	lengths []int             // of that after so many events
	usage   []*provider.Usage // what the provider has reported for the response after so many events
	endedAt int               // events up to the first that says that the response is complete
	body    string            // instead of events, if it is asked for whole; "" = it is always asked for events
}

// add adds an event that gives the client some text.
func (a *answer) add(event, text string) {
	if len(a.usage) == 0 {
		a.lengths, a.usage = []int{0}, []*provider.Usage{nil}
	}
	a.spoken.WriteString(text)
	a.events, a.lengths = append(a.events, event), append(a.lengths, a.spoken.Len())
	a.usage = append(a.usage, a.usage[len(a.usage)-1])
}

// said returns what the client has after so many events.
func (a *answer) said(events int) string { return a.spoken.String()[:a.lengths[events]] }

// end notes that the response is complete with the last event.
func (a *answer) end() {
	if a.endedAt == 0 {
		a.endedAt = len(a.events)
	}
}

// report notes that the last event has the usage of the response.
func (a *answer) report(u *provider.Usage) { a.usage[len(a.usage)-1] = u }

// text returns all that the client has of a complete answer.
func (a *answer) text() string { return a.said(len(a.lengths) - 1) }

// What a provider reports of its usage.
const (
	lateUsage = "late" // at the end, as the provider itself does
	eachUsage = "each" // with each event too, or before the answer
	noUsage   = "none"
	lieUsage  = "lie" // more than the request can have cost
)

var usageModes = []string{lateUsage, eachUsage, noUsage, lieUsage}

// trueUsage differs from what Purser counts, so that a test sees which of them is charged.
var trueUsage = provider.Usage{Input: 40, Cached: 5, Output: 77, Reasoning: 11}

// vectorInput is what is reported of an embedding. It has no output, so that the hold is for the input alone.
const vectorInput = 9

// lies are usages that no request of the matrix can have cost.
var lies = []provider.Usage{
	{Input: 900_000, Output: 20},
	{Input: 10, Cached: 800_000, Output: 20},
	{Input: 10, Output: 900_000},
}

// vectorLies are those of an embedding, which reports no output.
var vectorLies = lies[:2]

// A dialect is an API of a provider.
type dialect struct {
	name, provider, model string
	usageOf               func(u provider.Usage, output int64) string // the JSON of a usage with so much output
	write                 func(d *dialect, pieces []piece, shows bool, mode string, u *provider.Usage) *answer
}

var dialects = []*dialect{
	{"chat", "openai", testModel, chatUsage, writeChat},
	{"responses", "openai", "gpt-6.2-sol", responsesUsage, writeResponses},
	{"anthropic", "anthropic", "claude-haiku-5-5", anthropicUsage, writeAnthropic},
	{"google", "google", "gemini-3.8-flash", googleUsage, writeGoogle},
}

// quote returns a JSON string.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func chatUsage(u provider.Usage, output int64) string {
	in := u.Input + u.Cached
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":`+
		`{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
		in, output, in+output, u.Cached, min(u.Reasoning, output))
}

// writeChat writes OpenAI's Chat Completions. Compatible servers send reasoning_content.
func writeChat(d *dialect, pieces []piece, _ bool, mode string, u *provider.Usage) *answer {
	a := &answer{}
	output := int64(0)
	chunk := func(delta, finish, said string) {
		usage := ""
		if output += 9; mode == eachUsage {
			usage = `,"usage":` + d.usageOf(*u, min(output, u.Output))
		}
		a.add(fmt.Sprintf(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m",`+
			`"choices":[{"index":0,"delta":%s,"finish_reason":%s}]%s}`+"\n\n", delta, finish, usage), said)
	}
	if mode == eachUsage {
		a.add(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":`+
			d.usageOf(*u, 0)+"}\n\n", "")
	}
	chunk(`{"role":"assistant","content":""}`, "null", "")
	call, finish := -1, `"stop"`
	for _, p := range pieces {
		switch p.kind {
		case reasoningPiece:
			chunk(`{"reasoning_content":`+quote(p.text)+`}`, "null", p.text)
		case textPiece:
			chunk(`{"content":`+quote(p.text)+`}`, "null", p.text)
		case namePiece:
			call, finish = call+1, `"tool_calls"`
			chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"call_%d","type":"function","function":{"name":%q,`+
				`"arguments":""}}]}`, call, call, p.text), "null", p.text)
		case argumentsPiece:
			chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, call, quote(p.text)), "null",
				p.text)
		}
	}
	output = u.Output
	chunk("{}", finish, "")
	a.end()
	if mode == eachUsage {
		a.report(u)
	}
	usage := `null`
	if mode != noUsage {
		usage = d.usageOf(*u, u.Output)
		a.add(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":7,"model":"m","choices":[],"usage":`+
			usage+"}\n\n", "")
		a.report(u)
	}
	a.add("data: [DONE]\n\n", "")
	a.body = fmt.Sprintf(`{"id":"chatcmpl-9","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,`+
		`"message":%s,"finish_reason":%s}],"usage":%s}`, chatMessage(pieces), finish, usage)
	return a
}

// chatMessage returns the message of a whole completion.
func chatMessage(pieces []piece) string {
	var text, reasoning string
	var calls []string
	for i, p := range pieces {
		switch p.kind {
		case reasoningPiece:
			reasoning += p.text
		case textPiece:
			text += p.text
		case namePiece:
			calls = append(calls, fmt.Sprintf(`{"id":"call_%d","type":"function","function":{"name":%q,`+
				`"arguments":%s}}`, i, p.text, quote(argumentsAfter(pieces[i+1:]))))
		}
	}
	m := `{"role":"assistant","content":` + quote(text)
	if reasoning != "" {
		m += `,"reasoning_content":` + quote(reasoning)
	}
	if len(calls) > 0 {
		m += `,"tool_calls":[` + strings.Join(calls, ",") + `]`
	}
	return m + `}`
}

// argumentsAfter returns the arguments of a call whose name came before the pieces.
func argumentsAfter(pieces []piece) (arguments string) {
	for _, p := range pieces {
		if p.kind != argumentsPiece {
			break
		}
		arguments += p.text
	}
	return arguments
}

func responsesUsage(u provider.Usage, output int64) string {
	in := u.Input + u.Cached
	return fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,`+
		`"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`, in, u.Cached, output,
		min(u.Reasoning, output), in+output)
}

// writeResponses writes OpenAI's Responses. They are always asked for as a stream.
func writeResponses(d *dialect, pieces []piece, shows bool, mode string, u *provider.Usage) *answer {
	a := &answer{}
	add := func(said, format string, args ...any) {
		a.add("data: "+fmt.Sprintf(format, args...)+"\n\n", said)
	}
	add("", `{"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}`)
	if mode == eachUsage {
		add("", `{"type":"response.in_progress","response":{"id":"resp_1","usage":%s}}`, d.usageOf(*u, 1))
	}
	n, open, item := -1, "", ""
	closeItem := func() {
		switch open {
		case reasoningPiece:
			add("", `{"type":"response.output_item.done","item":{"id":%q,"type":"reasoning","summary":[],`+
				`"encrypted_content":"gAAA"}}`, item)
		case textPiece:
			add("", `{"type":"response.output_item.done","item":{"id":%q,"type":"message"}}`, item)
		}
		open = ""
	}
	for i, p := range pieces {
		if p.kind == namePiece || p.kind != argumentsPiece && p.kind != open {
			closeItem()
			n, open = n+1, p.kind
			item = fmt.Sprintf("item_%d", n)
			kind := map[string]string{
				reasoningPiece: `"type":"reasoning","summary":[]`,
				textPiece:      `"type":"message","content":[]`,
				namePiece: fmt.Sprintf(`"type":"function_call","call_id":"call_%d","name":%q,"arguments":""`, i,
					p.text),
			}[p.kind]
			add(map[bool]string{true: p.text}[p.kind == namePiece],
				`{"type":"response.output_item.added","output_index":%d,"item":{"id":%q,%s}}`, n, item, kind)
		}
		switch p.kind {
		case reasoningPiece:
			add(map[bool]string{true: p.text}[shows],
				`{"type":"response.reasoning_summary_text.delta","item_id":%q,"summary_index":0,"delta":%s}`, item,
				quote(p.text))
		case textPiece:
			add(p.text, `{"type":"response.output_text.delta","item_id":%q,"delta":%s}`, item, quote(p.text))
		case argumentsPiece:
			add(p.text, `{"type":"response.function_call_arguments.delta","item_id":%q,"delta":%s}`, item,
				quote(p.text))
		}
	}
	closeItem()
	usage := `null`
	if mode != noUsage {
		usage = d.usageOf(*u, u.Output)
	}
	add("", `{"type":"response.completed","response":{"status":"completed","usage":%s}}`, usage)
	a.end()
	if mode != noUsage {
		a.report(u)
	}
	return a
}

func anthropicUsage(u provider.Usage, output int64) string {
	return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,`+
		`"output_tokens":%d,"output_tokens_details":{"thinking_tokens":%d}}`, u.Input, u.Cached, output,
		min(u.Reasoning, output))
}

// writeAnthropic writes Anthropic's Messages. They are always asked for as a stream.
func writeAnthropic(d *dialect, pieces []piece, shows bool, mode string, u *provider.Usage) *answer {
	a := &answer{}
	add := func(kind, said, format string, args ...any) {
		a.add(fmt.Sprintf("event: %s\ndata: {\"type\":%q", kind, kind)+fmt.Sprintf(format, args...)+"}\n\n", said)
	}
	usage := func(output int64) string {
		if mode == noUsage {
			return ""
		}
		return `,"usage":` + d.usageOf(*u, output)
	}
	add("message_start", "", `,"message":{"id":"msg_01","type":"message","role":"assistant","model":"m","content":[],`+
		`"stop_reason":null%s}`, usage(1))
	n, open, reason := -1, "", "end_turn"
	closeBlock := func() {
		if open == reasoningPiece {
			add("content_block_delta", "", `,"index":%d,"delta":{"type":"signature_delta","signature":"EqQB"}`, n)
		}
		if open != "" {
			add("content_block_stop", "", `,"index":%d`, n)
		}
		open = ""
	}
	for i, p := range pieces {
		if p.kind == namePiece || p.kind != argumentsPiece && p.kind != open {
			closeBlock()
			n, open = n+1, p.kind
			block := map[string]string{
				reasoningPiece: `"type":"thinking","thinking":"","signature":""`,
				textPiece:      `"type":"text","text":""`,
				namePiece:      fmt.Sprintf(`"type":"tool_use","id":"toolu_%d","name":%q,"input":{}`, i, p.text),
			}[p.kind]
			add("content_block_start", map[bool]string{true: p.text}[p.kind == namePiece],
				`,"index":%d,"content_block":{%s}`, n, block)
		}
		switch p.kind {
		case reasoningPiece:
			add("content_block_delta", map[bool]string{true: p.text}[shows],
				`,"index":%d,"delta":{"type":"thinking_delta","thinking":%s}`, n, quote(p.text))
		case textPiece:
			add("content_block_delta", p.text, `,"index":%d,"delta":{"type":"text_delta","text":%s}`, n, quote(p.text))
		case argumentsPiece:
			reason = "tool_use"
			add("content_block_delta", p.text, `,"index":%d,"delta":{"type":"input_json_delta","partial_json":%s}`, n,
				quote(p.text))
		}
		if mode == eachUsage {
			add("message_delta", "", `,"delta":{}%s`, usage(int64(i+1)))
		}
	}
	closeBlock()
	add("message_delta", "", `,"delta":{"stop_reason":%q,"stop_sequence":null}%s`, reason, usage(u.Output))
	a.end()
	if mode != noUsage {
		a.report(u)
	}
	add("message_stop", "", "")
	return a
}

func googleUsage(u provider.Usage, output int64) string {
	in, thoughts := u.Input+u.Cached, min(u.Reasoning, output)
	return fmt.Sprintf(`{"promptTokenCount":%d,"cachedContentTokenCount":%d,"candidatesTokenCount":%d,`+
		`"thoughtsTokenCount":%d,"totalTokenCount":%d}`, in, u.Cached, output-thoughts, thoughts, in+output)
}

// writeGoogle writes Google's generateContent. The end of the body ends its streams.
func writeGoogle(d *dialect, pieces []piece, shows bool, mode string, u *provider.Usage) *answer {
	a := &answer{}
	var parts []string
	add := func(part, rest, said string) {
		usage := ""
		if mode == eachUsage {
			usage = `,"usageMetadata":` + d.usageOf(*u, min(u.Output, int64(len(a.events)+1)))
			if rest != "" {
				usage = `,"usageMetadata":` + d.usageOf(*u, u.Output)
			}
		}
		if part != "" {
			parts = append(parts, part)
		}
		a.add(fmt.Sprintf(`data: {"candidates":[{"content":{"parts":[%s],"role":"model"},"index":0%s}],"modelVersion":`+
			`"m","responseId":"r1"%s}`+"\r\n\r\n", part, rest, usage), said)
	}
	for i, p := range pieces {
		switch p.kind {
		case reasoningPiece:
			add(`{"text":`+quote(p.text)+`,"thought":true}`, "", map[bool]string{true: p.text}[shows])
		case textPiece:
			add(`{"text":`+quote(p.text)+`}`, "", p.text)
		case namePiece: // calls come whole
			arguments := argumentsAfter(pieces[i+1:])
			add(fmt.Sprintf(`{"functionCall":{"name":%q,"args":%s}}`, p.text, arguments), "", p.text+arguments)
		}
	}
	const stop = `,"finishReason":"STOP"`
	add("", stop, "")
	a.end()
	usage := ""
	switch mode {
	case eachUsage:
		a.report(u)
		fallthrough
	case lateUsage, lieUsage:
		usage = `,"usageMetadata":` + d.usageOf(*u, u.Output)
		a.add(`data: {"modelVersion":"m","responseId":"r1"`+usage+"}\r\n\r\n", "")
		a.report(u)
	}
	a.body = fmt.Sprintf(`{"candidates":[{"content":{"parts":[%s],"role":"model"},"index":0%s}],"modelVersion":"m",`+
		`"responseId":"r1"%s}`, strings.Join(parts, ","), stop, usage)
	return a
}

// writeVector writes an embedding of one input.
func writeVector(d *dialect, mode string, u *provider.Usage) *answer {
	in := u.Input + u.Cached
	vector := strings.Repeat(",0.5", 3072)[1:]
	usage := ""
	a := &answer{lengths: []int{0}, usage: []*provider.Usage{nil}}
	if d.provider == "google" {
		if mode != noUsage {
			usage = fmt.Sprintf(`,"usageMetadata":{"promptTokenCount":%d}`, in)
		}
		a.body = `{"embeddings":[{"values":[` + vector + `]}]` + usage + `}`
		return a
	}
	if mode != noUsage {
		usage = fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"total_tokens":%d}`, in, in)
	}
	a.body = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[` + vector + `]}],"model":"m"` +
		usage + `}`
	return a
}
