// Command pg runs a command with a PostgreSQL that the test processes of one run
// share, and exits as the command does:
//
//	go run ./internal/testkit/dbtest/pg -- go test ./...
//
// The server's URL is the same in every run, because go test caches results per
// environment. A second pg at the same time gets another URL.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: pg -- COMMAND [ARG …]")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := dbtest.Start(false)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
		return 2
	}
	url, code := "", 2
	if url, err = c.Fix(); err == nil {
		code = follow(ctx, url, args)
	}
	if err := errors.Join(err, c.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
		return 2
	}
	return code
}

// follow runs the command to its end and returns its exit code.
func follow(ctx context.Context, url string, args []string) int {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), dbtest.Env+"="+url)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
		return 2
	}
	return 0
}
