package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/ledger/proofs"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestEachCorruptionTurnsItsCheckRed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		writeFixture(t, d, fixture)
		dropConstraints(t, d)
		published := func(c corruption) bool { return strings.HasPrefix(strings.Join(c.red, ""), "I31") }
		list := append([]corruption{{name: "nothing"}}, corruptions...)
		slices.SortStableFunc(list, func(a, b corruption) int {
			return cmp.Compare(btoi(published(a)), btoi(published(b)))
		})
		list = append(list, corruption{name: "nothing, with a log"})
		for i, c := range list {
			if c.only != "" && c.only != string(d.Engine) {
				continue
			}
			isTurn := i%2 == 0 == (d.Engine == db.SQLite)
			if !testkit.IsLong() && c.only == "" && c.red != nil && !isTurn { // the checks are the same text on both
				continue
			}
			if published(c) { // the log would notice every other change of a row, too
				publishFixture(t, d)
			}
			t.Run(c.name, func(t *testing.T) {
				got := inspectCorrupted(t, d, c)
				var red []string
				for _, v := range got {
					if name := v.id + " " + v.title; v.findings > 0 {
						red = append(red, name)
						if !slices.ContainsFunc(c.red, func(want string) bool {
							return strings.HasPrefix(name, want)
						}) {
							t.Errorf("%s is red: %q", name, v.printed)
						}
					}
				}
				if c.remark != "" &&
					!slices.ContainsFunc(got, func(v *checkResult) bool {
						return strings.HasPrefix(v.remark, c.remark)
					}) {
					t.Errorf("no check remarks that %s …", c.remark)
				}
				for _, want := range c.red {
					if !slices.ContainsFunc(red, func(name string) bool { return strings.HasPrefix(name, want) }) {
						t.Errorf("%s is not red", want)
					}
				}
			})
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// publishFixture publishes the rows in the public log, unless it has them.
func publishFixture(t *testing.T, d *db.DB) {
	t.Helper()
	private, _, err := note.GenerateKey(rand.Reader, "purser.test/ledger")
	if err != nil {
		t.Fatal(err)
	}
	if key, err := settings.Keep(t.Context(), d, "test_log_key", private); err != nil {
		t.Fatal(err)
	} else if p, err := proofs.NewPublisher(d, key); err != nil {
		t.Fatal(err)
	} else if err := p.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestRefundTakesTheSavingBack refunds a call that read the provider's cache: the day keeps its tokens, and what the
// cache saved goes back with the charge.
func TestRefundTakesTheSavingBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		writeFixture(t, d, func(w *writer) {
			fixture(w)
			w.spend("conn_1", "k9", "late", long)
			w.refund("conn_1", "k9", "late", long)
		})
		for _, tt := range []struct {
			sql []string
			red int64
		}{
			{nil, 0},
			{[]string{`UPDATE daily_totals SET cached_tokens = 0 WHERE feature = 'late'`}, 1},
			{[]string{`UPDATE daily_totals SET cache_saved_mc = 21600432 WHERE feature = 'late'`}, 1},
		} {
			for _, v := range inspectCorrupted(t, d, corruption{sql: tt.sql}) {
				want := int64(0)
				if strings.HasPrefix(v.title, "totals: of each connection") {
					want = tt.red
				}
				if int64(v.findings) != want {
					t.Errorf("%v: %s has %d findings, want %d: %q", tt.sql, v.title, v.findings, want, v.printed)
				}
			}
		}
	})
}

// TestEveryCheckIsSeenToFail is the canary: a check that no corruption turns red
// may be one that cannot fail.
func TestEveryCheckIsSeenToFail(t *testing.T) {
	t.Parallel()
	for _, check := range checks {
		name := check.id + " " + check.title
		if !slices.ContainsFunc(corruptions, func(c corruption) bool {
			return slices.ContainsFunc(c.red, func(want string) bool { return strings.HasPrefix(name, want) })
		}) {
			t.Errorf("no corruption turns %q red", name)
		}
	}
}

var errForget = errors.New("forget the corruption")

