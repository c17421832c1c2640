package bank_test

import (
	"slices"
	"testing"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// TestShrink cuts a history that fails by two steps, of which one has a number that must be large enough.
func TestShrink(t *testing.T) {
	t.Parallel()
	tries := 0
	fails := func(history []bank.Step) bool {
		tries++
		first := slices.IndexFunc(history, func(s bank.Step) bool { return s.Do == "one" && s.B >= 5 })
		return first >= 0 && slices.ContainsFunc(history[first:], func(s bank.Step) bool { return s.Do == "two" })
	}
	history := bank.Random(1, 40)
	history[7], history[31] = bank.Step{Do: "one", A: 900, B: 900, C: 900}, bank.Step{Do: "two", A: 900}
	got := bank.Shrink(history, 200, fails)
	if len(got) != 2 || got[0].A+got[0].C+got[1].A > 0 || got[0].B < 5 || got[0].B >= 10 {
		t.Errorf("what is left, after %d tries:\n%s", tries, bank.Format(got))
	}
	if tries = 0; !fails(bank.Shrink(history, 10, fails)) || tries > 11 {
		t.Errorf("%d tries of 10, and what is left does not fail", tries)
	}
}
