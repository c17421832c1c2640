package commands

import (
	"crypto/sha256"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A unit of work is to hash so many bytes in processor time of this machine, whatever else it does.
const unitBytes = 32 << 20

// measureUnit returns the processor time of a unit, the mean of some.
func measureUnit(t *testing.T) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(1, &r); err != nil { // RUSAGE_THREAD
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	const times = 5
	buffer, begin := make([]byte, unitBytes), used()
	for range times {
		sha256.Sum256(buffer)
	}
	return (used() - begin) / times
}

// TestStartsAreCheap bounds the processor time, without the kernel's, of the first start of purser dev, which makes the
// sample accounts and their history, and that of a start in a test: with the kernel's they are 2.5 and 0.3 seconds on a
// machine that takes 23 ms for a unit. It is told in units, because machines, and what else they do, differ less in
// them than in seconds. A unit is measured beside each start: where others use the caches, it takes longer, too.
func TestStartsAreCheap(t *testing.T) {
	t.Parallel()
	if servertest.IsRace {
		t.Skip("the race detector slows the product and not the unit")
	}
	for _, c := range []struct {
		name string
		args []string
		most float64
	}{
		{"first purser dev", []string{"--empty=false"}, 80},
		{"start in a test", nil, 10},
	} {
		units := math.Inf(1)
		for try := 0; try < 4 && units > c.most; try++ {
			before := measureUnit(t)
			p := servertest.Start(t, "", c.args...)
			if code := p.Stop(); code != 0 {
				t.Fatalf("%s: exit code %d", c.name, code)
			}
			used, unit := p.UserTime(), max(before, measureUnit(t))
			units = min(units, float64(used)/float64(unit))
			t.Logf("%s: %v of processor time, %.1f units of %v", c.name, used, float64(used)/float64(unit), unit)
		}
		if units > c.most {
			t.Errorf("%s: %.1f units of processor time, more than %.0f", c.name, units, c.most)
		}
	}
}
