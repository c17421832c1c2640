package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/config"
)

type doctorCmd struct {
	Config string `placeholder:"FILE" help:"YAML file with the settings."`
	JSON   bool   `name:"json" help:"Print a line of JSON for each check."`
}

// Help is shown by purser doctor --help.
func (doctorCmd) Help() string {
	return "Checks the settings of purser serve, all faults at once, and what they name: database, clock, provider " +
		"keys, mail server, Stripe, URLs, permissions and disk space. It changes nothing, sends no mail, and may run " +
		"while nodes run. Each check takes at most five seconds. It prints no secret.\n\n" +
		"Exits with 0 without a failure, 1 with one, 2 when the file can't be read.\n\nExample:\n" +
		"  purser doctor --config purser.yaml"
}

// checkTimeout bounds each check.
const checkTimeout = 5 * time.Second

// The states of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning" // purser serve starts, but something does not work or is not safe
	checkFailure = "failure"
)

// A finding is what one check has found.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

func ok(text string) finding { return finding{State: checkOK, Text: text} }
func warning(text, remedy string) finding {
	return finding{State: checkWarning, Text: text, Remedy: remedy}
}
func failure(text, remedy string) finding {
	return finding{State: checkFailure, Text: text, Remedy: remedy}
}

// A check is one of the things that purser doctor looks at.
type check struct {
	name string
	run  func(ctx context.Context) finding
}

// isAbout reports whether a check looks at one of the settings, so that it has nothing to say when they are wrong.
func (c check) isAbout(settings []string) bool {
	return slices.ContainsFunc(settings, func(name string) bool {
		return name == c.name || strings.HasPrefix(name, c.name+".")
	})
}

// Run checks everything and prints what it found.
func (c *doctorCmd) Run(p *program) error {
	text, err := readSettingsFile(c.Config)
	if err != nil {
		return exitError{err, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	findings := checkSettings(c.Config, text, p.environ)
	if loaded, err := config.Load(c.Config, text, p.environ, nil); err == nil {
		findings = append(findings, runChecks(ctx, allChecks(c.Config, loaded))...)
	} else if sound, wrong, all := config.ReadSound(c.Config, text, p.environ); all {
		checks := slices.DeleteFunc(allChecks(c.Config, sound), func(one check) bool { return one.isAbout(wrong) })
		findings = append(findings, runChecks(ctx, checks)...)
	}
	failures := 0
	for _, f := range findings {
		if f.State == checkFailure {
			failures++
		}
		if err := c.print(p, f); err != nil {
			return err
		}
	}
	if failures > 0 {
		return exitError{nil, exitFailed}
	}
	return nil
}

func (c *doctorCmd) print(p *program, f finding) error {
	if c.JSON {
		return json.NewEncoder(p.out).Encode(f)
	}
	_, err := fmt.Fprintf(p.out, "%-8s %-20s %s\n", f.State, f.Check, f.Text)
	if err == nil && f.Remedy != "" {
		_, err = fmt.Fprintf(p.out, "%-29s -> %s\n", "", f.Remedy)
	}
	return err
}

// checkSettings returns a finding for each fault of the settings.
func checkSettings(file string, text []byte, environ []string) (findings []finding) {
	_, err := config.Load(file, text, environ, nil)
	if err == nil {
		f := ok("they are complete and correct")
		f.Check = "settings"
		return []finding{f}
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		f := failure(line, "change it in "+file+" or in the environment; purser serve --help lists all settings")
		if file == "" {
			f.Remedy = "give the file by --config, or set it in the environment; purser serve --help lists all settings"
		}
		f.Check = "settings"
		findings = append(findings, f)
	}
	return findings
}

// runChecks runs checks at the same time, each within checkTimeout, and returns the findings in their order.
func runChecks(ctx context.Context, checks []check) []finding {
	findings := make([]finding, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() { findings[i] = runCheck(ctx, c) })
	}
	all.Wait()
	return findings
}

// runCheck returns what a check has found, or that it took too long. What does not heed its context goes on until the
// process ends.
func runCheck(ctx context.Context, c check) finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	done := make(chan finding, 1)
	go func() { done <- c.run(ctx) }()
	var f finding
	select {
	case f = <-done:
	case <-ctx.Done():
		f = failure("no answer within "+checkTimeout.String(), "check the address, and the network between")
	}
	f.Check = c.name
	return f
}

