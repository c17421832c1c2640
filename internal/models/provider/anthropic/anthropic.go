// Package anthropic calls Anthropic's Messages API (contract §1, §4.3) and translates between it
// and the canonical form. encode.go and turns.go write requests. Every response is requested as a
// stream, also for calls that are not streamed: the API refuses long generations otherwise, and one
// decoder then reads the text and the usage of both kinds. The decoder, in decode.go and usage.go,
// passes the content to stream.go, which writes chunks, or to answer.go, which writes one body.
// refuse.go classifies errors.
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
	// binding is the beta in which a request says what happens to thinking blocks of an edited conversation.
	binding = "thinking-binding-controls-2026-08-01"
)

// Client is one account at the provider. It is safe for concurrent use.
type Client struct {
	plain *upstream.Client
	bound *upstream.Client // for requests that send thinking back: only they need the beta
	now   func() time.Time
}

// An Option changes the account that New makes.
type Option func(*upstream.Config)

// Timeouts sets the time limits for the headers of a response and for a pause within it.
func Timeouts(header, idle time.Duration) Option {
	return func(c *upstream.Config) { c.HeaderWait, c.StreamWait, c.Idle = header, header, idle }
}

// New returns a client of the API at baseURL, which ends before /v1/messages;
// "" means Anthropic's own.
func New(baseURL, key string, options ...Option) *Client {
	if baseURL == "" {
		baseURL = defaultURL
	}
	c := upstream.Config{BaseURL: baseURL, Secret: key, ParseError: parseError}
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

// CloseIdle closes the idle connections.
func (c *Client) CloseIdle() {
	c.plain.CloseIdle()
	c.bound.CloseIdle()
}

// post sends a request and returns the response.
func (c *Client) post(ctx context.Context, r *provider.Request) (*upstream.Exchange, error) {
	body, replays, err := encodeRequest(r)
	if err != nil {
		return nil, err
	}
	if replays {
		return c.bound.PostStream(ctx, path, body, r.ID)
	}
	return c.plain.PostStream(ctx, path, body, r.ID)
}
