package usage

import (
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// TestCountAnswers counts what amounts pay for.
func TestCountAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size   CallSize
		amount money.MC
		want   string
	}{
		{CallSize{20, 20 * 127_551}, 5 * money.Dollar, "3,900"}, // 3,920
		{CallSize{19, 19 * 127_551}, 5 * money.Dollar, ""},
		{CallSize{20, 0}, 5 * money.Dollar, ""},
		{CallSize{20, -1}, 5 * money.Dollar, ""},
		{CallSize{20, 20 * money.Dollar}, money.Dollar - 1, ""},
		{CallSize{20, 20 * money.Dollar}, money.Dollar, "1"},
		{CallSize{20, 20 * money.Dollar}, 99 * money.Dollar, "99"},
		{CallSize{20, 20 * money.Dollar}, 109 * money.Dollar, "100"},
		{CallSize{1 << 40, 1}, money.Max, ""},
	} {
		if got := c.size.CountAnswers(c.amount); got != c.want {
			t.Errorf("%+v pays with %d for %q, want %q", c.size, c.amount, got, c.want)
		}
	}
}
