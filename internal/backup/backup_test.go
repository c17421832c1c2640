package backup

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

	"filippo.io/age"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/rowfile"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// sampleFindings is the number of findings of an audit of the rows of openFilled: its calls have no price terms. A
// copy must have just these.
const sampleFindings = 5

// openFilled returns a database with some rows of each kind of value, and money that moved. It is open until the test
// ends, or the caller closes it.
func openFilled(t *testing.T, e db.Engine) (url string, d *db.DB) {
	t.Helper()
	url = dbtest.URL(t, e)
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := d.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	owner, user := id.New(id.Account, time.Now()), id.New(id.Account, time.Now())
	// The test account comes before its developer where rows are sorted by email.
	exec(`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ($1, 'ö@example.com', 'h', 1)`, owner)
	exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
		VALUES ($1, 'a@example.com', '', 1, $2, 1)`, user, owner)
	exec(`INSERT INTO sessions (token_hash, data, expires_us) VALUES ('t', $1, 1)`, []byte{0, 255, 10})
	exec(`INSERT INTO operator_log (id, actor, action, subject, reason, before, after, created_us)
		VALUES ('op_1', 'a', 'b', 'c', 'line 1
line 2', '{}', '{}', 1)`)
	b := apitest.NewBooks(t, d)
	b.Do(rules.TopUp{AccountID: user, Sandbox: true, AmountMC: 500 * money.Cent})
	c := b.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.Now()),
		AppID:        "app_1",
		AccountID:    user,
		Sandbox:      true,
		RequestedMC:  300 * money.Cent,
	}).Connection
	for range 5 {
		b.Spend(c, 7*money.Cent)
	}
	return url, d
}

