package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
)

// TestWhoWaitsForTheDisk asks PostgreSQL, at each COMMIT, whether it waits for the
// disk: for settlements, releases and whatever is a caller's, but not for holds.
func TestWhoWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), dbtest.URL(t, db.Postgres)+"&synchronous_commit=on")
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	defer d.Close()
	w := writers(t, d, 1)[0]
	ctx := t.Context()
	for _, text := range []string{
		`CREATE TABLE commits (n BIGSERIAL, waits TEXT)`,
		`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO commits (waits) VALUES ` +
			`(current_setting(''synchronous_commit'')); RETURN NULL; END'`,
		`CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON connections DEFERRABLE INITIALLY DEFERRED FOR ` +
			`EACH ROW EXECUTE FUNCTION note()`,
	} {
		if _, err := d.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	check := func(what, want string) {
		t.Helper()
		rows, err := d.QueryContext(ctx, `SELECT waits FROM commits ORDER BY n`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var all []string
		for rows.Next() {
			var waits string
			if err := rows.Scan(&waits); err != nil {
				t.Fatal(err)
			}
			all = append(all, waits)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if len(all) == n {
			t.Fatalf("%s: nothing was committed", what)
		}
		for _, waits := range all[n:] {
			if waits != want {
				t.Errorf("%s: synchronous_commit is %s, want %s", what, waits, want)
			}
		}
		n = len(all)
	}
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
	must(t)(w.Do(ctx, rules.Connect{
		Sandbox:      true,
		ConnectionID: "C",
		AppID:        "p",
		AccountID:    "A",
		RequestedMC:  1_000_000,
	}))
	check("connect", "on")
	for i := range 3 { // on the same connection to the server
		hold := rules.Hold{Call: callOf("C", "A", "p", fmt.Sprint("k", i), 10), NodeID: "n", Claim: fmt.Sprint(i)}
		must(t)(w.Do(ctx, hold))
		check("hold", "off")
		if i == 0 {
			must(t)(w.Do(ctx, rules.Release{Call: hold.Call, Attempt: 1}))
			check("release", "on")
			continue
		}
		must(t)(w.Do(ctx, rules.Settle{
			Call:       hold.Call,
			Attempt:    1,
			Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
			Settlement: rules.Settled,
			Usage:      rules.Usage{JSON: "{}"},
		}))
		check("settle", "on")
	}
	must(t)(w.Do(ctx, rules.Freeze{ConnectionID: "C", By: rules.FrozenByRisk}))
	check("freeze", "on")
}

// TestBindHasDeadline: the writer prepares a new connection for its batches within the time that a batch has, also if
// the network swallows what is sent. It has one goroutine: while that waits, no call is answered.
func TestBindHasDeadline(t *testing.T) {
	t.Parallel()
	proxy := faulttest.NewProxy(t, dbtest.URL(t, db.Postgres))
	d, err := db.Open(t.Context(), proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	defer d.Close()
	conn, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	proxy.BlackHole()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = conn.Raw(func(dc any) error { return newBackend(d).bind(ctx, dc) })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("bind: %v", err)
	}
}
