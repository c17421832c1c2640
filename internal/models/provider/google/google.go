// Package google calls Gemini's generateContent and streamGenerateContent (contract §1, §4.3) and translates both ways:
// encode.go writes requests, answer.go reads whole responses and stream.go streamed ones, usage.go reads token counts,
// embeddings.go calls batchEmbedContents, and refuse.go classifies errors.
//
// A tool call carries the model's thought signature in extra_content.google. The app must send it
// back, because Gemini 3 and later refuse the next turn without it.
package google

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// DefaultURL is where Google serves the API.
const DefaultURL = "https://generativelanguage.googleapis.com"

// Client is one account at Google. It is safe for concurrent use.
type Client struct {
	http  *upstream.Client
	newID func() string // 24 random characters
	now   func() time.Time
}

// An Option changes the configuration of a Client that New makes.
type Option func(*upstream.Config)

// Timeouts sets the time limits for the headers of a response and for a pause within it. 0 means the default.
func Timeouts(header, idle time.Duration) Option {
	return func(c *upstream.Config) { c.HeaderWait, c.StreamWait, c.Idle = header, header, idle }
}

// New returns a client of the API at baseURL, which ends before /v1beta; empty
// means DefaultURL. The key goes into a header, never into a URL.
func New(baseURL, key string, options ...Option) *Client {
	if baseURL == "" {
		baseURL = DefaultURL
	}
	c := upstream.Config{
		BaseURL:    baseURL,
		Header:     http.Header{"X-Goog-Api-Key": {key}},
		Secret:     key,
		ParseError: parseError,
		StreamWait: 2 * time.Minute, // the headers come with the first chunk, which may follow thinking
	}
	for _, o := range options {
		o(&c)
	}
	return &Client{http: upstream.New(c), newID: func() string { return rand.Text()[:24] }, now: time.Now}
}

// Name is google.
func (c *Client) Name() string { return "google" }

// Complete runs a request to its end.
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if r.Embedding != nil {
		return c.embed(ctx, r)
	}
	x, err := c.post(ctx, r, ":generateContent")
	if err != nil {
		return nil, err
	}
	defer x.End(false) // ReadAll has read the end, or the connection is useless
	body, err := x.ReadAll()
	if err != nil {
		return nil, upstream.NewFailure(x.StatusCode, err)
	}
	return c.translateAnswer(r, x.Header, body)
}

const streamMethod = ":streamGenerateContent?alt=sse"

// post sends the request to one of the model's methods.
func (c *Client) post(ctx context.Context, r *provider.Request, method string) (*upstream.Exchange, error) {
	body, err := Encode(r)
	if err != nil {
		return nil, err
	}
	path := "/v1beta/models/" + r.Model + method
	if method == streamMethod {
		return c.http.PostStream(ctx, path, body, r.ID)
	}
	return c.http.Post(ctx, path, body, r.ID)
}
