// Package estimates compares the input tokens that providers report with those
// that were counted before the call (decisions, Money: 'corrected by recorded
// real/estimate ratios'). Per model it keeps the ratio, corrects the next counts
// by it, and raises an alarm when a hold had too little room. The rule is in
// rule.go; a node keeps its statistics in memory and saves them once a minute.
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
)

// A Drift keeps the statistics of all models of this node.
type Drift struct {
	db  *db.DB
	now func() time.Time
	log *slog.Logger

	mu     sync.Mutex
	models map[string]*model
}

type model struct {
	Stat
	alarms  int64
	alarmed time.Time // when the log was last told
	changed bool      // since it was saved
}

// A Reading is what metrics show of one model.
type Reading struct {
	Model string
	Stat
	Alarms int64 // calls whose hold had too little room, since the start
}

// Open loads the statistics that were saved last.
func Open(ctx context.Context, d *db.DB, now func() time.Time, log *slog.Logger) (_ *Drift, err error) {
	drift := &Drift{db: d, now: now, log: log, models: map[string]*model{}}
	type named struct {
		name string
		model
	}
	list, err := db.QueryAll(ctx, d, db.ScanFields(func(m *named) []any {
		return []any{&m.name, &m.Calls, &m.MeanPPM, &m.Telling, &m.MaxPPM, &m.PriorPPM}
	}), `SELECT model, calls, mean_ppm, telling, max_ppm, prior_ppm FROM estimates`)
	if err != nil {
		return nil, fmt.Errorf("estimates: %w", err)
	}
	for _, m := range list {
		drift.models[m.name] = &m.model
	}
	return drift, nil
}

// Correct returns the input tokens to hold for a call of which so many were
// counted. A nil Drift corrects nothing.
func (d *Drift) Correct(name string, counted int64) int64 {
	if d == nil {
		return counted
	}
	d.mu.Lock()
	factor := int64(One)
	if m := d.models[name]; m != nil {
		factor = m.FactorPPM()
	}
	d.mu.Unlock()
	held, err := money.MulDiv(counted, factor, One, money.Up)
	if err != nil { // more tokens than there are: the call will be refused by its price
		return counted
	}
	return held
}

// alarmEvery is how often the log is told that a model is estimated too low.
const alarmEvery = time.Hour

// Record adds a settled call: the tokens that were counted, those that were held
// for, and those that the provider charged.
func (d *Drift) Record(name string, counted, held, real int64) {
	if d == nil {
		return
	}
	d.mu.Lock()
	m := d.models[name]
	if m == nil {
		m = &model{}
		d.models[name] = m
	}
	m.Stat, m.changed = m.Add(counted, real), true
	tell := false
	if Over(held, real) {
		m.alarms++
		if now := d.now(); m.alarmed.IsZero() || now.Sub(m.alarmed) >= alarmEvery {
			m.alarmed, tell = now, true
		}
	}
	stat := m.Stat
	d.mu.Unlock()
	if tell {
		d.log.Error("input was estimated too low: it exceeds the hold's share", "model", name, "real_tokens", real, "held_tokens", held, "counted_tokens", counted,
			"mean_ratio_ppm", stat.MeanPPM, "factor_ppm", stat.FactorPPM())
	}
}

// Readings lists all models, in order.
func (d *Drift) Readings() []Reading {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Reading, 0, len(d.models))
	for _, name := range slices.Sorted(maps.Keys(d.models)) {
		m := d.models[name]
		list = append(list, Reading{name, m.Stat, m.alarms})
	}
	return list
}

// Save writes the statistics that have changed.
func (d *Drift) Save(ctx context.Context) error {
	list := d.take()
	if len(list) == 0 {
		return nil
	}
	err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, r := range list { // in one order, so that nodes do not wait for each other in a circle
			if _, err := tx.ExecContext(ctx, `INSERT INTO estimates (model, calls, mean_ppm, telling, max_ppm, prior_ppm) VALUES ($1, $2, $3, $4, $5, $6)
				ON CONFLICT (model) DO UPDATE SET calls = excluded.calls, mean_ppm = excluded.mean_ppm, telling = excluded.telling, max_ppm = excluded.max_ppm, prior_ppm = excluded.prior_ppm`,
				r.Model, r.Calls, r.MeanPPM, r.Telling, r.MaxPPM, r.PriorPPM); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		d.giveBack(list)
		return fmt.Errorf("estimates: %w", err)
	}
	return nil
}

// take returns what has changed, and counts it as saved.
func (d *Drift) take() (list []Reading) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, m := range d.models {
		if m.changed {
			m.changed = false
			list = append(list, Reading{Model: name, Stat: m.Stat})
		}
	}
	slices.SortFunc(list, func(a, b Reading) int { return strings.Compare(a.Model, b.Model) })
	return list
}

// giveBack marks what was not saved after all.
func (d *Drift) giveBack(list []Reading) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range list {
		d.models[r.Model].changed = true
	}
}
