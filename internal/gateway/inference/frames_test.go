package inference

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestStreamFrames: from each position the frames are as they were appended, also in a copy from before.
func TestStreamFrames(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	type snapshot struct {
		frames streamFrames
		size   int
	}
	for _, largest := range []int{100, 3000, 3 * pieceBytes} {
		var f streamFrames
		var want []byte
		var copies []snapshot
		check := func(s snapshot) {
			t.Helper()
			if s.frames.size() != s.size || !bytes.Equal(s.frames.whole(), want[:s.size]) {
				t.Fatalf("frames of up to %d bytes: %d of %d bytes differ", largest, s.frames.size(), s.size)
			}
			for _, pos := range []int{0, s.size, s.frames.packed, rng.IntN(s.size + 1), rng.IntN(s.size + 1)} {
				got := s.frames.from(pos)
				if !bytes.Equal(got, want[pos:s.size]) {
					t.Fatalf("frames of up to %d bytes, from %d: they differ", largest, pos)
				}
			}
		}
		for len(want) < 10*pieceBytes {
			frames := fmt.Appendf(nil, "data: {%*d}\n\n", rng.IntN(largest), rng.Int())
			f.append(frames)
			want = append(want, frames...)
			copies = append(copies, snapshot{f, len(want)})
			check(copies[len(copies)-1])
		}
		for range 20 {
			check(copies[rng.IntN(len(copies))])
		}
		if kept := len(f.tail) + len(bytes.Join(f.pieces, nil)); kept > len(want)/2 {
			t.Errorf("frames of up to %d bytes: %d of %d bytes are kept", largest, kept, len(want))
		}
		whole := append(f.whole(), "usage"...)
		if !bytes.Equal(whole[:len(want)], want) || !bytes.Equal(f.whole(), want) {
			t.Errorf("frames of up to %d bytes: appending has changed them", largest)
		}
	}
}

func BenchmarkStreamFrames(b *testing.B) {
	frame := []byte(`data: {"id":"chatcmpl-B000000000000000000000000001","object":"chat.completion.chunk",` +
		`"created":1763900000,"model":"gpt-5.4-mini-2026-03-05","choices":[{"index":0,"delta":{"content":" word"}}]}`)
	for b.Loop() {
		var f streamFrames
		for range 100 {
			f.append(frame)
		}
		f.whole()
	}
}