// allChecks returns the checks of what the settings name.
func allChecks(file string, c config.Config) []check {
	var list []check
	add := func(name string, run func(ctx context.Context) finding) { list = append(list, check{name, run}) }
	if file != "" {
		add("file", func(context.Context) finding { return checkFileMode(file) })
	}
	if c.Database != "" {
		add("database", func(ctx context.Context) finding { return checkDatabase(ctx, c.Database) })
		if !strings.HasPrefix(c.Database, "sqlite:") {
			add("connections", func(ctx context.Context) finding { return checkConnections(ctx, c.Database) })
		}
		add("clock", func(ctx context.Context) finding { return checkClock(ctx, c.Database) })
		if path, ok := strings.CutPrefix(c.Database, "sqlite:"); ok {
			add("disk", func(context.Context) finding { return checkDisk(filepath.Dir(path)) })
		}
	}
	if n, known := maxOpenFiles(); known {
		add("files", func(context.Context) finding { return checkOpenFiles(n, c.MaxCalls) })
	}
	if c.PricesFile != "" {
		add("prices", func(context.Context) finding { return checkPrices(c.PricesFile) })
	}
	for _, w := range c.Warnings() {
		add(w.Setting, func(context.Context) finding { return warning(w.Text, w.Remedy) })
	}
	list = append(list, urlChecks(c)...)
	list = append(list, providerChecks(c)...)
	add("smtp", func(ctx context.Context) finding { return checkMail(ctx, c) })
	add("stripe", func(ctx context.Context) finding { return checkStripe(ctx, c) })
	add("operator", func(context.Context) finding { return checkOperator(c) })
	return list
}

// checkFileMode checks that only its owner can read the file with the secrets.
func checkFileMode(path string) finding {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return failure(err.Error(), "check the path")
	case otherUsersMay(info, 0o077):
		return failure(fmt.Sprintf("%s has mode %04o: other users of this machine can read its secrets", path,
			info.Mode().Perm()), "chmod 600 "+path)
	}
	return ok(path + " can be read by its owner only")
}

func checkDatabase(ctx context.Context, url string) finding {
	state, err := db.Inspect(ctx, url)
	switch {
	case err != nil:
		return failure(hideSecrets(err.Error(), url),
			"check that the database runs, and the address, user and password")
	case !state.Exists:
		return checkNewFile(state.Path)
	case state.NewerSchema:
		return failure(fmt.Sprintf("its schema has version %d, which a later version of purser has made", state.Schema),
			"use that version")
	case state.Schema == 0:
		return ok("it is empty; the first start makes its tables")
	case state.OldSchema:
		return warning(fmt.Sprintf("its schema has version %d; the next start migrates it", state.Schema),
			"make a backup before you start this version")
	}
	return ok(fmt.Sprintf("its schema has version %d, which this purser expects", state.Schema))
}

// spareConnections are those that backups, verifications and an operator need beside the nodes.
const spareConnections = 5

// checkConnections compares the connections of a node with those that PostgreSQL offers.
func checkConnections(ctx context.Context, url string) finding {
	state, err := db.Inspect(ctx, url)
	if err != nil {
		return warning("not counted, because the database can't be read", "mend the database first")
	}
	nodes := (state.ServerConnections - spareConnections) / max(state.NodeConnections, 1)
	text := fmt.Sprintf("a node opens at most %d of the server's %d connections: room for %d nodes beside tools",
		state.NodeConnections, state.ServerConnections, nodes)
	if nodes < 2 {
		return warning(text, "raise max_connections of PostgreSQL, or lower pool_max_conns in the URL")
	}
	return ok(text)
}

