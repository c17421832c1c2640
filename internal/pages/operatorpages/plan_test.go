package operatorpages

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// An explainer asks SQLite how it would answer before it lets a query through.
type explainer struct {
	*db.DB
	t *testing.T
}

// big are tables of millions of rows; reading a whole small index of one is fine.
var big = regexp.MustCompile(
	`^SCAN (ledger|daily_totals|r|events|connections|mails|deliveries|payment_records|accounts)` +
		`( USING (COVERING )?INDEX (\w+))?$`)

// small are indexes with few rows in them.
var small = map[string]bool{
	"connections_paused": true,
	"events_new":         true,
	"events_risk":        true,
	"mails_due":          true,
	"deliveries_due":     true,
	"mails_failed":       true,
}

func (e explainer) explain(ctx context.Context, query string, args []any) {
	e.t.Helper()
	rows, err := e.DB.QueryContext(ctx, `EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			e.t.Fatal(err)
		}
		if m := big.FindStringSubmatch(detail); m != nil && !small[m[4]] {
			e.t.Errorf("%s\n\t%s", detail, query)
		}
	}
	if err := rows.Err(); err != nil {
		e.t.Fatal(err)
	}
}

func (e explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	e.t.Helper()
	e.explain(ctx, query, args)
	return e.DB.QueryContext(ctx, query, args...)
}

func (e explainer) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	e.t.Helper()
	e.explain(ctx, query, args)
	return e.DB.QueryRowContext(ctx, query, args...)
}

// No page reads a table of millions of rows from one end to the other.
func TestPagesUseIndexes(t *testing.T) {
	t.Parallel()
	q, ctx := explainer{dbtest.Open(t, db.SQLite), t}, t.Context()
	for name, f := range map[string]func() error{
		"backlog":  func() error { _, err := countBacklog(ctx, q); return err },
		"ledger":   func() error { _, err := listEntriesBefore(ctx, q, "wac_x", 5, 5); return err },
		"owed":     func() error { _, err := listOwed(ctx, q, 5); return err },
		"reversal": func() error { _, err := findReversal(ctx, q, "led_x"); return err },
		"risk":     func() error { _, err := listRiskEvents(ctx, q, riskFilter{}, "", 5); return err },
		"risk of an app": func() error {
			_, err := listRiskEvents(ctx, q, riskFilter{"connection.frozen", "app_x"}, "", 5)
			return err
		},
		"pools":         func() error { _, err := listFreePools(ctx, q, "2026-11", "", 5); return err },
		"sums":          func() error { _, err := sumCountedDays(ctx, q, "", "2026-11-01"); return err },
		"sums by app":   func() error { _, err := sumCountedDays(ctx, q, "app_x", "2026-11-01"); return err },
		"verifications": func() error { _, err := listVerifications(ctx, q, 5); return err },
		"last result":   func() error { _, err := lastVerification(ctx, q, stateClean, stateFindings); return err },
		"paused":        func() error { _, err := listPaused(ctx, q, 5); return err },
		"disputes":      func() error { _, err := listDisputes(ctx, q, 1, 5); return err },
		"nodes":         func() error { _, err := listNodes(ctx, q, 5); return err },
		"names": func() error {
			_, err := loadNames(ctx, q, "app_x", "wac_x", "conn_x", "glr_x", "inc_x")
			return err
		},
		"moves": func() error { _, err := listMoves(ctx, q, "wac_x", 1, 2, 5); return err },
		"call days": func() error {
			_, err := listCallDays(ctx, q, "wac_x", "2026-11-01", "2026-12-01")
			return err
		},
		"pauses":       func() error { _, err := listPauses(ctx, q, "wac_x", 1, 2, 5); return err },
		"decisions":    func() error { _, err := listDecisions(ctx, q, "wac_x", 1, 2, 5); return err },
		"own disputes": func() error { _, err := listAccountDisputes(ctx, q, "wac_x", 1, 2, 5); return err },
		"price lists":  func() error { _, err := listPriceLists(ctx, q, 5); return err },
		"money by day": func() error { _, err := listMoneyDays(ctx, q, "2026-11-01"); return err },
		"balances":     func() error { _, err := listBalanceDays(ctx, q, "2026-11-01"); return err },
	} {
		if err := f(); err != nil {
			t.Error(fmt.Errorf("%s: %w", name, err))
		}
	}
}

// What waits is counted up to a bound, and a page says so.
func TestBacklogIsCountedUpToABound(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		for _, part := range []struct {
			first, last int
			want        string
		}{
			{1, maxCounted - 1, "999"},
			{maxCounted, maxCounted + 7, "1,000+"},
		} {
			if _, err := d.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT %d UNION ALL
				SELECT i + 1 FROM n WHERE i < %d) INSERT INTO events (id, type, app_id, connection_id, seq, data,
					created_us) SELECT 'evt_' || i, 'request.settled', 'app_x', 'conn_x', i, '{}', 1 FROM n`,
				part.first, part.last)); err != nil {
				t.Fatal(err)
			}
			if b, err := countBacklog(t.Context(), d); err != nil || countText(b.events) != part.want {
				t.Errorf("%s, %v, want %s", countText(b.events), err, part.want)
			}
		}
	})
}
