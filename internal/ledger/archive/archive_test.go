package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/backup"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/archive"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A bundle is a database with rows of 2026 and 2027, at a time when 2026 may be archived.
type bundle struct {
	*apitest.Books
	t         testing.TB
	url       string
	conn      rules.Connection
	old       rules.Entry // a call of 2026
	straddles rules.Entry // a call that began in 2026 and was billed in 2027
	folder    string
	archive.Archiver
}

func newBundle(t testing.TB) *bundle {
	t.Helper()
	b := &bundle{t: t, url: dbtest.URL(t, db.Postgres), folder: t.TempDir()}
	d, err := db.Open(t.Context(), b.url)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	b.Books, b.Archiver.DB = apitest.NewBooks(t, d), d
	owner, user := id.New(id.Account, b.Now()), id.New(id.Account, b.Now())
	b.exec(`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ($1, 'd@example.com', '', 1)`, owner)
	b.exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
		VALUES ($1, 'u@example.com', '', 1, $2, 1)`, user, owner)
	b.Do(rules.TopUp{AccountID: user, Sandbox: true, AmountMC: 900 * money.Cent})
	b.conn = b.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.Now()),
		AppID:        "app_1",
		AccountID:    user,
		Sandbox:      true,
		RequestedMC:  600 * money.Cent,
	}).Connection
	for range 4 {
		b.old = b.spend()
	}
	if err := d.EnsureYears(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Pass(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) - time.Until(b.Now()) - time.Second)
	call := b.hold()
	b.Pass(2 * time.Second)
	b.spend()
	b.straddles = b.settle(call)
	b.spend()
	b.Pass(200 * 24 * time.Hour)
	b.spend()
	return b
}

// What a call costs, at 2 and 8 dollars a million tokens.
const chargeMC = 720_000

// hold opens the hold of a new call.
func (b *bundle) hold() rules.Call {
	b.t.Helper()
	b.Terms = `{"rates":{"book":"2026-11-21","mc_per_million":[[0,200000000,20000000,250000000,800000000]]},` +
		`"margin_ppm":150000,"fee_ppm":50000,"input_tokens":1000,"max_tokens":1000}`
	return b.Hold(b.conn, 1_323_000)
}

// settle bills a call.
func (b *bundle) settle(call rules.Call) rules.Entry {
	b.t.Helper()
	return b.Do(rules.Settle{
		Call:       call,
		Attempt:    1,
		Settlement: rules.Settled,
		Usage: rules.Usage{
			JSON:         `{"input":1000,"cached":0,"cache_write":0,"output":500,"reasoning":0}`,
			InputTokens:  1000,
			OutputTokens: 500,
		},
		Charge: rules.Amounts{ProviderCostMC: 600_000, SvcFeeMC: 30_000, DevMarginMC: 90_000, UserChargeMC: chargeMC},
	}).Entry
}

func (b *bundle) spend() rules.Entry {
	b.t.Helper()
	return b.settle(b.hold())
}

func (b *bundle) exec(statement string, args ...any) {
	b.t.Helper()
	if _, err := b.Books.DB.ExecContext(b.t.Context(), statement, args...); err != nil {
		b.t.Fatal(err)
	}
}

// verify returns what an audit finds.
func (b *bundle) verify(o audit.Options) (audit.Result, error) {
	o.Now = b.Now()
	return audit.Run(b.t.Context(), b.url, o)
}

// report returns the lines of an audit, without its times. It fails the test if the audit fails.
func (b *bundle) report(o audit.Options) string {
	b.t.Helper()
	r, err := b.verify(o)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.Report
}

// dump returns all rows of the tables that an archive changes.
func (b *bundle) dump() (list []string) {
	b.t.Helper()
	for _, query := range []string{`SELECT * FROM ledger ORDER BY id`, `SELECT * FROM ledger_archives`,
		`SELECT * FROM ledger_archived_keys`, `SELECT * FROM ledger_archived_accounts`} {
		_, err := db.EachRow(b.t.Context(), b.Books.DB, query, func([]string) {}, func(values []any) error {
			list = append(list, fmt.Sprint(values))
			return nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return list
}

func (b *bundle) archive() archive.Record {
	b.t.Helper()
	r, err := b.Archive(b.t.Context(), 2026, b.folder)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) path() string { return filepath.Join(b.folder, archive.FileName(2026)) }

// TestArchiveAndAttach takes a year out of the ledger and brings it back.
func TestArchiveAndAttach(t *testing.T) {
	t.Parallel()
	b, ctx := newBundle(t), t.Context()
	before, report := b.dump(), b.report(audit.Options{})
	if !strings.Contains(report, "no findings") {
		t.Fatal(report)
	}
	r := b.archive()
	if r.Rows != 7 || id.Time(r.LastID).Year() != 2026 || r.FromID != "" {
		t.Errorf("archived %+v", r)
	}
	if info, err := os.Stat(b.path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	var left int
	if err := b.Books.DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger`).Scan(&left); err != nil || left != 3 {
		t.Errorf("%d rows are left, %v", left, err)
	}
	if _, err := b.verify(audit.Options{}); !errors.Is(err, archive.ErrMissing) ||
		!strings.Contains(err.Error(), archive.FileName(2026)) {
		t.Errorf("an audit without the file: %v", err)
	}
	if got := b.report(audit.Options{Archives: b.folder}); got != report {
		t.Errorf("the audit says\n%s\nand said\n%s", got, report)
	}
	t.Run("used key", func(t *testing.T) {
		call := rules.Call{
			ConnectionID: b.conn.ID,
			AccountID:    b.conn.AccountID,
			AppID:        b.conn.AppID,
			Key:          b.old.Key,
			RequestID:    id.New(id.Request, b.Now()),
			Fingerprint:  "f",
			Model:        "gpt-5.6-terra",
			Terms:        "{}",
			HoldMC:       money.Cent,
		}
		_, err := b.Ledger.Do(ctx, rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
		var e *apierr.Error
		if !errors.As(err, &e) || e.Code != apierr.IdempotencyKeyReused || !strings.Contains(e.Message, "archived") {
			t.Errorf("a used key: %v", err)
		}
		key := rules.Key{ConnectionID: b.conn.ID, Key: b.old.Key}
		if used, err := store.IsKeyUsed(ctx, b.Books.DB, key); err != nil || !used {
			t.Errorf("the key is used: %t, %v", used, err)
		}
	})
	t.Run("reads", func(t *testing.T) { b.testReads(t) })
	if _, err := b.Attach(ctx, b.path()); err != nil {
		t.Fatal(err)
	}
	if after := b.dump(); !slices.Equal(before, after) {
		t.Errorf("the tables have\n%s\nand had\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	if got := b.report(audit.Options{}); got != report {
		t.Errorf("the audit says\n%s\nand said\n%s", got, report)
	}
	b.archive() // the file is there, and has these rows
	if _, err := b.Attach(ctx, b.path()); err != nil {
		t.Fatal(err)
	}
}

// testReads reads around an archived year.
func (b *bundle) testReads(t *testing.T) {
	ctx, d := t.Context(), b.Books.DB
	var archived store.ArchivedError
	if _, err := store.GetEntry(ctx, d, b.old.ID); !errors.As(err, &archived) || archived.Year != 2026 {
		t.Errorf("an archived row: %v", err)
	}
	if _, err := store.GetEntry(ctx, d, b.straddles.ID); !errors.As(err, &archived) {
		t.Errorf("an archived row of the year after: %v", err)
	}
	archived = store.ArchivedError{}
	january := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	december, february := january.AddDate(0, -1, 0), january.AddDate(0, 1, 0)
	for at, want := range map[time.Time]bool{december: true, january: true, february: false} {
		none := func(*store.JournalRow) error { return nil }
		err := store.EachRealEntry(ctx, d, at, at.AddDate(0, 1, 0), none)
		if errors.As(err, new(store.ArchivedError)) != want {
			t.Errorf("the journal of %s: %v", at.Format("January 2006"), err)
		}
	}
	for at, want := range map[time.Time]bool{december: true, january: false} {
		_, err := store.ReadRevenue(ctx, d, []string{"app_1"}, at, at.AddDate(0, 1, 0))
		if errors.As(err, new(store.ArchivedError)) != want {
			t.Errorf("the revenue of %s: %v", at.Format("January 2006"), err)
		}
	}
	if _, err := store.GetEntry(ctx, d, id.New(id.Ledger, b.Now())); errors.As(err, &archived) {
		t.Errorf("a row that never was: %v", err)
	}
	month := func(year int, m time.Month) (opening money.MC, rows int64, err error) {
		from := time.Date(year, m, 1, 0, 0, 0, 0, time.UTC)
		opening, groups, err := store.ReadMonth(ctx, d, b.conn.AccountID, from, from.AddDate(0, 1, 0))
		for _, g := range groups {
			rows += g.Rows
		}
		return opening, rows, err
	}
	if opening, rows, err := month(2027, 7); err != nil || rows != 1 || opening != 900*money.Cent-7*chargeMC {
		t.Errorf("July 2027: %d rows after %d, %v", rows, opening, err)
	}
	// A call that began in 2026 was billed in January.
	for _, m := range []time.Time{january, december} {
		if _, _, err := month(m.Year(), m.Month()); !errors.As(err, &archived) {
			t.Errorf("%s: %v", m.Format("January 2006"), err)
		}
	}
	list, _, err := store.BrowseEntries(ctx, d, store.EntryFilter{AccountID: b.conn.AccountID}, 0, 100)
	if err != nil || len(list) != 3 {
		t.Errorf("%d rows to browse, %v", len(list), err)
	}
	if _, err := store.ListHourlyTotals(ctx, d, b.conn.AccountID, "", b.Now().Add(-time.Hour).UnixMicro()); err != nil {
		t.Error(err)
	}
}

// TestSinceCheckpointNeedsNoFiles verifies what is new, without the file.
func TestSinceCheckpointNeedsNoFiles(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	old, err := b.verify(audit.Options{Checkpoint: true})
	if err != nil || old.Checkpoint == nil {
		t.Fatalf("%v\n%s", err, old.Report)
	}
	b.archive()
	b.spend()
	r, err := b.verify(audit.Options{Since: old.Checkpoint, Checkpoint: true})
	if err != nil || r.Findings > 0 || r.Checkpoint == nil {
		t.Fatalf("since the checkpoint: %v\n%s", err, r.Report)
	}
	early := *old.Checkpoint
	early.MadeUS = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	if _, err := b.verify(audit.Options{Since: &early}); err == nil || !strings.Contains(err.Error(), "older") {
		t.Errorf("a checkpoint from before the archived rows: %v", err)
	}
	if r, err := b.verify(audit.Options{Archives: b.folder, Checkpoint: true}); err != nil || r.Findings > 0 {
		t.Errorf("whole: %v\n%s", err, r.Report)
	}
}

// TestRefusals archives what may not be archived.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b, ctx := newBundle(t), t.Context()
	want := func(year int, text string) {
		t.Helper()
		before := b.dump()
		if _, err := b.Archive(ctx, year, b.folder); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%d: %v, want %q", year, err, text)
		}
		if after := b.dump(); !slices.Equal(before, after) {
			t.Errorf("%d: the ledger has changed", year)
		}
	}
	want(2027, "can be archived from 2028-06-29 on")
	want(2028, "can be archived from 2029-06-30 on")
	want(2025, "no partition for 2025")
	b.exec(`INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id, claim, amount_mc,
		account_id, app_id, model, terms, created_us, paid_by, counts)
		VALUES ('conn_x', 'k', $1, 'f', 'pending', 1, 'n', 'c', 1, 'a', 'app_1', 'm', '{}', 1, 'wallet', '')`,
		id.New(id.Request, time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)))
	want(2026, "1 calls of 2026 are not settled")
	b.exec(`DELETE FROM holds`)
	if _, err := b.Attach(ctx, b.path()); err == nil {
		t.Error("a file was attached that is not there")
	}
	b.archive()
	want(2026, "archived already, in "+archive.FileName(2026))

	lite := archive.Archiver{DB: dbtest.Open(t, db.SQLite)}
	if _, err := lite.Archive(ctx, 2026, b.folder); err == nil || !strings.Contains(err.Error(), "SQLite") {
		t.Errorf("SQLite: %v", err)
	}
	if _, err := lite.Attach(ctx, b.path()); err == nil || !strings.Contains(err.Error(), "SQLite") {
		t.Errorf("SQLite: %v", err)
	}
}

