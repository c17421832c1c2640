// Package openai speaks to OpenAI's Chat Completions, and to whatever speaks
// like it (contract §1, §4.3). Answers and chunks are relayed byte for byte; only
// errors, the usage and the reason for the end are read. For models that take
// tools only there it also speaks to the Responses API, and translates
// (responses.go). What a fault of the provider means is in refusal.go.
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

// Client is one account at the provider. It may be used by many goroutines.
type Client struct {
	*upstream.Client
	store bool
}

// An Option changes the account that New makes.
type Option func(*account)

type account struct {
	upstream.Config
	store bool
}

// Timeouts sets how long the provider may take until its headers are here, and
// how long it may be silent within an answer.
func Timeouts(header, idle time.Duration) Option {
	return func(a *account) { a.HeaderWait, a.Idle = header, idle }
}

// Transport carries the requests, in place of a transport of the account's own.
func Transport(t http.RoundTripper) Option { return func(a *account) { a.Transport = t } }

// Store lets the provider keep a record of each Chat Completions call, which
// Stored reads.
func Store() Option { return func(a *account) { a.store = true } }

// New returns a client of the API at baseURL, which ends before
// /chat/completions, for example https://api.openai.com/v1.
func New(baseURL, key string, options ...Option) *Client {
	a := account{Config: upstream.Config{
		BaseURL: baseURL,
		Header:  http.Header{"Authorization": {"Bearer " + key}},
		Secret:  key,
		Refuse:  refuse,
	}}
	for _, o := range options {
		o(&a)
	}
	return &Client{upstream.New(a.Config), a.store}
}

// Name is openai.
func (c *Client) Name() string { return "openai" }

// path is where both kinds of calls go.
const path = "/chat/completions"

// Complete runs a request to its end.
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if r.Facts.Responses {
		return c.completeResponse(ctx, r)
	}
	x, err := c.Post(ctx, path, c.encode(r), r.ID)
	if err != nil {
		return nil, err
	}
	defer x.End(false)
	body, err := x.ReadAll()
	if err != nil {
		return nil, upstream.Failed(x.StatusCode, err)
	}
	body = bytes.TrimSpace(body)
	o, ok := provider.ReadOutline(body)
	switch {
	case !ok:
		return nil, upstream.Failed(x.StatusCode, fmt.Errorf("the answer is no JSON object: %.200q", body))
	case o.Error != nil:
		return nil, c.interrupted(o.Error, false)
	case !o.HasChoices():
		return nil, upstream.Failed(x.StatusCode, errors.New("the answer has no choices"))
	}
	if len(r.Tools) > 0 {
		body = called(body, o.Choices)
	}
	return &provider.Response{Body: body, Usage: provider.ParseUsage(o.Usage)}, nil
}
