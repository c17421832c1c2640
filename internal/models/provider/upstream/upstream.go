// Package upstream is the HTTP part of the adapters: it posts requests, enforces time limits and reads error responses.
// The dialects write and read the bodies. Reliable, in reliable.go, adds retries and a circuit breaker.
package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds of a response, in bytes. A larger response is a failure of the provider.
const (
	maxAnswer  = 32 << 20
	maxRefusal = 64 << 10
	maxHeader  = 64 << 10
)

// Config is one account at one provider.
type Config struct {
	BaseURL string
	Header  http.Header // of every request: the credential, the version
	Secret  string      // the credential, which is removed from every message
	// HeaderWait limits the time until the headers of a response, and StreamWait until those of a streamed one. 0 means
	// 5 minutes and 60 seconds: the headers of a response that is not streamed come only when it is complete.
	HeaderWait, StreamWait time.Duration
	// Idle limits a pause within a response. 0 means 5 minutes, because models that reason think for minutes (decision
	// 030).
	Idle time.Duration
	// ParseError classifies an error body of the dialect. If it is nil or returns nil, the status alone decides.
	ParseError func(status int, h http.Header, body []byte) *provider.Error
	// Transport sends the requests; nil = a new Transport. It is not an http.Client, which would follow redirects
	// with our key.
	Transport http.RoundTripper
}

// Client sends requests for one account. It is safe for concurrent use.
type Client struct {
	Config
	url     *url.URL
	urlErr  error
	secrets secretForms
}

