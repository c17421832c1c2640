// Package upstream is the half of every provider's adapter that speaks HTTP: it
// posts a request, watches that the provider does not fall silent, and reads
// refusals. What stands in requests and answers is the dialects' business.
// Reliable, in reliable.go, adds tries and a circuit breaker.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds of an answer, in bytes. A provider that passes them is broken.
const (
	maxAnswer  = 32 << 20
	maxRefusal = 64 << 10
	maxHeader  = 64 << 10
)

// Config is one account at one provider.
type Config struct {
	BaseURL string
	Header  http.Header // goes with every request: the credential, the version
	Secret  string      // the credential itself, so that no error ever shows it
	// How long the provider may take until its headers are here, and how long it
	// may be silent within an answer. 0 means 5 minutes, for an answer that is
	// sent whole comes only when it is done, and 60 seconds.
	HeaderWait, Idle time.Duration
	// Refuse reads the dialect's error body. Nil, or a nil result, leaves it to the status.
	Refuse func(status int, h http.Header, body []byte) *provider.Error
	// Transport sends the requests; nil = a new Transport. It is not an http.Client, which would follow redirects
	// with our key.
	Transport http.RoundTripper
}

// Client sends requests for one account. It is safe for concurrent use.
type Client struct {
	Config
	url    *url.URL
	badURL error
}

// New returns a client of the API below c.BaseURL.
func New(c Config) *Client {
	if c.HeaderWait == 0 {
		c.HeaderWait = 5 * time.Minute
	}
	if c.Idle == 0 {
		c.Idle = time.Minute
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")
	u, err := url.Parse(c.BaseURL)
	h := http.Header{"Content-Type": {"application/json"}, "Accept-Encoding": {"identity"}, "User-Agent": {"Purser"}}
	for name, values := range c.Header {
		h[name] = values
	}
	c.Header = h
	if c.Transport == nil {
		c.Transport = NewTransport(c.BaseURL)
	}
	return &Client{Config: c, url: u, badURL: err}
}

// CloseIdle closes the connections that nothing uses.
func (c *Client) CloseIdle() { (&http.Client{Transport: c.Transport}).CloseIdleConnections() }

// An Exchange is one request that the provider took, until its answer is read.
type Exchange struct {
	*http.Response
	watch  *time.Timer // cancels the request when the provider is silent
	idle   time.Duration
	cancel context.CancelCauseFunc
	ctx    context.Context
	tail   [1]byte
	over   atomic.Bool // the end was read, or will never come
}

// ErrSilent is why a call was given up that the provider left without a word.
var ErrSilent = errors.New("the provider was silent for too long")

// Post sends body to path, which may carry a query, and returns the answer if
// it is a plain 200. requestID names the call to the provider's support.
func (c *Client) Post(ctx context.Context, path string, body []byte, requestID string) (*Exchange, error) {
	return c.do(ctx, http.MethodPost, path, body, requestID)
}

// Get is Post for what is read.
func (c *Client) Get(ctx context.Context, path string) (*Exchange, error) {
	return c.do(ctx, http.MethodGet, path, nil, "")
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, requestID string) (*Exchange, error) {
	if c.badURL != nil {
		return nil, Failed(0, c.badURL)
	}
	x := &Exchange{idle: c.Idle}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.watch = time.AfterFunc(c.HeaderWait, x.silent)
	header := c.Header
	if requestID != "" {
		header = make(http.Header, len(c.Header)+1)
		for name, values := range c.Header {
			header[name] = values
		}
		header["X-Client-Request-Id"] = []string{requestID}
	}
	req := (&http.Request{
		Method: method, URL: c.at(path), Host: c.url.Host, Header: header, ContentLength: int64(len(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(x.ctx)
	if body != nil {
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	var err error
	if x.Response, err = c.Transport.RoundTrip(req); err != nil {
		defer x.End(false)
		e := Failed(0, x.explain(err))
		// nothing came; a silent one took its time already
		e.Retry = ctx.Err() == nil && !errors.Is(context.Cause(x.ctx), ErrSilent)
		return nil, e
	}
	x.watch.Reset(x.idle)
	if err := c.check(x); err != nil {
		defer x.End(false)
		return nil, err
	}
	return x, nil
}

// at is the address of path below the base.
func (c *Client) at(path string) *url.URL {
	u := *c.url
	path, u.RawQuery, _ = strings.Cut(path, "?")
	u.Path += path
	return &u
}

// check refuses everything but a plain 200.
func (c *Client) check(x *Exchange) error {
	if x.StatusCode != http.StatusOK {
		return c.refusal(x)
	}
	if e := x.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return Failed(x.StatusCode, fmt.Errorf("the answer is encoded as %q", e))
	}
	return nil
}

func (x *Exchange) silent() { x.cancel(ErrSilent) }

// Read reads the answer, as long as the provider is not silent for too long.
func (x *Exchange) Read(p []byte) (int, error) {
	x.watch.Reset(x.idle) // only waiting for the provider counts, not for the app
	n, err := x.Body.Read(p)
	x.watch.Stop()
	if err != nil {
		x.over.Store(true)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = x.explain(err)
	}
	return n, err
}

// Hurry makes a silence of d too long from now on.
func (x *Exchange) Hurry(d time.Duration) { x.idle = min(x.idle, d) }

// explain says why a request was canceled, where err only says that it was.
func (x *Exchange) explain(err error) error {
	if cause := context.Cause(x.ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// closeWait is how long the end of a body is waited for after its last event.
const closeWait = 20 * time.Millisecond

// Over reports whether nothing more can be read, so that End does not wait.
func (x *Exchange) BodyEnded() bool { return x.over.Load() }

// End gives the connection back if the answer was read to its end, and else
// closes it. whole says that its last event was read: then the end of the body
// is worth a moment's wait, so that the connection can be used again.
func (x *Exchange) End(whole bool) {
	if whole && x.Response != nil {
		x.watch.Reset(closeWait)
		_, _ = x.Body.Read(x.tail[:]) // the end, or else the connection is closed
	}
	x.watch.Stop()
	x.cancel(nil)
	if x.Response != nil {
		_ = x.Body.Close() // nothing more is read
	}
}

var errTooLong = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// ReadAll reads the response into new memory, at most 32 MiB.
func (x *Exchange) ReadAll() ([]byte, error) {
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

// Failed is a failure that tells the app nothing about us.
func Failed(status int, cause error) *provider.Error {
	return &provider.Error{Kind: provider.Failed, Status: status, Message: "the provider failed", Cause: cause}
}
