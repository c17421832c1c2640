//go:build !race

package servertest

// IsRace reports whether the race detector is in the tests, and so in the binary.
const IsRace = false
