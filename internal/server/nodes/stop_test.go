package nodes

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestDrain stops a node: it is not ready, and serves for the drain. Then it ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite), "--drain=5s")
	if status, body, _ := probeReady(t, p.Node); status != 200 {
		t.Fatalf("not ready: %s", body)
	}
	p.Signal(syscall.SIGTERM)
	testkit.Eventually(t, testkit.Patience, "not ready", func() bool {
		status, body, _ := probeReady(t, p.Node)
		return status == 503 && strings.Contains(body, "shutting down")
	})
	if r := ask(p.Node, newBooks(t, nil).addCall(false, "!mock words=5")); r.status != 200 {
		t.Errorf("a call while the node drains: %+v", r)
	}
	if code := p.Wait(); code != 0 {
		t.Errorf("the node ended with %d: %s", code, p.Log())
	}
	p.Verify()
}

// TestStopCutsCalls stops a node while a stream and a whole call run for longer than the
// grace: the stream is charged as an estimate of what it has delivered, the other call is not
// billed, and the exit code is 0 (F-93).
func TestStopCutsCalls(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite), "--grace=1s")
	b := newBooks(t, nil)
	stream := beginCall(p.Node, b.addCall(true, "!mock pace=100ms words=1000 chunks=1000"))
	whole := asking(p.Node, b.addCall(false, "!mock delay=60s words=5"))
	<-stream.begun
	testkit.Eventually(t, testkit.Patience, "two holds", func() bool { return dbtest.Number(t, p.DB, openHolds) == 2 })
	if code := p.Stop(); code != 0 {
		t.Errorf("the node ended with %d: %s", code, p.Log())
	}
	if r := <-stream.answer; r.err != nil || !strings.Contains(r.body, `"settlement":"estimated"`) ||
		!strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Errorf("the stream got %+v", r)
	}
	if r := <-whole; r.status != 502 {
		t.Errorf("the whole call got %+v", r)
	}
	if n := dbtest.Number(t, p.DB, openHolds); n != 0 {
		t.Errorf("%d holds are open after the stop", n)
	}
	p.Verify()
}

// TestLeaseEndsBeforeEvents: a table of security events that does not answer keeps a node that stops neither from
// ending its lease, for which others wait, nor from ending.
func TestLeaseEndsBeforeEvents(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.Postgres))
	d := dbtest.OpenURL(t, p.DB)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `LOCK TABLE security_events IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		r, err := http.PostForm(p.AuthURL+"/sign-in", url.Values{
			"email":    {p.Developer.Email},
			"password": {"a wrong one"},
		})
		if err != nil {
			return err
		}
		_ = r.Body.Close()
		if code := p.Stop(); code != 0 {
			t.Errorf("the node ended with %d: %s", code, p.Log())
		}
		if !strings.Contains(p.Log(), "security events") {
			t.Errorf("no event was queued: %s", p.Log())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM nodes WHERE lease_us > 0`); n != 0 {
		t.Errorf("%d leases last on", n)
	}
}

// TestLostFileEndsTheProcess deletes the log, or the file, of a running node: the process ends
// with a message and a code that a supervisor sees.
func TestLostFileEndsTheProcess(t *testing.T) {
	t.Parallel()
	// A connection that SQLite opens after the loss may make a new file, and deletes the old log then.
	for suffix, message := range map[string]string{
		"-wal": "the disk does not take what is written",
		"":     "was deleted while in use|was replaced by another file|the disk does not take what is written",
	} {
		t.Run("purser.db"+suffix, func(t *testing.T) {
			t.Parallel()
			p := servertest.Start(t, servertest.URL(t, db.SQLite))
			if err := os.Remove(strings.TrimPrefix(p.DB, "sqlite:") + suffix); err != nil {
				t.Fatal(err)
			}
			if code := p.Wait(); code != 1 || !regexp.MustCompile(message).MatchString(p.Log()) {
				t.Errorf("the process ended with %d: %s", code, p.Log())
			}
		})
	}
}

// TestDamagedFileIsNotReady starts a node on a file with a damaged page.
func TestDamagedFileIsNotReady(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	if code := p.Stop(); code != 0 {
		t.Fatalf("stopped with %d", code)
	}
	d := dbtest.OpenURL(t, p.DB)
	_, err := d.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2600)
		INSERT INTO stripe_events (id, type, created_us) SELECT 'evt_' || i, 'x', i FROM n`)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(p.DB, "sqlite:")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("?", 8192)), info.Size()-8192); err != nil {
		t.Fatal(err)
	}
	p = servertest.Start(t, p.DB)
	testkit.Eventually(t, testkit.Patience, "not ready", func() bool {
		status, _, _ := probeReady(t, p.Node)
		return status == 503
	})
	if r := ask(p.Node, newBooks(t, nil).addCall(false, "!mock words=5")); r.status != 503 {
		t.Errorf("a call on a damaged file: %+v", r)
	}
}
