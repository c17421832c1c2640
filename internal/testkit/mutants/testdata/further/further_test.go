// Package further has a test of what the tests of package fixture leave out.
package further

import (
	"testing"

	"github.com/purserhq/purser/internal/testkit/mutants/testdata/fixture"
)

func TestUnused(t *testing.T) {
	if got := fixture.Unused("a", "b"); got != "ab\x02" {
		t.Errorf("%q", got)
	}
}
