package web

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/purserhq/purser/internal/base/apierr"
)

// A Handler answers a request or returns the error to answer with. An *apierr.Error is shown; any other error is a 500
// that reveals nothing. If a handler returns an error after its response has begun, the connection is cut.
type Handler func(w http.ResponseWriter, r *http.Request) error

// A Router calls handlers by method and path, writes their errors, recovers their panics and writes one log line per
// request. Add routes before it serves; then it is safe for concurrent use.
type Router struct {
	mux       *http.ServeMux
	log       *slog.Logger
	links     Links
	pageError PageError
	patterns  []string
	hints     map[string]string    // by path
	errorBody map[string]ErrorBody // by the prefix of paths
	idHeaders map[string]string    // by the prefix of paths
	site      Site
	pageHome  func(*http.Request) string // see SetPageHome; nil = pages are everywhere
	formHosts string                     // see SetFormOrigins
	secure    bool                       // tell browsers to come by HTTPS alone
	readOnly  string                     // why requests that change something are refused; "" = they are not
	sample    int64                      // of a million successful requests, those that are logged
	now       func() time.Time           // the time in the ids of requests
	tracer    trace.Tracer               // of the spans of requests; nil = none
	bodies    bodies
}

// NewRouter returns a Router without routes.
func NewRouter(log *slog.Logger, links Links) *Router {
	return &Router{
		mux:       http.NewServeMux(),
		log:       log,
		links:     links,
		pageError: plainPageError,
		sample:    everyRequest,
		now:       time.Now,
	}
}

// everyRequest is the sample of all requests.
const everyRequest = 1_000_000

// SetLogSample logs n of a million successful requests. Which ones follows from their ids. Other requests are always
// logged.
func (rt *Router) SetLogSample(n int64) { rt.sample = n }

// isSampled reports whether a successful request is logged.
func (rt *Router) isSampled(requestID string) bool {
	if rt.sample >= everyRequest {
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(requestID)) // never fails
	return int64(h.Sum64()%everyRequest) < rt.sample
}

// SetPageHome sets where a page is, by a function that returns the URL for a request, or "" if it is at the request's
// own address. A visitor who comes by another host is sent there; a form that does is refused.
func (rt *Router) SetPageHome(home func(*http.Request) string) { rt.pageHome = home }

// SetFormOrigins sets the origins besides a page's own that the forms of pages may lead to.
func (rt *Router) SetFormOrigins(origins ...string) {
	rt.formHosts = ""
	for _, origin := range origins {
		rt.formHosts += " " + origin
	}
}

// leavePage sends a visitor to the host of a page, and reports whether it is another one.
func (rt *Router) leavePage(w http.ResponseWriter, r *http.Request) (left bool, err error) {
	if rt.pageHome == nil {
		return false, nil
	}
	home := rt.pageHome(r)
	switch {
	case home == "":
		return false, nil
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return true, apierr.NotFound.Errorf("This page is at another address: %s", home)
	}
	http.Redirect(w, r, home, http.StatusTemporaryRedirect)
	return true, nil
}

// SetSecure has answers tell browsers to come by HTTPS alone, for a year (HSTS). Browsers ignore it in answers by HTTP.
func (rt *Router) SetSecure() { rt.secure = true }

// SetReadOnly refuses all requests that may change something, but for those that sign in and out, and tells why.
func (rt *Router) SetReadOnly(why string) { rt.readOnly = why }

// refuseChange returns an error for a request that may change something on a router that is for reading.
func (rt *Router) refuseChange(r *http.Request) error {
	switch {
	case rt.readOnly == "" || r.Method == http.MethodGet || r.Method == http.MethodHead:
		return nil
	case r.URL.Path == "/sign-in" || r.URL.Path == "/sign-out" || strings.HasPrefix(r.URL.Path, "/sign-in/"):
		return nil
	}
	return apierr.Unavailable.Errorf("%s", rt.readOnly)
}

// SetClock has the ids of requests carry the time of a clock, which rows are stored by too. Their
// durations are measured without it.
func (rt *Router) SetClock(now func() time.Time) { rt.now = now }

// Handle adds a route whose errors are envelopes. The pattern is that of http.ServeMux, with a
// method and without a host.
func (rt *Router) Handle(pattern string, h Handler) {
	rt.add(pattern, &route{h: h})
}

// HandlePage adds a route for browsers: it sets security headers before h runs, refuses cross-origin POSTs, and renders
// errors as pages.
func (rt *Router) HandlePage(pattern string, h Handler) {
	rt.add(pattern, &route{h: h, page: true})
}

func (rt *Router) add(pattern string, ro *route) {
	rt.mux.Handle(pattern, ro)
	rt.patterns = append(rt.patterns, pattern)
}

