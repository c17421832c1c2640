package audit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	ids "github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
)

// openDatabase returns a fresh database and its URL.
func openDatabase(t testing.TB, e db.Engine) (*db.DB, string) {
	t.Helper()
	url := dbtest.URL(t, e)
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, url
}

func verifyDatabase(t *testing.T, url string) (int, string) {
	t.Helper()
	var out strings.Builder
	n, err := VerifyAndPrint(t.Context(), url, &out, noon)
	if err != nil {
		t.Fatal(err)
	}
	return n, out.String()
}

// joinFields returns the text with single spaces.
func joinFields(s string) string { return strings.Join(strings.Fields(s), " ") }

func forEachEngine(t *testing.T, f func(t *testing.T, d *db.DB, url string)) {
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			d, url := openDatabase(t, e)
			f(t, d, url)
		})
	}
}

// TestRunGoesByTheLedgersClock verifies a PostgreSQL whose clock is two days ahead of this machine's: rows of its nodes
// carry its time, and by another one windows and leases would be findings.
func TestRunGoesByTheLedgersClock(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, d *db.DB, url string) {
		ahead := time.Duration(0)
		if d.Engine == db.Postgres {
			ahead = 48 * time.Hour
			for _, statement := range []string{
				`CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
					$$ SELECT pg_catalog.clock_timestamp() + interval '2 days' $$`,
				`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog',
					current_database()); END $$`,
			} {
				if _, err := d.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
		}
		// The clock of purser dev was moved on besides.
		if _, err := d.ExecContext(t.Context(), `INSERT INTO settings (name, value) VALUES ('dev_clock_ahead', $1)`,
			strconv.FormatInt((3*time.Hour).Microseconds(), 10)); err != nil {
			t.Fatal(err)
		}
		ahead += 3 * time.Hour
		r, err := Run(t.Context(), url, Options{Checkpoint: true})
		if err != nil || r.Checkpoint == nil {
			t.Fatalf("%v\n%s", err, r.Report)
		}
		if off := time.Until(r.Checkpoint.Made()) - ahead; off.Abs() > time.Hour {
			t.Errorf("verified as of %s, which is off by %s", r.Checkpoint.Made(), off)
		}
	})
}

func TestRunBesideAServer(t *testing.T) {
	t.Parallel()
	forEachEngine(t, func(t *testing.T, d *db.DB, url string) {
		if n, out := verifyDatabase(t, url); n != 0 || !strings.HasSuffix(out, "checks, no findings\n") {
			t.Errorf("an empty database: %d findings\n%s", n, out)
		}
		writeFixture(t, d, fixture)
		n, out := verifyDatabase(t, url)
		if n != 0 {
			t.Fatalf("%d findings\n%s", n, out)
		}
		if want := "I4 connections: consumed = Σ spend rows, allocation = Σ its movements 8 checked 0 findings"; !strings.Contains(joinFields(out), want) {
			t.Errorf("no line for I4 in\n%s", out)
		}
		if _, err := d.ExecContext(db.ForJob(t.Context()),
			`UPDATE balances SET available_mc = available_mc + 7 WHERE account_id = 'wac_a'`); err != nil {
			t.Fatal(err)
		}
		n, out = verifyDatabase(t, url)
		if n != 1 || !strings.Contains(out,
			"      account=wac_a balances=1 available_mc=9396280007 available_rows_mc=9396280000 ") ||
			!strings.HasSuffix(out, fmt.Sprintf("not clean: 1 finding in 1 of %d checks\n", len(checks)-1)) {
			t.Errorf("%d findings\n%s", n, out)
		}
	})
}

// TestFindingsAreCapped reads more than a page of rows, each of them wrong.
func TestFindingsAreCapped(t *testing.T) {
	t.Parallel()
	const n = pageRows + 1
	forEachEngine(t, func(t *testing.T, d *db.DB, url string) {
		writeFixture(t, d, func(w *writer) {
			for i := range n {
				account := fmt.Sprintf("wac_%d", i%3)
				w.addLedgerRow(account, movement{available: 5}, map[string]any{"type": "topup", "amount_mc": 6})
			}
		})
		found, out := verifyDatabase(t, url)
		// Each row, and the funds of each of three accounts.
		if want := fmt.Sprintf("ledger: each row moves what its type says %s checked %s findings", formatCount(n),
			formatCount(n)); found != n+3 || !strings.Contains(joinFields(out), want) {
			t.Errorf("%d findings, no %q in\n%s", found, want, out)
		}
		if want := "      … and " + formatCount(n-maxPrintedFindings) + " more\n"; !strings.Contains(out, want) ||
			strings.Count(out, "seq=") != maxPrintedFindings {
			t.Errorf("not %d findings and %q in\n%s", maxPrintedFindings, want, out)
		}
	})
}

