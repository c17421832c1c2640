// Command purser is a metered AI billing gateway. See `purser --help`.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
