package google

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

const sampleKey = "aKeyThatLooksLikeNone"

func request(stream bool) *provider.Request {
	return &provider.Request{
		ID:        "req_1",
		Model:     "gemini-3.8-flash",
		MaxTokens: 100,
		Stream:    stream,
		Facts:     provider.ModelFacts{Thinking: "level"},
		Turns:     []conversation.Turn{conversation.Say("user", "hi")},
	}
}

// fixed makes what a client makes up the same every time.
func fixed(c *Client) *Client {
	n := 0
	c.newID = func() string {
		n++
		return fmt.Sprintf("%024d", n)
	}
	c.now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	return c
}

// google is Gemini over real HTTP that answers with h.
func google(t testing.TB, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := fixed(New(srv.URL+"/", sampleKey))
	t.Cleanup(c.http.CloseIdle)
	return c
}

// answers is a handler that sends text with a status.
func answers(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// A scripted transport stands in for HTTP where reads and time must be exact.
type scripted func(*http.Request) (*http.Response, error)

func (f scripted) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// served returns a client that gets this body for every request.
func served(body func(ctx context.Context) io.Reader) *Client {
	return fixed(New("http://provider.test", sampleKey, func(c *upstream.Config) {
		c.Transport = scripted(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode:    200,
				ContentLength: -1,
				Header:        http.Header{},
				Body:          io.NopCloser(body(r.Context())),
			}, nil
		})
	}))
}

func servedText(text string) *Client {
	return served(func(context.Context) io.Reader { return strings.NewReader(text) })
}

// relayed is what an app would get of a stream.
type relayed struct {
	frames, usageFrame string
	usage              *provider.Usage
	err                error
}

// String is the whole of it as it stands in testdata.
func (r relayed) String() string {
	usage := "none"
	if r.usage != nil {
		u := *r.usage
		usage = fmt.Sprintf("{Input:%d Cached:%d CacheWrite:%d Output:%d Reasoning:%d}", u.Input, u.Cached,
			u.CacheWrite, u.Output, u.Reasoning)
	}
	return fmt.Sprintf("%s--- usage: %s\n%s--- end: %v\n", r.frames, usage, r.usageFrame, r.err)
}

func relay(c *Client) relayed {
	s, err := c.Stream(context.Background(), request(true))
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
		out.usageFrame += string(chunk.UsageFrame)
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

// TestHTTP: the address, the key in a header and never in the URL, the body.
func TestHTTP(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	c := google(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if want, _ := Encode(request(false)); err != nil || string(body) != string(want) {
			t.Errorf("body %s, %v", body, err)
		}
		seen <- r
		_, _ = io.WriteString(w, "data: "+sampleAnswer+"\r\n\r\n")
	})
	if _, err := c.Stream(t.Context(), request(true)); err != nil {
		t.Fatal(err)
	}
	r := <-seen
	if r.Method != "POST" || r.RequestURI != "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse" {
		t.Errorf("%s %s", r.Method, r.RequestURI)
	}
	if r.Header.Get("x-goog-api-key") != sampleKey || r.Header.Get("Authorization") != "" ||
		r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", r.Header)
	}
	_, _ = c.Complete(t.Context(), request(false)) // an SSE body is no answer; only the address counts
	if r := <-seen; r.RequestURI != "/v1beta/models/gemini-3.8-flash:generateContent" {
		t.Errorf("%s", r.RequestURI)
	}
	if New("", sampleKey).http.BaseURL != DefaultURL || c.Name() != "google" {
		t.Error("the default address or the name")
	}
}

// TestRejectedBeforeAnything: what Encode refuses never reaches the provider.
func TestRejectedBeforeAnything(t *testing.T) {
	t.Parallel()
	c := google(t, func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") })
	r := request(false)
	r.Turns[0] = conversation.Turn{Role: "user", Blocks: []conversation.Block{
		{Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: "data:image/gif;base64,R0lG"}},
	}}
	_, err := c.Complete(t.Context(), r)
	_, err2 := c.Stream(t.Context(), r)
	for _, err := range []error{err, err2} {
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != provider.Rejected || e.Retry {
			t.Errorf("%v", err)
		}
	}
}