// inspectCorrupted makes the corruption in a transaction, inspects what it sees,
// and takes everything back.
func inspectCorrupted(t *testing.T, d *db.DB, c corruption) []*checkResult {
	t.Helper()
	return inspectCorruptedSince(t, d, c, nil)
}

// inspectCorruptedSince inspects what is new since a checkpoint. It returns nil if the corruption is in what the
// checkpoint has verified.
func inspectCorruptedSince(t *testing.T, d *db.DB, c corruption, since *Checkpoint) []*checkResult {
	t.Helper()
	a := &verification{}
	err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
		w := &writer{TB: t, ctx: ctx, tx: tx}
		for _, text := range unlockSQL[d.Engine] {
			w.exec(text)
		}
		guarded := strings.HasPrefix(strings.Join(c.red, ""), "I21 schema")
		if guarded { // what is taken away is what the check is about
			restoreTriggers(w, d.Engine)
		}
		verified := w.verifiedRows(since)
		for _, text := range c.sql {
			w.exec(text)
		}
		if c.rehash {
			rebuildHashes(w)
		}
		if since != nil && !slices.Equal(verified, w.verifiedRows(since)) {
			return errForget
		}
		if !guarded {
			restoreTriggers(w, d.Engine)
		}
		a = &verification{Tx: tx, now: noon, since: since}
		if err := a.runChecks(ctx); err != nil {
			return err
		}
		return errForget
	})
	if !errors.Is(err, errForget) {
		t.Fatal(err)
	}
	return a.results
}

// unlockSQL takes away what keeps the ledger as it is.
var unlockSQL = map[db.Engine][]string{
	db.SQLite: {`PRAGMA ignore_check_constraints = 1`, `DROP TRIGGER ledger_no_update`, `DROP TRIGGER ledger_no_delete`,
		`DROP TRIGGER payment_records_no_update`, `DROP TRIGGER payment_records_no_delete`,
		`DROP TRIGGER goodwill_records_no_update`, `DROP TRIGGER goodwill_records_no_delete`,
		`DROP TRIGGER call_refunds_no_update`, `DROP TRIGGER call_refunds_no_delete`,
		`DROP TRIGGER margin_records_no_update`, `DROP TRIGGER margin_records_no_delete`,
		`DROP TRIGGER operator_log_no_update`},
	db.Postgres: {`SET LOCAL session_replication_role = replica`}, // no trigger fires
}

// dropConstraints lets rows have any values. On SQLite unlockSQL does it.
func dropConstraints(t *testing.T, d *db.DB) {
	t.Helper()
	if d.Engine != db.Postgres {
		return
	}
	if _, err := d.ExecContext(t.Context(), `DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint
			WHERE contype = 'c' AND coninhcount = 0 AND connamespace = 'public'::regnamespace LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$`); err != nil {
		t.Fatal(err)
	}
}

func restoreTriggers(w *writer, e db.Engine) {
	w.Helper()
	if e == db.Postgres {
		return // they are where they were
	}
	for _, table := range []string{
		"ledger", "payment_records", "goodwill_records", "call_refunds", "margin_records",
	} {
		for _, verb := range []string{"update", "delete"} {
			w.exec(fmt.Sprintf(
				`CREATE TRIGGER %[1]s_no_%[2]s BEFORE %[2]s ON %[1]s BEGIN SELECT RAISE(ABORT, 'append-only'); END`,
				table, verb))
		}
	}
}

// rebuildHashes makes the hash chain right for what the rows say now.
func rebuildHashes(w *writer) {
	w.Helper()
	var list []ledgerRow
	a := &verification{Tx: w.tx}
	_, err := a.readPage(w.ctx, `(account_id, seq) > ($1, $2)`, "", -1, func(r *ledgerRow) { list = append(list, *r) })
	if err != nil {
		w.Fatal(err)
	}
	account, head := "", ""
	for _, r := range list {
		if r.account != account {
			account, head = r.account, ""
		}
		head = chainHash(head, r.values[:ledgerColumnCount-1])
		w.exec(`UPDATE ledger SET hash = $1 WHERE id = $2`, head, r.id)
		w.exec(`UPDATE balances SET seq = $1, head = $2 WHERE account_id = $3`, r.seq, head, account)
	}
}
