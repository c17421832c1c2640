package inference

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// The values of details.kind of a 502 (decision 014).
const (
	kindOverloaded = "overloaded"     // it fails or is busy
	kindQuota      = "quota"          // it serves this installation no further calls for a time
	kindTimeout    = "timeout"        // it did not answer in time
	kindCut        = "cut"            // the connection broke off, or the response was malformed
	kindRefused    = "refused"        // it does not serve this call
	kindNoKey      = "not_configured" // this installation has no key for it
)

// A failure is what a client may know of a failed upstream request. It never shows the state of
// our key.
type failure struct {
	provider   string
	status     int // the provider's; 0 = none, or it tells of our key
	kind       string
	retry      bool // the same request may succeed later
	retryAfter time.Duration
	unusable   string // what is wrong with a whole answer; "" = nothing
}

// classifyFailure says what a failed upstream request to a provider means for its client.
func classifyFailure(providerName string, cause error) failure {
	f := failure{provider: providerName, kind: kindCut, retry: true}
	var p *provider.Error
	if !errors.As(cause, &p) {
		p = &provider.Error{}
	}
	f.retryAfter, f.unusable = p.RetryAfter, p.Unusable
	ours := p.Alarm != "" && p.Status != http.StatusNotFound && p.Status != http.StatusTooManyRequests
	if p.Status != http.StatusOK && !ours {
		f.status = p.Status
	}
	switch {
	case isTimeout(cause), p.Status == http.StatusRequestTimeout, p.Status == http.StatusGatewayTimeout:
		f.kind = kindTimeout
	case p.Alarm != "":
		f.kind, f.retry = kindRefused, false
		if p.OutOfQuota {
			f.kind = kindQuota
		}
	case p.Status == http.StatusTooManyRequests:
		f.kind = kindQuota
	case p.Status >= http.StatusInternalServerError, p.Retry && p.Status >= http.StatusBadRequest,
		p.Status == 0 && p.RetryAfter > 0: // the circuit breaker is open
		f.kind = kindOverloaded
	case p.Status >= http.StatusMultipleChoices:
		f.kind, f.retry = kindRefused, false
	}
	f.retry = f.retry && !p.Final
	return f
}

// isTimeout reports whether a limit of time has ended an upstream request.
func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, upstream.ErrSilent) || errors.Is(err, errCallTooLong) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// details are error.details of a 502.
func (f *failure) details() map[string]any {
	d := map[string]any{"provider": f.provider, "upstream_status": nil, "kind": f.kind, "retry": f.retry}
	if f.status != 0 {
		d["upstream_status"] = f.status
	}
	return d
}

// apiError returns the 502 of a call that failed before any billable output.
func (f *failure) apiError(connectionID string) *apierr.Error {
	advice := "retry with the same Idempotency-Key"
	if !f.retry {
		advice = "repeating the call does not help, but another model may"
	}
	e := apierr.ProviderError.On(connectionID, "%s; nothing was billed, %s", f.sentence(), advice)
	e.RetryAfter, e.Final, e.Details = f.retryAfter, !f.retry, f.details()
	return e
}

// sentence says what happened.
func (f *failure) sentence() string {
	switch f.kind {
	case kindCut:
		if f.unusable != "" {
			return fmt.Sprintf("the model of %s answered with %s", f.provider, f.unusable)
		}
	case kindOverloaded:
		return fmt.Sprintf("%s is overloaded or failing", f.provider)
	case kindQuota:
		return fmt.Sprintf("%s accepts no more calls from this service for a while", f.provider)
	case kindTimeout:
		return fmt.Sprintf("%s did not answer in time", f.provider)
	case kindRefused:
		return fmt.Sprintf("%s does not serve this call", f.provider)
	}
	return fmt.Sprintf("the connection to %s broke off", f.provider)
}

// errNoKey is the refusal of a model whose provider this installation has no key for. The
// developer of a sandbox app can store one.
func errNoKey(model, providerName, tier string) *apierr.Error {
	advice := "GET /v1/models lists what is"
	if tier == tiers.Sandbox {
		advice = "store your own with PUT /v1/provider-keys/" + providerName
	}
	e := apierr.InvalidRequest.Errorf("model: %q is not available here, because this service has no key for %s; %s",
		model, providerName, advice)
	f := failure{provider: providerName, kind: kindNoKey}
	e.Details = f.details()
	return e
}
