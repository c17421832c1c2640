package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The shape of a slow stream. The streams of a measurement begin spread over slowSpread, so that their chunks are too.
const (
	slowChunks = 100
	slowEvery  = 50 * time.Millisecond
	slowLength = slowChunks * slowEvery
	slowSpread = slowLength / 2
	warmChunks = 2
)

// warmWord in a prompt asks for a stream of warmChunks chunks.
const warmWord = "warm-up"

// Each chunk's text is a stamp: stampMark and the planned time of sending in microseconds.
const (
	stampMark   = '@'
	stampDigits = 16
)

// runSlowRole is the role of a provider whose streams are slow. Its argument is how many chunks a stream has;
// slowChunks without one.
func runSlowRole(args []string) error {
	debug.SetGCPercent(400)
	chunks := slowChunks
	if len(args) > 0 {
		var err error
		if chunks, err = strconv.Atoi(args[0]); err != nil {
			return err
		}
	}
	return serveRole(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerSlowly(w, r, chunks, slowEvery)
	}))
}

// answerSlowly streams an answer in the dialect of the request's path, a chunk each interval.
func answerSlowly(w http.ResponseWriter, r *http.Request, chunks int, every time.Duration) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if bytes.Contains(body, []byte(warmWord)) {
		chunks = warmChunks
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	before, event, after := slowDialect(r.URL.Path)
	for _, e := range before {
		w.Write(e)
	}
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var buf []byte
	for i := range chunks {
		planned := start.Add(time.Duration(i) * every)
		timer.Reset(time.Until(planned))
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		buf = fmt.Appendf(buf[:0], event, fmt.Sprintf("%c%d ", stampMark, planned.UnixMicro()))
		w.Write(buf)
		out.Flush() // an error means that the client has gone: the context says so too
	}
	for _, e := range after {
		w.Write(e)
	}
}

// slowDialect returns the events before the text, the format of one with text, and the events after it.
func slowDialect(path string) (before [][]byte, event string, after [][]byte) {
	switch {
	case path == "/v1/messages" || strings.Contains(path, models["anthropic"]):
		last := len(anthropicStream)
		return anthropicStream[:2], "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0," +
			"\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n", anthropicStream[last-3:]
	case strings.Contains(path, models["google"]):
		return nil, `data: {"candidates":[{"content":{"parts":[{"text":"%s"}],"role":"model"},"index":0}],` +
				`"usageMetadata":{"promptTokenCount":118,"candidatesTokenCount":61,"totalTokenCount":179},` +
				`"modelVersion":"` + models["google"] + `","responseId":"bench"}` + "\r\n\r\n",
			googleStream[len(googleStream)-1:]
	}
	head := `data: {"id":"chatcmpl-B000000000000000000000000001","object":"chat.completion.chunk",` +
		`"created":1763900000,"model":"` + model + `-2026-03-05","service_tier":"default",` +
		`"system_fingerprint":"fp_bench00001",`
	choice := head + `"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}],"usage":null}` + "\n\n"
	return [][]byte{fmt.Appendf(nil, choice, `{"role":"assistant","content":"","refusal":null}`, "null")},
		fmt.Sprintf(choice, `{"content":"%s"}`, "null"),
		[][]byte{fmt.Appendf(nil, choice, "{}", `"stop"`),
			[]byte(head + `"choices":[],"usage":` + usageJSON + "}\n\ndata: [DONE]\n\n")}
}

// slowSpec is one measurement of slow streams, one of each client.
type slowSpec struct {
	URL     string        `json:"url"`
	Tokens  []string      `json:"tokens"`
	Cell    string        `json:"cell"`
	Billed  bool          `json:"billed"`
	Clients int           `json:"clients"`
	Chunks  int           `json:"chunks"`
	Spread  time.Duration `json:"spread"`
	Warm    bool          `json:"warm"`
}

// slowResult is what the clients found. Times are microseconds.
type slowResult struct {
	Answered   int64  `json:"answered"`
	Warm       int64  `json:"warm"` // answered before, to warm up
	Lags       int64  `json:"lags"`
	P50US      int64  `json:"lag_p50_us"`
	P99US      int64  `json:"lag_p99_us"`
	FirstP50US int64  `json:"first_chunk_p50_us"` // since the request
	Failed     int64  `json:"failed"`             // not answered, cut, or wrong
	FirstFault string `json:"first_fault,omitempty"`
}

