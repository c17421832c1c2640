package commands

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// Bounds of what packages do before main, in bytes that they allocate. Every command pays for it, purser --help too.
const (
	maxInit    = 192 << 10  // one package
	maxAllInit = 2304 << 10 // together
)

// TestInitsAreSmall bounds what packages allocate before main. A template that is parsed, or a table that is built, in
// a variable of a package costs each start of each command: put it into a sync.OnceValue.
func TestInitsAreSmall(t *testing.T) {
	t.Parallel()
	if servertest.IsRace {
		t.Skip("the race detector changes what is allocated")
	}
	c := exec.CommandContext(t.Context(), servertest.Binary(t), "--help")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	c.Stderr = &trace
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	all, packages := 0, 0
	for line := range strings.Lines(trace.String()) {
		f := strings.Fields(line) // init net/http @1.2 ms, 0.3 ms clock, 4096 bytes, 12 allocs
		if len(f) != 11 || f[0] != "init" {
			continue
		}
		n, err := strconv.Atoi(f[7])
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all, packages = all+n, packages+1
		if n > maxInit {
			t.Errorf("%s allocates %d bytes before main", f[1], n)
		}
	}
	if packages < 100 {
		t.Fatalf("the trace has %d packages:\n%s", packages, trace.String())
	}
	t.Logf("%d packages allocate %d bytes before main", packages, all)
	if all > maxAllInit {
		t.Errorf("all packages allocate %d bytes before main, more than %d", all, maxAllInit)
	}
}
