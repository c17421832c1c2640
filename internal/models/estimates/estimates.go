// Package estimates calibrates token counts (decision 017). Per model it compares the input tokens that the provider
// reports with those that were counted before the call, corrects the next counts by the ratio, and raises an alarm
// when a call used more than its hold was computed for. Package calibration has the rules. A node
// keeps its statistics in memory and saves them once a minute.
package estimates

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/estimates/calibration"
)

// A Calibration holds this node's statistics of all models. A nil one corrects and records nothing.
type Calibration struct {
	db  *db.DB
	now func() time.Time
	log *slog.Logger

	mu     sync.Mutex
	models map[string]*model
}

type model struct {
	calibration.Stat
	alarms  int64
	alarmed time.Time // when an alarm was last logged
	changed bool      // since the last Save
}

// ModelStats are the statistics of one model, for metrics and pages.
type ModelStats struct {
	Model string
	calibration.Stat
	Alarms int64 // calls that exceeded their hold's share, since the start of the process
}

// Load returns a Calibration with the statistics that were saved last.
func Load(ctx context.Context, d *db.DB, now func() time.Time, log *slog.Logger) (_ *Calibration, err error) {
	c := &Calibration{db: d, now: now, log: log, models: map[string]*model{}}
	saved, err := readModels(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("estimates: %w", err)
	}
	for _, m := range saved {
		c.models[m.name] = &model{Stat: m.Stat}
	}
	return c, nil
}

// Correct returns the input tokens to hold for a call with this many counted tokens.
func (c *Calibration) Correct(name string, counted int64) int64 {
	if c == nil {
		return counted
	}
	c.mu.Lock()
	factor := int64(calibration.RatioOne)
	if m := c.models[name]; m != nil {
		factor = m.FactorPPM()
	}
	c.mu.Unlock()
	held, err := money.MulDiv(counted, factor, calibration.RatioOne, money.Up)
	if err != nil { // more tokens than any model takes: the call is refused for its cost
		return counted
	}
	return held
}

// alarmInterval is the least time between two logged alarms of a model.
const alarmInterval = time.Hour

// Record adds a settled call: the input tokens that were counted, those that the hold was computed from, and those
// that the provider charged.
func (c *Calibration) Record(name string, counted, held, real int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	m := c.models[name]
	if m == nil {
		m = &model{}
		c.models[name] = m
	}
	m.Stat, m.changed = m.Add(counted, real), true
	alarm := false
	if calibration.ExceedsHold(held, real) {
		m.alarms++
		if now := c.now(); m.alarmed.IsZero() || now.Sub(m.alarmed) >= alarmInterval {
			m.alarmed, alarm = now, true
		}
	}
	stat := m.Stat
	c.mu.Unlock()
	if alarm {
		c.log.Error("input estimate too low", "model", name, "real_tokens", real, "held_tokens", held,
			"counted_tokens", counted, "mean_ratio_ppm", stat.MeanPPM, "factor_ppm", stat.FactorPPM())
	}
}

// Stats returns the statistics of all models, sorted by name.
func (c *Calibration) Stats() []ModelStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]ModelStats, 0, len(c.models))
	for _, name := range slices.Sorted(maps.Keys(c.models)) {
		m := c.models[name]
		list = append(list, ModelStats{name, m.Stat, m.alarms})
	}
	return list
}

// Save saves the statistics that have changed.
func (c *Calibration) Save(ctx context.Context) error {
	list := c.collectChanged()
	if len(list) == 0 {
		return nil
	}
	err := c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, m := range list { // sorted, so that nodes do not deadlock
			if err := writeModel(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.markChanged(list)
		return fmt.Errorf("estimates: %w", err)
	}
	return nil
}

// collectChanged returns the statistics that have changed, sorted by model, and marks them as saved.
func (c *Calibration) collectChanged() (list []ModelStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, m := range c.models {
		if m.changed {
			m.changed = false
			list = append(list, ModelStats{Model: name, Stat: m.Stat})
		}
	}
	slices.SortFunc(list, func(a, b ModelStats) int { return strings.Compare(a.Model, b.Model) })
	return list
}

// markChanged marks statistics that could not be saved as changed.
func (c *Calibration) markChanged(list []ModelStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range list {
		c.models[r.Model].changed = true
	}
}
