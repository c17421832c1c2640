package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/server"
)

// Exit codes: success; failure, or findings of a verification; wrong usage or settings.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

const description = `Purser is a metered AI billing gateway: apps spend a bounded part of a user's
balance on AI calls, and every micro-cent is in an immutable ledger.

Exit codes: 0 success; 1 failure, or findings of ledger verify; 2 wrong usage or settings.

Start here:
  ` + firstCommand

// A program is one run of purser with its streams and environment.
type program struct {
	in       io.Reader // nil = nothing
	out, err io.Writer
	environ  []string // NAME=value
	folder   string   // the working directory; "" = commands search none
	log      *logWriter
}

type cli struct {
	testDoubles
	Init     initCmd     `cmd:"" help:"Write a commented purser.yaml with fresh keys."`
	Doctor   doctorCmd   `cmd:"" help:"Check the settings and what they name."`
	Serve    serveCmd    `cmd:"" help:"Run a node of the service."`
	Login    loginCmd    `cmd:"" help:"Connect an app on this machine to your balance."`
	Token    tokenCmd    `cmd:"" help:"Print an access token of a login."`
	Logout   logoutCmd   `cmd:"" help:"Revoke and delete the tokens of a login."`
	Apps     appsCmd     `cmd:"" help:"List your apps, and sign in as one on this machine."`
	Logs     logsCmd     `cmd:"" help:"Show the requests of an app."`
	Events   eventsCmd   `cmd:"" help:"List an app's events, and send one again."`
	Listen   listenCmd   `cmd:"" help:"Forward an app's events to your own machine."`
	Trigger  triggerCmd  `cmd:"" help:"Make a sample event."`
	Open     openCmd     `cmd:"" help:"Open a page of the service in your browser."`
	Ledger   ledgerCmd   `cmd:"" help:"Verify the ledger, and print it for accountants."`
	Prices   pricesCmd   `cmd:"" help:"Check prices, and compare costs with a provider's bill."`
	Receipt  receiptCmd  `cmd:"" help:"Verify a receipt that was downloaded with its proof."`
	Backup   backupCmd   `cmd:"" help:"Write a backup of the database to a file, or verify one."`
	Restore  restoreCmd  `cmd:"" help:"Restore a backup into an empty database."`
	DB       dbCmd       `cmd:"" name:"db" help:"Copy a database, also to the other engine."`
	Operator operatorCmd `cmd:"" help:"Review go-live requests, suspend apps, reverse charges."`
	Secrets  secretsCmd  `cmd:"" help:"Replace the key that secrets are sealed under."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	Help       helpCmd       `cmd:"" help:"Show the help of a command."`
	Completion completionCmd `cmd:"" help:"Print the script that completes commands in your shell."`
	Complete   completeCmd   `cmd:"" name:"complete-words" hidden:"" passthrough:""`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`
}

