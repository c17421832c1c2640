package tokens

import (
	"hash/maphash"
	"sync/atomic"
)

// A system message comes with every call, and a conversation again with each of its
// turns: recent counts are looked up. A slot holds the upper bits of a text's hash, and its count. Two texts are
// confused with a probability of 2⁻⁴⁴; the hash is seeded, so no client can cause it. Only holds are counted this
// way, charges never.
var (
	counts     [1 << 14]atomic.Uint64
	countsSeed = maphash.MakeSeed()
)

const (
	countBits = 20 // ExactBytes bytes are fewer tokens than that
	// A shorter text is counted as fast as it is looked up.
	shortest = 48
)

// recall is Count, from memory if the text was counted lately.
func recall(text string) int {
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
