package store

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A planner asks the database how it would answer before it lets a query through. SQLite must read no table from end to
// end, and PostgreSQL not the table holds.
type planner struct {
	*db.DB
	t *testing.T
}

func (p planner) explain(ctx context.Context, query string, args []any) {
	p.t.Helper()
	if p.Engine == db.Postgres {
		plan, err := db.QueryAll(ctx, p.DB, db.ScanColumn[string], `EXPLAIN `+query, args...)
		if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on holds") {
			p.t.Errorf("%v %s\n\t%s", err, text, query)
		}
		return
	}
	rows, err := p.DB.QueryContext(ctx, `EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			p.t.Fatal(err)
		}
		if strings.HasPrefix(detail, "SCAN ") && !strings.Contains(detail, "USING INDEX holds_live") ||
			strings.Contains(detail, "holds USING PRIMARY KEY (connection_id=?)") {
			p.t.Errorf("%s\n\t%s", detail, query)
		}
	}
	if err := rows.Err(); err != nil {
		p.t.Fatal(err)
	}
}

func (p planner) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	p.t.Helper()
	p.explain(ctx, query, args)
	return p.DB.QueryContext(ctx, query, args...)
}

func (p planner) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	p.t.Helper()
	p.explain(ctx, query, args)
	return p.DB.QueryRowContext(ctx, query, args...)
}

// Failed calls leave holds for a month. No look-up and no sweep reads them all.

func TestFailedHoldsAreNotScanned(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		q, ctx := planner{d, t}, t.Context()
		if _, err := d.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
			INSERT INTO holds (connection_id, key, request_id, fingerprint, state, attempt, node_id, claim, amount_mc,
				account_id, app_id, model, terms, created_us, paid_by, reservations)
			SELECT 'conn_x', 'k' || i, 'req_' || i, 'f' || (i % 7),
				CASE WHEN i % 5000 = 0 THEN 'open' ELSE 'failed' END, 1, 'node_x', 'c' || i, 1,
				'wac_x', 'app_x', 'm', '{}', i, 'wallet', '' FROM n`); err != nil {
			t.Fatal(err)
		}
		if d.Engine == db.Postgres {
			if _, err := d.ExecContext(ctx, `ANALYZE holds`); err != nil {
				t.Fatal(err)
			}
		}
		if dead, err := HoldsOfDeadNodes(ctx, q, "node_y", db.At(time.UnixMicro(1)), 10); err != nil || len(dead) != 4 {
			t.Error(len(dead), err)
		}
		if open, err := ListOpenHolds(ctx, q, "node_x", 10); err != nil || len(open) != 4 {
			t.Error(len(open), err)
		}
		if n, oldest, err := CountOpenHolds(ctx, q); err != nil || n != 4 || oldest != 5000 {
			t.Error(n, oldest, err)
		}
		if running, err := ListRunningCalls(ctx, q, "wac_x", 10); err != nil || len(running) != 4 {
			t.Error(len(running), err)
		}
		for _, requestID := range []string{"req_7", "req_5000"} {
			if h, err := HoldOfRequest(ctx, q, requestID); err != nil || h.RequestID != requestID {
				t.Error(h, err)
			}
		}
		if _, err := HoldOfRequest(ctx, q, "req_unknown"); err != sql.ErrNoRows {
			t.Error(err)
		}
		for fingerprint, want := range map[string]string{"f1": "k20000", "f2": "k19994", "f3": "k19995", "f8": ""} {
			key, err := findHeldKey(ctx, q, "conn_x", "wac_x", fingerprint, 1)
			if err != nil || key != want {
				t.Errorf("%s: %q, want %q, %v", fingerprint, key, want, err)
			}
		}
		if key, err := findHeldKey(ctx, q, "conn_y", "wac_x", "f1", 1); err != nil || key != "" {
			t.Error(key, err)
		}
	})
}

// The pages of a user read rows of the user's connections by indexes, however many rows others have.
func TestPagesOfUsersUseIndexes(t *testing.T) {
	t.Parallel()
	q, ctx := planner{dbtest.Open(t, db.SQLite), t}, t.Context()
	if _, err := ListDailyTotals(ctx, q, "wac_x", "", "2026-11-01"); err != nil {
		t.Error(err)
	}
	if _, err := ListDailyRefunds(ctx, q, "wac_x", "", time.Unix(1_800_000_000, 0)); err != nil {
		t.Error(err)
	}
	if _, err := ListUsedModels(ctx, q, "wac_x", "2026-11-01", 5); err != nil {
		t.Error(err)
	}
	if _, err := LiveConnectionsOfAccount(ctx, q, "wac_x", 5); err != nil {
		t.Error(err)
	}
	if _, err := entriesBetween(ctx, q, EntryFilter{AccountID: "wac_x", Model: "m"}, 1, 9, 5); err != nil {
		t.Error(err)
	}
	for _, f := range []ConnectionFilter{{}, {AccountID: "wac_x"}, {AppID: "app_x", Status: rules.Frozen}} {
		if _, err := browseConnections(ctx, q, f, "", 5); err != nil {
			t.Error(err)
		}
	}
	if _, err := SpendsOfAccount(ctx, q, "wac_x", 0, 5); err != nil {
		t.Error(err)
	}
	if _, err := ListWorkHolds(ctx, q, "wac_x", "conn_x"); err != nil {
		t.Error(err)
	}
	if _, err := ListFreezes(ctx, q, "conn_x"); err != nil {
		t.Error(err)
	}
	if _, err := ListOpenDisputes(ctx, q, "wac_x"); err != nil {
		t.Error(err)
	}
}

// A key is looked for by an index in each year of the ledger, and nowhere else.
func TestKeysAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	d, ctx := dbtest.Open(t, db.Postgres), t.Context()
	for year := 2026; year < 2028; year++ {
		first := id.Floor(id.Ledger, time.Date(year, 12, 1, 0, 0, 0, 0, time.UTC))
		if _, err := d.ExecContext(ctx, `INSERT INTO ledger (id, account_id, seq, type, status, connection_id, key,
				key_hash, fingerprint, available_delta_mc, reserved_delta_mc, allocation_delta_mc, consumed_delta_mc,
				created_us, hash)
			SELECT $1::text || i, 'wac_x', i, 'topup', 'settled', 'conn_x', 'k' || i, i, 'f', 0, 0, 0, 0, 1, ''
			FROM generate_series($2::int, $2::int + 5000) i`, first[:len(first)-6], year*10_000); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.ExecContext(ctx, `ANALYZE ledger`); err != nil {
		t.Fatal(err)
	}
	query := strings.Replace(findKeys, "$1", `'{"(conn_x,k20260007,20260007)"}'`, 1)
	plan, err := db.QueryAll(ctx, d, db.ScanColumn[string], `EXPLAIN `+query)
	if text := strings.Join(plan, "\n"); err != nil || strings.Contains(text, "Seq Scan on ledger_y") ||
		strings.Count(text, "Index Scan using ledger_y") != 2 {
		t.Errorf("%v %s", err, text)
	}
	found, err := db.QueryAll(ctx, d, func(row db.Row) (state string, err error) {
		var skip any
		return state, row.Scan(&skip, &skip, &skip, &skip, &state, &skip, &skip, &skip, &skip, &skip, &skip)
	}, query)
	if err != nil || len(found) != 1 || found[0] != "done" {
		t.Errorf("the key leads to %q, %v", found, err)
	}
}
