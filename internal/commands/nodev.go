//go:build serve

package commands

// testDoubles are left out of this binary.
type testDoubles struct{}

const firstCommand = "purser serve --help"
