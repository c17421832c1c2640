package faulttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A Cgroup bounds the memory of processes, of version 2 or 1.
type Cgroup struct {
	dir               string
	limit, peak, ooms string // its files
}

const (
	cgroupRoot   = "/sys/fs/cgroup"
	cgroupMemory = cgroupRoot + "/memory" // of version 1
)

// NewCgroup makes a cgroup with so much memory for one test. Only root may, in a container with --privileged. For
// another user the test is skipped.
func NewCgroup(t testing.TB, bytes int64) *Cgroup {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may make a cgroup")
	}
	c, err := openCgroup("purser-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatalf("a test needs a cgroup, and may not make one: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(c.dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(c.dir, c.limit), []byte(strconv.FormatInt(bytes, 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// openCgroup makes a cgroup below that of this process.
func openCgroup(name string) (*Cgroup, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		if !strings.Contains(","+controllers+",", ",memory,") {
			continue
		}
		parent := filepath.Join(cgroupMemory, group)
		if _, err := os.Stat(parent); err != nil { // of a container, whose own stands at the top
			parent = cgroupMemory
		}
		c := &Cgroup{
			dir:   filepath.Join(parent, name),
			limit: "memory.limit_in_bytes",
			peak:  "memory.max_usage_in_bytes",
			ooms:  "memory.oom_control",
		}
		return c, os.Mkdir(c.dir, 0o700)
	}
	own := strings.TrimSpace(string(text))
	parent := filepath.Join(cgroupRoot, strings.TrimPrefix(own, "0::"))
	if _, err := os.Stat(parent); err != nil {
		parent = cgroupRoot
	}
	if err := delegateMemory(parent); err != nil {
		return nil, err
	}
	c := &Cgroup{dir: filepath.Join(parent, name), limit: "memory.max", peak: "memory.peak", ooms: "memory.events"}
	return c, os.Mkdir(c.dir, 0o700)
}

// delegateMemory lets cgroups below one of version 2 bound memory. That has no processes of its own then.
func delegateMemory(parent string) error {
	control := filepath.Join(parent, "cgroup.subtree_control")
	if text, err := os.ReadFile(control); err != nil || strings.Contains(string(text), "memory") {
		return err
	}
	others := filepath.Join(parent, "purser-others")
	if err := os.Mkdir(others, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	pids, err := os.ReadFile(filepath.Join(parent, "cgroup.procs"))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(pids)) { // one that has ended cannot be moved
		_ = os.WriteFile(filepath.Join(others, "cgroup.procs"), []byte(pid), 0o600)
	}
	return os.WriteFile(control, []byte("+memory"), 0o600)
}

// Command returns what starts a command in the cgroup, with so many descriptors.
func (c *Cgroup) Command(descriptors int) []string {
	const enter = `echo $$ >"$1/cgroup.procs" && ulimit -n "$2" && shift 2 && exec "$@"`
	return []string{"/bin/sh", "-c", enter, "sh", c.dir, strconv.Itoa(descriptors)}
}

// PeakMB returns the most memory that its processes had, with that of the files that they have written.
func (c *Cgroup) PeakMB(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, c.peak))
	n, err2 := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		t.Error(err)
	}
	return n >> 20
}

// Kills returns how many of its processes the kernel has killed for their memory.
func (c *Cgroup) Kills(t testing.TB) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, c.ooms))
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
			break
		}
	}
	return n
}
