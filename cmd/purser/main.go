// Command purser is a metered AI billing gateway. See `purser --help`.
package main

import "os"

func main() {
	os.Exit((&program{out: os.Stdout, err: os.Stderr, environ: os.Environ()}).runCommand(os.Args[1:]))
}
