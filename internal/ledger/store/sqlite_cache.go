package store

import (
	"database/sql/driver"
	"sync"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file keeps the rows of earlier batches in memory.

// rowCache is the rows that earlier batches have loaded, unsaved holds included.
type rowCache struct {
	balances    map[string]rules.Balance
	connections map[string]rules.Connection
	holds       map[rules.Key]rules.HoldRow   // open holds only
	totals      map[rules.DailyTotalsKey]bool // rows that exist
	counters    map[string]rules.Counter
}

// maxCachedRows bounds each part of the cache: beyond it the cache is reset.
const maxCachedRows = 50_000

// resetCache drops what can be read again from the file. Unsaved holds and counters stay.
func (q *sqlite) resetCache() {
	q.cache = rowCache{
		map[string]rules.Balance{},
		map[string]rules.Connection{},
		map[rules.Key]rules.HoldRow{},
		map[rules.DailyTotalsKey]bool{},
		map[string]rules.Counter{},
	}
	for k, h := range q.unsaved {
		q.cache.holds[k] = h
	}
	for subject, c := range q.unsavedCounters {
		q.cache.counters[subject] = c
	}
}

// cacheBatch caches what a committed batch has read and written. Its new holds stay
// unsaved. written says whether the batch wrote to the file.
func (q *sqlite) cacheBatch(s *rules.State, written bool) {
	for id, b := range s.Balances {
		q.cache.balances[id] = *b
	}
	for id, c := range s.Connections {
		q.cache.connections[id] = *c
	}
	for k := range s.Changes.Holds {
		q.dropUnsaved(k)
		if h := s.Holds[k]; h != nil && h.State == rules.Open {
			q.cache.holds[k], q.unsaved[k] = *h, *h
			h.EachHeldAmount(func(id string, amount money.MC) { q.unsavedMC[id] += amount })
		} else {
			delete(q.cache.holds, k)
		}
	}
	for k := range s.Changes.DailyTotals {
		q.cache.totals[k] = true
	}
	if written {
		clear(q.unsavedCounters)
	}
	for subject, counter := range s.Counters {
		q.cache.counters[subject] = *counter
		if !written && s.Changes.Counters[subject] && counter.Spent.Width == limits.CallsBucketWidth {
			q.unsavedCounters[subject] = *counter
		}
	}
	if largest := max(len(q.cache.balances), len(q.cache.connections), len(q.cache.totals),
		len(q.cache.counters)); largest > maxCachedRows {
		q.resetCache()
	}
}

// checkVersion resets the cache if another connection has written to the file.
func (q *sqlite) checkVersion() error {
	var version int64
	err := q.query(`PRAGMA data_version`, 1, func(r []driver.Value) error {
		version = r[0].(int64)
		return nil
	})
	if err == nil && version != q.cacheVersion {
		q.resetCache()
		q.cacheVersion = version
		err = q.refillUsedKeys()
	}
	return err
}

// refillUsedKeys fills a new filter of used keys from the file, in the background.
func (q *sqlite) refillUsedKeys() error {
	q.stopFilling()
	var rows int64
	if err := q.query(`SELECT COALESCE(MAX(rowid), 0) FROM ledger`, 1, func(r []driver.Value) error {
		rows = r[0].(int64)
		return nil
	}); err != nil {
		return err
	}
	f, stop := newKeyFilter(int(rows)), make(chan struct{})
	for k := range q.unsaved { // they will be in the file without being added again
		f.addKey(k.IndexHash())
	}
	var filling sync.WaitGroup
	filling.Go(func() { _ = f.loadKeys(q.db, stop) }) // if it fails, keys are looked up in the file
	q.usedKeys, q.stopFilling = f, sync.OnceFunc(func() {
		close(stop)
		filling.Wait()
	})
	return nil
}
