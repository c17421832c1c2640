package tokens

import (
	_ "embed"
	"hash/maphash"
	"sync"
)

// noRank is the rank of a text that is not a token.
const noRank = 1<<32 - 1

// packed is o200k_base: the lengths of all tokens by rank, one byte each, and then all tokens in that order.
// TestVocabularyIsTheLibrarys writes it with -update. The map of the library would cost the garbage collector 7 MB.
//
//go:embed o200k_base.bin
var packed string

// size is the number of tokens.
const size = 199_998

// A vocabulary maps every token to its rank. It is an open-addressing hash
// table over one string, about 3 MB without a pointer for the garbage collector.
type vocabulary struct {
	text    string   // all tokens, in the order of their ranks
	starts  []uint32 // start of each token in text, by rank; the last element is the end
	seed    maphash.Seed
	slots   []uint32 // 14 bits of the hash, then 18 bits of rank+1; 0 = empty
	pairs   []uint32 // ranks of the tokens of two bytes, by their bytes
	longest int      // bytes of the longest token
}

const (
	slotBits = 19 // 524,288 slots
	rankBits = 18
	rankMask = 1<<rankBits - 1
)

// o200k builds the vocabulary at its first call.
var o200k = sync.OnceValue(func() *vocabulary {
	v := &vocabulary{
		text: packed[size:], starts: make([]uint32, size+1), seed: maphash.MakeSeed(),
		slots: make([]uint32, 1<<slotBits), pairs: make([]uint32, 1<<16),
	}
	for i := range v.pairs {
		v.pairs[i] = noRank
	}
	for rank := range uint32(size) {
		v.starts[rank+1] = v.starts[rank] + uint32(packed[rank])
		v.add(rank)
	}
	return v
})

func (v *vocabulary) token(rank uint32) string { return v.text[v.starts[rank]:v.starts[rank+1]] }

func (v *vocabulary) add(rank uint32) {
	token := v.token(rank)
	v.longest = max(v.longest, len(token))
	if len(token) == 2 {
		v.pairs[uint32(token[0])<<8|uint32(token[1])] = rank
	}
	hash := maphash.String(v.seed, token)
	i := hash & (1<<slotBits - 1)
	for v.slots[i] != 0 {
		i = (i + 1) & (1<<slotBits - 1)
	}
	v.slots[i] = uint32(hash>>32)&^rankMask | (rank + 1)
}

// rank returns the rank of a token, or noRank.
func (v *vocabulary) rank(token string) uint32 {
	if len(token) > v.longest {
		return noRank
	}
	hash := maphash.String(v.seed, token)
	tag := uint32(hash>>32) &^ rankMask
	for i := hash & (1<<slotBits - 1); v.slots[i] != 0; i = (i + 1) & (1<<slotBits - 1) {
		if slot := v.slots[i]; slot&^rankMask == tag && v.token(slot&rankMask-1) == token {
			return slot&rankMask - 1
		}
	}
	return noRank
}

// pair returns the rank of a token of two bytes, or noRank.
func (v *vocabulary) pair(a, b byte) uint32 { return v.pairs[uint32(a)<<8|uint32(b)] }
