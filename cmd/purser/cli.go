package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"purser/internal/audit"
	"purser/internal/config"
	"purser/internal/server"
)

// Exit codes: all is well; it failed, or the audit found something; it could
// not even be tried.
const (
	exitOK    = 0
	exitFound = 1
	exitUsage = 2
)

const description = `Purser is a metered AI billing gateway: apps spend a bounded part of a user's
balance on AI calls, and every micro-cent is in an immutable ledger.

Exit codes: 0 all is well; 1 it failed, or the audit found something; 2 wrong usage, or the audit could not look.

Start here:  purser dev`

type cli struct {
	Dev     devCmd     `cmd:"" help:"Run everything in one process, with a mock provider and fake money. Example: purser dev --data ./purser-data"`
	Serve   serveCmd   `cmd:"" help:"Run a node of the service. Example: purser serve --config purser.yaml"`
	Ledger  ledgerCmd  `cmd:"" help:"Look after the ledger."`
	Version versionCmd `cmd:"" help:"Print the version. Example: purser version"`
}

// run carries out a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	exit := -1
	parser, err := kong.New(&c, kong.Name("purser"), kong.Description(description), kong.Writers(stdout, stderr), kong.Exit(func(code int) { exit = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "purser:", err)
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	if exit == 0 { // --help
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "purser:", err)
		return exitUsage
	}
	err = parsed.Run(&streams{stdout, stderr})
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		fmt.Fprintln(stderr, "purser:", err)
		return exitFound
	}
	return exitOK
}

// exitCode is an error that has been told already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// usage tells an error and exits with 2.
func (s *streams) usage(err error) error {
	fmt.Fprintln(s.err, "purser:", err)
	return exitCode(exitUsage)
}

type streams struct{ out, err io.Writer }

// logger writes text for people on a terminal, and JSON for everybody else.
func (s *streams) logger(level string) *slog.Logger {
	var at slog.Level
	if err := at.UnmarshalText([]byte(level)); err != nil {
		at = slog.LevelInfo // levels are checked before
	}
	options := &slog.HandlerOptions{Level: at}
	if f, ok := s.err.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(slog.NewTextHandler(s.err, options))
		}
	}
	return slog.New(slog.NewJSONHandler(s.err, options))
}

type devCmd struct {
	Data     string        `default:"./purser-data" help:"Folder of the database and its key."`
	Listen   string        `default:"127.0.0.1:8080" help:"Address to listen on; port 0 picks a free one."`
	Database string        `help:"postgres://… instead of a file in the data folder."`
	JSON     bool          `name:"json" help:"Print one line of JSON when ready, instead of the welcome."`
	LogLevel string        `default:"warn" enum:"debug,info,warn,error" help:"How much to log: ${enum}."`
	Lease    time.Duration `default:"5m" hidden:""`
}

// Help is shown by purser dev --help.
func (devCmd) Help() string {
	return "Example:\n  purser dev --data ./purser-data --listen 127.0.0.1:0 --json"
}

// Run runs the development node until it is interrupted.
func (c *devCmd) Run(s *streams) error {
	ctx, stop := interruptible()
	defer stop()
	return server.Dev(ctx, server.DevOptions{Data: c.Data, Listen: c.Listen, Database: c.Database, JSON: c.JSON, Lease: c.Lease, Out: s.out}, s.logger(c.LogLevel))
}

type serveCmd struct {
	Config string   `type:"path" help:"YAML file with the settings."`
	Set    []string `sep:"none" placeholder:"KEY=VALUE" help:"A setting that wins over file and environment. May be repeated."`
}

// Help is shown by purser serve --help.
func (serveCmd) Help() string {
	return "Example:\n  purser serve --config purser.yaml --set listen=0.0.0.0:8080\n\nSettings, and their environment variables:\n" + config.Help()
}

// Run runs a node until it is interrupted.
func (c *serveCmd) Run(s *streams) error {
	loaded, err := load(c.Config, c.Set)
	if err != nil {
		return s.usage(err)
	}
	ctx, stop := interruptible()
	defer stop()
	return server.Serve(ctx, loaded, s.logger(loaded.LogLevel))
}

func load(path string, settings []string) (config.Config, error) {
	var text []byte
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return config.Config{}, err
		}
	}
	return config.Load(path, text, os.Environ(), settings)
}

type ledgerCmd struct {
	Verify verifyCmd `cmd:"" help:"Audit the whole database. Example: purser ledger verify --database sqlite:purser-data/purser.db"`
}

type verifyCmd struct {
	Database string `help:"sqlite:PATH or postgres://…; a running server may go on." xor:"where" required:""`
	Config   string `type:"path" help:"Or the settings of purser serve." xor:"where" required:""`
}

// Help is shown by purser ledger verify --help.
func (verifyCmd) Help() string {
	return "Example:\n  purser ledger verify --database sqlite:purser-data/purser.db\n\nExits 0 when all is well, 1 with the rows on any finding, 2 when it could not look."
}

// Run audits and exits with what it found.
func (c *verifyCmd) Run(s *streams) error {
	database := c.Database
	if c.Config != "" {
		loaded, err := load(c.Config, nil)
		if err != nil {
			return s.usage(err)
		}
		database = loaded.Database
	}
	ctx, stop := interruptible()
	defer stop()
	findings, err := audit.Run(ctx, database, s.out, time.Now())
	if err != nil {
		return s.usage(err)
	}
	if findings > 0 {
		return exitCode(exitFound)
	}
	return nil
}

type versionCmd struct{}

// Run prints the version of the build.
func (versionCmd) Run(s *streams) error {
	version := "development"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	_, err := fmt.Fprintf(s.out, "purser %s, contract 0.1.0\n", version)
	return err
}

// interruptible ends its context at the first signal; the second one kills.
func interruptible() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	go func() {
		<-ctx.Done()
		stop()
	}()
	return ctx, stop
}
