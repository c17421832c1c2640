package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// loadSpec is one measurement of a gateway by clients in parallel.
type loadSpec struct {
	URL      string        `json:"url"`
	Tokens   []string      `json:"tokens"` // one access token a connection
	Clients  int           `json:"clients"`
	Cell     string        `json:"cell"`
	Billed   bool          `json:"billed"` // every answer must carry its charge
	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
}

// loadResult is the result of one measurement. Times are microseconds. The figures count
// the calls that ended inside the measured time; Answered and the errors count the whole
// run with the warm-up.
type loadResult struct {
	Calls       int64   `json:"calls"`
	PerSecond   float64 `json:"calls_per_s"`
	P50US       int64   `json:"p50_us"`
	P99US       int64   `json:"p99_us"`
	FirstP50US  int64   `json:"first_byte_p50_us"`
	Answered    int64   `json:"answered"`
	Failed      int64   `json:"failed"`    // no answer, or not 200
	Truncated   int64   `json:"truncated"` // the answer ended before its end
	Wrong       int64   `json:"wrong"`     // complete, but not the upstream's answer
	FirstFault  string  `json:"first_fault,omitempty"`
	GeneratorUS float64 `json:"generator_cpu_us_per_call"`
}

func (r loadResult) faults() int64 { return r.Failed + r.Truncated + r.Wrong }

// measureLoad runs the load generator in a new process.
func measureLoad(ctx context.Context, s loadSpec) (loadResult, error) {
	return askRole[loadResult](ctx, "load", s)
}

func (s loadSpec) runClients() (loadResult, error) {
	path := "/v1/ai/" + models[s.Cell]
	if shape, ok := shapes[s.Cell]; ok && s.Billed {
		path = shape.path
	}
	target, err := url.Parse(s.URL + path)
	if err != nil {
		return loadResult{}, err
	}
	from := time.Now().Add(s.Warmup)
	until := from.Add(s.Duration)
	clients := make([]*client, s.Clients)
	var wg sync.WaitGroup
	for i := range clients {
		c := &client{
			loadSpec:  s,
			url:       target,
			rng:       rand.New(rand.NewPCG(uint64(i), uint64(from.UnixNano()))),
			transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1},
		}
		clients[i] = c
		wg.Go(func() { c.callUntil(from, until) })
	}
	wg.Wait()
	return s.sumClients(clients), nil
}

func (s loadSpec) sumClients(clients []*client) loadResult {
	var r loadResult
	var all, first []int64
	for _, c := range clients {
		all, first = append(all, c.latencies...), append(first, c.firsts...)
		r.Answered += c.answered
		r.Failed += c.failed
		r.Truncated += c.truncated
		r.Wrong += c.wrong
		if r.FirstFault == "" {
			r.FirstFault = c.fault
		}
	}
	r.Calls = int64(len(all))
	r.PerSecond = float64(r.Calls) / s.Duration.Seconds()
	r.P50US, r.P99US, r.FirstP50US = percentile(all, 50), percentile(all, 99), percentile(first, 50)
	if r.Answered > 0 {
		r.GeneratorUS = float64(ownCPU().Microseconds()) / float64(r.Answered)
	}
	return r
}

// percentile sorts list and returns its p-th percentile; 0 of nothing.
func percentile(list []int64, p int) int64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)*p/100]
}

// A client makes one call after another over one kept-alive connection.
type client struct {
	loadSpec
	url       *url.URL
	rng       *rand.Rand
	transport *http.Transport
	answer    []byte
	first     time.Time // first byte of the current answer

	latencies, firsts                  []int64
	answered, failed, truncated, wrong int64
	fault                              string
}

// callUntil calls until a time, and at least once: on a busy machine the time may have come before the first call.
func (c *client) callUntil(from, until time.Time) {
	for n := 0; ; n++ {
		start := time.Now()
		if n > 0 && start.After(until) {
			return
		}
		err := c.makeCall(n)
		end := time.Now()
		if err != nil {
			c.countFault(err)
			continue
		}
		c.answered++
		if end.After(from) && end.Before(until) {
			c.latencies = append(c.latencies, end.Sub(start).Microseconds())
			c.firsts = append(c.firsts, c.first.Sub(start).Microseconds())
		}
	}
}

// The faults of a call that was answered.
var (
	errTruncated = errors.New("truncated")
	errWrong     = errors.New("wrong answer")
)

func (c *client) countFault(err error) {
	switch {
	case errors.Is(err, errTruncated):
		c.truncated++
	case errors.Is(err, errWrong):
		c.wrong++
	default:
		c.failed++
	}
	if c.fault == "" {
		c.fault = err.Error()
	}
	time.Sleep(10 * time.Millisecond) // do not flood a broken gateway
}

