// Package dbtest gives tests their databases: a fresh SQLite file and a fresh
// database on a PostgreSQL that it starts itself, or that the caller of the
// tests has started (see dbtest/pg). A missing PostgreSQL fails a test; nothing
// is ever skipped.
package dbtest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// Env names the variable with the URL of a cluster that is already running.
const Env = "PURSER_TEST_POSTGRES"

// Cluster is a private PostgreSQL server.
type Cluster struct {
	URL string // postgres://…/postgres
	dir string
	cmd *exec.Cmd
}

// Start starts a cluster of its own in a temporary folder. Without durable it
// does not wait for the disk, which is right for tests that do not pull plugs.
func Start(durable bool) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "purser-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir}
	if err := c.start(bin, durable); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(bin string, durable bool) error {
	as, err := unprivileged(c.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(c.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "purser", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: as}, c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	args := []string{"-D", data, "-h", "127.0.0.1", "-p", port, "-k", c.dir, "-c", "max_connections=400", "-c", "shared_buffers=128MB", "-c", "max_wal_size=2GB", "-c", "log_min_messages=fatal"}
	if !durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	var log bytes.Buffer
	c.cmd = exec.Command(filepath.Join(bin, "postgres"), args...)
	c.cmd.Stderr, c.cmd.Dir = &log, c.dir
	// The server dies with the thread that started it, so it outlives no test run.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Pdeathsig: syscall.SIGQUIT}
	if err := startLocked(c.cmd); err != nil {
		return err
	}
	c.URL = "postgres://purser@127.0.0.1:" + port + "/postgres?sslmode=disable"
	return c.wait(&log)
}

// wait polls until the server answers.
func (c *Cluster) wait(log *bytes.Buffer) error {
	d, err := sql.Open("pgx", c.URL)
	if err != nil {
		return err
	}
	defer d.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = d.PingContext(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("postgres does not answer: %w: %s", err, log)
		}
	}
}

// Stop ends the server and removes its files.
func (c *Cluster) Stop() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Signal(syscall.SIGQUIT) // at once: nothing in it is kept
		_ = c.cmd.Wait()
	}
	_ = os.RemoveAll(c.dir)
}

// startLocked starts cmd from a thread that lives as long as the process:
// Pdeathsig is about the thread, not about the process.
func startLocked(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		lockThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}

// binaries finds initdb and postgres.
func binaries() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is good
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL is not installed; run make setup")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// unprivileged returns whom the server runs as: PostgreSQL refuses root.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("as root the tests need the user postgres: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
