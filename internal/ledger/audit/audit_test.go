package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestEachCorruptionTurnsItsCheckRed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		write(t, d, fixture)
		for _, c := range append([]corruption{{name: "nothing"}}, corruptions...) {
			if c.only != "" && c.only != string(d.Engine) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				got := inspectCorrupted(t, d, c)
				var red []string
				for _, v := range got {
					if name := v.id + " " + v.title; v.found > 0 {
						red = append(red, name)
						if !slices.ContainsFunc(c.red, func(want string) bool {
							return strings.HasPrefix(name, want)
						}) {
							t.Errorf("%s is red: %q", name, v.shown)
						}
					}
				}
				if c.told != "" &&
					!slices.ContainsFunc(got, func(v *verdict) bool { return strings.HasPrefix(v.note, c.told) }) {
					t.Errorf("nobody is told that %s …", c.told)
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
func inspectCorrupted(t *testing.T, d *db.DB, c corruption) []*verdict {
	t.Helper()
	var a *audit
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		w := &writer{TB: t, ctx: ctx, tx: tx}
		for _, text := range unlock[d.Engine] {
			w.exec(text)
		}
		guarded := strings.HasPrefix(strings.Join(c.red, ""), "I21 schema")
		if guarded { // what is taken away is what the check is about
			relock(w, d.Engine)
		}
		for _, text := range c.sql {
			w.exec(text)
		}
		if c.sealed {
			seal(w)
		}
		if !guarded {
			relock(w, d.Engine)
		}
		a = &audit{Tx: tx, now: noon}
		if err := a.inspect(ctx); err != nil {
			return err
		}
		return errForget
	})
	if !errors.Is(err, errForget) {
		t.Fatal(err)
	}
	return a.verdicts
}

// unlock takes away what keeps the ledger as it is.
var unlock = map[db.Engine][]string{
	db.SQLite: {`PRAGMA ignore_check_constraints = 1`, `DROP TRIGGER ledger_no_update`, `DROP TRIGGER ledger_no_delete`,
		`DROP TRIGGER payment_records_no_update`, `DROP TRIGGER payment_records_no_delete`},
	db.Postgres: {`ALTER TABLE ledger DISABLE TRIGGER USER`, `ALTER TABLE payment_records DISABLE TRIGGER USER`,
		`DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname); END LOOP; END $$`},
}

func relock(w *writer, e db.Engine) {
	w.Helper()
	for _, table := range []string{"ledger", "payment_records"} {
		if e == db.Postgres {
			w.exec(`ALTER TABLE ` + table + ` ENABLE TRIGGER USER`)
			continue
		}
		for _, verb := range []string{"update", "delete"} {
			w.exec(fmt.Sprintf(
				`CREATE TRIGGER %[1]s_no_%[2]s BEFORE %[2]s ON %[1]s BEGIN SELECT RAISE(ABORT, 'append-only'); END`,
				table, verb))
		}
	}
}

// seal makes the hash chain right for what the rows say now.
func seal(w *writer) {
	w.Helper()
	var list []row
	a := &audit{Tx: w.tx}
	if _, err := a.page(w.ctx, "", -1, func(r *row) { list = append(list, *r) }); err != nil {
		w.Fatal(err)
	}
	account, head := "", ""
	for _, r := range list {
		if r.account != account {
			account, head = r.account, ""
		}
		head = chainHash(head, r.values[:width-1])
		w.exec(`UPDATE ledger SET hash = $1 WHERE id = $2`, head, r.id)
		w.exec(`UPDATE balances SET seq = $1, head = $2 WHERE account_id = $3`, r.seq, head, account)
	}
}
