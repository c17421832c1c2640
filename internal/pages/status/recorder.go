package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/metrics"
)

// The services that nodes sample themselves.
const (
	API    = "api"
	SignIn = "sign_in"
)

const (
	// Interval is the length of an interval, whose counts are one row of each node, service and model.
	Interval = 5 * time.Minute
	// saveInterval is the time between the writes of a node.
	saveInterval = time.Minute
	keptUnsaved  = 24 * time.Hour     // of intervals that could not be saved
	keptRows     = 3 * 24 * time.Hour // of intervals
)

// A key names a row of an interval.
type key struct {
	fromUS         int64
	service, model string
}

// A Recorder counts on one node and saves what it has counted.
type Recorder struct {
	DB     *db.DB
	NodeID string
	Now    func() time.Time
	// Tallies returns what the node has counted since it started.
	Tallies func() ([]metrics.Tally, error)
	// Ready returns why the node cannot serve calls, and Readable why it cannot read the database.
	Ready, Readable func(context.Context) error

	mu       sync.Mutex
	last     map[[2]string]metrics.Tally // as Tallies returned it, by service and model
	rows     map[key]metrics.Tally       // of this node, in intervals that may still change or are not saved
	unsaved  map[key]bool
	savedUS  int64 // when rows were last saved
	purgedUS int64 // start of the interval in which old rows were last deleted
}

// Once counts what has happened since the last run, and saves it if that is due. A failure to save loses nothing: the
// counts wait for the database.
func (r *Recorder) Once(ctx context.Context) error {
	ready, readable := r.Ready(ctx), r.Readable(ctx)
	if err := r.count(ready == nil, readable == nil); err != nil {
		return err
	}
	now := r.Now()
	if now.UnixMicro()-r.savedUS < saveInterval.Microseconds() {
		return nil
	}
	if err := r.save(ctx, now); err != nil {
		return err
	}
	return r.purge(ctx, now)
}

// count adds the counts since the last run to the present interval.
func (r *Recorder) count(ready, readable bool) error {
	tallies, err := r.Tallies()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.last, r.rows, r.unsaved = map[[2]string]metrics.Tally{}, map[key]metrics.Tally{}, map[key]bool{}
	}
	fromUS := r.Now().Truncate(Interval).UnixMicro()
	for _, t := range tallies {
		name := [2]string{t.Service, t.Model}
		r.add(fromUS, t.Since(r.last[name]))
		r.last[name] = t
	}
	r.add(fromUS, sample(API, ready))
	r.add(fromUS, sample(SignIn, readable))
	for k := range r.rows {
		if fromUS-k.fromUS > keptUnsaved.Microseconds() || k.fromUS != fromUS && !r.unsaved[k] {
			delete(r.rows, k)
			delete(r.unsaved, k)
		}
	}
	return nil
}

func sample(service string, works bool) metrics.Tally {
	t := metrics.Tally{Service: service, Attempts: 1}
	if !works {
		t.Failures = 1
	}
	return t
}

// add adds counts to an interval.
func (r *Recorder) add(fromUS int64, t metrics.Tally) {
	if t.IsZero() {
		return
	}
	k := key{fromUS, t.Service, t.Model}
	sum := r.rows[k]
	sum.Service, sum.Model = t.Service, t.Model
	sum.Add(t)
	r.rows[k] = sum
	r.unsaved[k] = true
}

// save writes the rows that have changed.
func (r *Recorder) save(ctx context.Context, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(r.unsaved), func(a, b key) int { // one order, so that nodes do not deadlock
		return cmp.Or(cmp.Compare(a.fromUS, b.fromUS), cmp.Compare(a.service, b.service), cmp.Compare(a.model, b.model))
	})
	err := r.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, k := range keys {
			if err := saveRow(ctx, tx, r.NodeID, k.fromUS, r.rows[k]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("status: save counts: %w", err)
	}
	clear(r.unsaved)
	r.savedUS = now.UnixMicro()
	return nil
}

// purge deletes old rows, once an interval.
func (r *Recorder) purge(ctx context.Context, now time.Time) error {
	fromUS := now.Truncate(Interval).UnixMicro()
	if r.purgedUS == fromUS {
		return nil
	}
	if err := deleteOld(ctx, r.DB, now.Add(-keptRows).UnixMicro()); err != nil {
		return fmt.Errorf("status: delete old counts: %w", err)
	}
	r.purgedUS = fromUS
	return nil
}

// unsavedTallies returns the sums of this node's rows since a time, for an answer without the database.
func (r *Recorder) unsavedTallies(sinceUS int64) (list []metrics.Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, t := range r.rows {
		if k.fromUS >= sinceUS {
			list = append(list, t)
		}
	}
	return list
}