// New returns a client of the API below c.BaseURL.
func New(c Config) *Client {
	if c.HeaderWait == 0 {
		c.HeaderWait = 5 * time.Minute
	}
	if c.StreamWait == 0 {
		c.StreamWait = time.Minute
	}
	if c.Idle == 0 {
		c.Idle = 5 * time.Minute
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
	return &Client{Config: c, url: u, urlErr: err, secrets: newSecretForms(c.Secret)}
}

// CloseIdle closes the idle connections.
func (c *Client) CloseIdle() { (&http.Client{Transport: c.Transport}).CloseIdleConnections() }

// An Exchange is one request that the provider has accepted, until its response is read.
type Exchange struct {
	*http.Response
	watch  *time.Timer   // cancels the request when the provider is silent
	idle   time.Duration // how long the provider may send nothing
	cancel context.CancelCauseFunc
	ctx    context.Context
	tail   [1]byte
	ended  atomic.Bool // reading has ended, with or without an error

	fullIdle time.Duration // idle, unless the end of the response is near
}

// ErrSilent is the cause of a call that was canceled because the provider sent nothing for too long.
var ErrSilent = errors.New("the provider was silent for too long")

// HashRequestID returns the name under which the provider knows a call: 32 hexadecimal digits of the SHA-256 of our
// request id. The provider gets no id of ours (decision 075); who has the id can name the call to the provider.
func HashRequestID(requestID string) string {
	sum := sha256.Sum256([]byte(requestID))
	return hex.EncodeToString(sum[:16])
}

// Post sends body to path, which may have a query, and returns the response if it has status 200. requestID identifies
// the call for the provider's support.
func (c *Client) Post(ctx context.Context, path string, body []byte, requestID string) (*Exchange, error) {
	return c.sendRequest(ctx, http.MethodPost, path, body, requestID, c.HeaderWait)
}

// PostStream is Post for a response that the provider streams: its headers come before it is complete.
func (c *Client) PostStream(ctx context.Context, path string, body []byte, requestID string) (*Exchange, error) {
	return c.sendRequest(ctx, http.MethodPost, path, body, requestID, c.StreamWait)
}

// Get is Post with the method GET and without a body.
func (c *Client) Get(ctx context.Context, path string) (*Exchange, error) {
	return c.sendRequest(ctx, http.MethodGet, path, nil, "", c.HeaderWait)
}

func (c *Client) sendRequest(
	ctx context.Context, method, path string, body []byte, requestID string, headerWait time.Duration,
) (*Exchange, error) {
	if c.urlErr != nil {
		return nil, NewFailure(0, c.urlErr)
	}
	x := &Exchange{idle: c.Idle, fullIdle: c.Idle}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.watch = time.AfterFunc(headerWait, x.cancelSilent)
	header := c.Header
	if requestID != "" {
		header = make(http.Header, len(c.Header)+1)
		for name, values := range c.Header {
			header[name] = values
		}
		header["X-Client-Request-Id"] = []string{HashRequestID(requestID)}
	}
	req := (&http.Request{
		Method: method, URL: c.buildURL(path), Host: c.url.Host, Header: header, ContentLength: int64(len(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(x.ctx)
	if body != nil {
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	var err error
	if x.Response, err = c.Transport.RoundTrip(req); err != nil {
		defer x.End(false)
		e := NewFailure(0, x.explainCancel(err))
		// nothing has arrived; a silent provider is not retried, because it has already taken long
		e.Retry = ctx.Err() == nil && !errors.Is(context.Cause(x.ctx), ErrSilent)
		_, e.Unsent = errors.AsType[unsentError](err)
		return nil, e
	}
	x.Request = nil // it holds the body, which may be large and is not needed any more
	x.watch.Reset(x.idle)
	if err := c.checkResponse(x); err != nil {
		defer x.End(false)
		return nil, err
	}
	return x, nil
}

// buildURL returns the URL of path below the base URL.
func (c *Client) buildURL(path string) *url.URL {
	u := *c.url
	path, u.RawQuery, _ = strings.Cut(path, "?")
	u.Path += path
	return &u
}

// checkResponse returns an error unless the response has status 200 and no encoding.
func (c *Client) checkResponse(x *Exchange) error {
	if x.StatusCode != http.StatusOK {
		return c.readRefusal(x)
	}
	if e := x.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return NewFailure(x.StatusCode, fmt.Errorf("the answer is encoded as %s", DescribeCode(e)))
	}
	return nil
}

func (x *Exchange) cancelSilent() { x.cancel(ErrSilent) }

// Read reads the body. It fails with ErrSilent when the provider sends nothing for the idle time.
func (x *Exchange) Read(p []byte) (int, error) {
	x.watch.Reset(x.idle) // only the time within Read counts, not the time that the app takes
	n, err := x.Body.Read(p)
	x.watch.Stop()
	if err != nil {
		x.ended.Store(true)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = x.explainCancel(err)
	}
	return n, err
}

// Hurry shortens the idle time to d, until Wait.
func (x *Exchange) Hurry(d time.Duration) { x.idle = min(x.fullIdle, d) }

// Wait ends Hurry.
func (x *Exchange) Wait() { x.idle = x.fullIdle }

// IsJSON reports whether the response is one JSON text and no stream of events.
func (x *Exchange) IsJSON() bool {
	kind, _, err := mime.ParseMediaType(x.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// explainCancel adds the cause of a cancellation to err.
func (x *Exchange) explainCancel(err error) error {
	if cause := context.Cause(x.ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// closeWait is the time limit for the end of a body after its last event.
const closeWait = 20 * time.Millisecond

// BodyEnded reports whether reading has ended, so that End does not wait.
func (x *Exchange) BodyEnded() bool { return x.ended.Load() }

// End releases the connection. It is reused if the body was read to its end, and closed otherwise. whole says that the
// last event was read: then End waits briefly for the end of the body, so that the connection can be reused.
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

type arrivedKey struct{}

// WithArrived returns a context whose requests report how many bytes they hold of a response that is not delivered yet,
// while it arrives: a whole one, or an event of a stream. arrived is called by who reads.
func WithArrived(ctx context.Context, arrived func(bytes int)) context.Context {
	return context.WithValue(ctx, arrivedKey{}, arrived)
}

// minArrived is the least that is reported.
const minArrived = 256 << 10

// Arrived reports that the response holds so many bytes.
func (x *Exchange) Arrived(bytes int) {
	if arrived, ok := x.ctx.Value(arrivedKey{}).(func(int)); ok && bytes >= minArrived {
		arrived(bytes)
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
	x.Arrived(int(size))
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
			x.Arrived(cap(b))
		}
	}
}

// NewFailure returns an error of kind Failed whose message reveals nothing about the operator.
func NewFailure(status int, cause error) *provider.Error {
	return &provider.Error{Kind: provider.Failed, Status: status, Message: "the provider failed", Cause: cause}
}
