// Command pg runs a command with a PostgreSQL of its own, so that the test
// processes of one run share it:
//
//	go run ./internal/db/dbtest/pg -- go test ./...
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"purser/internal/db/dbtest"
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
	c, err := dbtest.Start(false)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
		return 2
	}
	defer c.Stop()
	signal.Ignore(syscall.SIGINT) // it reaches the command too, whose end ends us
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), dbtest.Env+"="+c.URL)
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "pg:", err)
		return 2
	}
	return 0
}
