package store

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file keeps open holds in memory that are not in the file yet. A batch that only
// opens holds writes nothing; a hold that is still open after holdFlushDelay is saved, so
// that after a crash the delivered part of a long stream can be billed. In the file
// held_mc is always the sum of the holds in the file.

// readWithUnsaved runs read, which reads connections from the file, and add, which adds
// to them what unsaved holds hold. Both see the same state.
func (q *sqlite) readWithUnsaved(read func() error, add func(unsavedMC map[string]money.MC)) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if err := read(); err != nil {
		return err
	}
	add(q.unsavedMC)
	return nil
}

// dropUnsaved removes a hold from the unsaved ones.
func (q *sqlite) dropUnsaved(k rules.Key) {
	if h, ok := q.unsaved[k]; ok {
		delete(q.unsaved, k)
		h.EachHeldAmount(func(id string, amount money.MC) {
			if q.unsavedMC[id] -= amount; q.unsavedMC[id] == 0 {
				delete(q.unsavedMC, id)
			}
		})
	}
}

// bindExternalTx prepares for a caller's transaction. It must see every hold, so the
// unsaved ones are saved in it. Whether it will be committed is not known here: the cache
// is not used, and resolveExternalTx finds out later.
func (q *sqlite) bindExternalTx(_ context.Context, dc any) error {
	conn, ok := dc.(driver.Conn)
	if !ok {
		return fmt.Errorf("ledger: %T is not a SQLite connection", dc)
	}
	if q.conn != conn {
		q.conn, q.stmts = conn, map[string]driver.Stmt{}
	}
	if !q.inExternalTx {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.inExternalTx, q.stashedHolds, q.unsaved, q.unsavedMC = true, q.unsaved, map[rules.Key]rules.HoldRow{},
			map[string]money.MC{}
	}
	q.resetCache()
	saved, err := q.stashWasCommitted()
	if err != nil || saved {
		return err
	}
	return q.insertHolds(q.stashedHolds, func(rules.HoldRow) bool { return true })
}

// resolveExternalTx ends what bindExternalTx began: the stashed holds are in the file if
// the transaction was committed, all or none, and are unsaved again if it was not.
func (q *sqlite) resolveExternalTx() error {
	if !q.inExternalTx {
		return nil
	}
	saved, err := q.stashWasCommitted()
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !saved {
		q.unsaved = q.stashedHolds
		for _, h := range q.unsaved {
			h.EachHeldAmount(func(id string, amount money.MC) { q.unsavedMC[id] += amount })
		}
	}
	q.inExternalTx, q.stashedHolds = false, nil
	q.resetCache()
	return nil
}

// stashWasCommitted looks in the file for one of the stashed holds.
func (q *sqlite) stashWasCommitted() (saved bool, err error) {
	for k := range q.stashedHolds {
		err = q.query(`SELECT 1 FROM holds WHERE connection_id = ? AND key = ? AND state = 'open'`, 1,
			func([]driver.Value) error {
				saved = true
				return nil
			}, k.ConnectionID, k.Key)
		return saved, err
	}
	return true, nil
}

// insertHolds writes those holds that pass, and adds them to held_mc and to counters.
func (q *sqlite) insertHolds(list map[rules.Key]rules.HoldRow, pass func(rules.HoldRow) bool) error {
	sums, childSums, counters := map[string]money.MC{}, map[string]money.MC{}, map[string]money.MC{}
	for k, h := range list {
		if !pass(h) {
			continue
		}
		if err := q.insertHold(&h); err != nil {
			return err
		}
		h.EachHeldAmount(func(id string, amount money.MC) {
			switch id {
			case k.ConnectionID:
				sums[id] += amount
			case rules.ChildHeldOf(k.ConnectionID):
				childSums[k.ConnectionID] += amount
			default:
				counters[id] += amount
			}
		})
	}
	for id, sum := range sums {
		if err := q.exec(`UPDATE connections SET held_mc = held_mc + ?, child_held_mc = child_held_mc + ? WHERE id = ?`,
			int64(sum), int64(childSums[id]), id); err != nil {
			return err
		}
	}
	for subject, sum := range counters {
		if err := q.exec(
			`INSERT INTO counters (subject, buckets, held, limit_reported) VALUES (?, '', ?, 0) ON CONFLICT (subject)
				DO UPDATE
				SET held = held + excluded.held`, subject, int64(sum)); err != nil {
			return err
		}
	}
	return nil
}

// holdFlushDelay is how long a hold may stay unsaved. Most calls of a fast provider end
// sooner, and their holds are never written.
const holdFlushDelay = 250 * time.Millisecond

// flushDelayed saves the holds that are older than holdFlushDelay, and unsaved counters. more says that there are
// younger ones.
func (q *sqlite) flushDelayed(ctx context.Context, now time.Time) (wrote, more bool, err error) {
	old := func(h rules.HoldRow) bool { return now.UnixMicro()-h.CreatedUS >= holdFlushDelay.Microseconds() }
	var keys []rules.Key
	for k, h := range q.unsaved {
		if old(h) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 && len(q.unsavedCounters) == 0 {
		return false, len(q.unsaved) > 0, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.exec(`BEGIN IMMEDIATE`); err != nil {
		return false, true, err
	}
	err = q.insertHolds(q.unsaved, old)
	for subject, c := range q.unsavedCounters {
		if err == nil {
			err = q.saveCounter(subject, c)
		}
	}
	if err == nil {
		err = q.exec(`COMMIT`)
	}
	if err != nil {
		q.inTx = true
		q.rollback(ctx)
		return false, true, err
	}
	clear(q.unsavedCounters)
	for _, k := range keys {
		q.dropUnsaved(k)
	}
	return true, len(q.unsaved) > 0, nil
}