// runCommand runs a command line and returns the exit code.
func (p *program) runCommand(args []string) int {
	c := cli{Serve: serveCmd{Plugins: kong.Plugins{newSettingFlags()}}}
	exit := -1
	parser, err := newParser(&c, kong.Writers(p.out, p.err), kong.Exit(func(code int) { exit = code }))
	if err != nil {
		return p.printError(err, exitUsage)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exit == 0 { // --help or --version
		return exitOK
	}
	if err != nil {
		return p.printError(fmt.Errorf("%w; see purser --help", err), exitUsage)
	}
	err = parsed.Run(p, &c, parser.Model)
	if p.log != nil {
		p.log.flushLines()
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return p.printError(code.error, code.code)
	} else if err != nil {
		return p.printError(err, exitFailed)
	}
	return exitOK
}

func newParser(c *cli, options ...kong.Option) (*kong.Kong, error) {
	return kong.New(c, append(options, kong.Name("purser"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Vars{
			"version":          readBuild().String(),
			"clientSecretHelp": clientSecretHelp,
			"openPages":        openPages,
			"defaultServer":    defaultServer,
		})...)
}

// printError prints err, if it is not nil, and returns code.
func (p *program) printError(err error, code int) int {
	if err != nil {
		fmt.Fprintln(p.err, "purser:", err)
	}
	return code
}

// exitError is an error with an exit code. Without an error inside, nothing is printed.
type exitError struct {
	error
	code int
}

// newLogger returns a logger to standard error. Format auto is text on a terminal, and
// JSON otherwise.
func (p *program) newLogger(level, format string) *slog.Logger {
	var at slog.Level
	if err := at.UnmarshalText([]byte(level)); err != nil {
		at = slog.LevelInfo // unreachable: the level was validated
	}
	options := &slog.HandlerOptions{Level: at}
	if format == "text" || format == "auto" && isTerminal(p.err) {
		return slog.New(slog.NewTextHandler(p.err, options))
	}
	p.log = newLogWriter(p.err)
	return slog.New(slog.NewJSONHandler(p.log, options))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// interruptContext ends its context at the first SIGTERM or SIGINT; a second one
// ends the process at once.
func interruptContext() (context.Context, func()) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

type serveCmd struct {
	Config       string `placeholder:"FILE" help:"YAML file with the settings."`
	Drill        bool   `help:"Reach nothing outside, and refuse changes: for a restored copy."`
	DrillWrites  bool   `help:"Let people change the copy of a drill."`
	kong.Plugins        // a flag for every setting that is no secret
}

// Help is shown by purser serve --help.
func (serveCmd) Help() string {
	return "Flags win over the environment, which wins over the file. In the environment every setting, secrets too," +
		" is called PURSER_ and its name:\n\n" +
		listSettings() +
		"\nExample:\n  PURSER_ENVELOPE_KEY=$(cat /run/secrets/purser) purser serve --config purser.yaml --listen " +
		"0.0.0.0:8080"
}

// Run runs a node until it is interrupted.
func (c *serveCmd) Run(p *program) error {
	text, err := readSettingsFile(c.Config)
	if err != nil {
		return exitError{err, exitUsage}
	}
	loaded, err := config.Load(c.Config, text, p.environ, givenSettings(c.Plugins[0]))
	if err != nil {
		return exitError{err, exitUsage}
	}
	if c.DrillWrites && !c.Drill {
		return exitError{errors.New("--drill-writes needs --drill"), exitUsage}
	}
	loaded.Drill, loaded.DrillWrites = c.Drill, c.DrillWrites
	ctx, stop := interruptContext()
	defer stop()
	err = server.Serve(ctx, loaded, p.newLogger(loaded.LogLevel, loaded.LogFormat))
	if errors.Is(err, catalog.ErrFile) {
		return exitError{err, exitUsage}
	}
	return err
}

type ledgerCmd struct {
	Verify  verifyCmd  `cmd:"" help:"Verify the whole database."`
	Journal journalCmd `cmd:"" help:"Print a month for accountants, as postings."`
}

type verifyCmd struct {
	databaseFlags
	Checkpoint      string `placeholder:"FILE" help:"Where a clean verification leaves what it has verified."`
	SinceCheckpoint bool   `help:"Go on from the checkpoint: read only what is new."`
}

// Help is shown by purser ledger verify --help.
func (verifyCmd) Help() string {
	return "Checks every balance, allocation and hold against the ledger, and the ledger’s hash chain. It changes " +
		"nothing, and works while the server runs and on a copy of its files. Standard error has the progress: on a " +
		"terminal at once, else a line each 10 seconds.\n\n" +
		"With --checkpoint, a verification without findings leaves a file from which --since-checkpoint goes on: it " +
		"takes as long as there are new rows, and everything is new while there is no file. It does not see an old " +
		"row that was edited in place. So verify the whole database now and then, and keep the file where those who " +
		"can write the database cannot.\n\n" +
		"Exits with 0 without findings, 1 with findings, 2 when it could not run.\n\nExample:\n  purser ledger " +
		"verify --database sqlite:purser-data/purser.db\n  purser ledger verify --config purser.yaml --checkpoint " +
		"/var/lib/purser-audit/checkpoint --since-checkpoint"
}

// A databaseFlags names a database, by its URL or by the settings of a node.
type databaseFlags struct {
	Database string `placeholder:"URL" help:"sqlite:PATH or postgres://…; its server may be running." xor:"where" required:""`
	Config   string `placeholder:"FILE" help:"Or the settings file of purser serve." xor:"where" required:""`
}

// find returns the URL of the database.
func (c *databaseFlags) find(p *program) (string, error) {
	settings, err := c.settings(p)
	return settings.Database, err
}

// checkDatabaseFlag checks the URL of a database before anything looks up what may be a part of its password.
func checkDatabaseFlag(flag, url string) error {
	if err := config.CheckDatabase(url); err != nil {
		return exitError{fmt.Errorf("%s: %w", flag, err), exitUsage}
	}
	return nil
}

// settings returns the settings of the file, or with --database the URL alone.
func (c *databaseFlags) settings(p *program) (config.Config, error) {
	if c.Config == "" {
		return config.Config{Database: c.Database}, checkDatabaseFlag("--database", c.Database)
	}
	text, err := readSettingsFile(c.Config)
	if err != nil {
		return config.Config{}, exitError{err, exitUsage}
	}
	loaded, err := config.Read(c.Config, text, p.environ, nil)
	if err != nil {
		return config.Config{}, exitError{err, exitUsage}
	}
	if loaded.Database == "" {
		return config.Config{}, exitError{fmt.Errorf("%s: names no database", c.Config), exitUsage}
	}
	return loaded, nil
}

// Run verifies the database. The exit code says whether there are findings.
func (c *verifyCmd) Run(p *program) error {
	settings, err := c.settings(p)
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	o := audit.Options{Checkpoint: c.Checkpoint != ""}
	if c.SinceCheckpoint && c.Checkpoint == "" {
		return exitError{errors.New("--since-checkpoint needs --checkpoint FILE"), exitUsage}
	} else if c.SinceCheckpoint {
		o.Since, err = audit.ReadCheckpoint(c.Checkpoint)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // without one everything is new
			return exitError{err, exitUsage}
		}
	}
	if _, err := fmt.Fprintln(p.err, "database:", hideSecrets(settings.Database, settings.Database)); err != nil {
		return err
	}
	reporter := audit.NewReporter(p.err, isTerminal(p.err))
	o.Progress = reporter.Report
	result, err := audit.Run(ctx, settings.Database, o)
	reporter.Close()
	if err != nil {
		return exitError{err, exitUsage}
	}
	if result.LedgerRows > 0 {
		if _, err := fmt.Fprintln(p.err, result.Speed()); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(p.out, result.Report); err != nil {
		return err
	}
	if result.Findings > 0 {
		return exitError{nil, exitFailed}
	}
	if result.Checkpoint != nil {
		if err := result.Checkpoint.Write(c.Checkpoint); err != nil {
			return exitError{err, exitUsage}
		}
	}
	return nil
}
