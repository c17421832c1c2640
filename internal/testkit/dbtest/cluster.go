// Package dbtest gives tests their databases: a fresh SQLite file and a fresh
// database on a PostgreSQL that it starts itself, or that the caller of the
// tests has started (see dbtest/pg). A missing PostgreSQL fails a test; nothing
// is ever skipped.
package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// Env names the variable with the URL of a PostgreSQL that is already running.
// Its user must be allowed to create databases; templates are left behind.
const Env = "PURSER_TEST_POSTGRES"

// Cluster is a private PostgreSQL server. It ends with Stop, or with the process
// that started it, however that ends.
type Cluster struct {
	URL string // of its database postgres
	dir string
	cmd *exec.Cmd
	run io.WriteCloser // each line starts the server; it ends when this is closed

	fixed *os.File // the lock of its fixed path, if it has one
}

// Start starts a PostgreSQL in a temporary folder, reached by a Unix socket. If
// it is not durable it never waits for the disk, which is right for tests that
// do not pull plugs.
func Start(durable bool) (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(folder(durable), "purser-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, URL: socketURL(dir)}
	if err := c.startServer(bin, durable); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), c.Stop())
	}
	return c, nil
}

// folder is where a server may live: another user must get in, and the path of a
// socket is short. In memory a new database takes a fifth of the time.
func folder(durable bool) string {
	const memory = "/dev/shm"
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); !durable && err == nil && fs.Bavail*uint64(fs.Bsize) > 4<<30 {
		return memory
	}
	return "/tmp"
}

// supervise starts the server for each line of standard input. It ends the server, which may be
// frozen, and removes its files when standard input ends, which it does when the process that
// started it is gone. PostgreSQL ends by SIGQUIT, PgBouncer by SIGTERM.
const supervise = `while read -r _; do "$@" >>"$0/log" 2>&1 </dev/null & server=$!; done; ` +
	`kill -QUIT $server; kill -TERM $server; kill -CONT $server; wait $server; cd / && rm -rf "$0"`

func (c *Cluster) startServer(bin string, durable bool) error {
	as, err := unprivileged(c.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(c.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "purser", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: as}, c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return c.superviseServer(bin, durable, as)
}

// superviseServer runs a server on the data of the cluster's folder.
func (c *Cluster) superviseServer(bin string, durable bool, as *syscall.Credential) error {
	args := []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(c.dir, "data"), "-k", c.dir, "-c",
		"listen_addresses=",
		"-c", "max_connections=1000", "-c", "shared_buffers=128MB", "-c", "max_wal_size=512MB"}
	if !durable {
		args = append(args, "-c", "autovacuum=off", "-c", "fsync=off", "-c", "synchronous_commit=off",
			"-c", "full_page_writes=off")
	}
	return c.superviseCommand(as, args...)
}

// superviseCommand runs a command in the cluster's folder, and waits until it answers as a server.
func (c *Cluster) superviseCommand(as *syscall.Credential, command ...string) (err error) {
	c.cmd = exec.Command("/bin/sh", append([]string{"-c", supervise, c.dir}, command...)...)
	c.cmd.Dir = c.dir
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setsid: true} // a Ctrl-C is not for it
	if c.run, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	// Many tests wait for it, with time limits. Only root may prefer a process: others do without.
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, c.cmd.Process.Pid, -5)
	return c.runServer()
}

// runServer starts the server's process, and waits until it answers.
func (c *Cluster) runServer() error {
	if _, err := io.WriteString(c.run, "\n"); err != nil {
		return err
	}
	return c.answers()
}

// answers waits until the server does.
func (c *Cluster) answers() error {
	d, err := sql.Open("pgx", c.URL)
	if err != nil {
		return err
	}
	defer d.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err = d.PingContext(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(c.dir, "log")) // only to say more
			return fmt.Errorf("it does not answer: %w\n%s", err, log)
		}
	}
}

// Fix makes the server reachable by a fixed path, and returns the URL with it, so
// that go test finds the same environment, and may answer from its cache, in the
// next run. The path is a link to the server's folder; a lock keeps it for this
// process. If another process has it, the next free one is taken.
func (c *Cluster) Fix() (fixed string, err error) {
	home, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home = filepath.Join(home, "purser-tests")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		path := filepath.Join(home, fmt.Sprintf("postgres-%d", n))
		lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return "", err
		}
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			_ = lock.Close() // nothing was written
			continue
		} else if err != nil {
			return "", errors.Join(err, lock.Close())
		}
		c.fixed = lock // the kernel frees it when the process ends
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return socketURL(path), os.Symlink(c.dir, path)
	}
}

// socketURL is the URL of the database postgres of a server whose socket is in dir. A server that starts a process for
// each connection needs more than Purser's three seconds where others keep the processors busy.
func socketURL(dir string) string {
	return "postgres://purser@/postgres?sslmode=disable&connect_timeout=60&host=" + url.QueryEscape(dir)
}

// Stop ends the server at once and removes its files.
func (c *Cluster) Stop() error {
	if c.cmd == nil || c.cmd.Process == nil {
		return os.RemoveAll(c.dir)
	}
	err := c.run.Close()
	_ = c.cmd.Wait() // how the shell ended tells nothing
	if c.fixed != nil {
		err = errors.Join(err, os.Remove(strings.TrimSuffix(c.fixed.Name(), ".lock")), c.fixed.Close())
	}
	return err
}

// binaries finds the folder with initdb and postgres.
func binaries() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("PostgreSQL is not installed: run make setup")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// unprivileged returns whom the server runs as, and gives dir to that user:
// PostgreSQL refuses to run as root. Nil is ourselves.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("as root it needs the user postgres: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}