// checkNewFile checks that a SQLite file can be made.
func checkNewFile(path string) finding {
	folder := filepath.Dir(path)
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return failure("there is no folder "+folder, "mkdir -m 700 -p "+folder)
	case !info.IsDir() || !isWritable(folder):
		return failure(folder+" can't be written to", "let the user who runs purser own it")
	case otherUsersMay(info, 0o022):
		return warning(fmt.Sprintf("%s has mode %04o: other users can replace the file", folder, info.Mode().Perm()),
			"chmod 700 "+folder)
	}
	return ok("the first start makes " + path)
}

// The largest differences of clocks: leases last seconds.
const maxClockOffset, badClockOffset = time.Second, 5 * time.Second

func checkClock(ctx context.Context, url string) finding {
	state, err := db.Inspect(ctx, url)
	if err != nil {
		return warning("not compared, because the database can't be read", "mend the database first")
	}
	if state.Engine == db.SQLite {
		return ok("database and purser have the clock of this machine")
	}
	off := state.ClockOffset.Abs()
	text := fmt.Sprintf("the database's differs from this machine's by %s", off.Round(time.Millisecond))
	switch {
	case off > badClockOffset:
		return failure(text, "synchronize both by NTP")
	case off > maxClockOffset:
		return warning(text, "synchronize both by NTP")
	}
	return ok(text)
}

// Below these, a disk is nearly full and full.
const lowDisk, fullDisk = 2 << 30, 200 << 20

func checkDisk(folder string) finding {
	free, _, err := db.DiskSpace(folder)
	if errors.Is(err, os.ErrNotExist) {
		return failure("there is no folder "+folder, "mkdir -m 700 -p "+folder)
	} else if err != nil {
		return warning(fmt.Sprintf("%s: %v", folder, err), "check the folder")
	}
	text := fmt.Sprintf("%.1f GB are free in %s", float64(free)/(1<<30), folder)
	switch {
	case free < fullDisk:
		return failure(text, "free space: without it purser refuses calls")
	case free < lowDisk:
		return warning(text, "free space before it runs out")
	}
	return ok(text)
}

// otherFiles are those that a node has open besides its calls' connections: the database's, listeners, logs.
const otherFiles = 500

// checkOpenFiles compares what a process may have open with what the calls of a node need: a connection of the client,
// one of the provider, and every second time one that is idle.
func checkOpenFiles(may uint64, calls int) finding {
	need := uint64(calls)*5/2 + otherFiles
	text := fmt.Sprintf("a process of this user may have %d files open; %d calls in flight need about %d", may, calls,
		need)
	if may < need {
		return warning(text, fmt.Sprintf("raise the limit of the service, as LimitNOFILE=%d does for systemd, or "+
			"lower max_calls", need))
	}
	return ok(text)
}

func checkOperator(c config.Config) finding {
	switch {
	case c.Site.SupportURL == "":
		return warning("operator.support_url is not set: a user whose money is stuck finds no address",
			"set it before real users sign up")
	case c.Site.TermsURL == "" || c.Site.PrivacyURL == "":
		return warning("operator.terms_url or operator.privacy_url is not set", "set both before real users sign up")
	}
	return ok("pages and emails name you, your support, terms and privacy policy")
}

// hideSecrets takes the password of a URL out of a text.
func hideSecrets(text, url string) string {
	_, rest, found := strings.Cut(url, "://")
	user, _, hasUser := strings.Cut(rest, "@")
	_, password, hasPassword := strings.Cut(user, ":")
	if found && hasUser && hasPassword && password != "" {
		text = strings.ReplaceAll(text, password, "[hidden]")
	}
	return text
}