// dump returns all rows of all tables, sorted.
func dump(t *testing.T, url string) map[string][]string {
	t.Helper()
	d, err := db.OpenReadOnly(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	all := map[string][]string{}
	err = d.InSnapshot(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		version, err := db.SchemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		tables, err := db.Tables(version)
		if err != nil {
			return err
		}
		for _, table := range tables {
			_, err := db.EachRow(ctx, tx, selectAll(table), func([]string) {}, func(values []any) error {
				all[table] = append(all[table], fmt.Sprintf("%#v", values))
				return nil
			})
			if err != nil {
				return err
			}
			slices.Sort(all[table])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// newTarget returns the URL of a database that does not exist, or is empty.
func newTarget(t *testing.T, e db.Engine) string {
	t.Helper()
	if e == db.SQLite {
		return "sqlite:" + filepath.Join(t.TempDir(), "restored.db")
	}
	return dbtest.EmptyURL(t)
}

var engines = []db.Engine{db.SQLite, db.Postgres}

// A backup of either engine, taken while the database is open for writing, restores into either.
func TestRestore(t *testing.T) {
	t.Parallel()
	for _, from := range engines {
		t.Run(string(from), func(t *testing.T) {
			t.Parallel()
			source, _ := openFilled(t, from)
			path := filepath.Join(t.TempDir(), "a.backup")
			made, err := Create(t.Context(), source, path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if made.Heads.Entries != 7 || made.Heads.Accounts != 1 || made.Heads.NewestUS == 0 || made.Rows() < 15 {
				t.Errorf("%+v", made)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			want := dump(t, source)
			for _, to := range engines {
				target := newTarget(t, to)
				m, r, err := Restore(t.Context(), path, target, nil)
				if err != nil || m.Digest != made.Digest || r.Checks == 0 {
					t.Fatalf("to %s: %+v, %v", to, m, err)
				}
				if r.Findings != sampleFindings {
					t.Errorf("to %s: %s", to, r.Report)
				}
				got := dump(t, target)
				for table := range want {
					if !slices.Equal(got[table], want[table]) {
						t.Errorf("%s to %s: table %s\n%s\nwant\n%s", from, to, table, got[table], want[table])
					}
				}
				// A second one finds it in use, and changes nothing.
				if _, _, err := Restore(t.Context(), path, target, nil); err == nil ||
					!strings.Contains(err.Error(), "already") {
					t.Errorf("restored over data: %v", err)
				}
				opened, err := db.Open(t.Context(), target) // as a node does
				if err != nil {
					t.Fatal(err)
				}
				if _, err := opened.ExecContext(t.Context(), `UPDATE ledger SET amount_mc = 1`); err == nil {
					t.Error("ledger rows of a restored database can be changed")
				}
				if err := opened.Close(); err != nil {
					t.Error(err)
				}
			}
			if _, r, err := Verify(t.Context(), path, nil); err != nil || r.Findings != sampleFindings {
				t.Errorf("verify: %v\n%s", err, r.Report)
			}
		})
	}
}

// What is cut off or damaged restores nothing, into either engine.
func TestNothingIsRestoredOfABrokenFile(t *testing.T) {
	t.Parallel()
	source, _ := openFilled(t, db.SQLite)
	folder := t.TempDir()
	path := filepath.Join(folder, "a.backup")
	if _, err := Create(t.Context(), source, path, nil); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(folder, "broken.backup")
	for _, e := range engines {
		target := newTarget(t, e)
		for _, size := range []int{len(whole) - 1, len(whole) / 2, len("purser backup 1\n"), 0} {
			if err := os.WriteFile(broken, whole[:size], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Restore(t.Context(), broken, target, nil); !errors.Is(err, rowfile.ErrCutOff) {
				t.Errorf("%d of %d bytes to %s: %v", size, len(whole), e, err)
			}
		}
		if file, ok := strings.CutPrefix(target, "sqlite:"); ok {
			left, err := os.ReadDir(filepath.Dir(file))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		}
		// it is still empty
		if _, r, err := Restore(t.Context(), path, target, nil); err != nil || r.Findings != sampleFindings {
			t.Errorf("to %s: %v\n%s", e, err, r.Report)
		}
	}
}

// A restore refuses a place with a log, which SQLite would apply to the restored file, and one that is in use.
func TestRestoreBesideRemains(t *testing.T) {
	t.Parallel()
	source, _ := openFilled(t, db.SQLite)
	target := newTarget(t, db.SQLite)
	file := strings.TrimPrefix(target, "sqlite:")
	restoreFile := func() error {
		_, err := Copy(t.Context(), source, target)
		return err
	}
	if err := os.WriteFile(file+"-wal", []byte("log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := restoreFile(); err == nil || !strings.Contains(err.Error(), "-wal exists already") {
		t.Error(err)
	}
	if err := os.Remove(file + "-wal"); err != nil {
		t.Fatal(err)
	}
	other, err := db.TakePlace(file) // a second restore, or a node that starts
	if err != nil {
		t.Fatal(err)
	}
	if err := restoreFile(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	if err := other.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := restoreFile(); err != nil {
		t.Error(err)
	}
}

// A restore to a PostgreSQL that nodes use is refused. What is restored is a database of its own, which knows that it
// went back in time and that no node runs on it.
func TestRestoreBelowNodes(t *testing.T) {
	t.Parallel()
	source, d := openFilled(t, db.SQLite)
	lease := time.Now().Add(time.Hour).UnixMicro()
	for _, query := range []string{
		`INSERT INTO nodes (id, started_us, lease_us) VALUES ('node_1', 1, $1)`,
		`INSERT INTO settings (name, value) VALUES ('database_id', 'db_1' || CASE WHEN $1 > 0 THEN '' END)`,
	} {
		if _, err := d.ExecContext(t.Context(), query, lease); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "a.backup")
	if m, err := Create(t.Context(), source, path, nil); err != nil || m.Database != "db_1" {
		t.Fatalf("%+v, %v", m, err)
	}
	target := newTarget(t, db.Postgres)
	node, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	node.RelaxLimits(12)
	defer node.Close()
	const join = `INSERT INTO nodes (id, started_us, lease_us) VALUES ('node_2', 1, $1)`
	if _, err := node.ExecContext(t.Context(), join, lease); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(t.Context(), path, target, nil); err == nil ||
		!strings.Contains(err.Error(), "stop them first") {
		t.Errorf("restored below a node: %v", err)
	}
	if _, err := Copy(t.Context(), source, target); err == nil ||
		!strings.Contains(err.Error(), "stop them first") {
		t.Errorf("copied below a node: %v", err)
	}
	if _, err := node.ExecContext(t.Context(), `UPDATE nodes SET lease_us = 1`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(t.Context(), path, target, nil); err != nil {
		t.Fatal(err)
	}
	var live int
	if err := node.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM nodes WHERE lease_us > $1`,
		time.Now().UnixMicro()).Scan(&live); err != nil || live > 0 {
		t.Errorf("%d nodes of the lost database are live in the restored one, %v", live, err)
	}
	database, err := settings.Get(t.Context(), node, settings.DatabaseID)
	if err != nil || !strings.HasPrefix(database, "db_0") {
		t.Errorf("its id is %q, %v", database, err)
	}
	if restored, err := settings.Get(t.Context(), node, settings.Restored); err != nil || restored == "" {
		t.Errorf("it went back in time at %q, %v", restored, err)
	}
}

// An older Purser's backup gets the later migrations with its rows.
func TestRestoreAnOlderSchema(t *testing.T) {
	t.Parallel()
	const version = 7
	var file bytes.Buffer
	out, err := rowfile.NewEncoder(&file)
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{Header: Header{Engine: "sqlite", Schema: version, BeganAt: presentTime()}}
	if err := out.PutHeader(m.Header); err != nil {
		t.Fatal(err)
	}
	old := newTarget(t, db.SQLite)
	err = db.Load(t.Context(), old, version, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO accounts (id, email, password_hash, created_us)
			VALUES ('wac_1', 'a@example.com', 'h', 1)`); err != nil {
			return err
		}
		tables, err := db.Tables(version)
		if err != nil {
			return err
		}
		for _, table := range tables {
			begin := func(columns []string) { out.PutTable(table, columns) }
			n, err := db.EachRow(ctx, tx, selectAll(table), begin, out.PutRow)
			if err != nil {
				return err
			}
			m.Tables = append(m.Tables, TableCount{Name: table, Rows: n})
		}
		m.Heads, err = readHeads(ctx, tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Close(&m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.backup")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		target := newTarget(t, e)
		if _, r, err := Restore(t.Context(), path, target, nil); err != nil || r.Findings > 0 {
			t.Fatalf("to %s: %v\n%s", e, err, r.Report)
		}
		rows := dump(t, target)["accounts"]
		if len(rows) != 1 || !strings.Contains(rows[0], "wac_1") {
			t.Errorf("%s: %s", e, rows)
		}
	}
}

func TestEncryption(t *testing.T) {
	t.Parallel()
	source, _ := openFilled(t, db.SQLite)
	folder := t.TempDir()
	keyFile, otherFile := filepath.Join(folder, "key"), filepath.Join(folder, "other")
	text, err := CreateIdentity(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateIdentity(otherFile); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateIdentity(keyFile); err == nil {
		t.Error("a private key is overwritten")
	}
	recipient, err := ParseRecipient(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseRecipient("age1wrong"); err == nil {
		t.Error("a wrong public key is accepted")
	}
	read := func(file string) []age.Identity {
		list, err := ReadIdentities(file)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	passphraseFile := filepath.Join(folder, "passphrase")
	if err := os.WriteFile(passphraseFile, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	passphrase, opener, err := ReadPassphrase(passphraseFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		to   age.Recipient
		with []age.Identity
	}{"key": {recipient, read(keyFile)}, "passphrase": {passphrase, []age.Identity{opener}}} {
		path := filepath.Join(folder, name+".backup")
		if _, err := Create(t.Context(), source, path, []age.Recipient{test.to}); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(file, []byte(ageMagic)) || bytes.Contains(file, []byte("example.com")) {
			t.Error("it is not encrypted")
		}
		if _, r, err := Verify(t.Context(), path, test.with); err != nil || r.Findings != sampleFindings {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := Verify(t.Context(), path, nil); err == nil ||
			!strings.Contains(err.Error(), "it is encrypted") {
			t.Errorf("%s: without a key: %v", name, err)
		}
		if _, _, err := Verify(t.Context(), path, read(otherFile)); err == nil {
			t.Errorf("%s: another key opens it", name)
		}
		cut := filepath.Join(folder, name+".cut")
		if err := os.WriteFile(cut, file[:len(file)-1], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Verify(t.Context(), cut, test.with); err == nil {
			t.Errorf("%s: a cut file is accepted", name)
		}
	}
}

// What cannot be a whole backup is refused before a file is there.
func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	source, _ := openFilled(t, db.SQLite)
	folder := t.TempDir()
	path := filepath.Join(folder, "a.backup")
	copied := filepath.Join(folder, "copied.db") // the main file alone, of a running server
	content, err := os.ReadFile(strings.TrimPrefix(source, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"sqlite:" + copied:           "without its log",
		"sqlite:" + folder + "/none": "no such file",
	} {
		if _, err := Create(t.Context(), source, path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", source, err)
		}
		if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
			t.Errorf("%s: left %s", source, left)
		}
	}
	if _, err := Create(t.Context(), source, path, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), source, path, nil); err == nil {
		t.Error("a backup is overwritten")
	}
	if err := os.WriteFile(path+".2.partial", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), source, path+".2", nil); err == nil ||
		!strings.Contains(err.Error(), "another backup writes it") {
		t.Errorf("two backups write one file: %v", err)
	}
}

// A copy refuses while a node runs, and is audited on both sides.
func TestCopy(t *testing.T) {
	t.Parallel()
	source, d := openFilled(t, db.SQLite)
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := d.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO nodes (id, started_us, lease_us) VALUES ('node_2', 1, $1)`,
		time.Now().Add(time.Minute).UnixMicro())
	target := newTarget(t, db.Postgres)
	if _, err := Copy(t.Context(), source, target); err == nil ||
		!strings.Contains(err.Error(), "stop them first") {
		t.Errorf("copied below a running node: %v", err)
	}
	exec(`UPDATE nodes SET lease_us = 1`)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Copy(t.Context(), source, target)
	if err != nil || c.From.Findings != sampleFindings || c.To.Findings != sampleFindings ||
		c.From.Checks != c.To.Checks || c.Manifest.Heads.Entries != 7 {
		t.Errorf("%+v, %v", c, err)
	}
	back := newTarget(t, db.SQLite)
	if _, err := Copy(t.Context(), target, back); err != nil {
		t.Fatal(err)
	}
	want, got := dump(t, source), dump(t, back)
	for table := range want {
		if !slices.Equal(got[table], want[table]) {
			t.Errorf("table %s\n%s\nwant\n%s", table, got[table], want[table])
		}
	}
	if _, err := Copy(t.Context(), "sqlite:"+t.TempDir()+"/none", newTarget(t, db.SQLite)); err == nil {
		t.Error("nothing was copied")
	}
}
