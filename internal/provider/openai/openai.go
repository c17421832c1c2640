// Package openai speaks to OpenAI's Chat Completions, and to whatever speaks
// like it. Answers and chunks are relayed byte for byte; only the usage is read.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"purser/internal/provider"
)

// Bounds of an answer. A provider that passes them is broken.
const (
	maxAnswer  = 32 << 20
	maxRefusal = 64 << 10
)

// Client is one account at the provider.
type Client struct {
	url  string
	auth string
	http *http.Transport
	idle time.Duration // the longest silence inside a stream
}

// New returns a client of the API at baseURL, which ends before
// /chat/completions, for example https://api.openai.com/v1.
func New(baseURL, key string) *Client {
	return &Client{
		url: strings.TrimSuffix(baseURL, "/") + "/chat/completions", auth: "Bearer " + key, idle: 60 * time.Second,
		// The transport alone: it follows no redirect, which would carry our key
		// along, and keeps a connection per call in flight.
		http: &http.Transport{
			MaxIdleConns: 2048, MaxIdleConnsPerHost: 2048, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
			ResponseHeaderTimeout: 5 * time.Minute, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: strings.HasPrefix(baseURL, "https://"),
			MaxResponseHeaderBytes: 64 << 10, ReadBufferSize: 16 << 10,
		},
	}
}

// Name is openai.
func (c *Client) Name() string { return "openai" }

// buffers are reused between calls: answers are copied out of them.
var buffers = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, 16<<10)) }}

// send posts the request and returns its answer if the provider took it.
func (c *Client) send(ctx context.Context, r *provider.Request) (*http.Response, error) {
	body := encode(r)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, failed(0, err)
	}
	req.Header = http.Header{
		"Authorization": {c.auth}, "Content-Type": {"application/json"}, "X-Client-Request-Id": {r.ID}, "Accept-Encoding": {"identity"},
	}
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, failed(0, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		_ = resp.Body.Close() // nothing of it is used
		return nil, failed(resp.StatusCode, fmt.Errorf("answer is encoded as %q", e))
	}
	return resp, nil
}

// Complete runs a request to its end.
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, failed(resp.StatusCode, err)
	}
	if buf.Len() > maxAnswer {
		return nil, failed(resp.StatusCode, errors.New("answer is too long"))
	}
	body := bytes.Clone(bytes.TrimSpace(buf.Bytes()))
	var a struct {
		Error   json.RawMessage   `json:"error"`
		Usage   json.RawMessage   `json:"usage"`
		Choices []json.RawMessage `json:"choices"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, failed(resp.StatusCode, fmt.Errorf("answer is no JSON object: %w", err))
	}
	if len(a.Choices) == 0 || len(a.Error) > 0 && string(a.Error) != "null" {
		return nil, failed(resp.StatusCode, errors.New("answer has no choices, or an error"))
	}
	return &provider.Response{Body: body, Usage: provider.ParseUsage(a.Usage)}, nil
}

// Stream starts a streamed request and waits for its first chunk.
func (c *Client) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, r)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{body: resp.Body, cancel: cancel, idle: c.idle}
	s.events = provider.NewSSE(resp.Body, make([]byte, 0, 8<<10))
	s.watch = time.AfterFunc(c.idle, cancel) // a silent stream is a dead one
	if s.first, err = s.read(); err != nil {
		_ = s.Close() // the first error counts
		var p *provider.Error
		if errors.As(err, &p) {
			return nil, err
		}
		return nil, failed(resp.StatusCode, err)
	}
	s.started = true
	return s, nil
}

type stream struct {
	body    io.ReadCloser
	cancel  context.CancelFunc
	events  *provider.SSE
	idle    time.Duration
	watch   *time.Timer
	first   provider.Chunk
	started bool
	frames  []byte
	billed  bool // usage came: the answer is whole even without [DONE]
	ended   error
}

// Next returns what has arrived.
func (s *stream) Next() (provider.Chunk, error) {
	if s.started {
		s.started = false
		return s.first, nil
	}
	return s.read()
}

// read gathers the events that one read brought, so that they go out in one write.
func (s *stream) read() (provider.Chunk, error) {
	if s.ended != nil {
		return provider.Chunk{}, s.ended
	}
	var c provider.Chunk
	s.frames = s.frames[:0]
	for {
		e, err := s.events.Next()
		if err == nil {
			err = s.add(&c, e)
		} else if errors.Is(err, io.EOF) && !s.billed {
			err = io.ErrUnexpectedEOF // cut
		}
		if err != nil {
			s.ended = err
			if len(s.frames) == 0 && c.UsageFrame == nil {
				return provider.Chunk{}, err
			}
			break
		}
		if !s.events.Buffered() {
			break
		}
	}
	s.watch.Reset(s.idle)
	c.Frames = s.frames
	return c, nil
}

// add sorts one event into the chunk.
func (s *stream) add(c *provider.Chunk, e provider.Event) error {
	kind, usage := provider.Classify(e.Payload)
	switch kind {
	case provider.Finish:
		return io.EOF
	case provider.Failure:
		return failed(http.StatusOK, errors.New("the stream carries an error"))
	case provider.Garbage:
		return failed(http.StatusOK, errors.New("the stream carries something else than JSON"))
	case provider.UsageOnly:
		s.billed = true
		c.UsageFrame, c.Usage = bytes.Clone(e.Frame), usage
		return nil
	case provider.WithUsage:
		s.billed = true
		c.Usage = usage
	}
	s.frames = append(s.frames, e.Frame...)
	return nil
}

// Close ends the call at the provider.
func (s *stream) Close() error {
	s.watch.Stop()
	s.cancel()
	return s.body.Close()
}

// failed is a failure that tells the app nothing about us.
func failed(status int, cause error) *provider.Error {
	return &provider.Error{Kind: provider.Failed, Status: status, Message: "the provider failed", Cause: cause}
}

// refusal maps a status that is not 200 (what each means is in the provider's
// documentation). Only a request that the provider calls wrong is the app's.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what came is enough
	e := &provider.Error{Kind: provider.Failed, Status: resp.StatusCode, Message: "the provider failed", Cause: fmt.Errorf("status %d: %.300q", resp.StatusCode, text)}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		e.Kind, e.Message = provider.Rejected, "the provider refused the request: "+reason(text)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		e.RetryAfter = retryAfter(resp.Header, time.Now())
	}
	return e
}

// reason is what the provider says is wrong with the request, without anything
// that could be ours.
func reason(text []byte) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
			Param   string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) != nil || body.Error.Message == "" {
		return "it gave no reason"
	}
	var words []string
	for _, w := range strings.Fields(body.Error.Message) {
		switch {
		case strings.Contains(w, "://"), strings.HasPrefix(w, "sk-"), strings.HasPrefix(w, "org-"), strings.HasPrefix(w, "proj_"), strings.Contains(w, "@"):
			w = "[removed]"
		}
		words = append(words, w)
	}
	message := strings.Join(words, " ")
	return message[:min(len(message), 500)]
}

// retryAfter reads Retry-After-Ms, then Retry-After in seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 3_600_000 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 3600 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) && at.Before(now.Add(time.Hour)) {
		return at.Sub(now)
	}
	return 0
}
