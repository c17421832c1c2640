package ui

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// The parts of a row add up to its cap, and a bar is never longer than its frame.
func TestCapRowAddsUp(t *testing.T) {
	t.Parallel()
	cents := func(text string) (n int64) {
		for _, c := range strings.TrimSpace(text) {
			if c >= '0' && c <= '9' {
				n = n*10 + int64(c-'0')
			}
		}
		return n
	}
	for _, s := range []CapState{
		{"", 25 * money.Dollar, 1, 0, 40 * money.Dollar},
		{"", 25*money.Dollar + 3, money.Cent - 1, money.Cent + 7, 40 * money.Dollar},
		{"", 40 * money.Dollar, 40 * money.Dollar, 0, 40 * money.Dollar},
		{"", 0, 0, 0, 0},
		{"", money.Max, 3_333_333_333, 999_999, money.Max},
		{"", 10, 5, 5, 50},
	} {
		r := NewCapRow(s)
		if got := cents(r.Used) + cents(r.Held) + cents(r.Left); got != cents(r.Cap) {
			t.Errorf("%+v: %s used, %s held and %s left of %s", s, r.Used, r.Held, r.Left, r.Cap)
		}
		if r.Width < 0 || r.Width > 100 || r.UsedWidth > r.Width {
			t.Errorf("%+v: a bar of %d, %d filled", s, r.Width, r.UsedWidth)
		}
	}
}