// TestDamagedFiles damages the file of a year in several ways. Neither an audit nor an attach takes it.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	b, ctx := newBundle(t), t.Context()
	b.archive()
	whole, err := os.ReadFile(b.path())
	if err != nil {
		t.Fatal(err)
	}
	before := b.dump()
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{
		"cut off": whole[:len(whole)-1], "empty": {}, "longer": append(bytes.Clone(whole), 0), "flipped": flipped,
		"another": []byte("purser backup 1\n"),
	} {
		if err := os.WriteFile(b.path(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Attach(ctx, b.path()); err == nil || !strings.Contains(err.Error(), "SHA-256") {
			t.Errorf("%s: attach: %v", name, err)
		}
		if _, err := b.verify(audit.Options{Archives: b.folder}); err == nil ||
			!strings.Contains(err.Error(), "SHA-256") {
			t.Errorf("%s: audit: %v", name, err)
		}
		// Also if whoever damaged it wrote its digest into the database.
		b.exec(`UPDATE ledger_archives SET sha256 = encode(sha256($1::bytea), 'hex')`, content)
		if _, err := b.Attach(ctx, b.path()); err == nil {
			t.Errorf("%s: attached with another digest", name)
		}
		if _, err := b.verify(audit.Options{Archives: b.folder}); err == nil {
			t.Errorf("%s: audited with another digest", name)
		}
		b.exec(`UPDATE ledger_archives SET sha256 = encode(sha256($1::bytea), 'hex')`, whole)
		if after := b.dump(); !slices.Equal(before, after) {
			t.Errorf("%s: the database has changed", name)
		}
	}
	if err := os.Remove(b.path()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.verify(audit.Options{Archives: b.folder}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(b.path(), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`DELETE FROM ledger_archived_keys WHERE key_hash = (SELECT MIN(key_hash)
		FROM ledger_archived_keys)`, `UPDATE ledger_archived_accounts SET last_hash = 'x'`} {
		b.exec(`CREATE TABLE kept AS SELECT * FROM ledger_archived_keys`)
		b.exec(`CREATE TABLE ends AS SELECT * FROM ledger_archived_accounts`)
		b.exec(statement)
		if _, err := b.verify(audit.Options{Archives: b.folder}); err == nil ||
			!strings.Contains(err.Error(), "has lost") {
			t.Errorf("%s: %v", statement, err)
		}
		b.exec(`DELETE FROM ledger_archived_keys`)
		b.exec(`INSERT INTO ledger_archived_keys SELECT * FROM kept`)
		b.exec(`DELETE FROM ledger_archived_accounts`)
		b.exec(`INSERT INTO ledger_archived_accounts SELECT * FROM ends`)
		b.exec(`DROP TABLE kept, ends`)
	}
	if _, err := b.Attach(ctx, b.path()); err != nil {
		t.Error(err)
	}
	// The file of other rows keeps them from being archived under its name.
	b.exec(`ALTER TABLE ledger DISABLE TRIGGER USER`)
	b.exec(`UPDATE ledger SET fingerprint = 'g' WHERE id = $1`, b.old.ID)
	if _, err := b.Archive(ctx, 2026, b.folder); err == nil || !strings.Contains(err.Error(), "other rows") {
		t.Errorf("another file is there: %v", err)
	}
}

// TestReadersKeepTheYear archives while a snapshot needs the partition: it waits, and takes nothing away.
func TestReadersKeepTheYear(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	before := b.dump()
	err := b.Books.DB.InSnapshot(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := tx.KeepYears(ctx); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if _, err := b.Archive(short, 2026, b.folder); err == nil {
			t.Error("the year was archived")
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger`).Scan(&n); err != nil || n != 10 {
			t.Errorf("the snapshot has %d rows, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if after := b.dump(); !slices.Equal(before, after) {
		t.Error("the ledger has changed")
	}
	b.archive()
}

var errKilled = errors.New("killed")

// TestKills ends the work at each step. The year is in the ledger, or its file is complete and recorded; and the next
// try succeeds.
func TestKills(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	whole, report := b.dump(), b.report(audit.Options{})
	for _, w := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"archive", func(ctx context.Context) error { _, err := b.Archive(ctx, 2026, b.folder); return err }},
		{"attach", func(ctx context.Context) error { _, err := b.Attach(ctx, b.path()); return err }},
	} {
		var steps []string
		for n := 0; ; n++ {
			before, seen := b.dump(), 0
			steps = steps[:0]
			b.Step = func(name string) error {
				steps = append(steps, name)
				if seen++; seen > n {
					return errKilled
				}
				return nil
			}
			err := w.do(t.Context())
			if err == nil {
				break
			} else if !errors.Is(err, errKilled) {
				t.Fatalf("%s, %q: %v", w.what, steps, err)
			}
			if after := b.dump(); !slices.Equal(before, after) {
				t.Errorf("%s killed at %q has changed the database", w.what, steps)
			}
			if got := b.report(audit.Options{Archives: b.folder}); got != report {
				t.Errorf("%s killed at %q: the audit says\n%s", w.what, steps, got)
			}
		}
		if len(steps) < 4 {
			t.Errorf("%s has the steps %q", w.what, steps)
		}
		if got := b.report(audit.Options{Archives: b.folder}); got != report {
			t.Errorf("%s: the audit says\n%s", w.what, got)
		}
	}
	if after := b.dump(); !slices.Equal(whole, after) {
		t.Error("the ledger is not what it was")
	}
}

// TestRestoreNeedsTheFiles restores a backup of a database with an archived year into each engine, and brings the year
// back in PostgreSQL.
func TestRestoreNeedsTheFiles(t *testing.T) {
	t.Parallel()
	b, ctx := newBundle(t), t.Context()
	whole := b.dump()
	b.archive()
	path := filepath.Join(t.TempDir(), "a.backup")
	if _, err := backup.Create(ctx, b.url, path, nil); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "restored.db"),
		"postgres": dbtest.EmptyURL(t),
	} {
		if _, _, err := backup.Restore(ctx, path, target, nil, ""); !errors.Is(err, archive.ErrMissing) {
			t.Errorf("%s without the file: %v", name, err)
		}
		if _, _, err := backup.Restore(ctx, path, target, nil, t.TempDir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s in an empty folder: %v", name, err)
		}
		// Restore audits at the present time. While that is before the rows, what a connection remembers of 24 hours
		// has none of them.
		if _, r, err := backup.Restore(ctx, path, target, nil, b.folder); err != nil || r.LedgerRows != 10 ||
			r.Findings > 1 || r.Findings == 1 && !strings.Contains(r.Report, "counted_mc=0 rows_mc=2160000") {
			t.Fatalf("%s: %v\n%s", name, err, r.Report)
		}
		restored, err := db.Open(ctx, target)
		if err != nil {
			t.Fatal(err)
		}
		restored.RelaxLimits(12)
		defer restored.Close()
		key := rules.Key{ConnectionID: b.conn.ID, Key: b.old.Key}
		if used, err := store.IsKeyUsed(ctx, restored, key); err != nil || !used {
			t.Errorf("%s: the key of an archived call is used: %t, %v", name, used, err)
		}
		if name == "sqlite" {
			w := apitest.StartLedger(t, restored, b.Now)
			call := rules.Call{
				ConnectionID: b.conn.ID,
				AccountID:    b.conn.AccountID,
				AppID:        b.conn.AppID,
				Key:          b.old.Key,
				RequestID:    id.New(id.Request, b.Now()),
				Fingerprint:  "f",
				Model:        "m",
				Terms:        "{}",
				HoldMC:       money.Cent,
			}
			_, err := w.Do(ctx, rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
			var e *apierr.Error
			if !errors.As(err, &e) || e.Code != apierr.IdempotencyKeyReused {
				t.Errorf("a used key: %v", err)
			}
			continue
		}
		a := archive.Archiver{DB: restored}
		if _, err := a.Attach(ctx, b.path()); err != nil {
			t.Fatal(err)
		}
		b.Books.DB = restored
		if got := b.dump(); !slices.Equal(got, whole) {
			t.Errorf("the restored ledger has\n%s\nand had\n%s", strings.Join(got, "\n"), strings.Join(whole, "\n"))
		}
	}
}
