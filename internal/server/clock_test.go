package server

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestDueWorkWaitsForASteadyClock: a node starts an hour and more after the last run, or before it. What is due waits,
// and the wrong time is not stored as that of a run. After a short pause nothing waits.
func TestDueWorkWaitsForASteadyClock(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := &Server{DB: d, log: slog.New(slog.DiscardHandler)}
		ran := 0
		due := s.whenSteady(func(context.Context) error { ran++; return nil })
		start := func(seen time.Duration, want int) {
			t.Helper()
			if err := s.noteClock(t.Context()); err != nil {
				t.Fatal(err)
			}
			text, err := settings.Get(t.Context(), d, clockSetting)
			if err != nil || text == "" {
				t.Fatal(text, err)
			}
			if _, err := d.ExecContext(t.Context(),
				`UPDATE settings SET value = CAST(CAST(value AS BIGINT) + $2 AS TEXT) WHERE name = $1`,
				clockSetting, seen.Microseconds()); err != nil {
				t.Fatal(err)
			}
			if err := s.checkClock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := due(t.Context()); err != nil || ran != want {
				t.Errorf("last run %v from now: ran %d times, want %d, %v", seen, ran, want, err)
			}
		}
		start(0, 1)
		start(-10*time.Minute, 2)
		start(-400*24*time.Hour, 2)
	})
	d := dbtest.Open(t, db.SQLite)
	s := &Server{DB: d, log: slog.New(slog.DiscardHandler)}
	if err := s.checkClock(t.Context()); err != nil || !d.IsClockSteady() {
		t.Errorf("the first start: %v, steady %t", err, d.IsClockSteady())
	}
}
