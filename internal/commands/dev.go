//go:build !serve

package commands

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/dev"
	"github.com/purserhq/purser/internal/dev/history"
)

// testDoubles are the commands for development: those that replace external services, and the one that
// copies examples. A binary built with the tag serve has neither them nor their imports.
type testDoubles struct {
	Dev      devCmd      `cmd:"" help:"Run everything in one process, with a mock provider and fake money."`
	Emulator emulatorCmd `cmd:"" help:"Run a server that emulates the AI providers."`
	New      newCmd      `cmd:"" help:"Copy an example app, with your client filled in."`
}

const firstCommand = "purser dev"

type devCmd struct {
	Data      string        `default:"./purser-data" placeholder:"FOLDER" help:"Folder of the database and its key (default: ./purser-data)."`
	Listen    string        `default:"localhost:8080" placeholder:"ADDRESS" help:"Address to listen on; port 0 picks a free one (default: localhost:8080)."`
	Database  string        `placeholder:"URL" help:"sqlite:PATH or postgres://… instead of a file in the data folder."`
	Providers string        `default:"mock" enum:"mock,emulator,live" placeholder:"NAME" help:"What answers calls: mock, canned answers; emulator, the three providers' APIs served in this process; live, the real providers by PURSER_PROVIDERS_… (default: mock)."`
	Empty     bool          `help:"Start an empty data folder without the sample history."`
	History   days          `default:"14d" placeholder:"DAYS" help:"Sample history, from 14d to 366d (default: 14d)."`
	Clock     dev.Duration  `placeholder:"LENGTH" help:"How far ahead the clock is, such as +30d."`
	JSON      bool          `name:"json" help:"Print one line of JSON when ready, instead of the welcome."`
	LogLevel  string        `default:"" enum:",debug,info,warn,error" placeholder:"LEVEL" help:"How much to log: debug, info, warn or error (default: warn)."`
	LogFormat string        `default:"" enum:",auto,text,json" placeholder:"FORMAT" help:"How to log: text, json, or auto, which is text on a terminal (default: auto)."`
	Lease     time.Duration `default:"10s" hidden:""`
	Drain     time.Duration `default:"0s" hidden:""`
	Grace     time.Duration `default:"5m" hidden:""`
}

// days is a number of days, written as 60d.
type days int

// UnmarshalText reads the flag.
func (d *days) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "d")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < history.MinDays || n > history.MaxDays {
		return fmt.Errorf("must be a number of days from %dd to %dd", history.MinDays, history.MaxDays)
	}
	*d = days(n)
	return nil
}

// Help is shown by purser dev --help.
func (devCmd) Help() string {
	return "Everything that is printed, tokens and passwords, is for fake money only.\n\nSettings of purser serve in " +
		"the environment count, such as PURSER_FEE_RATE. One that has no place here, such as PURSER_SMTP_URL, is " +
		"refused by its name.\n\nExample:\n  purser dev --data ./purser-data --listen localhost:8080"
}

// Run runs the development node until it is interrupted.
func (c *devCmd) Run(p *program) error {
	if c.Database != "" {
		if err := checkDatabaseFlag("--database", c.Database); err != nil {
			return err
		}
	}
	given, err := dev.ReadEnvironment(p.environ)
	if err != nil {
		return exitError{err, exitUsage}
	}
	if !slices.Contains(given.Given, "log_level") {
		given.LogLevel = "warn" // the welcome is what is to be read
	}
	ctx, stop := interruptContext()
	defer stop()
	o := dev.Options{
		Data:      c.Data,
		Listen:    c.Listen,
		Database:  c.Database,
		Providers: c.Providers,
		Environ:   p.environ,
		Empty:     c.Empty,
		Days:      int(c.History),
		Clock:     c.Clock,
		JSON:      c.JSON,
		Lease:     c.Lease,
		Drain:     c.Drain,
		Grace:     c.Grace,
		Out:       p.out,
	}
	return dev.Run(ctx, o, p.newLogger(cmp.Or(c.LogLevel, given.LogLevel), cmp.Or(c.LogFormat, given.LogFormat)))
}
