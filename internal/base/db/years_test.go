package db_test

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// yearsOf returns the partitions of a table as text: the year and its bounds, where … is before all.
func yearsOf(t *testing.T, d *db.DB, table string) (list []string) {
	t.Helper()
	for _, y := range listYears(t, d, table) {
		from := "…"
		if y.from != "" {
			from = id.Time(y.from).UTC().Format(time.DateOnly)
		}
		list = append(list, from+" "+id.Time(y.to).UTC().Format(time.DateOnly))
	}
	return list
}

// A year is a partition of a table.
type year struct{ name, from, to string } // from = "": from the first row on

// listYears returns the partitions of a table, oldest first, without the default one.
func listYears(t *testing.T, d *db.DB, table string) []year {
	t.Helper()
	list, err := db.QueryAll(t.Context(), d, db.ScanFields(func(y *year) []any {
		return []any{&y.name, &y.from, &y.to}
	}), `SELECT relname, COALESCE(substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'FROM \(''([^'']*)''\)'), ''),
			substring(pg_get_expr(relpartbound, pg_class.oid) FROM 'TO \(''([^'']*)''\)')
		FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
		WHERE inhparent = $1::text::regclass AND relname ~ '_y[0-9]+$' ORDER BY 1`, table)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestYears creates the partitions of the years that a clock says, and finds rows of a wrong one.
func TestYears(t *testing.T) {
	t.Parallel()
	d, ctx := dbtest.Open(t, db.Postgres), t.Context()
	list := yearsOf(t, d, "ledger")
	if len(list) < 2 || list[0] != "… 2027-01-01" || list[1] != "2027-01-01 2028-01-01" {
		t.Fatalf("a new database has the years %q", list)
	}
	last := len(list)
	d.SetBack(-2 * 366 * 24 * time.Hour)
	for range 2 { // the second time nothing is missing
		if err := d.EnsureYears(ctx); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"ledger", "stored_responses", "deliveries"} {
			if list = yearsOf(t, d, table); len(list) != last+2 {
				t.Errorf("%s has the years %q", table, list)
			}
		}
	}
	insert := func(at time.Time) {
		t.Helper()
		if _, err := d.ExecContext(ctx, `INSERT INTO stored_responses (request_id, encoding, body, created_us)
			VALUES ($1, 'raw', '', 1)`, id.New(id.Request, at)); err != nil {
			t.Fatal(err)
		}
	}
	insert(time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC))
	insert(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, name := range []string{"stored_responses_y2026", "stored_responses_y2027"} {
		var n int
		if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+name).Scan(&n); err != nil || n != 1 {
			t.Errorf("%s has %d rows, %v", name, n, err)
		}
	}
	// Both are in the first place of their partition, and only one is to go.
	n, err := d.DeleteSlices(ctx, "stored_responses", `request_id < $1`, "request_id", id.Floor(id.Request,
		time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
	if err != nil || n != 1 {
		t.Errorf("%d rows deleted, %v", n, err)
	}
	if err := d.CheckYears(ctx); err != nil {
		t.Error(err)
	}
	insert(d.Now().AddDate(2, 0, 0))
	if err := d.CheckYears(ctx); err == nil || !strings.Contains(err.Error(), "stored_responses_default") {
		t.Errorf("a row of a far year: %v", err)
	}
	if err := d.AnalyzeYears(ctx); err != nil {
		t.Error(err)
	}

	// The partitions go round its year.
	d.SetBack(-4 * 366 * 24 * time.Hour)
	if err := d.EnsureYears(ctx); err != nil {
		t.Error(err)
	}
	strays, want := yearsOf(t, d, "stored_responses"), yearsOf(t, d, "ledger")
	if len(strays) != len(want)-1 || strays[len(strays)-1] != want[len(want)-1] {
		t.Errorf("around a stray row there are the years %q, of the ledger %q", strays, want)
	}
}

// TestYearsAreAppendOnly tries to change rows of the ledger by the names of its partitions.
func TestYearsAreAppendOnly(t *testing.T) {
	t.Parallel()
	d, ctx := dbtest.Open(t, db.Postgres), t.Context()
	d.SetBack(-2 * 366 * 24 * time.Hour)
	if err := d.EnsureYears(ctx); err != nil {
		t.Fatal(err)
	}
	names := []string{"ledger", "ledger_default"}
	for _, y := range listYears(t, d, "ledger") {
		names = append(names, y.name)
		at := id.Time(y.to).Add(-time.Second)
		if _, err := d.ExecContext(ctx, `INSERT INTO ledger (id, account_id, seq, type, status, available_delta_mc,
				reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
			VALUES ($1, 'wac_x', 1, 'topup', 'settled', 0, 0, 0, 0, 1, '')`, id.New(id.Ledger, at)); err != nil {
			t.Fatal(err)
		}
		_, err := d.ExecContext(ctx, `INSERT INTO ledger (id, account_id, seq, type, status, available_delta_mc,
				reserved_delta_mc, allocation_delta_mc, consumed_delta_mc, created_us, hash)
			VALUES ($1, 'wac_x', 1, 'topup', 'settled', 0, 0, 0, 0, 1, '')`, id.New(id.Ledger, at))
		if !db.IsDuplicate(err) {
			t.Errorf("%s takes a seq twice: %v", y.name, err)
		}
	}
	for _, name := range names {
		for _, statement := range []string{`UPDATE {} SET hash = 'x'`, `DELETE FROM {}`, `TRUNCATE {}`} {
			statement = strings.ReplaceAll(statement, "{}", name)
			_, err := d.ExecContext(ctx, statement)
			isEmpty := name == "ledger_default" && !strings.HasPrefix(statement, "TRUNCATE") // no row, no trigger
			if !isEmpty && (err == nil || !strings.Contains(err.Error(), "append-only")) {
				t.Errorf("%s: %v", statement, err)
			}
		}
	}
}
