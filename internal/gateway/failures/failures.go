// Package failures says what a failure of a provider means to who called it (decision 014).
package failures

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// The values of details.kind of a 502 (decision 014).
const (
	Overloaded    = "overloaded"     // it fails or is busy
	Quota         = "quota"          // it serves this installation no further calls for a time
	Timeout       = "timeout"        // it did not answer in time
	Cut           = "cut"            // the connection broke off, or the response was malformed
	Refused       = "refused"        // it does not serve this call
	NotConfigured = "not_configured" // this installation has no key for it
)

// ErrTooLong is the cause of a request that this installation ended because it lasted too long.
var ErrTooLong = errors.New("the call took too long")

// A Failure is what a client may know of a failed upstream request. It never shows the state of
// our key.
type Failure struct {
	Provider   string
	Status     int // the provider's; 0 = none, or it tells of our key
	Kind       string
	Retry      bool // the same request may succeed later
	RetryAfter time.Duration
	Unusable   string // what is wrong with a whole answer; "" = nothing
}

// Classify says what a failed upstream request to a provider means for its client.
func Classify(providerName string, cause error) Failure {
	f := Failure{Provider: providerName, Kind: Cut, Retry: true}
	var p *provider.Error
	if !errors.As(cause, &p) {
		p = &provider.Error{}
	}
	f.RetryAfter, f.Unusable = p.RetryAfter, p.Unusable
	ours := p.Alarm != "" && p.Status != http.StatusNotFound && p.Status != http.StatusTooManyRequests
	if p.Status != http.StatusOK && !ours {
		f.Status = p.Status
	}
	switch {
	case isTimeout(cause), p.Status == http.StatusRequestTimeout, p.Status == http.StatusGatewayTimeout:
		f.Kind = Timeout
	case p.Alarm != "":
		f.Kind, f.Retry = Refused, false
		if p.OutOfQuota {
			f.Kind = Quota
		}
	case p.Status == http.StatusTooManyRequests:
		f.Kind = Quota
	case p.Status >= http.StatusInternalServerError, p.Retry && p.Status >= http.StatusBadRequest,
		p.Status == 0 && p.RetryAfter > 0: // the circuit breaker is open
		f.Kind = Overloaded
	case p.Status >= http.StatusMultipleChoices:
		f.Kind, f.Retry = Refused, false
	}
	f.Retry = f.Retry && !p.Final
	return f
}

// isTimeout reports whether a limit of time has ended an upstream request.
func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, upstream.ErrSilent) || errors.Is(err, ErrTooLong) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// Details are error.details of a 502.
func (f *Failure) Details() map[string]any {
	d := map[string]any{"provider": f.Provider, "upstream_status": nil, "kind": f.Kind, "retry": f.Retry}
	if f.Status != 0 {
		d["upstream_status"] = f.Status
	}
	return d
}

// Sentence says what happened.
func (f *Failure) Sentence() string {
	switch f.Kind {
	case Cut:
		if f.Unusable != "" {
			return fmt.Sprintf("the model of %s answered with %s", f.Provider, f.Unusable)
		}
	case Overloaded:
		return fmt.Sprintf("%s is overloaded or failing", f.Provider)
	case Quota:
		return fmt.Sprintf("%s accepts no more calls from this service for a while", f.Provider)
	case Timeout:
		return fmt.Sprintf("%s did not answer in time", f.Provider)
	case Refused:
		return fmt.Sprintf("%s does not serve this call", f.Provider)
	}
	return fmt.Sprintf("the connection to %s broke off", f.Provider)
}
