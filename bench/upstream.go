package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"
)

// The fake upstream speaks OpenAI's Chat Completions: one canned answer, whole or
// as a stream of one token group a chunk, without any time to think, so that what
// is measured is the gateway in front of it.

// pieces is the answer as the provider streams it; together they are the whole.
var pieces = []string{
	"Three", " threads need", " you today.", " First,", " the supplier", " asks whether", " the second", " pallet may", " arrive on",
	" Friday instead", " of Wednesday;", " a yes", " by noon", " is enough.", " Second,", " the contract", " came back", " with one",
	" changed clause", " on page four.", " Third,", " lunch on", " Thursday", " moved to", " one o'clock.",
}

const (
	promptTokens     = 118
	completionTokens = 61
	usageJSON        = `{"prompt_tokens":118,"completion_tokens":61,"total_tokens":179,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`
)

// deltaChunks is how many chunks of a streamed answer carry a delta: the role,
// the pieces, and the finish reason.
var deltaChunks = len(pieces) + 2

// upstream is the role that serves the fake provider.
func upstream([]string) error {
	debug.SetGCPercent(400) // its garbage is not what is measured
	return serveRole(http.HandlerFunc(answerChat))
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
	out := fmt.Appendf(head, `","created":%d,"model":"`+model+`-2026-03-05","choices":[{"index":0,"message":{"role":"assistant","content":"%s","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":%s,"service_tier":"default","system_fingerprint":"fp_bench00001"}`,
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
	head = fmt.Appendf(head, `.chunk","created":%d,"model":"`+model+`-2026-03-05","service_tier":"default","system_fingerprint":"fp_bench00001",`, time.Now().Unix())
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
