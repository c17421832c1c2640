//go:build serve

package main

// testDoubles are left out of this binary.
type testDoubles struct{}

const firstCommand = "purser serve --help"
