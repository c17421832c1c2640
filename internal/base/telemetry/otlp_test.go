package telemetry

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// answers is a collector that gives its answers one after the other, and keeps the requests.
type answers struct {
	list   []func(*http.Response)
	bodies []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	a.list[len(a.bodies)](resp)
	a.bodies = append(a.bodies, string(body))
	return resp, nil
}

func status(code int, header ...string) func(*http.Response) {
	return func(r *http.Response) {
		r.StatusCode = code
		if len(header) > 0 {
			r.Header.Set(header[0], header[1])
		}
	}
}

func says(answer string) func(*http.Response) {
	return func(r *http.Response) { r.Body = io.NopCloser(strings.NewReader(answer)) }
}

// TestSend: a batch is sent again when the collector asks for it, and not after a refusal; what it drops is an error.
func TestSend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []func(*http.Response)
		want    string // a part of the error; "" = none
		took    time.Duration
	}{
		"taken": {answers: []func(*http.Response){status(200)}},
		"busy, then here": {answers: []func(*http.Response){status(503), status(429), status(202)},
			took: 3 * time.Second},
		"says when": {answers: []func(*http.Response){status(429, "Retry-After", "20"), status(200)},
			took: 21 * time.Second},
		"refused": {answers: []func(*http.Response){status(400)}, want: "answers 400"},
		"moved": {answers: []func(*http.Response){status(307, "Location", "http://other.example/")},
			want: "307"},
		"two items bad": {answers: []func(*http.Response){says("\x0a\x06\x08\x02\x12\x02no")}, want: `2 items: "no"`},
		"nothing bad":   {answers: []func(*http.Response){says("\x0a\x00")}},
		"rubbish":       {answers: []func(*http.Response){says("\xff\xff\xff")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &answers{list: tt.answers}
				at := &url.URL{Scheme: "http", Host: "collector.example", User: url.UserPassword("purser", "s3cret")}
				s := newSender(at, "v1/metrics", nil)
				s.client.Transport = a
				start := time.Now()
				err := s.send(t.Context(), &metricspb.MetricsData{})
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				if err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error names the password: %v", err)
				}
				if took := time.Since(start); took != tt.took || len(a.bodies) != len(tt.answers) {
					t.Errorf("%d requests in %s, want %d in %s", len(a.bodies), took, len(tt.answers), tt.took)
				}
			})
		})
	}
}

// TestPoints has each kind of metric of a node, as the collector reads it.
func TestPoints(t *testing.T) {
	t.Parallel()
	var got metricspb.MetricsData
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer collector.Close()
	base, err := url.Parse(collector.URL)
	if err != nil {
		t.Fatal(err)
	}
	at, labels := time.Unix(0, 7), attribute.NewSet(attribute.String("a", "x"), attribute.Bool("b", true))
	metrics := []metricdata.Metrics{
		{Name: "gauge", Unit: "By", Description: "Bytes.", Data: metricdata.Gauge[int64]{
			DataPoints: []metricdata.DataPoint[int64]{{Attributes: labels, Time: at, Value: -3}}}},
		{Name: "sum", Data: metricdata.Sum[float64]{IsMonotonic: true,
			DataPoints: []metricdata.DataPoint[float64]{{StartTime: at, Time: at, Value: 1.5}}}},
		{Name: "histogram", Data: metricdata.Histogram[int64]{
			DataPoints: []metricdata.HistogramDataPoint[int64]{{Time: at, Count: 3, Sum: 9, Bounds: []float64{2},
				BucketCounts: []uint64{1, 2}, Min: metricdata.NewExtrema[int64](1)}}}},
		{Name: "summary", Data: metricdata.Summary{
			DataPoints: []metricdata.SummaryDataPoint{{Time: at, Count: 2, Sum: 3,
				QuantileValues: []metricdata.QuantileValue{{Quantile: 0.5, Value: 1}}}}}},
	}
	e := pointExporter{newSender(base, "v1/metrics", nil)}
	all := &metricdata.ResourceMetrics{Resource: resource.NewSchemaless(attribute.Int("node", 4)),
		ScopeMetrics: []metricdata.ScopeMetrics{{Metrics: metrics}}}
	if err := e.Export(context.Background(), all); err != nil {
		t.Fatal(err)
	}
	var want metricspb.MetricsData
	if err := prototext.Unmarshal([]byte(`resource_metrics {
		resource { attributes { key: "node" value { int_value: 4 } } }
		scope_metrics {
			scope {}
			metrics { name: "gauge" unit: "By" description: "Bytes." gauge { data_points {
				attributes { key: "a" value { string_value: "x" } } attributes { key: "b" value { bool_value: true } }
				time_unix_nano: 7 as_int: -3 } } }
			metrics { name: "sum" sum { aggregation_temporality: 2 is_monotonic: true
				data_points { start_time_unix_nano: 7 time_unix_nano: 7 as_double: 1.5 } } }
			metrics { name: "histogram" histogram { aggregation_temporality: 2 data_points { time_unix_nano: 7
				count: 3 sum: 9 min: 1 explicit_bounds: 2 bucket_counts: 1 bucket_counts: 2 } } }
			metrics { name: "summary" summary { data_points { time_unix_nano: 7 count: 2 sum: 3
				quantile_values { quantile: 0.5 value: 1 } } } }
		}
	}`), &want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, &want) {
		t.Errorf("the collector reads\n%s\nwant\n%s", prototext.Format(&got), prototext.Format(&want))
	}
}
