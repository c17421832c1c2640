package faulttest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A Disk is a small file system that can be filled: a tmpfs, which refuses with ENOSPC as a disk
// does.
type Disk struct{ Dir string }

// insideEnv is set in a test that runs again where it may mount.
const insideEnv = "PURSER_TEST_MAY_MOUNT"

// mount mounts a tmpfs until standard input ends, which it does when the test process is gone.
const mount = `mount -t tmpfs -o size="$1"m purser "$0" && echo mounted && read -r _; umount -l "$0"; rmdir "$0"`

// NewDisk mounts a disk for one test. 48 MB hold a migrated SQLite file and some thousand calls. Only root may mount;
// for another user NewDisk runs the test again in a new user namespace, where it may, and returns nil: the test has run
// then, and the caller returns. Without root and without user namespaces the test fails.
func NewDisk(t testing.TB, megabytes int) *Disk {
	t.Helper()
	dir, err := os.MkdirTemp("", "purser-disk-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", mount, dir, strconv.Itoa(megabytes))
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // how it ended says nothing
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err == nil && line == "mounted\n" {
		return &Disk{dir}
	}
	_ = in.Close()
	_ = cmd.Wait()
	if os.Getenv(insideEnv) != "" {
		t.Fatalf("a test needs a small disk, and may not mount one: %s", &said)
	}
	runInNamespace(t)
	return nil
}

// runInNamespace runs the test again in a user namespace, as its root.
func runInNamespace(t testing.TB) {
	t.Helper()
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", os.Args[0], "-test.run="+name, "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	if t.Logf("in a user namespace:\n%s", out); err != nil {
		t.Fatal(err)
	}
}

// Fill takes all space that is left.
func (d *Disk) Fill(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 64<<10)
	for size := len(zeros); size > 0; { // smaller and smaller pieces, until not one byte fits
		_, err = f.Write(zeros[:size])
		if errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(errors.Join(err, f.Close()))
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Free gives the space back.
func (d *Disk) Free(t testing.TB) {
	t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		t.Fatal(err)
	}
}

// MakeReadOnly mounts the disk again, so that nothing can be written. No file on it may be open for writing.
func (d *Disk) MakeReadOnly(t testing.TB) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,ro", d.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }
