package topups

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of what may be pending at Stripe without an alarm, by the metric's name of it.
var pendingBounds = map[string]time.Duration{
	"refund":  14 * 24 * time.Hour,  // banks take ten business days
	"debit":   14 * 24 * time.Hour,  // of a bank account; a session that nobody pays ends after a day
	"dispute": 120 * 24 * time.Hour, // banks decide within two to three months
}

// reportAges raises an alarm for what has waited for us for too long, or has been pending at Stripe for too long, and
// sets the metrics of their ages.
func (s *Store) reportAges(ctx context.Context) error {
	waits, failed := ListWaits(ctx, s.DB)
	failed = errors.Join(failed, s.requests().ReportOverdue(ctx, waits...))
	now := s.Now()
	for what, bound := range pendingBounds {
		id, sinceUS, err := oldestPending(ctx, s.DB, what)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("topups: oldest %s: %w", what, err))
			continue
		}
		age := time.Duration(0)
		if id != "" {
			age = now.Sub(time.UnixMicro(sinceUS))
		}
		if s.Metrics.SetStripeAge(what, age); age > bound {
			s.Log.Error("pending at stripe for too long", "what", what, "id", id, "age", age.Round(time.Hour).String())
			s.Metrics.RaiseAlarm("pending_for_long", "stripe")
		}
	}
	return failed
}
