package tokens

import "sync"

// scanBytes is the longest piece that mergeScan merges, which is fastest for words. Longer pieces use a heap, so that a
// text without spaces costs n log n and not n².
const scanBytes = 64

// count returns the number of tokens of a piece of text: one if it is in the vocabulary. Otherwise it merges pairs of
// tokens, always the leftmost pair of the lowest rank first, until no pair is a token.
func (v *vocabulary) count(piece string) int {
	if len(piece) == 1 || v.rank(piece) != noRank {
		return 1
	}
	if len(piece) > scanBytes {
		return v.mergeHeap(piece)
	}
	return v.mergeScan(piece)
}

// part is one part of a piece: its start, and the rank of the token that it would form with the next part.
type part struct {
	rank  uint32
	start uint32
}

func (v *vocabulary) mergeScan(piece string) int {
	var room [scanBytes + 1]part
	parts := room[:len(piece)+1] // the last one marks the end
	for i := range parts {
		parts[i] = part{noRank, uint32(i)}
	}
	for i := range len(piece) - 1 {
		parts[i].rank = v.pair(piece[i], piece[i+1])
	}
	for {
		lowest := 0
		for i := range parts {
			if parts[i].rank < parts[lowest].rank {
				lowest = i
			}
		}
		if parts[lowest].rank == noRank {
			return len(parts) - 1
		}
		copy(parts[lowest+1:], parts[lowest+2:])
		parts = parts[:len(parts)-1]
		parts[lowest].rank = v.rankJoined(piece, parts, lowest)
		if lowest > 0 {
			parts[lowest-1].rank = v.rankJoined(piece, parts, lowest-1)
		}
	}
}

// rankJoined returns the rank of part i joined with the next part.
func (v *vocabulary) rankJoined(piece string, parts []part, i int) uint32 {
	if i+2 >= len(parts) {
		return noRank
	}
	return v.rank(piece[parts[i].start:parts[i+2].start])
}

// node is a part in the linked list of mergeHeap; -1 means none.
type node struct {
	rank       uint32
	prev, next int32
}

// heap is the memory of mergeHeap, pooled between calls.
type heap struct {
	nodes []node
	pairs []uint64 // a binary heap of rank<<32 | start, lowest first
}

var heaps = sync.Pool{New: func() any { return new(heap) }}

func (v *vocabulary) mergeHeap(piece string) int {
	h := heaps.Get().(*heap)
	defer heaps.Put(h)
	h.reset(len(piece))
	for i := range len(piece) - 1 {
		h.push(v.pair(piece[i], piece[i+1]), int32(i))
	}
	left := len(piece)
	for len(h.pairs) > 0 {
		rank, i := h.pop()
		if h.nodes[i].rank != rank {
			continue // merged or changed since it was pushed
		}
		gone := h.nodes[i].next
		after := h.nodes[gone].next
		h.nodes[gone].rank = noRank
		h.nodes[i].next = after
		h.nodes[after].prev = i
		left--
		h.push(v.rankFrom(h, piece, i), i)
		if before := h.nodes[i].prev; before >= 0 {
			h.push(v.rankFrom(h, piece, before), before)
		}
	}
	return left
}

// rankFrom returns the rank of the part at i joined with the next part.
func (v *vocabulary) rankFrom(h *heap, piece string, i int32) uint32 {
	next := h.nodes[i].next
	if int(next) == len(piece) {
		return noRank
	}
	return v.rank(piece[i:h.nodes[next].next])
}

// reset makes n parts of one byte, and a last node that marks the end.
func (h *heap) reset(n int) {
	h.nodes, h.pairs = h.nodes[:0], h.pairs[:0]
	for i := range int32(n) + 1 {
		h.nodes = append(h.nodes, node{noRank, i - 1, i + 1})
	}
}

// push records that the part at i forms a token of this rank with the next part.
func (h *heap) push(rank uint32, i int32) {
	h.nodes[i].rank = rank
	if rank == noRank {
		return
	}
	h.pairs = append(h.pairs, uint64(rank)<<32|uint64(i))
	child := len(h.pairs) - 1
	for child > 0 {
		parent := (child - 1) / 2
		if h.pairs[parent] <= h.pairs[child] {
			return
		}
		h.pairs[parent], h.pairs[child] = h.pairs[child], h.pairs[parent]
		child = parent
	}
}

// pop removes the lowest rank, the leftmost among equal ones.
func (h *heap) pop() (rank uint32, i int32) {
	top, last := h.pairs[0], len(h.pairs)-1
	h.pairs[0] = h.pairs[last]
	h.pairs = h.pairs[:last]
	for parent := 0; ; {
		child := 2*parent + 1
		if child+1 < last && h.pairs[child+1] < h.pairs[child] {
			child++
		}
		if child >= last || h.pairs[parent] <= h.pairs[child] {
			return uint32(top >> 32), int32(uint32(top))
		}
		h.pairs[parent], h.pairs[child] = h.pairs[child], h.pairs[parent]
		parent = child
	}
}
