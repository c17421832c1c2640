package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartStandby starts a standby that streams the cluster's log, by the commands of a guide for operators. If it is
// synchronous, a commit on the cluster waits for the standby's disk from then on. It ends with the test.
func (c *Cluster) StartStandby(t testing.TB, guide string, synchronous bool) *Cluster {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(folder(true), "purser-pg-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Cluster{dir: dir, URL: socketURL(dir)}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	as, err := unprivileged(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := findBlock(t, guide, "sh")
	for documented, here := range map[string]string{
		"pg_basebackup ":              filepath.Join(bin, "pg_basebackup") + " --no-sync ",
		" -h db1.internal ":           " -h " + c.dir + " ",
		" -U replicator ":             " -U purser ",
		"/var/lib/postgresql/15/main": filepath.Join(dir, "data"),
	} {
		if strings.Count(text, documented) != 1 {
			t.Fatalf("the guide's command lacks %q: %s", documented, text)
		}
		text = strings.Replace(text, documented, here, 1)
	}
	base := exec.Command("/bin/sh", "-c", text)
	base.Dir, base.SysProcAttr = c.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := base.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", text, err, out)
	}
	if err := s.superviseServer(bin, true, as); err != nil {
		t.Fatal(err)
	}
	if synchronous {
		for statement := range strings.SplitSeq(findBlock(t, guide, "sql"), ";") {
			c.exec(t, statement)
		}
	}
	want := "async"
	if synchronous {
		want = "sync"
	}
	c.await(t, "the standby streams: "+want,
		"SELECT COUNT(*) > 0 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '"+want+"'")
	return s
}

// findBlock returns the first fenced block of a language in a guide.
func findBlock(t testing.TB, guide, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(guide, "\n```"+language+"\n")
	text, _, ended := strings.Cut(rest, "\n```\n")
	if !found || !ended {
		t.Fatalf("the guide has no block in %s", language)
	}
	return text
}

// StopReplication makes a standby ignore what its primary writes from now on, as a slow network does.
func (c *Cluster) StopReplication(t testing.TB) {
	t.Helper()
	c.exec(t, "ALTER SYSTEM SET primary_conninfo = ''")
	c.exec(t, "SELECT pg_reload_conf()")
	c.await(t, "replication has stopped", "SELECT COUNT(*) = 0 FROM pg_stat_wal_receiver")
}

// Promote makes a standby the primary, and returns when it takes writes.
func (c *Cluster) Promote(t testing.TB) {
	t.Helper()
	c.exec(t, "SELECT pg_promote()")
	c.await(t, "promotion", "SELECT NOT pg_is_in_recovery()")
}

// Version returns the version of the server.
func (c *Cluster) Version(t testing.TB) (version string) {
	t.Helper()
	c.withPool(t, func(d *sql.DB) error { return d.QueryRow("SHOW server_version").Scan(&version) })
	return version
}

// await waits until a query returns true.
func (c *Cluster) await(t testing.TB, what, query string) {
	t.Helper()
	c.withPool(t, func(d *sql.DB) error {
		for late := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var reached bool
			err := d.QueryRowContext(context.Background(), query).Scan(&reached)
			if err == nil && reached {
				return nil
			}
			if time.Now().After(late) {
				return fmt.Errorf("%s: not within 30 s: %w", what, err)
			}
		}
	})
}

// JoinURLs returns the URL by which nodes follow the primary: that of a database, with the hosts of several servers.
func JoinURLs(t testing.TB, database string, servers ...*Cluster) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.dir)
	}
	query := u.Query()
	query.Set("host", strings.Join(hosts, ","))
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()
	return u.String()
}

// StartBouncer starts a PgBouncer in transaction mode in front of the cluster, and returns the URL of a database by it.
// It ends with the test.
func (c *Cluster) StartBouncer(t testing.TB, database string, settings ...string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := exec.LookPath("/usr/sbin/pgbouncer")
	if err != nil {
		t.Fatalf("PgBouncer is not installed: run make setup: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "purser-pgb-")
	if err != nil {
		t.Fatal(err)
	}
	b := &Cluster{dir: dir, URL: socketURL(dir)}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	as, err := unprivileged(dir)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=%s user=purser\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\n"+
		"listen_port = 5432\nauth_type = any\npool_mode = transaction\n%s\n", c.dir, dir, strings.Join(settings, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.superviseCommand(as, bin, config); err != nil {
		t.Fatal(err)
	}
	return databaseURL(t, b.URL, strings.TrimPrefix(u.Path, "/"))
}

// Fence ends all processes of the server by kill -9, also of one that is frozen.
func (c *Cluster) Fence(t testing.TB) {
	t.Helper()
	postmaster := c.postmaster(t)
	all := append(children(t, postmaster), postmaster)
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one that has just ended needs none
	}
	for late := time.Now().Add(10 * time.Second); slices.ContainsFunc(all, runs); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("processes of a fenced server live on: %d", all)
		}
	}
}
