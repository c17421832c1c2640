package inference

import (
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// newFailureError returns the 502 of a call that failed before any billable output.
func newFailureError(f *failures.Failure, connectionID string) *apierr.Error {
	advice := "retry with the same Idempotency-Key"
	if !f.Retry {
		advice = "repeating the call does not help, but another model may"
	}
	e := apierr.ProviderError.On(connectionID, "%s; nothing was billed, %s", f.Sentence(), advice)
	e.RetryAfter, e.Final, e.Details = f.RetryAfter, !f.Retry, f.Details()
	return e
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
	f := failures.Failure{Provider: providerName, Kind: failures.NotConfigured}
	e.Details = f.Details()
	return e
}
