// Command purser is a metered AI billing gateway. See `purser --help`.
package main

import "os"

func main() {
	folder, err := os.Getwd()
	if err != nil {
		folder = "" // deleted: no file is looked for
	}
	p := program{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), folder: folder}
	os.Exit(p.runCommand(os.Args[1:]))
}
