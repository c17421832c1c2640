package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Archive begins to archive the server's log, and takes a base backup, as an operator does for point-in-time recovery.
// The archive ends with the test.
func (c *Cluster) Archive(t testing.TB) {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"wal", "base"} {
		if err := os.Mkdir(filepath.Join(c.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := unprivileged(filepath.Join(c.dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	// The slot keeps the log from now on, also what the base backup's checkpoint would remove before it is received.
	slot := c.newCommand(t, bin, "pg_receivewal", "--create-slot", "--slot", "archive")
	if out, err := slot.CombinedOutput(); err != nil {
		t.Fatalf("pg_receivewal: %v: %s", err, out)
	}
	receive := c.newCommand(t, bin, "pg_receivewal", "-D", "wal", "--slot", "archive", "--no-loop")
	if err := receive.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = receive.Process.Kill()
		_ = receive.Wait()
	})
	base := c.newCommand(t, bin, "pg_basebackup", "-D", "base", "-X", "none", "-c", "fast", "--no-sync")
	if out, err := base.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
}

// newCommand returns a command of PostgreSQL that connects to the server and runs as the server's user.
func (c *Cluster) newCommand(t testing.TB, bin, name string, args ...string) *exec.Cmd {
	t.Helper()
	as, err := unprivileged(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, name), append([]string{"-h", c.dir, "-U", "purser"}, args...)...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return cmd
}

// Recover replaces the files of a server that KillPostmaster has ended by the base backup, replays the archived log up
// to a time, and returns when the server takes writes again.
func (c *Cluster) Recover(t testing.TB, until time.Time) {
	t.Helper()
	data := filepath.Join(c.dir, "data")
	if err := os.Rename(data, data+"-lost"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(c.dir, "base"), data); err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf(
		"restore_command = 'cp %[1]s/wal/%%f %%p 2>/dev/null || cp %[1]s/wal/%%f.partial %%p'\n"+
			"recovery_target_time = '%[2]s'\nrecovery_target_action = promote\n",
		c.dir, until.UTC().Format("2006-01-02 15:04:05.999999-07"))
	for name, text := range map[string]string{"postgresql.auto.conf": settings, "recovery.signal": ""} {
		path := filepath.Join(data, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := unprivileged(path); err != nil {
			t.Fatal(err)
		}
	}
	c.Restart(t)
	c.withPool(t, func(d *sql.DB) error {
		for late := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var recovers bool
			err := d.QueryRowContext(context.Background(), `SELECT pg_is_in_recovery()`).Scan(&recovers)
			if err == nil && !recovers {
				return nil
			}
			if time.Now().After(late) {
				return fmt.Errorf("it still recovers: %w", err)
			}
		}
	})
}
