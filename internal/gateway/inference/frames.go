package inference

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
)

// pieceBytes is how much of a stream is kept as it is. Most streams have no more.
const pieceBytes = 8 << 10

// streamFrames are the frames of a stream so far. A slow stream keeps them for minutes, and its chunks repeat the same
// members: so all but the newest are compressed, in pieces. They only grow: a copy of the value can be read while more
// frames are appended to the original.
type streamFrames struct {
	pieces [][]byte // compressed, oldest first
	packed int      // bytes of the stream in pieces
	tail   []byte   // the frames after them; never overwritten
}

// size returns how many bytes the frames have.
func (f *streamFrames) size() int { return f.packed + len(f.tail) }

// append adds frames.
func (f *streamFrames) append(frames []byte) {
	if len(f.tail) > 0 && len(f.tail)+len(frames) > pieceBytes {
		f.pieces = append(f.pieces, compress(f.tail))
		f.packed, f.tail = f.size(), nil
	}
	if f.tail == nil {
		f.tail = make([]byte, 0, max(len(frames), pieceBytes))
	}
	f.tail = append(f.tail, frames...)
}

// packBuffers pools the memory that is compressed into. A response of 32 KB is compressed to a tenth, but s2 needs room
// for more than all of it.
var packBuffers = sync.Pool{New: func() any {
	b := make([]byte, s2.MaxEncodedLen(4*pieceBytes))
	return &b
}}

// compress returns a compressed copy of b that takes no more memory than it needs.
func compress(b []byte) []byte {
	buf := packBuffers.Get().(*[]byte)
	defer packBuffers.Put(buf)
	return bytes.Clone(s2.Encode(*buf, b))
}

// usageRoom is the room that whole leaves for a frame that has only usage.
const usageRoom = 1 << 10

// whole returns all frames, for the one that appends them, who may also append to the result.
func (f *streamFrames) whole() []byte {
	if f.packed == 0 {
		return f.tail
	}
	return f.from(0)
}

// part returns some of the frames from a position on, which is below size: so much as takes no more memory than a
// piece. The slice must not be changed.
func (f *streamFrames) part(pos int) []byte {
	if pos >= f.packed {
		return f.from(pos)
	}
	begin, pieces := 0, f.pieces
	for begin+pieceLen(pieces[0]) <= pos {
		begin, pieces = begin+pieceLen(pieces[0]), pieces[1:]
	}
	one := streamFrames{pieces: pieces[:1], packed: pieceLen(pieces[0])}
	return one.from(pos - begin)
}

// from returns the frames from a position on, which is at most size. The slice must not be changed.
func (f *streamFrames) from(pos int) []byte {
	if pos >= f.packed {
		return f.tail[pos-f.packed : len(f.tail) : len(f.tail)]
	}
	begin, pieces := 0, f.pieces
	for begin+pieceLen(pieces[0]) <= pos {
		begin, pieces = begin+pieceLen(pieces[0]), pieces[1:]
	}
	out := make([]byte, f.size()-begin, f.size()-begin+usageRoom)
	rest := out
	for _, p := range pieces {
		frames, err := s2.Decode(rest, p)
		if err != nil {
			panic(fmt.Sprintf("inference: unpack frames: %v", err)) // cannot happen: compress has made it
		}
		rest = rest[len(frames):]
	}
	copy(rest, f.tail)
	return out[pos-begin:]
}

// pieceLen returns how many bytes of a stream a piece has.
func pieceLen(piece []byte) int {
	n, err := s2.DecodedLen(piece)
	if err != nil {
		panic(fmt.Sprintf("inference: unpack frames: %v", err)) // cannot happen: compress has made it
	}
	return n
}
