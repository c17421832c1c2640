package tokens

import (
	"hash/maphash"
	"sync/atomic"
)

// Recent counts are cached, because every call repeats the system message and the earlier turns of a conversation. A
// slot holds the upper bits of a text's hash, and its count. Two texts collide with a probability of 2⁻⁴⁴; the hash is
// seeded, so no client can cause a collision. The cache is used for holds only, never for charges.
var (
	counts     [1 << 14]atomic.Uint64
	countsSeed = maphash.MakeSeed()
)

const (
	countBits = 20 // ExactBytes bytes have fewer than 2²⁰ tokens
	// Counting a shorter text is as fast as looking it up.
	shortest = 48
)

// countCached is Count with the cache.
func countCached(text string) int {
	if len(text) < shortest || len(text) > ExactBytes {
		return Count(text)
	}
	hash := maphash.String(countsSeed, text)
	slot := &counts[hash%uint64(len(counts))]
	if known := slot.Load(); known>>countBits == hash>>countBits {
		return int(known & (1<<countBits - 1))
	}
	n := Count(text)
	slot.Store(hash>>countBits<<countBits | uint64(n))
	return n
}
