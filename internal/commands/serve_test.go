package commands

import (
	"bytes"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // for tests that need another connection

	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestServeListensWhenReady starts a node that waits for the migration of another one. SIGHUP does not end it, and it
// takes no connections until it can answer them.
func TestServeListensWhenReady(t *testing.T) {
	t.Parallel()
	database, address := dbtest.EmptyURL(t), freeAddress(t)
	migrating, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	migrating.SetMaxOpenConns(1)
	const lock = 7_821_669_314 // of migrations
	if _, err := migrating.ExecContext(t.Context(), `SELECT pg_advisory_lock($1)`, lock); err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	settings := filepath.Join(t.TempDir(), "purser.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, "database: %q\nlisten: %s\nbase_url: http://%[2]s\n"+
		"envelope_key: %s\nproviders: {openai: {key: sk-proj-abcdefghijklmnopqrstuvwxyz0123456789}}\n",
		database, address, base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), servertest.Binary(t), "serve", "--config", settings)
	var log bytes.Buffer
	node.Stderr = &log
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- node.Wait() }()
	for waits := false; !waits; time.Sleep(10 * time.Millisecond) {
		err := migrating.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'SELECT pg_try_advisory_lock%')`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		if len(ended) > 0 {
			t.Fatalf("ended: %v: %s", <-ended, log.String())
		}
	}
	if err := node.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("a node that waits for a migration takes connections")
	}
	if err := migrating.Close(); err != nil {
		t.Fatal(err)
	}
	for ready := false; !ready; {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v: %s", err, log.String())
		case <-time.After(50 * time.Millisecond):
		}
		if resp, err := http.Get("http://" + address + "/readyz"); err == nil {
			ready = resp.StatusCode == http.StatusOK
			_ = resp.Body.Close()
		}
	}
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("stopped: %v: %s", err, log.String())
	}
}