// TestRunOnACopyOfTheFile looks at copies made beside a server, with its log,
// and after it has stopped, without one.
func TestRunOnACopyOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "purser.db")
	d, err := db.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	writeFixture(t, d, fixture)
	look := func(suffixes ...string) {
		t.Helper()
		copied := filepath.Join(t.TempDir(), "copy.db")
		for _, suffix := range suffixes {
			data, err := os.ReadFile(path + suffix)
			if err == nil {
				err = os.WriteFile(copied+suffix, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n, out := verifyDatabase(t, "sqlite:"+copied); n != 0 ||
			!strings.Contains(joinFields(out), "ledger: seq is dense in each account 63 checked") {
			t.Errorf("copy of %q: %d findings\n%s", suffixes, n, out)
		}
	}
	look("", "-wal")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	look("")
}

// TestRunOnACopyWithoutTheLog copies the file of a running server alone. Its rows agree with
// each other, but the newest ones are missing: that is a finding.
func TestRunOnACopyWithoutTheLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "purser.db")
	d, err := db.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	writeFixture(t, d, fixture)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, out := verifyDatabase(t, "sqlite:"+copied); n != 1 || !strings.Contains(out, "without its log") {
		t.Errorf("%d findings\n%s", n, out)
	}
}

// TestRunOnAReadOnlyFileSystem verifies a file where SQLite can make no files, with its log and without.
func TestRunOnAReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewDisk(t, 48)
	if disk == nil {
		return // it has run in a namespace of its own
	}
	path := filepath.Join(t.TempDir(), "purser.db")
	d, err := db.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	writeFixture(t, d, fixture)
	withLog, alone := filepath.Join(disk.Dir, "log.db"), filepath.Join(disk.Dir, "alone.db")
	copyFile(t, path, withLog)
	copyFile(t, path+"-wal", withLog+"-wal")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, path, alone)
	disk.MakeReadOnly(t)
	for _, copied := range []string{withLog, alone} {
		if n, out := verifyDatabase(t, "sqlite:"+copied); n != 0 ||
			!strings.Contains(joinFields(out), "ledger: seq is dense in each account 63 checked") {
			t.Errorf("%d findings\n%s", n, out)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o400); err != nil {
		t.Fatal(err)
	}
}

func TestRunSaysWhenItCannotLook(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"sqlite:" + filepath.Join(t.TempDir(), "absent.db"), "postgres://nobody@127.0.0.1:1/none", "mysql://x", "",
	} {
		if n, err := VerifyAndPrint(t.Context(), url, os.Stdout, noon); err == nil {
			t.Errorf("Run(%q) = %d, no error", url, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, url := openDatabase(t, db.SQLite)
	cancel()
	if n, err := VerifyAndPrint(ctx, url, os.Stdout, noon); err == nil {
		t.Errorf("a cancelled run = %d, no error", n)
	}
}

// TestChainHash spells the form of a row out.
func TestChainHash(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("before\n5:led_1|i:-42|n|6:a|b\nß"))
	want := base64.RawURLEncoding.EncodeToString(sum[:])
	if got := chainHash("before", []any{"led_1", int64(-42), nil, "a|b\nß"}); got != want {
		t.Errorf("chainHash = %s, want %s", got, want)
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0:       "0",
		999:     "999",
		1000:    "1,000",
		1234567: "1,234,567",
		-123:    "-123",
		-1234:   "-1,234",
	} {
		if got := formatCount(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

// BenchmarkRun verifies 200,000 billed calls of 40 accounts.
func BenchmarkRun(b *testing.B) {
	const accounts, calls = 40, 5_000
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		b.Run(string(e), func(b *testing.B) {
			d, url := openDatabase(b, e)
			for i := range accounts {
				account, id := fmt.Sprintf("wac_%d", i), fmt.Sprintf("conn_%d", i)
				writeFixture(b, d, func(w *writer) {
					w.addLedgerRow(account, movement{available: 10_000_000_000},
						map[string]any{"type": "topup", "amount_mc": 10_000_000_000})
					w.connect(id, "app_1", account, 10_000_000_000)
					for n := range calls {
						w.spend(id, fmt.Sprintf("%d-%d", i, n), "chat", plain)
					}
				})
			}
			for b.Loop() {
				var out strings.Builder
				if n, err := VerifyAndPrint(b.Context(), url, &out, noon); n != 0 || err != nil {
					b.Fatalf("%d findings, %v\n%s", n, err, out.String())
				}
			}
			b.ReportMetric(float64(b.N)*accounts*(calls+2)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestRowsOfNoYearAreRemarked has a row whose id is of a far year.
func TestRowsOfNoYearAreRemarked(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.Postgres)
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, err = d.ExecContext(t.Context(), `INSERT INTO ledger (id, account_id, seq, type, status, available_delta_mc,
			reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
		VALUES ($1, 'wac_x', 1, 'topup', 'settled', 0, 0, 0, 0, 1, '')`,
		ids.New(ids.Ledger, time.Now().AddDate(30, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), target, time.Now(), nil)
	if err != nil || !strings.Contains(r.Report, "(1 rows of the ledger are in no year") {
		t.Errorf("%v\n%s", err, r.Report)
	}
}