func (r slowResult) faults() int64 { return r.Failed }

// A slowClient makes one stream.
type slowClient struct {
	lags  []int64
	at    []int64 // arrival of each
	first int64
	err   error
}

func (s slowSpec) runClients() (slowResult, error) {
	target, err := url.Parse(s.URL + "/v1/ai/" + models[s.Cell])
	if err != nil {
		return slowResult{}, err
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true, ReadBufferSize: 2 << 10}
	clients := make([]slowClient, s.Clients)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			time.Sleep(time.Until(begin.Add(s.Spread * time.Duration(i) / time.Duration(s.Clients))))
			c := &clients[i]
			c.err = c.stream(s, transport, target, rand.New(rand.NewPCG(uint64(i), uint64(begin.UnixNano()))))
		})
	}
	wg.Wait()
	from, until := begin.Add(s.Spread).UnixMicro(), begin.Add(slowLength).UnixMicro() // all streams run
	var r slowResult
	var all, first []int64
	for i := range clients {
		c := &clients[i]
		if c.err != nil {
			r.Failed++
			if r.FirstFault == "" {
				r.FirstFault = c.err.Error()
			}
			continue
		}
		r.Answered++
		first = append(first, c.first)
		for i, at := range c.at {
			if at >= from && at < until {
				all = append(all, c.lags[i])
			}
		}
	}
	r.Lags = int64(len(all))
	r.P50US, r.P99US, r.FirstP50US = percentile(all, 50), percentile(all, 99), percentile(first, 50)
	return r, nil
}

// stream makes one call, and reads the stamps of its chunks as they arrive.
func (c *slowClient) stream(s slowSpec, transport http.RoundTripper, target *url.URL, rng *rand.Rand) error {
	start := time.Now()
	resp, err := transport.RoundTrip(s.newRequest(target, s.Tokens, rng))
	if err != nil {
		return err
	}
	return c.readStream(s, resp, start)
}

// newRequest returns a call with a prompt that no other call has.
func (s slowSpec) newRequest(target *url.URL, tokens []string, rng *rand.Rand) *http.Request {
	prompter := client{loadSpec: loadSpec{Cell: s.Cell}, rng: rng}
	body := bytes.Replace(prompter.newPrompt(), []byte(`"max_tokens":200`), []byte(`"max_tokens":2000`), 1)
	if s.Warm {
		body = bytes.Replace(body, []byte(`"user","content":"`), []byte(`"user","content":"`+warmWord+" "), 1)
	}
	return newCall(target, tokens, rng, body)
}

// readStream reads the stream of a call that was made at start, checks that it is whole, and closes it.
func (c *slowClient) readStream(s slowSpec, resp *http.Response, start time.Time) error {
	defer resp.Body.Close()
	c.lags, c.at = make([]int64, 0, s.Chunks), make([]int64, 0, s.Chunks)
	tail, err := c.readStamps(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w after %d chunks", errTruncated, err, len(c.lags))
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %.200s", resp.StatusCode, tail)
	case len(c.lags) != s.Chunks:
		return fmt.Errorf("%w: %d of %d chunks, ends with %.300q", errTruncated, len(c.lags), s.Chunks, tail)
	case s.Billed && !bytes.Contains(tail, []byte(`"settled"`)):
		return fmt.Errorf("%w: not settled, ends with %.600q", errWrong, tail)
	}
	c.first = c.at[0] - start.UnixMicro()
	return nil
}

// readStamps reads to the end, and returns what follows the last stamp.
func (c *slowClient) readStamps(in io.Reader) ([]byte, error) {
	buf := make([]byte, 0, 4<<10)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := in.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		now := time.Now().UnixMicro()
		for {
			i := bytes.IndexByte(buf, stampMark)
			if i < 0 || len(buf) < i+1+stampDigits {
				break
			}
			planned, err := strconv.ParseInt(string(buf[i+1:i+1+stampDigits]), 10, 64)
			if err != nil {
				return buf, err
			}
			c.lags, c.at = append(c.lags, now-planned), append(c.at, now)
			buf = buf[:copy(buf, buf[i+1+stampDigits:])]
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		} else if err != nil {
			return buf, err
		}
	}
}
