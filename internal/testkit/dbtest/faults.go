package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartCluster starts a PostgreSQL for one test, which may break it. See Start for durable.
func StartCluster(t testing.TB, durable bool) *Cluster {
	t.Helper()
	c, err := Start(durable)
	if err != nil {
		t.Fatalf("a test needs PostgreSQL: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// NewURL creates an empty database of the cluster and returns its URL. The node that opens it
// first migrates it.
func (c *Cluster) NewURL(t testing.TB) string {
	t.Helper()
	name := newName()
	c.exec(t, "CREATE DATABASE "+name)
	return databaseURL(t, c.URL, name)
}

// LimitedURL creates an empty PostgreSQL database and a user who owns it, and returns the URL with
// that user. limit sets how many connections the user may have, and closes all that are open. The
// node that opens the database first migrates it.
func LimitedURL(t testing.TB) (limited string, limit func(connections int)) {
	t.Helper()
	shared, err := postgres()
	if err != nil {
		t.Fatalf("a test needs PostgreSQL: %v", err)
	}
	run := func(text string) {
		t.Helper()
		if err := shared.admin(text); err != nil {
			t.Fatal(err)
		}
	}
	name := newName()
	run("CREATE ROLE " + name + " LOGIN")
	t.Cleanup(func() { run("DROP ROLE " + name) })
	run("CREATE DATABASE " + name + " OWNER " + name)
	t.Cleanup(func() { run("DROP DATABASE " + name + " WITH (FORCE)") })
	u, err := url.Parse(shared.newURL(name))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(name)
	return u.String(), func(connections int) {
		t.Helper()
		run(fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", name, connections))
		run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + name + "'")
	}
}

// TerminateBackends ends this share (0 to 1) of the connections of Purser's nodes, chosen at
// random, and returns their number.
func (c *Cluster) TerminateBackends(t testing.TB, share float64) (n int) {
	t.Helper()
	c.withPool(t, func(d *sql.DB) error {
		return d.QueryRow(`SELECT COUNT(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
			WHERE application_name = 'purser' AND random() < $1 OFFSET 0) AS chosen`, share).Scan(&n)
	})
	return n
}

// Freeze stops all processes of the server (SIGSTOP), so that connections stay open and nothing
// is answered. thaw continues them; a second call does nothing. They are also thawed when the
// test ends.
func (c *Cluster) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	postmaster, stopped := c.postmaster(t), []int(nil)
	for list := []int{postmaster}; len(list) > 0; { // the postmaster first: it starts no others then
		for _, pid := range list {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // one that has just ended needs no stop
		}
		stopped = append(stopped, list...)
		list = slices.DeleteFunc(children(t, postmaster), func(pid int) bool { return slices.Contains(stopped, pid) })
	}
	thaw = func() {
		for _, pid := range slices.Backward(stopped) {
			_ = syscall.Kill(pid, syscall.SIGCONT) // as above
		}
		stopped = nil
	}
	t.Cleanup(thaw)
	return thaw
}

// KillPostmaster ends the server as kill -9 of its first process does: the others notice it and
// end too. Restart starts the server again.
func (c *Cluster) KillPostmaster(t testing.TB) {
	t.Helper()
	postmaster := c.postmaster(t)
	others := children(t, postmaster)
	if err := syscall.Kill(postmaster, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(10 * time.Second); slices.ContainsFunc(others, runs); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("processes of a dead postmaster live on: %d", others)
		}
	}
}

// Restart starts the server after KillPostmaster, and returns when it answers.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	if err := c.runServer(); err != nil {
		t.Fatal(err)
	}
}

// postmaster returns the id of the server's first process.
func (c *Cluster) postmaster(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// children returns the processes that a process has started.
func children(t testing.TB, parent int) (list []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatalf("finding the processes of PostgreSQL needs /proc: %v", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, ppid, ok := processState(pid); ok && ppid == parent {
			list = append(list, pid)
		}
	}
	return list
}

// runs reports whether a process is there, and more than an entry that its parent has not read.
func runs(pid int) bool {
	state, _, ok := processState(pid)
	return ok && state != "Z"
}

// processState returns the state and the parent of a process: the two fields after its name, which
// is in parentheses and may have any character.
func processState(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false // it has ended
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// databaseURL returns the URL of another database of the same server.
func databaseURL(t testing.TB, server, name string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// exec runs one statement in the cluster's database postgres.
func (c *Cluster) exec(t testing.TB, text string) {
	t.Helper()
	c.withPool(t, func(d *sql.DB) error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err := d.ExecContext(ctx, text)
		return err
	})
}

func (c *Cluster) withPool(t testing.TB, f func(*sql.DB) error) {
	t.Helper()
	d, err := sql.Open("pgx", c.URL)
	if err == nil {
		err = errors.Join(f(d), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Sessions describes what the server's sessions do, and for which others each waits.
func (c *Cluster) Sessions(t testing.TB) (text string) {
	t.Helper()
	c.withPool(t, func(d *sql.DB) error {
		return d.QueryRow(`SELECT COALESCE(string_agg(concat_ws(' ', pid, state, 'waits for', wait_event,
				pg_blocking_pids(pid)::text, 'since', now() - xact_start, left(query, 200)), E'\n'
				ORDER BY xact_start), '')
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&text)
	})
	return text
}