// SetHint says what to do instead at a path without a route that clients of other APIs call. A path that ends in a
// slash stands for all below it that have no hint of their own.
func (rt *Router) SetHint(path, hint string) {
	if rt.hints == nil {
		rt.hints = map[string]string{}
	}
	rt.hints[path] = hint
}

// findHint returns the hint for a path; "" = none.
func (rt *Router) findHint(path string) string {
	if hint := rt.hints[path]; hint != "" {
		return hint
	}
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		if hint := rt.hints[path[:i+1]]; hint != "" {
			return hint
		}
	}
	return ""
}

// An ErrorBody encodes an error for clients of another API.
type ErrorBody func(e *apierr.Error, l Links, requestID string) ([]byte, error)

// SetErrorBody says how errors are encoded under a prefix of paths, such as /anthropic/. Elsewhere they are envelopes.
func (rt *Router) SetErrorBody(prefix string, encode ErrorBody) {
	if rt.errorBody == nil {
		rt.errorBody = map[string]ErrorBody{}
	}
	rt.errorBody[prefix] = encode
}

// UseErrorBody says how the error of one request is encoded, whatever its path is. ctx is the request's.
func UseErrorBody(ctx context.Context, encode ErrorBody) {
	if x := exchangeOf(ctx); x != nil {
		x.ctx.errorBody = encode
	}
}

// SetRequestIDHeader sends the request id under a second name under a prefix of paths, where
// clients of another API look for it.
func (rt *Router) SetRequestIDHeader(prefix, name string) {
	if rt.idHeaders == nil {
		rt.idHeaders = map[string]string{}
	}
	rt.idHeaders[prefix] = http.CanonicalHeaderKey(name)
}

// secondIDHeader returns the second name of the request id at a path, or "".
func (rt *Router) secondIDHeader(path string) string {
	for prefix, name := range rt.idHeaders {
		if strings.HasPrefix(path, prefix) {
			return name
		}
	}
	return ""
}

// encodeError returns the body of an error response at a path.
func (rt *Router) encodeError(e *apierr.Error, path, requestID string) ([]byte, error) {
	for prefix, encode := range rt.errorBody {
		if strings.HasPrefix(path, prefix) {
			return encode(e, rt.links, requestID)
		}
	}
	return Envelope(e, rt.links)
}

// Routes returns the patterns of all routes, in the order in which they were added.
func (rt *Router) Routes() []string { return slices.Clone(rt.patterns) }

// SetPageError replaces the renderer of error pages.
func (rt *Router) SetPageError(render PageError) { rt.pageError = render }

// A route is a handler of ServeMux. It runs only inside Router.ServeHTTP.
type route struct {
	h    Handler
	page bool
}

func (ro *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r.Context())
	x.rw.routed = true
	x.ctx.page = ro.page
	if ro.page {
		x.ctx.rt.setPageHeaders(w.Header())
		if left, err := x.ctx.rt.leavePage(w, r); err != nil {
			WriteError(w, r, err)
			return
		} else if left {
			return
		}
		if err := checkOrigin(r); err != nil {
			WriteError(w, r, err)
			return
		}
	}
	if err := x.ctx.rt.refuseChange(r); err != nil {
		WriteError(w, r, err)
		return
	}
	if err := ro.h(w, r); err != nil {
		WriteError(w, r, err)
	}
}

// These header values are shared by all responses. Set and Add do not modify them.
var (
	versionValue = []string{Version}
	nosniffValue = []string{"nosniff"}
	policyValue  = []string{answerPolicy}
	closeValue   = []string{"close"}
	secureValue  = []string{"max-age=31536000"}
)

// ServeHTTP answers one request.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	r = takeAbsolute(r)
	x := newExchange(rt, w, r, rt.now())
	r = rt.startSpan(x, r.WithContext(&x.ctx))
	defer rt.finish(x, r, start)

	x.rw.idHeader = rt.secondIDHeader(r.URL.Path)
	h := w.Header()
	h[VersionHeader] = versionValue
	h["X-Request-Id"] = x.ctx.idHeader[:]
	h["X-Content-Type-Options"] = nosniffValue
	h["Content-Security-Policy"] = policyValue
	if rt.secure {
		h["Strict-Transport-Security"] = secureValue
	}
	if len(r.TransferEncoding) > 0 {
		// net/http hides whether the request also had a Content-Length. A proxy in front of us may
		// have used that, so the connection is closed after a chunked body (RFC 9112 §6.1).
		h["Connection"] = closeValue
	}

	if err := checkTarget(r); err != nil {
		x.rw.routed = true
		WriteError(&x.rw, r, err)
		return
	}
	rt.mux.ServeHTTP(&x.rw, r)
	if !x.rw.routed {
		rt.refuse(x, r)
	}
}

