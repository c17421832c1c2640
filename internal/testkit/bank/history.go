package bank

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A Step is one thing that happens. Its numbers choose of what there is then, so that each step may be left out.
type Step struct {
	Do      string
	A, B, C int
}

// String returns the step as Parse reads it.
func (s Step) String() string { return fmt.Sprintf("%s %d %d %d", s.Do, s.A, s.B, s.C) }

// Parse reads steps that String has written, one a line.
func Parse(text string) (history []Step, err error) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		var s Step
		if _, err := fmt.Sscanf(line, "%s %d %d %d", &s.Do, &s.A, &s.B, &s.C); err != nil {
			return nil, fmt.Errorf("step %q: %w", line, err)
		}
		history = append(history, s)
	}
	return history, nil
}

// Format writes a history, one step a line.
func Format(history []Step) string {
	var b strings.Builder
	for _, s := range history {
		fmt.Fprintf(&b, "%s\n", s)
	}
	return b.String()
}

// Random returns a random history of n steps. The same seed gives the same history. Each has some kinds of steps more
// often than others, and some not at all, and every second one has few numbers: so the same things meet in it, which
// seldom meet where everything does.
func Random(seed uint64, n int) (history []Step) {
	random, weights, all := rand.New(rand.NewPCG(seed, 40)), make([]int, len(kinds)), 0
	for i, w := range kinds {
		weights[i] = w.weight * Swarm(random)
		all += weights[i]
	}
	number := func() int { return random.IntN(1000) }
	if few := []int{number(), number(), number(), number(), number()}; seed%2 == 0 {
		number = func() int { return few[random.IntN(len(few))] }
	}
	for range n {
		x := random.IntN(all)
		for i, weight := range weights {
			if x -= weight; x < 0 {
				history = append(history, Step{kinds[i].name, number(), random.IntN(1000), number()})
				break
			}
		}
	}
	return history
}

// Swarm draws how many times as often as usual a kind of step comes in a history.
func Swarm(random *rand.Rand) int { return []int{0, 1, 1, 4}[random.IntN(4)] }

// Shrink cuts a history that fails to a shorter one that fails, too: it leaves out ever smaller parts until each step
// is needed (ddmin), and then makes the numbers of steps smaller. tries bounds how often it plays.
func Shrink(history []Step, tries int, fails func([]Step) bool) []Step {
	try := func(cut []Step) bool {
		if tries--; tries < 0 || !fails(cut) {
			return false
		}
		history = cut
		return true
	}
	for size := max(len(history)/2, 1); ; size = max(size/2, 1) {
		before := len(history)
		for from := 0; from < len(history); {
			if !try(slices.Delete(slices.Clone(history), from, min(from+size, len(history)))) {
				from += size
			}
		}
		if size == 1 && len(history) == before || tries < 0 {
			break
		}
	}
	for i := range history {
		for _, number := range []func(*Step) *int{
			func(s *Step) *int { return &s.A }, func(s *Step) *int { return &s.B }, func(s *Step) *int { return &s.C },
		} {
			set := func(n int) bool {
				cut := slices.Clone(history)
				*number(&cut[i]) = n
				return try(cut)
			}
			if *number(&history[i]) == 0 || set(0) {
				continue
			}
			for n := *number(&history[i]); n > 1 && set(n/2); {
				n /= 2
			}
		}
	}
	return history
}
