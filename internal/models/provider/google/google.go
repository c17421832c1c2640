// Package google speaks Gemini's own dialect, generateContent and
// streamGenerateContent (contract §1, §4.3). It is a translation both ways: encode.go
// writes requests, answer.go reads whole answers and stream.go the streamed ones
// into OpenAI's shape, usage.go counts, refuse.go says what a refusal means.
//
// What an app has to carry for the model is in extra_content.google of a tool
// call: the thought signature, without which Gemini 3 and later refuse the next
// turn.
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

// Client is one account at Google. It may be used by many goroutines.
type Client struct {
	http  *upstream.Client
	newID func() string // 24 random characters
	now   func() time.Time
}

// An Option changes the configuration of a Client that New makes.
type Option func(*upstream.Config)

// Timeouts sets how long the provider may take until its headers are here, and
// how long it may be silent within an answer. 0 leaves the default.
func Timeouts(header, idle time.Duration) Option {
	return func(c *upstream.Config) { c.HeaderWait, c.Idle = header, idle }
}

// New returns a client of the API at baseURL, which ends before /v1beta; empty
// means DefaultURL. The key goes into a header, never into a URL.
func New(baseURL, key string, options ...Option) *Client {
	if baseURL == "" {
		baseURL = DefaultURL
	}
	c := upstream.Config{BaseURL: baseURL, Header: http.Header{"X-Goog-Api-Key": {key}}, Secret: key, Refuse: refuse}
	for _, o := range options {
		o(&c)
	}
	return &Client{http: upstream.New(c), newID: func() string { return rand.Text()[:24] }, now: time.Now}
}

// Name is google.
func (c *Client) Name() string { return "google" }

// Complete runs a request to its end.
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	x, err := c.post(ctx, r, ":generateContent")
	if err != nil {
		return nil, err
	}
	defer x.End(false) // it was read to its end, or is of no use
	body, err := x.ReadAll()
	if err != nil {
		return nil, upstream.Failed(x.StatusCode, err)
	}
	return c.answer(r, x.Header, body)
}

// post sends the request to one of the model's methods.
func (c *Client) post(ctx context.Context, r *provider.Request, method string) (*upstream.Exchange, error) {
	body, err := Encode(r)
	if err != nil {
		return nil, err
	}
	return c.http.Post(ctx, "/v1beta/models/"+r.Model+method, body, r.ID)
}