// refuse answers a request without a route. ServeMux's redirect of /tree to /tree/ counts as one.
func (rt *Router) refuse(x *exchange, r *http.Request) {
	x.rw.routed = true
	r.Pattern = ""
	allow := x.rw.refusal.header.Get("Allow")
	switch {
	case x.rw.refusal.status != http.StatusMethodNotAllowed:
		if path, ends := strings.CutSuffix(r.URL.Path, "/"); ends && rt.hasRoute(r, path) {
			x.refuseAddress(r, errSlashes())
			return
		}
		if hint := rt.findHint(r.URL.Path); hint != "" {
			WriteError(&x.rw, r, apierr.NotFound.Errorf("There is nothing at this address: %s", hint))
			return
		}
		x.refuseAddress(r, errNoRoute())
	case r.Method == http.MethodOptions:
		x.rw.Header().Set("Allow", allow+", OPTIONS")
		x.rw.WriteHeader(http.StatusNoContent)
	default:
		err := apierr.MethodNotAllowed.Errorf(
			"This address does not take the method of the request; see the header Allow.")
		err.Allow = allow + ", OPTIONS"
		WriteError(&x.rw, r, err)
	}
}

// refuseAddress answers a request without a route, by a page if a browser asks.
func (x *exchange) refuseAddress(r *http.Request, err *apierr.Error) {
	if isBrowsing(r) {
		x.ctx.page = true
		x.ctx.rt.setPageHeaders(x.rw.Header())
	}
	WriteError(&x.rw, r, err)
}

// hasRoute reports whether a request would have a route at another path.
func (rt *Router) hasRoute(r *http.Request, path string) bool {
	other := *r
	other.URL = &url.URL{Path: path}
	_, pattern := rt.mux.Handler(&other)
	return pattern != ""
}

// finish is deferred by ServeHTTP: it turns a panic into a 500 and writes the log line. To cut a
// response, it panics with http.ErrAbortHandler, which makes net/http close the connection.
func (rt *Router) finish(x *exchange, r *http.Request, start time.Time) {
	v := recover()
	if x.bodyBytes > 0 {
		rt.bodies.give(x.network, x.bodyBytes)
	}
	cut := v == http.ErrAbortHandler
	if v != nil && !cut {
		cut = rt.handlePanic(x, r, v)
	}
	rt.logRequest(x, r, start, cut)
	if cut {
		panic(http.ErrAbortHandler)
	}
	x.rw.drainBody()
}

// handlePanic logs the stack and answers 500, or reports that the response has begun and must be cut.
func (rt *Router) handlePanic(x *exchange, r *http.Request, v any) (cut bool) {
	rt.log.LogAttrs(r.Context(), slog.LevelError, "panic",
		slog.String("request_id", x.ctx.requestID),
		slog.String("route", r.Pattern),
		slog.String("panic", fmt.Sprint(v)),
		slog.String("stack", string(debug.Stack())))
	if x.rw.status != 0 {
		return true
	}
	defer func() { // write the log line even if the page renderer panics
		if recover() != nil {
			x.rw.status = http.StatusInternalServerError
			cut = true
		}
	}()
	x.rw.routed = true
	WriteError(&x.rw, r, apierr.Internal.Errorf(internalMessage))
	return false
}

// statusClientGone is the logged status of a request whose client disconnected before the response began.
const statusClientGone = 499

func (rt *Router) logRequest(x *exchange, r *http.Request, start time.Time, cut bool) {
	status := x.rw.status
	switch {
	case status != 0:
	case cut:
		status = statusClientGone
	default:
		status = http.StatusOK // net/http sends it if a handler writes nothing
	}
	x.endSpan(r, status, cut)
	level := slog.LevelInfo
	if status >= 500 || x.ctx.failed {
		level = slog.LevelError
	}
	ctx := r.Context()
	log := rt.log.Handler()
	if !log.Enabled(ctx, level) || status < 400 && !cut && level == slog.LevelInfo && !rt.isSampled(x.ctx.requestID) {
		return
	}
	end := time.Now()
	record := slog.NewRecord(end, level, "request", 0)
	record.AddAttrs(
		slog.String("method", loggedMethod(r.Method)),
		slog.String("route", r.Pattern),
		slog.Int("status", status),
		slog.Int64("duration_us", end.Sub(start).Microseconds()),
		slog.Int64("bytes", x.rw.bytes))
	record.AddAttrs(slog.String("request_id", x.ctx.requestID), slog.String("client", ClientAddress(r)))
	if cut {
		record.AddAttrs(slog.Bool("cut", true))
	}
	record.AddAttrs(x.logAttrs()...)
	_ = log.Handle(ctx, record) // there is nowhere to report a failing log
}

// loggedMethod returns the method for the log, without free text of the client.
func loggedMethod(m string) string {
	switch m {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE":
		return m
	}
	return "other"
}
