package nodes

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// restoresWanted is how many backups of each engine TestRestoreDrills takes, if PURSER_TEST_RESTORES does not say
// otherwise.
func restoresWanted(t *testing.T) int {
	text := os.Getenv("PURSER_TEST_RESTORES")
	if text == "" && testkit.IsLong() {
		return 50
	} else if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PURSER_TEST_RESTORES: %q is no number of backups", text)
	}
	return n
}

// TestRestoreDrills takes backups of a node under the load of clients that keep books, kills the node before, during
// or after each, and restores each into one of the engines: the copy is clean, and every call that was answered before
// the backup began has the row with the answered numbers. The last copy replays them byte for byte.
func TestRestoreDrills(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			drillRestores(t, servertest.URL(t, e))
		})
	}
}

func drillRestores(t *testing.T, url string) {
	b := newBooks(t, func(status int, code string) bool {
		return status == 502 && code == "provider_error" || isUnavailable(status, code)
	})
	var node atomic.Pointer[servertest.Process]
	ctx, stop := context.WithCancel(t.Context())
	wait := b.runClients(ctx, 8, node.Load)
	defer func() { stop(); wait() }()
	start := func() {
		p := servertest.Start(t, url, "--lease=2s")
		node.Store(p)
	}
	kill := func() {
		if p := node.Swap(nil); p != nil {
			p.Kill()
		}
	}
	n, rows, checked := restoresWanted(t), int64(0), 0
	var took [2]time.Duration // of all backups, and of all restores
	for i := range n {
		start()
		pause(ctx, time.Duration(300+rand.IntN(500))*time.Millisecond)
		var before map[string]calltest.Bill
		testkit.Eventually(t, testkit.Patience, "an answered call", func() bool {
			before = b.answeredBills()
			return len(before) > 0
		})
		if i%3 == 0 {
			time.AfterFunc(rand.N(30*time.Millisecond), kill) // mostly while the backup runs
		} else if i%3 == 1 {
			kill()
		}
		path := filepath.Join(t.TempDir(), "drill.backup")
		began := time.Now()
		m, err := backup.Create(t.Context(), url, path, nil)
		took[0] += time.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		kill()
		target := dbtest.EmptyURL(t)
		if i%2 == (n-1)%2 { // the last one is a file
			target = "sqlite:" + filepath.Join(t.TempDir(), "purser.db")
		}
		began = time.Now()
		_, r, err := backup.Restore(t.Context(), path, target, nil)
		took[1] += time.Since(began)
		if err != nil || r.Findings > 0 {
			t.Fatalf("backup %d: %v\n%s", i, err, r.Report)
		}
		b.compareCopy(target, before)
		rows, checked = rows+m.Heads.Entries, checked+len(before)
		if i == n-1 {
			stop()
			wait()
			b.replayFromCopy(url, target, before)
		}
	}
	if checked == 0 {
		t.Error("vacuous: no call was answered before a backup")
	}
	t.Logf("%d backups, with %d ledger rows in all; each of %d answered calls is in its copy; a backup took %s, "+
		"a restore with its audit %s", n, rows, checked, took[0]/time.Duration(n), took[1]/time.Duration(n))
}

// answeredBills returns what the answers so far say, by key.
func (b *callBooks) answeredBills() map[string]calltest.Bill {
	b.t.Helper()
	bills := map[string]calltest.Bill{}
	for _, c := range b.snapshot() {
		c.mu.Lock()
		if c.answer != nil {
			v, err := calltest.ReadBill(c.answer)
			if err != nil {
				b.t.Errorf("key %s: %v in %s", c.key, err, c.answer)
			}
			bills[c.key] = v
		}
		c.mu.Unlock()
	}
	return bills
}

// compareCopy checks that a restored database has one row of each answered call, with the answered numbers.
func (b *callBooks) compareCopy(database string, want map[string]calltest.Bill) {
	b.t.Helper()
	rows := calltest.Spends(b.t, database)
	for key, answered := range want {
		if list := rows[key]; len(list) != 1 || list[0] != answered {
			b.t.Errorf("key %s was answered %+v before the backup; the copy's rows say %+v", key, answered, list)
		}
	}
}

// replayFromCopy starts a node on a restored file, and sends the answered calls once more: the bytes must be the same.
// The node needs the key files of the first one, which stand by a SQLite file.
func (b *callBooks) replayFromCopy(from, target string, answered map[string]calltest.Bill) {
	b.t.Helper()
	file, isFile := strings.CutPrefix(from, "sqlite:")
	if !isFile {
		return
	}
	copyKeys(b.t, filepath.Dir(file), filepath.Dir(strings.TrimPrefix(target, "sqlite:")))
	p := servertest.Start(b.t, target, "--lease=2s")
	testkit.Eventually(b.t, testkit.Patience, "sweep of the lost node's holds", func() bool {
		return dbtest.Number(b.t, target, orphans, time.Now().UnixMicro()) == 0
	})
	for _, c := range b.snapshot() {
		if _, ok := answered[c.key]; ok && !b.sendCall(b.t.Context(), p, c) {
			b.t.Errorf("key %s: not answered by the copy", c.key)
		}
	}
	p.Verify()
	p.Kill()
}

// copyKeys copies the files of a data folder except the database's.
func copyKeys(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() || strings.HasPrefix(f.Name(), "purser.db") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPointInTimeRecovery loses a PostgreSQL server under load, and recovers it from a base backup and its archived
// log to a moment: the ledger is clean, has every call that was answered before that moment, and no later row.
func TestPointInTimeRecovery(t *testing.T) {
	testkit.Long(t, "the recovery is PostgreSQL's own")
	cluster := dbtest.StartCluster(t, true)
	url := cluster.NewURL(t)
	b := newBooks(t, func(status int, code string) bool {
		return isUnavailable(status, code) || status == 502 && code == "provider_error"
	})
	p := servertest.Start(t, url, "--lease=2s")
	cluster.Archive(t)
	ctx, stop := context.WithCancel(t.Context())
	wait := b.runClients(ctx, 8, func() *servertest.Process { return p })
	defer func() { stop(); wait() }()
	const calls = 50 // before the moment, and after it
	answered := func(n int) func() bool { return func() bool { return len(b.answeredBills()) >= n } }
	testkit.Eventually(t, testkit.Patience, "calls before the moment", answered(calls))
	before, moment := b.answeredBills(), time.Now()
	testkit.Eventually(t, testkit.Patience, "calls after the moment", answered(len(before)+calls))
	cluster.KillPostmaster(t)
	p.Kill()
	stop()
	wait()
	cluster.Recover(t, moment)
	servertest.Verify(t, url)
	b.compareCopy(url, before)
	rows := dbtest.Number(t, url, `SELECT COUNT(*) FROM ledger`)
	late := dbtest.Number(t, url, `SELECT COUNT(*) FROM ledger WHERE created_us > $1`, moment.UnixMicro())
	if late > 0 {
		t.Errorf("%d rows are newer than the moment", late)
	}
	t.Logf("%d answered calls of %d were before the moment; the ledger has %d rows", len(before),
		len(b.answeredBills()), rows)
}
