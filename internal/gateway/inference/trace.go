package inference

import (
	"context"
	"errors"
	"strconv"

	"github.com/purserhq/purser/internal/base/telemetry"
	"github.com/purserhq/purser/internal/gateway/failures"
	"github.com/purserhq/purser/internal/models/provider"
)

// startTrace begins the span of an attempt, if calls are traced.
func (a *attempt) startTrace(ctx context.Context) (context.Context, *telemetry.Call) {
	ctx, a.trace = a.h.Traces.Start(ctx, telemetry.CallStart{
		Provider:     a.api.Name(),
		Model:        a.Model.ID,
		RequestID:    a.request.ID,
		AppID:        a.request.AppID,
		ConnectionID: a.held.ConnectionID,
		MaxTokens:    a.request.MaxTokens,
		Streams:      a.request.Stream,
		Embeds:       a.request.Embedding != nil,
	})
	return ctx, a.trace
}

// failureKind names a failure for metrics and traces: the provider's status, or what happened to the call.
func failureKind(cause error) string {
	var p *provider.Error
	switch {
	case errors.As(cause, &p) && p.Status > 0:
		return strconv.Itoa(p.Status)
	case errors.Is(cause, context.Canceled):
		return "abandoned"
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, failures.ErrTooLong):
		return "timeout"
	}
	return "unreachable"
}
