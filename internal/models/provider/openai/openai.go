// Package openai calls OpenAI's Chat Completions API, and servers that are compatible with it (contract §1, §4.3). It
// relays responses and chunks byte for byte and reads only errors, usage and finish reasons. Some models take tools
// only through the Responses API; for them it translates both ways (responses.go). Embeddings have an API of their own
// (embeddings.go). refusal.go classifies errors.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// Client is one account at the provider. It is safe for concurrent use.
type Client struct {
	*upstream.Client
	storesCalls bool
}

// An Option changes the account that New makes.
type Option func(*account)

type account struct {
	upstream.Config
	store bool
}

// Timeouts sets the time limits for the headers of a response and for a pause within it.
func Timeouts(header, idle time.Duration) Option {
	return func(a *account) { a.HeaderWait, a.StreamWait, a.Idle = header, header, idle }
}

// Transport sets the transport that sends the requests. Without it the account has its own.
func Transport(t http.RoundTripper) Option { return func(a *account) { a.Transport = t } }

// Store lets the provider keep a record of each Chat Completions call, which
// Stored reads.
func Store() Option { return func(a *account) { a.store = true } }

// New returns a client of the API at baseURL, which ends before
// /chat/completions, for example https://api.openai.com/v1.
func New(baseURL, key string, options ...Option) *Client {
	a := account{Config: upstream.Config{
		BaseURL:    baseURL,
		Header:     http.Header{"Authorization": {"Bearer " + key}},
		Secret:     key,
		ParseError: parseError,
	}}
	for _, o := range options {
		o(&a)
	}
	return &Client{upstream.New(a.Config), a.store}
}

// Name is openai.
func (c *Client) Name() string { return "openai" }

// path is the path of Chat Completions, whole and streamed.
const path = "/chat/completions"

// Complete runs a request to its end.
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if r.Embedding != nil {
		return c.embed(ctx, r)
	}
	if r.Facts.Responses {
		return c.completeResponse(ctx, r)
	}
	x, err := c.Post(ctx, path, c.encodeRequest(r), r.ID)
	if err != nil {
		return nil, err
	}
	defer x.End(false)
	return c.readCompletion(x, r)
}

// readCompletion reads a response that comes whole.
func (c *Client) readCompletion(x *upstream.Exchange, r *provider.Request) (*provider.Response, error) {
	body, err := x.ReadAll()
	if err != nil {
		return nil, upstream.NewFailure(x.StatusCode, err)
	}
	body = bytes.TrimSpace(body)
	o, ok := provider.ReadOutline(body)
	switch {
	case !ok:
		return nil, upstream.NewFailure(x.StatusCode,
			fmt.Errorf("the answer is no JSON object: %s", upstream.Describe(body)))
	case o.Error != nil:
		return nil, c.makeInBandError(o.Error, false)
	case !o.HasChoices() || !isListOfObjects(o.Choices):
		return nil, upstream.NewFailure(x.StatusCode, errors.New("the answer has no choices"))
	}
	if len(r.Tools) > 0 {
		body = fixFinishReason(body, o.Choices)
	}
	return &provider.Response{Body: body, Usage: provider.ParseUsage(o.Usage)}, nil
}

// isListOfObjects reports whether the first element of a JSON array is an object.
func isListOfObjects(list []byte) bool {
	list = bytes.TrimLeft(list, " \t\r\n[")
	return len(list) > 0 && list[0] == '{'
}
