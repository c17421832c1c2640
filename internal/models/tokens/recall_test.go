package tokens

import (
	"strings"
	"sync"
	"testing"
)

// What is remembered is what was counted, whoever asks, and whatever took its place meanwhile.
func TestRecall(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 3 * len(counts) {
				text := strings.Repeat("word ", 10+(i*7+g)%len(counts)%50) + strings.Repeat("x", i%40)
				if got, want := countCached(text), Count(text); got != want {
					t.Errorf("%q: %d, want %d", text, got, want)
					return
				}
			}
		})
	}
	all.Wait()
	for _, text := range []string{"", "short", strings.Repeat("a ", ExactBytes), strings.Repeat("\xff", 100),
		strings.Repeat("z", ExactBytes)} {
		for range 2 {
			if got, want := countCached(text), Count(text); got != want {
				t.Errorf("%.20q: %d, want %d", text, got, want)
			}
		}
	}
}

func BenchmarkRecall(b *testing.B) {
	text := strings.Repeat("You are a helpful assistant. ", 200)
	Load()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		countCached(text)
	}
}
