package tokens

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCounter counts texts in parts of any size, cut anywhere.
func TestCounter(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		text := strings.ToValidUTF8(randomText(r, r.IntN(4000)), "?")
		if len(text) > ExactBytes {
			text = text[:0]
		}
		var c Counter
		for rest := text; rest != ""; {
			n := min(1+r.IntN(1+r.IntN(3*windowBytes)), len(rest))
			c.Add(rest[:n])
			rest = rest[n:]
		}
		want := int64(Count(text))
		if slack := int64(len(text)/windowBytes) + 1; c.Count() < want-slack || c.Count() > want+slack {
			t.Errorf("%d tokens of %d bytes, want %d", c.Count(), len(text), want)
		}
		if c.Counted() > c.Count() || len(c.tail) >= windowBytes {
			t.Errorf("%d of %d tokens are counted, %d bytes are not", c.Counted(), c.Count(), len(c.tail))
		}
	}
}

// TestCounterOfLongText counts a text that Count only estimates, and one without an end of a piece.
func TestCounterOfLongText(t *testing.T) {
	t.Parallel()
	var c Counter
	for range 100_000 {
		c.Add(" word")
	}
	if c.Count() != 100_000 {
		t.Errorf("%d tokens", c.Count())
	}
	c = Counter{}
	c.Add(strings.Repeat("a", 100*windowBytes))
	if len(c.tail) >= windowBytes || c.Count() == 0 {
		t.Errorf("%d tokens, %d bytes are kept", c.Count(), len(c.tail))
	}
}
