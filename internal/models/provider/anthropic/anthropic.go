// Package anthropic speaks to Anthropic's Messages API (contract §1, §4.3) and
// translates it to and from the one shape. Requests are written in encode.go
// and turns.go. Answers always come as a stream, also when the app wants them
// whole: the API refuses long generations otherwise, and so one decoder decides
// what was said and what it costs. It stands in decode.go and usage.go; it
// tells what it finds to stream.go, which writes chunks, or to answer.go, which
// puts one body together. What errors mean is in refuse.go.
package anthropic

import (
	"context"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

const (
	defaultURL = "https://api.anthropic.com"
	path       = "/v1/messages"
	version    = "2023-06-01"
	// binding lets a request say what becomes of thinking that was made in
	// another conversation than the one it comes back in.
	binding = "thinking-binding-controls-2026-08-01"
)

// Client is one account at the provider. It may be used by many goroutines.
type Client struct {
	plain *upstream.Client
	bound *upstream.Client // for requests that bring thinking back: only they need the beta
	now   func() time.Time
}

// An Option changes the account that New makes.
type Option func(*upstream.Config)

// Timeouts sets how long the provider may take until its headers are here, and
// how long it may be silent within an answer.
func Timeouts(header, idle time.Duration) Option {
	return func(c *upstream.Config) { c.HeaderWait, c.Idle = header, idle }
}

// New returns a client of the API at baseURL, which ends before /v1/messages;
// "" is Anthropic's own.
func New(baseURL, key string, options ...Option) *Client {
	if baseURL == "" {
		baseURL = defaultURL
	}
	c := upstream.Config{BaseURL: baseURL, Secret: key, Refuse: refuse}
	for _, o := range options {
		o(&c)
	}
	c.Header = http.Header{"X-Api-Key": {key}, "Anthropic-Version": {version}}
	plain := upstream.New(c)
	c.Header = http.Header{"X-Api-Key": {key}, "Anthropic-Version": {version}, "Anthropic-Beta": {binding}}
	return &Client{plain: plain, bound: upstream.New(c), now: time.Now}
}

// Name is anthropic.
func (c *Client) Name() string { return "anthropic" }

// CloseIdle closes the connections that nothing uses.
func (c *Client) CloseIdle() {
	c.plain.CloseIdle()
	c.bound.CloseIdle()
}

// post sends a request and returns the answer's events.
func (c *Client) post(ctx context.Context, r *provider.Request) (*upstream.Exchange, error) {
	body, replays, err := encode(r)
	if err != nil {
		return nil, err
	}
	if replays {
		return c.bound.Post(ctx, path, body, r.ID)
	}
	return c.plain.Post(ctx, path, body, r.ID)
}
