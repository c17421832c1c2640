package rules

import (
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/ledger/limits"
)

// TestReservationsAreReadAgain reads what holds of both units have stored: otherwise they could not be settled.
func TestReservationsAreReadAgain(t *testing.T) {
	t.Parallel()
	list := Reservations{
		{"spend/app", limits.Spend, 24 * time.Hour, 5}, {"live/dev", limits.Cost, 24 * time.Hour, 3},
		{"free/a/2026-11", limits.Spend, 0, 1},
	}
	if got, err := ParseReservations(list.String()); err != nil || !slices.Equal(got, list) {
		t.Errorf("%q is read as %+v, %v", list.String(), got, err)
	}
	for _, wrong := range []string{"a|x|0|1", "a|s|1", "a|s|0|1|2", "a|s|x|1", "a|s|1|x"} {
		if got, err := ParseReservations(wrong); err == nil {
			t.Errorf("%q is read as %+v", wrong, got)
		}
	}
}

// FuzzParseCounts reads what String writes, and nothing else without an error.
func FuzzParseCounts(f *testing.F) {
	for _, text := range []string{"", "spend/app|s|86400|5", "free/a/2026-11|s|0|1 live/wac|c|86400|3", "a|x|0|1",
		"a|s|1", "a|s|0|1|2", "|s|0|0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseReservations(text)
		if err != nil {
			return
		}
		again, err := ParseReservations(list.String())
		if err != nil || again.String() != list.String() {
			t.Errorf("%q reads as %q, then %q, %v", text, list, again, err)
		}
	})
}
