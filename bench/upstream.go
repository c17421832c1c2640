package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The fake upstream speaks OpenAI's Chat Completions, and the streams of OpenAI's Responses API, of Anthropic
// and of Google: one canned answer, whole or as a stream of one token group a chunk, without any time
// to think, so that what is measured is the gateway in front of it.

// pieces is the answer as the provider streams it; together they are the whole.
var pieces = []string{
	"Three", " threads need", " you today.", " First,", " the supplier", " asks whether", " the second", " pallet may",
	" arrive on",
	" Friday instead", " of Wednesday;", " a yes", " by noon", " is enough.", " Second,", " the contract", " came back",
	" with one",
	" changed clause", " on page four.", " Third,", " lunch on", " Thursday", " moved to", " one o'clock.",
}

const (
	promptTokens     = 118
	completionTokens = 61
	usageJSON        = `{"prompt_tokens":118,"completion_tokens":61,"total_tokens":179,` +
		`"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,` +
		`"rejected_prediction_tokens":0}}`
)

// deltaChunks is how many chunks of a streamed answer carry a delta: the role,
// the pieces, and the finish reason.
var deltaChunks = len(pieces) + 2

// runUpstreamRole is the role that serves the fake provider.
func runUpstreamRole([]string) error {
	debug.SetGCPercent(400) // its garbage is not what is measured
	return serveRole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; { // by a gateway that translates, or by the floor
		case path == "/v1/messages" || strings.Contains(path, models["anthropic"]):
			answerForeign(w, r, anthropicStream)
		case strings.Contains(path, models["google"]):
			answerForeign(w, r, googleStream)
		case path == "/v1/responses":
			answerForeign(w, r, responsesStream)
		default:
			answerChat(w, r)
		}
	}))
}

var answers atomic.Int64

func answerChat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n := answers.Add(1)
	h := w.Header()
	h.Set("X-Request-Id", "req_bench_"+strconv.FormatInt(n, 36))
	h.Set("Openai-Processing-Ms", "0")
	h.Set("Openai-Version", "2020-10-01")
	h.Set("X-Ratelimit-Remaining-Requests", "29999")
	head := fmt.Appendf(nil, `{"id":"chatcmpl-B%027d","object":"chat.completion`, n)
	if bytes.Contains(body, []byte(`"stream":true`)) {
		answerStream(w, head)
		return
	}
	out := fmt.Appendf(head,
		`","created":%d,"model":"`+model+
			`-2026-03-05","choices":[{"index":0,"message":{"role":"assistant","content":"%s","refusal":null,`+
			`"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":%s,"service_tier":"default",`+
			`"system_fingerprint":"fp_bench00001"}`,
		time.Now().Unix(), wholeText, usageJSON)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(out)))
	w.Write(out)
}

var wholeText = string(bytes.Join(func() (b [][]byte) {
	for _, p := range pieces {
		b = append(b, []byte(p))
	}
	return b
}(), nil))

// answerStream flushes after every chunk, as a provider does.
func answerStream(w http.ResponseWriter, head []byte) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	head = fmt.Appendf(head,
		`.chunk","created":%d,"model":"`+model+
			`-2026-03-05","service_tier":"default","system_fingerprint":"fp_bench00001",`, time.Now().Unix())
	var chunk []byte
	send := func(format string, a ...any) {
		chunk = append(append(chunk[:0], "data: "...), head...)
		chunk = append(fmt.Appendf(chunk, format, a...), "}\n\n"...)
		w.Write(chunk)
		out.Flush() // an error means that the client has gone: the next write says so too
	}
	const choice = `"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}],"usage":null`
	send(choice, `{"role":"assistant","content":"","refusal":null}`, "null")
	for _, p := range pieces {
		send(choice, `{"content":"`+p+`"}`, "null")
	}
	send(choice, "{}", `"stop"`)
	send(`"choices":[],"usage":%s`, usageJSON)
	io.WriteString(w, "data: [DONE]\n\n")
}

// answerForeign sends a stream of another dialect, and flushes after every event.
func answerForeign(w http.ResponseWriter, r *http.Request, events [][]byte) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	for _, e := range events {
		w.Write(e)
		out.Flush() // an error means that the client has gone: the next write says so too
	}
}

// anthropicStream is the same answer in Anthropic's events.
var anthropicStream = func() (list [][]byte) {
	event := func(name, rest string) {
		list = append(list, fmt.Appendf(nil, "event: %s\ndata: {\"type\":\"%s\"%s}\n\n", name, name, rest))
	}
	event("message_start",
		`,"message":{"id":"msg_bench","type":"message","role":"assistant","model":"`+models["anthropic"]+
			`","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":118,`+
			`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}`)
	event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	for _, p := range pieces {
		event("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"`+p+`"}`)
	}
	event("content_block_stop", `,"index":0`)
	event("message_delta",
		`,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":118,`+
			`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":61}`)
	event("message_stop", "")
	return list
}()

// responsesStream is the same answer in the events of OpenAI's Responses API.
var responsesStream = func() (list [][]byte) {
	event := func(name, rest string) {
		list = append(list, fmt.Appendf(nil, "event: %s\ndata: {\"type\":\"%s\"%s}\n\n", name, name, rest))
	}
	item := func(content string) string {
		return `,"output_index":0,"item":{"type":"message","id":"msg_bench","role":"assistant","content":[` +
			content + `]}`
	}
	const head = `,"response":{"id":"resp_bench","object":"response","model":"` + model + `","output":[],"status":`
	event("response.created", head+`"in_progress"}`)
	event("response.output_item.added", item(""))
	for _, p := range pieces {
		event("response.output_text.delta", `,"item_id":"msg_bench","output_index":0,"content_index":0,"delta":"`+p+`"`)
	}
	event("response.output_item.done", item(`{"type":"output_text","text":"`+wholeText+`"}`))
	event("response.completed", head+`"completed","usage":{"input_tokens":118,`+
		`"input_tokens_details":{"cached_tokens":0},"output_tokens":61,`+
		`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":179}}`)
	return list
}()

// googleStream is the same answer in Google's events.
var googleStream = func() (list [][]byte) {
	for i, p := range pieces {
		end, output := "", i+1
		if i == len(pieces)-1 {
			end, output = `,"finishReason":"STOP"`, completionTokens
		}
		list = append(list,
			fmt.Appendf(nil,
				`data: {"candidates":[{"content":{"parts":[{"text":"%s"}],"role":"model"}%s,"index":0}],`+
					`"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d,`+
					`"promptTokensDetails":[{"modality":"TEXT","tokenCount":%d}]},"modelVersion":"%s",`+
					`"responseId":"bench"}`+"\r\n\r\n",
				p, end, promptTokens, output, promptTokens+output, promptTokens, models["google"]))
	}
	return list
}()
