package failures

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// TestFailures: what a client may know of a failed request: who failed, how, and whether another try may help. The
// status is the provider's, unless it tells of our key.
func TestFailures(t *testing.T) {
	t.Parallel()
	status := upstream.NewStatusError
	const (
		busy    = "acme is overloaded or failing"
		full    = "acme accepts no more calls from this service for a while"
		late    = "acme did not answer in time"
		cut     = "the connection to acme broke off"
		refused = "acme does not serve this call"
	)
	final := status(503)
	final.Final = true
	daily := status(429)
	daily.Alarm, daily.OutOfQuota = "the account is out of quota", true
	rubbish := upstream.NewFailure(http.StatusOK, nil)
	rubbish.Unusable = "rubbish"
	for name, c := range map[string]struct {
		cause    error
		kind     string
		status   any
		retry    bool
		sentence string
	}{
		"it is busy":              {status(529), Overloaded, 529, true, busy},
		"and says not to ask":     {final, Overloaded, 503, false, busy},
		"the circuit is open":     {&provider.Error{RetryAfter: time.Second}, Overloaded, nil, true, busy},
		"too many calls":          {status(429), Quota, 429, true, full},
		"the quota of the day":    {daily, Quota, 429, false, full},
		"our credit":              {status(402), Quota, nil, false, full},
		"our key":                 {status(401), Refused, nil, false, refused},
		"no such model":           {status(404), Refused, 404, false, refused},
		"a redirect":              {status(302), Refused, 302, false, refused},
		"a time-out of its own":   {status(504), Timeout, 504, true, late},
		"silence":                 {fmt.Errorf("read: %w", upstream.ErrSilent), Timeout, nil, true, late},
		"a call that took long":   {ErrTooLong, Timeout, nil, true, late},
		"an answer that ends":     {io.ErrUnexpectedEOF, Cut, nil, true, cut},
		"no connection":           {errors.New("refused"), Cut, nil, true, cut},
		"an answer of no use":     {rubbish, Cut, nil, true, "the model of acme answered with rubbish"},
		"the cause within others": {errors.Join(errors.New("a"), status(500)), Overloaded, 500, true, busy},
	} {
		f := Classify("acme", c.cause)
		want := map[string]any{"provider": "acme", "upstream_status": c.status, "kind": c.kind, "retry": c.retry}
		if got := f.Details(); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := f.Sentence(); got != c.sentence {
			t.Errorf("%s: %q", name, got)
		}
	}
	wait := status(503)
	wait.RetryAfter = 7 * time.Second
	if f := Classify("acme", wait); f.RetryAfter != 7*time.Second {
		t.Errorf("to wait: %s", f.RetryAfter)
	}
}
