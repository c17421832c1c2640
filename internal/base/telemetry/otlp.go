package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/purserhq/purser/internal/base/retry"
)

// A sender posts to one URL of a collector, by OTLP over HTTP in its binary form.
type sender struct {
	url     string
	headers map[string]string
	client  *http.Client
}

// A batch is tried for so long, each try takes so long at most, and an answer is read so far.
const (
	batchTimeout = time.Minute
	tryTimeout   = 10 * time.Second
	maxAnswer    = 64 << 10
)

// errNotNow is a failure that the protocol says to repeat.
var errNotNow = errors.New("the collector asks to try again")

func newSender(base *url.URL, path string, headers map[string]string) *sender {
	client := &http.Client{
		Timeout:       tryTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // keep the secret
	}
	return &sender{url: base.JoinPath(path).String(), headers: headers, client: client}
}

// send posts a message until it is taken or refused, for a minute at most.
func (s *sender) send(ctx context.Context, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	_, err = retry.Do(ctx, retry.Backoff{First: time.Second, Max: 30 * time.Second},
		func(ctx context.Context) (struct{}, error) { return struct{}{}, s.post(ctx, body) },
		func(err error) bool { return errors.Is(err, errNotNow) })
	return err
}

// post sends body once. After an answer that says when to try again, it waits until then.
func (s *sender) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch status := resp.StatusCode; {
	case status/100 == 2 && err == nil:
		return partialSuccess(answer)
	case status/100 == 2:
		return fmt.Errorf("otlp: %w", err)
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			retry.Sleep(ctx, min(time.Duration(s)*time.Second, batchTimeout))
		}
		return fmt.Errorf("otlp: %s answers %d: %w", req.URL.Redacted(), status, errNotNow)
	default:
		return fmt.Errorf("otlp: %s answers %d", req.URL.Redacted(), status)
	}
}

// partialSuccess returns an error if the collector took a batch without some of its items. Its answer is a message
// whose field 1 has their number (1) and the reason (2), the same for spans and metrics.
func partialSuccess(answer []byte) error {
	_, partial := fieldOf(answer, 1)
	if rejected, _ := fieldOf(partial, 1); rejected > 0 {
		_, reason := fieldOf(partial, 2)
		return fmt.Errorf("otlp: the collector rejects %d items: %.200q", rejected, reason)
	}
	return nil
}

// fieldOf returns the value of a message's field, a number or bytes; zero if it is missing.
func fieldOf(message []byte, number protowire.Number) (n uint64, b []byte) {
	for len(message) > 0 {
		num, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return 0, nil
		}
		rest := message[size:]
		if size = protowire.ConsumeFieldValue(num, kind, rest); size < 0 {
			return 0, nil
		}
		if num == number && kind == protowire.VarintType {
			n, _ = protowire.ConsumeVarint(rest)
		}
		if num == number && kind == protowire.BytesType {
			b, _ = protowire.ConsumeBytes(rest)
		}
		message = rest[size:]
	}
	return n, b
}

// A spanClient is how the SDK's exporter of spans reaches the collector.
type spanClient struct{ *sender }

func (spanClient) Start(context.Context) error { return nil }
func (spanClient) Stop(context.Context) error  { return nil }

// UploadTraces sends spans. A request of the protocol has the fields of TracesData.
func (c spanClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	return c.send(ctx, &tracepb.TracesData{ResourceSpans: spans})
}
