package server

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
)

// clockSetting is the name of the setting that says when a node with a steady clock last ran.
const clockSetting = "clock-seen"

// maxDowntime is for how long no node may have run before the clock of a start is doubted: it cannot be told from a
// clock that is wrong.
const maxDowntime = time.Hour

// checkClock doubts the clock if it is far from when a node last ran. Then what is due waits for db.ClockWait, so that
// a run with a wrong clock ends and deletes nothing (decision 121).
func (s *Server) checkClock(ctx context.Context) error {
	text, err := settings.Get(ctx, s.DB, clockSetting)
	if err != nil || text == "" {
		return err
	}
	seenUS, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("the setting %s: %w", clockSetting, err)
	}
	if away := s.DB.RealNow().Sub(time.UnixMicro(seenUS)); away.Abs() > maxDowntime {
		s.DB.DoubtClock()
		s.log.Warn("clock not trusted yet", "since_last_run", away.Round(time.Second), "wait", db.ClockWait)
	}
	return nil
}

// noteClock stores that a node with a steady clock runs.
func (s *Server) noteClock(ctx context.Context) error {
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := settings.Lock(ctx, tx, clockSetting); err != nil {
			return err
		}
		return settings.Set(ctx, tx, clockSetting, strconv.FormatInt(s.DB.RealNow().UnixMicro(), 10))
	})
}

// whenSteady returns a job that does f only while the clock is steady: f ends or deletes for good what is due.
func (s *Server) whenSteady(f func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !s.DB.IsClockSteady() {
			return nil
		}
		return f(ctx)
	}
}
