package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Each measured program runs in a separate process, so that garbage collectors and
// schedulers do not interfere, and memory and CPU time are measured separately.

// roles are the functions of this binary when it starts itself as a child.
var roles = map[string]func(args []string) error{
	"upstream":  runUpstreamRole,
	"slow":      runSlowRole,
	"floor":     runFloorRole,
	"load":      clientRole(loadSpec.runClients),
	"slow-load": clientRole(slowSpec.runClients),
	"flood":     clientRole(floodSpec.runApps),
	"ledger":    func([]string) error { return answerRole(ledgerSpec.measureLedger) },
	"seed":      runSeedRole,
}

// clientRole is the role of clients, whose collections of garbage must not disturb the measurement.
func clientRole[S, R any](run func(S) (R, error)) func([]string) error {
	return func([]string) error {
		debug.SetGCPercent(400)
		return answerRole(run)
	}
}

// serveRole serves h on a free port, prints the URL to standard output, and ends when the
// parent ends, which closes standard input.
func serveRole(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("ready http://%s\n", l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return (&http.Server{Handler: h}).Serve(l)
}

// A child is a running process under measurement.
type child struct {
	name string
	url  string
	cmd  *exec.Cmd
	log  string // the file of its standard error
	stop func() error
}

// startRole runs this binary as a server role, and waits until it listens.
func startRole(dir, role string, args ...string) (*child, error) {
	c, err := newChild(dir, role, "", append([]string{role}, args...)...)
	if err != nil {
		return nil, err
	}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stop = stdin.Close
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not start: see %s", role, c.log), c.closeProcess())
	}
	c.url = strings.TrimSpace(strings.TrimPrefix(line, "ready "))
	return c, nil
}

// newChild prepares a process; an empty binary is this one. Its standard error
// goes to a file named after it.
func newChild(dir, name, binary string, args ...string) (*child, error) {
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		binary = self
	}
	c := &child{name: name, log: filepath.Join(dir, name+".log")}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process gets its own descriptor
	c.cmd = exec.Command(binary, args...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Stderr, err = os.OpenFile(c.log, os.O_APPEND|os.O_WRONLY, 0o644)
	return c, err
}

// closeProcess stops the process, and kills it after ten seconds.
func (c *child) closeProcess() error {
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	err := c.stop()
	select {
	case werr := <-done:
		return errors.Join(err, werr)
	case <-time.After(10 * time.Second):
		return errors.Join(err, c.cmd.Process.Kill(), fmt.Errorf("%s did not stop by itself", c.name), <-done)
	}
}

func (c *child) interrupt() error { return c.cmd.Process.Signal(syscall.SIGTERM) }

// waitForHTTP returns when url answers anything at all.
func waitForHTTP(ctx context.Context, url string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			return resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", url, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// memory returns the resident memory now and its peak since resetPeak, in KiB; zeros where
// there is no /proc.
func (c *child) memory() (rss, peak int64) {
	text, err := os.ReadFile(c.procFile("status"))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		number, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			rss = number
		case "VmHWM":
			peak = number
		}
	}
	return rss, peak
}

// resetPeak starts VmHWM again from what is resident now.
func (c *child) resetPeak() {
	// If that fails, the peak is that of the process's whole life.
	_ = os.WriteFile(c.procFile("clear_refs"), []byte("5"), 0)
}

// cpuTime returns the processor time that the process has used.
func (c *child) cpuTime() time.Duration {
	text, err := os.ReadFile(c.procFile("stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from state, the third field, on
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100) // USER_HZ is 100 on Linux
}

func (c *child) procFile(file string) string {
	return fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, file)
}

// askRole runs this binary as a role that measures once: spec on its standard input,
// R on its standard output.
func askRole[R any](ctx context.Context, role string, spec any) (r R, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	in, err := json.Marshal(spec)
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, role)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w", role, err)
	}
	return r, json.Unmarshal(out, &r)
}

// answerRole is the role's side of askRole.
func answerRole[S, R any](run func(S) (R, error)) error {
	var s S
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return err
	}
	r, err := run(s)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
