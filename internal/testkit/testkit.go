// Package testkit says which tests run when. Its packages hold what tests share:
// databases (dbtest), broken connections and disks (faulttest), the contract (apitest), servers within the
// test (apptest) and as processes (servertest), calls of either (calltest), and a login provider (oidctest).
package testkit

import (
	"os"
	"testing"
	"time"
)

// LongEnv names the variable that makes go test run every test, as make test-long does.
const LongEnv = "PURSER_TEST_LONG"

// IsLong reports whether this is the long run.
func IsLong() bool { return os.Getenv(LongEnv) != "" }

// Long leaves the rest of a test to the long run. The reason says why the usual run
// does without it; docs/internals/testing.md lists it with the test's name.
func Long(t testing.TB, reason string) {
	t.Helper()
	if !IsLong() {
		t.Skip("only in make test-long: " + reason)
	}
}

// Patience is how long a test waits for what takes a moment, and on a machine with twenty such tests at a time minutes.
const Patience = 5 * time.Minute

// Eventually polls until ok, less often the longer it takes, and fails the test if that is too long.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); {
		waited := time.Since(begun)
		if waited > within {
			t.Fatalf("%s: not within %s", what, within)
		}
		<-time.After(min(max(waited/10, 20*time.Millisecond), 500*time.Millisecond))
	}
}
