package faulttest_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
)

// pool opens a pool that keeps one connection. Connecting is bounded, because a frozen server
// accepts.
func pool(t *testing.T, url string) *sql.DB {
	t.Helper()
	d, err := sql.Open("pgx", url+"&connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// answers reports whether the database answers a query soon.
func answers(d *sql.DB) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var one int
	return d.QueryRowContext(ctx, `SELECT 1`).Scan(&one) == nil
}

func awaitAnswer(t *testing.T, what string, d *sql.DB) {
	t.Helper()
	for late := time.Now().Add(20 * time.Second); !answers(d); {
		if time.Now().After(late) {
			t.Fatalf("no answer %s", what)
		}
	}
}

func TestProxyBreaksConnections(t *testing.T) {
	t.Parallel()
	p := faulttest.NewProxy(t, dbtest.URL(t, db.Postgres))
	d := pool(t, p.URL)
	awaitAnswer(t, "through the proxy", d)
	if n := p.BlackHole(); n != 1 {
		t.Errorf("%d connections were black-holed", n)
	}
	if answers(d) {
		t.Error("a black-holed connection answered")
	}
	awaitAnswer(t, "on a new connection", d)
	p.SetDelay(2 * time.Second)
	if answers(d) {
		t.Error("answered without the delay")
	}
	p.SetDelay(0)
	awaitAnswer(t, "without a delay", d)
	p.Cut()
	awaitAnswer(t, "after a cut", d)
}

func TestProxyAsksBefore(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	p := faulttest.NewProxy(t, dbtest.URL(t, db.Postgres), func() error { <-asked; return nil })
	d := pool(t, p.URL)
	if answers(d) {
		t.Error("answered before it was asked")
	}
	close(asked)
	awaitAnswer(t, "then", d)
}

func TestClusterFreezesAndDies(t *testing.T) {
	t.Parallel()
	c := dbtest.StartCluster(t, false)
	d := pool(t, c.NewURL(t))
	awaitAnswer(t, "at first", d)
	thaw := c.Freeze(t)
	if answers(d) {
		t.Error("a frozen server answered")
	}
	thaw()
	awaitAnswer(t, "after the thaw", d)
	c.KillPostmaster(t)
	if answers(d) {
		t.Error("a dead server answered")
	}
	c.Restart(t)
	awaitAnswer(t, "after a restart", d)
	if err := d.QueryRow(`SELECT set_config('application_name', 'purser', false)`).Err(); err != nil {
		t.Fatal(err)
	}
	if n := c.TerminateBackends(t, 1); n != 1 {
		t.Errorf("%d backends were terminated", n)
	}
	awaitAnswer(t, "on a new connection", d)
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	url, limit := dbtest.LimitedURL(t)
	d := pool(t, url)
	awaitAnswer(t, "at first", d)
	limit(0)
	if answers(d) {
		t.Error("answered without a connection")
	}
	limit(1)
	awaitAnswer(t, "with one connection", d)
}

func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewDisk(t, 48)
	if disk == nil {
		return
	}
	disk.Fill(t)
	file := filepath.Join(disk.Dir, "file")
	if err := os.WriteFile(file, []byte("more"), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write on a full disk: %v", err)
	}
	disk.Free(t)
	if err := os.WriteFile(file, []byte("more"), 0o600); err != nil {
		t.Errorf("a write when there is space again: %v", err)
	}
}