// makeCall makes one call and checks its answer.
func (c *client) makeCall(n int) error {
	shape, shaped := shapes[c.Cell]
	var body []byte
	if shaped = shaped && c.Billed; shaped {
		body = shape.body(c)
	} else {
		body = c.newPrompt()
	}
	resp, err := c.transport.RoundTrip(newCall(c.url, c.Tokens, c.rng, body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := c.readAnswer(resp.Body); err != nil {
		return fmt.Errorf("%w: %w after %d bytes", errTruncated, err, len(c.answer))
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %.200s", resp.StatusCode, c.answer)
	}
	switch {
	case c.Cell == "plain":
		return c.checkWhole(n)
	case shaped:
		return c.checkShape(shape)
	case !c.Billed && (c.Cell == "anthropic" || c.Cell == "google"):
		return c.checkForeign()
	}
	return c.checkStream()
}

// newCall returns a call by one of the connections, with a key that no other call has.
func newCall(target *url.URL, tokens []string, rng *rand.Rand, body []byte) *http.Request {
	return &http.Request{
		Method: http.MethodPost, URL: target, Host: target.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Authorization":   {"Bearer " + tokens[rng.IntN(len(tokens))]},
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {newUUID(rng)},
			"X-Svc-Feature":   {feature},
		},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// readAnswer reads the whole answer and the time of its first byte.
func (c *client) readAnswer(body io.Reader) error {
	c.answer, c.first = c.answer[:0], time.Time{}
	for {
		if len(c.answer) == cap(c.answer) {
			c.answer = slices.Grow(c.answer, 16<<10)
		}
		n, err := body.Read(c.answer[len(c.answer):cap(c.answer)])
		c.answer = c.answer[:len(c.answer)+n]
		if n > 0 && c.first.IsZero() {
			c.first = time.Now()
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (c *client) checkWhole(n int) error {
	a := bytes.TrimSpace(c.answer)
	switch {
	case !bytes.HasSuffix(a, []byte("}")):
		return fmt.Errorf("%w: ends with %.80q", errTruncated, a[max(0, len(a)-80):])
	case !bytes.Contains(a, []byte(wholeText)), !bytes.Contains(a, []byte(`"usage":`)),
		c.Billed && !bytes.Contains(a, []byte(`"user_charge_mc":`)),
		n%64 == 0 && !json.Valid(a): // too expensive for every answer
		return fmt.Errorf("%w: %.300q", errWrong, a)
	}
	return nil
}

func (c *client) checkStream() error {
	a := c.answer
	switch n := bytes.Count(a, []byte(`"delta":{`)); {
	case !bytes.HasSuffix(a, []byte("data: [DONE]\n\n")), n < deltaChunks:
		return fmt.Errorf("%w: %d of %d chunks, ends with %.80q", errTruncated, n, deltaChunks, a[max(0, len(a)-80):])
	case n > deltaChunks,
		c.Billed && (!bytes.Contains(a, []byte(`"svc_final":`)) || !bytes.Contains(a, []byte(`"settled"`))):
		return fmt.Errorf("%w: %d of %d chunks, ends with %.600q", errWrong, n, deltaChunks, a[max(0, len(a)-600):])
	}
	return nil
}

// checkForeign checks the provider's own stream, as a gateway without translation
// passes it on.
func (c *client) checkForeign() error {
	mark, end := `"text_delta"`, "data: {\"type\":\"message_stop\"}\n\n"
	if c.Cell == "google" {
		mark, end = `"role":"model"`, "\"responseId\":\"bench\"}\r\n\r\n"
	}
	if n := bytes.Count(c.answer, []byte(mark)); n != len(pieces) || !bytes.HasSuffix(c.answer, []byte(end)) {
		return fmt.Errorf("%w: %d of %d chunks, ends with %.80q", errTruncated, n, len(pieces),
			c.answer[max(0, len(c.answer)-80):])
	}
	return nil
}

// newPrompt returns a body with a system message and about 300 bytes of random user text.
func (c *client) newPrompt() []byte {
	b := make([]byte, 0, 1024)
	b = append(b, `{"messages":[{"role":"system","content":"You are the assistant inside a mail client. Sum up what `+
		`the user has to do today, in three sentences, most urgent first. Do not invent anything."},{"role":"user",`+
		`"content":"`...)
	from := len(b)
	for len(b) < from+300 {
		b = append(append(b, words[c.rng.IntN(len(words))]...), ' ')
	}
	b = append(b, `"}],"max_tokens":200`...)
	if c.Cell != "plain" {
		b = append(b, `,"stream":true`...)
	}
	return append(b, '}')
}

var words = strings.Fields(`the supplier asked whether a second pallet may arrive on Friday instead of Wednesday because their lorry
is in repair and nobody else drives our route before then please answer by noon legal returned the contract with one changed clause
on page four about notice periods which looks harmless but should be read by someone who remembers last year lunch moved to one
o'clock invoice 4711 is still open although we reminded them twice can we talk about numbers for March budget review slides
attached thanks`)

// newUUID returns a random UUID, version 4.
func newUUID(rng *rand.Rand) string {
	hi, lo := rng.Uint64()&^0xf000|0x4000, rng.Uint64()&^(3<<62)|1<<63
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&(1<<48-1))
}
