package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/purserhq/purser/internal/base/id"
)

// An exchange is one request and its response: the request's context and the response writer in one allocation. It is
// not pooled, because work that outlives the request (a detached settlement) keeps the context, and must never read
// the id of another request in it.
type exchange struct {
	ctx  reqContext
	rw   response
	span trace.Span // nil = the request is not traced

	// Set by countBody.
	network   string
	bodyBytes int64
}

type exchangeKey struct{}

// reqContext is the context of a request: it returns its exchange, and else the values of the server's context.
type reqContext struct {
	context.Context
	x *exchange

	rt        *Router
	requestID string
	idHeader  [1]string // the header's value, allocated with the exchange
	page      bool      // errors are rendered as HTML
	failed    bool      // our own error, whatever the status is
	errorBody ErrorBody // nil = by the path

	connectionID string // that the request is made for; "" = none

	mu    sync.Mutex
	attrs []slog.Attr
	buf   [4]slog.Attr // the first attrs
}

func (c *reqContext) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return c.x
	}
	return c.Context.Value(key)
}

func newExchange(rt *Router, w http.ResponseWriter, r *http.Request, now time.Time) *exchange {
	x := &exchange{}
	x.rw.w, x.rw.r, x.rw.rt = w, r, rt
	c := &x.ctx
	c.Context, c.x, c.rt = r.Context(), x, rt
	c.requestID = id.New(id.Request, now)
	c.idHeader[0] = c.requestID
	c.attrs = c.buf[:0]
	return x
}

// exchangeOf returns nil outside of a Router.
func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// RequestID returns the id of the request of ctx, req_…, or "" outside of a Router. It is still valid after the request
// has ended.
func RequestID(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.ctx.requestID
	}
	return ""
}

// SetConnection says for which connection the request of ctx is made: an error names it, whatever it is about.
func SetConnection(ctx context.Context, connectionID string) {
	if x := exchangeOf(ctx); x != nil {
		x.ctx.connectionID = connectionID
	}
}

// Log adds attributes to the log line of the request of ctx. They must contain no secret and no text of a user. Log has
// no effect after the line is written and outside of a Router.
func Log(ctx context.Context, attrs ...slog.Attr) {
	x := exchangeOf(ctx)
	if x == nil {
		return
	}
	x.ctx.mu.Lock()
	defer x.ctx.mu.Unlock()
	x.ctx.attrs = append(x.ctx.attrs, attrs...)
}

// logAttrs returns the attributes that were added so far. Later ones are ignored.
func (x *exchange) logAttrs() []slog.Attr {
	x.ctx.mu.Lock()
	defer x.ctx.mu.Unlock()
	return x.ctx.attrs
}

// response counts the bytes that are sent. Before one of our routes runs, any output is ServeMux's own 404, 405 or
// redirect. It is stored in refusal and never sent.
type response struct {
	w       http.ResponseWriter
	r       *http.Request
	rt      *Router
	routed  bool
	refusal struct {
		header http.Header
		status int
	}
	status   int   // 0 until the answer has begun
	failed   error // of the last write that the client did not take; nil = there is none
	refused  bool  // its request may have a body that was not read
	bytes    int64
	idHeader string // second name of X-Request-Id; "" = none
}

// repeatRequestID sets the second header of the request id. A replay has the id of the first call.
func (rw *response) repeatRequestID() {
	if rw.idHeader != "" {
		h := rw.w.Header()
		h[rw.idHeader] = h["X-Request-Id"]
	}
}

func (rw *response) Header() http.Header {
	if rw.routed {
		return rw.w.Header()
	}
	if rw.refusal.header == nil {
		rw.refusal.header = http.Header{}
	}
	return rw.refusal.header
}

func (rw *response) WriteHeader(status int) {
	if !rw.routed {
		rw.refusal.status = status
		return
	}
	if rw.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		rw.status = status
		rw.repeatRequestID()
		if status >= http.StatusMultipleChoices {
			rw.keepReading()
		}
	}
	rw.w.WriteHeader(status)
}

func (rw *response) Write(p []byte) (int, error) {
	if !rw.routed {
		return len(p), nil
	}
	if rw.status == 0 {
		rw.status = http.StatusOK
		rw.repeatRequestID()
	}
	n, err := rw.w.Write(p)
	rw.noteFailed(err)
	rw.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (rw *response) Flush() { _ = rw.FlushError() }

// FlushError flushes for http.ResponseController.
func (rw *response) FlushError() error {
	if rw.status == 0 {
		rw.status = http.StatusOK
	}
	err := http.NewResponseController(rw.w).Flush()
	rw.noteFailed(err)
	return err
}

// noteFailed notes that the client did not take something. What a handler may not write is a fault of ours.
func (rw *response) noteFailed(err error) {
	if err != nil && !errors.Is(err, http.ErrContentLength) && !errors.Is(err, http.ErrBodyNotAllowed) {
		rw.failed = err
	}
}

// hasFailed reports whether an error of a handler is that the client did not take what was written.
func (rw *response) hasFailed(err error) bool { return rw.failed != nil && errors.Is(err, rw.failed) }

// Unwrap gives http.ResponseController access to deadlines and Hijack.
func (rw *response) Unwrap() http.ResponseWriter { return rw.w }
