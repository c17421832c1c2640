package mock

import (
	"strings"
	"testing"
)

// TestMockKeepsLittle: of what a browser writes between two replies, the mock keeps what it can say.
func TestMockKeepsLittle(t *testing.T) {
	t.Parallel()
	var c Call
	for range 1000 {
		c.hear(strings.Repeat("ä", 1<<20))
		c.hear(strings.Repeat("word ", 1<<16))
	}
	n := 0
	for _, word := range c.userWords {
		n += len(word)
	}
	if len(c.userWords) != maxWords || n > maxWords*maxHeard || !strings.HasPrefix(c.userWords[0], "ää") {
		t.Errorf("%d words of %d bytes", len(c.userWords), n)
	}
}
