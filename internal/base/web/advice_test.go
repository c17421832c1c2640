package web

import (
	"net/http"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
)

// TestRetryAdvice: a client library sleeps for the whole Retry-After, so a long one comes with
// x-should-retry: false, and so does an error that waiting does not resolve.
func TestRetryAdvice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code        apierr.Code
		wait        time.Duration
		final       bool
		after, says string
	}{
		{apierr.DailyLimitReached, time.Minute, false, "60", ""},
		{apierr.DailyLimitReached, time.Minute + 1, false, "61", "false"},
		{apierr.SandboxLiveCostLimited, 24 * time.Hour, false, "86400", "false"},
		{apierr.DailyLimitReached, 0, true, "", "false"},
		{apierr.ProviderError, time.Hour, false, "3600", "false"},
		{apierr.ProviderError, 0, false, "", ""},
		{apierr.AllocationExhausted, 0, true, "", "false"},
		{apierr.InvalidRequest, 0, false, "", "false"},
	} {
		e := tt.code.Errorf("no")
		e.RetryAfter, e.Final = tt.wait, tt.final
		h := http.Header{}
		setErrorHeaders(h, e)
		if h.Get("Retry-After") != tt.after || h.Get("X-Should-Retry") != tt.says {
			t.Errorf("%s, wait %s, final %t: %v", tt.code.Name, tt.wait, tt.final, h)
		}
	}
}
