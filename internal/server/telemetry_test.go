package server

import (
	"bytes"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	spanv1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/mock"
	"github.com/purserhq/purser/internal/models/tokens"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A collector takes OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	raw     bytes.Buffer // all bodies
	spans   []*spanv1.Span
	metrics map[string]bool
	keys    map[string]bool // the values of the header api-key
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{metrics: map[string]bool{}, keys: map[string]bool{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		c.keys[r.Header.Get("Api-Key")] = true
		switch r.URL.Path {
		case "/v1/traces":
			var request spanv1.TracesData
			if err := proto.Unmarshal(body, &request); err != nil {
				t.Error(err)
			}
			for _, resource := range request.ResourceSpans {
				for _, scope := range resource.ScopeSpans {
					c.spans = append(c.spans, scope.Spans...)
				}
			}
		case "/v1/metrics":
			var request metricsv1.MetricsData
			if err := proto.Unmarshal(body, &request); err != nil {
				t.Error(err)
			}
			for _, resource := range request.ResourceMetrics {
				for _, scope := range resource.ScopeMetrics {
					for _, m := range scope.Metrics {
						c.metrics[m.Name] = true
					}
				}
			}
		default:
			t.Errorf("POST %s", r.URL.Path)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// span returns the only span of a name.
func (c *collector) span(t *testing.T, name string) *spanv1.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*spanv1.Span
	for _, s := range c.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans are called %s", len(found), name)
	}
	return found[0]
}

func attributesOf(s *spanv1.Span) map[string]*commonv1.AnyValue {
	list := map[string]*commonv1.AnyValue{}
	for _, a := range s.Attributes {
		list[a.Key] = a.Value
	}
	return list
}

// TestTelemetry makes a streamed call with a traceparent: the collector gets one trace of it, with the request's id,
// the usage and the charge, and without the content.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	input := func(r *provider.Request) int64 { return tokens.CountRequest(r, "gpt-6") }
	n := startNode(t, dbtest.URL(t, db.SQLite), mock.New(tokens.Count, input, time.Now, mock.MaxWords),
		func(s *config.Config) {
			s.OTLP = telemetry.Config{URL: c.URL, Headers: map[string]string{"api-key": "s3cret"}, Sample: money.One}
		})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	body := `{"model":"gpt-6-luna","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"purplezebra"}]}`
	req, err := http.NewRequest("POST", n.base+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.seeded.Connection.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id.NewUUID())
	req.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v: %s", resp.StatusCode, err, answer)
	}
	if status, _ := n.call("gpt-4o-mini", "it is off"); status != http.StatusBadRequest {
		t.Errorf("a model that is off answered %d", status)
	}
	n.stop() // sends what waits

	request := c.span(t, "POST /v1/chat/completions")
	call := c.span(t, "chat gpt-6-luna")
	for name, parent := range map[string]*spanv1.Span{"hold": request, "chat gpt-6-luna": request, "settle": call} {
		s := c.span(t, name)
		if hex.EncodeToString(s.TraceId) != trace || !bytes.Equal(s.ParentSpanId, parent.SpanId) {
			t.Errorf("%s is not a child of %s", name, parent.Name)
		}
	}
	if got := hex.EncodeToString(request.ParentSpanId); got != "00f067aa0ba902b7" {
		t.Errorf("the parent of the request is %s", got)
	}
	a := attributesOf(call)
	for name, want := range map[string]string{
		"gen_ai.operation.name": "chat",
		"gen_ai.request.model":  "gpt-6-luna",
		"purser.request_id":     resp.Header.Get("X-Request-Id"),
		"purser.app_id":         n.seeded.App.ID,
		"purser.connection_id":  n.seeded.Connection.ID,
		"purser.settlement":     "settled",
	} {
		if got := a[name].GetStringValue(); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	for _, name := range []string{"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "purser.charged_mc"} {
		if a[name].GetIntValue() == 0 {
			t.Errorf("%s is missing", name)
		}
	}
	if len(call.Events) != 1 || call.Events[0].Name != "first chunk" {
		t.Errorf("its events are %v", call.Events)
	}
	if got := attributesOf(c.span(t, "POST /v1/ai/{model}"))["http.response.status_code"].GetIntValue(); got != 400 {
		t.Errorf("the refused request has status %d", got)
	}
	for _, name := range []string{
		"gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk", "gen_ai.client.token.usage",
		"purser_calls_total", "purser_call_seconds", "purser_open_holds",
	} {
		if !c.metrics[name] {
			t.Errorf("the metric %s is missing among %v", name, slices.Sorted(maps.Keys(c.metrics)))
		}
	}
	for _, text := range []string{"purplezebra", n.seeded.Connection.AccessToken, "s3cret", "@example"} {
		if bytes.Contains(c.raw.Bytes(), []byte(text)) {
			t.Errorf("the collector got %q", text)
		}
	}
	if len(c.keys) != 1 || !c.keys["s3cret"] {
		t.Errorf("the keys sent are %v", c.keys)
	}
}

// TestDeadCollector has a collector that takes connections and never answers: calls and the stop do not wait for it.
func TestDeadCollector(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := startNode(t, dbtest.URL(t, db.SQLite), heavy{}, func(s *config.Config) {
		s.OTLP = telemetry.Config{URL: "http://" + l.Addr().String(), Sample: money.One}
	})
	if status, _ := n.call("gpt-6-luna", "hello"); status != http.StatusOK {
		t.Errorf("answered %d", status)
	}
	start := time.Now()
	n.stop()
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the stop took %v", took)
	}
}
