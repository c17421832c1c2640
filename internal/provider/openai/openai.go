// Package openai speaks to OpenAI's Chat Completions, and to whatever speaks
// like it (spec §1, §4.3). Answers and chunks are relayed byte for byte; only
// errors and the usage are read. What a fault of the provider means is in
// refusal.go for one before the answer and in stream.go for one within it.
package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"purser/internal/provider"
)

// Bounds of an answer, in bytes. A provider that passes them is broken.
const (
	maxAnswer  = 32 << 20
	maxRefusal = 64 << 10
	maxHeader  = 64 << 10
)

// Client is one account at the provider. It may be used by many goroutines.
type Client struct {
	url    *url.URL
	badURL error
	auth   []string
	http   http.RoundTripper // the transport alone: a client would follow redirects with our key
	header time.Duration
	idle   time.Duration
}

// An Option changes a Client that New makes.
type Option func(*Client)

// Timeouts sets how long the provider may take until its headers are here, and
// how long it may be silent within an answer. The defaults are 5 minutes, for an
// answer that is sent whole comes only when it is done, and 60 seconds.
func Timeouts(header, idle time.Duration) Option {
	return func(c *Client) { c.header, c.idle = header, idle }
}

// New returns a client of the API at baseURL, which ends before
// /chat/completions, for example https://api.openai.com/v1.
func New(baseURL, key string, options ...Option) *Client {
	c := &Client{auth: []string{"Bearer " + key}, header: 5 * time.Minute, idle: time.Minute, http: newTransport(strings.HasPrefix(baseURL, "https://"))}
	c.url, c.badURL = url.Parse(strings.TrimSuffix(baseURL, "/") + "/chat/completions")
	for _, o := range options {
		o(c)
	}
	return c
}

// newTransport returns a transport that keeps a connection for every call in
// flight. Its time-outs are the calls' own.
func newTransport(secure bool) *http.Transport {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: secure,
		MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		ReadBufferSize: 8 << 10, WriteBufferSize: 8 << 10,
	}
}

// Name is openai.
func (c *Client) Name() string { return "openai" }

var (
	jsonType  = []string{"application/json"}
	identity  = []string{"identity"}
	userAgent = []string{"Purser"}
)

// exchange is one request on its way, until its answer is read.
type exchange struct {
	*http.Response
	watch  *time.Timer // cancels the request when the provider is silent
	idle   time.Duration
	cancel context.CancelCauseFunc
	ctx    context.Context
}

var errSilent = errors.New("the provider was silent for too long")

// send posts the request and returns its answer if the provider took it. The
// caller ends the exchange.
func (c *Client) send(ctx context.Context, r *provider.Request) (*exchange, error) {
	if c.badURL != nil {
		return nil, failed(0, c.badURL)
	}
	body := encode(r)
	x := &exchange{idle: c.idle}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.watch = time.AfterFunc(c.header, x.silent)
	header := http.Header{"Authorization": c.auth, "Content-Type": jsonType, "Accept-Encoding": identity, "User-Agent": userAgent}
	if r.ID != "" {
		header["X-Client-Request-Id"] = []string{r.ID}
	}
	req := (&http.Request{
		Method: http.MethodPost, URL: c.url, Host: c.url.Host, Header: header, ContentLength: int64(len(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: newBody(body),
		// A kept connection may turn out closed before anything was written; only
		// then, and not later, is the request sent again on another one.
		GetBody: func() (io.ReadCloser, error) { return newBody(body), nil },
	}).WithContext(x.ctx)
	var err error
	if x.Response, err = c.http.RoundTrip(req); err != nil {
		defer x.end()
		return nil, failed(0, x.explain(err))
	}
	x.watch.Reset(x.idle)
	if err := x.check(c.auth[0]); err != nil {
		defer x.end()
		return nil, err
	}
	return x, nil
}

func newBody(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// check refuses everything but a plain 200.
func (x *exchange) check(auth string) error {
	if x.StatusCode != http.StatusOK {
		return refusal(x, strings.TrimPrefix(auth, "Bearer "))
	}
	if e := x.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return failed(x.StatusCode, fmt.Errorf("the answer is encoded as %q", e))
	}
	return nil
}

func (x *exchange) silent() { x.cancel(errSilent) }

// Read reads the answer, as long as the provider is not silent for too long.
func (x *exchange) Read(p []byte) (int, error) {
	x.watch.Reset(x.idle) // only waiting for the provider counts, not for the app
	n, err := x.Body.Read(p)
	x.watch.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = x.explain(err)
	}
	return n, err
}

// explain says why a request was canceled, where err only says that it was.
func (x *exchange) explain(err error) error {
	if cause := context.Cause(x.ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// end gives the connection back if the answer was read to its end, else closes it.
func (x *exchange) end() {
	x.watch.Stop()
	x.cancel(nil)
	if x.Response != nil {
		_ = x.Body.Close() // nothing more is read
	}
}

// Complete runs a request to its end.
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	x, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer x.end()
	body, err := x.readAll()
	if err != nil {
		return nil, failed(x.StatusCode, err)
	}
	body = bytes.TrimSpace(body)
	o, ok := provider.ReadOutline(body)
	switch {
	case !ok:
		return nil, failed(x.StatusCode, fmt.Errorf("the answer is no JSON object: %.200q", body))
	case o.Error != nil:
		return nil, failed(x.StatusCode, fmt.Errorf("the answer is an error: %.200q", o.Error))
	case !o.HasChoices():
		return nil, failed(x.StatusCode, errors.New("the answer has no choices"))
	}
	return &provider.Response{Body: body, Usage: provider.ParseUsage(o.Usage)}, nil
}

var errTooLong = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// readAll reads the answer into memory of its own, as much as it needs.
func (x *exchange) readAll() ([]byte, error) {
	if x.ContentLength > maxAnswer {
		return nil, errTooLong
	}
	size := int64(4 << 10)
	if x.ContentLength >= 0 {
		size = min(x.ContentLength+1, 1<<20) // room to see the end without growing
	}
	for b := make([]byte, 0, size); ; {
		n, err := x.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, err
		case len(b) > maxAnswer:
			return nil, errTooLong
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// failed is a failure that tells the app nothing about us.
func failed(status int, cause error) *provider.Error {
	return &provider.Error{Kind: provider.Failed, Status: status, Message: "the provider failed", Cause: cause}
}
