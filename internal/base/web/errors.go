package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
)

// Links builds the URLs of pages in errors and answers (contract §7).
type Links struct {
	Dashboard string // {dashboard_url}, without a trailing slash; "" = errors have no URLs of the dashboard
	Docs      string // {base_url}/docs, without a trailing slash; "" = errors have no doc_url
}

// Doc returns error.doc_url: the section of the guides about a code; "" = none.
func (l Links) Doc(c apierr.Code) string {
	if l.Docs == "" {
		return ""
	}
	return l.Docs + "/errors#" + c.Name
}

// Increase returns error.increase_url of a connection: the page where its user raises the spend cap.
func (l Links) Increase(connectionID string) string { return l.connection(connectionID, "/increase") }

// Review returns error.review_url of a frozen connection.
func (l Links) Review(connectionID string) string { return l.connection(connectionID, "/review") }

// Approval returns approval_url of an allocation request: the page where its user decides.
func (l Links) Approval(requestID string) string {
	return l.Dashboard + "/allocation-requests/" + url.PathEscape(requestID)
}

func (l Links) connection(connectionID, page string) string {
	return l.Dashboard + "/connections/" + url.PathEscape(connectionID) + page
}

const internalMessage = "Something went wrong on our side. If it happens again, contact support with the request id."

// envelope is the body of every error response (contract §7).
type envelope struct {
	Error envelopeError `json:"error"`
}

type envelopeError struct {
	Code         string         `json:"code"`
	Message      string         `json:"message"`
	Type         string         `json:"type"`
	ConnectionID *string        `json:"connection_id"`
	IncreaseURL  *string        `json:"increase_url"`
	ReviewURL    *string        `json:"review_url"`
	DocURL       string         `json:"doc_url,omitempty"`
	Details      map[string]any `json:"details,omitempty"`
}

// Envelope returns the JSON body for e. Handlers use it for an error inside a stream that has begun.
func Envelope(e *apierr.Error, l Links) ([]byte, error) {
	out := envelopeError{
		Code:    e.Code.Name,
		Message: e.Message,
		Type:    e.Code.Type,
		DocURL:  l.Doc(e.Code),
		Details: e.Details,
	}
	if e.ConnectionID != "" {
		out.ConnectionID = &e.ConnectionID
		if e.Code.Increase && !e.NoIncrease && l.Dashboard != "" {
			u := l.Increase(e.ConnectionID)
			out.IncreaseURL = &u
		}
		if e.Code.Review && l.Dashboard != "" {
			u := l.Review(e.ConnectionID)
			out.ReviewURL = &u
		}
	}
	return marshalJSON(envelope{out})
}

// WriteError answers with err. It is the only writer of envelopes and error pages. It panics with
// http.ErrAbortHandler, which cuts the connection, if the response has begun or if err says that the client has
// disconnected: a client must not take half a response, or an empty 200, for a whole one.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	begun := x != nil && x.rw.status != 0
	_, reported := errors.AsType[*reportedError](err)
	clientGone := errors.Is(err, context.Canceled) && r.Context().Err() != nil || x != nil && x.rw.hasFailed(err)
	e := toAPIError(err)
	if clientGone {
		Log(r.Context(), slog.Bool("client_gone", true))
	} else {
		logError(r.Context(), x, e)
	}
	if begun && reported {
		return
	}
	if begun || clientGone {
		panic(http.ErrAbortHandler)
	}
	if x != nil && e.ConnectionID == "" && e.Code.Status != http.StatusUnauthorized {
		of := *e
		of.ConnectionID = x.ctx.connectionID
		e = &of
	}
	setErrorHeaders(w.Header(), e)
	if x != nil && x.ctx.page {
		x.ctx.rt.pageError(w, r, e)
		return
	}
	encode := func(e *apierr.Error) ([]byte, error) { return Envelope(e, Links{}) }
	if x != nil {
		encode = func(e *apierr.Error) ([]byte, error) {
			if x.ctx.errorBody != nil {
				return x.ctx.errorBody(e, x.ctx.rt.links, x.ctx.requestID)
			}
			return x.ctx.rt.encodeError(e, r.URL.Path, x.ctx.requestID)
		}
	}
	body, merr := encode(e)
	if merr != nil { // details that are not JSON are a bug: answer without them
		Log(r.Context(), slog.String("envelope", merr.Error()))
		plain := *e
		plain.Details = nil
		body, _ = encode(&plain)
	}
	_ = writeBody(w, e.Code.Status, "application/json", body) // fails only if the client has disconnected
}

// AlreadyReported marks err as reported to the client by the response that has begun, for example as an event of a
// stream. Such an error is only logged: nothing is written, and the connection is not cut. If the response has not
// begun, err is answered like any other error. AlreadyReported(nil) is nil.
func AlreadyReported(err error) error {
	if err == nil {
		return nil
	}
	return &reportedError{err}
}

type reportedError struct{ err error }

func (e *reportedError) Error() string { return e.err.Error() }
func (e *reportedError) Unwrap() error { return e.err }

// toAPIError maps any error to one that may be sent. A deadline of ours that has passed is 503, not a bug.
func toAPIError(err error) *apierr.Error {
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || db.IsUnavailable(err) {
		e := apierr.Unavailable.Errorf("The service is briefly unavailable. Try again in a moment.").WithCause(err)
		e.RetryAfter = time.Second
		return e
	}
	return apierr.Internal.Errorf(internalMessage).WithCause(err)
}

// logError adds the code and the cause to the log line. It does not log the message, which may quote the client.
func logError(ctx context.Context, x *exchange, e *apierr.Error) {
	if x != nil && e.Code.Status >= 500 {
		x.ctx.failed = true
	}
	Log(ctx, slog.String("error", e.Code.Name))
	if e.Cause != nil {
		Log(ctx, slog.String("cause", e.Cause.Error()))
	}
	if e.ConnectionID != "" {
		Log(ctx, slog.String("error_connection_id", e.ConnectionID))
	}
}

// maxClientWait is the longest Retry-After that a client library should wait for. OpenAI's SDKs sleep for the whole
// Retry-After unless x-should-retry is false, and an app must not hang for a day (decision 013).
const maxClientWait = time.Minute

// setErrorHeaders removes the headers that a handler has set for its response, and sets those of the error.
func setErrorHeaders(h http.Header, e *apierr.Error) {
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Link"} {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	if e.Code.Final || e.Final || e.RetryAfter > maxClientWait {
		h.Set("X-Should-Retry", "false")
	}
	if e.Allow != "" {
		h.Set("Allow", e.Allow)
	}
	if e.Challenge != "" {
		h.Set("WWW-Authenticate", e.Challenge)
	}
}

// WriteJSON answers with v. A nil slice is an empty list, never null. An error means that v cannot
// be encoded and nothing was written.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Slice && rv.IsNil() {
		v = []struct{}{}
	}
	body, err := marshalJSON(v)
	if err != nil {
		return err
	}
	return writeBody(w, status, "application/json", body)
}

// marshalJSON encodes v without escaping < > &, which JSON need not, and ends it
// with a line feed.
func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeBody(w http.ResponseWriter, status int, contentType string, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}
