package web

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
)

// SetTracer has each request be a span, but for those of load balancers. Its trace is that of the caller's traceparent,
// if there is one. A nil tracer makes no spans.
func (rt *Router) SetTracer(t trace.Tracer) { rt.tracer = t }

// startSpan begins the span of a request, if requests are traced.
func (rt *Router) startSpan(x *exchange, r *http.Request) *http.Request {
	if rt.tracer == nil || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
		return r
	}
	parent := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := rt.tracer.Start(parent, loggedMethod(r.Method), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			semconv.HTTPRequestMethodKey.String(loggedMethod(r.Method)),
			attribute.String("purser.request_id", x.ctx.requestID)))
	x.span = span
	return r.WithContext(ctx)
}

// endSpan ends the span of a request. Its name is the route's: a path may have ids.
func (x *exchange) endSpan(r *http.Request, status int, cut bool) {
	if x.span == nil {
		return
	}
	if r.Pattern != "" {
		x.span.SetName(r.Pattern)
		x.span.SetAttributes(semconv.HTTPRoute(r.Pattern))
	}
	x.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	if status >= 500 || x.ctx.failed || cut {
		x.span.SetStatus(codes.Error, "")
	}
	x.span.End()
}
