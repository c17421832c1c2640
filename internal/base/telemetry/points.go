package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// A pointExporter sends the SDK's metrics. OpenTelemetry's own exporter would link gRPC for it (decision 093).
type pointExporter struct{ *sender }

// Temporality says that each sum counts from the node's start.
func (pointExporter) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

// Aggregation is the SDK's default.
func (pointExporter) Aggregation(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(kind)
}

// ForceFlush does nothing: nothing waits.
func (pointExporter) ForceFlush(context.Context) error { return nil }

// Shutdown does nothing, as ForceFlush.
func (pointExporter) Shutdown(context.Context) error { return nil }

// Export sends the metrics of one collection. A request of the protocol has the fields of MetricsData.
func (e pointExporter) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	r := &metricspb.ResourceMetrics{Resource: &resourcepb.Resource{Attributes: pairs(all.Resource.Iter())}}
	for _, scope := range all.ScopeMetrics {
		s := &metricspb.ScopeMetrics{
			Scope: &commonpb.InstrumentationScope{Name: scope.Scope.Name, Version: scope.Scope.Version},
		}
		for _, m := range scope.Metrics {
			out, err := encodeMetric(m)
			if err != nil {
				return err
			}
			s.Metrics = append(s.Metrics, out)
		}
		r.ScopeMetrics = append(r.ScopeMetrics, s)
	}
	return e.send(ctx, &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{r}})
}

// encodeMetric returns m as the protocol has it. The node has metrics of these kinds alone.
func encodeMetric(m metricdata.Metrics) (*metricspb.Metric, error) {
	out := &metricspb.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit}
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		out.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: encodePoints(data.DataPoints)}}
	case metricdata.Gauge[float64]:
		out.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: encodePoints(data.DataPoints)}}
	case metricdata.Sum[int64]:
		out.Data = encodeSum(data)
	case metricdata.Sum[float64]:
		out.Data = encodeSum(data)
	case metricdata.Histogram[int64]:
		out.Data = encodeHistogram(data)
	case metricdata.Histogram[float64]:
		out.Data = encodeHistogram(data)
	case metricdata.Summary:
		out.Data = encodeSummary(data)
	default:
		return nil, fmt.Errorf("otlp: metric %s: cannot send a %T", m.Name, data)
	}
	return out, nil
}

const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE

func encodeSum[N int64 | float64](sum metricdata.Sum[N]) *metricspb.Metric_Sum {
	return &metricspb.Metric_Sum{Sum: &metricspb.Sum{
		AggregationTemporality: cumulative,
		IsMonotonic:            sum.IsMonotonic,
		DataPoints:             encodePoints(sum.DataPoints),
	}}
}

func encodePoints[N int64 | float64](list []metricdata.DataPoint[N]) (out []*metricspb.NumberDataPoint) {
	for _, p := range list {
		n := &metricspb.NumberDataPoint{
			Attributes: pairs(p.Attributes.Iter()), StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
		}
		switch v := any(p.Value).(type) {
		case int64:
			n.Value = &metricspb.NumberDataPoint_AsInt{AsInt: v}
		case float64:
			n.Value = &metricspb.NumberDataPoint_AsDouble{AsDouble: v}
		}
		out = append(out, n)
	}
	return out
}

func encodeHistogram[N int64 | float64](h metricdata.Histogram[N]) *metricspb.Metric_Histogram {
	out := &metricspb.Histogram{AggregationTemporality: cumulative}
	for _, p := range h.DataPoints {
		sum := float64(p.Sum)
		point := &metricspb.HistogramDataPoint{
			Attributes: pairs(p.Attributes.Iter()), StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
			Count: p.Count, Sum: &sum, BucketCounts: p.BucketCounts, ExplicitBounds: p.Bounds,
		}
		if v, ok := p.Min.Value(); ok {
			least := float64(v)
			point.Min = &least
		}
		if v, ok := p.Max.Value(); ok {
			most := float64(v)
			point.Max = &most
		}
		out.DataPoints = append(out.DataPoints, point)
	}
	return &metricspb.Metric_Histogram{Histogram: out}
}

func encodeSummary(s metricdata.Summary) *metricspb.Metric_Summary {
	out := &metricspb.Summary{}
	for _, p := range s.DataPoints {
		point := &metricspb.SummaryDataPoint{
			Attributes: pairs(p.Attributes.Iter()), StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
			Count: p.Count, Sum: p.Sum,
		}
		for _, q := range p.QuantileValues {
			point.QuantileValues = append(point.QuantileValues,
				&metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.Quantile, Value: q.Value})
		}
		out.DataPoints = append(out.DataPoints, point)
	}
	return &metricspb.Metric_Summary{Summary: out}
}

// pairs returns attributes as the protocol has them. Those of the node are texts, numbers and booleans.
func pairs(list attribute.Iterator) (out []*commonpb.KeyValue) {
	for list.Next() {
		a := list.Attribute()
		v := &commonpb.AnyValue{}
		switch a.Value.Type() {
		case attribute.INT64:
			v.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		case attribute.FLOAT64:
			v.Value = &commonpb.AnyValue_DoubleValue{DoubleValue: a.Value.AsFloat64()}
		case attribute.BOOL:
			v.Value = &commonpb.AnyValue_BoolValue{BoolValue: a.Value.AsBool()}
		default:
			v.Value = &commonpb.AnyValue_StringValue{StringValue: a.Value.String()}
		}
		out = append(out, &commonpb.KeyValue{Key: string(a.Key), Value: v})
	}
	return out
}

// nanos returns t in nanoseconds since 1970, as an unsigned number; 0 if it is not known.
func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(t.UnixNano(), 0))
}
