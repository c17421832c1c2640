package purser

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// A clock is the time that tests replace.
type clock struct {
	now   func() time.Time
	sleep func(ctx context.Context, d time.Duration) error // returns the error of a context that ends before
}

var systemClock = clock{
	now: time.Now,
	sleep: func(ctx context.Context, d time.Duration) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	},
}

// A request is one request of the API, which may be sent several times.
type request struct {
	method  string
	path    string // below BaseURL, with its query
	header  http.Header
	body    []byte
	timeout time.Duration
	// limit is for all tries and the waits between them, 0 = none; firstTry for the first one, if another may follow.
	limit, firstTry time.Duration
	// repeatable says that sending it again after it may have arrived changes nothing: it has an Idempotency-Key, or
	// it changes nothing at all.
	repeatable bool
	byClient   bool // authorized by the app's credentials
	// authorize adds the credentials. rejected is the access token that was answered by 401, or "". It returns the
	// access token that it added, or "" for credentials that can't be renewed.
	authorize func(ctx context.Context, header http.Header, rejected string) (token string, err error)
}

// A reply is a whole answer with a status of success.
type reply struct {
	header http.Header
	body   []byte
}

const (
	maxReplyBytes = 64 << 20
	maxRetryWait  = time.Minute // a longer Retry-After is left to the app
	firstBackoff  = 500 * time.Millisecond
	maxBackoff    = 8 * time.Second
)

// send sends a request until it has an answer that repeating can't change, and reads the whole answer.
func (c *Client) send(ctx context.Context, r request) (whole reply, err error) {
	began, isFirst := c.clock.now(), true
	err = c.repeat(ctx, r, func(header http.Header) error {
		timeout := r.timeout
		if r.limit > 0 {
			timeout = min(timeout, r.limit-c.clock.now().Sub(began))
		}
		if isFirst && r.firstTry > 0 && c.options.MaxRetries > 0 {
			timeout = min(timeout, r.firstTry)
		}
		isFirst = false
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, newTimeoutError(timeout))
		defer cancel()
		response, err := c.roundTrip(ctx, r, header)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxReplyBytes))
		if err != nil {
			return newConnectionError(causeOf(ctx, err))
		}
		whole = reply{response.Header, body}
		return nil
	})
	return whole, err
}

// repeat tries a request, with the credentials in its header, until the result is one that repeating can't change.
func (c *Client) repeat(ctx context.Context, r request, try func(header http.Header) error) error {
	began := c.clock.now()
	rejected := "" // the access token that was answered by 401
	for tries := 0; ; {
		token, err := c.tryAuthorized(ctx, r, rejected, try)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		refused := asError(err)
		if refused == nil {
			return err
		}
		if refused.Status == http.StatusUnauthorized && token != "" && rejected == "" {
			rejected = token // once more with a fresh token
			continue
		}
		wait, ok := c.retryDelay(r, refused, tries)
		if !ok || r.limit > 0 && c.clock.now().Sub(began)+wait >= r.limit {
			return err
		}
		if c.clock.sleep(ctx, wait) != nil {
			return ctx.Err()
		}
		tries++
	}
}

// tryAuthorized tries a request once. It returns the access token that it used.
func (c *Client) tryAuthorized(ctx context.Context, r request, rejected string,
	try func(header http.Header) error) (token string, err error) {
	header := r.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("User-Agent", userAgent)
	if r.authorize != nil {
		if token, err = r.authorize(ctx, header, rejected); err != nil {
			// A refresh repeats itself: what it could not get, this loop does not ask for again.
			if refused := asError(err); refused != nil {
				final := *refused
				final.ShouldRetry = false
				return "", &final
			}
			return "", err
		}
	}
	return token, try(header)
}

// roundTrip sends a request and returns an answer of success, or an *Error.
func (c *Client) roundTrip(ctx context.Context, r request, header http.Header) (*http.Response, error) {
	httpRequest, err := http.NewRequestWithContext(ctx, r.method, c.options.BaseURL+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("purser: %w", err)
	}
	httpRequest.Header = header
	response, err := c.http.Do(httpRequest)
	if err != nil {
		return nil, newConnectionError(causeOf(ctx, err))
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxReplyBytes))
		if err != nil {
			return nil, newConnectionError(causeOf(ctx, err))
		}
		return nil, newError(response.StatusCode, response.Header, body, r.byClient)
	}
	return response, nil
}

// newTimeoutError returns the error of a try that took too long.
func newTimeoutError(limit time.Duration) error {
	return fmt.Errorf("no answer within %s: %w", limit, context.DeadlineExceeded)
}

// causeOf returns why a context ended, or err if it did not.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// retryDelay says how long to wait before a request is sent again, and whether to. It tells the error whether such a
// request is repeated at all.
func (c *Client) retryDelay(r request, refused *Error, tries int) (time.Duration, bool) {
	notDone := refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusServiceUnavailable
	refused.ShouldRetry = refused.ShouldRetry && (r.repeatable || notDone)
	if !refused.ShouldRetry || tries >= c.options.MaxRetries {
		return 0, false
	}
	if refused.RetryAfter > 0 {
		return refused.RetryAfter, true
	}
	return backoff(tries), true
}

// backoff returns a random time that doubles with each try, so that clients do not repeat at the same moment.
func backoff(tries int) time.Duration {
	most := min(firstBackoff<<min(tries, 10), maxBackoff)
	return most/2 + mathrand.N(most/2)
}

// manage sends a request of the management API.
func (c *Client) manage(ctx context.Context, method, path string, body any) (reply, error) {
	r, err := c.manageRequest(method, path, body)
	if err != nil {
		return reply{}, err
	}
	return c.send(ctx, r)
}

// manageRequest returns a request with the app's credentials. body is nil or becomes JSON.
func (c *Client) manageRequest(method, path string, body any) (request, error) {
	r := request{
		method:     method,
		path:       path,
		header:     http.Header{},
		timeout:    c.timeout(defaultTimeout),
		repeatable: method != http.MethodPost,
		byClient:   true,
	}
	c.setClientCredentials(r.header)
	if body == nil {
		return r, nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return request{}, fmt.Errorf("purser: %w", err)
	}
	r.body = text
	r.header.Set("Content-Type", "application/json")
	return r, nil
}

// newUUID returns a random UUID (RFC 9562 version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return formatUUID(b, 4)
}

// formatUUID writes 16 bytes as a UUID of a version.
func formatUUID(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// pathOf joins the parts of a path. Each part is escaped.
func pathOf(parts ...string) string {
	path := ""
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}
