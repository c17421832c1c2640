package store

import (
	"context"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// keyFilter is a Bloom filter over the hashes of all used keys, of 10 bits a key. A
// new key, as nearly every one is, need not be looked up in the file. The filter is
// filled from the file in the background; before it is complete, it excludes no key.
type keyFilter struct {
	mu       sync.Mutex
	parts    []bloom // each twice as large as the one before
	complete bool
}

// neverUsed reports whether no key with this hash was added.
func (f *keyFilter) neverUsed(hash int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.parts {
		if f.parts[i].hasHash(uint64(hash)) {
			return false
		}
	}
	return f.complete
}

func (f *keyFilter) addKey(hashes ...int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, hash := range hashes {
		last := &f.parts[len(f.parts)-1]
		if last.free == 0 {
			f.parts = append(f.parts, newBloom(2*last.size))
			last = &f.parts[len(f.parts)-1]
		}
		last.addHash(uint64(hash))
	}
}

// newKeyFilter returns a filter with room for one and a half times the keys that
// exist.
func newKeyFilter(keys int) *keyFilter {
	return &keyFilter{parts: []bloom{newBloom(max(1<<16, keys*3/2))}}
}

// fillPause is how much longer filling rests than it reads: calls go first.
const fillPause = 9

// loadKeys reads all keys of d. Those of batches that run meanwhile are added by the
// writer before they are committed, so that none is missed.
func (f *keyFilter) loadKeys(d *db.DB, stop <-chan struct{}) error {
	var page []int64
	take := func(query string, scan func(row db.Row) (int64, error), args ...any) error {
		rows, err := d.QueryContext(context.Background(), query, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // read to its end, or failed
		for page = page[:0]; rows.Next(); {
			hash, err := scan(rows)
			if err != nil {
				return err
			}
			page = append(page, hash)
		}
		f.addKey(page...)
		return rows.Err()
	}
	err := take(`SELECT connection_id, key FROM holds`, func(row db.Row) (int64, error) {
		var k rules.Key
		err := row.Scan(&k.ConnectionID, &k.Key)
		return k.IndexHash(), err
	})
	// By pages, because a long read keeps the WAL from being reset, and with
	// pauses, because calls are served meanwhile.
	for after := int64(-1); err == nil; {
		begun := time.Now()
		err = take(`SELECT key_hash FROM ledger WHERE key_hash > $1 ORDER BY key_hash LIMIT 2000`,
			db.ScanColumn[int64], after)
		if err != nil || len(page) == 0 {
			break
		}
		after = page[len(page)-1]
		select {
		case <-time.After(max(time.Millisecond, fillPause*time.Since(begun))):
		case <-stop:
			return nil
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete = err == nil
	return err
}

// bloom says of a hash that it was surely not added, or else perhaps.
type bloom struct {
	bits       []uint64
	size, free int // keys
}

func newBloom(size int) bloom {
	return bloom{bits: make([]uint64, size*10/64+1), size: size, free: size}
}

// bitPosition is the place of the hash's bit number i.
func (b *bloom) bitPosition(hash uint64, i int) (word, mask uint64) {
	const mix = 0x9e3779b97f4a7c15 // a second hash out of the first
	n := (hash + uint64(i)*(hash*mix>>17|1)) % uint64(64*len(b.bits))
	return n / 64, 1 << (n % 64)
}

const bloomBits = 6 // of each key

func (b *bloom) hasHash(hash uint64) bool {
	for i := range bloomBits {
		if word, mask := b.bitPosition(hash, i); b.bits[word]&mask == 0 {
			return false
		}
	}
	return true
}

func (b *bloom) addHash(hash uint64) {
	b.free--
	for i := range bloomBits {
		word, mask := b.bitPosition(hash, i)
		b.bits[word] |= mask
	}
}
