// Package telemetry sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP (decision 093). Calls of
// models follow the GenAI semantic conventions. Spans carry ids, sizes, times and error codes; never a prompt, an
// answer, a secret or an email address. A collector that is slow or away costs nothing but its spans: they wait in a
// bounded queue, and what does not fit is dropped.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/purserhq/purser/internal/base/money"
)

// Config says where telemetry goes. The zero value sends nothing.
type Config struct {
	URL     string            // of the collector, such as http://127.0.0.1:4318; "" = nothing is sent
	Headers map[string]string // sent with each request, such as an API key; secret
	Sample  money.PPM         // the share of requests that are traced
}

// ParseHeaders reads name=value pairs, separated by commas. Its error repeats no value.
func ParseHeaders(text string) (map[string]string, error) {
	list := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" || strings.ContainsAny(name+value, "\r\n\x00") {
			return nil, errors.New("must be NAME=VALUE, separated by commas")
		}
		list[name] = value
	}
	return list, nil
}

// An Exporter sends what a node records. A nil one sends and records nothing.
type Exporter struct {
	tracer  trace.Tracer
	calls   *Calls
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

// A Node is what spans and metrics say about their sender.
type Node struct {
	ID, Version string
}

// metricInterval is the time between two exports of the metrics.
const metricInterval = 30 * time.Second

// Open returns an Exporter of the node's spans, and of all metrics of registry; nil if c has no
// URL. It contacts no one: a collector that is away is no reason not to start.
func Open(
	ctx context.Context, c Config, registry prometheus.Gatherer, node Node, log *slog.Logger,
) (*Exporter, error) {
	if c.URL == "" {
		return nil, nil
	}
	base, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("otlp.url: %w", err)
	}
	spans, err := otlptrace.New(ctx, spanClient{newSender(base, "v1/traces", c.Headers)})
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	points := pointExporter{newSender(base, "v1/metrics", c.Headers)}
	// Failures of the exporters come here, at most one for each batch. Their texts name the collector only.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("telemetry not sent", "error", err)
	}))
	about := resource.NewSchemaless(
		semconv.ServiceName("purser"), semconv.ServiceVersion(node.Version), semconv.ServiceInstanceID(node.ID))
	// An app's traceparent gives the trace's id, but no app decides what this node records.
	share := sdktrace.TraceIDRatioBased(float64(c.Sample) / float64(money.One))
	e := &Exporter{
		traces: sdktrace.NewTracerProvider(
			sdktrace.WithBatcher(spans),
			sdktrace.WithResource(about),
			sdktrace.WithSampler(sdktrace.ParentBased(share,
				sdktrace.WithRemoteParentSampled(share), sdktrace.WithRemoteParentNotSampled(share)))),
		metrics: sdkmetric.NewMeterProvider(
			sdkmetric.WithResource(about),
			sdkmetric.WithReader(sdkmetric.NewPeriodicReader(points,
				sdkmetric.WithInterval(metricInterval),
				sdkmetric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(registry)))))),
	}
	const scope = "github.com/purserhq/purser"
	e.tracer = e.traces.Tracer(scope)
	if e.calls, err = newCalls(e.tracer, e.metrics.Meter(scope)); err != nil {
		return nil, errors.Join(err, e.Stop(ctx))
	}
	return e, nil
}

// Tracer returns what begins the spans of requests; nil = none.
func (e *Exporter) Tracer() trace.Tracer {
	if e == nil {
		return nil
	}
	return e.tracer
}

// Calls returns what records the calls of models; nil = nothing.
func (e *Exporter) Calls() *Calls {
	if e == nil {
		return nil
	}
	return e.calls
}

// Stop sends what waits, until ctx ends.
func (e *Exporter) Stop(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return errors.Join(e.traces.Shutdown(ctx), e.metrics.Shutdown(ctx))
}
