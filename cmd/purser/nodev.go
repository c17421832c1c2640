//go:build serve

package main

// testDoubles are left out of this binary.
type testDoubles struct{}

const start = "purser serve --help"
