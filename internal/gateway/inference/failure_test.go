package inference

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// TestFailuresNameProviderAndKind: a 502 says which provider failed, how, and whether a retry
// helps. It never shows the state of our key.
func TestFailuresNameProviderAndKind(t *testing.T) {
	t.Parallel()
	status := func(n int) *provider.Error { return upstream.NewStatusError(n) }
	with := func(e *provider.Error, change func(*provider.Error)) *provider.Error {
		change(e)
		return e
	}
	for _, tt := range []struct {
		name   string
		cause  error
		kind   string
		status any
		retry  bool
	}{
		{"busy", status(529), "overloaded", 529, true},
		{"a fault of its own", status(500), "overloaded", 500, true},
		{"the circuit is open", &provider.Error{RetryAfter: time.Second}, "overloaded", nil, true},
		{"it says not to try again", with(status(503), func(e *provider.Error) { e.Retry, e.Final = false, true }),
			"overloaded", 503, false},
		{"too many calls", status(429), "quota", 429, true},
		{"quota of the day", with(status(429), func(e *provider.Error) { e.Alarm, e.OutOfQuota = "x", true }),
			"quota", 429, false},
		{"out of credit", status(402), "quota", nil, false},
		{"our key is refused", status(401), "refused", nil, false},
		{"our key may not", status(403), "refused", nil, false},
		{"no such model", status(404), "refused", 404, false},
		{"redirect", status(307), "refused", 307, false},
		{"silent", upstream.NewFailure(0, fmt.Errorf("%w (canceled)", upstream.ErrSilent)), "timeout", nil, true},
		{"too long", failures.ErrTooLong, "timeout", nil, true},
		{"it gave up", status(504), "timeout", 504, true},
		{"cut", upstream.NewFailure(http.StatusOK, io.ErrUnexpectedEOF), "cut", nil, true},
		{"reset", errors.New("connection reset"), "cut", nil, true},
		{"of no use", with(upstream.NewFailure(http.StatusOK, nil), func(e *provider.Error) { e.Unusable = "rubbish" }),
			"cut", nil, true},
	} {
		f := failures.Classify("openai", tt.cause)
		e := newFailureError(&f, "conn_1")
		if e.Code != apierr.ProviderError || e.ConnectionID != "conn_1" || e.Final == tt.retry ||
			e.Details["provider"] != "openai" || e.Details["kind"] != tt.kind ||
			e.Details["upstream_status"] != tt.status || e.Details["retry"] != tt.retry {
			t.Errorf("%s: %+v", tt.name, e)
		}
		if strings.Contains(e.Message, "key is") || strings.Contains(e.Message, "credit") ||
			strings.Contains(e.Message, "retry with") != tt.retry || !strings.Contains(e.Message, "openai") {
			t.Errorf("%s: %q", tt.name, e.Message)
		}
	}
}
