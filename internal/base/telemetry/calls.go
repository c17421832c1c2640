package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"
	"go.opentelemetry.io/otel/trace"
)

// Calls records calls of models: a span for each, and the metrics of the GenAI semantic conventions. A nil one records
// nothing.
type Calls struct {
	tracer     trace.Tracer
	duration   genaiconv.ClientOperationDuration
	firstChunk genaiconv.ClientOperationTimeToFirstChunk
	tokens     genaiconv.ClientTokenUsage
}

func newCalls(tracer trace.Tracer, meter metric.Meter) (c *Calls, err error) {
	c = &Calls{tracer: tracer}
	if c.duration, err = genaiconv.NewClientOperationDuration(meter,
		metric.WithExplicitBucketBoundaries(secondBounds...)); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if c.firstChunk, err = genaiconv.NewClientOperationTimeToFirstChunk(meter,
		metric.WithExplicitBucketBoundaries(secondBounds...)); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if c.tokens, err = genaiconv.NewClientTokenUsage(meter,
		metric.WithExplicitBucketBoundaries(tokenBounds...)); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return c, nil
}

// The bounds that the GenAI semantic conventions ask for.
var (
	secondBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	tokenBounds  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
)

// A CallStart is what is known of a call before its provider is asked.
type CallStart struct {
	Provider, Model                string // as the price list spells them
	RequestID, AppID, ConnectionID string
	MaxTokens                      int64
	Streams, Embeds                bool
}

// A Call is one call of a model. A nil one records nothing.
type Call struct {
	of      *Calls
	span    trace.Span
	ctx     context.Context // of the span; its metrics are linked to it
	started time.Time
	common  []attribute.KeyValue // of all its metrics
	failed  string               // error.type
}

// Start begins the span of a call. Its context is that of what the call does.
func (c *Calls) Start(ctx context.Context, s CallStart) (context.Context, *Call) {
	if c == nil {
		return ctx, nil
	}
	operation := semconv.GenAIOperationNameChat
	if s.Embeds {
		operation = semconv.GenAIOperationNameEmbeddings
	}
	x := &Call{
		of:      c,
		started: time.Now(),
		common:  []attribute.KeyValue{operation, providerName(s.Provider), semconv.GenAIRequestModel(s.Model)},
	}
	x.ctx, x.span = c.tracer.Start(ctx, operation.Value.AsString()+" "+s.Model,
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(x.started),
		trace.WithAttributes(x.common...),
		trace.WithAttributes(
			semconv.GenAIRequestMaxTokens(int(s.MaxTokens)),
			semconv.GenAIRequestStream(s.Streams),
			attribute.String("purser.request_id", s.RequestID),
			attribute.String("purser.app_id", s.AppID),
			attribute.String("purser.connection_id", s.ConnectionID)))
	return x.ctx, x
}

// providerName returns a provider as the conventions name it.
func providerName(name string) attribute.KeyValue {
	switch name {
	case "openai":
		return semconv.GenAIProviderNameOpenAI
	case "anthropic":
		return semconv.GenAIProviderNameAnthropic
	case "google":
		return semconv.GenAIProviderNameGCPGemini
	}
	return semconv.GenAIProviderNameKey.String(name)
}

// Answered records that the first part of a stream came so long after the start.
func (x *Call) Answered(after time.Duration) {
	if x == nil {
		return
	}
	x.span.AddEvent("first chunk", trace.WithTimestamp(x.started.Add(after)))
	x.span.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(after.Seconds()))
	x.of.firstChunk.Inst().Record(x.ctx, after.Seconds(), metric.WithAttributes(x.common...))
}

// A Charge is what a call used and cost.
type Charge struct {
	InputTokens, CachedTokens, OutputTokens int64  // the cached ones are part of the input
	ChargedMC                               int64  // what its payer paid, in micro-cents
	Settlement                              string // settled or estimated
	FinishReason                            string // "" = not known
}

// Charged records the usage and the charge of a settled call.
func (x *Call) Charged(c Charge) {
	if x == nil {
		return
	}
	x.span.SetAttributes(
		semconv.GenAIUsageInputTokens(int(c.InputTokens)),
		semconv.GenAIUsageOutputTokens(int(c.OutputTokens)),
		attribute.Int64("purser.charged_mc", c.ChargedMC),
		attribute.String("purser.settlement", c.Settlement))
	if c.CachedTokens > 0 {
		x.span.SetAttributes(semconv.GenAIUsageCacheReadInputTokens(int(c.CachedTokens)))
	}
	if c.FinishReason != "" {
		x.span.SetAttributes(semconv.GenAIResponseFinishReasons(c.FinishReason))
	}
	for kind, n := range map[genaiconv.TokenTypeAttr]int64{
		genaiconv.TokenTypeInput: c.InputTokens, genaiconv.TokenTypeOutput: c.OutputTokens,
	} {
		x.of.tokens.Inst().Record(x.ctx, n, metric.WithAttributes(x.common...),
			metric.WithAttributes(attribute.String("gen_ai.token.type", string(kind))))
	}
}

// Fail records why the call failed: an error code, or a status of the provider. It must have few distinct values.
func (x *Call) Fail(kind string) {
	if x == nil {
		return
	}
	x.failed = kind
	x.span.SetStatus(codes.Error, kind)
	x.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
}

// End ends the span.
func (x *Call) End() {
	if x == nil {
		return
	}
	x.span.End()
	attributes := x.common
	if x.failed != "" {
		attributes = append(attributes[:len(attributes):len(attributes)], semconv.ErrorTypeKey.String(x.failed))
	}
	x.of.duration.Inst().Record(x.ctx, time.Since(x.started).Seconds(), metric.WithAttributes(attributes...))
}

// Step begins a span of a part of the work, such as the hold. Call its second result at its end, with the error.
func (c *Calls) Step(ctx context.Context, name string) (context.Context, func(error)) {
	if c == nil {
		return ctx, func(error) {}
	}
	ctx, span := c.tracer.Start(ctx, name)
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "failed") // the error itself may name accounts
		}
		span.End()
	}
}
