// Package servertest starts the real binary for tests: listening on a free port,
// seeded like `purser dev`, driven over HTTP and ended by real signals.
package servertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// BinaryEnv names the variable with the path of a built purser. The path must change
// with the content, because go test caches results per environment.
const BinaryEnv = "PURSER_TEST_BINARY"

// variables name the variables with the path of a built purser, the first that is set counts.
var variables = []string{BinaryEnv}

// UseArea lets the tests of a package start the binary of an area of .ci/area, which variable names, if it is set: its
// path changes with what they may reach of the product. The package calls it from init.
func UseArea(variable string) { variables = []string{variable, BinaryEnv} }

// Binary returns the path of purser: what UseArea's variable or BinaryEnv says, or else one that it builds.
func Binary(t testing.TB) string {
	t.Helper()
	for _, name := range variables {
		if path := os.Getenv(name); path != "" {
			return path
		}
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sources is a template of go list: the folder of a package of the product, and the files that are embedded in it.
const sources = `{{with .Module}}{{if .Main}}{{$.Dir}}
{{range $.EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}{{end}}`

// build builds purser once by .ci/binary, with the race detector if the tests have it.
var build = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/purserhq/purser").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	root := strings.TrimSpace(string(out)) // the product's module, also for tests of another module
	// The product is not linked into all tests that start it. Reading its folders makes go test of this module run
	// them again when it changes.
	list := exec.Command("go", "list", "-deps", "-f", sources, "./cmd/purser")
	list.Dir = root
	if out, err = list.Output(); err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_ = f.Close() // it is not read
	}
	var args []string
	if IsRace {
		args = append(args, "-race")
	}
	cmd := exec.Command(filepath.Join(root, ".ci", "binary"), args...)
	var said strings.Builder
	cmd.Stderr = &said
	if out, err = cmd.Output(); err != nil {
		return "", fmt.Errorf(".ci/binary: %w: %s", err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// Process is one running node.
type Process struct {
	*nodetest.Node
	cmd  *exec.Cmd
	log  string // the file of its standard error: a line is there before the answer that follows it
	done chan struct{}
}

// URL returns the URL of a fresh database that `purser dev` has seeded, for Start: no test pays for the first start.
// Databases of an engine have the same sample accounts and apps; each start has tokens of its own.
func URL(t testing.TB, e db.Engine) string {
	t.Helper()
	return dbtest.Filled(t, e, Binary(t), func(url string) error {
		p, err := TryStart(t, url)
		if err != nil {
			return err
		}
		if code := p.Stop(); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
}

// envelopeKey is the envelope key of every data folder, so that a copy of a database is readable.
var envelopeKey = bytes.Repeat([]byte("key!"), seal.KeySize/4)

// startTimeout is how long a node may take to be ready. Only the machine decides that.
const startTimeout = 5 * time.Minute

// Start starts `purser dev` on a database URL ("" = a fresh one of URL), with args
// that are flags (--name=value) or variables (NAME=value), and returns when it is ready.
// The process is killed when the test ends. Its log is shown if the test failed, and a
// data race in it fails the test.
func Start(t testing.TB, database string, args ...string) *Process {
	t.Helper()
	p, err := TryStart(t, database, args...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// StartBy is Start by a command that runs the one which follows it.
func StartBy(t testing.TB, command []string, database string, args ...string) *Process {
	t.Helper()
	p, err := tryStart(t, command, database, args)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// folders are the data folders of databases.
var folders sync.Map

// TryStart is Start for tests that expect it may fail.
func TryStart(t testing.TB, database string, args ...string) (*Process, error) {
	t.Helper()
	return tryStart(t, nil, database, args)
}

func tryStart(t testing.TB, command []string, database string, args []string) (*Process, error) {
	t.Helper()
	if database == "" && !slices.Contains(args, "--empty=false") {
		database = URL(t, db.SQLite)
	}
	data := t.TempDir()
	path, isFile := strings.CutPrefix(database, "sqlite:")
	if isFile { // its database is purser.db there
		data = filepath.Dir(path)
	} else if database != "" { // the nodes of a database share its keys
		first, _ := folders.LoadOrStore(database, data)
		data = first.(string)
	}
	if err := writeOnce(filepath.Join(data, "envelope.key"), envelopeKey); err != nil {
		return nil, err
	}
	line := []string{Binary(t), "dev", "--data", data, "--listen", "127.0.0.1:0", "--json", "--empty"}
	if database != "" && !isFile {
		line = append(line, "--database", database)
	}
	env := append(os.Environ(), "GORACE=halt_on_error=1")
	for _, arg := range args {
		if strings.Contains(arg, "=") && !strings.HasPrefix(arg, "-") {
			env = append(env, arg)
		} else {
			line = append(line, arg)
		}
	}
	run := slices.Concat(command, line)
	log, err := os.CreateTemp(t.TempDir(), "*.log")
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	p := &Process{
		Node: &nodetest.Node{T: t},
		cmd:  exec.Command(run[0], run[1:]...),
		log:  log.Name(),
		done: make(chan struct{}),
	}
	p.Log = p.readLog
	p.cmd.Stderr = log
	p.cmd.Env = env
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	release, err := testkit.TakeTurn("start")
	if err != nil {
		return nil, err
	}
	defer release() // when it is ready: nodes that start together would miss their time limits
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.cleanup)
	ready := make(chan error, 1)
	go func() {
		text, err := bufio.NewReader(out).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(text, &p.Data)
		}
		ready <- err
		_, _ = io.Copy(io.Discard, out) // until it ends
		_ = p.cmd.Wait()                // ProcessState has its exit code
		close(p.done)
	}()
	select {
	case err = <-ready:
	case <-time.After(startTimeout):
		err = fmt.Errorf("not ready after %s", startTimeout)
	}
	if errors.Is(err, io.EOF) { // it ends: only then its log is whole
		p.AwaitExit(10 * time.Second)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(run, " "), err, p.Log())
	}
	return p, nil
}

// writeOnce writes a file, unless there is one, and makes its folder.
func writeOnce(path string, content []byte) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
}

func (p *Process) cleanup() {
	p.Kill()
	if log := p.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") {
		p.T.Errorf("the process raced or panicked:\n%s", log)
	} else if p.T.Failed() {
		p.T.Logf("log of the process:\n%s", log)
	}
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL); <-p.done }

// Stop asks the process to stop, and returns its exit code.
func (p *Process) Stop() int {
	p.Signal(syscall.SIGTERM)
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// AwaitExit waits until the process has ended, for at most this long, and returns its exit code.
func (p *Process) AwaitExit(within time.Duration) (code int, ended bool) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), true
	case <-time.After(within):
		return 0, false
	}
}

// Wait waits until the process has ended by itself, and returns its exit code.
func (p *Process) Wait() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// UserTime returns the processor time that the process itself took, without the kernel's. It has ended.
func (p *Process) UserTime() time.Duration { return p.cmd.ProcessState.UserTime() }

// Signal sends a signal. It does nothing after the process has ended.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// readLog returns what the process has logged so far.
func (p *Process) readLog() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.T.Error(err)
	}
	return string(text)
}

// Verify audits a database and fails the test on any finding.
func Verify(t testing.TB, database string) { t.Helper(); nodetest.Verify(t, database) }

// UUID returns a fresh random key.
func UUID() string { return id.NewUUID() }
