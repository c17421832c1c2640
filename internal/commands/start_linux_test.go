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

// measureUnit returns the processor time of a unit, the least of some.
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
	buffer, least := make([]byte, unitBytes), time.Duration(0)
	for range 5 {
		begin := used()
		sha256.Sum256(buffer)
		if n := used() - begin; least == 0 || n < least {
			least = n
		}
	}
	return least
}

// TestStartsAreCheap bounds the processor time, without the kernel's, of the first start of purser dev, which makes the
// sample accounts and their history, and that of a start in a test: on a machine that takes 23 ms for a unit, with the
// kernel's, 2.5 and 0.3 seconds. It is told in units,
// because machines, and what else they do, differ less in them than in seconds.
func TestStartsAreCheap(t *testing.T) {
	t.Parallel()
	if servertest.IsRace {
		t.Skip("the race detector slows the product and not the unit")
	}
	unit := measureUnit(t)
	for _, c := range []struct {
		name string
		args []string
		most float64
	}{
		{"first purser dev", []string{"--empty=false"}, 140},
		{"start in a test", nil, 20},
	} {
		units := math.Inf(1)
		for try := 0; try < 4 && units > c.most; try++ { // what runs beside it costs it caches and faults
			p := servertest.Start(t, "", c.args...)
			if code := p.Stop(); code != 0 {
				t.Fatalf("%s: exit code %d", c.name, code)
			}
			used := p.UserTime()
			units = min(units, float64(used)/float64(unit))
			t.Logf("%s: %v of processor time, %.1f units of %v", c.name, used, float64(used)/float64(unit), unit)
		}
		if units > c.most {
			t.Errorf("%s: %.1f units of %v of processor time, more than %.0f", c.name, units, unit, c.most)
		}
	}
}
