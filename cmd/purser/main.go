// Command purser is a metered AI billing gateway. See `purser --help`.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/purserhq/purser/internal/commands"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		// A node reads its prices again on SIGHUP. Until it listens to the signal, and while it stops, the signal must
		// not end it: systemd does not restart what SIGHUP has ended.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	folder, err := os.Getwd()
	if err != nil {
		folder = "" // deleted: no file is looked for
	}
	os.Exit(commands.Line{
		Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Folder: folder,
	}.Run())
}
