package openai

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

const (
	sampleKey   = "aKeyThatLooksLikeNone"
	sampleUsage = `{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":2}}`
	sampleBody  = `{"id":"chatcmpl-1","object":"chat.completion","new_member":[1.50],"choices":[{"index":0,"message":{"role":"assistant","content":"Hé"},"finish_reason":"stop"}],"usage":` + sampleUsage + `}`

	roleFrame   = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null,"obfuscation":"aB3"}` + "\n\n"
	textFrame   = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hé 🧾"},"finish_reason":null}],"usage":null}` + "\n\n"
	finishFrame = `data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` +
		"\n\n"
	usageFrame = `data: {"id":"chatcmpl-1","choices":[],"usage":` + sampleUsage + "}\n\n"
	doneFrame  = "data: [DONE]\n\n"
	sample     = roleFrame + textFrame + finishFrame + usageFrame + doneFrame
)

var wantUsage = provider.Usage{Input: 10, Cached: 2, Output: 3}

func request(stream bool) *provider.Request {
	return &provider.Request{
		ID:        "req_1",
		Model:     "gpt-6-luna",
		MaxTokens: 100,
		Stream:    stream,
		Turns:     []conversation.Turn{conversation.Say("user", "hi")},
	}
}

// serve is a provider over real HTTP that answers with h.
func serve(t testing.TB, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = nil
	srv.Start()
	t.Cleanup(srv.Close)
	c := New(srv.URL+"/v1/", sampleKey)
	t.Cleanup(c.CloseIdle)
	return c
}

// answers is a handler that sends text with a status.
func answers(status int, text string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// cuts is a handler that resets the connection after it has sent text, which
// holds the status line and headers too.
func cuts(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		if text == "" { // a reset may overtake what was sent
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		_ = conn.Close()
	}
}

// A scripted transport stands in for HTTP where reads and time must be exact.
type scripted func(*http.Request) (*http.Response, error)

func (f scripted) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// served returns a client whose provider answers every request with this body.
func served(body func(ctx context.Context) io.Reader) *Client {
	c := New("http://provider.test/v1", sampleKey)
	c.Transport = scripted(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode:    200,
			ContentLength: -1,
			Header:        http.Header{},
			Body:          io.NopCloser(body(r.Context())),
		}, nil
	})
	return c
}

// hangs is a body that is silent until the request is canceled.
type hangs struct{ ctx context.Context }

func (h hangs) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

// obeys is a body that ends when the request is canceled.
type obeys struct {
	ctx context.Context
	io.Reader
}

func (o obeys) Read(p []byte) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, err
	}
	return o.Reader.Read(p)
}

// pause is silent for a while, then at its end.
type pause time.Duration

func (p pause) Read([]byte) (int, error) {
	time.Sleep(time.Duration(p)) // only in a bubble of synctest
	return 0, io.EOF
}

// relayed is what an app would get of a stream.
type relayed struct {
	frames, usageFrame string
	usage              *provider.Usage
	err                error
}

func relay(c *Client) relayed { return relayRequest(c, request(true)) }

func relayRequest(c *Client, r *provider.Request) relayed {
	s, err := c.Stream(context.Background(), r)
	if err != nil {
		return relayed{err: err}
	}
	defer s.Close()
	var out relayed
	var frames strings.Builder
	for {
		chunk, err := s.Next()
		if err != nil {
			out.frames, out.err = frames.String(), err
			return out
		}
		frames.Write(chunk.Frames)
		if chunk.UsageFrame != nil {
			out.usageFrame = string(chunk.UsageFrame)
		}
		if chunk.Usage != nil {
			out.usage = chunk.Usage
		}
	}
}

// fault checks that err is a failure of the provider that shows nothing.
func fault(t *testing.T, err error) *provider.Error {
	t.Helper()
	var e *provider.Error
	switch {
	case !errors.As(err, &e):
		t.Fatalf("%v is no *provider.Error", err)
	case e.Kind != provider.Failed || e.Message != "the provider failed":
		t.Errorf("%+v, want a failure that says nothing", e)
	case e.Cause == nil:
		t.Errorf("%+v has no cause for the log", e)
	case strings.Contains(e.Error(), sampleKey):
		t.Errorf("%v shows our key", e)
	}
	return e
}
